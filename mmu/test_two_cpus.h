// SPDX-License-Identifier: Apache-2.0
// Two VCPUs' Mmus over one memory, for tests.
#ifndef ALIBI_MMU_TEST_TWO_CPUS_H_
#define ALIBI_MMU_TEST_TWO_CPUS_H_

#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mmu/beside.h"
#include "mmu/test_machine.h"

namespace alibi::mmu {

inline constexpr u64 kP = TestMachine::kP, kW = TestMachine::kW, kU = TestMachine::kU,
                     kA = TestMachine::kA, kD = TestMachine::kD;
inline constexpr u64 kUsed = kP | kW | kU | kA | kD;
inline constexpr u64 kRoot = 0x1000, kPdpt = 0x2000, kDirectory = 0x3000, kLeaf = 0x4000;
inline constexpr u64 kLinear = 0x40000000, kTableAlias = kLinear + 0x10000,
                     kDirectoryAlias = kTableAlias + 0x1000;
inline constexpr u64 kPage = 0x100000, kOther = 0x101000;

// One of the two: its VCPU, its descriptors of the memory, its Mmu.
struct Cpu : TraceListener {
  Cpu(GuestMemory& descriptors, MmuGroup* group, unsigned number) : memory(descriptors) {
    fd = CreateMemoryFile("vcpu", kVcpuBlockBytes);
    block = mmap(nullptr, kVcpuBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    TestMachine::Require(fd >= 0 && block != MAP_FAILED);
    state = new (block) vcpu::VcpuState{};
    MmuOptions options;
    options.state = state;
    options.memory = &memory;
    options.vcpu_fd = fd;
    options.default_jump_target = &TestMachine::kDefaultJump;
    options.listener = this;
    options.max_views = 8;
    options.group = group;
    auto made = Mmu::Create(options);
    TestMachine::Require(made.ok());
    mmu = std::move(made.value());
    state->number = static_cast<u8>(number);
    group->mmu[number] = mmu.get();
    group->count = number + 1;
  }
  ~Cpu() override {
    mmu.reset();
    munmap(block, kVcpuBlockBytes);
    close(fd);
  }

  void EnterLongMode(u64 root) {
    state->cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | vcpu::kCr0Wp;
    state->cr4 |= vcpu::kCr4Pae;
    state->efer = vcpu::kEferLme | vcpu::kEferLma | vcpu::kEferNxe;
    state->segment[vcpu::kCs].attributes = 0x209b;
    state->cr3 = root;
    mmu->PagingModeChanged();
  }
  bool Write(u64 linear, u64 value) {
    return mmu->Write(LinearAddr(linear), &value, 8, vcpu::Privilege::kCpl, &fault);
  }
  Resolution Resolve(u64 linear, bool write) {
    return mmu->ResolveAccess(LinearAddr(linear), 8, write, &fault);
  }
  u64 HostOf(u64 linear) { return mmu->current_view().HostOf(LinearAddr(linear)).value; }
  // The page that it leads to, in either window.
  u64 PageAt(u64 linear) {
    return (HostAddr(HostOf(linear)) - memory.ro_base()) % memory.capacity();
  }
  bool CanStore(u64 linear) {
    return HostAddr(HostOf(linear)) - memory.rw_base() < memory.capacity();
  }
  void CodeWritten(PhysAddr address, u64 size) override { code.push_back({address, size}); }
  void MemoryMapChanged() override { ++map_changes; }

  GuestMemory& memory;
  vcpu::VcpuState* state = nullptr;
  std::unique_ptr<Mmu> mmu;
  vcpu::GuestFault fault;
  std::vector<CodeNews> code;
  unsigned map_changes = 0;
  int fd = -1;
  void* block = nullptr;
};

struct TwoCpus : BesideVcpus {
  TwoCpus() {
    auto created = GuestMemory::Create(u64{1} << 30);
    memory = std::move(created.value());
    TestMachine::Require(memory->AddSlot(PhysAddr(0), 32 << 20).ok());
    auto shared = memory->Share();
    TestMachine::Require(shared.ok());
    share = std::move(*shared);
    group.vcpus = this;
    a = std::make_unique<Cpu>(*memory, &group, 0);
    b = std::make_unique<Cpu>(*share, &group, 1);
    // One set of tables for both, which maps its own leaf table and directory, too.
    Host(kRoot)[0] = kPdpt | kUsed;
    Host(kPdpt)[1] = kDirectory | kUsed;
    Host(kDirectory)[0] = kLeaf | kUsed;
    Host(kLeaf)[0] = kPage | kUsed;
    Host(kLeaf)[(kTableAlias - kLinear) >> 12] = kLeaf | kUsed;
    Host(kLeaf)[(kDirectoryAlias - kLinear) >> 12] = kDirectory | kUsed;
    for (Cpu* cpu : {a.get(), b.get()}) cpu->EnterLongMode(kRoot);
  }
  ~TwoCpus() override { group.count = 0; }

  u64* Host(u64 address) { return reinterpret_cast<u64*>(memory->HostRw(PhysAddr(address))); }
  u8 FlagsOf(Cpu& cpu, u64 address) { return cpu.memory.Info(PhysAddr(address))->flags; }
  bool HasMachine(unsigned vcpu) override { return has_machine[vcpu]; }
  // The other one has had it, if it has something to do with it.
  bool TakeMachine(unsigned vcpu) override {
    has_machine[vcpu] = true;
    ++takes;
    const auto meanwhile = std::exchange(while_waiting, nullptr);
    if (meanwhile) {
      has_machine[vcpu] = false;
      has_machine[1 - vcpu] = true;
      meanwhile();
      has_machine[1 - vcpu] = false;
      has_machine[vcpu] = true;
    }
    Mmu& mmu = *(vcpu == 0 ? a : b)->mmu;
    mmu.HearNews();
    mmu.SettleTraces();
    return meanwhile != nullptr;
  }
  void HoldBeside(unsigned vcpu) override {
    TestMachine::Require(!std::exchange(held[vcpu], true));
  }
  void EndHoldBeside(unsigned vcpu) override { held[vcpu] = false; }
  void StopBeside(unsigned vcpu) override {
    TestMachine::Require(!held[vcpu]);
    has_machine[vcpu] = true;  // it waits for it
    stopped.push_back(vcpu);
  }
  void AttendBeside(unsigned vcpu) override { attended.push_back(vcpu); }

  std::unique_ptr<GuestMemory> memory, share;
  MmuGroup group;
  std::unique_ptr<Cpu> a, b;
  std::vector<unsigned> stopped, attended;
  // Where one does not say otherwise, both do what needs the machine.
  bool has_machine[2] = {true, true}, held[2] = {};
  unsigned takes = 0;
  std::function<void()> while_waiting;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_TEST_TWO_CPUS_H_
