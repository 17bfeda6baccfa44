// SPDX-License-Identifier: Apache-2.0
// A virtio block device at the driver's level (virtio 1.2, section 5.2), polled: reads and writes
// of one and of many segments, flushes, the ID, zeros, and requests that must fail. PCI and queues
// as such are pci_virtio's matter.
//
// The disk's sector n begins with n as a 32-bit number and repeats it.

#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/pci.h"
#include "frobos/lib/string.h"

namespace alibi::frobos {
namespace {

constexpr u32 kBlk = 0x10421af4;
constexpr u64 kSector = 512, kSectors = 16384;
constexpr u16 kQueueSize = 128, kWritable = 2, kNext = 1;
constexpr u32 kFeatureFlush = 1u << 9, kFeatureZeroes = 1u << 14;
enum Type : u32 { kIn = 0, kOut = 1, kFlush = 4, kGetId = 8, kWriteZeroes = 13 };
enum : u8 { kOk = 0, kIoError = 1, kUnsupported = 2, kNone = 0xff };

u32 function;
u64 common, config, notify, notify_multiplier;
u64 ring;  // descriptors; available ring at 0x1000, used ring at 0x2000
u8* buffer;
u16 offered;

void FindRegisters() {
  for (u32 at = ReadPci8(function + 0x34); at != 0; at = ReadPci8(function + at + 1)) {
    const u8 type = ReadPci8(function + at + 3);
    if (ReadPci8(function + at) != 0x09 || type == 5) continue;
    const u64 address = MapBar(function, ReadPci8(function + at + 4)) + ReadPci(function + at + 8);
    if (type == 1) common = address;
    if (type == 4) config = address;
    if (type == 2) {
      notify = address;
      notify_multiplier = ReadPci(function + at + 16);
    }
  }
  // Memory and bus mastering.
  WritePci(function + 4, (ReadPci(function + 4) & 0xffff) | 6);
}

u32 SetUp() {
  Store<u8>(common + 0x14, 0);
  WaitFor([] { return Load<u8>(common + 0x14) == 0; });
  Store<u8>(common + 0x14, 3);
  Store<u32>(common, 0);
  const u32 features = Load<u32>(common + 4);
  Store<u32>(common + 8, 0);
  Store<u32>(common + 12, features & (kFeatureFlush | kFeatureZeroes));
  Store<u32>(common + 8, 1);
  Store<u32>(common + 12, 1);
  Store<u8>(common + 0x14, 11);
  Check(Load<u8>(common + 0x14) & 8, "features are agreed on");
  Store<u16>(common + 0x16, 0);
  Store<u16>(common + 0x18, kQueueSize);
  Store<u16>(common + 0x1a, 0xffff);
  const u64 rings[] = {ring, ring + 0x1000, ring + 0x2000};
  for (unsigned i = 0; i < 3; i++) {
    Store<u32>(common + 0x20 + 8 * i, static_cast<u32>(rings[i]));
    Store<u32>(common + 0x24 + 8 * i, 0);
  }
  Store<u16>(common + 0x1c, 1);
  Store<u8>(common + 0x14, 15);
  return features;
}

struct Segment {
  u64 offset;  // in the buffer
  u32 bytes;
};

void Describe(u16 number, u64 address, u32 bytes, u16 flags) {
  Store<u64>(ring + 16 * number, address);
  Store<u32>(ring + 16 * number + 8, bytes);
  Store<u16>(ring + 16 * number + 12, flags);
  Store<u16>(ring + 16 * number + 14, static_cast<u16>(number + 1));
}

// The header and the status lie behind the buffer's data.
constexpr u64 kHeaderAt = 0x40000, kStatusAt = 0x40100;
u32 used_bytes;

// One request, from the header to its status.
u8 Request(Type type, u64 sector, const Segment* segments, u16 count, bool to_device) {
  const u64 base = reinterpret_cast<u64>(buffer);
  Store<u32>(base + kHeaderAt, type);
  Store<u32>(base + kHeaderAt + 4, 0);
  Store<u64>(base + kHeaderAt + 8, sector);
  Store<u8>(base + kStatusAt, kNone);
  Describe(0, base + kHeaderAt, 16, kNext);
  for (u16 i = 0; i < count; i++) {
    Describe(static_cast<u16>(i + 1), base + segments[i].offset, segments[i].bytes,
             static_cast<u16>(kNext | (to_device ? 0 : kWritable)));
  }
  Describe(static_cast<u16>(count + 1), base + kStatusAt, 1, kWritable);
  Store<u16>(ring + 0x1004 + 2 * (offered % kQueueSize), 0);
  offered++;
  Store<u16>(ring + 0x1002, offered);
  Store<u16>(notify + u64{Load<u16>(common + 0x1e)} * notify_multiplier, 0);
  if (!WaitFor([] { return Load<u16>(ring + 0x2002) == offered; })) return kNone;
  used_bytes = Load<u32>(ring + 0x2008 + 8 * ((offered - 1u) % kQueueSize));
  return Load<u8>(base + kStatusAt);
}
u8 Transfer(Type type, u64 sector, u32 sectors) {
  const Segment all{0, static_cast<u32>(sectors * kSector)};
  return Request(type, sector, &all, 1, type == kOut);
}

bool HaveNumbers(u64 at, u32 first, u64 count) {
  for (u64 i = 0; i < count * kSector; i += 4) {
    u32 value;
    memcpy(&value, buffer + at + i, 4);
    if (value != first + static_cast<u32>(i / kSector)) return false;
  }
  return true;
}
void Number(u32 first, u64 count) {
  for (u64 i = 0; i < count * kSector; i += 4) {
    const u32 value = first + static_cast<u32>(i / kSector);
    memcpy(buffer + i, &value, 4);
  }
}

void TestTransfers() {
  CheckEq("capacity", Load<u32>(config) | u64{Load<u32>(config + 4)} << 32, kSectors);
  CheckEq("one sector is read", Transfer(kIn, 77, 1), kOk);
  Check(HaveNumbers(0, 77, 1), "... the right one");
  CheckEq("... and its status counts", used_bytes, kSector + 1);
  CheckEq("128 KB at the end", Transfer(kIn, kSectors - 256, 256), kOk);
  Check(HaveNumbers(0, kSectors - 256, 256), "... the right ones");
  Number(0x5000, 200);
  CheckEq("200 sectors are written", Transfer(kOut, 3000, 200), kOk);
  CheckEq("a flush", Request(kFlush, 0, nullptr, 0, true), kOk);
  memset(buffer, 0, 202 * kSector);
  CheckEq("they are read", Transfer(kIn, 2999, 202), kOk);
  Check(HaveNumbers(0, 2999, 1) && HaveNumbers(kSector, 0x5000, 200) &&
            HaveNumbers(201 * kSector, 3200, 1),
        "... there and nowhere else");

  // Segments of odd sizes, in another order in memory.
  const Segment pieces[] = {{0x8000, 300}, {0x2000, 1}, {0x20000, 1000}, {0x1000, 235}};
  CheckEq("a read into odd pieces", Request(kIn, 40, pieces, 4, false), kOk);
  u64 at = 0;
  for (const Segment& piece : pieces) {
    memcpy(buffer + 0x30000 + at, buffer + piece.offset, piece.bytes);
    at += piece.bytes;
  }
  Check(HaveNumbers(0x30000, 40, 3), "... each where it belongs");
  static Segment many[100];
  for (u64 i = 0; i < 100; i++) many[i] = {(99 - i) * 1024, 512};
  CheckEq("100 segments", Request(kIn, 500, many, 100, false), kOk);
  bool right = true;
  for (u32 i = 0; i < 100; i++) right = HaveNumbers(many[i].offset, 500 + i, 1) && right;
  Check(right, "... each where it belongs");
  CheckEq("... written from there", Request(kOut, 9000, many, 100, true), kOk);
  CheckEq("... read in one piece", Transfer(kIn, 9000, 100), kOk);
  Check(HaveNumbers(0, 500, 100), "... in order");
}

void TestOthers() {
  const Segment id{0, 20};
  CheckEq("the ID", Request(kGetId, 0, &id, 1, false), kOk);
  CheckEq("an unknown request", Request(static_cast<Type>(99), 0, nullptr, 0, true), kUnsupported);
  CheckEq("a read behind the end", Transfer(kIn, kSectors, 1), kIoError);
  CheckEq("... and one that reaches behind it", Transfer(kIn, kSectors - 1, 2), kIoError);
  CheckEq("... far behind", Transfer(kIn, ~u64{0} - 1, 1), kIoError);
  CheckEq("... a write", Transfer(kOut, u64{1} << 55, 8), kIoError);
  const Segment odd{0, 700};
  CheckEq("a part of a sector", Request(kIn, 0, &odd, 1, false), kIoError);
  CheckEq("the device goes on", Transfer(kIn, 7, 1), kOk);
  Check(HaveNumbers(0, 7, 1), "... as it should");
}

void TestZeroes() {
  Store<u64>(reinterpret_cast<u64>(buffer), 600);
  Store<u32>(reinterpret_cast<u64>(buffer) + 8, 10);
  Store<u32>(reinterpret_cast<u64>(buffer) + 12, 0);
  const Segment range{0, 16};
  CheckEq("zeros are written", Request(kWriteZeroes, 0, &range, 1, true), kOk);
  CheckEq("... and read", Transfer(kIn, 599, 12), kOk);
  bool zero = true;
  for (u64 i = kSector; i < 11 * kSector; i++) zero = buffer[i] == 0 && zero;
  Check(zero && HaveNumbers(0, 599, 1) && HaveNumbers(11 * kSector, 610, 1),
        "... there and nowhere else");
}

constexpr Section kSections[] = {
    {"transfers", TestTransfers}, {"others", TestOthers}, {"zeroes", TestZeroes}};

}  // namespace

int Main() {
  bool found = false;
  for (u32 slot = 0; slot < 32 && !found; slot++) {
    function = slot << 11;
    found = ReadPci(function) == kBlk;
  }
  Check(found, "there is a block device");
  if (!found) return Summary();
  FindRegisters();
  ring = AllocRange(3 * kPageSize, kPageSize);
  buffer = reinterpret_cast<u8*>(AllocRange(0x41000, kPageSize));
  const u32 features = SetUp();
  Check(features & kFeatureFlush, "it can flush");
  Check(features & kFeatureZeroes, "... and write zeros");
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
