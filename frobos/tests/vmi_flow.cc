// SPDX-License-Identifier: Apache-2.0
// VMI's interrupt flag, its ways out of the kernel, and what it refuses.
#include "frobos/tests/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kSysenterCs = 0x174;
constexpr u32 kSetAlarm = 5;  // vcpu/hypercalls.inc: it takes words from the stack

// A return to what a site's IRET finds on its stack. The registers belong to whom it returns to.
Outcome RunIret(const u32* words, u32 count) {
  Frame frame = kMarked;
  frame.eax = 0xa0a0a0a0;
  return CallVmi(RelocationOf(kVmiIret), frame, words, count);
}

bool KeptAll(const Frame& f) {
  return f.eax == 0xa0a0a0a0 && f.ebx == kMarked.ebx && f.ecx == kMarked.ecx &&
         f.edx == kMarked.edx && f.esi == kMarked.esi && f.edi == kMarked.edi &&
         f.ebp == kMarked.ebp;
}

// The kernel knows the site alone, and can mend a fault there and nowhere else. Transparent calls
// make theirs in the ROM.
void CheckFaultOfReturn(const char* name, const Outcome& o, VmiCall call, u8 vector, u32 error,
                        u32 words) {
  CheckFault(name, o, vector, error);
  const Relocation relocation = RelocationOf(call);
  if (relocation.type == Relocation::kJump) {
    Check(o.frame.eip - relocation.address < 16, "... in the ROM");
  } else {
    CheckEq("... at the site", o.frame.eip, VmiSite());
  }
  CheckEq("... with the stack as the site found it", o.frame.esp, ProbeStackTop() - 4 * words);
}

}  // namespace

void TestFlags() {
  // These keep even the registers of arguments: sites in assembly have other things in them.
  const auto kept = [](const char* name, const Outcome& o, u32 eax) {
    CheckDone(name, o);
    Check(o.frame.eax == eax && o.frame.ecx == kMarked.ecx && o.frame.edx == kMarked.edx &&
              o.frame.ebx == kMarked.ebx && o.frame.esp == ProbeStackTop(),
          "... keeps all registers");
  };
  const auto run = [](VmiCall call, u32 eax, u32 eflags) {
    return Vmi(call, eax, kMarked.edx, kMarked.ecx, nullptr, 0, eflags);
  };
  for (const u32 was : List{u32{kFlagsFixed}, kFlagsFixed | kFlagIf}) {
    Outcome o = run(kVmiEnableInterrupts, 0x77, was);
    kept("EnableInterrupts", o, 0x77);
    CheckEq("... IF", o.frame.eflags & kFlagIf, kFlagIf);
    o = run(kVmiDisableInterrupts, 0x77, was);
    kept("DisableInterrupts", o, 0x77);
    CheckEq("... IF", o.frame.eflags & kFlagIf, 0);
    o = run(kVmiGetInterruptMask, 0, was);
    CheckDone("GetInterruptMask", o);
    CheckEq("... bit 9", o.frame.eax & kFlagIf, was & kFlagIf);
    Check(o.frame.ecx == kMarked.ecx && o.frame.edx == kMarked.edx, "... keeps all but EAX");
    CheckEq("... IF stays", o.frame.eflags & kFlagIf, was & kFlagIf);
    const u32 image = o.frame.eax;
    for (const u32 mask : List{u32{0}, u32{kFlagIf}, image}) {
      o = run(kVmiSetInterruptMask, mask, was);
      kept("SetInterruptMask", o, mask);
      CheckEq("... IF", o.frame.eflags & kFlagIf, mask & kFlagIf);
      CheckEq("... and no other flag of the system",
              o.frame.eflags & (kFlagTf | kFlagIopl | kFlagNt | kFlagAc), 0);
    }
  }
}

