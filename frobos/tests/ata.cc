// SPDX-License-Identifier: Apache-2.0
// The IDE controller at the driver's level: a disk on the first channel (PIO, multiple, DMA, 28-
// and 48-bit addresses, interrupts, resets, errors) and a CD-ROM drive on the second (packets, PIO
// and DMA). ATA/ATAPI-6; the bus master's interface.
//
// The disk's sector n begins with n as a 32-bit number and repeats it; so do the disc's blocks.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/pci.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u16 kDisk = 0x1f0, kCdrom = 0x170;
constexpr u16 kControlOffset = 0x206;
constexpr u8 kErr = 0x01, kDrq = 0x08, kBusy = 0x80;
constexpr u8 kAborted = 0x04;
constexpr u8 kNoInterrupt = 0x02, kReset = 0x04, kHigh = 0x80;
constexpr u8 kLba = 0xe0;
constexpr u64 kSector = 512, kBlock = 2048;
constexpr u8 kToMemory = 8, kStart = 1;
constexpr u8 kMasterActive = 1, kMasterInterrupt = 4;

u16 base = kDisk;  // of the channel in use
u16 master;        // its bus master's ports
volatile u64 interrupts;
u8* buffer;

void InWords(void* to, u64 count) {
  asm volatile("rep insw" : "+D"(to), "+c"(count) : "d"(base) : "memory");
}
void OutWords(const void* from, u64 count) {
  asm volatile("rep outsw" : "+S"(from), "+c"(count) : "d"(base) : "memory");
}

u8 Get(unsigned index) { return Inb(static_cast<u16>(base + index)); }
void Put(unsigned index, u64 value) {
  Outb(static_cast<u16>(base + index), static_cast<u8>(value));
}
u8 AltStatus() { return Inb(base + kControlOffset); }
void Control(u8 value) { Outb(base + kControlOffset, value); }

bool WaitIdle() {
  return WaitFor([] { return !(AltStatus() & kBusy); });
}
bool WaitData() {
  return WaitFor([] { return (AltStatus() & (kBusy | kDrq)) == kDrq || (AltStatus() & kErr); }) &&
         !(AltStatus() & kErr);
}

void PutAddress(u64 lba, u64 count, bool extended) {
  if (extended) {
    Put(2, count >> 8);
    Put(3, lba >> 24);
    Put(4, lba >> 32);
    Put(5, lba >> 40);
  }
  Put(2, count);
  Put(3, lba);
  Put(4, lba >> 8);
  Put(5, lba >> 16);
  Put(6, extended ? kLba : kLba | (lba >> 24 & 0xf));
}
void Issue(u8 command, u64 lba, u64 count, bool extended = false) {
  WaitIdle();
  PutAddress(lba, count, extended);
  Put(7, command);
}

bool HasNumber(const u8* sector, u64 bytes, u32 number) {
  for (u64 i = 0; i < bytes; i += 4) {
    u32 value;
    memcpy(&value, sector + i, 4);
    if (value != number) return false;
  }
  return true;
}
bool HaveNumbers(const u8* data, u64 unit, u32 first, u64 count) {
  for (u64 i = 0; i < count; i++) {
    if (!HasNumber(data + i * unit, unit, first + static_cast<u32>(i))) return false;
  }
  return true;
}

// The data of a PIO command, `per_block` sectors at a time.
bool ReadSectors(u64 count, u64 per_block = 1) {
  memset(buffer, 0xee, count * kSector);
  for (u64 done = 0; done < count; done += per_block) {
    if (!WaitData()) return false;
    const u64 now = count - done < per_block ? count - done : per_block;
    InWords(buffer + done * kSector, now * kSector / 2);
  }
  return WaitIdle() && !(Get(7) & (kErr | kDrq));
}
bool WriteSectors(u64 count, u64 per_block = 1) {
  for (u64 done = 0; done < count; done += per_block) {
    if (!WaitData()) return false;
    const u64 now = count - done < per_block ? count - done : per_block;
    OutWords(buffer + done * kSector, now * kSector / 2);
  }
  return WaitIdle() && !(Get(7) & (kErr | kDrq));
}
void Number(u32 first, u64 count) {
  for (u64 i = 0; i < count * kSector; i += 4) {
    const u32 value = first + static_cast<u32>(i / kSector);
    memcpy(buffer + i, &value, 4);
  }
}
bool Ends(u8 command, u64 lba = 0, u64 count = 0) {
  Issue(command, lba, count);
  return WaitIdle() && !(Get(7) & (kErr | kDrq));
}

