// SPDX-License-Identifier: Apache-2.0
// Process-context identifiers: CR4.PCIDE, CR3's low bits and its no-flush bit, INVPCID with its
// faults, and what each kind of invalidation must make visible (Intel SDM vol. 3A 4.10, vol. 2
// INVPCID).

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

constexpr u64 kCr4Pcide = 1u << 17, kNoFlush = 1ull << 63;
constexpr u64 kVa = kHighBase + 0x0000'2000'0000'0000ull;
enum Type : u64 { kAddress = 0, kContext = 1, kAllWithGlobal = 2, kAll = 3 };

bool HasPcid() { return Features().ecx >> 17 & 1; }
bool HasInvpcid() { return ExtendedFeatures().ebx >> 10 & 1; }

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

struct Descriptor {
  u64 pcid, address;
};

const void* invpcid;
Outcome Invpcid(u64 type, u64 pcid, u64 address) {
  static Descriptor descriptor;
  descriptor = {pcid, address};
  return RunKernel(invpcid, {.rax = type, .rdi = reinterpret_cast<u64>(&descriptor)});
}
const void* write_cr3;
Outcome SetCr3(u64 value) { return RunKernel(write_cr3, {.rax = value}); }
const void* write_cr4;
Outcome SetCr4(u64 value) { return RunKernel(write_cr4, {.rax = value}); }

void CheckGp(const char* name, const Outcome& o, const void* code) {
  CheckFault(name, o, kGeneralProtection, 0, At(code));
}

void TestControl() {
  const u64 cr3 = ReadCr3(), cr4 = ReadCr4();
  if (!HasPcid()) {
    Skip("PCID", "CPUID has none");
    if (!SkipOnQemu("#GP CR4.PCIDE without CPUID's bit")) {
      CheckGp("#GP CR4.PCIDE without CPUID's bit", SetCr4(cr4 | kCr4Pcide), write_cr4);
    }
    return;
  }
  CheckGp("#GP CR3 bit 63 without PCIDE", SetCr3(cr3 | kNoFlush), write_cr3);
  // PWT and PCD are CR3's bits 3 and 4 without PCIDE, and part of the PCID with it.
  WriteCr3(cr3 | 8);
  CheckGp("#GP PCIDE while CR3's low bits are not 0", SetCr4(cr4 | kCr4Pcide), write_cr4);
  CheckEq("... CR4 as before", ReadCr4(), cr4);
  WriteCr3(cr3);
  CheckDone("PCIDE set", SetCr4(cr4 | kCr4Pcide));
  CheckEq("... reads back", ReadCr4() & kCr4Pcide, kCr4Pcide);
  CheckDone("a PCID", SetCr3(cr3 | 0x123));
  CheckEq("... reads back", ReadCr3(), cr3 | 0x123);
  CheckDone("the no-flush bit", SetCr3(cr3 | 0xfff | kNoFlush));
  CheckEq("... reads as 0", ReadCr3(), cr3 | 0xfff);
  for (int i = 0; i < 4; i++) CheckDone("... again and again", SetCr3(cr3 | kNoFlush));
  CheckDone("PCIDE cleared", SetCr4(cr4));
  CheckGp("#GP what was loaded so often with PCIDE", SetCr3(cr3 | kNoFlush), write_cr3);
  CheckDone("... without the bit", SetCr3(cr3));
  CheckDone("PCIDE set", SetCr4(cr4 | kCr4Pcide));
  CheckDone("a PCID", SetCr3(cr3 | 0xfff));
  const unsigned physical_bits = Cpuid(0x80000008).eax & 0xff;
  if (physical_bits < 52) {
    CheckGp("#GP reserved bits of CR3", SetCr3(cr3 | 1ull << physical_bits), write_cr3);
    CheckGp("#GP ... with the no-flush bit", SetCr3(cr3 | 1ull << 51 | kNoFlush), write_cr3);
  }
  CheckGp("#GP bit 62 of CR3", SetCr3(cr3 | 1ull << 62), write_cr3);
  CheckEq("... CR3 as before", ReadCr3(), cr3 | 0xfff);
  CheckDone("PCIDE cleared while a PCID is in CR3", SetCr4(cr4));
  CheckEq("... which stays", ReadCr3() & 0xfff, 0xfff);
  WriteCr3(cr3);
}

