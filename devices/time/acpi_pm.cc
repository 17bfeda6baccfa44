// SPDX-License-Identifier: Apache-2.0
#include "devices/time/acpi_pm.h"

#include <utility>

namespace alibi::devices {
namespace {

// PM1 status and enable.
constexpr u16 kTimerEvent = 1u << 0, kGlobalEvent = 1u << 5, kPowerButton = 1u << 8,
              kSleepButton = 1u << 9, kRtcEvent = 1u << 10, kWake = 1u << 15;
constexpr u16 kStatusBits =
    kTimerEvent | kGlobalEvent | kPowerButton | kSleepButton | kRtcEvent | kWake;
constexpr u16 kEnableBits = kTimerEvent | kGlobalEvent | kPowerButton | kSleepButton | kRtcEvent;
// PM1 control.
constexpr u16 kSciEnable = 1u << 0, kSleepEnable = 1u << 13;
constexpr unsigned kSleepTypeShift = 10;

constexpr u64 kHalfPeriod = u64{1} << 23;  // the highest bit toggles
constexpr u64 kSecondNs = 1'000'000'000;

}  // namespace

AcpiPm::AcpiPm(Clock& clock, TimerQueue& timers, IrqLine& sci, std::function<void()> power_off)
    : clock_(clock),
      timers_(timers),
      sci_(sci),
      power_off_(std::move(power_off)),
      timer_(timers.Register([this](u64) { Update(); })) {}

void AcpiPm::Reset() {
  Status();
  status_ = enable_ = control_ = 0;
  Update();
}

u64 AcpiPm::Ticks() {
  return static_cast<u64>(static_cast<unsigned __int128>(clock_.NowNs()) * kTimerHz / kSecondNs);
}

u32 AcpiPm::TimerValue() { return static_cast<u32>(Ticks() & 0xffffff); }

u16 AcpiPm::Status() {
  const u64 toggles = Ticks() / kHalfPeriod;
  if (toggles != overflows_seen_) status_ |= kTimerEvent;
  overflows_seen_ = toggles;
  return status_;
}

// The interrupt line, and when it could change by itself.
void AcpiPm::Update() {
  sci_.Set((control_ & kSciEnable) && (Status() & enable_));
  if ((enable_ & kTimerEvent) && !(status_ & kTimerEvent)) {
    const u64 next = (Ticks() / kHalfPeriod + 1) * kHalfPeriod;
    timers_.Arm(timer_,
                static_cast<u64>(static_cast<unsigned __int128>(next) * kSecondNs / kTimerHz) + 1);
  } else {
    timers_.Cancel(timer_);
  }
}

u64 AcpiPm::Read(u64 offset, unsigned size) {
  if (offset >= kPmTimer && offset + size <= kPmTimer + 4) {
    return TimerValue() >> (8 * (offset - kPmTimer));
  }
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) {
    const u64 at = offset + i;
    const u16 word = (at & ~u64{1}) == kPm1Status    ? Status()
                     : (at & ~u64{1}) == kPm1Enable  ? enable_
                     : (at & ~u64{1}) == kPm1Control ? control_
                                                     : u16{0};
    value |= u64{(at & 1 ? word >> 8 : word) & 0xffu} << (8 * i);
  }
  return value;
}

void AcpiPm::Write(u64 offset, unsigned size, u64 value) {
  // Registers are 16 bits; a byte leaves the other half alone (for status: writes zeros to it).
  for (unsigned i = 0; i < size; ++i) {
    const u64 at = offset + i;
    const u64 base = at & ~u64{1};
    const unsigned shift = at & 1 ? 8 : 0;
    if (shift == 0 && i + 1 < size) {
      WriteRegister(base, static_cast<u16>(value >> (8 * i)));
      ++i;
      continue;
    }
    const u16 old = base == kPm1Enable ? enable_ : base == kPm1Control ? control_ : u16{0};
    const u16 byte = static_cast<u16>((value >> (8 * i) & 0xff) << shift);
    WriteRegister(base, static_cast<u16>((old & ~(0xff << shift)) | byte));
  }
}

void AcpiPm::WriteRegister(u64 offset, u16 value) {
  switch (offset) {
    case kPm1Status:
      Status();
      status_ &= static_cast<u16>(~(value & kStatusBits));
      break;
    case kPm1Enable:
      enable_ = value & kEnableBits;
      break;
    case kPm1Control:
      // SLP_EN is write-only. Of the sleeping states only soft off exists.
      control_ = value & static_cast<u16>(~kSleepEnable);
      if ((value & kSleepEnable) && (value >> kSleepTypeShift & 7) == kSoftOffType && power_off_) {
        power_off_();
      }
      break;
    default:
      return;
  }
  Update();
}

void AcpiPm::SmiCommand::Write(u64 offset, unsigned, u64 value) {
  bytes_[offset & 1] = static_cast<u8>(value);
  if (offset != 0) return;
  if (value == kAcpiEnable) pm_.control_ |= kSciEnable;
  if (value == kAcpiDisable) pm_.control_ &= static_cast<u16>(~kSciEnable);
  pm_.Update();
}

}  // namespace alibi::devices
