// SPDX-License-Identifier: Apache-2.0
// Instructions with unusual memory behaviour, in CPL 3: strings over pages and faulting halfway,
// ENTER/LEAVE, bit offsets from registers, pushes and pops of memory, locked and wide
// compare-exchange, addressing forms, and accesses that must (or must not) happen when a condition
// is false.

#include <initializer_list>

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

// Four shuffled user pages with an absent one after each pair: A B - C D -.
constexpr u64 kA = kUserBase + 0x10000000;
constexpr u64 kB = kA + kPageSize;
constexpr u64 kHole = kB + kPageSize;
constexpr u64 kC = kHole + kPageSize;
constexpr u64 kEnd = kC + 2 * kPageSize;
constexpr u64 kCarry = kA + 0xf000;  // the last page of 64 KB

u8* At(u64 va) { return reinterpret_cast<u8*>(va); }

void Prepare() {
  MapShuffled(kA, 2, kPteW | kPteU);
  MapShuffled(kC, 2, kPteW | kPteU);
  MapShuffled(kCarry, 1, kPteW | kPteU);
}

void Fill() {
  for (u64 i = 0; i < 2 * kPageSize; i++) {
    At(kA)[i] = static_cast<u8>(i * 13 + (i >> 8) + 1);
    At(kC)[i] = 0;
  }
}

u64 Word(u64 va) {
  u64 v;
  memcpy(&v, At(va), 8);
  return v;
}
void SetWord(u64 va, u64 v) { memcpy(At(va), &v, 8); }

bool Same(u64 x, u64 y, u64 n) { return memcmp(At(x), At(y), n) == 0; }

void TestStrings() {
  Fill();
  Outcome o = RunUser(USER_CODE("rep movsb"), {.rcx = 2 * kPageSize, .rsi = kA, .rdi = kC});
  Check(o.Done() && Same(kA, kC, 2 * kPageSize), "rep movsb of two pages");
  CheckEq("... rcx", o.frame.rcx, 0);
  CheckEq("... rsi", o.frame.rsi, kHole);
  CheckEq("... rdi", o.frame.rdi, kEnd);
  Fill();
  o = RunUser(USER_CODE("rep movsq"), {.rcx = 1000, .rsi = kA + 5, .rdi = kC + 3});
  Check(o.Done() && Same(kA + 5, kC + 3, 8000), "rep movsq over unaligned page borders");
  Fill();
  o = RunUser(USER_CODE("std; rep movsw; cld"), {.rcx = 3000, .rsi = kA + 7998, .rdi = kC + 7001});
  Check(o.Done() && Same(kA + 2000, kC + 1003, 6000), "rep movsw backwards");
  CheckEq("... rdi", o.frame.rdi, kC + 1001);
  Fill();
  o = RunUser(USER_CODE("rep movsb"), {.rcx = 500, .rsi = kA, .rdi = kA + 1});
  bool smeared = o.Done();
  for (u64 i = 0; i <= 500; i++) smeared &= At(kA)[i] == 1;
  Check(smeared, "overlapping rep movsb smears");
  o = RunUser(USER_CODE("rep stosd"), {.rax = 0xdeadbeef, .rcx = 1500, .rdi = kC + 1001});
  Check(o.Done() && Word(kC + 4095) == 0xbeefdeadbeefdead, "rep stosd over a page border");
  o = RunUser(USER_CODE("rep stosb; rep movsb; repe cmpsb; repne scasb"),
              {.rcx = 0, .rsi = 8, .rdi = 8, .rflags = kFlagsFixed | kFlagZf | kFlagCf});
  CheckDone("rep with rcx = 0 touches nothing", o);
  CheckEq("... and no flags", o.frame.rflags & kFlagsArithmetic, kFlagZf | kFlagCf);
  Fill();
  o = RunUser(USER_CODE("rep movsb; repe cmpsb"), {.rcx = 0});
  memcpy(At(kC), At(kA), kPageSize * 2);
  At(kC)[5000] ^= 1;
  o = RunUser(USER_CODE("repe cmpsb"), {.rcx = 8000, .rsi = kA, .rdi = kC});
  CheckEq("repe cmpsb stops behind the difference", o.frame.rsi, kA + 5001);
  CheckEq("... rcx", o.frame.rcx, 8000 - 5001);
  CheckEq("... ZF", o.frame.rflags & kFlagZf, 0);
  memset(At(kA), 7, 2 * kPageSize);
  At(kA)[6001] = 9;
  o = RunUser(USER_CODE("repne scasb"), {.rax = 9, .rcx = ~0ull, .rdi = kA});
  CheckEq("repne scasb finds the byte", o.frame.rdi, kA + 6002);
  CheckEq("... ZF", o.frame.rflags & kFlagZf, kFlagZf);
  CheckEq("... rcx", o.frame.rcx, ~0ull - 6002);
  o = RunUser(USER_CODE("lodsb; mov bl, al; lodsw; mov ecx, eax; lodsq"),
              {.rax = 0, .rsi = kA + 6001});
  Check(o.Done() && (o.frame.rbx & 0xff) == 9 && (o.frame.rcx & 0xffff) == 0x0707 &&
            o.frame.rsi == kA + 6012,
        "lods of all sizes");
  o = RunUser(USER_CODE(".byte 0xf3, 0x67, 0xaa"),  // rep stosb with 32-bit addresses: a bad one
              {.rcx = 0x1'0000'0001, .rdi = 0x7'0000'0000 + 16});
  CheckFault("rep stosb with 32-bit addresses uses edi", o, kPageFault,
             kPfUser | kPfWrite | kPfPresent);
  CheckEq("... cr2", o.cr2, 16);
}

