// SPDX-License-Identifier: Apache-2.0
// Named CPU models, and what all models say of speculation and caches.
#include "vcpu/cpu_models.h"

#include <catch2/catch.hpp>
#include <string>

#include "vcpu/msr.h"
#include "vcpu/speculation.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

constexpr u32 kAvx = 1u << 28, kXsave = 1u << 26, kAvx2 = 1u << 5, kAdx = 1u << 19, kErms = 1u << 9,
              kIbrs = 1u << 26, kArchCapabilities = 1u << 29;

CpuidPolicy Model(std::string_view name) {
  CpuidPolicy policy;
  INFO(name);
  REQUIRE(CpuidPolicy::ForModel(name, &policy));
  return policy;
}

std::string BrandOf(const CpuidPolicy& policy, const VcpuState& s) {
  std::string brand;
  for (u32 leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    const CpuidRegisters r = policy.Query(s, leaf, 0);
    for (u32 word : {r.eax, r.ebx, r.ecx, r.edx}) {
      for (unsigned i = 0; i < 4; ++i) brand.push_back(static_cast<char>(word >> (8 * i)));
    }
  }
  return brand.c_str();
}

// A host of Haswell's kind: AVX2, but not what came two years later; nothing of AMD's.
CpuidRegisters Haswell(u32 leaf, u32) {
  switch (leaf) {
    case 0:
      return {0xd, 0x756e6547, 0x6c65746e, 0x49656e69};
    case 1:
      return {0x306c3, 0x800, ~0u, ~0u};
    case 7:
      return {0, 0x3af, 0, 0};
    case 0x80000000:
      return {0x80000008, 0, 0, 0};
    case 0x80000001:
      return {0, 0, 0x21, 0};
    default:
      return {};
  }
}

TEST_CASE("CPU models: names, and those that there are not") {
  CpuidPolicy none;
  for (std::string_view name : {"486", "", "Intel", "intel-v0", "base64 "}) {
    INFO(name);
    CHECK_FALSE(CpuidPolicy::ForModel(name, &none));
  }
  CHECK(FindCpuModel("intel") == FindCpuModel("intel-v1"));
  CHECK(FindCpuModel("amd") == FindCpuModel("amd-v1"));
  CHECK(FindCpuModel("host") == nullptr);
  CHECK(CpuidPolicy::ModelNames().front() == "host");
}

// These figures are what users rely on when they move a guest: a new version, never a new figure.
TEST_CASE("CPU models: published ones do not change") {
  TestMachine m;
  m.LongMode();
  const VcpuState& s = m.state();
  struct Published {
    const char* name;
    Vendor vendor;
    const char* brand;
    u32 signature, leaf1_ecx, leaf7_ebx, extended_ecx;
  };
  for (const Published& p : {
           Published{"base64", Vendor::kAmd, "Alibi base64 virtual CPU", 0x60fb1, 0x81ba2201,
                     0x00100483, 1},
           Published{"intel-v1", Vendor::kIntel, "Alibi intel-v1 virtual CPU", 0x506e3, 0xf7fa3203,
                     0x009c07ab, 0x121},
           Published{"amd-v1", Vendor::kAmd, "Alibi amd-v1 virtual CPU", 0x830f10, 0xf7fa3203,
                     0x009c07ab, 0x121},
       }) {
    INFO(p.name);
    const CpuModel* model = FindCpuModel(p.name);
    REQUIRE(model != nullptr);
    const CpuidPolicy whole = CpuidPolicy::Make(model->raw, model->xcr0);
    CHECK(whole.vendor() == p.vendor);
    CHECK(whole.signature() == p.signature);
    CHECK(BrandOf(whole, s) == p.brand);
    CHECK(whole.Query(s, 1, 0).ecx == p.leaf1_ecx);
    CHECK(whole.Query(s, 7, 0).ebx == p.leaf7_ebx);
    CHECK(whole.Query(s, 7, 0).ecx == 0x00400004);
    CHECK(whole.Query(s, 0x80000001, 0).ecx == p.extended_ecx);
    CHECK(whole.xcr0_valid() == (whole.Query(s, 1, 0).ecx & kXsave ? 7u : 0u));
    CHECK(((whole.cr4_valid() & kCr4Osxsave) != 0) == (whole.xcr0_valid() != 0));
  }
}

