// SPDX-License-Identifier: Apache-2.0
// Call, interrupt and trap gates, far returns and IRET through all privilege levels, with stack
// switches and every fault on the way (SDM vol. 3A ch. 5 and 6; vol. 2: CALL, JMP, RET, INT, IRET).

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u16 kGateSelector = kSpare, kTarget = kSpare + 8, kOther = kSpare + 16;
constexpr u8 kVector = 0x40;

struct [[gnu::packed]] FarPointer {
  u32 offset;
  u16 selector;
};
FarPointer far_pointer;

struct Fault {
  u8 vector;  // kProbeExit: none
  u16 error;
};

enum Kind : u8 { kNonconforming, kConformingKind, kExecuteOnly, kDataKind, kKinds };
constexpr u8 kKindAccess[kKinds] = {kCode, kConforming, kCodeExecuteOnly, kData};

// The target of a gate, as the matrices below vary it.
struct Target {
  unsigned ring, rpl, gate_dpl, dpl;
  Kind kind;
  bool gate_present, present;
};

template <class Body>
void ForAllTargets(Body body) {
  for (unsigned i = 0; i < 4096; i++) {
    body(Target{i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6 & 3, static_cast<Kind>(i >> 8 & 3),
                (i >> 10 & 1) != 0, (i >> 11 & 1) != 0});
  }
}

void Describe(const char* what, const Target& t, const Outcome& o, Fault want) {
  Print(
      "FAIL %s: CPL %u RPL %u gate DPL %u P %u, target kind %u DPL %u P %u: expected %s error 0x%x "
      "got %s error 0x%x cs %x ss:esp %x:%x\n",
      what, t.ring, t.rpl, t.gate_dpl, t.gate_present, t.kind, t.dpl, t.present,
      VectorName(want.vector), want.error, VectorName(o.vector), o.error, o.frame.cs, o.frame.ss,
      o.frame.esp);
}

u8 TargetAccess(const Target& t) {
  return static_cast<u8>((kKindAccess[t.kind] & ~(t.present ? 0 : kPresent)) | t.dpl << 5);
}

// SDM vol. 2, CALL and JMP: call-gate; vol. 3A 5.8.4.
Fault ExpectCallGate(const Target& t, bool jump) {
  if (t.gate_dpl < t.ring || t.rpl > t.gate_dpl) return {kGeneralProtection, kGateSelector};
  if (!t.gate_present) return {kSegmentNotPresent, kGateSelector};
  if (t.kind == kDataKind || t.dpl > t.ring) return {kGeneralProtection, kTarget};
  if (jump && t.kind != kConformingKind && t.dpl != t.ring) return {kGeneralProtection, kTarget};
  if (!t.present) return {kSegmentNotPresent, kTarget};
  return {kProbeExit, 0};
}

