#include "vcpu/control_transfer.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

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
  m.Frame64(u64{1} << 32, kCompat0, 2, 0, kData0);  // beyond 4 GB in 32-bit code
  CHECK(m.BadIret() == GeneralProtection(0));
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

}  // namespace
}  // namespace alibi::vcpu
