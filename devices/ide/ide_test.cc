// SPDX-License-Identifier: Apache-2.0
// The controller without a guest: what a FrobOS kernel cannot make happen (failing images, slow
// ones), and guests that do what no driver does.
#include <errno.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <mutex>
#include <random>

#include "devices/block/memory_image.h"
#include "devices/ide/ata_disk.h"
#include "devices/ide/atapi_cdrom.h"
#include "devices/ide/ide_controller.h"
#include "devices/test_util.h"

namespace alibi::devices {
namespace {

using block::MemoryImage;

class MemoryDma final : public Dma {
 public:
  bool Read(PhysAddr address, void* out, u64 size) override {
    if (!Inside(address, size)) return false;
    std::memcpy(out, ram.data() + address.value, size);
    return true;
  }
  bool Write(PhysAddr address, const void* data, u64 size) override {
    if (!Inside(address, size)) return false;
    std::memcpy(ram.data() + address.value, data, size);
    return true;
  }
  bool Inside(PhysAddr address, u64 size) const {
    return size <= ram.size() && address.value <= ram.size() - size;
  }
  std::vector<u8> ram = std::vector<u8>(1 << 20);
};

// A controller with a disk and a CD-ROM drive, and the board's part.
struct Rig {
  Rig() {
    disk_image = std::make_shared<MemoryImage>(u64{1} << 20);
    disc_image = std::make_shared<MemoryImage>(u64{1} << 20);
    for (std::size_t i = 0; i < disk_image->bytes.size(); ++i) {
      disk_image->bytes[i] = static_cast<u8>(i / 512);
    }
    IdeChannel& first = controller.channel(0);
    IdeChannel& second = controller.channel(1);
    first.Attach(0, std::make_unique<AtaDisk>(MakeDisk(disk_image), first, "TEST"));
    second.Attach(0, std::make_unique<AtapiCdrom>(MakeDisk(disc_image), second));
    controller.ConfigWrite(PciFunction::kCommand, 2, 7);
  }
  std::unique_ptr<block::Disk> MakeDisk(std::shared_ptr<MemoryImage> image) {
    auto disk = block::Disk::Create(
        std::move(image), "test",
        [this](std::function<void()> work) {
          const std::lock_guard lock(mutex);
          posted.push_back(std::move(work));
        },
        nullptr);
    REQUIRE(disk.ok());
    return std::move(*disk);
  }
  void Drain() {
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(posted);
    }
    for (auto& work : now) work();
  }
  u8 Get(unsigned index) {
    return static_cast<u8>(controller.channel(0).command_block().Read(index, 1));
  }
  void Put(unsigned index, u64 value) {
    controller.channel(0).command_block().Write(index, 1, value & 0xff);
  }
  void Control(u8 value) { controller.channel(0).control_block().Write(0, 1, value); }
  u8 Settle() {
    u8 status;
    int patience = 20000;
    do {
      Drain();
      status = static_cast<u8>(controller.channel(0).control_block().Read(0, 1));
      if (status & kIdeBusy) usleep(50);
    } while ((status & kIdeBusy) && --patience != 0);
    return status;
  }
  u8 Issue(u8 command, u32 lba, u8 count) {
    Put(kIdeCount, count);
    Put(kIdeLbaLow, lba);
    Put(kIdeLbaMid, lba >> 8);
    Put(kIdeLbaHigh, lba >> 16);
    Put(kIdeDevice, 0xe0);
    Put(kIdeStatus, command);
    return Settle();
  }
  BusMasterChannel& master() { return controller.channel(0).bus_master(); }
  void Region(unsigned index, u32 address, u16 bytes, bool last) {
    const u32 entry[2] = {address, bytes | (last ? 0x80000000u : 0)};
    std::memcpy(dma.ram.data() + 0x1000 + index * 8, entry, 8);
  }
  void Start(bool to_memory, u32 table = 0x1000) {
    for (unsigned i = 0; i < 4; ++i) master().Write(4 + i, static_cast<u8>(table >> (8 * i)));
    master().Write(0, to_memory ? 8 : 0);
    master().Write(0, to_memory ? 9 : 1);
  }

  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  MemoryDma dma;
  RecordingLine primary, secondary;
  std::shared_ptr<MemoryImage> disk_image, disc_image;
  IdeController controller{dma, primary, secondary};
};

bool Works(Rig& rig) {
  rig.Control(4);
  rig.Control(0);
  if (rig.Settle() & kIdeBusy) return false;
  if (!(rig.Issue(0x20, 3, 1) & kIdeDrq)) return false;
  bool good = true;
  for (int i = 0; i < 256; ++i) {
    good = rig.controller.channel(0).command_block().Read(0, 2) == 0x0303 && good;
  }
  return good && !(rig.Settle() & (kIdeErr | kIdeDrq));
}

TEST_CASE("a sector, its interrupt, its acknowledgement") {
  Rig rig;
  CHECK((rig.Issue(0x20, 5, 1) & kIdeDrq) != 0);
  CHECK(rig.primary.level());
  rig.Get(kIdeStatus);
  CHECK_FALSE(rig.primary.level());
  CHECK(rig.controller.channel(0).command_block().Read(0, 4) == 0x05050505);
  CHECK(Works(rig));
}

TEST_CASE("DMA of what the host has cached ends with the access that starts it") {
  Rig rig;
  rig.disk_image->cached = true;
  for (const u16 sectors : {u16{8}, u16{1024}, u16{2048}}) {
    INFO(sectors);
    // Regions of 64 KB, all over the same memory.
    const unsigned regions = (sectors * 512u + 65535) / 65536;
    for (unsigned i = 0; i < regions; ++i) {
      const u32 bytes = std::min(65536u, sectors * 512u - i * 65536);
      rig.Region(i, 0x20000, static_cast<u16>(bytes), i + 1 == regions);
    }
    rig.Put(kIdeDevice, 0xe0);
    rig.Put(kIdeCount, sectors >> 8);
    rig.Put(kIdeCount, sectors);
    for (const unsigned index : {kIdeLbaLow, kIdeLbaMid, kIdeLbaHigh}) {
      rig.Put(index, 0);
      rig.Put(index, 0);
    }
    rig.Put(kIdeStatus, 0x25);
    CHECK(rig.disk_image->TakeLog() == "c");
    CHECK_FALSE(rig.primary.level());
    rig.Start(/*to_memory=*/true);
    CHECK(rig.primary.level());
    CHECK(rig.Get(kIdeStatus) == (kIdeReady | kIdeSeek));
    CHECK((rig.master().Read(2) & 7) == 4);
    const u64 last = (regions - 1) * 65536;
    CHECK(std::memcmp(rig.dma.ram.data() + 0x20000, rig.disk_image->bytes.data() + last, 512) == 0);
    rig.master().Write(0, 0);
    rig.master().Write(2, 4);
  }
  rig.disk_image->cached = false;
  CHECK(Works(rig));
}

TEST_CASE("registers that only keep what they are told are answered without a crossing") {
  Rig rig;
  Device& command = rig.controller.channel(0).command_block();
  u64 value;
  CHECK(command.Poke(kIdeCount, 1, 0x12));
  CHECK(command.Poke(kIdeCount, 1, 0x34));
  CHECK((command.Peek(kIdeCount, 1, &value) && value == 0x34));
  CHECK(rig.Get(kIdeCount) == 0x34);
  rig.Control(0x80);
  CHECK((command.Peek(kIdeCount, 1, &value) && value == 0x12));
  // The other drive's choice may change the interrupt; data and commands do something.
  CHECK(command.Poke(kIdeDevice, 1, 0xe0));
  CHECK_FALSE(command.Poke(kIdeDevice, 1, 0xf0));
  CHECK(rig.Get(kIdeDevice) == 0xe0);
  CHECK_FALSE(command.Poke(kIdeStatus, 1, 0xec));
  CHECK_FALSE(command.Poke(kIdeData, 1, 0));
  CHECK_FALSE(command.Peek(kIdeData, 2, &value));
  // A status that acknowledges an interrupt is read by the drive, the alternate one never.
  CHECK(command.Peek(kIdeStatus, 1, &value));
  rig.Issue(0x20, 5, 1);
  REQUIRE(rig.primary.level());
  CHECK_FALSE(command.Peek(kIdeStatus, 1, &value));
  CHECK(rig.controller.channel(0).control_block().Peek(0, 1, &value));
  CHECK(value == (kIdeReady | kIdeSeek | kIdeDrq));
  rig.Get(kIdeStatus);
  CHECK(command.Peek(kIdeStatus, 1, &value));
}

TEST_CASE("an image's failure is the guest's error") {
  Rig rig;
  rig.disk_image->error = EIO;
  CHECK((rig.Issue(0x20, 5, 1) & kIdeErr) != 0);
  CHECK(rig.Get(kIdeError) == kIdeUncorrectable);
  CHECK((rig.Issue(0xe7, 0, 0) & kIdeErr) != 0);
  rig.disk_image->error = ENOSPC;
  REQUIRE((rig.Issue(0x30, 5, 1) & kIdeDrq) != 0);
  for (int i = 0; i < 128; ++i) rig.controller.channel(0).command_block().Write(0, 4, 0);
  CHECK((rig.Settle() & kIdeErr) != 0);
  rig.disk_image->error = 0;
  CHECK(Works(rig));
}

TEST_CASE("without a write cache each write is followed by a flush") {
  Rig rig;
  const auto write = [&] {
    rig.disk_image->TakeLog();
    REQUIRE((rig.Issue(0x30, 5, 1) & kIdeDrq) != 0);
    for (int i = 0; i < 128; ++i) rig.controller.channel(0).command_block().Write(0, 4, 0);
    CHECK_FALSE(rig.Settle() & kIdeErr);
    return rig.disk_image->TakeLog();
  };
  CHECK(write() == "w");
  rig.Put(kIdeError, 0x82);
  CHECK_FALSE(rig.Issue(0xef, 0, 0) & kIdeErr);
  CHECK(rig.disk_image->TakeLog() == "f");
  CHECK(write() == "wf");
  rig.Put(kIdeError, 0x02);
  CHECK_FALSE(rig.Issue(0xef, 0, 0) & kIdeErr);
  CHECK(write() == "w");
}

TEST_CASE("resets while the image is slow leave a bounded number of requests") {
  Rig rig;
  rig.disk_image->delay_us = 1000;
  for (int i = 0; i < 3000; ++i) {
    rig.Put(kIdeDevice, 0xe0);
    rig.Put(kIdeCount, 0);
    rig.Put(kIdeStatus, 0x20);
    rig.Control(4);
    rig.Control(0);
  }
  rig.disk_image->delay_us = 0;
  CHECK(Works(rig));
  CHECK(rig.disk_image->TakeLog().size() < 100);
}

TEST_CASE("DMA that cannot happen hangs the drive, not us") {
  Rig rig;
  const auto reads = [&](const char* name, u32 table) {
    INFO(name);
    rig.Start(/*to_memory=*/true, table);
    rig.Issue(0xc8, 0, 16);
    CHECK(rig.disk_image->TakeLog().size() <= 1);
    rig.master().Write(0, 0);
    CHECK(Works(rig));
    rig.disk_image->TakeLog();
  };
  reads("a table outside RAM", 0xfffffff0);
  rig.Region(0, 0xfffff000, 0, true);
  reads("a region outside RAM", 0x1000);
  rig.Region(0, 0x8000, 512, true);
  reads("a table that is too short", 0x1000);
  // A region that overwrites the table itself.
  rig.Region(0, 0x1008, 512, false);
  rig.Region(1, 0x2000, 512, true);
  reads("a table that changes", 0x1000);
  // A table without an end, of the smallest regions.
  for (u32 at = 0x10000; at < 0x20000; at += 8) {
    const u32 entry[2] = {0x30000, 2};
    std::memcpy(rig.dma.ram.data() + at, entry, 8);
  }
  rig.Start(true, 0x10000);
  rig.Issue(0x25, 0, 0);
  rig.master().Write(0, 0);
  CHECK(Works(rig));
  // The wrong direction.
  rig.Region(0, 0x8000, 8192, true);
  rig.Start(/*to_memory=*/false);
  rig.Issue(0xc8, 0, 16);
  rig.master().Write(0, 0);
  CHECK(Works(rig));
  // Without bus mastering.
  rig.controller.ConfigWrite(PciFunction::kCommand, 2, 3);
  rig.Start(true);
  rig.Issue(0xc8, 0, 16);
  CHECK(rig.dma.ram[0x8000] == 0);
  CHECK(Works(rig));
}

TEST_CASE("a reset of the machine") {
  Rig rig;
  rig.Region(0, 0x8000, 8192, true);
  rig.Put(kIdeDevice, 0xe0);
  rig.Put(kIdeStatus, 0xc8);
  rig.controller.channel(0).command_block().Reset();
  rig.Drain();
  CHECK_FALSE(rig.primary.level());
  CHECK(rig.Settle() == (kIdeReady | kIdeSeek));
  CHECK(rig.Get(kIdeCount) == 1);
  CHECK(Works(rig));
}

TEST_CASE("random accesses") {
  for (u64 seed = 1; seed <= 6; ++seed) {
    Rig rig;
    for (unsigned channel = 0; channel < 2; ++channel) {
      std::mt19937_64 plan(seed);
      for (int round = 0; round < 40; ++round) {
        Device& block = rig.controller.channel(channel).command_block();
        Hammer(block, 8, plan(), 200, [&](std::mt19937_64& random) {
          if (random() % 8 == 0) rig.Drain();
          if (random() % 50 == 0) {
            rig.controller.channel(channel).control_block().Write(0, 1, random() & 0xff);
          }
          // Commands that lead somewhere, and data for them.
          static constexpr u8 kCommands[] = {0x20, 0x24, 0x25, 0x30, 0x34, 0x35, 0x29, 0x39,
                                             0xc4, 0xc5, 0xc6, 0xc8, 0xca, 0xec, 0xef, 0xb0,
                                             0xa0, 0xa1, 0x08, 0x90, 0xe7, 0x27, 0xf8};
          if (random() % 10 == 0) {
            block.Write(kIdeDevice, 1, random() % 4 == 0 ? random() & 0xff : 0xe0);
            block.Write(kIdeCount, 1, random() % 8);
            block.Write(kIdeStatus, 1, kCommands[random() % std::size(kCommands)]);
          }
          if (random() % 10 == 0) {
            for (int i = 0; i < 300; ++i) block.Write(0, 2, random() & 0xffff);
          }
          if (random() % 10 == 0) {
            for (int i = 0; i < 300; ++i) block.Read(0, 4);
          }
          if (random() % 10 == 0) {
            BusMasterChannel& master = rig.controller.channel(channel).bus_master();
            master.Write(random() % 8, static_cast<u8>(random()));
            master.Write(0, static_cast<u8>(random() & 9));
          }
        });
      }
    }
    // A flush is behind every write that got through.
    rig.Control(4);
    rig.Control(0);
    rig.Settle();
    CHECK_FALSE(rig.Issue(0xe7, 0, 0) & kIdeErr);
    std::memset(rig.disk_image->bytes.data() + 3 * 512, 3, 512);
    CHECK(Works(rig));
  }
}

TEST_CASE("random packets") {
  Rig rig;
  IdeChannel& channel = rig.controller.channel(1);
  Device& block = channel.command_block();
  std::mt19937_64 random(11);
  static constexpr u8 kOperations[] = {0x00, 0x03, 0x12, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2b, 0x43,
                                       0x46, 0x4a, 0x51, 0x52, 0x5a, 0xa8, 0xbb, 0xbd, 0xbe, 0xff};
  for (int i = 0; i < 4000; ++i) {
    block.Write(kIdeDevice, 1, 0xa0);
    block.Write(kIdeError, 1, random() % 8 == 0);
    block.Write(kIdeLbaMid, 1, random() % 3 == 0 ? 0 : random() & 0xff);
    block.Write(kIdeLbaHigh, 1, random() % 3 == 0 ? 0 : random() & 0xff);
    block.Write(kIdeStatus, 1, 0xa0);
    u8 packet[12];
    for (u8& byte : packet) byte = random() % 2 == 0 ? 0 : static_cast<u8>(random());
    packet[0] = kOperations[random() % std::size(kOperations)];
    for (int word = 0; word < 6; ++word)
      block.Write(0, 2, packet[2 * word] | packet[2 * word + 1] << 8);
    // Takes some of the answer, all, or too much.
    for (u64 words = random() % 3000; words != 0; --words) {
      rig.Drain();
      block.Read(0, 2);
    }
    if (random() % 4 == 0) {
      channel.control_block().Write(0, 1, 4);
      channel.control_block().Write(0, 1, 0);
    }
  }
  channel.control_block().Write(0, 1, 4);
  channel.control_block().Write(0, 1, 0);
  rig.Drain();
  block.Write(kIdeStatus, 1, 0xa1);
  CHECK((block.Read(kIdeStatus, 1) & kIdeDrq) != 0);
}

}  // namespace
}  // namespace alibi::devices
