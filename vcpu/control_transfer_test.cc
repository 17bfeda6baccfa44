// SPDX-License-Identifier: Apache-2.0
#include "vcpu/control_transfer.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "vcpu/control_registers.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

Outcome NotPresent(u16 selector) { return Outcome::WithCode(kSegmentNotPresent, selector); }

class Transfer : public TestMachine {
 public:
  template <class F>
  Outcome Refused(F&& operation) {
    std::vector<u8> before(sizeof(VcpuState));
    std::memcpy(before.data(), &state(), sizeof(VcpuState));
    Outcome outcome = operation();
    CHECK(outcome.faulted());
    CHECK(std::memcmp(before.data(), &state(), sizeof(VcpuState)) == 0);
    return outcome;
  }

  Outcome Iret(unsigned bits = 64) {
    return InterruptReturn(state(), memory, bits, state().rip + 2);
  }
  Outcome BadIret(unsigned bits = 64) {
    return Refused([&] { return Iret(bits); });
  }
  Outcome Jump(u16 selector, u64 offset = 0x1000, unsigned bits = 32) {
    return FarJump(state(), memory, selector, offset, bits, state().rip + 7);
  }
  Outcome BadJump(u16 selector, u64 offset = 0x1000) {
    return Refused([&] { return Jump(selector, offset); });
  }

  void Frame64(u64 rip, u64 cs, u64 flags, u64 rsp, u64 ss) {
    const u64 words[5] = {rip, cs, flags, rsp, ss};
    for (int i = 0; i < 5; ++i) memory.Put<u64>(state().gpr[kRsp] + i * 8u, words[i]);
  }
};

TEST_CASE("IRETQ to the same and to an outer level", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  m.Frame64(0x1111, kCode0, kIf | kCf | kIopl | kRf, 0x7777, 0);
  s.nmi_blocked = 1;
  REQUIRE(m.Iret().done());
  CHECK(s.rip == 0x1111);
  CHECK(s.gpr[kRsp] == 0x7777);  // popped although the level stays
  CHECK(s.segment[kSs].selector == 0);
  CHECK(s.Rflags() == (kIf | kCf | kIopl | kRf | 2));
  CHECK(s.nmi_blocked == 0);

  s.gpr[kRsp] = kKernelStack;
  s.segment[kDs] = {.base = 0, .limit = 1, .selector = kData0, .attributes = kFlatData};
  s.segment[kEs] = {.base = 0, .limit = 1, .selector = kData3, .attributes = WithDpl(kFlatData, 3)};
  s.segment[kGs] = {.base = 0xabc};
  m.Frame64(0x2222, kCode3, kIf, kUserStack, kData3);
  REQUIRE(m.Iret().done());
  CHECK(s.cpl == 3);
  CHECK(s.segment[kCs].selector == kCode3);
  CHECK(s.segment[kSs].selector == kData3);
  CHECK(s.gpr[kRsp] == kUserStack);
  CHECK(s.segment[kDs].attributes == 0);     // dropped
  CHECK(s.segment[kEs].selector == kData3);  // kept
  CHECK(s.segment[kGs].base == 0xabc);
  CHECK(m.memory.privilege_changes == 1);

  // CPL 3 cannot change IF or IOPL.
  m.Frame64(0x3333, kCode3, kIopl | kDf, kUserStack, kData3);
  REQUIRE(m.Iret().done());
  CHECK(s.Rflags() == (kIf | kDf | 2));
}

TEST_CASE("IRET to compatibility mode and back by 32-bit IRET", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  m.Frame64(0x2222, kCompat3, kIf, 0x1'0000'b000, kData3);
  REQUIRE(m.Iret().done());
  CHECK_FALSE(s.In64BitCode());
  CHECK(s.gpr[kRsp] == 0xb000);
  const u32 words[3] = {0x4444, kCompat3, kIf | kZf};
  for (int i = 0; i < 3; ++i) m.memory.Put<u32>(0xb000 + i * 4u, words[i]);
  REQUIRE(m.Iret(32).done());
  CHECK(s.rip == 0x4444);
  CHECK(s.gpr[kRsp] == 0xb00c);  // same level: three words
}

