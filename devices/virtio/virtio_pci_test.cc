// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/virtio_pci.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "devices/test_util.h"
#include "devices/virtio/test_util.h"

namespace alibi::devices::virtio {
namespace {

// Upper-cases what it reads into what it is to write.
class Echo final : public VirtioDevice {
 public:
  const char* name() const override { return "virtio-echo"; }
  u16 id() const override { return 42; }
  u32 pci_class() const override { return 0xff0000; }
  unsigned queue_count() const override { return 2; }
  u16 queue_size(unsigned number) const override { return number == 0 ? 16 : 64; }
  u64 features() const override { return 1u << 3; }
  std::span<const u8> config() const override { return config_; }
  void WriteConfig(u64 offset, unsigned, u64 value) override {
    if (offset < sizeof(config_)) config_[offset] = static_cast<u8>(value);
  }
  void Start(u64 features) override {
    ++starts;
    agreed = features;
  }
  void Process(unsigned number) override {
    ++processed;
    Virtqueue& queue = transport().queue(number);
    Chain chain;
    while (queue.Pop(&chain)) {
      u8 bytes[32];
      const u64 size = std::min<u64>({chain.readable_bytes, chain.writable_bytes, sizeof(bytes)});
      if (!queue.CopyFrom(chain, 0, bytes, size)) break;
      for (u8& byte : bytes) byte = static_cast<u8>(byte & ~0x20);
      if (!queue.CopyTo(chain, 0, bytes, size)) break;
      queue.Push(chain, static_cast<u32>(size));
    }
    transport().Interrupt(number);
  }
  void Reset() override { ++resets; }
  void ResetQueue(unsigned) override { ++queue_resets; }
  VirtioTransport& bus() { return transport(); }

  int starts = 0, processed = 0, resets = 0, queue_resets = 0;
  u64 agreed = 0;

