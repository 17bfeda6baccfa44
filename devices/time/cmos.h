// SPDX-License-Identifier: Apache-2.0
// The PC's real-time clock and CMOS memory (Motorola MC146818), ports 0x70-0x71.
//
// The time is the host's at creation plus the machine's clock; the guest may set its own. "Update
// in progress" shows for the last 2,228 us of each second; reads meanwhile see the old second, as a
// whole. Flags in register C are computed when asked for; timers run only for interrupts enabled in
// B.
#ifndef ALIBI_DEVICES_TIME_CMOS_H_
#define ALIBI_DEVICES_TIME_CMOS_H_

#include <array>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

class Cmos : public Device {
 public:
  // `unix_seconds`: UTC at the clock's 0, when `into_second_ns` of the second have passed; years
  // 1970 to 9999 are represented. RAM sizes in bytes: from 0, and from 4 GB.
  Cmos(Clock& clock, TimerQueue& timers, IrqLine& irq8, i64 unix_seconds, u64 low_ram_bytes,
       u64 high_ram_bytes = 0, u32 into_second_ns = 0);

  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;

  // The battery keeps memory and time; interrupts are switched off.
  void Reset() override;

  // What the chip's clock shows, as Unix time.
  i64 UnixSeconds();

 private:
  struct Fields {
    i64 year;
    unsigned month, day, weekday, hour, minute, second;  // weekday: 1 is Sunday
  };
  static Fields FieldsOf(i64 unix_seconds);
  static i64 SecondsOf(const Fields& fields);

  u8 Encode(unsigned value) const;
  unsigned Decode(u8 value) const;
  u8 EncodeHour(unsigned hour) const;
  unsigned DecodeHour(u8 value) const;

  u8 ReadRegister(u8 index);
  void WriteRegister(u8 index, u8 value);
  u8 TimeRegister(u8 index, const Fields& fields) const;
  void SetTimeRegister(u8 index, u8 value);
  bool DividerRuns() const;
  bool IsStopped() const;
  i64 PhaseNs();
  bool IsUpdating();
  bool AlarmMatches(i64 unix_seconds) const;
  u64 PeriodNs() const;
  void CollectFlags();
  void Reschedule();
  void OnTimer();
  void UpdateIrq();
  void StoreMemorySizes(u64 low_ram_bytes, u64 high_ram_bytes);
  void StoreChecksum();

  Clock& clock_;
  TimerQueue& timers_;
  IrqLine& irq8_;
  TimerQueue::TimerId timer_;

  u8 index_ = 0;
  std::array<u8, 128> memory_{};
  // Chip time in nanoseconds = machine clock + offset, while running; the frozen value otherwise.
  i64 offset_seconds_;
  i64 second_phase_ns_;  // machine time at which a chip second begins, in the past
  i64 stopped_seconds_ = 0;
  u64 collected_ns_ = 0;  // flags are up to date until here
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_CMOS_H_
