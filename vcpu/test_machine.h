// SPDX-License-Identifier: Apache-2.0
// A small machine for tests of system semantics: descriptor tables, TSS and stacks at fixed places
// in a FakeMemory, in long mode or in 32-bit protected mode.
#ifndef ALIBI_VCPU_TEST_MACHINE_H_
#define ALIBI_VCPU_TEST_MACHINE_H_

#include <memory>

#include "vcpu/cpuid.h"
#include "vcpu/descriptors.h"
#include "vcpu/fake_memory.h"
#include "vcpu/reset.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

inline constexpr u64 kGdt = 0x1000, kIdt = 0x2000, kTss = 0x4000, kLdt = 0x5000;
inline constexpr u64 kKernelStack = 0x8000, kRsp0 = 0x9000, kIst1 = 0xa000, kUserStack = 0xb000;
inline constexpr u64 kHandler = 0x123456;  // of every gate

// Selectors. RPL 0 except where a user would use them.
inline constexpr u16 kCode0 = 0x08, kData0 = 0x10, kCode3 = 0x33, kData3 = 0x2b, kCompat3 = 0x23,
                     kTssSelector = 0x40, kConforming = 0x50, kAbsentData = 0x58,
                     kExecuteOnly = 0x60, kReadOnly = 0x68, kAbsentCode = 0x70, kLdtSelector = 0x78,
                     kGateSelector = 0x88, kData1 = 0x98, kCompat0 = 0xa0, kLastSelector = 0xa8;

constexpr u64 MakeDescriptor(u32 base, u32 limit, u16 attributes) {
  return (limit & 0xffff) | (u64{base & 0xffffff} << 16) | (u64{attributes & 0xffu} << 40) |
         (u64{(limit >> 16) & 0xf} << 48) | (u64{(attributes >> 12) & 0xfu} << 52) |
         (u64{base >> 24} << 56);
}

class TestMachine {
 public:
  TestMachine() : state_(std::make_unique<VcpuState>()), memory(*state_) {
    ResetToPowerUp(state(), policy());
  }

  VcpuState& state() { return *state_; }

  static const CpuidPolicy& policy() { return CpuidPolicy::ForHost(); }

  void Describe(u16 selector, u64 descriptor) {
    memory.Put<u64>(kGdt + (selector & 0xfff8), descriptor);
  }
  u64 DescriptorOf(u16 selector) { return memory.Get<u64>(kGdt + (selector & 0xfff8)); }

  void Gate64(u8 vector, u16 selector, u64 offset, u8 attributes, u8 ist = 0) {
    memory.Put<u64>(kIdt + vector * 16u, (offset & 0xffff) | (u64{selector} << 16) |
                                             (u64{ist} << 32) | (u64{attributes} << 40) |
                                             ((offset & 0xffff0000) << 32));
    memory.Put<u64>(kIdt + vector * 16u + 8, offset >> 32);
  }
  void Gate32(u8 vector, u16 selector, u32 offset, u8 attributes) {
    memory.Put<u64>(kIdt + vector * 8u, (offset & 0xffff) | (u64{selector} << 16) |
                                            (u64{attributes} << 40) |
                                            ((u64{offset} & 0xffff0000) << 32));
  }

  void LongMode(unsigned cpl = 0) {
    VcpuState& s = state();
    s.cr0 = kCr0Pe | kCr0Et | kCr0Pg | kCr0Wp;
    s.cr4 = kCr4Pae | kCr4Fsgsbase;
    s.efer = kEferLme | kEferLma | kEferSce | kEferNxe;
    CommonTables(kFlatCode64);
    Describe(kTssSelector, MakeDescriptor(kTss, 0x67, 0x8b));
    Describe(kLdtSelector, MakeDescriptor(kLdt, 0x1f, 0x82));
    for (unsigned vector = 0; vector < 256; ++vector) {
      Gate64(static_cast<u8>(vector), kCode0, kHandler, 0x8e);
    }
    s.idtr = {.base = kIdt, .limit = 0xfff};
    memory.Put<u64>(kTss + 4, kRsp0);
    memory.Put<u64>(kTss + 0x24, kIst1);
    Enter(cpl, kFlatCode64);
  }

