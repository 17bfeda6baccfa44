// SPDX-License-Identifier: Apache-2.0
// Breakpoints over code that runs often, and comes and goes with them: every hit is reported, with
// exact flags, and nothing else is (Intel SDM vol. 3B 17.2 and 17.3).
#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kExecute = 0, kWrite = 1, kAccess = 3;  // DR7.R/W
constexpr u64 kOne = 0, kEight = 2, kFour = 3;        // DR7.LEN
constexpr u64 kFixed = 1u << 10;
constexpr u64 kRounds = 2000;

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

void SetBreakpoint(u64 address, u64 kind, u64 length) {
  asm volatile("mov %0, %%dr0" : : "r"(address));
  asm volatile("mov %0, %%dr7" : : "r"(kFixed | 1 | (kind | length << 2) << 16) : "memory");
}
void ClearBreakpoint() { asm volatile("mov %0, %%dr7" : : "r"(kFixed) : "memory"); }

// What the #DB handler has seen.
struct Hits {
  u64 rip = 0;
  u64 count = 0, elsewhere = 0;        // `elsewhere`: not at `rip`
  u64 flags_set = 0, flags_clear = 0;  // in at least one image
} hits;

Outcome CountHits(u64 rip, const void* code, const Regs& regs) {
  hits = Hits{};
  hits.rip = rip;
  SetHandler(kDebug, [](TrapFrame* frame) {
    hits.count++;
    if (frame->rip != hits.rip) hits.elsewhere++;
    hits.flags_set |= frame->rflags;
    hits.flags_clear |= ~frame->rflags;
    frame->rflags |= kFlagRf;
  });
  SetIst(kDebug, 4);  // the stack in use may be watched
  const Outcome o = RunKernel(code, regs);
  RestoreEntry(kDebug);
  SetHandler(kDebug, nullptr);
  return o;
}

alignas(kPageSize) u8 area[3 * kPageSize];

void CheckHits(const char* name, const Outcome& outcome, u64 wanted) {
  CheckDone(name, outcome);
  CheckEq("... hits", hits.count, wanted);
  CheckEq("... elsewhere", hits.elsewhere, 0);
}

// A breakpoint at an instruction amid a loop that has run without it.
void TestExecute() {
  // The first comparison's flags are overwritten, but by no instruction in front of the breakpoint.
  const void* code = KERNEL_CODE(
      "2: xor eax, eax; cmp rax, rax; mov rdx, [rdi]; nop; add rdx, 1; mov [rdi], rdx; dec rcx; "
      "jnz 2b");
  constexpr u64 kNop = 8;  // behind xor, cmp and mov
  const Regs regs{.rcx = kRounds, .rdi = At(area)};
  for (unsigned turn = 0; turn < 3; turn++) {
    CheckHits("a loop without a breakpoint", CountHits(0, code, regs), 0);
    SetBreakpoint(At(code, kNop), kExecute, kOne);
    const Outcome o = CountHits(At(code, kNop), code, regs);
    ClearBreakpoint();
    CheckHits("... with one at an instruction amid it", o, kRounds);
    CheckEq("... ZF and PF of the comparison in each image", hits.flags_clear & (kFlagZf | kFlagPf),
            0);
    CheckEq("... CF, SF and OF, too", hits.flags_set & (kFlagCf | kFlagSf | kFlagOf), 0);
    SetBreakpoint(At(code, kNop + 1), kExecute, kOne);
    const Outcome next = CountHits(At(code, kNop + 1), code, regs);
    ClearBreakpoint();
    CheckHits("... at the next one", next, kRounds);
  }
  u64 sum;
  __builtin_memcpy(&sum, area, 8);
  CheckEq("... nothing is executed twice", sum, 9 * kRounds);

  // Functions that are called and jumped to.
  const void* calls = KERNEL_CODE(
      "lea rbx, [rip + 3f]; jmp 4f; 2: inc rax; ret; 3: inc rdx; ret; 4: call 2b; call rbx; dec "
      "rcx; jnz 4b");
  CheckHits("calls", CountHits(0, calls, {.rcx = kRounds}), 0);
  // Each function's first instruction, and a return.
  const u64 places[] = {At(calls, 9), At(calls, 13), At(calls, 16)};
  for (const u64 function : places) {
    SetBreakpoint(function, kExecute, kOne);
    const Outcome o = CountHits(function, calls, {.rcx = kRounds});
    ClearBreakpoint();
    CheckHits("... with a breakpoint in a function", o, kRounds);
    CheckEq("... calls of one", o.frame.rax, kRounds);
    CheckEq("... and of the other", o.frame.rdx, kRounds);
  }
}

