// SPDX-License-Identifier: Apache-2.0
// Several processors on one memory: atomic instructions, page tables and code that another one
// changes, clocks that agree, and registers that do not mix (Intel SDM vol. 3A, 4.10.5 and 9.1).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/smp.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kShootdownVector = 0x61;
constexpr u64 kRounds = 20'000;

// --- Atomic instructions ---

u64 crossing;  // where 8 bytes lie on two pages
volatile u32 lock_word;
volatile u64 guarded, additions, exchanged;
alignas(16) u64 pair[2];

void AddByLock(u64) {
  for (u64 i = 0; i < kRounds; ++i) asm volatile("lock incq %0" : "+m"(additions));
}
void AddUnderSpinLock(u64) {
  for (u64 i = 0; i < kRounds; ++i) {
    TakeLock(&lock_word);
    guarded = guarded + 1;
    LeaveLock(&lock_word);
  }
}
void AddByCompare(u64) {
  for (u64 i = 0; i < kRounds; ++i) {
    for (bool done = false; !done;) {
      u64 old = exchanged;
      asm volatile("lock cmpxchgq %3, %1"
                   : "+a"(old), "+m"(exchanged), "=@ccz"(done)
                   : "r"(old + 1)
                   : "memory");
    }
  }
}
void AddByWideCompare(u64) {
  for (u64 i = 0; i < kRounds / 4; ++i) {
    for (bool done = false; !done;) {
      u64 low = pair[0], high = pair[1];
      asm volatile("lock cmpxchg16b %2"
                   : "+a"(low), "+d"(high), "+m"(pair), "=@ccz"(done)
                   : "b"(low + 1), "c"(high - 1)
                   : "memory");
    }
  }
}
void AddAcrossPages(u64) {
  for (u64 i = 0; i < kRounds / 4; ++i) {
    asm volatile("lock incq (%0)" : : "r"(crossing) : "memory");
  }
}

// One instruction whose operand is beside code, which a VMM may watch, or in plain memory
// (`plain`), by turns; every other processor adds to the latter with another one.
struct alignas(64) {
  u8 code[64];
  volatile u64 additions;
} beside_code;

volatile u64 turns[kMaxCpus];  // of each processor
constexpr u64 kInTurn = 50;    // additions

// Until all have had so many.
bool NeedsTurns() {
  constexpr u64 kTurns = 20;
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    if (turns[cpu] < kTurns) return true;
  }
  return false;
}

void AddByTurns(u64 plain) {
  const u64 me = CpuNumber();
  while (NeedsTurns()) {
    turns[me] = turns[me] + 1;
    if (me % 2 != 0) {
      for (u64 i = 0; i < kInTurn; ++i) asm volatile("lock incq (%0)" : : "r"(plain) : "memory");
      continue;
    }
    reinterpret_cast<void (*)()>(beside_code.code)();
    u64 place = reinterpret_cast<u64>(&beside_code.additions);
    for (u64 i = 0; i <= kInTurn; ++i) {
      asm volatile("lock incq (%0)" : : "r"(place) : "memory");
      place = plain;
    }
  }
}

void TestAtomicsByTurns(const char* name, u64 plain) {
  memset(const_cast<u64*>(turns), 0, sizeof(turns));
  auto* const word = reinterpret_cast<volatile u64*>(plain);
  *word = 0;
  beside_code.additions = 0;
  beside_code.code[0] = 0xc3;  // ret
  Check(Everywhere(AddByTurns, plain), name);
  u64 beside = 0, all = 0;
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    beside += cpu % 2 == 0 ? turns[cpu] : 0;
    all += turns[cpu];
  }
  CheckEq("... loses nothing beside code", beside_code.additions, beside);
  CheckEq("... nor elsewhere", *word, all * kInTurn);
}