void TestCallGates() {
  const void* target = CODE32("nop");
  const void* call = CODE32("2: call fword ptr [ebx]; 3:");
  const void* jump = CODE32("jmp fword ptr [ebx]");
  for (const bool is_jump : List{false, true}) {
    Group cases(is_jump ? "jump through a call gate" : "call through a call gate");
    ForAllTargets([&](const Target& t) {
      SetGdt(kTarget, Flat(TargetAccess(t)));
      const u8 access = static_cast<u8>((t.gate_present ? kCallGate32 : kCallGate32 & ~kPresent) |
                                        t.gate_dpl << 5);
      SetGdt(kGateSelector, Gate(kTarget, At(target), access));
      far_pointer = {0xdeadbeef, static_cast<u16>(kGateSelector | t.rpl)};
      const void* code = is_jump ? jump : call;
      const Outcome o = Run(code, {.ebx = At(&far_pointer)}, t.ring);
      const Fault want = ExpectCallGate(t, is_jump);
      // QEMU changes to the ring of a conforming target (SDM vol. 2, CALL), and a jump to an absent
      // one is #GP there (SDM vol. 2, JMP).
      if (OnQemu() && want.vector == kProbeExit && t.kind == kConformingKind) return;
      if (OnQemu() && is_jump && want.vector == kSegmentNotPresent && t.gate_present) return;
      bool ok = o.Is(want.vector, want.error);
      if (ok && want.vector != kProbeExit) ok = o.frame.eip == At(code);
      if (ok && want.vector == kProbeExit) {
        const bool inner = !is_jump && t.kind != kConformingKind && t.dpl < t.ring;
        const unsigned ring = inner ? t.dpl : t.ring;
        ok = o.frame.cs == (kTarget | ring);
        if (inner) {
          ok = ok && o.frame.ss == DataSelector(ring) && o.frame.esp == RingStackTop(ring) - 16;
          ok = ok && StackDword(o, 2) == ProbeStackTop() && StackWord(o, 6) == DataSelector(t.ring);
        } else {
          ok = ok && o.frame.ss == DataSelector(ring) &&
               o.frame.esp == ProbeStackTop() - (is_jump ? 0 : 8);
        }
        if (!is_jump) {
          ok = ok && StackDword(o, 0) == At(call, 2) && StackWord(o, 2) == CodeSelector(t.ring);
        }
      }
      if (!cases.Case(ok)) Describe(is_jump ? "jump" : "call", t, o, want);
    });
  }

  SkipOnQemu("call gates to conforming code; jumps to absent code (SDM vol. 2, CALL and JMP)");

  // Parameters are copied from the outer stack; a far return with an immediate drops both copies.
  const void* callee =
      CODE32("mov eax, [esp+8]; mov ecx, [esp+24]; mov edx, [esp+28]; mov esi, [esp+32]; retf 20");
  SetGdt(kGateSelector, Gate(CodeSelector(0), At(callee), kCallGate32 | kDpl3, 5));
  const void* caller = CODE32(
      "push 5; push 4; push 3; push 2; push 1; call fword ptr [ebx]; mov "
      "edi, esp");
  far_pointer = {0, kGateSelector};
  Outcome o = Run(caller, {.ebx = At(&far_pointer)}, 3);
  CheckDone("a call gate with 5 parameters, and back", o);
  CheckEq("... the last pushed is nearest", o.frame.eax, 1);
  CheckEq("... the first is farthest", o.frame.ecx, 5);
  CheckEq("... above it the outer esp", o.frame.edx, ProbeStackTop() - 20);
  CheckEq("... and ss", o.frame.esi & 0xffff, DataSelector(3));
  CheckEq("... ret 20 dropped the outer copies", o.frame.edi, ProbeStackTop());
  CheckEq("... cs", o.frame.cs, CodeSelector(3));

  // The same ring copies none.
  SetGdt(kGateSelector, Gate(CodeSelector(3), At(CODE32("nop")), kCallGate32 | kDpl3, 5));
  o = Run(CODE32("push 1; call fword ptr [ebx]"), {.ebx = At(&far_pointer)}, 3);
  CheckEq("without a change of ring there are no copies", o.frame.esp, ProbeStackTop() - 12);

  // 16-bit gates: 16-bit pushes, and 16 bits of the offset.
  const void* small = CODE32("nop");
  SetGdt(kTarget, Descriptor(At(small) - 0x20, 0xfffff, kCode, kGranular | k32Bit));
  // The upper half of its offset is reserved (SDM vol. 3A 5.8.3); QEMU takes it for 16-bit gates
  // too.
  const u32 junk = OnQemu() ? 0 : 0xabcd0000;
  SetGdt(kGateSelector, Gate(kTarget, junk | 0x20, kCallGate16 | kDpl3, 2));
  o = Run(CODE32("push 0x55556666; push ax; call fword ptr [ebx]"),
          {.eax = 0x1111, .ebx = At(&far_pointer)}, 3);
  CheckDone("a 16-bit call gate", o);
  CheckEq("... two bytes for each push", o.frame.esp, RingStackTop(0) - 12);
  CheckEq("... cs", StackWord(o, 1), CodeSelector(3));
  CheckEq("... parameters are words", StackWord(o, 2), 0x1111);
  CheckEq("... the second", StackWord(o, 3), 0x6666);
  CheckEq("... sp", StackWord(o, 4), (ProbeStackTop() - 6) & 0xffff);
  CheckEq("... ss", StackWord(o, 5), DataSelector(3));

  // What the target may be, and where it lies.
  const void* call2 = CODE32("call fword ptr [ebx]");
  const auto fault = [&](const char* name, u64 gate, u8 vector, u32 error) {
    SetGdt(kGateSelector, gate);
    CheckFault(name, Run(call2, {.ebx = At(&far_pointer)}, 3), vector, error, At(call2));
  };
  fault("a gate to a null selector", Gate(3, At(target), kCallGate32 | kDpl3), kGeneralProtection,
        0);
  fault("a gate beyond the GDT", Gate(sizeof(gdt) + 8, At(target), kCallGate32 | kDpl3),
        kGeneralProtection, sizeof(gdt) + 8);
  fault("a gate to a gate", Gate(kGateSelector, At(target), kCallGate32 | kDpl3),
        kGeneralProtection, kGateSelector);
  SetGdt(kTarget, Descriptor(At(target), 0, kCode, k32Bit));
  if (!SkipOnQemu("a call gate to beyond the segment's limit (SDM vol. 2, CALL)")) {
    fault("a gate to beyond the segment's limit", Gate(kTarget, 1, kCallGate32 | kDpl3),
          kGeneralProtection, 0);
  }
}

