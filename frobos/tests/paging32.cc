// SPDX-License-Identifier: Apache-2.0
// 32-bit and PAE paging in protected mode: rights and error codes at every level, accessed and
// dirty bits, large pages, reserved bits, PDPTEs, faults in the delivery of events; and what else
// only 32-bit kernels do: SYSENTER, legacy SYSCALL, alignment checks (SDM vol. 3A ch.
// 4, 5.8.7, 6.15).

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kP = 1, kW = 2, kU = 4, kA = 0x20, kD = 0x40, kPs = 0x80;
constexpr u32 kPfP = 1, kPfW = 2, kPfU = 4, kPfReserved = 8, kPfFetch = 16;
constexpr u32 kPage = 0x02000000;   // the page under test, linear
constexpr u32 kFrame = 0x02400000;  // where it leads
constexpr u32 kMsrEfer = 0xc0000080;

alignas(4096) DirectoryEntry directory[1024];
alignas(4096) PageEntry table[1024];
alignas(4096) PageEntry kernel_table[1024];
alignas(4096) LongDirectoryEntry pae_directories[4][512];
alignas(4096) LongPageEntry pae_table[512];
alignas(32) LongPointerEntry pae_pointers[4];

void Enter32() {
  AllocatePageTable(At(directory), kPageDirectory);
  AllocatePageTable(At(table), kPageTable);
  SetLazyMode(kManyEntries);
  for (u32 i = 0; i < 1024; i++) {
    directory[i] = i << 22 | kPs | kU | kW | kP;
    table[i] = (kFrame + i * 4096) | kU | kW | kP;
  }
  directory[kPage >> 22] = At(table) | kU | kW | kP;
  SetLazyMode(kImmediate);
  WriteCr4((ReadCr4() & ~kCr4Pae) | kCr4Pse);
  WriteCr3(At(directory));
  WriteCr0(ReadCr0() | kCr0Pg);
}

void EnterPae() {
  for (const LongDirectoryEntry(&d)[512] : pae_directories) {
    AllocatePageTable(At(d), kPageDirectory | kPaePages);
  }
  AllocatePageTable(At(pae_table), kPageTable | kPaePages);
  SetLazyMode(kManyEntries);
  for (u32 i = 0; i < 2048; i++)
    pae_directories[i / 512][i % 512] = u64{i} << 21 | kPs | kU | kW | kP;
  for (u32 i = 0; i < 512; i++) pae_table[i] = (kFrame + i * 4096) | kU | kW | kP;
  for (u32 i = 0; i < 4; i++) pae_pointers[i] = At(pae_directories[i]) | kP;
  pae_directories[0][kPage >> 21] = At(pae_table) | kU | kW | kP;
  SetLazyMode(kImmediate);
  WriteCr4(ReadCr4() | kCr4Pae);
  WriteCr3(At(pae_pointers));
  WriteCr0(ReadCr0() | kCr0Pg);
}

void Leave() {
  const bool pae = (ReadCr4() & kCr4Pae) != 0;
  WriteCr0(ReadCr0() & ~(kCr0Pg | kCr0Wp));
  WriteCr4(ReadCr4() & ~kCr4Pae);
  if (pae) {
    for (const LongDirectoryEntry(&d)[512] : pae_directories) {
      ReleasePageTable(At(d), kPageDirectory | kPaePages);
    }
    ReleasePageTable(At(pae_table), kPageTable | kPaePages);
  } else {
    ReleasePageTable(At(directory), kPageDirectory);
    ReleasePageTable(At(table), kPageTable);
  }
}

struct Access {
  const char* name;
  const void* code;
  bool write, fetch;
};