 private:
  u8 config_[6] = {1, 2, 3, 4, 5, 6};
};

constexpr u64 kAll = kVersion1 | kRingIndirect | kRingEventIndex | kRingReset;

// "hello" at 0x100 to 0x200.
void OfferHello(TestRig& rig, TestQueue& queue) {
  rig.memory.Set(0x100, u64{0x6f6c6c6568});
  queue.Describe(0, 0x100, 5, TestQueue::kNext, 1);
  queue.Describe(1, 0x200, 5, TestQueue::kWrite);
  queue.Offer(0);
}

TEST_CASE("Virtio PCI: identity and capabilities") {
  Echo echo;
  TestRig rig(echo);
  CHECK(rig.GetConfig(0) == 0x106a1af4);
  CHECK(rig.GetConfig(8, 1) == 1);
  CHECK(rig.GetConfig(0xb, 1) == 0xff);
  CHECK(rig.GetConfig(0x3d, 1) == 1);
  u32 seen = 0;
  for (u32 at = rig.GetConfig(0x34, 1); at != 0; at = rig.GetConfig(at + 1, 1)) {
    if (rig.GetConfig(at, 1) != 9) continue;
    const u32 type = rig.GetConfig(at + 3, 1);
    seen |= 1u << type;
    CHECK(rig.GetConfig(at + 2, 1) == (type == 2 || type == 5 ? 20 : 16));
    if (type == 5) continue;
    CHECK(rig.GetConfig(at + 4, 1) == VirtioPci::kBar);
    CHECK(rig.GetConfig(at + 8) + rig.GetConfig(at + 12) <= VirtioPci::kBarSize);
  }
  CHECK(seen == 0x3e);
  CHECK(rig.Read(0x12, 2) == 2);
  CHECK(rig.Read(0x2000, 4) == 0x04030201);
  CHECK(rig.Read(0x2004, 4) == 0x0605);
  rig.Write(0x2001, 1, 9);
  CHECK(rig.Read(0x2000, 2) == 0x0901);
}

TEST_CASE("Virtio PCI: what is agreed on, and what is not") {
  Echo echo;
  TestRig rig(echo);
  CHECK(rig.Offered() == (kAll | 8));
  CHECK_FALSE(rig.Negotiate(0));         // a legacy driver
  CHECK_FALSE(rig.Negotiate(8));         // ... of another kind
  CHECK_FALSE(rig.Negotiate(kAll | 4));  // not offered
  CHECK(rig.Negotiate(kVersion1));
  CHECK(rig.Negotiate(kAll | 8));
  rig.Write(8, 4, 0);
  rig.Write(12, 4, 0);  // too late
  rig.Go();
  CHECK(echo.agreed == (kAll | 8));
  CHECK(echo.starts == 1);
  rig.SetStatus(kAcknowledge);  // bits cannot be taken back
  CHECK(rig.Status() == (kAcknowledge | kDriver | kFeaturesOk | kDriverOk));
  rig.Go();
  CHECK(echo.starts == 1);
  rig.SetStatus(0);
  CHECK(rig.Status() == 0);
  rig.SetStatus(kAcknowledge | kDriver | kDriverOk);  // without FEATURES_OK
  CHECK(rig.Status() == (kAcknowledge | kDriver));
  CHECK(echo.starts == 1);
}

TEST_CASE("Virtio PCI: queues are set up, notified, and interrupt by the pin") {
  Echo echo;
  TestRig rig(echo);
  REQUIRE(rig.Negotiate(kAll));
  rig.Write(0x16, 2, 1);
  CHECK(rig.Read(0x18, 2) == 64);
  CHECK(rig.Read(0x1e, 2) == 1);
  rig.Write(0x18, 2, 128);  // too many
  rig.Write(0x18, 2, 24);   // not a power of two
  CHECK(rig.Read(0x18, 2) == 64);
  rig.Write(0x16, 2, 2);
  CHECK(rig.Read(0x18, 2) == 0);
  rig.Write(0x1c, 2, 1);
  CHECK(rig.Read(0x1c, 2) == 0);
  TestQueue queue = rig.AddQueue(0);
  CHECK(rig.Read(0x20, 8) == queue.descriptors());
  CHECK(rig.Read(0x28, 4) == queue.available());
  CHECK(rig.Read(0x34, 4) == 0);
  rig.Write(0x20, 8, 0);  // an enabled queue stays as it is
  CHECK(rig.Read(0x20, 8) == queue.descriptors());
  OfferHello(rig, queue);
  rig.Kick(0);
  CHECK(echo.processed == 0);  // not before DRIVER_OK
  rig.Go();
  CHECK(rig.memory.Text(0x200, 5) == "HELLO");
  CHECK(queue.UsedIndex() == 1);
  CHECK((rig.GetConfig(6, 2) & 8) != 0);
  CHECK(rig.Isr() == 1);
  CHECK(rig.Isr() == 0);
  CHECK((rig.GetConfig(6, 2) & 8) == 0);
  rig.Kick(0);
  CHECK(rig.Isr() == 0);  // nothing was used
  rig.Kick(1);            // not enabled
  rig.Kick(7);
  rig.Write(0x3ffe, 2, 0);
  CHECK(rig.Status() == (kAcknowledge | kDriver | kFeaturesOk | kDriverOk));
  // Ring reset: the queue starts anew.
  rig.Write(0x16, 2, 0);
  rig.Write(0x3a, 2, 1);
  CHECK(rig.Read(0x3a, 2) == 0);
  CHECK(rig.Read(0x1c, 2) == 0);
  CHECK(echo.queue_resets == 1);
  TestQueue again = rig.AddQueue(0, 8);
  rig.memory.Set(again.available() + 2, u16{0});
  OfferHello(rig, again);
  rig.Kick(0);
  CHECK(again.UsedIndex() == 1);
}

TEST_CASE("Virtio PCI: interrupts by MSI-X") {
  Echo echo;
  TestRig rig(echo);
  REQUIRE(rig.Negotiate(kVersion1));
  rig.Write(0x10, 2, 3);  // there are three
  CHECK(rig.Read(0x10, 2) == 0xffff);
  rig.Write(0x10, 2, 0);
  CHECK(rig.Read(0x10, 2) == 0);
  TestQueue queue = rig.AddQueue(0);
  rig.Write(0x1a, 2, 2);
  u32 capability = rig.GetConfig(0x34, 1);
  while (rig.GetConfig(capability, 1) != Msix::kCapability) {
    capability = rig.GetConfig(capability + 1, 1);
  }
  for (u64 vector = 0; vector < 3; ++vector) {
    const u64 entry = rig.msix_bar + 16 * vector;
    rig.mmio.Write(PhysAddr(entry), 8, 0xfee00000);
    rig.mmio.Write(PhysAddr(entry + 8), 8, 0x70 + vector);
  }
  rig.SetConfig(capability + 2, 0x8000, 2);
  rig.Go();
  OfferHello(rig, queue);
  rig.Kick(0);
  REQUIRE(rig.messages.size() == 1);
  CHECK(rig.messages[0].vector == 0x72);
  echo.bus().ConfigChanged();
  CHECK(rig.Read(0x15, 1) == 1);
  REQUIRE(rig.messages.size() == 2);
  CHECK(rig.messages[1].vector == 0x70);
  CHECK(rig.Isr() == 0);
}

TEST_CASE("Virtio PCI: garbage makes the device ask for a reset") {
  Echo echo;
  TestRig rig(echo);
  REQUIRE(rig.Negotiate(kAll));
  TestQueue queue = rig.AddQueue(0);
  rig.Go();
  queue.Describe(0, 0x100, 5, TestQueue::kNext, 0);
  queue.Offer(0);
  rig.Kick(0);
  CHECK((rig.Status() & kNeedsReset) != 0);
  CHECK(rig.Isr() == 2);
  const int before = echo.processed;
  rig.Kick(0);
  CHECK(echo.processed == before);
  rig.SetStatus(0xff);
  CHECK((rig.Status() & kNeedsReset) != 0);
  REQUIRE(rig.Negotiate(kAll));
  CHECK(echo.resets >= 1);
  rig.memory.Set(queue.available() + 2, u16{0});
  TestQueue again = rig.AddQueue(0);
  rig.Go();
  OfferHello(rig, again);
  rig.Kick(0);
  CHECK(again.UsedIndex() == 1);
}

TEST_CASE("Virtio PCI: without bus mastering no memory is reached") {
  Echo echo;
  TestRig rig(echo);
  REQUIRE(rig.Negotiate(kAll));
  TestQueue queue = rig.AddQueue(0);
  rig.Go();
  OfferHello(rig, queue);
  rig.SetConfig(4, 3, 2);
  rig.Kick(0);
  CHECK(queue.UsedIndex() == 0);
  rig.SetConfig(4, 7, 2);
  CHECK(queue.UsedIndex() == 1);  // what was asked for meanwhile
}

TEST_CASE("Virtio PCI: registers through configuration space") {
  Echo echo;
  TestRig rig(echo);
  u32 window = rig.GetConfig(0x34, 1);
  while (rig.GetConfig(window, 1) != 9 || rig.GetConfig(window + 3, 1) != 5) {
    window = rig.GetConfig(window + 1, 1);
  }
  const auto aim = [&](u32 bar, u32 offset, u32 size) {
    rig.SetConfig(window + 4, bar, 1);
    rig.SetConfig(window + 8, offset);
    rig.SetConfig(window + 12, size);
  };
  aim(4, 0x12, 2);
  CHECK((rig.GetConfig(window + 16) & 0xffff) == 2);
  aim(4, 0x14, 1);
  rig.SetConfig(window + 16, kAcknowledge, 1);
  CHECK(rig.Status() == kAcknowledge);
  // To nowhere.
  for (const u32 offset : {0x15u, 0x3ffeu, 0x4000u, 0xfffffffcu}) {
    aim(4, offset, 4);
    static_cast<void>(rig.GetConfig(window + 16));
    rig.SetConfig(window + 16, 0);
  }
  aim(4, 0x14, 3);
  rig.SetConfig(window + 16, 0);
  aim(0, 0x14, 1);
  rig.SetConfig(window + 16, 0, 1);
  CHECK(rig.Status() == kAcknowledge);
}

TEST_CASE("Virtio PCI: a reset of the machine") {
  Echo echo;
  TestRig rig(echo);
  REQUIRE(rig.Negotiate(kAll));
  rig.AddQueue(0);
  rig.Go();
  rig.ports.ResetDevices();
  CHECK(rig.function.status() == 0);
  CHECK_FALSE(rig.function.queue(0).enabled());
}

TEST_CASE("Virtio PCI: random traffic never breaks it") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Echo echo;
    TestRig rig(echo);
    static_cast<void>(rig.Negotiate(kAll));
    TestQueue queue = rig.AddQueue(0);
    rig.Go();
    std::mt19937_64 random(seed);
    for (int i = 0; i < 4000; ++i) {
      const unsigned size = 1u << random() % 4;
      const u64 where = random() % 4;
      const u64 offset = where == 0   ? random() % 0x40
                         : where == 1 ? 0x3000 + random() % 16
                         : where == 2 ? 0x1000 + random() % 8
                                      : random() % VirtioPci::kBarSize;
      if (random() & 1) {
        static_cast<void>(rig.Read(offset & ~u64{size - 1}, size));
      } else {
        const u64 value = random() & 1 ? random() : random() % 16;
        rig.Write(offset & ~u64{size - 1}, size, value);
      }
      rig.memory.Set(0x10000 + random() % 0x6000, random());
      if (random() % 64 == 0) {
        static_cast<void>(rig.Negotiate(kAll));
        queue = rig.AddQueue(0);
        rig.Go();
      }
    }
  }
}

}  // namespace
}  // namespace alibi::devices::virtio
