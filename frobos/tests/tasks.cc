// SPDX-License-Identifier: Apache-2.0
// Hardware tasks: switches by JMP, CALL, INT and IRET through TSSs and task gates of both sizes,
// what they save, load and check, and the I/O permission bitmap (SDM vol. 3A ch. 7; vol. 1 18.5.2).

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u16 kTask = kSpare, kGateSelector = kSpare + 8, kTaskLdt = kSpare + 16,
              kSegment = kSpare + 24, kTask2 = kSpare + 64;
constexpr u8 kVector = 0x40;
constexpr u8 kBusy = 2;
constexpr u32 kTss16Limit = 43;

struct Tss16 {
  u16 link;
  u16 sp0, ss0, sp1, ss1, sp2, ss2;
  u16 ip, flags, ax, cx, dx, bx, sp, bp, si, di, es, cs, ss, ds, ldt;
};

struct [[gnu::packed]] FarPointer {
  u32 offset;
  u16 selector;
};
FarPointer far_pointer;

// Only the part without the I/O map.
alignas(128) u8 task_memory[2][128];
Tss32& task = *reinterpret_cast<Tss32*>(task_memory[0]);
Tss32& task2 = *reinterpret_cast<Tss32*>(task_memory[1]);
alignas(64) Tss16 task16;
alignas(16) u8 task_stack[1024];
alignas(16) u8 task_inner_stack[1024];
u64 task_ldt[4];

u32 TaskStackTop() { return At(task_stack + sizeof(task_stack)); }
u32 InnerStackTop() { return At(task_inner_stack + sizeof(task_inner_stack)); }

void InitTask(Tss32& t, const void* code, unsigned ring) {
  memset(&t, 0, 104);
  t.esp0 = InnerStackTop();
  t.ss0 = DataSelector(0);
  t.cr3 = ReadCr3();
  t.eip = At(code);
  t.eflags = kFlagsFixed;
  t.esp = TaskStackTop();
  t.cs = CodeSelector(ring);
  t.ss = t.ds = t.es = DataSelector(ring);
  t.io_map_base = 0xffff;
}

// A fresh ring 0 or 3 task at kTask that starts at code.
void MakeTask(const void* code, unsigned ring = 0, u8 dpl = kDpl0, u32 limit = kTss32Limit) {
  InitTask(task, code, ring);
  SetGdt(kTask, Descriptor(At(&task), limit, kTss32 | dpl, 0));
}

void MakeTask16(const void* code, unsigned ring) {
  memset(&task16, 0, sizeof(task16));
  task16.sp0 = 0x400, task16.ss0 = kSegment + 16;
  task16.cs = static_cast<u16>((kSegment + 8) | ring), task16.ip = 0x20;
  task16.ss = static_cast<u16>(kSegment | ring), task16.sp = 0x400;
  task16.ds = task16.es = task16.ss;
  task16.flags = kFlagsFixed;
  const u8 dpl = static_cast<u8>(ring << 5);
  SetGdt(kSegment, Descriptor(At(task_stack), 0xffff, kData | dpl, k16Bit));
  SetGdt(kSegment + 8, Descriptor(At(code) - 0x20, 0xffff, kCode | dpl, k16Bit));
  SetGdt(kSegment + 16, Descriptor(At(task_inner_stack), 0xffff, kData, k16Bit));
  SetGdt(kTask2, Descriptor(At(&task16), kTss16Limit, kTss16, 0));
}

// A probe may end in any task.
void Reset() {
  Clts();
  main_tss.link = 0;
  main_tss.cr3 = ReadCr3();
  LoadMainTss();
}

Outcome RunTask(const void* code, const Frame& frame = {}, unsigned ring = 0) {
  const Outcome o = Run(code, frame, ring);
  Reset();
  return o;
}

const void* Jump() {
  far_pointer = {0x12345678, kTask};
  return CODE32("jmp fword ptr [ebx]; nop");
}
const void* Call() {
  far_pointer = {0x12345678, kTask};
  return CODE32("call fword ptr [ebx]; mov ecx, 0x600d");
}
constexpr u32 kTransferLength = 2;

