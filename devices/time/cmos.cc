// SPDX-License-Identifier: Apache-2.0
#include "devices/time/cmos.h"

#include <algorithm>

namespace alibi::devices {
namespace {

constexpr i64 kSecondNs = 1'000'000'000;
// MC146818 data sheet, UIP: at 32,768 Hz an update takes 1,984 us and is announced 244 us before.
constexpr i64 kUpdateNs = (244 + 1984) * 1000;
// DV: from the divider's release to the first update.
constexpr i64 kFirstUpdateNs = kSecondNs / 2;

enum Register : u8 {
  kSeconds = 0x00,
  kSecondsAlarm = 0x01,
  kMinutes = 0x02,
  kMinutesAlarm = 0x03,
  kHours = 0x04,
  kHoursAlarm = 0x05,
  kWeekday = 0x06,
  kDay = 0x07,
  kMonth = 0x08,
  kYear = 0x09,
  kA = 0x0a,
  kB = 0x0b,
  kC = 0x0c,
  kD = 0x0d,
  kFloppyTypes = 0x10,
  kEquipment = 0x14,
  kBaseMemory = 0x15,      // KB
  kExtendedMemory = 0x17,  // KB above 1 MB
  kChecksumHigh = 0x2e,    // of 0x10-0x2d
  kChecksumLow = 0x2f,
  kExtendedMemory2 = 0x30,  // the same as 0x17
  kCentury = 0x32,
  kMemoryAbove16M = 0x34,  // 64 KB units
  kMemoryAbove4G = 0x5b,   // 64 KB units, three bytes
};

constexpr u8 kUpdateInProgress = 0x80;
constexpr u8 kDividerMask = 0x70;
constexpr u8 kDividerRunning = 0x20;  // 32,768 Hz crystal
constexpr u8 kBSet = 0x80;
constexpr u8 kBPeriodic = 0x40;
constexpr u8 kBAlarm = 0x20;
constexpr u8 kBUpdate = 0x10;
constexpr u8 kBSquareWave = 0x08;
constexpr u8 kBBinary = 0x04;
constexpr u8 kB24Hours = 0x02;
constexpr u8 kCIrq = 0x80;
constexpr u8 kCSources = 0x70;  // the same bits as their enables in B
constexpr u8 kDValidRam = 0x80;
constexpr u8 kHourPm = 0x80;
constexpr u8 kAlarmDontCare = 0xc0;
constexpr u8 kIndexMask = 0x7f;  // bit 7 of port 0x70 masks NMI, which nothing here raises

constexpr u64 kKiB = 1024;
constexpr u64 kMiB = 1024 * kKiB;

bool IsTimeRegister(u8 index) {
  return index == kCentury || (index <= kYear && index != kSecondsAlarm && index != kMinutesAlarm &&
                               index != kHoursAlarm);
}

// Days since 1970-01-01 of a date in the Gregorian calendar (years start in March, so that the leap
// day is the last of its year), and back.
i64 DaysOf(i64 year, unsigned month, unsigned day) {
  if (month <= 2) --year;
  const i64 era = (year >= 0 ? year : year - 399) / 400;
  const i64 year_of_era = year - era * 400;
  const i64 day_of_year =
      (153 * (static_cast<i64>(month) + (month > 2 ? -3 : 9)) + 2) / 5 + static_cast<i64>(day) - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
         719468;
}

}  // namespace

Cmos::Cmos(Clock& clock, TimerQueue& timers, IrqLine& irq8, i64 unix_seconds, u64 low_ram_bytes,
           u64 high_ram_bytes, u32 into_second_ns)
    : clock_(clock),
      timers_(timers),
      irq8_(irq8),
      timer_(timers.Register([this](u64) { OnTimer(); })),
      offset_seconds_(std::clamp<i64>(unix_seconds, 0, 253'402'300'799)),
      second_phase_ns_(-static_cast<i64>(into_second_ns)) {
  memory_[kA] = 0x26;
  memory_[kB] = kB24Hours;
  memory_[kD] = kDValidRam;
  memory_[kEquipment] = 0x06;  // a mouse port's and a coprocessor's bit; no floppy, no display
  StoreMemorySizes(low_ram_bytes, high_ram_bytes);
}

void Cmos::StoreMemorySizes(u64 low_ram_bytes, u64 high_ram_bytes) {
  const auto store16 = [this](u8 index, u64 value) {
    value = std::min<u64>(value, 0xffff);
    memory_[index] = static_cast<u8>(value);
    memory_[index + 1u] = static_cast<u8>(value >> 8);
  };
  const auto above = [](u64 size, u64 from) { return size > from ? size - from : 0; };
  store16(kBaseMemory, std::min<u64>(low_ram_bytes / kKiB, 640));
  store16(kExtendedMemory, above(low_ram_bytes, kMiB) / kKiB);
  store16(kExtendedMemory2, above(low_ram_bytes, kMiB) / kKiB);
  store16(kMemoryAbove16M, above(low_ram_bytes, 16 * kMiB) / (64 * kKiB));
  const u64 high = std::min<u64>(high_ram_bytes / (64 * kKiB), 0xffffff);
  for (unsigned i = 0; i < 3; ++i) memory_[kMemoryAbove4G + i] = static_cast<u8>(high >> (8 * i));
  StoreChecksum();
}

void Cmos::StoreChecksum() {
  unsigned sum = 0;
  for (unsigned i = kFloppyTypes; i < kChecksumHigh; ++i) sum += memory_[i];
  memory_[kChecksumHigh] = static_cast<u8>(sum >> 8);
  memory_[kChecksumLow] = static_cast<u8>(sum);
}

bool Cmos::DividerRuns() const { return (memory_[kA] & kDividerMask) == kDividerRunning; }
bool Cmos::IsStopped() const { return (memory_[kB] & kBSet) || !DividerRuns(); }
i64 Cmos::PhaseNs() { return static_cast<i64>(clock_.NowNs()) - second_phase_ns_; }

i64 Cmos::UnixSeconds() {
  if (IsStopped()) return stopped_seconds_;
  return offset_seconds_ + PhaseNs() / kSecondNs;
}

// A second begins where its update ends. SET and a stopped divider keep updates away.
bool Cmos::IsUpdating() { return !IsStopped() && PhaseNs() % kSecondNs >= kSecondNs - kUpdateNs; }

Cmos::Fields Cmos::FieldsOf(i64 unix_seconds) {
  const i64 days = unix_seconds / 86400;  // never negative: clamped at creation and when set
  const i64 rest = unix_seconds % 86400;
  const i64 shifted = days + 719468;
  const i64 era = shifted / 146097;
  const i64 day_of_era = shifted % 146097;
  const i64 year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const i64 day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const i64 month_from_march = (5 * day_of_year + 2) / 153;
  Fields fields;
  fields.day = static_cast<unsigned>(day_of_year - (153 * month_from_march + 2) / 5 + 1);
  fields.month =
      static_cast<unsigned>(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  fields.year = year_of_era + era * 400 + (fields.month <= 2 ? 1 : 0);
  fields.weekday = static_cast<unsigned>((days + 4) % 7 + 1);
  fields.hour = static_cast<unsigned>(rest / 3600);
  fields.minute = static_cast<unsigned>(rest / 60 % 60);
  fields.second = static_cast<unsigned>(rest % 60);
  return fields;
}

i64 Cmos::SecondsOf(const Fields& fields) {
  const i64 seconds = DaysOf(fields.year, fields.month, fields.day) * 86400 +
                      static_cast<i64>(fields.hour) * 3600 + static_cast<i64>(fields.minute) * 60 +
                      static_cast<i64>(fields.second);
  return std::max<i64>(seconds, 0);
}

u8 Cmos::Encode(unsigned value) const {
  return static_cast<u8>((memory_[kB] & kBBinary) ? value : (value / 10 % 10) << 4 | value % 10);
}

unsigned Cmos::Decode(u8 value) const {
  return (memory_[kB] & kBBinary) ? value : (value >> 4) * 10u + (value & 15u);
}

u8 Cmos::EncodeHour(unsigned hour) const {
  if (memory_[kB] & kB24Hours) return Encode(hour);
  const unsigned clock_face = hour % 12 == 0 ? 12 : hour % 12;
  return static_cast<u8>(Encode(clock_face) | (hour >= 12 ? kHourPm : 0));
}

unsigned Cmos::DecodeHour(u8 value) const {
  if (memory_[kB] & kB24Hours) return Decode(value);
  return Decode(value & 0x7f) % 12 + ((value & kHourPm) ? 12 : 0);
}

u8 Cmos::TimeRegister(u8 index, const Fields& fields) const {
  switch (index) {
    case kSeconds:
      return Encode(fields.second);
    case kMinutes:
      return Encode(fields.minute);
    case kHours:
      return EncodeHour(fields.hour);
    case kWeekday:
      return Encode(fields.weekday);
    case kDay:
      return Encode(fields.day);
    case kMonth:
      return Encode(fields.month);
    case kYear:
      return Encode(static_cast<unsigned>(fields.year % 100));
    default:
      return Encode(static_cast<unsigned>(fields.year / 100));
  }
}

void Cmos::SetTimeRegister(u8 index, u8 value) {
  const i64 seconds = UnixSeconds();
  Fields fields = FieldsOf(seconds);
  switch (index) {
    case kSeconds:
      fields.second = std::min(Decode(value), 59u);
      break;
    case kMinutes:
      fields.minute = std::min(Decode(value), 59u);
      break;
    case kHours:
      fields.hour = std::min(DecodeHour(value), 23u);
      break;
    case kWeekday:  // follows from the date
      return;
    case kDay:
      fields.day = std::clamp(Decode(value), 1u, 31u);
      break;
    case kMonth:
      fields.month = std::clamp(Decode(value), 1u, 12u);
      break;
    case kYear:
      fields.year = fields.year / 100 * 100 + std::min(Decode(value), 99u);
      break;
    default:
      fields.year = std::clamp(Decode(value), 19u, 99u) * 100 + fields.year % 100;
      break;
  }
  const i64 wanted = SecondsOf(fields);
  if (IsStopped()) {
    stopped_seconds_ = wanted;
  } else {
    offset_seconds_ += wanted - seconds;
    if (UnixSeconds() < 0) offset_seconds_ -= UnixSeconds();
  }
}

bool Cmos::AlarmMatches(i64 unix_seconds) const {
  const Fields fields = FieldsOf(unix_seconds);
  const auto matches = [this](u8 alarm_index, u8 shown) {
    const u8 alarm = memory_[alarm_index];
    return (alarm & kAlarmDontCare) == kAlarmDontCare || alarm == shown;
  };
  return matches(kSecondsAlarm, Encode(fields.second)) &&
         matches(kMinutesAlarm, Encode(fields.minute)) &&
         matches(kHoursAlarm, EncodeHour(fields.hour));
}

u64 Cmos::PeriodNs() const {
  unsigned rate = memory_[kA] & 0x0f;
  if (rate == 0) return 0;
  if (rate <= 2) rate += 7;  // 1 and 2 select 256 and 128 Hz with this crystal
  return u64{kSecondNs} * (u64{1} << (rate - 1)) / 32768;
}

// Sets the flags of everything that happened since the last time.
void Cmos::CollectFlags() {
  const u64 now = clock_.NowNs();
  const u64 since = collected_ns_;
  collected_ns_ = now;
  if (now <= since || (memory_[kA] & kDividerMask) != kDividerRunning) return;
  u8 happened = 0;
  const u64 period = PeriodNs();
  if (period != 0 && now / period != since / period) happened |= kBPeriodic;
  if (!(memory_[kB] & kBSet)) {
    const i64 start = std::max(static_cast<i64>(since), second_phase_ns_);
    const i64 first = offset_seconds_ + (start - second_phase_ns_) / kSecondNs + 1;
    const i64 last = UnixSeconds();
    if (last >= first) happened |= kBUpdate;
    // A day holds every possible alarm.
    const i64 from = std::max(first, last - 86399);
    for (i64 second = from; second <= last && !(happened & kBAlarm); ++second) {
      if (AlarmMatches(second)) happened |= kBAlarm;
    }
  }
  memory_[kC] |= happened;
}

void Cmos::UpdateIrq() {
  const bool raise = memory_[kC] & memory_[kB] & kCSources;
  if (raise) memory_[kC] |= kCIrq;
  irq8_.Set(raise);
}

void Cmos::Reschedule() {
  const u8 enabled = memory_[kB];
  u64 deadline = TimerQueue::kNever;
  if ((memory_[kA] & kDividerMask) == kDividerRunning) {
    const u64 now = clock_.NowNs();
    const u64 period = PeriodNs();
    if ((enabled & kBPeriodic) && period != 0) deadline = (now / period + 1) * period;
    if (!(enabled & kBSet) && (enabled & (kBAlarm | kBUpdate))) {
      const u64 left = static_cast<u64>(kSecondNs - PhaseNs() % kSecondNs);
      deadline = std::min(deadline, now + left);
    }
  }
  timers_.Arm(timer_, deadline);
}

void Cmos::OnTimer() {
  CollectFlags();
  UpdateIrq();
  Reschedule();
}

u8 Cmos::ReadRegister(u8 index) {
  if (IsTimeRegister(index)) return TimeRegister(index, FieldsOf(UnixSeconds()));
  if (index == kA) return memory_[kA] | (IsUpdating() ? kUpdateInProgress : 0);
  if (index == kC) {
    CollectFlags();
    UpdateIrq();
    const u8 value = memory_[kC];
    memory_[kC] = 0;
    irq8_.Set(false);
    return value;
  }
  return memory_[index];
}

void Cmos::WriteRegister(u8 index, u8 value) {
  if (IsTimeRegister(index)) {
    CollectFlags();
    SetTimeRegister(index, value);
    return;
  }
  switch (index) {
    case kA:
    case kB: {
      CollectFlags();
      const i64 seconds = UnixSeconds();
      const bool was_stopped = IsStopped(), divider_ran = DividerRuns();
      memory_[index] = index == kA ? value & static_cast<u8>(~kUpdateInProgress) : value;
      if (index == kB && (value & kBSet)) memory_[kB] &= static_cast<u8>(~kBUpdate);
      if (!was_stopped && IsStopped()) stopped_seconds_ = seconds;
      // The divider goes on while SET keeps updates away: the seconds stay where they were.
      if (!divider_ran && DividerRuns()) {
        second_phase_ns_ = static_cast<i64>(clock_.NowNs()) - (kSecondNs - kFirstUpdateNs);
      }
      if (was_stopped && !IsStopped()) offset_seconds_ = seconds - PhaseNs() / kSecondNs;
      UpdateIrq();
      Reschedule();
      break;
    }
    case kC:
    case kD:
      break;  // read-only
    default:
      memory_[index] = value;
      break;
  }
}

// MC146818 data sheet, RESET: interrupt enables and flags are cleared.
void Cmos::Reset() {
  CollectFlags();
  memory_[kB] &= static_cast<u8>(~(kCSources | kBSquareWave));
  memory_[kC] = 0;
  index_ = 0;
  UpdateIrq();
  Reschedule();
}

u64 Cmos::Read(u64 offset, unsigned) {
  return offset == 0 ? 0xff : ReadRegister(index_);  // the index is write-only
}

void Cmos::Write(u64 offset, unsigned, u64 value) {
  if (offset == 0) {
    index_ = value & kIndexMask;
  } else {
    WriteRegister(index_, static_cast<u8>(value));
  }
}

}  // namespace alibi::devices
