// SPDX-License-Identifier: Apache-2.0
// Control, debug and model-specific registers, CPUID, reset states.
#include <catch2/catch.hpp>
#include <cstring>

#include "vcpu/control_registers.h"
#include "vcpu/cpuid.h"
#include "vcpu/interrupts.h"
#include "vcpu/msr.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

// A made-up host: everything set everywhere.
template <u32 kVendorWord, u32 kMax>
CpuidRegisters RichHost(u32 leaf, u32 subleaf) {
  if (leaf == 0) return {kMax, kVendorWord, 0, 0};
  if (leaf == 0x80000000) return {0x80000028, kVendorWord, 0, 0};
  if (leaf == 0xd && subleaf >= 2) {
    switch (subleaf) {
      case 2:
        return {256, 576, 0, 0};
      case 5:
        return {64, 1088, 0, 0};
      case 6:
        return {512, 1152, 0, 0};
      case 7:
        return {1024, 1664, 0, 0};
      default:
        return {};
    }
  }
  return {~0u, ~0u, ~0u, ~0u};
}
constexpr u32 kIntelWord = 0x756e6547, kAmdWord = 0x68747541;

CpuidPolicy Intel(u64 xcr0 = 0xe7) { return CpuidPolicy::Make(RichHost<kIntelWord, 0x20>, xcr0); }
CpuidPolicy Amd(u64 xcr0 = 0xe7) { return CpuidPolicy::Make(RichHost<kAmdWord, 0x10>, xcr0); }

class Registers : public TestMachine {
 public:
  Outcome WriteCr(unsigned number, u64 value) {
    return WriteControlRegister(state(), memory, policy(), platform, number, value);
  }
  Outcome Wrmsr(const CpuidPolicy& cpuid, u32 index, u64 value) {
    return WriteMsr(state(), memory, cpuid, platform, index, value);
  }
};

TEST_CASE("CR0: reserved bits and combinations", "[registers]") {
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  const u64 good = s.cr0;
  CHECK(m.WriteCr(0, good | (u64{1} << 32)) == GeneralProtection());
  CHECK(m.WriteCr(0, good & ~kCr0Pe) == GeneralProtection());
  CHECK(m.WriteCr(0, good | kCr0Nw) == GeneralProtection());
  CHECK(m.WriteCr(0, good & ~kCr0Pg) == GeneralProtection());  // from 64-bit code
  CHECK(s.cr0 == good);
  CHECK(m.WriteCr(0, (good & ~kCr0Et) | 0x40).done());  // reserved low bits are ignored
  CHECK(s.cr0 == good);
  CHECK(m.memory.paging_mode_changes == 0);
  CHECK(m.WriteCr(0, good & ~kCr0Wp).done());
  CHECK(m.memory.paging_mode_changes == 1);
  CHECK(m.WriteCr(1, 0) == InvalidOpcode());
  CHECK(m.WriteCr(9, 0) == InvalidOpcode());
}

TEST_CASE("Into long mode and out of it", "[registers]") {
  Registers m;
  m.Protected32();
  VcpuState& s = m.state();
  const u64 paging = s.cr0 | kCr0Pg;
  CHECK(m.Wrmsr(m.policy(), kMsrEfer, kEferLme).done());
  CHECK(m.WriteCr(0, paging) == GeneralProtection());  // no PAE
  CHECK(m.WriteCr(4, kCr4Pae).done());
  s.segment[kCs].attributes |= kAttrLong;
  CHECK(m.WriteCr(0, paging) == GeneralProtection());  // CS.L
  s.segment[kCs].attributes = kFlatCode32;
  CHECK(m.WriteCr(0, paging).done());
  CHECK(s.efer == (kEferLme | kEferLma));
  CHECK(m.Wrmsr(m.policy(), kMsrEfer, 0) == GeneralProtection());  // LME under paging
  CHECK(m.Wrmsr(m.policy(), kMsrEfer, kEferLme | kEferNxe).done());
  CHECK(s.efer == (kEferLme | kEferLma | kEferNxe));
  CHECK(m.Wrmsr(m.policy(), kMsrEfer, kEferLme | (1u << 12)) == GeneralProtection());  // SVME
  CHECK(m.WriteCr(4, 0) == GeneralProtection());  // PAE in long mode
  m.memory.invalidations = 0;
  CHECK(m.WriteCr(0, paging & ~kCr0Pg).done());  // from compatibility mode
  CHECK(m.memory.invalidations == 1);
  CHECK((s.efer & kEferLma) == 0);
}

