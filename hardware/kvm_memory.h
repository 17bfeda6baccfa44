// SPDX-License-Identifier: Apache-2.0
// KVM's memory regions follow the guest's slots.
#ifndef ALIBI_HARDWARE_KVM_MEMORY_H_
#define ALIBI_HARDWARE_KVM_MEMORY_H_

#include <vector>

#include "base/result.h"
#include "hardware/kvm.h"
#include "mmu/guest_memory.h"

namespace alibi::hardware {

class KvmMemory {
 public:
  KvmMemory(const Kvm& kvm, const mmu::GuestMemory& memory) : kvm_(kvm), memory_(memory) {}
  // Makes KVM's regions what the slots are now. While the VCPU does not run.
  Status Follow();

 private:
  using Region = kvm_userspace_memory_region;
  static bool Same(const Region& a, const Region& b);
  Status Set(const Region& region);

  const Kvm& kvm_;
  const mmu::GuestMemory& memory_;
  std::vector<Region> regions_;
};

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_KVM_MEMORY_H_