void TestStringFaults() {
  Fill();
  const void* movsb = USER_CODE("rep movsb");
  Outcome o = RunUser(movsb, {.rcx = 3 * kPageSize, .rsi = kA, .rdi = kC});
  CheckFault("rep movsb runs into an absent source", o, kPageFault, kPfUser,
             reinterpret_cast<u64>(movsb));
  CheckEq("... cr2", o.cr2, kHole);
  CheckEq("... rcx", o.frame.rcx, kPageSize);
  CheckEq("... rsi", o.frame.rsi, kHole);
  CheckEq("... rdi", o.frame.rdi, kEnd);
  Check(Same(kA, kC, 2 * kPageSize), "... what came before is done");
  Fill();
  o = RunUser(movsb, {.rcx = kPageSize, .rsi = kA, .rdi = kEnd - 100});
  CheckFault("rep movsb runs into an absent target", o, kPageFault, kPfUser | kPfWrite);
  CheckEq("... cr2", o.cr2, kEnd);
  CheckEq("... rcx", o.frame.rcx, kPageSize - 100);
  CheckEq("... rsi", o.frame.rsi, kA + 100);
  Check(Same(kA, kEnd - 100, 100), "... what came before is done");
  // The border in the middle of an element: that element is not begun.
  Fill();
  o = RunUser(USER_CODE("rep movsq"), {.rcx = 100, .rsi = kA, .rdi = kEnd - 20});
  CheckFault("rep movsq, an element over the border", o, kPageFault, kPfUser | kPfWrite);
  CheckEq("... cr2", o.cr2, kEnd);
  CheckEq("... rcx", o.frame.rcx, 98);
  CheckEq("... rdi", o.frame.rdi, kEnd - 4);
  CheckEq("... nothing half written", *reinterpret_cast<u32*>(kEnd - 4), 0);
  o = RunUser(USER_CODE("std; rep stosb"),
              {.rax = 5, .rcx = 5000, .rdi = kC + 99, .rflags = kFlagsFixed});
  CheckFault("backwards into an absent page", o, kPageFault, kPfUser | kPfWrite);
  CheckEq("... cr2", o.cr2, kC - 1);
  CheckEq("... rcx", o.frame.rcx, 4900);
  CheckEq("... DF in the frame", o.frame.rflags & kFlagDf, kFlagDf);
  memset(At(kA), 7, 2 * kPageSize);
  o = RunUser(USER_CODE("repne scasb"), {.rax = 9, .rcx = 100000, .rdi = kA + 10});
  CheckFault("repne scasb runs into an absent page", o, kPageFault, kPfUser);
  CheckEq("... rdi", o.frame.rdi, kHole);
  memcpy(At(kC), At(kA), 2 * kPageSize);
  o = RunUser(USER_CODE("repe cmpsb"), {.rcx = 100000, .rsi = kA, .rdi = kC + 50});
  CheckFault("repe cmpsb runs into an absent page", o, kPageFault, kPfUser);
  CheckEq("... rdi", o.frame.rdi, kEnd);
  CheckEq("... rsi", o.frame.rsi, kA + 2 * kPageSize - 50);
  // Demand paging under a string instruction: it must go on where it stopped.
  static u64 faults;
  static u64 frame;
  frame = AllocPage();
  faults = 0;
  Fill();
  SetHandler(kPageFault, [](TrapFrame*) {
    faults++;
    Map(kHole, frame, kPteW | kPteU);
  });
  o = RunUser(movsb, {.rcx = 2 * kPageSize, .rsi = kA + 123, .rdi = kB + 1000});
  SetHandler(kPageFault, nullptr);
  Check(!o.Done() || faults == 1, "rep movsb continues after a handled fault");
  Unmap(kHole);
  Fill();
  faults = 0;
  SetHandler(kPageFault, [](TrapFrame*) {
    faults++;
    Map(kHole, frame, kPteW | kPteU);
  });
  o = RunUser(USER_CODE("rep stosq"), {.rax = 0x1234567812345678, .rcx = 1500, .rdi = kA + 4});
  SetHandler(kPageFault, nullptr);
  bool good = o.Done() && faults == 1 && o.frame.rcx == 0;
  for (u64 i = 0; i < 1500; i++) good &= Word(kA + 4 + i * 8) == 0x1234567812345678;
  Check(good, "rep stosq over a page that comes on demand");
  Unmap(kHole);
}

