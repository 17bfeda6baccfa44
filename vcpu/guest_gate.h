// SPDX-License-Identifier: Apache-2.0
// Around guest code, which several VCPUs execute beside each other: whoever executes one passes
// here on the way in and out. Outside it a VCPU's own things are its own; the machine, which one
// VCPU has at a time, is taken where it is needed (mmu::BesideVcpus).
#ifndef ALIBI_VCPU_GUEST_GATE_H_
#define ALIBI_VCPU_GUEST_GATE_H_

namespace alibi::vcpu {

class GuestGate {
 public:
  virtual ~GuestGate() = default;
  // The VCPU is going to execute guest code: it gives the machine up, if it has it.
  virtual void EnterGuest() = 0;
  // It has left guest code, and knows what others have done to its page tables. Guest vector state
  // may be live.
  virtual void LeaveGuest() = 0;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_GUEST_GATE_H_