// Faults of the switch to the inner stack, seen from ring 0: the target is in ring 1.
void TestStackSwitch() {
  const void* target = CODE32("nop");
  const void* call = CODE32("call fword ptr [ebx]");
  const void* interrupt = CODE32("int 0x40");
  SetGdt(kGateSelector, Gate(CodeSelector(1), At(target), kCallGate32 | kDpl3));
  SetIdt(kVector, Gate(CodeSelector(1), At(target), kInterruptGate32 | kDpl3));
  far_pointer = {0, kGateSelector};
  struct Case {
    const char* name;
    u64 descriptor;
    u16 selector;
    u8 vector;
    u16 error;
  };
  const Case cases[] = {
      {"null", 0, 0, kInvalidTss, 0},
      {"null with RPL 1", 0, 1, kInvalidTss, 0},
      {"beyond the GDT", 0, sizeof(gdt) | 1, kInvalidTss, sizeof(gdt)},
      {"of RPL 0", Flat(kData | kDpl1), kOther, kInvalidTss, kOther},
      {"of RPL 2", Flat(kData | kDpl1), kOther | 2, kInvalidTss, kOther},
      {"of DPL 0", Flat(kData), kOther | 1, kInvalidTss, kOther},
      {"of DPL 3", Flat(kData | kDpl3), kOther | 1, kInvalidTss, kOther},
      {"read-only", Flat(kDataReadOnly | kDpl1), kOther | 1, kInvalidTss, kOther},
      {"code", Flat(kCode | kDpl1), kOther | 1, kInvalidTss, kOther},
      {"a system segment", Flat(kLdt | kDpl1), kOther | 1, kInvalidTss, kOther},
      {"absent", Flat((kData & ~kPresent) | kDpl1), kOther | 1, kStackFault, kOther},
  };
  for (const Case& c : cases) {
    SetGdt(kOther, c.descriptor);
    main_tss.ss1 = c.selector;
    // QEMU: #TS (SDM vol. 2, CALL and INT: #SS).
    if (c.vector == kStackFault && SkipOnQemu("an absent inner stack")) continue;
    Print("     ss1 %s\n", c.name);
    CheckFault("call with a bad inner ss", Run(call, {.ebx = At(&far_pointer)}, 3), c.vector,
               c.error, At(call));
    CheckFault("int with a bad inner ss", Run(interrupt, {}, 3), c.vector, c.error, At(interrupt));
  }
  if (!SkipOnQemu("an inner stack without room (SDM vol. 2, CALL and INT)")) {
    SetGdt(kOther, Descriptor(0, 0x1000, kExpandDown | kDpl1, k32Bit));
    main_tss.ss1 = kOther | 1;
    const u32 esp1 = main_tss.esp1;
    main_tss.esp1 = 0x1000 + 12;
    CheckFault("call: no room on the inner stack", Run(call, {.ebx = At(&far_pointer)}, 3),
               kStackFault, kOther, At(call));
    CheckFault("int: no room on the inner stack", Run(interrupt, {}, 3), kStackFault, kOther,
               At(interrupt));
    main_tss.esp1 = esp1;
  }
  main_tss.ss1 = DataSelector(1);
  // A TSS that is too short for ring 1's stack , but not for ring 0's.
  LoadMainTss(16);
  CheckFault("call: the TSS ends before ss1", Run(call, {.ebx = At(&far_pointer)}, 3), kInvalidTss,
             kTss, At(call));
  CheckFault("int: the TSS ends before ss1", Run(interrupt, {}, 3), kInvalidTss, kTss,
             At(interrupt));
  LoadMainTss(19);
  CheckDone("call: the TSS ends with ring 1's stack", Run(call, {.ebx = At(&far_pointer)}, 3));
  LoadMainTss();
  // A 16-bit stack in the inner ring: SP counts, the rest of ESP comes from the TSS.
  alignas(16) static u8 stack[256];
  SetGdt(kOther, Descriptor(At(stack), 0xffff, kData | kDpl1, k16Bit));
  main_tss.ss1 = kOther | 1;
  const u32 esp1 = main_tss.esp1;
  main_tss.esp1 = 0xabcd0100;
  const Outcome o = Run(call, {.ebx = At(&far_pointer)}, 3);
  CheckEq("an inner stack with B=0", o.frame.esp & 0xffff, 0x00f0);
  CheckEq("... the return address", StackDword(o, 0), At(call, 2));
  main_tss.ss1 = DataSelector(1);
  main_tss.esp1 = esp1;
  RestoreIdt(kVector);
}

// The inner stacks of a 16-bit TSS: words, at other places.
void TestTss16() {
  alignas(16) static u8 stack[256];
  alignas(64) static u16 tss16[22];
  for (u16& word : tss16) word = 0;
  tss16[1] = 0x100, tss16[2] = kOther;           // sp0, ss0
  tss16[3] = 0x80, tss16[4] = (kOther + 8) | 1;  // sp1, ss1
  SetGdt(kOther, Descriptor(At(stack), 0xffff, kData, k32Bit));
  SetGdt(kOther + 8, Descriptor(At(stack), 0xffff, kData | kDpl1, k16Bit));
  const u16 selector = SetGdt(kOther + 16, Descriptor(At(tss16), 43, kTss16, 0));
  WriteTr(selector);
  const void* target = CODE32("mov esi, esp; mov edi, ss");
  SetIdt(kVector, Gate(CodeSelector(0), At(target), kInterruptGate32 | kDpl3));
  Outcome o = Run(CODE32("int 0x40"), {}, 3);
  CheckDone("INT n with a 16-bit TSS", o);
  CheckEq("... ss0", o.frame.edi & 0xffff, kOther);
  CheckEq("... sp0, and no more of ESP", o.frame.esi, 0x100 - 20);
  SetGdt(kGateSelector, Gate(CodeSelector(1), At(target), kCallGate32 | kDpl3));
  far_pointer = {0, kGateSelector};
  o = Run(CODE32("call fword ptr [ebx]"), {.ebx = At(&far_pointer)}, 3);
  CheckDone("a call gate to ring 1 with it", o);
  CheckEq("... ss1", o.frame.edi & 0xffff, (kOther + 8) | 1u);
  CheckEq("... sp1", o.frame.esi & 0xffff, 0x80 - 16);
  const void* in = CODE32("in al, 0x80");
  CheckFault("a 16-bit TSS has no I/O map", Run(in, {}, 3), kGeneralProtection, 0, At(in));
  RestoreIdt(kVector);
  LoadMainTss();
}

