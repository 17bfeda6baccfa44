// SPDX-License-Identifier: Apache-2.0
// The block device, by a driver's steps and by those that no driver makes.
#include "devices/virtio/blk.h"

#include <errno.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <mutex>
#include <random>

#include "devices/block/memory_image.h"
#include "devices/virtio/test_util.h"

namespace alibi::devices::virtio {
namespace {

constexpr u64 kRings = kVersion1 | kRingIndirect;
constexpr u64 kHeader = 0x1000, kStatus = 0x1100, kData = 0x2000;

struct BlkRig {
  explicit BlkRig(bool read_only = false)
      : image(std::make_shared<block::MemoryImage>(1 << 20, read_only)) {
    for (std::size_t i = 0; i < image->bytes.size(); ++i) {
      image->bytes[i] = static_cast<u8>(i / 512);
    }
  }
  std::unique_ptr<block::Disk> MakeDisk() {
    auto disk = block::Disk::Create(
        image, "test",
        [this](std::function<void()> work) {
          const std::lock_guard lock(mutex);
          posted.push_back(std::move(work));
        },
        nullptr);
    REQUIRE(disk.ok());
    return std::move(*disk);
  }
  TestQueue Begin(u64 features = Blk::kFlush, u16 size = 16) {
    REQUIRE(rig.Negotiate(kRings | features));
    for (u64 at = 0x10000; at < 0x20000; at += 8) rig.memory.Set<u64>(at, 0);
    TestQueue queue = rig.AddQueue(0, size);
    rig.Go();
    return queue;
  }
  void Drain() {
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(posted);
    }
    for (auto& work : now) work();
  }
  // The status of one request; 0xff: none came.
  u8 Request(TestQueue& queue, u32 type, u64 sector, u32 bytes, bool to_device) {
    rig.memory.Set<u32>(kHeader, type);
    rig.memory.Set<u64>(kHeader + 8, sector);
    rig.memory.Set<u8>(kStatus, 0xff);
    queue.Describe(0, kHeader, 16, TestQueue::kNext, bytes == 0 ? 2 : 1);
    const u16 direction = to_device ? 0 : TestQueue::kWrite;
    queue.Describe(1, kData, bytes, static_cast<u16>(TestQueue::kNext | direction), 2);
    queue.Describe(2, kStatus, 1, TestQueue::kWrite);
    const u16 before = queue.UsedIndex();
    queue.Offer(0);
    rig.Kick(0);
    for (int i = 0; i < 20000 && queue.UsedIndex() == before; ++i) {
      Drain();
      usleep(20);
    }
    return rig.memory.Get<u8>(kStatus);
  }