void TestReturns() {
  // To a user's program.
  const void* program = CODE32("nop");
  const u32 user[5] = {At(program), CodeSelector(3), kFlagsFixed | kFlagIf | kFlagCf,
                       ProbeStackTop() - 0x100, DataSelector(3)};
  Outcome o = RunIret(user, 5);
  CheckDone("IRET to ring 3", o);
  CheckEq("... cs", o.frame.cs, CodeSelector(3));
  CheckEq("... ss", o.frame.ss, DataSelector(3));
  CheckEq("... esp", o.frame.esp, user[3]);
  CheckEq("... flags", o.frame.eflags & (kFlagIf | kFlagCf), kFlagIf | kFlagCf);
  Check(KeptAll(o.frame), "... keeps all registers");
  // To the kernel.
  const u32 kernel[3] = {At(program), CodeSelector(0), kFlagsFixed | kFlagZf};
  o = RunIret(kernel, 3);
  CheckDone("IRET to ring 0", o);
  CheckEq("... esp", o.frame.esp, ProbeStackTop());
  CheckEq("... flags", o.frame.eflags & (kFlagIf | kFlagZf), kFlagZf);
  Check(KeptAll(o.frame), "... keeps all registers");
  // To virtual-8086 mode, where INT 7fh by IOPL 3 ends it.
  u8* low = reinterpret_cast<u8*>(0x20100);
  low[0] = 0xcd, low[1] = kProbeExit;
  const u32 v86[9] = {0x100,  0x2000, kFlagsFixed | kFlagVm | kFlagIopl,
                      0x1000, 0x3000, 0x4000,
                      0x5000, 0x6000, 0x7000};
  o = RunIret(v86, 9);
  CheckDone("IRET to virtual-8086 mode", o);
  CheckEq("... es", o.frame.es, 0x4000);
  CheckEq("... gs", o.frame.gs, 0x7000);
  CheckEq("... VM", o.frame.eflags & kFlagVm, kFlagVm);
  Check(KeptAll(o.frame), "... keeps all registers");

  // What a program can put into its frame, by ptrace or a signal's return.
  u32 bad[5];
  const auto with = [&](u32 index, u32 value) {
    for (u32 i = 0; i < 5; i++) bad[i] = i == index ? value : user[i];
    return RunIret(bad, 5);
  };
  CheckFaultOfReturn("IRET to a null CS", with(1, 0), kVmiIret, kGeneralProtection, 0, 5);
  CheckFaultOfReturn("IRET to a CS that is data", with(1, DataSelector(3)), kVmiIret,
                     kGeneralProtection, DataSelector(3) & ~3u, 5);
  CheckFaultOfReturn("IRET to a CS outside the GDT", with(1, 0xfffb), kVmiIret, kGeneralProtection,
                     0xfff8, 5);
  CheckFaultOfReturn("IRET to a null SS", with(4, 0), kVmiIret, kGeneralProtection, 0, 5);
  SetGdt(kSpare, Flat((kCode | kDpl3) & ~kPresent));
  CheckFaultOfReturn("IRET to a CS that is not present", with(1, kSpare | 3), kVmiIret,
                     kSegmentNotPresent, kSpare, 5);
  SetGdt(kSpare, Flat((kData | kDpl3) & ~kPresent));
  CheckFaultOfReturn("IRET to an SS that is not present", with(4, kSpare | 3), kVmiIret,
                     kStackFault, kSpare, 5);
  // Whoever comes there by another way has no site: an indirect call, a jump, somebody's data.
  const Relocation relocation = RelocationOf(kVmiIret);
  if (relocation.type == Relocation::kCall) {
    u32* stack = reinterpret_cast<u32*>(ProbeStackTop()) - 5;
    for (u32 i = 0; i < 5; i++) stack[i] = i == 1 ? 0 : user[i];
    const Frame frame = {.eax = relocation.address, .esp = At(stack)};
    const void* other_call = CODE32("call eax");
    const void* jump = CODE32("lea esp, [esp - 4]; jmp eax");
    for (const void* code : List{other_call, jump}) {
      for (const u32 below : List{0u, 3u, 0xfffffffeu, At(code, 5)}) {
        stack[-1] = below;
        o = Run(code, frame);
        CheckFault("IRET in the ROM's function without a site", o, kGeneralProtection, 0);
        Check(o.frame.eip - relocation.address < 16, "... in the ROM");
        CheckEq("... with the stack behind the return address", o.frame.esp, At(stack));
      }
    }
  }

  // STI and SYSEXIT as one.
  if ((Cpuid(1).edx >> 11 & 1) == 0) return Skip("SYSEXIT", "CPUID does not show it");
  SetGdt(kSpare, Flat(kCode));
  SetGdt(kSpare + 8, Flat(kData));
  SetGdt(kSpare + 16, Flat(kCode | kDpl3));
  SetGdt(kSpare + 24, Flat(kData | kDpl3));
  WriteMsr(kSysenterCs, kSpare);
  const Frame frame = {.eax = 0xa0a0a0a0,
                       .ebx = kMarked.ebx,
                       .ecx = ProbeStackTop() - 0x80,
                       .edx = At(program),
                       .esi = kMarked.esi,
                       .edi = kMarked.edi,
                       .ebp = kMarked.ebp};
  o = CallVmi(RelocationOf(kVmiSysexit), frame);
  CheckDone("SYSEXIT", o);
  CheckEq("... cs", o.frame.cs, (kSpare + 16) | 3);
  CheckEq("... ss", o.frame.ss, (kSpare + 24) | 3);
  CheckEq("... esp", o.frame.esp, frame.ecx);
  CheckEq("... IF", o.frame.eflags & kFlagIf, kFlagIf);
  Check(o.frame.eax == frame.eax && o.frame.ebx == frame.ebx && o.frame.esi == frame.esi &&
            o.frame.edi == frame.edi && o.frame.ebp == frame.ebp,
        "... keeps all registers");
  WriteMsr(kSysenterCs, 0);
  o = CallVmi(RelocationOf(kVmiSysexit), frame);
  if (RelocationOf(kVmiSysexit).type == Relocation::kCall) {
    CheckFaultOfReturn("SYSEXIT without its MSR", o, kVmiSysexit, kGeneralProtection, 0, 0);
  } else {
    CheckFault("SYSEXIT without its MSR", o, kGeneralProtection, 0);
  }
}

