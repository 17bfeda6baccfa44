// SPDX-License-Identifier: Apache-2.0
// Power management as ACPI describes it (specification 6.4, chapter 4), with the register layout of
// Intel's PIIX4: PM1a event and control, the 3.579545 MHz timer, and the SMI command port, which
// here only switches between legacy and ACPI mode: there is no system management mode.
#ifndef ALIBI_DEVICES_TIME_ACPI_PM_H_
#define ALIBI_DEVICES_TIME_ACPI_PM_H_

#include <functional>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

class AcpiPm : public Device {
 public:
  static constexpr u16 kDefaultBase = 0x600;  // where QEMU's firmware puts it
  static constexpr u32 kPortCount = 64;
  static constexpr u64 kTimerHz = 3'579'545;
  static constexpr unsigned kSciIrq = 9;
  // SLP_TYP values of DSDT's _S5: soft off.
  static constexpr unsigned kSoftOffType = 0;
  static constexpr u8 kAcpiEnable = 0xf1, kAcpiDisable = 0xf0;

  // Offsets of the register blocks.
  static constexpr u64 kPm1Status = 0, kPm1Enable = 2, kPm1Control = 4, kPmTimer = 8;

  AcpiPm(Clock& clock, TimerQueue& timers, IrqLine& sci, std::function<void()> power_off);

  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 4; }
  void Reset() override;

  // The SMI command and status ports, 0xb2 and 0xb3.
  class SmiCommand : public Device {
   public:
    explicit SmiCommand(AcpiPm& pm) : pm_(pm) {}
    u64 Read(u64 offset, unsigned) override { return bytes_[offset & 1]; }
    void Write(u64 offset, unsigned size, u64 value) override;

   private:
    AcpiPm& pm_;
    u8 bytes_[2] = {};
  };
  Device& smi_command() { return smi_command_; }

  // 24 bits.
  u32 TimerValue();

 private:
  u64 Ticks();
  u16 Status();
  void WriteRegister(u64 offset, u16 value);
  void Update();

  Clock& clock_;
  TimerQueue& timers_;
  IrqLine& sci_;
  std::function<void()> power_off_;
  TimerQueue::TimerId timer_;
  SmiCommand smi_command_{*this};
  u16 status_ = 0;
  u16 enable_ = 0;
  u16 control_ = 0;
  u64 overflows_seen_ = 0;  // toggles of the timer's highest bit that TMR_STS has told of
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_ACPI_PM_H_
