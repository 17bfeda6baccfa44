// SPDX-License-Identifier: Apache-2.0
// The embedding API, by small pieces of guest code.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "alibi/machine.h"
#include "runtime/abort_status.h"

namespace alibi {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kRam = 1 << 20, kCode = 0x1000, kStack = 0x8000;

// A machine with 1 MB that is about to run 32-bit code at kCode.
struct Guest {
  explicit Guest(const Bytes& code, MachineOptions options = {}) {
    options.most_memory_bytes = std::uint64_t{16} << 20;
    auto created = Machine::Create(options);
    if (!created.ok()) FAIL(created.error().message);
    machine = std::move(*created);
    ram = static_cast<std::uint8_t*>(machine->AddMemory(0, kRam).value());
    vcpu = machine->CreateVcpu().value();
    std::memcpy(ram + kCode, code.data(), code.size());
    REQUIRE(vcpu->SetSpecialRegisters(SpecialRegisters::FlatProtectedMode()).ok());
    Start();
  }
  void Start(std::uint64_t rip = kCode) {
    Registers r;
    r.rip = rip;
    r.rsp = kStack;
    REQUIRE(vcpu->SetRegisters(r).ok());
  }
  std::unique_ptr<Machine> machine;
  std::uint8_t* ram = nullptr;
  Vcpu* vcpu = nullptr;
};

MachineOptions WithPolicy(const char* policy) {
  MachineOptions options;
  options.policy = policy;
  return options;
}

// Target -> descriptor, of this process's files in memory.
std::map<std::string, int> MemoryFiles() {
  std::map<std::string, int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the folder's own
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("/memfd:") == 0) files[target] = std::stoi(entry.path().filename().string());
  }
  return files;
}

struct RecordingPorts : PortHandler {
  std::uint32_t In(std::uint16_t port, unsigned size) override {
    log += "in " + std::to_string(port) + "/" + std::to_string(size) + ";";
    return answer;
  }
  void Out(std::uint16_t port, unsigned size, std::uint32_t value) override {
    log += "out " + std::to_string(port) + "/" + std::to_string(size) + "=" +
           std::to_string(value) + ";";
  }
  std::string log;
  std::uint32_t answer = 0x11223344;
};

TEST_CASE("OUT, IN and HLT leave Run") {
  // mov al, 0x5a; out 0x10, al; mov dx, 0x1234; in eax, dx; hlt
  Guest guest({0xb0, 0x5a, 0xe6, 0x10, 0x66, 0xba, 0x34, 0x12, 0xed, 0xf4});
  Exit& exit = guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kIo);
  CHECK((exit.io.out && exit.io.size == 1 && exit.io.port == 0x10 && exit.io.data == 0x5a));
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kIo);
  CHECK((!exit.io.out && exit.io.size == 4 && exit.io.port == 0x1234));
  exit.io.data = 0xcafe1234;
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  const Registers r = guest.vcpu->GetRegisters();
  CHECK(r.rax == 0xcafe1234);
  CHECK(r.rip == kCode + 10);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);  // nothing woke it
}

TEST_CASE("String I/O leaves Run for each element") {
  // mov esi, 0x2000; mov ecx, 3; mov dx, 7; rep outsb; mov edi, 0x3000; mov ecx, 2; rep insw; hlt
  Guest guest({0xbe, 0,    0x20, 0,    0, 0xb9, 3,    0, 0, 0, 0x66, 0xba, 7,    0,    0xf3,
               0x6e, 0xbf, 0,    0x30, 0, 0,    0xb9, 2, 0, 0, 0,    0xf3, 0x66, 0x6d, 0xf4});
  std::memcpy(guest.ram + 0x2000, "abc", 3);
  std::string out;
  std::uint32_t next = 0x1111;
  for (;;) {
    Exit& exit = guest.vcpu->Run();
    if (exit.reason != ExitReason::kIo) break;
    if (exit.io.out) {
      out.push_back(static_cast<char>(exit.io.data));
    } else {
      CHECK(exit.io.size == 2);
      exit.io.data = next;
      next += 0x1111;
    }
  }
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(out == "abc");
  const std::uint8_t expected[] = {0x11, 0x11, 0x22, 0x22, 0};
  CHECK(std::memcmp(guest.ram + 0x3000, expected, 5) == 0);
}