// RETF and IRET to every ring and kind of code (SDM vol. 2, RET and IRET).
void TestReturns() {
  const void* target = CODE32("nop");
  const void* retf = CODE32("push edx; push esi; push ebx; push ecx; retf");
  const void* iret = CODE32("push edx; push esi; push 2; push ebx; push ecx; iretd");
  constexpr u32 kRetfLength = 4, kIretLength = 6;
  for (const bool is_iret : List{false, true}) {
    Group cases(is_iret ? "iret" : "far return");
    ForAllTargets([&](const Target& t) {
      if (t.gate_dpl != 0 || !t.gate_present) return;
      SetGdt(kTarget, Flat(TargetAccess(t)));
      const void* code = is_iret ? iret : retf;
      const u32 outer_esp = ProbeStackTop() - 0x100;
      const Outcome o = Run(
          code,
          {.ebx = kTarget | t.rpl, .ecx = At(target), .edx = DataSelector(t.rpl), .esi = outer_esp},
          t.ring);
      Fault want = {kProbeExit, 0};
      if (t.rpl < t.ring || t.kind == kDataKind) {
        want = {kGeneralProtection, kTarget};
      } else if (t.kind == kConformingKind ? t.dpl > t.rpl : t.dpl != t.rpl) {
        want = {kGeneralProtection, kTarget};
      } else if (!t.present) {
        want = {kSegmentNotPresent, kTarget};
      }
      bool ok = o.Is(want.vector, want.error);
      if (ok && want.vector != kProbeExit) {
        ok = o.frame.eip == At(code, is_iret ? kIretLength : kRetfLength);
      }
      if (ok && want.vector == kProbeExit) {
        ok = o.frame.cs == (kTarget | t.rpl) && o.frame.ss == DataSelector(t.rpl);
        ok = ok && o.frame.esp == (t.rpl > t.ring ? outer_esp : ProbeStackTop() - 8);
      }
      if (!cases.Case(ok)) Describe(is_iret ? "iret" : "retf", t, o, want);
    });
  }

  // The outer SS.
  struct Case {
    const char* name;
    u64 descriptor;
    u16 selector;
    u8 vector;
    u16 error;
  };
  const Case cases[] = {
      {"null", 0, 3, kGeneralProtection, 0},
      {"RPL 2", Flat(kData | kDpl3), kOther | 2, kGeneralProtection, kOther},
      {"DPL 2", Flat(kData | kDpl2), kOther | 3, kGeneralProtection, kOther},
      {"read-only", Flat(kDataReadOnly | kDpl3), kOther | 3, kGeneralProtection, kOther},
      {"code", Flat(kCode | kDpl3), kOther | 3, kGeneralProtection, kOther},
      {"beyond the GDT", 0, sizeof(gdt) | 3, kGeneralProtection, sizeof(gdt)},
      {"absent", Flat((kData & ~kPresent) | kDpl3), kOther | 3, kStackFault, kOther},
  };
  for (const Case& c : cases) {
    SetGdt(kOther, c.descriptor);
    const Frame f = {
        .ebx = CodeSelector(3), .ecx = At(target), .edx = c.selector, .esi = ProbeStackTop()};
    // QEMU: #NP (SDM vol. 2, RET and IRET: #SS).
    if (c.vector == kStackFault && SkipOnQemu("an absent outer stack")) continue;
    Print("     outer ss %s\n", c.name);
    CheckFault("retf with a bad outer ss", Run(retf, f), c.vector, c.error, At(retf, kRetfLength));
    CheckFault("iret with a bad outer ss", Run(iret, f), c.vector, c.error, At(iret, kIretLength));
  }
  Outcome o = Run(retf, {.ebx = 0, .ecx = At(target)});
  CheckFault("retf to a null cs", o, kGeneralProtection, 0, At(retf, kRetfLength));

  // Segments that the outer ring may not use become null.
  SetGdt(kTarget, Flat(kConforming));
  SetGdt(kOther, Flat(kCode | kDpl2));
  o = Run(retf, {.ebx = CodeSelector(3),
                 .ecx = At(target),
                 .edx = DataSelector(3),
                 .esi = ProbeStackTop(),
                 .ds = DataSelector(0),
                 .es = DataSelector(3),
                 .fs = kTarget,
                 .gs = kOther});
  CheckEq("return to ring 3: ds of DPL 0 becomes null", o.frame.ds, 0);
  CheckEq("... es of DPL 3 stays", o.frame.es, DataSelector(3));
  CheckEq("... conforming fs stays", o.frame.fs, kTarget);
  CheckEq("... gs of DPL 2 becomes null", o.frame.gs, 0);
  o = Run(iret, {.ebx = CodeSelector(2),
                 .ecx = At(target),
                 .edx = DataSelector(2),
                 .esi = ProbeStackTop(),
                 .ds = DataSelector(2),
                 .es = DataSelector(1),
                 .gs = kOther});
  CheckEq("iret to ring 2: ds of DPL 2 stays", o.frame.ds, DataSelector(2));
  CheckEq("... es of DPL 1 becomes null", o.frame.es, 0);
  CheckEq("... gs of DPL 2 stays", o.frame.gs, kOther);

  o = Run(CODE32("push 0x77; push cs; push ecx; retf 4"), {.ecx = At(target)});
  CheckEq("retf with an immediate", o.frame.esp, ProbeStackTop());
  const void* retf_inner = CODE32("push edx; push esi; push 1; push 2; push ebx; push ecx; retf 8");
  o = Run(retf_inner, {.ebx = CodeSelector(3),
                       .ecx = At(target),
                       .edx = DataSelector(3),
                       .esi = ProbeStackTop() - 0x40});
  CheckEq("... to an outer ring drops from both stacks", o.frame.esp, ProbeStackTop() - 0x38);
  // 16-bit forms.
  SetGdt(kTarget, Descriptor(At(target) - 0x30, 0xffff, kCode, k32Bit));
  o = Run(CODE32("push bx; push cx; .byte 0x66; retf"), {.ebx = kTarget, .ecx = 0x30});
  Check(o.Done() && o.frame.cs == kTarget && o.frame.esp == ProbeStackTop(), "16-bit retf");
  o = Run(CODE32("push dx; push bx; push cx; iretw"),
          {.ebx = kTarget, .ecx = 0x30, .edx = kFlagCf | kFlagSf, .eflags = 2 | kFlagId});
  Check(o.Done() && o.frame.cs == kTarget && o.frame.esp == ProbeStackTop(), "16-bit iret");
  CheckEq("... keeps the upper flags", o.frame.eflags, 2 | kFlagCf | kFlagSf | kFlagId);
  // To an outer ring with 16-bit operands: SP is a word, and the rest of ESP is 0.
  SetGdt(kTarget, Descriptor(At(target) - 0x30, 0xffff, kCode | kDpl3, k32Bit));
  SetGdt(kOther, Descriptor(ProbeStackTop() - 0x1000, 0xffff, kData | kDpl3, k32Bit));
  const Frame outer = {.ebx = kTarget | 3, .ecx = 0x30, .edx = kOther | 3, .esi = 0x800};
  o = Run(CODE32("push dx; push si; push bx; push cx; .byte 0x66; retf"), outer);
  CheckDone("16-bit retf to ring 3", o);
  Check(o.frame.cs == (kTarget | 3) && o.frame.ss == (kOther | 3) && o.frame.esp == 0x800,
        "... cs, ss and esp");
  o = Run(
      CODE32("push dx; push si; push word ptr 7; push word ptr 8; push bx; push cx; .byte 0x66; "
             "retf 4"),
      outer);
  Check(o.Done() && o.frame.esp == 0x804, "... with an immediate");
  o = Run(CODE32("push dx; push si; push word ptr 0x0003; push bx; push cx; iretw"), outer);
  CheckDone("16-bit iret to ring 3", o);
  Check(o.frame.cs == (kTarget | 3) && o.frame.ss == (kOther | 3) && o.frame.esp == 0x800,
        "... cs, ss and esp");
  CheckEq("... flags", o.frame.eflags, 3);
  if (!SkipOnQemu("returns to beyond the limit (SDM vol. 2, RET and IRET)")) {
    SetGdt(kTarget, Descriptor(At(target), 0, kCode, k32Bit));
    CheckFault("retf to beyond the limit",
               Run(retf, {.ebx = kTarget, .ecx = 1, .edx = 0, .esi = 0}), kGeneralProtection, 0,
               At(retf, kRetfLength));
  }
}

