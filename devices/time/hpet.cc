// SPDX-License-Identifier: Apache-2.0
#include "devices/time/hpet.h"

#include <algorithm>
#include <utility>

namespace alibi::devices {
namespace {

// Specification 1.0a, 2.3.
enum Register : u64 {
  kCapabilities = 0x00,
  kConfig = 0x10,
  kStatus = 0x20,
  kCounter = 0xf0,
  kFirstTimer = 0x100,
};
constexpr u64 kTimerStride = 0x20;
enum TimerRegister : u64 { kTimerConfig = 0x00, kComparator = 0x08 };

constexpr u64 kEnable = 1, kLegacy = 2;

constexpr u64 kLevel = 1 << 1, kInterrupt = 1 << 2, kPeriodic = 1 << 3, kPeriodicAble = 1 << 4,
              kWide = 1 << 5, kSetValue = 1 << 6, kNarrowMode = 1 << 8;
constexpr unsigned kRouteShift = 9;
constexpr u64 kRouteMask = u64{0x1f} << kRouteShift;
constexpr u64 kWritable = kLevel | kInterrupt | kPeriodic | kSetValue | kNarrowMode;

constexpr u64 kFemtosecondsPerTick = Hpet::kTickNs * 1'000'000;
constexpr u64 kShortestTicks = kShortestTimerPeriodNs / Hpet::kTickNs;
// Some 180 years: not worth a timer.
constexpr u64 kFarTicks = u64{1} << 59;
constexpr u64 kNever = ~u64{0};
constexpr u64 kNarrowMask = 0xffffffff;

constexpr unsigned RouteOf(u64 config) {
  return static_cast<unsigned>((config & kRouteMask) >> kRouteShift);
}

}  // namespace

void SwitchedLine::Select(bool second) {
  selected_ = second ? 1 : 0;
  Drive();
}

Hpet::Hpet(Clock& clock, TimerQueue& timers, SwitchedLine& irq0, SwitchedLine& irq8,
           std::function<IrqLine&(unsigned input)> route)
    : clock_(clock), timer_queue_(timers), irq0_(irq0), irq8_(irq8), route_(std::move(route)) {
  for (unsigned number = 0; number < kTimers; ++number) {
    timers_[number].id = timers.Register([this, number](u64) { Expire(number); });
  }
  Reset();
}

void Hpet::Reset() {
  for (unsigned number = 0; number < kTimers; ++number) {
    Timer& timer = timers_[number];
    status_ = 0;
    UpdateLine(number);
    timer_queue_.Cancel(timer.id);
    const TimerQueue::TimerId id = timer.id;
    timer = Timer();
    timer.id = id;
    timer.config = u64{kRoutes} << 32 | kPeriodicAble | kWide;
  }
  counter_ = 0;
  config_ = 0;
  irq0_.Select(false);
  irq8_.Select(false);
}

u64 Hpet::Counter() { return enabled() ? counter_ + clock_.NowNs() / kTickNs : counter_; }

IrqLine* Hpet::LineOf(unsigned number) {
  if (legacy() && number == 0) return &irq0_.second();
  if (legacy() && number == 1) return &irq8_.second();
  const unsigned input = RouteOf(timers_[number].config);
  return (kRoutes >> input & 1) ? &route_(input) : nullptr;
}

// A level-triggered timer holds its line for as long as its status says.
void Hpet::UpdateLine(unsigned number) {
  Timer& timer = timers_[number];
  const bool wanted =
      (status_ >> number & 1) && (timer.config & kLevel) && (timer.config & kInterrupt);
  if (wanted == timer.asserted) return;
  timer.asserted = wanted;
  if (IrqLine* line = LineOf(number)) line->Set(wanted);
}

// `ticks` from `now`, which is the counter's value.
void Hpet::SetDeadline(Timer& timer, u64 now, u64 ticks) {
  const bool comes = ticks < kFarTicks;
  timer.deadline = comes ? now + ticks : kNone;
  timer_queue_.Arm(timer.id,
                   comes ? (clock_.NowNs() / kTickNs + ticks) * kTickNs : TimerQueue::kNever);
}

void Hpet::Schedule(unsigned number) {
  Timer& timer = timers_[number];
  const u64 now = Counter();
  u64 ticks = timer.comparator - now;
  if (timer.config & kNarrowMode) ticks &= kNarrowMask;
  if (!enabled() || !(timer.config & (kInterrupt | kLevel))) ticks = kNever;
  SetDeadline(timer, now, ticks);
}

void Hpet::ScheduleAll() {
  for (unsigned number = 0; number < kTimers; ++number) Schedule(number);
}

void Hpet::Expire(unsigned number) {
  Timer& timer = timers_[number];
  const u64 now = Counter();
  if (timer.deadline == kNone || !enabled()) return;
  if (timer.config & kLevel) {
    status_ |= u64{1} << number;
    UpdateLine(number);
  } else if (timer.config & kInterrupt) {
    if (IrqLine* line = LineOf(number)) {
      line->Set(true);
      line->Set(false);
    }
  }
  if ((timer.config & kPeriodic) && timer.period != 0) {
    // Periods that nobody served in time are one.
    const u64 step = ((now - timer.deadline) / timer.period + 1) * timer.period;
    timer.comparator += step;
    SetDeadline(timer, now, std::max(timer.deadline + step - now, kShortestTicks));
  } else if (timer.config & kNarrowMode) {
    // The lower half comes round again.
    SetDeadline(timer, now, kNarrowMask + 1 - (now - timer.deadline) % (kNarrowMask + 1));
  } else {
    timer.deadline = kNone;
  }
}

u64 Hpet::ReadRegister(u64 offset) {
  switch (offset) {
    case kCapabilities:
      return kFemtosecondsPerTick << 32 | kBlockId;
    case kConfig:
      return config_;
    case kStatus:
      return status_;
    case kCounter:
      return Counter();
    default:
      break;
  }
  const u64 number = (offset - kFirstTimer) / kTimerStride;
  if (offset < kFirstTimer || number >= kTimers) return 0;
  const Timer& timer = timers_[number];
  switch ((offset - kFirstTimer) % kTimerStride) {
    case kTimerConfig:
      return timer.config;
    case kComparator:
      return (timer.config & kNarrowMode) ? timer.comparator & kNarrowMask : timer.comparator;
    default:
      return 0;
  }
}

void Hpet::SetConfig(u64 value) {
  const u64 now = Counter();
  const bool was_enabled = enabled(), was_legacy = legacy();
  const bool to_legacy = value & kLegacy;
  if (was_legacy != to_legacy) {
    // The lines that timers hold are let go where they are, and taken where they will be.
    const u64 status = std::exchange(status_, 0);
    for (unsigned number = 0; number < kTimers; ++number) UpdateLine(number);
    config_ = (config_ & ~kLegacy) | (value & kLegacy);
    irq0_.Select(to_legacy);
    irq8_.Select(to_legacy);
    status_ = status;
    for (unsigned number = 0; number < kTimers; ++number) UpdateLine(number);
  }
  config_ = value & (kEnable | kLegacy);
  if (was_enabled == enabled()) return;
  counter_ = enabled() ? now - clock_.NowNs() / kTickNs : now;
  ScheduleAll();
}

void Hpet::WriteRegister(u64 offset, u64 value, u64 mask) {
  const auto merge = [&](u64 old) { return (old & ~mask) | (value & mask); };
  switch (offset) {
    case kConfig:
      return SetConfig(merge(config_));
    case kStatus:
      status_ &= ~(value & mask);
      for (unsigned number = 0; number < kTimers; ++number) UpdateLine(number);
      return;
    case kCounter: {
      const u64 now = merge(Counter());
      counter_ = enabled() ? now - clock_.NowNs() / kTickNs : now;
      return ScheduleAll();
    }
    default:
      break;
  }
  const u64 number = (offset - kFirstTimer) / kTimerStride;
  if (offset < kFirstTimer || number >= kTimers) return;
  WriteTimer(static_cast<unsigned>(number), (offset - kFirstTimer) % kTimerStride, value, mask);
}

void Hpet::WriteTimer(unsigned number, u64 offset, u64 value, u64 mask) {
  Timer& timer = timers_[number];
  const auto merge = [&](u64 old) { return (old & ~mask) | (value & mask); };
  if (offset == kTimerConfig) {
    Configure(number, merge(timer.config));
  } else if (offset == kComparator) {
    // A periodic timer's comparator changes only where VAL_SET says so; the period does in any case
    // (2.3.9.2.2).
    const bool periodic = timer.config & kPeriodic;
    if (!periodic || (timer.config & kSetValue)) timer.comparator = merge(timer.comparator);
    if (periodic) timer.period = merge(timer.period);
    if (timer.config & kNarrowMode) {
      timer.comparator &= kNarrowMask;
      timer.period &= kNarrowMask;
    }
    timer.config &= ~kSetValue;
  } else {
    return;
  }
  Schedule(number);
}

void Hpet::Configure(unsigned number, u64 value) {
  Timer& timer = timers_[number];
  u64 config = (timer.config & ~kWritable) | (value & kWritable);
  // A route that does not exist is not taken.
  if (kRoutes >> RouteOf(value) & 1) config = (config & ~kRouteMask) | (value & kRouteMask);
  if (timer.asserted) {
    timer.asserted = false;
    if (IrqLine* line = LineOf(number)) line->Set(false);
  }
  timer.config = config;
  if (!(config & kLevel)) status_ &= ~(u64{1} << number);
  UpdateLine(number);
}

u64 Hpet::Read(u64 offset, unsigned size) {
  const unsigned shift = static_cast<unsigned>(offset % 8);
  if (shift + size > 8) return 0;
  return ReadRegister(offset - shift) >> (8 * shift);
}

void Hpet::Write(u64 offset, unsigned size, u64 value) {
  const unsigned shift = static_cast<unsigned>(offset % 8);
  if (shift + size > 8) return;
  const u64 mask = size == 8 ? ~u64{0} : ((u64{1} << (8 * size)) - 1) << (8 * shift);
  WriteRegister(offset - shift, value << (8 * shift), mask);
}

}  // namespace alibi::devices