// Both kinds of tables: all rights in both levels, all accesses, both rings, WP.
void TestMatrix(const char* name, bool pae, bool nx) {
  const Access accesses[] = {{"read", CODE32("mov al, [ebx]"), false, false},
                             {"write", CODE32("mov [ebx+8], al"), true, false},
                             {"add", CODE32("add byte ptr [ebx+8], 1"), true, false},
                             {"fetch", CODE32("jmp ebx"), false, true}};
  // INT 0x7f at the start of the frame.
  *reinterpret_cast<volatile u32*>(kFrame) = 0x00007fcd;
  SkipOnQemu("page faults of read-modify-writes are writes");
  Group cases(name);
  const u32 combinations = nx ? 256 : 64;
  for (u32 i = 0; i < combinations; i++) {
    const u32 upper = i & 7, lower = i >> 3 & 7;
    const bool upper_nx = (i & 64) != 0, lower_nx = (i & 128) != 0;
    for (const u32 wp : List{0u, kCr0Wp}) {
      WriteCr0((ReadCr0() & ~kCr0Wp) | wp);
      for (const u32 ring : List{0u, 3u}) {
        for (const Access& a : accesses) {
          if (pae) {
            pae_directories[0][kPage >> 21] = At(pae_table) | upper | u64{upper_nx} << 63;
            pae_table[0] = kFrame | lower | u64{lower_nx} << 63;
          } else {
            directory[kPage >> 22] = At(table) | upper;
            table[0] = kFrame | lower;
          }
          InvalidatePage(kPage);
          const Outcome o = Run(a.code, {.ebx = kPage}, ring);
          // A read-modify-write is a write to its page (SDM vol. 3A 4.7); QEMU reads first.
          if (OnQemu() && a.name[0] == 'a') continue;
          const u32 both = upper & lower;
          const bool user = ring == 3, present = (both & kP) != 0;
          bool allowed = present;
          if (user && (both & kU) == 0) allowed = false;
          if (a.write && (both & kW) == 0 && (user || wp != 0)) allowed = false;
          if (a.fetch && (upper_nx || lower_nx)) allowed = false;
          const u32 error = (present ? kPfP : 0) | (a.write ? kPfW : 0) | (user ? kPfU : 0) |
                            (a.fetch && nx ? kPfFetch : 0);
          const u32 upper_now =
              pae ? static_cast<u32>(pae_directories[0][kPage >> 21]) : directory[kPage >> 22];
          const u32 lower_now = pae ? static_cast<u32>(pae_table[0]) : table[0];
          bool ok;
          if (allowed) {
            ok = o.Done() && (upper_now & kA) != 0 &&
                 (lower_now & (kA | kD)) == (kA | (a.write ? kD : 0));
          } else {
            const u32 at = a.fetch ? kPage : At(a.code);
            ok = o.Is(kPageFault, error) && o.frame.eip == at &&
                 o.cr2 == kPage + (a.write ? 8 : 0) && (lower_now & kD) == 0;
          }
          if (!cases.Case(ok)) {
            Print(
                "FAIL %s: CPL %u WP %u upper %x lower %x nx %u: expected %s %x got %s %x cr2 %x "
                "entries %x %x\n",
                a.name, ring, wp >> 16, upper, lower, i >> 6, allowed ? "no fault" : "#PF", error,
                VectorName(o.vector), o.error, o.cr2, upper_now & 0xfff, lower_now & 0xfff);
          }
        }
      }
    }
  }
  WriteCr0(ReadCr0() & ~kCr0Wp);
}

