// SPDX-License-Identifier: Apache-2.0
// Self-modifying code: every way to change code bytes, and every distance between the store and the
// changed instruction, down to none (SDM vol. 3A 8.1.3, 11.6: a store to code through the same
// linear address is seen by the very next instruction; through another one, after a serializing
// one).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

using Function = u64 (*)();

// mov eax, imm32; ret
constexpr u8 kReturnImmediate[] = {0xb8, 0, 0, 0, 0, 0xc3};
constexpr u64 kFunctionSize = 16;

void PutReturn(u64 at, u32 value) {
  u8 code[sizeof(kReturnImmediate)];
  memcpy(code, kReturnImmediate, sizeof(code));
  memcpy(code + 1, &value, 4);
  memcpy(reinterpret_cast<void*>(at), code, sizeof(code));
  asm volatile("" : : : "memory");
}

u64 Call(u64 at) {
  u64 result;
  asm volatile("call *%1"
               : "=a"(result)
               : "r"(at)
               : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
  return result;
}

void Serialize() { Cpuid(0); }

void TestPatchedFunction() {
  const u64 page = AllocPage();
  {
    Group group("a function patched between calls");
    PutReturn(page, 0);
    for (u32 i = 0; i < 2000; i++) {
      reinterpret_cast<volatile u8*>(page)[1] = static_cast<u8>(i);
      reinterpret_cast<volatile u8*>(page)[2] = static_cast<u8>(i >> 8);
      group.Case(Call(page) == (i & 0xffff));
    }
  }
  {
    Group group("a function patched by one 4-byte store");
    for (u32 i = 0; i < 2000; i++) {
      const u32 value = i * 2654435761u;
      asm volatile("movl %0, 1(%1)" : : "r"(value), "r"(page) : "memory");
      group.Case(Call(page) == value);
    }
  }
  {
    Group group("only the changed one of many functions changes");
    constexpr u64 kCount = kPageSize / kFunctionSize;
    u32 want[kCount];
    for (u64 i = 0; i < kCount; i++)
      PutReturn(page + i * kFunctionSize, want[i] = static_cast<u32>(i));
    u32 random = 1;
    for (int round = 0; round < 300; round++) {
      random = random * 1664525 + 1013904223;
      const u64 i = (random >> 8) % kCount;
      want[i] = random;
      asm volatile("movl %0, 1(%1)" : : "r"(random), "r"(page + i * kFunctionSize) : "memory");
      for (u64 k = 0; k < kCount; k += 7) group.Case(Call(page + k * kFunctionSize) == want[k]);
      group.Case(Call(page + i * kFunctionSize) == random);
    }
  }
}

// Code that changes what follows it, run where the linker put it.
void TestOwnBlock() {
  struct Case {
    const char* name;
    const void* code;
    u64 rax;
  };
  const Case cases[] = {
      {"the next instruction's immediate",
       KERNEL_CODE("mov byte ptr [rip + 2f + 1], 0x42; 2: mov al, 0x11; movzx eax, al"), 0x42},
      {"the instruction after next",
       KERNEL_CODE("mov byte ptr [rip + 2f + 1], 0x43; nop; 2: mov al, 0x11; movzx eax, al"), 0x43},
      {"ten instructions ahead",
       KERNEL_CODE(
           "mov byte ptr [rip + 2f + 1], 0x44; nop; nop; nop; nop; nop; nop; nop; nop; nop\n"
           "2: mov al, 0x11; movzx eax, al"),
       0x44},
      {"an opcode: inc becomes dec",
       KERNEL_CODE("mov eax, 5; mov byte ptr [rip + 2f + 1], 0xc8; 2: inc eax"), 4},
      {"a nop becomes a jump",
       KERNEL_CODE("mov eax, 1; mov word ptr [rip + 2f], 0x05eb; 2: .byte 0x90, 0x90\n"
                   "mov eax, 2; 3: nop"),
       1},
      {"a jump becomes nops",
       KERNEL_CODE(
           "mov eax, 1; mov word ptr [rip + 2f], 0x9090; 2: jmp short 3f; mov eax, 2; 3: nop"),
       2},
      {"a conditional jump's target",
       KERNEL_CODE(
           "xor eax, eax; mov byte ptr [rip + 2f + 1], 5; 2: .byte 0x74, 0x00; mov eax, 7; nop"),
       0},
      {"a later instruction across a jump",
       KERNEL_CODE(
           "mov byte ptr [rip + 2f + 1], 0x45; jmp 2f; nop; nop; 2: mov al, 0x11; movzx eax, al"),
       0x45},
      {"a callee",
       KERNEL_CODE("mov dword ptr [rip + 2f + 1], 0x46; call 2f; jmp 3f\n"
                   "2: mov eax, 0x11; ret; 3: nop"),
       0x46},
      {"the caller's return point",
       KERNEL_CODE("call 2f; 4: mov al, 0x11; movzx eax, al; jmp 3f\n"
                   "2: mov byte ptr [rip + 4b + 1], 0x47; ret; 3: nop"),
       0x47},
      {"by push",
       KERNEL_CODE("mov rbx, rsp; movabs rcx, 0x90909000000048b8; lea rsp, [rip + 2f + 8]\n"
                   "push rcx; 2: mov eax, 0x11; nop; nop; nop; mov rsp, rbx"),
       0x48},
      {"by xchg",
       KERNEL_CODE("mov cl, 0x49; xchg [rip + 2f + 1], cl; 2: mov al, 0x11; movzx eax, al"), 0x49},
      {"by lock cmpxchg",
       KERNEL_CODE("mov al, 0x11; mov cl, 0x4a; lock cmpxchg [rip + 2f + 1], cl\n"
                   "2: mov al, 0x11; movzx eax, al"),
       0x4a},
      {"by add to memory",
       KERNEL_CODE("mov byte ptr [rip + 2f + 1], 0x40; add byte ptr [rip + 2f + 1], 0x0b\n"
                   "2: mov al, 0x11; movzx eax, al"),
       0x4b},
      {"by stosb",
       KERNEL_CODE("lea rdi, [rip + 2f + 1]; mov al, 0x4c; stosb\n"
                   "2: mov al, 0x11; movzx eax, al"),
       0x4c},
      {"by rep stosb",
       KERNEL_CODE("lea rdi, [rip + 2f]; mov al, 0x90; mov ecx, 5; rep stosb; mov eax, 0x4d\n"
                   "2: mov eax, 0x11"),
       0x4d},
      {"by rep movsb",
       KERNEL_CODE("lea rsi, [rip + 3f]; lea rdi, [rip + 2f]; mov ecx, 5; rep movsb\n"
                   "2: mov eax, 0x11; jmp 4f; 3: mov eax, 0x4e; 4: nop"),
       0x4e},
      {"by movups",
       KERNEL_CODE(
           "lea rsi, [rip + 3f]; movups xmm0, [rsi]; movups [rip + 2f], xmm0\n"
           "2: mov eax, 0x11; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop\n"
           "jmp 4f; 3: mov eax, 0x4f; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop\n"
           "4: nop"),
       0x4f},
      {"by fistp",
       KERNEL_CODE("mov dword ptr [rsp - 8], 0x50; fninit; fild dword ptr [rsp - 8]\n"
                   "fistp dword ptr [rip + 2f + 1]; 2: mov eax, 0x11"),
       0x50},
      {"by setcc",
       KERNEL_CODE("cmp eax, eax; sete byte ptr [rip + 2f + 1]; 2: mov al, 0x11; movzx eax, al"),
       1},
      {"by bts", KERNEL_CODE("bts dword ptr [rip + 2f + 1], 6; 2: mov eax, 0x11"), 0x51},
  };
  for (const Case& c : cases) {
    const Outcome o = RunKernel(c.code);
    if (o.Done()) {
      CheckEq(c.name, o.frame.rax, c.rax);
    } else {
      CheckDone(c.name, o);
    }
  }
  // A loop that counts in its own immediate.
  Outcome o =
      RunKernel(KERNEL_CODE("mov ecx, 3000; xor ebx, ebx\n"
                            "2: mov eax, 1; add rbx, rax; inc dword ptr [rip + 2b + 1]\n"
                            "dec ecx; jnz 2b"));
  Check(o.Done() && o.frame.rbx == 3000ull * 3001 / 2, "a loop that counts in its own immediate");
  // Its own first bytes, seen only at the next time round.
  o = RunKernel(
      KERNEL_CODE("mov ecx, 2; xor eax, eax\n"
                  "2: mov byte ptr [rip + 2b + 6], 0x22; add al, [rip + 2b + 6]; dec ecx; jnz 2b"));
  CheckEq("a store over its own immediate", o.frame.rax & 0xff, 0x44);
  // In CPL 3.
  o = RunUser(USER_CODE("mov byte ptr [rip + 2f + 1], 0x42; 2: mov al, 0x11; movzx eax, al"));
  Check(o.Done() && o.frame.rax == 0x42, "the next instruction, in CPL 3");
  o =
      RunUser(USER_CODE("mov ecx, 500; xor ebx, ebx\n"
                        "2: mov eax, 1; add rbx, rax; inc dword ptr [rip + 2b + 1]\n"
                        "dec ecx; jnz 2b"));
  Check(o.Done() && o.frame.rbx == 500ull * 501 / 2,
        "a loop that counts in its own immediate, in CPL 3");
}

void TestSharedPage() {
  // Data beside running code: the page is written all the time, the code stays the same.
  const Outcome o =
      RunKernel(KERNEL_CODE("mov ecx, 20000\n"
                            "2: inc qword ptr [rip + 3f]; add rax, [rip + 3f]; dec ecx; jnz 2b\n"
                            "mov rbx, [rip + 3f]; jmp 4f; .balign 8; 3: .quad 0; 4: nop"));
  Check(o.Done() && o.frame.rbx == 20000 && o.frame.rax == 20000ull * 20001 / 2,
        "a counter in the same page as its loop");
  // A stack in the same page as the code.
  const u64 page = AllocPage();
  const u8 code[] = {0xb8, 0,    0,    0, 0,  // mov eax, 0
                     0xb9, 0x10, 0x27, 0, 0,  // mov ecx, 10000
                     0x50,                    // push rax
                     0xff, 0xc0,              // inc eax
                     0x5a,                    // pop rdx
                     0xff, 0xc9,              // dec ecx
                     0x75, 0xf8,              // jnz -8
                     0xcd, 0x7f};
  memcpy(reinterpret_cast<void*>(page), code, sizeof(code));
  const Outcome stack = RunKernel(reinterpret_cast<const void*>(page), {.rsp = page + 2048});
  Check(stack.Done() && stack.frame.rax == 10000 && stack.frame.rdx == 9999,
        "a stack in the same page as its code");
}

void TestAlias() {
  const u64 page = AllocPage();
  const u64 va1 = kHighBase + 0x80000000, va2 = va1 + (2u << 20);
  Map(va1, page, 0);
  Map(va2, page, kPteW | kPteNx * HasNx());
  {
    Group group("code written through another mapping");
    for (u32 i = 0; i < 500; i++) {
      PutReturn(va2, i);
      Serialize();
      group.Case(Call(va1) == i);
      group.Case(Call(page) == i);
    }
  }
  {
    Group group("code run and written through three mappings in turn");
    for (u32 i = 0; i < 300; i++) {
      PutReturn(page + 64, i);
      Serialize();
      group.Case(Call(va1 + 64) == i);
      PutReturn(va2 + 64, i + 1000);
      Serialize();
      group.Case(Call(page + 64) == i + 1000);
      group.Case(Call(va1 + 64) == i + 1000);
    }
  }
  {
    // As Linux patches itself: a breakpoint first, then the rest, then the first byte.
    Group group("breakpoint patching through an alias");
    PutReturn(va2 + 128, 1);
    Serialize();
    Call(va1 + 128);
    static u64 hits;
    hits = 0;
    SetHandler(kBreakpoint, [](TrapFrame* frame) {
      hits++;
      frame->rip += 4;  // past the mov
      frame->rax = 0xbbbb;
    });
    for (u32 i = 0; i < 100; i++) {
      *reinterpret_cast<volatile u8*>(va2 + 128) = 0xcc;
      Serialize();
      group.Case(Call(va1 + 128) == 0xbbbb && hits == i + 1);
      asm volatile("movl %0, 1(%1)" : : "r"(i), "r"(va2 + 128) : "memory");
      Serialize();
      *reinterpret_cast<volatile u8*>(va2 + 128) = 0xb8;
      Serialize();
      group.Case(Call(va1 + 128) == i);
    }
    SetHandler(kBreakpoint, nullptr);
  }
  Unmap(va1);
  Unmap(va2);
}

void TestRemapped() {
  const u64 a = AllocPage(), b = AllocPage();
  const u64 va = kHighBase + 0x80000000;
  PutReturn(a, 0xaaaa);
  PutReturn(b, 0xbbbb);
  Group group("code pages exchanged under one address");
  for (int i = 0; i < 200; i++) {
    Map(va, i % 2 == 0 ? a : b, 0);
    group.Case(Call(va) == (i % 2 == 0 ? 0xaaaa : 0xbbbb));
    if (i % 10 == 9) {
      PutReturn(a, 0xaaaa);  // the same bytes again
      group.Case(Call(a) == 0xaaaa);
    }
  }
  Unmap(va);
  group.Case(Catch([=] { Call(va); }).Is(kPageFault));
}

void TestPageBorder() {
  const u64 first = AllocPage(), gap = AllocPage(), second = AllocPage();
  PutReturn(gap, 0xdead);
  const u64 va = kHighBase + 0x80000000;
  Map(va, first, kPteW);
  Map(va + kPageSize, second, kPteW);
  Group group("code over a page border, either page patched");
  for (u64 before = 1; before < sizeof(kReturnImmediate); before++) {
    const u64 at = va + kPageSize - before;
    for (u32 i = 0; i < 60; i++) {
      PutReturn(at, i * 0x01010101);
      group.Case(Call(at) == i * 0x01010101);
      // Each byte of the immediate alone.
      u32 want = i * 0x01010101;
      for (u64 k = 0; k < 4; k++) {
        reinterpret_cast<volatile u8*>(at)[1 + k] = static_cast<u8>(0x80 + i + k);
        want = (want & ~(0xffu << (8 * k))) | u32{static_cast<u8>(0x80 + i + k)} << (8 * k);
        group.Case(Call(at) == want);
      }
      // All four by one store over the border, and through the physical pages.
      asm volatile("movl %0, 1(%1)" : : "r"(i), "r"(at) : "memory");
      group.Case(Call(at) == i);
      const u64 physical = before > 1 ? first + kPageSize - before + 1 : second;
      *reinterpret_cast<volatile u8*>(physical) = 0x77;
      Serialize();
      group.Case((Call(at) & 0xff) == 0x77);
    }
  }
  Unmap(va);
  Unmap(va + kPageSize);
}

void TestStraddlingStore() {
  // One store over a data page and a code page: both halves must arrive, and the code must change.
  const u64 pages = AllocRange(2 * kPageSize, kPageSize);
  const u64 border = pages + kPageSize;
  Group group("a store over data and code");
  for (u64 before = 1; before < 8; before++) {
    PutReturn(border, 1);
    PutReturn(border + 8, 2);
    group.Case(Call(border) == 1);
    // The upper bytes of the 8-byte store are the start of a new function.
    u8 bytes[8] = {};
    u8 code[sizeof(kReturnImmediate)];
    memcpy(code, kReturnImmediate, sizeof(code));
    code[1] = 0x33;
    for (u64 i = 0; i < 8; i++) {
      bytes[i] = i < before                  ? static_cast<u8>(0xd0 + i)
                 : i - before < sizeof(code) ? code[i - before]
                                             : 0x90;
    }
    u64 word;
    memcpy(&word, bytes, 8);
    asm volatile("mov %0, (%1)" : : "r"(word), "r"(border - before) : "memory");
    const u64 want = before == 7 ? 1 : 0x33;
    bool data = true;
    for (u64 i = 0; i < before; i++) data &= reinterpret_cast<u8*>(border)[i - before] == 0xd0 + i;
    group.Case(data && Call(border) == want);
    group.Case(Call(border + 8) == 2);
  }
}

void TestGenerator() {
  // A code generator: pages of fresh code again and again, with calls between the pages.
  constexpr u64 kPages = 4, kPerPage = kPageSize / 32;
  const u64 pages = AllocRange(kPages * kPageSize, kPageSize);
  Group group("pages of generated code");
  for (u32 round = 0; round < 12; round++) {
    for (u64 i = 0; i < kPages * kPerPage; i++) {
      // add eax, imm32; dec ecx; jz end; jmp next; end: ret
      u8* p = reinterpret_cast<u8*>(pages + i * 32);
      const u64 next = (i * 5 + round * 2 + 1) % (kPages * kPerPage);
      const u32 value = static_cast<u32>(i + round);
      const u32 offset = static_cast<u32>(pages + next * 32 - reinterpret_cast<u64>(p + 14));
      p[0] = 0x05;
      memcpy(p + 1, &value, 4);
      p[5] = 0xff, p[6] = 0xc9;
      p[7] = 0x74, p[8] = 0x05;
      p[9] = 0xe9;
      memcpy(p + 10, &offset, 4);
      p[14] = 0xc3;
    }
    for (u64 start = 0; start < kPages * kPerPage; start += 37) {
      u32 want = 0;
      u64 at = start;
      for (int step = 0; step < 50; step++) {
        want += static_cast<u32>(at + round);
        at = (at * 5 + round * 2 + 1) % (kPages * kPerPage);
      }
      u64 result = 0, count = 50;
      asm volatile("call *%2"
                   : "+a"(result), "+c"(count)
                   : "r"(pages + start * 32)
                   : "memory", "cc");
      group.Case(static_cast<u32>(result) == want);
    }
  }
}

void TestCallerPatchesCallee() {
  // The caller runs on while the callee it is chained to changes under it.
  const Outcome o = RunKernel(KERNEL_CODE(
      "mov ebx, 400; xor esi, esi\n"
      "2: call 3f; add rsi, rax; mov [rip + 3f + 1], ebx; call 3f; cmp eax, ebx; jne 9f\n"
      "mov dword ptr [rip + 3f + 1], 1; dec ebx; jnz 2b; jmp 9f\n"
      ".balign 16; 3: mov eax, 1; ret\n"
      "9: nop"));
  Check(o.Done() && o.frame.rbx == 0 && o.frame.rsi == 400, "a callee patched between two calls");
  const Outcome jump = RunKernel(
      KERNEL_CODE("mov ebx, 100; xor esi, esi; xor edi, edi\n"
                  "2: jmp 3f; 3: inc esi; jmp 5f; 4: inc edi; 5: xor dword ptr [rip + 2b + 1], 0\n"
                  "xor byte ptr [rip + 2b + 1], 4; dec ebx; jnz 2b"));
  Check(jump.Done() && jump.frame.rsi + jump.frame.rdi == 100 && jump.frame.rdi == 50,
        "a jump retargeted each time round");
}

// Stores that are not MOV: each writes `mov eax, value; ret` from what it finds at rsi to rdi,
// which is called before and after.
void TestWriters() {
  struct Case {
    const char* name;
    const void* code;
    bool wanted = true;
  };
  const bool cx16 = HasCx16(), movbe = Features().ecx >> 22 & 1;
  const Case cases[] = {
      {"by movnti", KERNEL_CODE("mov rax, [rsi]; movnti [rdi], rax")},
      {"by movq", KERNEL_CODE("movq xmm0, [rsi]; movq [rdi], xmm0")},
      {"by movhps", KERNEL_CODE("movhps xmm0, [rsi]; movhps [rdi], xmm0")},
      {"by movntq", KERNEL_CODE("movq mm0, [rsi]; movntq [rdi], mm0; emms")},
      {"by maskmovdqu",
       KERNEL_CODE("movq xmm0, [rsi]; pcmpeqb xmm1, xmm1; psrldq xmm1, 8; maskmovdqu xmm0, xmm1")},
      {"by fxsave", KERNEL_CODE("movups xmm0, [rsi]; fxsave [rdi - 160]; emms")},
      {"by fnsave", KERNEL_CODE("fninit; fld tbyte ptr [rsi]; fnsave [rdi - 28]; fninit")},
      {"by fstp", KERNEL_CODE("fninit; fld tbyte ptr [rsi]; fstp tbyte ptr [rdi]")},
      {"by cmpxchg8b",
       KERNEL_CODE("mov ebx, [rsi]; mov ecx, [rsi + 4]; mov eax, [rdi]; mov edx, [rdi + 4]\n"
                   "lock cmpxchg8b [rdi]")},
      {"by cmpxchg16b",
       KERNEL_CODE("mov rbx, [rsi]; mov rcx, [rsi + 8]; mov rax, [rdi]; mov rdx, [rdi + 8]\n"
                   "lock cmpxchg16b [rdi]"),
       cx16},
      {"by xadd", KERNEL_CODE("mov rax, [rsi]; sub rax, [rdi]; lock xadd [rdi], rax")},
      {"by movbe", KERNEL_CODE("mov rax, [rsi]; bswap rax; movbe [rdi], rax"), movbe},
      {"by enter", KERNEL_CODE("mov rbx, rsp; mov rbp, [rsi]; lea rsp, [rdi + 8]; enter 0, 0\n"
                               "mov rsp, rbx")},
      {"by popping to memory", KERNEL_CODE("push [rsi]; pop [rdi]")},
      {"by movsq, downwards", KERNEL_CODE("std; movsq; cld")},
      {"by rep movsq", KERNEL_CODE("mov ecx, 1; rep movsq")},
      {"by rep movsb, downwards",
       KERNEL_CODE("mov ecx, 8; add rsi, 7; add rdi, 7; std; rep movsb; cld")},
  };
  const u64 page = AllocPage();
  const u64 at = page + 1024;
  alignas(16) u8 bytes[16];
  for (const Case& c : cases) {
    if (!c.wanted) continue;
    Group group(c.name);
    for (u32 i = 0; i < 40; i++) {
      PutReturn(at, i + 0x1000);
      const bool before = Call(at) == i + 0x1000;
      memset(bytes, 0x90, sizeof(bytes));
      bytes[9] = 0x3f;  // as an 80-bit number: a good exponent
      PutReturn(reinterpret_cast<u64>(bytes), i * 0x01000193);
      const Outcome o = RunKernel(c.code, {.rsi = reinterpret_cast<u64>(bytes), .rdi = at});
      group.Case(o.Done() && before && Call(at) == i * 0x01000193);
    }
  }
}

// What the processor itself writes: accessed and dirty flags into a page table that is code, too.
void TestPageTableAsCode() {
  // This PTE is `add eax, edx; ret`; with its accessed flag `and eax, edx; ret`; with the dirty
  // flag, too, `movsxd eax, edx; ret`.
  constexpr u64 kEntry = 0xc3c203, kFrame = 0xc3c000;
  if (MemoryEnd() < kFrame + kPageSize) return Skip("a page table as code", "too little RAM");
  const u64 va = kHighBase + 0x90000000;
  u64* const pte = Entry(va);
  *pte = kEntry;
  Invlpg(va);
  const auto call = [pte] {
    Serialize();
    u64 result = 5;
    asm volatile("call *%1" : "+a"(result) : "r"(pte), "d"(3) : "memory", "cc");
    return result;
  };
  Group group("a page table as code: accessed and dirty flags");
  for (int i = 0; i < 50; i++) {
    *reinterpret_cast<volatile u64*>(pte) = kEntry;
    Invlpg(va);
    const bool clean = call() == 8;
    const u64 value = *reinterpret_cast<volatile u64*>(va);
    const bool accessed = call() == 1;
    *reinterpret_cast<volatile u64*>(va) = value;
    group.Case(clean && accessed && call() == 3);
  }
  *pte = 0;
  Invlpg(va);
}

// A page that runs at one address and is written at another, in the middle of what runs.
void TestAliasAhead() {
  // mov [rdi], ebx; xor eax, eax; cpuid; mov eax, imm32; int 0x7f
  constexpr u8 kCode[] = {0x89, 0x1f, 0x31, 0xc0, 0x0f, 0xa2, 0xb8, 0, 0, 0, 0, 0xcd, 0x7f};
  const u64 frame = AllocRange(2u << 20, 2u << 20);
  const u64 va1 = kHighBase + 0xa0000000, va2 = va1 + (4u << 20);
  Map(va1, frame, kPteW | kPteU, 2);  // a large page
  Map(va2, frame, kPteW | kPteU);
  memcpy(reinterpret_cast<void*>(frame + 256), kCode, sizeof(kCode));
  struct Case {
    const char* name;
    u64 runs, written;
    bool user;
  };
  const Case cases[] = {{"written ahead through a small page", va1, va2, false},
                        {"written ahead through a large page", va2, va1, false},
                        {"written ahead by the identity map", va1, frame, false},
                        {"written ahead, CPL 3", va1, va2, true}};
  for (const Case& c : cases) {
    Group group(c.name);
    for (u32 i = 1; i < 200; i++) {
      const Regs regs = {.rbx = i * 0x10001, .rdi = c.written + 256 + 7};
      const void* const code = reinterpret_cast<const void*>(c.runs + 256);
      const Outcome o = c.user ? RunUser(code, regs) : RunKernel(code, regs);
      group.Case(o.Done() && o.frame.rax == i * 0x10001);
    }
  }
  {
    // The kernel writes at its own address, the user runs at another one, and the other way round.
    Group group("kernel and user patch each other's code");
    const void* const code = reinterpret_cast<const void*>(va2 + 512);
    constexpr u8 kStore[] = {0xb8, 0, 0, 0, 0, 0x89, 0x1f, 0xcd, 0x7f};
    memcpy(reinterpret_cast<void*>(frame + 512), kStore, sizeof(kStore));
    PutReturn(frame + 1024, 0);
    for (u32 i = 1; i < 200; i++) {
      asm volatile("movl %0, 1(%1)" : : "r"(i), "r"(frame + 512) : "memory");
      Serialize();
      const Outcome o = RunUser(code, {.rbx = i + 7, .rdi = va1 + 1024 + 1});
      Serialize();
      group.Case(o.Done() && o.frame.rax == i && Call(frame + 1024) == i + 7);
    }
  }
  {
    // The same bytes are other instructions in 64-bit and 32-bit code: `rex nop`, `inc eax; nop`.
    Group group("the same bytes in 64-bit and in compatibility mode");
    constexpr u8 kBoth[] = {0x40, 0x90, 0xcd, 0x7f};
    if (Entry(0x78000000) != nullptr) {
      Map(0x78000000, frame, kPteW | kPteU);
      memcpy(reinterpret_cast<void*>(frame + 2048), kBoth, sizeof(kBoth));
      for (u64 i = 0; i < 100; i++) {
        TrapFrame f = {};
        f.rax = i;
        f.rip = 0x78000000 + 2048;
        f.rsp = 0x78000000 + 4000;
        f.rflags = kFlagsFixed;
        f.ss = kUserData;
        f.cs = kUserCode32;
        const Outcome compat = RunFrame(f);
        f.cs = kUserCode;
        const Outcome wide = RunFrame(f);
        group.Case(compat.Done() && compat.frame.rax == i + 1 && wide.Done() &&
                   wide.frame.rax == i);
      }
      Unmap(0x78000000);
    }
  }
  Unmap(va1, 2);
  Unmap(va2);
}

constexpr Section kSections[] = {
    {"function", TestPatchedFunction},   {"own", TestOwnBlock},
    {"shared", TestSharedPage},          {"alias", TestAlias},
    {"remapped", TestRemapped},          {"border", TestPageBorder},
    {"straddling", TestStraddlingStore}, {"generator", TestGenerator},
    {"callee", TestCallerPatchesCallee}, {"writers", TestWriters},
    {"tables", TestPageTableAsCode},     {"ahead", TestAliasAhead},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
