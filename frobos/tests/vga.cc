// SPDX-License-Identifier: Apache-2.0
// The VGA: text memory, registers, the window's planes (IBM PS/2 Hardware Interface Technical
// Reference, "Video Graphics Array").

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"

namespace alibi::frobos {
namespace {

constexpr u16 kCrtc = 0x3d4, kSequencer = 0x3c4, kGraphics = 0x3ce, kAttribute = 0x3c0,
              kStatus = 0x3da;

volatile u8* Text() { return reinterpret_cast<volatile u8*>(0xb8000); }
volatile u8* Window() { return reinterpret_cast<volatile u8*>(0xa0000); }

void Set(u16 port, u8 index, u8 value) {
  Outb(port, index);
  Outb(static_cast<u16>(port + 1), value);
}
u8 Get(u16 port, u8 index) {
  Outb(port, index);
  return Inb(static_cast<u16>(port + 1));
}

void TestText() {
  bool good = true;
  for (unsigned i = 0; i < 80 * 25; ++i) {
    Text()[2 * i] = static_cast<u8>('A' + i % 26);
    Text()[2 * i + 1] = static_cast<u8>(i);
  }
  for (unsigned i = 0; i < 80 * 25; ++i) {
    good &= Text()[2 * i] == 'A' + i % 26 && Text()[2 * i + 1] == static_cast<u8>(i);
  }
  Check(good, "characters and attributes are kept");
  auto words = reinterpret_cast<volatile u32*>(0xb8000);
  words[0] = 0x07420741;
  CheckEq("a store of two cells", Text()[0] | Text()[2] << 8, 0x4241);
  CheckEq("... is read at once", words[0], 0x07420741);
  auto wide = reinterpret_cast<volatile u64*>(0xb8000);
  wide[1] = 0x0734073307320731;
  CheckEq("a store of four cells", wide[1], 0x0734073307320731);
  CheckEq("... byte by byte", Text()[14], '4');
  // 32 KB are there; the next byte is in plane 0 again.
  Text()[0x7ffe] = 'z';
  CheckEq("the last cell of the window", Text()[0x7ffe], 'z');
}

void TestRegisters() {
  bool good = true;
  for (const int index : {0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f}) {
    const u8 before = Get(kCrtc, static_cast<u8>(index));
    Set(kCrtc, static_cast<u8>(index), 0x15);
    good &= Get(kCrtc, static_cast<u8>(index)) == 0x15;
    Set(kCrtc, static_cast<u8>(index), before);
  }
  Check(good, "cursor and start address read back");
  // Registers 0 to 7 are protected by bit 7 of register 11h.
  const u8 total = Get(kCrtc, 0), lock = Get(kCrtc, 0x11);
  Set(kCrtc, 0x11, lock | 0x80);
  Set(kCrtc, 0, static_cast<u8>(total ^ 1));
  CheckEq("a protected register", Get(kCrtc, 0), total);
  Set(kCrtc, 0x11, lock & 0x7f);
  Set(kCrtc, 0, static_cast<u8>(total ^ 1));
  CheckEq("... and without protection", Get(kCrtc, 0), total ^ 1u);
  Set(kCrtc, 0, total);
  Set(kCrtc, 0x11, lock);
  // One port for index and data in turn; the status resets the turn.
  Inb(kStatus);
  Outb(kAttribute, 0x31);  // overscan, with the screen on
  Outb(kAttribute, 0x2a);
  Inb(kStatus);
  Outb(kAttribute, 0x31);
  CheckEq("an attribute register", Inb(kAttribute + 1), 0x2a);
  Outb(kAttribute, 0x00);
  Inb(kStatus);
  Outb(kAttribute, 0x20);
  Outb(0x3c8, 5);
  for (const int part : {0x11, 0x22, 0x33}) Outb(0x3c9, static_cast<u8>(part));
  Outb(0x3c7, 5);
  good = Inb(0x3c9) == 0x11;
  good &= Inb(0x3c9) == 0x22;
  good &= Inb(0x3c9) == 0x33;
  Check(good, "a colour of the DAC");
  Check(WaitFor([] { return (Inb(kStatus) & 8) != 0; }), "the vertical retrace comes");
  Check(WaitFor([] { return (Inb(kStatus) & 8) == 0; }), "... and ends");
  Check(WaitFor([] { return (Inb(kStatus) & 1) != 0; }), "the display is blank at times");
  Check(WaitFor([] { return (Inb(kStatus) & 1) == 0; }), "... and not always");
}

// 16 colours: all planes at 0xa0000.
void TestPlanes() {
  const u8 memory_mode = Get(kSequencer, 4), mode = Get(kGraphics, 5), misc = Get(kGraphics, 6),
           map = Get(kSequencer, 2);
  Set(kSequencer, 4, 0x06);
  Set(kGraphics, 5, 0x00);
  Set(kGraphics, 6, 0x05);
  Set(kGraphics, 8, 0xff);
  for (unsigned plane = 0; plane < 4; ++plane) {
    Set(kSequencer, 2, static_cast<u8>(1u << plane));
    Window()[0x8000] = static_cast<u8>(0x10 + plane);
  }
  bool good = true;
  for (unsigned plane = 0; plane < 4; ++plane) {
    Set(kGraphics, 4, static_cast<u8>(plane));
    good &= Window()[0x8000] == 0x10 + plane;
  }
  Check(good, "each plane is written and read alone");
  // Write mode 1 copies all planes through the latches.
  Set(kSequencer, 2, 0x0f);
  Set(kGraphics, 5, 0x01);
  Window()[0x8001] = Window()[0x8000];
  good = true;
  for (unsigned plane = 0; plane < 4; ++plane) {
    Set(kGraphics, 4, static_cast<u8>(plane));
    good &= Window()[0x8001] == 0x10 + plane;
  }
  Check(good, "write mode 1 copies");
  // Write mode 2: a colour under the bit mask.
  Set(kGraphics, 5, 0x02);
  Set(kGraphics, 8, 0xf0);
  static_cast<void>(Window()[0x8000]);
  Window()[0x8000] = 0x05;
  Set(kGraphics, 4, 0);
  CheckEq("write mode 2: a plane that is set", Window()[0x8000], 0xf0);
  Set(kGraphics, 4, 1);
  CheckEq("... one that is not", Window()[0x8000], 0x01);
  // Set/reset, and the logical operation.
  Set(kGraphics, 5, 0x00);
  Set(kGraphics, 8, 0xff);
  Set(kGraphics, 0, 0x02);
  Set(kGraphics, 1, 0x02);
  Window()[0x8002] = 0x3c;
  CheckEq("set/reset", Window()[0x8002], 0xff);
  Set(kGraphics, 1, 0x00);
  Set(kGraphics, 3, 0x18);  // XOR
  static_cast<void>(Window()[0x8002]);
  Window()[0x8002] = 0x0f;
  CheckEq("exclusive or with the latch", Window()[0x8002], 0xf0);
  Set(kGraphics, 3, 0x00);
  Set(kGraphics, 0, 0x00);
  // Read mode 1: which points have the colour?
  Set(kSequencer, 2, 0x01);
  Window()[0x8003] = 0xcc;
  Set(kSequencer, 2, 0x0e);
  Window()[0x8003] = 0x00;
  Set(kGraphics, 5, 0x08);
  Set(kGraphics, 2, 0x01);
  Set(kGraphics, 7, 0x0f);
  CheckEq("read mode 1", Window()[0x8003], 0xcc);
  Set(kSequencer, 4, memory_mode);
  Set(kSequencer, 2, map);
  Set(kGraphics, 4, 0);
  Set(kGraphics, 5, mode);
  Set(kGraphics, 6, misc);
  Text()[0] = 'T';
  CheckEq("text memory is back", Text()[0], 'T');
}

constexpr Section kSections[] = {
    {"text", TestText}, {"registers", TestRegisters}, {"planes", TestPlanes}};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