void TestJump() {
  const void* code = CODE32("mov edx, cr0");
  MakeTask(code);
  task.eax = 0xa1, task.ecx = 0xa2, task.ebx = 0xa4, task.ebp = 0xa5, task.esi = 0xa6,
  task.edi = 0xa7;
  task.eflags = 2 | kFlagCf | kFlagId;
  task.fs = DataSelector(3), task.gs = 3;
  task.link = 0x7777;
  const void* jump = Jump();
  main_tss.eip = 0, main_tss.cr3 = 0x1234000;
  Outcome o = Run(jump, {.eax = 0xb1,
                         .ebx = At(&far_pointer),
                         .ecx = 0xb2,
                         .edx = 0xb3,
                         .esi = 0xb6,
                         .edi = 0xb7,
                         .ebp = 0xb5,
                         .eflags = 2 | kFlagSf,
                         .es = DataSelector(3),
                         .fs = DataSelector(0),
                         .gs = 2});
  CheckDone("a jump to a TSS", o);
  Check(o.frame.eax == 0xa1 && o.frame.ecx == 0xa2 && o.frame.ebx == 0xa4 && o.frame.ebp == 0xa5 &&
            o.frame.esi == 0xa6 && o.frame.edi == 0xa7,
        "... loads the registers");
  Check(o.frame.esp == TaskStackTop() && o.frame.ss == DataSelector(0), "... the stack");
  Check(o.frame.ds == DataSelector(0) && o.frame.es == DataSelector(0) &&
            o.frame.fs == DataSelector(3) && o.frame.gs == 3,
        "... the segments");
  CheckEq("... the flags, without NT", o.frame.eflags, 2 | kFlagCf | kFlagId);
  CheckEq("... CR0.TS is set", o.frame.edx & kCr0Ts, kCr0Ts);
  CheckEq("... TR", o.tr, kTask);
  CheckEq("... the new task is busy", AccessByte(kTask), kTss32 | kBusy);
  CheckEq("... the old one is not", AccessByte(kTss), kTss32);
  CheckEq("... the link is left", task.link, 0x7777);
  const Tss32& t = main_tss;
  Check(t.eax == 0xb1 && t.ebx == At(&far_pointer) && t.ecx == 0xb2 && t.edx == 0xb3 &&
            t.esi == 0xb6 && t.edi == 0xb7 && t.ebp == 0xb5 && t.esp == ProbeStackTop(),
        "... saves the old registers");
  CheckEq("... the old eip", t.eip, At(jump, kTransferLength));
  CheckEq("... the old flags", t.eflags, 2 | kFlagSf);
  Check((t.cs & 0xffff) == CodeSelector(0) && (t.ss & 0xffff) == DataSelector(0) &&
            (t.ds & 0xffff) == DataSelector(0) && (t.es & 0xffff) == DataSelector(3) &&
            (t.fs & 0xffff) == DataSelector(0) && (t.gs & 0xffff) == 2,
        "... the old segments");
  CheckEq("... but not CR3", t.cr3, 0x1234000);
  Check(t.esp0 == RingStackTop(0) && t.ss0 == DataSelector(0), "... nor the inner stacks");
  Reset();

  // There and back again by two jumps.
  MakeTask(CODE32("mov eax, 0x77; jmp fword ptr [ebx]"));
  static FarPointer back;
  back = {0, kTss};
  task.ebx = At(&back);
  o = RunTask(CODE32("jmp fword ptr [ebx]; mov edx, 0x88; str ecx"), {.ebx = At(&far_pointer)});
  Check(o.Done() && o.frame.edx == 0x88 && o.frame.ecx == kTss, "a jump back");
  CheckEq("... saved the task", task.eax, 0x77);
}

void TestCall() {
  const void* code = CODE32("2: mov eax, 0x51; iretd; mov eax, 0x52; iretd");
  MakeTask(code);
  const void* call = Call();
  Outcome o = RunTask(call, {.ebx = At(&far_pointer)});
  CheckDone("a call of a TSS and its IRET", o);
  CheckEq("... goes on behind the call", o.frame.ecx, 0x600d);
  CheckEq("... in the old task", o.tr, kTss);
  CheckEq("... which stayed busy", AccessByte(kTss) & kBusy, kBusy);
  CheckEq("... the other is available again", AccessByte(kTask), kTss32);
  CheckEq("... its link names the caller", task.link, kTss);
  CheckEq("... its eip is behind its IRET", task.eip, At(code, 6));
  CheckEq("... NT is clear in its image", task.eflags, 2);
  CheckEq("... eax", task.eax, 0x51);
  CheckEq("... the caller's flags", o.frame.eflags & kFlagNt, 0);
  o = RunTask(call, {.ebx = At(&far_pointer)});
  CheckEq("the next call goes on where it was", task.eax, 0x52);

  MakeTask(CODE32("pushfd; pop eax; str ecx"));
  o = RunTask(call, {.ebx = At(&far_pointer)});
  CheckEq("NT is set in a called task", o.frame.eax & kFlagNt, kFlagNt);
  CheckEq("... TR", o.frame.ecx, kTask);
  CheckEq("... the caller is still busy", AccessByte(kTss) & kBusy, kBusy);
  CheckEq("... both are busy", AccessByte(kTask) & kBusy, kBusy);

  // Nested: main calls task, task calls task2, and both return.
  MakeTask(CODE32("call fword ptr [ebx]; mov eax, 0x61; iretd"));
  static FarPointer second;
  second = {0, kTask2};
  task.ebx = At(&second);
  InitTask(task2, CODE32("mov eax, 0x71; iretd"), 3);
  SetGdt(kTask2, Descriptor(At(&task2), kTss32Limit, kTss32, 0));
  task2.esp = ProbeStackTop() - 0x400;
  o = RunTask(call, {.ebx = At(&far_pointer)});
  Check(o.Done() && o.frame.ecx == 0x600d && task.eax == 0x61 && task2.eax == 0x71,
        "nested calls of tasks");
  CheckEq("... the inner link", task2.link, kTask);
  // A task that calls a busy one.
  second = {0, kTss};
  MakeTask(CODE32("call fword ptr [ebx]"));
  task.ebx = At(&second);
  o = Run(call, {.ebx = At(&far_pointer)});
  CheckFault("a call of a busy task", o, kGeneralProtection, kTss);
  CheckEq("... in the calling task", o.tr, kTask);
  Reset();
  // CPL 3 to CPL 0 and back.
  MakeTask(CODE32("mov eax, cr0; mov eax, 0x81; iretd"), 0, kDpl3);
  o = RunTask(call, {.ebx = At(&far_pointer)}, 3);
  Check(o.Done() && o.frame.cs == CodeSelector(3) && task.eax == 0x81,
        "from CPL 3 to a task of CPL 0 and back");
}