TEST_CASE("CR3, CR4, CR8", "[registers]") {
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  CHECK(m.WriteCr(3, u64{1} << 40) == GeneralProtection());
  CHECK(m.WriteCr(3, u64{1} << 63) == GeneralProtection());
  CHECK(m.WriteCr(3, 0x1018).done());
  CHECK(m.memory.address_space_loads == 1);
  CHECK(m.WriteCr(4, s.cr4 | kCr4Pcide) == GeneralProtection());
  CHECK(m.WriteCr(4, s.cr4 | (1u << 13)) == GeneralProtection());  // VMXE
  CHECK(m.WriteCr(4, s.cr4 | kCr4Pge).done());
  CHECK(m.memory.invalidations == 1);
  CHECK(m.WriteCr(4, s.cr4 | kCr4Tsd).done());
  CHECK(m.memory.invalidations == 1);
  CHECK(m.memory.paging_mode_changes == 0);
  CHECK(m.WriteCr(4, s.cr4 | kCr4Smap).done());
  CHECK(m.memory.paging_mode_changes == 1);
  CHECK(m.WriteCr(8, 16) == GeneralProtection());
  CHECK(m.WriteCr(8, 15).done());
  CHECK(s.cr8 == 15);
  CHECK_FALSE(AboveTaskPriority(s, 0xff));
}

TEST_CASE("PCIDs", "[registers]") {
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  s.cr3 = 0x1001;
  CHECK(m.WriteCr(4, s.cr4 | kCr4Pcide) == GeneralProtection());  // CR3[11:0] is not zero
  s.cr3 = 0x1000;
  CHECK(m.WriteCr(4, s.cr4 | kCr4Pcide).done());
  CHECK(m.WriteCr(3, u64{1} << 63 | 0x2fff).done());
  CHECK(s.cr3 == 0x2fff);  // bit 63 is not stored
  CHECK(m.WriteCr(3, u64{1} << 62) == GeneralProtection());
  s.segment[kCs].attributes = kFlatCode32;
  CHECK(m.WriteCr(0, s.cr0 & ~kCr0Pg) == GeneralProtection());  // from compatibility mode, too
  s.segment[kCs].attributes = kFlatCode64;
  const auto invpcid = [&](u64 type, u64 pcid, u64 address = 0x5000) {
    return InvalidateContext(s, m.memory, type, pcid, LinearAddr(address));
  };
  CHECK(invpcid(0, 5).done());
  CHECK(m.memory.invalidated == std::vector<u64>{0x5000});
  CHECK(invpcid(0, 5, u64{1} << 47) == GeneralProtection());
  for (u64 type = 1; type <= 3; ++type) {
    CHECK(invpcid(type, 0xfff, u64{1} << 47).done());  // the address does not matter
    CHECK(invpcid(type, 0x1000) == GeneralProtection());
  }
  CHECK(m.memory.invalidations == 4);  // CR4.PCIDE was the first
  CHECK(invpcid(4, 0) == GeneralProtection());
  CHECK(invpcid(u64{1} << 32, 0) == GeneralProtection());
  CHECK(m.WriteCr(4, s.cr4 & ~kCr4Pcide).done());  // with any PCID
  CHECK(invpcid(0, 1) == GeneralProtection());
  CHECK(invpcid(1, 1) == GeneralProtection());
  CHECK(invpcid(1, 0).done());
  CHECK(invpcid(2, 1).done());
  CHECK(invpcid(3, 1).done());
  m.Protected32();
  s.cr0 |= kCr0Pg;
  CHECK(m.WriteCr(4, kCr4Pcide) == GeneralProtection());  // only in long mode
}