TEST_CASE("IRETQ: every check in order", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  s.system_flags |= kNt;
  CHECK(m.BadIret() == GeneralProtection(0));
  s.system_flags = 0;
  s.gpr[kRsp] = u64{1} << 47;
  CHECK(m.BadIret() == StackFault(0));
  s.gpr[kRsp] = (u64{1} << 47) - 8;  // the frame leaves canonical space
  CHECK(m.BadIret() == StackFault(0));
  s.gpr[kRsp] = kKernelStack;
  m.memory.Poison(kKernelStack);
  CHECK(m.BadIret().fault() == GuestFault::Page(LinearAddr(kKernelStack), 0));
  m.memory.Heal();

  const u64 bad_rip = u64{1} << 47;
  m.Frame64(bad_rip, 3, 2, 0, kCode0);
  CHECK(m.BadIret() == GeneralProtection(0));
  m.Frame64(bad_rip, 0x1000, 2, 0, kCode0);
  CHECK(m.BadIret() == GeneralProtection(0x1000));
  m.Frame64(bad_rip, kData0, 2, 0, kCode0);
  CHECK(m.BadIret() == GeneralProtection(kData0));
  m.Frame64(bad_rip, kCode0 | 3, 2, 0, kCode0);  // RPL is not the DPL
  CHECK(m.BadIret() == GeneralProtection(kCode0));
  m.Frame64(bad_rip, kAbsentCode, 2, 0, kCode0);
  CHECK(m.BadIret() == NotPresent(kAbsentCode));
  m.Frame64(bad_rip, kCode3, 2, 0, 3);  // null SS at CPL 3
  CHECK(m.BadIret() == GeneralProtection(0));
  m.Frame64(bad_rip, kCode0, 2, 0, 1);  // null SS, wrong RPL
  CHECK(m.BadIret() == GeneralProtection(0));
  m.Frame64(bad_rip, kCompat0, 2, 0, 0);  // null SS in compatibility mode
  CHECK(m.BadIret() == GeneralProtection(0));
  m.Frame64(bad_rip, kCode3, 2, 0, 0x1003);
  CHECK(m.BadIret() == GeneralProtection(0x1000));
  m.Frame64(bad_rip, kCode3, 2, 0, kData0);
  CHECK(m.BadIret() == GeneralProtection(kData0));
  m.Frame64(bad_rip, kCode3, 2, 0, kCode3);
  CHECK(m.BadIret() == GeneralProtection(kCode3 & ~3));
  m.Frame64(bad_rip, kCode0, 2, 0, kAbsentData);
  CHECK(m.BadIret() == StackFault(kAbsentData));
  m.Frame64(bad_rip, kCode0, 2, 0, kData0);
  CHECK(m.BadIret() == GeneralProtection(0));
  if (!HostHasIntelsWay(HostDifference::kFarTargetUpperHalf)) {
    m.Frame64(u64{1} << 32, kCompat0, 2, 0, kData0);  // beyond 4 GB in 32-bit code
    CHECK(m.BadIret() == GeneralProtection(0));
  }
  m.LongMode(3);
  m.Frame64(0x1000, kCode0, 2, 0, kData0);  // inward
  CHECK(m.BadIret() == GeneralProtection(kCode0));
}

TEST_CASE("IRET in 32-bit protected mode", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  auto put = [&](std::vector<u32> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      m.memory.Put<u32>(s.gpr[kRsp] + i * 4, words[i]);
    }
  };
  put({0x1111, kCode0, kIf | kCf});
  REQUIRE(m.Iret(32).done());
  CHECK(s.gpr[kRsp] == kKernelStack + 12);
  put({0x2222, kCode3, kIf, kUserStack, kData3});
  REQUIRE(m.Iret(32).done());
  CHECK(s.cpl == 3);
  CHECK(s.gpr[kRsp] == kUserStack);
  m.Protected32(0);
  put({0x42, 0x1000, static_cast<u32>(kVm | kIf | kIopl), 0x6000, 0x2000, 1, 2, 3, 4});
  REQUIRE(m.Iret(32).done());
  CHECK(s.cpl == 3);
  CHECK((s.system_flags & kVm) != 0);
  CHECK(s.segment[kCs].base == 0x10000);
  CHECK(s.segment[kSs].base == 0x20000);
  CHECK(s.segment[kGs].selector == 4);
  m.Protected32(0);
  put({0xffff0000, kCode0, 2});
  m.Describe(kCode0, MakeDescriptor(0, 0xfff, 0x409b));
  CHECK(m.BadIret(32) == GeneralProtection(0));
}

TEST_CASE("IRET with NT returns to the linked task", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  constexpr u64 kOld = 0x6000;
  m.Describe(kGateSelector, MakeDescriptor(kOld, 0x67, 0x8b));
  m.memory.Put<u32>(kOld + 0x20, 0x5555);
  m.memory.Put<u32>(kOld + 0x24, 2);
  for (int i = 0; i < 6; ++i) m.memory.Put<u32>(kOld + 0x48 + i * 4u, kData3);
  m.memory.Put<u32>(kOld + 0x4c, kCode3);
  m.memory.Put<u16>(kTss, kGateSelector);
  s.system_flags |= kNt;
  REQUIRE(m.Iret(32).done());
  CHECK(s.rip == 0x5555);
  CHECK(s.cpl == 3);
  CHECK(((m.DescriptorOf(kTssSelector) >> 40) & 0xf) == kTypeTss);  // no longer busy
  CHECK((m.memory.Get<u32>(kTss + 0x24) & kNt) == 0);
  CHECK(m.memory.Get<u32>(kTss + 0x20) == 0x400002);
}

TEST_CASE("Far jumps: every check in order", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  CHECK(m.BadJump(3) == GeneralProtection(0));
  CHECK(m.BadJump(0x1000) == GeneralProtection(0x1000));
  CHECK(m.BadJump(kData0) == GeneralProtection(kData0));
  CHECK(m.BadJump(kTssSelector) == GeneralProtection(kTssSelector));  // no tasks in long mode
  CHECK(m.BadJump(kCode0 | 3) == GeneralProtection(kCode0));
  CHECK(m.BadJump(kCode3) == GeneralProtection(kCode3 & ~3));
  CHECK(m.BadJump(kAbsentCode) == NotPresent(kAbsentCode));
  m.Describe(kCompat0, MakeDescriptor(0, 0xfffff, kFlatCode32 | kAttrLong));
  CHECK(m.BadJump(kCompat0) == GeneralProtection(kCompat0));  // L and D
  m.Describe(kCompat0, MakeDescriptor(0, 0xfff, 0x409b));
  CHECK(m.BadJump(kCompat0) == GeneralProtection(0));  // limit
  CHECK(m.Jump(kConforming).done());
  CHECK(m.Jump(kCode0).done());
  m.memory.privilege_changes = 0;
  CHECK(m.Jump(kCompat0, 0x800).done());
  CHECK(s.CodeBits() == 32);
  CHECK(m.memory.privilege_changes == 1);  // another code size is another view
  m.LongMode(3);
  CHECK(m.Jump(kConforming | 3).done());
  CHECK(s.segment[kCs].selector == (kConforming | 3));
  m.RealMode();
  s.cr0 = kCr0Et;
  CHECK(m.Jump(0x1234, 0x10000) == GeneralProtection(0));
  CHECK(m.Jump(0x1234, 0x42, 16).done());
  CHECK(s.segment[kCs].base == 0x12340);
}

