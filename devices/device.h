// SPDX-License-Identifier: Apache-2.0
// What a bus sees of a device. A device knows offsets into its own range only, never where it sits.
//
// Threads: all devices of a machine, their buses and their timer queue belong to one thread at a
// time (the one that runs the VCPU loop). Input from elsewhere is handed over by that owner.
#ifndef ALIBI_DEVICES_DEVICE_H_
#define ALIBI_DEVICES_DEVICE_H_

#include "base/port_latch.h"
#include "base/types.h"

namespace alibi::devices {

class Device {
 public:
  virtual ~Device() = default;

  // `size` is 1, 2, 4 or 8, never more than MaxAccessSize(), and the access lies inside the range
  // the device was registered with. It need not be aligned. Bits of the result above `size` bytes
  // are ignored by the bus; bits of `value` above `size` bytes are zero.
  virtual u64 Read(u64 offset, unsigned size) = 0;
  virtual void Write(u64 offset, unsigned size, u64 value) = 0;

  // What Read() would yield, where a read has no effect and the answer needs neither time nor
  // anybody else. False: Read() it. Called next to translated code, with the guest's vector state
  // live: for general registers only (//tools:check_vector_use_test).
  virtual bool Peek(u64 offset, unsigned size, u64* value) const {
    static_cast<void>(offset), static_cast<void>(size), static_cast<void>(value);
    return false;
  }

  // Does what Write() would, where that changes nothing but the device's own registers: no line, no
  // timer, nobody else. False, and nothing is changed: Write() it. Called as Peek() is.
  virtual bool Poke(u64 offset, unsigned size, u64 value) {
    static_cast<void>(offset), static_cast<void>(size), static_cast<void>(value);
    return false;
  }

  // The RESET line: the state after power-up, except for what survives it (memory, the time, input
  // that waits). Between runs of the guest; a device with several ranges may be told more than
  // once.
  virtual void Reset() {}

  // The widest access the device's bus interface takes at once; the bus splits wider ones into
  // halves, low address first, as the PC's bridges do. Most PC devices are 8 bits wide.
  virtual unsigned MaxAccessSize() const { return 1; }

  // Whether accesses of `size` bytes at `offset` are those of a latch: then translated code may
  // make them without the device, which looks at the cell when it needs to know. What is said here
  // changes only in Read(), Write() and Reset(), and between runs of the guest; Peek() and Poke()
  // leave it as it is. Called as they are.
  virtual PortLatch Latch(u64 offset, unsigned size) {
    static_cast<void>(offset), static_cast<void>(size);
    return {};
  }
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_DEVICE_H_