void TestStackForms() {
  Fill();
  const u64 top = kC + 2 * kPageSize;
  Outcome o = RunUser(USER_CODE("enter 0x20, 0; mov rax, rsp; mov rbx, rbp; leave; mov rcx, rsp"),
                      {.rbp = 0x1111, .rsp = top});
  Check(o.Done() && o.frame.rax == top - 8 - 0x20 && o.frame.rbx == top - 8 && o.frame.rcx == top &&
            o.frame.rbp == 0x1111,
        "enter 0x20, 0 and leave");
  SetWord(kC + 0x100, 0xaaaa);
  SetWord(kC + 0xf8, 0xbbbb);
  o = RunUser(USER_CODE("enter 0x10, 1; mov rax, [rbp - 8]; mov rbx, rsp; mov rcx, rbp"),
              {.rbp = kC + 0x108, .rsp = top});
  Check(o.Done() && o.frame.rax == top - 8 && o.frame.rbx == top - 8 - 8 - 0x10, "enter 0x10, 1");
  o = RunUser(USER_CODE("enter 0x10, 3; mov rax, [rbp - 8]; mov rbx, [rbp - 16]; mov rcx, [rbp - "
                        "24]; mov rdx, rsp"),
              {.rbp = kC + 0x108, .rsp = top});
  Check(o.Done() && o.frame.rax == 0xaaaa && o.frame.rbx == 0xbbbb && o.frame.rcx == top - 8 &&
            o.frame.rdx == top - 8 - 24 - 0x10,
        "enter 0x10, 3 copies two frame pointers");
  SetIst(kPageFault, 4);
  o = RunUser(USER_CODE("enter 0x10, 0"), {.rbp = 0x77, .rsp = kC});
  CheckFault("enter on an absent stack page", o, kPageFault, kPfUser | kPfWrite);
  CheckEq("... rbp unchanged", o.frame.rbp, 0x77);
  CheckEq("... rsp unchanged", o.frame.rsp, kC);

  SetWord(kA, 0x1122334455667788);
  o = RunUser(USER_CODE("push qword ptr [rdi]; pop qword ptr [rdi + 8]; push word ptr [rdi]; pop "
                        "word ptr [rdi + 16]"),
              {.rdi = kA, .rsp = top});
  Check(o.Done() && Word(kA + 8) == 0x1122334455667788 && (Word(kA + 16) & 0xffff) == 0x7788 &&
            o.frame.rsp == top,
        "push and pop of memory");
  o = RunUser(USER_CODE("push rsp; pop rax; mov rbx, rsp; push qword ptr [rsp - 8]; pop rcx"),
              {.rsp = top});
  Check(o.Done() && o.frame.rax == top && o.frame.rcx == top, "push rsp pushes the old value");
  o = RunUser(USER_CODE("push 0x55; push 0x66; pop qword ptr [rsp]; pop rax"), {.rsp = top});
  CheckEq("pop [rsp] addresses with the new rsp", o.frame.rax, 0x66);
  o = RunUser(USER_CODE("push rax; mov rbx, rsp; pop rsp; xchg rbx, rsp"),
              {.rax = 0x4242, .rsp = top});
  CheckEq("pop rsp", o.frame.rbx, 0x4242);
  const u16 low = 0x1234;
  memcpy(At(kCarry + kPageSize - 2), &low, 2);
  o = RunUser(USER_CODE("pop sp"), {.rsp = kCarry + kPageSize - 2});
  CheckEq("pop sp replaces the low half of the new rsp", o.frame.rsp, kCarry + kPageSize + low);
  o = RunUser(USER_CODE("push -1; pop rax; push 0x12345678; pop rbx; .byte 0x66, 0x68, 0xff, 0x7f; "
                        "mov cx, [rsp]"),
              {.rsp = top});
  Check(o.Done() && o.frame.rax == ~0ull && o.frame.rbx == 0x12345678 &&
            (o.frame.rcx & 0xffff) == 0x7fff && o.frame.rsp == top - 2,
        "push of immediates");
  o = RunUser(USER_CODE("pop qword ptr [rdi]"), {.rdi = kHole, .rsp = top - 8});
  CheckFault("pop to an absent page", o, kPageFault, kPfUser | kPfWrite);
  CheckEq("... rsp unchanged", o.frame.rsp, top - 8);
  o = RunUser(USER_CODE("call qword ptr [rdi]"), {.rdi = kHole, .rsp = kC + 64});
  CheckFault("call through an absent pointer", o, kPageFault, kPfUser);
  CheckEq("... rsp unchanged", o.frame.rsp, kC + 64);
  o = RunUser(USER_CODE("push fs; push gs; pop rax; pop rbx; pushfq; popfq"), {.rsp = top});
  Check(o.Done() && o.frame.rax == 0 && o.frame.rbx == 0 && o.frame.rsp == top,
        "push of segment registers");
  o = RunUser(USER_CODE("call 2f; 2: pop rax; lea rbx, [rip + 2b]; lea rcx, [rip + 3f]; push rcx; "
                        "ret 16; ud2; 3: nop"),
              {.rsp = top - 64});
  Check(o.Done() && o.frame.rax == o.frame.rbx && o.frame.rsp == top - 64 + 16,
        "call, pop, ret 16");
  SetIst(kPageFault, 0);
}