TEST_CASE("Far calls and returns", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  REQUIRE(FarCall(s, m.memory, kCode0, 0x1000, 64, 0x400010).done());
  CHECK(s.gpr[kRsp] == kKernelStack - 16);
  CHECK(m.memory.Get<u64>(s.gpr[kRsp]) == 0x400010);
  CHECK(m.memory.Get<u64>(s.gpr[kRsp] + 8) == kCode0);
  REQUIRE(FarReturn(s, m.memory, 64, 8).done());
  CHECK(s.rip == 0x400010);
  CHECK(s.gpr[kRsp] == kKernelStack + 8);
  // To an outer level, with parameters released on both stacks.
  const u64 words[5] = {0x1111, kCode3, 0xaaaa, kUserStack, kData3};
  for (int i = 0; i < 5; ++i) m.memory.Put<u64>(s.gpr[kRsp] + i * 8u, words[i]);
  REQUIRE(FarReturn(s, m.memory, 64, 8).done());
  CHECK(s.cpl == 3);
  CHECK(s.gpr[kRsp] == kUserStack + 8);
  m.LongMode(0);
  m.memory.PoisonWrites(kKernelStack - 16);
  CHECK(m.Refused([&] { return FarCall(s, m.memory, kCode0, 0x1000, 64, 0x400010); })
            .fault()
            .vector == kPageFault);
}

TEST_CASE("Call gates in 64-bit mode", "[control]") {
  Transfer m;
  m.LongMode(3);
  VcpuState& s = m.state();
  const u64 low = 0x3456 | (u64{kCode0} << 16) | (u64{0xec} << 40) | (u64{0x12} << 48);
  m.memory.Put<u64>(kGdt + kGateSelector, low);
  m.memory.Put<u64>(kGdt + kGateSelector + 8, 0xffff8000);
  REQUIRE(FarCall(s, m.memory, kGateSelector | 3, 0, 64, 0x400010).done());
  CHECK(s.rip == 0xffff800000123456);
  CHECK(s.cpl == 0);
  CHECK(s.segment[kSs].selector == 0);
  CHECK(s.gpr[kRsp] == kRsp0 - 32);
  CHECK(m.memory.Get<u64>(kRsp0 - 32) == 0x400010);
  CHECK(m.memory.Get<u64>(kRsp0 - 24) == kCode3);
  CHECK(m.memory.Get<u64>(kRsp0 - 16) == kUserStack);
  CHECK(m.memory.Get<u64>(kRsp0 - 8) == kData3);
  m.LongMode(3);
  m.memory.Put<u64>(kGdt + kGateSelector, low);
  CHECK(m.BadJump(kGateSelector) == GeneralProtection(kCode0));  // JMP does not change the level
  m.memory.Put<u64>(kGdt + kGateSelector, low & ~(u64{0x60} << 40));
  CHECK(m.BadJump(kGateSelector) == GeneralProtection(kGateSelector));
  m.memory.Put<u64>(kGdt + kGateSelector, low & ~(u64{0x80} << 40));
  CHECK(m.BadJump(kGateSelector) == NotPresent(kGateSelector));
  m.memory.Put<u64>(kGdt + kGateSelector, low);
  m.memory.Put<u64>(kGdt + kGateSelector + 8, u64{1} << 40);
  CHECK(m.BadJump(kGateSelector) == GeneralProtection(kGateSelector));
}

TEST_CASE("Call gates in 32-bit mode copy parameters", "[control]") {
  Transfer m;
  m.Protected32(3);
  VcpuState& s = m.state();
  m.memory.Put<u64>(kGdt + kGateSelector, 0x3456 | (u64{kCode0} << 16) | (u64{2} << 32) |
                                              (u64{0xec} << 40) | (u64{0x12} << 48));
  m.memory.Put<u32>(kUserStack, 0x111);
  m.memory.Put<u32>(kUserStack + 4, 0x222);
  REQUIRE(FarCall(s, m.memory, kGateSelector, 0, 32, 0x400010).done());
  CHECK(s.rip == 0x123456);
  CHECK(s.gpr[kRsp] == kRsp0 - 24);
  CHECK(m.memory.Get<u32>(kRsp0 - 24) == 0x400010);
  CHECK(m.memory.Get<u32>(kRsp0 - 20) == kCode3);
  CHECK(m.memory.Get<u32>(kRsp0 - 16) == 0x111);
  CHECK(m.memory.Get<u32>(kRsp0 - 12) == 0x222);
  CHECK(m.memory.Get<u32>(kRsp0 - 8) == kUserStack);
  CHECK(m.memory.Get<u32>(kRsp0 - 4) == kData3);
  REQUIRE(FarReturn(s, m.memory, 32, 8).done());
  CHECK(s.cpl == 3);
  CHECK(s.gpr[kRsp] == kUserStack + 8);
}