TEST_CASE("PAE: what loads the page-directory pointers, and their reserved bits", "[registers]") {
  Registers m;
  m.Protected32();
  VcpuState& s = m.state();
  s.cr3 = 0x3020;
  CHECK(m.WriteCr(4, kCr4Pae).done());  // paging is off
  CHECK(m.WriteCr(3, 0x3000).done());
  CHECK(m.memory.pdpte_loads.empty());
  m.memory.good_pdptes = false;
  CHECK(m.WriteCr(0, s.cr0 | kCr0Pg) == GeneralProtection());
  CHECK((s.cr0 & kCr0Pg) == 0);
  m.memory.good_pdptes = true;
  CHECK(m.WriteCr(0, s.cr0 | kCr0Pg).done());
  m.memory.pdpte_loads.clear();
  CHECK(m.WriteCr(0, s.cr0 | kCr0Wp | kCr0Ts).done());
  CHECK(m.memory.pdpte_loads.empty());
  CHECK(m.WriteCr(0, s.cr0 | kCr0Cd).done());
  CHECK(m.memory.pdpte_loads == std::vector<u64>{0x3000});
  CHECK(m.WriteCr(3, 0x4000).done());
  CHECK(m.memory.pdpte_loads.back() == 0x4000);
  for (u64 bit : {kCr4Pge, kCr4Pse, kCr4Smep}) {
    m.memory.pdpte_loads.clear();
    CHECK(m.WriteCr(4, s.cr4 ^ bit).done());
    CHECK(m.memory.pdpte_loads.size() == 1);
  }
  m.memory.pdpte_loads.clear();
  CHECK(m.WriteCr(4, s.cr4 ^ kCr4Tsd).done());
  CHECK(m.memory.pdpte_loads.empty());
  m.memory.good_pdptes = false;
  CHECK(m.WriteCr(3, 0x5000) == GeneralProtection());
  CHECK(m.WriteCr(4, s.cr4 ^ kCr4Pge) == GeneralProtection());
  CHECK(s.cr3 == 0x4000);
  CHECK(m.WriteCr(4, s.cr4 & ~kCr4Pae).done());  // two levels have none
  m.LongMode();
  CHECK(m.WriteCr(3, 0x5000).done());
}

TEST_CASE("LMSW sets PE but does not clear it", "[registers]") {
  Registers m;
  m.Protected32();
  CHECK(LoadMachineStatus(m.state(), m.memory, 0xfff0 | kCr0Ts).done());
  CHECK(m.state().cr0 == (kCr0Pe | kCr0Et | kCr0Ts));
  CHECK(ClearTaskSwitched(m.state(), m.memory).done());
  CHECK(StoreMachineStatus(m.state()) == (kCr0Pe | kCr0Et));
}

TEST_CASE("Debug registers", "[registers]") {
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  u64 value;
  CHECK(WriteDebugRegister(s, 7, 0xffffdfff).done());
  CHECK(s.dr[7] == ((0xffffdfff & 0xffff23ff) | kDr7Fixed));
  CHECK(WriteDebugRegister(s, 4, 0).done());  // alias of DR6
  CHECK(s.dr[6] == kDr6Fixed);
  CHECK(WriteDebugRegister(s, 6, u64{1} << 32) == GeneralProtection());
  CHECK(ReadDebugRegister(s, 8, &value) == InvalidOpcode());
  s.cr4 |= kCr4De;
  CHECK(ReadDebugRegister(s, 5, &value) == InvalidOpcode());
  s.dr[7] |= kDr7Gd;
  CHECK(ReadDebugRegister(s, 0, &value) == Outcome::Simple(kDebug));
  CHECK((s.dr[6] & kDr6Bd) != 0);
  s.cpl = 3;
  CHECK(ReadDebugRegister(s, 0, &value) == GeneralProtection());
}

