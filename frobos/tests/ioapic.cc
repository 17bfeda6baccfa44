// SPDX-License-Identifier: Apache-2.0
// The I/O APIC: registers, redirection entries, edge and level, remote IRR and EOI, delivery modes
// and destinations (Intel 82093AA data sheet, 290566; SDM vol. 3A 11.8.5). The UART (IRQ 4, input
// 4) makes a line that stays up until it is told otherwise; the timer is IRQ 0 at input 2 or 0.

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kIoApic = 0xfec00000;
constexpr u32 kIdRegister = 0, kVersionRegister = 1, kArbitration = 2, kFirstEntry = 0x10;
constexpr u64 kMasked = 1u << 16, kLevel = 1u << 15, kRemoteIrr = 1u << 14, kLogical = 1u << 11,
              kNmiMode = 4u << 8, kLowest = 1u << 8;
constexpr u8 kVector = 0x55, kOther = 0x66;
constexpr unsigned kUartInput = 4;
constexpr u32 kTmr = 0x180;

volatile u64 arrivals, order;
bool withdraw, end_in_handler;

u32 Read(u32 index) {
  *reinterpret_cast<volatile u32*>(kIoApic) = index;
  return *reinterpret_cast<volatile u32*>(kIoApic + 0x10);
}
void Write(u32 index, u32 value) {
  *reinterpret_cast<volatile u32*>(kIoApic) = index;
  *reinterpret_cast<volatile u32*>(kIoApic + 0x10) = value;
}
u64 ReadEntry(unsigned input) {
  return Read(kFirstEntry + 2 * input) | u64{Read(kFirstEntry + 2 * input + 1)} << 32;
}
void WriteEntry(unsigned input, u64 value) {
  Write(kFirstEntry + 2 * input, kMasked);
  Write(kFirstEntry + 2 * input + 1, static_cast<u32>(value >> 32));
  Write(kFirstEntry + 2 * input, static_cast<u32>(value));
}

void OpenWindow() { asm volatile("sti; nop; nop; nop; nop; cli" : : : "memory"); }

void RaiseUart() {
  Outb(0x3fc, 0x0b);  // OUT2 lets the line through
  Outb(0x3f9, 0x02);  // transmitter empty
}
void WithdrawUart() {
  Outb(0x3f9, 0);
  Inb(0x3fa);
}

void Note(TrapFrame* frame) {
  arrivals = arrivals + 1;
  order = order << 8 | frame->vector;
  if (withdraw) WithdrawUart();
  if (end_in_handler) WriteLapic(kLapicEoi, 0);
}

void Reset() {
  WithdrawUart();
  for (unsigned i = 0; i < 24; i++) WriteEntry(i, kMasked);
  withdraw = true;
  end_in_handler = true;
  OpenWindow();  // what is left
  arrivals = 0;
  order = 0;
  withdraw = true;
  end_in_handler = true;
}

u64 To(u32 destination) { return u64{destination} << 56; }
u32 Id() { return ReadLapic(kLapicId) >> 24; }

void TestRegisters() {
  const u32 version = Read(kVersionRegister);
  CheckEq("24 inputs", version >> 16 & 0xff, 23);
  Check((version & 0xff) == 0x11 || (version & 0xff) == 0x20, "version");
  const u32 id = Read(kIdRegister);
  Write(kIdRegister, 0x05000000);
  CheckEq("the ID holds four bits", Read(kIdRegister), 0x05000000);
  if (!SkipOnQemu("the arbitration ID follows", false)) {
    CheckEq("the arbitration ID follows", Read(kArbitration) & 0x0f000000, 0x05000000);
  }
  Write(kIdRegister, 0xffffffff);
  CheckEq("... and no more", Read(kIdRegister) & ~0x0f000000u, 0);
  Write(kIdRegister, id);
  Write(kVersionRegister, 0);
  CheckEq("the version is read-only", Read(kVersionRegister), version);
  Group group("entries hold what is written, but for their state");
  for (unsigned input = 0; input < 24; input++) {
    for (const u64 value :
         {kMasked | 0x40, kMasked | 0xff | kLogical | u64{0xaa} << 56,
          kMasked | kLowest | 0x77 | u64{0x0f} << 56, kMasked | 1u << 13 | 0x31}) {
      WriteEntry(input, value | kRemoteIrr | 1u << 12);
      const u64 got = ReadEntry(input);
      if (!group.Case(got == value))
        Print("  input %u: %lx written, %lx read\n", input, value, got);
    }
    WriteEntry(input, kMasked);
  }
}

