// SPDX-License-Identifier: Apache-2.0
// A VGA (IBM PS/2 Hardware Interface Technical Reference, "Video Graphics Array"): 256 KB in four
// planes, the registers at 0x3b0-0x3df, and the window at 0xa0000-0xbffff.
//
//   plane 0 1 2 3   byte `a` of plane `p` lies at memory_[4 * a + p], so that both the linear modes
//                   and text (characters in plane 0, attributes in 1, fonts in 2) are simple
//
// Memory is kept for every mode; a screen is made of text modes only (Capture()).
#ifndef ALIBI_DEVICES_CONSOLE_VGA_H_
#define ALIBI_DEVICES_CONSOLE_VGA_H_

#include <array>
#include <functional>
#include <vector>

#include "base/types.h"
#include "devices/console/text_screen.h"
#include "devices/device.h"
#include "devices/time/clock.h"

namespace alibi::devices {

class Vga {
 public:
  static constexpr u16 kFirstPort = 0x3b0;
  static constexpr u32 kPortCount = 0x30;
  static constexpr PhysAddr kWindow{0xa0000};
  static constexpr u64 kWindowBytes = 0x20000;
  static constexpr u64 kMemoryBytes = 0x40000;

  // `changed`: what Capture() would return may have changed, for the first time since the last
  // Capture(). It is called from inside accesses and should only take note.
  Vga(Clock& clock, std::function<void()> changed);

  // Offset 0 is port 0x3b0.
  Device& ports() { return ports_; }
  // Offset 0 is 0xa0000.
  Device& window() { return window_; }
  // The whole memory, byte by byte as memory_ has it (the linear framebuffer).
  Device& linear() { return linear_; }

  // As after power-up: no mode is set, the screen is off.
  void Reset();
  // As a BIOS leaves it after setting mode 3: 80 by 25 characters.
  void SetTextMode();

  TextScreen Capture();

 private:
  class Ports : public Device {
   public:
    explicit Ports(Vga& vga) : vga_(vga) {}
    u64 Read(u64 offset, unsigned) override { return vga_.ReadPort(offset); }
    void Write(u64 offset, unsigned, u64 value) override {
      vga_.WritePort(offset, static_cast<u8>(value));
    }
    void Reset() override { vga_.Reset(); }

   private:
    Vga& vga_;
  };
  class Window : public Device {
   public:
    explicit Window(Vga& vga) : vga_(vga) {}
    u64 Read(u64 offset, unsigned size) override;
    void Write(u64 offset, unsigned size, u64 value) override;
    unsigned MaxAccessSize() const override { return 8; }

   private:
    Vga& vga_;
  };
  class Linear : public Device {
   public:
    explicit Linear(Vga& vga) : vga_(vga) {}
    u64 Read(u64 offset, unsigned size) override;
    void Write(u64 offset, unsigned size, u64 value) override;
    unsigned MaxAccessSize() const override { return 8; }

   private:
    Vga& vga_;
  };

  u8 ReadPort(u64 offset);
  void WritePort(u64 offset, u8 value);
  u8 ReadStatus();
  void WriteAttribute(u8 value);
  void WriteDac(u8 value);
  void WriteCrtc(u8 value);
  bool Decodes(u64 offset) const;

  // --- vga_memory.cc ---
  bool PlaneAddress(u64 offset, u64* address) const;
  u8 ReadByte(u64 offset);
  void WriteByte(u64 offset, u8 value);
  void WritePlanes(u64 address, u8 value);
  void Store(u64 index, u8 value);
  void Changed();

  Clock& clock_;
  std::function<void()> changed_;
  bool told_ = false;  // changed_ was called since the last Capture()
  Ports ports_{*this};
  Window window_{*this};
  Linear linear_{*this};

  std::vector<u8> memory_;
  std::array<u8, 4> latches_{};
  u8 misc_ = 0;
  u8 feature_ = 0;
  u8 sequencer_index_ = 0, graphics_index_ = 0, attribute_index_ = 0, crtc_index_ = 0;
  bool attribute_data_ = false;  // the flip-flop of port 0x3c0
  std::array<u8, 5> sequencer_{};
  std::array<u8, 9> graphics_{};
  std::array<u8, 21> attribute_{};
  std::array<u8, 25> crtc_{};
  u8 dac_mask_ = 0xff;
  u8 dac_state_ = 0;  // port 0x3c7
  u8 dac_read_ = 0, dac_write_ = 0, dac_component_ = 0;
  std::array<std::array<u8, 3>, 256> dac_{};  // 6 bits each
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_CONSOLE_VGA_H_
