// SPDX-License-Identifier: Apache-2.0
// VMI's clocks and alarms, its local APIC, and Halt.
#include "frobos/tests/vmi.h"

namespace alibi::frobos {

volatile u32 vmi_ticks;

namespace {

constexpr u8 kLocalVector = 0x60;
constexpr u32 kLocalApic = 0xfee00000, kLvtTimer = 0x320, kMasked = 1u << 16;
constexpr u32 kPeriodic = 0x100, kLocalAlarm = 0x10000;

volatile u32& ApicRegister(u32 offset) {
  return *reinterpret_cast<volatile u32*>(kLocalApic + offset);
}

void Tick(Outcome* at) {
  vmi_ticks = vmi_ticks + 1;
  if (at->vector == kLocalVector) {
    ApicRegister(0xb0) = 0;
  } else {
    Outb(0x20, 0x20);
  }
}

u64 Counter(u32 which) {
  const Outcome o = Vmi(kVmiGetCycleCounter, which);
  return u64{o.frame.edx} << 32 | o.frame.eax;
}

void SetAlarm(u32 flags, u64 expiry, u64 period) {
  const u32 words[2] = {static_cast<u32>(period), static_cast<u32>(period >> 32)};
  CheckVmi("SetAlarm", kVmiSetAlarm, flags, static_cast<u32>(expiry),
           static_cast<u32>(expiry >> 32), words, 2);
}

// Lets interrupts in until the counter is there, or that many have come: what waits already comes
// in any case, though the host may have let the counter pass meanwhile.
void WaitUntil(u64 real, u32 ticks = ~0u) {
  const void* open = CODE32("sti; nop; nop; cli");
  do {
    Run(open, {});
  } while (vmi_ticks < ticks && Counter(0) < real);
}

u32 CmosBinary(u8 index) {
  Outb(0x70, index);
  const u8 value = Inb(0x71);
  return value / 16 * 10u + value % 16;
}
u64 CmosSeconds() {
  for (;;) {
    const u32 second = CmosBinary(0);
    const u32 year = 2000 + CmosBinary(9), month = CmosBinary(8), day = CmosBinary(7);
    const u32 hour = CmosBinary(4), minute = CmosBinary(2);
    if (CmosBinary(0) != second) continue;
    // Days since 1970, by the calendar that begins in March.
    const u32 y = month <= 2 ? year - 1 : year, m = month <= 2 ? month + 9 : month - 3;
    const u32 days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
    return ((u64{days} * 24 + hour) * 60 + minute) * 60 + second;
  }
}

void TestAlarms(u32 wiring, u64 ms) {
  vmi_ticks = 0;
  // At once, if it is due.
  SetAlarm(wiring, Counter(0), 0);
  WaitUntil(Counter(0) + 1000 * ms, 1);
  CheckEq("an alarm that is due goes off", vmi_ticks, 1);
  // Once, and not too early.
  const u64 due = Counter(0) + 3 * ms;
  SetAlarm(wiring, due, 0);
  WaitUntil(due + 1000 * ms, 2);
  Check(vmi_ticks == 2 && Counter(0) >= due, "a one-shot alarm");
  WaitUntil(Counter(0) + 5 * ms);
  CheckEq("... goes off once", vmi_ticks, 2);
  // Again and again.
  const u64 start = Counter(0);
  SetAlarm(wiring | kPeriodic, start, 2 * ms);
  WaitUntil(Counter(0) + 1000 * ms, 6);
  // On a busy host some come together; never more than there were periods.
  Check(vmi_ticks >= 6 && (vmi_ticks - 3) * 2 * ms <= Counter(0) - start, "a periodic alarm");
  // Another in its place.
  SetAlarm(wiring, Counter(0) + 2000 * ms, 0);
  WaitUntil(Counter(0) + ms);  // what was on its way
  vmi_ticks = 0;
  WaitUntil(Counter(0) + 6 * ms);
  CheckEq("a new alarm takes its place", vmi_ticks, 0);
  SetAlarm(wiring | kPeriodic, Counter(0), ms);
  WaitUntil(Counter(0) + 1000 * ms, 2);
  CheckVmi("CancelAlarm", kVmiCancelAlarm, wiring | kPeriodic);
  WaitUntil(Counter(0) + 2 * ms);
  vmi_ticks = 0;
  WaitUntil(Counter(0) + 5 * ms);
  CheckEq("... no more", vmi_ticks, 0);
  // Available time.
  SetAlarm(wiring | 1, Counter(1) + 2 * ms, 0);
  WaitUntil(Counter(0) + 2000 * ms, 1);
  CheckEq("an alarm against available time", vmi_ticks, 1);
  // A period that leaves no time, and a counter that is not there.
  vmi_ticks = 0;
  SetAlarm(wiring | kPeriodic, 0, 1);
  WaitUntil(Counter(0) + 1000 * ms, 20);
  Check(vmi_ticks >= 20, "an alarm with a period of one cycle leaves time to see it");
  SetAlarm(wiring | 0x77, 0, 0);
  CheckVmi("CancelAlarm of it", kVmiCancelAlarm, wiring | kPeriodic);
  WaitUntil(Counter(0) + 2 * ms);
}

}  // namespace

void CatchTicks() {
  for (const u8 port : List{u8{0x20}, u8{0xa0}}) Outb(port, 0x11);
  Outb(0x21, kIrqBase), Outb(0xa1, kIrqBase + 8);
  Outb(0x21, 4), Outb(0xa1, 2);
  Outb(0x21, 1), Outb(0xa1, 1);
  Outb(0xa1, 0xff), Outb(0x21, 0xfe);
  SetHandler(kIrqBase, Tick);
  SetHandler(kLocalVector, Tick);
}

void ForgetTicks() {
  Outb(0x21, 0xff);
  SetHandler(kIrqBase, nullptr);
  SetHandler(kLocalVector, nullptr);
}

void TestHalt() {
  CatchTicks();
  vmi_ticks = 0;
  // Channel 0 counts 3,000 of its ticks down, once.
  Outb(0x43, 0x30), Outb(0x40, 3000 & 0xff), Outb(0x40, 3000 >> 8);
  const Outcome o = CheckVmi("Halt", kVmiHalt);
  CheckEq("... until an interrupt", vmi_ticks, 1);
  CheckEq("... with IF set", o.frame.eflags & kFlagIf, kFlagIf);
  ForgetTicks();
}

void TestLocalApic() {
  if (RelocationOf(kVmiApicRead).type != Relocation::kCall) {
    return Skip("APICRead, APICWrite", "the kernel's own accesses stay");
  }
  for (const u32 offset : List{0x20u, 0x30u, 0xf0u, 0x320u, 0x350u}) {
    CheckEq("APICRead", CheckVmi("APICRead returns", kVmiApicRead, offset).frame.eax,
            ApicRegister(offset));
  }
  const u32 before = ApicRegister(kLvtTimer);
  CheckVmi("APICWrite", kVmiApicWrite, kLvtTimer, kMasked | 0x71);
  CheckEq("... the register", ApicRegister(kLvtTimer), kMasked | 0x71);
  CheckVmi("APICWrite of what is read-only", kVmiApicWrite, 0x30, ~0u);
  CheckEq("... changes nothing", Vmi(kVmiApicRead, 0x30).frame.eax, ApicRegister(0x30));
  ApicRegister(kLvtTimer) = before;
}

void TestTimer() {
  if (RelocationOf(kVmiGetCycleFrequency).type != Relocation::kCall) {
    return Skip("the timer", "the kernel keeps its own");
  }
  const Outcome o = CheckVmi("GetCycleFrequency", kVmiGetCycleFrequency);
  const u64 hz = u64{o.frame.edx} << 32 | o.frame.eax;
  Check(hz >= 1'000'000 && hz <= 1'000'000'000'000, "... 1 MHz to 1 THz");
  const u64 ms = u64{static_cast<u32>(hz >> 10)};  // or so: there is no division of 64 bits

  Group clocks("real time goes on, and is available and stolen time");
  u64 last[3] = {};
  for (u32 i = 0; i < 2000; i++) {
    const u64 real = Counter(0), available = Counter(1), stolen = Counter(2), end = Counter(0);
    clocks.Case(real >= last[0] && available >= last[1] && stolen >= last[2] &&
                available + stolen >= real && available + stolen <= end);
    last[0] = real, last[1] = available, last[2] = stolen;
  }
  CheckEq("a counter that there is not", static_cast<u32>(Counter(3)), 0);

  // The PIT's mode 5, as kernels leave it: its output is high.
  Outb(0x43, 0x3a);
  CatchTicks();
  TestAlarms(0, ms);
  ApicRegister(0xf0) = ApicRegister(0xf0) | 0x100;
  const u32 lvt = ApicRegister(kLvtTimer);
  ApicRegister(kLvtTimer) = kLocalVector;
  TestAlarms(kLocalAlarm, ms);
  // Masked there, nobody hears it.
  vmi_ticks = 0;
  ApicRegister(kLvtTimer) = kMasked | kLocalVector;
  SetAlarm(kLocalAlarm, 0, 0);
  WaitUntil(Counter(0) + 3 * ms);
  CheckEq("a masked alarm", vmi_ticks, 0);
  ApicRegister(kLvtTimer) = lvt;
  // Halted until an alarm.
  SetAlarm(0, Counter(0) + 2 * ms, 0);
  CheckVmi("Halt until an alarm", kVmiHalt);
  CheckEq("... it went off", vmi_ticks, 1);
  ForgetTicks();

  const auto wallclock = [] {
    const Outcome now = CheckVmi("GetWallclockTime", kVmiGetWallclockTime);
    return u64{now.frame.edx} << 32 | now.frame.eax;
  };
  const u64 first = wallclock(), cmos = CmosSeconds(), second = wallclock();
  Check(second > first, "the wall clock goes on");
  const auto within = [](u64 ns, u64 seconds) {
    return ns + 2'000'000'000 >= seconds * 1'000'000'000 && ns <= (seconds + 3) * 1'000'000'000;
  };
  Check(within(second, cmos), "... and shows what the CMOS clock does");
  CheckEq("WallclockUpdated", CheckVmi("it returns", kVmiWallclockUpdated).frame.eax, 0);
}

// On a host that takes the CPU away half of the time (busy=yes says so): each of the three clocks
// has what is its own, for a VCPU that always works.
void TestStolenTime() {
  if (Option("busy") == nullptr) return;
  const Outcome o = CheckVmi("GetCycleFrequency", kVmiGetCycleFrequency);
  const u64 second = u64{o.frame.edx} << 32 | o.frame.eax;
  const u64 real = Counter(0), available = Counter(1), stolen = Counter(2), begun = Counter(0);
  Group sums("real time is available and stolen time, at any moment");
  u64 now, now_available, now_stolen, end;
  do {
    // The host may stop us between any two readings: the first and the last are the bounds.
    now = Counter(0), now_available = Counter(1), now_stolen = Counter(2), end = Counter(0);
    sums.Case(now_available + now_stolen >= now && now_available + now_stolen <= end);
  } while (now - real < second);
  const u64 passed = end - real, worked = now_available - available, lost = now_stolen - stolen;
  Print("  in hundredths of a second: real %u, available %u, stolen %u\n",
        static_cast<u32>(passed >> 20) * 100 / static_cast<u32>(second >> 20),
        static_cast<u32>(worked >> 20) * 100 / static_cast<u32>(second >> 20),
        static_cast<u32>(lost >> 20) * 100 / static_cast<u32>(second >> 20));
  Check(lost >= passed >> 2, "what the host took is stolen");
  Check(worked >= passed >> 4, "... and the rest is available");
  Check(worked + lost <= passed && worked + lost >= now - begun, "... and that is all");
}

}  // namespace alibi::frobos
