// SPDX-License-Identifier: Apache-2.0
// Flat guest memory for tests of system semantics: identity-mapped, faults where it is told to,
// and a record of the notifications.
#ifndef ALIBI_VCPU_FAKE_MEMORY_H_
#define ALIBI_VCPU_FAKE_MEMORY_H_

#include <cstring>
#include <set>
#include <vector>

#include "base/types.h"
#include "vcpu/memory.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

class FakeMemory : public LinearMemory {
 public:
  static constexpr u64 kSize = u64{1} << 21;

  explicit FakeMemory(const VcpuState& state) : state_(state), bytes_(kSize) {}

  bool Read(LinearAddr address, void* out, unsigned size, Privilege who,
            GuestFault* fault) override {
    if (!Allowed(address, size, who, false, fault)) return false;
    for (unsigned i = 0; i < size; ++i) static_cast<u8*>(out)[i] = At(address.value + i);
    return true;
  }
  bool Write(LinearAddr address, const void* data, unsigned size, Privilege who,
             GuestFault* fault) override {
    if (!Allowed(address, size, who, true, fault)) return false;
    for (unsigned i = 0; i < size; ++i) At(address.value + i) = static_cast<const u8*>(data)[i];
    ++writes;
    return true;
  }
  bool ProbeWrite(LinearAddr address, unsigned size, Privilege who, GuestFault* fault) override {
    return Allowed(address, size, who, true, fault);
  }

  bool LoadPdptes(u64 cr3) override {
    pdpte_loads.push_back(cr3);
    return good_pdptes;
  }
  void PagingModeChanged() override { ++paging_mode_changes; }
  void AddressSpaceLoaded() override { ++address_space_loads; }
  void InvalidateAll() override { ++invalidations; }
  void InvalidatePage(LinearAddr address) override { invalidated.push_back(address.value); }
  void PrivilegeChanged() override { ++privilege_changes; }

  // Accesses to this page give a #PF; present decides bit 0 of its error code.
  void Poison(u64 address) { poisoned_.insert(address >> 12); }
  void PoisonWrites(u64 address) { read_only_.insert(address >> 12); }
  void SupervisorOnly(u64 address) { supervisor_.insert(address >> 12); }
  void Heal() {
    poisoned_.clear();
    read_only_.clear();
    supervisor_.clear();
  }

  template <class T>
  T Get(u64 address) {
    T value;
    u8 bytes[sizeof(T)];
    for (unsigned i = 0; i < sizeof(T); ++i) bytes[i] = At(address + i);
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
  template <class T>
  void Put(u64 address, T value) {
    u8 bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    for (unsigned i = 0; i < sizeof(T); ++i) At(address + i) = bytes[i];
  }

  std::vector<u8> Snapshot() const { return bytes_; }

  int paging_mode_changes = 0, address_space_loads = 0, invalidations = 0, privilege_changes = 0;
  int writes = 0;
  std::vector<u64> invalidated, pdpte_loads;
  bool good_pdptes = true;

 private:
  // All of linear memory wraps around in the array, so that high addresses need no special case.
  u8& At(u64 address) { return bytes_[address % kSize]; }

  bool Allowed(LinearAddr address, unsigned size, Privilege who, bool write, GuestFault* fault) {
    bool user = who == Privilege::kUser || (who == Privilege::kCpl && state_.cpl == 3);
    for (u64 a = address.value; a < address.value + size; ++a) {
      u64 page = a >> 12;
      bool absent = poisoned_.count(page);
      bool denied = (write && read_only_.count(page)) || (user && supervisor_.count(page));
      if (!absent && !denied) continue;
      u32 code = (absent ? 0 : kPfPresent) | (write ? kPfWrite : 0) | (user ? kPfUser : 0);
      *fault = GuestFault::Page(LinearAddr(a), code);
      return false;
    }
    return true;
  }

  const VcpuState& state_;
  std::vector<u8> bytes_;
  std::set<u64> poisoned_, read_only_, supervisor_;
};

class FakePlatform : public Platform {
 public:
  void ApicBaseWritten() override { ++apic_base_writes; }
  void TaskPriorityWritten() override { ++task_priority_writes; }
  int apic_base_writes = 0, task_priority_writes = 0;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_FAKE_MEMORY_H_