// The console is the UART: while its interrupt is on, every character is an edge. So verdicts are
// printed when it is off again.
void TestEdge() {
  Reset();
  withdraw = false;
  WriteEntry(kUartInput, To(Id()) | kVector);
  RaiseUart();
  const bool requested = WaitFor([] { return LapicBit(kLapicIrr, kVector); });
  const bool by_level = LapicBit(static_cast<LapicRegister>(kTmr), kVector);
  const u64 remote_irr = ReadEntry(kUartInput) & kRemoteIrr;
  OpenWindow();
  OpenWindow();
  const u64 first = arrivals;
  WithdrawUart();
  RaiseUart();
  WaitFor([] { return LapicBit(kLapicIrr, kVector); });
  OpenWindow();
  const u64 second = arrivals;
  WithdrawUart();
  Check(requested, "an edge is a request");
  CheckEq("... edge-triggered in TMR", by_level, 0);
  CheckEq("... without remote IRR", remote_irr, 0);
  CheckEq("... delivered once, although the line is still up", first, 1);
  CheckEq("the next edge", second, 2);

  Reset();
  WriteEntry(kUartInput, To(Id()) | kMasked | kVector);
  RaiseUart();
  for (const u64 start = Rdtsc(); Rdtsc() - start < 2'000'000;) {
  }
  OpenWindow();
  const u64 masked = arrivals;
  Reset();
  CheckEq("a masked edge is not delivered", masked, 0);
}

void TestLevel() {
  Reset();
  WriteEntry(kUartInput, To(Id()) | kLevel | kVector);
  RaiseUart();
  Check(WaitFor([] { return LapicBit(kLapicIrr, kVector); }), "a level is a request");
  CheckEq("... in TMR", LapicBit(static_cast<LapicRegister>(kTmr), kVector), 1);
  CheckEq("... remote IRR", ReadEntry(kUartInput) & kRemoteIrr, kRemoteIrr);
  withdraw = false;
  end_in_handler = false;
  OpenWindow();
  CheckEq("... delivered", arrivals, 1);
  OpenWindow();
  CheckEq("... not again before EOI", arrivals, 1);
  WriteLapic(kLapicEoi, 0);
  Check(WaitFor([] { return LapicBit(kLapicIrr, kVector); }), "EOI with the line up: again");
  CheckEq("... remote IRR", ReadEntry(kUartInput) & kRemoteIrr, kRemoteIrr);
  OpenWindow();
  CheckEq("... delivered", arrivals, 2);
  WithdrawUart();
  WriteLapic(kLapicEoi, 0);
  CheckEq("EOI with the line down: remote IRR clear", ReadEntry(kUartInput) & kRemoteIrr, 0);
  OpenWindow();
  CheckEq("... and nothing more", arrivals, 2);

  // Masked and unmasked while the line is up.
  Reset();
  WriteEntry(kUartInput, To(Id()) | kMasked | kLevel | kVector);
  RaiseUart();
  for (const u64 start = Rdtsc(); Rdtsc() - start < 2'000'000;) {
  }
  CheckEq("a masked level is no request", LapicBit(kLapicIrr, kVector), 0);
  Write(kFirstEntry + 2 * kUartInput, kLevel | kVector);
  Check(WaitFor([] { return LapicBit(kLapicIrr, kVector); }), "... until it is unmasked");
  OpenWindow();
  CheckEq("... delivered", arrivals, 1);
  Reset();
}

