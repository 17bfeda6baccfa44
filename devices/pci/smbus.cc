// SPDX-License-Identifier: Apache-2.0
#include "devices/pci/smbus.h"

namespace alibi::devices {
namespace {

// What a guest can change, by register; status bits are cleared by writing 1 to them.
constexpr u8 kWritable[SmBus::kPortCount] = {0,    0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0,
                                             0x0f, 0, 0xff, 0xff, 0,    0,    0,    0};
constexpr u8 kHostEvents = 0x1e;  // every status bit but HOST_BUSY
constexpr u8 kSlaveEvents = 0x3c;

}  // namespace

void SmBus::Configure(bool enabled, bool interrupts) {
  enabled_ = enabled;
  interrupts_ = interrupts;
  UpdateInterrupt();
}

u64 SmBus::Read(u64 offset, unsigned) {
  if (!enabled_) return 0xff;
  if (offset == kBlockData) return NextBlockByte();
  if (offset == kHostControl) block_at_ = 0;
  return registers_[offset];
}

void SmBus::Write(u64 offset, unsigned, u64 value) {
  if (!enabled_) return;
  const u8 byte = static_cast<u8>(value);
  if (offset == kBlockData) {
    NextBlockByte() = byte;
    return;
  }
  u8& status = registers_[kHostStatus];
  if (offset == kHostStatus) status &= static_cast<u8>(~(byte & kHostEvents));
  if (offset == kSlaveStatus) registers_[offset] &= static_cast<u8>(~(byte & kSlaveEvents));
  registers_[offset] =
      static_cast<u8>((registers_[offset] & ~kWritable[offset]) | (byte & kWritable[offset]));
  if (offset == kHostControl) {
    if (byte & kKill) {
      status |= kFailed;
    } else if (byte & kStart) {
      status |= kDeviceError;  // nobody acknowledges the address
    }
  }
  UpdateInterrupt();
}

void SmBus::Reset() {
  registers_ = {};
  block_ = {};
  block_at_ = 0;
  UpdateInterrupt();
}

void SmBus::UpdateInterrupt() {
  irq_.Set(enabled_ && interrupts_ && (registers_[kHostControl] & kInterruptEnable) &&
           (registers_[kHostStatus] & kHostEvents));
}

}  // namespace alibi::devices