u16 identification[256];
void TestIdentify() {
  base = kDisk;
  Control(kReset | kNoInterrupt);
  Control(kNoInterrupt);
  Check(WaitIdle(), "ready after a reset");
  Put(6, kLba);
  CheckEq("signature: count", Get(2), 1);
  CheckEq("signature: low", Get(3), 1);
  CheckEq("signature: mid", Get(4), 0);
  CheckEq("signature: high", Get(5), 0);
  CheckEq("reset: the diagnostic passed", Get(1), 1);
  Put(3, 0x55);
  Put(4, 0xaa);
  CheckEq("registers keep what is written", Get(3) | Get(4) << 8, 0xaa55);
  Put(6, kLba | 0x10);
  CheckEq("no second drive", Get(7), 0);
  Put(6, kLba);
  Issue(0xec, 0, 0);
  Check(WaitData(), "IDENTIFY DEVICE: data");
  InWords(identification, 256);
  Check(WaitIdle() && !(Get(7) & kDrq), "... and no more than 512 bytes");
  const u16* words = identification;
  Check(!(words[0] & 0x8000), "an ATA device");
  Check(words[49] & 0x200, "LBA");
  Check(words[49] & 0x100, "DMA");
  Check(words[83] & 0x400, "48-bit addresses");
  const u64 sectors = words[60] | u64{words[61]} << 16;
  CheckEq("sectors, both ways", words[100] | u64{words[101]} << 16 | u64{words[102]} << 32,
          sectors);
  CheckEq("8 MB", sectors, 16384);
}

void TestPio() {
  base = kDisk;
  Control(kNoInterrupt);
  Issue(0x20, 7, 1);
  Check(ReadSectors(1) && HasNumber(buffer, kSector, 7), "READ SECTORS: one");
  Issue(0x20, 1000, 0);
  Check(ReadSectors(256) && HaveNumbers(buffer, kSector, 1000, 256), "... 0 means 256");
  Issue(0x24, 16384 - 300, 300, /*extended=*/true);
  Check(ReadSectors(300) && HaveNumbers(buffer, kSector, 16384 - 300, 300), "READ SECTORS EXT");
  Issue(0x20, 5, 1);
  WaitData();
  bool same = true;
  for (int i = 0; i < 128; i++) same = Inl(base) == 5 && same;
  Check(same && WaitIdle() && !(Get(7) & kDrq), "the data port takes 32 bits");

  // Cylinder 1, head 2, sector 3 of 16 heads and 63 sectors.
  WaitIdle();
  Put(6, 0xa0 | 2);
  Put(2, 1);
  Put(3, 3);
  Put(4, 1);
  Put(5, 0);
  Put(7, 0x20);
  Check(ReadSectors(1) && HasNumber(buffer, kSector, (1 * 16 + 2) * 63 + 2), "by cylinder");

  Number(0x1000, 3);
  Issue(0x30, 100, 3);
  Check(WriteSectors(3), "WRITE SECTORS");
  Issue(0x20, 99, 5);
  Check(ReadSectors(5), "... reads back");
  Check(HasNumber(buffer, kSector, 99) && HaveNumbers(buffer + kSector, kSector, 0x1000, 3) &&
            HasNumber(buffer + 4 * kSector, kSector, 103),
        "... there and nowhere else");
  Number(0x2000, 300);
  Issue(0x34, 2000, 300, /*extended=*/true);
  Check(WriteSectors(300), "WRITE SECTORS EXT");
  Check(Ends(0xe7), "FLUSH CACHE");
  Check(Ends(0xea), "FLUSH CACHE EXT");
  Issue(0x24, 2000, 300, /*extended=*/true);
  Check(ReadSectors(300) && HaveNumbers(buffer, kSector, 0x2000, 300), "... reads back");
  Check(Ends(0x40, 0, 8), "READ VERIFY SECTORS");

  Check(Ends(0xc6, 0, 8), "SET MULTIPLE MODE");
  Issue(0xc4, 5000, 20);
  Check(ReadSectors(20, 8) && HaveNumbers(buffer, kSector, 5000, 20), "READ MULTIPLE, 8 at a time");
  Number(0x3000, 20);
  Issue(0xc5, 5000, 20);
  Check(WriteSectors(20, 8), "WRITE MULTIPLE");
  Issue(0x29, 5000, 20, /*extended=*/true);
  Check(ReadSectors(20, 8) && HaveNumbers(buffer, kSector, 0x3000, 20), "... READ MULTIPLE EXT");
}