TEST_CASE("Handlers answer without an exit") {
  Guest guest({0xb0, 0x5a, 0xe6, 0x10, 0x66, 0xba, 0x12, 0, 0xed, 0xf4});
  RecordingPorts ports;
  REQUIRE(guest.machine->HandlePorts(0x10, 4, ports).ok());
  CHECK_FALSE(guest.machine->HandlePorts(0x13, 1, ports).ok());
  CHECK_FALSE(guest.machine->HandlePorts(0x20, 0, ports).ok());
  CHECK_FALSE(guest.machine->HandlePorts(0xffff, 2, ports).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(ports.log == "out 16/1=90;in 18/4;");
  CHECK(guest.vcpu->GetRegisters().rax == 0x11223344);
}

TEST_CASE("Loads and stores outside memory are MMIO exits") {
  for (const char* policy : {"never", "always", "hysteresis"}) {
    // mov ecx, 3; 1: mov eax, [0x200000]; add [0x200010], eax; loop 1b; hlt
    Guest guest(
        {0xb9, 3, 0, 0, 0, 0xa1, 0, 0, 0x20, 0, 0x01, 0x05, 0x10, 0, 0x20, 0, 0xe2, 0xf3, 0xf4},
        WithPolicy(policy));
    for (int round = 0; round < 3; ++round) {
      INFO(policy << " " << round);
      Exit& exit = guest.vcpu->Run();
      REQUIRE(exit.reason == ExitReason::kMmio);
      CHECK((!exit.mmio.write && exit.mmio.size == 4 && exit.mmio.address == 0x200000));
      exit.mmio.data = 5;
      REQUIRE(guest.vcpu->Run().reason == ExitReason::kMmio);
      CHECK((!exit.mmio.write && exit.mmio.address == 0x200010));
      exit.mmio.data = 100;
      REQUIRE(guest.vcpu->Run().reason == ExitReason::kMmio);
      CHECK((exit.mmio.write && exit.mmio.size == 4 && exit.mmio.address == 0x200010));
      CHECK(exit.mmio.data == 105);
    }
    CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  }
}

struct QuietDevice : MmioHandler {
  std::uint64_t Read(std::uint64_t, unsigned) override { return 0; }
  void Write(std::uint64_t, unsigned, std::uint64_t) override {}
};

TEST_CASE("A verdict reaches all translations of its site") {
  // The store lies in two of them: one begins at the NOP, the other behind it. Both have run when
  // it first reaches the device, which it does 24 times.
  // mov ecx, 1024; mov edi, 0x3000; 1: cmp ecx, 1000; jne 2f; mov edi, 0x200000
  // 2: cmp ecx, 976; jne 3f; mov edi, 0x3000; 3: test cl, 1; jz 4f; nop
  // 4: mov [edi], eax; dec ecx; jnz 1b; hlt
  Guest guest(
      {0xb9, 0,    4,    0, 0,    0xbf, 0, 0x30, 0,    0,    0x81, 0xf9, 0xe8, 3,    0,    0,
       0x75, 5,    0xbf, 0, 0,    0x20, 0, 0x81, 0xf9, 0xd0, 3,    0,    0,    0x75, 5,    0xbf,
       0,    0x30, 0,    0, 0xf6, 0xc1, 1, 0x74, 1,    0x90, 0x89, 7,    0x49, 0x75, 0xdb, 0xf4},
      WithPolicy("hysteresis(1,8)"));
  QuietDevice device;
  REQUIRE(guest.machine->HandleMmio(0x200000, 4096, device).ok());
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  std::map<std::string, std::uint64_t> counters;
  for (const CounterValue& counter : guest.machine->Counters())
    counters[counter.name] = counter.value;
  CHECK(counters["host_faults_trace"] == 2);  // one each
  // All stores to the device (those that trapped are then simulated), 8 clean ones until the
  // acquittal, and one for the other translation to notice.
  CHECK(counters["store_callouts"] == 24 + 8 + 1);
}

TEST_CASE("Stores to read-only memory are MMIO") {
  // mov eax, [0x200000]; inc eax; mov [0x200000], eax; mov ebx, [0x200000]; hlt
  Guest guest({0xa1, 0, 0, 0x20, 0, 0x40, 0xa3, 0, 0, 0x20, 0, 0x8b, 0x1d, 0, 0, 0x20, 0, 0xf4});
  auto rom = guest.machine->AddMemory(0x200000, 4096, kMemoryReadOnly);
  REQUIRE(rom.ok());
  const std::uint32_t value = 41;
  CHECK(guest.machine->WriteMemory(0x200000, &value, 4));
  Exit& exit = guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kMmio);
  CHECK((exit.mmio.write && exit.mmio.data == 42));
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rbx == 41);
}

TEST_CASE("Inside an instruction registers can be read, not set") {
  Guest guest({0xe4, 0x10, 0x40, 0xf4});  // in al, 0x10; inc eax; hlt
  Exit& exit = guest.vcpu->Run();
  REQUIRE(exit.reason == ExitReason::kIo);
  Registers r = guest.vcpu->GetRegisters();
  CHECK(r.rip == kCode);
  CHECK_FALSE(guest.vcpu->SetRegisters(r).ok());
  CHECK_FALSE(guest.vcpu->SetSpecialRegisters(guest.vcpu->GetSpecialRegisters()).ok());
  CHECK_FALSE(guest.vcpu->SetMsr(0xc0000082, 0).ok());
  exit.io.data = 7;
  guest.vcpu->RequestExit();
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kInterrupted);
  r = guest.vcpu->GetRegisters();
  CHECK((r.rip == kCode + 2 && r.rax == 7));
  r.rax = 20;
  CHECK(guest.vcpu->SetRegisters(r).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rax == 21);
}

