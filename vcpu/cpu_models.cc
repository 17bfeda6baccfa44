// SPDX-License-Identifier: Apache-2.0
#include "vcpu/cpu_models.h"

namespace alibi::vcpu {
namespace {

template <class... N>
constexpr u32 Bits(N... n) {
  return ((u32{1} << n) | ...);
}

constexpr u32 Letters(const char* text) {
  u32 word = 0;
  for (unsigned i = 0; i < 4; ++i) word |= u32{static_cast<u8>(text[i])} << (8 * i);
  return word;
}

// 16 of the brand string's 48 characters, for leaves 80000002h to 80000004h.
template <std::size_t N>
constexpr CpuidRegisters Brand(const char (&text)[N], unsigned leaf) {
  static_assert(N <= 49);
  char padded[48] = {};
  for (std::size_t i = 0; i + 1 < N; ++i) padded[i] = text[i];
  const char* part = padded + leaf * 16;
  return {Letters(part), Letters(part + 4), Letters(part + 8), Letters(part + 12)};
}

struct Leaf {
  u32 leaf, subleaf;
  CpuidRegisters registers;
};

// The state components' places are the host's, whose XSAVE runs; so is the TSC.
bool IsHosts(u32 leaf, u32 subleaf) { return (leaf == 0xd && subleaf != 1) || leaf == 0x80000007; }

template <const auto& kLeaves>
CpuidRegisters Raw(u32 leaf, u32 subleaf) {
  if (IsHosts(leaf, subleaf)) return HostCpuid(leaf, subleaf);
  for (const Leaf& row : kLeaves) {
    if (row.leaf == leaf && row.subleaf == subleaf) return row.registers;
  }
  return {};
}

constexpr u32 kBaselineEdx = Bits(0 /*FPU*/, 8 /*CX8*/, 15 /*CMOV*/, 19 /*CLFSH*/, 23 /*MMX*/,
                                  24 /*FXSR*/, 25 /*SSE*/, 26 /*SSE2*/);
constexpr u32 kMmxext = Bits(22);
constexpr u32 kClflush64 = 0x800;

// x86-64-v2, and nothing that some host with BMI2 might not have. An AMD of the family that QEMU's
// qemu64 is, because guests then expect none of the later flaws of Intel's.
constexpr Leaf kBase64[] = {
    {0x0, 0, {0xd, Letters("Auth"), Letters("cAMD"), Letters("enti")}},
    // Family 15, model 107, stepping 1.
    {0x1, 0, {0x60fb1, kClflush64, Bits(0, 9, 13, 19, 20, 23), kBaselineEdx}},
    {0x80000000, 0, {0x80000008, Letters("Auth"), Letters("cAMD"), Letters("enti")}},
    {0x80000001, 0, {0x60fb1, 0, Bits(0 /*LAHF*/), kMmxext}},
    {0x80000002, 0, Brand("Alibi base64 virtual CPU", 0)},
    {0x80000003, 0, Brand("Alibi base64 virtual CPU", 1)},
    {0x80000004, 0, Brand("Alibi base64 virtual CPU", 2)},
    // 64 KB of each first-level cache, 512 KB of the second.
    {0x80000005, 0, {0x01ff01ff, 0x01ff01ff, 0x40020140, 0x40020140}},
    {0x80000006, 0, {0, 0x42004200, 0x02008140, 0}},
};

// x86-64-v3 and what came with it on both vendors' CPUs: what a host of the last ten years has.
constexpr u32 kV3Leaf1Ecx = Bits(0 /*SSE3*/, 1 /*PCLMUL*/, 9 /*SSSE3*/, 12 /*FMA*/, 13 /*CX16*/,
                                 19 /*SSE4.1*/, 20 /*SSE4.2*/, 22 /*MOVBE*/, 23 /*POPCNT*/,
                                 25 /*AES*/, 26 /*XSAVE*/, 28 /*AVX*/, 29 /*F16C*/, 30 /*RDRAND*/);
constexpr u32 kV3Leaf7Ebx = Bits(3 /*BMI1*/, 5 /*AVX2*/, 8 /*BMI2*/, 9 /*ERMS*/, 18 /*RDSEED*/,
                                 19 /*ADX*/, 23 /*CLFLUSHOPT*/);
constexpr u32 kV3ExtendedEcx = Bits(0 /*LAHF*/, 5 /*LZCNT*/, 8 /*PREFETCHW*/);
constexpr u32 kV3Xsave = Bits(0 /*XSAVEOPT*/, 1 /*XSAVEC*/, 2 /*XGETBV1*/);
constexpr u64 kV3Xcr0 = kXcr0X87 | kXcr0Sse | kXcr0Avx;

// Family 6, model 94, stepping 3, as QEMU's Skylake-Client: the newest that compilers take for a
// CPU with AVX2 and without AVX-512.
constexpr Leaf kIntelV1[] = {
    {0x0, 0, {0xd, Letters("Genu"), Letters("ntel"), Letters("ineI")}},
    {0x1, 0, {0x506e3, kClflush64, kV3Leaf1Ecx, kBaselineEdx}},
    // TLBs; FFh: caches are in leaf 4.
    {0x2, 0, {0x76036301, 0x00f0b5ff, 0, 0x00c30000}},
    // 32 KB of each first-level cache, 1 MB of the second, 8 MB of the third.
    {0x4, 0, {0x121, 0x01c0003f, 0x003f, 0}},
    {0x4, 1, {0x122, 0x01c0003f, 0x003f, 0}},
    {0x4, 2, {0x143, 0x03c0003f, 0x03ff, 0}},
    {0x4, 3, {0x163, 0x03c0003f, 0x1fff, 6}},
    {0x7, 0, {0, kV3Leaf7Ebx, 0, 0}},
    {0xd, 1, {kV3Xsave, 0, 0, 0}},
    {0x80000000, 0, {0x80000008, 0, 0, 0}},
    {0x80000001, 0, {0, 0, kV3ExtendedEcx, 0}},
    {0x80000002, 0, Brand("Alibi intel-v1 virtual CPU", 0)},
    {0x80000003, 0, Brand("Alibi intel-v1 virtual CPU", 1)},
    {0x80000004, 0, Brand("Alibi intel-v1 virtual CPU", 2)},
    {0x80000006, 0, {0, 0, 0x04008040, 0}},
};

// Family 23, model 49, stepping 0, as QEMU's EPYC-Rome: the oldest Zen for which kernels do not
// divide at each return to user code (the first one's flaw).
constexpr Leaf kAmdV1[] = {
    {0x0, 0, {0xd, Letters("Auth"), Letters("cAMD"), Letters("enti")}},
    {0x1, 0, {0x830f10, kClflush64, kV3Leaf1Ecx, kBaselineEdx}},
    {0x7, 0, {0, kV3Leaf7Ebx, 0, 0}},
    {0xd, 1, {kV3Xsave, 0, 0, 0}},
    {0x80000000, 0, {0x80000021, Letters("Auth"), Letters("cAMD"), Letters("enti")}},
    {0x80000001, 0, {0x830f10, 0, kV3ExtendedEcx, kMmxext}},
    {0x80000002, 0, Brand("Alibi amd-v1 virtual CPU", 0)},
    {0x80000003, 0, Brand("Alibi amd-v1 virtual CPU", 1)},
    {0x80000004, 0, Brand("Alibi amd-v1 virtual CPU", 2)},
    // 32 KB of each first-level cache, 512 KB of the second, 8 MB of the third.
    {0x80000005, 0, {0xff40ff40, 0xff40ff40, 0x20080140, 0x20080140}},
    {0x80000006, 0, {0x48006400, 0x68006400, 0x02006140, 0x00408140}},
};

constexpr CpuModel kModels[] = {
    {"base64", &Raw<kBase64>, 0},
    {"intel-v1", &Raw<kIntelV1>, kV3Xcr0},
    {"amd-v1", &Raw<kAmdV1>, kV3Xcr0},
};

struct Alias {
  std::string_view alias, name;
};
constexpr Alias kAliases[] = {{"intel", "intel-v1"}, {"amd", "amd-v1"}};

}  // namespace

const CpuModel* FindCpuModel(std::string_view name) {
  for (const Alias& row : kAliases) {
    if (row.alias == name) name = row.name;
  }
  for (const CpuModel& model : kModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

const std::vector<std::string_view>& CpuidPolicy::ModelNames() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all = {"host"};
    for (const CpuModel& model : kModels) all.push_back(model.name);
    for (const Alias& row : kAliases) all.push_back(row.alias);
    return all;
  }();
  return names;
}

}  // namespace alibi::vcpu