void TestInvpcidFaults() {
  if (!HasInvpcid()) {
    Skip("INVPCID", "CPUID has none");
    if (!SkipOnQemu("#UD INVPCID without CPUID's bit", false)) {
      CheckFault("#UD INVPCID without CPUID's bit", Invpcid(kAll, 0, 0), kInvalidOpcode, 0,
                 At(invpcid));
    }
    return;
  }
  const u64 cr4 = ReadCr4();
  constexpr u64 kNotCanonical = 0x0000'8000'0000'0000ull;
  for (const bool enabled : {false, true}) {
    if (enabled && !HasPcid()) break;
    if (enabled) WriteCr4(cr4 | kCr4Pcide);
    Print("  %s CR4.PCIDE:\n", enabled ? "with" : "without");
    for (const u64 type : {kAddress, kContext, kAllWithGlobal, kAll}) {
      CheckDone("INVPCID, PCID 0", Invpcid(type, 0, 0));
    }
    for (const u64 type : {u64{4}, u64{5}, u64{0x100}, ~u64{0}, u64{1} << 32}) {
      CheckGp("#GP INVPCID of an unknown type", Invpcid(type, 0, 0), invpcid);
    }
    for (const u64 pcid : {u64{0x1000}, u64{1} << 32, u64{1} << 63}) {
      CheckGp("#GP INVPCID reserved bits, an address", Invpcid(kAddress, pcid, 0), invpcid);
      CheckGp("#GP INVPCID reserved bits, a context", Invpcid(kContext, pcid, 0), invpcid);
      CheckGp("#GP INVPCID reserved bits, all with global", Invpcid(kAllWithGlobal, pcid, 0),
              invpcid);
      CheckGp("#GP INVPCID reserved bits, all", Invpcid(kAll, pcid, 0), invpcid);
    }
    CheckGp("#GP INVPCID of an address not canonical", Invpcid(kAddress, 0, kNotCanonical),
            invpcid);
    CheckDone("INVPCID of a context, address not canonical", Invpcid(kContext, 0, kNotCanonical));
    if (enabled) {
      CheckDone("INVPCID of an address, another PCID", Invpcid(kAddress, 0x77, kVa));
      CheckDone("INVPCID of a context, another PCID", Invpcid(kContext, 0x77, 0));
    } else {
      CheckGp("#GP INVPCID of an address, PCID not 0", Invpcid(kAddress, 0x77, kVa), invpcid);
      CheckGp("#GP INVPCID of a context, PCID not 0", Invpcid(kContext, 0x77, 0), invpcid);
      CheckDone("INVPCID of all, PCID not 0", Invpcid(kAll, 0x77, 0));
    }
  }
  WriteCr4(cr4);
  const void* user = USER_CODE("invpcid rax, [rdi]");
  CheckGp("#GP INVPCID in CPL 3", RunUser(user, {.rax = kAll, .rdi = UserStackTop() - 64}), user);
  Outcome o = RunKernel(invpcid, {.rax = kAll, .rdi = kHighBase + 0x700000});
  CheckFault("#PF INVPCID's descriptor", o, kPageFault, 0, At(invpcid));
  o = RunKernel(invpcid, {.rax = kAll, .rdi = kNotCanonical});
  CheckGp("#GP INVPCID's descriptor not canonical", o, invpcid);
  const void* locked = KERNEL_CODE(".byte 0xf0; invpcid rax, [rdi]");
  CheckFault("#UD INVPCID locked", RunKernel(locked, {.rdi = UserStackTop() - 64}), kInvalidOpcode,
             0, At(locked));
  const void* registers = KERNEL_CODE(".byte 0x66, 0x0f, 0x38, 0x82, 0xc0");
  CheckFault("#UD INVPCID of registers", RunKernel(registers), kInvalidOpcode, 0, At(registers));
}

u64 Load(u64 va) { return *reinterpret_cast<volatile u64*>(va); }

// Two address spaces that differ in one PML4E.
u64 roots[2], frames[4];
u64* ptes[2];

void MakeSpaces() {
  const u64 old = ReadCr3();
  for (int i = 0; i < 2; i++) {
    roots[i] = AllocPage();
    memcpy(reinterpret_cast<void*>(roots[i]), reinterpret_cast<void*>(old & kPteAddress),
           kPageSize);
  }
  for (int i = 0; i < 4; i++) {
    frames[i] = AllocPage();
    *reinterpret_cast<u64*>(frames[i]) = 100 + static_cast<u64>(i);
  }
  for (int i = 0; i < 2; i++) {
    WriteCr3(roots[i]);
    Map(kVa, frames[i], kPteW);
    ptes[i] = Entry(kVa);
  }
  WriteCr3(old);
}