void TestAtomics() {
  const u64 cpus = CpusWanted();
  additions = 0;
  guarded = 0;
  exchanged = 0;
  lock_word = 0;
  memset(pair, 0, sizeof(pair));
  Check(Everywhere(AddByLock, 0), "LOCK INC everywhere");
  CheckEq("... loses nothing", additions, cpus * kRounds);
  Check(Everywhere(AddUnderSpinLock, 0), "a spin lock everywhere");
  CheckEq("... lets in one at a time", guarded, cpus * kRounds);
  Check(Everywhere(AddByCompare, 0), "LOCK CMPXCHG everywhere");
  CheckEq("... loses nothing", exchanged, cpus * kRounds);
  Check(Everywhere(AddByWideCompare, 0), "LOCK CMPXCHG16B everywhere");
  Check(pair[0] == cpus * (kRounds / 4) && pair[1] == 0 - pair[0], "... loses nothing");
  MapShuffled(kHighBase, 2, kPteW);
  crossing = kHighBase + kPageSize - 3;
  Check(Everywhere(AddAcrossPages, 0), "LOCK INC across two pages everywhere");
  CheckEq("... loses nothing", *reinterpret_cast<u64*>(crossing), cpus * (kRounds / 4));
  TestAtomicsByTurns("LOCK INC beside code and elsewhere, by turns",
                     reinterpret_cast<u64>(&additions));
  // Nor need it be aligned.
  const u64 page = AllocPage();
  TestAtomicsByTurns("LOCK INC beside code and across two lines, by turns", page + 64 - 3);
}

// --- Page tables ---

constexpr u64 kShared = kHighBase + (16u << 20);
volatile u64 flush_requests, flushed;
volatile u64 seen[kMaxCpus];

void OnShootdown(TrapFrame*) {
  Invlpg(kShared);
  asm volatile("lock incq %0" : "+m"(flushed) : : "memory");
  EndOfIpi();
}
void ShootDown() {
  flushed = 0;
  Invlpg(kShared);
  SendIpi(0, kIpiOthers | kIpiAssert | kShootdownVector);
  while (flushed != CpusWanted() - 1) Relax();
}
void Look(u64) { seen[CpuNumber()] = *reinterpret_cast<volatile u64*>(kShared); }
void Store(u64 value) { *reinterpret_cast<volatile u64*>(kShared + 8 * CpuNumber()) = value; }

void TestShootdown() {
  SetHandler(kShootdownVector, OnShootdown);
  const u64 first = AllocPage(), second = AllocPage();
  *reinterpret_cast<u64*>(first) = 1;
  *reinterpret_cast<u64*>(second) = 2;
  Map(kShared, first, kPteW);
  u64* const entry = Entry(kShared);
  Group group("after a shootdown each processor sees the page that is mapped now");
  for (unsigned round = 0; round < 200; ++round) {
    const bool other = round % 2 != 0;
    *entry = (other ? second : first) | kPteP | kPteW;
    ShootDown();
    group.Case(Everywhere(Look, 0));
    for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) group.Case(seen[cpu] == (other ? 2 : 1));
  }

  Group faults("... and faults if there is none, or it is read-only");
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) {
    static volatile u64 vector, error;
    const auto access = [](u64 value) {
      const u64 at = kShared + 8 * CpuNumber();
      SetHandler(kPageFault, [](TrapFrame* frame) {
        vector = kPageFault;
        error = frame->error;
        *Entry(kShared) |= kPteP | kPteW;
        Invlpg(kShared);
      });
      *reinterpret_cast<volatile u64*>(at) = value;
    };
    vector = 0;
    *entry = first | kPteP | kPteW;
    ShootDown();
    RunOn(cpu, Store, 7);
    faults.Case(vector == 0);
    *entry = first;
    ShootDown();
    faults.Case(RunOn(cpu, access, 8) && vector == kPageFault && error == kPfWrite);
    vector = 0;
    *entry = first | kPteP;
    ShootDown();
    faults.Case(RunOn(cpu, access, 9) && vector == kPageFault && error == (kPfWrite | kPfPresent));
    faults.Case(reinterpret_cast<u64*>(first)[cpu] == 9);
    SetHandler(kPageFault, nullptr);
  }
  Unmap(kShared);
}

// A processor sets A and D while another takes entries away: none of the bits is lost.
void TestDirtyBits() {
  const u64 page = AllocPage();
  Map(kShared, page, kPteW);
  u64* const entry = Entry(kShared);
  *entry = page | kPteP | kPteW;
  ShootDown();
  Group group("a page that another processor has stored to is dirty");
  for (unsigned round = 0; round < 100; ++round) {
    const unsigned cpu = 1 + round % (CpusWanted() - 1);
    RunOn(cpu, Store, round);
    u64 taken = 0;
    asm volatile("xchg %0, %1" : "+r"(taken), "+m"(*entry) : : "memory");
    group.Case((taken & (kPteA | kPteD)) == (kPteA | kPteD));
    *entry = page | kPteP | kPteW;
    ShootDown();
  }
  Unmap(kShared);
}

// --- Code ---

using Function = u64 (*)();
constexpr u64 kCodeBytes = 64;
alignas(64) u8 code[kCodeBytes];
volatile u64 version, results[kMaxCpus];
volatile bool running;