  std::shared_ptr<block::MemoryImage> image;
  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  Blk blk{MakeDisk(), "serial"};
  TestRig rig{blk};
};

TEST_CASE("reads, writes, the ID") {
  BlkRig all;
  TestQueue queue = all.Begin();
  CHECK(all.Request(queue, Blk::kIn, 5, 1024, false) == 0);
  CHECK(all.rig.memory.Get<u8>(kData + 511) == 5);
  CHECK(all.rig.memory.Get<u8>(kData + 512) == 6);
  CHECK(all.rig.Isr() == 1);
  all.rig.memory.Set<u32>(kData, 0x12345678);
  CHECK(all.Request(queue, Blk::kOut, 9, 512, true) == 0);
  CHECK(all.image->bytes[9 * 512] == 0x78);
  CHECK(all.Request(queue, Blk::kGetId, 0, 20, false) == 0);
  CHECK(all.rig.memory.Text(kData, 7) == std::string("serial\0", 7));
  CHECK(all.Request(queue, 77, 0, 0, false) == Blk::kUnsupported);
}

TEST_CASE("what the host has cached is read at once, and behind what was asked for before") {
  BlkRig all;
  TestQueue queue = all.Begin();
  all.image->cached = true;
  const auto read = [&](u32 bytes) {
    all.rig.memory.Set<u32>(kHeader, Blk::kIn);
    all.rig.memory.Set<u64>(kHeader + 8, 0);
    queue.Describe(0, kHeader, 16, TestQueue::kNext, 1);
    queue.Describe(1, kData, bytes, TestQueue::kNext | TestQueue::kWrite, 2);
    queue.Describe(2, kStatus, 1, TestQueue::kWrite);
    queue.Offer(0);
  };
  read(512);
  all.rig.Kick(0);
  CHECK(queue.UsedIndex() == 1);
  CHECK(all.rig.Isr() == 1);
  CHECK(all.image->TakeLog() == "c");
  // A write that the image is busy with: the read sees it.
  all.image->delay_us = 20000;
  all.rig.memory.Set<u32>(kData + 0x8000, 0x12345678);
  all.rig.memory.Set<u32>(kHeader + 0x80, Blk::kOut);
  all.rig.memory.Set<u64>(kHeader + 0x88, 0);
  queue.Describe(3, kHeader + 0x80, 16, TestQueue::kNext, 4);
  queue.Describe(4, kData + 0x8000, 512, TestQueue::kNext, 5);
  queue.Describe(5, kStatus + 1, 1, TestQueue::kWrite);
  queue.Offer(3);
  read(512);
  all.rig.Kick(0);
  for (int i = 0; i < 20000 && queue.UsedIndex() != 3; ++i) {
    all.Drain();
    usleep(20);
  }
  CHECK(all.image->TakeLog() == "wr");
  CHECK(all.rig.memory.Get<u32>(kData) == 0x12345678);
  // An image that has failed is asked again, and says so.
  all.image->delay_us = 0;
  all.image->error = EIO;
  CHECK(all.Request(queue, Blk::kIn, 0, 512, false) == Blk::kIoError);
  CHECK(all.image->TakeLog() == "cr");
  CHECK(all.Request(queue, Blk::kIn, 2048, 512, false) == Blk::kIoError);
  CHECK(all.image->TakeLog().empty());
}

TEST_CASE("a notification reads a bounded part at once") {
  BlkRig all;
  TestQueue queue = all.Begin(Blk::kFlush, 128);
  all.image->cached = true;
  // Requests of 64 KB that share everything.
  all.rig.memory.Set<u32>(kHeader, Blk::kIn);
  queue.Describe(0, kHeader, 16, TestQueue::kNext, 1);
  queue.Describe(1, kData, 0x8000, TestQueue::kNext | TestQueue::kWrite, 2);
  queue.Describe(2, kStatus, 1, TestQueue::kWrite);
  for (int i = 0; i < 100; ++i) queue.Offer(0);
  all.rig.Kick(0);
  CHECK(queue.UsedIndex() == Blk::kMaxNow / 0x8000);
  for (int i = 0; i < 20000 && queue.UsedIndex() != 100; ++i) {
    all.Drain();
    usleep(20);
  }
  CHECK(queue.UsedIndex() == 100);
}

TEST_CASE("a failing image is an I/O error") {
  BlkRig all;
  TestQueue queue = all.Begin();
  all.image->error = ENOSPC;
  for (const u32 type : {Blk::kIn, Blk::kOut, Blk::kFlushType}) {
    CHECK(all.Request(queue, type, 0, type == Blk::kFlushType ? 0 : 512, type == Blk::kOut) ==
          Blk::kIoError);
  }
  all.image->error = 0;
  CHECK(all.Request(queue, Blk::kIn, 0, 512, false) == 0);
}

TEST_CASE("what is safe when") {
  BlkRig all;
  {
    INFO("with flushes, writes may wait");
    TestQueue queue = all.Begin(Blk::kFlush);
    CHECK(all.Request(queue, Blk::kOut, 0, 512, true) == 0);
    CHECK(all.image->TakeLog() == "w");
    CHECK(all.Request(queue, Blk::kFlushType, 0, 0, true) == 0);
    CHECK(all.image->TakeLog() == "f");
  }
  {
    INFO("without, they may not");
    TestQueue queue = all.Begin(0);
    CHECK(all.Request(queue, Blk::kOut, 0, 512, true) == 0);
    CHECK(all.image->TakeLog() == "wf");
  }
  {
    INFO("nor when the driver says so");
    TestQueue queue = all.Begin(Blk::kFlush | Blk::kConfigWce);
    all.rig.Write(0x2000 + 32, 1, 0);
    CHECK(all.Request(queue, Blk::kOut, 0, 512, true) == 0);
    CHECK(all.image->TakeLog() == "wf");
    all.rig.Write(0x2000 + 32, 1, 1);
    CHECK(all.Request(queue, Blk::kOut, 0, 512, true) == 0);
    CHECK(all.image->TakeLog() == "w");
  }
}

TEST_CASE("a read-only image") {
  BlkRig all(/*read_only=*/true);
  CHECK((all.rig.Offered() & Blk::kReadOnly) != 0);
  CHECK((all.rig.Offered() & Blk::kDiscard) == 0);
  TestQueue queue = all.Begin();
  CHECK(all.Request(queue, Blk::kOut, 0, 512, true) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kZeroType, 0, 16, true) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kIn, 1, 512, false) == 0);
  CHECK(all.image->TakeLog() == "r");
}