TEST_CASE("XCR0", "[registers]") {
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  const CpuidPolicy policy = Intel();
  auto set = [&](u64 value) {
    s.gpr[kRcx] = 0;
    s.gpr[kRax] = value;
    s.gpr[kRdx] = 0;
    return ExecuteXsetbv(s, policy);
  };
  CHECK(set(1) == InvalidOpcode());
  s.cr4 |= kCr4Osxsave;
  CHECK(set(0) == GeneralProtection());
  CHECK(set(5) == GeneralProtection());     // AVX without SSE
  CHECK(set(0x27) == GeneralProtection());  // a third of AVX-512
  CHECK(set(0x207) == GeneralProtection());
  CHECK(set(0xe7).done());
  CHECK(ExecuteXgetbv(s, policy).done());
  CHECK(s.gpr[kRax] == 0xe7);
  s.gpr[kRcx] = 2;
  CHECK(ExecuteXgetbv(s, policy) == GeneralProtection());
}

TEST_CASE("MSRs: masks, canonical addresses, vendors, unknown ones", "[registers]") {
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  const CpuidPolicy intel = Intel(), amd = Amd();
  u64 value;
  CHECK(m.Wrmsr(amd, kMsrFsBase, u64{1} << 47) == GeneralProtection());
  CHECK(m.Wrmsr(amd, kMsrFsBase, 0xffff800000000000).done());
  CHECK(s.segment[kFs].base == 0xffff800000000000);
  CHECK(m.Wrmsr(amd, kMsrGsBase, 0x77).done());
  CHECK(s.segment[kGs].base == 0x77);
  CHECK(ReadMsr(s, amd, m.platform, kMsrGsBase, &value).done());
  CHECK(value == 0x77);
  CHECK(m.Wrmsr(amd, kMsrSfmask, u64{1} << 32) == GeneralProtection());
  CHECK(m.Wrmsr(amd, kMsrPat, 0x0007040600070402) == GeneralProtection());
  CHECK(m.Wrmsr(amd, kMsrPat, 0x0007010600070106).done());
  CHECK(ReadMsr(s, intel, m.platform, kMsrMiscEnable, &value).done());
  CHECK((value & 1) == 1);
  CHECK(m.Wrmsr(intel, kMsrMiscEnable, value).done());
  CHECK(ReadMsr(s, amd, m.platform, kMsrMiscEnable, &value).done());
  CHECK(ReadMsr(s, amd, m.platform, 0xc0010131, &value).done());
  CHECK(value == 0);
  CHECK(ReadMsr(s, intel, m.platform, 0xc0010131, &value) == GeneralProtection());
  CHECK(ReadMsr(s, intel, m.platform, 0x12345, &value) == GeneralProtection());
  CHECK(m.Wrmsr(intel, kMsrMtrrCap, 0) == GeneralProtection());
  CHECK(m.Wrmsr(intel, kMsrMtrrDefType, 0xc06).done());
  CHECK(m.Wrmsr(intel, kMsrApicBase, 0xfee00400) == GeneralProtection());  // x2APIC alone
  CHECK(m.Wrmsr(intel, kMsrApicBase, 0xfee00000).done());
  CHECK(s.apic_base == 0xfee00100);  // BSP stays
  CHECK(m.platform.apic_base_writes == 1);
  CHECK(m.Wrmsr(intel, kMsrTsc, 1000).done());
  CHECK(ReadTsc(s, m.platform) < u64{1} << 40);
  CHECK(std::strcmp(MsrName(kMsrStar), "STAR") == 0);
  s.cpl = 3;
  s.cr4 |= kCr4Tsd;
  CHECK(ExecuteRdtsc(s, m.platform) == GeneralProtection());
}