TEST_CASE("A machine may go while its VCPU is inside an instruction") {
  for (int i = 0; i < 3; ++i) {
    Guest guest({0xe4, 0x10, 0xf4});
    REQUIRE(guest.vcpu->Run().reason == ExitReason::kIo);
  }
  Guest next({0xf4});
  CHECK(next.vcpu->Run().reason == ExitReason::kHalt);
}

// An IDT at 0x4000 with one 32-bit interrupt gate, and a GDT to go with it.
void SetUpInterrupts(Guest& guest, unsigned vector, std::uint32_t handler) {
  const std::uint64_t gdt[] = {0, 0x00cf9b000000ffff, 0x00cf93000000ffff};
  std::memcpy(guest.ram + 0x5000, gdt, sizeof(gdt));
  const std::uint64_t gate = (handler & 0xffff) | std::uint64_t{0x08} << 16 |
                             std::uint64_t{0x8e00} << 32 |
                             std::uint64_t{handler & 0xffff0000} << 32;
  std::memcpy(guest.ram + 0x4000 + vector * 8, &gate, 8);
  SpecialRegisters s = guest.vcpu->GetSpecialRegisters();
  s.gdt = {0x5000, sizeof(gdt) - 1};
  s.idt = {0x4000, 0x7ff};
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
}

TEST_CASE("Injected interrupts wait for IF and wake HLT") {
  // nop; sti; hlt; inc ebx; hlt  -- handler at 0x1100: inc ecx; iret
  Guest guest({0x90, 0xfb, 0xf4, 0x43, 0xf4});
  const std::uint8_t handler[] = {0x41, 0xcf};
  std::memcpy(guest.ram + 0x1100, handler, sizeof(handler));
  SetUpInterrupts(guest, 0x40, 0x1100);
  guest.vcpu->InjectInterrupt(0x40);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);  // the second HLT
  Registers r = guest.vcpu->GetRegisters();
  CHECK((r.rbx == 1 && r.rcx == 1 && r.rip == kCode + 5));
  guest.vcpu->InjectInterrupt(0x40);
  guest.vcpu->InjectInterrupt(0x40);
  guest.ram[kCode + 5] = 0xf4;
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rcx == 2);
}

TEST_CASE("CR8 holds back interrupts, the highest vector comes first") {
  // sti; nop; hlt; hlt... -- handler for 0x40: inc ecx, for 0x51: out 1, al
  Guest guest({0xfb, 0x90, 0xf4, 0xf4, 0xf4, 0xf4, 0xf4});
  const std::uint8_t low[] = {0x41, 0xcf}, high[] = {0xe6, 0x01, 0xcf};
  std::memcpy(guest.ram + 0x1100, low, sizeof(low));
  std::memcpy(guest.ram + 0x1200, high, sizeof(high));
  SetUpInterrupts(guest, 0x40, 0x1100);
  SetUpInterrupts(guest, 0x51, 0x1200);
  SpecialRegisters s = guest.vcpu->GetSpecialRegisters();
  s.cr8 = 5;
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  guest.vcpu->InjectInterrupt(0x40);
  guest.vcpu->InjectInterrupt(0x51);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rcx == 0);
  s = guest.vcpu->GetSpecialRegisters();
  s.cr8 = 0;
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kIo);  // 0x51
  CHECK(guest.vcpu->GetRegisters().rcx == 0);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rcx == 1);
}

TEST_CASE("NMI comes with IF clear") {
  Guest guest({0xf4, 0x43, 0xf4});
  const std::uint8_t handler[] = {0x41, 0xcf};
  std::memcpy(guest.ram + 0x1100, handler, sizeof(handler));
  SetUpInterrupts(guest, 2, 0x1100);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  guest.vcpu->InjectNmi();
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  const Registers r = guest.vcpu->GetRegisters();
  CHECK((r.rcx == 1 && r.rbx == 1));
}

TEST_CASE("RequestExit from another thread ends a loop") {
  Guest guest({0xff, 0xc0, 0xeb, 0xfc});  // 1: inc eax; jmp 1b
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      guest.vcpu->RequestExit();
    });
    CHECK(guest.vcpu->Run().reason == ExitReason::kInterrupted);
    other.join();
  }
  CHECK(guest.vcpu->GetRegisters().rax > 1000);
  guest.vcpu->RequestExit();
  CHECK(guest.vcpu->Run().reason == ExitReason::kInterrupted);
}

