// SPDX-License-Identifier: Apache-2.0
// Who watches what a machine does, as `alibi run --trace` does.
#ifndef ALIBI_MACHINE_OBSERVER_H_
#define ALIBI_MACHINE_OBSERVER_H_

#include "base/types.h"

namespace alibi::vmm {

enum class AccessKind : u8 { kPortRead, kPortWrite, kMmioRead, kMmioWrite };
enum class InterruptKind : u8 { kMaskable, kNmi };

// All calls come on the VCPU's thread.
class MachineObserver {
 public:
  virtual ~MachineObserver() = default;
  // An access that reached the machine: before a write, after a read. `address` is a port or a
  // guest-physical address.
  virtual void OnAccess(AccessKind kind, u64 address, unsigned size, u64 value) = 0;
  // The VCPU that runs takes an interrupt at `rip`.
  virtual void OnInterrupt(InterruptKind kind, u8 vector, u64 rip) = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_OBSERVER_H_
