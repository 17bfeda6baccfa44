// SPDX-License-Identifier: Apache-2.0
// The VGA as a PCI function in slot 2, as QEMU's stdvga: the memory as BAR 0, the video BIOS as the
// expansion ROM, and the Bochs display interface's ports 0x1ce and 0x1cf, by which that BIOS finds
// out that there is no memory for modes of its own.
#ifndef ALIBI_DEVICES_CONSOLE_VGA_PCI_H_
#define ALIBI_DEVICES_CONSOLE_VGA_PCI_H_

#include <array>
#include <utility>
#include <vector>

#include "base/types.h"
#include "devices/console/vga.h"
#include "devices/device.h"
#include "devices/pci/pci_function.h"

namespace alibi::devices {

// Registers are kept; none of the modes they describe is shown.
class BochsDisplay : public Device {
 public:
  static constexpr u16 kFirstPort = 0x1ce;
  static constexpr u32 kPortCount = 3;  // a word at the odd port reaches the next one

  u64 Read(u64 offset, unsigned) override {
    if (offset == 0) return index_;
    if (index_ == kId) return 0xb0c5;
    if (index_ == kMemory) return Vga::kMemoryBytes / 0x10000;
    return index_ < registers_.size() ? registers_[index_] : 0;
  }
  void Write(u64 offset, unsigned, u64 value) override {
    if (offset == 0) {
      index_ = static_cast<u16>(value);
    } else if (index_ != kId && index_ < kMemory) {
      registers_[index_] = static_cast<u16>(value);
    }
  }
  unsigned MaxAccessSize() const override { return 2; }
  void Reset() override {
    index_ = 0;
    registers_ = {};
  }

 private:
  static constexpr u16 kId = 0, kMemory = 10;  // in units of 64 KB

  u16 index_ = 0;
  std::array<u16, 10> registers_{};
};

class VgaFunction : public PciFunction {
 public:
  // `rom` may be empty: no expansion ROM.
  VgaFunction(Vga& vga, std::vector<u8> rom)
      : PciFunction("VGA", {.vendor = 0x1234, .device = 0x1111, .class_code = 0x030000}) {
    AddMemoryBar(0, Vga::kMemoryBytes, vga.linear());
    AddRom(std::move(rom));
  }
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_CONSOLE_VGA_PCI_H_
