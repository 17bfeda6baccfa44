// SPDX-License-Identifier: Apache-2.0
// Pages of CPL 3 that its kernel shares, changes and takes away while user code runs, and pages
// that user code changes itself: code, and page tables. A VMM may run such code on the CPU itself,
// with mappings of its own that must follow all of it.

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kUserRw = kPteU | kPteW;
constexpr u64 kCode = kUserBase + 0x40'0000, kData = kUserBase + 0x80'0000,
              kTables = kUserBase + 0xc0'0000;

u64& Word(u64 physical) { return *reinterpret_cast<u64*>(physical); }

// Fit to run on the CPU itself, for which interrupts must be on.
Outcome RunApplication(const void* code, Regs regs) {
  regs.rflags = kFlagsFixed | kFlagIf;
  return RunUser(code, regs);
}

// A page of code that runs wherever it is mapped.
u64 PageOf(const void* code) {
  constexpr u64 kMost = 64;
  const u64 page = AllocPage();
  memcpy(reinterpret_cast<void*>(page), code, kMost);
  return page;
}

// Interrupts, about a thousand a second, until the object goes.
void (*on_tick)();
class Ticking {
 public:
  explicit Ticking(void (*tick)()) {
    on_tick = tick;
    SetHandler(kIrqBase, [](TrapFrame*) {
      on_tick();
      EndOfIrq(0);
    });
    UnmaskIrq(0);
    StartPit(PitMode::kPeriodic, kPitHz / 1000);
  }
  ~Ticking() {
    MaskIrq(0);
    StopPit();
    SetHandler(kIrqBase, nullptr);
  }
};

// --- Two address spaces, one frame ---

