// SPDX-License-Identifier: Apache-2.0
#include "vcpu/segments.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "vcpu/control_registers.h"
#include "vcpu/control_transfer.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

Outcome NotPresent(u16 selector) { return Outcome::WithCode(kSegmentNotPresent, selector); }

TEST_CASE("Loading SS: every check in order", "[segments]") {
  TestMachine m;
  m.LongMode(0);
  VcpuState& s = m.state();
  auto load = [&](u16 selector) { return LoadSegment(s, m.memory, kSs, selector); };
  CHECK(load(0).done());  // null at CPL 0 of 64-bit mode
  CHECK(s.segment[kSs].attributes == 0);
  CHECK(load(1) == GeneralProtection(0));  // RPL differs
  CHECK(load(kData0).done());
  CHECK(s.segment[kSs].attributes == kFlatData);
  CHECK(load(0x1000) == GeneralProtection(0x1000));
  CHECK(load(kData0 | 1) == GeneralProtection(kData0));
  CHECK(load(kData1) == GeneralProtection(kData1));
  CHECK(load(kCode0) == GeneralProtection(kCode0));
  CHECK(load(kReadOnly) == GeneralProtection(kReadOnly));
  CHECK(load(kAbsentData) == StackFault(kAbsentData));
  CHECK(load(4) == GeneralProtection(4));  // LDT entry 0 is empty: no data segment
  m.memory.Put<u64>(kLdt + 8, MakeDescriptor(0x12345678, 0xfff, 0x4093));
  CHECK(load(0xc).done());
  CHECK(s.segment[kSs].base == 0x12345678);
  CHECK(s.segment[kSs].limit == 0xfff);
  s.segment[kLdtr].attributes = 0;
  CHECK(load(0xc) == GeneralProtection(0xc));
  m.LongMode(3);
  CHECK(load(3) == GeneralProtection(0));
  m.Protected32(0);
  CHECK(load(0) == GeneralProtection(0));
}

TEST_CASE("Loading data segments", "[segments]") {
  TestMachine m;
  m.LongMode(3);
  VcpuState& s = m.state();
  auto load = [&](u16 selector) { return LoadSegment(s, m.memory, kFs, selector); };
  s.segment[kFs].base = 0x1234;
  CHECK(load(3).done());
  CHECK(s.segment[kFs].attributes == 0);
  CHECK(s.segment[kFs].base == 0);
  CHECK(load(kData3).done());
  CHECK(load(kData3 & ~3).done());  // RPL 0 does not hurt
  CHECK(load(kData0) == GeneralProtection(kData0));
  CHECK(load(kData1 | 1) == GeneralProtection(kData1));
  CHECK(load(kConforming | 3).done());
  CHECK(load(kTssSelector) == GeneralProtection(kTssSelector));
  CHECK(load(kExecuteOnly) == GeneralProtection(kExecuteOnly));
  m.LongMode(0);
  CHECK(load(kAbsentData) == NotPresent(kAbsentData));
  CHECK(load(kData0 | 3) == GeneralProtection(kData0));  // RPL counts
  CHECK(load(kReadOnly).done());
  CHECK(LoadSegment(s, m.memory, kCs, kCode0) == InvalidOpcode());
}

TEST_CASE("The accessed bit is set once; a fault there changes nothing", "[segments]") {
  TestMachine m;
  m.LongMode(0);
  m.Describe(kData0, MakeDescriptor(0, 0xfffff, kFlatData & ~kAttrAccessed));
  m.memory.PoisonWrites(kGdt);
  u16 old = m.state().segment[kDs].selector;
  m.state().segment[kDs].selector = 0x7777;
  CHECK(LoadSegment(m.state(), m.memory, kDs, kData0).fault().error_code ==
        (kPfPresent | kPfWrite));
  CHECK(m.state().segment[kDs].selector == 0x7777);
  m.memory.Heal();
  CHECK(LoadSegment(m.state(), m.memory, kDs, kData0).done());
  CHECK(m.DescriptorOf(kData0) == MakeDescriptor(0, 0xfffff, kFlatData));
  CHECK(m.memory.writes == 1);
  CHECK(LoadSegment(m.state(), m.memory, kDs, old).done());
  CHECK(m.memory.writes == 1);
}

