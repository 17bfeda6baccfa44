// SPDX-License-Identifier: Apache-2.0
// The keyboard controller with keyboard and mouse (IBM PS/2 Hardware Interface Technical Reference,
// "Keyboard and Auxiliary Device Controller").

#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u16 kData = 0x60, kPort = 0x64;
constexpr u8 kFull = 1, kBusy = 2, kFromMouse = 0x20;

volatile u64 keyboard_irqs, mouse_irqs;

void Command(u8 command) {
  WaitFor([] { return (Inb(kPort) & kBusy) == 0; });
  Outb(kPort, command);
}
void Data(u8 value) {
  WaitFor([] { return (Inb(kPort) & kBusy) == 0; });
  Outb(kData, value);
}
// 0x100: nothing comes. Bit 9: from the mouse.
u32 Answer() {
  if (!WaitFor([] { return (Inb(kPort) & kFull) != 0; })) return 0x100;
  const u32 mouse = Inb(kPort) & kFromMouse ? 0x200 : 0;
  return mouse | Inb(kData);
}
void Drain() {
  while (Inb(kPort) & kFull) Inb(kData);
}
void ToMouse(u8 value) {
  Command(0xd4);
  Data(value);
}
void SetCommandByte(u8 value) {
  Command(0x60);
  Data(value);
}

void TestController() {
  Command(0xad);
  Command(0xa7);
  Drain();
  Command(0xaa);
  CheckEq("self test", Answer(), 0x55);
  SetCommandByte(0x44);
  Command(0x20);
  CheckEq("the command byte", Answer(), 0x44);
  Command(0xab);
  CheckEq("the keyboard's wire", Answer(), 0);
  Command(0xa9);
  CheckEq("the mouse's wire", Answer(), 0);
  Command(0xa7);
  Command(0x20);
  CheckEq("the mouse is off", Answer() & 0x20, 0x20);
  Command(0xa8);
  Command(0x20);
  CheckEq("... and on", Answer() & 0x20, 0);
  Command(0xd3);
  Data(0x5a);
  CheckEq("a byte in the mouse's name", Answer(), 0x25a);
  Command(0xd2);
  Data(0xa5);
  CheckEq("... and in the keyboard's", Answer(), 0xa5);
  Command(0xd0);
  CheckEq("the output port: A20, no reset", Answer() & 3, 3);
}

void TestKeyboard() {
  SetCommandByte(0x04);  // no translation
  Command(0xae);
  Data(0xff);
  CheckEq("reset is acknowledged", Answer(), 0xfa);
  CheckEq("... and passes the self test", Answer(), 0xaa);
  Data(0xf5);
  CheckEq("scanning off", Answer(), 0xfa);
  Data(0xf2);
  CheckEq("identify", Answer(), 0xfa);
  CheckEq("... as an MF2 keyboard", Answer() | Answer() << 8, 0x83ab);
  SetCommandByte(0x44);
  Data(0xf2);
  CheckEq("identify, translated", Answer(), 0xfa);
  CheckEq("... the second byte is", Answer() | Answer() << 8, 0x41ab);
  Data(0xed);
  CheckEq("lights", Answer(), 0xfa);
  Data(0x02);
  CheckEq("... which ones", Answer(), 0xfa);
  Data(0xf3);
  CheckEq("rate", Answer(), 0xfa);
  Data(0x20);
  CheckEq("... how fast", Answer(), 0xfa);
  Data(0xee);
  CheckEq("echo", Answer(), 0xee);
  Data(0xf4);
  CheckEq("scanning on", Answer(), 0xfa);
  Check((Inb(kPort) & kFull) == 0, "... and nothing else is said");
}

void TestMouse() {
  Command(0xa8);
  ToMouse(0xff);
  CheckEq("reset is acknowledged by the mouse", Answer(), 0x2fa);
  CheckEq("... passes the self test", Answer(), 0x2aa);
  CheckEq("... and has an ID", Answer(), 0x200);
  ToMouse(0xf2);
  CheckEq("identify", Answer(), 0x2fa);
  CheckEq("... as a plain mouse", Answer(), 0x200);
  ToMouse(0xf3);
  CheckEq("sample rate", Answer(), 0x2fa);
  ToMouse(40);
  CheckEq("... how many", Answer(), 0x2fa);
  ToMouse(0xe8);
  CheckEq("resolution", Answer(), 0x2fa);
  ToMouse(3);
  CheckEq("... how much", Answer(), 0x2fa);
  ToMouse(0xe9);
  CheckEq("status", Answer(), 0x2fa);
  Answer();
  CheckEq("... tells the resolution", Answer(), 0x203);
  CheckEq("... and the rate", Answer(), 0x200 | 40);
  ToMouse(0xf5);
  CheckEq("reports off", Answer(), 0x2fa);
}

void TestInterrupts() {
  InitPic();
  SetHandler(kIrqBase + 1, [](TrapFrame*) {
    Inb(kData);
    keyboard_irqs = keyboard_irqs + 1;
    EndOfIrq(1);
  });
  SetHandler(kIrqBase + 12, [](TrapFrame*) {
    Inb(kData);
    mouse_irqs = mouse_irqs + 1;
    EndOfIrq(12);
  });
  UnmaskIrq(1);
  UnmaskIrq(2);
  UnmaskIrq(12);
  SetCommandByte(0x47);
  Drain();
  keyboard_irqs = 0;
  mouse_irqs = 0;
  EnableInterrupts();
  Data(0xf2);
  Check(WaitFor([] { return keyboard_irqs == 3; }), "an interrupt for each byte");
  ToMouse(0xff);
  Check(WaitFor([] { return mouse_irqs == 3; }), "... and on line 12 for the mouse's");
  CheckEq("... only there", keyboard_irqs, 3);
  DisableInterrupts();
  SetCommandByte(0x44);
  MaskAllInterrupts();
}

constexpr Section kSections[] = {{"controller", TestController},
                                 {"keyboard", TestKeyboard},
                                 {"mouse", TestMouse},
                                 {"interrupts", TestInterrupts}};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