// INT n through every kind of gate.
void TestInterruptGates() {
  const void* target = CODE32("nop");
  const void* interrupt = CODE32("int 0x40; 2:");
  for (const u8 type : List{kInterruptGate32, kTrapGate32}) {
    Group cases(type == kInterruptGate32 ? "int through an interrupt gate"
                                         : "int through a trap gate");
    ForAllTargets([&](const Target& t) {
      if (t.rpl != 0) return;
      SetGdt(kTarget, Flat(TargetAccess(t)));
      SetIdt(kVector,
             Gate(kTarget, At(target),
                  static_cast<u8>((t.gate_present ? type : type & ~kPresent) | t.gate_dpl << 5)));
      const Outcome o = Run(interrupt, {.eflags = 2 | kFlagCf}, t.ring);
      Fault want = {kProbeExit, 0};
      if (t.gate_dpl < t.ring) {
        want = {kGeneralProtection, kVector * 8 + 2};
      } else if (!t.gate_present) {
        want = {kSegmentNotPresent, kVector * 8 + 2};
      } else if (t.kind == kDataKind || t.dpl > t.ring) {
        want = {kGeneralProtection, kTarget};
      } else if (!t.present) {
        want = {kSegmentNotPresent, kTarget};
      }
      bool ok = o.Is(want.vector, want.error);
      if (ok && want.vector != kProbeExit) ok = o.frame.eip == At(interrupt);
      if (ok && want.vector == kProbeExit) {
        const bool inner = t.kind != kConformingKind && t.dpl < t.ring;
        const unsigned ring = inner ? t.dpl : t.ring;
        ok = o.frame.cs == (kTarget | ring) && o.frame.ss == DataSelector(ring);
        ok = ok && o.frame.esp == (inner ? RingStackTop(ring) - 20 : ProbeStackTop() - 12);
        ok = ok && StackDword(o, 0) == At(interrupt, 2) &&
             StackWord(o, 2) == CodeSelector(t.ring) && StackDword(o, 2) == (2 | kFlagCf);
        if (inner) {
          ok = ok && StackDword(o, 3) == ProbeStackTop() && StackWord(o, 8) == DataSelector(t.ring);
        }
      }
      if (!cases.Case(ok)) Describe("int", t, o, want);
    });
  }

  // Every type that a gate of the IDT can have.
  const void* flags = CODE32("pushfd; pop eax");
  const u32 junk = OnQemu() ? 0 : 0xabcd0000;
  Group types("types of IDT entries");
  for (unsigned type = 0; type < 32; type++) {
    if (type == 5) continue;  // tasks
    const bool gate16 = type == 6 || type == 7, gate32 = type == 14 || type == 15;
    SetGdt(kTarget, Descriptor(At(flags) - 0x40, 0xfffff, kCode, kGranular | k32Bit));
    SetIdt(kVector, Gate(kTarget, gate16 ? junk | 0x40 : 0x40, static_cast<u8>(0xe0 | type)));
    const u32 set = kFlagIf | kFlagNt | kFlagAc | kFlagId | kFlagCf | kFlagDf | kFlagIopl;
    const Outcome o = Run(interrupt, {.eflags = 2 | set}, 3);
    bool ok;
    if (gate16 || gate32) {
      u32 want = 2 | (set & ~kFlagNt);
      if ((type & 1) == 0) want &= ~kFlagIf;
      ok = o.Done() && o.frame.eax == want;
      if (gate16) {
        ok = ok && o.frame.esp == RingStackTop(0) - 10 &&
             StackWord(o, 0) == ((At(interrupt) + 2) & 0xffff) &&
             StackWord(o, 1) == CodeSelector(3) && StackWord(o, 2) == (set & 0xffff) + 2 &&
             StackWord(o, 3) == (ProbeStackTop() & 0xffff) && StackWord(o, 4) == DataSelector(3);
      } else {
        ok = ok && StackDword(o, 2) == (2 | set);
      }
    } else {
      ok = o.Is(kGeneralProtection, kVector * 8 + 2);
    }
    if (!types.Case(ok)) {
      Print("FAIL gate type %x: got %s error 0x%x flags %x esp %x\n", type, VectorName(o.vector),
            o.error, o.frame.eax, o.frame.esp);
    }
  }

  // An error code is pushed by the exceptions that have one, in the gate's size.
  const void* hlt = CODE32("hlt");
  const void* handler = CODE32("nop");
  SetGdt(kTarget, Descriptor(At(handler) - 0x40, 0xfffff, kCode, kGranular | k32Bit));
  SetIdt(kGeneralProtection, Gate(kTarget, 0x40, kTrapGate16));
  Outcome o = Run(hlt, {}, 3);
  Check(o.Done() && o.frame.esp == RingStackTop(0) - 12 && StackWord(o, 0) == 0 &&
            StackWord(o, 1) == (At(hlt) & 0xffff),
        "#GP through a 16-bit gate pushes a word of error code");
  SetIdt(kGeneralProtection, Gate(CodeSelector(0), At(handler), kTrapGate32));
  o = Run(hlt, {}, 3);
  Check(o.Done() && o.frame.esp == RingStackTop(0) - 24 && StackDword(o, 1) == At(hlt),
        "#GP through a 32-bit gate pushes a dword");
  // SDM vol. 3B 17.3.1.1.
  if (!SkipOnQemu("... RF is set in a fault's frame")) {
    CheckEq("... RF is set in a fault's frame", StackDword(o, 3), 2 | kFlagRf);
  }
  o = Run(CODE32("int 13"), {}, 3);
  CheckFault("int 13 from ring 3 through a gate of DPL 0", o, kProbeExit);
  CheckEq("... is a #GP of its own", StackDword(o, 0), 13 * 8 + 2);
  SetIdt(kGeneralProtection, Gate(CodeSelector(0), At(handler), kTrapGate32 | kDpl3));
  o = Run(CODE32("int 13"), {}, 3);
  CheckEq("int 13 with DPL 3 pushes no error code", o.frame.esp, RingStackTop(0) - 20);
  RestoreIdt(kGeneralProtection);

  // Who checks the gate's DPL: INT n, INT3 and INTO do; INT1 and faults do not.
  SetIdt(kBreakpoint, Gate(CodeSelector(0), At(handler), kInterruptGate32));
  SetIdt(kOverflow, Gate(CodeSelector(0), At(handler), kInterruptGate32));
  const void* int3 = CODE32("int3");
  const void* into = CODE32("into; nop");
  const void* int1 = CODE32(".byte 0xf1; nop");
  CheckFault("int3 through a gate of DPL 0", Run(int3, {}, 3), kGeneralProtection, 3 * 8 + 2,
             At(int3));
  CheckFault("into through a gate of DPL 0", Run(into, {.eflags = 2 | kFlagOf}, 3),
             kGeneralProtection, 4 * 8 + 2, At(into));
  CheckDone("into without overflow", Run(into, {}, 3));
  RestoreIdt(kBreakpoint);
  RestoreIdt(kOverflow);
  CheckFault("int3 reports the next instruction", Run(int3, {}, 3), kBreakpoint, 0, At(int3, 1));
  CheckFault("into too", Run(into, {.eflags = 2 | kFlagOf}, 3), kOverflow, 0, At(into, 1));
  // SDM vol. 2, INT n/INTO/INT3/INT1; QEMU takes it for a breakpoint of its own debugger.
  if (!SkipOnQemu("int1 needs no DPL")) {
    CheckFault("int1 needs no DPL", Run(int1, {}, 3), kDebug, 0, At(int1, 1));
  }
  static i32 bounds[2];
  bounds[0] = -5, bounds[1] = 7;
  const void* bound = CODE32("bound eax, [ebx]; nop");
  CheckFault("bound above", Run(bound, {.eax = 8, .ebx = At(bounds)}, 3), kBoundRange, 0,
             At(bound));
  CheckFault("bound below", Run(bound, {.eax = static_cast<u32>(-6), .ebx = At(bounds)}, 3),
             kBoundRange, 0, At(bound));
  CheckDone("bound within", Run(bound, {.eax = 7, .ebx = At(bounds)}, 3));
  CheckDone("bound at the lower end",
            Run(bound, {.eax = static_cast<u32>(-5), .ebx = At(bounds)}, 3));

  // The IDT's limit, and selectors in gates.
  RestoreIdt(kVector);
  LoadIdt(kVector * 8 + 6);
  const void* beyond = CODE32("int 0x40");
  SetIdt(kVector, idt[kProbeExit]);
  // The exit itself lies beyond this limit, so only the fault shows.
  CheckFault("a vector that ends beyond the IDT", Run(beyond, {}, 3), kGeneralProtection,
             kVector * 8 + 2, At(beyond));
  LoadIdt();
  SetIdt(kVector, Gate(0, At(target), kInterruptGate32 | kDpl3));
  CheckFault("a gate with a null selector", Run(interrupt, {}, 3), kGeneralProtection, 0);
  SetIdt(kVector, Gate(sizeof(gdt) + 3, At(target), kInterruptGate32 | kDpl3));
  CheckFault("a gate beyond the GDT", Run(interrupt, {}, 3), kGeneralProtection, sizeof(gdt));
  // An exception, unlike INT n, sets EXT in the error code of what goes wrong on its way.
  const void* ud2 = CODE32("ud2");
  SetIdt(kInvalidOpcode, Gate(CodeSelector(0), At(target), kInterruptGate32 & ~kPresent));
  if (!SkipOnQemu("EXT in error codes (SDM vol. 3A 6.13)")) {
    CheckFault("an absent gate of an exception sets EXT", Run(ud2, {}, 3), kSegmentNotPresent,
               6 * 8 + 3, At(ud2));
    SetIdt(kInvalidOpcode, Gate(DataSelector(0), At(target), kInterruptGate32));
    CheckFault("a bad selector in it, too", Run(ud2, {}, 3), kGeneralProtection,
               DataSelector(0) | 1, At(ud2));
    CheckFault("int 6 sets no EXT", Run(CODE32("int 6"), {}), kGeneralProtection, DataSelector(0));
  }
  RestoreIdt(kInvalidOpcode);
  RestoreIdt(kVector);
}

