// SPDX-License-Identifier: Apache-2.0
// A machine without a processor, for tests: guest memory, a VCPU block and an Mmu over it.
#ifndef ALIBI_MMU_TEST_MACHINE_H_
#define ALIBI_MMU_TEST_MACHINE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/memory_file.h"
#include "mmu/mmu.h"

namespace alibi::mmu {

// What emitted code finds in front of a view's table.
inline const PrivilegePeer& PeerOf(HostAddr gs_base) {
  return *(gs_base + kPeerOffset).As<const PrivilegePeer>();
}
inline const SmapPeer& SmapPeerOf(HostAddr gs_base) {
  return *(gs_base + kSmapPeerOffset).As<const SmapPeer>();
}
inline const RootPeer& RootPeerOf(HostAddr gs_base) {
  return *(gs_base + kRootPeerOffset).As<const RootPeer>();
}

class TestMachine : public TraceListener, public MmioHandler {
 public:
  static constexpr u64 kRamBytes = 32 << 20;
  static constexpr u64 kRomBase = 0xf0000000, kRomBytes = 0x10000;
  static constexpr u64 kHole = 0xd0000000;  // device memory
  static constexpr u64 kRoot = 0x1000;      // tables are allocated from here on upwards
  static constexpr u64 kP = kPtePresent, kW = kPteWritable, kU = kPteUser, kA = kPteAccessed,
                       kD = kPteDirty, kPs = kPteLarge, kNx = kPteNoExecute;
  static inline const int kDefaultJump = 0;

  struct CodeWrite {
    u64 address, size;
    bool operator==(const CodeWrite&) const = default;
  };

  explicit TestMachine(unsigned max_views = ViewPool::kMaxViews,
                       Coherence coherence = Coherence::kEager,
                       u32 max_chunks = ViewPool::kMaxChunks) {
    auto created = GuestMemory::Create(u64{1} << 30);
    memory = std::move(created.value());
    Require(memory->AddSlot(PhysAddr(0), kRamBytes).ok());
    Require(memory->AddSlot(PhysAddr(kRomBase), kRomBytes, true).ok());
    memory->set_mmio_handler(this);
    fd_ = CreateMemoryFile("vcpu", kVcpuBlockBytes);
    Require(fd_ >= 0);
    block_ = mmap(nullptr, kVcpuBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    Require(block_ != MAP_FAILED);
    state = new (block_) vcpu::VcpuState{};
    MmuOptions options;
    options.state = state;
    options.memory = memory.get();
    options.vcpu_fd = fd_;
    options.default_jump_target = &kDefaultJump;
    options.listener = this;
    options.max_views = max_views;
    options.coherence = coherence;
    options.max_chunks = max_chunks;
    auto made = Mmu::Create(options);
    Require(made.ok());
    mmu = std::move(made.value());
  }
  ~TestMachine() override {
    mmu.reset();
    munmap(block_, kVcpuBlockBytes);
    close(fd_);
  }

  static void Require(bool condition) { ALIBI_CHECK(condition, "test set-up"); }

  // 64-bit code, 4-level paging with WP and NX, tables at kRoot.
  void EnterLongMode(u64 root = kRoot) {
    state->cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | vcpu::kCr0Wp;
    state->cr4 |= vcpu::kCr4Pae;
    state->cr3 = root;
    state->efer = vcpu::kEferLme | vcpu::kEferLma | vcpu::kEferNxe;
    state->segment[vcpu::kCs].attributes = 0x209b;
    mmu->PagingModeChanged();
  }
  void Enter32Bit(u64 root, bool pae) {
    state->cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | vcpu::kCr0Wp;
    state->cr4 = pae ? vcpu::kCr4Pae : vcpu::kCr4Pse;
    state->cr3 = root;
    state->efer = pae ? vcpu::kEferNxe : 0;
    state->segment[vcpu::kCs].attributes = 0x409b;
    mmu->PagingModeChanged();
  }
  void SetCpl(u8 cpl) {
    state->cpl = cpl;
    mmu->PrivilegeChanged();
  }

  // --- Tables, written behind the Mmu's back (before it sees them) ---
  u64 NewTable() {
    next_table_ += kPageSize;
    return next_table_;
  }
  u64* Host(u64 pa) { return reinterpret_cast<u64*>(memory->HostRw(PhysAddr(pa))); }
  // Address of the entry of `level` (1..4) for `linear`; makes upper tables with `upper` bits.
  u64 EntryAddress(u64 linear, unsigned level = 1, u64 upper = kP | kW | kU, u64 root = kRoot) {
    u64 table = root;
    for (unsigned at = 4;; --at) {
      const u64 address = table + ((linear >> (12 + 9 * (at - 1))) & 511) * 8;
      if (at == level) return address;
      if (!(*Host(address) & kP)) *Host(address) = NewTable() | upper;
      table = *Host(address) & 0xffffffffff000;
    }
  }
  void Map(u64 linear, u64 pa, u64 bits, u64 upper = kP | kW | kU, u64 root = kRoot) {
    *Host(EntryAddress(linear, 1, upper, root)) = pa | bits;
  }

  // --- Through the Mmu ---
  bool Read64(u64 linear, u64* value) {
    return mmu->Read(LinearAddr(linear), value, 8, vcpu::Privilege::kCpl, &fault);
  }
  bool Write64(u64 linear, u64 value) {
    return mmu->Write(LinearAddr(linear), &value, 8, vcpu::Privilege::kCpl, &fault);
  }
  Resolution Resolve(u64 linear, bool write, unsigned size = 8) {
    return mmu->ResolveAccess(LinearAddr(linear), size, write, &fault);
  }
  // Host address that emitted code would access.
  HostAddr HostOf(u64 linear) { return mmu->current_view().HostOf(LinearAddr(linear)); }
  bool InRo(HostAddr host) const { return host - memory->ro_base() < memory->capacity(); }
  bool InRw(HostAddr host) const { return host - memory->rw_base() < memory->capacity(); }
  bool InGuard(HostAddr host) const { return host - memory->guard() < kGuardBytes; }

  // --- TraceListener, MmioHandler ---
  void CodeWritten(PhysAddr address, u64 size) override {
    code_writes.push_back({address.value, size});
  }
  void PageExecuted(LinearAddr page, PhysAddr) override { executed_pages.push_back(page.value); }
  u64 MmioRead(PhysAddr address, unsigned size) override {
    mmio_log.push_back({address.value, size});
    return 0x1122334455667788;
  }
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override {
    mmio_log.push_back({address.value, size});
    mmio_value = value;
  }

  std::unique_ptr<GuestMemory> memory;
  std::unique_ptr<Mmu> mmu;
  vcpu::VcpuState* state = nullptr;
  vcpu::GuestFault fault;
  std::vector<CodeWrite> code_writes, mmio_log;
  std::vector<u64> executed_pages;
  u64 mmio_value = 0;

 private:
  u64 next_table_ = kRoot;
  int fd_ = -1;
  void* block_ = nullptr;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_TEST_MACHINE_H_
