// SPDX-License-Identifier: Apache-2.0
#include "vcpu/exceptions.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "vcpu/control_registers.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

// The state without its large tail, to see that a failed delivery changed nothing.
bool SameState(const VcpuState& a, const VcpuState& b) {
  return std::memcmp(&a, &b, sizeof(VcpuState)) == 0;
}

Outcome Refused(TestMachine& m, const Event& event) {
  VcpuState before = m.state();
  Outcome outcome = TryDeliver(m.state(), m.memory, event, m.state().rip);
  CHECK(outcome.faulted());
  CHECK(SameState(before, m.state()));
  return outcome;
}

Event Fault(u8 vector) {
  return {EventKind::kFault, vector, PushesErrorCode(vector), 0x12, 0x7000};
}

TEST_CASE("Long mode: a fault at CPL 3 switches to RSP0 and pushes RF", "[exceptions]") {
  TestMachine m;
  m.LongMode(3);
  VcpuState& s = m.state();
  s.system_flags |= kTf | kNt;
  DeliverEvent(s, m.memory, Fault(kPageFault), s.rip);
  CHECK(s.rip == kHandler);
  CHECK(s.cpl == 0);
  CHECK(s.segment[kCs].selector == kCode0);
  CHECK(s.segment[kSs].selector == 0);
  CHECK(s.gpr[kRsp] == kRsp0 - 48);
  CHECK(s.cr2 == 0x7000);
  CHECK(m.memory.Get<u64>(kRsp0 - 48) == 0x12);
  CHECK(m.memory.Get<u64>(kRsp0 - 40) == 0x400000);
  CHECK(m.memory.Get<u64>(kRsp0 - 32) == kCode3);
  CHECK(m.memory.Get<u64>(kRsp0 - 24) == (kIf | kZf | kTf | kNt | kRf | 2));
  CHECK(m.memory.Get<u64>(kRsp0 - 16) == kUserStack);
  CHECK(m.memory.Get<u64>(kRsp0 - 8) == kData3);
  CHECK(s.if_flag == 0);
  CHECK(s.Rflags() == (kZf | 2));
  CHECK(m.memory.privilege_changes == 1);
  CHECK(m.memory.writes == 1);  // the whole frame at once
}

TEST_CASE("Long mode: same privilege aligns the stack; trap gates keep IF", "[exceptions]") {
  TestMachine m;
  m.LongMode(0);
  VcpuState& s = m.state();
  s.gpr[kRsp] = kKernelStack - 3;
  m.Gate64(3, kCode0, kHandler, 0x8f);
  REQUIRE(SoftwareTrap(s, m.memory, kBreakpoint, s.rip + 1).done());
  CHECK(s.gpr[kRsp] == kKernelStack - 16 - 40);
  CHECK(m.memory.Get<u64>(s.gpr[kRsp]) == 0x400001);
  CHECK(m.memory.Get<u64>(s.gpr[kRsp] + 16) == (kIf | kZf | 2));
  CHECK(m.memory.Get<u64>(s.gpr[kRsp] + 24) == kKernelStack - 3);
  CHECK(s.if_flag == 1);
  CHECK(s.segment[kSs].selector == kData0);
  CHECK(m.memory.privilege_changes == 0);
}

TEST_CASE("Long mode: IST replaces the stack at any privilege", "[exceptions]") {
  TestMachine m;
  m.LongMode(0);
  m.Gate64(2, kCode0, kHandler, 0x8e, 1);
  DeliverEvent(m.state(), m.memory, Event::External(2), 0x400000);
  CHECK(m.state().gpr[kRsp] == kIst1 - 40);
  CHECK(m.memory.Get<u64>(kIst1 - 16) == kKernelStack);
  CHECK(m.state().nmi_blocked == 1);
}

TEST_CASE("Long mode: an external event wakes up and ends the shadow", "[exceptions]") {
  TestMachine m;
  m.LongMode(3);
  m.state().halted = 1;
  m.state().interrupt_shadow = 1;
  DeliverEvent(m.state(), m.memory, Event::External(0x80), 0x400000);
  CHECK(m.state().halted == 0);
  CHECK(m.state().interrupt_shadow == 0);
  CHECK(m.memory.Get<u64>(kRsp0 - 24) == (kIf | kZf | 2));  // no RF
}

