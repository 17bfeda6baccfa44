// SPDX-License-Identifier: Apache-2.0
// Virtual-8086 mode and the virtual interrupt flag: SDM vol. 3, chapter 20.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "vcpu/control_transfer.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

class Virtual8086 : public TestMachine {
 public:
  explicit Virtual8086(unsigned iopl, bool vme = false) {
    Protected32(3);
    VcpuState& s = state();
    s.cr4 = vme ? kCr4Vme : 0;
    s.system_flags = static_cast<u32>(kVm | (u64{iopl} << 12));
    for (SegmentIndex index : {kEs, kCs, kSs, kDs, kFs, kGs}) {
      const u16 selector = static_cast<u16>(0x1000 + 0x100 * index);
      s.segment[index] = {
          .base = u32{selector} << 4, .limit = 0xffff, .selector = selector, .attributes = 0xf3};
    }
    s.gpr[kRsp] = 0x100;
    s.rip = 0x50;
    // The redirection bitmap lies below the I/O bitmap: all vectors to the monitor.
    memory.Put<u16>(kTss + 0x66, 0x88);
    for (unsigned i = 0; i < 32; ++i) memory.Put<u8>(kTss + 0x68 + i, 0xff);
    s.segment[kTr].limit = 0x2000;
  }
  void Redirect(u8 vector) {
    const u64 at = kTss + 0x68 + vector / 8;
    memory.Put<u8>(at, static_cast<u8>(memory.Get<u8>(at) & ~(1u << (vector & 7))));
  }
  Outcome Int(u8 vector) { return SoftwareInterrupt(state(), memory, vector, state().rip + 2); }
  u64 StackAt(u64 offset) { return state().segment[kSs].base + offset; }
  // Flags, CS, IP as IRET finds them.
  void PutFrame(u16 ip, u16 cs, u16 flags) {
    const u16 words[] = {ip, cs, flags};
    for (unsigned i = 0; i < 3; ++i) {
      memory.Put<u16>(StackAt(state().gpr[kRsp]) + i * 2, words[i]);
    }
  }
  Outcome Iret(unsigned bits = 16) { return InterruptReturn(state(), memory, bits, 0); }

  template <class F>
  Outcome Refused(F&& operation) {
    std::vector<u8> before(sizeof(VcpuState));
    std::memcpy(before.data(), &state(), sizeof(VcpuState));
    Outcome outcome = operation();
    CHECK(outcome.faulted());
    CHECK(std::memcmp(before.data(), &state(), sizeof(VcpuState)) == 0);
    return outcome;
  }
};

TEST_CASE("CLI and STI in virtual-8086 mode", "[v86]") {
  SECTION("IOPL 3: the real flag") {
    Virtual8086 m(3);
    REQUIRE(ClearInterruptFlag(m.state()).done());
    CHECK(m.state().if_flag == 0);
    REQUIRE(SetInterruptFlag(m.state()).done());
    CHECK(m.state().if_flag == 1);
    CHECK(m.state().interrupt_shadow == 1);
  }
  SECTION("IOPL below 3: a fault") {
    Virtual8086 m(2);
    CHECK(m.Refused([&] { return ClearInterruptFlag(m.state()); }) == GeneralProtection());
    CHECK(m.Refused([&] { return SetInterruptFlag(m.state()); }) == GeneralProtection());
    m.state().cr4 = kCr4Pvi;  // is not for this mode
    CHECK(m.Refused([&] { return SetInterruptFlag(m.state()); }) == GeneralProtection());
  }
  SECTION("VME: the virtual flag") {
    Virtual8086 m(0, true);
    VcpuState& s = m.state();
    REQUIRE(SetInterruptFlag(s).done());
    CHECK((s.system_flags & kVif) != 0);
    CHECK(s.if_flag == 1);
    CHECK(s.interrupt_shadow == 0);
    s.system_flags |= kVip;
    CHECK(m.Refused([&] { return SetInterruptFlag(s); }) == GeneralProtection());
    REQUIRE(ClearInterruptFlag(s).done());
    CHECK((s.system_flags & kVif) == 0);
  }
}