TEST_CASE("RDTSC: where emitted code may read the TSC, and who is told", "[registers]") {
  class Watcher : public FakePlatform {
   public:
    explicit Watcher(VcpuState& state) : state_(state) {}
    void TscReading(u64) override {
      ++readings;
      state_.tsc_offset -= 1'000'000'000'000;
    }
    unsigned readings = 0;

   private:
    VcpuState& state_;
  };
  Registers m;
  m.LongMode();
  VcpuState& s = m.state();
  const CpuidPolicy intel = Intel();
  // The watcher turns the counter back: that of a host that has just started would wrap.
  s.tsc_offset = 1'000'000'000'000'000;
  UpdateRdtsc(s);
  CHECK((s.slow_rdtsc[0] == 0 && s.slow_rdtsc[1] == 0));
  CHECK(m.WriteCr(4, s.cr4 | kCr4Tsd).done());
  CHECK((s.slow_rdtsc[0] == 0 && s.slow_rdtsc[1] != 0));
  CHECK(m.WriteCr(4, s.cr4 & ~kCr4Tsd).done());
  CHECK((s.slow_rdtsc[0] == 0 && s.slow_rdtsc[1] == 0));

  Watcher watcher(s);
  const u64 before = ReadTsc(s, watcher);
  CHECK(watcher.readings == 0);
  s.tsc_watched = 1;
  UpdateRdtsc(s);
  CHECK((s.slow_rdtsc[0] != 0 && s.slow_rdtsc[1] != 0));
  // What it does to the offset counts at once.
  CHECK(ReadTsc(s, watcher) < before);
  CHECK(ExecuteRdtsc(s, watcher).done());
  CHECK(ExecuteRdtscp(s, watcher).done());
  u64 value = 0;
  CHECK(ReadMsr(s, intel, watcher, kMsrTsc, &value).done());
  CHECK(watcher.readings == 4);
}

TEST_CASE("CPUID: what is shown and what is hidden", "[registers]") {
  TestMachine m;
  m.LongMode();
  VcpuState& s = m.state();
  const CpuidPolicy intel = Intel(), amd = Amd();
  CHECK(intel.Query(s, 0, 0).eax == 0xd);
  CpuidRegisters leaf1 = intel.Query(s, 1, 0);
  CHECK((leaf1.ecx & (1u << 31)) != 0);  // hypervisor
  CHECK((leaf1.ecx & (1u << 3)) == 0);   // MONITOR
  CHECK((leaf1.ecx & (1u << 5)) == 0);   // VMX
  CHECK((leaf1.ecx & (1u << 17)) != 0);  // PCID
  CHECK((leaf1.edx & (1u << 1)) != 0);   // VME
  CHECK((leaf1.edx & (1u << 17)) != 0);  // PSE-36
  CHECK((leaf1.ecx & (1u << 27)) == 0);  // OSXSAVE follows CR4
  CHECK((leaf1.edx & (1u << 12)) != 0);  // MTRR
  CHECK((leaf1.edx & (1u << 9)) != 0);   // APIC
  s.cr4 |= kCr4Osxsave;
  s.apic_base = 0;
  leaf1 = intel.Query(s, 1, 0);
  CHECK((leaf1.ecx & (1u << 27)) != 0);
  CHECK((leaf1.edx & (1u << 9)) == 0);
  const CpuidRegisters leaf7 = intel.Query(s, 7, 0);
  CHECK((leaf7.ebx & (1u << 20)) != 0);  // SMAP
  CHECK((leaf7.ebx & (1u << 10)) != 0);  // INVPCID
  CHECK((leaf7.ecx & (1u << 2)) != 0);   // UMIP
  CHECK((leaf7.ebx & (1u << 16)) != 0);  // AVX-512
  CHECK((leaf7.ecx & (1u << 16)) == 0);  // LA57
  CHECK((Intel(7).Query(s, 7, 0).ebx & (1u << 16)) == 0);
  CHECK((Intel(7).Query(s, 7, 0).ebx & (1u << 5)) != 0);  // AVX2
  CHECK((Intel(3).Query(s, 7, 0).ebx & (1u << 5)) == 0);
  CHECK(intel.Query(s, 0x80000008, 0).eax == 0x3028);
  const CpuidRegisters hypervisor = intel.Query(s, 0x40000000, 0);
  CHECK(std::memcmp(&hypervisor.ebx, "AlibiAlibi  ", 12) == 0);
  CHECK(intel.Query(s, 0x40000100, 0) == CpuidRegisters{});
  // Beyond the highest leaf.
  CHECK(amd.Query(s, 0x1f, 0) == CpuidRegisters{});
  CHECK(intel.Query(s, 0x1f, 0) == intel.Query(s, 0xd, 0));
  // SYSCALL outside 64-bit mode.
  s.segment[kCs].attributes = kFlatCode32;
  CHECK((intel.Query(s, 0x80000001, 0).edx & (1u << 11)) == 0);
  CHECK((amd.Query(s, 0x80000001, 0).edx & (1u << 11)) != 0);
  CHECK((amd.Query(s, 0x80000001, 0).ecx & (1u << 2)) == 0);  // SVM
  CHECK((amd.Query(s, 0x80000001, 0).edx & 1) != 0);          // repeats leaf 1
}