TEST_CASE("SYSCALL and SYSRET by vendor", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  s.star = (u64{0x20} << 48) | (u64{0xb} << 32);
  s.efer &= ~kEferSce;
  CHECK(Syscall(s, m.memory, Vendor::kAmd, 0) == InvalidOpcode());
  CHECK(Sysret(s, m.memory, Vendor::kAmd, 64) == InvalidOpcode());
  s.efer |= kEferSce;

  s.gpr[kRcx] = u64{1} << 47;
  CHECK(m.Refused([&] { return Sysret(s, m.memory, Vendor::kIntel, 64); }) == GeneralProtection(0));
  s.gpr[kR11] = kIf | kRf | kVm | kIopl;
  SECTION("AMD faults at the target, and changes the selector of SS alone") {
    s.segment[kSs] = {};
    REQUIRE(Sysret(s, m.memory, Vendor::kAmd, 64).done());
    CHECK(s.rip == u64{1} << 47);
    CHECK(s.cpl == 3);
    CHECK(s.segment[kSs].selector == 0x28);
    CHECK(s.segment[kSs].attributes == 0);
    CHECK(s.Rflags() == (kIf | kIopl | 2));
  }
  SECTION("Intel, to compatibility mode") {
    REQUIRE(Sysret(s, m.memory, Vendor::kIntel, 32).done());
    CHECK(s.rip == 0);
    CHECK(s.segment[kCs].selector == 0x23);
    CHECK(s.CodeBits() == 32);
    CHECK(s.segment[kSs].selector == 0x2b);
    CHECK(s.segment[kSs].attributes == WithDpl(kFlatData, 3));
    CHECK(Syscall(s, m.memory, Vendor::kIntel, 5) == InvalidOpcode());
    s.cstar = 0x7000;
    REQUIRE(Syscall(s, m.memory, Vendor::kAmd, 5).done());
    CHECK(s.rip == 0x7000);
    CHECK(s.In64BitCode());
    CHECK(s.segment[kCs].selector == 8);
    CHECK(s.segment[kSs].selector == 0x13);
  }
  SECTION("CPL 3") {
    s.cpl = 3;
    CHECK(Sysret(s, m.memory, Vendor::kAmd, 64) == GeneralProtection(0));
  }
}

TEST_CASE("SYSENTER and SYSEXIT", "[control]") {
  Transfer m;
  m.Protected32(3);
  VcpuState& s = m.state();
  CHECK(m.Refused([&] { return Sysenter(s, m.memory, Vendor::kAmd); }) == GeneralProtection(0));
  s.sysenter_cs = 0x8;
  s.sysenter_eip = 0x1234;
  s.sysenter_esp = 0x5678;
  REQUIRE(Sysenter(s, m.memory, Vendor::kAmd).done());
  CHECK(s.rip == 0x1234);
  CHECK(s.gpr[kRsp] == 0x5678);
  CHECK(s.segment[kSs].selector == 0x10);
  CHECK(s.if_flag == 0);
  s.gpr[kRcx] = 0x9999;
  s.gpr[kRdx] = 0x8888;
  REQUIRE(Sysexit(s, m.memory, Vendor::kIntel, 32).done());
  CHECK(s.rip == 0x8888);
  CHECK(s.gpr[kRsp] == 0x9999);
  CHECK(s.segment[kCs].selector == 0x1b);
  m.LongMode(3);
  CHECK(Sysenter(s, m.memory, Vendor::kAmd) == InvalidOpcode());
  CHECK(Sysenter(s, m.memory, Vendor::kIntel).done());
  CHECK(s.In64BitCode());
}

TEST_CASE("Task switches by JMP and CALL", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  constexpr u64 kNew = 0x6000;
  m.Describe(kGateSelector, MakeDescriptor(kNew, 0x67, 0x89));
  m.memory.Put<u32>(kNew + 0x20, 0x5555);
  for (int i = 0; i < 6; ++i) m.memory.Put<u32>(kNew + 0x48 + i * 4u, kData0);
  m.memory.Put<u32>(kNew + 0x4c, kCode0);
  REQUIRE(m.Jump(kGateSelector).done());
  CHECK(s.rip == 0x5555);
  CHECK(m.memory.Get<u32>(kTss + 0x20) == 0x400007);
  CHECK(((m.DescriptorOf(kTssSelector) >> 40) & 0xf) == kTypeTss);
  CHECK(m.BadJump(kGateSelector) == GeneralProtection(kGateSelector));  // busy
  REQUIRE(FarCall(s, m.memory, kTssSelector, 0, 32, 0x5560).done());
  CHECK((s.system_flags & kNt) != 0);
  CHECK(s.rip == 0x400007);
  CHECK(m.memory.Get<u16>(kTss) == kGateSelector);
}

// A 32-bit TSS at kNew whose task runs at CPL 0, available.
constexpr u64 kNew = 0x6000;
void DescribeTask(Transfer& m, u16 selector = kGateSelector, u64 at = kNew) {
  m.Describe(selector, MakeDescriptor(static_cast<u32>(at), 0x67, 0x89));
  m.memory.Put<u32>(at + 0x20, 0x5555);
  m.memory.Put<u32>(at + 0x24, 2);
  m.memory.Put<u32>(at + 0x38, 0x7000);
  for (int i = 0; i < 6; ++i) m.memory.Put<u32>(at + 0x48 + i * 4u, kData0);
  m.memory.Put<u32>(at + 0x4c, kCode0);
}

