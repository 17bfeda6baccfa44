// SPDX-License-Identifier: Apache-2.0
// Several processors: how they start, and every way in which interrupts reach them (Intel SDM vol.
// 3A, 9.4 and chapter 11).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/smp.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kVector = 0x61, kTimerVector = 0x62, kIrqVector = 0x63;
constexpr u64 kApicBsp = 1u << 8, kApicX2apic = 1u << 10, kApicEnable = 1u << 11;
constexpr u32 kEverybody = 0xff, kMsrX2apicId = 0x802, kMsrX2apicLdr = 0x80d;

// What has arrived, a bit for each processor; and how often each has got something.
volatile u64 arrived;
volatile u64 counts[kMaxCpus];
volatile u64 nmis[kMaxCpus];

u64 AllBits() { return (u64{1} << CpusWanted()) - 1; }
u64 Bit(unsigned cpu) { return u64{1} << cpu; }

void Arrive() {
  const unsigned cpu = CpuNumber();
  counts[cpu] = counts[cpu] + 1;
  asm volatile("lock or %1, %0" : "+m"(arrived) : "r"(Bit(cpu)) : "memory");
}
void OnIpi(TrapFrame*) {
  Arrive();
  EndOfIpi();
}
// Whoever sees the NMI sees all that it does.
void OnNmi(TrapFrame*) {
  const unsigned cpu = CpuNumber();
  Arrive();
  nmis[cpu] = nmis[cpu] + 1;
}

// An interrupt that nobody is to get would come in this time.
void Settle() {
  for (const u64 begin = Rdtsc(); Rdtsc() - begin < 3'000'000;) Relax();
}

// Who gets what is sent? Those who are to get it have time.
u64 ReceiversOf(u32 destination, u32 command, u64 wanted) {
  arrived = 0;
  asm volatile("sti");
  SendIpi(destination, command | kIpiAssert);
  WaitFor([&] {
    Relax();
    return (arrived & wanted) == wanted;
  });
  Settle();
  asm volatile("cli");
  return arrived;
}
void CheckReceivers(const char* name, u32 destination, u32 command, u64 wanted) {
  CheckEq(name, ReceiversOf(destination, command, wanted), wanted);
}

struct Identity {
  u64 apic_base;
  u32 leaf1, leaf11, lapic;
};
Identity identities[kMaxCpus];

u32 LapicIdNow() {
  return InX2apic() ? static_cast<u32>(ReadMsr(kMsrX2apicId)) : ReadLapic(kLapicId) >> 24;
}

void TellIdentity(u64) {
  identities[CpuNumber()] = {ReadMsr(kMsrApicBase), Cpuid(1).ebx >> 24, Cpuid(11).edx,
                             LapicIdNow()};
}

void TestStart() {
  CheckEq("all processors start", StartAllCpus(), CpusWanted());
  TellIdentity(0);
  Check((identities[0].apic_base & kApicBsp) != 0, "this is the boot processor");
  Group group("each processor knows itself, and begins as the manual says");
  const bool topology = Cpuid(0).eax >= 11 && Cpuid(11).ebx != 0;
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) {
    group.Case(RunOn(cpu, TellIdentity));
    const Identity& id = identities[cpu];
    group.Case(id.leaf1 == cpu && id.lapic == cpu && (!topology || id.leaf11 == cpu));
    group.Case((id.apic_base & (kApicBsp | kApicEnable)) == kApicEnable);
    const StartState start = StartStateOf(cpu);
    group.Case(start.cs == kStartPage << 8);
    group.Case((start.cr0 & ~0x60000000u) == 0x10);
    group.Case(start.edx == Cpuid(1).eax);
  }
}

void TestTopology() {
  const u32 shown = Cpuid(1).ebx >> 16 & 0xff;
  CheckEq("CPUID: IDs in the package", shown, CpusWanted());
  if (Cpuid(0).eax < 11 || Cpuid(11).ebx == 0) {
    Skip("CPUID: leaf 11", "there is none");
    return;
  }
  CheckEq("CPUID: processors at the level of cores", Cpuid(11, 1).ebx & 0xffff, CpusWanted());
  Check((1u << (Cpuid(11, 1).eax & 31)) >= CpusWanted(), "CPUID: bits of an ID below the package");
}