TEST_CASE("PVI: CLI and STI at CPL 3, and nothing else", "[v86]") {
  TestMachine m;
  m.Protected32(3);
  VcpuState& s = m.state();
  CHECK(ClearInterruptFlag(s) == GeneralProtection());
  s.cr4 = kCr4Vme;
  CHECK(ClearInterruptFlag(s) == GeneralProtection());
  s.cr4 = kCr4Pvi;
  REQUIRE(SetInterruptFlag(s).done());
  CHECK((s.system_flags & kVif) != 0);
  REQUIRE(ClearInterruptFlag(s).done());
  CHECK((s.system_flags & kVif) == 0);
  CHECK(s.if_flag == 1);
  s.system_flags |= kVip;
  CHECK(SetInterruptFlag(s) == GeneralProtection());
  // PUSHF shows and POPF leaves the real flag.
  CHECK((PushedFlagsImage(s) & kIf) != 0);
  REQUIRE(PopFlags(s, m.memory, 32, 0).done());
  CHECK(s.if_flag == 1);
  CHECK((s.system_flags & kVip) != 0);
  s.cpl = 1;
  CHECK(SetInterruptFlag(s) == GeneralProtection());  // CPL 3 only
  s.cpl = 3;
  s.system_flags |= kIopl;
  REQUIRE(ClearInterruptFlag(s).done());
  CHECK(s.if_flag == 0);
}

TEST_CASE("PUSHF and POPF in virtual-8086 mode", "[v86]") {
  SECTION("IOPL 3") {
    Virtual8086 m(3);
    VcpuState& s = m.state();
    CHECK(CheckFlagsAccess(s, 16).done());
    CHECK(CheckFlagsAccess(s, 32).done());
    CHECK((PushedFlagsImage(s) & (kVm | kRf)) == 0);
    REQUIRE(PopFlags(s, m.memory, 16, kCf).done());
    CHECK(s.if_flag == 0);
    CHECK(s.Iopl() == 3);  // IOPL is the monitor's
    CHECK((s.system_flags & kVm) != 0);
  }
  SECTION("IOPL below 3") {
    Virtual8086 m(1);
    CHECK(CheckFlagsAccess(m.state(), 16) == GeneralProtection());
    CHECK(CheckFlagsAccess(m.state(), 32) == GeneralProtection());
  }
  SECTION("VME: the virtual flag in the place of IF, for 16-bit operands") {
    Virtual8086 m(1, true);
    VcpuState& s = m.state();
    CHECK(CheckFlagsAccess(s, 16).done());
    CHECK(CheckFlagsAccess(s, 32) == GeneralProtection());
    s.if_flag = 1;
    CHECK((PushedFlagsImage(s) & (kIf | kIopl)) == kIopl);
    s.if_flag = 0;
    s.system_flags |= kVif;
    CHECK((PushedFlagsImage(s) & (kIf | kIopl)) == (kIf | kIopl));
    REQUIRE(PopFlags(s, m.memory, 16, kZf | kNt).done());
    CHECK((s.system_flags & kVif) == 0);
    CHECK((s.system_flags & kNt) != 0);
    CHECK((s.arithmetic_flags & kZf) != 0);
    CHECK(s.Iopl() == 1);
    REQUIRE(PopFlags(s, m.memory, 16, kIf).done());
    CHECK((s.system_flags & kVif) != 0);
    CHECK(s.if_flag == 0);
    CHECK(m.Refused([&] { return PopFlags(s, m.memory, 16, kTf); }) == GeneralProtection());
    s.system_flags |= kVip;
    CHECK(m.Refused([&] { return PopFlags(s, m.memory, 16, kIf); }) == GeneralProtection());
    REQUIRE(PopFlags(s, m.memory, 16, 0).done());
  }
}

