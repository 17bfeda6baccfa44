// SPDX-License-Identifier: Apache-2.0
#include "devices/irq/lapic.h"

#include <algorithm>
#include <bit>

namespace alibi::devices {
namespace {

enum Register : unsigned {
  kId = 0x02,
  kVersion = 0x03,
  kTpr = 0x08,
  kApr = 0x09,
  kPpr = 0x0a,
  kEoi = 0x0b,
  kRrd = 0x0c,
  kLdr = 0x0d,
  kDfr = 0x0e,
  kSvr = 0x0f,
  kIsr = 0x10,
  kTmr = 0x18,
  kIrr = 0x20,
  kEsr = 0x28,
  kIcrLow = 0x30,
  kIcrHigh = 0x31,
  kLvtTimer = 0x32,
  kLvtThermal = 0x33,
  kLvtPerformance = 0x34,
  kLvtLint0 = 0x35,
  kLvtLint1 = 0x36,
  kLvtError = 0x37,
  kInitialCount = 0x38,
  kCurrentCount = 0x39,
  kDivide = 0x3e,
  kSelfIpi = 0x3f,
};

// Version 0x15, LVT entries 0 to 5, no EOI-broadcast suppression.
constexpr u32 kVersionValue = 0x00050015;

constexpr u32 kLvtMasked = 1u << 16;
constexpr u32 kLvtLevel = 1u << 15;
constexpr u32 kLvtRemoteIrr = 1u << 14;
constexpr u32 kSvrEnable = 0x100;
constexpr u32 kIcrLogical = 1u << 11;
constexpr u32 kIcrAssert = 1u << 14;
constexpr u32 kIcrLevel = 1u << 15;

constexpr u32 kEsrSendIllegalVector = 1u << 5;
constexpr u32 kEsrReceivedIllegalVector = 1u << 6;
constexpr u32 kEsrIllegalRegister = 1u << 7;

constexpr unsigned kTimerOneShot = 0;
constexpr unsigned kTimerPeriodic = 1;
constexpr unsigned kTimerTscDeadline = 2;

enum Access : u8 {
  kNone = 0,
  kReadX = 1,  // xAPIC page
  kWriteX = 2,
  kRead2 = 4,  // x2APIC MSR
  kWrite2 = 8,
  kReadBoth = kReadX | kRead2,
  kBoth = kReadX | kWriteX | kRead2 | kWrite2,
};

struct Rule {
  u8 access;
  u32 writable;  // other bits: ignored on the page, #GP in the MSR
};

struct RuleRow {
  Register first;
  unsigned count;
  Rule rule;
};

constexpr RuleRow kRuleRows[] = {
    {kId, 1, {kReadBoth, 0}},  // writable on old parts only; a fixed ID is what guests expect
    {kVersion, 1, {kReadBoth, 0}},
    {kTpr, 1, {kBoth, 0xff}},
    {kApr, 1, {kReadX, 0}},
    {kPpr, 1, {kReadBoth, 0}},
    {kEoi, 1, {kWriteX | kWrite2, 0}},
    {kRrd, 1, {kReadX, 0}},
    {kLdr, 1, {kReadBoth | kWriteX, 0xff000000}},
    {kDfr, 1, {kReadX | kWriteX, 0xf0000000}},
    {kSvr, 1, {kBoth, 0x1ff}},
    {kIsr, 8, {kReadBoth, 0}},
    {kTmr, 8, {kReadBoth, 0}},
    {kIrr, 8, {kReadBoth, 0}},
    {kEsr, 1, {kBoth, 0}},
    {kIcrLow, 1, {kBoth, 0x000ccfff}},
    {kIcrHigh, 1, {kReadX | kWriteX, 0xff000000}},
    {kLvtTimer, 1, {kBoth, 0x000700ff}},
    {kLvtThermal, 1, {kBoth, 0x000107ff}},
    {kLvtPerformance, 1, {kBoth, 0x000107ff}},
    {kLvtLint0, 2, {kBoth, 0x0001a7ff}},
    {kLvtError, 1, {kBoth, 0x000100ff}},
    {kInitialCount, 1, {kBoth, 0xffffffff}},
    {kCurrentCount, 1, {kReadBoth, 0}},
    {kDivide, 1, {kBoth, 0xb}},
    {kSelfIpi, 1, {kWrite2, 0xff}},
};

constexpr std::array<Rule, 0x40> MakeRules() {
  std::array<Rule, 0x40> rules{};
  for (const RuleRow& row : kRuleRows) {
    for (unsigned i = 0; i < row.count; ++i) rules[row.first + i] = row.rule;
  }
  return rules;
}
constexpr std::array<Rule, 0x40> kRules = MakeRules();

u8 PriorityClass(int vector) { return vector < 0 ? 0 : static_cast<u8>(vector & 0xf0); }

}  // namespace

int Lapic::VectorSet::Highest() const {
  for (int i = 7; i >= 0; --i) {
    const u32 word = words_[static_cast<unsigned>(i)];
    if (word != 0) return i * 32 + 31 - std::countl_zero(word);
  }
  return -1;
}

Lapic::Lapic(u32 id, Clock& clock, TscSource& tsc, TimerQueue& timers, LapicHost& host)
    : id_(id),
      clock_(clock),
      tsc_(tsc),
      timers_(timers),
      host_(host),
      timer_(timers.Register([this](u64 now_ns) { OnTimer(now_ns); })) {
  Reset(/*keep_mode=*/false);
  SetUpAsBiosLeavesIt();
}

void Lapic::Reset(bool keep_mode) {
  if (!keep_mode) {
    base_msr_ = kBase.value | kBaseEnable | (id_ == 0 ? kBaseBsp : 0);
    xapic_id_ = id_ << 24;
  }
  *tpr_ = 0;
  ldr_ = 0;
  dfr_ = ~u32{0};
  svr_ = 0xff;
  esr_ = 0;
  esr_pending_ = 0;
  icr_low_ = 0;
  icr_high_ = 0;
  lvt_.fill(kLvtMasked);
  isr_.ClearAll();
  tmr_.ClearAll();
  irr_.ClearAll();
  initial_count_ = 0;
  divide_ = 0;
  timer_running_ = false;
  tsc_deadline_ = 0;
  timers_.Cancel(timer_);
  Update();
}

void Lapic::SetUpAsBiosLeavesIt() {
  svr_ = kSvrEnable | 0xff;
  lvt_[kLvtLint0] = kLvtLevel | static_cast<u32>(DeliveryMode::kExtInt) << 8;
  lvt_[kLvtLint1] = kLvtLevel | static_cast<u32>(DeliveryMode::kNmi) << 8;
  Update();
}

void Lapic::BindTpr(u8* tpr) {
  *tpr = *tpr_;
  tpr_ = tpr;
}

void Lapic::SetTpr(u8 tpr) {
  *tpr_ = tpr;
  Update();
}

// ---- Priorities and delivery to the CPU ----

u8 Lapic::ppr() const {
  const u8 in_service = PriorityClass(isr_.Highest());
  return (*tpr_ & 0xf0) >= in_service ? *tpr_ : in_service;
}

int Lapic::Candidate() const {
  if (!enabled()) return -1;
  const int vector = irr_.Highest();
  return PriorityClass(vector) > PriorityClass(isr_.Highest()) ? vector : -1;
}

bool Lapic::accepts_ext_int() const {
  if (!enabled()) return true;
  const u32 lvt = lvt_[kLvtLint0];
  return !(lvt & kLvtMasked) && static_cast<DeliveryMode>(lvt >> 8 & 7) == DeliveryMode::kExtInt;
}

bool Lapic::Lint0IsNmi() const {
  const u32 lvt = lvt_[kLvtLint0];
  return enabled() && !(lvt & kLvtMasked) &&
         static_cast<DeliveryMode>(lvt >> 8 & 7) == DeliveryMode::kNmi;
}

// Publishes the threshold and wakes the VCPU loop if there is something to take.
void Lapic::Update() {
  const int candidate = Candidate();
  tpr_threshold_ = static_cast<u8>(PriorityClass(candidate) >> 4);
  const bool local = tpr_threshold_ > *tpr_ >> 4;
  if (local || (lint0_ && accepts_ext_int())) host_.InterruptRaised();
}

bool Lapic::InterruptPending(u8 tpr) {
  *tpr_ = tpr;
  if (tpr_threshold_ > tpr >> 4) return true;
  return ext_int_ != nullptr && accepts_ext_int() && ext_int_->InterruptPending(tpr);
}

u8 Lapic::Acknowledge() {
  const int candidate = Candidate();
  if (PriorityClass(candidate) > (*tpr_ & 0xf0)) {
    const u8 vector = static_cast<u8>(candidate);
    irr_.Clear(vector);
    isr_.Set(vector);
    Update();
    return vector;
  }
  if (ext_int_ != nullptr && accepts_ext_int()) return ext_int_->Acknowledge();
  return static_cast<u8>(svr_);  // the spurious vector; no ISR bit
}

void Lapic::Accept(u8 vector, bool level_triggered) {
  if (!enabled() || !software_enabled()) return;
  if (vector < 16) {
    RaiseError(kEsrReceivedIllegalVector);
    return;
  }
  irr_.Set(vector);
  if (level_triggered) {
    tmr_.Set(vector);
  } else {
    tmr_.Clear(vector);
  }
  Update();
}

void Lapic::EndOfInterrupt() {
  const int highest = isr_.Highest();
  if (highest < 0) return;
  const u8 vector = static_cast<u8>(highest);
  isr_.Clear(vector);
  const bool level_triggered = tmr_.Has(vector);
  // A level-triggered LINT0 in fixed mode asks again while its pin is high.
  u32& lint0 = lvt_[kLvtLint0];
  if ((lint0 & kLvtRemoteIrr) && (lint0 & 0xff) == vector) {
    lint0 &= ~kLvtRemoteIrr;
    if (lint0_) FireLvt(kLvtLint0);
  }
  if (level_triggered) host_.EndOfInterrupt(vector);
  Update();
}

bool Lapic::IsDestination(const ApicMessage& message) const {
  if (!enabled()) return false;
  const u32 destination = message.destination;
  if (x2apic()) {
    if (destination == ~u32{0}) return true;
    if (!message.logical) return destination == id_;
    const u32 cluster = id_ >> 4;
    return destination >> 16 == cluster && (destination & 1u << (id_ & 15));
  }
  if ((destination & 0xff) == 0xff) return true;
  if (!message.logical) return (destination & 0xff) == xapic_id_ >> 24;
  const u32 logical_id = ldr_ >> 24;
  if (dfr_ >> 28 == 0xf) return (logical_id & destination & 0xff) != 0;
  return (logical_id >> 4) == (destination >> 4 & 0xf) && (logical_id & destination & 0xf) != 0;
}

void Lapic::Deliver(const ApicMessage& message) {
  switch (message.mode) {
    case DeliveryMode::kFixed:
    case DeliveryMode::kLowestPriority:
      Accept(message.vector, message.level_triggered);
      break;
    case DeliveryMode::kNmi:
      host_.Nmi();
      break;
    case DeliveryMode::kInit:
      host_.Init();
      break;
    case DeliveryMode::kStartup:
      host_.Startup(message.vector);
      break;
    default:  // SMI: there is no system management mode; ExtINT comes by LINT0 only
      break;
  }
}

void Lapic::FireLvt(unsigned index) {
  const u32 lvt = lvt_[index];
  if (lvt & kLvtMasked) return;
  // The timer's and the error's entry have no mode field: those bits are zero, which is fixed.
  const auto mode = static_cast<DeliveryMode>(lvt >> 8 & 7);
  if (mode == DeliveryMode::kNmi) {
    host_.Nmi();
  } else if (mode == DeliveryMode::kFixed) {
    const bool level = (index == kLvtLint0 || index == kLvtLint1) && (lvt & kLvtLevel);
    if (level) lvt_[index] |= kLvtRemoteIrr;
    Accept(static_cast<u8>(lvt), level);
  }
}

void Lapic::Lint(unsigned index, bool level, bool* pin) {
  const bool rises = level && !*pin;
  *pin = level;
  if (rises && enabled()) FireLvt(index);
  Update();
}

void Lapic::SetLint0(bool level) { Lint(kLvtLint0, level, &lint0_); }
void Lapic::SetLint1(bool level) { Lint(kLvtLint1, level, &lint1_); }

void Lapic::RaiseError(u32 bits) {
  // An error while reporting an illegal error vector must not report itself again.
  const bool fresh = (esr_pending_ & bits) != bits;
  esr_pending_ |= bits;
  if (fresh) FireLvt(kLvtError);
}

// ---- Registers ----

// The task priority is CR8, and the current count a matter of time.
bool Lapic::IsStored(unsigned index) {
  return index != kTpr && index != kApr && index != kPpr && index != kCurrentCount;
}

u32 Lapic::ReadRegister(unsigned index) {
  switch (index) {
    case kTpr:
      return *tpr_;
    case kApr: {
      // Arbitration priority: the highest class among TPR, ISR and IRR.
      const u8 requested = PriorityClass(irr_.Highest());
      return std::max<u32>(ppr(), requested);
    }
    case kPpr:
      return ppr();
    case kCurrentCount:
      return CurrentCount();
    default:
      return StoredRegister(index);
  }
}

u32 Lapic::StoredRegister(unsigned index) const {
  if (index >= kIsr && index < kIsr + 8) return isr_.word(index - kIsr);
  if (index >= kTmr && index < kTmr + 8) return tmr_.word(index - kTmr);
  if (index >= kIrr && index < kIrr + 8) return irr_.word(index - kIrr);
  switch (index) {
    case kId:
      return x2apic() ? id_ : xapic_id_;
    case kVersion:
      return kVersionValue;
    case kLdr:
      return x2apic() ? (id_ >> 4) << 16 | 1u << (id_ & 15) : ldr_;
    case kDfr:
      return dfr_;
    case kSvr:
      return svr_;
    case kEsr:
      return esr_;
    case kIcrLow:
      return icr_low_;
    case kIcrHigh:
      return icr_high_;
    case kInitialCount:
      return initial_count_;
    case kDivide:
      return divide_;
    case kLvtTimer:
    case kLvtThermal:
    case kLvtPerformance:
    case kLvtLint0:
    case kLvtLint1:
    case kLvtError:
      return lvt_[index];
    default:
      return 0;
  }
}

void Lapic::WriteRegister(unsigned index, u32 value) {
  switch (index) {
    case kTpr:
      SetTpr(static_cast<u8>(value));
      break;
    case kEoi:
      EndOfInterrupt();
      break;
    case kLdr:
      ldr_ = value;
      break;
    case kDfr:
      dfr_ = value | 0x0fffffff;
      break;
    case kSvr:
      WriteSvr(value);
      break;
    case kEsr:
      // The write makes what happened since the last one readable.
      esr_ = esr_pending_;
      esr_pending_ = 0;
      break;
    case kIcrLow:
      WriteIcr(value, icr_high_ >> 24);
      break;
    case kIcrHigh:
      icr_high_ = value;
      break;
    case kInitialCount:
      if (TimerMode() == kTimerTscDeadline) break;
      initial_count_ = value;
      StartTimer(clock_.NowNs());
      break;
    case kDivide: {
      const u32 left = CurrentCount();
      divide_ = value;
      if (timer_running_) {
        // The count goes on from where it is, at the new speed. The start may lie before the
        // clock's 0; only differences to it are used, and those are right modulo 2^64.
        StartTimer(clock_.NowNs() - u64{initial_count_ - left} * TimerDivisor());
      }
      break;
    }
    case kSelfIpi:
      Accept(static_cast<u8>(value), false);
      break;
    default:
      WriteLvt(index, value);
      break;
  }
}

void Lapic::WriteSvr(u32 value) {
  svr_ = value;
  // Switched off by software, all local sources are masked.
  if (!software_enabled()) {
    for (unsigned index = kLvtTimer; index <= kLvtError; ++index) lvt_[index] |= kLvtMasked;
  }
  Update();
}

void Lapic::WriteLvt(unsigned index, u32 value) {
  if (!software_enabled()) value |= kLvtMasked;
  const unsigned old_mode = TimerMode();
  value |= lvt_[index] & kLvtRemoteIrr;
  if (index >= kLvtLint0 && !(value & kLvtLevel)) value &= ~kLvtRemoteIrr;
  lvt_[index] = value;
  if (index == kLvtTimer) {
    const unsigned mode = TimerMode();
    // Going to or from the TSC deadline disarms; between the other two the count goes on.
    if (mode != old_mode && (mode == kTimerTscDeadline || old_mode == kTimerTscDeadline)) {
      initial_count_ = 0;
      timer_running_ = false;
      tsc_deadline_ = 0;
      timers_.Cancel(timer_);
    }
  }
  Update();  // LINT0 may have been opened to a waiting 8259
}

void Lapic::WriteIcr(u32 low, u32 destination) {
  icr_low_ = low;
  ApicMessage message;
  message.mode = static_cast<DeliveryMode>(low >> 8 & 7);
  message.vector = static_cast<u8>(low);
  message.logical = low & kIcrLogical;
  message.destination = destination;
  const bool fixed =
      message.mode == DeliveryMode::kFixed || message.mode == DeliveryMode::kLowestPriority;
  if (fixed && message.vector < 16) {
    RaiseError(kEsrSendIllegalVector);
    return;
  }
  // INIT level de-assert: only synchronizes arbitration IDs, which later parts do not have.
  if (message.mode == DeliveryMode::kInit && (low & kIcrLevel) && !(low & kIcrAssert)) return;
  switch (low >> 18 & 3) {
    case 1:  // self: fixed only
      if (fixed) Deliver(message);
      return;
    case 2:  // all including self
      message.destination = ~u32{0};
      message.logical = false;
      host_.Send(message, fixed || message.mode == DeliveryMode::kNmi);
      return;
    case 3:  // all but self
      message.destination = ~u32{0};
      message.logical = false;
      host_.Send(message, false);
      return;
    default:
      host_.Send(message, true);
      return;
  }
}

u64 Lapic::Read(u64 offset, unsigned size) {
  if (!enabled() || x2apic()) return ~u64{0};
  const unsigned index = static_cast<unsigned>(offset >> 4);
  const unsigned byte = offset & 15;
  if (index >= kRegisters || !(kRules[index].access & kReadX)) {
    RaiseError(kEsrIllegalRegister);
    return 0;
  }
  // Only the first four bytes of each 16 are implemented.
  if (byte >= 4 || byte + size > 4) return 0;
  return ReadRegister(index) >> (byte * 8);
}

bool Lapic::Peek(u64 offset, unsigned size, u64* value) const {
  const unsigned index = static_cast<unsigned>(offset >> 4);
  if (!enabled() || x2apic() || index >= kRegisters || !(kRules[index].access & kReadX) ||
      (offset & 15) != 0 || size != 4 || !IsStored(index)) {
    return false;
  }
  *value = StoredRegister(index);
  return true;
}

void Lapic::Write(u64 offset, unsigned size, u64 value) {
  if (!enabled() || x2apic()) return;
  const unsigned index = static_cast<unsigned>(offset >> 4);
  if (index >= kRegisters || !(kRules[index].access & kWriteX)) {
    RaiseError(kEsrIllegalRegister);
    return;
  }
  // Anything but an aligned 32-bit write is undefined; here it does nothing.
  if ((offset & 15) != 0 || size != 4) return;
  WriteRegister(index, static_cast<u32>(value) & kRules[index].writable);
}

bool Lapic::ReadMsr(u32 msr, u64* value) {
  if (msr == kMsrApicBase) {
    *value = base_msr_;
    return true;
  }
  if (msr == kMsrTscDeadline) {
    *value = tsc_deadline_;
    return true;
  }
  const u32 index = msr - kFirstMsr;
  if (!x2apic() || index >= kRegisters || !(kRules[index].access & kRead2)) return false;
  *value = ReadRegister(index);
  if (index == kIcrLow) *value |= u64{icr_high_} << 32;
  return true;
}

bool Lapic::WriteMsr(u32 msr, u64 value) {
  if (msr == kMsrApicBase) return WriteApicBase(value);
  if (msr == kMsrTscDeadline) {
    if (TimerMode() == kTimerTscDeadline && enabled()) {
      tsc_deadline_ = value;
      ArmTscDeadline();
    }
    return true;
  }
  const u32 index = msr - kFirstMsr;
  if (!x2apic() || index >= kRegisters || !(kRules[index].access & kWrite2)) return false;
  const u32 writable = kRules[index].writable;
  if (index == kIcrLow) {
    // One 64-bit register: the upper half is the whole destination. Bit 12 does not exist here.
    const u32 low = static_cast<u32>(value);
    if (low & ~writable) return false;
    icr_high_ = static_cast<u32>(value >> 32);
    WriteIcr(low, icr_high_);
    return true;
  }
  if (value & ~u64{writable}) return false;
  WriteRegister(index, static_cast<u32>(value));
  return true;
}

bool Lapic::WriteApicBase(u64 value) {
  const u64 mode_bits = kBaseEnable | kBaseX2apic;
  if (value & 0xfff & ~(mode_bits | kBaseBsp)) return false;
  const u64 mode = value & mode_bits;
  const u64 old_mode = base_msr_ & mode_bits;
  // x2APIC without enable does not exist; x2APIC is entered from xAPIC and left by disabling only.
  if (mode == kBaseX2apic) return false;
  if (old_mode == 0 && mode == mode_bits) return false;
  if (old_mode == mode_bits && mode == kBaseEnable) return false;
  if (mode == 0 && old_mode != 0) Reset(/*keep_mode=*/true);
  base_msr_ = value;
  if (mode != old_mode) {
    icr_high_ = 0;
    if (mode == kBaseEnable) xapic_id_ = id_ << 24;
  }
  Update();
  return true;
}

// ---- Timer ----

unsigned Lapic::TimerMode() const {
  const unsigned mode = lvt_[kLvtTimer] >> 17 & 3;
  return mode == 3 ? kTimerOneShot : mode;  // 3 is reserved
}

unsigned Lapic::TimerDivisor() const {
  // Bits 3, 1, 0: 2, 4, ... 128, and 1 for the highest code.
  const unsigned code = (divide_ >> 1 & 4) | (divide_ & 3);
  return code == 7 ? 1 : 2u << code;
}

u32 Lapic::CurrentCount() {
  if (!timer_running_) return 0;
  const u64 ticks = (clock_.NowNs() - timer_start_ns_) / TimerDivisor();
  if (TimerMode() == kTimerPeriodic) {
    return initial_count_ - static_cast<u32>(ticks % initial_count_);
  }
  return ticks >= initial_count_ ? 0 : initial_count_ - static_cast<u32>(ticks);
}

void Lapic::StartTimer(u64 start_ns) {
  timer_running_ = initial_count_ != 0;
  if (!timer_running_) {
    timers_.Cancel(timer_);
    return;
  }
  timer_start_ns_ = start_ns;
  timers_.Arm(timer_, start_ns + u64{initial_count_} * TimerDivisor());
}

void Lapic::ArmTscDeadline() {
  if (tsc_deadline_ == 0) {
    timers_.Cancel(timer_);
    return;
  }
  const u64 now_tsc = tsc_.NowTsc();
  const u64 now_ns = clock_.NowNs();
  if (tsc_deadline_ <= now_tsc) {
    // At once: the guest may look at its next instruction.
    timers_.Cancel(timer_);
    tsc_deadline_ = 0;
    FireLvt(kLvtTimer);
    return;
  }
  timers_.Arm(timer_, now_ns + tsc_.TicksToNs(tsc_deadline_ - now_tsc));
}

void Lapic::OnTscChanged() {
  if (TimerMode() == kTimerTscDeadline) ArmTscDeadline();
}

void Lapic::FireTimer() { FireLvt(kLvtTimer); }

void Lapic::OnTimer(u64 now_ns) {
  switch (TimerMode()) {
    case kTimerTscDeadline:
      // Two clocks may disagree by a little: never fire before the guest's TSC says so.
      if (tsc_deadline_ > tsc_.NowTsc()) {
        ArmTscDeadline();
        return;
      }
      tsc_deadline_ = 0;
      break;
    case kTimerPeriodic: {
      // Periods nobody served are coalesced into one interrupt.
      const u64 period = u64{initial_count_} * TimerDivisor();
      timer_start_ns_ += (now_ns - timer_start_ns_) / period * period;
      timers_.Arm(timer_, std::max(timer_start_ns_ + period, now_ns + kShortestTimerPeriodNs));
      break;
    }
    default:
      timer_running_ = false;
      break;
  }
  FireLvt(kLvtTimer);
}

}  // namespace alibi::devices