void TestErrors() {
  base = kDisk;
  Control(kNoInterrupt);
  const auto fails = [](u8 command, u64 lba, u64 count, bool extended = false) {
    Issue(command, lba, count, extended);
    return WaitIdle() && (Get(7) & (kErr | kDrq)) == kErr;
  };
  Check(fails(0xff, 0, 0), "an unknown command fails");
  CheckEq("... as aborted", Get(1) & kAborted, kAborted);
  Check(fails(0x20, 16384, 1), "a read behind the end fails");
  Check(fails(0x24, u64{1} << 47, 1, /*extended=*/true), "... and far behind");
  Check(Ends(0xe5), "CHECK POWER MODE");
  CheckEq("... active", Get(2), 0xff);
  Issue(0x27, 0, 0, /*extended=*/true);
  Check(WaitIdle() && !(Get(7) & kErr), "READ NATIVE MAX ADDRESS EXT");
  CheckEq("... the last sector", Get(3) | Get(4) << 8 | Get(5) << 16, 16383);
  Control(kNoInterrupt | kHigh);
  CheckEq("... upper bytes behind HOB", Get(3) | Get(4) << 8 | Get(5) << 16, 0);
  Control(kNoInterrupt);
}

void OnInterrupt(unsigned irq) {
  interrupts = interrupts + 1;
  EndOfIrq(irq);
}

void TestInterrupts() {
  base = kDisk;
  InitPic();
  SetHandler(kIrqBase + 14, [](TrapFrame*) { OnInterrupt(14); });
  Get(7);
  UnmaskIrq(14);
  UnmaskIrq(2);
  interrupts = 0;
  Control(0);
  EnableInterrupts();
  Issue(0x20, 9, 2);
  Check(WaitFor([] { return interrupts == 1; }), "an interrupt for the first sector");
  Check(Get(7) & kDrq, "... with its data");
  InWords(buffer, 256);
  Check(WaitFor([] { return interrupts == 2; }), "... and one for the second");
  Get(7);
  InWords(buffer, 256);
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 5'000'000; });
  CheckEq("... none at the end of a read", interrupts, 2);
  Issue(0x30, 9, 1);
  WaitData();
  CheckEq("no interrupt before a write's data", interrupts, 2);
  Number(9, 1);
  OutWords(buffer, 256);
  Check(WaitFor([] { return interrupts == 3; }), "... one when it is written");
  Get(7);
  Issue(0xe7, 0, 0);
  Check(WaitFor([] { return interrupts == 4; }), "... and one for a flush");
  Get(7);
  Control(kNoInterrupt);
  Issue(0xe7, 0, 0);
  WaitIdle();
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 5'000'000; });
  CheckEq("nIEN holds it back", interrupts, 4);
  Get(7);
  DisableInterrupts();
  MaskAllInterrupts();
}

constexpr u32 kIde = 1 << 11 | 1 << 8;  // PCI slot 1, function 1

struct Region {
  u32 address;
  u16 bytes;
  u16 flags;
};
constexpr u16 kLast = 0x8000;
Region* regions;

void FindMaster() {
  CheckEq("the PIIX3's IDE function", ReadPci(kIde + 0), 0x70108086);
  WritePci(kIde + 4, ReadPci(kIde + 4) | 5);
  master = static_cast<u16>(ReadPci(kIde + 0x20) & 0xfffc);
  Check(master != 0, "... has its ports");
}
// Sets the table up; the command must have been given, or follows.
void StartMaster(bool to_memory) {
  Outb(master + 2, kMasterInterrupt | 2);
  Outl(master + 4, static_cast<u32>(reinterpret_cast<u64>(regions)));
  Outb(master, to_memory ? kToMemory : 0);
  Outb(master, (to_memory ? kToMemory : 0) | kStart);
}
bool WaitMaster() {
  const bool done = WaitFor([] { return (Inb(master + 2) & kMasterInterrupt) != 0; });
  return done && !(Get(7) & (kErr | kDrq | kBusy));
}
u32 At(u64 offset) { return static_cast<u32>(reinterpret_cast<u64>(buffer) + offset); }

