// SPDX-License-Identifier: Apache-2.0
// The embedding API with several VCPUs, each on a thread of this test's.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "alibi/machine.h"

namespace alibi {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kRam = 1 << 20, kCode = 0x1000, kStack = 0xf000;

MachineOptions Several(unsigned vcpus) {
  MachineOptions options;
  options.most_memory_bytes = std::uint64_t{16} << 20;
  options.vcpus = vcpus;
  return options;
}

// A machine with 1 MB whose VCPUs are about to run 32-bit code, each its own, at kCode + n * 1000h.
struct Guest {
  explicit Guest(const std::vector<Bytes>& codes) : Guest(codes, Several(2)) {}
  Guest(const std::vector<Bytes>& codes, const MachineOptions& options) {
    auto created = Machine::Create(options);
    if (!created.ok()) FAIL(created.error().message);
    machine = std::move(*created);
    ram = static_cast<std::uint8_t*>(machine->AddMemory(0, kRam).value());
    for (unsigned i = 0; i < codes.size(); ++i) {
      std::memcpy(ram + CodeOf(i), codes[i].data(), codes[i].size());
      vcpus.push_back(machine->CreateVcpu().value());
      REQUIRE(vcpus[i]->SetSpecialRegisters(SpecialRegisters::FlatProtectedMode()).ok());
      REQUIRE(vcpus[i]->SetRegisters(StartOf(i)).ok());
    }
  }
  static std::uint64_t CodeOf(unsigned vcpu) { return kCode + vcpu * 0x1000; }
  static Registers StartOf(unsigned vcpu) {
    Registers r;
    r.rip = CodeOf(vcpu);
    r.rsp = kStack - vcpu * 0x400;
    return r;
  }
  std::atomic<std::uint32_t>& Word(std::uint64_t address) {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(ram + address);
  }
  std::uint64_t Counter(const std::string& name) {
    for (const CounterValue& counter : machine->Counters()) {
      if (counter.name == name) return counter.value;
    }
    FAIL("no counter " << name);
    return 0;
  }

  std::unique_ptr<Machine> machine;
  std::uint8_t* ram = nullptr;
  std::vector<Vcpu*> vcpus;
};

// Runs every VCPU on a thread of its own, once; their reasons.
std::vector<ExitReason> RunAll(Guest& guest) {
  std::vector<ExitReason> reasons(guest.vcpus.size());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < guest.vcpus.size(); ++i) {
    threads.emplace_back([&, i] { reasons[i] = guest.vcpus[i]->Run().reason; });
  }
  for (std::thread& thread : threads) thread.join();
  return reasons;
}