void WriteCode(u32 value) {
  // mov eax, value; ret
  code[0] = 0xb8;
  memcpy(code + 1, &value, 4);
  code[5] = 0xc3;
}
void CallCode(u64) {
  Cpuid(0);  // serializes
  results[CpuNumber()] = reinterpret_cast<Function>(code)();
}
// Runs what is there all the time, which may be either version and nothing else.
volatile u64 calls, foreign;
void CallAllTheTime(u64) {
  while (running) {
    Cpuid(0);
    const u64 got = reinterpret_cast<Function>(code)();
    if (got != 0x11111111 && got != 0x22222222) foreign = foreign + 1;
    calls = calls + 1;
  }
}

void TestCode() {
  Group group("code that another processor has written, after a serializing instruction");
  for (u32 round = 0; round < 200; ++round) {
    WriteCode(round);
    group.Case(Everywhere(CallCode, 0));
    for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) group.Case(results[cpu] == round);
  }
  WriteCode(0x11111111);
  running = true;
  calls = 0;
  foreign = 0;
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) Begin(cpu, CallAllTheTime);
  for (unsigned round = 0; round < 400; ++round) {
    // One store inside of the operand's four bytes, aligned with them.
    u64 word;
    memcpy(&word, code, 8);
    const u64 value = round % 2 != 0 ? 0x11111111 : 0x22222222;
    word = (word & ~(0xffffffffull << 8)) | value << 8;
    *reinterpret_cast<volatile u64*>(code) = word;
    const u64 before = calls;
    while (calls - before < 3) Relax();
  }
  running = false;
  bool ended = true;
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) ended = Finish(cpu) && ended;
  Check(ended, "code that is written while others run it");
  CheckEq("... is the old or the new one", foreign, 0);
}

// --- Clocks ---

volatile u64 latest, backwards;
void CompareClocks(u64) {
  for (u64 i = 0; i < kRounds / 4; ++i) {
    TakeLock(&lock_word);
    const u64 now = Rdtsc();
    if (now < latest) backwards = backwards + 1;
    latest = now;
    LeaveLock(&lock_word);
  }
}
constexpr u32 kMsrTsc = 0x10;
constexpr u64 kFuture = u64{1} << 50;

void TestClocks() {
  lock_word = 0;
  Check(Everywhere(CompareClocks, 0), "the TSC everywhere");
  CheckEq("... never goes backwards from one processor to another", backwards, 0);
  if (SkipOnQemu("writing a TSC changes one processor's")) return;  // 18.17.3
  RunOn(1, [](u64) { WriteMsr(kMsrTsc, ReadMsr(kMsrTsc) + kFuture); });
  static volatile u64 other;
  RunOn(1, [](u64) { other = Rdtsc(); });
  Check(Rdtsc() < kFuture && other > kFuture, "writing a TSC changes one processor's");
  RunOn(1, [](u64) { WriteMsr(kMsrTsc, ReadMsr(kMsrTsc) - kFuture); });
}

// --- Registers ---

struct Registers {
  u64 cr3, cr4, gs_base, kernel_gs_base, star, dr0, cr2, sysenter;
  u64 xmm[2];
  u16 control_word;
  u32 mxcsr;
};