void Test32() {
  Enter32();
  TestMatrix("32-bit paging: all rights, accesses and rings", false, false);
  directory[kPage >> 22] = At(table) | kU | kW | kP;
  table[0] = kFrame | kU | kW | kP;
  FlushTlb();
  const void* read = CODE32("mov eax, [ebx]");
  const void* write = CODE32("mov [ebx], eax");
  // A 4 MB page: bits and offset.
  *reinterpret_cast<volatile u32*>(kFrame + 0x123454) = 0xabcdef01;
  directory[kPage >> 22] = kFrame | kPs | kU | kW | kP;
  InvalidatePage(kPage);
  Outcome o = Run(read, {.ebx = kPage + 0x123454}, 3);
  CheckEq("a 4 MB page", o.frame.eax, 0xabcdef01);
  CheckEq("... is accessed", directory[kPage >> 22] & (kA | kD), kA);
  o = Run(write, {.ebx = kPage + 0x123454}, 3);
  CheckEq("... and dirty", directory[kPage >> 22] & (kA | kD), kA | kD);
  directory[kPage >> 22] = kFrame | kPs | kW | kP;
  InvalidatePage(kPage);
  o = Run(read, {.ebx = kPage + 0x123454}, 3);
  CheckFault("... of the supervisor", o, kPageFault, kPfP | kPfU, At(read));
  CheckEq("... cr2", o.cr2, kPage + 0x123454);
  // Without CR4.PSE the bit is ignored, and the entry names a table.
  directory[kPage >> 22] = At(table) | kPs | kU | kW | kP;
  *reinterpret_cast<volatile u32*>(kFrame + 8) = 0x55aa1234;
  // The kernel itself lies in large pages, so a table for it is needed, too.
  for (u32 i = 0; i < 1024; i++) kernel_table[i] = i << 12 | kU | kW | kP;
  const u32 kernel_entry = directory[0];
  directory[0] = At(kernel_table) | kU | kW | kP;
  FlushTlb();
  WriteCr4(ReadCr4() & ~kCr4Pse);
  o = Run(read, {.ebx = kPage + 8}, 3);
  WriteCr4(ReadCr4() | kCr4Pse);
  directory[0] = kernel_entry;
  FlushTlb();
  CheckEq("PS without CR4.PSE is ignored", o.frame.eax, 0x55aa1234);
  // Bit 21 of a 4 MB entry is reserved (SDM vol. 3A table 4-4).
  directory[kPage >> 22] = kFrame | 1u << 21 | kPs | kU | kW | kP;
  InvalidatePage(kPage);
  o = Run(read, {.ebx = kPage}, 3);
  if (!SkipOnQemu("bit 21 of a 4 MB page")) {
    CheckFault("bit 21 of a 4 MB page is reserved", o, kPageFault, kPfP | kPfU | kPfReserved);
  }
  directory[kPage >> 22] = At(table) | kU | kW | kP;
  // Operands across two pages, either of which is absent.
  table[1] = 0;
  table[0] = kFrame | kU | kW | kP;
  FlushTlb();
  o = Run(write, {.ebx = kPage + 0xffe}, 3);
  CheckFault("a write across pages, the second absent", o, kPageFault, kPfW | kPfU, At(write));
  CheckEq("... cr2", o.cr2, kPage + 0x1000);
  table[0] = 0;
  table[1] = (kFrame + 0x1000) | kU | kW | kP;
  FlushTlb();
  o = Run(write, {.ebx = kPage + 0xffe}, 3);
  CheckFault("... the first absent", o, kPageFault, kPfW | kPfU, At(write));
  CheckEq("... cr2", o.cr2, kPage + 0xffe);
  // Two pages that are no neighbours in memory.
  table[0] = (kFrame + 0x5000) | kU | kW | kP;
  table[1] = (kFrame + 0x2000) | kU | kW | kP;
  FlushTlb();
  o = Run(write, {.eax = 0x44332211, .ebx = kPage + 0xffe}, 3);
  CheckDone("a write across pages that are apart", o);
  CheckEq("... its first half", *reinterpret_cast<volatile u16*>(kFrame + 0x5ffe), 0x2211);
  CheckEq("... its second half", *reinterpret_cast<volatile u16*>(kFrame + 0x2000), 0x4433);
  // Segments and paging together: the linear address is translated.
  SetGdt(kSpare, Descriptor(kPage, 0xfff, kData | kDpl3, k32Bit));
  *reinterpret_cast<volatile u32*>(kFrame + 0x5010) = 0x600d600d;
  o = Run(CODE32("mov eax, fs:[0x10]"), {.fs = kSpare | 3}, 3);
  CheckEq("a segment in a mapped page", o.frame.eax, 0x600d600d);
  table[0] = 0;
  FlushTlb();
  const void* fs_read = CODE32("mov eax, fs:[0x10]");
  o = Run(fs_read, {.fs = kSpare | 3}, 3);
  CheckFault("... in an absent one", o, kPageFault, kPfU, At(fs_read));
  CheckEq("... cr2 has the base", o.cr2, kPage + 0x10);
  // ENTER looks at where the new stack pointer leads although it writes nothing there.
  table[0] = kFrame | kU | kW | kP;
  table[1] = (kFrame + 0x1000) | kU | kW | kP;
  for (const u32 entry : List{0u, kFrame | kP, kFrame | kU | kP}) {
    // SDM vol. 2, ENTER; QEMU does not look.
    if (SkipOnQemu("enter to a page that cannot be written")) break;
    table[0] = entry;
    FlushTlb();
    const void* enter = CODE32("enter 8, 0");
    o = Run(enter, {.ebp = 0x1234, .esp = kPage + 0x1004}, 3);
    CheckFault("enter to a page that cannot be written", o, kPageFault,
               kPfW | kPfU | (entry != 0 ? kPfP : 0), At(enter));
    Check(o.frame.esp == kPage + 0x1004 && o.frame.ebp == 0x1234, "... nothing has moved");
  }
  // REP that faults halfway.
  table[0] = kFrame | kU | kW | kP;
  table[1] = 0;
  FlushTlb();
  const void* rep = CODE32("cld; rep movsd");
  o = Run(rep, {.ecx = 8, .esi = kFrame, .edi = kPage + 0xff4}, 3);
  CheckFault("rep movsd into an absent page", o, kPageFault, kPfW | kPfU, At(rep, 1));
  Check(o.frame.ecx == 5 && o.frame.edi == kPage + 0x1000 && o.frame.esi == kFrame + 12,
        "... with its registers there");
  Leave();
}