void TestBits() {
  Fill();
  memset(At(kA), 0, 2 * kPageSize);
  Outcome o = RunUser(USER_CODE("bts [rdi], rax; setc bl; bts [rdi], rax; setc cl"),
                      {.rax = 8 * 5000 + 3, .rdi = kA});
  Check(o.Done() && At(kA)[5000] == 8 && (o.frame.rbx & 1) == 0 && (o.frame.rcx & 1) == 1,
        "bts with a large offset");
  o = RunUser(USER_CODE("btc dword ptr [rdi], eax"), {.rax = static_cast<u32>(-3), .rdi = kB});
  CheckEq("btc with a negative offset", At(kB)[-1], 0x20);
  o = RunUser(USER_CODE("btr word ptr [rdi], ax; setc bl"), {.rax = 0xffff & -3, .rdi = kB});
  Check(o.Done() && At(kB)[-1] == 0 && (o.frame.rbx & 1) == 1, "btr with a 16-bit negative offset");
  const void* bt = USER_CODE("bt [rdi], rax");
  o = RunUser(bt, {.rax = 8 * 2 * kPageSize, .rdi = kA});
  CheckFault("bt reaches an absent page", o, kPageFault, kPfUser, reinterpret_cast<u64>(bt));
  CheckEq("... cr2", o.cr2, kHole);
  o = RunUser(USER_CODE("bt dword ptr [rdi], 35; setc bl"), {.rdi = kHole - 4});
  CheckDone("bt with an immediate stays in its operand", o);
  o = RunUser(USER_CODE("lock bts [rdi], rax; lock btr [rdi], rax; lock btc [rdi], rax"),
              {.rax = 77, .rdi = kA});
  Check(o.Done() && At(kA)[9] == 0x20, "lock bts, btr, btc");
  o = RunUser(USER_CODE("bts eax, ebx; btr ecx, ebx"), {.rax = 0, .rbx = 33, .rcx = 0xff});
  Check(o.Done() && o.frame.rax == 2 && o.frame.rcx == 0xfd,
        "register bit offsets are modulo the size");
}

