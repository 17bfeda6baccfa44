// SPDX-License-Identifier: Apache-2.0
// The SMBus host controller of Intel's PIIX4 (82371AB data sheet, 290562, section 7.4: I/O
// registers), at the head of a bus that nobody else is on: every address goes unclaimed, so every
// transaction ends at once with a device error. Guests that look for sensors or memory modules find
// a bus without any, as on most boards of this chipset.
#ifndef ALIBI_DEVICES_PCI_SMBUS_H_
#define ALIBI_DEVICES_PCI_SMBUS_H_

#include <array>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"

namespace alibi::devices {

class SmBus : public Device {
 public:
  static constexpr u16 kDefaultBase = 0x700;  // where SeaBIOS puts it
  static constexpr u32 kPortCount = 16;

  // Offsets of the registers, each 8 bits wide.
  enum Register : u64 {
    kHostStatus = 0,  // write 1 to clear
    kSlaveStatus = 1,
    kHostControl = 2,
    kHostCommand = 3,
    kHostAddress = 4,
    kHostData0 = 5,
    kHostData1 = 6,
    kBlockData = 7,  // a window on kBlockBytes bytes; reading kHostControl goes back to the first
    kSlaveControl = 8,
    kShadowCommand = 9,
    kSlaveEvent = 10,  // 16 bits
    kSlaveData = 12,   // 16 bits
  };
  // Bits of kHostStatus.
  static constexpr u8 kDeviceError = 1u << 2, kFailed = 1u << 4;
  // Bits of kHostControl.
  static constexpr u8 kInterruptEnable = 1u << 0, kKill = 1u << 1, kStart = 1u << 6;
  static constexpr unsigned kBlockBytes = 32;

  explicit SmBus(IrqLine& irq) : irq_(irq) {}

  // What the function's configuration registers say. While it is not enabled its ports read as all
  // ones. `interrupts`: they go to the line; otherwise they would be SMIs, which do not exist here.
  void Configure(bool enabled, bool interrupts);

  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  void Reset() override;

 private:
  void UpdateInterrupt();
  u8& NextBlockByte() { return block_[block_at_++ % kBlockBytes]; }

  IrqLine& irq_;
  bool enabled_ = true, interrupts_ = true;  // as the function is set up at first
  std::array<u8, kPortCount> registers_{};
  std::array<u8, kBlockBytes> block_{};
  unsigned block_at_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_SMBUS_H_
