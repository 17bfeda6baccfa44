// SPDX-License-Identifier: Apache-2.0
// What the machine needs of the hardware around its VCPU: the PC board of `alibi run`, or the
// handlers of an embedder.
#ifndef ALIBI_MACHINE_BOARD_H_
#define ALIBI_MACHINE_BOARD_H_

#include "base/types.h"

namespace alibi::vmm {

// All calls come on the VCPU's thread. Accesses come from inside a guest instruction.
class Board {
 public:
  virtual ~Board() = default;

  // --- Accesses; size is 1, 2 or 4 for ports and up to 8 for memory ---
  virtual u32 PortRead(u16 port, unsigned size) = 0;
  virtual void PortWrite(u16 port, unsigned size, u32 value) = 0;
  // Physical addresses outside the memory slots, and stores to ROM.
  virtual u64 MmioRead(PhysAddr address, unsigned size) = 0;
  virtual void MmioWrite(PhysAddr address, unsigned size, u64 value) = 0;

  // --- Interrupts; cr8 is the task priority class, 0-15 ---
  virtual bool InterruptPending(u8 cr8) = 0;
  virtual u8 Acknowledge() = 0;
  // Would an interrupt be pending if CR8 were lower?
  virtual bool HeldByPriority(u8 cr8) = 0;
  virtual void ApicBaseWritten() {}
  virtual void TscWritten() {}
  virtual void TscReading([[maybe_unused]] u64 host_tsc) {}
  // See vcpu::Platform.
  virtual bool NumericError() { return false; }
  virtual bool ReadApicMsr([[maybe_unused]] u32 index, [[maybe_unused]] u64* value) {
    return false;
  }
  virtual bool WriteApicMsr([[maybe_unused]] u32 index, [[maybe_unused]] u64 value) {
    return false;
  }

  // --- The run loop ---
  // Between two runs of the guest: serves timers and input.
  virtual void Turn() {}
  // The VCPU is halted: waits until Turn() has something to do. False: this board does not wait
  // (or nothing could ever come), Run() returns.
  virtual bool Idle() = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_BOARD_H_