void TestDma() {
  base = kDisk;
  FindMaster();
  Control(0);
  Get(7);
  memset(buffer, 0, 64 * kSector);
  regions[0] = {At(0), 4 * kSector, kLast};
  Issue(0xc8, 40, 4);
  StartMaster(/*to_memory=*/true);
  Check(WaitMaster(), "READ DMA");
  CheckEq("... the bus master is done", Inb(master + 2) & (kMasterActive | 2), 0);
  Outb(master, 0);
  Check(HaveNumbers(buffer, kSector, 40, 4), "... reads");

  // Pieces that are no sectors, in memory in another order, the bus master first.
  memset(buffer, 0, 64 * kSector);
  regions[0] = {At(0x4000), 700, 0};
  regions[1] = {At(0x2000), 2, 0};
  regions[2] = {At(0x6000), 2 * kSector - 702, kLast};
  StartMaster(/*to_memory=*/true);
  Issue(0x25, 50, 2, /*extended=*/true);
  Check(WaitMaster(), "READ DMA EXT in pieces");
  Outb(master, 0);
  u8 sectors[2 * kSector];
  memcpy(sectors, buffer + 0x4000, 700);
  memcpy(sectors + 700, buffer + 0x2000, 2);
  memcpy(sectors + 702, buffer + 0x6000, 2 * kSector - 702);
  Check(HaveNumbers(sectors, kSector, 50, 2), "... each where it belongs");
  CheckEq("... and nothing behind", buffer[0x2002], 0);

  // 128 KB in two regions of 64 KB, whose count is 0.
  regions[0] = {At(0), 0, 0};
  regions[1] = {At(0x10000), 0, kLast};
  Issue(0x25, 6000, 256, /*extended=*/true);
  StartMaster(/*to_memory=*/true);
  Check(WaitMaster() && HaveNumbers(buffer, kSector, 6000, 256), "128 KB at once");
  Outb(master, 0);
  Number(0x4000, 256);
  Issue(0x35, 7000, 256, /*extended=*/true);
  StartMaster(/*to_memory=*/false);
  Check(WaitMaster(), "WRITE DMA EXT");
  Outb(master, 0);
  memset(buffer, 0, 0x20000);
  Issue(0xc8, 7000, 0);
  StartMaster(/*to_memory=*/true);
  Check(WaitMaster() && HaveNumbers(buffer, kSector, 0x4000, 256), "... reads back");
  Outb(master, 0);

  // More memory than data: the end is the drive's.
  regions[0] = {At(0), 8 * kSector, kLast};
  Issue(0xc8, 60, 1);
  StartMaster(/*to_memory=*/true);
  Check(WaitMaster(), "a table that is too long");
  CheckEq("... leaves the bus master active", Inb(master + 2) & kMasterActive, kMasterActive);
  Outb(master, 0);
  CheckEq("... until it is stopped", Inb(master + 2) & kMasterActive, 0);

  // A table in no memory at all: nothing happens, and a reset ends it.
  Outb(master + 2, kMasterInterrupt | 2);
  Outl(master + 4, 0xf0000000);
  Issue(0xc8, 60, 1);
  Outb(master, kToMemory | kStart);
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 5'000'000; });
  Outb(master, 0);
  Control(kReset | kNoInterrupt);
  Control(kNoInterrupt);
  Issue(0x20, 61, 1);
  Check(ReadSectors(1) && HasNumber(buffer, kSector, 61), "a reset ends a transfer that hangs");
}

// --- The CD-ROM drive ---

// Sends a packet; true if the drive wants to answer.
bool Packet(const u8 (&packet)[12], u64 limit, bool dma = false) {
  WaitIdle();
  Put(6, 0xa0);
  Put(1, dma ? 1 : 0);
  Put(4, limit);
  Put(5, limit >> 8);
  Put(7, 0xa0);
  if (!WaitData()) return false;
  OutWords(packet, 6);
  return true;
}
// Takes the answer; its size, or ~0 after an error.
u64 Answer() {
  u64 size = 0;
  for (;;) {
    WaitFor([] { return !(AltStatus() & kBusy); });
    const u8 status = Get(7);
    if (status & kErr) return ~u64{0};
    if (!(status & kDrq)) return size;
    const u64 bytes = Get(4) | Get(5) << 8;
    if (bytes == 0 || size + bytes > 0x20000) return ~u64{0};
    InWords(buffer + size, bytes / 2);
    size += bytes;
  }
}
u64 Ask(const u8 (&packet)[12], u64 limit = 0xfffe) {
  return Packet(packet, limit) ? Answer() : ~u64{0};
}
u32 Big(u64 at, unsigned size) {
  u32 value = 0;
  for (unsigned i = 0; i < size; i++) value = value << 8 | buffer[at + i];
  return value;
}