TEST_CASE("Real mode loads keep the limit", "[segments]") {
  TestMachine m;
  m.RealMode();
  VcpuState& s = m.state();
  s.segment[kDs].limit = 0xffffffff;
  CHECK(LoadSegment(s, m.memory, kDs, 0x1234).done());
  CHECK(s.segment[kDs].base == 0x12340);
  CHECK(s.segment[kDs].limit == 0xffffffff);
}

TEST_CASE("Unreal mode: PE comes and goes, descriptors stay", "[segments]") {
  TestMachine m;
  m.RealMode();
  VcpuState& s = m.state();
  s.gdtr = {.base = kGdt, .limit = kLastSelector + 7};
  m.Describe(kData0, MakeDescriptor(0x300000, 0xfffff, kFlatData));
  const Segment code = s.segment[kCs];
  REQUIRE(WriteCr0(s, m.memory, s.cr0 | kCr0Pe).done());
  CHECK(s.cpl == 0);
  CHECK(s.segment[kCs].base == code.base);  // until CS is loaded
  CHECK(s.CodeBits() == 16);
  REQUIRE(LoadSegment(s, m.memory, kDs, kData0).done());
  REQUIRE(WriteCr0(s, m.memory, s.cr0 & ~kCr0Pe).done());
  CHECK(s.segment[kDs].limit == 0xffffffff);
  CHECK(s.segment[kDs].base == 0x300000);
  CHECK(s.segment[kDs].selector == kData0);
  CHECK(InSegmentLimit(s.segment[kDs], 0x12345678, 4));
  REQUIRE(LoadSegment(s, m.memory, kDs, 0x1234).done());
  CHECK(s.segment[kDs].limit == 0xffffffff);  // the limit survives, the base is the selector's
  CHECK(s.segment[kDs].base == 0x12340);
  CHECK_FALSE(InSegmentLimit(s.segment[kEs], 0x10000, 1));
  // A 16-bit or 32-bit default size survives, too.
  m.Describe(kCode0, MakeDescriptor(0, 0xffff, 0x409b));
  REQUIRE(WriteCr0(s, m.memory, s.cr0 | kCr0Pe).done());
  REQUIRE(FarJump(s, m.memory, kCode0, 0x100, 16, 0).done());
  CHECK(s.CodeBits() == 32);
  REQUIRE(WriteCr0(s, m.memory, s.cr0 & ~kCr0Pe).done());
  REQUIRE(FarJump(s, m.memory, 0xf000, 0x100, 16, 0).done());
  CHECK(s.CodeBits() == 32);
  CHECK(s.segment[kCs].base == 0xf0000);
}

TEST_CASE("LLDT and LTR", "[segments]") {
  TestMachine m;
  m.LongMode(0);
  VcpuState& s = m.state();
  auto lldt = [&](u16 selector) { return LoadLdtr(s, m.memory, selector); };
  auto ltr = [&](u16 selector) { return LoadTaskRegister(s, m.memory, selector); };
  CHECK(lldt(kLdtSelector).done());
  CHECK(s.segment[kLdtr].base == kLdt);
  CHECK(lldt(0).done());
  CHECK(!s.segment[kLdtr].Present());
  CHECK(lldt(kLdtSelector | 4) == GeneralProtection(kLdtSelector | 4));
  CHECK(lldt(kData0) == GeneralProtection(kData0));
  CHECK(lldt(kLastSelector) == GeneralProtection(kLastSelector));  // no room for 16 bytes
  CHECK(ltr(0) == GeneralProtection(0));
  CHECK(ltr(kTssSelector) == GeneralProtection(kTssSelector));  // busy already
  m.Describe(kTssSelector, MakeDescriptor(kTss, 0x67, 0x89));
  m.memory.Put<u64>(kGdt + kTssSelector + 8, 0xffff8000);
  CHECK(ltr(kTssSelector).done());
  CHECK(s.segment[kTr].base == (0xffff800000000000 | kTss));
  CHECK(s.segment[kTr].Type() == kTypeTssBusy);
  CHECK(((m.DescriptorOf(kTssSelector) >> 40) & 0xf) == kTypeTssBusy);
  m.Describe(kTssSelector, MakeDescriptor(kTss, 0x67, 0x89));
  m.memory.Put<u64>(kGdt + kTssSelector + 8, 0x8000);  // base not canonical
  CHECK(ltr(kTssSelector) == GeneralProtection(kTssSelector));
  m.Describe(kTssSelector, MakeDescriptor(kTss, 0x67, 0x09));
  m.memory.Put<u64>(kGdt + kTssSelector + 8, 0);
  CHECK(ltr(kTssSelector) == NotPresent(kTssSelector));
}