TEST_CASE("Task switches: the T flag, local breakpoints, CR3", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  DescribeTask(m);
  s.dr[7] = 0x7ff;
  SECTION("no T") {
    REQUIRE(m.Jump(kGateSelector).done());
    CHECK(s.dr[7] == 0x6aa);  // G0-G3, GE and the fixed bit
    CHECK(s.dr[6] == kDr6Fixed);
    CHECK(s.rip == 0x5555);
  }
  SECTION("T: a trap before the first instruction") {
    m.memory.Put<u32>(kNew + 0x64, 1);
    REQUIRE(m.Jump(kGateSelector).done());
    CHECK(s.rip == kHandler);
    CHECK(s.dr[6] == (kDr6Fixed | kDr6Bt));
    CHECK(m.memory.Get<u32>(s.gpr[kRsp]) == 0x5555);
    CHECK(m.memory.Get<u32>(s.gpr[kRsp] + 8) == 2);  // no RF: it is a trap
  }
  SECTION("CR3 only with paging") {
    m.memory.Put<u32>(kNew + 0x1c, 0x9000);
    s.cr3 = 0x1000;
    const bool paging = GENERATE(false, true);
    if (paging) s.cr0 |= kCr0Pg;
    REQUIRE(m.Jump(kGateSelector).done());
    CHECK(s.cr3 == (paging ? 0x9000 : 0x1000));
    CHECK(m.memory.address_space_loads == (paging ? 1 : 0));
  }
}

TEST_CASE("Tasks with the T flag as handlers of each other's traps", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  s.gdtr.limit = 0xfff;
  const u16 tasks[2] = {0x400, 0x600};  // of #DB and of #GP
  m.Gate32(kDebug, tasks[0], 0, 0x85);
  m.Gate32(kGeneralProtection, tasks[1], 0, 0x85);
  SECTION("busy tasks end it soon") {
    DescribeTask(m, tasks[0], kNew);
    DescribeTask(m, tasks[1], 0x7000);
    m.memory.Put<u32>(kNew + 0x64, 1);
    m.memory.Put<u32>(0x7000 + 0x64, 1);
    REQUIRE(m.Jump(tasks[0]).done());
    // #DB: busy. #GP: the other task, and #DB again: busy, #GP: busy, #DF.
    CHECK(s.shutdown == 0);
    CHECK(s.rip == kHandler);
    CHECK(s.segment[kTr].selector == tasks[1]);
  }
  SECTION("tasks that make themselves available as they are left would go on for ever") {
    for (u16 selector : tasks) {
      // ESI and EDI of the saved registers are the descriptor, as it was when the task began.
      const u64 at = kGdt + selector - 0x40;
      DescribeTask(m, selector, at);
      m.memory.Put<u32>(at + 0x64, 1);
    }
    REQUIRE(m.Jump(tasks[0]).done());
    CHECK(s.shutdown == 1);
  }
}

TEST_CASE("Task switches: what is refused before, and what faults in the new task", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  DescribeTask(m);
  const u64 descriptor = m.DescriptorOf(kGateSelector);
  const auto refused = [&] { return m.BadJump(kGateSelector); };
  SECTION("before") {
    m.Describe(kGateSelector, descriptor & ~(u64{0x80} << 40));
    CHECK(refused() == NotPresent(kGateSelector));
    m.Describe(kGateSelector, (descriptor & ~(u64{0x80} << 40)) | (u64{2} << 40));
    CHECK(refused() == GeneralProtection(kGateSelector));  // busy before absent
    m.Describe(kGateSelector, MakeDescriptor(kNew, 0x66, 0x89));
    CHECK(refused() == Outcome::WithCode(kInvalidTss, kGateSelector));
    m.Describe(kGateSelector, MakeDescriptor(kNew, 0x2a, 0x81));
    CHECK(refused() == Outcome::WithCode(kInvalidTss, kGateSelector));
    m.Describe(kGateSelector, descriptor);
    CHECK(m.BadJump(kGateSelector | 3) == GeneralProtection(kGateSelector));  // RPL > DPL
    m.memory.Put<u64>(kLdt + 8, descriptor);
    CHECK(m.BadJump(0x0c) == GeneralProtection(0x0c));  // a TSS lies in the GDT
    m.Describe(kData1, u64{0x85} << 40 | u64{kGateSelector | 4} << 16);
    CHECK(m.BadJump(kData1) == GeneralProtection(kGateSelector | 4));
    m.Describe(kData1, u64{0x05} << 40 | u64{kGateSelector} << 16);
    CHECK(m.BadJump(kData1) == NotPresent(kData1));
    m.memory.Poison(kNew);
    CHECK(refused().fault().vector == kPageFault);
    m.memory.Heal();
    m.memory.PoisonWrites(kTss);
    CHECK(refused().fault().vector == kPageFault);
    CHECK(m.DescriptorOf(kGateSelector) == descriptor);
    CHECK(s.rip == 0x400000);
  }
  SECTION("after: each selector of the new task") {
    struct Row {
      u32 field;
      u16 selector;
      Outcome outcome;
    };
    const Row rows[] = {
        {0x60, 0x1000, Outcome::WithCode(kInvalidTss, 0x1000)},        // LDT outside the GDT
        {0x60, kData0, Outcome::WithCode(kInvalidTss, kData0)},        // not an LDT
        {0x60, 0x0c, Outcome::WithCode(kInvalidTss, 0x0c)},            // in the LDT
        {0x4c, 0, Outcome::WithCode(kInvalidTss, 0)},                  // CS null
        {0x4c, kData0, Outcome::WithCode(kInvalidTss, kData0)},        // CS data
        {0x4c, kAbsentCode, NotPresent(kAbsentCode)},                  // CS absent
        {0x50, 0, Outcome::WithCode(kInvalidTss, 0)},                  // SS null
        {0x50, kReadOnly, Outcome::WithCode(kInvalidTss, kReadOnly)},  // SS read-only
        {0x50, kData3, Outcome::WithCode(kInvalidTss, kData3 & ~3)},   // SS of another level
        {0x50, kAbsentData, StackFault(kAbsentData)},
        {0x54, kExecuteOnly, Outcome::WithCode(kInvalidTss, kExecuteOnly)},
        {0x54, kAbsentData, NotPresent(kAbsentData)},
    };
    for (const Row& row : rows) {
      Transfer n;
      n.Protected32(0);
      DescribeTask(n);
      n.memory.Put<u32>(kNew + row.field, row.selector);
      INFO(row.field << " " << row.selector);
      CHECK(n.Jump(kGateSelector) == row.outcome);
      // In the new task: the handler's frame shows it.
      CHECK(n.state().segment[kTr].selector == kGateSelector);
      CHECK(n.state().rip == 0x5555);
      CHECK(((n.DescriptorOf(kGateSelector) >> 40) & 0xf) == kTypeTssBusy);
    }
    // EIP beyond the limit.
    m.Describe(kCode0, MakeDescriptor(0, 0x5000, 0x409b));
    CHECK(m.Jump(kGateSelector) == GeneralProtection(0));
    CHECK(s.segment[kTr].selector == kGateSelector);
  }
}

