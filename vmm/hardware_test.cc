// SPDX-License-Identifier: Apache-2.0
// The embedding API over the hardware engine: the same exits, on the host's CPU. Where /dev/kvm
// does not open there is nothing to test, which is said.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <iostream>
#include <thread>
#include <vector>

#include "alibi/machine.h"
#include "hardware/kvm.h"

namespace alibi {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kRam = 1 << 20, kCode = 0x1000, kStack = 0x8000;

bool HasKvm() {
  static const bool has = [] {
    auto kvm = hardware::Kvm::Open();
    if (!kvm.ok()) std::cout << "not tested: the hardware engine: " << kvm.error().message << "\n";
    return kvm.ok();
  }();
  return has;
}

MachineOptions Hardware() {
  MachineOptions options;
  options.engine = "hardware";
  options.most_memory_bytes = std::uint64_t{16} << 20;
  return options;
}

// A machine with 1 MB that is about to run 32-bit code at kCode.
struct Guest {
  explicit Guest(const Bytes& code) {
    auto created = Machine::Create(Hardware());
    if (!created.ok()) FAIL(created.error().message);
    machine = std::move(*created);
    ram = static_cast<std::uint8_t*>(machine->AddMemory(0, kRam).value());
    vcpu = machine->CreateVcpu().value();
    std::memcpy(ram + kCode, code.data(), code.size());
    REQUIRE(vcpu->SetSpecialRegisters(SpecialRegisters::FlatProtectedMode()).ok());
    Registers r;
    r.rip = kCode;
    r.rsp = kStack;
    REQUIRE(vcpu->SetRegisters(r).ok());
  }
  // Gates for two vectors, at 0x4000, to handlers at 0x2000 and 0x2100: inc ebx (ecx); iret.
  void AddHandlers(std::uint8_t first, std::uint8_t second) {
    SpecialRegisters s = vcpu->GetSpecialRegisters();
    s.idt = {0x4000, 0x7ff};
    s.gdt = {0x5000, 0x17};
    REQUIRE(vcpu->SetSpecialRegisters(s).ok());
    const std::uint64_t gdt[] = {0, 0x00cf9b000000ffff, 0x00cf93000000ffff};
    std::memcpy(ram + 0x5000, gdt, sizeof(gdt));
    const Bytes handlers[] = {{0x43, 0xcf}, {0x41, 0xcf}};
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t at = 0x2000 + 0x100 * i;
      std::memcpy(ram + at, handlers[i].data(), 2);
      const std::uint64_t gate = at | 8u << 16 | std::uint64_t{0x8e00} << 32;
      std::memcpy(ram + 0x4000 + 8 * (i == 0 ? first : second), &gate, 8);
    }
  }
  std::unique_ptr<Machine> machine;
  std::uint8_t* ram = nullptr;
  Vcpu* vcpu = nullptr;
};

TEST_CASE("hardware: ports and HLT leave Run(), with the registers as they are") {
  if (!HasKvm()) return;
  // mov eax, 0x12345678; out 0x40, eax; in al, 0x41; mov ebx, eax; hlt; mov ecx, 7; hlt
  Guest guest({0xb8, 0x78, 0x56, 0x34, 0x12, 0xe7, 0x40, 0xe4, 0x41, 0x89, 0xc3, 0xf4, 0xb9, 7, 0,
               0, 0, 0xf4});
  Exit& exit = guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kIo);
  CHECK(exit.io.out);
  CHECK(exit.io.port == 0x40);
  CHECK(exit.io.size == 4);
  CHECK(exit.io.data == 0x12345678);
  // In the middle of the instruction the registers cannot be set. Those of a store read as before
  // it or behind it, as KVM has it.
  const std::uint64_t rip = guest.vcpu->GetRegisters().rip;
  CHECK((rip == kCode + 5 || rip == kCode + 7));
  CHECK(guest.vcpu->GetRegisters().rax == 0x12345678);
  CHECK(guest.vcpu->GetSpecialRegisters().cs.selector == 8);
  CHECK_FALSE(guest.vcpu->SetRegisters({}).ok());
  guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kIo);
  CHECK_FALSE(exit.io.out);
  exit.io.data = 0x99;
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  Registers r = guest.vcpu->GetRegisters();
  CHECK(r.rbx == 0x12345699);
  CHECK(r.rip == kCode + 12);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);  // it stays halted
  REQUIRE(guest.vcpu->SetRegisters(r).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rcx == 7);
}