// A page in which something is watched, and its neighbours.
void TestData() {
  const u64 watched = At(area) + kPageSize + 0x100;
  struct Case {
    const char* name;
    const void* code;
    u64 behind;  // the instruction that hits: offset of the next one
    u64 kind;
    u64 hits;
  };
  const Case cases[] = {
      {"stores beside the watched bytes", KERNEL_CODE("2: mov [rdi + 8], rcx; dec rcx; jnz 2b"), 0,
       kWrite, 0},
      {"loads of bytes whose stores are watched",
       KERNEL_CODE("2: mov rax, [rdi]; add rdx, rax; dec rcx; jnz 2b"), 0, kWrite, 0},
      {"stores", KERNEL_CODE("2: mov [rdi], rcx; dec rcx; jnz 2b"), 3, kWrite, kRounds},
      {"loads", KERNEL_CODE("2: mov rax, [rdi]; dec rcx; jnz 2b"), 3, kAccess, kRounds},
      {"read-modify-write", KERNEL_CODE("2: add qword ptr [rdi], 3; dec rcx; jnz 2b"), 4, kWrite,
       kRounds},
      {"stores across the end of them", KERNEL_CODE("2: mov [rdi + 7], ecx; dec rcx; jnz 2b"), 3,
       kWrite, kRounds},
      {"vector stores", KERNEL_CODE("2: movups [rdi - 8], xmm0; dec rcx; jnz 2b"), 4, kWrite,
       kRounds},
      {"pushes",
       KERNEL_CODE("mov rbx, rsp; lea rsp, [rdi + 8]; 2: push rcx; pop rax; dec rcx; jnz 2b; mov "
                   "rsp, rbx"),
       8, kWrite, kRounds},
      {"one store of many, over three pages",
       KERNEL_CODE("lea rsi, [rdi - 0x1000]; 3: lea rax, [rsi + 0x1ff8]; 2: mov [rax], rcx; sub "
                   "rax, 8; cmp rax, rsi; jae 2b; dec rcx; jnz 3b"),
       17, kWrite, 20},
  };
  for (const Case& c : cases) {
    const u64 rounds = c.hits == 20 ? 20 : kRounds;
    const Regs regs{.rcx = rounds, .rdi = watched};
    CheckHits(c.name, CountHits(0, c.code, regs), 0);
    SetBreakpoint(watched, c.kind, kEight);
    const Outcome o = CountHits(At(c.code, c.behind), c.code, regs);
    ClearBreakpoint();
    CheckHits("... under a breakpoint", o, c.hits);
    CheckHits("... and without it again", CountHits(0, c.code, regs), 0);
  }
  // Flags that the access does not set, in front of others that overwrite them.
  const void* flags = KERNEL_CODE("2: cmp rax, rax; mov [rdi], rcx; dec rcx; jnz 2b");
  SetBreakpoint(watched, kWrite, kEight);
  CountHits(At(flags, 6), flags, {.rcx = kRounds, .rdi = watched});
  const Outcome o = CountHits(At(flags, 6), flags, {.rcx = kRounds, .rdi = watched});
  ClearBreakpoint();
  CheckHits("flags behind a watched store", o, kRounds);
  CheckEq("... ZF and PF", hits.flags_clear & (kFlagZf | kFlagPf), 0);
}

// Accesses that cross from one page into another.
void TestCrossing() {
  const u64 page = At(area) + kPageSize;
  struct Case {
    const char* name;
    const void* code;
    u64 behind;
    u64 kind;
  };
  const Case cases[] = {
      {"loads", KERNEL_CODE("2: mov rax, [rdi]; dec rcx; jnz 2b"), 3, kAccess},
      {"stores", KERNEL_CODE("2: mov [rdi], rcx; dec rcx; jnz 2b"), 3, kWrite},
      {"vector loads", KERNEL_CODE("2: movups xmm0, [rdi - 4]; dec rcx; jnz 2b"), 4, kAccess},
      {"pops",
       KERNEL_CODE("mov rbx, rsp; mov rsp, rdi; 2: pop rax; push rax; dec rcx; jnz 2b; mov rsp, "
                   "rbx"),
       7, kAccess},
  };
  for (const Case& c : cases) {
    const Regs regs{.rcx = kRounds, .rdi = page - 4};
    CheckHits(c.name, CountHits(0, c.code, regs), 0);
    for (u64 half = 0; half < 2; half++) {
      SetBreakpoint(page - 4 * half, c.kind, kFour);
      const Outcome o = CountHits(At(c.code, c.behind), c.code, regs);
      ClearBreakpoint();
      // PUSH touches it, too.
      CheckDone("... across pages, one of them watched", o);
      CheckEq("... hits", hits.count, c.behind == 7 ? 2 * kRounds : kRounds);
    }
  }
}

