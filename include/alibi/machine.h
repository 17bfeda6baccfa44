// SPDX-License-Identifier: Apache-2.0
// Alibi as a library: x86 virtual machines in an ordinary process, without hardware support.
//
//   auto machine = alibi::Machine::Create();
//   void* ram = machine.value()->AddMemory(0, 1 << 20).value();   // fill it with code
//   alibi::Vcpu* vcpu = machine.value()->CreateVcpu().value();    // set its registers
//   while (vcpu->Run().reason == alibi::ExitReason::kIo) { ... }
//
// With several VCPUs each is run by a thread of its own:
//
//   options.vcpus = 4;                                            // four times CreateVcpu()
//   std::thread thread([vcpu] { while (vcpu->Run().reason == ...) { ... } });
//
// Who may call what, and when:
//  - A VCPU belongs to one thread at a time. All of them may be in Run() at once. Each comes back
//    for reasons of its own; the others go on.
//  - "From any thread" (alibi/vcpu.h): interrupts, NMIs and RequestExit(), of any VCPU.
//  - "With the machine": one caller at a time, which the library sees to. A handler is called on
//    the thread of the VCPU whose instruction it is, with the machine: one handler at a time, while
//    other VCPUs execute guest code and wait if they need the machine, too. So a handler shall be
//    short, and must not wait for a thread that calls something for which the machine is needed.
//  - Another VCPU's registers may be set from a handler, if that one does not run: so one CPU
//    starts another. Of one that runs they cannot be set, and read as anything.
//
// The host needs BMI2, AVX and FSGSBASE (Linux 5.9); Create() says so if it lacks one.
// Failures are Result values with one line for a person (alibi/result.h).
#ifndef ALIBI_INCLUDE_ALIBI_MACHINE_H_
#define ALIBI_INCLUDE_ALIBI_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "alibi/result.h"
#include "alibi/vcpu.h"

namespace alibi {

struct MachineOptions {
  // What runs the guest, as for `alibi run --engine`: "translate"; "auto" and "direct", which run
  // user code in processes that one forked by Create() forks (call it while the program is small);
  // or "hardware", which needs /dev/kvm and sees nothing of `policy`, `coherence` and translations.
  std::string engine = "translate";
  // Which user code runs directly under "auto", as for `alibi run --engine-policy`; "": the
  // engine's own: "cost-model", or "always" under "direct" (docs/policies.md).
  std::string engine_policy;
  // Adaptation policy, as for `alibi run --policy` (docs/policies.md).
  std::string policy = "hysteresis";
  // How shadow page tables follow the guest's: eager, deferred, dropped (docs/design.md); with
  // several VCPUs eager alone. With the latter two, page tables changed by WriteMemory() count from
  // the guest's next TLB flush, or when the VCPU's registers are next set.
  std::string coherence = "eager";
  // The CPU that the guest sees, as for `alibi run --cpu` (README): a model, or MODEL,enforce to
  // fail on a host that lacks instructions of it.
  std::string cpu = "host";
  std::uint64_t translation_cache_bytes = std::uint64_t{64} << 20;  // 1 MB to 1 GB; of each VCPU
  // The most memory all slots together can have. Costs address space only.
  std::uint64_t most_memory_bytes = std::uint64_t{256} << 30;
  // A folder where translations are kept for later runs, as for `alibi run --tc-cache`: made if it
  // is missing; it must be the user's own and nobody else's to write. "": none are kept.
  std::string translation_store;
  // 1 to 16. Several execute guest code beside each other, with translations of their own; not with
  // the engine "hardware".
  unsigned vcpus = 1;
};

// Handlers are called during Vcpu::Run(), on its thread, from inside the guest's instruction. They
// may inject interrupts and request exits; they must not call Run() or set registers of that VCPU.
class PortHandler {
 public:
  virtual ~PortHandler() = default;
  virtual std::uint32_t In(std::uint16_t port, unsigned size) = 0;
  virtual void Out(std::uint16_t port, unsigned size, std::uint32_t value) = 0;
};

class MmioHandler {
 public:
  virtual ~MmioHandler() = default;
  // size is 1, 2, 4 or 8; other accesses come in parts.
  virtual std::uint64_t Read(std::uint64_t address, unsigned size) = 0;
  virtual void Write(std::uint64_t address, unsigned size, std::uint64_t value) = 0;
};

struct CounterValue {
  std::string name;
  std::string meaning;
  std::uint64_t value = 0;
};

enum MemoryFlags : std::uint32_t {
  kMemoryReadOnly = 1,  // the guest's stores are MMIO
};

class Machine {
 public:
  static Result<std::unique_ptr<Machine>> Create(const MachineOptions& options = {});
  // No VCPU runs, and none is inside an instruction but one that this thread has left.
  virtual ~Machine() = default;

  // --- Memory, with the machine: from a handler, or when a VCPU has left Run() ---
  // With several VCPUs the others may run on. It is enough that one is not in Run(), and not inside
  // an instruction (see Vcpu), or has left it on this very thread; if there is none, the calls
  // fail.
  // Adds a slot of zeroed memory, base and size in pages of 4096. The pointer is to its first byte
  // and valid until the slot is removed. Stores through it are not seen by translations and shadow
  // page tables: to change code or page tables that have been used, call WriteMemory().
  virtual Result<void*> AddMemory(std::uint64_t guest_physical, std::uint64_t size,
                                  std::uint32_t flags = 0) = 0;
  virtual Status RemoveMemory(std::uint64_t guest_physical) = 0;
  // False, and nothing happens, unless every byte lies in slots.
  virtual bool ReadMemory(std::uint64_t guest_physical, void* to, std::uint64_t size) const = 0;
  virtual bool WriteMemory(std::uint64_t guest_physical, const void* from, std::uint64_t size) = 0;

  // --- Handlers; they must outlive the machine, and ranges of a kind must not overlap. When memory
  // may be added ---
  virtual Status HandlePorts(std::uint16_t first, std::uint32_t count, PortHandler& handler) = 0;
  virtual Status HandleMmio(std::uint64_t base, std::uint64_t size, MmioHandler& handler) = 0;

  // The next VCPU, in its power-up state (real mode, f000:fff0); it lives as long as the machine.
  // Fails when there are MachineOptions::vcpus. CPUID and the boot flag of APIC_BASE number them
  // from 0 on. None waits for a startup IPI: there is no local APIC but the embedder's.
  virtual Result<Vcpu*> CreateVcpu() = 0;
  // From a handler: the VCPU whose instruction it is. Elsewhere null.
  virtual Vcpu* CurrentVcpu() = 0;

  // Every counter, of all VCPUs, for statistics; while none runs.
  virtual std::vector<CounterValue> Counters() const = 0;
};

}  // namespace alibi

#endif  // ALIBI_INCLUDE_ALIBI_MACHINE_H_