TEST_CASE("LGDT: canonical bases, 24 bits with a 16-bit operand", "[segments]") {
  TestMachine m;
  m.LongMode(0);
  VcpuState& s = m.state();
  CHECK(LoadGdtr(s, 0x10, u64{1} << 47, 64) == GeneralProtection(0));
  CHECK(LoadIdtr(s, 0x10, 0xffff900000000000, 64).done());
  CHECK(s.idtr.base == 0xffff900000000000);
  m.Protected32(0);
  CHECK(LoadGdtr(s, 0x10, 0x12345678, 16).done());
  CHECK(s.gdtr.base == 0x345678);
  CHECK(LoadGdtr(s, 0x10, 0x12345678, 32).done());
  CHECK(s.gdtr.base == 0x12345678);
}

TEST_CASE("LAR, LSL, VERR, VERW", "[segments]") {
  TestMachine m;
  m.LongMode(3);
  VcpuState& s = m.state();
  DescriptorQuery q;
  auto lar = [&](u16 selector) {
    CHECK(LoadAccessRights(s, m.memory, selector, &q).done());
    return q.ok;
  };
  CHECK(lar(kCode3));
  CHECK(q.value == 0x00affb00);
  CHECK_FALSE(lar(0));
  CHECK_FALSE(lar(kCode0));
  CHECK(lar(kConforming));
  CHECK_FALSE(lar(0x1000));
  m.LongMode(0);
  CHECK(lar(kTssSelector));
  m.Describe(kGateSelector, MakeDescriptor(0, 0, 0x8e));
  CHECK_FALSE(lar(kGateSelector));  // interrupt gate
  m.Describe(kGateSelector, MakeDescriptor(0, 0, 0x8c));
  CHECK(lar(kGateSelector));
  CHECK(LoadSegmentLimit(s, m.memory, kGateSelector, &q).done());
  CHECK_FALSE(q.ok);  // gates have no limit
  CHECK(LoadSegmentLimit(s, m.memory, kTssSelector, &q).done());
  CHECK(q.value == 0x67);
  auto verify = [&](u16 selector, bool write) {
    CHECK(VerifyAccess(s, m.memory, selector, write, &q).done());
    return q.ok;
  };
  CHECK(verify(kReadOnly, false));
  CHECK_FALSE(verify(kReadOnly, true));
  CHECK_FALSE(verify(kExecuteOnly, false));
  CHECK(verify(kData0, true));
  CHECK_FALSE(verify(kTssSelector, false));
  m.memory.Poison(kGdt);
  CHECK(LoadAccessRights(s, m.memory, kCode0, &q).fault().vector == kPageFault);
}

TEST_CASE("SWAPGS and the base instructions", "[segments]") {
  TestMachine m;
  m.LongMode(0);
  VcpuState& s = m.state();
  s.segment[kGs].base = 1;
  s.kernel_gs_base = 2;
  CHECK(SwapGs(s).done());
  CHECK(s.segment[kGs].base == 2);
  CHECK(s.kernel_gs_base == 1);
  u64 value;
  CHECK(WriteSegmentBase(s, kFs, 32, 0xffffffff12345678).done());
  CHECK(ReadSegmentBase(s, kFs, 64, &value).done());
  CHECK(value == 0x12345678);
  CHECK(WriteSegmentBase(s, kFs, 64, u64{1} << 63) == GeneralProtection(0));
  s.cr4 = kCr4Pae;
  CHECK(ReadSegmentBase(s, kFs, 64, &value) == InvalidOpcode());
  m.Protected32(0);
  CHECK(SwapGs(s) == InvalidOpcode());
}

}  // namespace
}  // namespace alibi::vcpu
