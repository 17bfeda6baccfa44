// SPDX-License-Identifier: Apache-2.0
// The two 8259A interrupt controllers: initialization, masks, priorities and their rotation, ends
// of interrupt, polling, special mask mode (Intel 8259A data sheet, 231468). Requests come from the
// timer (IRQ 0), the UART (IRQ 4) and the clock chip (IRQ 8).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cmos.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u16 kMaster = 0x20, kSlave = 0xa0;
constexpr u8 kReadIrr = 0x0a, kReadIsr = 0x0b, kPoll = 0x0c;
constexpr u8 kSpecialMask = 0x68, kNoSpecialMask = 0x48;
constexpr u8 kEoi = 0x20, kSpecificEoi = 0x60, kRotateOnEoi = 0xa0, kSetPriority = 0xc0,
             kRotateOnSpecificEoi = 0xe0;

volatile u64 order, arrivals;
bool end_in_handler = true;

void OpenWindow() { asm volatile("sti; nop; nop; nop; nop; cli" : : : "memory"); }
u8 ReadRegister(u16 pic, u8 which) {
  Outb(pic, which);
  return Inb(pic);
}

void WithdrawUart() {
  Outb(0x3f9, 0);
  Inb(0x3fa);
}

void Note(TrapFrame* frame) {
  const unsigned irq = frame->vector & 15;
  arrivals = arrivals + 1;
  order = order << 4 | irq;
  if (irq == 4) WithdrawUart();
  if (irq == 8) {
    Outb(0x70, 0x0c);
    Inb(0x71);
  }
  if (end_in_handler) EndOfIrq(irq);
}

void Reset() {
  InitPic();
  order = 0;
  arrivals = 0;
  end_in_handler = true;
}

// Each raises its line and waits until the PIC has seen it.
bool RaiseTimer() {
  StartPit(PitMode::kOneShot, 100);
  return WaitFor([] { return (ReadRegister(kMaster, kReadIrr) & 1) != 0; });
}
bool RaiseUart() {
  WithdrawUart();
  Outb(0x3fc, 0x0b);  // OUT2 lets the line through
  Outb(0x3f9, 0x02);  // transmitter empty
  return WaitFor([] { return (ReadRegister(kMaster, kReadIrr) & 0x10) != 0; });
}

void TestMasks() {
  Reset();
  Group group("the masks read back");
  for (unsigned v = 0; v < 256; v++) {
    Outb(kMaster + 1, static_cast<u8>(v));
    Outb(kSlave + 1, static_cast<u8>(~v));
    group.Case(Inb(kMaster + 1) == v && Inb(kSlave + 1) == static_cast<u8>(~v));
  }
  Outb(kMaster + 1, 0xff);
  Outb(kSlave + 1, 0xff);
  // ICW1 alone clears the mask.
  Outb(kMaster, 0x11);
  Outb(kMaster + 1, kIrqBase);
  Outb(kMaster + 1, 4);
  Outb(kMaster + 1, 1);
  CheckEq("ICW1 clears the mask", Inb(kMaster + 1), 0);
  MaskAllInterrupts();
}

void TestVectors() {
  Reset();
  // The three low bits of ICW2 are the line's.
  Outb(kMaster, 0x11);
  Outb(kMaster + 1, 0x35);
  Outb(kMaster + 1, 4);
  Outb(kMaster + 1, 1);
  Outb(kMaster + 1, 0xfe);
  static volatile u64 at30;
  at30 = 0;
  SetHandler(0x30, [](TrapFrame*) {
    at30 = at30 + 1;
    EndOfIrq(0);
  });
  Check(RaiseTimer(), "IRQ 0 requested");
  OpenWindow();
  CheckEq("another vector base", at30, 1);
  SetHandler(0x30, nullptr);
}