TEST_CASE("Long mode: gate and segment checks in order", "[exceptions]") {
  TestMachine m;
  m.LongMode(3);
  VcpuState& s = m.state();
  const Event soft = Event::Software(0x20);
  const u32 idt = 0x20 * 8 + 2;

  SECTION("beyond the IDT limit") {
    s.idtr.limit = 0x20 * 16 + 14;
    CHECK(Refused(m, soft) == GeneralProtection(idt));
    CHECK(Refused(m, Event::External(0x20)) == GeneralProtection(idt + 1));
  }
  SECTION("page fault on the gate") {
    m.memory.Poison(kIdt);
    CHECK(Refused(m, soft).fault().cr2 == kIdt + 0x200);
    CHECK(Refused(m, soft).fault().error_code == 0);  // supervisor
  }
  SECTION("type before DPL") {
    m.Gate64(0x20, kCode0, kHandler, 0x85);
    CHECK(Refused(m, soft) == GeneralProtection(idt));
    m.Gate64(0x20, kCode0, kHandler, 0x9e);  // S set
    CHECK(Refused(m, soft) == GeneralProtection(idt));
  }
  SECTION("DPL before P, and only for software") {
    m.Gate64(0x20, kCode0, kHandler, 0x0e);
    CHECK(Refused(m, soft) == GeneralProtection(idt));
    CHECK(Refused(m, Event::External(0x20)) == Outcome::WithCode(kSegmentNotPresent, idt + 1));
    m.Gate64(0x20, kCode0, kHandler, 0x6e);
    CHECK(Refused(m, soft) == Outcome::WithCode(kSegmentNotPresent, idt));
  }
  SECTION("null, limit, type, mode and presence of the code segment") {
    m.Gate64(0x20, 3, kHandler, 0xee);
    CHECK(Refused(m, soft) == GeneralProtection(0));
    CHECK(Refused(m, Event::External(0x20)) == GeneralProtection(1));
    m.Gate64(0x20, 0x1000, kHandler, 0xee);
    CHECK(Refused(m, soft) == GeneralProtection(0x1000));
    m.Gate64(0x20, kData0, kHandler, 0xee);
    CHECK(Refused(m, soft) == GeneralProtection(kData0));
    m.Gate64(0x20, kCompat0, kHandler, 0xee);
    CHECK(Refused(m, soft) == GeneralProtection(kCompat0));
    m.Gate64(0x20, kAbsentCode, kHandler, 0xee);
    CHECK(Refused(m, soft) == Outcome::WithCode(kSegmentNotPresent, kAbsentCode));
  }
  SECTION("a handler of outer privilege") {
    m.LongMode(0);
    m.Gate64(0x20, kCode3, kHandler, 0xee);
    CHECK(Refused(m, soft) == GeneralProtection(kCode3 & ~3));
  }
  SECTION("TSS limit") {
    m.Gate64(0x20, kCode0, kHandler, 0xee);
    s.segment[kTr].limit = 10;
    CHECK(Refused(m, soft) == Outcome::WithCode(kInvalidTss, kTssSelector));
  }
  SECTION("non-canonical stack before non-canonical handler") {
    m.Gate64(0x20, kCode0, u64{1} << 50, 0xee);
    m.memory.Put<u64>(kTss + 4, u64{1} << 50);
    CHECK(Refused(m, soft) == StackFault(0));
    m.memory.Put<u64>(kTss + 4, kRsp0);
    CHECK(Refused(m, soft) == GeneralProtection(0));
  }
  SECTION("page fault on the new stack is a supervisor write") {
    m.Gate64(0x20, kCode0, kHandler, 0xee);
    m.memory.Poison(kRsp0 - 8);
    CHECK(Refused(m, soft).fault().error_code == kPfWrite);
  }
}