TEST_CASE("CPU models: what the host lacks is not shown, with what depends on it") {
  TestMachine m;
  const VcpuState& s = m.state();
  for (const char* name : {"intel-v1", "amd-v1"}) {
    INFO(name);
    const CpuModel* model = FindCpuModel(name);
    const CpuidPolicy old = CpuidPolicy::Make(model->raw, 7, &Haswell);
    CHECK((old.Query(s, 7, 0).ebx & kAvx2) != 0);
    CHECK((old.Query(s, 7, 0).ebx & kAdx) == 0);
    CHECK((old.Query(s, 7, 0).ebx & kErms) != 0);  // a hint, not an instruction
    CHECK((old.Query(s, 7, 0).ebx & 1) != 0);      // FSGSBASE is ours
    CHECK((old.Query(s, 0x80000001, 0).ecx & 1u << 8) == 0);
    CHECK((old.Query(s, 0xd, 1).eax & 7) == 0);
    CHECK_FALSE(old.has_xgetbv1());
    CHECK(old.signature() == model->raw(1, 0).eax);
    // A system without AVX.
    const CpuidPolicy bare = CpuidPolicy::Make(model->raw, 3, &Haswell);
    CHECK((bare.Query(s, 1, 0).ecx & kAvx) == 0);
    CHECK((bare.Query(s, 7, 0).ebx & kAvx2) == 0);
    CHECK(bare.xcr0_valid() == 3);
  }
  // On this host: shown, or told of.
  for (std::string_view name : CpuidPolicy::ModelNames()) {
    INFO(name);
    CpuidPolicy shown;
    std::vector<CpuidPolicy::Missing> missing;
    REQUIRE(CpuidPolicy::ForModel(name, &shown, &missing));
    const CpuModel* model = FindCpuModel(name);
    if (model == nullptr) {
      CHECK(missing.empty());
      continue;
    }
    const CpuidPolicy whole = CpuidPolicy::Make(model->raw, model->xcr0);
    u32 lacking = 0;
    for (const auto& row : missing) {
      if (row.leaf == 7 && row.subleaf == 0) lacking = row.bits.ebx;
    }
    CHECK((shown.Query(s, 7, 0).ebx ^ lacking) == whole.Query(s, 7, 0).ebx);
    CHECK((shown.Query(s, 7, 0).ebx & lacking) == 0);
  }
}