void TestRegisters() {
  Reset();
  Check(RaiseTimer(), "a masked line is requested");
  OpenWindow();
  CheckEq("... and not delivered", arrivals, 0);
  end_in_handler = false;
  UnmaskIrq(0);
  OpenWindow();
  CheckEq("delivered once unmasked", arrivals, 1);
  CheckEq("no longer in IRR", ReadRegister(kMaster, kReadIrr) & 1, 0);
  CheckEq("in ISR", ReadRegister(kMaster, kReadIsr), 1);
  // The choice of OCW3 stays.
  CheckEq("ISR again, without OCW3", Inb(kMaster), 1);
  Outb(kMaster, kSpecificEoi | 3);
  CheckEq("specific EOI of another line", ReadRegister(kMaster, kReadIsr), 1);
  Outb(kMaster, kSpecificEoi | 0);
  CheckEq("specific EOI", ReadRegister(kMaster, kReadIsr), 0);
}

void TestNesting() {
  Reset();
  end_in_handler = false;
  UnmaskIrq(0);
  UnmaskIrq(4);
  Check(RaiseUart(), "IRQ 4 requested");
  OpenWindow();
  CheckEq("IRQ 4 delivered", order, 4);
  Check(RaiseTimer(), "IRQ 0 requested while 4 is in service");
  OpenWindow();
  CheckEq("... interrupts it", arrivals, 2);
  CheckEq("ISR has both", ReadRegister(kMaster, kReadIsr), 0x11);
  RaiseUart();
  OpenWindow();
  CheckEq("IRQ 4 waits", arrivals, 2);
  Outb(kMaster, kEoi);
  CheckEq("EOI ends the highest", ReadRegister(kMaster, kReadIsr), 0x10);
  OpenWindow();
  CheckEq("IRQ 4 waits for its own", arrivals, 2);
  Outb(kMaster, kEoi);
  OpenWindow();
  CheckEq("... and comes", arrivals, 3);
  Outb(kMaster, kEoi);
  WithdrawUart();
}

void TestRotation() {
  Reset();
  UnmaskIrq(0);
  UnmaskIrq(4);
  Outb(kMaster, kSetPriority | 0);  // 0 is the lowest, 1 the highest
  RaiseTimer();
  RaiseUart();
  OpenWindow();
  OpenWindow();
  CheckEq("set priority: IRQ 4 before 0", order, 0x40);
  Outb(kMaster, kSetPriority | 7);
  order = 0;
  RaiseTimer();
  RaiseUart();
  OpenWindow();
  OpenWindow();
  CheckEq("... and back", order, 0x04);

  end_in_handler = false;
  order = 0;
  RaiseTimer();
  OpenWindow();
  Outb(kMaster, kRotateOnEoi);
  CheckEq("rotate on EOI ends", ReadRegister(kMaster, kReadIsr), 0);
  end_in_handler = true;
  order = 0;
  RaiseTimer();
  RaiseUart();
  OpenWindow();
  OpenWindow();
  CheckEq("... and makes the line the lowest", order, 0x40);

  end_in_handler = false;
  order = 0;
  RaiseUart();
  OpenWindow();
  Outb(kMaster, kRotateOnSpecificEoi | 4);
  CheckEq("rotate on specific EOI ends", ReadRegister(kMaster, kReadIsr), 0);
  end_in_handler = true;
  order = 0;
  RaiseTimer();
  RaiseUart();
  OpenWindow();
  OpenWindow();
  CheckEq("... and makes that line the lowest", order, 0x04);
  // Nothing of it survives a new initialization.
  Outb(kMaster, kSetPriority | 0);
  Reset();
  UnmaskIrq(0);
  UnmaskIrq(4);
  RaiseTimer();
  RaiseUart();
  OpenWindow();
  OpenWindow();
  CheckEq("ICW1 puts the priorities back", order, 0x04);
}

void TestPoll() {
  Reset();
  Outb(kMaster, kPoll);
  CheckEq("poll: nothing", Inb(kMaster) & 0x80, 0);
  UnmaskIrq(0);
  UnmaskIrq(4);
  StartPit(PitMode::kOneShot, 100);
  RaiseUart();
  RaiseTimer();
  Outb(kMaster, kPoll);
  CheckEq("poll: the highest line", Inb(kMaster), 0x80);
  CheckEq("... in service", ReadRegister(kMaster, kReadIsr), 1);
  CheckEq("... no longer requested", ReadRegister(kMaster, kReadIrr) & 1, 0);
  Outb(kMaster, kEoi);
  Outb(kMaster, kPoll);
  CheckEq("poll: the next", Inb(kMaster), 0x84);
  Outb(kMaster, kEoi);
  WithdrawUart();
  OpenWindow();
  // QEMU's UART asks again while it is told to stop.
  if (!SkipOnQemu("polled lines do not interrupt")) {
    CheckEq("polled lines do not interrupt", arrivals, 0);
  }
}