void TestGates() {
  MakeTask(CODE32("mov eax, 0x91; iretd"));
  SetGdt(kGateSelector, Gate(kTask, 0, kTaskGate | kDpl3));
  const void* call = CODE32("call fword ptr [ebx]; mov ecx, 0x600d");
  far_pointer = {0, kGateSelector};
  Outcome o = RunTask(call, {.ebx = At(&far_pointer)}, 3);
  Check(o.Done() && o.frame.ecx == 0x600d && task.eax == 0x91,
        "a call through a task gate; the TSS's own DPL does not count");
  MakeTask(CODE32("nop"));
  o = RunTask(CODE32("jmp fword ptr [ebx]"), {.ebx = At(&far_pointer)}, 3);
  Check(o.Done() && o.tr == kTask && o.frame.cs == CodeSelector(0), "a jump through a task gate");

  const void* interrupt = CODE32("int 0x40; mov ecx, 0x600d");
  MakeTask(CODE32("mov eax, 0x92; pushfd; pop edx; iretd"));
  SetIdt(kVector, Gate(kTask, 0, kTaskGate | kDpl3));
  o = RunTask(interrupt, {.eflags = 2 | kFlagIf}, 3);
  Check(o.Done() && o.frame.ecx == 0x600d && task.eax == 0x92, "INT n through a task gate");
  CheckEq("... NT", task.edx & kFlagNt, kFlagNt);
  CheckEq("... the flags come back", o.frame.eflags, 2 | kFlagIf);
  CheckEq("... saved behind the INT", main_tss.eip, At(interrupt, 2));
  SetIdt(kVector, Gate(kTask, 0, kTaskGate));
  CheckFault("... whose DPL is checked", RunTask(interrupt, {}, 3), kGeneralProtection,
             kVector * 8 + 2, At(interrupt));
  SetIdt(kVector, Gate(kTask, 0, (kTaskGate | kDpl3) & ~kPresent));
  CheckFault("... and P", RunTask(interrupt, {}, 3), kSegmentNotPresent, kVector * 8 + 2,
             At(interrupt));
  RestoreIdt(kVector);

  // An exception with an error code: pushed on the new task's stack, EIP at the instruction.
  const void* faulty = CODE32("hlt; mov ecx, 0x600d");
  MakeTask(CODE32("pop eax; mov edx, [ebx]; inc dword ptr [ebx]; iretd"));
  task.ebx = At(&main_tss.eip);
  SetIdt(kGeneralProtection, Gate(kTask, 0, kTaskGate));
  o = RunTask(faulty, {}, 3);
  RestoreIdt(kGeneralProtection);
  Check(o.Done() && o.frame.ecx == 0x600d, "a fault through a task gate, skipped by its handler");
  CheckEq("... the error code was on its stack", task.esp, TaskStackTop());
  CheckEq("... 0", task.eax, 0);
  CheckEq("... eip named the instruction", task.edx, At(faulty));

  // What a gate may name.
  struct Case {
    const char* name;
    u16 selector;
    u64 descriptor;  // of kTask
    u8 vector;
    u16 error;
  };
  const u64 good = Descriptor(At(&task), kTss32Limit, kTss32, 0);
  const Case cases[] = {
      {"null", 0, good, kGeneralProtection, 0},
      {"of the LDT", kTask | 4, good, kGeneralProtection, kTask | 4},
      {"beyond the GDT", sizeof(gdt), good, kGeneralProtection, sizeof(gdt)},
      {"a data segment", DataSelector(0), good, kGeneralProtection, DataSelector(0)},
      {"a busy TSS", kTask, Descriptor(At(&task), kTss32Limit, kTss32 | kBusy, 0),
       kGeneralProtection, kTask},
      {"an absent TSS", kTask, Descriptor(At(&task), kTss32Limit, kTss32 & ~kPresent, 0),
       kSegmentNotPresent, kTask},
      {"a short TSS", kTask, Descriptor(At(&task), 102, kTss32, 0), kInvalidTss, kTask},
      {"a short 16-bit TSS", kTask, Descriptor(At(&task), 42, kTss16, 0), kInvalidTss, kTask},
  };
  for (const Case& c : cases) {
    SetGdt(kTask, c.descriptor);
    SetGdt(kGateSelector, Gate(c.selector, 0, kTaskGate | kDpl3));
    SetIdt(kVector, Gate(c.selector, 0, kTaskGate | kDpl3));
    far_pointer = {0, kGateSelector};
    Print("     a task gate to %s\n", c.name);
    // SDM vol. 2, CALL and INT: #GP; QEMU: #TS.
    if ((c.selector & 4) != 0 && SkipOnQemu("a task gate to the LDT")) continue;
    CheckFault("call", RunTask(call, {.ebx = At(&far_pointer)}, 3), c.vector, c.error, At(call));
    CheckFault("int", RunTask(interrupt, {}, 3), c.vector, c.error, At(interrupt));
    CheckEq("the old task is still the current one", o.tr, kTss);
  }
  RestoreIdt(kVector);
}

