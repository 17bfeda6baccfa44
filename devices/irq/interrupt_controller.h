// SPDX-License-Identifier: Apache-2.0
// What the VCPU loop sees of all interrupt controllers together.
#ifndef ALIBI_DEVICES_IRQ_INTERRUPT_CONTROLLER_H_
#define ALIBI_DEVICES_IRQ_INTERRUPT_CONTROLLER_H_

#include "base/types.h"

namespace alibi::devices {

class InterruptController {
 public:
  virtual ~InterruptController() = default;

  // Whether a maskable interrupt is deliverable to a CPU whose task priority register holds `tpr`
  // (CR8 << 4). The CPU's IF and interrupt shadow are the caller's business.
  virtual bool InterruptPending(u8 tpr) = 0;

  // The interrupt-acknowledge cycle: takes the interrupt of highest priority and yields its vector.
  // A request that was withdrawn since yields the controller's spurious vector, as in hardware.
  virtual u8 Acknowledge() = 0;

  // A byte that always holds the priority class (vector >> 4) of the highest interrupt that waits
  // for nothing but the TPR, 0 if there is none: after `mov cr8, x` translated code has to leave
  // for the VCPU loop exactly if x < *TprThreshold(). Constant address.
  virtual const u8* TprThreshold() const = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_INTERRUPT_CONTROLLER_H_