void TestFixed() {
  Group group("fixed IPIs reach the one that they are sent to");
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    group.Case(ReceiversOf(cpu, kVector, Bit(cpu)) == Bit(cpu));
  }
  CheckReceivers("nobody has that ID", 0x2f, kVector, 0);
  CheckReceivers("shorthand: self", 3, kIpiSelf | kVector, Bit(0));
  CheckReceivers("shorthand: all", 3, kIpiAll | kVector, AllBits());
  CheckReceivers("shorthand: all but self", 3, kIpiOthers | kVector, AllBits() & ~u64{1});
}

void SetLdr(u64 value) { WriteLapic(static_cast<LapicRegister>(0xd0), static_cast<u32>(value)); }
void SetDfr(u64 value) { WriteLapic(static_cast<LapicRegister>(0xe0), static_cast<u32>(value)); }
// The first eight processors have logical IDs in the flat model.
void OnEach(void (*function)(u64), u64 (*argument)(unsigned cpu)) {
  function(argument(0));
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) RunOn(cpu, function, argument(cpu));
}

void SetFlatIds() {
  OnEach(SetDfr, [](unsigned) { return u64{0xffffffff}; });
  OnEach(SetLdr, [](unsigned cpu) { return u64{1} << cpu << 24; });
}

void TestLogical() {
  const unsigned last = CpusWanted() - 1;
  CheckReceivers("physical broadcast", kEverybody, kVector, AllBits());
  SetFlatIds();
  CheckReceivers("logical, flat: two", 1u | 1u << last, kIpiLogical | kVector, Bit(0) | Bit(last));
  CheckReceivers("logical, flat: none", 0, kIpiLogical | kVector, 0);
  CheckReceivers("logical, flat: all", 0xff, kIpiLogical | kVector, AllBits());
  OnEach(SetDfr, [](unsigned) { return u64{0x0fffffff}; });
  OnEach(SetLdr, [](unsigned cpu) { return u64{cpu / 2 << 4 | 1u << cpu % 2} << 24; });
  CheckReceivers("logical, clusters: one of the second", last / 2 << 4 | 1u << last % 2,
                 kIpiLogical | kVector, Bit(last));
  CheckReceivers("logical, clusters: the first", 0x03, kIpiLogical | kVector, Bit(0) | Bit(1));
  if (!SkipOnQemu("logical, clusters: all")) {  // 11.6.2.2: a broadcast
    CheckReceivers("logical, clusters: all", 0xff, kIpiLogical | kVector, AllBits());
  }
}

void SetTaskPriority(u64 tpr) { WriteCr8(tpr); }

void TestLowestPriority() {
  SetFlatIds();
  if (SkipOnQemu("lowest priority: the one whose TPR is least")) return;  // 11.6.2.4
  Group group("lowest priority: the one whose TPR is least");
  for (unsigned least = 0; least < CpusWanted(); ++least) {
    for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
      const u64 tpr = cpu == least ? 1 : 4;
      cpu == 0 ? SetTaskPriority(tpr) : void(RunOn(cpu, SetTaskPriority, tpr));
    }
    group.Case(ReceiversOf(0xff, kIpiLogical | kIpiLowest | kVector, Bit(least)) == Bit(least));
  }
  OnEach(SetTaskPriority, [](unsigned) { return u64{0}; });
  const u64 one = ReceiversOf(0xff, kIpiLogical | kIpiLowest | kVector, 0);
  Check(one != 0 && (one & (one - 1)) == 0, "lowest priority among equals: one");
}

volatile bool stop;
volatile bool spins;