TEST_CASE("Interrupts from another thread reach a loop") {
  // sti; 1: cmp ecx, 50; jb 1b; hlt
  Guest guest({0xfb, 0x83, 0xf9, 50, 0x72, 0xfb, 0xfa, 0xf4});
  const std::uint8_t handler[] = {0x41, 0xe6, 0x01, 0xcf};  // inc ecx; out 1, al; iret
  std::memcpy(guest.ram + 0x1100, handler, sizeof(handler));
  SetUpInterrupts(guest, 0x40, 0x1100);
  std::atomic<int> taken = 0;
  struct Counting : PortHandler {
    explicit Counting(std::atomic<int>& taken) : taken(taken) {}
    std::uint32_t In(std::uint16_t, unsigned) override { return 0; }
    void Out(std::uint16_t, unsigned, std::uint32_t) override { ++taken; }
    std::atomic<int>& taken;
  } ports(taken);
  REQUIRE(guest.machine->HandlePorts(1, 1, ports).ok());
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) {
      guest.vcpu->InjectInterrupt(0x40);
      while (taken <= i) std::this_thread::yield();
    }
  });
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  other.join();
  CHECK(taken == 50);
}

TEST_CASE("A triple fault is a shutdown") {
  Guest guest({0x0f, 0x0b});
  CHECK(guest.vcpu->Run().reason == ExitReason::kShutdown);
  CHECK(guest.vcpu->Run().reason == ExitReason::kShutdown);
}

TEST_CASE("A VCPU starts at the reset vector") {
  auto machine = Machine::Create();
  REQUIRE(machine.ok());
  REQUIRE((*machine)->AddMemory(0xffff0000, 0x10000).ok());
  Vcpu* vcpu = (*machine)->CreateVcpu().value();
  CHECK_FALSE((*machine)->CreateVcpu().ok());
  // mov al, 0x42; out 0x10, al; hlt
  const std::uint8_t code[] = {0xb0, 0x42, 0xe6, 0x10, 0xf4};
  REQUIRE((*machine)->WriteMemory(0xfffffff0, code, sizeof(code)));
  const Exit& exit = vcpu->Run();
  CHECK(exit.reason == ExitReason::kIo);
  CHECK(exit.io.port == 0x10);
  CHECK(exit.io.data == 0x42);
  CHECK(vcpu->Run().reason == ExitReason::kHalt);
}

TEST_CASE("A 32-bit call through a pointer in a segment with a base") {
  // call gs:[0x10]; hlt; ...; 0x20: mov eax, 7; ret
  Bytes code = {0x65, 0xff, 0x15, 0x10, 0, 0, 0, 0xf4};
  code.resize(0x20, 0xcc);
  for (const std::uint8_t byte : {0xb8, 7, 0, 0, 0, 0xc3}) code.push_back(byte);
  for (const char* policy : {"never", "always", "hysteresis"}) {
    Guest guest(code, WithPolicy(policy));
    SpecialRegisters special = guest.vcpu->GetSpecialRegisters();
    special.gs.base = 0x2000;
    REQUIRE(guest.vcpu->SetSpecialRegisters(special).ok());
    const std::uint32_t target = kCode + 0x20;
    std::memcpy(guest.ram + 0x2010, &target, 4);
    REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
    CHECK(guest.vcpu->GetRegisters().rax == 7);
    CHECK(guest.vcpu->GetRegisters().rip == kCode + 8);
  }
}

TEST_CASE("Branches in the upper half of the address space stay in translated code") {
  // mov ecx, 1000; loop: dec ecx; jnz loop; call next; next: hlt
  Guest guest({0xb9, 0xe8, 3, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xe8, 0, 0, 0, 0, 0xf4});
  constexpr std::uint64_t kUpper = 0xffffffff80000000;
  // The lowest 2 MB at 0 and there.
  const std::uint64_t tables[][2] = {{0x10000, 0x11003},
                                     {0x11000, 0x12003},
                                     {0x12000, 0x83},
                                     {0x10ff8, 0x11003},
                                     {0x11ff0, 0x12003}};
  for (const auto& [at, entry] : tables) std::memcpy(guest.ram + at, &entry, 8);
  SpecialRegisters special = guest.vcpu->GetSpecialRegisters();
  special.cr3 = 0x10000;
  special.cr4 = 0x20;
  special.efer = 0x500;
  special.cr0 = 0x80000011;
  special.cs.l = 1;
  special.cs.db = 0;
  REQUIRE(guest.vcpu->SetSpecialRegisters(special).ok());
  Registers r;
  r.rip = kUpper + kCode;
  r.rsp = kUpper + kStack;
  REQUIRE(guest.vcpu->SetRegisters(r).ok());
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rip == kUpper + kCode + 15);
  for (const CounterValue& counter : guest.machine->Counters()) {
    if (counter.name == "simulate_callouts") CHECK(counter.value < 10);
  }
}