TEST_CASE("Long mode: a conforming handler keeps the CPL", "[exceptions]") {
  TestMachine m;
  m.LongMode(3);
  m.Gate64(0x20, kConforming, kHandler, 0xee);
  REQUIRE(SoftwareInterrupt(m.state(), m.memory, 0x20, 0x400002).done());
  CHECK(m.state().cpl == 3);
  CHECK(m.state().segment[kCs].selector == (kConforming | 3));
  CHECK(m.state().gpr[kRsp] == kUserStack - 40);
}

TEST_CASE("Long mode: the accessed bit of the handler's segment is set", "[exceptions]") {
  TestMachine m;
  m.LongMode(3);
  m.Describe(kCode0, MakeDescriptor(0, 0xfffff, kFlatCode64 & ~kAttrAccessed));
  DeliverEvent(m.state(), m.memory, Event::External(0x20), 0x400000);
  CHECK((m.DescriptorOf(kCode0) >> 40) & 1);
}

TEST_CASE("Double faults and shutdown", "[exceptions]") {
  TestMachine m;
  m.LongMode(3);
  VcpuState& s = m.state();
  m.Gate64(kDoubleFault, kCode0, 0x888888, 0x8e, 1);

  SECTION("contributory after contributory") {
    m.Gate64(kGeneralProtection, kCode0, kHandler, 0x0e);
    DeliverFault(s, m.memory, GuestFault::WithCode(kGeneralProtection, 0));
    CHECK(s.rip == 0x888888);
    CHECK(m.memory.Get<u64>(kIst1 - 48) == 0);
    CHECK(m.memory.Get<u64>(kIst1 - 40) == 0x400000);
  }
  SECTION("page fault after page fault") {
    m.memory.Poison(kRsp0 - 8);
    DeliverEvent(s, m.memory, Fault(kPageFault), s.rip);
    CHECK(s.rip == 0x888888);
    CHECK(s.cr2 != 0x7000);
  }
  SECTION("page fault after contributory is delivered as such") {
    m.Gate64(kPageFault, kCode0, 0x777777, 0x8e, 1);
    m.memory.Poison(kRsp0 - 8);
    DeliverFault(s, m.memory, GuestFault::WithCode(kGeneralProtection, 0));
    CHECK(s.rip == 0x777777);
    CHECK(m.memory.Get<u64>(kIst1 - 48) == kPfWrite);
  }
  SECTION("contributory after benign is delivered as such, with EXT") {
    m.Gate64(kInvalidOpcode, kCode0, kHandler, 0x0e);
    m.Gate64(kSegmentNotPresent, kCode0, 0x777777, 0x8e);
    DeliverFault(s, m.memory, GuestFault::Simple(kInvalidOpcode));
    CHECK(s.rip == 0x777777);
    CHECK(m.memory.Get<u64>(kRsp0 - 48) == kInvalidOpcode * 8 + 3);
  }
  SECTION("a fault in INT n restarts at the instruction") {
    m.Gate64(0x21, kCode0, kHandler, 0x8e);
    m.Gate64(kGeneralProtection, kCode0, 0x777777, 0x8e);
    DeliverEvent(s, m.memory, Event::Software(0x21), s.rip + 2);
    CHECK(s.rip == 0x777777);
    CHECK(m.memory.Get<u64>(kRsp0 - 40) == 0x400000);
    CHECK(m.memory.Get<u64>(kRsp0 - 48) == 0x21 * 8 + 2);
  }
  SECTION("triple fault") {
    s.idtr.limit = 0;
    VcpuState before = s;
    DeliverFault(s, m.memory, GuestFault::Simple(kInvalidOpcode));
    CHECK(s.shutdown == 1);
    s.shutdown = 0;
    CHECK(SameState(before, s));
  }
}

TEST_CASE("Debug exceptions clear DR7.GD", "[exceptions]") {
  TestMachine m;
  m.LongMode(0);
  m.state().dr[7] |= kDr7Gd;
  DeliverEvent(m.state(), m.memory, Event::Trap(kDebug), 0x400001);
  CHECK(m.state().dr[7] == kDr7Fixed);
  // ... and DEBUGCTL.BTF; INT n with the same vector is no debug exception.
  m.state().debugctl = kDebugCtlBtf;
  DeliverEvent(m.state(), m.memory, Event::Software(kDebug), 0x400001);
  CHECK(m.state().debugctl == kDebugCtlBtf);
  DeliverEvent(m.state(), m.memory, Event::Trap(kDebug), 0x400001);
  CHECK(m.state().debugctl == 0);
}