void SpinWithoutInterrupts(u64) {
  asm volatile("cli");
  spins = true;
  while (!stop) Relax();
  asm volatile("sti");
}
void SpinForEver(u64) {
  asm volatile("cli");
  for (;;) asm volatile("");
}
void HaltForEver(u64) {
  for (;;) asm volatile("cli; hlt");
}

void TestNmi() {
  Group group("NMIs reach processors that halt, and those that take no interrupts");
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) {
    const u64 before = nmis[cpu];
    SendIpi(cpu, kIpiNmi | kIpiAssert);
    group.Case(WaitFor([&] { return nmis[cpu] == before + 1; }));
    stop = false;
    spins = false;
    Begin(cpu, SpinWithoutInterrupts);
    WaitFor([] { return spins; });
    SendIpi(cpu, kIpiNmi | kIpiAssert);
    group.Case(WaitFor([&] { return nmis[cpu] == before + 2; }));
    const u64 fixed = counts[cpu];
    SendIpi(cpu, kVector | kIpiAssert);
    Settle();
    group.Case(counts[cpu] == fixed);
    stop = true;
    group.Case(Finish(cpu) && WaitFor([&] { return counts[cpu] == fixed + 1; }));
  }
  CheckReceivers("NMI to all but self", 0, kIpiNmi | kIpiOthers, AllBits() & ~u64{1});
}

// A running processor, one that has halted for ever, one that computes for ever.
void TestInit() {
  const unsigned last = CpusWanted() - 1;
  for (void (*loop)(u64) : {SpinForEver, HaltForEver}) {
    Begin(last, loop);
    Settle();
    ForgetCpu(last);
    SendIpi(last, kIpiStartup | kIpiAssert | kStartPage);
    Settle();
    Check(!IsUp(last), "a startup IPI without INIT is ignored");
    Check(StartCpu(last), "INIT ends whatever a processor does");
    Check(RunOn(last, TellIdentity), "... and it works again");
  }
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) ForgetCpu(cpu);
  SendIpi(0, kIpiInit | kIpiOthers | kIpiAssert);
  Settle();
  SendIpi(0, kIpiStartup | kIpiOthers | kIpiAssert | kStartPage);
  const bool up = WaitFor([] {
    Relax();
    for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) {
      if (!IsUp(cpu)) return false;
    }
    return true;
  });
  Check(up, "INIT and startup by broadcast");
  Group group("... and all work");
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) group.Case(RunOn(cpu, TellIdentity));
}

void TestInitToSelf() {
  const unsigned last = CpusWanted() - 1;
  ForgetCpu(last);
  Begin(last, [](u64) {
    SendIpi(CpuNumber(), kIpiInit | kIpiAssert);
    for (;;) asm volatile("");
  });
  // A startup IPI in front of the INIT is ignored.
  const bool up = WaitFor([last] {
    Settle();
    SendIpi(last, kIpiStartup | kIpiAssert | kStartPage);
    Settle();
    return IsUp(last);
  });
  Check(up, "an INIT to itself: it waits to be started");
}

void StartTimer(u64) {
  WriteLapic(kLapicDivide, 0xb);
  WriteLapic(kLapicTimer, kTimerVector);
  WriteLapic(kLapicInitialCount, 100'000);
}

void TestTimers() {
  Group group("each processor has a timer of its own");
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    arrived = 0;
    cpu == 0 ? StartTimer(0) : void(RunOn(cpu, StartTimer));
    asm volatile("sti");
    group.Case(WaitFor([cpu] { return arrived == Bit(cpu); }));
    asm volatile("cli");
  }
  arrived = 0;
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) Begin(cpu, StartTimer);
  StartTimer(0);
  asm volatile("sti");
  Check(WaitFor([] { return arrived == AllBits(); }), "all timers at once");
  asm volatile("cli");
}

u32 IoApic(u32 index) {
  volatile u32* const window = reinterpret_cast<volatile u32*>(0xfec00000);
  window[0] = index;
  return window[4];
}
void WriteIoApic(u32 index, u32 value) {
  IoApic(index);
  reinterpret_cast<volatile u32*>(0xfec00000)[4] = value;
}

