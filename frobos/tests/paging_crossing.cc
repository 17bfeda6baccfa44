// SPDX-License-Identifier: Apache-2.0
// Accesses over the border of two pages that are neighbours in linear space only: every size and
// offset, each page faulting in turn, and nothing half written. Stores of more than 8 bytes may be
// half written (SDM vol. 3A 8.1.1), but only where they were to write.

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"
#include "frobos/tests/paging.h"

namespace alibi::frobos {
namespace {

constexpr u64 kBase = kUserBase + 0x40000000;
constexpr u64 kBorder = kBase + kPageSize;

// The two pages, and what lies between them physically (must never be touched).
struct Pages {
  u64 first, between, second;
} pages;

u8* Physical(u64 offset) {  // offset from kBase, 0 to 8191
  return reinterpret_cast<u8*>(offset < kPageSize ? pages.first + offset
                                                  : pages.second + offset - kPageSize);
}

u8 Pattern(u64 offset) { return static_cast<u8>(offset * 37 + 11); }

void Fill() {
  for (u64 i = kPageSize - 64; i < kPageSize + 64; i++) *Physical(i) = Pattern(i);
  memset(reinterpret_cast<void*>(pages.between), 0xee, kPageSize);
}

bool Untouched(u64 from, u64 size) {  // all bytes near the border but [from, from + size)
  for (u64 i = kPageSize - 64; i < kPageSize + 64; i++) {
    if ((i < from || i >= from + size) && *Physical(i) != Pattern(i)) return false;
  }
  for (u64 i = 0; i < kPageSize; i++) {
    if (reinterpret_cast<u8*>(pages.between)[i] != 0xee) return false;
  }
  return true;
}

void Remap(u64 first_flags, u64 second_flags) {
  const auto set = [](u64 va, u64 pa, u64 flags) {
    *Entry(va) = (flags & kPteP) != 0 ? pa | flags : 0;
    Invlpg(va);
  };
  set(kBase, pages.first, first_flags);
  set(kBorder, pages.second, second_flags);
}

// One way to move size bytes. load: [rdi] to [rsi]; store: [rsi] to [rdi]; rsi is a good buffer.
struct Mover {
  const char* name;
  u64 size;
  const void* load[2];  // kernel, user
  const void* store[2];
  bool needs_avx;
};

#define BOTH(text) \
  { KERNEL_CODE(text), USER_CODE(text) }

[[gnu::section(".udata"), gnu::aligned(64)]] u8 buffer[64] = {1};

Outcome Run(const void* const code[2], bool user, u64 va) {
  const Regs regs = {.rsi = reinterpret_cast<u64>(buffer), .rdi = va};
  return user ? RunUser(code[1], regs) : RunKernel(code[0], regs);
}

void CheckMover(const Mover& m) {
  constexpr u64 kFull = kPteP | kPteW | kPteU;
  Group group(m.name);
  for (const bool user : {false, true}) {
    const u64 who = user ? kPfUser : 0;
    for (u64 before = 1; before < m.size; before++) {
      const u64 offset = kPageSize - before;
      const u64 torn = m.size > 8 ? m.size : 0;
      const u64 va = kBase + offset;
      const auto report = [&](bool ok, const char* what, const Outcome& o) {
        if (!group.Case(ok)) {
          Print("  %s %s, %lu bytes before the border: %s error %lx cr2 %lx\n",
                user ? "user" : "kernel", what, before, VectorName(o.frame.vector), o.frame.error,
                o.cr2);
        }
      };
      Remap(kFull, kFull);
      Fill();
      memset(buffer, 0, sizeof(buffer));
      Outcome o = Run(m.load, user, va);
      bool same = true;
      for (u64 i = 0; i < m.size; i++) same &= buffer[i] == Pattern(offset + i);
      report(o.Done() && same && Untouched(0, 0), "load", o);

      for (u64 i = 0; i < m.size; i++) buffer[i] = static_cast<u8>(0xa0 + i);
      o = Run(m.store, user, va);
      same = true;
      for (u64 i = 0; i < m.size; i++) same &= *Physical(offset + i) == static_cast<u8>(0xa0 + i);
      report(o.Done() && same && Untouched(offset, m.size), "store", o);

      Fill();
      Remap(kFull, 0);
      o = Run(m.load, user, va);
      report(o.Is(kPageFault, who) && o.cr2 == kBorder, "load, second page absent", o);
      o = Run(m.store, user, va);
      report(o.Is(kPageFault, who | kPfWrite) && o.cr2 == kBorder && Untouched(offset, torn),
             "store, second page absent", o);
      Remap(kFull, kPteP | kPteU);
      o = Run(m.store, user, va);
      report(o.Is(kPageFault, who | kPfWrite | kPfPresent) && o.cr2 == kBorder &&
                 Untouched(offset, torn),
             "store, second page read-only", o);
      Remap(0, kFull);
      o = Run(m.load, user, va);
      report(o.Is(kPageFault, who) && o.cr2 == va, "load, first page absent", o);
      o = Run(m.store, user, va);
      report(o.Is(kPageFault, who | kPfWrite) && o.cr2 == va && Untouched(offset, torn),
             "store, first page absent", o);
      Remap(kPteP | kPteU, kFull);
      o = Run(m.store, user, va);
      report(
          o.Is(kPageFault, who | kPfWrite | kPfPresent) && o.cr2 == va && Untouched(offset, torn),
          "store, first page read-only", o);
      if (user) {
        Remap(kFull, kPteP | kPteW);
        o = Run(m.load, user, va);
        report(o.Is(kPageFault, kPfUser | kPfPresent) && o.cr2 == kBorder,
               "load, second page supervisor", o);
      }
    }
  }
}

void TestReadModifyWrite() {
  constexpr u64 kFull = kPteP | kPteW | kPteU;
  const void* const kinds[] = {
      KERNEL_CODE("add dword ptr [rdi], 0x01010101"),
      KERNEL_CODE("lock add dword ptr [rdi], 0x01010101"),
      KERNEL_CODE("mov eax, 0x01010101; xadd [rdi], eax"),
  };
  Group group("read-modify-write across pages");
  for (const void* code : kinds) {
    for (u64 before = 1; before < 4; before++) {
      const u64 offset = kPageSize - before;
      Remap(kFull, kFull);
      Fill();
      u32 want = 0;
      for (u64 i = 0; i < 4; i++) want |= u32{Pattern(offset + i)} << (8 * i);
      want += 0x01010101;
      Outcome o = RunKernel(code, {.rdi = kBase + offset});
      u32 got = 0;
      for (u64 i = 0; i < 4; i++) got |= u32{*Physical(offset + i)} << (8 * i);
      if (!group.Case(o.Done() && got == want && Untouched(offset, 4))) {
        Print("  %lu bytes before the border: got %x expected %x\n", before, got, want);
      }
      Fill();
      Remap(kFull, kPteP);
      o = RunKernel(code, {.rdi = kBase + offset});
      if (!group.Case(o.Is(kPageFault, kPfWrite | kPfPresent) && o.cr2 == kBorder &&
                      Untouched(0, 0))) {
        Print("  second page read-only: %s %lx cr2 %lx\n", VectorName(o.frame.vector),
              o.frame.error, o.cr2);
      }
    }
  }
}

void TestStack() {
  constexpr u64 kFull = kPteP | kPteW | kPteU;
  SetIst(kPageFault, 4);
  Group group("stack accesses across pages");
  for (u64 before = 1; before < 8; before++) {
    const u64 offset = kPageSize - before;
    const u64 va = kBase + offset;
    Remap(kFull, kFull);
    Fill();
    Outcome o = RunKernel(KERNEL_CODE("push rax"), {.rax = 0x8877665544332211, .rsp = va + 8});
    u64 got = 0;
    for (u64 i = 0; i < 8; i++) got |= u64{*Physical(offset + i)} << (8 * i);
    group.Case(o.Done() && got == 0x8877665544332211 && o.frame.rsp == va && Untouched(offset, 8));
    o = RunKernel(KERNEL_CODE("pop rbx"), {.rsp = va});
    group.Case(o.Done() && o.frame.rbx == 0x8877665544332211 && o.frame.rsp == va + 8);
    const void* call = KERNEL_CODE("call 2f; 2: nop");
    o = RunKernel(call, {.rsp = va + 8});
    got = 0;
    for (u64 i = 0; i < 8; i++) got |= u64{*Physical(offset + i)} << (8 * i);
    group.Case(o.Done() && got == reinterpret_cast<u64>(call) + 5);
    o = RunKernel(KERNEL_CODE("call 2f; jmp 3f; 2: ret; 3: nop"), {.rsp = va + 8});
    group.Case(o.Done() && o.frame.rsp == va + 8);
    Fill();
    Remap(kFull, 0);
    o = RunKernel(KERNEL_CODE("push rax"), {.rsp = va + 8});
    group.Case(o.Is(kPageFault, kPfWrite) && o.cr2 == kBorder && o.frame.rsp == va + 8 &&
               Untouched(0, 0));
    o = RunKernel(KERNEL_CODE("pop rbx"), {.rbx = 3, .rsp = va});
    group.Case(o.Is(kPageFault, 0) && o.cr2 == kBorder && o.frame.rsp == va && o.frame.rbx == 3);
    Remap(0, kFull);
    o = RunKernel(KERNEL_CODE("call 2f; 2: nop"), {.rsp = va + 8});
    group.Case(o.Is(kPageFault, kPfWrite) && o.cr2 == va && o.frame.rsp == va + 8 &&
               Untouched(0, 0));
  }
  SetIst(kPageFault, 0);
}

// An instruction whose bytes lie on both pages, at every split.
void TestFetch() {
  constexpr u64 kFull = kPteP | kPteW | kPteU;
  constexpr u8 kCode[] = {0x48, 0xb8, 0x88, 0x77, 0x66,
                          0x55, 0x44, 0x33, 0x22, 0x11,  // mov rax, imm64
                          0x48, 0xff, 0xc0,              // inc rax
                          0xcd, 0x7f};                   // int 0x7f
  Group group("instruction fetch across pages");
  for (const bool user : {false, true}) {
    const u64 who = user ? kPfUser : 0;
    for (u64 before = 1; before < sizeof(kCode); before++) {
      Remap(kFull, kFull);
      Fill();
      const u64 offset = kPageSize - before;
      for (u64 i = 0; i < sizeof(kCode); i++) *Physical(offset + i) = kCode[i];
      const void* code = reinterpret_cast<const void*>(kBase + offset);
      Outcome o = user ? RunUser(code) : RunKernel(code);
      if (!group.Case(o.Done() && o.frame.rax == 0x1122334455667789 &&
                      o.frame.rip == kBase + offset + sizeof(kCode))) {
        Print("  %lu bytes before the border: rax %lx\n", before, o.frame.rax);
      }
      Remap(kFull, 0);
      o = user ? RunUser(code) : RunKernel(code);
      // The fault's rip is the instruction that straddles, or begins at, the border.
      const u64 start = before < 10    ? 0
                        : before == 10 ? 10
                        : before < 13  ? 10
                        : before == 13 ? 13
                                       : 13;
      if (!group.Case(o.Is(kPageFault, who | (HasNx() ? kPfFetch : 0)) && o.cr2 == kBorder &&
                      o.frame.rip == kBase + offset + start)) {
        Print("  second page absent, %lu before: %s %lx cr2 %lx rip +%lx\n", before,
              VectorName(o.frame.vector), o.frame.error, o.cr2, o.frame.rip - kBase - offset);
      }
      if (HasNx()) {
        Remap(kFull, kFull | kPteNx);
        o = user ? RunUser(code) : RunKernel(code);
        group.Case(o.Is(kPageFault, who | kPfFetch | kPfPresent) && o.cr2 == kBorder);
      }
      // Another second page under the same first one: the translation must not be reused.
      Remap(kFull, kFull);
      const u64 old = pages.second;
      const u64 other = pages.between;
      memcpy(reinterpret_cast<void*>(other), reinterpret_cast<void*>(old), 64);
      if (before < 10) reinterpret_cast<u8*>(other)[9 - before] = 0x77;  // top byte of imm64
      *Entry(kBorder) = other | kFull;
      Invlpg(kBorder);
      o = user ? RunUser(code) : RunKernel(code);
      const u64 want = before < 10 ? 0x7722334455667789 : 0x1122334455667789;
      if (!group.Case(o.Done() && o.frame.rax == want)) {
        Print("  other second page, %lu before: rax %lx\n", before, o.frame.rax);
      }
    }
  }
}

}  // namespace

void TestCrossing() {
  pages.first = AllocPage();
  pages.between = AllocPage();
  pages.second = AllocPage();
  const Mover movers[] = {
      {"2 bytes across pages", 2, BOTH("mov ax, [rdi]; mov [rsi], ax"),
       BOTH("mov ax, [rsi]; mov [rdi], ax"), false},
      {"4 bytes across pages", 4, BOTH("mov eax, [rdi]; mov [rsi], eax"),
       BOTH("mov eax, [rsi]; mov [rdi], eax"), false},
      {"8 bytes across pages", 8, BOTH("mov rax, [rdi]; mov [rsi], rax"),
       BOTH("mov rax, [rsi]; mov [rdi], rax"), false},
      {"10 bytes (x87) across pages", 10, BOTH("fld tbyte ptr [rdi]; fstp tbyte ptr [rsi]"),
       BOTH("fninit; fld tbyte ptr [rsi]; fstp tbyte ptr [rdi]"), false},
      {"16 bytes (SSE) across pages", 16, BOTH("movups xmm0, [rdi]; movups [rsi], xmm0"),
       BOTH("movups xmm0, [rsi]; movups [rdi], xmm0"), false},
      {"32 bytes (AVX) across pages", 32, BOTH("vmovdqu ymm0, [rdi]; vmovdqu [rsi], ymm0"),
       BOTH("vmovdqu ymm0, [rsi]; vmovdqu [rdi], ymm0"), true},
  };
  const u64 cr4 = ReadCr4();
  if (HasAvx() && HasXsave()) {
    WriteCr4(cr4 | kCr4Osxsave);
    asm volatile("xsetbv" : : "c"(0), "a"(7), "d"(0));
  }
  for (const Mover& m : movers) {
    if (m.needs_avx && !HasAvx()) {
      Skip(m.name, "CPUID has no AVX");
    } else {
      CheckMover(m);
    }
  }
  WriteCr4(cr4);
  TestReadModifyWrite();
  TestStack();
  TestFetch();
  Remap(0, 0);
}

}  // namespace alibi::frobos