void TestPae() {
  const bool has_nx = (Cpuid(0x80000001).edx >> 20 & 1) != 0;
  EnterPae();
  TestMatrix("PAE paging: all rights, accesses and rings", true, false);
  if (has_nx) {
    WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) | 0x800);
    TestMatrix("... with execute-disable", true, true);
  }
  const auto restore = [] {
    pae_directories[0][kPage >> 21] = At(pae_table) | kU | kW | kP;
    pae_table[0] = kFrame | kU | kW | kP;
    FlushTlb();
  };
  restore();
  const void* read = CODE32("mov eax, [ebx]");
  *reinterpret_cast<volatile u32*>(kFrame + 0x12344) = 0x12344321;
  pae_directories[0][kPage >> 21] = kFrame | kPs | kU | kW | kP;
  FlushTlb();
  Outcome o = Run(read, {.ebx = kPage + 0x12344}, 3);
  CheckEq("a 2 MB page", o.frame.eax, 0x12344321);
  if (!SkipOnQemu("reserved bits come with P (SDM vol. 3A 4.7)")) {
    struct Case {
      const char* name;
      u64 upper, lower;
      bool reserved;
    };
    const u64 good_upper = At(pae_table) | kU | kW | kP, good_lower = kFrame | kU | kW | kP;
    const Case cases[] = {
        {"bit 52 of an entry", good_upper, good_lower | 1ull << 52, true},
        {"bit 62 of an entry", good_upper, good_lower | 1ull << 62, true},
        {"bit 51 of an entry", good_upper, good_lower | 1ull << 51, true},
        {"bit 52 of a directory's entry", good_upper | 1ull << 52, good_lower, true},
        {"bit 13 of a 2 MB page", (kFrame | kPs | kU | kW | kP) | 1u << 13, 0, true},
        {"bits that software may use", good_upper | 0xe00, good_lower | 0xe00, false},
    };
    for (const Case& c : cases) {
      pae_directories[0][kPage >> 21] = c.upper;
      pae_table[0] = c.lower;
      FlushTlb();
      o = Run(read, {.ebx = kPage}, 3);
      if (c.reserved) {
        CheckFault(c.name, o, kPageFault, kPfP | kPfU | kPfReserved, At(read));
      } else {
        CheckDone(c.name, o);
      }
    }
    if (has_nx) {
      restore();
      pae_table[0] = pae_table[0] | 1ull << 63;
      WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) & ~0x800ull);
      FlushTlb();
      o = Run(read, {.ebx = kPage}, 3);
      CheckFault("XD without EFER.NXE is reserved", o, kPageFault, kPfP | kPfU | kPfReserved);
    }
  }
  restore();
  // PDPTEs are loaded with CR3 (SDM vol. 3A 4.4.1), and checked then; QEMU reads them at each walk.
  if (!SkipOnQemu("PDPTEs are loaded with CR3")) {
    const u64 saved = pae_pointers[2];
    const void* high = CODE32("mov eax, [ebx]");
    pae_pointers[2] = 0;
    o = Run(high, {.ebx = 0x80000000 + kFrame}, 3);
    // It leads to no memory, which reads as anything, but there is a translation.
    CheckDone("a changed PDPTE does not count yet", o);
    FlushTlb();
    o = Run(high, {.ebx = 0x80000000 + kFrame}, 3);
    CheckFault("... after MOV to CR3 it does", o, kPageFault, kPfU, At(high));
    const void* load = CODE32("mov cr3, eax");
    for (const u32 bit : List{1u, 2u, 5u, 6u, 7u, 8u, 63u}) {
      pae_pointers[2] = saved | 1ull << bit;
      CheckFault("reserved bits of a PDPTE", Run(load, {.eax = ReadCr3()}), kGeneralProtection, 0,
                 At(load));
    }
    pae_pointers[2] = (saved & ~u64{kP}) | 0x1e6;
    CheckDone("... do not matter in an absent one", Run(load, {.eax = ReadCr3()}));
    pae_pointers[2] = saved;
    FlushTlb();
  }
  Leave();
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) & ~0x800ull);
}

