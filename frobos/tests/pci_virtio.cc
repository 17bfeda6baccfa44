// SPDX-License-Identifier: Apache-2.0
// PCI as firmware leaves it (PCI Local Bus Specification 3.0), and a virtio entropy device on it
// (virtio 1.2, sections 4.1 and 5.4) driven by polling, its interrupt pin, and MSI-X. The machine
// has one such device, modern only (QEMU: -device virtio-rng-pci,disable-legacy=on).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/pci.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u32 kNone = ~0u;
constexpr u32 kRng = 0x10441af4;
constexpr u16 kCommandMemory = 2, kCommandMaster = 4, kCommandNoIntx = 1u << 10;
constexpr u8 kVector = 0x55, kConfigVector = 0x56;

u32 rng = kNone;
u64 common, isr, notify;
u32 notify_multiplier;
u32 msix;  // the capability
u64 msix_table, msix_pending;

void TestBus() {
  CheckEq("the host bridge", ReadPci(0), 0x12378086);
  CheckEq("the ISA bridge", ReadPci(1 << 11), 0x70008086);
  Check((ReadPci8((1 << 11) + 0x0e) & 0x80) != 0, "... has several functions");
  CheckEq("power management", ReadPci((1 << 11) + (3 << 8)), 0x71138086);
  CheckEq("an empty slot", ReadPci(31 << 11), 0xffffffff);
  Outl(0xcf8, 0);
  CheckEq("no access without the enable bit", Inl(0xcfc), 0xffffffff);
  WritePci(0, 0x11111111);
  CheckEq("IDs are read-only", ReadPci(0), 0x12378086);
}

void TestBars() {
  const u16 command = ReadPci16(rng + 4);
  Check((command & kCommandMemory) != 0, "firmware enabled memory");
  WritePci16(rng + 4, static_cast<u16>(command & ~kCommandMemory));
  for (unsigned bar = 0; bar < 6; bar++) {
    const u32 at = rng + 0x10 + 4 * bar;
    const u32 before = ReadPci(at);
    if (before == 0) continue;
    WritePci(at, 0xffffffff);
    const u32 size = ~(ReadPci(at) & ~0xfu) + 1;
    const bool wide = (before & 6) == 4;
    WritePci(at, before);
    Print("  BAR %u at %x, %x bytes\n", bar, before, size);
    Check(size != 0 && (size & (size - 1)) == 0, "a BAR's size is a power of two");
    Check((before & ~0xfu & (size - 1)) == 0, "... and it is aligned");
    CheckEq("... and stays where it was put", ReadPci(at), before);
    if (wide) bar++;
  }
  WritePci16(rng + 4, static_cast<u16>(command | kCommandMaster));
}

void TestCapabilities() {
  u32 types = 0;
  for (u32 at = ReadPci8(rng + 0x34); at != 0; at = ReadPci8(rng + at + 1)) {
    const u8 id = ReadPci8(rng + at);
    if (id == 0x11) {
      msix = rng + at;
      msix_table = MapBar(rng, ReadPci(msix + 4) & 7) + (ReadPci(msix + 4) & ~7u);
      msix_pending = MapBar(rng, ReadPci(msix + 8) & 7) + (ReadPci(msix + 8) & ~7u);
    }
    if (id != 0x09) continue;
    const u8 type = ReadPci8(rng + at + 3);
    types |= 1u << type;
    if (type == 5) continue;
    const u64 address = MapBar(rng, ReadPci8(rng + at + 4)) + ReadPci(rng + at + 8);
    if (type == 1) common = address;
    if (type == 3) isr = address;
    if (type == 2) {
      notify = address;
      notify_multiplier = ReadPci(rng + at + 16);
    }
  }
  // An entropy device has no configuration of its own, so QEMU may leave out type 4.
  CheckEq("common, notification, ISR and configuration access", types & ~0x10u, 0x2e);
  Check(msix != 0, "MSI-X");
  CheckEq("... with two vectors", (ReadPci16(msix + 2) & 0x7ff) + 1, 2);
}

// --- The device ---
constexpr u8 kAcknowledge = 1, kDriver = 2, kDriverOk = 4, kFeaturesOk = 8;
constexpr u16 kQueueSize = 8;
u64 ring;  // descriptors; available ring at 0x400, used ring at 0x800
u64 buffer;
u16 offered, seen;

void SetStatus(u8 status) { Store<u8>(common + 0x14, status); }
u8 Status() { return Load<u8>(common + 0x14); }