void TestSpecialMask() {
  Reset();
  end_in_handler = false;
  UnmaskIrq(0);
  UnmaskIrq(4);
  RaiseTimer();
  OpenWindow();
  RaiseUart();
  MaskIrq(0);
  OpenWindow();
  CheckEq("a line in service holds back lower ones, masked or not", arrivals, 1);
  Outb(kMaster, kSpecialMask);
  OpenWindow();
  // QEMU looks at masked lines in service all the same.
  if (!SkipOnQemu("special mask mode")) {
    CheckEq("... but not in special mask mode", order, 0x04);
    CheckEq("... both in service", ReadRegister(kMaster, kReadIsr), 0x11);
  }
  Outb(kMaster, kNoSpecialMask);
  Outb(kMaster, kSpecificEoi | 4);
  Outb(kMaster, kSpecificEoi | 0);
  WithdrawUart();
}

void TestAutomaticEoi() {
  Reset();
  Outb(kMaster, 0x11);
  Outb(kMaster + 1, kIrqBase);
  Outb(kMaster + 1, 4);
  Outb(kMaster + 1, 3);
  Outb(kMaster + 1, 0xfe);
  end_in_handler = false;
  RaiseTimer();
  OpenWindow();
  CheckEq("automatic EOI: delivered", arrivals, 1);
  CheckEq("... and not in service", ReadRegister(kMaster, kReadIsr), 0);
  RaiseTimer();
  OpenWindow();
  CheckEq("... the next one comes", arrivals, 2);
}

void TestSlave() {
  Reset();
  const u8 a = ReadCmos(0x0a), b = ReadCmos(0x0b);
  ReadCmos(0x0c);
  WriteCmos(0x0a, (a & 0xf0) | 6);  // 1024 Hz
  WriteCmos(0x0b, b | 0x40);
  const bool requested = WaitFor([] { return (ReadRegister(kSlave, kReadIrr) & 1) != 0; });
  Check(requested, "IRQ 8 requested at the slave");
  if (requested) {
    CheckEq("... not at the master while masked", ReadRegister(kMaster, kReadIrr) & 4, 0);
    UnmaskIrq(8);
    CheckEq("... which sees line 2", ReadRegister(kMaster, kReadIrr) & 4, 4);
    OpenWindow();
    CheckEq("masked there, too", arrivals, 0);
    end_in_handler = false;
    UnmaskIrq(2);
    OpenWindow();
    CheckEq("IRQ 8 delivered", order, 8);
    CheckEq("in service at the master", ReadRegister(kMaster, kReadIsr), 4);
    CheckEq("... and at the slave", ReadRegister(kSlave, kReadIsr), 1);
    Outb(kSlave, kEoi);
    CheckEq("EOI of the slave", ReadRegister(kSlave, kReadIsr), 0);
    CheckEq("... leaves the master's", ReadRegister(kMaster, kReadIsr), 4);
    Outb(kMaster, kEoi);
    end_in_handler = true;
    EnableInterrupts();
    Check(WaitFor([] { return arrivals >= 4; }), "IRQ 8 again and again");
    DisableInterrupts();
  }
  MaskAllInterrupts();
  WriteCmos(0x0b, b & ~0x40);
  WriteCmos(0x0a, a);
  ReadCmos(0x0c);
}

constexpr Section kSections[] = {
    {"masks", TestMasks},         {"vectors", TestVectors},   {"registers", TestRegisters},
    {"nesting", TestNesting},     {"rotation", TestRotation}, {"poll", TestPoll},
    {"special", TestSpecialMask}, {"aeoi", TestAutomaticEoi}, {"slave", TestSlave},
};

}  // namespace

int Main() {
  for (u8 irq = 0; irq < 16; irq++) SetHandler(kIrqBase + irq, Note);
  RunSections(kSections);
  Reset();
  return Summary();
}

}  // namespace alibi::frobos