TEST_CASE("Vector registers live through handlers that use them") {
  // movups xmm0, [0x2000]; out 1, al; movups [0x2010], xmm0; hlt
  Guest guest(
      {0x0f, 0x10, 0x05, 0, 0x20, 0, 0, 0xe6, 0x01, 0x0f, 0x11, 0x05, 0x10, 0x20, 0, 0, 0xf4});
  SpecialRegisters s = guest.vcpu->GetSpecialRegisters();
  s.cr4 |= 1u << 9;  // OSFXSR
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  const char text[] = "vector registers";
  std::memcpy(guest.ram + 0x2000, text, 16);
  struct Clobbering : PortHandler {
    std::uint32_t In(std::uint16_t, unsigned) override { return 0; }
    void Out(std::uint16_t, unsigned, std::uint32_t) override {
      asm volatile("pxor %%xmm0, %%xmm0; fldpi; fstp %%st(0)" ::: "xmm0");
      if (__builtin_cpu_supports("avx2")) asm volatile("vpxor %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
    }
  } ports;
  REQUIRE(guest.machine->HandlePorts(1, 1, ports).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(std::memcmp(guest.ram + 0x2010, text, 16) == 0);

  // The same value through the XSAVE area, and back in.
  alignas(64) std::uint8_t area[Vcpu::kXsaveBytes];
  REQUIRE(guest.vcpu->GetXsave(area).ok());
  CHECK(std::memcmp(area + 160, text, 16) == 0);
  std::memcpy(area + 160, "other contents!!", 16);
  REQUIRE(guest.vcpu->SetXsave(area).ok());
  guest.Start(kCode + 7);
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(std::memcmp(guest.ram + 0x2010, "other contents!!", 16) == 0);
  area[512 + 8] = 1;
  CHECK_FALSE(guest.vcpu->SetXsave(area).ok());
}

TEST_CASE("WriteMemory replaces code that has run") {
  Guest guest({0xb8, 1, 0, 0, 0, 0xf4});
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rax == 1);
  const std::uint8_t two = 2;
  CHECK(guest.machine->WriteMemory(kCode + 1, &two, 1));
  guest.Start();
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rax == 2);
  std::uint8_t back = 0;
  CHECK(guest.machine->ReadMemory(kCode + 1, &back, 1));
  CHECK(back == 2);
  CHECK_FALSE(guest.machine->WriteMemory(kRam - 1, "ab", 2));
  CHECK_FALSE(guest.machine->ReadMemory(kRam, &back, 1));
}

std::uint64_t CounterOf(const Guest& guest, const std::string& name) {
  for (const CounterValue& counter : guest.machine->Counters()) {
    if (counter.name == name) return counter.value;
  }
  FAIL("there is no counter " << name);
  return 0;
}

TEST_CASE("Memory that held code becomes data, and is stored to without the VMM") {
  // call 0x3000; xor eax, eax; mov edi, 0x3000; mov ecx, 0x400; rep stosd;
  // mov ecx, 10000; again: mov [0x3010], ecx; loop again; hlt
  Guest guest({0xe8, 0xfb, 0x1f, 0,    0,    0x31, 0xc0, 0xbf, 0,    0x30, 0,
               0,    0xb9, 0,    4,    0,    0,    0xf3, 0xab, 0xb9, 0x10, 0x27,
               0,    0,    0x89, 0x0d, 0x10, 0x30, 0,    0,    0xe2, 0xf8, 0xf4});
  guest.ram[0x3000] = 0xc3;  // ret
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(CounterOf(guest, "trace_writes") < 100);
}

TEST_CASE("Code that falls into overwritten code finds its new translation once") {
  // mov ecx, 10000; again: 12 times inc eax; xor edx, edx; 7 times inc eax; loop again; hlt.
  // The body takes two translations; the first one knows of the second that it reads no flags.
  Bytes code = {0xb9, 0x10, 0x27, 0, 0};
  code.insert(code.end(), 12, 0x40);
  code.insert(code.end(), {0x31, 0xd2});
  code.insert(code.end(), 7, 0x40);
  code.insert(code.end(), {0xe2, 0xe9, 0xf4});
  Guest guest(code);
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rax == 190000);
  const std::uint8_t dec_eax = 0x48;
  REQUIRE(guest.machine->WriteMemory(kCode + 24, &dec_eax, 1));
  guest.Start();
  const std::uint64_t before = CounterOf(guest, "lookups");
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rax == 170000);
  CHECK(CounterOf(guest, "lookups") - before < 100);
}

TEST_CASE("64-bit code, by registers alone") {
  // mov rax, 0x123456789abcdef0; mov r10, rax; mov [0x2000], r10; hlt
  Guest guest({0x48, 0xb8, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0x49,
               0x89, 0xc2, 0x4c, 0x89, 0x14, 0x25, 0,    0x20, 0,    0,    0xf4});
  const std::uint64_t pml4 = 0x11000 | 3, pdpt = 0x12000 | 3, pd = 0x83;
  std::memcpy(guest.ram + 0x10000, &pml4, 8);
  std::memcpy(guest.ram + 0x11000, &pdpt, 8);
  std::memcpy(guest.ram + 0x12000, &pd, 8);
  SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
  s.cs.l = 1;
  s.cs.db = 0;
  s.cr0 |= 1u << 31;
  s.cr3 = 0x10000;
  s.efer = 1u << 8 | 1u << 10;
  CHECK_FALSE(guest.vcpu->SetSpecialRegisters(s).ok());  // no CR4.PAE
  s.cr4 = 1u << 5;
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  std::uint64_t stored;
  std::memcpy(&stored, guest.ram + 0x2000, 8);
  CHECK(stored == 0x123456789abcdef0);
  CHECK(guest.vcpu->GetRegisters().r10 == stored);
}