void TestDoubleFaults() {
  // Contributory after contributory: the gate of #GP is absent.
  const void* hlt = CODE32("hlt");
  SetIdt(kGeneralProtection, 0);
  Outcome o = Run(hlt, {}, 3);
  CheckFault("#GP whose gate is bad is #DF", o, kDoubleFault, 0, At(hlt));
  Check(o.task, "... through the task gate");
  CheckEq("... from ring 3", o.frame.cs, CodeSelector(3));
  RestoreIdt(kGeneralProtection);
  // Benign first: #UD, then #NP is served as such (above); then a second contributory in its own
  // delivery is #DF.
  SetIdt(kInvalidOpcode, 0);
  SetIdt(kGeneralProtection, 0);
  o = Run(CODE32("ud2"), {}, 3);
  CheckFault("#UD, #GP on its way, #GP again", o, kDoubleFault, 0);
  RestoreIdt(kInvalidOpcode);
  RestoreIdt(kGeneralProtection);
  const void* divide = CODE32("xor ecx, ecx; div ecx");
  SetIdt(kDivideError, 0);
  o = Run(divide, {.eax = 1}, 3);
  CheckFault("#DE is contributory", o, kDoubleFault, 0, At(divide, 2));
  RestoreIdt(kDivideError);
  // INT n is benign: a bad gate is a plain #GP.
  SetIdt(kVector, 0);
  CheckFault("int n whose gate is bad is #GP", Run(CODE32("int 0x40"), {}, 3), kGeneralProtection,
             kVector * 8 + 2);
  RestoreIdt(kVector);
  // No usable ring 0 stack.
  main_tss.ss0 = 0;
  o = Run(hlt, {}, 3);
  CheckFault("#GP without a ring 0 stack is #DF", o, kDoubleFault, 0, At(hlt));
  main_tss.ss0 = DataSelector(0);
  o = Run(CODE32("nop"), {}, 3);
  CheckDone("... and the machine recovers", o);
}

