// SPDX-License-Identifier: Apache-2.0
// A guest's memory for tests of devices that reach it: 1 MB from 0 on.
#ifndef ALIBI_DEVICES_TEST_RAM_H_
#define ALIBI_DEVICES_TEST_RAM_H_

#include <cstring>
#include <string>
#include <vector>

#include "base/types.h"
#include "devices/dma.h"

namespace alibi::devices {

class TestRam final : public Dma {
 public:
  static constexpr u64 kBytes = u64{1} << 20;

  bool Read(PhysAddr address, void* out, u64 size) override {
    if (!Has(address, size)) return false;
    if (size != 0) std::memcpy(out, bytes_.data() + address.value, size);
    return true;
  }
  bool Write(PhysAddr address, const void* data, u64 size) override {
    if (!Has(address, size)) return false;
    if (size != 0) std::memcpy(bytes_.data() + address.value, data, size);
    return true;
  }
  template <class T>
  T Get(u64 address) {
    T value{};
    std::memcpy(&value, bytes_.data() + address, sizeof(value));
    return value;
  }
  template <class T>
  void Set(u64 address, T value) {
    std::memcpy(bytes_.data() + address, &value, sizeof(value));
  }
  std::string Text(u64 address, u64 size) const {
    return std::string(reinterpret_cast<const char*>(bytes_.data()) + address, size);
  }

 private:
  bool Has(PhysAddr address, u64 size) const {
    return size <= kBytes && address.value <= kBytes - size;
  }
  std::vector<u8> bytes_ = std::vector<u8>(kBytes);
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TEST_RAM_H_