TEST_CASE("INT n in virtual-8086 mode without VME", "[v86]") {
  Virtual8086 low(2);
  CHECK(low.Refused([&] { return low.Int(0x21); }) == GeneralProtection());
  Virtual8086 m(3);
  VcpuState& s = m.state();
  CHECK(m.Refused([&] { return m.Int(0x21); }) == GeneralProtection(0x21 * 8 + 2));  // gate's DPL
  for (bool wide : {true, false}) {
    Virtual8086 n(3);
    n.Gate32(0x21, kCode0, kHandler, wide ? 0xee : 0xe6);
    REQUIRE(n.Int(0x21).done());
    VcpuState& t = n.state();
    CHECK(t.cpl == 0);
    CHECK((t.system_flags & kVm) == 0);
    const unsigned width = wide ? 4 : 2;
    CHECK(t.gpr[kRsp] == kRsp0 - 9 * width);
    const u64 words[] = {0x52,   0x1100, kVm | kIopl | kIf | kZf | 2, 0x100, 0x1200, 0x1000, 0x1300,
                         0x1400, 0x1500};
    for (unsigned i = 0; i < 9; ++i) {
      const u64 at = t.gpr[kRsp] + i * width;
      INFO(i);
      const u64 flags_mask = i == 2 ? ~kZf : ~u64{0};
      if (wide) {
        CHECK((n.memory.Get<u32>(at) & flags_mask) == (words[i] & flags_mask));
      } else {
        CHECK((n.memory.Get<u16>(at) & flags_mask) == (words[i] & flags_mask & 0xffff));
      }
    }
    for (SegmentIndex index : {kEs, kDs, kFs, kGs}) CHECK(t.segment[index].attributes == 0);
  }
  // The handler must be at CPL 0, and not conforming.
  m.Describe(kCode0, MakeDescriptor(0, 0xfffff, WithDpl(kFlatCode32, 1)));
  m.Gate32(0x21, kCode0, kHandler, 0xee);
  CHECK(m.Refused([&] { return m.Int(0x21); }) == GeneralProtection(kCode0));
  m.Gate32(0x21, kConforming, kHandler, 0xee);
  CHECK(m.Refused([&] { return m.Int(0x21); }) == GeneralProtection(kConforming));
  // INT3 does not look at IOPL.
  Virtual8086 breakpoint(0);
  breakpoint.Gate32(kBreakpoint, kCode0, kHandler, 0xee);
  CHECK(SoftwareTrap(breakpoint.state(), breakpoint.memory, kBreakpoint, 0x51).done());
  CHECK(s.cpl == 3);
}