bool Negotiate(u32 high_features) {
  SetStatus(0);
  WaitFor([] { return Status() == 0; });
  SetStatus(kAcknowledge | kDriver);
  for (u32 i = 0; i < 2; i++) {
    Store<u32>(common + 8, i);
    Store<u32>(common + 12, i == 0 ? 0 : high_features);
  }
  SetStatus(kAcknowledge | kDriver | kFeaturesOk);
  return (Status() & kFeaturesOk) != 0;
}

void SetUp(u16 vector) {
  Check(Negotiate(1), "VIRTIO_F_VERSION_1 is agreed on");
  for (u64 i = 0; i < kPageSize; i += 8) Store<u64>(ring + i, 0);
  offered = seen = 0;
  Store<u16>(common + 0x16, 0);
  Store<u16>(common + 0x18, kQueueSize);
  Store<u16>(common + 0x1a, vector);
  Store<u32>(common + 0x20, static_cast<u32>(ring));
  Store<u32>(common + 0x24, 0);
  Store<u32>(common + 0x28, static_cast<u32>(ring + 0x400));
  Store<u32>(common + 0x2c, 0);
  Store<u32>(common + 0x30, static_cast<u32>(ring + 0x800));
  Store<u32>(common + 0x34, 0);
  Store<u16>(common + 0x1c, 1);
  SetStatus(kAcknowledge | kDriver | kFeaturesOk | kDriverOk);
}

void Notify() { Store<u16>(notify + u64{Load<u16>(common + 0x1e)} * notify_multiplier, 0); }
u16 UsedIndex() { return Load<u16>(ring + 0x802); }

void Offer(u32 size) {
  const u64 slot = offered % kQueueSize;
  Store<u64>(ring + 16 * slot, buffer);
  Store<u32>(ring + 16 * slot + 8, size);
  Store<u32>(ring + 16 * slot + 12, 2);  // to be written
  Store<u16>(ring + 0x404 + 2 * slot, static_cast<u16>(slot));
  offered++;
  Store<u16>(ring + 0x402, offered);
  Notify();
}

// True if the buffer came back filled.
bool Fill(u32 size) {
  for (u64 i = 0; i < size; i++) Store<u8>(buffer + i, 0);
  Offer(size);
  if (!WaitFor([] { return UsedIndex() == offered; })) return false;
  const u64 entry = ring + 0x804 + 8 * (seen % kQueueSize);
  const bool ok = Load<u32>(entry) == seen % kQueueSize && Load<u32>(entry + 4) > 0 &&
                  Load<u32>(entry + 4) <= size;
  seen++;
  u64 set = 0;
  for (u64 i = 0; i < size; i++) set |= Load<u8>(buffer + i);
  return ok && set != 0;
}

void TestPolling() {
  // A subset the device cannot work with is refused (2.2.2, 6.1); QEMU accepts any.
  if (!SkipOnQemu("FEATURES_OK is refused")) {
    Check(!Negotiate(0), "without VERSION_1 there is no agreement");
    Check(!Negotiate(1 | 1u << 30), "... nor with a feature that was not offered");
  }
  SetUp(0xffff);
  CheckEq("one queue", Load<u16>(common + 0x12), 1);
  CheckEq("... which is enabled", Load<u16>(common + 0x1c), 1);
  Group group("buffers are filled, 40 times round the ring");
  for (u32 i = 0; i < 40; i++) group.Case(Fill(16 + i));
}

volatile u64 arrivals, config_arrivals;

// Each buffer's interrupt before the next buffer: who does not wait may get one for several, as
// devices tell of a buffer first, and interrupt then.
bool FillAndAwait(unsigned buffers) {
  bool all = true;
  for (unsigned i = 0; i < buffers; ++i) {
    const u64 wanted = arrivals + 1;
    Fill(8);
    all = WaitFor([wanted] { return arrivals == wanted; }) && all;
  }
  return all;
}

