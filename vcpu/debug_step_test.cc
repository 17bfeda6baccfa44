// SPDX-License-Identifier: Apache-2.0
#include "vcpu/debug_step.h"

#include <catch2/catch.hpp>

#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"

namespace alibi::vcpu {
namespace {

constexpr u64 kPc = 0x1000, kNext = 0x1003;
constexpr u64 kB0 = 1, kB1 = 2;

struct Cpu {
  Cpu() {
    state.rip = kPc;
    state.dr[7] = kDr7Fixed;
  }
  void Trap() { state.system_flags |= static_cast<u32>(kTf); }
  void BreakAt(u64 pc) {
    state.dr[0] = pc;
    state.dr[7] |= 1;
  }
  DebugException Begin(Vendor vendor = Vendor::kIntel) {
    return step.Begin(state, LinearAddr(state.rip), vendor);
  }
  // The instruction at RIP, of three bytes.
  DebugException Execute(SteppedInstruction instr = {}, u64 hits = 0) {
    instr.next_rip = state.rip + 3;
    state.rip = instr.next_rip;
    return step.Completed(state, instr, hits);
  }
  void LoadSs(u64 hits) {
    REQUIRE(Begin().dr6 == 0);
    state.interrupt_shadow = 1;
    CHECK(Execute({.loads_ss = true}, hits).dr6 == 0);
  }
  VcpuState state{};
  DebugStep step;
};

TEST_CASE("a step without reasons is quiet, and ends RF") {
  Cpu cpu;
  cpu.state.system_flags |= static_cast<u32>(kRf);
  CHECK(cpu.Begin().dr6 == 0);
  CHECK(cpu.Execute().dr6 == 0);
  CHECK_FALSE(cpu.state.system_flags & kRf);
}

TEST_CASE("IRET leaves the RF that it has loaded") {
  Cpu cpu;
  cpu.Begin();
  cpu.state.system_flags |= static_cast<u32>(kRf);
  cpu.Execute({.returns = true});
  CHECK(cpu.state.system_flags & kRf);
}

TEST_CASE("an execute breakpoint is met in front of the instruction, unless RF is set") {
  Cpu cpu;
  cpu.BreakAt(kPc);
  CHECK(cpu.Begin().dr6 == kB0);
  cpu.state.system_flags |= static_cast<u32>(kRf);
  CHECK(cpu.Begin().dr6 == 0);
}

TEST_CASE("TF traps behind the instruction that found it set") {
  Cpu cpu;
  cpu.Trap();
  cpu.Begin();
  CHECK(cpu.Execute().dr6 == kDr6Bs);

  Cpu sets;  // POPF
  sets.Begin();
  sets.Trap();
  CHECK(sets.Execute().dr6 == 0);

  Cpu taken;  // INT n clears it
  taken.Trap();
  taken.Begin();
  taken.state.system_flags &= ~static_cast<u32>(kTf);
  CHECK(taken.Execute({.software_interrupt = true}).dr6 == 0);

  Cpu into;  // not taken
  into.Trap();
  into.Begin();
  CHECK(into.Execute({.software_interrupt = true}).dr6 == kDr6Bs);

  Cpu syscall;
  syscall.Trap();
  syscall.Begin();
  CHECK(syscall.Execute({.steps_itself = true}).dr6 == 0);
}

TEST_CASE("of a task switch TF is the old task's; LTR is none") {
  Cpu cpu;
  cpu.Trap();
  cpu.Begin();
  cpu.state.segment[kTr].selector = 0x28;
  CHECK(cpu.Execute().dr6 == 0);

  Cpu ltr;
  ltr.Trap();
  ltr.Begin();
  ltr.state.segment[kTr].selector = 0x28;
  CHECK(ltr.Execute({.loads_task = true}).dr6 == kDr6Bs);
}

TEST_CASE("a repeated string instruction traps between its iterations, and keeps RF there") {
  Cpu cpu;
  cpu.Trap();
  cpu.state.system_flags |= static_cast<u32>(kRf);
  cpu.Begin();
  const DebugException trap =
      cpu.step.Completed(cpu.state, {.next_rip = kNext, .repeated_string = true},
                         0);  // RIP is still there
  CHECK(trap.dr6 == kDr6Bs);
  CHECK(trap.between_iterations);
  CHECK(cpu.state.system_flags & kRf);
}

TEST_CASE("BTF: only branches trap") {
  Cpu cpu;
  cpu.Trap();
  cpu.state.debugctl |= kDebugCtlBtf;
  cpu.Begin();
  CHECK(cpu.Execute().dr6 == 0);
  cpu.Begin();
  cpu.state.rip = 0x2000;
  CHECK(cpu.step.Completed(cpu.state, {.next_rip = kNext + 3}, 0).dr6 == kDr6Bs);
}

TEST_CASE("data breakpoints come with the step") {
  Cpu cpu;
  cpu.Trap();
  cpu.Begin();
  CHECK(cpu.Execute({}, kB1).dr6 == (kDr6Bs | kB1));
}

TEST_CASE("MOV SS holds debug exceptions back until behind the next instruction") {
  Cpu cpu;
  cpu.Trap();
  cpu.LoadSs(kB1);  // neither its data breakpoint nor TF
  cpu.state.interrupt_shadow = 0;
  cpu.Begin();
  CHECK(cpu.Execute().dr6 == (kB1 | kDr6Bs));
  cpu.Begin();
  CHECK(cpu.Execute().dr6 == kDr6Bs);  // told once
}

TEST_CASE("in the shadow of MOV SS an execute breakpoint is not met on Intel's CPUs") {
  for (const Vendor vendor : {Vendor::kIntel, Vendor::kAmd}) {
    Cpu cpu;
    cpu.LoadSs(kB1);
    cpu.BreakAt(kNext);
    CHECK(cpu.Begin(vendor).dr6 == (vendor == Vendor::kIntel ? 0 : kB0 | kB1));
  }
  Cpu cpu;
  cpu.LoadSs(0);
  cpu.step.NotStepped();
  cpu.BreakAt(kNext);
  CHECK(cpu.Begin().dr6 == kB0);
}

TEST_CASE("what MOV SS holds back comes in front of a fault's handler") {
  Cpu cpu;
  cpu.LoadSs(kB1);
  cpu.Begin();
  CHECK(cpu.step.Faulted(cpu.state).dr6 == kB1);
  CHECK(cpu.step.Faulted(cpu.state).dr6 == 0);

  Cpu shut;
  shut.LoadSs(kB1);
  shut.Begin();
  shut.state.shutdown = 1;
  CHECK(shut.step.Faulted(shut.state).dr6 == 0);
}

TEST_CASE("the #DB of INT1 or of MOV DR brings along what MOV SS holds back") {
  Cpu int1;
  int1.LoadSs(kB1);
  int1.Begin();
  int1.step.BeginInt1(int1.state);
  CHECK((int1.state.dr[6] & 0xf) == kB1);
  CHECK(int1.Execute({.software_interrupt = true}).dr6 == 0);

  Cpu detect;
  detect.LoadSs(kB1);
  detect.state.dr[7] |= kDr7Gd;
  detect.Begin();
  detect.state.dr[7] &= ~kDr7Gd;  // its delivery
  CHECK(detect.step.Faulted(detect.state).dr6 == 0);
  CHECK((detect.state.dr[6] & kB1) != 0);
}

}  // namespace
}  // namespace alibi::vcpu