void TestRights() {
  const void* call = Call();
  Group cases("calls of a TSS by CPL, RPL and DPL");
  for (unsigned ring = 0; ring < 4; ring++) {
    for (unsigned rpl = 0; rpl < 4; rpl++) {
      for (unsigned dpl = 0; dpl < 4; dpl++) {
        for (unsigned gate = 0; gate < 2; gate++) {
          MakeTask(CODE32("nop"), 0, gate ? kDpl0 : static_cast<u8>(dpl << 5));
          SetGdt(kGateSelector, Gate(kTask, 0, static_cast<u8>(kTaskGate | dpl << 5)));
          const u16 selector = gate ? kGateSelector : kTask;
          far_pointer = {0, static_cast<u16>(selector | rpl)};
          const Outcome o = RunTask(call, {.ebx = At(&far_pointer)}, ring);
          const bool allowed = ring <= dpl && rpl <= dpl;
          const bool ok =
              allowed ? o.Done() && (o.tr & ~3u) == kTask : o.Is(kGeneralProtection, selector);
          if (!cases.Case(ok)) {
            Print("FAIL CPL %u RPL %u DPL %u gate %u: got %s error 0x%x\n", ring, rpl, dpl, gate,
                  VectorName(o.vector), o.error);
          }
        }
      }
    }
  }
  MakeTask(CODE32("nop"));
  SetGdt(kTask, Descriptor(At(&task), kTss32Limit, kTss32 & ~kPresent, 0));
  far_pointer = {0, kTask};
  CheckFault("an absent TSS", RunTask(call, {.ebx = At(&far_pointer)}), kSegmentNotPresent, kTask,
             At(call));
  SetGdt(kTask, Descriptor(At(&task), 102, kTss32, 0));
  CheckFault("a short TSS", RunTask(call, {.ebx = At(&far_pointer)}), kInvalidTss, kTask, At(call));
  SetGdt(kTask, Descriptor(At(&task), kTss32Limit, kTss32 | kBusy, 0));
  CheckFault("a busy TSS", RunTask(call, {.ebx = At(&far_pointer)}), kGeneralProtection, kTask,
             At(call));
}

// IRET with NT: the back link must name a busy TSS of the GDT.
void TestLinks() {
  const void* iret = CODE32("iretd");
  struct Case {
    const char* name;
    u16 link;
    u8 access;
    u8 vector;
    u16 error;
  };
  const Case cases[] = {
      {"a null link", 0, kTss32 | kBusy, kInvalidTss, 0},
      {"a link to the LDT", kTask | 4, kTss32 | kBusy, kInvalidTss, kTask | 4},
      {"a link beyond the GDT", sizeof(gdt), kTss32 | kBusy, kInvalidTss, sizeof(gdt)},
      {"a link to a TSS that is not busy", kTask, kTss32, kInvalidTss, kTask},
      {"a link to a data segment", DataSelector(0), kTss32, kInvalidTss, DataSelector(0)},
      {"a link to an absent TSS", kTask, (kTss32 | kBusy) & ~kPresent, kSegmentNotPresent, kTask},
  };
  for (const Case& c : cases) {
    MakeTask(CODE32("nop"));
    SetGdt(kTask, Descriptor(At(&task), kTss32Limit, c.access, 0));
    main_tss.link = c.link;
    const Outcome o = Run(iret, {.eflags = 2 | kFlagNt});
    CheckFault(c.name, o, c.vector, c.error, At(iret));
    CheckEq("... NT is still set", o.frame.eflags & kFlagNt, kFlagNt);
    Reset();
  }
  MakeTask(CODE32("pushfd; pop eax"));
  SetGdt(kTask, Descriptor(At(&task), kTss32Limit, kTss32 | kBusy, 0));
  task.eflags = 2 | kFlagCf;
  main_tss.link = kTask;
  Outcome o = RunTask(iret, {.eflags = 2 | kFlagNt}, 3);
  Check(o.Done() && o.tr == kTask && o.frame.eax == (2 | kFlagCf), "IRET with NT, from CPL 3");
  CheckEq("... NT is clear in the old image", main_tss.eflags & kFlagNt, 0);
}

