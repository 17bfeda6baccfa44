// SPDX-License-Identifier: Apache-2.0
// Writes generation after generation to the first IDE disk until the machine goes away: data, a
// flush, a commit record, a flush, and a line on the console. testsuite/program/disk_test.cc kills
// the VMM in the middle and looks at the image.
//
// From sector base=N on:
//   sector g mod 4                  commit record of generation g
//   sectors 64 + 64 * (g mod 4) ..  its data, 64 sectors
// Each sector is a 32-bit number over and over: its generation's.

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"

namespace alibi::frobos {
namespace {

constexpr u16 kBase = 0x1f0, kControl = 0x3f6;
constexpr u8 kErr = 0x01, kDrq = 0x08, kBusy = 0x80;
constexpr u64 kSlots = 4, kDataSectors = 64;
constexpr u8 kFailed = 3;

u8 WaitIdle() {
  while (Inb(kControl) & kBusy) {
  }
  return Inb(kBase + 7);
}
void Fail(const char* what) {
  Print("%s failed\n", what);
  Exit(kFailed);
}
void Issue(u8 command, u64 lba, u64 count) {
  const u64 values[] = {count, lba, lba >> 8, lba >> 16, 0xe0, command};
  for (u16 i = 0; i < 6; i++) Outb(static_cast<u16>(kBase + 2 + i), static_cast<u8>(values[i]));
}
void WriteGeneration(u64 lba, u64 count, u32 generation) {
  static u32 sector[128];
  for (u32& word : sector) word = generation;
  Issue(0x30, lba, count);
  for (u64 i = 0; i < count; i++) {
    if ((WaitIdle() & (kErr | kDrq)) != kDrq) Fail("write");
    const u32* from = sector;
    u64 words = 256;
    asm volatile("rep outsw" : "+S"(from), "+c"(words) : "d"(kBase) : "memory");
  }
  if (WaitIdle() & kErr) Fail("write");
}
void Flush() {
  Issue(0xe7, 0, 0);
  if (WaitIdle() & kErr) Fail("flush");
}

}  // namespace

int Main() {
  Outb(kControl, 2);
  const u64 base = NumberOption("base", 0);
  const u64 end = NumberOption("generations", 1'000'000);
  for (u32 generation = 1; generation <= end; generation++) {
    const u64 slot = generation % kSlots;
    WriteGeneration(base + 64 + slot * kDataSectors, kDataSectors, generation);
    Flush();
    WriteGeneration(base + slot, 1, generation);
    Flush();
    Print("generation %u\n", generation);
  }
  return 0;
}

}  // namespace alibi::frobos
