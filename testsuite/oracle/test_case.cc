// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/test_case.h"

#include <cpuid.h>

#include <memory>

#include "testsuite/oracle/random.h"

namespace alibi::oracle {
namespace {

template <class T>
void Put(u8* area, u32 offset, const T& value) {
  std::memcpy(area + offset, &value, sizeof(value));
}
template <class T>
void Get(const u8* area, u32 offset, T* value) {
  std::memcpy(value, area + offset, sizeof(*value));
}

// Offsets in the legacy area and the header (SDM vol. 1, 10.5 and 13.4).
enum : u32 {
  kFcw = 0,
  kFsw = 2,
  kFtw = 4,
  kFop = 6,
  kFip = 8,
  kFdp = 16,
  kMxcsr = 24,
  kSt = 32,
  kXmm = 160,
  kXstateBv = 512
};

u64 Word(Random* random) {
  static constexpr double kDoubles[] = {0.0, -0.0, 1.0, -1.5, 1e300, 1e-310, 3.14159265358979};
  switch (random->Below(8)) {
    case 0:
      return random->Below(256);
    case 1:
      return ~random->Below(256);
    case 2:
      return kDataBase + random->Below(3 * kPageSize);
    case 3: {
      u64 bits;
      const double value = random->Pick(kDoubles);
      std::memcpy(&bits, &value, 8);
      return bits;
    }
    case 4:
      return random->Below(2) ? 0 : 0x8000000080000000u;
    case 5:
      return random->Below(u64{1} << 32);
    default:
      return random->Next();
  }
}

}  // namespace

const MemoryImage& InitialMemory() {
  static const std::unique_ptr<const MemoryImage> image = [] {
    auto filled = std::make_unique<MemoryImage>();
    Random random(0x414c494249);
    for (u64 at = 0; at < kImageBytes; at += 8)
      Put(filled->data(), static_cast<u32>(at), Word(&random));
    return filled;
  }();
  return *image;
}

const XsaveLayout& XsaveLayout::Host() {
  static const XsaveLayout layout = [] {
    XsaveLayout l;
    u32 low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    l.mask = low & 0xe7;
    u32* const offsets[] = {&l.avx, &l.opmask, &l.zmm_hi256, &l.hi16_zmm};
    const unsigned components[] = {2, 5, 6, 7};
    for (unsigned i = 0; i < 4; ++i) {
      if (!((l.mask >> components[i]) & 1)) continue;
      unsigned size = 0, offset = 0, c = 0, d = 0;
      __get_cpuid_count(0xd, components[i], &size, &offset, &c, &d);
      *offsets[i] = offset;
      l.size = std::max(l.size, offset + size);
    }
    return l;
  }();
  return layout;
}

void StoreVector(const VectorState& v, u8* area) {
  const XsaveLayout& layout = XsaveLayout::Host();
  std::memset(area, 0, layout.size);
  Put(area, kFcw, v.fcw);
  Put(area, kFsw, v.fsw);
  Put(area, kFtw, v.ftw);
  Put(area, kFop, v.fop);
  Put(area, kFip, v.fip);
  Put(area, kFdp, v.fdp);
  Put(area, kMxcsr, v.mxcsr);
  Put(area, kMxcsr + 4, u32{0xffff});
  for (u32 i = 0; i < 8; ++i) std::memcpy(area + kSt + 16 * i, v.st[i], 10);
  for (u32 i = 0; i < 16; ++i) {
    std::memcpy(area + kXmm + 16 * i, v.zmm[i], 16);
    if (layout.avx != 0) std::memcpy(area + layout.avx + 16 * i, v.zmm[i] + 16, 16);
    if (layout.zmm_hi256 != 0) std::memcpy(area + layout.zmm_hi256 + 32 * i, v.zmm[i] + 32, 32);
    if (layout.hi16_zmm != 0) std::memcpy(area + layout.hi16_zmm + 64 * i, v.zmm[16 + i], 64);
  }
  if (layout.opmask != 0) std::memcpy(area + layout.opmask, v.k, sizeof(v.k));
  Put(area, kXstateBv, layout.mask);
}

VectorState LoadVector(const u8* area) {
  const XsaveLayout& layout = XsaveLayout::Host();
  u64 present;
  Get(area, kXstateBv, &present);
  VectorState v;
  if (present & 1) {
    Get(area, kFcw, &v.fcw);
    Get(area, kFsw, &v.fsw);
    Get(area, kFtw, &v.ftw);
    Get(area, kFop, &v.fop);
    Get(area, kFip, &v.fip);
    Get(area, kFdp, &v.fdp);
    for (u32 i = 0; i < 8; ++i) std::memcpy(v.st[i], area + kSt + 16 * i, 10);
  }
  Get(area, kMxcsr, &v.mxcsr);  // saved whenever SSE or AVX is asked for
  for (u32 i = 0; i < 16; ++i) {
    if (present & 2) std::memcpy(v.zmm[i], area + kXmm + 16 * i, 16);
    if (present & layout.mask & 4) std::memcpy(v.zmm[i] + 16, area + layout.avx + 16 * i, 16);
    if (present & layout.mask & 0x40) {
      std::memcpy(v.zmm[i] + 32, area + layout.zmm_hi256 + 32 * i, 32);
    }
    if (present & layout.mask & 0x80) {
      std::memcpy(v.zmm[16 + i], area + layout.hi16_zmm + 64 * i, 64);
    }
  }
  if (present & layout.mask & 0x20) std::memcpy(v.k, area + layout.opmask, sizeof(v.k));
  return v;
}

}  // namespace alibi::oracle