void TestPin() {
  const unsigned line = ReadPci8(rng + 0x3c);
  Check(line == 10 || line == 11, "firmware routed the pin to line 10 or 11");
  Check(ReadPci8(rng + 0x3d) == 1, "the pin is INTA#");
  WritePci16(msix + 2, 0);
  SetUp(0xffff);
  static volatile u8 why;
  SetHandler(static_cast<u8>(kIrqBase + line), [](TrapFrame* frame) {
    arrivals = arrivals + 1;
    why = Load<u8>(isr);  // this releases the line
    EndOfIrq(frame->vector - kIrqBase);
  });
  arrivals = 0;
  UnmaskIrq(2);  // the cascade
  UnmaskIrq(line);
  EnableInterrupts();
  Check(Fill(32), "a buffer is filled");
  Check(WaitFor([] { return arrivals != 0; }), "... the pin interrupts");
  CheckEq("... because of a queue", why, 1);
  Check(FillAndAwait(10), "... once for each buffer");
  CheckEq("the line is released", ReadPci16(rng + 6) & 8, 0);
  // Held back by the command register.
  WritePci16(rng + 4, static_cast<u16>(ReadPci16(rng + 4) | kCommandNoIntx));
  Fill(8);
  WaitFor([] { return (ReadPci16(rng + 6) & 8) != 0; });
  CheckEq("INTx disable: the status shows it", ReadPci16(rng + 6) & 8, 8);
  CheckEq("... nothing arrives", arrivals, 11);
  WritePci16(rng + 4, static_cast<u16>(ReadPci16(rng + 4) & ~kCommandNoIntx));
  Check(WaitFor([] { return arrivals == 12; }), "... until it is allowed again");
  // The driver wants none.
  Store<u16>(ring + 0x400, 1);
  Fill(8);
  CheckEq("VIRTQ_AVAIL_F_NO_INTERRUPT", arrivals, 12);
  DisableInterrupts();
  MaskIrq(line);
  SetStatus(0);
}

void Program(u64 entry, u8 vector) {
  Store<u32>(entry, static_cast<u32>(0xfee00000 | ReadLapic(kLapicId) >> 24 << 12));
  Store<u32>(entry + 4, 0);
  Store<u32>(entry + 8, vector);
  Store<u32>(entry + 12, 0);
}

void TestMsix() {
  SetHandler(kVector, [](TrapFrame*) {
    arrivals = arrivals + 1;
    WriteLapic(kLapicEoi, 0);
  });
  SetHandler(kConfigVector, [](TrapFrame*) {
    config_arrivals = config_arrivals + 1;
    WriteLapic(kLapicEoi, 0);
  });
  arrivals = 0;
  config_arrivals = 0;
  Program(msix_table, kConfigVector);
  Program(msix_table + 16, kVector);
  WritePci16(msix + 2, 0x8000);
  SetUp(1);
  CheckEq("a vector that exists", Load<u16>(common + 0x1a), 1);
  EnableInterrupts();
  Check(Fill(32), "a buffer is filled");
  Check(WaitFor([] { return arrivals == 1; }), "... a message arrives");
  Check(FillAndAwait(10), "... one for each buffer");
  Store<u32>(msix_table + 28, 1);
  Fill(8);
  Check(WaitFor([] { return (Load<u32>(msix_pending) & 2) != 0; }), "masked: pending");
  CheckEq("... nothing arrives", arrivals, 11);
  Store<u32>(msix_table + 28, 0);
  Check(WaitFor([] { return arrivals == 12; }), "... until it is unmasked");
  CheckEq("... pending no more", Load<u32>(msix_pending) & 2, 0);
  WritePci16(msix + 2, 0xc000);
  Fill(8);
  Check(WaitFor([] { return (Load<u32>(msix_pending) & 2) != 0; }), "all masked: pending");
  WritePci16(msix + 2, 0x8000);
  Check(WaitFor([] { return arrivals == 13; }), "... until they are unmasked");
  DisableInterrupts();
  CheckEq("no configuration change", config_arrivals, 0);
  Store<u16>(common + 0x1a, 2);
  CheckEq("a vector that does not exist", Load<u16>(common + 0x1a), 0xffff);
  SetStatus(0);
  Check(WaitFor([] { return Status() == 0; }), "reset");
  CheckEq("... the queue is not enabled", Load<u16>(common + 0x1c), 0);
  WritePci16(msix + 2, 0);
}

constexpr Section kSections[] = {{"polling", TestPolling}, {"pin", TestPin}, {"msix", TestMsix}};

}  // namespace

int Main() {
  StopPit();
  InitPic();
  InitLapic();
  TestBus();
  for (u32 slot = 0; slot < 32; slot++) {
    if (ReadPci(slot << 11) == kRng) rng = slot << 11;
  }
  Check(rng != kNone, "there is an entropy device");
  if (rng == kNone) return Summary();
  CheckEq("... of revision 1", ReadPci8(rng + 8), 1);
  TestBars();
  TestCapabilities();
  ring = AllocPage();
  buffer = AllocPage();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
