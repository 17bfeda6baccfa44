// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/virtqueue.h"

#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "devices/virtio/test_util.h"

namespace alibi::devices::virtio {
namespace {

struct Rig {
  explicit Rig(bool indirect = true, bool event_index = false, u16 size = 8)
      : driver(memory, 0x10000, size), queue(memory, 256) {
    REQUIRE(queue.SetSize(size));
    queue.rings() = {PhysAddr(driver.descriptors()), PhysAddr(driver.available()),
                     PhysAddr(driver.used())};
    queue.Enable(indirect, event_index);
  }
  // Pops one chain that must break the queue.
  std::string Broken() {
    Chain chain;
    CHECK_FALSE(queue.Pop(&chain));
    CHECK_FALSE(queue.ok());
    return queue.error() == nullptr ? "" : queue.error();
  }
  TestRam memory;
  TestQueue driver;
  Virtqueue queue;
};

TEST_CASE("Virtqueue: sizes are powers of two up to the device's") {
  TestRam memory;
  Virtqueue queue(memory, 64);
  CHECK(queue.size() == 64);
  for (const u16 size : {0, 3, 128, 65535}) CHECK_FALSE(queue.SetSize(size));
  CHECK(queue.size() == 64);
  CHECK(queue.SetSize(1));
  CHECK(queue.SetSize(32));
  CHECK(queue.size() == 32);
}

TEST_CASE("Virtqueue: chains come as they were made available, and are used in any order") {
  Rig rig;
  rig.memory.Set(0x1000, u32{0x44332211});
  rig.memory.Set(0x2000, u32{0x88776655});
  rig.driver.Describe(0, 0x1000, 4, TestQueue::kNext, 5);
  rig.driver.Describe(5, 0x2000, 2, TestQueue::kNext, 6);
  rig.driver.Describe(6, 0x3000, 3, TestQueue::kNext | TestQueue::kWrite, 7);
  rig.driver.Describe(7, 0x4000, 8, TestQueue::kWrite);
  rig.driver.Describe(1, 0x5000, 16, TestQueue::kWrite);
  rig.driver.Offer(0);
  rig.driver.Offer(1);
  Chain first, second, third;
  REQUIRE(rig.queue.Pop(&first));
  REQUIRE(rig.queue.Pop(&second));
  CHECK_FALSE(rig.queue.Pop(&third));
  CHECK(rig.queue.ok());
  CHECK(first.readable.size() == 2);
  CHECK(first.writable.size() == 2);
  CHECK(first.readable_bytes == 6);
  CHECK(first.writable_bytes == 11);
  u8 bytes[6];
  REQUIRE(rig.queue.CopyFrom(first, 0, bytes, 6));
  CHECK(std::string(bytes, bytes + 6) == "\x11\x22\x33\x44\x55\x66");
  REQUIRE(rig.queue.CopyFrom(first, 3, bytes, 2));
  CHECK(bytes[1] == 0x55);
  CHECK_FALSE(rig.queue.CopyFrom(first, 3, bytes, 4));
  REQUIRE(rig.queue.CopyTo(first, 2, "abcd", 4));
  CHECK(rig.memory.Text(0x3002, 1) == "a");
  CHECK(rig.memory.Text(0x4000, 3) == "bcd");
  CHECK_FALSE(rig.queue.CopyTo(first, 8, "abcd", 4));
  rig.queue.Push(second, 16);
  rig.queue.Push(first, 11);
  CHECK(rig.driver.UsedIndex() == 2);
  CHECK(rig.driver.UsedHead(0) == 1);
  CHECK(rig.driver.UsedLength(0) == 16);
  CHECK(rig.driver.UsedHead(1) == 0);
  CHECK(rig.driver.UsedLength(1) == 11);
}

TEST_CASE("Virtqueue: indices wrap, thousands of times") {
  Rig rig(true, true, 4);
  Chain chain;
  for (u32 i = 0; i < 200'000; ++i) {
    rig.driver.Add(0x1000, 4, true);
    REQUIRE(rig.queue.Pop(&chain));
    rig.queue.Push(chain, i & 3);
  }
  CHECK(rig.driver.UsedIndex() == (200'000 & 0xffff));
  CHECK(rig.queue.ok());
}

TEST_CASE("Virtqueue: what is given back is popped again") {
  Rig rig;
  rig.driver.Add(0x1000, 4, true);
  rig.driver.Add(0x2000, 4, true);
  Chain chain;
  REQUIRE(rig.queue.Pop(&chain));
  REQUIRE(rig.queue.Pop(&chain));
  rig.queue.Unpop();
  rig.queue.Unpop();
  REQUIRE(rig.queue.Pop(&chain));
  CHECK(chain.writable[0].address == PhysAddr(0x1000));
}

TEST_CASE("Virtqueue: an indirect table is a chain of its own") {
  Rig rig;
  TestQueue table(rig.memory, 0x8000, 64);
  table.Describe(0, 0x1000, 10, TestQueue::kNext, 40);
  table.Describe(40, 0x2000, 20, TestQueue::kNext | TestQueue::kWrite, 1);
  table.Describe(1, 0x3000, 30, TestQueue::kWrite);
  rig.driver.Describe(3, 0x8000, 64 * 16, TestQueue::kIndirect | TestQueue::kWrite);
  rig.driver.Offer(3);
  Chain chain;
  REQUIRE(rig.queue.Pop(&chain));
  CHECK(chain.head == 3);
  CHECK(chain.readable_bytes == 10);
  CHECK(chain.writable_bytes == 50);
}

TEST_CASE("Virtqueue: rules that drivers break") {
  using Q = TestQueue;
  SECTION("a circle") {
    Rig rig;
    rig.driver.Describe(0, 0x1000, 4, Q::kNext, 1);
    rig.driver.Describe(1, 0x1000, 4, Q::kNext, 0);
    rig.driver.Offer(0);
    CHECK_THAT(rig.Broken(), Catch::Contains("circle"));
  }
  SECTION("a circle in an indirect table of 16 MB") {
    Rig rig;
    TestQueue table(rig.memory, 0x8000, 64);
    table.Describe(0, 0x1000, 4, Q::kNext, 0);
    rig.driver.Describe(0, 0x8000, 16 << 20, Q::kIndirect);
    rig.driver.Offer(0);
    CHECK_THAT(rig.Broken(), Catch::Contains("circle"));
  }
  SECTION("an indirect table in an indirect table") {
    Rig rig;
    TestQueue table(rig.memory, 0x8000, 64);
    table.Describe(0, 0x8000, 32, Q::kIndirect);
    rig.driver.Describe(0, 0x8000, 32, Q::kIndirect);
    rig.driver.Offer(0);
    CHECK_THAT(rig.Broken(), Catch::Contains("indirect"));
  }
  SECTION("an indirect descriptor with a next one, without agreement, of no length") {
    for (int i = 0; i < 4; ++i) {
      Rig rig(/*indirect=*/i != 1);
      rig.driver.Describe(0, 0x8000,
                          i == 2   ? 0
                          : i == 3 ? 24
                                   : 32,
                          static_cast<u16>(Q::kIndirect | (i == 0 ? Q::kNext : 0)), 1);
      rig.driver.Offer(0);
      CHECK_THAT(rig.Broken(), Catch::Contains("indirect"));
    }
  }
  SECTION("readable behind writable") {
    Rig rig;
    rig.driver.Describe(0, 0x1000, 4, Q::kNext | Q::kWrite, 1);
    rig.driver.Describe(1, 0x1000, 4, 0);
    rig.driver.Offer(0);
    CHECK_THAT(rig.Broken(), Catch::Contains("readable"));
  }
  SECTION("a head, or a next one, beyond the table") {
    Rig rig;
    rig.driver.Offer(8);
    CHECK_THAT(rig.Broken(), Catch::Contains("beyond its table"));
    Rig other;
    other.driver.Describe(0, 0x1000, 4, Q::kNext, 0xffff);
    other.driver.Offer(0);
    CHECK_THAT(other.Broken(), Catch::Contains("beyond its table"));
  }
  SECTION("more available than there is room for") {
    Rig rig;
    rig.memory.Set(rig.driver.available() + 2, u16{9});
    CHECK_THAT(rig.Broken(), Catch::Contains("room"));
  }
  SECTION("available again and again without being used") {
    Rig rig;
    Chain chain;
    for (int i = 0; i < 8; ++i) {
      rig.driver.Add(0x1000, 4, true);
      REQUIRE(rig.queue.Pop(&chain));
    }
    rig.driver.Add(0x1000, 4, true);
    CHECK_THAT(rig.Broken(), Catch::Contains("before it was used"));
  }
  SECTION("4 GB, and the end of the address space") {
    Rig rig;
    rig.driver.Describe(0, 0, 0xffffffff, Q::kNext, 1);
    rig.driver.Describe(1, 0, 0xffffffff, 0);
    rig.driver.Offer(0);
    CHECK_THAT(rig.Broken(), Catch::Contains("4 GB"));
    Rig other;
    other.driver.Describe(0, ~u64{0}, 2, 0);
    other.driver.Offer(0);
    CHECK_THAT(other.Broken(), Catch::Contains("end of memory"));
  }
  SECTION("a buffer where there is no RAM") {
    Rig rig;
    rig.driver.Add(TestRam::kBytes - 2, 4, true);
    Chain chain;
    REQUIRE(rig.queue.Pop(&chain));
    CHECK_FALSE(rig.queue.CopyTo(chain, 0, "abcd", 4));
    CHECK_FALSE(rig.queue.ok());
    CHECK_FALSE(rig.queue.Pop(&chain));
    rig.queue.Push(chain, 0);  // nothing happens
    CHECK(rig.driver.UsedIndex() == 0);
  }
  SECTION("rings where there is no RAM") {
    for (int i = 0; i < 3; ++i) {
      Rig rig;
      rig.driver.Add(0x1000, 4, true);
      PhysAddr* ring[] = {&rig.queue.rings().descriptors, &rig.queue.rings().driver,
                          &rig.queue.rings().device};
      *ring[i] = PhysAddr(~u64{0} - 8);
      Chain chain;
      if (rig.queue.Pop(&chain)) rig.queue.Push(chain, 0);
      CHECK_FALSE(rig.queue.ok());
    }
  }
}

TEST_CASE("Virtqueue: after a reset, chains of the old life are stale") {
  Rig rig;
  rig.driver.Add(0x1000, 4, true);
  Chain chain;
  REQUIRE(rig.queue.Pop(&chain));
  rig.queue.Reset();
  CHECK(rig.queue.IsStale(chain));
  CHECK_FALSE(rig.queue.enabled());
  CHECK_FALSE(rig.queue.CopyTo(chain, 0, "abcd", 4));
  rig.queue.Push(chain, 4);
  CHECK(rig.driver.UsedIndex() == 0);
  CHECK(rig.queue.ok());
}

TEST_CASE("Virtqueue: interrupts by the flag") {
  Rig rig;
  Chain chain;
  CHECK_FALSE(rig.queue.TakeInterruptWish());
  const auto use = [&] {
    rig.driver.Add(0x1000, 4, true);
    REQUIRE(rig.queue.Pop(&chain));
    rig.queue.Push(chain, 0);
  };
  use();
  CHECK(rig.queue.TakeInterruptWish());
  CHECK_FALSE(rig.queue.TakeInterruptWish());
  rig.memory.Set(rig.driver.available(), u16{1});
  use();
  CHECK_FALSE(rig.queue.TakeInterruptWish());
  rig.memory.Set(rig.driver.available(), u16{0});
  CHECK_FALSE(rig.queue.TakeInterruptWish());
  use();
  CHECK(rig.queue.TakeInterruptWish());
  rig.queue.WantNotifications(false);
  CHECK(rig.memory.Get<u16>(rig.driver.used()) == 1);
  rig.queue.WantNotifications(true);
  CHECK(rig.memory.Get<u16>(rig.driver.used()) == 0);
}

TEST_CASE("Virtqueue: interrupts and notifications by event indices") {
  Rig rig(true, true);
  Chain chain;
  const auto use = [&] {
    rig.driver.Add(0x1000, 4, true);
    REQUIRE(rig.queue.Pop(&chain));
    rig.queue.Push(chain, 0);
  };
  const u64 used_event = rig.driver.available() + 4 + 2 * 8;
  const u64 available_event = rig.driver.used() + 4 + 8 * 8;
  use();
  CHECK(rig.queue.TakeInterruptWish());
  rig.memory.Set(used_event, u16{2});  // "when the third is used"
  use();
  CHECK_FALSE(rig.queue.TakeInterruptWish());
  use();
  CHECK(rig.queue.TakeInterruptWish());
  use();
  CHECK_FALSE(rig.queue.TakeInterruptWish());
  CHECK_FALSE(rig.queue.Pop(&chain));
  CHECK(rig.memory.Get<u16>(available_event) == 4);
  rig.queue.WantNotifications(false);
  use();
  CHECK_FALSE(rig.queue.Pop(&chain));
  CHECK(rig.memory.Get<u16>(available_event) == 4);
  rig.queue.WantNotifications(true);
  CHECK(rig.memory.Get<u16>(available_event) == 5);
}

// Memory whose driver runs on another CPU: it does something when the device has stored somewhere.
class BusyRam final : public Dma {
 public:
  bool Read(PhysAddr address, void* out, u64 size) override { return ram.Read(address, out, size); }
  bool Write(PhysAddr address, const void* data, u64 size) override {
    const bool ok = ram.Write(address, data, size);
    if (at && address == *at) std::exchange(at, std::nullopt), then();
    return ok;
  }
  TestRam ram;
  std::optional<PhysAddr> at;
  std::function<void()> then;
};

TEST_CASE("Virtqueue: a chain that comes when the driver does not notify yet is found") {
  BusyRam memory;
  TestQueue driver(memory.ram, 0x10000, 8);
  Virtqueue queue(memory, 256);
  REQUIRE(queue.SetSize(8));
  queue.rings() = {PhysAddr(driver.descriptors()), PhysAddr(driver.available()),
                   PhysAddr(driver.used())};
  queue.Enable(true, true);
  const u64 available_event = driver.used() + 4 + 8 * 8;
  Chain chain;
  driver.Add(0x1000, 4, true);
  REQUIRE(queue.Pop(&chain));
  // It has looked at the old index, which it has passed, and looks at no other.
  memory.at = PhysAddr(available_event);
  memory.then = [&] { driver.Add(0x2000, 4, true); };
  REQUIRE(queue.Pop(&chain));
  CHECK(chain.writable[0].address == PhysAddr(0x2000));
  CHECK_FALSE(queue.Pop(&chain));
  CHECK(memory.ram.Get<u16>(available_event) == 2);
}

TEST_CASE("Virtqueue: notifications that are wanted again are of chains that are not there yet") {
  Rig rig(true, true);
  const u64 available_event = rig.driver.used() + 4 + 8 * 8;
  rig.queue.WantNotifications(false);
  for (int i = 0; i < 3; ++i) rig.driver.Add(0x1000, 4, true);
  Chain chain;
  REQUIRE(rig.queue.Pop(&chain));
  rig.queue.Unpop();  // it needs more of them at once than there are
  rig.queue.WantNotifications(true);
  CHECK(rig.memory.Get<u16>(available_event) == 3);
}

// Garbage everywhere: it ends, stays inside memory, and an ok() queue keeps its books.
TEST_CASE("Virtqueue: random rings") {
  int popped = 0;
  for (u64 seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    Rig rig(random() & 1, random() & 1);
    const auto address = [&random] {
      const u64 value = random();
      return (value & 0xff) == 0 ? value : (value >> 8) % TestRam::kBytes;
    };
    TestQueue table(rig.memory, 0x8000, 64);
    for (u16 i = 0; i < 64; ++i) {
      TestQueue& where = i < 8 ? rig.driver : table;
      const u64 what = random();
      const u16 flags = static_cast<u16>(what % 8 == 0 ? what >> 3 & 7 : what >> 3 & 3);
      where.Describe(i, (flags & TestQueue::kIndirect) ? 0x8000 : address(),
                     static_cast<u32>((flags & TestQueue::kIndirect) ? (what >> 8) % 1100
                                      : (what >> 32) % 64 == 0       ? what >> 8
                                                                     : (what >> 8) & 0xff),
                     flags, static_cast<u16>((what >> 40) % (i < 8 ? 9 : 65)));
    }
    for (int i = 0; i < 6; ++i) rig.driver.Offer(static_cast<u16>(random() % 8));
    if (random() % 16 == 0) rig.memory.Set(rig.driver.available() + 2, static_cast<u16>(random()));
    Chain chain;
    u8 bytes[64];
    while (rig.queue.Pop(&chain)) {
      ++popped;
      REQUIRE(chain.readable.size() + chain.writable.size() <= Virtqueue::kMaxSegments);
      if (chain.readable_bytes >= 64) static_cast<void>(rig.queue.CopyFrom(chain, 3, bytes, 60));
      if (chain.writable_bytes >= 64) static_cast<void>(rig.queue.CopyTo(chain, 1, bytes, 60));
      rig.queue.Push(chain, static_cast<u32>(random()));
      static_cast<void>(rig.queue.TakeInterruptWish());
    }
  }
  CHECK(popped > 1000);
}

}  // namespace
}  // namespace alibi::devices::virtio