void TestCdrom() {
  base = kCdrom;
  Control(kReset | kNoInterrupt);
  Control(kNoInterrupt);
  WaitIdle();
  Put(6, 0xa0);
  CheckEq("a packet device's signature", Get(4) | Get(5) << 8, 0xeb14);
  Put(7, 0xec);
  Check(WaitIdle() && (Get(7) & kErr), "IDENTIFY DEVICE fails");
  CheckEq("... and shows the signature", Get(4) | Get(5) << 8, 0xeb14);
  Put(7, 0xa1);
  Check(WaitData(), "IDENTIFY PACKET DEVICE");
  InWords(identification, 256);
  CheckEq("... a CD-ROM drive with packets of 12 bytes", identification[0] & 0xdf03, 0x8500);

  Ask({0});  // a drive may tell of its new disc first
  CheckEq("TEST UNIT READY", Ask({0}), 0);
  CheckEq("INQUIRY", Ask({0x12, 0, 0, 0, 36}), 36);
  CheckEq("... a CD-ROM drive", buffer[0] & 0x1f, 5);
  CheckEq("READ CAPACITY", Ask({0x25}), 8);
  CheckEq("... the last block", Big(0, 4), 1023);
  CheckEq("... of 2048 bytes", Big(4, 4), kBlock);
  CheckEq("READ(10)", Ask({0x28, 0, 0, 0, 0, 17, 0, 0, 1}), kBlock);
  Check(HasNumber(buffer, kBlock, 17), "... reads the block");
  CheckEq("READ(12), 20 blocks of 2 KB each", Ask({0xa8, 0, 0, 0, 1, 0, 0, 0, 0, 20}, kBlock),
          20 * kBlock);
  Check(HaveNumbers(buffer, kBlock, 256, 20), "... reads them");
  CheckEq("READ(10), 40 blocks at the end", Ask({0x28, 0, 0, 0, 0x03, 0xd8, 0, 0, 40}),
          40 * kBlock);
  Check(HaveNumbers(buffer, kBlock, 0x3d8, 40), "... reads them");
  CheckEq("READ TOC", Ask({0x43, 0, 0, 0, 0, 0, 0, 0, 64}), 20);
  CheckEq("... one track", Big(2, 2), 0x0101);
  CheckEq("... of data", buffer[5] & 4, 4);
  CheckEq("... the lead-out behind it", Big(16, 4), 1024);
  Check(Ask({0x46, 0, 0, 0, 0, 0, 0, 0, 64}) >= 8, "GET CONFIGURATION");
  CheckEq("... a CD", Big(6, 2), 8);
  CheckEq("GET EVENT STATUS", Ask({0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8}), 8);
  Check(Ask({0x5a, 0, 0x2a, 0, 0, 0, 0, 0, 128}) >= 28, "MODE SENSE(10)");
  CheckEq("... the page of capabilities", buffer[8] & 0x3f, 0x2a);

  Check(Ask({0x28, 0, 0, 0, 4, 0, 0, 0, 1}) == ~u64{0}, "a read behind the end fails");
  CheckEq("REQUEST SENSE", Ask({0x03, 0, 0, 0, 18}), 18);
  CheckEq("... illegal request, out of range", buffer[2] << 8 | buffer[12], 0x0521);
  Check(Ask({0xff}) == ~u64{0}, "an unknown packet fails");
  Ask({0x03, 0, 0, 0, 18});
  CheckEq("... as an invalid operation", buffer[2] << 8 | buffer[12], 0x0520);

  master = static_cast<u16>(master + 8);
  Control(0);
  memset(buffer, 0, 3 * kBlock);
  regions[0] = {At(0), 3 * kBlock, kLast};
  Check(Packet({0x28, 0, 0, 0, 0, 100, 0, 0, 3}, 0, /*dma=*/true), "READ(10) by DMA");
  StartMaster(/*to_memory=*/true);
  Check(WaitMaster() && HaveNumbers(buffer, kBlock, 100, 3), "... reads");
  Outb(master, 0);
  Control(kNoInterrupt);
}

constexpr Section kSections[] = {{"identify", TestIdentify}, {"pio", TestPio},
                                 {"errors", TestErrors},     {"interrupts", TestInterrupts},
                                 {"dma", TestDma},           {"cdrom", TestCdrom}};

}  // namespace

int Main() {
  buffer = reinterpret_cast<u8*>(AllocRange(0x30000, 0x10000));
  regions = reinterpret_cast<Region*>(AllocRange(4096, 4096));
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