TEST_CASE("ranges") {
  BlkRig all;
  TestQueue queue = all.Begin(Blk::kFlush | Blk::kDiscard | Blk::kWriteZeroes);
  const auto range = [&](u32 type, u64 sector, u32 sectors, u32 flags, u32 bytes = 16) {
    all.rig.memory.Set<u64>(kData, sector);
    all.rig.memory.Set<u32>(kData + 8, sectors);
    all.rig.memory.Set<u32>(kData + 12, flags);
    return all.Request(queue, type, 0, bytes, true);
  };
  CHECK(range(Blk::kDiscardType, 8, 8, 0) == 0);
  CHECK(range(Blk::kZeroType, 8, 8, 1) == 0);
  CHECK(all.image->TakeLog() == "dz");
  CHECK(range(Blk::kDiscardType, 8, 8, 1) == Blk::kUnsupported);
  CHECK(range(Blk::kZeroType, 8, 8, 2) == Blk::kUnsupported);
  CHECK(range(Blk::kZeroType, 2047, 2, 0) == Blk::kIoError);
  CHECK(range(Blk::kZeroType, ~u64{0}, 2, 0) == Blk::kIoError);
  CHECK(range(Blk::kZeroType, 1, ~u32{0}, 0) == Blk::kIoError);
  CHECK(range(Blk::kZeroType, 1, 1, 0, 15) == Blk::kIoError);
  CHECK(range(Blk::kZeroType, 1, 1, 0, 32) == Blk::kIoError);
  CHECK(all.image->TakeLog().empty());
}

