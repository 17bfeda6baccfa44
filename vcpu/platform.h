// SPDX-License-Identifier: Apache-2.0
// What the VCPU needs of the machine around it: reactions to writes of registers whose effect
// lies outside the CPU core. Declared here, implemented by the VMM.
#ifndef ALIBI_VCPU_PLATFORM_H_
#define ALIBI_VCPU_PLATFORM_H_

#include "base/types.h"
#include "vcpu/hypercall.h"

namespace alibi::vcpu {

class Platform {
 public:
  virtual ~Platform() = default;

  // Told after VcpuState changed.
  virtual void ApicBaseWritten() = 0;      // apic_base (MSR 1Bh)
  virtual void TaskPriorityWritten() = 0;  // cr8: a pending interrupt may now be deliverable
  virtual void TscWritten() {}             // tsc_offset
  // The guest reads the TSC, when the host's shows `host_tsc`. Only while VcpuState::tsc_watched;
  // may change tsc_offset, which counts at once.
  virtual void TscReading([[maybe_unused]] u64 host_tsc) {}

  // From any thread: user code that went on beside other VCPUs has stopped.
  virtual void UserCodeStopped() {}

  // The guest executes PAUSE. Told to machines of several VCPUs: it may wait for another one.
  virtual void Pausing() {}

  // FERR# is asserted: an unmasked x87 exception is pending, CR0.NE is clear, and a waiting
  // instruction is reached, which then waits for an interrupt (SDM vol. 1, 8.7.2). False: the wire
  // leads nowhere, so that nobody could answer; it is an #MF all the same.
  virtual bool NumericError() { return false; }

  // IA32_TSC_DEADLINE and the x2APIC's registers (MSRs 800h to 8ffh) live in the local APIC.
  // False: the access is a #GP(0), as everywhere without one.
  virtual bool ReadApicMsr([[maybe_unused]] u32 index, [[maybe_unused]] u64* value) {
    return false;
  }
  virtual bool WriteApicMsr([[maybe_unused]] u32 index, [[maybe_unused]] u64 value) {
    return false;
  }

  // VMCALL. Without hypercalls it is #UD; `result` is 0 before the call, and what EDX:EAX become
  // behind it.
  virtual bool OffersHypercalls() const { return false; }
  virtual void Hypercall([[maybe_unused]] const HypercallArguments& arguments,
                         [[maybe_unused]] u64* result) {}
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_PLATFORM_H_
