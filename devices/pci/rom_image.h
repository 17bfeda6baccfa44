// SPDX-License-Identifier: Apache-2.0
// What is behind an expansion ROM's BAR.
#ifndef ALIBI_DEVICES_PCI_ROM_IMAGE_H_
#define ALIBI_DEVICES_PCI_ROM_IMAGE_H_

#include <utility>
#include <vector>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

// Reads beyond the image are zero; writes are lost.
class RomImage : public Device {
 public:
  explicit RomImage(std::vector<u8> bytes) : bytes_(std::move(bytes)) {}
  u64 Read(u64 offset, unsigned size) override {
    u64 value = 0;
    for (unsigned i = 0; i < size && offset + i < bytes_.size(); ++i) {
      value |= u64{bytes_[offset + i]} << (8 * i);
    }
    return value;
  }
  void Write(u64, unsigned, u64) override {}
  unsigned MaxAccessSize() const override { return 8; }
  u64 size() const { return bytes_.size(); }

 private:
  std::vector<u8> bytes_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_ROM_IMAGE_H_