// Contents of the new TSS that do not fit: the fault belongs to the new task.
void TestInvalid() {
  // SDM vol. 3A 7.3: the switch is complete when these are found; QEMU has the old eip or CPL.
  if (SkipOnQemu("faults of a new task's segments")) return;
  const void* jump = Jump();
  struct Case {
    const char* name;
    u32 Tss32::*field;
    u32 value;
    u64 descriptor;  // of kSegment
    u8 vector;
    u16 error;
  };
  constexpr u8 kAbsentData = kData & ~kPresent, kAbsentCode = kCode & ~kPresent;
  const Case cases[] = {
      {"ldt: a data segment", &Tss32::ldt, kSegment, Flat(kData), kInvalidTss, kSegment},
      {"ldt: of the LDT", &Tss32::ldt, 12, 0, kInvalidTss, 12},
      {"ldt: absent", &Tss32::ldt, kSegment, Flat(kLdt & ~kPresent), kInvalidTss, kSegment},
      {"ldt: beyond the GDT", &Tss32::ldt, sizeof(gdt), 0, kInvalidTss, sizeof(gdt)},
      {"cs: data", &Tss32::cs, kSegment | 3, Flat(kData | kDpl3), kInvalidTss, kSegment},
      {"cs: DPL 2, RPL 3", &Tss32::cs, kSegment | 3, Flat(kCode | kDpl2), kInvalidTss, kSegment},
      {"cs: absent", &Tss32::cs, kSegment | 3, Flat(kAbsentCode | kDpl3), kSegmentNotPresent,
       kSegment},
      {"cs: beyond the GDT", &Tss32::cs, sizeof(gdt) | 3, 0, kInvalidTss, sizeof(gdt)},
      {"ss: null", &Tss32::ss, 0, 0, kInvalidTss, 0},
      {"ss: RPL 2", &Tss32::ss, kSegment | 2, Flat(kData | kDpl3), kInvalidTss, kSegment},
      {"ss: DPL 2", &Tss32::ss, kSegment | 3, Flat(kData | kDpl2), kInvalidTss, kSegment},
      {"ss: read-only", &Tss32::ss, kSegment | 3, Flat(kDataReadOnly | kDpl3), kInvalidTss,
       kSegment},
      {"ss: absent", &Tss32::ss, kSegment | 3, Flat(kAbsentData | kDpl3), kStackFault, kSegment},
      {"ds: DPL 2", &Tss32::ds, kSegment | 3, Flat(kData | kDpl2), kInvalidTss, kSegment},
      {"ds: execute-only", &Tss32::ds, kSegment | 3, Flat(kCodeExecuteOnly | kDpl3), kInvalidTss,
       kSegment},
      {"ds: absent", &Tss32::ds, kSegment | 3, Flat(kAbsentData | kDpl3), kSegmentNotPresent,
       kSegment},
      {"es: beyond the GDT", &Tss32::es, sizeof(gdt), 0, kInvalidTss, sizeof(gdt)},
      {"gs: a TSS", &Tss32::gs, kTss, 0, kInvalidTss, kTss},
  };
  for (const Case& c : cases) {
    const void* code = CODE32("nop");
    MakeTask(code, 3);
    SetGdt(kSegment, c.descriptor);
    task.*c.field = c.value;
    const Outcome o = Run(jump, {.ebx = At(&far_pointer)});
    CheckFault(c.name, o, c.vector, c.error, At(code));
    CheckEq("... in the new task", o.tr, kTask);
    Reset();
  }
  // Conforming code takes the level of its RPL, which may be above its DPL.
  MakeTask(CODE32("nop"), 3);
  SetGdt(kSegment, Flat(kConforming));
  task.cs = kSegment | 3;
  const Outcome conforming = RunTask(jump, {.ebx = At(&far_pointer)});
  Check(conforming.Done() && conforming.frame.cs == (kSegment | 3), "a task in conforming code");
  MakeTask(CODE32("nop"), 3);
  task.ds = task.es = task.fs = task.gs = 0;
  CheckDone("null data segments are fine", RunTask(jump, {.ebx = At(&far_pointer)}));
  MakeTask(CODE32("nop"), 3);
  SetGdt(kSegment, Descriptor(0, 0xffff, kCode | kDpl3, k32Bit));
  task.cs = kSegment | 3;
  Outcome o = Run(jump, {.ebx = At(&far_pointer)});
  CheckFault("eip beyond cs", o, kGeneralProtection, 0, task.eip);
  CheckEq("... in the new task", o.tr, kTask);
  Reset();
  // The same in a task of CPL 0 that has no stack: the ring 0 stack of its TSS is used.
  MakeTask(CODE32("nop"));
  task.ldt = sizeof(gdt);
  o = Run(jump, {.ebx = At(&far_pointer)});
  Check(o.vector == kInvalidTss || o.vector == kDoubleFault, "a task of CPL 0 with a bad LDT");
  Reset();
}

