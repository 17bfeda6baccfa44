// SPDX-License-Identifier: Apache-2.0
// The device that CPU test kernels drive interrupt lines and device memory with, as QEMU's
// pc-testdev: port 0x2000 + n sets line n, ports 0xe0 to 0xe3 hold what is written, and so does a
// memory window.
#ifndef ALIBI_DEVICES_QEMU_TEST_DEVICE_H_
#define ALIBI_DEVICES_QEMU_TEST_DEVICE_H_

#include <array>
#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

class TestIrqLines : public Device {
 public:
  static constexpr unsigned kLines = 24;
  explicit TestIrqLines(std::function<void(unsigned line, bool level)> set)
      : set_(std::move(set)) {}
  u64 Read(u64, unsigned) override { return 0; }
  void Write(u64 offset, unsigned, u64 value) override {
    set_(static_cast<unsigned>(offset), value != 0);
  }
  unsigned MaxAccessSize() const override { return 4; }

 private:
  std::function<void(unsigned, bool)> set_;
};

// Bytes that can be read and written, and that are not RAM.
template <unsigned kBytes>
class TestMemory : public Device {
 public:
  u64 Read(u64 offset, unsigned size) override {
    u64 value = 0;
    for (unsigned i = 0; i < size; ++i) value |= u64{bytes_[offset + i]} << (8 * i);
    return value;
  }
  void Write(u64 offset, unsigned size, u64 value) override {
    for (unsigned i = 0; i < size; ++i) bytes_[offset + i] = static_cast<u8>(value >> (8 * i));
  }
  unsigned MaxAccessSize() const override { return 8; }

 private:
  std::array<u8, kBytes> bytes_{};
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_QEMU_TEST_DEVICE_H_
