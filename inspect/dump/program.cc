// SPDX-License-Identifier: Apache-2.0
#include "inspect/dump/program.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "machine/machine.h"
#include "vcpu/descriptors.h"
#include "vcpu/reset.h"

namespace alibi::vmm {
namespace {

// Physical memory:
//   0x1000    PML4; the tables that follow it are handed out upwards
//   0x10000   the stack's end
//   0x11000   HLT, where the code returns to
//   0x100000  the code, if it lies elsewhere in the linear space
constexpr u64 kRamBytes = u64{16} << 20;
constexpr u64 kFirstTable = 0x1000, kTablesEnd = 0xf000;
constexpr u64 kStackTop = 0x10000;
constexpr u64 kHaltAddress = 0x11000;
constexpr u64 kLowestCode = 0x20000;
constexpr u64 kIdentityBytes = u64{2} << 20;
constexpr u64 kMaxCode = 0x10000;
constexpr u64 kPresentWritable = 3;
// An exact identity map, 4 KB pages: PML4, PDPT, PD, PT are the first four tables.
constexpr u64 kIdentityPt = kFirstTable + 3 * kPageSize;

class PageTables {
 public:
  explicit PageTables(mmu::GuestMemory& memory) : memory_(memory) { NewTable(); }
  u64 root() const { return kFirstTable; }

  void Map(u64 linear, u64 physical) {
    u64 table = kFirstTable;
    for (unsigned shift = 39; shift > 12; shift -= 9) {
      const u64 slot = table + ((linear >> shift) & 0x1ff) * 8;
      u64 entry = Read(slot);
      if (entry == 0) {
        entry = NewTable() | kPresentWritable;
        Write(slot, entry);
      }
      table = entry & ~kPageMask;
    }
    Write(table + ((linear >> 12) & 0x1ff) * 8, physical | kPresentWritable);
  }

 private:
  u64 NewTable() {
    ALIBI_CHECK(next_ < kTablesEnd, "64 KB of code need few page tables");
    return std::exchange(next_, next_ + kPageSize);
  }
  u64 Read(u64 address) const {
    u64 value = 0;
    memory_.ReadPhys(PhysAddr(address), &value, sizeof(value));
    return value;
  }
  void Write(u64 address, u64 value) {
    memory_.LoadPhys(PhysAddr(address), reinterpret_cast<const u8*>(&value), sizeof(value));
  }