TEST_CASE("Registers read back as set") {
  Guest guest({0xf4});
  Registers r;
  r.rax = 1, r.rcx = 2, r.rdx = 3, r.rbx = 4, r.rsp = 5, r.rbp = 6, r.rsi = 7, r.rdi = 8;
  r.r8 = 9, r.r15 = 16, r.rip = 17, r.rflags = 0x2d7;
  REQUIRE(guest.vcpu->SetRegisters(r).ok());
  const Registers q = guest.vcpu->GetRegisters();
  CHECK(std::memcmp(&q, &r, sizeof(r)) == 0);
  SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
  s.fs.base = 0x1000;
  s.gs.unusable = 1;
  s.cr2 = 0x1234;
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  const SpecialRegisters t = guest.vcpu->GetSpecialRegisters();
  CHECK((t.fs.base == 0x1000 && t.gs.unusable && t.cr2 == 0x1234 && t.cs.type == 0xb && t.cs.db));
  REQUIRE(guest.vcpu->SetMsr(0xc0000082, 0xffffffff80001000).ok());
  CHECK(guest.vcpu->GetMsr(0xc0000082).value() == 0xffffffff80001000);
  CHECK_FALSE(guest.vcpu->SetMsr(0xc0000082, 0x8000000000001000).ok());
  CHECK_FALSE(guest.vcpu->GetMsr(0x12345).ok());
}

// What VM entry refuses (SDM vol. 3, 26.3.1.2): one thing wrong at a time.
TEST_CASE("Segments that no CPU can have are refused") {
  Guest guest({0xf4});
  using S = SpecialRegisters;
  struct Case {
    void (*change)(S&);
    const char* message;  // empty: accepted
  };
  const Case cases[] = {
      {[](S& s) { s.cs.type = 0xa; }, "CS: its type"},  // not accessed
      {[](S& s) { s.cs.type = 0x7; }, "CS: its type"},  // expand-down data
      {[](S& s) { s.cs.type = 0x3; }, ""},              // as after power-up on some CPUs
      {[](S& s) { s.cs.type = 0x3, s.cs.dpl = 3; }, "CS: type 3"},
      {[](S& s) { s.cs.type = 0x3, s.ss.dpl = 3; }, "CS: type 3"},
      {[](S& s) { s.cs.type = 0xf; }, ""},
      {[](S& s) { s.cs.unusable = 1; }, "CS: unusable"},
      {[](S& s) { s.cs.dpl = 3; }, "CS: its DPL"},
      {[](S& s) { s.cs.dpl = s.ss.dpl = 3; }, ""},
      {[](S& s) { s.cs.type = 0xf, s.cs.dpl = 3; }, "CS: its DPL"},
      {[](S& s) { s.cs.type = 0xf, s.ss.dpl = 3; }, ""},
      {[](S& s) { s.cs.s = 0; }, "CS: a system segment"},
      {[](S& s) { s.cs.present = 0; }, "CS: usable, but not present"},
      {[](S& s) { s.cs.base = std::uint64_t{1} << 32; }, "CS: its base"},
      {[](S& s) { s.cs.limit = 0xfffff000; }, "CS: g does not fit"},
      {[](S& s) { s.cs.g = 0; }, "CS: g does not fit"},
      {[](S& s) { s.ss.type = 0x1; }, "SS: its type"},
      {[](S& s) { s.ss.type = 0xb; }, "SS: its type"},
      {[](S& s) { s.ss.type = 0x7; }, ""},
      {[](S& s) { s.ss.unusable = 1; }, ""},
      {[](S& s) { s.ss.base = std::uint64_t{1} << 32; }, "SS: its base"},
      {[](S& s) { s.ds.type = 0x2; }, "DS: its type"},
      {[](S& s) { s.es.type = 0x9; }, "ES: its type"},  // code that cannot be read
      {[](S& s) { s.es.type = 0xb; }, ""},
      {[](S& s) { s.fs.s = 0; }, "FS: a system segment"},
      {[](S& s) { s.gs.present = 0; }, "GS: usable, but not present"},
      {[](S& s) { s.gs.unusable = 1, s.gs.type = 0; }, ""},
      {[](S& s) { s.fs.base = std::uint64_t{1} << 32; }, ""},
      {[](S& s) { s.tr.type = 9; }, "TR: give the type"},
      {[](S& s) { s.tr.type = 3; }, ""},
      {[](S& s) { s.tr.unusable = 1; }, "TR: give the type"},
      {[](S& s) { s.tr.s = 1; }, "TR: s must be 0"},
      {[](S& s) { s.tr.selector = 4; }, "TR: its selector"},
      {[](S& s) { s.ldt.type = 3; }, "LDT: its type"},
      {[](S& s) { s.ldt.unusable = 1, s.ldt.type = 0; }, ""},
      {[](S& s) { s.cr0 &= ~1ull; }, ""},
      {[](S& s) { s.cr0 &= ~1ull, s.cs.dpl = s.ss.dpl = 3; }, "SS: its DPL is 0 in real mode"},
  };
  for (const Case& c : cases) {
    SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
    c.change(s);
    const Status status = guest.vcpu->SetSpecialRegisters(s);
    INFO("case " << &c - cases << ": " << (status.ok() ? "accepted" : status.error().message));
    REQUIRE(status.ok() == (*c.message == 0));
    if (status.ok()) {
      CHECK(guest.vcpu->SetSpecialRegisters(guest.vcpu->GetSpecialRegisters()).ok());
    } else {
      CHECK(status.error().message.find(c.message) != std::string::npos);
    }
  }
}