// What IRET and POPF may change at each CPL and IOPL (SDM vol. 2, IRET and POPF).
void TestFlags() {
  const void* popf = CODE32("push ebx; popfd; pushfd; pop eax");
  const void* popfw = CODE32("push bx; popfw; pushfd; pop eax");
  const void* iret = CODE32("push ebx; push cs; push ecx; iretd");
  const void* iretw = CODE32("push bx; push si; push cx; iretw");
  const void* target = CODE32("pushfd; pop eax");
  constexpr u32 kFree =
      kFlagCf | kFlagPf | kFlagAf | kFlagZf | kFlagSf | kFlagOf | kFlagDf | kFlagNt;
  Group cases("flags by popf and iret");
  for (unsigned ring = 0; ring < 4; ring++) {
    SetGdt(kTarget, Descriptor(At(target) - 0x50, 0xfffff, static_cast<u8>(kCode | ring << 5),
                               kGranular | k32Bit));
    for (unsigned iopl = 0; iopl < 4; iopl++) {
      for (unsigned kind = 0; kind < 4; kind++) {
        for (const u32 start_if : List{0u, kFlagIf}) {
          const bool is_iret = kind >= 2, wide = (kind & 1) == 0;
          const void* code = kind == 0 ? popf : kind == 1 ? popfw : kind == 2 ? iret : iretw;
          // NT would make IRET a task switch, so it is only written. TF would trap.
          const u32 value = 2 | kFree | kFlagAc | kFlagId | (start_if ^ kFlagIf) |
                            (iopl ^ 3) << 12 | (is_iret ? 0 : kFlagVm | kFlagRf);
          const u32 start = 2 | start_if | iopl << 12;
          const Outcome o = Run(code,
                                {.ebx = value,
                                 .ecx = wide ? At(target) : 0x50,
                                 .esi = kTarget | ring,
                                 .eflags = start},
                                ring);
          u32 change = kFree | (wide ? kFlagAc | kFlagId : 0);
          if (ring <= iopl) change |= kFlagIf;
          if (ring == 0) change |= kFlagIopl;
          const u32 want = (start & ~change) | (value & change);
          const bool ok = o.Done() && o.frame.eax == want;
          if (!cases.Case(ok)) {
            Print("FAIL flags: CPL %u IOPL %u kind %u: expected %x got %s %x\n", ring, iopl, kind,
                  want, VectorName(o.vector), o.frame.eax);
          }
        }
      }
    }
  }
  Group sensitive("cli, sti, in, out, hlt by CPL and IOPL");
  const void* cli = CODE32("cli");
  const void* sti = CODE32("sti; cli");
  const void* in = CODE32("in al, 0x80");
  const void* out = CODE32("out 0x80, al");
  for (unsigned ring = 0; ring < 4; ring++) {
    for (unsigned iopl = 0; iopl < 4; iopl++) {
      for (const void* code : List{cli, sti, in, out}) {
        const Outcome o = Run(code, {.eflags = 2 | iopl << 12}, ring);
        const bool ok = ring <= iopl ? o.Done() : o.Is(kGeneralProtection, 0);
        if (!sensitive.Case(ok)) {
          Print("FAIL CPL %u IOPL %u: got %s at +%u\n", ring, iopl, VectorName(o.vector),
                o.frame.eip - At(code));
        }
      }
    }
  }
  // A return into code that ring 0 has returned into before.
  const void* behind = CODE32("call 1f; cli; jmp 2f; 1: ret; 2: nop");
  for (unsigned i = 0; i < 4; i++) sensitive.Case(Run(behind).Done());
  for (unsigned ring = 1; ring < 4; ring++) {
    const Outcome o = Run(behind, {.eflags = 2}, ring);
    if (!sensitive.Case(o.Is(kGeneralProtection, 0) && o.frame.eip == At(behind, 5))) {
      Print("FAIL CPL %u behind a return: got %s\n", ring, VectorName(o.vector));
    }
  }
}

