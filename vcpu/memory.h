// SPDX-License-Identifier: Apache-2.0
// How system semantics (exception delivery, descriptor loads, the simulator) reach guest memory.
// Declared here, implemented by mmu: vcpu includes nothing above itself.
#ifndef ALIBI_VCPU_MEMORY_H_
#define ALIBI_VCPU_MEMORY_H_

#include "base/port_latch.h"
#include "base/types.h"
#include "vcpu/fault.h"

namespace alibi::vcpu {

// Who makes the access: kCpl follows the current CPL (explicit accesses); kSupervisor is an
// implicit supervisor access (descriptor tables, TSS, frames on the stack of an inner CPL: SDM
// vol. 3, 4.6.1).
enum class Privilege : u8 { kCpl, kSupervisor, kUser };

class LinearMemory {
 public:
  virtual ~LinearMemory() = default;

  // 1..4096 bytes, may cross a page. On a fault nothing is written, *fault is filled (a #PF, with
  // CR2 in it) and false comes back. Device memory is reached through the machine's MMIO bus.
  // Addresses are assumed canonical; the caller checks (the vector depends on the segment).
  virtual bool Read(LinearAddr address, void* out, unsigned size, Privilege who,
                    GuestFault* fault) = 0;
  virtual bool Write(LinearAddr address, const void* data, unsigned size, Privilege who,
                     GuestFault* fault) = 0;
  // Would a write succeed? Sets A/D bits as the write would. For read-modify-write operands.
  virtual bool ProbeWrite(LinearAddr address, unsigned size, Privilege who, GuestFault* fault) = 0;

  // PAE paging outside long mode: the four page-directory pointers at this CR3 become those of the
  // following walks (until the next call, whatever is stored there: SDM vol. 3, 4.4.1). False, and
  // nothing changes, if a present one has a reserved bit set. Called before the state changes.
  virtual bool LoadPdptes(u64 cr3) = 0;

  // Told after the state changed. Each re-reads VcpuState.
  virtual void PagingModeChanged() = 0;  // CR0.PG/WP, CR4 paging bits, EFER.NXE/LMA
  // MOV to CR3, a task switch: all but global translations are invalid (SDM vol. 3, 4.10.4.1).
  virtual void AddressSpaceLoaded() = 0;
  virtual void InvalidatePage(LinearAddr address) = 0;  // INVLPG
  virtual void InvalidateAll() = 0;     // global ones, too: CR0.PG, CR4.PGE and the like, INVPCID
  virtual void PrivilegeChanged() = 0;  // CPL (or SMAP's AC) changed

  template <class T>
  bool ReadValue(LinearAddr address, T* out, Privilege who, GuestFault* fault) {
    return Read(address, out, sizeof(T), who, fault);
  }
  template <class T>
  bool WriteValue(LinearAddr address, T value, Privilege who, GuestFault* fault) {
    return Write(address, &value, sizeof(T), who, fault);
  }
};

// Ports, as IN/OUT/INS/OUTS see them. size is 1, 2 or 4.
class PortIo {
 public:
  virtual ~PortIo() = default;
  virtual u32 In(u16 port, unsigned size) = 0;
  virtual void Out(u16 port, unsigned size, u32 value) = 0;
  // What the port is as a latch, for translations that name it. Only if it is fixed.
  virtual PortLatch FixedLatch([[maybe_unused]] u16 port, [[maybe_unused]] unsigned size) {
    return {};
  }
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_MEMORY_H_