  void Protected32(unsigned cpl = 0) {
    VcpuState& s = state();
    s.cr0 = kCr0Pe | kCr0Et;
    s.cr4 = 0;
    s.efer = 0;
    CommonTables(kFlatCode32);
    Describe(kTssSelector, MakeDescriptor(kTss, 0x67, 0x8b));
    Describe(kLdtSelector, MakeDescriptor(kLdt, 0x1f, 0x82));
    for (unsigned vector = 0; vector < 256; ++vector) {
      Gate32(static_cast<u8>(vector), kCode0, kHandler, 0x8e);
    }
    s.idtr = {.base = kIdt, .limit = 0x7ff};
    memory.Put<u32>(kTss + 4, kRsp0);
    memory.Put<u32>(kTss + 8, kData0);
    Enter(cpl, kFlatCode32);
  }

  void RealMode() {
    VcpuState& s = state();
    s.idtr = {.base = 0, .limit = 0x3ff};
    s.segment[kCs] = {.base = 0x7000, .limit = 0xffff, .selector = 0x700, .attributes = 0x9b};
    s.gpr[kRsp] = 0x6000;
    s.rip = 0x100;
  }

 private:
  void CommonTables(u16 code) {
    state().gdtr = {.base = kGdt, .limit = kLastSelector + 7};
    Describe(kCode0, MakeDescriptor(0, 0xfffff, code));
    Describe(kData0, MakeDescriptor(0, 0xfffff, kFlatData));
    Describe(kCode3, MakeDescriptor(0, 0xfffff, WithDpl(code, 3)));
    Describe(kData3, MakeDescriptor(0, 0xfffff, WithDpl(kFlatData, 3)));
    Describe(kCompat3, MakeDescriptor(0, 0xfffff, WithDpl(kFlatCode32, 3)));
    Describe(kConforming, MakeDescriptor(0, 0xfffff, code | kAttrConforming));
    Describe(kAbsentData, MakeDescriptor(0, 0xfffff, kFlatData & ~kAttrPresent));
    Describe(kExecuteOnly, MakeDescriptor(0, 0xfffff, code & ~kAttrWritable));
    Describe(kReadOnly, MakeDescriptor(0, 0xfffff, kFlatData & ~kAttrWritable));
    Describe(kAbsentCode, MakeDescriptor(0, 0xfffff, code & ~kAttrPresent));
    Describe(kData1, MakeDescriptor(0, 0xfffff, WithDpl(kFlatData, 1)));
    Describe(kCompat0, MakeDescriptor(0, 0xfffff, kFlatCode32));
  }

  void Enter(unsigned cpl, u16 code) {
    VcpuState& s = state();
    u16 cs = cpl == 3 ? kCode3 : kCode0, ss = cpl == 3 ? kData3 : kData0;
    s.cpl = static_cast<u8>(cpl);
    s.segment[kCs] = {
        .base = 0, .limit = 0xffffffff, .selector = cs, .attributes = WithDpl(code, cpl)};
    for (SegmentIndex index : {kSs, kDs, kEs, kFs, kGs}) {
      s.segment[index] = {
          .base = 0, .limit = 0xffffffff, .selector = ss, .attributes = WithDpl(kFlatData, cpl)};
    }
    s.segment[kTr] = {.base = kTss, .limit = 0x67, .selector = kTssSelector, .attributes = 0x8b};
    s.segment[kLdtr] = {.base = kLdt, .limit = 0x1f, .selector = kLdtSelector, .attributes = 0x82};
    s.gpr[kRsp] = cpl == 3 ? kUserStack : kKernelStack;
    s.rip = 0x400000;
    s.SetRflags(kIf | kZf);
  }

  std::unique_ptr<VcpuState> state_;

 public:
  FakeMemory memory;
  FakePlatform platform;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_TEST_MACHINE_H_