// Strings, whose elements are stored many at a time where nobody watches.
void TestStrings() {
  const u64 page = At(area) + kPageSize;
  const void* bytes = KERNEL_CODE("rep stosb; nop");
  const void* moves = KERNEL_CODE("rep movsq; nop");
  for (unsigned turn = 0; turn < 20; turn++) {
    SetBreakpoint(page + 0x100, kWrite, kEight);
    const Outcome o = CountHits(At(bytes), bytes, {.rcx = 0x1800, .rdi = page - 0x400});
    CheckHits("rep stosb into three pages", o, 8);
    if (SkipOnQemu("an element of rep movsq at the edge of a watched page")) continue;
    // The breakpoint lies in the second half of an element that crosses into its page.
    SetBreakpoint(page, kWrite, kFour);
    const Regs regs{.rcx = 0x180, .rsi = At(area) + 16, .rdi = page - 4 - 0x400};
    const Outcome crossing = CountHits(At(moves), moves, regs);
    CheckHits("an element of rep movsq that crosses into a watched page", crossing, 1);
    SetBreakpoint(page - 4, kWrite, kFour);
    const Outcome out = CountHits(At(moves), moves, regs);
    ClearBreakpoint();
    CheckHits("... and out of one", out, 1);
  }
}

// Breakpoints are linear: the same memory elsewhere is not watched, other memory there is.
void TestAliases() {
  const u64 here = kHighBase + 0xa00000, there = kHighBase + 0xb00000;
  const u64 page = AllocPage();
  Map(here, page, kPteW);
  Map(there, page, kPteW);
  const void* store = KERNEL_CODE("2: mov [rdi], rcx; dec rcx; jnz 2b");
  SetBreakpoint(here, kWrite, kFour);
  const Outcome alias = CountHits(0, store, {.rcx = kRounds, .rdi = there});
  CheckHits("stores to an alias of watched memory", alias, 0);
  const Outcome watched = CountHits(At(store, 3), store, {.rcx = kRounds, .rdi = here});
  CheckHits("... to the watched address", watched, kRounds);
  Map(here, AllocPage(), kPteW);
  FlushTlb();
  const Outcome moved = CountHits(At(store, 3), store, {.rcx = kRounds, .rdi = here});
  CheckHits("... to other memory there", moved, kRounds);
  ClearBreakpoint();
  u64 left;
  __builtin_memcpy(&left, reinterpret_cast<void*>(page), 8);
  CheckEq("... the first page keeps its last value", left, 1);
  Unmap(here);
  Unmap(there);
}

// A handler that moves the breakpoint along, from instruction to instruction.
void TestMoving() {
  const void* code = KERNEL_CODE("2: inc rax; inc rbx; inc rdx; dec rcx; jnz 2b");
  CheckDone("a loop", RunKernel(code, {.rcx = kRounds}));
  static u64 first, moves;
  first = At(code);
  moves = 0;
  SetHandler(kDebug, [](TrapFrame* frame) {
    moves++;
    const u64 next = frame->rip - first < 9 ? frame->rip + 3 : first;
    asm volatile("mov %0, %%dr0" : : "r"(next));
    frame->rflags |= kFlagRf;
  });
  SetBreakpoint(first, kExecute, kOne);
  const Outcome o = RunKernel(code, {.rcx = kRounds});
  ClearBreakpoint();
  SetHandler(kDebug, nullptr);
  CheckDone("... under a breakpoint that moves along", o);
  CheckEq("... its stations", moves, 4 * kRounds);
  CheckEq("... its result", o.frame.rax, kRounds);
}

constexpr Section kSections[] = {
    {"execute", TestExecute}, {"data", TestData},       {"crossing", TestCrossing},
    {"strings", TestStrings}, {"aliases", TestAliases}, {"moving", TestMoving},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
