// SPDX-License-Identifier: Apache-2.0
// The PC's keyboard controller (Intel 8042 as the IBM AT and PS/2 program it), ports 0x60 and 0x64,
// with a keyboard and a mouse on it (devices/console/ps2.h), the A20 gate and the CPU's reset line.
//
// What the keyboard says is of scan code set 2; while bit 6 of the command byte is set, the guest
// sees it translated to set 1.
#ifndef ALIBI_DEVICES_CONSOLE_KEYBOARD8042_H_
#define ALIBI_DEVICES_CONSOLE_KEYBOARD8042_H_

#include <array>
#include <functional>
#include <span>

#include "base/types.h"
#include "devices/console/ps2.h"
#include "devices/device.h"
#include "devices/irq.h"

namespace alibi::devices {

// Two gates of the chip set that several ports reach. A20 masks nothing here: memory above 1 MB is
// always there, but what was written can be read back.
struct SystemGates {
  bool a20 = true;
  std::function<void()> reset;  // pulses the CPU's RESET
};

// Offset 0 is port 0x60; offset 4 is 0x64. Ports between belong to others.
class Keyboard8042 : public Device {
 public:
  Keyboard8042(IrqLine& irq1, IrqLine& irq12, SystemGates& gates)
      : irq1_(irq1), irq12_(irq12), gates_(gates) {}

  u64 Read(u64 offset, unsigned size) override;
  bool Peek(u64 offset, unsigned size, u64* value) const override;
  void Write(u64 offset, unsigned size, u64 value) override;
  void Reset() override;

  // See Ps2Keyboard::Type.
  void Type(std::span<const u8> codes);
  u8 leds() const { return keyboard_.leds(); }

 private:
  static constexpr u8 kInitialCommandByte = 0x65;  // IRQ 1 on, system flag, no mouse, translated

  void Command(u8 command);
  void WriteData(u8 value);
  void Answer(u8 value, bool from_mouse = false);
  void Fill();
  u8 Translate(u8 code);
  void UpdateIrq();
  u8 OutputPort() const;

  IrqLine& irq1_;
  IrqLine& irq12_;
  SystemGates& gates_;
  Ps2Keyboard keyboard_;
  Ps2Mouse mouse_;
  u8 command_byte_ = kInitialCommandByte;
  u8 pending_command_ = 0;  // one that waits for its data byte
  bool last_was_command_ = false;
  bool release_ = false;  // the translation has seen 0xf0
  // The output buffer.
  bool full_ = false;
  bool from_mouse_ = false;
  u8 output_ = 0;
  // What the controller itself says next.
  struct Byte {
    u8 value;
    bool from_mouse;
  };
  std::array<Byte, 16> answers_{};
  unsigned answer_count_ = 0;
};

// Port 0x92: the A20 gate and the reset line once more ("fast" versions).
class SystemPortA : public Device {
 public:
  explicit SystemPortA(SystemGates& gates) : gates_(gates) {}
  u64 Read(u64, unsigned) override { return gates_.a20 ? 2 : 0; }
  void Write(u64, unsigned, u64 value) override {
    gates_.a20 = value & 2;
    const bool reset = value & 1;
    if (reset && gates_.reset) gates_.reset();
  }
  void Reset() override { gates_.a20 = true; }

 private:
  SystemGates& gates_;
};

// Port 0xcf9: the chip set's reset control. A reset is bit 2 going high.
class ResetControl : public Device {
 public:
  explicit ResetControl(SystemGates& gates) : gates_(gates) {}
  u64 Read(u64, unsigned) override { return value_; }
  void Write(u64, unsigned, u64 value) override {
    const bool pulse = (value & 4) && !(value_ & 4);
    value_ = static_cast<u8>(value & 0x0a);
    if (pulse && gates_.reset) gates_.reset();
  }
  void Reset() override { value_ = 0; }

 private:
  SystemGates& gates_;
  u8 value_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_CONSOLE_KEYBOARD8042_H_
