// SPDX-License-Identifier: Apache-2.0
// The paravirtual interface for 64-bit kernels (docs/vmi.md): each of its calls, one by one, by
// what the interface says of registers, effects and faults, in both forms: those of the ROM that is
// there, and those of a copy in which all groups are the other way round. Without a ROM there is
// nothing to test.
//
// end=reboot and end=off: the kernel ends by Reboot or Shutdown instead.
#include "frobos/tests/vmi64.h"

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"

namespace alibi::frobos {
namespace {

constexpr u64 kNoAddress = 0x0000'8000'0000'0000;  // not canonical
constexpr u64 kUpperHalf = u64{1} << 32;
constexpr u32 kGroupsAt = 0x90;
constexpr u64 kPage = kHighBase + (u64{5} << 21), kGlobal = kPage + kPageSize;

const VmiHeader* rom;

constexpr Regs kMarked = {.rax = 0xa0a0a0a0a0a0a0a0,
                          .rbx = 0xb0b0b0b0b0b0b0b0,
                          .rcx = 0xc0c0c0c0c0c0c0c0,
                          .rdx = 0xd0d0d0d0d0d0d0d0,
                          .rsi = 0x5151515151515151,
                          .rdi = 0xd1d1d1d1d1d1d1d1,
                          .rbp = 0xbebebebebebebebe,
                          .r8 = 8,
                          .r9 = 9,
                          .r10 = 10,
                          .r11 = 11,
                          .r12 = 12,
                          .r13 = 13,
                          .r14 = 14,
                          .r15 = 15};

extern "C" u8 vmi64_site[];
asm(".pushsection .snippet, \"ax\"\n"
    "vmi64_site:\n"
    ".skip 5, 0x90\n"
    "int $0x7f\n"
    ".popsection");

Relocation Answer(u64 call) { return RelocationOf(rom, call); }
bool IsCall(VmiCall call) { return Answer(call).type == Relocation::kCall; }

// At a site, with a word on the stack if the call takes one.
Outcome Vmi(VmiCall call, Regs regs, const u64* word = nullptr) {
  PatchSite(vmi64_site, Answer(call));
  u64* stack = reinterpret_cast<u64*>(ProbeStackTop());
  if (word != nullptr) *--stack = *word;
  regs.rsp = reinterpret_cast<u64>(stack);
  return RunKernel(vmi64_site, regs);
}

bool KeptOthers(const TrapFrame& f, u64 rbx = kMarked.rbx) {
  return f.rbx == rbx && f.rsi == kMarked.rsi && f.rdi == kMarked.rdi && f.rbp == kMarked.rbp &&
         f.r8 == 8 && f.r9 == 9 && f.r10 == 10 && f.r11 == 11 && f.r12 == 12 && f.r13 == 13 &&
         f.r14 == 14 && f.r15 == 15 && (f.rflags & kFlagDf) == 0;
}

}  // namespace

Outcome Vmi(VmiCall call, u64 rax, u64 rdx, u64 rcx, const u64* word) {
  Regs regs = kMarked;
  regs.rax = rax, regs.rdx = rdx, regs.rcx = rcx;
  return Vmi(call, regs, word);
}

Outcome CheckVmi(const char* name, VmiCall call, u64 rax, u64 rdx, u64 rcx, const u64* word) {
  const Outcome o = Vmi(call, rax, rdx, rcx, word);
  CheckDone(name, o);
  if (!KeptOthers(o.frame) || o.frame.rsp != ProbeStackTop() - (word != nullptr ? 8 : 0)) {
    Check(false, name);
  }
  return o;
}

bool Is(const char* name, VmiCall call) {
  if (IsCall(call)) return true;
  Skip(name, "the kernel's own instruction stays");
  return false;
}

namespace {

// --- The ROM's entries ---

void TestEntries() {
  const u64 place = rom->entries64;
  Check(place >= 0x90 && place + 16 <= rom->blocks * u64{512}, "the header names the entries");
  CheckEq("VMI_Init", InitVmi(rom), 0);
  Group answers("relocation answers");
  const void* call = KERNEL_CODE("call rbx");
  for (u64 number = 0; number < 90; number++) {
    Regs regs = kMarked;
    regs.rax = number;
    regs.rbx = VmiRelocationEntry(rom);
    const Outcome o = RunKernel(call, regs);
    bool ok = o.Done() && KeptOthers(o.frame, regs.rbx) && o.frame.rdx <= Relocation::kNop &&
              o.frame.rsp == ProbeStackTop();
    const bool own = number == kVmiIret || number == kVmiSysret || number == kVmiSwapgs;
    const bool known = number < kVmiCalls64 && (number <= 48 || number >= 61) && number != 72;
    if (own || !known) ok = ok && o.frame.rdx == Relocation::kNone;
    if (o.frame.rdx == Relocation::kCall) {
      ok = ok && o.frame.rax - reinterpret_cast<u64>(rom) < rom->blocks * u64{512};
    }
    if (!answers.Case(ok)) Print("FAIL call %lu: type %lu\n", number, o.frame.rdx);
  }
  for (const u64 number : {~u64{0}, kUpperHalf | kVmiCpuid, u64{1} << 63, u64{kVmiCalls64}}) {
    CheckEq("a number that no call has", Answer(number).type, Relocation::kNone);
  }
  const bool timer = Answer(kVmiGetCycleFrequency).type != Relocation::kNone;
  for (const VmiCall part : {kVmiGetCycleCounter, kVmiSetAlarm, kVmiCancelAlarm,
                             kVmiGetWallclockTime, kVmiWallclockUpdated}) {
    CheckEq("a timer is all there or not at all", IsCall(part), timer);
  }
}

// --- The processor ---

void TestProcessor() {
  for (const u32 leaf : {0u, 1u, 4u, 7u, 0x80000002u}) {
    const Outcome o = Vmi(kVmiCpuid, leaf);
    u32 eax = leaf, ebx, ecx = 0, edx;
    asm volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    Check(o.Done() && o.frame.rax == eax && o.frame.rbx == ebx && o.frame.rcx == ecx &&
              o.frame.rdx == edx && KeptOthers(o.frame, o.frame.rbx),
          "CPUID");
  }
  CheckVmi("WRMSR", kVmiWrmsr, 0x89abcdef, 0xffff8123, kMsrKernelGsBase);
  const Outcome read = CheckVmi("RDMSR", kVmiRdmsr, 0, 0, kMsrKernelGsBase);
  Check(read.frame.rax == 0x89abcdef && read.frame.rdx == 0xffff8123, "... value");
  CheckFault("WRMSR of a base that is no address", Vmi(kVmiWrmsr, 0, 0x8000, kMsrKernelGsBase),
             kGeneralProtection);
  WriteMsr(kMsrKernelGsBase, 0);
  const Outcome tsc = CheckVmi("RDTSC", kVmiRdtsc);
  Check(Rdtsc() - (tsc.frame.rdx << 32 | tsc.frame.rax) < 1'000'000'000, "... is the TSC");
  const Outcome counter = Vmi(kVmiRdpmc, 0, 0, ~u32{0});
  CheckFault("RDPMC of a counter that there is not", counter, kGeneralProtection);
  CheckVmi("WBINVD", kVmiWbinvd);
  for (const u64 iopl : {u64{0x3000}, u64{0x1000}, u64{0}}) {
    Regs regs = kMarked;
    regs.rax = iopl | ~u64{0x3000};
    const Outcome o = Vmi(kVmiSetIoplMask, regs);
    Check(o.Done() && (o.frame.rflags & (kFlagIopl | kFlagIf | kFlagTf | kFlagNt)) == iopl,
          "SetIOPLMask");
  }
  for (const VmiCall call : {kVmiMachineToPhysical, kVmiPhysicalToMachine}) {
    CheckEq("machine addresses are physical ones", Vmi(call, kMarked.rax).frame.rax, kMarked.rax);
  }
  const Relocation delay = Answer(kVmiIoDelay), stack = Answer(kVmiUpdateKernelStack);
  Check(delay.type == Relocation::kNop || Vmi(kVmiIoDelay).Done(), "IODelay");
  Check(stack.type == Relocation::kNop || Vmi(kVmiUpdateKernelStack).Done(), "UpdateKernelStack");
}

void TestControlRegisters() {
  const u64 cr0 = ReadCr0(), cr3 = ReadCr3(), cr4 = ReadCr4();
  CheckVmi("SetCR0", kVmiSetCr0, cr0 | kCr0Ts);
  CheckEq("GetCR0", CheckVmi("it returns", kVmiGetCr0, ~u64{0}).frame.rax, cr0 | kCr0Ts);
  CheckVmi("CLTS", kVmiClts);
  CheckEq("... TS is clear", ReadCr0(), cr0);
  CheckFault("SetCR0 with bits above 32", Vmi(kVmiSetCr0, cr0 | kUpperHalf), kGeneralProtection);
  CheckEq("... changes nothing", ReadCr0(), cr0);
  CheckVmi("SetCR2", kVmiSetCr2, 0xfedcba9876543210);
  CheckEq("GetCR2", CheckVmi("it returns", kVmiGetCr2).frame.rax, 0xfedcba9876543210);
  CheckVmi("SetCR3", kVmiSetCr3, cr3 | kPtePwt);
  CheckEq("GetCR3", CheckVmi("it returns", kVmiGetCr3).frame.rax, cr3 | kPtePwt);
  WriteCr3(cr3);
  CheckFault("SetCR3 beyond physical addresses", Vmi(kVmiSetCr3, cr3 | u64{1} << 62),
             kGeneralProtection);
  CheckEq("... changes nothing", ReadCr3(), cr3);
  CheckVmi("SetCR4", kVmiSetCr4, cr4 ^ kCr4Tsd);
  CheckEq("GetCR4", CheckVmi("it returns", kVmiGetCr4).frame.rax, cr4 ^ kCr4Tsd);
  WriteCr4(cr4);
  CheckFault("SetCR4 with reserved bits", Vmi(kVmiSetCr4, cr4 | kUpperHalf), kGeneralProtection);
  CheckVmi("SetCR8", kVmiSetCr8, 5);
  CheckEq("GetCR8", CheckVmi("it returns", kVmiGetCr8).frame.rax, 5);
  CheckFault("SetCR8 with reserved bits", Vmi(kVmiSetCr8, 0x10), kGeneralProtection);
  WriteCr8(0);
}

void TestControl() {
  if (Is("control registers", kVmiSetCr0)) TestControlRegisters();

  struct DebugRegister {
    u64 number, value, read;
  };
  static constexpr DebugRegister kRegisters[] = {
      {0, 0xffff800000001000, 0xffff800000001000},
      {1, 0x2001, 0x2001},
      {2, kHighBase, kHighBase},
      {3, 3, 3},
      {6, 0, 0xffff0ff0},
      {7, 0, 0x400},
  };
  for (const DebugRegister& r : kRegisters) {
    CheckVmi("SetDR", kVmiSetDr, r.number, r.value);
    CheckEq("GetDR", CheckVmi("it returns", kVmiGetDr, r.number).frame.rax, r.read);
  }
  for (const u64 number : {4, 5}) CheckVmi("SetDR of no register", kVmiSetDr, number, ~u64{0});
  CheckFault("SetDR with bits above 32", Vmi(kVmiSetDr, 7, kUpperHalf), kGeneralProtection);
  for (const u64 number : {0, 1, 2, 3}) Vmi(kVmiSetDr, number, 0);
}

// --- Descriptors ---

TablePointer StoredGdt() {
  TablePointer p;
  asm volatile("sgdt %0" : "=m"(p));
  return p;
}
TablePointer StoredIdt() {
  TablePointer p;
  asm volatile("sidt %0" : "=m"(p));
  return p;
}
u64 At(const void* p) { return reinterpret_cast<u64>(p); }

void TestTables() {
  struct Table {
    const char* set_name;
    VmiCall set, get;
    TablePointer (*stored)();
  };
  for (const Table& t : {Table{"SetGDT", kVmiSetGdt, kVmiGetGdt, StoredGdt},
                         Table{"SetIDT", kVmiSetIdt, kVmiGetIdt, StoredIdt}}) {
    const TablePointer was = t.stored();
    TablePointer smaller = {static_cast<u16>(was.limit - 8), was.base}, got = {};
    CheckVmi(t.set_name, t.set, At(&smaller));
    CheckEq("... limit", t.stored().limit, smaller.limit);
    CheckEq("... base", t.stored().base, was.base);
    CheckVmi("... and the same is got", t.get, At(&got));
    Check(got.limit == smaller.limit && got.base == was.base, "... limit and base");
    CheckVmi(t.set_name, t.set, At(&was));
    CheckFault("... from no address", Vmi(t.set, kNoAddress), kGeneralProtection);
    smaller.base = kNoAddress;
    CheckFault("... of a base that is no address", Vmi(t.set, At(&smaller)), kGeneralProtection);
    Check(t.stored().base == was.base && t.stored().limit == was.limit, "... changes nothing");
  }

  alignas(16) static u64 table[6];
  constexpr u64 kEmpty = 0x5555555555555555, kLow = 0x123456789abcdef0, kHigh = 0xfedcba9876543210;
  for (const VmiCall call : {kVmiWriteGdtEntry, kVmiWriteLdtEntry}) {
    for (u64& entry : table) entry = kEmpty;
    CheckVmi("writing a descriptor", call, At(table), 2, kLow);
    CheckEq("... is one store", table[2], kLow);
    Check(table[1] == kEmpty && table[3] == kEmpty, "... and no other");
    CheckFault("... at no address", Vmi(call, kNoAddress, 0, kLow), kGeneralProtection);
  }
  for (u64& entry : table) entry = kEmpty;
  CheckVmi("WriteIDTEntry", kVmiWriteIdtEntry, At(table), 1, kLow, &kHigh);
  Check(table[2] == kLow && table[3] == kHigh, "... both halves");
  Check(table[1] == kEmpty && table[4] == kEmpty, "... and no other");

  const u64 base = At(&tss);
  const u64 low =
      kTssLimitNoIoMap | (base & 0xffffff) << 16 | 0x89ull << 40 | (base >> 24 & 0xff) << 56;
  Vmi(kVmiWriteGdtEntry, At(gdt), kSpareSelector / 8, low);
  Vmi(kVmiWriteGdtEntry, At(gdt), kSpareSelector / 8 + 1, base >> 32);
  CheckVmi("SetTR", kVmiSetTr, kSpareSelector);
  CheckEq("... makes the TSS busy", gdt[kSpareSelector / 8] >> 40 & 0xff, 0x8b);
  CheckEq("GetTR", CheckVmi("it returns", kVmiGetTr).frame.rax & 0xffff, kSpareSelector);
  CheckFault("SetTR of a busy TSS", Vmi(kVmiSetTr, kSpareSelector), kGeneralProtection,
             kSpareSelector);
  SetGdtEntry(kTssSelector, low);
  WriteTr(kTssSelector);
  // An LDT of one entry.
  const u64 ldt = At(table);
  SetGdtEntry(kSpareSelector,
              7 | (ldt & 0xffffff) << 16 | 0x82ull << 40 | (ldt >> 24 & 0xff) << 56);
  SetGdtEntry(kSpareSelector + 8, ldt >> 32);
  CheckVmi("SetLDT", kVmiSetLdt, kSpareSelector);
  CheckEq("GetLDT", CheckVmi("it returns", kVmiGetLdt).frame.rax & 0xffff, kSpareSelector);
  CheckVmi("SetLDT 0", kVmiSetLdt, 0);
  CheckEq("... GetLDT", Vmi(kVmiGetLdt).frame.rax & 0xffff, 0);
}

// --- The interrupt flag, and halting ---

void TestFlags() {
  if (!Is("the interrupt flag", kVmiEnableInterrupts)) return;
  const auto run = [](const char* name, VmiCall call, u64 rax, u64 flags, bool returns_flags) {
    Regs regs = kMarked;
    regs.rax = rax, regs.rflags = flags;
    const Outcome o = Vmi(call, regs);
    CheckDone(name, o);
    Check((returns_flags || o.frame.rax == rax) && o.frame.rcx == kMarked.rcx &&
              o.frame.rdx == kMarked.rdx && KeptOthers(o.frame) && o.frame.rsp == ProbeStackTop(),
          "... keeps all registers");
    return o.frame;
  };
  for (const u64 was : {kFlagsFixed, kFlagsFixed | kFlagIf}) {
    CheckEq("... IF", run("EnableInterrupts", kVmiEnableInterrupts, 7, was, false).rflags & kFlagIf,
            kFlagIf);
    CheckEq("... IF",
            run("DisableInterrupts", kVmiDisableInterrupts, 7, was, false).rflags & kFlagIf, 0);
    const TrapFrame got = run("GetInterruptMask", kVmiGetInterruptMask, 0, was, true);
    CheckEq("... bit 9", got.rax & kFlagIf, was & kFlagIf);
    CheckEq("... IF stays", got.rflags & kFlagIf, was & kFlagIf);
    for (const u64 mask : {u64{0}, kFlagIf, got.rax}) {
      const TrapFrame set = run("SetInterruptMask", kVmiSetInterruptMask, mask, was, false);
      CheckEq("... IF", set.rflags & kFlagIf, mask & kFlagIf);
      CheckEq("... and no other flag of the system",
              set.rflags & (kFlagTf | kFlagIopl | kFlagNt | kFlagAc), 0);
    }
  }
}

volatile u64 ticks;
void CatchTicks() {
  InitPic();
  UnmaskIrq(0);
  SetHandler(kIrqBase, [](TrapFrame*) {
    ticks = ticks + 1;
    EndOfIrq(0);
  });
  ticks = 0;
}
void ForgetTicks() {
  MaskAllInterrupts();
  SetHandler(kIrqBase, nullptr);
}

void TestHalt() {
  CatchTicks();
  StartPit(PitMode::kOneShot, 3000);
  const Outcome o = CheckVmi("Halt", kVmiHalt);
  CheckEq("... until an interrupt", ticks, 1);
  CheckEq("... with IF set", o.frame.rflags & kFlagIf, kFlagIf);
  ForgetTicks();
}

// --- Page tables ---

u64 WordAt(u64 va) { return *reinterpret_cast<volatile u64*>(va); }
bool Faults(u64 va) {
  return Catch([va] { asm volatile("" : : "r"(WordAt(va))); }).Is(kPageFault);
}
void Flush(VmiCall call, u64 argument) {
  if (IsCall(call)) {
    CheckVmi(call == kVmiInvalPage ? "InvalPage" : "FlushTLB", call, argument);
  } else if (call == kVmiInvalPage) {
    Invlpg(argument);
  } else {
    WriteCr4(ReadCr4() ^ kCr4Pge);
    WriteCr4(ReadCr4() ^ kCr4Pge);
  }
}
void Set(u64* entry, u64 value, u64 level) {
  if (!IsCall(kVmiSetPxe)) {
    *entry = value;
    return;
  }
  CheckVmi("SetPxE", kVmiSetPxe, value, At(entry), level);
  CheckEq("... is one store", *entry & ~(kPteA | kPteD), value & ~(kPteA | kPteD));
}

void TestPages() {
  const u64 frames[2] = {AllocPage(), AllocPage()};
  for (u64 i = 0; i < 2; i++) *reinterpret_cast<u64*>(frames[i]) = 100 + i;
  const u64 rights = kPteP | kPteW | kPteA | kPteD;
  u64* const entry = Entry(kPage);
  Set(entry, 0, 1);
  Flush(kVmiInvalPage, kPage);
  for (const u64 flush : {0, 1, 3}) {
    for (u64 i = 0; i < 2; i++) {
      Set(entry, frames[i] | rights | kPteNx, 1 | 0x30);
      if (i != 0) Flush(flush == 0 ? kVmiInvalPage : kVmiFlushTlb, flush == 0 ? kPage : flush);
      CheckEq("the page leads there", WordAt(kPage), 100 + i);
    }
    Set(entry, 0, 1);
    Flush(flush == 0 ? kVmiInvalPage : kVmiFlushTlb, flush == 0 ? kPage : flush);
    Check(Faults(kPage), "... or nowhere");
  }
  // Global pages survive all but a flush of kind 3.
  u64* const global = Entry(kGlobal);
  Set(global, frames[0] | rights | kPteG, 1);
  CheckEq("a global page", WordAt(kGlobal), 100);
  Set(global, 0, 1);
  Flush(kVmiFlushTlb, 3);
  Check(Faults(kGlobal), "... is flushed by FlushTLB 3");
  // Upper levels: a page of 2 MB, and none.
  const u64 large = kHighBase + (u64{9} << 21);
  u64* const directory = Entry(large, 2);
  Set(directory, rights | kPtePs, 2);
  CheckEq("a page of 2 MB", WordAt(large + frames[1] % (1 << 21)), WordAt(frames[1] % (1 << 21)));
  Set(directory, 0, 2);
  Flush(kVmiInvalPage, large);
  Check(Faults(large), "... and none");
  u64* const root = Entry(kUserBase, 4);
  const u64 kept = *root;
  for (const u64 level : {4u, 8u}) {
    Set(level == 8 ? root : Entry(kUserBase, 3), 0, level);
    Flush(kVmiFlushTlb, 3);
    Check(Faults(kUserBase), "nothing below an upper entry that is absent");
    *root = kept;
  }
  // What level there is not does not matter: an entry is stored all the same.
  for (const u64 level : {u64{0}, u64{0x55}, kUpperHalf, ~u64{0}}) {
    Set(entry, frames[0] | rights, level);
    Flush(kVmiInvalPage, kPage);
    CheckEq("an entry of no level", WordAt(kPage), 100);
  }
  if (IsCall(kVmiSetPxe)) {
    CheckFault("SetPxE at no address", Vmi(kVmiSetPxe, 0, kNoAddress, 1), kGeneralProtection);
    const Outcome absent = Vmi(kVmiSetPxe, 0, kPage + (u64{1} << 20), 1);
    CheckFault("SetPxE at an absent page", absent, kPageFault, kPfWrite);
    CheckEq("... cr2", absent.cr2, kPage + (u64{1} << 20));
    CheckDone("SetPxE outside RAM", Vmi(kVmiSetPxe, frames[0] | rights, 0xfec00f00, 1));
  }
  Set(entry, 0, 1);
  Flush(kVmiInvalPage, kPage);
  Unmap(kGlobal);
}

// ReleasePage says that a page is no table any more; if that is not so, nothing is lost.
void TestReleased() {
  if (!Is("ReleasePage", kVmiReleasePage)) return;
  const u64 frame = AllocPage();
  *reinterpret_cast<u64*>(frame) = 77;
  Map(kPage, frame, kPteW);
  const u64 tables[] = {At(Entry(kPage)), At(Entry(kPage, 2)), At(Entry(kPage, 3)), ReadCr3()};
  for (const u64 table : tables) {
    for (const u64 beyond : {u64{0}, u64{1} << 52, u64{1} << 40, u64{1} << 63}) {
      CheckVmi("ReleasePage of a table in use", kVmiReleasePage, table >> 12 | beyond, 0x41);
      CheckEq("... which stays in use", WordAt(kPage), 77);
    }
  }
  for (const u64 number : {~u64{0}, u64{0xfee00}, MemoryEnd() >> 12}) {
    CheckVmi("ReleasePage of what is no RAM", kVmiReleasePage, number, ~u64{0});
  }
  *Entry(kPage) = 0;
  Invlpg(kPage);
  Check(Faults(kPage), "a table that was released by mistake still counts");
}

// --- The local APIC, and time ---

void TestLocalApic() {
  if (!Is("APICRead, APICWrite", kVmiApicRead)) return;
  for (const LapicRegister r : {kLapicId, kLapicVersion, kLapicSpurious, kLapicTimer}) {
    CheckEq("APICRead", CheckVmi("it returns", kVmiApicRead, r).frame.rax, ReadLapic(r));
  }
  const u32 before = ReadLapic(kLapicTimer);
  CheckVmi("APICWrite", kVmiApicWrite, kLapicTimer, kUpperHalf | kLapicMasked | 0x71);
  CheckEq("... the register", ReadLapic(kLapicTimer), kLapicMasked | 0x71);
  for (const u64 offset : {u64{0x1000}, kUpperHalf | kLapicTimer, ~u64{0}}) {
    CheckEq("APICRead outside the page", Vmi(kVmiApicRead, offset).frame.rax, 0);
    CheckDone("APICWrite outside the page", Vmi(kVmiApicWrite, offset, 0));
  }
  CheckEq("... changes nothing", ReadLapic(kLapicTimer), kLapicMasked | 0x71);
  WriteLapic(kLapicTimer, before);
}

u64 Counter(u64 which) { return Vmi(kVmiGetCycleCounter, which).frame.rax; }
// Lets interrupts in until so many have come, or the counter is there.
void WaitUntil(u64 real, u64 wanted = ~u64{0}) {
  const void* open = KERNEL_CODE("sti; nop; nop; cli");
  do {
    RunKernel(open);
  } while (ticks < wanted && Counter(0) < real);
}

void TestTimer() {
  if (!Is("the timer", kVmiSetAlarm)) return;
  const u64 hz = CheckVmi("GetCycleFrequency", kVmiGetCycleFrequency).frame.rax, ms = hz / 1000;
  Check(hz >= 1'000'000 && hz <= 1'000'000'000'000, "... 1 MHz to 1 THz");
  Group clocks("real time goes on, and is available and stolen time");
  u64 last[3] = {};
  for (u32 i = 0; i < 2000; i++) {
    const u64 real = Counter(0), available = Counter(1), stolen = Counter(2), end = Counter(0);
    clocks.Case(real >= last[0] && available >= last[1] && stolen >= last[2] &&
                available + stolen >= real && available + stolen <= end);
    last[0] = real, last[1] = available, last[2] = stolen;
  }
  for (const u64 which : {u64{3}, kUpperHalf, kUpperHalf | 1, ~u64{0}}) {
    CheckEq("a counter that there is not", Counter(which), 0);
  }
  CheckVmi("GetCycleCounter", kVmiGetCycleCounter, 0);
  CheckVmi("GetCycleCounter of stolen time", kVmiGetCycleCounter, 2);

  Outb(0x43, 0x3a);  // the 8254 leaves IRQ 0 alone
  CatchTicks();
  const u64 due = Counter(0) + 3 * ms;
  CheckVmi("SetAlarm", kVmiSetAlarm, 0, due, 0);
  WaitUntil(due + 1000 * ms, 1);
  Check(ticks == 1 && Counter(0) >= due, "... once");
  WaitUntil(Counter(0) + 5 * ms);
  CheckEq("... and no more", ticks, 1);
  const u64 start = Counter(0);
  CheckVmi("a periodic alarm", kVmiSetAlarm, 0x100, start, 2 * ms);
  WaitUntil(start + 1000 * ms, 5);
  Check(ticks >= 5 && (ticks - 2) * 2 * ms <= Counter(0) - start, "... again and again");
  CheckVmi("CancelAlarm", kVmiCancelAlarm, 0x100);
  WaitUntil(Counter(0) + 2 * ms);
  ticks = 0;
  WaitUntil(Counter(0) + 5 * ms);
  CheckEq("... no more", ticks, 0);
  ForgetTicks();

  const u64 first = CheckVmi("GetWallclockTime", kVmiGetWallclockTime).frame.rax;
  const u64 second = Vmi(kVmiGetWallclockTime).frame.rax;
  // From 2020 on, and as long as 64 bits last.
  Check(second > first && first > 1'577'836'800'000'000'000, "... in nanoseconds since 1970");
  CheckEq("WallclockUpdated", CheckVmi("it returns", kVmiWallclockUpdated, 7).frame.rax, 0);
}

// --- VMCALL from where it must not be, and what it must not take ---

constexpr u16 kCode32 = kSpareSelector;

void CheckInvalid(const char* name, const Outcome& o, const void* code, u64 rsp) {
  CheckFault(name, o, kInvalidOpcode, 0, At(code) + 1);
  CheckEq("... with the stack as it was", o.frame.rsp, rsp);
}

// A CPU without a hypervisor, whatever the ROM says.
void TestOutside(u64 numbers) {
  const void* user = USER_CODE("push rax; vmcall; nop");
  const void* kernel = KERNEL_CODE("push rax; vmcall; nop");
  SetGdtEntry(kCode32, SegmentDescriptor(0xb, 0));
  for (u64 number = 0; number < numbers; number++) {
    Regs regs = kMarked;
    regs.rax = number;
    CheckInvalid("a hypercall of ring 3", RunUser(user, regs), user, UserStackTop() - 8);
    // The bytes mean the same in compatibility mode.
    TrapFrame frame = {};
    frame.rax = number;
    frame.rip = At(kernel), frame.cs = kCode32, frame.rflags = kFlagsFixed;
    frame.rsp = ProbeStackTop(), frame.ss = kKernelData;
    CheckInvalid("a hypercall of compatibility mode", RunFrame(frame), kernel, frame.rsp - 4);
    frame.rip = At(user), frame.cs = kUserCode32, frame.rsp = UserStackTop(), frame.ss = kUserData;
    CheckInvalid("... of ring 3", RunFrame(frame), user, frame.rsp - 4);
  }
}

void TestHostile() {
  const void* kernel = KERNEL_CODE("push rax; vmcall; nop");
  for (const u64 number : {u64{11}, u64{78}, kUpperHalf, kUpperHalf | 4, u64{1} << 63, ~u64{0}}) {
    Regs regs = kMarked;
    regs.rax = number;
    CheckInvalid("a number of no hypercall", RunKernel(kernel, regs), kernel, ProbeStackTop() - 8);
  }
  TestOutside(11);
  // Processors and words that there are not.
  const void* start = KERNEL_CODE("push 9; vmcall");
  for (const u64 wrong : {u64{1}, kUpperHalf, ~u64{0}}) {
    CheckDone("SetStartState of no processor",
              RunKernel(start, {.rax = wrong, .rcx = ~u64{0}, .rdx = wrong}));
  }
  // Stacks that are none.
  const void* bare = KERNEL_CODE("vmcall; nop");
  const u8 vectors[] = {kStackFault, kPageFault};
  for (const u8 vector : vectors) SetIst(vector, 4);
  Outcome o = RunKernel(bare, {.rsp = kNoAddress});
  CheckFault("a hypercall with a stack at no address", o, kStackFault, 0, At(bare));
  CheckEq("... is as it was", o.frame.rsp, kNoAddress);
  o = RunKernel(bare, {.rsp = kNoAddress - 4});
  CheckFault("... or half of it", o, kStackFault, 0, At(bare));
  o = RunKernel(bare, {.rsp = kPage + (u64{1} << 20)});
  CheckFault("... or in an absent page", o, kPageFault, 0, At(bare));
  CheckEq("... cr2", o.cr2, kPage + (u64{1} << 20));
  for (const u8 vector : vectors) RestoreEntry(vector);
  // The ROM is the kernel's.
  const Relocation call = Answer(kVmiCpuid);
  o = RunUser(reinterpret_cast<const void*>(call.address));
  CheckFault("the ROM in ring 3", o, kPageFault, kPfPresent | kPfUser | kPfFetch * (HasNx() != 0));
}

constexpr Section kSections[] = {
    {"entries", TestEntries}, {"processor", TestProcessor},
    {"control", TestControl}, {"tables", TestTables},
    {"flags", TestFlags},     {"halt", TestHalt},
    {"pages", TestPages},     {"released", TestReleased},
    {"apic", TestLocalApic},  {"timer", TestTimer},
    {"smp", TestSmp},         {"hostile", TestHostile},
};

}  // namespace

int Main() {
  rom = KernelRom();
  if (rom == nullptr) {
    if (OptionIs("rom", "yes")) Check(false, "the kernel is on VMI");
    TestOutside(1);
    const void* kernel = KERNEL_CODE("push rax; vmcall; nop");
    CheckInvalid("VMCALL", RunKernel(kernel), kernel, ProbeStackTop() - 8);
    Skip("VMI", "there is no ROM for it");
    return Summary();
  }
  if (HasOption("end")) {
    Vmi(OptionIs("end", "reboot") ? kVmiReboot : kVmiShutdown);
    Panic("the machine goes on");
  }
  InitLapic();
  RunSections(kSections);
  const u64 copy = AllocRange(rom->blocks * u64{512}, kPageSize);
  memcpy(reinterpret_cast<void*>(copy), rom, rom->blocks * u64{512});
  *reinterpret_cast<u32*>(copy + kGroupsAt) ^= ~0u;
  rom = reinterpret_cast<const VmiHeader*>(copy);
  Print("  and the other form of each call:\n");
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