// Page faults of the CPU's own accesses.
void TestEvents() {
  Enter32();
  // Descriptors are read as the supervisor, from any ring.
  u64* const copy = reinterpret_cast<u64*>(kFrame);
  for (u32 i = 0; i < kGdtEntries; i++) copy[i] = gdt[i];
  copy[kSpare / 8] = Flat(kData | kDpl3);
  table[0] = kFrame | kW | kP;
  FlushTlb();
  const TablePointer moved = {sizeof(gdt) - 1, kPage};
  WriteGdtr(moved);
  const void* load = CODE32("mov ds, ax");
  Outcome o = Run(load, {.eax = kSpare | 3}, 3);
  CheckDone("a descriptor in a supervisor page, loaded by CPL 3", o);
  CheckEq("... its accessed bit", static_cast<u32>(copy[kSpare / 8] >> 40 & 1), 1);
  // Absent: the fault is the supervisor's although CPL 3 loads. The rest of the GDT is needed by
  // the handler, so only a second page of it goes.
  LoadGdt();
  const TablePointer split = {0x1000 + sizeof(gdt) - 1, kPage};
  u64* const low = reinterpret_cast<u64*>(kFrame);
  for (u32 i = 0; i < kGdtEntries; i++) low[i] = gdt[i];
  low[0x1000 / 8 + 1] = Flat(kData | kDpl3);
  table[1] = 0;
  FlushTlb();
  WriteGdtr(split);
  o = Run(load, {.eax = 0x1008 | 3}, 3);
  CheckFault("a descriptor in an absent page", o, kPageFault, 0, At(load));
  CheckEq("... cr2", o.cr2, kPage + 0x1008);
  table[1] = (kFrame + 0x1000) | kP;
  FlushTlb();
  WriteCr0(ReadCr0() | kCr0Wp);
  o = Run(load, {.eax = 0x1008 | 3}, 3);
  CheckFault("the accessed bit in a read-only page", o, kPageFault, kPfP | kPfW, At(load));
  WriteCr0(ReadCr0() & ~kCr0Wp);
  o = Run(load, {.eax = 0x1008 | 3}, 3);
  CheckDone("... which without WP is written to", o);
  LoadGdt();

  // An IDT whose second page is absent: #PF in the delivery of INT n, at the INT.
  u64* const gates = reinterpret_cast<u64*>(kFrame + 0x3000 - 8 * 0x80);
  for (u32 i = 0; i < 256; i++) gates[i] = idt[i];
  table[2] = (kFrame + 0x2000) | kP;
  table[3] = 0;
  FlushTlb();
  const TablePointer idt_split = {sizeof(idt) - 1, kPage + 0x3000 - 8 * 0x80};
  WriteIdtr(idt_split);
  const void* interrupt = CODE32("int 0x80");
  o = Run(interrupt, {}, 3);
  LoadIdt();
  CheckFault("a gate in an absent page", o, kPageFault, 0, At(interrupt));
  CheckEq("... cr2", o.cr2, kPage + 0x3000);
  // An inner stack in an absent page: #PF of the supervisor for INT n; #DF for a #PF or a #GP.
  const u32 esp1 = main_tss.esp1;
  table[4] = 0;
  FlushTlb();
  main_tss.esp1 = kPage + 0x5000;
  SetIdt(0x40, Gate(CodeSelector(1), At(CODE32("nop")), kInterruptGate32 | kDpl3));
  const void* int40 = CODE32("int 0x40");
  o = Run(int40, {}, 3);
  CheckFault("an inner stack in an absent page", o, kPageFault, kPfW, At(int40));
  CheckEq("... cr2", o.cr2, kPage + 0x4ffc);
  main_tss.esp1 = esp1;
  RestoreIdt(0x40);
  // The double-fault task brings its own CR3.
  double_fault_tss.cr3 = ReadCr3();
  const u32 esp0 = main_tss.esp0;
  main_tss.esp0 = kPage + 0x5000;
  const void* hlt = CODE32("hlt");
  o = Run(hlt, {}, 3);
  CheckFault("#GP, #PF in its delivery, #PF in that one's: #DF", o, kDoubleFault, 0, At(hlt));
  const void* bad = CODE32("mov eax, [ebx]");
  o = Run(bad, {.ebx = kPage + 0x4000}, 3);
  CheckFault("#PF, and #PF in its delivery, is #DF", o, kDoubleFault, 0, At(bad));
  CheckEq("... through the task gate", o.task, true);
  main_tss.esp0 = esp0;
  Leave();
}