// VMCALL without the ROM, and the ROM from where it must not be called.
void TestHostile() {
  const void* call = CODE32("push eax; vmcall; nop");
  const u32 at = At(call, 1);
  for (const u32 number : List{11u, 74u, 0x80000000u, ~0u}) {
    CheckFault("a number of no hypercall", Run(call, {.eax = number}), kInvalidOpcode, 0, at);
  }
  for (const unsigned ring : List{1u, 2u, 3u}) {
    for (const u32 number : List{0u, 1u, 2u, 5u, 7u}) {
      CheckFault("a hypercall outside ring 0", Run(call, {.eax = number}, ring), kInvalidOpcode, 0,
                 at);
    }
  }
  SetGdt(kSpare, Descriptor(0, 0xfffff, kCode, kGranular | k16Bit));
  const void* call16 = CODE16("push eax; vmcall; nop");
  CheckFault("a hypercall of 16-bit code", Run(call16, {.eax = 0, .cs = kSpare}), kInvalidOpcode,
             0);
  u8* low = reinterpret_cast<u8*>(0x20100);
  low[0] = 0x0f, low[1] = 0x01, low[2] = 0xc1;
  const Outcome v86 = RunFrame({.esp = 0x1000,
                                .ss = 0x3000,
                                .eip = 0x100,
                                .cs = 0x2000,
                                .eflags = kFlagsFixed | kFlagVm | kFlagIopl});
  CheckFault("a hypercall of virtual-8086 mode", v86, kInvalidOpcode, 0, 0x100);
  // A stack that is too small for what the hypercall takes from it.
  constexpr u32 kStackBytes = 256;
  SetGdt(kSpare, Descriptor(ProbeStackTop() - kStackBytes, kStackBytes - 1, kData, k32Bit));
  const void* bare = CODE32("vmcall; nop");
  {
    reinterpret_cast<u32*>(ProbeStackTop())[-1] = kSetAlarm;
    const Outcome o = Run(bare, {.esp = kStackBytes - 4, .ss = kSpare});
    CheckFault("a stack that ends too early", o, kStackFault, 0, At(bare));
    CheckEq("... is as it was", o.frame.esp, kStackBytes - 4);
  }
  // An entry that is at no address of ours, or nobody's RAM: a store like any other.
  if (RelocationOf(kVmiSetPxe).type == Relocation::kCall) {
    CheckDone("SetPxE outside RAM", Vmi(kVmiSetPxe, 0x1027, 0xe0000000, 1));
    CheckDone("SetPxE across the end of the address space", Vmi(kVmiSetPxe, 0x1027, 0xfffffff8, 2));
  }
  const Relocation read = RelocationOf(kVmiApicRead);
  if (read.type == Relocation::kCall) {
    for (const u32 offset : List{0x1000u, 0x80000000u, ~0u}) {
      CheckEq("APICRead outside the page", Vmi(kVmiApicRead, offset).frame.eax, 0);
      CheckDone("APICWrite outside the page", Vmi(kVmiApicWrite, offset, ~0u));
    }
    CheckFault("APICRead in ring 3", Run(reinterpret_cast<const void*>(read.address), {}, 3),
               kInvalidOpcode, 0);
  }
}

}  // namespace alibi::frobos
