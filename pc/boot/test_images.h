// SPDX-License-Identifier: Apache-2.0
// What tests of the loaders share: RAM that remembers, and a kernel without a system in it.
#ifndef ALIBI_PC_BOOT_TEST_IMAGES_H_
#define ALIBI_PC_BOOT_TEST_IMAGES_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "pc/boot/multiboot.h"

namespace alibi::loader {

inline constexpr u64 kMiB = 1 << 20;

// By address: what was written, and how much was zeroed.
class FakeRam : public GuestMemory {
 public:
  bool Write(PhysAddr addr, std::span<const u8> bytes) override {
    writes[addr.value] = std::vector<u8>(bytes.begin(), bytes.end());
    return true;
  }
  bool Zero(PhysAddr addr, u64 size) override {
    zeroed[addr.value] = size;
    return true;
  }
  std::map<u64, std::vector<u8>> writes;
  std::map<u64, u64> zeroed;
};

// The image grows to hold it.
template <class T>
void Put(std::vector<u8>& image, u64 offset, const T& value) {
  if (image.size() < offset + sizeof(value)) image.resize(offset + sizeof(value));
  std::memcpy(&image[offset], &value, sizeof(value));
}

// A bzImage: two setup sectors, and 5000 bytes of kernel that wants 8 MB at 16 MB.
inline std::vector<u8> BzImage() {
  std::vector<u8> image(3 * 512 + 5000, 0xc3);
  std::fill(image.begin(), image.begin() + 3 * 512, u8{0});
  image[0x1f1] = 2;
  image[0x201] = 0x66;  // the header ends at 268h
  Put<u32>(image, 0x1f4, 5000 / 16);
  Put<u16>(image, 0x1fe, 0xaa55);
  Put<u32>(image, 0x202, 0x53726448);
  Put<u16>(image, 0x206, 0x20f);
  image[0x211] = 1;
  Put<u32>(image, 0x214, 0x100000);
  Put<u32>(image, 0x22c, 0x7fffffff);
  image[0x234] = 1;
  Put<u32>(image, 0x238, 2047);
  Put<u64>(image, 0x258, 16 * kMiB);
  Put<u32>(image, 0x260, 8 * kMiB);
  return image;
}

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_TEST_IMAGES_H_