TEST_CASE("Protected mode: frame with and without stack switch", "[exceptions]") {
  TestMachine m;
  VcpuState& s = m.state();
  SECTION("same level") {
    m.Protected32(0);
    DeliverEvent(s, m.memory, Fault(kGeneralProtection), s.rip);
    CHECK(s.gpr[kRsp] == kKernelStack - 16);
    CHECK(m.memory.Get<u32>(kKernelStack - 16) == 0x12);
    CHECK(m.memory.Get<u32>(kKernelStack - 12) == 0x400000);
    CHECK(m.memory.Get<u32>(kKernelStack - 8) == kCode0);
    CHECK(m.memory.Get<u32>(kKernelStack - 4) == (kIf | kZf | kRf | 2));
  }
  SECTION("inner level") {
    m.Protected32(3);
    DeliverEvent(s, m.memory, Event::External(0x20), s.rip);
    CHECK(s.gpr[kRsp] == kRsp0 - 20);
    CHECK(s.segment[kSs].selector == kData0);
    CHECK(m.memory.Get<u32>(kRsp0 - 8) == kUserStack);
    CHECK(m.memory.Get<u32>(kRsp0 - 4) == kData3);
    CHECK(s.cpl == 0);
  }
  SECTION("16-bit gate") {
    m.Protected32(0);
    m.Gate32(0x20, kCode0, 0xdead1234, 0x86);
    DeliverEvent(s, m.memory, Event::External(0x20), s.rip);
    CHECK(s.gpr[kRsp] == kKernelStack - 6);
    CHECK(s.rip == 0x1234);
  }
}

TEST_CASE("Protected mode: checks of the inner stack", "[exceptions]") {
  TestMachine m;
  m.Protected32(3);
  const Event event = Event::External(0x20);
  SECTION("TSS limit") {
    m.state().segment[kTr].limit = 8;
    CHECK(Refused(m, event) == Outcome::WithCode(kInvalidTss, kTssSelector | 1));
  }
  SECTION("null") {
    m.memory.Put<u32>(kTss + 8, 0);
    CHECK(Refused(m, event) == Outcome::WithCode(kInvalidTss, 1));
  }
  SECTION("RPL, DPL, type") {
    for (u16 selector : {u16{kData0 | 3}, kData3, kReadOnly, kCode0, u16{0xff8}}) {
      m.memory.Put<u32>(kTss + 8, selector);
      CHECK(Refused(m, event) == Outcome::WithCode(kInvalidTss, (selector & ~3u) | 1));
    }
  }
  SECTION("absent") {
    m.memory.Put<u32>(kTss + 8, kAbsentData);
    CHECK(Refused(m, event) == StackFault(kAbsentData | 1));
  }
  SECTION("no room: the code names the new stack") {
    m.Describe(kData0, MakeDescriptor(0, 0x8000, 0x4093));
    CHECK(Refused(m, event) == StackFault(kData0 | 1));
  }
  SECTION("target outside the code segment") {
    m.Describe(kCode0, MakeDescriptor(0, 0x1000, 0x409b));
    CHECK(Refused(m, event) == GeneralProtection(1));
  }
}

TEST_CASE("Virtual-8086 mode: interrupts leave it with all segments saved", "[exceptions]") {
  TestMachine m;
  m.Protected32(3);
  VcpuState& s = m.state();
  s.system_flags |= kVm;
  s.segment[kCs].selector = 0x1234;
  s.segment[kGs].selector = 0x777;
  CHECK(SoftwareInterrupt(s, m.memory, 0x20, s.rip + 2) == GeneralProtection());
  DeliverEvent(s, m.memory, Event::External(0x20), s.rip);
  CHECK(s.gpr[kRsp] == kRsp0 - 36);
  CHECK(m.memory.Get<u32>(kRsp0 - 4) == 0x777);
  CHECK(m.memory.Get<u32>(kRsp0 - 32) == 0x1234);
  CHECK((m.memory.Get<u32>(kRsp0 - 28) & kVm) != 0);
  CHECK((s.system_flags & kVm) == 0);
  CHECK(s.segment[kDs].attributes == 0);
}