void WaitFor(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

constexpr ExitReason kHalt = ExitReason::kHalt;

TEST_CASE("A locked counter of four VCPUs, which know their numbers") {
  for (const char* engine : {"translate", "auto"}) {
    INFO(engine);
    // mov ecx, 100000; 1: lock inc [0x9000]; dec ecx; jnz 1b; mov eax, 1; cpuid; hlt
    const Bytes count = {0xb9, 0xa0, 0x86, 1,    0, 0xf0, 0xff, 5, 0,    0x90, 0,   0,
                         0x49, 0x75, 0xf6, 0xb8, 1, 0,    0,    0, 0x0f, 0xa2, 0xf4};
    MachineOptions options = Several(4);
    options.engine = engine;
    Guest guest({count, count, count, count}, options);
    CHECK(RunAll(guest) == std::vector<ExitReason>(4, kHalt));
    CHECK(guest.Word(0x9000) == 400'000);
    for (unsigned i = 0; i < 4; ++i) {
      const Registers r = guest.vcpus[i]->GetRegisters();
      CHECK(r.rip == Guest::CodeOf(i) + count.size());
      CHECK(r.rbx >> 24 == i);
      CHECK(((r.rbx >> 16) & 0xff) == 4);
      CHECK(guest.vcpus[i]->Run().reason == kHalt);  // also on one thread after the other
    }
  }
}

TEST_CASE("What one VCPU has written the other one reads, in order") {
  // xor esi, esi; 1: inc esi; mov [0x9000], esi; mov [0x9100], esi
  // 2: pause; cmp [0x9200], esi; jne 2b; cmp esi, 20000; jb 1b; hlt
  const Bytes send = {0x31, 0xf6, 0x46, 0x89, 0x35, 0,    0x90, 0,    0,    0x89, 0x35, 0,
                      0x91, 0,    0,    0xf3, 0x90, 0x39, 0x35, 0,    0x92, 0,    0,    0x75,
                      0xf6, 0x81, 0xfe, 0x20, 0x4e, 0,    0,    0x72, 0xe1, 0xf4};
  // xor esi, esi; xor edi, edi; 1: inc esi; 2: pause; cmp [0x9100], esi; jne 2b
  // cmp [0x9000], esi; je 3f; inc edi; 3: mov [0x9200], esi; cmp esi, 20000; jb 1b; hlt
  const Bytes receive = {0x31, 0xf6, 0x31, 0xff, 0x46, 0xf3, 0x90, 0x39, 0x35, 0, 0x91, 0,    0,
                         0x75, 0xf6, 0x39, 0x35, 0,    0x90, 0,    0,    0x74, 1, 0x47, 0x89, 0x35,
                         0,    0x92, 0,    0,    0x81, 0xfe, 0x20, 0x4e, 0,    0, 0x72, 0xde, 0xf4};
  Guest guest({send, receive});
  CHECK(RunAll(guest) == std::vector<ExitReason>(2, kHalt));
  CHECK(guest.vcpus[1]->GetRegisters().rdi == 0);
  CHECK(guest.Word(0x9200) == 20'000);
}

TEST_CASE("A VCPU executes what another one has made of its code") {
  // The same with the instruction at 0x5000, mov eax, imm32; ret.
  const Bytes modify = {0x31, 0xf6, 0x46, 0x89, 0x35, 1,    0x50, 0,    0,    0x89, 0x35, 0,
                        0x91, 0,    0,    0xf3, 0x90, 0x39, 0x35, 0,    0x92, 0,    0,    0x75,
                        0xf6, 0x81, 0xfe, 0x2c, 1,    0,    0,    0x72, 0xe1, 0xf4};
  // ... 2: pause; cmp [0x9100], esi; jne 2b; xor eax, eax; cpuid; mov ebp, 0x5000; call ebp
  // cmp eax, esi; je 3f; inc edi; 3: mov [0x9200], esi; cmp esi, 300; jb 1b; hlt
  const Bytes execute = {0x31, 0xf6, 0x31, 0xff, 0x46, 0xf3, 0x90, 0x39, 0x35, 0,    0x91, 0,
                         0,    0x75, 0xf6, 0x31, 0xc0, 0x0f, 0xa2, 0xbd, 0,    0x50, 0,    0,
                         0xff, 0xd5, 0x39, 0xf0, 0x74, 1,    0x47, 0x89, 0x35, 0,    0x92, 0,
                         0,    0x81, 0xfe, 0x2c, 1,    0,    0,    0x72, 0xd7, 0xf4};
  Guest guest({modify, execute});
  const std::uint8_t victim[] = {0xb8, 0, 0, 0, 0, 0xc3};
  std::memcpy(guest.ram + 0x5000, victim, sizeof(victim));
  CHECK(RunAll(guest) == std::vector<ExitReason>(2, kHalt));
  CHECK(guest.vcpus[1]->GetRegisters().rdi == 0);
  CHECK(guest.Counter("ccf_invalidations") >= 299);  // the first change may come before
}

TEST_CASE("A page is gone when the embedder has flushed the other VCPU") {
  // mov dword [0xc000], 0x7003; out 0x20, al; mov dword [0x9000], 1; hlt
  const Bytes remap = {0xc7, 5, 0, 0xc0, 0, 0, 3, 0x70, 0, 0, 0xe6, 0x20,
                       0xc7, 5, 0, 0x90, 0, 0, 1, 0,    0, 0, 0xf4};
  // 1: mov eax, [0x9000]; mov ebx, [0x400000]; inc dword [0x9100]; test eax, eax; jz 1b; hlt
  const Bytes watch = {0xa1, 0, 0x90, 0,    0, 0x8b, 0x1d, 0,    0,    0x40, 0,
                       0xff, 5, 0,    0x91, 0, 0,    0x85, 0xc0, 0x74, 0xeb, 0xf4};
  Guest guest({remap, watch});
  guest.Word(0x6000) = 0x6666;
  guest.Word(0x7000) = 0x7777;
  for (unsigned page = 0; page < 256; ++page) guest.Word(0xb000 + page * 4) = page << 12 | 3;
  guest.Word(0xc000) = 0x6003;
  guest.Word(0xa000) = 0xb003;
  guest.Word(0xa004) = 0xc003;
  for (Vcpu* vcpu : guest.vcpus) {
    SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
    s.cr3 = 0xa000;
    s.cr0 |= 0x80000000;
    REQUIRE(vcpu->SetSpecialRegisters(s).ok());
  }
  std::atomic<bool> flushed = false;
  ExitReason last = {};
  std::thread other([&] {
    Vcpu& vcpu = *guest.vcpus[1];
    while ((last = vcpu.Run().reason) == ExitReason::kInterrupted) {
      flushed = vcpu.SetSpecialRegisters(vcpu.GetSpecialRegisters()).ok();
    }
  });
  WaitFor([&] { return guest.Word(0x9100) > 1000; });
  CHECK(guest.vcpus[0]->Run().reason == ExitReason::kIo);
  guest.vcpus[1]->RequestExit();
  WaitFor([&] { return flushed.load(); });
  CHECK(guest.vcpus[0]->Run().reason == kHalt);
  other.join();
  CHECK(last == kHalt);
  CHECK(guest.vcpus[1]->GetRegisters().rbx == 0x7777);
}

TEST_CASE("Exits inside instructions belong to the VCPU that has them, vector registers too") {
  // movd xmm3, esi; mov ecx, 500; mov dx, si; 1: mov eax, ecx; out dx, eax; in eax, dx
  // add edi, eax; add [0x200000+esi], ecx; dec ecx; jnz 1b; movq [0x9000+esi*8], xmm3; hlt
  const Bytes code = {0x66, 0x0f, 0x6e, 0xde, 0xb9, 0xf4, 1,    0,    0, 0x66, 0x89, 0xf2, 0x89,
                      0xc8, 0xef, 0xed, 1,    0xc7, 1,    0x8e, 0,    0, 0x20, 0,    0x49, 0x75,
                      0xf1, 0x66, 0x0f, 0xd6, 0x1c, 0xf5, 0,    0x90, 0, 0,    0xf4};
  Guest guest({code, code});
  std::atomic<unsigned> wrong = 0, ended = 0;
  std::uint64_t device[2] = {};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint16_t port = static_cast<std::uint16_t>(0x40 + i * 4);
    SpecialRegisters s = SpecialRegisters::FlatProtectedMode();
    s.cr4 = 0x200;  // OSFXSR
    REQUIRE(guest.vcpus[i]->SetSpecialRegisters(s).ok());
    Registers r = Guest::StartOf(i);
    r.rsi = port;
    REQUIRE(guest.vcpus[i]->SetRegisters(r).ok());
    threads.emplace_back([&, i, port] {
      for (std::uint32_t value = 0;;) {
        Exit& exit = guest.vcpus[i]->Run();
        if (exit.reason == ExitReason::kIo) {
          wrong += exit.io.port != port;
          if (exit.io.out) {
            value = exit.io.data;
          } else {
            exit.io.data = value + i;
          }
        } else if (exit.reason == ExitReason::kMmio) {
          wrong += exit.mmio.address != 0x200000u + port;
          if (exit.mmio.write) {
            device[i] = exit.mmio.data;
          } else {
            exit.mmio.data = device[i];
          }
        } else {
          ended += exit.reason == kHalt;
          return;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(ended == 2);
  for (unsigned i = 0; i < 2; ++i) {
    CHECK(guest.vcpus[i]->GetRegisters().rdi == 500 * 501 / 2 + 500 * i);
    CHECK(device[i] == 500 * 501 / 2);
    CHECK(guest.Word(0x9000 + (0x40 + i * 4) * 8) == 0x40 + i * 4);
  }
}

// 1: inc dword [esi]; jmp 1b
const Bytes kSpin = {0xff, 6, 0xeb, 0xfc};

// Both VCPUs count up, each at an address of its own.
struct Spinning : Guest {
  Spinning() : Guest({kSpin, kSpin}) {
    for (unsigned i = 0; i < 2; ++i) {
      Registers r = StartOf(i);
      r.rsi = CounterOf(i);
      REQUIRE(vcpus[i]->SetRegisters(r).ok());
      threads[i] = std::thread([this, i] { reasons[i] = vcpus[i]->Run().reason; });
    }
    for (unsigned i = 0; i < 2; ++i) WaitUntilRuns(i);
  }
  static std::uint64_t CounterOf(unsigned vcpu) { return 0x9000 + vcpu * 0x100; }
  void WaitUntilRuns(unsigned vcpu) {
    const std::uint32_t before = Word(CounterOf(vcpu));
    WaitFor([&] { return Word(CounterOf(vcpu)) != before; });
  }
  void End(unsigned vcpu) {
    vcpus[vcpu]->RequestExit();
    threads[vcpu].join();
  }
  std::thread threads[2];
  ExitReason reasons[2] = {kHalt, kHalt};
};

TEST_CASE("RequestExit() is for one VCPU, the other runs on") {
  Spinning guest;
  guest.End(1);
  CHECK(guest.reasons[1] == ExitReason::kInterrupted);
  const std::uint32_t stopped = guest.Word(guest.CounterOf(1));
  guest.WaitUntilRuns(0);
  CHECK(guest.Word(guest.CounterOf(1)) == stopped);
  // Asked for before, it ends the next run.
  guest.vcpus[1]->RequestExit();
  CHECK(guest.vcpus[1]->Run().reason == ExitReason::kInterrupted);
  guest.End(0);
  CHECK(guest.reasons[0] == ExitReason::kInterrupted);
}

TEST_CASE("What needs a VCPU that does not run is refused while they run") {
  Spinning guest;
  const auto refused = [](const Status& status) {
    return !status.ok() && status.error().message.find("run") != std::string::npos;
  };
  CHECK(refused(guest.vcpus[0]->SetRegisters({})));
  CHECK(refused(guest.vcpus[0]->SetSpecialRegisters(SpecialRegisters::FlatProtectedMode())));
  CHECK(refused(guest.machine->RemoveMemory(0)));
  std::uint32_t value = 0;
  CHECK_FALSE(guest.machine->ReadMemory(0, &value, 4));
  guest.End(1);
  // One is enough.
  CHECK(guest.vcpus[1]->SetRegisters(Guest::StartOf(1)).ok());
  CHECK(guest.machine->ReadMemory(guest.CounterOf(1), &value, 4));
  CHECK(value == guest.Word(guest.CounterOf(1)));
  CHECK(guest.machine->AddMemory(0x400000, 0x1000).ok());
  CHECK(guest.machine->RemoveMemory(0x400000).ok());
  guest.WaitUntilRuns(0);
  guest.End(0);
}

TEST_CASE("Memory is written, comes and goes while another VCPU runs") {
  SECTION("code") {
    // 1: inc dword [0x9000]; call 0x5000; test eax, eax; jz 1b; hlt
    const Bytes fetch = {0xff, 5, 0, 0x90, 0,    0,    0xe8, 0xf5,
                         0x2f, 0, 0, 0x85, 0xc0, 0x74, 0xf1, 0xf4};
    Guest guest({{0xe6, 0x20, 0xf4}, fetch});  // out 0x20, al; hlt
    const std::uint8_t victim[] = {0xb8, 0, 0, 0, 0, 0xc3};
    std::memcpy(guest.ram + 0x5000, victim, sizeof(victim));
    std::thread other([&] { CHECK(guest.vcpus[1]->Run().reason == kHalt); });
    WaitFor([&] { return guest.Word(0x9000) > 1000; });
    REQUIRE(guest.vcpus[0]->Run().reason == ExitReason::kIo);
    const std::uint8_t one = 1;
    CHECK(guest.machine->WriteMemory(0x5001, &one, 1));
    other.join();
    CHECK(guest.vcpus[0]->Run().reason == kHalt);
  }
  SECTION("slots") {
    // 1: inc dword [0x9000]; mov eax, [0x300000]; test eax, eax; jz 1b; hlt
    const Bytes look = {0xff, 5, 0, 0x90, 0, 0, 0xa1, 0, 0, 0x30, 0, 0x85, 0xc0, 0x74, 0xf1, 0xf4};
    Guest guest({look, look});
    REQUIRE(guest.machine->AddMemory(0x300000, 0x1000).ok());
    std::atomic<unsigned> exits = 0;
    std::thread other([&] {
      for (;;) {
        Exit& exit = guest.vcpus[1]->Run();
        if (exit.reason != ExitReason::kMmio) break;
        exit.mmio.data = 0;
        ++exits;
      }
    });
    for (int round = 0; round < 20; ++round) {
      const std::uint32_t count = guest.Word(0x9000);
      WaitFor([&] { return guest.Word(0x9000) > count + 1000; });
      CHECK(guest.machine->RemoveMemory(0x300000).ok());
      const unsigned seen = exits;
      WaitFor([&] { return exits > seen + 10; });
      auto added = guest.machine->AddMemory(0x300000, 0x1000);
      REQUIRE(added.ok());
      if (round == 19) *static_cast<volatile std::uint32_t*>(*added) = 5;
    }
    other.join();
    CHECK(guest.vcpus[1]->GetRegisters().rax == 5);
  }
}

TEST_CASE("Handlers know their VCPU, come one at a time, and start other VCPUs") {
  // mov ecx, 200; 1: out 0x30, al; dec ecx; jnz 1b; hlt
  const Bytes starter = {0xb9, 0xc8, 0, 0, 0, 0xe6, 0x30, 0x49, 0x75, 0xfb, 0xf4};
  // lock inc dword [0x9000]; out 0x31, al; hlt
  const Bytes started = {0xf0, 0xff, 5, 0, 0x90, 0, 0, 0xe6, 0x31, 0xf4};
  Guest guest({starter, started});
  struct Ports : PortHandler {
    explicit Ports(Guest& guest) : guest(guest) {}
    std::uint32_t In(std::uint16_t, unsigned) override { return 0; }
    void Out(std::uint16_t port, unsigned, std::uint32_t) override {
      wrong += inside.exchange(true);
      wrong += guest.machine->CurrentVcpu() != guest.vcpus[port - 0x30];
      // Its own registers are not for the handler.
      wrong += guest.vcpus[port - 0x30]->SetRegisters({}).ok();
      if (port == 0x30 && idle.exchange(false)) {
        wrong += !guest.vcpus[1]->SetRegisters(Guest::StartOf(1)).ok();
        ++starts;
      }
      std::this_thread::yield();
      inside = false;
    }
    Guest& guest;
    std::atomic<bool> inside = false, idle = true;
    std::atomic<unsigned> wrong = 0, starts = 0;
  } ports(guest);
  REQUIRE(guest.machine->HandlePorts(0x30, 2, ports).ok());
  std::atomic<bool> over = false;
  std::thread other([&] {
    for (unsigned done = 0; !over || done < ports.starts;) {
      if (done == ports.starts) continue;
      CHECK(guest.vcpus[1]->Run().reason == kHalt);
      ++done;
      ports.idle = true;
    }
  });
  CHECK(guest.vcpus[0]->Run().reason == kHalt);
  over = true;
  other.join();
  CHECK(ports.wrong == 0);
  CHECK(ports.starts >= 1);
  CHECK(guest.Word(0x9000) == ports.starts);
  CHECK(guest.machine->CurrentVcpu() == nullptr);
}

TEST_CASE("A VCPU interrupts another one by the embedder") {
  // mov ecx, 100; 1: lea eax, [ecx]; out 0x30, al; 2: pause; mov eax, 101; sub eax, ecx
  // cmp [0x9000], eax; jb 2b; dec ecx; jnz 1b; hlt
  const Bytes send = {0xb9, 0x64, 0,    0, 0,    0x8d, 1,    0xe6, 0x30, 0xf3,
                      0x90, 0xb8, 0x65, 0, 0,    0,    0x29, 0xc8, 0x39, 5,
                      0,    0x90, 0,    0, 0x72, 0xef, 0x49, 0x75, 0xe8, 0xf4};
  // sti; 1: pause; cmp dword [0x9000], 100; jb 1b; cli; hlt
  const Bytes wait = {0xfb, 0xf3, 0x90, 0x83, 0x3d, 0, 0x90, 0, 0, 0x64, 0x72, 0xf5, 0xfa, 0xf4};
  Guest guest({send, wait});
  const std::uint8_t handler[] = {0xff, 5, 0, 0x90, 0, 0, 0xcf};  // inc dword [0x9000]; iret
  std::memcpy(guest.ram + 0x5000, handler, sizeof(handler));
  const std::uint64_t gdt[] = {0, 0x00cf9b000000ffff, 0x00cf93000000ffff};
  std::memcpy(guest.ram + 0x6000, gdt, sizeof(gdt));
  const std::uint64_t gate = 0x00008e0000085000;
  std::memcpy(guest.ram + 0x7000 + 0x40 * 8, &gate, 8);
  SpecialRegisters s = guest.vcpus[1]->GetSpecialRegisters();
  s.gdt = {0x6000, sizeof(gdt) - 1};
  s.idt = {0x7000, 0x7ff};
  REQUIRE(guest.vcpus[1]->SetSpecialRegisters(s).ok());
  struct Ports : PortHandler {
    explicit Ports(Vcpu& to) : to(to) {}
    std::uint32_t In(std::uint16_t, unsigned) override { return 0; }
    void Out(std::uint16_t, unsigned, std::uint32_t) override { to.InjectInterrupt(0x40); }
    Vcpu& to;
  } ports(*guest.vcpus[1]);
  REQUIRE(guest.machine->HandlePorts(0x30, 1, ports).ok());
  CHECK(RunAll(guest) == std::vector<ExitReason>(2, kHalt));
  CHECK(guest.Word(0x9000) == 100);
}

TEST_CASE("A triple fault is its VCPU's end alone") {
  // ud2
  Guest guest({{0x0f, 0x0b}, kSpin});
  Registers r = Guest::StartOf(1);
  r.rsi = 0x9000;
  REQUIRE(guest.vcpus[1]->SetRegisters(r).ok());
  std::thread other([&] { CHECK(guest.vcpus[1]->Run().reason == ExitReason::kInterrupted); });
  CHECK(guest.vcpus[0]->Run().reason == ExitReason::kShutdown);
  const std::uint32_t before = guest.Word(0x9000);
  WaitFor([&] { return guest.Word(0x9000) != before; });
  guest.vcpus[1]->RequestExit();
  other.join();
}

TEST_CASE("There are as many VCPUs as the options say") {
  const auto says = [](const MachineOptions& options, const std::string& part) {
    auto created = Machine::Create(options);
    return !created.ok() && created.error().message.find(part) != std::string::npos;
  };
  CHECK(says(Several(0), "1 to 16"));
  CHECK(says(Several(17), "1 to 16"));
  MachineOptions options = Several(2);
  options.coherence = "deferred";
  CHECK(says(options, "eager"));
  options = Several(2);
  options.engine = "hardware";
  CHECK(says(options, "one CPU"));
  auto machine = Machine::Create(Several(16));
  REQUIRE(machine.ok());
  for (unsigned i = 0; i < 16; ++i) CHECK((*machine)->CreateVcpu().ok());
  const auto more = (*machine)->CreateVcpu();
  REQUIRE_FALSE(more.ok());
  CHECK(more.error().message.find("vcpus is 16") != std::string::npos);
}

TEST_CASE("A machine ends with a VCPU inside an instruction") {
  Guest guest({{0xe4, 0x10, 0xf4}, kSpin});
  CHECK(guest.vcpus[0]->Run().reason == ExitReason::kIo);
  guest.machine.reset();
  Guest next({{0xf4}, {0xf4}});
  CHECK(next.vcpus[0]->Run().reason == kHalt);
}

}  // namespace
}  // namespace alibi