void TestSharedFrame() {
  const u64 frame = AllocPage(), own[2] = {AllocPage(), AllocPage()};
  const u64 first = ReadCr3();
  const u64 second = AllocPage();
  memcpy(reinterpret_cast<void*>(second), reinterpret_cast<void*>(first & kPteAddress), kPageSize);
  Word(second + 8 * (kUserBase >> 39 & 511)) = 0;
  const u64 roots[2] = {first, second};
  // The same address leads to a page of its own, and another one to the shared frame.
  for (unsigned i = 0; i < 2; i++) {
    WriteCr3(roots[i]);
    Map(kData, own[i], kUserRw);
    Map(kData + (i + 1) * 0x10'0000, frame, kUserRw);
  }
  const void* code = USER_CODE("mov ecx, 1000; 2: add [rdi], rbx; inc qword ptr [rsi]; loop 2b");
  bool done = true;
  for (unsigned round = 0; round < 20; round++) {
    for (unsigned i = 0; i < 2; i++) {
      WriteCr3(roots[i]);
      done &= RunApplication(code, {.rbx = i + 1, .rsi = kData + (i + 1) * 0x10'0000, .rdi = kData})
                  .Done();
    }
  }
  Check(done, "two address spaces take turns");
  CheckEq("a page of the first", Word(own[0]), 20'000);
  CheckEq("at the same address one of the second", Word(own[1]), 40'000);
  CheckEq("the frame that both have mapped", Word(frame), 40'000);
  WriteCr3(second);
  CheckFault("what only the first has mapped",
             RunApplication(USER_CODE("mov [rsi], rax"), {.rsi = kData + 0x10'0000}), kPageFault,
             kPfUser | kPfWrite);
  WriteCr3(first);
  Unmap(kData);
  Unmap(kData + 0x10'0000);
}

// --- Changes while user code runs ---

constexpr u64 kFlag = kData + kPageSize;  // the user code's: not 0, it ends
constexpr u64 kChanges = 50;
u64 flag_page;
u64 changes, faults, wrong_faults, fault_error, fault_address;

void BeginChanges() {
  flag_page = AllocPage();
  Map(kFlag, flag_page, kPteU);
  changes = faults = wrong_faults = 0;
}
void Changed() {
  if (++changes == kChanges) Word(flag_page) = 1;
}
void CheckFaults() {
  // The last change may come behind the last use.
  Check(faults == changes || faults + 1 == changes, "... a fault for each change");
  CheckEq("... whose error code and CR2 are right", wrong_faults, 0);
}

void NoteFault(u64 error) {
  ++faults;
  if (error != fault_error || ReadCr2() != fault_address) ++wrong_faults;
}

void MakeWritable(bool writable) {
  u64* const entry = Entry(kData);
  *entry = writable ? *entry | kPteW : *entry & ~kPteW;
  Invlpg(kData);
}

void TestRightsWhileItRuns() {
  const u64 frame = AllocPage();
  Map(kData, frame, kUserRw);
  BeginChanges();
  fault_error = kPfUser | kPfWrite | kPfPresent;
  fault_address = kData;
  SetHandler(kPageFault, [](TrapFrame* trap) {
    NoteFault(trap->error);
    MakeWritable(true);
  });
  Outcome o;
  {
    const Ticking ticking([] {
      if ((*Entry(kData) & kPteW) == 0) return;
      MakeWritable(false);
      Changed();
    });
    o = RunApplication(USER_CODE("2: inc rcx; inc qword ptr [rdi]; cmp qword ptr [rsi], 0; je 2b"),
                       {.rsi = kFlag, .rdi = kData});
  }
  SetHandler(kPageFault, nullptr);
  CheckDone("stores to a page whose kernel makes it read-only again and again", o);
  CheckEq("... each once", Word(frame), o.frame.rcx);
  CheckFaults();
  Unmap(kData);
  Unmap(kFlag);
}

u64 code_pages[2];
unsigned code_page;

void TestCodeWhileItRuns() {
  // Of the same length: which page it was shows in the end.
  code_pages[0] = PageOf(USER_CODE("2: inc rcx; inc rax; cmp qword ptr [rsi], 0; je 2b; int 0x7f"));
  code_pages[1] = PageOf(USER_CODE("2: inc rcx; inc rbx; cmp qword ptr [rsi], 0; je 2b; int 0x7f"));
  code_page = 0;
  Map(kCode, code_pages[0], kPteU);
  BeginChanges();
  fault_error = kPfUser | (HasNx() ? kPfFetch : 0);
  SetHandler(kPageFault, [](TrapFrame* trap) {
    fault_address = trap->rip;
    NoteFault(trap->error);
    Map(kCode, code_pages[++code_page % 2], kPteU);
  });
  Outcome o;
  {
    const Ticking ticking([] {
      if ((*Entry(kCode) & kPteP) == 0) return;
      Unmap(kCode);
      Changed();
    });
    o = RunApplication(reinterpret_cast<const void*>(kCode), {.rsi = kFlag});
  }
  SetHandler(kPageFault, nullptr);
  CheckDone("code whose page is taken away, and another one put there", o);
  CheckEq("... each turn once", o.frame.rax + o.frame.rbx, o.frame.rcx);
  Check(o.frame.rax != 0 && o.frame.rbx != 0, "... in both pages");
  CheckFaults();
  Unmap(kCode);
  Unmap(kFlag);
}

// --- Code that writes ---

void TestCodeThatChangesItself() {
  // The immediate of ADD is the number of the turn: mov [rip + 8], ecx; add rax, imm32.
  const u64 page = PageOf(USER_CODE(
      "2: mov dword ptr [rip + 3f - 4], ecx; add rax, 0x11111111; 3: dec rcx; jnz 2b; int 0x7f"));
  Map(kCode, page, kUserRw);
  const Outcome o = RunApplication(reinterpret_cast<const void*>(kCode), {.rcx = 2000});
  CheckDone("code that changes its next instruction in each turn", o);
  CheckEq("... and executes what it has written", o.frame.rax, 2000 * 2001 / 2);
  // By way of another mapping of the frame.
  Map(kData, page, kUserRw);
  const u64 other = PageOf(USER_CODE("2: mov [rdi], ecx; call rsi; dec rcx; jnz 2b; int 0x7f"));
  Map(kCode + kPageSize, other, kPteU);
  const u8 add_and_return[] = {0x48, 0x05, 0, 0, 0, 0, 0xc3};
  memcpy(reinterpret_cast<void*>(page), add_and_return, sizeof(add_and_return));
  const Outcome alias = RunApplication(reinterpret_cast<const void*>(kCode + kPageSize),
                                       {.rcx = 2000, .rsi = kCode, .rdi = kData + 2});
  CheckDone("code that is changed at another address", alias);
  CheckEq("... as it is when it runs", alias.frame.rax, 2000 * 2001 / 2);
  for (const u64 va : {kCode, kCode + kPageSize, kData}) Unmap(va);
}

// User code that has its own page table mapped, and changes it.
void TestPageTableOfItsOwn() {
  constexpr u64 kPages = 64;
  const u64 frames = AllocRange(kPages * kPageSize, kPageSize);
  // The table that decides kData's 2 MB.
  u64* const table = Entry(kData);
  Map(kTables, reinterpret_cast<u64>(table) & kPteAddress, kUserRw);
  const u64 base = reinterpret_cast<u64>(table) & (kPageSize - 1);
  // Makes an entry, and stores by way of it: rbx the entry, rsi its place, rdi what it maps.
  const void* code = USER_CODE(
      "2: mov [rsi], rbx; mov [rdi], rcx; add rsi, 8; add rdi, 4096; add rbx, 4096; loop 2b");
  const u64 entry = frames | kUserRw | kPteP;
  Outcome o =
      RunApplication(code, {.rbx = entry, .rcx = kPages, .rsi = kTables + base, .rdi = kData});
  CheckDone("user code makes page-table entries, and uses them", o);
  bool right = true, flags = true;
  for (u64 i = 0; i < kPages; i++) {
    right &= Word(frames + i * kPageSize) == kPages - i;
    flags &= (table[i] & (kPteA | kPteD)) == (kPteA | kPteD);
  }
  Check(right, "... each leads to its frame");
  Check(flags, "... and is accessed and dirty");
  // Backwards now: what the TLB may know must go first.
  FlushTlb();
  o = RunApplication(
      USER_CODE("2: mov [rsi], rbx; add rsi, 8; sub rbx, 4096; loop 2b"),
      {.rbx = entry + (kPages - 1) * kPageSize, .rcx = kPages, .rsi = kTables + base});
  FlushTlb();
  const Outcome sums =
      RunApplication(USER_CODE("2: add rax, [rdi]; shl rax, 1; add rdi, 4096; loop 2b"),
                     {.rcx = 16, .rdi = kData});
  u64 expected = 0;
  for (u64 i = 0; i < 16; i++)
    expected = (expected + Word(frames + (kPages - 1 - i) * kPageSize)) << 1;
  CheckDone("... changes them, and reads by way of them", sums);
  CheckEq("... what is there now", sums.frame.rax, expected);
  // Takes one away.
  o = RunApplication(USER_CODE("mov qword ptr [rsi], 0"), {.rsi = kTables + base});
  Invlpg(kData);
  CheckFault("... takes one away", RunApplication(USER_CODE("mov rax, [rdi]"), {.rdi = kData}),
             kPageFault, kPfUser);
  for (u64 i = 0; i < kPages; i++) table[i] = 0;
  Unmap(kTables);
  FlushTlb();
}

// --- What lies around ---

void TestNeighbours() {
  constexpr u64 kPages = 16;
  const u64 frames = AllocRange(kPages * kPageSize, kPageSize);
  const auto rights = [](u64 i) {
    return i % 4 == 1 ? kPteW : i % 4 == 2 ? kPteU : kUserRw;  // of the kernel; read-only; all
  };
  for (u64 i = 0; i < kPages; i++) {
    if (i % 4 != 3) Map(kData + i * kPageSize, frames + i * kPageSize, rights(i));
    Word(frames + i * kPageSize) = 100 + i;
  }
  const void* load = USER_CODE("mov rax, [rdi]");
  const void* store = USER_CODE("mov [rdi], rax");
  const void* fetch = USER_CODE("jmp rdi");
  for (u64 i = 0; i < kPages; i++) {
    const u64 va = kData + i * kPageSize;
    Print("  page %d:\n", static_cast<int>(i));
    const u64 present = i % 4 == 3 ? 0 : kPfPresent;
    const Outcome loaded = RunApplication(load, {.rdi = va});
    if (i % 4 == 1 || i % 4 == 3) {
      CheckFault("a load faults", loaded, kPageFault, kPfUser | present);
      CheckEq("... CR2", loaded.cr2, va);
    } else {
      CheckEq("a load", loaded.frame.rax, 100 + i);
    }
    const Outcome stored = RunApplication(store, {.rax = 200 + i, .rdi = va});
    if (i % 4 == 0) {
      CheckDone("a store", stored);
      CheckEq("... is there", Word(frames + i * kPageSize), 200 + i);
    } else {
      CheckFault("a store faults", stored, kPageFault, kPfUser | kPfWrite | present);
      CheckEq("... CR2", stored.cr2, va);
    }
    if (i % 4 == 1) {
      CheckFault("a fetch faults", RunApplication(fetch, {.rdi = va}), kPageFault,
                 kPfUser | kPfPresent | (HasNx() ? kPfFetch : 0), va);
    }
  }
  // Accessed and dirty flags, cleared between uses.
  u64* const entry = Entry(kData);
  for (unsigned round = 0; round < 4; round++) {
    *entry &= ~(kPteA | kPteD);
    Invlpg(kData);
    RunApplication(load, {.rdi = kData});
    CheckEq("accessed by a load", *entry & (kPteA | kPteD), kPteA);
    RunApplication(store, {.rdi = kData});
    CheckEq("dirty by a store", *entry & (kPteA | kPteD), kPteA | kPteD);
  }
  for (u64 i = 0; i < kPages; i++) {
    if (i % 4 != 3) Unmap(kData + i * kPageSize);
  }
}

constexpr Section kSections[] = {
    {"shared", TestSharedFrame},       {"rights", TestRightsWhileItRuns},
    {"code", TestCodeWhileItRuns},     {"itself", TestCodeThatChangesItself},
    {"tables", TestPageTableOfItsOwn}, {"neighbours", TestNeighbours},
};

}  // namespace

int Main() {
  EnableRegistersLikeLinux();
  InitPic();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