TEST_CASE("Task switches between 16- and 32-bit tasks", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  m.Describe(kGateSelector, MakeDescriptor(kNew, 0x2b, 0x81));
  const u16 words[] = {0,   0,   0,      0,    0,    0,    0,      0x1234, 0x3002, 0xa,    0xc,
                       0xd, 0xb, 0x7000, 0xbb, 0x51, 0xd1, kData0, kCode0, kData0, kData0, 0};
  for (std::size_t i = 0; i < 22; ++i) m.memory.Put<u16>(kNew + i * 2, words[i]);
  s.gpr[kRcx] = 0x11112222;
  s.segment[kFs].selector = kData3;
  REQUIRE(FarCall(s, m.memory, kGateSelector, 0, 32, 0x400007).done());
  CHECK(s.rip == 0x1234);
  CHECK((s.gpr[kRax] & 0xffff) == 0xa);
  CHECK((s.gpr[kRcx] & 0xffff) == 0xc);
  CHECK((s.gpr[kRsp] & 0xffff) == 0x7000);
  CHECK(s.Iopl() == 3);
  CHECK((s.system_flags & kNt) != 0);
  CHECK(m.memory.Get<u16>(kNew) == kTssSelector);  // the link
  CHECK(s.segment[kFs].selector == 0);             // a 16-bit TSS has none
  CHECK(s.segment[kTr].Type() == kTypeTss16Busy);
  CHECK(m.memory.Get<u32>(kTss + 0x2c) == 0x11112222);  // the old task, in its own format
  CHECK(m.memory.Get<u16>(kTss + 0x58) == kData3);
  // Back by IRET; the 16-bit TSS keeps 16 bits, and NT is taken out of the saved flags.
  s.gpr[kRbx] = 0x55556666;
  REQUIRE(m.Iret(16).done());
  CHECK(s.rip == 0x400007);
  CHECK(s.gpr[kRcx] == 0x11112222);
  CHECK(m.memory.Get<u16>(kNew + 0x18) == 0x6666);
  CHECK(m.memory.Get<u16>(kNew + 0x1a) == 0x7000);
  CHECK((m.memory.Get<u16>(kNew + 0x10) & kNt) == 0);
  CHECK(((m.DescriptorOf(kGateSelector) >> 40) & 0xf) == kTypeTss16);
}

TEST_CASE("IRET to a task that is not busy, or none, is #TS", "[control]") {
  Transfer m;
  m.Protected32(3);  // NT is all it takes
  VcpuState& s = m.state();
  DescribeTask(m);
  s.system_flags |= kNt;
  m.memory.Put<u16>(kTss, kGateSelector);
  CHECK(m.BadIret(32) == Outcome::WithCode(kInvalidTss, kGateSelector));
  m.memory.Put<u16>(kTss, 0);
  CHECK(m.BadIret(32) == Outcome::WithCode(kInvalidTss, 0));
  m.memory.Put<u16>(kTss, 0x0c);
  CHECK(m.BadIret(32) == Outcome::WithCode(kInvalidTss, 0x0c));
  m.Describe(kGateSelector, MakeDescriptor(kNew, 0x67, 0x0b));
  m.memory.Put<u16>(kTss, kGateSelector);
  CHECK(m.BadIret(32) == NotPresent(kGateSelector));
  m.LongMode(0);
  s.system_flags |= kNt;
  CHECK(m.BadIret() == GeneralProtection());
}

