// SPDX-License-Identifier: Apache-2.0
// The PIIX3's IDE function: two channels of two drives at their legacy ports, with bus masters
// behind a BAR (PIIX3 data sheet, 2.7).
#ifndef ALIBI_DEVICES_IDE_IDE_CONTROLLER_H_
#define ALIBI_DEVICES_IDE_IDE_CONTROLLER_H_

#include <array>
#include <memory>
#include <string>

#include "base/result.h"
#include "devices/bus.h"
#include "devices/dma.h"
#include "devices/ide/ide_drive.h"
#include "devices/irq.h"
#include "devices/pci/pci_function.h"

namespace alibi::devices {

// The registers of one channel. Both drives take what is written to the command block; the chosen
// one answers.
class IdeChannel final : public IdeDrive::Host {
 public:
  IdeChannel(IrqLine& irq, Dma& dma, std::function<bool()> bus_master_allowed);

  void Attach(unsigned index, std::unique_ptr<IdeDrive> drive);
  bool has_drive(unsigned index) const { return drives_[index] != nullptr; }
  // The RESET line.
  void Reset();

  // Offsets 0 to 7.
  Device& command_block() { return command_block_; }
  // Offset 0: alternate status, device control.
  Device& control_block() { return control_block_; }

  void InterruptChanged() override;
  BusMasterChannel& bus_master() override { return bus_master_; }

 private:
  class CommandBlock final : public Device {
   public:
    explicit CommandBlock(IdeChannel& channel) : channel_(channel) {}
    u64 Read(u64 offset, unsigned size) override;
    void Write(u64 offset, unsigned size, u64 value) override;
    bool Peek(u64 offset, unsigned size, u64* value) const override;
    bool Poke(u64 offset, unsigned size, u64 value) override;
    unsigned MaxAccessSize() const override { return 4; }
    void Reset() override { channel_.Reset(); }

   private:
    IdeChannel& channel_;
  };
  class ControlBlock final : public Device {
   public:
    explicit ControlBlock(IdeChannel& channel) : channel_(channel) {}
    u64 Read(u64 offset, unsigned size) override;
    bool Peek(u64 offset, unsigned size, u64* value) const override;
    void Write(u64 offset, unsigned size, u64 value) override;

   private:
    IdeChannel& channel_;
  };

  IdeDrive* chosen() const { return drives_[chosen_].get(); }
  u8 ReadRegister(unsigned index);
  void WriteRegister(unsigned index, u8 value);
  // A register that reading does not change.
  u8 ReadTaskFile(unsigned index) const;
  // WriteRegister(), unless it does more than to keep the value: false, and nothing is changed.
  bool KeepRegister(unsigned index, u8 value);
  // 0 without a drive: nobody drives the bus; its pull-downs do.
  u8 Status() const;
  void Control(u8 value);

  IrqLine& irq_;
  BusMasterChannel bus_master_;
  CommandBlock command_block_{*this};
  ControlBlock control_block_{*this};
  std::array<std::unique_ptr<IdeDrive>, 2> drives_;
  // Bits of the device register, and of the device control register.
  static constexpr u8 kSecondDrive = 0x10;
  static constexpr u8 kNoInterrupt = 0x02, kSoftwareReset = 0x04, kHighBytes = 0x80;

  unsigned chosen_ = 0;
  u8 control_ = 0;
  bool irq_level_ = false;
};

class IdeController final : public PciFunction {
 public:
  static constexpr unsigned kChannels = 2;

  // `irqs`: lines 14 and 15. What is referred to outlives the controller.
  IdeController(Dma& dma, IrqLine& primary_irq, IrqLine& secondary_irq);

  // The legacy ports.
  Status AddPorts(PortBus& ports);

  IdeChannel& channel(unsigned index) { return *channels_[index]; }

 private:
  class BusMasterPorts final : public Device {
   public:
    explicit BusMasterPorts(IdeController& controller) : controller_(controller) {}
    u64 Read(u64 offset, unsigned size) override;
    bool Peek(u64 offset, unsigned size, u64* value) const override;
    bool Poke(u64 offset, unsigned size, u64 value) override;
    void Write(u64 offset, unsigned size, u64 value) override;
    unsigned MaxAccessSize() const override { return 4; }
    void Reset() override;

   private:
    IdeController& controller_;
  };

  std::array<std::unique_ptr<IdeChannel>, kChannels> channels_;
  BusMasterPorts bus_master_ports_{*this};
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IDE_IDE_CONTROLLER_H_