void TestLdt() {
  memset(task_ldt, 0, sizeof(task_ldt));
  static u32 word = 0x5e6e7e;
  WriteDescriptor<kVmiWriteLdtEntry>(task_ldt, 1, Descriptor(At(&word), 3, kData | kDpl3, k32Bit));
  SetGdt(kTaskLdt, Descriptor(At(task_ldt), sizeof(task_ldt) - 1, kLdt, 0));
  MakeTask(CODE32("mov eax, fs:[0]; sldt ecx; iretd"), 3);
  task.ldt = kTaskLdt;
  task.fs = 8 | 7;
  WriteDescriptor<kVmiWriteLdtEntry>(ldt, 1, Flat(kData | kDpl3));
  LoadLdt();
  // The return takes LDTR from here; the switch does not save it.
  main_tss.ldt = kLdtSelector;
  far_pointer = {0, kTask};
  const Outcome o = RunTask(CODE32("call fword ptr [ebx]; sldt edx; mov ecx, 0x600d"),
                            {.ebx = At(&far_pointer), .gs = 8 | 7});
  Check(o.Done() && o.frame.ecx == 0x600d, "a task with an LDT of its own");
  CheckEq("... a segment of it", task.eax, 0x5e6e7e);
  CheckEq("... LDTR there", task.ecx & 0xffff, kTaskLdt);
  CheckEq("... LDTR of the main task comes from its TSS", o.frame.edx & 0xffff, kLdtSelector);
  CheckEq("... and gs from there", o.frame.gs, 8 | 7);
  main_tss.ldt = 0;
  WriteLdtr(0);
}

void Test16() {
  const void* code16 = CODE16("mov ax, 0x1616; pushf; pop dx; iret");
  MakeTask16(code16, 0);
  task16.cx = 0x1111, task16.bx = 0x2222, task16.bp = 0x3333, task16.si = 0x4444,
  task16.di = 0x5555;
  far_pointer = {0, kTask2};
  Outcome o = RunTask(CODE32("call fword ptr [ebx]; mov ecx, 0x600d"), {.ebx = At(&far_pointer)});
  Check(o.Done() && o.frame.ecx == 0x600d, "a 16-bit task called from a 32-bit one, and back");
  CheckEq("... its link", task16.link, kTss);
  CheckEq("... ax", task16.ax, 0x1616);
  CheckEq("... NT in it", task16.dx & kFlagNt, kFlagNt);
  Check(task16.cx == 0x1111 && task16.bx == 0x2222 && task16.bp == 0x3333 && task16.si == 0x4444 &&
            task16.di == 0x5555 && task16.sp == 0x400,
        "... its registers went in and out");
  CheckEq("... ip behind its IRET", task16.ip, 0x20 + 6);
  CheckEq("... it is available", AccessByte(kTask2), kTss16);

  MakeTask16(CODE16("nop"), 3);
  SetGdt(kTask2, Descriptor(At(&task16), kTss16Limit, kTss16 | kDpl3, 0));
  task16.ax = 0x4321;
  o = RunTask(CODE32("jmp fword ptr [ebx]"), {.eax = ~0u, .ebx = At(&far_pointer)});
  CheckDone("a jump to a 16-bit task in CPL 3", o);
  CheckEq("... ax", o.frame.eax & 0xffff, 0x4321);
  CheckEq("... its ring 0 stack is of words", o.entry_ss, kSegment + 16);
  CheckEq("... sp0", (o.entry_esp + 20) & 0xffff, 0x400);
  CheckEq("... cs", o.frame.cs, (kSegment + 8) | 3);

  // From a 16-bit task, the outer one is saved as words.
  MakeTask(CODE32("mov eax, 0x3232; iretd"));
  static FarPointer back;
  back = {0, kTask};
  SetGdt(kTaskLdt, Flat(kData));
  MakeTask16(CODE16(".byte 0x66; call dword ptr ds:[0x10]; mov cx, 0x99; mov dx, fs; iret"), 0);
  // [ds:0x10] is in task_stack.
  memcpy(task_stack + 0x10, &back, 6);
  far_pointer = {0, kTask2};
  o = RunTask(CODE32("call fword ptr [ebx]; mov ecx, 0x600d"), {.ebx = At(&far_pointer)});
  Check(o.Done() && o.frame.ecx == 0x600d && task16.cx == 0x99 && task.eax == 0x3232,
        "a 32-bit task called from a 16-bit one");
  CheckEq("... and linked to it", task.link, kTask2);
}

void TestTrapBit() {
  const void* code = CODE32("nop; nop");
  MakeTask(code);
  task.trap = 1;
  WriteDr<6>(0);
  // SDM vol. 3B 17.3.1.5; QEMU does not look at the bit.
  if (SkipOnQemu("the T bit of a TSS")) return;
  const void* jump = Jump();
  const Outcome o = Run(jump, {.ebx = At(&far_pointer)});
  CheckFault("the T bit of a TSS", o, kDebug, 0, At(code));
  CheckEq("... in the new task", o.tr, kTask);
  CheckEq("... DR6.BT", ReadDr<6>() & 0xe00f, 0x8000);
  Reset();
}