void TestSysenter() {
  if ((Cpuid(1).edx >> 11 & 1) == 0) return Skip("SYSENTER", "CPUID does not show it");
  // Four descriptors in a row: code 0, data 0, code 3, data 3.
  SetGdt(kSpare, Flat(kCode));
  SetGdt(kSpare + 8, Flat(kData));
  SetGdt(kSpare + 16, Flat(kCode | kDpl3));
  SetGdt(kSpare + 24, Flat(kData | kDpl3));
  const void* sysenter = CODE32("sysenter; mov edi, 0x99");
  const void* entry = CODE32("pushfd; pop eax; mov esi, cs; mov edi, ss; mov ebp, esp");
  WriteMsr(0x174, 0);
  CheckFault("SYSENTER without its MSR", Run(sysenter, {}, 3), kGeneralProtection, 0, At(sysenter));
  WriteMsr(0x174, kSpare | 3);
  WriteMsr(0x175, RingStackTop(0) - 0x100);
  WriteMsr(0x176, At(entry));
  Outcome o = Run(sysenter, {.eflags = 2 | kFlagIf | kFlagCf}, 3);
  CheckDone("SYSENTER", o);
  CheckEq("... cs, whose RPL is dropped", o.frame.esi & 0xffff, kSpare);
  CheckEq("... ss", o.frame.edi & 0xffff, kSpare + 8);
  CheckEq("... esp", o.frame.ebp, RingStackTop(0) - 0x100);
  CheckEq("... IF is clear", o.frame.eax, 2 | kFlagCf);
  const void* sysexit = CODE32("sysexit");
  const void* back = CODE32("mov esi, cs; mov edi, ss");
  o = Run(sysexit, {.ecx = ProbeStackTop() - 0x80, .edx = At(back)});
  CheckDone("SYSEXIT", o);
  CheckEq("... cs", o.frame.esi & 0xffff, (kSpare + 16) | 3);
  CheckEq("... ss", o.frame.edi & 0xffff, (kSpare + 24) | 3);
  CheckEq("... esp", o.frame.esp, ProbeStackTop() - 0x80);
  CheckFault("SYSEXIT in CPL 3", Run(sysexit, {}, 3), kGeneralProtection, 0, At(sysexit));
  // The descriptors themselves are not looked at: the segments are flat whatever is there.
  SetGdt(kSpare, 0);
  SetGdt(kSpare + 8, 0);
  o = Run(sysenter, {}, 3);
  CheckDone("SYSENTER does not read the GDT", o);
  WriteMsr(0x174, 0);

  // SYSCALL outside long mode is AMD's.
  const bool amd = Cpuid(0).ebx == 0x68747541;
  const void* syscall = CODE32("syscall; mov edi, 0x77");
  CheckFault("SYSCALL without EFER.SCE", Run(syscall, {}, 3), kInvalidOpcode, 0, At(syscall));
  if ((Cpuid(0x80000001).edx >> 11 & 1) == 0) return Skip("SYSCALL", "CPUID does not show it");
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) | 1);
  SetGdt(kSpare, Flat(kCode));
  SetGdt(kSpare + 8, Flat(kData));
  const void* target = CODE32(
      "mov edx, cs; mov esi, ss; mov ebx, ecx; pushfd; pop eax; add esp, 0; "
      "sysret");
  // With RPL 3: AMD's SYSRET takes SS's as it is.
  WriteMsr(0xc0000081, u64{kSpare} << 32 | u64{(kSpare + 16) | 3} << 48 | At(target));
  o = Run(syscall, {.eflags = 2 | kFlagIf | kFlagCf}, 3);
  if (amd) {
    CheckDone("legacy SYSCALL and SYSRET", o);
    CheckEq("... cs", o.frame.edx & 0xffff, kSpare);
    CheckEq("... ss", o.frame.esi & 0xffff, kSpare + 8);
    CheckEq("... ecx has the return address", o.frame.ebx, At(syscall, 2));
    CheckEq("... back", o.frame.edi, 0x77);
    CheckEq("... IF is clear in it", o.frame.eax & kFlagIf, 0);
    CheckEq("... cs after SYSRET", o.frame.cs, (kSpare + 16) | 3);
    CheckEq("... ss after it", o.frame.ss, (kSpare + 24) | 3);
    CheckEq("... IF is set again", o.frame.eflags & kFlagIf, kFlagIf);
  } else {
    CheckFault("legacy SYSCALL", o, kInvalidOpcode, 0, At(syscall));
  }
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) & ~1ull);
}

