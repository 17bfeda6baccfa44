// SPDX-License-Identifier: Apache-2.0
// The same physical code at one linear address after another, as address randomisation has it: what
// depends on the PC says so every time. Nothing of it may stay where the code ran before.

#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

// Two pages. The first calls and jumps within itself and into the second, an instruction lies on
// both, and the second holds data.
asm(R"(
.pushsection .snippet, "ax"
.intel_syntax noprefix
.globl moved_code, moved_crossing, moved_counter, moved_immediate, moved_pf, moved_ud, moved_syscall
.balign 4096
moved_code:
  lea rax, [rip + moved_code]
  mov rbx, [rip + moved_constant]
  add qword ptr [rip + moved_counter], 1
  call 1f
2:
  call moved_callee
3:
  mov ecx, 3
4:
  add rdi, 5
  dec ecx
  jnz 4b
  lea r13, [rip + 1f]
  call r13
5:
  lea r8, [rip + 2b]
  lea r9, [rip + 3b]
  lea r10, [rip + 5b]
  lea r11, [eip + moved_code]
moved_immediate:
  mov ebp, 0x11111111
  jmp moved_crossing
1:
  mov r14, rdx
  mov rdx, [rsp]
  ret
moved_pf:
  mov rax, [rip + moved_code + 0x3010]
moved_ud:
  ud2
moved_syscall:
  syscall
.org moved_code + 4096 - 3
moved_crossing:
  movabs r12, 0x1122334455667788
  int 0x7f
moved_callee:
  mov rsi, [rsp]
  ret
moved_constant:
  .quad 0x0123456789abcdef
moved_counter:
  .quad 0
.org moved_code + 8192
.att_syntax prefix
.popsection
)");

extern "C" const char moved_code[], moved_crossing[], moved_counter[], moved_immediate[],
    moved_pf[], moved_ud[], moved_syscall[];

