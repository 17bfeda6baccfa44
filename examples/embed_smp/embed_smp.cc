// SPDX-License-Identifier: Apache-2.0
// A machine with several CPUs, each run by a thread of this program: they count the primes below
// 2,000,000, each taking the next thousand numbers until there are none.
//
//   embed_smp [CPUS]      1 to 16; 4
//
// The first CPU starts the others: a store of an address to port 10h + N lets CPU N begin there. It
// leaves Run(), so that the thread behind it can set the other's registers and start its thread.
// Port 20h takes what a CPU has counted. That is a handler, which is called for one CPU at a time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "alibi/machine.h"

namespace {

constexpr std::uint64_t kMemoryBytes = 1 << 20, kCodeAt = 0x1000;
constexpr std::uint16_t kStartPort = 0x10, kCountPort = 0x20;

constexpr std::uint8_t kCode[] = {
    0xbb, 0x01, 0x00, 0x00, 0x00,                    // mov ebx, 1
    0xeb, 0x0a,                                      // jmp 2f
    0x8d, 0x53, 0x10,                                // 1: lea edx, [ebx + kStartPort]
    0xb8, 0x15, 0x10, 0x00, 0x00,                    // mov eax, work
    0xef,                                            // out dx, eax
    0x43,                                            // inc ebx
    0x39, 0xcb,                                      // 2: cmp ebx, ecx
    0x72, 0xf2,                                      // jb 1b
    0x31, 0xed,                                      // work: xor ebp, ebp
    0xb8, 0xe8, 0x03, 0x00, 0x00,                    // next: mov eax, 1000
    0xf0, 0x0f, 0xc1, 0x05, 0x00, 0x20, 0x00, 0x00,  // lock xadd [0x2000], eax
    0x3d, 0x80, 0x84, 0x1e, 0x00,                    // cmp eax, 2000000
    0x73, 0x2e,                                      // jae done
    0x89, 0xc6,                                      // mov esi, eax
    0x8d, 0xb8, 0xe8, 0x03, 0x00, 0x00,              // lea edi, [eax + 1000]
    0xb9, 0x02, 0x00, 0x00, 0x00,                    // number: mov ecx, 2
    0x39, 0xce,                                      // cmp esi, ecx
    0x72, 0x16,                                      // jb composite
    0x89, 0xc8,                                      // try: mov eax, ecx
    0xf7, 0xe1,                                      // mul ecx
    0x39, 0xf0,                                      // cmp eax, esi
    0x77, 0x0d,                                      // ja prime
    0x89, 0xf0,                                      // mov eax, esi
    0x31, 0xd2,                                      // xor edx, edx
    0xf7, 0xf1,                                      // div ecx
    0x85, 0xd2,                                      // test edx, edx
    0x74, 0x04,                                      // jz composite
    0x41,                                            // inc ecx
    0xeb, 0xeb,                                      // jmp try
    0x45,                                            // prime: inc ebp
    0x46,                                            // composite: inc esi
    0x39, 0xfe,                                      // cmp esi, edi
    0x72, 0xdc,                                      // jb number
    0xeb, 0xbe,                                      // jmp next
    0x89, 0xe8,                                      // done: mov eax, ebp
    0xe7, 0x20,                                      // out kCountPort, eax
    0xf4,                                            // hlt
};

// Ends the program with what a Result says when it is none.
template <class T>
T Require(alibi::Result<T> result) {
  if (result.ok()) return std::move(result.value());
  std::fprintf(stderr, "embed_smp: %s\n", result.error().message.c_str());
  std::exit(1);
}

struct Counts : alibi::PortHandler {
  std::uint32_t In(std::uint16_t, unsigned) override { return 0; }
  void Out(std::uint16_t, unsigned, std::uint32_t value) override {
    ++cpus;
    primes += value;
  }
  unsigned cpus = 0;
  std::uint64_t primes = 0;
};

class Board {
 public:
  explicit Board(unsigned cpus) {
    alibi::MachineOptions options;
    options.vcpus = cpus;
    machine_ = Require(alibi::Machine::Create(options));
    void* memory = Require(machine_->AddMemory(0, kMemoryBytes));
    std::memcpy(static_cast<std::uint8_t*>(memory) + kCodeAt, kCode, sizeof(kCode));
    Require(machine_->HandlePorts(kCountPort, 1, counts_));
    for (unsigned i = 0; i < cpus; ++i) cpus_.push_back(Require(machine_->CreateVcpu()));
    threads_.resize(cpus);
  }
  // The first CPU's thread is this one.
  const Counts& Run() {
    Reset(0, kCodeAt);
    RunCpu(0);
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    return counts_;
  }

 private:
  void Reset(unsigned cpu, std::uint64_t address) {
    alibi::Registers registers;
    registers.rip = address;
    registers.rcx = cpus_.size();
    Require(cpus_[cpu]->SetSpecialRegisters(alibi::SpecialRegisters::FlatProtectedMode()));
    Require(cpus_[cpu]->SetRegisters(registers));
  }
  void RunCpu(unsigned cpu) {
    for (;;) {
      const alibi::Exit& exit = cpus_[cpu]->Run();
      if (exit.reason == alibi::ExitReason::kHalt) return;
      if (exit.reason != alibi::ExitReason::kIo || !exit.io.out) {
        std::fprintf(stderr, "embed_smp: CPU %u stopped for reason %d\n", cpu,
                     static_cast<int>(exit.reason));
        std::exit(1);
      }
      const unsigned other = exit.io.port - kStartPort;
      if (other == 0 || other >= cpus_.size() || threads_[other].joinable()) continue;
      Reset(other, exit.io.data);
      threads_[other] = std::thread([this, other] { RunCpu(other); });
    }
  }

  Counts counts_;
  std::unique_ptr<alibi::Machine> machine_;
  std::vector<alibi::Vcpu*> cpus_;
  std::vector<std::thread> threads_;
};

}  // namespace

int main(int argc, char** argv) {
  Board board(argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 4);
  const Counts& counts = board.Run();
  std::printf("%u CPUs have counted %llu primes below 2000000.\n", counts.cpus,
              static_cast<unsigned long long>(counts.primes));
}
