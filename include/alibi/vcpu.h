// SPDX-License-Identifier: Apache-2.0
// One virtual CPU. The structures have the fields of their counterparts in the KVM API, so that a
// VMM written for one can be moved to the other.
#ifndef ALIBI_INCLUDE_ALIBI_VCPU_H_
#define ALIBI_INCLUDE_ALIBI_VCPU_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "alibi/result.h"

namespace alibi {

// As kvm_regs.
struct Registers {
  std::uint64_t rax = 0, rbx = 0, rcx = 0, rdx = 0;
  std::uint64_t rsi = 0, rdi = 0, rsp = 0, rbp = 0;
  std::uint64_t r8 = 0, r9 = 0, r10 = 0, r11 = 0;
  std::uint64_t r12 = 0, r13 = 0, r14 = 0, r15 = 0;
  std::uint64_t rip = 0, rflags = 2;
};

// As kvm_segment: `limit` is in bytes, with the granularity applied.
struct SegmentRegister {
  std::uint64_t base = 0;
  std::uint32_t limit = 0;
  std::uint16_t selector = 0;
  std::uint8_t type = 0;
  std::uint8_t present = 0, dpl = 0, db = 0, s = 0, l = 0, g = 0, avl = 0;
  std::uint8_t unusable = 0;
};

// As kvm_dtable.
struct TableRegister {
  std::uint64_t base = 0;
  std::uint16_t limit = 0;
};

// As kvm_sregs. The CPL is ss.dpl in protected mode, even of an unusable SS.
struct SpecialRegisters {
  SegmentRegister cs, ds, es, fs, gs, ss;
  SegmentRegister tr, ldt;
  TableRegister gdt, idt;
  std::uint64_t cr0 = 0, cr2 = 0, cr3 = 0, cr4 = 0, cr8 = 0;
  std::uint64_t efer = 0;
  std::uint64_t apic_base = 0;

  // 32-bit protected mode with flat 4 GB segments, paging off, empty descriptor tables: what a
  // multiboot kernel is entered in, and the simplest way to run some bytes.
  static SpecialRegisters FlatProtectedMode();
};

// Why Run() came back.
enum class ExitReason : std::uint8_t {
  kIo,           // IN or OUT of a port without a handler: see Exit::io
  kMmio,         // an access to a physical address without memory or handler: see Exit::mmio
  kHalt,         // HLT, and no interrupt to wake it. Stays halted until there is one (or NMI, or
                 // SetRegisters).
  kShutdown,     // triple fault
  kInterrupted,  // RequestExit()
  kFailed,       // this engine cannot run the guest on: see Vcpu::Failure(). Only "hardware"
};

struct Exit {
  ExitReason reason = ExitReason::kInterrupted;
  struct {
    bool out = false;
    std::uint8_t size = 0;  // 1, 2 or 4
    std::uint16_t port = 0;
    std::uint32_t data = 0;  // of OUT; for IN the caller sets it before the next Run()
  } io;
  struct {
    bool write = false;
    std::uint8_t size = 0;  // 1, 2, 4 or 8
    std::uint64_t address = 0;
    std::uint64_t data = 0;  // of a store; for a load the caller sets it before the next Run()
  } mmio;
};

// All functions belong to one thread at a time, except where noted (and see alibi/machine.h about
// several VCPUs).
//
// After kIo and kMmio the VCPU stands in the middle of an instruction, as it does under KVM: the
// next Run() completes it. Until then
//  - that Run() must come from the same thread, before this thread runs another VCPU;
//  - registers read as before the instruction, and setting them is an error. To change registers at
//    such a point: RequestExit(), and Run() returns kInterrupted behind the instruction. (With the
//    engine "hardware", those of a store may read as behind it.)
// Handlers (see alibi/machine.h) answer without leaving Run() and are some hundred times faster.
//
// The host's signals: while the guest runs, the thread's stack pointer is the guest's. Every signal
// handler that may run on this thread needs SA_ONSTACK; Run() sets up an alternate stack. Run()
// takes SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGRTMIN+3 and SIGRTMIN+4 for itself. (The engine
// "hardware" takes SIGRTMIN+4 and SIGRTMIN+5, and leaves the stack pointer alone.)
class Vcpu {
 public:
  virtual ~Vcpu() = default;

  // Runs the guest until there is a reason to stop. The record lives as long as the VCPU, its
  // `data` fields may be written.
  virtual Exit& Run() = 0;

  virtual Registers GetRegisters() const = 0;
  virtual Status SetRegisters(const Registers& registers) = 0;
  virtual SpecialRegisters GetSpecialRegisters() const = 0;
  // Fails on combinations that no CPU can be in, and on bits that this one does not have: what VM
  // entry checks (SDM vol. 3, 26.3.1, with "unrestricted guest"), segments' types among it. Those
  // of virtual-8086 mode depend on RFLAGS.VM, so SetRegisters() comes first there.
  virtual Status SetSpecialRegisters(const SpecialRegisters& registers) = 0;
  virtual Result<std::uint64_t> GetMsr(std::uint32_t index) const = 0;
  virtual Status SetMsr(std::uint32_t index, std::uint64_t value) = 0;
  // The XSAVE area in standard format: x87, SSE, AVX, AVX-512.
  static constexpr std::size_t kXsaveBytes = 4096;
  virtual Status GetXsave(void* area) const = 0;
  virtual Status SetXsave(const void* area) = 0;

  // Why Run() returned kFailed: one line for a person.
  virtual std::string Failure() const = 0;

  // --- From any thread ---
  // An external interrupt: taken when RFLAGS.IF, the interrupt shadow and CR8 allow it, the
  // highest vector first. The same vector twice before it is taken is one interrupt, as in an APIC.
  virtual void InjectInterrupt(std::uint8_t vector) = 0;
  virtual void InjectNmi() = 0;
  // Run() returns kInterrupted soon; if it is not running, the next one does so at once. Also from
  // signal handlers.
  virtual void RequestExit() = 0;
};

}  // namespace alibi

#endif  // ALIBI_INCLUDE_ALIBI_VCPU_H_
