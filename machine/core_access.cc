// SPDX-License-Identifier: Apache-2.0
// Where guest instructions of one of several VCPUs leave the CPU: as in access.cc, once it has the
// machine. Compiled for general registers only, because the guest's vector state is live.
#include "machine/machine.h"

namespace alibi::vmm {

u32 VcpuCore::In(u16 port, unsigned size) {
  TakeMachine();
  return machine.In(port, size);
}

void VcpuCore::Out(u16 port, unsigned size, u32 value) {
  TakeMachine();
  machine.Out(port, size, value);
}

u64 VcpuCore::MmioRead(PhysAddr address, unsigned size) {
  TakeMachine();
  return machine.MmioRead(address, size);
}

void VcpuCore::MmioWrite(PhysAddr address, unsigned size, u64 value) {
  TakeMachine();
  machine.MmioWrite(address, size, value);
}

void VcpuCore::ApicBaseWritten() {
  TakeMachine();
  machine.ApicBaseWritten();
}

void VcpuCore::TaskPriorityWritten() {
  TakeMachine();
  machine.TaskPriorityWritten();
}

void VcpuCore::TscWritten() {
  TakeMachine();
  machine.TscWritten();
}

void VcpuCore::TscReading(u64 host_tsc) {
  TakeMachine();
  machine.TscReading(host_tsc);
}

void VcpuCore::UserCodeStopped() { machine.UserCodeStopped(); }  // from any thread

bool VcpuCore::NumericError() {
  TakeMachine();
  return machine.NumericError();
}

bool VcpuCore::ReadApicMsr(u32 index, u64* value) {
  TakeMachine();
  return machine.ReadApicMsr(index, value);
}

bool VcpuCore::WriteApicMsr(u32 index, u64 value) {
  TakeMachine();
  return machine.WriteApicMsr(index, value);
}

}  // namespace alibi::vmm
