// SPDX-License-Identifier: Apache-2.0
// A driver of the network controller Am79C970A ("PCnet-PCI II", publication 19436): registers of
// both widths, the initialization block and rings in each software style, loops, the address
// filter, the interrupt pin, and the wire. The machine has one, at 52:54:00:12:34:56 on a network
// whose router is 10.0.2.2 (QEMU: -nic user,model=pcnet; Alibi: --net lance,user).

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
constexpr u32 kIds = 0x20001022;
constexpr u16 kCommandIo = 1, kCommandMemory = 2, kCommandMaster = 4;
constexpr u8 kAddress[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

// CSR0
constexpr u16 kErr = 0x8000, kMiss = 0x1000, kRint = 0x0400, kTint = 0x0200, kIdon = 0x0100,
              kIntr = 0x0080, kIena = 0x0040, kRxon = 0x0020, kTxon = 0x0010, kTdmd = 0x0008,
              kStop = 0x0004, kStrt = 0x0002, kInit = 0x0001;
// CSR15
constexpr u16 kPromiscuous = 0x8000, kInternalLoop = 0x0044;
// A descriptor's flags, as in the 32-bit styles.
constexpr u32 kOwn = 1u << 31, kError = 1u << 30, kStp = 1u << 25, kEnp = 1u << 24;

u32 lance = kNone;
u16 ports;
bool wide;  // DWIO

u32 ReadPort(u16 word_offset, u16 wide_offset) {
  return wide ? Inl(static_cast<u16>(ports + wide_offset))
              : Inw(static_cast<u16>(ports + word_offset));
}
void WritePort(u16 word_offset, u16 wide_offset, u16 value) {
  if (wide) {
    Outl(static_cast<u16>(ports + wide_offset), value);
  } else {
    Outw(static_cast<u16>(ports + word_offset), value);
  }
}
void Select(u16 number) { WritePort(0x12, 0x14, number); }
u16 ReadCsr(u16 number) {
  Select(number);
  return static_cast<u16>(ReadPort(0x10, 0x10));
}
void WriteCsr(u16 number, u16 value) {
  Select(number);
  WritePort(0x10, 0x10, value);
}
u16 ReadBcr(u16 number) {
  Select(number);
  return static_cast<u16>(ReadPort(0x16, 0x1c));
}
void WriteBcr(u16 number, u16 value) {
  Select(number);
  WritePort(0x16, 0x1c, value);
}
void SoftReset() { ReadPort(0x14, 0x18); }

// --- Rings ---
constexpr u32 kReceivers = 4, kTransmitters = 4;
constexpr u32 kBufferBytes = 0x800;
constexpr u8 kStyles[] = {0, 2, 3};  // 1 is ILACC's
u8 style;
u64 block, receive_ring, transmit_ring;  // pages
u64 receive_buffers, transmit_buffers;   // two pages each

u64 At(u64 ring, u32 index) { return ring + index * (style == 0 ? 8 : 16); }
u64 ReceiveBuffer(u32 index) { return receive_buffers + index * kBufferBytes; }
u64 TransmitBuffer(u32 index) { return transmit_buffers + index * kBufferBytes; }

void Describe(u64 ring, u32 index, u64 buffer, u32 size, u32 flags) {
  const u64 at = At(ring, index);
  const u32 low = flags | 0xf000 | ((0x1000 - size) & 0xfff);
  if (style == 0) {
    Store<u16>(at, static_cast<u16>(buffer));
    Store<u16>(at + 4, static_cast<u16>(low));
    Store<u16>(at + 6, 0);
    Store<u16>(at + 2, static_cast<u16>((flags >> 16 & 0xff00) | (buffer >> 16 & 0xff)));
    return;
  }
  Store<u32>(at + (style == 3 ? 8 : 0), static_cast<u32>(buffer));
  Store<u32>(at + (style == 3 ? 0 : 8), 0);
  Store<u32>(at + 4, low);
}
u32 Flags(u64 ring, u32 index) {
  const u64 at = At(ring, index);
  return style == 0 ? (Load<u16>(at + 2) & 0xff00u) << 16 : Load<u32>(at + 4);
}
u32 ReceivedBytes(u32 index) {
  const u64 at = At(receive_ring, index);
  return style == 0 ? Load<u16>(at + 6) & 0xfffu : Load<u32>(at + (style == 3 ? 0 : 8)) & 0xfff;
}
void OfferBuffer(u32 index, u32 size = kBufferBytes) {
  Describe(receive_ring, index, ReceiveBuffer(index), size, kOwn);
}

void PutWord(u64& at, u64 value, unsigned words = 1) {
  for (unsigned i = 0; i < words; i++, at += 2) Store<u16>(at, static_cast<u16>(value >> 16 * i));
}

// Waits for what the chip does by itself.
bool WaitForCsr0(u16 bits) {
  return WaitFor([bits] { return (ReadCsr(0) & bits) == bits; });
}

bool Initialize(u8 new_style, u16 mode, u64 filter) {
  style = new_style;
  WriteCsr(0, kStop);
  WriteBcr(20, style);
  for (u32 i = 0; i < kReceivers; i++) OfferBuffer(i);
  for (u32 i = 0; i < kTransmitters; i++) Describe(transmit_ring, i, TransmitBuffer(i), 1, 0);
  u64 at = block;
  PutWord(at, mode);
  if (style != 0) PutWord(at, 2u << 12 | 2u << 4);
  u64 address = 0;
  for (unsigned i = 0; i < 6; i++) address |= u64{kAddress[i]} << 8 * i;
  PutWord(at, address, style == 0 ? 3 : 4);
  PutWord(at, filter, 4);
  PutWord(at, receive_ring | (style == 0 ? 2u << 29 : 0), 2);
  PutWord(at, transmit_ring | (style == 0 ? 2u << 29 : 0), 2);
  WriteCsr(1, static_cast<u16>(block));
  WriteCsr(2, static_cast<u16>(block >> 16));
  WriteCsr(0, kInit);
  return WaitForCsr0(kIdon);
}
bool Begin(u8 new_style, u16 mode = kInternalLoop, u64 filter = 0) {
  const bool done = Initialize(new_style, mode, filter);
  WriteCsr(0, kIdon | kStrt);
  return done && WaitForCsr0(kRxon | kTxon);
}

// --- Frames ---
void PutFrame(u32 index, const u8* destination, u32 size, u8 seed) {
  const u64 buffer = TransmitBuffer(index);
  for (u32 i = 0; i < size; i++) Store<u8>(buffer + i, static_cast<u8>(i * 3 + seed));
  for (u32 i = 0; i < 6; i++) {
    Store<u8>(buffer + i, destination[i]);
    Store<u8>(buffer + 6 + i, kAddress[i]);
  }
  Store<u8>(buffer + 12, 0x88);  // a type for local experiments
  Store<u8>(buffer + 13, 0xb5);
}
bool Transmit(u32 index, u32 size, u32 flags = kStp | kEnp) {
  Describe(transmit_ring, index, TransmitBuffer(index), size, kOwn | flags);
  WriteCsr(0, kTdmd | (ReadCsr(0) & kIena));
  return WaitFor([index] { return (Flags(transmit_ring, index) & kOwn) == 0; });
}
bool Same(u64 a, u64 b, u32 size) {
  for (u32 i = 0; i < size; i++) {
    if (Load<u8>(a + i) != Load<u8>(b + i)) return false;
  }
  return true;
}
// One frame round the loop.
bool GoesRound(u32 transmitter, u32 receiver, u32 size, u8 seed) {
  PutFrame(transmitter, kAddress, size, seed);
  if (!Transmit(transmitter, size)) return false;
  if (!WaitFor([receiver] { return (Flags(receive_ring, receiver) & kOwn) == 0; })) return false;
  const u32 flags = Flags(receive_ring, receiver);
  const bool good = (flags & (kError | kStp | kEnp)) == (kStp | kEnp) &&
                    ReceivedBytes(receiver) == size + 4 &&
                    Same(ReceiveBuffer(receiver), TransmitBuffer(transmitter), size);
  OfferBuffer(receiver);
  return good;
}

// --- Sections ---

void TestFunction() {
  CheckEq("an Ethernet controller", ReadPci(lance + 8) >> 8, 0x020000);
  const u16 command = ReadPci16(lance + 4);
  for (unsigned bar = 0; bar < 2; bar++) {
    const u32 at = lance + 0x10 + 4 * bar;
    const u32 before = ReadPci(at);
    WritePci16(lance + 4, static_cast<u16>(command & ~(kCommandIo | kCommandMemory)));
    WritePci(at, 0xffffffff);
    const u32 size = ~(ReadPci(at) & ~(bar == 0 ? 3u : 15u)) + 1;
    WritePci(at, before);
    WritePci16(lance + 4, command);
    CheckEq(bar == 0 ? "32 ports" : "32 bytes of memory", size, 32);
    CheckEq("... of the right kind", before & 1, bar == 0);
  }
  CheckEq("the pin is INTA#", ReadPci8(lance + 0x3d), 1);
}

void TestRegisters() {
  SoftReset();
  bool same = true;
  for (u16 i = 0; i < 6; i++) same &= Inb(static_cast<u16>(ports + i)) == kAddress[i];
  Check(same, "the APROM begins with the address");
  CheckEq("... and ends with WW", Inw(static_cast<u16>(ports + 14)), 0x5757);
  u32 sum = 0;
  for (u16 i = 0; i < 16; i++) {
    if (i / 2 != 6) sum += Inb(static_cast<u16>(ports + i));
  }
  CheckEq("... and has the sum of all other bytes", Inw(static_cast<u16>(ports + 12)), sum);
  CheckEq("CSR0 after a reset", ReadCsr(0), kStop);
  Select(88);
  CheckEq("RAP keeps what was written", ReadPort(0x12, 0x14), 88);
  CheckEq("the chip, lower half", ReadCsr(88) & 0xfff, 0x003);
  CheckEq("the chip is an Am79C970A", (ReadCsr(88) >> 12 | ReadCsr(89) << 4) & 0xffff, 0x2621);
  CheckEq("the address is in CSR12", ReadCsr(12), 0x5452);
  CheckEq("... and CSR14", ReadCsr(14), 0x5634);
  WriteCsr(8, 0x1234);
  CheckEq("the filter can be written", ReadCsr(8), 0x1234);
  SoftReset();
  CheckEq("RAP after a reset", ReadPort(0x12, 0x14), 0);
  for (const u8 each : kStyles) {
    WriteBcr(20, each);
    CheckEq("the software style", ReadBcr(20) & 0xff, each);
    CheckEq("... says how wide structures are", ReadBcr(20) >> 8 & 1, each != 0);
    CheckEq("... in CSR58 too", ReadCsr(58) & 0xff, each);
  }
  CheckEq("the link's LED is on", ReadBcr(4) & 0x80c0, 0x80c0);
}

void TestBlock() {
  for (const u8 each : kStyles) {
    Print("  style %u\n", each);
    Check(Initialize(each, kPromiscuous | kInternalLoop, 0x8877665544332211),
          "the initialization block is read");
    CheckEq("... its filter", ReadCsr(8), 0x2211);
    CheckEq("... to its end", ReadCsr(11), 0x8877);
    CheckEq("... its mode", ReadCsr(15), kPromiscuous | kInternalLoop);
    // CSR24, 30 and 76: what INIT leaves there.
    if (!SkipOnQemu("the rings of the block in CSRs")) {
      CheckEq("... its receive ring", ReadCsr(24) | u32{ReadCsr(25)} << 16, receive_ring);
      CheckEq("... its transmit ring", ReadCsr(30) | u32{ReadCsr(31)} << 16, transmit_ring);
      CheckEq("... its length", ReadCsr(76), 0x10000 - kReceivers);
    }
    CheckEq("CSR0 says so", ReadCsr(0) & (kIdon | kIntr | kInit | kStop), kIdon | kIntr | kInit);
    WriteCsr(0, kIdon | kStrt);
    Check(WaitForCsr0(kRxon | kTxon | kStrt), "... and starts");
    CheckEq("... with nothing else to say", ReadCsr(0) & (kErr | kIntr), 0);
    WriteCsr(0, kStop);
    // CSR0, TXON: cleared by STOP.
    if (!SkipOnQemu("STOP ends all")) CheckEq("STOP ends all", ReadCsr(0), kStop);
  }
}

void TestLoop() {
  for (const u8 each : kStyles) {
    Print("  style %u\n", each);
    Check(Begin(each), "it starts");
    Group group("frames go round, ten times round the rings");
    for (u32 i = 0; i < 10 * kReceivers; i++) {
      group.Case(GoesRound(i % kTransmitters, i % kReceivers, 64 + 33 * i, static_cast<u8>(i)));
    }
    CheckEq("CSR0 has both events", ReadCsr(0) & (kErr | kRint | kTint | kIntr),
            kRint | kTint | kIntr);
    WriteCsr(0, kRint | kTint);
    CheckEq("... until they are acknowledged", ReadCsr(0) & (kRint | kTint | kIntr), 0);
  }
}

void TestChains() {
  Check(Begin(2), "it starts");
  // One frame in three pieces out, and over three buffers in.
  for (u32 i = 0; i < 3; i++) OfferBuffer(i, 128);
  PutFrame(0, kAddress, 300, 7);
  Describe(transmit_ring, 2, TransmitBuffer(0) + 200, 100, kOwn | kEnp);
  Describe(transmit_ring, 1, TransmitBuffer(0) + 20, 180, kOwn);
  Check(Transmit(0, 20, kStp), "the first piece is taken");
  Check(WaitFor([] { return (Flags(transmit_ring, 2) & kOwn) == 0; }), "... and the last");
  Check(WaitFor([] { return (Flags(receive_ring, 2) & kOwn) == 0; }), "a frame over three buffers");
  CheckEq("... begins in the first", Flags(receive_ring, 0) & (kOwn | kError | kStp | kEnp), kStp);
  CheckEq("... goes on in the second", Flags(receive_ring, 1) & (kOwn | kError | kStp | kEnp), 0);
  CheckEq("... ends in the third", Flags(receive_ring, 2) & (kOwn | kError | kStp | kEnp), kEnp);
  CheckEq("... with its length", ReceivedBytes(2), 304);
  Check(Same(ReceiveBuffer(0), TransmitBuffer(0), 128) &&
            Same(ReceiveBuffer(1), TransmitBuffer(0) + 128, 128) &&
            Same(ReceiveBuffer(2), TransmitBuffer(0) + 256, 44),
        "... and all its bytes");
}

void TestFilter() {
  constexpr u8 kStranger[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x57};
  constexpr u8 kBroadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  constexpr u8 kGroup[6] = {0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};
  // The CRC of the group's address, whose upper six bits choose the filter's bit.
  u32 crc = ~0u;
  for (const u8 byte : kGroup) {
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  const u64 bit = u64{1} << (crc >> 26);
  const struct {
    const char* name;
    const u8* address;
    u16 mode;
    u64 filter;
    bool received;
  } rows[] = {
      {"its own address", kAddress, 0, 0, true},
      {"somebody else's", kStranger, 0, 0, false},
      {"everybody's", kBroadcast, 0, 0, true},
      {"a group's", kGroup, 0, 0, false},
      {"a group's in the filter", kGroup, 0, bit, true},
      {"a group's that is alone not in the filter", kGroup, 0, ~bit, false},
      {"promiscuous: somebody else's", kStranger, kPromiscuous, 0, true},
  };
  for (const auto& row : rows) {
    Begin(2, static_cast<u16>(kInternalLoop | row.mode), row.filter);
    PutFrame(0, row.address, 80, 1);
    Transmit(0, 80);
    const bool received = WaitFor([&] {
      return (Flags(receive_ring, 0) & kOwn) == 0 || (!row.received && (ReadCsr(0) & kTint));
    });
    Check(received && ((Flags(receive_ring, 0) & kOwn) == 0) == row.received, row.name);
  }
}

void TestMissed() {
  Begin(2);
  for (u32 i = 0; i < kReceivers; i++) Describe(receive_ring, i, ReceiveBuffer(i), kBufferBytes, 0);
  PutFrame(0, kAddress, 100, 1);
  Check(Transmit(0, 100), "a frame goes out");
  Check(WaitForCsr0(kErr | kMiss | kIntr), "... and finds no buffer");
  CheckEq("... which is counted", ReadCsr(112), 1);
  WriteCsr(0, kMiss);
  CheckEq("... and acknowledged", ReadCsr(0) & (kErr | kMiss), 0);
}

void TestPolling() {
  Begin(2);
  PutFrame(0, kAddress, 100, 1);
  Describe(transmit_ring, 0, TransmitBuffer(0), 100, kOwn | kStp | kEnp);
  Check(WaitFor([] { return (Flags(transmit_ring, 0) & kOwn) == 0; }), "frames are found unasked");
}

volatile u64 arrivals;
volatile u16 seen;

void TestPin() {
  const unsigned line = ReadPci8(lance + 0x3c);
  Check(line == 10 || line == 11, "firmware routed the pin to line 10 or 11");
  SetHandler(static_cast<u8>(kIrqBase + line), [](TrapFrame* frame) {
    arrivals = arrivals + 1;
    const u16 status = ReadCsr(0);
    seen = static_cast<u16>(seen | status);
    WriteCsr(0, static_cast<u16>((status & (kRint | kTint)) | kIena));
    EndOfIrq(frame->vector - kIrqBase);
  });
  arrivals = 0;
  seen = 0;
  Begin(2);
  UnmaskIrq(2);  // the cascade
  UnmaskIrq(line);
  EnableInterrupts();
  PutFrame(0, kAddress, 100, 1);
  Describe(transmit_ring, 0, TransmitBuffer(0), 100, kOwn | kStp | kEnp);
  WriteCsr(0, kTdmd);
  WaitFor([] { return (Flags(transmit_ring, 0) & kOwn) == 0; });
  CheckEq("without IENA nothing arrives", arrivals, 0);
  WriteCsr(0, kIena);
  Check(WaitFor([] { return arrivals != 0; }), "... with it, the pin interrupts");
  Check(WaitFor([] { return (seen & (kRint | kTint)) == (kRint | kTint); }), "... for both events");
  DisableInterrupts();
  const u64 before = arrivals;
  WriteCsr(3, kRint | kTint);  // masks
  PutFrame(1, kAddress, 100, 1);
  Describe(transmit_ring, 1, TransmitBuffer(1), 100, kOwn | kStp | kEnp);
  WriteCsr(0, kTdmd | kIena);
  WaitForCsr0(kRint | kTint);
  CheckEq("masked events do not count", ReadCsr(0) & kIntr, 0);
  EnableInterrupts();
  WriteCsr(3, 0);
  Check(WaitFor([before] { return arrivals != before; }), "... until they are unmasked");
  DisableInterrupts();
  MaskIrq(line);
  WriteCsr(0, kStop);
}

// Asks the router for its address (RFC 826).
void TestWire() {
  Begin(2, 0);
  constexpr u8 kBroadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  constexpr u8 kRequest[] = {0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1};
  constexpr u8 kOwnIp[] = {10, 0, 2, 15}, kRouterIp[] = {10, 0, 2, 2};
  PutFrame(0, kBroadcast, 60, 0);
  const u64 frame = TransmitBuffer(0);
  for (u32 i = 12; i < 60; i++) Store<u8>(frame + i, 0);
  for (u32 i = 0; i < sizeof(kRequest); i++) Store<u8>(frame + 12 + i, kRequest[i]);
  for (u32 i = 0; i < 6; i++) Store<u8>(frame + 22 + i, kAddress[i]);
  for (u32 i = 0; i < 4; i++) {
    Store<u8>(frame + 28 + i, kOwnIp[i]);
    Store<u8>(frame + 38 + i, kRouterIp[i]);
  }
  Check(Transmit(0, 60), "a request goes out");
  u32 index = 0;
  const bool answered = WaitFor([&index] {
    if ((Flags(receive_ring, index) & kOwn) != 0) return false;
    const u64 at = ReceiveBuffer(index);
    // Routers say more than that.
    if (Load<u8>(at + 12) == 8 && Load<u8>(at + 13) == 6 && Load<u8>(at + 21) == 2) return true;
    OfferBuffer(index);
    index = (index + 1) % kReceivers;
    return false;
  });
  Check(answered, "... and the router answers");
  Check(answered && Load<u8>(ReceiveBuffer(index) + 28) == 10 &&
            Load<u8>(ReceiveBuffer(index) + 31) == 2,
        "... with its address");
  Check(ReceivedBytes(index) >= 64, "... in a frame of the least length or more");
  WriteCsr(0, kStop);
}

// The last one: only a hard reset leads back.
void TestWide() {
  SoftReset();
  wide = true;
  Outl(static_cast<u16>(ports + 0x10), kStop);
  CheckEq("CSR0 by 32 bits", ReadCsr(0), kStop);
  CheckEq("BCR18 says so", ReadBcr(18) & 0x80, 0x80);
  Select(88);
  CheckEq("RAP by 32 bits", ReadPort(0x12, 0x14) & 0xffff, 88);
  Check(Begin(2), "it starts");
  Group group("frames go round");
  for (u32 i = 0; i < 3 * kReceivers; i++) {
    group.Case(GoesRound(i % kTransmitters, i % kReceivers, 100, static_cast<u8>(i)));
  }
  SoftReset();
  // BCR18, DWIO: cleared by H_RESET only.
  if (SkipOnQemu("S_RESET keeps the width of registers")) return;
  CheckEq("a reset", ReadCsr(0), kStop);
  CheckEq("... does not change the width", ReadBcr(18) & 0x80, 0x80);
}

constexpr Section kSections[] = {{"function", TestFunction}, {"registers", TestRegisters},
                                 {"block", TestBlock},       {"loop", TestLoop},
                                 {"chains", TestChains},     {"filter", TestFilter},
                                 {"missed", TestMissed},     {"polling", TestPolling},
                                 {"pin", TestPin},           {"wire", TestWire},
                                 {"wide", TestWide}};

}  // namespace

int Main() {
  StopPit();
  InitPic();
  InitLapic();
  for (u32 slot = 0; slot < 32; slot++) {
    if (ReadPci(slot << 11) == kIds) lance = slot << 11;
  }
  Check(lance != kNone, "there is a PCnet-PCI II");
  if (lance == kNone) return Summary();
  WritePci16(lance + 4, static_cast<u16>(ReadPci16(lance + 4) | kCommandIo | kCommandMaster));
  ports = static_cast<u16>(ReadPci(lance + 0x10) & ~3u);
  block = AllocPage();
  receive_ring = AllocPage();
  transmit_ring = AllocPage();
  receive_buffers = AllocRange(2 * kPageSize, kPageSize);
  transmit_buffers = AllocRange(2 * kPageSize, kPageSize);
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