TEST_CASE("requests that no driver makes") {
  const auto breaks = [](auto make) {
    BlkRig all;
    TestQueue queue = all.Begin();
    make(all.rig.memory, queue);
    all.rig.Kick(0);
    // Some are only found when the disk's thread has answered.
    for (int i = 0; i < 4000 && (all.rig.Status() & kNeedsReset) == 0; ++i) {
      usleep(5000);
      all.Drain();
    }
    return (all.rig.Status() & kNeedsReset) != 0;
  };
  CHECK(breaks([](TestRam&, TestQueue& queue) { queue.Add(kHeader, 16, false); }));
  CHECK(breaks([](TestRam&, TestQueue& queue) { queue.Add(kStatus, 1, true); }));
  CHECK(breaks([](TestRam&, TestQueue& queue) {
    queue.Describe(0, kHeader, 15, TestQueue::kNext, 1);
    queue.Describe(1, kStatus, 1, TestQueue::kWrite);
    queue.Offer(0);
  }));
  CHECK(breaks([](TestRam&, TestQueue& queue) {
    queue.Describe(0, 0xfffffff0, 16, TestQueue::kNext, 1);
    queue.Describe(1, kStatus, 1, TestQueue::kWrite);
    queue.Offer(0);
  }));
  // Data that is no memory.
  CHECK(breaks([](TestRam& memory, TestQueue& queue) {
    memory.Set<u32>(kHeader, Blk::kIn);
    queue.Describe(0, kHeader, 16, TestQueue::kNext, 1);
    queue.Describe(1, 0x80000000, 512, TestQueue::kNext | TestQueue::kWrite, 2);
    queue.Describe(2, kStatus, 1, TestQueue::kWrite);
    queue.Offer(0);
  }));

  BlkRig all;
  TestQueue queue = all.Begin();
  CHECK(all.Request(queue, Blk::kIn, 2048, 512, false) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kIn, ~u64{0}, 512, false) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kIn, u64{1} << 55, 512, false) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kIn, 0, 511, false) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kIn, 0, 0, false) == Blk::kIoError);
  CHECK(all.Request(queue, Blk::kIn, 0, 512, false) == 0);
}

TEST_CASE("a queue that is reset over and over while the image is slow") {
  BlkRig all;
  all.image->delay_us = 2000;
  for (int round = 0; round < 200; ++round) {
    TestQueue queue = all.Begin();
    all.rig.memory.Set<u32>(kHeader, Blk::kIn);
    queue.Describe(0, kHeader, 16, TestQueue::kNext, 1);
    queue.Describe(1, kData, 0x10000, TestQueue::kNext | TestQueue::kWrite, 2);
    queue.Describe(2, kStatus, 1, TestQueue::kWrite);
    for (int i = 0; i < 8; ++i) queue.Offer(0);
    all.rig.Kick(0);
  }
  all.image->delay_us = 0;
  // Stale requests end without touching memory, and what waited is then taken.
  TestQueue queue = all.Begin();
  CHECK(all.Request(queue, Blk::kIn, 3, 512, false) == 0);
  CHECK(all.rig.memory.Get<u8>(kData) == 3);
  CHECK(all.image->TakeLog().size() <= Blk::kMaxInFlight + 1);
}

TEST_CASE("random chains") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    BlkRig all;
    TestQueue queue = all.Begin(Blk::kFlush | Blk::kDiscard | Blk::kWriteZeroes);
    for (int i = 0; i < 30; ++i) {
      static constexpr u32 kTypes[] = {0, 1, 4, 8, 11, 13, 99};
      all.rig.memory.Set<u32>(kHeader, kTypes[random() % 7]);
      all.rig.memory.Set<u64>(kHeader + 8, random() % 4 == 0 ? random() : random() % 2048);
      const u16 count = static_cast<u16>(1 + random() % 6);
      for (u16 n = 0; n < count; ++n) {
        const u64 address = n == 0 ? kHeader : random() % 16 == 0 ? random() : random() % 0x80000;
        const u32 size =
            n == 0 ? 16 : static_cast<u32>(random() % 3 == 0 ? random() : random() % 4 * 512);
        const bool last = n + 1 == count;
        u16 flags = n != 0 && random() % 2 == 0 ? TestQueue::kWrite : 0;
        if (last) flags |= TestQueue::kWrite;
        if (!last) flags |= TestQueue::kNext;
        queue.Describe(n, address, last ? 1 : size, flags, static_cast<u16>(n + 1));
      }
      queue.Offer(0);
      all.rig.Kick(0);
      all.Drain();
    }
    // Rings may be overwritten by now; a reset makes it all good again.
    TestQueue fresh = all.Begin();
    CHECK(all.Request(fresh, Blk::kIn, 0, 512, false) == 0);
  }
}

}  // namespace
}  // namespace alibi::devices::virtio