// The 8254 is on input 2.
void TestIoApic() {
  SetFlatIds();
  constexpr u32 kLow = 0x10 + 2 * 2, kMasked = 1u << 16;
  Group group("the I/O APIC's interrupts go to the processor that they are routed to");
  for (const bool logical : {false, true}) {
    for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
      arrived = 0;
      WriteIoApic(kLow + 1, (logical ? 1u << cpu : cpu) << 24);
      WriteIoApic(kLow, kIrqVector | (logical ? kIpiLogical : 0));
      asm volatile("sti");
      StartPit(PitMode::kOneShot, 1000);
      const bool came = WaitFor([] { return arrived != 0; });
      asm volatile("cli");
      WriteIoApic(kLow, kMasked);
      group.Case(came && arrived == Bit(cpu));
    }
  }
  StopPit();
}

void EnterX2apic(u64) { WriteMsr(kMsrApicBase, ReadMsr(kMsrApicBase) | kApicX2apic); }
void LeaveX2apic(u64) {
  const u64 base = ReadMsr(kMsrApicBase);
  WriteMsr(kMsrApicBase, base & ~(kApicX2apic | kApicEnable));
  WriteMsr(kMsrApicBase, base & ~kApicX2apic);
  WriteLapic(kLapicSpurious, kLapicSoftwareEnable | kSpuriousVector);
}
u64 logical_ids[kMaxCpus];

void TestX2apic() {
  if (!(Cpuid(1).ecx >> 21 & 1)) {
    Skip("x2APIC", "there is none");
    return;
  }
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) RunOn(cpu, EnterX2apic);
  EnterX2apic(0);
  OnEach([](u64 cpu) { logical_ids[cpu] = ReadMsr(kMsrX2apicLdr); },
         [](unsigned cpu) { return u64{cpu}; });
  Group group("x2APIC: fixed IPIs reach the one that they are sent to, by either name");
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    group.Case(logical_ids[cpu] == (u64{cpu / 16} << 16 | u64{1} << cpu % 16));
    group.Case(ReceiversOf(cpu, kVector, Bit(cpu)) == Bit(cpu));
    group.Case(ReceiversOf(static_cast<u32>(logical_ids[cpu]), kIpiLogical | kVector, Bit(cpu)) ==
               Bit(cpu));
  }
  CheckReceivers("x2APIC: shorthand: all", 0, kIpiAll | kVector, AllBits());
  CheckReceivers("x2APIC: shorthand: all but self", 0, kIpiOthers | kVector, AllBits() & ~u64{1});
  CheckReceivers("x2APIC: broadcast", ~0u, kVector, AllBits());
  CheckReceivers("x2APIC: NMI", 1, kIpiNmi, Bit(1));
  CheckReceivers("x2APIC: two of a cluster", 3, kIpiLogical | kVector, 3);
  ForgetCpu(1);
  Check(StartCpu(1), "x2APIC: INIT and startup");
  Check(RunOn(1, TellIdentity) && (identities[1].apic_base & kApicX2apic) != 0,
        "... which keep the mode");
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) RunOn(cpu, LeaveX2apic);
  LeaveX2apic(0);
  InitLapic();
  CheckReceivers("back to xAPIC", kEverybody, kVector, AllBits());
}

}  // namespace

int Main() {
  InitLapic();
  SetHandler(kVector, OnIpi);
  SetHandler(kTimerVector, OnIpi);
  SetHandler(kIrqVector, OnIpi);
  SetHandler(kNmi, OnNmi);
  TestStart();
  constexpr Section kSections[] = {
      {"topology", TestTopology},     {"fixed", TestFixed}, {"logical", TestLogical},
      {"lowest", TestLowestPriority}, {"nmi", TestNmi},     {"timers", TestTimers},
      {"ioapic", TestIoApic},         {"init", TestInit},   {"self", TestInitToSelf},
      {"x2apic", TestX2apic},
  };
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