TEST_CASE("Real mode: the IVT", "[exceptions]") {
  TestMachine m;
  m.RealMode();
  VcpuState& s = m.state();
  s.if_flag = 1;
  m.memory.Put<u32>(0x21 * 4, 0x0900'0042);
  DeliverEvent(s, m.memory, Event::Software(0x21), 0x102);
  CHECK(s.segment[kCs].selector == 0x900);
  CHECK(s.segment[kCs].base == 0x9000);
  CHECK(s.rip == 0x42);
  CHECK(s.gpr[kRsp] == 0x5ffa);
  CHECK(m.memory.Get<u16>(0x5ffa) == 0x102);
  CHECK(m.memory.Get<u16>(0x5ffc) == 0x700);
  CHECK(m.memory.Get<u16>(0x5ffe) == (kIf | 2));
  CHECK(s.if_flag == 0);

  SECTION("the stack wraps around at 64 KB") {
    s.gpr[kRsp] = 2;
    DeliverEvent(s, m.memory, Event::Software(0x21), 0x102);
    CHECK(s.gpr[kRsp] == 0xfffc);
    CHECK(m.memory.Get<u16>(0xfffc) == 0x102);
    CHECK(m.memory.Get<u16>(0) == 2);
  }
  SECTION("an odd wrap is a stack fault, then a double fault, then shutdown") {
    s.gpr[kRsp] = 1;
    DeliverEvent(s, m.memory, Event::Software(0x21), 0x102);
    CHECK(s.shutdown == 1);
  }
}

TEST_CASE("Task gates switch tasks", "[exceptions]") {
  TestMachine m;
  m.Protected32(3);
  VcpuState& s = m.state();
  constexpr u64 kNewTss = 0x6000;
  m.Describe(kGateSelector, MakeDescriptor(kNewTss, 0x67, 0x89));
  m.memory.Put<u32>(kNewTss + 0x20, 0x5555);
  m.memory.Put<u32>(kNewTss + 0x24, 2);
  m.memory.Put<u32>(kNewTss + 0x38, 0x7000);  // ESP
  for (int i = 0; i < 6; ++i) m.memory.Put<u32>(kNewTss + 0x48 + i * 4u, kData0);
  m.memory.Put<u32>(kNewTss + 0x4c, kCode0);
  m.Gate32(kDoubleFault, kGateSelector, 0, 0x85);
  s.gpr[kRax] = 0xabcd;
  DeliverFault(s, m.memory, GuestFault::WithCode(kDoubleFault, 0));
  CHECK(s.rip == 0x5555);
  CHECK(s.cpl == 0);
  CHECK(s.gpr[kRsp] == 0x6ffc);  // the error code
  CHECK(s.segment[kTr].selector == kGateSelector);
  CHECK((s.system_flags & kNt) != 0);
  CHECK((s.cr0 & kCr0Ts) != 0);
  CHECK(m.memory.Get<u16>(kNewTss) == kTssSelector);
  CHECK(m.memory.Get<u32>(kTss + 0x20) == 0x400000);
  CHECK(m.memory.Get<u32>(kTss + 0x28) == 0xabcd);
  CHECK(((m.DescriptorOf(kGateSelector) >> 40) & 0xf) == kTypeTssBusy);
}

TEST_CASE("Delivery faults never change the state: every byte of every table poisoned",
          "[exceptions]") {
  for (bool long_mode : {true, false}) {
    for (u64 page : {kGdt, kIdt, kTss, kRsp0 - 8}) {
      TestMachine m;
      if (long_mode) {
        m.LongMode(3);
      } else {
        m.Protected32(3);
      }
      m.memory.Poison(page);
      CHECK(Refused(m, Fault(kPageFault)).fault().vector == kPageFault);
    }
  }
}

}  // namespace
}  // namespace alibi::vcpu