TEST_CASE("hardware: an exit that is asked for in the middle of an instruction comes behind it") {
  if (!HasKvm()) return;
  Guest guest({0xe4, 0x41, 0x89, 0xc3, 0xf4});  // in al, 0x41; mov ebx, eax; hlt
  Exit& exit = guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kIo);
  exit.io.data = 0x55;
  guest.vcpu->RequestExit();
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kInterrupted);
  CHECK(guest.vcpu->GetRegisters().rip == kCode + 2);
  CHECK((guest.vcpu->GetRegisters().rax & 0xff) == 0x55);
}

TEST_CASE("hardware: memory that is not there, and read-only memory, are MMIO") {
  if (!HasKvm()) return;
  // mov eax, [0x200000]; mov [0x300004], al; mov ebx, [0x300004]; hlt
  Guest guest({0xa1, 0, 0, 0x20, 0, 0xa2, 4, 0, 0x30, 0, 0x8b, 0x1d, 4, 0, 0x30, 0, 0xf4});
  auto rom = guest.machine->AddMemory(0x300000, 0x1000, kMemoryReadOnly);
  REQUIRE(rom.ok());
  const std::uint32_t word = 0xcafe;
  REQUIRE(guest.machine->WriteMemory(0x300004, &word, 4));
  Exit& exit = guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kMmio);
  CHECK_FALSE(exit.mmio.write);
  CHECK(exit.mmio.address == 0x200000);
  exit.mmio.data = 0xabcd;
  guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kMmio);
  CHECK(exit.mmio.write);
  CHECK(exit.mmio.address == 0x300004);
  CHECK(exit.mmio.data == 0xcd);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rax == 0xabcd);
  CHECK(guest.vcpu->GetRegisters().rbx == 0xcafe);
  // Slots come and go between runs.
  REQUIRE(guest.machine->RemoveMemory(0x300000).ok());
  Registers r = guest.vcpu->GetRegisters();
  r.rip = kCode + 10;
  REQUIRE(guest.vcpu->SetRegisters(r).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kMmio);
}

TEST_CASE("hardware: interrupts and NMIs wake a halted guest, and are taken once") {
  if (!HasKvm()) return;
  Guest guest({0xfb, 0xf4, 0xeb, 0xfd});  // sti; again: hlt; jmp again
  guest.AddHandlers(0x20, 2);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  for (unsigned i = 1; i <= 3; ++i) {
    guest.vcpu->InjectInterrupt(0x20);
    CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
    CHECK(guest.vcpu->GetRegisters().rbx == i);
    guest.vcpu->InjectNmi();
    CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
    CHECK(guest.vcpu->GetRegisters().rcx == i);
  }
}

TEST_CASE("hardware: a guest that never exits is stopped from another thread") {
  if (!HasKvm()) return;
  Guest guest({0xeb, 0xfe});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    guest.vcpu->RequestExit();
  });
  CHECK(guest.vcpu->Run().reason == ExitReason::kInterrupted);
  other.join();
  CHECK(guest.vcpu->GetRegisters().rip == kCode);
}

TEST_CASE("hardware: MSRs and the extended state travel") {
  if (!HasKvm()) return;
  // mov ecx, 0x174; mov eax, 0x30; xor edx, edx; wrmsr; mov ecx, 0x175; rdmsr; hlt
  Guest guest({0xb9, 0x74, 1,    0,    0,    0xb8, 0x30, 0, 0,    0,    0x31,
               0xd2, 0x0f, 0x30, 0xb9, 0x75, 1,    0,    0, 0x0f, 0x32, 0xf4});
  REQUIRE(guest.vcpu->SetMsr(0x175, 0x8765).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetMsr(0x174).value() == 0x30);
  CHECK(guest.vcpu->GetRegisters().rax == 0x8765);
  std::vector<std::uint8_t> area(Vcpu::kXsaveBytes);
  REQUIRE(guest.vcpu->GetXsave(area.data()).ok());
  CHECK(area[0] == 0x7f);  // x87's control word
}

TEST_CASE("hardware: a triple fault is a shutdown") {
  if (!HasKvm()) return;
  Guest guest({0x0f, 0x0b});  // ud2, without an IDT
  SpecialRegisters s = guest.vcpu->GetSpecialRegisters();
  s.idt = {0, 0};
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kShutdown);
}

}  // namespace
}  // namespace alibi