namespace alibi::frobos {
namespace {

constexpr u64 kPages = 2;

u64 OffsetOf(const char* label) { return static_cast<u64>(label - moved_code); }

// The code's own memory, at the address where it was allocated.
u64 code;

void MapAt(u64 base) {
  for (u64 i = 0; i < kPages; i++) {
    Map(base + i * kPageSize, code + i * kPageSize, kPteP | kPteW | kPteU);
  }
}

void UnmapAt(u64 base) {
  for (u64 i = 0; i < kPages; i++) Unmap(base + i * kPageSize);
}

bool IsCallSite(u64 address, u64 base) {
  return address > base && address < base + OffsetOf(moved_crossing);
}

u32 immediate = 0x11111111;

// Everything that shows where it runs.
bool RunsAt(u64 base, bool user) {
  u64& counter = *reinterpret_cast<u64*>(code + OffsetOf(moved_counter));
  const u64 before = counter;
  Regs regs;
  regs.rdi = 100;
  const void* entry = reinterpret_cast<const void*>(base);
  const Outcome outcome = user ? RunUser(entry, regs) : RunKernel(entry, regs);
  const TrapFrame& f = outcome.frame;
  return outcome.Done() && f.rax == base && f.rbx == 0x0123456789abcdef && counter == before + 1 &&
         f.r12 == 0x1122334455667788 && f.rdi == 115 && f.rbp == immediate && f.r14 == f.r8 &&
         f.rsi == f.r9 && f.rdx == f.r10 && IsCallSite(f.r8, base) && IsCallSite(f.r9, base) &&
         IsCallSite(f.r10, base) && f.r11 == (base & 0xffffffff) &&
         f.rip == base + OffsetOf(moved_crossing) + 12;
}

bool FaultsAt(u64 base, bool user) {
  const auto run = [&](const char* label) {
    const void* entry = reinterpret_cast<const void*>(base + OffsetOf(label));
    return user ? RunUser(entry) : RunKernel(entry);
  };
  const Outcome page = run(moved_pf);
  const Outcome undefined = run(moved_ud);
  return page.Is(14, user ? 4 : 0) && page.cr2 == base + 0x3010 &&
         page.frame.rip == base + OffsetOf(moved_pf) && undefined.Is(6) &&
         undefined.frame.rip == base + OffsetOf(moved_ud);
}

// Below, between and above the addresses that programs are loaded at.
u64 AddressOf(u64 i) {
  constexpr u64 kLeast = u64{1} << 33, kSpan = (u64{1} << 47) - (u64{1} << 34);
  return kLeast + ((i * 0x9e3779b97f4a7c15 >> 8) % kSpan & ~(kPageSize - 1));
}

void TestOneAfterAnother(bool user, const char* name) {
  Group group(name);
  for (u64 i = 0; i < 200; i++) {
    const u64 base = AddressOf(i);
    MapAt(base);
    group.Case(RunsAt(base, user));
    if (i % 8 == 0) group.Case(FaultsAt(base, user));
    group.Case(RunsAt(base, user));
    UnmapAt(base);
    // It has gone from there.
    if (i % 16 == 0) {
      const void* entry = reinterpret_cast<const void*>(base);
      const Outcome gone = user ? RunUser(entry) : RunKernel(entry);
      group.Case(gone.Is(14) && gone.cr2 == base && gone.frame.rip == base);
    }
  }
}

void TestSeveralAtOnce() {
  Group group("at three addresses in turn, one of which changes");
  const u64 first = AddressOf(1000), second = AddressOf(1001);
  MapAt(first);
  MapAt(second);
  for (u64 i = 0; i < 50; i++) {
    const u64 third = AddressOf(2000 + i);
    MapAt(third);
    for (int round = 0; round < 3; round++) {
      group.Case(RunsAt(first, false));
      group.Case(RunsAt(third, round == 1));
      group.Case(RunsAt(second, true));
    }
    UnmapAt(third);
  }
  UnmapAt(first);
  UnmapAt(second);
}

void TestBackAndForth() {
  Group group("two addresses, never both");
  for (u64 i = 0; i < 100; i++) {
    const u64 base = AddressOf(3000 + i % 2);
    MapAt(base);
    group.Case(RunsAt(base, i % 4 >= 2));
    UnmapAt(base);
  }
}

void Patch(u32 value) {
  immediate = value;
  memcpy(reinterpret_cast<void*>(code + OffsetOf(moved_immediate) + 1), &value, sizeof(value));
  Cpuid(0);
}

void TestChangedBetween() {
  Group group("changed while it is elsewhere, and changed back");
  for (u64 i = 0; i < 60; i++) {
    const u64 base = AddressOf(4000 + i);
    MapAt(base);
    group.Case(RunsAt(base, false));
    Patch(static_cast<u32>(i));
    group.Case(RunsAt(base, false));
    if (i % 3 == 0) Patch(0x11111111);
    UnmapAt(base);
    if (i % 3 == 1) Patch(0x11111111);
  }
  Patch(0x11111111);
}

// RCX is the address behind SYSCALL.
void TestSyscall() {
  const u64 efer = ReadMsr(kMsrEfer), lstar = ReadMsr(kMsrLstar), star = ReadMsr(kMsrStar);
  WriteMsr(kMsrEfer, efer | kEferSce);
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, reinterpret_cast<u64>(KERNEL_CODE("nop")));
  {
    Group group("SYSCALL's return address");
    for (u64 i = 0; i < 40; i++) {
      const u64 base = AddressOf(5000 + i);
      MapAt(base);
      for (int round = 0; round < 3; round++) {
        const u64 at = base + OffsetOf(moved_syscall);
        const Outcome outcome = RunUser(reinterpret_cast<const void*>(at));
        group.Case(outcome.Done() && outcome.frame.rcx == at + 2);
      }
      UnmapAt(base);
    }
  }
  WriteMsr(kMsrLstar, lstar);
  WriteMsr(kMsrStar, star);
  WriteMsr(kMsrEfer, efer);
}

}  // namespace

int Main() {
  code = AllocRange(kPages * kPageSize, kPageSize);
  memcpy(reinterpret_cast<void*>(code), moved_code, kPages * kPageSize);
  TestOneAfterAnother(false, "one address after another, in the kernel");
  TestOneAfterAnother(true, "one address after another, in user code");
  TestSeveralAtOnce();
  TestBackAndForth();
  TestChangedBetween();
  TestSyscall();
  return Summary();
}

}  // namespace alibi::frobos
