// SPDX-License-Identifier: Apache-2.0
// The two address spaces devices live in: 64 K ports, and memory-mapped ranges.
#ifndef ALIBI_DEVICES_BUS_H_
#define ALIBI_DEVICES_BUS_H_

#include <array>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

// Ports. An unassigned port reads as all ones and swallows writes (the ISA bus floats high).
class PortBus {
 public:
  // [first, first + count) becomes `device`'s; offset 0 is `first` (or `first_offset`). The device
  // must outlive the bus. Fails if the range is empty, leaves the port space, overlaps another
  // range, or 255 ranges exist.
  Status Add(u16 first, u32 count, Device& device, std::string name, u64 first_offset = 0);

  // A range given to Add() moves; false, and it stays, if the new place is not free. Ranges with a
  // fixed latch must stay where they are.
  bool Move(u16 from, u16 to);

  // The range that begins at `first` ends being anybody's.
  void Remove(u16 first);

  // `size` is 1, 2 or 4. Bytes beyond port 0xffff belong to nobody: they do not wrap to port 0.
  u32 Read(u16 port, unsigned size);
  void Write(u16 port, unsigned size, u32 value);

  // See Device::Peek: of one device's register.
  bool Peek(u16 port, unsigned size, u32* value) const;

  // See Device::Poke.
  bool Poke(u16 port, unsigned size, u32 value);

  // See Device::Latch; changes by Add(), Move() and Remove() as well.
  PortLatch Latch(u16 port, unsigned size);

  // The name given to Add(), or nullptr: for traces and messages.
  const char* NameOf(u16 port) const;

  void ResetDevices();

 private:
  struct Range {
    u16 first = 0;
    u32 count = 0;
    u64 first_offset = 0;
    Device* device = nullptr;  // null: the place in ranges_ is free
    std::string name;

    // Can the device take the access as one?
    bool Takes(u16 port, unsigned size) const {
      return size <= device->MaxAccessSize() && port + size <= first + count;
    }
    u64 OffsetOf(u16 port) const { return first_offset + (port - first); }
  };
  static constexpr u8 kUnassigned = 0;

  const Range* Find(u32 port) const;

  std::vector<Range> ranges_;
  std::array<u8, 65536> index_{};  // 1 + position in ranges_; a whole port look-up is one load.
};

// Memory-mapped devices, by guest-physical address.
class MmioBus {
 public:
  // Fails if the range is empty, wraps, or overlaps another range. The device must outlive the bus.
  Status Add(PhysAddr base, u64 size, Device& device, std::string name);

  // A range given to Add() moves; false, and it stays, if another one is in the way.
  bool Move(PhysAddr from, PhysAddr to);

  void Remove(PhysAddr base);

  // Whether any byte of [addr, addr + size) belongs to a device.
  bool Claims(PhysAddr addr, u64 size) const;

  // `size` is 1, 2, 4 or 8. Bytes that belong to no device read as all ones.
  u64 Read(PhysAddr addr, unsigned size);
  void Write(PhysAddr addr, unsigned size, u64 value);
  // See Device::Peek: of one device's register.
  bool Peek(PhysAddr addr, unsigned size, u64* value) const;

  const char* NameOf(PhysAddr addr) const;

  void ResetDevices();

 private:
  struct Range {
    PhysAddr base;
    u64 size;
    Device* device;
    std::string name;
    u64 last() const { return base.value + (size - 1); }
    bool Takes(PhysAddr addr, unsigned bytes) const {
      return bytes <= device->MaxAccessSize() && bytes - 1 <= last() - addr.value;
    }
  };

  const Range* Find(PhysAddr addr) const;

  std::vector<Range> ranges_;  // sorted by base
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_BUS_H_