TEST_CASE("CPUID: XSAVE areas", "[registers]") {
  TestMachine m;
  VcpuState& s = m.state();
  const CpuidPolicy policy = Intel();
  s.xcr0 = 1;
  CHECK(policy.Query(s, 0xd, 0) == CpuidRegisters{0xe7, 576, 2688, 0});
  s.xcr0 = 7;
  CHECK(policy.Query(s, 0xd, 0).ebx == 832);
  s.xcr0 = 0xe7;
  CHECK(policy.Query(s, 0xd, 0).ebx == 2688);
  CHECK(policy.Query(s, 0xd, 1).ebx == 576 + 256 + 64 + 512 + 1024);
  CHECK((policy.Query(s, 0xd, 1).eax & 8) == 0);  // XSAVES
  CHECK(policy.Query(s, 0xd, 9) == CpuidRegisters{});
  CHECK(Intel(7).Query(s, 0xd, 5) == CpuidRegisters{});
}

TEST_CASE("Reset states", "[registers]") {
  TestMachine m;
  VcpuState& s = m.state();
  CHECK(s.segment[kCs].base + s.rip == 0xfffffff0);
  CHECK(s.CodeBits() == 16);
  CHECK(s.Rflags() == 2);
  ResetToMultiboot(s, m.policy(), 0x100000, 0x2badb002, 0x9500);
  CHECK(s.CodeBits() == 32);
  CHECK(s.rip == 0x100000);
  CHECK(s.gpr[kRax] == 0x2badb002);
  CHECK(s.gpr[kRbx] == 0x9500);
  CHECK_FALSE(s.Paging());
  ResetToLinux32(s, m.policy(), 0x100000, 0x10000, 0x8000);
  CHECK(s.CodeBits() == 32);
  CHECK(s.segment[kCs].selector == 0x10);
  CHECK(s.segment[kSs].selector == 0x18);
  CHECK(s.gdtr.base == 0x8000);
  CHECK(s.gdtr.limit == 0x1f);
  CHECK(s.gpr[kRsi] == 0x10000);
  ResetToLinux64(s, m.policy(), 0x100200, 0x10000, 0x8000, 0x9000);
  CHECK(s.CodeBits() == 64);
  CHECK(s.Paging());
  CHECK(s.cr3 == 0x9000);
  CHECK(s.rip == 0x100200);
  CHECK(s.gpr[kRsi] == 0x10000);
  ResetToPvh(s, m.policy(), 0x1000000, 0x7000);
  CHECK(s.CodeBits() == 32);
  CHECK_FALSE(s.Paging());
  CHECK(s.cr4 == 0);
  CHECK(s.segment[kTr].limit == 0x67);
  CHECK(s.gpr[kRbx] == 0x7000);
}