TEST_CASE("INT n under VME: the redirection bitmap", "[v86]") {
  for (unsigned iopl : {0u, 3u}) {
    Virtual8086 m(iopl, true);
    VcpuState& s = m.state();
    CAPTURE(iopl);
    m.Redirect(0x21);
    m.memory.Put<u32>(0x21 * 4, 0x0900'0042);
    s.if_flag = 1;
    s.system_flags |= static_cast<u32>(kVif | kTf);
    REQUIRE(m.Int(0x21).done());
    CHECK(s.cpl == 3);
    CHECK((s.system_flags & kVm) != 0);
    CHECK(s.segment[kCs].selector == 0x900);
    CHECK(s.segment[kCs].base == 0x9000);
    CHECK(s.rip == 0x42);
    CHECK(s.gpr[kRsp] == 0xfa);
    CHECK(m.memory.Get<u16>(m.StackAt(0xfa)) == 0x52);
    CHECK(m.memory.Get<u16>(m.StackAt(0xfc)) == 0x1100);
    CHECK((m.memory.Get<u16>(m.StackAt(0xfe)) & (kIf | kIopl | kTf)) == (kIf | kIopl | kTf));
    CHECK((s.system_flags & kTf) == 0);
    CHECK(s.if_flag == (iopl == 3 ? 0 : 1));
    CHECK(((s.system_flags & kVif) != 0) == (iopl == 3));
    // And back.
    REQUIRE(m.Iret().faulted() == (iopl != 3));  // TF in the image is the monitor's business
    m.memory.Put<u16>(m.StackAt(0xfe), static_cast<u16>(kIf));
    s.gpr[kRsp] = 0xfa;
    if (iopl == 3) s.segment[kCs].limit = 0xffff;
    REQUIRE(m.Iret().done());
    CHECK(s.rip == 0x52);
    CHECK(s.if_flag == 1);
    CHECK((s.system_flags & kVif) != 0);
    CHECK(s.Iopl() == iopl);
  }
  SECTION("a set bit is the monitor's") {
    Virtual8086 m(0, true);
    CHECK(m.Refused([&] { return m.Int(0x20); }) == GeneralProtection());
    Virtual8086 n(3, true);
    n.Gate32(0x20, kCode0, kHandler, 0xee);
    REQUIRE(n.Int(0x20).done());
    CHECK(n.state().cpl == 0);
  }
  SECTION("a bitmap outside the TSS") {
    Virtual8086 m(3, true);
    m.Redirect(0x21);
    m.state().segment[kTr].limit = 0x68 + 3;
    CHECK(m.Refused([&] { return m.Int(0x21); }) == GeneralProtection());
    m.state().segment[kTr].limit = 0x2000;
    m.memory.Put<u16>(kTss + 0x66, 0x10);  // begins below the TSS
    CHECK(m.Refused([&] { return m.Int(0x01); }) == GeneralProtection());
    m.state().segment[kTr].attributes = 0x83;  // of 16 bits
    CHECK(m.Refused([&] { return m.Int(0x21); }) == GeneralProtection());
  }
  SECTION("faults leave no trace") {
    Virtual8086 m(0, true);
    m.Redirect(0x21);
    m.memory.PoisonWrites(m.StackAt(0xfa));
    CHECK(m.Refused([&] { return m.Int(0x21); }).fault().vector == kPageFault);
    m.memory.Heal();
    m.state().gpr[kRsp] = 1;
    CHECK(m.Refused([&] { return m.Int(0x21); }) == StackFault());
  }
}

TEST_CASE("IRET in virtual-8086 mode", "[v86]") {
  SECTION("IOPL 3: IF and not IOPL, VIF, VIP") {
    Virtual8086 m(3);
    VcpuState& s = m.state();
    m.PutFrame(0x1234, 0x2000, kCf);
    s.system_flags |= kVip;
    REQUIRE(m.Iret().done());
    CHECK(s.rip == 0x1234);
    CHECK(s.segment[kCs].base == 0x20000);
    CHECK(s.gpr[kRsp] == 0x106);
    CHECK(s.Rflags() == (kVm | kIopl | kVip | kCf | 2));
  }
  SECTION("IOPL below 3") {
    Virtual8086 m(0);
    m.PutFrame(0x1234, 0x2000, 0);
    CHECK(m.Refused([&] { return m.Iret(); }) == GeneralProtection());
  }
  SECTION("VME") {
    Virtual8086 m(0, true);
    VcpuState& s = m.state();
    m.PutFrame(0x1234, 0x2000, static_cast<u16>(kIf | kIopl | kDf));
    CHECK(m.Refused([&] { return m.Iret(32); }).fault().vector == kGeneralProtection);
    s.if_flag = 0;
    REQUIRE(m.Iret().done());
    CHECK((s.system_flags & kVif) != 0);
    CHECK(s.if_flag == 0);
    CHECK(s.df_flag == 1);
    CHECK(s.Iopl() == 0);
    m.PutFrame(0x1234, 0x2000, static_cast<u16>(kTf));
    CHECK(m.Refused([&] { return m.Iret(); }) == GeneralProtection());
    s.system_flags |= kVip;
    m.PutFrame(0x1234, 0x2000, static_cast<u16>(kIf));
    CHECK(m.Refused([&] { return m.Iret(); }) == GeneralProtection());
    m.PutFrame(0x1234, 0x2000, 0);
    REQUIRE(m.Iret().done());
    CHECK((s.system_flags & kVif) == 0);
  }
}

TEST_CASE("Into virtual-8086 mode and out by a fault, all registers kept", "[v86]") {
  TestMachine m;
  m.Protected32(0);
  VcpuState& s = m.state();
  const u32 words[] = {0x42,       0x1000, static_cast<u32>(kVm | kIf | kVif | 2),
                       0xffff6000, 0x2000, 0x3000,
                       0x4000,     0x5000, 0x6000};
  for (unsigned i = 0; i < 9; ++i) m.memory.Put<u32>(s.gpr[kRsp] + i * 4, words[i]);
  REQUIRE(InterruptReturn(s, m.memory, 32, 0).done());
  CHECK(s.cpl == 3);
  CHECK(s.gpr[kRsp] == 0xffff6000);
  CHECK(s.segment[kSs].selector == 0x2000);
  CHECK(s.segment[kEs].selector == 0x3000);
  CHECK(s.segment[kGs].selector == 0x6000);
  for (SegmentIndex index : {kEs, kCs, kSs, kDs, kFs, kGs}) {
    CHECK(s.segment[index].limit == 0xffff);
    CHECK(s.segment[index].attributes == 0xf3);
  }
  DeliverFault(s, m.memory, GuestFault::WithCode(kGeneralProtection, 0));
  CHECK(s.gpr[kRsp] == kRsp0 - 40);
  CHECK(m.memory.Get<u32>(kRsp0 - 40) == 0);  // the error code
  for (unsigned i = 0; i < 9; ++i) {
    const u32 expected = i == 2 ? words[i] | static_cast<u32>(kRf) : words[i];
    CHECK(m.memory.Get<u32>(kRsp0 - 36 + i * 4) == expected);
  }
  CHECK((s.system_flags & (kVm | kNt | kTf | kRf)) == 0);
  CHECK((s.system_flags & kVif) != 0);  // interrupts do not touch it
}

}  // namespace
}  // namespace alibi::vcpu