  mmu::GuestMemory& memory_;
  u64 next_ = kFirstTable;
};

void EnterLongMode(vcpu::VcpuState& state, u64 cr3) {
  state.cr0 |= vcpu::kCr0Pg | vcpu::kCr0Wp | vcpu::kCr0Ne | vcpu::kCr0Mp;
  state.cr3 = cr3;
  // Every vector instruction of the CPU may be shown.
  state.cr4 = vcpu::kCr4Pae | vcpu::kCr4Osfxsr | vcpu::kCr4Osxmmexcpt | vcpu::kCr4Osxsave;
  state.xcr0 = vcpu::CpuidPolicy::ForHost().xcr0_valid();
  state.efer = vcpu::kEferLme | vcpu::kEferLma;
  constexpr u16 kLong = 0x2000, kBig = 0x4000;
  u16& attributes = state.segment[vcpu::kCs].attributes;
  attributes = static_cast<u16>((attributes & ~kBig) | kLong);
}

}  // namespace

u64 ProgramPteAddress(LinearAddr at) {
  ALIBI_CHECK(at.value < kIdentityBytes, "the first page table maps 2 MB");
  return kIdentityPt + at.InPage().number * 8;
}

Result<std::unique_ptr<PcMachine>> MakeProgramMachine(const std::vector<u8>& code,
                                                      LinearAddr address, unsigned code_bits,
                                                      const std::string& policy,
                                                      runtime::ExecutionSink* executions) {
  if (code.empty() || code.size() > kMaxCode) {
    return Error{fmt::format("{} bytes of code; give 1 to {}", code.size(), kMaxCode)};
  }
  const u64 at = address.value, end = at + code.size();
  const bool identity = at < kIdentityBytes;
  if (code_bits == 32 && (at < kLowestCode || end > kRamBytes || end < at)) {
    return Error{
        fmt::format("32-bit code lies between {:#x} and {:#x} here", kLowestCode, kRamBytes)};
  }
  const u64 sign = at >> 47;
  if (code_bits == 64 && ((sign != 0 && sign != 0x1ffff) || (end - 1) >> 47 != sign || end < at ||
                          (identity && (at < kLowestCode || end > kIdentityBytes)))) {
    return Error{
        fmt::format("64-bit code lies between {:#x} and {:#x}, or at any higher canonical "
                    "address",
                    kLowestCode, kIdentityBytes)};
  }

  PcMachineConfig config;
  config.machine.engine = runtime::EngineKind::kTranslate;
  config.machine.policy = policy;
  config.machine.executions = executions;
  config.ram_bytes = kRamBytes;
  config.restart_on_reset = false;
  auto created = PcMachine::Create(config);
  if (!created.ok()) return created.error();
  PcMachine& pc = **created;
  mmu::GuestMemory& memory = pc.machine().memory();
  vcpu::VcpuState& state = pc.machine().state();
  vcpu::ResetToMultiboot(state, vcpu::CpuidPolicy::ForHost(), 0, 0, 0);

  u64 physical = at;
  if (code_bits == 64) {
    PageTables tables(memory);
    for (u64 page = 0; page < kIdentityBytes; page += kPageSize) tables.Map(page, page);
    if (!identity) {
      physical = kProgramAddress.value + (at & kPageMask);
      for (u64 offset = 0; offset < (at & kPageMask) + code.size(); offset += kPageSize) {
        tables.Map((at & ~kPageMask) + offset, kProgramAddress.value + offset);
      }
    }
    EnterLongMode(state, tables.root());
  }
  static constexpr u8 kHlt[] = {0xf4};
  memory.LoadPhys(PhysAddr(physical), code.data(), code.size());
  memory.LoadPhys(PhysAddr(kHaltAddress), kHlt, sizeof(kHlt));
  const u64 word = code_bits / 8;
  state.gpr[vcpu::kRsp] = kStackTop - word;
  memory.LoadPhys(PhysAddr(kStackTop - word), reinterpret_cast<const u8*>(&kHaltAddress), word);
  state.rip = at;
  pc.machine().StateChanged();
  return created;
}

std::string RunLimited(PcMachine& machine, double seconds) {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::thread watch([&] {
    std::unique_lock lock(mutex);
    if (!ended.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done; })) {
      machine.RequestStop();
    }
  });
  const PcEnd end = machine.Run();
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  ended.notify_one();
  watch.join();
  const u64 rip = machine.machine().state().rip;
  switch (end) {
    case PcEnd::kDebugExit:
      return fmt::format("the guest ended with status {}", machine.exit_status());
    case PcEnd::kRequested:
      return fmt::format("still running after {} s", seconds);
    case PcEnd::kTripleFault:
      return fmt::format("the guest shut down (triple fault) near {:#x}", rip);
    case PcEnd::kReset:
    case PcEnd::kResetLoop:
      return "the guest reset the machine";
    case PcEnd::kNoBootDevice:
      return "the firmware found nothing to boot";
    case PcEnd::kPanicked:
      return "the guest's kernel panicked";
    case PcEnd::kPowerOff:
      return "the guest switched the machine off";
    case PcEnd::kHaltedForever:
      return rip == kHaltAddress + 1 ? "the code returned"
                                     : fmt::format("the guest halted at {:#x}", rip);
    case PcEnd::kOutputFailed:
      return "its output failed";
    case PcEnd::kEngineFailed:
      return "ended: " + machine.machine().engine().failure();
    case PcEnd::kHostRefused:
      return machine.host_error();
  }
  return "";
}

}  // namespace alibi::vmm