TEST_CASE("A task in virtual-8086 mode", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  DescribeTask(m);
  m.memory.Put<u32>(kNew + 0x24, static_cast<u32>(kVm | kIf | 2));
  m.memory.Put<u32>(kNew + 0x20, 0x42);
  m.memory.Put<u32>(kNew + 0x4c, 0x1234);
  m.memory.Put<u32>(kNew + 0x48, 0xffff);
  SECTION("enters") {
    REQUIRE(m.Jump(kGateSelector).done());
    CHECK(s.cpl == 3);
    CHECK(s.segment[kCs].base == 0x12340);
    CHECK(s.segment[kEs].base == 0xffff0);
    CHECK(s.segment[kEs].limit == 0xffff);
    CHECK(s.CodeBits() == 16);
  }
  SECTION("an EIP beyond 64 KB faults there") {
    m.memory.Put<u32>(kNew + 0x20, 0x10000);
    CHECK(m.Jump(kGateSelector) == GeneralProtection(0));
    CHECK((s.system_flags & kVm) != 0);
  }
}

TEST_CASE("16-bit call gates and a 16-bit TSS", "[control]") {
  Transfer m;
  m.Protected32(3);
  VcpuState& s = m.state();
  // SS0:SP0 of a 16-bit TSS.
  s.segment[kTr] = {.base = kTss, .limit = 0x2b, .selector = kTssSelector, .attributes = 0x83};
  m.memory.Put<u16>(kTss + 2, 0x9000);
  m.memory.Put<u16>(kTss + 4, kData0);
  m.memory.Put<u64>(kGdt + kGateSelector, 0xabcd | (u64{kCode0} << 16) | (u64{2} << 32) |
                                              (u64{0xe4} << 40) | (u64{0xffff} << 48));
  m.memory.Put<u16>(kUserStack, 0x111);
  m.memory.Put<u16>(kUserStack + 2, 0x222);
  REQUIRE(FarCall(s, m.memory, kGateSelector, 0, 32, 0x10007).done());
  CHECK(s.rip == 0xabcd);
  CHECK(s.gpr[kRsp] == 0x9000 - 12);
  const u16 frame[] = {0x0007, kCode3, 0x111, 0x222, static_cast<u16>(kUserStack), kData3};
  for (unsigned i = 0; i < 6; ++i) CHECK(m.memory.Get<u16>(0x9000 - 12 + i * 2) == frame[i]);
  // The last words of the TSS outside its limit.
  m.Protected32(3);
  s.segment[kTr] = {.base = kTss, .limit = 4, .selector = kTssSelector, .attributes = 0x83};
  CHECK(m.Refused([&] { return FarCall(s, m.memory, kGateSelector, 0, 32, 7); }) ==
        Outcome::WithCode(kInvalidTss, kTssSelector));
}

TEST_CASE("Conforming code keeps the level, by gate and directly", "[control]") {
  Transfer m;
  m.Protected32(3);
  VcpuState& s = m.state();
  m.memory.Put<u64>(kGdt + kGateSelector, 0x3456 | (u64{kConforming} << 16) | (u64{0xec} << 40));
  REQUIRE(FarCall(s, m.memory, kGateSelector, 0, 32, 0x400007).done());
  CHECK(s.cpl == 3);
  CHECK(s.segment[kCs].selector == (kConforming | 3));
  CHECK(s.gpr[kRsp] == kUserStack - 8);
  REQUIRE(FarReturn(s, m.memory, 32, 0).done());
  CHECK(s.cpl == 3);
  REQUIRE(m.Jump(kGateSelector).done());
  CHECK(s.segment[kCs].selector == (kConforming | 3));
  // Never outwards.
  m.Protected32(0);
  m.Describe(kConforming, MakeDescriptor(0, 0xfffff, WithDpl(0xc09f, 3)));
  CHECK(m.BadJump(kConforming) == GeneralProtection(kConforming));
}

TEST_CASE("A return to an outer level takes away inner data segments", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  s.segment[kDs].attributes = kFlatData;
  s.segment[kEs].attributes = WithDpl(kFlatData, 3);
  s.segment[kFs].attributes = kFlatCode32 | kAttrConforming;
  s.segment[kGs].attributes = kFlatCode32;
  const u32 words[] = {0x1111, kCode3, 0xaaaa, kUserStack, kData3};
  for (unsigned i = 0; i < 5; ++i) m.memory.Put<u32>(s.gpr[kRsp] + i * 4, words[i]);
  REQUIRE(FarReturn(s, m.memory, 32, 4).done());
  CHECK(s.cpl == 3);
  CHECK(s.gpr[kRsp] == kUserStack + 4);
  CHECK(s.segment[kDs].attributes == 0);
  CHECK(s.segment[kDs].selector == 0);
  CHECK(s.segment[kEs].attributes != 0);
  CHECK(s.segment[kFs].attributes != 0);
  CHECK(s.segment[kGs].attributes == 0);
}

