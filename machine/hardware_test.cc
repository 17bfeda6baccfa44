// SPDX-License-Identifier: Apache-2.0
// A debugger's points under the hardware engine. Where /dev/kvm does not open there is nothing to
// test, which is said.
#include <catch2/catch.hpp>
#include <cstring>
#include <iostream>
#include <memory>

#include "hardware/kvm.h"
#include "machine/debugger.h"
#include "machine/machine.h"
#include "vcpu/reset.h"

namespace alibi::vmm {
namespace {

using runtime::DebugCause;

constexpr u64 kCode = 0x1000;

class Nothing final : public IoSpace, public Interrupts, public RunHooks {
 public:
  u32 PortRead(u16, unsigned) override { return ~0u; }
  void PortWrite(u16, unsigned, u32) override {}
  u64 MmioRead(PhysAddr, unsigned) override { return ~u64{0}; }
  void MmioWrite(PhysAddr, unsigned, u64) override {}
  bool InterruptPending(u8) override { return false; }
  u8 Acknowledge() override { return 0; }
  bool HeldByPriority(u8) override { return false; }
  bool Idle() override { return false; }
};

// Remembers why the guest stood still, and ends the run.
class Notes final : public Debugger {
 public:
  explicit Notes(Machine& machine) : machine_(machine) {}
  void Turn() override {}
  bool Met(DebugEvent event) override {
    if (event != DebugEvent::kPoint) return false;
    stop = machine_.engine().debug_points().stop();
    machine_.RequestStop();
    return true;
  }
  runtime::DebugStop stop;

 private:
  Machine& machine_;
};

struct Fixture {
  Nothing nothing;
  std::unique_ptr<Machine> machine;
  std::unique_ptr<Notes> notes;

  // inc eax; inc eax; mov [0x3000], eax; inc eax; hlt
  bool Start() {
    if (auto kvm = hardware::Kvm::Open(); !kvm.ok()) {
      std::cout << "not tested: the hardware engine: " << kvm.error().message << "\n";
      return false;
    }
    static constexpr u8 kProgram[] = {0x40, 0x40, 0xa3, 0x00, 0x30, 0, 0, 0x40, 0xf4};
    MachineConfig config;
    config.engine = runtime::EngineKind::kHardware;
    config.arena_bytes = u64{1} << 20;
    auto made = Machine::Create(config, {nothing, nothing, nothing});
    if (!made.ok()) FAIL(made.error().message);
    machine = std::move(*made);
    REQUIRE(machine->memory().AddSlot(PhysAddr(0), 0x10000).ok());
    REQUIRE(machine->memory().LoadPhys(PhysAddr(kCode), kProgram, sizeof(kProgram)));
    vcpu::ResetToMultiboot(machine->state(), machine->cpuid(), kCode, 0, 0);
    machine->state().gpr[vcpu::kRax] = 0;
    machine->StateChanged();
    notes = std::make_unique<Notes>(*machine);
    machine->set_debugger(notes.get());
    return true;
  }
  runtime::DebugStop Run() {
    notes->stop = {};
    machine->Run();
    return notes->stop;
  }
};

TEST_CASE("hardware: a breakpoint stops in front of its instruction, a step behind the next one") {
  Fixture f;
  if (!f.Start()) return;
  runtime::Engine& engine = f.machine->engine();
  REQUIRE(engine.SetBreakpoint(LinearAddr(kCode + 1), true));
  runtime::DebugStop stop = f.Run();
  CHECK(stop.cause == DebugCause::kBreakpoint);
  CHECK(stop.address == LinearAddr(kCode + 1));
  CHECK(f.machine->state().gpr[vcpu::kRax] == 1);
  engine.StepNext(true);
  stop = f.Run();
  CHECK(stop.cause == DebugCause::kStep);
  CHECK(f.machine->state().rip == kCode + 2);
  CHECK(f.machine->state().gpr[vcpu::kRax] == 2);
  REQUIRE(engine.SetBreakpoint(LinearAddr(kCode + 1), false));
  CHECK(f.machine->Run() == Stop::kHalted);
  CHECK(f.machine->state().gpr[vcpu::kRax] == 3);
}

TEST_CASE("hardware: four points and no more; watches for loads alone are refused") {
  Fixture f;
  if (!f.Start()) return;
  runtime::Engine& engine = f.machine->engine();
  const runtime::Watch loads = {LinearAddr(0x3000), 4, /*reads=*/true, /*writes=*/false};
  CHECK_FALSE(engine.SetWatch(loads, true));
  const runtime::Watch stores = {LinearAddr(0x3004), 12, false, true};  // 4 bytes and 8
  REQUIRE(engine.SetWatch(stores, true));
  REQUIRE(engine.SetBreakpoint(LinearAddr(0x7000), true));
  REQUIRE(engine.SetBreakpoint(LinearAddr(0x7001), true));
  CHECK_FALSE(engine.SetBreakpoint(LinearAddr(0x7002), true));
  CHECK_FALSE(engine.debug_points().IsDebuggersBreakpoint(LinearAddr(0x7002)));
  REQUIRE(engine.SetWatch(stores, false));
  CHECK(engine.SetBreakpoint(LinearAddr(0x7002), true));
}

}  // namespace
}  // namespace alibi::vmm
