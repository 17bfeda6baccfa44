// SPDX-License-Identifier: Apache-2.0
// What a machine needs of the hardware around its VCPU: the PC's, or an embedder's handlers. All
// calls come on the VCPU's thread.
#ifndef ALIBI_MACHINE_SURROUNDINGS_H_
#define ALIBI_MACHINE_SURROUNDINGS_H_

#include "base/port_latch.h"
#include "base/types.h"
#include "vcpu/hypercall.h"

namespace alibi::vmm {

// What ports and device memory lead to. Calls come from inside a guest instruction; size is 1, 2 or
// 4 for ports and up to 8 for memory.
class IoSpace {
 public:
  virtual ~IoSpace() = default;
  virtual u32 PortRead(u16 port, unsigned size) = 0;
  virtual void PortWrite(u16 port, unsigned size, u32 value) = 0;
  // What PortRead() would yield, where a read has no effect. False: it may have one. Compiled for
  // general registers only, because the guest's vector state is live.
  virtual bool PeekPort([[maybe_unused]] u16 port, [[maybe_unused]] unsigned size,
                        [[maybe_unused]] u32* value) {
    return false;
  }
  // Does what PortWrite() would, where that changes one device's registers and no more. False:
  // nothing is changed. As PeekPort().
  virtual bool PokePort([[maybe_unused]] u16 port, [[maybe_unused]] unsigned size,
                        [[maybe_unused]] u32 value) {
    return false;
  }
  // What the port is as a latch now. The answer changes only in the other calls (but those that
  // peek and poke), and between runs.
  virtual PortLatch Latch([[maybe_unused]] u16 port, [[maybe_unused]] unsigned size) { return {}; }
  // Physical addresses outside the memory slots, and stores to ROM.
  virtual u64 MmioRead(PhysAddr address, unsigned size) = 0;
  virtual void MmioWrite(PhysAddr address, unsigned size, u64 value) = 0;
  // As PeekPort().
  virtual bool PeekMmio([[maybe_unused]] PhysAddr address, [[maybe_unused]] unsigned size,
                        [[maybe_unused]] u64* value) {
    return false;
  }
};

// The interrupt controllers; cr8 is the task priority class, 0-15.
class Interrupts {
 public:
  virtual ~Interrupts() = default;
  virtual bool InterruptPending(u8 cr8) = 0;
  virtual u8 Acknowledge() = 0;
  // Would an interrupt be pending if CR8 were lower?
  virtual bool HeldByPriority(u8 cr8) = 0;
  // With several VCPUs all of the above is about the one that runs. Is an interrupt pending for
  // this one, whose task priority has been seen when it ran last?
  virtual bool InterruptPendingFor([[maybe_unused]] unsigned vcpu) { return false; }
  // From inside a guest instruction: see vcpu::Platform.
  virtual void ApicBaseWritten() {}
  virtual bool NumericError() { return false; }
  virtual bool ReadApicMsr([[maybe_unused]] u32 index, [[maybe_unused]] u64* value) {
    return false;
  }
  virtual bool WriteApicMsr([[maybe_unused]] u32 index, [[maybe_unused]] u64 value) {
    return false;
  }
};

// What goes on beside the guest: timers, input, the passing of time.
class RunHooks {
 public:
  virtual ~RunHooks() = default;
  // Between two runs of the guest: serves timers and input.
  virtual void Turn() {}
  // The VCPU is halted: waits until Turn() has something to do. False: nobody waits here (or
  // nothing could ever come), Run() returns.
  virtual bool Idle() = 0;
  // With several VCPUs: the one that runs is about to stop, another one is about to run. Between
  // runs.
  virtual void VcpuLeaves() {}
  virtual void VcpuEnters([[maybe_unused]] unsigned vcpu) {}
  // VCPUs beside each other: all calls are about this one from now on. Guest vector state is live.
  virtual void VcpuRuns([[maybe_unused]] unsigned vcpu) {}
  // The same: what another VCPU has done ends an Idle() that may sleep now.
  virtual void Wake() {}
  // From inside a guest instruction: see vcpu::Platform.
  virtual void TscWritten() {}
  virtual void TscReading([[maybe_unused]] u64 host_tsc) {}
  virtual void Hypercall([[maybe_unused]] const vcpu::HypercallArguments& arguments,
                         [[maybe_unused]] u64* result) {}
};

struct Surroundings {
  IoSpace& io;
  Interrupts& interrupts;
  RunHooks& hooks;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_SURROUNDINGS_H_