TEST_CASE("Virtual-8086 segments go with RFLAGS.VM") {
  Guest guest({0xf4});
  Registers r = guest.vcpu->GetRegisters();
  r.rflags |= 1u << 17;
  REQUIRE(guest.vcpu->SetRegisters(r).ok());
  SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
  CHECK_FALSE(guest.vcpu->SetSpecialRegisters(s).ok());
  for (SegmentRegister* segment : {&s.cs, &s.ss, &s.ds, &s.es, &s.fs, &s.gs}) {
    *segment = {};
    segment->base = 0x1000, segment->selector = 0x100, segment->limit = 0xffff;
    segment->type = 3, segment->present = segment->s = 1, segment->dpl = 3;
  }
  CHECK(guest.vcpu->SetSpecialRegisters(s).ok());
  CHECK(guest.vcpu->SetSpecialRegisters(guest.vcpu->GetSpecialRegisters()).ok());
  s.ds.base = 0;
  CHECK_FALSE(guest.vcpu->SetSpecialRegisters(s).ok());
}

TEST_CASE("The privilege of a VCPU without a stack segment reads back") {
  Guest guest({0xf4});
  SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
  s.cs.dpl = s.ss.dpl = 3;
  s.ss.unusable = 1;
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  s = guest.vcpu->GetSpecialRegisters();
  CHECK((s.ss.unusable && s.ss.dpl == 3));
  CHECK(guest.vcpu->SetSpecialRegisters(s).ok());
}