// Single steps over changes of the ring (SDM vol. 3B 17.3.1.4).
void TestSteps() {
  const void* target = CODE32("nop; retf");
  SetGdt(kGateSelector, Gate(CodeSelector(0), At(target), kCallGate32 | kDpl3));
  far_pointer = {0, kGateSelector};
  const void* call = CODE32("call fword ptr [ebx]; nop; nop");
  Outcome o = Run(call, {.ebx = At(&far_pointer), .eflags = 2 | kFlagTf}, 3);
  CheckFault("a step over a call through a gate", o, kDebug, 0, At(target));
  CheckEq("... ends in the inner ring", o.frame.cs, CodeSelector(0));
  // TF set in the inner ring counts for its return.
  const void* stepping = CODE32("push 0x102; popfd; retf");
  SetGdt(kGateSelector, Gate(CodeSelector(0), At(stepping), kCallGate32 | kDpl3));
  o = Run(call, {.ebx = At(&far_pointer)}, 3);
  CheckFault("a step over a far return to ring 3", o, kDebug, 0, At(call, 2));
  CheckEq("... ends there", o.frame.cs, CodeSelector(3));
  // INT n clears TF; the IRET that sets it again lets one instruction pass.
  const void* iret = CODE32("nop; iretd");
  SetIdt(kVector, Gate(CodeSelector(0), At(iret), kTrapGate32 | kDpl3));
  const void* interrupt = CODE32("int 0x40; nop; nop");
  o = Run(interrupt, {.eflags = 2 | kFlagTf}, 3);
  CheckFault("a step over INT n and its IRET", o, kDebug, 0, At(interrupt, 3));
  RestoreIdt(kVector);
  const void* jump = CODE32("jmp fword ptr [ebx]");
  const void* landing = CODE32("nop");
  far_pointer = {At(landing), CodeSelector(0)};
  o = Run(jump, {.ebx = At(&far_pointer), .eflags = 2 | kFlagTf});
  CheckFault("a step over a far jump", o, kDebug, 0, At(landing));
  // A fault is not a step: its frame keeps TF, and DR6.BS is not its matter.
  const void* fault = CODE32("ud2");
  o = Run(fault, {.eflags = 2 | kFlagTf}, 3);
  CheckFault("a fault under TF", o, kInvalidOpcode, 0, At(fault));
  CheckEq("... TF in its frame", o.frame.eflags & kFlagTf, kFlagTf);
  CheckEq("... not in its handler", o.entry_eflags & kFlagTf, 0);
}

constexpr Section kSections[] = {
    {"calls", TestCallGates},
    {"stacks", TestStackSwitch},
    {"tss16", TestTss16},
    {"returns", TestReturns},
    {"interrupts", TestInterruptGates},
    {"double", TestDoubleFaults},
    {"flags", TestFlags},
    {"steps", TestSteps},
};

}  // namespace

int Main() {
  RunOnVmi();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
