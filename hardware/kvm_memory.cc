// SPDX-License-Identifier: Apache-2.0
#include "hardware/kvm_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace alibi::hardware {

bool KvmMemory::Same(const Region& a, const Region& b) {
  return a.guest_phys_addr == b.guest_phys_addr && a.memory_size == b.memory_size &&
         a.userspace_addr == b.userspace_addr && a.flags == b.flags;
}

Status KvmMemory::Set(const Region& region) {
  Region argument = region;
  if (const int error = kvm_.Vm(KVM_SET_USER_MEMORY_REGION, &argument); error < 0) {
    return Error{fmt::format("KVM refuses {} bytes of memory at {:#x}: {}", region.memory_size,
                             region.guest_phys_addr, std::strerror(-error))};
  }
  return Ok{};
}

Status KvmMemory::Follow() {
  std::vector<Region> wanted;
  memory_.ForEachSlot([&](const mmu::SlotInfo& slot) {
    Region region = {};
    region.flags = slot.read_only ? KVM_MEM_READONLY : 0;
    region.guest_phys_addr = slot.base.value;
    region.memory_size = slot.size;
    region.userspace_addr = slot.host.value;
    wanted.push_back(region);
  });
  // Old ones go first: regions must not overlap.
  std::erase_if(regions_, [&](const Region& region) {
    const auto same = [&](const Region& other) { return Same(region, other); };
    if (std::any_of(wanted.begin(), wanted.end(), same)) return false;
    Region gone = region;
    gone.memory_size = 0;
    return Set(gone).ok();
  });
  for (Region& region : wanted) {
    const auto same = [&](const Region& other) { return Same(region, other); };
    if (std::any_of(regions_.begin(), regions_.end(), same)) continue;
    // The lowest number that is free.
    const auto used = [&](u32 number) {
      return std::any_of(regions_.begin(), regions_.end(),
                         [&](const Region& other) { return other.slot == number; });
    };
    while (used(region.slot)) ++region.slot;
    if (Status status = Set(region); !status.ok()) return status;
    regions_.push_back(region);
  }
  return Ok{};
}

}  // namespace alibi::hardware