void TestAlignment() {
  // SDM vol. 3A 6.15, interrupt 17; QEMU has no #AC.
  if (SkipOnQemu("alignment checks")) return;
  static u32 words[4] __attribute__((aligned(16)));
  const void* read16 = CODE32("mov ax, [ebx]");
  const void* read32 = CODE32("mov eax, [ebx]");
  const void* fild = CODE32("fild qword ptr [ebx]; fstp st(0)");
  const void* push = CODE32("push eax");
  WriteCr0(ReadCr0() | kCr0Am);
  const u32 at = At(words);
  const Frame aligned = {.ebx = at, .eflags = 2 | kFlagAc};
  Frame odd = aligned;
  odd.ebx = at + 1;
  CheckDone("aligned", Run(read32, aligned, 3));
  CheckFault("a dword at an odd address", Run(read32, odd, 3), kAlignmentCheck, 0, At(read32));
  CheckFault("a word at an odd address", Run(read16, odd, 3), kAlignmentCheck, 0, At(read16));
  odd.ebx = at + 2;
  CheckDone("a word at an even address", Run(read16, odd, 3));
  CheckFault("a dword at an even address", Run(read32, odd, 3), kAlignmentCheck, 0, At(read32));
  odd.ebx = at + 4;
  CheckFault("a quadword at 4", Run(fild, odd, 3), kAlignmentCheck, 0, At(fild));
  Frame stack = aligned;
  stack.esp = ProbeStackTop() - 2;
  CheckFault("a misaligned push", Run(push, stack, 3), kAlignmentCheck, 0, At(push));
  odd.ebx = at + 1;
  CheckDone("CPL 0 is not checked", Run(read32, odd, 0));
  odd.eflags = 2;
  CheckDone("nor is code without AC", Run(read32, odd, 3));
  WriteCr0(ReadCr0() & ~kCr0Am);
  odd.eflags = 2 | kFlagAc;
  CheckDone("nor any without CR0.AM", Run(read32, odd, 3));
}

constexpr Section kSections[] = {
    {"paging", Test32},           {"pae", TestPae},
    {"events", TestEvents},       {"sysenter", TestSysenter},
    {"alignment", TestAlignment},
};

}  // namespace

int Main() {
  RunOnVmi();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