TEST_CASE("Speculation: each vendor's guests are told of it in its own way") {
  TestMachine m;
  m.LongMode();
  VcpuState& s = m.state();
  const CpuidPolicy intel = Model("intel"), amd = Model("amd"), base = Model("base64");
  u64 value = 0;
  CHECK((intel.Query(s, 7, 0).edx & (kIbrs | kArchCapabilities)) == (kIbrs | kArchCapabilities));
  REQUIRE(ReadMsr(s, intel, m.platform, kMsrArchCapabilities, &value).done());
  constexpr u64 kRdclNo = 1, kIbrsAll = 2, kRsba = 4, kSsbNo = 16, kMdsNo = 32, kTsxCtrl = 128,
                kBhiNo = 1 << 20, kItsNo = u64{1} << 62;
  constexpr u64 kNeeded = kRdclNo | kIbrsAll | kMdsNo | kBhiNo | kItsNo;
  CHECK((value & kNeeded) == kNeeded);
  CHECK((value & (kRsba | kSsbNo | kTsxCtrl)) == 0);
  const auto write = [&](const CpuidPolicy& cpu, u32 index, u64 data) {
    return WriteMsr(s, m.memory, cpu, m.platform, index, data).done();
  };
  CHECK_FALSE(write(intel, kMsrArchCapabilities, value));
  // SPEC_CTRL keeps IBRS, STIBP and BHI_DIS_S; SSBD is not shown.
  CHECK(intel.Query(s, 7, 0).eax == 2);
  CHECK(intel.Query(s, 7, 2) == CpuidRegisters{0, 0, 0, 1u << 4});
  CHECK(write(intel, kMsrSpecCtrl, 0x403));
  REQUIRE(ReadMsr(s, intel, m.platform, kMsrSpecCtrl, &value).done());
  CHECK(value == 0x403);
  CHECK_FALSE(write(intel, kMsrSpecCtrl, 4));
  CHECK((intel.Query(s, 7, 0).edx & 1u << 31) == 0);
  // PRED_CMD can be written alone, FLUSH_CMD is not there, nor its bit.
  CHECK(write(intel, kMsrPredCmd, 1));
  CHECK_FALSE(write(intel, kMsrPredCmd, 2));
  CHECK_FALSE(ReadMsr(s, intel, m.platform, kMsrPredCmd, &value).done());
  CHECK_FALSE(write(intel, 0x10b, 1));
  CHECK((intel.Query(s, 7, 0).edx & 1u << 28) == 0);
  for (const CpuidPolicy* cpu : {&amd, &base}) {
    CHECK(cpu->Query(s, 7, 0).eax == 1);
    CHECK(cpu->Query(s, 7, 2) == CpuidRegisters{});
    CHECK((cpu->Query(s, 7, 0).edx & (kIbrs | kArchCapabilities)) == 0);
    for (u32 index : {kMsrSpecCtrl, kMsrArchCapabilities}) {
      CHECK_FALSE(ReadMsr(s, *cpu, m.platform, index, &value).done());
    }
    CHECK_FALSE(write(*cpu, kMsrPredCmd, 1));
    CHECK((cpu->Query(s, 0x80000008, 0).ebx & (1u << 29 | 1u << 12 | 1u << 14)) == 1u << 29);
    const CpuidRegisters r = cpu->Query(s, 0x80000021, 0);
    CHECK((r.eax & (1u << 8 | 1u << 29)) == (1u << 8 | 1u << 29));
    CHECK(r.ecx == 6);
    CHECK(write(*cpu, kMsrEfer, s.efer | kEferAibrse));
  }
  CHECK_FALSE(write(intel, kMsrEfer, s.efer | kEferAibrse));
  CHECK((intel.Query(s, 0x80000008, 0).ebx & 1u << 29) == 0);
  for (const SpeculationClaim& claim : kSpeculationClaims) {
    INFO(claim.name);
    CHECK(std::string(claim.reason).size() > 10);
  }
}

CpuidRegisters LargeCache(u32 leaf, u32 subleaf) {
  switch (leaf) {
    case 0:
      return {0xd, 0x756e6547, 0x6c65746e, 0x49656e69};
    case 4:  // 480 MB: 15 ways, 64 bytes, 524,288 sets; shared by 64
      if (subleaf == 3) return {0xfc1fc163, 0x0380003f, 0x7ffff, 4};
      return {};
    case 0x80000000:
      return {0x80000008, 0, 0, 0};
    case 0x80000006:
      return {0, 0, 0x02006140, 0x0f00f140};  // 480 MB
    default:
      return {};
  }
}

TEST_CASE("Caches: what the host's cores share is shown as one core's part") {
  TestMachine m;
  const VcpuState& s = m.state();
  const CpuidPolicy policy = CpuidPolicy::Make(&LargeCache, 7);
  const CpuidRegisters leaf4 = policy.Query(s, 4, 3);
  const u64 bytes = (u64{leaf4.ebx >> 22} + 1) * 64 * (u64{leaf4.ecx} + 1);
  CHECK(bytes <= kMaxCacheBytes);
  CHECK(bytes > kMaxCacheBytes / 2);
  CHECK((leaf4.eax & 0xffffc000) == 0);  // one thread, one core
  CHECK(policy.Query(s, 0x80000006, 0).edx == (32u << 18 | 0xf140 % (1u << 18)));
  CHECK(policy.Query(s, 0x80000006, 0).ecx == 0x02006140);
  for (std::string_view name : CpuidPolicy::ModelNames()) {
    INFO(name);
    const CpuidPolicy model = Model(name);
    for (u32 i = 0; i < 4; ++i) {
      const CpuidRegisters level = model.Query(s, 4, i);
      if (level.eax == 0) continue;
      CHECK((u64{level.ebx >> 22} + 1) * ((level.ebx >> 12 & 0x3ff) + 1) *
                ((level.ebx & 0xfff) + 1) * (u64{level.ecx} + 1) <=
            kMaxCacheBytes);
    }
    CHECK(u64{model.Query(s, 0x80000006, 0).edx >> 18} << 19 <= kMaxCacheBytes);
  }
}

}  // namespace
}  // namespace alibi::vcpu