// Each task is stepped by its own TF: the old one's goes into its TSS (SDM vol. 3A 7.3).
void TestStep() {
  const void* code = CODE32("nop; nop");
  MakeTask(code);
  const void* ltr = CODE32("ltr ax; nop");
  CheckFault("a single step of ltr", RunTask(ltr, {.eax = kTask, .eflags = kFlagsFixed | kFlagTf}),
             kDebug, 0, At(ltr, 3));
  MakeTask(code);
  task.eflags |= kFlagTf;
  const void* jump = Jump();
  Outcome o = RunTask(jump, {.ebx = At(&far_pointer)});
  CheckFault("a switch to a task that is stepped", o, kDebug, 0, At(code, 1));
  // QEMU steps by the old task's TF once more, in the new one.
  if (SkipOnQemu("a switch from a task that is stepped")) return;
  MakeTask(code);
  o = RunTask(jump, {.ebx = At(&far_pointer), .eflags = kFlagsFixed | kFlagTf});
  CheckDone("a switch from a task that is stepped", o);
  CheckEq("... TF in its TSS", main_tss.eflags & kFlagTf, kFlagTf);
  MakeTask(code);
  task.eflags |= kFlagTf;
  o = RunTask(jump, {.ebx = At(&far_pointer), .eflags = kFlagsFixed | kFlagTf});
  CheckFault("... to one that is, too", o, kDebug, 0, At(code, 1));
}

void TestDebugRegisters() {
  MakeTask(CODE32("mov eax, dr7"));
  static u32 watched;
  WriteDr<0>(At(&watched));
  WriteDr<7>(0x000f0703);  // L0, G0, LE, GE: writes of four bytes
  const void* jump = Jump();
  const Outcome o = RunTask(jump, {.ebx = At(&far_pointer)});
  WriteDr<7>(0x400);
  CheckDone("a switch with breakpoints", o);
  CheckEq("... clears their local enables", o.frame.eax & 0xff, 2);
}

alignas(4096) DirectoryEntry directories[2][1024];

void TestPaging() {
  if ((Cpuid(1).edx >> 3 & 1) == 0) return Skip("CR3 of a task", "no PSE");
  constexpr u32 kPage = 0x02000000;  // a 4 MB page that differs
  for (u32 i = 0; i < 1024; i++) directories[0][i] = directories[1][i] = i << 22 | 0x87;
  directories[1][kPage >> 22] = (kPage + 0x400000) | 0x87;
  *reinterpret_cast<u32*>(kPage) = 0x1111;
  *reinterpret_cast<u32*>(kPage + 0x400000) = 0x2222;
  WriteCr4(ReadCr4() | kCr4Pse);
  WriteCr3(At(directories[0]));
  WriteCr0(ReadCr0() | kCr0Pg);
  main_tss.cr3 = ReadCr3();
  MakeTask(CODE32("mov eax, ds:[0x02000000]; mov ecx, cr3; iretd"));
  task.cr3 = At(directories[1]);
  const void* call = CODE32(
      "mov esi, ds:[0x02000000]; call fword ptr [ebx]; mov edx, "
      "ds:[0x02000000]; mov edi, cr3");
  far_pointer = {0, kTask};
  const Outcome o = RunTask(call, {.ebx = At(&far_pointer)});
  CheckDone("a task with its own CR3", o);
  CheckEq("... sees its own page", task.eax, 0x2222);
  CheckEq("... its CR3", task.ecx, At(directories[1]));
  CheckEq("... the caller's before", o.frame.esi, 0x1111);
  CheckEq("... and after", o.frame.edx, 0x1111);
  CheckEq("... and CR3", o.frame.edi, At(directories[0]));
  WriteCr0(ReadCr0() & ~kCr0Pg);
}

void TestIoMap() {
  const void* in8 = CODE32("in al, dx");
  const void* in16 = CODE32("in ax, dx");
  const void* in32 = CODE32("in eax, dx");
  const void* out8 = CODE32("out dx, al");
  const void* ins = CODE32("mov edi, ebx; insb");
  const void* outs = CODE32("mov esi, ebx; outsb");
  const void* in80 = CODE32("in al, 0x80");
  static u32 word;
  constexpr u16 kBase = 0x68;
  static_assert(__builtin_offsetof(Tss32, io_map) == kBase);
  main_tss.io_map_base = kBase;
  memset(main_tss.io_map, 0, sizeof(main_tss.io_map));
  // Ports 0x200..0x23f are of nobody; every third is denied.
  const auto denied = [](u32 port) { return port % 3 == 0; };
  for (u32 p = 0x200; p < 0x240; p++) {
    if (denied(p)) main_tss.io_map[p / 8] |= static_cast<u8>(1 << p % 8);
  }
  LoadMainTss(kBase + 0x800);
  struct Access {
    const void* code;
    u32 size;
  };
  const Access accesses[] = {{in8, 1}, {in16, 2}, {in32, 4}, {out8, 1}, {ins, 1}, {outs, 1}};
  {
    Group cases("the I/O permission bitmap");
    for (u32 port = 0x200; port < 0x230; port++) {
      for (const Access& a : accesses) {
        bool want = true;
        for (u32 i = 0; i < a.size; i++) want = want && !denied(port + i);
        const Outcome o = Run(a.code, {.ebx = At(&word), .edx = port}, 3);
        const bool ok = want ? o.Done() : o.Is(kGeneralProtection, 0);
        if (!cases.Case(ok)) {
          Print("FAIL port %x size %u: expected %s got %s\n", port, a.size,
                want ? "no fault" : "#GP", VectorName(o.vector));
        }
      }
    }
  }
  CheckDone("an immediate port", Run(in80, {}, 3));
  CheckDone("all ports with IOPL 3", Run(in8, {.edx = 0x201, .eflags = 2 | kFlagIopl}, 3));
  CheckDone("a denied port with IOPL 3",
            Run(in8, {.edx = 0x204 / 3 * 3, .eflags = 2 | kFlagIopl}, 3));
  CheckDone("a denied port in CPL 0", Run(in8, {.edx = 0x204 / 3 * 3}));
  CheckFault("CPL 1 with IOPL 0 is checked as well", Run(in8, {.edx = 0x204 / 3 * 3}, 1),
             kGeneralProtection, 0, At(in8));
  // Two bytes are read, so the last port of the map needs a byte behind it.
  LoadMainTss(kBase + 0x40);
  CheckDone("the last port inside the limit", Run(in8, {.edx = 0x1ff}, 3));
  CheckFault("one whose second byte lies beyond", Run(in8, {.edx = 0x208 - 1}, 3),
             kGeneralProtection, 0, At(in8));
  LoadMainTss(kBase - 1);
  CheckFault("a map beyond the limit denies all", Run(in8, {.edx = 0x80}, 3), kGeneralProtection, 0,
             At(in8));
  main_tss.io_map_base = 0xffff;
  LoadMainTss();
}

