// SPDX-License-Identifier: Apache-2.0
// A driver for tests of virtio devices.
#ifndef ALIBI_DEVICES_VIRTIO_TEST_UTIL_H_
#define ALIBI_DEVICES_VIRTIO_TEST_UTIL_H_

#include <memory>
#include <vector>

#include "base/check.h"
#include "devices/bus.h"
#include "devices/pci/pci.h"
#include "devices/test_ram.h"
#include "devices/virtio/virtio_pci.h"

namespace alibi::devices::virtio {

// One queue as a driver lays it out. Descriptors are handed out round and round.
class TestQueue {
 public:
  static constexpr u16 kNext = 1, kWrite = 2, kIndirect = 4;

  TestQueue(TestRam& memory, u64 base, u16 size) : memory_(&memory), base_(base), size_(size) {}
  u64 descriptors() const { return base_; }
  u64 available() const { return base_ + 0x4000; }
  u64 used() const { return base_ + 0x5000; }
  u16 size() const { return size_; }

  void Describe(u16 number, u64 address, u32 length, u16 flags, u16 next = 0) {
    const u64 at = base_ + 16 * number;
    memory_->Set(at, address);
    memory_->Set(at + 8, length);
    memory_->Set(at + 12, flags);
    memory_->Set(at + 14, next);
  }
  void Offer(u16 head) {
    memory_->Set(available() + 4 + 2 * (index_ % size_), head);
    ++index_;
    memory_->Set(available() + 2, index_);
  }
  // One buffer, readable or writable.
  void Add(u64 address, u32 length, bool writable) {
    Describe(next_, address, length, writable ? kWrite : 0);
    Offer(next_);
    next_ = static_cast<u16>((next_ + 1) % size_);
  }
  u16 UsedIndex() { return memory_->Get<u16>(used() + 2); }
  u32 UsedHead(u16 entry) { return memory_->Get<u32>(used() + 4 + 8 * (entry % size_)); }
  u32 UsedLength(u16 entry) { return memory_->Get<u32>(used() + 8 + 8 * (entry % size_)); }

 private:
  TestRam* memory_;
  u64 base_;
  u16 size_;
  u16 index_ = 0;
  u16 next_ = 0;
};

// A device on a bus, and what its driver does.
class TestRig {
 public:
  explicit TestRig(VirtioDevice& device) : function(device, memory) {
    const alibi::Status added = ports.Add(0xcf8, 8, pci, "PCI");
    ALIBI_CHECK(added.ok(), "an empty bus has room");
    pci.Add(3, 0, function);
    pci.AssignAsFirmware();
    SetConfig(4, 7, 2);
    bar = GetConfig(0x20) & ~0xfu;
    msix_bar = GetConfig(0x14) & ~0xfu;
  }

  u32 GetConfig(u32 offset, unsigned size = 4) {
    ports.Write(0xcf8, 4, 0x80001800 | (offset & ~3u));
    return ports.Read(static_cast<u16>(0xcfc + (offset & 3)), size);
  }
  void SetConfig(u32 offset, u32 value, unsigned size = 4) {
    ports.Write(0xcf8, 4, 0x80001800 | (offset & ~3u));
    ports.Write(static_cast<u16>(0xcfc + (offset & 3)), size, value);
  }
  u64 Read(u64 offset, unsigned size) { return mmio.Read(PhysAddr(bar + offset), size); }
  void Write(u64 offset, unsigned size, u64 value) {
    mmio.Write(PhysAddr(bar + offset), size, value);
  }
  u8 Status() { return static_cast<u8>(Read(0x14, 1)); }
  void SetStatus(u8 status) { Write(0x14, 1, status); }

  u64 Offered() {
    u64 features = 0;
    for (u32 i = 0; i < 2; ++i) {
      Write(0, 4, i);
      features |= Read(4, 4) << (32 * i);
    }
    return features;
  }
  // True if the device agrees.
  bool Negotiate(u64 features) {
    SetStatus(0);
    SetStatus(kAcknowledge);
    SetStatus(kAcknowledge | kDriver);
    for (u32 i = 0; i < 2; ++i) {
      Write(8, 4, i);
      Write(12, 4, features >> (32 * i) & 0xffffffff);
    }
    SetStatus(kAcknowledge | kDriver | kFeaturesOk);
    return Status() & kFeaturesOk;
  }
  TestQueue AddQueue(u16 number, u16 size = 16) {
    TestQueue queue(memory, 0x10000u * (number + 1u), size);
    Write(0x16, 2, number);
    Write(0x18, 2, size);
    Write(0x20, 8, queue.descriptors());
    Write(0x28, 4, queue.available());
    Write(0x2c, 4, 0);
    Write(0x30, 8, queue.used());
    Write(0x1c, 2, 1);
    return queue;
  }
  void Go() { SetStatus(kAcknowledge | kDriver | kFeaturesOk | kDriverOk); }
  void Kick(u16 number) { Write(0x3000 + 4u * number, 2, number); }
  u8 Isr() { return static_cast<u8>(Read(0x1000, 1)); }

  struct NoDevice final : Device {
    u64 Read(u64, unsigned) override { return 0; }
    void Write(u64, unsigned, u64) override {}
  };
  TestRam memory;
  VirtioPci function;
  std::vector<ApicMessage> messages;  // message-signalled interrupts
  PortBus ports;
  MmioBus mmio;
  NoDevice reset_control;
  PciHost pci{{.ports = ports,
               .mmio = mmio,
               .reset_control = reset_control,
               .isa_line = [](unsigned, bool) {},
               .message = [this](const ApicMessage& message) { messages.push_back(message); },
               .pam = [](const PciHost::Pam&) {},
               .pm_base = [](u16) {},
               .smbus = [](const PciPowerManagement::SmBusSettings&) {}}};
  u64 bar = 0, msix_bar = 0;
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_TEST_UTIL_H_
