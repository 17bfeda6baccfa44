// SPDX-License-Identifier: Apache-2.0
// Where guest instructions of one of several VCPUs leave the CPU: as in access.cc, once it has the
// machine. Compiled for general registers only, because the guest's vector state is live.
#include "machine/machine.h"

namespace alibi::vmm {

u32 VcpuCore::In(u16 port, unsigned size) { return Shared().In(port, size); }

void VcpuCore::Out(u16 port, unsigned size, u32 value) { Shared().Out(port, size, value); }

u64 VcpuCore::MmioRead(PhysAddr address, unsigned size) { return Shared().MmioRead(address, size); }

void VcpuCore::MmioWrite(PhysAddr address, unsigned size, u64 value) {
  Shared().MmioWrite(address, size, value);
}

void VcpuCore::ApicBaseWritten() { Shared().ApicBaseWritten(); }

void VcpuCore::TaskPriorityWritten() { Shared().TaskPriorityWritten(); }

void VcpuCore::TscWritten() { Shared().TscWritten(); }

void VcpuCore::TscReading(u64 host_tsc) { Shared().TscReading(host_tsc); }

void VcpuCore::UserCodeStopped() { machine.UserCodeStopped(); }  // from any thread

bool VcpuCore::NumericError() { return Shared().NumericError(); }

bool VcpuCore::ReadApicMsr(u32 index, u64* value) { return Shared().ReadApicMsr(index, value); }

bool VcpuCore::WriteApicMsr(u32 index, u64 value) { return Shared().WriteApicMsr(index, value); }

}  // namespace alibi::vmm
