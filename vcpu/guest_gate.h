// SPDX-License-Identifier: Apache-2.0
// Between the machine, which one of several VCPUs has at a time, and guest code, which they execute
// beside each other: whoever executes a VCPU passes here on the way in and out.
#ifndef ALIBI_VCPU_GUEST_GATE_H_
#define ALIBI_VCPU_GUEST_GATE_H_

namespace alibi::vcpu {

class GuestGate {
 public:
  virtual ~GuestGate() = default;
  // The VCPU is going to execute guest code: it gives the machine up.
  virtual void EnterGuest() = 0;
  // It has the machine, waits for it if need be. Guest vector state may be live.
  virtual void LeaveGuest() = 0;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_GUEST_GATE_H_
