// SPDX-License-Identifier: Apache-2.0
// What one access to a Lance costs, in cycles from the instruction to the next one: the path of
// Sugerman, Venkitachalam and Lim's Figure 5, seen from the guest. The machine has an Am79C970A
// (Alibi: --net lance,...; QEMU: -nic ...,model=pcnet). Lines as the nanobenchmarks':
//     {"name":"transmit","unit":"cycles","samples":[...]}
// then {"done":true}. Command line: quick.
//
//   rap       OUT to RAP, which chooses a register
//   csr0      IN of CSR0
//   ack       OUT that acknowledges nothing: the pin stays as it is
//   transmit  OUT of TDMD with one frame of 1,514 bytes in the ring
//   frame     the same, with what Linux's pcnet32 does around it, its interrupt's accesses among
//             them: 12 accesses

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/pci.h"

namespace alibi::frobos {
namespace {

constexpr u32 kIds = 0x20001022;
constexpr u16 kData = 0x10, kAddress = 0x12, kReset = 0x14, kBusData = 0x16;
constexpr u16 kTint = 0x0200, kIdon = 0x0100, kTxon = 0x0010, kTdmd = 8, kStop = 4, kStrt = 2,
              kInit = 1;
constexpr u32 kOwn = 1u << 31, kStp = 1u << 25, kEnp = 1u << 24;
constexpr u32 kTransmitters = 16, kLog = 4, kFrameBytes = 1514;
constexpr u32 kMaxSamples = 64;

u16 ports;
u64 ring, buffer;
u32 next;

void WriteCsr(u16 number, u16 value) {
  Outw(static_cast<u16>(ports + kAddress), number);
  Outw(static_cast<u16>(ports + kData), value);
}
u16 ReadCsr(u16 number) {
  Outw(static_cast<u16>(ports + kAddress), number);
  return Inw(static_cast<u16>(ports + kData));
}

u64 At(u32 index) { return ring + 16 * index; }
void Offer(u32 index) {
  Store<u32>(At(index), static_cast<u32>(buffer));
  Store<u32>(At(index) + 8, 0);
  Store<u32>(At(index) + 4, kOwn | kStp | kEnp | 0xf000 | ((0x1000 - kFrameBytes) & 0xfff));
}
bool Sent(u32 index) { return (Load<u32>(At(index) + 4) & kOwn) == 0; }

bool Begin() {
  const u64 block = AllocPage();
  ring = AllocPage();
  buffer = AllocPage();
  for (u32 i = 0; i < kFrameBytes; i++) Store<u8>(buffer + i, static_cast<u8>(i));
  for (u32 i = 0; i < 6; i++) Store<u8>(buffer + i, 0xff);
  Inw(static_cast<u16>(ports + kReset));
  Outw(static_cast<u16>(ports + kAddress), 20);
  Outw(static_cast<u16>(ports + kBusData), 2);
  Store<u32>(block, kLog << 28 | kLog << 20);
  for (u32 at = 4; at < 20; at += 4) Store<u32>(block + at, 0);
  Store<u32>(block + 20, static_cast<u32>(AllocPage()));  // nothing is received
  Store<u32>(block + 24, static_cast<u32>(ring));
  WriteCsr(1, static_cast<u16>(block));
  WriteCsr(2, static_cast<u16>(block >> 16));
  WriteCsr(3, 0x5f00);  // no interrupts
  WriteCsr(4, 0x0915);
  WriteCsr(0, kInit);
  if (!WaitFor([] { return (ReadCsr(0) & kIdon) != 0; })) return false;
  WriteCsr(0, kIdon | kStrt);
  return WaitFor([] { return (ReadCsr(0) & kTxon) != 0; });
}

// The ring's next frame is ready. Those before it may still wait there, as a system's do.
bool Prepare() {
  const bool done = WaitFor([] { return Sent(next); });
  Offer(next);
  next = (next + 1) % kTransmitters;
  return done;
}

u64 Rap() {
  const u64 begin = Rdtsc();
  Outw(static_cast<u16>(ports + kAddress), 0);
  return Rdtsc() - begin;
}
u64 Csr0() {
  Outw(static_cast<u16>(ports + kAddress), 0);
  const u64 begin = Rdtsc();
  Inw(static_cast<u16>(ports + kData));
  return Rdtsc() - begin;
}
u64 Ack() {
  Outw(static_cast<u16>(ports + kAddress), 0);
  const u64 begin = Rdtsc();
  Outw(static_cast<u16>(ports + kData), 0);
  return Rdtsc() - begin;
}
u64 Transmit() {
  if (!Prepare()) return 0;
  Outw(static_cast<u16>(ports + kAddress), 0);
  const u64 begin = Rdtsc();
  Outw(static_cast<u16>(ports + kData), kTdmd);
  return Rdtsc() - begin;
}
u64 WholeFrame() {
  if (!Prepare()) return 0;
  const u64 begin = Rdtsc();
  WriteCsr(0, kTdmd);
  ReadCsr(0);           // the handler looks,
  WriteCsr(0, kTint);   // acknowledges,
  ReadCsr(0);           // looks again,
  WriteCsr(3, 0x5f00);  // and masks; later
  WriteCsr(3, 0x5f00);  // it unmasks
  return Rdtsc() - begin;
}

struct Row {
  const char* name;
  u64 (*once)();
};
constexpr Row kRows[] = {
    {"rap", Rap}, {"csr0", Csr0}, {"ack", Ack}, {"transmit", Transmit}, {"frame", WholeFrame}};

void Measure(const Row& row, u32 samples, u32 count) {
  u64 values[kMaxSamples];
  for (u32 sample = 0; sample < samples; sample++) {
    // The mean of frames in turn, since one of several waits for others (send combining).
    u64 sum = 0;
    for (u32 i = 0; i < count; i++) {
      const u64 cycles = row.once();
      if (cycles == 0) {
        Print("{\"name\":\"%s\",\"error\":\"a frame does not leave\"}\n", row.name);
        return;
      }
      sum += cycles;
    }
    values[sample] = sum / count;
  }
  Print("{\"name\":\"%s\",\"unit\":\"cycles\",\"samples\":[", row.name);
  for (u32 i = 0; i < samples; i++) Print("%s%lu", i == 0 ? "" : ",", values[i]);
  Print("]}\n");
}

}  // namespace

int Main() {
  StopPit();
  InitPic();
  InitLapic();
  u32 lance = ~0u;
  for (u32 slot = 0; slot < 32; slot++) {
    if (ReadPci(slot << 11) == kIds) lance = slot << 11;
  }
  if (lance == ~0u) Panic("there is no PCnet-PCI II");
  WritePci16(lance + 4, static_cast<u16>(ReadPci16(lance + 4) | 5));  // ports, bus master
  ports = static_cast<u16>(ReadPci(lance + 0x10) & ~3u);
  if (!Begin()) Panic("the chip does not start");
  const bool quick = HasOption("quick");
  for (const Row& row : kRows) Measure(row, quick ? 5 : 31, quick ? 100 : 1000);
  Print("{\"done\":true}\n");
  return 0;
}

}  // namespace alibi::frobos
