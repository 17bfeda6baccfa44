// SPDX-License-Identifier: Apache-2.0
// The paravirtual interface that a ROM offers (docs/vmi.md): the ROM as a kernel finds it, and each
// of its calls, one by one, by what the interface says of registers, effects and faults. Without a
// ROM there is nothing to test, unless the command line says rom=yes.
//
// end=reboot and end=off: the kernel ends by Reboot or Shutdown instead.
#include "frobos/tests/vmi.h"

namespace alibi::frobos {
namespace {

const VmiHeader* rom;
// Where calls with odd numbers lead: to `rom`, but in TestMixed().
const VmiHeader* other_rom;

bool Is(const char* text, const char* word) {
  while (*word != 0 && *text == *word) text++, word++;
  return *word == 0 && (*text == 0 || *text == ' ');
}

void TestHeader() {
  const u8* bytes = reinterpret_cast<const u8*>(rom);
  u8 sum = 0;
  for (u32 i = 0; i < rom->blocks * 512u; i++) sum = static_cast<u8>(sum + bytes[i]);
  CheckEq("the ROM's checksum", sum, 0);
  CheckEq("... 16-bit entry: a far return", rom->entry16[0], 0xcb);
  CheckEq("... no linear addresses are taken from the kernel", rom->virtual_top & 0x3fffff, 0);
  const u32* pci = reinterpret_cast<const u32*>(bytes + rom->pci);
  CheckEq("... PCI header", pci[0], 0x52494350);
  CheckEq("... by whose numbers kernels know it", pci[1], 0x080115ad);
  const u32* pnp = reinterpret_cast<const u32*>(bytes + rom->pnp);
  CheckEq("... PnP header", pnp[0], 0x506e5024);
  Print("VMI: Found %s %s, API version %u.%u\n", bytes + (pnp[3] >> 16), bytes + (pnp[4] & 0xffff),
        rom->major, rom->minor);
}

void TestRelocations() {
  CheckEq("VMI_Init", InitVmi(rom), 0);
  Group answers("relocation answers");
  for (u32 call = 0; call < 90; call++) {
    const Outcome o = RunRelocationInfo(rom, call);
    const Relocation relocation = RelocationOf(rom, call);
    const bool known = call < kVmiCalls && (call <= 48 || call >= 61) && call != 72;
    const u32 place = relocation.address - At(rom);
    bool ok = o.Done() && o.frame.edx <= 3 && o.frame.esp == ProbeStackTop();
    ok = ok && o.frame.ebx == 0xb0b0b0b0 && o.frame.esi == 0x51515151 &&
         o.frame.edi == 0xd1d1d1d1 && o.frame.ebp == 0xbebebebe;
    ok = ok && relocation.type == o.frame.edx && relocation.address == o.frame.eax;
    if (relocation.type == Relocation::kCall || relocation.type == Relocation::kJump) {
      ok = ok && known && place >= 0x90 && place < rom->blocks * 512u;
      ok = ok && (relocation.type == Relocation::kCall || call == kVmiIret || call == kVmiSysexit);
    }
    if (!known) ok = ok && relocation.type == Relocation::kNone;
    if (!answers.Case(ok)) Print("FAIL call %u: type %u at %x\n", call, o.frame.edx, o.frame.eax);
  }
  for (const u32 number : List{~0u, 0x80000000u, 0x40000000u}) {
    CheckEq("a number that no call has", RelocationOf(rom, number).type, Relocation::kNone);
  }
  // What a kernel dies of.
  for (const VmiCall must : List{kVmiIret, kVmiSysexit}) {
    const Relocation::Type type = RelocationOf(must).type;
    Check(type == Relocation::kCall || type == Relocation::kJump,
          "IRET and SYSEXIT lead somewhere");
  }
  CheckEq("both or neither of the long entries' calls",
          RelocationOf(kVmiSetPxeLong).type == Relocation::kNone,
          RelocationOf(kVmiUpdatePxeLong).type == Relocation::kNone);
  const bool timer = RelocationOf(kVmiGetCycleFrequency).type != Relocation::kNone;
  for (const VmiCall call :
       List{kVmiGetCycleCounter, kVmiSetAlarm, kVmiCancelAlarm, kVmiGetWallclockTime}) {
    CheckEq("a timer is all there or not at all", RelocationOf(call).type,
            timer ? Relocation::kCall : Relocation::kNone);
  }
}

void TestCpuid() {
  for (const u32 leaf : List{0u, 1u, 4u, 7u, 0x80000002u}) {
    // Leaf 1's APIC ID and leaf 7's subleaf are the arguments' as well.
    const Outcome o = Vmi(kVmiCpuid, leaf, 0, 0);
    const CpuidResult native = Cpuid(leaf);
    Check(o.Done() && o.frame.eax == native.eax && o.frame.ebx == native.ebx &&
              o.frame.ecx == native.ecx && o.frame.edx == native.edx,
          "CPUID");
    Check(o.frame.esi == kMarked.esi && o.frame.edi == kMarked.edi && o.frame.ebp == kMarked.ebp,
          "... keeps the other registers");
  }
}

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

void TestTables() {
  TablePointer get = {};
  const TablePointer gdtr = StoredGdt(), idtr = StoredIdt();
  TablePointer set = {static_cast<u16>(gdtr.limit - 8), gdtr.base};
  CheckVmi("SetGDT", kVmiSetGdt, At(&set));
  CheckEq("... limit", StoredGdt().limit, set.limit);
  CheckVmi("GetGDT", kVmiGetGdt, At(&get));
  Check(get.limit == set.limit && get.base == set.base, "... limit and base");
  LoadGdt();
  set = {static_cast<u16>(idtr.limit - 8), idtr.base};
  CheckVmi("SetIDT", kVmiSetIdt, At(&set));
  CheckEq("... limit", StoredIdt().limit, set.limit);
  CheckVmi("GetIDT", kVmiGetIdt, At(&get));
  Check(get.limit == set.limit && get.base == set.base, "... limit and base");
  LoadIdt();

  // An LDT, its descriptor and its entries; two words around each.
  alignas(8) static u64 table[4] = {1, 2, 3, 4};
  const u32 high[1] = {0x12345678};
  for (const VmiCall call : List{kVmiWriteGdtEntry, kVmiWriteLdtEntry, kVmiWriteIdtEntry}) {
    for (u64& entry : table) entry = 0x5555555555555555;
    CheckVmi("writing a descriptor", call, At(table), 2, 0x9abcdef0, high, 1);
    CheckEq("... its lower half", static_cast<u32>(table[2]), 0x9abcdef0);
    CheckEq("... its upper half", static_cast<u32>(table[2] >> 32), high[0]);
    Check(table[1] == 0x5555555555555555 && table[3] == 0x5555555555555555, "... and no other");
  }
  const u64 descriptor = Descriptor(At(ldt), sizeof(ldt) - 1, kLdt, 0);
  const u32 ldt_high[1] = {static_cast<u32>(descriptor >> 32)};
  Vmi(kVmiWriteGdtEntry, At(gdt), kLdtSelector / 8, static_cast<u32>(descriptor), ldt_high, 1);
  CheckVmi("SetLDT", kVmiSetLdt, kLdtSelector);
  CheckEq("GetLDT", CheckVmi("GetLDT returns", kVmiGetLdt).frame.eax & 0xffff, kLdtSelector);
  CheckVmi("SetLDT 0", kVmiSetLdt, 0);
  CheckEq("... GetLDT", Vmi(kVmiGetLdt).frame.eax & 0xffff, 0);

  SetGdt(kTss, Descriptor(At(&main_tss), kTss32Limit, kTss32, 0));
  CheckVmi("SetTR", kVmiSetTr, kTss);
  CheckEq("... makes the TSS busy", AccessByte(kTss), kTss32 | 2);
  CheckEq("GetTR", Vmi(kVmiGetTr).frame.eax & 0xffff, kTss);
  const Outcome o = Vmi(kVmiSetTr, kTss);
  Check(o.vector == kGeneralProtection && o.error == kTss, "SetTR of a busy TSS faults");
  // Nothing to do where the kernel runs in ring 0: the TSS in memory is the CPU's.
  const Relocation stack = RelocationOf(kVmiUpdateKernelStack);
  Check(stack.type == Relocation::kNop || CallVmi(stack, kMarked).Done(), "UpdateKernelStack");
}

void TestControl() {
  const u32 cr0 = ReadCr0(), cr3 = ReadCr3(), cr4 = ReadCr4();
  CheckVmi("SetCR0", kVmiSetCr0, cr0 | kCr0Ts);
  CheckEq("... TS", ReadCr0() & kCr0Ts, kCr0Ts);
  CheckEq("GetCR0", CheckVmi("GetCR0 returns", kVmiGetCr0).frame.eax, cr0 | kCr0Ts);
  CheckVmi("CLTS", kVmiClts);
  CheckEq("... TS is clear", ReadCr0(), cr0 & ~kCr0Ts);
  CheckVmi("SetCR2", kVmiSetCr2, 0x12345678);
  CheckEq("GetCR2", CheckVmi("GetCR2 returns", kVmiGetCr2).frame.eax, 0x12345678);
  CheckVmi("SetCR3", kVmiSetCr3, 0x345000);
  CheckEq("... CR3", ReadCr3(), 0x345000);
  CheckEq("GetCR3", CheckVmi("GetCR3 returns", kVmiGetCr3).frame.eax, 0x345000);
  WriteCr3(cr3);
  CheckVmi("SetCR4", kVmiSetCr4, cr4 ^ kCr4Pse);
  CheckEq("... CR4", ReadCr4(), cr4 ^ kCr4Pse);
  CheckEq("GetCR4", CheckVmi("GetCR4 returns", kVmiGetCr4).frame.eax, cr4 ^ kCr4Pse);
  WriteCr4(cr4);
  CheckVmi("WBINVD", kVmiWbinvd);
  Outcome o = Vmi(kVmiSetCr4, 0x80000000);
  CheckFault("SetCR4 with reserved bits", o, kGeneralProtection, 0);

  struct DebugRegister {
    u32 number, value, read;
  };
  static constexpr DebugRegister kRegisters[] = {{0, 0x1000, 0x1000},         {1, 0x2001, 0x2001},
                                                 {2, 0xfffffffc, 0xfffffffc}, {3, 3, 3},
                                                 {6, 0, 0xffff0ff0},          {7, 0, 0x400}};
  for (const DebugRegister& r : kRegisters) {
    CheckVmi("SetDR", kVmiSetDr, r.number, r.value);
    CheckEq("GetDR", CheckVmi("GetDR returns", kVmiGetDr, r.number).frame.eax, r.read);
  }
  for (const u32 number : List{0u, 1u, 2u, 3u}) Vmi(kVmiSetDr, number, 0);

  o = CheckVmi("RDTSC", kVmiRdtsc);
  const u64 before = u64{o.frame.edx} << 32 | o.frame.eax;
  u32 low, top;
  asm volatile("rdtsc" : "=a"(low), "=d"(top));
  Check((u64{top} << 32 | low) - before < 1'000'000'000, "... is the TSC");
  WriteMsr(0x175, 0x1111);
  o = CheckVmi("RDMSR", kVmiRdmsr, 0, 0, 0x175);
  Check(o.frame.eax == 0x1111 && o.frame.edx == 0, "... value");
  CheckVmi("WRMSR", kVmiWrmsr, 0x2222, 0, 0x175);
  CheckEq("... value", static_cast<u32>(ReadMsr(0x175)), 0x2222);

  // IOPL alone changes, and only by its own two bits.
  const void* flags = CODE32("pushfd; pop eax");
  for (const u32 iopl : List{0x3000u, 0x1000u, 0u}) {
    o = CallVmi(RelocationOf(kVmiSetIoplMask), {.eax = iopl | 0xffff0fff, .eflags = 2 | 0x2000});
    Check(o.Done() && (o.frame.eflags & (kFlagIopl | kFlagIf | kFlagTf | kFlagNt)) == iopl,
          "SetIOPLMask");
  }
  CheckDone("... and the kernel goes on", Run(flags, {}));
  for (const VmiCall call : List{kVmiMachineToPhysical, kVmiPhysicalToMachine}) {
    CheckEq("machine addresses are physical ones", Vmi(call, 0x12345).frame.eax, 0x12345);
  }
  const Relocation delay = RelocationOf(kVmiIoDelay);
  Check(delay.type == Relocation::kNop || CallVmi(delay, kMarked).Done(), "IODelay");
}

// The instruction of hypercalls is what it is on a CPU without a hypervisor.
void TestWithoutRom() {
  const void* call = CODE32("push 0; vmcall; nop");
  for (const unsigned ring : List{0u, 1u, 3u}) {
    CheckFault("VMCALL", Run(call, {}, ring), kInvalidOpcode, 0, At(call, 2));
  }
}

// Both forms of calls in one machine, in turn: half of them are those of a copy of the ROM, which
// has the other groups.
void TestMixed() {
  constexpr u32 kCopy = 0x00300000, kGroupsAt = 0x90;
  u32* groups = reinterpret_cast<u32*>(kCopy + kGroupsAt);
  for (const bool swapped : List{false, true}) {
    memcpy(reinterpret_cast<void*>(kCopy), rom, rom->blocks * 512u);
    *groups = ~*groups;
    const VmiHeader* found = rom;
    const VmiHeader* copy = reinterpret_cast<const VmiHeader*>(kCopy);
    rom = swapped ? copy : found;
    other_rom = swapped ? found : copy;
    CheckEq("VMI_Init of a copy", InitVmi(copy), 0);
    TestFlags();
    TestReturns();
    TestPages32();
    TestPagesPae();
    rom = other_rom = found;
  }
}

constexpr Section kSections[] = {
    {"header", TestHeader},     {"relocations", TestRelocations},
    {"cpuid", TestCpuid},       {"tables", TestTables},
    {"control", TestControl},   {"flags", TestFlags},
    {"returns", TestReturns},   {"halt", TestHalt},
    {"pages", TestPages32},     {"pae", TestPagesPae},
    {"hostile", TestHostile},   {"apic", TestLocalApic},
    {"timer", TestTimer},       {"linux", TestLinux},
    {"smp", TestSmp},           {"mixed", TestMixed},
    {"stolen", TestStolenTime},
};

}  // namespace

Relocation RelocationOf(VmiCall call) {
  return RelocationOf((call & 1) != 0 ? other_rom : rom, call);
}

Outcome Vmi(VmiCall call, u32 eax, u32 edx, u32 ecx, const u32* words, u32 count, u32 eflags) {
  Frame frame = kMarked;
  frame.eax = eax, frame.edx = edx, frame.ecx = ecx, frame.eflags = eflags;
  return CallVmi(RelocationOf(call), frame, words, count);
}

Outcome CheckVmi(const char* name, VmiCall call, u32 eax, u32 edx, u32 ecx, const u32* words,
                 u32 count) {
  const Outcome o = Vmi(call, eax, edx, ecx, words, count);
  CheckDone(name, o);
  const Frame& f = o.frame;
  if (f.ebx != kMarked.ebx || f.esi != kMarked.esi || f.edi != kMarked.edi ||
      f.ebp != kMarked.ebp || f.esp != ProbeStackTop() - 4 * count || (f.eflags & kFlagDf) != 0) {
    Check(false, name);
  }
  return o;
}

int Main() {
  rom = other_rom = FindVmi();
  const char* wanted = Option("rom");
  if (rom == nullptr) {
    if (wanted != nullptr) Check(false, "there is a VMI ROM");
    TestWithoutRom();
    Skip("VMI", "there is no ROM for it");
    return Summary();
  }
  const char* end = Option("end");
  if (end != nullptr) {
    InitVmi(rom);
    Vmi(Is(end, "reboot") ? kVmiReboot : kVmiShutdown);
    Panic("the machine goes on");
  }
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