// Interrupts from outside, and faults that are repaired, as tasks.
void TestExternal() {
  static volatile u32 count;
  count = 0;
  // IRQ 0 by the timer: the task ends the interrupt, counts, and is entered again behind its IRET.
  for (const u8 v : List{u8{0x11}, u8{0x20}, u8{4}, u8{1}}) Outb(v == 0x11 ? 0x20 : 0x21, v);
  Outb(0x21, 0xfe);
  MakeTask(CODE32("2: mov al, 0x20; out 0x20, al; inc dword ptr [ebx]; iretd; jmp 2b"));
  task.ebx = At(const_cast<const u32*>(&count));
  SetIdt(0x20, Gate(kTask, 0, kTaskGate));
  Outb(0x43, 0x34);
  Outb(0x40, 0xa9);
  Outb(0x40, 0x04);
  const void* wait = CODE32("2: inc ecx; cmp dword ptr [ebx], 10; jb 2b; nop");
  for (const u32 ring : List{0u, 3u}) {
    count = 0;
    const Outcome o =
        RunTask(wait, {.ebx = At(const_cast<const u32*>(&count)), .eflags = 2 | kFlagIf}, ring);
    CheckDone("timer interrupts through a task gate", o);
    Check(count >= 10 && o.frame.ecx > 10, "... ten, and the loop between them");
    CheckEq("... NT is not left behind", o.frame.eflags & (kFlagNt | kFlagIf), kFlagIf);
  }
  Outb(0x43, 0x30);
  Outb(0x21, 0xff);
  RestoreIdt(0x20);

  // #DE as a task that repairs the divisor: DIV is run again.
  static volatile u32 divisor;
  divisor = 0;
  MakeTask(CODE32("mov dword ptr [ebx], 10; iretd"));
  task.ebx = At(const_cast<const u32*>(&divisor));
  SetIdt(kDivideError, Gate(kTask, 0, kTaskGate));
  Outcome o = RunTask(CODE32("xor edx, edx; div dword ptr [ebx]"),
                      {.eax = 1500, .ebx = At(const_cast<const u32*>(&divisor))}, 3);
  RestoreIdt(kDivideError);
  CheckEq("#DE repaired by a task", o.frame.eax, 150);

  if ((Cpuid(1).edx >> 9 & 1) == 0) return Skip("NMI as a task", "no APIC");
  volatile u32* const apic = reinterpret_cast<u32*>(0xfee00000);
  apic[0xf0 / 4] = 0x1ff;
  count = 0;
  MakeTask(CODE32("2: inc dword ptr [ebx]; iretd; jmp 2b"));
  task.ebx = At(const_cast<const u32*>(&count));
  SetIdt(2, Gate(kTask, 0, kTaskGate));
  // An NMI to itself: physical, assert. Twice, so that the IRET of the task must have unblocked it.
  const void* send = CODE32(
      "mov dword ptr [ebx+0x10], 0; mov dword ptr [ebx], 0x4400; mov ecx, 1000; "
      "2: pause; loop 2b");
  for (u32 i = 1; i <= 2; i++) {
    o = RunTask(send, {.ebx = 0xfee00300});
    CheckDone("an NMI through a task gate", o);
    CheckEq("... once", count, i);
  }
  o = RunTask(CODE32("int 2"));
  CheckEq("INT 2 through it", count, 3);
  RestoreIdt(2);
}

constexpr Section kSections[] = {
    {"jump", TestJump},         {"call", TestCall},
    {"gates", TestGates},       {"rights", TestRights},
    {"links", TestLinks},       {"invalid", TestInvalid},
    {"ldt", TestLdt},           {"tss16", Test16},
    {"trap", TestTrapBit},      {"debug", TestDebugRegisters},
    {"paging", TestPaging},     {"io", TestIoMap},
    {"external", TestExternal}, {"step", TestStep},
};

}  // namespace

int Main() {
  RunOnVmi();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
