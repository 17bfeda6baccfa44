// SPDX-License-Identifier: Apache-2.0
// What the simulator reaches memory and ports through while data breakpoints are enabled: the same
// accesses, noted in the DR6 bits of the breakpoints they hit, and for a debugger outside.
#ifndef ALIBI_RUNTIME_WATCH_H_
#define ALIBI_RUNTIME_WATCH_H_

#include "runtime/debug_points.h"
#include "vcpu/breakpoints.h"
#include "vcpu/memory.h"
#include "vcpu/state.h"

namespace alibi::runtime {

class WatchedMemory final : public vcpu::LinearMemory {
 public:
  WatchedMemory(const vcpu::VcpuState& state, vcpu::LinearMemory& memory, u64* hits,
                DebugPoints* points)
      : state_(state), memory_(memory), hits_(*hits), points_(*points) {}

  bool Read(LinearAddr address, void* out, unsigned size, vcpu::Privilege who,
            vcpu::GuestFault* fault) override;
  bool Write(LinearAddr address, const void* data, unsigned size, vcpu::Privilege who,
             vcpu::GuestFault* fault) override;
  bool ProbeWrite(LinearAddr address, unsigned size, vcpu::Privilege who,
                  vcpu::GuestFault* fault) override;
  bool LoadPdptes(u64 cr3) override;
  void PagingModeChanged() override;
  void AddressSpaceLoaded() override;
  void InvalidatePage(LinearAddr address) override;
  void InvalidateAll() override;
  void PrivilegeChanged() override;

 private:
  const vcpu::VcpuState& state_;
  vcpu::LinearMemory& memory_;
  u64& hits_;
  DebugPoints& points_;
};

class WatchedPorts final : public vcpu::PortIo {
 public:
  WatchedPorts(const vcpu::VcpuState& state, vcpu::PortIo& ports, u64* hits)
      : state_(state), ports_(ports), hits_(*hits) {}

  u32 In(u16 port, unsigned size) override;
  void Out(u16 port, unsigned size, u32 value) override;

 private:
  const vcpu::VcpuState& state_;
  vcpu::PortIo& ports_;
  u64& hits_;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_WATCH_H_