volatile u64 waiting;
volatile u64 mixed;
// Each processor has values of its own in all of them, and looks at them after many turns.
void KeepRegisters(u64 roots) {
  const u64 me = CpuNumber() + 1;
  const u64 cr3 = ReadCr3(), cr4 = ReadCr4(), gs = ReadMsr(kMsrGsBase);
  if (me > 1) WriteCr3(reinterpret_cast<u64*>(roots)[me - 1]);
  if (me % 2 == 0) WriteCr4(cr4 ^ kCr4Pge);
  WriteMsr(kMsrGsBase, me << 20);
  WriteMsr(kMsrKernelGsBase, me << 21);
  WriteMsr(kMsrStar, me << 32);
  WriteMsr(kMsrSysenterEip, me << 12);
  WriteCr2(me << 13);
  asm volatile("mov %0, %%dr0" : : "r"(me << 14));
  const u16 control_word = static_cast<u16>(0x37f & ~(me % 4 << 8));
  const u32 mxcsr = 0x1f80 | static_cast<u32>(me % 4 << 13);
  asm volatile("fldcw %0" : : "m"(control_word));
  asm volatile("ldmxcsr %0" : : "m"(mxcsr));
  u64 xmm[2] = {me * 3, me * 5};
  const u64 begun = me * 7;
  u64 kept = begun;
  for (u64 round = 0; round < 200; ++round) {
    u64 after[2];
    // All wait for each other; nothing else here uses vector registers.
    asm volatile(
        "movups (%1), %%xmm9\n"
        "lock incq %3\n"
        "1: pause\n"
        "mov %3, %%rax\n"
        "cmp %4, %%rax\n"
        "jb 1b\n"
        "movups %%xmm9, (%2)\n"
        : "+r"(kept)
        : "r"(xmm), "r"(after), "m"(waiting), "r"((round + 1) * CpusWanted())
        : "rax", "memory");
    if (after[0] != xmm[0] || after[1] != xmm[1] || kept != begun) mixed = mixed + 1;
  }
  u64 dr0;
  u16 word_now;
  u32 mxcsr_now;
  asm volatile("mov %%dr0, %0" : "=r"(dr0));
  asm volatile("fnstcw %0" : "=m"(word_now));
  asm volatile("stmxcsr %0" : "=m"(mxcsr_now));
  const bool same = ReadMsr(kMsrGsBase) == me << 20 && ReadMsr(kMsrKernelGsBase) == me << 21 &&
                    ReadMsr(kMsrStar) == me << 32 && ReadMsr(kMsrSysenterEip) == me << 12 &&
                    ReadCr2() == me << 13 && dr0 == me << 14 && word_now == control_word &&
                    mxcsr_now == mxcsr &&
                    (me == 1 || ReadCr3() == reinterpret_cast<u64*>(roots)[me - 1]) &&
                    ((ReadCr4() ^ cr4) & kCr4Pge) == (me % 2 == 0 ? kCr4Pge : 0);
  if (!same) mixed = mixed + 1;
  WriteCr3(cr3);
  WriteCr4(cr4);
  WriteMsr(kMsrGsBase, gs);
  asm volatile("fninit");
}

void TestRegisters() {
  static u64 roots[kMaxCpus];
  for (u64& root : roots) {
    root = AllocPage();
    memcpy(reinterpret_cast<void*>(root), reinterpret_cast<const void*>(ReadCr3()), kPageSize);
  }
  waiting = 0;
  mixed = 0;
  Check(Everywhere(KeepRegisters, reinterpret_cast<u64>(roots)), "registers everywhere");
  CheckEq("... are each processor's own", mixed, 0);
}

// Each has a root of its own, in which one page is another one.
void TestAddressSpaces() {
  static u64 roots[kMaxCpus];
  static volatile u64 wrong;
  constexpr u64 kOwn = kUserBase;
  const u64 cr3 = ReadCr3();
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    roots[cpu] = AllocPage();
    memcpy(reinterpret_cast<void*>(roots[cpu]), reinterpret_cast<const void*>(cr3), kPageSize);
    WriteCr3(roots[cpu]);
    const u64 page = AllocPage();
    *reinterpret_cast<u64*>(page) = cpu;
    // No table below the root is shared.
    u64 next = page | kPteP | kPteW;
    for (int level = 1; level < 4; ++level) {
      const u64 table = AllocPage();
      reinterpret_cast<u64*>(table)[kOwn >> (3 + 9 * level) & 511] = next;
      next = table | kPteP | kPteW;
    }
    reinterpret_cast<u64*>(roots[cpu])[kOwn >> 39 & 511] = next;
    WriteCr3(cr3);
  }
  wrong = 0;
  waiting = 0;
  const bool ended = Everywhere(
      [](u64 root) {
        const u64 me = CpuNumber();
        WriteCr3(roots[me]);
        for (u64 round = 1; round <= 200; ++round) {
          if (*reinterpret_cast<volatile u64*>(kOwn) != me) wrong = wrong + 1;
          asm volatile("lock incq %0" : "+m"(waiting) : : "memory");
          while (waiting < round * CpusWanted()) Relax();
        }
        WriteCr3(root);
      },
      cr3);
  Check(ended, "address spaces of their own");
  CheckEq("... do not mix", wrong, 0);
}

}  // namespace

int Main() {
  InitLapic();
  CheckEq("all processors start", StartAllCpus(), CpusWanted());
  asm volatile("sti");
  constexpr Section kSections[] = {
      {"atomics", TestAtomics},      {"shootdown", TestShootdown},
      {"dirty", TestDirtyBits},      {"code", TestCode},
      {"clocks", TestClocks},        {"registers", TestRegisters},
      {"spaces", TestAddressSpaces},
  };
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