TEST_CASE("A return to an outer level takes the RPL off null selectors", "[control]") {
  for (const bool iret : {false, true}) {
    for (const bool long_mode : {false, true}) {
      INFO("iret " << iret << " long mode " << long_mode);
      Transfer m;
      if (long_mode) {
        m.LongMode(0);
      } else {
        m.Protected32(0);
      }
      VcpuState& s = m.state();
      s.segment[kDs] = Segment{.selector = 1};
      s.segment[kEs] = Segment{.selector = 2};
      s.segment[kFs] = Segment{.base = long_mode ? 0x5000u : 0u, .selector = 3};
      s.segment[kGs].attributes = WithDpl(kFlatData, 3);
      s.segment[kGs].selector = kData3;
      std::vector<u64> words = {0x1111, kCode3, 2, kUserStack, kData3};
      if (!iret) words.erase(words.begin() + 2);
      for (unsigned i = 0; i < words.size(); ++i) {
        if (long_mode) {
          m.memory.Put<u64>(s.gpr[kRsp] + i * 8, words[i]);
        } else {
          m.memory.Put<u32>(s.gpr[kRsp] + i * 4, static_cast<u32>(words[i]));
        }
      }
      const unsigned bits = long_mode ? 64 : 32;
      REQUIRE((iret ? m.Iret(bits) : FarReturn(s, m.memory, bits, 0)).done());
      CHECK(s.cpl == 3);
      for (SegmentIndex index : {kDs, kEs, kFs}) CHECK(s.segment[index].selector == 0);
      CHECK(s.segment[kFs].base == (long_mode ? 0x5000 : 0));
      CHECK(s.segment[kGs].selector == kData3);
    }
  }
}

TEST_CASE("A return beyond 4 GB to 32-bit code is as on the host", "[control]") {
  for (const bool iret : {false, true}) {
    Transfer m;
    m.LongMode(0);
    VcpuState& s = m.state();
    std::vector<u64> words = {0xffffffff80001111, kCompat3, 2, kUserStack, kData3};
    if (!iret) words.erase(words.begin() + 2);
    for (unsigned i = 0; i < words.size(); ++i) m.memory.Put<u64>(s.gpr[kRsp] + i * 8, words[i]);
    const Outcome outcome = iret ? m.Iret(64) : FarReturn(s, m.memory, 64, 0);
    if (HostHasIntelsWay(HostDifference::kFarTargetUpperHalf)) {
      CHECK(outcome.done());
      CHECK(s.rip == 0x80001111);
    } else {
      CHECK(outcome == GeneralProtection());
    }
  }
}

TEST_CASE("A return to a 16-bit stack leaves the upper half of ESP", "[control]") {
  Transfer m;
  m.Protected32(0);
  VcpuState& s = m.state();
  m.Describe(kData3, MakeDescriptor(0, 0xffff, 0x00f3));
  s.gpr[kRsp] = 0x00018000;
  const u32 words[] = {0x1111, kCode3, 2, 0x1234bbbb, kData3};
  for (unsigned i = 0; i < 5; ++i) m.memory.Put<u32>(s.gpr[kRsp] + i * 4, words[i]);
  REQUIRE(m.Iret(32).done());
  CHECK(s.gpr[kRsp] == 0x0001bbbb);
}

TEST_CASE("SYSCALL and SYSRET step by the TF they leave behind", "[control]") {
  Transfer m;
  m.LongMode(3);
  VcpuState& s = m.state();
  s.star = (u64{0x20} << 48) | (u64{0x8} << 32);
  s.lstar = 0x7000;
  s.system_flags |= kTf;
  SECTION("masked: no trap") {
    s.sfmask = kTf;
    REQUIRE(Syscall(s, m.memory, Vendor::kAmd, 5).done());
    CHECK(s.rip == 0x7000);
    CHECK(s.dr[6] == kDr6Fixed);
    // SYSRET sets it again, and traps at once.
    REQUIRE(Sysret(s, m.memory, Vendor::kAmd, 64).done());
    CHECK(s.rip == kHandler);
    CHECK(s.dr[6] == (kDr6Fixed | kDr6Bs));
    CHECK(m.memory.Get<u64>(kRsp0 - 40) == 5);
    CHECK(m.memory.Get<u64>(kRsp0 - 32) == 0x33);
  }
  SECTION("not masked: a trap at the target") {
    s.sfmask = 0;
    REQUIRE(Syscall(s, m.memory, Vendor::kAmd, 5).done());
    CHECK(s.rip == kHandler);
    CHECK(m.memory.Get<u64>(s.gpr[kRsp]) == 0x7000);
  }
}

TEST_CASE("A change of AC is told: SMAP's views", "[control]") {
  Transfer m;
  m.LongMode(0);
  VcpuState& s = m.state();
  s.star = (u64{0x20} << 48) | (u64{0x8} << 32);
  s.sfmask = kAc;
  s.system_flags |= kAc;
  REQUIRE(Syscall(s, m.memory, Vendor::kAmd, 5).done());  // from CPL 0
  CHECK(m.memory.privilege_changes == 1);
  m.Frame64(0x1111, kCode0, kAc, 0x7777, 0);
  REQUIRE(m.Iret().done());
  CHECK(m.memory.privilege_changes == 2);
  // Under SMAP, emitted SYSCALL is usable only if it closes it.
  PrepareFastSyscall(s);
  CHECK(s.fast_syscall.unusable == 0);
  s.sfmask = 0;
  PrepareFastSyscall(s);
  CHECK(s.fast_syscall.unusable == 0);
  s.cr4 |= kCr4Smap;
  PrepareFastSyscall(s);
  CHECK(s.fast_syscall.unusable != 0);
}

}  // namespace
}  // namespace alibi::vcpu