void TestCompareExchange() {
  SetWord(kA, 10);
  Outcome o =
      RunUser(USER_CODE("lock cmpxchg [rdi], rbx; setz cl"), {.rax = 10, .rbx = 20, .rdi = kA});
  Check(o.Done() && Word(kA) == 20 && (o.frame.rcx & 1) == 1 && o.frame.rax == 10,
        "cmpxchg, equal");
  o = RunUser(USER_CODE("lock cmpxchg [rdi], rbx; setz cl"), {.rax = 10, .rbx = 30, .rdi = kA});
  Check(o.Done() && Word(kA) == 20 && (o.frame.rcx & 1) == 0 && o.frame.rax == 20,
        "cmpxchg, different");
  o = RunUser(USER_CODE("cmpxchg ebx, ecx"),
              {.rax = 0x1'0000'0005, .rbx = 0xffff'ffff'0000'0005, .rcx = 9});
  Check(o.Done() && o.frame.rbx == 9, "32-bit cmpxchg zero-extends its target");
  SetWord(kA, 0x1111111122222222);
  o = RunUser(USER_CODE("cmpxchg8b [rdi]; setz sil"),
              {.rax = 0x22222222, .rbx = 3, .rcx = 4, .rdx = 0x11111111, .rdi = kA});
  Check(o.Done() && Word(kA) == 0x0000000400000003 && (o.frame.rsi & 1) == 1, "cmpxchg8b, equal");
  o = RunUser(USER_CODE("lock cmpxchg8b [rdi]; setz sil"), {.rax = ~0ull, .rdx = ~0ull, .rdi = kA});
  Check(o.Done() && o.frame.rax == 3 && o.frame.rdx == 4 && (o.frame.rsi & 1) == 0,
        "cmpxchg8b, different");
  if (HasCx16()) {
    SetWord(kA, 1), SetWord(kA + 8, 2);
    o = RunUser(USER_CODE("lock cmpxchg16b [rdi]; setz sil"),
                {.rax = 1, .rbx = 5, .rcx = 6, .rdx = 2, .rdi = kA});
    Check(o.Done() && Word(kA) == 5 && Word(kA + 8) == 6 && (o.frame.rsi & 1) == 1,
          "cmpxchg16b, equal");
    o = RunUser(USER_CODE("cmpxchg16b [rdi]; setz sil"), {.rax = 9, .rdx = 9, .rdi = kA});
    Check(o.Done() && o.frame.rax == 5 && o.frame.rdx == 6 && (o.frame.rsi & 1) == 0,
          "cmpxchg16b, different");
    CheckFault("#GP cmpxchg16b misaligned", RunUser(USER_CODE("cmpxchg16b [rdi]"), {.rdi = kA + 8}),
               kGeneralProtection);
  } else {
    Skip("cmpxchg16b", "CPUID has no CX16");
  }
  SetWord(kA, 100);
  o = RunUser(
      USER_CODE("lock xadd [rdi], rax; lock add qword ptr [rdi], 5; lock dec qword ptr [rdi]; lock "
                "neg qword ptr [rdi]; lock not qword ptr [rdi]; xchg [rdi], rbx"),
      {.rax = 11, .rbx = 7, .rdi = kA});
  Check(o.Done() && o.frame.rax == 100 && o.frame.rbx == 114 && Word(kA) == 7, "locked arithmetic");
  *Entry(kA) &= ~kPteW;
  Invlpg(kA);
  o = RunUser(USER_CODE("lock cmpxchg [rdi], rbx"), {.rax = 1, .rdi = kA});
  CheckFault("a failing cmpxchg still needs a writable page", o, kPageFault,
             kPfUser | kPfPresent | kPfWrite);
  CheckEq("... rax unchanged", o.frame.rax, 1);
  o = RunUser(USER_CODE("xadd [rdi], rax"), {.rax = 1, .rdi = kA});
  // QEMU loads before it checks the store, but must undo that.
  CheckFault("xadd on a read-only page", o, kPageFault, kPfUser | kPfPresent | kPfWrite);
  CheckEq("... rax unchanged", o.frame.rax, 1);
  o = RunUser(USER_CODE("xchg [rdi], rax"), {.rax = 1, .rdi = kA});
  CheckFault("xchg on a read-only page", o, kPageFault, kPfUser | kPfPresent | kPfWrite);
  CheckEq("... rax unchanged", o.frame.rax, 1);
  o = RunUser(USER_CODE("stc; adc qword ptr [rdi], 5"), {.rdi = kA});
  CheckFault("adc on a read-only page", o, kPageFault, kPfUser | kPfPresent | kPfWrite);
  CheckEq("... CF unchanged", o.frame.rflags & kFlagCf, kFlagCf);
  *Entry(kA) |= kPteW;
  Invlpg(kA);
}

void TestAddressing() {
  SetWord(kA, 0x0807060504030201);
  SetWord(kA + 8, 0x100f0e0d0c0b0a09);
  Outcome o = RunUser(USER_CODE("mov rax, [rdi + rcx * 8]; mov rbx, [rdi + rdx - 4]; lea r8, [rdi "
                                "+ rcx * 4 + 0x100]; mov r9, [r13 + 8]; mov r10, [r12]"),
                      {.rcx = 1, .rdx = 4, .rdi = kA, .r12 = kA + 8, .r13 = kA});
  Check(o.Done() && o.frame.rax == Word(kA + 8) && o.frame.rbx == Word(kA) &&
            o.frame.r8 == kA + 0x104 && o.frame.r9 == Word(kA + 8) && o.frame.r10 == Word(kA + 8),
        "base, index, scale, displacement");
  o = RunUser(USER_CODE("mov rax, [r10 + r11]; mov rbx, [r11 + r10 * 1]; add [r10 + r11 + 8], r11; "
                        "mov rcx, r10; mov rdx, r11; push r10; pop r11"),
              {.r10 = kA, .r11 = 0});
  Check(o.Done() && o.frame.rax == Word(kA) && o.frame.rbx == Word(kA) && o.frame.rcx == kA &&
            o.frame.rdx == 0 && o.frame.r11 == kA,
        "operands in r10 and r11");
  o = RunUser(USER_CODE("xor esi, esi; mov rax, [rsp]; mov rbx, [rsp + rsi * 2 + 8]; mov [rsp + "
                        "16], rcx; mov rdx, [rsp + 16]"),
              {.rcx = 0x77, .rsp = kA});
  Check(o.Done() && o.frame.rax == Word(kA) && o.frame.rbx == Word(kA + 8) && o.frame.rdx == 0x77,
        "rsp as a base");
  o = RunUser(USER_CODE("mov ah, [rdi]; mov bh, [rdi + 1]; add ah, bh; mov [rdi + 24], ah; xchg "
                        "al, ah; mov ch, [rdi + 3]; mov dh, ch"),
              {.rax = 0, .rdi = kA});
  Check(o.Done() && At(kA)[24] == 3 && (o.frame.rax & 0xff) == 3 && (o.frame.rdx >> 8 & 0xff) == 4,
        "high byte registers");
  o = RunUser(USER_CODE("mov spl, 0x40; mov sil, [rdi]; mov r9b, sil; movzx eax, spl"),
              {.rdi = kA});
  Check(o.Done() && (o.frame.rsi & 0xff) == 1 && (o.frame.rax & 0xff) == 0x40,
        "byte registers with REX");
  o = RunUser(USER_CODE("mov al, 2; xlatb"), {.rax = 0xff00, .rbx = kA});
  CheckEq("xlat", o.frame.rax, 0xff03);
  o = RunUser(USER_CODE("movsx rax, byte ptr [rdi]; movsx rbx, word ptr [rdi]; movsxd rcx, dword "
                        "ptr [rdi]; movzx edx, word ptr [rdi]"),
              {.rdi = kA});
  CheckEq("movsxd from memory", o.frame.rcx, 0x04030201);
  o = RunUser(USER_CODE("lea eax, [edi + 8]; lea rbx, [edi + 0x7fffffff]; lea cx, [rdi]"),
              {.rcx = 0, .rdi = 0xffffffff'fffffffe});
  Check(o.Done() && o.frame.rax == 6 && o.frame.rbx == 0x7ffffffd && o.frame.rcx == 0xfffe,
        "lea wraps at 32 and 16 bits");
  o = RunUser(USER_CODE("mov eax, [edi + esi]"), {.rsi = 0xffffffff, .rdi = 17});
  CheckFault("a 32-bit address wraps", o, kPageFault, kPfUser | kPfPresent);
  CheckEq("... cr2", o.cr2, 16);
  o =
      RunUser(USER_CODE("movabs al, [0x8010000000]; movabs [0x8010000020], rax; mov rbx, rax\n"
                        "movabs rax, [0x8010000008]"));
  Check(o.Done() && (o.frame.rbx & 0xff) == 1 && o.frame.rax == Word(kA + 8) &&
            Word(kA + 0x20) == o.frame.rbx,
        "movabs with 64-bit offsets");
  const Outcome rip = RunUser(USER_CODE(
      "mov rax, [rip + 2f]; inc dword ptr [rip + 2f]; mov ebx, [rip + 2f]; mov byte ptr [rip + 2f "
      "+ 4], 0x99; jmp 3f; 2: .quad 0x1122334455667788; 3: mov rcx, [rip + 2b]"));
  Check(rip.Done() && rip.frame.rax == 0x1122334455667788 && rip.frame.rbx == 0x55667789 &&
            rip.frame.rcx == 0x1122339955667789,
        "rip-relative operands, with and without an immediate");
}

void TestConditions() {
  SetWord(kA, 0x0807060504030201);
  const Regs bad = {.rax = 1, .rdi = kHole};
  const void* cmov = USER_CODE("cmp eax, 1; cmovne rbx, [rdi]");
  CheckFault("cmov loads even if the condition is false", RunUser(cmov, bad), kPageFault, kPfUser);
  Outcome o = RunUser(USER_CODE("mov rbx, -1; cmp eax, 1; cmovne ebx, ecx"), bad);
  CheckEq("32-bit cmov clears the upper half even if false", o.frame.rbx, 0xffffffff);
  CheckDone(
      "prefetch never faults",
      RunUser(USER_CODE("prefetcht0 [rdi]; prefetchnta [rdi + 0x800]; prefetchw [rdi]"), bad));
  CheckDone(
      "nop with a memory operand never faults",
      RunUser(USER_CODE("nop dword ptr [rdi]; nop qword ptr [rdi + rax * 8 + 0x12345678]"), bad));
  CheckDone("lea never faults",
            RunUser(USER_CODE("lea rax, [rdi]; mov rcx, 0x800000000000; lea rbx, [rcx]"), bad));
  CheckDone("shift of memory by 0",
            RunUser(USER_CODE("xor ecx, ecx; shl qword ptr [rdi], cl"), {.rdi = kA}));
  o = RunUser(
      USER_CODE("stc; mov ecx, 32; shl eax, cl; setc bl; mov ecx, 64; shl rdx, cl; setc sil"),
      {.rax = 5, .rdx = 6});
  Check(o.Done() && o.frame.rax == 5 && o.frame.rdx == 6 && (o.frame.rbx & 1) == 1 &&
            (o.frame.rsi & 1) == 1,
        "a shift by the width does nothing, flags included");
  o = RunUser(USER_CODE("div qword ptr [rdi]"), {.rax = 8, .rdx = 0, .rdi = kHole});
  CheckFault("div by absent memory is #PF", o, kPageFault, kPfUser);
  o = RunUser(
      USER_CODE("2: inc eax; loop 2b; jrcxz 3f; ud2; 3: mov ecx, 5; jecxz 4f; mov ebx, 1; 4: nop"),
      {.rax = 0, .rcx = 100});
  Check(o.Done() && o.frame.rax == 100 && o.frame.rbx == 1, "loop and jrcxz");
  o = RunUser(
      USER_CODE(
          "mov ecx, 3; 2: dec eax; loope 2b; mov edx, ecx; mov ecx, 3; 4: dec ebx; loopne 4b"),
      {.rax = 5, .rbx = 2});
  Check(o.Done() && o.frame.rdx == 2 && o.frame.rcx == 1, "loope and loopne");
  o = RunUser(USER_CODE("mul qword ptr [rdi]"), {.rax = ~0ull, .rdi = kA});
  CheckEq("mul by memory: high half", o.frame.rdx, Word(kA) - 1);
  o = RunUser(USER_CODE("mov eax, 0x12345678; bswap eax; mov rbx, 0x1122334455667788; bswap rbx; "
                        "mov ecx, 0x00f0; bsf edx, ecx; bsr esi, ecx; shld rdi, rbx, 16"),
              {.rdi = 0});
  Check(o.Done() && o.frame.rax == 0x78563412 && o.frame.rbx == 0x8877665544332211 &&
            o.frame.rdx == 4 && o.frame.rsi == 7 && o.frame.rdi == 0x8877,
        "bswap, bsf, bsr, shld");
  o = RunUser(USER_CODE("mov ah, 0xd5; sahf; lahf; mov bl, ah; setc cl; setz dl"), {.rax = 0});
  Check(
      o.Done() && (o.frame.rbx & 0xff) == 0xd7 && (o.frame.rcx & 1) == 1 && (o.frame.rdx & 1) == 1,
      "sahf and lahf");
  o = RunUser(
      USER_CODE("movnti [rdi], rax; sfence; lfence; mfence; clflush [rdi]; mov rbx, [rdi]; pause"),
      {.rax = 0x99, .rdi = kA});
  CheckEq("movnti, fences, clflush", o.frame.rbx, 0x99);
  // SDM vol. 2A, CLFLUSH: faults as a load does; QEMU does nothing.
  if (!SkipOnQemu("#PF clflush of an absent page")) {
    CheckFault("#PF clflush of an absent page", RunUser(USER_CODE("clflush [rdi]"), bad),
               kPageFault, kPfUser);
  }
}

void TestPorts() {
  Fill();
  Outcome o = RunKernel(KERNEL_CODE("rep outsb"), {.rcx = 40, .rdx = 0x80, .rsi = kB - 20});
  Check(o.Done() && o.frame.rcx == 0 && o.frame.rsi == kB + 20, "rep outsb over a page border");
  o = RunKernel(KERNEL_CODE("rep outsb"), {.rcx = 40, .rdx = 0x80, .rsi = kHole - 15});
  CheckFault("rep outsb runs into an absent page", o, kPageFault, 0);
  CheckEq("... rcx", o.frame.rcx, 25);
  CheckEq("... rsi", o.frame.rsi, kHole);
  o = RunKernel(KERNEL_CODE("rep insb"), {.rcx = 40, .rdx = 0x80, .rdi = kHole - 15});
  CheckFault("rep insb runs into an absent page", o, kPageFault, kPfWrite);
  CheckEq("... rcx", o.frame.rcx, 25);
  CheckEq("... rdi", o.frame.rdi, kHole);
  o = RunKernel(KERNEL_CODE("mov rax, -1; in al, 0x80; mov rbx, -1; xchg rax, rbx; in eax, 0x80"));
  CheckEq("in eax clears the upper half", o.frame.rax >> 32, 0);
  CheckEq("in al keeps the rest", o.frame.rbx >> 8, ~0ull >> 8);
}

constexpr Section kSections[] = {
    {"strings", TestStrings},          {"faults", TestStringFaults},
    {"stack", TestStackForms},         {"bits", TestBits},
    {"exchange", TestCompareExchange}, {"addressing", TestAddressing},
    {"conditions", TestConditions},    {"ports", TestPorts},
};

}  // namespace

int Main() {
  Prepare();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