// A store through CS is checked against its room, which needs r10. A group's displacement waited
// there: the next access of the group was made at the guest's address in the VMM.
TEST_CASE("A store through CS leaves the group's displacement alone") {
  // mov eax, [ebx]; mov cs:[0x2000], ecx; mov edx, [ebx + 4]; xor eax, eax; hlt
  Guest guest({0x8b, 0x03, 0x2e, 0x89, 0x0d, 0, 0x20, 0, 0, 0x8b, 0x53, 0x04, 0x31, 0xc0, 0xf4});
  SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
  s.cs.type = 3;  // data, as real mode leaves it: it can be stored to
  REQUIRE(guest.vcpu->SetSpecialRegisters(s).ok());
  constexpr std::uint32_t kAddress = 0x40000, kSecret = 0x5ec2e7, kGuests = 0x900d;
  void* secret = mmap(reinterpret_cast<void*>(kAddress), 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  REQUIRE(secret == reinterpret_cast<void*>(kAddress));
  std::memcpy(static_cast<char*>(secret) + 4, &kSecret, 4);
  std::memcpy(guest.ram + kAddress + 4, &kGuests, 4);
  Registers r = guest.vcpu->GetRegisters();
  r.rbx = kAddress, r.rcx = 7;
  REQUIRE(guest.vcpu->SetRegisters(r).ok());
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  CHECK(guest.vcpu->GetRegisters().rdx == kGuests);
  CHECK(guest.ram[0x2000] == 7);
  munmap(secret, 4096);
}

// A process that has inherited them could shrink them: the next access would be a bus error.
TEST_CASE("All of a machine's files in memory are sealed") {
  Guest guest({0xf4});
  REQUIRE(guest.vcpu->Run().reason == ExitReason::kHalt);
  const auto files = MemoryFiles();
  CHECK(files.size() == 2);  // guest memory, the VCPU's block
  for (const auto& [name, fd] : files) {
    INFO(name);
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    CHECK((fcntl(fd, F_GET_SEALS) & kSeals) == kSeals);
    CHECK(ftruncate(fd, 0) == -1);
  }
}

// What the host's kernel does when a page is poisoned or cannot be had. It was taken for a page
// fault, and tried again for ever.
TEST_CASE("A page that the host cannot give ends the process with one line") {
  // mov [0x6000], eax; hlt. sgdt [0x6000]; hlt: in a callout.
  for (const Bytes& code :
       {Bytes{0xa3, 0, 0x60, 0, 0, 0xf4}, Bytes{0x0f, 0x01, 0x05, 0, 0x60, 0, 0, 0xf4}}) {
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);
      dup2(pipes[1], STDERR_FILENO);
      std::signal(SIGABRT, [](int) { _exit(AbortStatus()); });
      Guest guest(code);
      // A mapping of a file without that page.
      const int file = memfd_create("empty", 0);
      mmap(guest.ram + 0x6000, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
      guest.vcpu->Run();
      _exit(0);
    }
    close(pipes[1]);
    char text[1024];
    std::string line;
    for (ssize_t n; (n = read(pipes[0], text, sizeof(text))) > 0;) {
      line.append(text, static_cast<std::size_t>(n));
    }
    close(pipes[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    INFO(line);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == kAbortOfHostMemory);
    CHECK(line.find("alibi: the host has lost memory") == 0);
    CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  }
}

TEST_CASE("Machines in two threads do not meet") {
  auto work = [](std::uint32_t start) {
    // mov ecx, 200000; 1: add eax, ecx; xor [0x2000], eax; loop 1b; hlt
    Guest guest({0xb9, 0x40, 0x0d, 3, 0, 0x01, 0xc8, 0x31, 0x05, 0, 0x20, 0, 0, 0xe2, 0xf6, 0xf4});
    Registers r = guest.vcpu->GetRegisters();
    r.rax = start;
    bool ok = guest.vcpu->SetRegisters(r).ok();
    ok = ok && guest.vcpu->Run().reason == ExitReason::kHalt;
    std::uint32_t sum = start;
    for (std::uint32_t i = 200000; i != 0; --i) sum += i;
    return ok && guest.vcpu->GetRegisters().rax == sum;
  };
  bool first = false, second = false;
  std::thread a([&] { first = work(1); });
  std::thread b([&] { second = work(77); });
  a.join();
  b.join();
  CHECK((first && second));
}

TEST_CASE("The guest sees the CPU model that it was given") {
  // mov eax, 0x80000002; cpuid; hlt
  const Bytes code = {0xb8, 0x02, 0x00, 0x00, 0x80, 0x0f, 0xa2, 0xf4};
  for (const char* cpu : {"amd", "intel", "base64"}) {
    MachineOptions options;
    options.cpu = cpu;
    Guest guest(code, options);
    CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
    const Registers r = guest.vcpu->GetRegisters();
    char brand[17] = {};
    const std::uint32_t words[] = {
        static_cast<std::uint32_t>(r.rax), static_cast<std::uint32_t>(r.rbx),
        static_cast<std::uint32_t>(r.rcx), static_cast<std::uint32_t>(r.rdx)};
    std::memcpy(brand, words, 16);
    CHECK(std::string(brand).starts_with("Alibi " + std::string(cpu)));
  }
  MachineOptions options;
  options.cpu = "8086";
  const auto machine = Machine::Create(options);
  REQUIRE_FALSE(machine.ok());
  CHECK(machine.error().message.find("base64") != std::string::npos);
}

TEST_CASE("Bad options and memory are explained") {
  MachineOptions options;
  options.policy = "sometimes";
  CHECK_FALSE(Machine::Create(options).ok());
  options = {};
  options.engine = "diesel";
  const auto engine = Machine::Create(options);
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.error().message ==
        "there is no engine 'diesel'; there are translate, auto, direct, hardware");
  options = {};
  options.engine = "translate";
  options.engine_policy = "always";
  const auto undecided = Machine::Create(options);
  REQUIRE_FALSE(undecided.ok());
  CHECK(undecided.error().message ==
        "an engine policy decides under engine auto only; there is none under translate");
  options.engine = "auto";
  options.engine_policy = "sometimes";
  CHECK_FALSE(Machine::Create(options).ok());
  options = {};
  options.coherence = "sometimes";
  CHECK_FALSE(Machine::Create(options).ok());
  options = {};
  options.translation_cache_bytes = 0;
  CHECK_FALSE(Machine::Create(options).ok());
  options = {};
  options.translation_store = "/dev/null/store";
  const auto stored = Machine::Create(options);
  REQUIRE_FALSE(stored.ok());
  CHECK(stored.error().message.find("/dev/null") != std::string::npos);
  Guest guest({0xf4});
  CHECK_FALSE(guest.machine->AddMemory(0x200000, 0).ok());
  CHECK_FALSE(guest.machine->AddMemory(0x200001, 4096).ok());
  CHECK_FALSE(guest.machine->AddMemory(0, 4096).ok());
  CHECK_FALSE(guest.machine->RemoveMemory(0x123000).ok());
  auto extra = guest.machine->AddMemory(0x400000, 8192);
  REQUIRE(extra.ok());
  CHECK(guest.machine->RemoveMemory(0x400000).ok());
  bool translated = false;
  CHECK(guest.vcpu->Run().reason == ExitReason::kHalt);
  for (const CounterValue& counter : guest.machine->Counters()) {
    translated = translated || (counter.name == "translations" && counter.value != 0);
  }
  CHECK(translated);
}

}  // namespace
}  // namespace alibi