void TestDestinations() {
  WriteLapic(static_cast<LapicRegister>(0xe0), 0xffffffff);  // flat model
  WriteLapic(static_cast<LapicRegister>(0xd0), 2u << 24);
  struct Case {
    const char* name;
    u64 entry;
    u64 arrivals;
  };
  const Case cases[] = {
      {"physical", To(Id()) | kVector, 1},
      {"physical, another", To(Id() + 1) | kVector, 0},
      {"physical, broadcast", To(0xff) | kVector, 1},
      {"logical", To(2) | kLogical | kVector, 1},
      {"logical, one of several", To(3) | kLogical | kVector, 1},
      {"logical, another", To(4) | kLogical | kVector, 0},
      {"lowest priority", To(2) | kLogical | kLowest | kVector, 1},
      {"another vector", To(Id()) | kOther, 1},
  };
  for (const Case& c : cases) {
    Reset();
    WriteEntry(kUartInput, c.entry);
    RaiseUart();
    for (const u64 start = Rdtsc(); Rdtsc() - start < 1'000'000;) {
    }
    OpenWindow();
    WithdrawUart();
    CheckEq(c.name, arrivals, c.arrivals);
  }
  // As an NMI.
  static volatile u64 nmis;
  nmis = 0;
  SetHandler(kNmi, [](TrapFrame*) { nmis = nmis + 1; });
  Reset();
  WriteEntry(kUartInput, To(Id()) | kNmiMode);
  RaiseUart();
  const bool came = WaitFor([] { return nmis != 0; });
  const u64 count = nmis;
  Reset();
  Check(came, "an input as NMI");
  CheckEq("... once", count, 1);
  CheckEq("... and no interrupt", arrivals, 0);
  SetHandler(kNmi, nullptr);
}

// Where the ACPI tables of PCs say it is: IRQ 0 at input 2.
void TestTimer() {
  Reset();
  withdraw = false;
  unsigned input = 24;
  for (const unsigned candidate : {2u, 0u}) {
    WriteEntry(candidate, To(Id()) | kVector);
    StartPit(PitMode::kOneShot, 1000);
    EnableInterrupts();
    const u64 start = Rdtsc();
    while (arrivals == 0 && Rdtsc() - start < 2'000'000'000) {
    }
    DisableInterrupts();
    WriteEntry(candidate, kMasked);
    if (arrivals != 0) {
      input = candidate;
      break;
    }
  }
  CheckEq("the timer is at input 2", input, 2);
  if (input == 24) return;
  arrivals = 0;
  WriteEntry(input, To(Id()) | kVector);
  StartPit(PitMode::kPeriodic, 2000);
  EnableInterrupts();
  Check(WaitFor([] { return arrivals >= 10; }), "ten ticks by the I/O APIC");
  DisableInterrupts();
  StopPit();
  Reset();
}

// Two lines: the higher vector first, whatever the input's number.
void TestPriority() {
  Reset();
  withdraw = false;
  WriteEntry(2, To(Id()) | kOther);
  WriteEntry(kUartInput, To(Id()) | kVector);
  RaiseUart();
  StartPit(PitMode::kOneShot, 100);
  WaitFor([] { return LapicBit(kLapicIrr, kVector) && LapicBit(kLapicIrr, kOther); });
  OpenWindow();
  OpenWindow();
  CheckEq("the higher vector first", order, u64{kOther} << 8 | kVector);
  Reset();
}

constexpr Section kSections[] = {{"registers", TestRegisters}, {"edge", TestEdge},
                                 {"level", TestLevel},         {"destination", TestDestinations},
                                 {"timer", TestTimer},         {"priority", TestPriority}};

}  // namespace

int Main() {
  if (!HasApic()) {
    Skip("everything", "CPUID has no APIC");
    return Summary();
  }
  StopPit();
  InitPic();
  InitLapic();
  WriteLapic(kLapicLint0, kLapicMasked);
  SetHandler(kVector, Note);
  SetHandler(kOther, Note);
  SetHandler(kSpuriousVector, [](TrapFrame*) {});
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
