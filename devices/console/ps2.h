// SPDX-License-Identifier: Apache-2.0
// What hangs on the keyboard controller's two wires: an AT keyboard (IBM PS/2 Hardware Interface
// Technical Reference, "Keyboard (101- and 102-key)") and a two-button PS/2 mouse that nobody
// moves (ditto, "Auxiliary Device").
#ifndef ALIBI_DEVICES_CONSOLE_PS2_H_
#define ALIBI_DEVICES_CONSOLE_PS2_H_

#include <array>
#include <deque>
#include <span>

#include "base/types.h"

namespace alibi::devices {

// Bytes on their way to the controller. Both devices have room for 16, which is also the most that
// a command makes them say.
class Ps2Device {
 public:
  virtual ~Ps2Device() = default;
  // The controller sends a byte.
  virtual void Receive(u8 byte) = 0;
  virtual void Reset() = 0;

  virtual bool HasByte() const { return count_ != 0; }
  virtual u8 Take();  // if HasByte()

 protected:
  static constexpr u8 kAcknowledge = 0xfa, kSelfTestPassed = 0xaa, kResend = 0xfe;

  void Say(std::initializer_list<u8> bytes);
  void Clear() { count_ = 0; }
  u8 last_ = 0;

 private:
  std::array<u8, 16> bytes_{};
  unsigned first_ = 0, count_ = 0;
};

class Ps2Keyboard : public Ps2Device {
 public:
  // Keys that are typed faster than the guest takes them wait here; what finds no room is lost.
  static constexpr std::size_t kMaxTyped = 4096;

  Ps2Keyboard() { Reset(); }
  void Receive(u8 byte) override;
  void Reset() override;
  bool HasByte() const override { return Ps2Device::HasByte() || (!typed_.empty() && scanning_); }
  u8 Take() override;

  // Keys go down and up: codes of set 2, whole sequences. Without effect while the guest has
  // switched the keyboard off.
  void Type(std::span<const u8> codes);
  u8 leds() const { return leds_; }

 private:
  void SetDefaults();

  std::deque<u8> typed_;
  u8 command_ = 0;  // one that waits for its parameter
  u8 leds_ = 0;
  u8 code_set_ = 2;
  bool scanning_ = true;
};

class Ps2Mouse : public Ps2Device {
 public:
  Ps2Mouse() { Reset(); }
  void Receive(u8 byte) override;
  void Reset() override;

 private:
  void SetDefaults();

  u8 command_ = 0;
  u8 resolution_ = 2, rate_ = 100;
  bool scaling_ = false, reporting_ = false, remote_ = false, wrap_ = false;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_CONSOLE_PS2_H_