void SetFrame(int space, int frame, u64 flags = 0) {
  *ptes[space] = frames[frame] | kPteP | kPteW | flags;
}

void TestInvalidation() {
  if (!HasPcid()) return;
  const u64 cr3 = ReadCr3(), cr4 = ReadCr4();
  MakeSpaces();
  for (const bool smap : {true, false}) {
    if (smap && !HasSmap()) continue;
    WriteCr4(cr4 | kCr4Pcide | (smap ? kCr4Smap : 0));
    Group group(smap ? "two PCIDs in turn without flushes, SMAP"
                     : "two PCIDs in turn without flushes");
    for (int round = 0; round < 2000; round++) {
      const int i = round & 1;
      WriteCr3(roots[i] | (i + 1) | kNoFlush);
      group.Case(Load(kVa) == 100 + static_cast<u64>(i));
    }
  }
  // Each time: used in space 0, changed in space 1, invalidated, used in space 0 without a flush.
  struct Case {
    const char* name;
    void (*invalidate)();
    bool global;
  };
  const Case cases[] = {
      {"INVPCID of the address makes a change visible", [] { Invpcid(kAddress, 1, kVa); }, false},
      {"INVPCID of the context", [] { Invpcid(kContext, 1, 0); }, false},
      {"INVPCID of all", [] { Invpcid(kAll, 0, 0); }, false},
      {"INVPCID of all with global, global page", [] { Invpcid(kAllWithGlobal, 0, 0); }, true},
      {"CR3 load of that PCID", [] { WriteCr3(roots[0] | 1); }, false},
      {"INVLPG in that PCID",
       [] {
         WriteCr3(roots[0] | 1 | kNoFlush);
         Invlpg(kVa);
       },
       true},
      {"CR4.PGE toggled",
       [] {
         WriteCr4(ReadCr4() ^ kCr4Pge);
         WriteCr4(ReadCr4() ^ kCr4Pge);
       },
       true},
      {"CR4.PCIDE cleared and set",
       [] {
         const u64 now = ReadCr3();
         WriteCr3(now & ~0xfffull);
         WriteCr4(ReadCr4() & ~kCr4Pcide);
         WriteCr4(ReadCr4() | kCr4Pcide);
         WriteCr3(now);
       },
       true},
  };
  WriteCr4(ReadCr4() | (HasPge() ? kCr4Pge : 0));
  for (const Case& c : cases) {
    if (strncmp(c.name, "INVPCID", 7) == 0 && !HasInvpcid()) continue;
    Group group(c.name);
    for (int round = 0; round < 50; round++) {
      const u64 flags = c.global ? kPteG : 0;
      SetFrame(0, 0, flags);
      WriteCr3(roots[0] | 1);
      Invlpg(kVa);
      const bool before = Load(kVa) == 100;
      WriteCr3(roots[1] | 2 | kNoFlush);
      SetFrame(0, 2 + round % 2, flags);
      c.invalidate();
      WriteCr3(roots[0] | 1 | kNoFlush);
      group.Case(before && Load(kVa) == 102 + static_cast<u64>(round % 2));
    }
    SetFrame(0, 0);
    Invlpg(kVa);
  }
  {
    // A PCID is a tag, not a name of a root: with a flush the new root counts.
    Group group("one PCID for two roots, flushed at each load");
    SetFrame(0, 0);
    SetFrame(1, 1);
    for (int round = 0; round < 200; round++) {
      WriteCr3(roots[round & 1] | 5);
      group.Case(Load(kVa) == 100 + static_cast<u64>(round & 1));
    }
  }
  WriteCr3(cr3);
  WriteCr4(cr4);
}

constexpr Section kSections[] = {
    {"control", TestControl}, {"faults", TestInvpcidFaults}, {"invalidation", TestInvalidation}};

}  // namespace

int Main() {
  invpcid = KERNEL_CODE("invpcid rax, [rdi]");
  write_cr3 = KERNEL_CODE("mov cr3, rax");
  write_cr4 = KERNEL_CODE("mov cr4, rax");
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