TEST_CASE("CPUID: which of several VCPUs this is", "[registers]") {
  TestMachine m;
  VcpuState& s = m.state();
  const CpuidPolicy intel = Intel(), amd = Amd();
  const auto topology = [&](u32 vcpus, u32 number, u32 leaf, u32 subleaf) {
    s.vcpus = static_cast<u8>(vcpus);
    s.number = static_cast<u8>(number);
    return intel.Query(s, leaf, subleaf);
  };
  // One is as if nobody knew of more.
  for (const u32 leaf : {1u, 4u, 0xbu, 0x80000001u, 0x80000008u}) {
    for (const u32 subleaf : {0u, 1u, 2u, 3u}) {
      CHECK(topology(1, 0, leaf, subleaf) == topology(0, 0, leaf, subleaf));
    }
  }
  CHECK((topology(5, 3, 1, 0).ebx >> 16) == 0x0305);
  CHECK((topology(5, 3, 1, 0).edx >> 28 & 1) == 1);
  CHECK(topology(5, 3, 0xb, 0) == CpuidRegisters{0, 1, 0x100, 3});
  CHECK(topology(5, 3, 0xb, 1) == CpuidRegisters{3, 5, 0x201, 3});
  CHECK(topology(5, 3, 0xb, 7) == CpuidRegisters{0, 0, 7, 3});
  CHECK(topology(4, 0, 0xb, 1).eax == 2);
  CHECK(topology(16, 15, 0xb, 1) == CpuidRegisters{4, 16, 0x201, 15});
  s.vcpus = 5;
  CHECK(amd.Query(s, 0x80000008, 0).ecx == 0x3004);
  CHECK((amd.Query(s, 0x80000001, 0).ecx & 2) != 0);
  CHECK((intel.Query(s, 0x80000001, 0).ecx & 2) == 0);
}

TEST_CASE("INIT and startup", "[registers]") {
  TestMachine m;
  VcpuState& s = m.state();
  s.number = 3;
  ResetToPowerUp(s, m.policy());
  CHECK(s.waits_for_startup);
  CHECK((s.apic_base & 1u << 8) == 0);
  StartUp(s, 0x9a);
  CHECK_FALSE(s.waits_for_startup);
  CHECK(s.segment[kCs].selector == 0x9a00);
  CHECK(s.segment[kCs].base == 0x9a000);
  CHECK(s.rip == 0);
  CHECK(s.CodeBits() == 16);
  StartUp(s, 0x12);  // runs already
  CHECK(s.segment[kCs].base == 0x9a000);

  m.LongMode();
  s.halted = s.shutdown = s.nmi_blocked = 1;
  s.cr0 |= kCr0Cd;
  s.gpr[kRbx] = 5;
  s.dr[0] = 0x1000;
  s.lstar = 0x2000;
  s.xcr0 = 7;
  s.pat = 0x0606060606060606;
  s.tsc_offset = 77;
  s.apic_base = 0xfee00c00;
  s.xsave_area[200] = 9;
  ResetToInit(s, m.policy());
  CHECK(s.waits_for_startup);
  CHECK((s.halted | s.shutdown | s.nmi_blocked) == 0);
  CHECK(s.cr0 == (kCr0Et | kCr0Cd));
  CHECK((s.cr3 | s.cr4 | s.efer | s.gpr[kRbx] | s.dr[0]) == 0);
  CHECK(s.gpr[kRdx] == m.policy().signature());
  CHECK(s.segment[kCs].base == 0xffff0000);
  CHECK(s.lstar == 0x2000);
  CHECK(s.xcr0 == 7);
  CHECK(s.pat == 0x0606060606060606);
  CHECK(s.tsc_offset == 77);
  CHECK(s.apic_base == 0xfee00c00);
  CHECK(s.xsave_area[200] == 9);
  CHECK(s.number == 3);
}

TEST_CASE("When interrupts may be taken", "[registers]") {
  TestMachine m;
  m.LongMode();
  VcpuState& s = m.state();
  CHECK(CanTakeInterrupt(s));
  s.interrupt_shadow = 1;
  CHECK_FALSE(CanTakeInterrupt(s));
  CHECK_FALSE(CanTakeNmi(s));
  s.interrupt_shadow = 0;
  s.if_flag = 0;
  CHECK_FALSE(CanTakeInterrupt(s));
  CHECK(CanTakeNmi(s));
  s.nmi_blocked = 1;
  CHECK_FALSE(CanTakeNmi(s));
}

}  // namespace
}  // namespace alibi::vcpu
