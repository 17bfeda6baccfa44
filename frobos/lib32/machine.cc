// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib32/machine.h"

namespace alibi::frobos {

extern "C" {
extern u8 trap_stubs[];
extern u8 double_fault_entry[];
void EnterProbe(const Frame* frame);
[[noreturn]] void ResumeProbe(const Frame* frame);
extern Frame trap_frame;
extern u32 trap_vector, trap_esp, trap_ss, trap_cs, trap_eflags, trap_tr, trap_error;
u64 gdt[kGdtEntries];
}
u64 ldt[16];
alignas(8) u64 idt[256];
alignas(128) Tss32 main_tss;
alignas(128) Tss32 double_fault_tss;

namespace {

constexpr unsigned kStubSize = 16;
constexpr u32 kMultibootMagic = 0x2badb002;
Handler handlers[256];
bool in_probe;
Outcome outcome;

alignas(16) u8 ring_stacks[3][4096];
alignas(16) u8 probe_stack[4096];
alignas(16) u8 double_fault_stack[1024];
char command_line[256];

constexpr const char* kNames[] = {"#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD",
                                  "#NM", "#DF", "9",   "#TS", "#NP", "#SS", "#GP",
                                  "#PF", "15",  "#MF", "#AC", "#MC", "#XM"};

bool HasErrorCode(u32 vector) {
  return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17;
}

bool IsBig(u32 selector) {
  const u64* table = (selector & 4) != 0 ? ldt : gdt;
  return (table[selector / 8] >> 54 & 1) != 0;
}

u32 LinearStack(u32 ss, u32 esp) {
  if ((ss & ~3u) == 0) return esp;
  return SegmentBase(ss) + (IsBig(ss) ? esp : esp & 0xffff);
}

u32 PaddedEsp(u32 ss, u32 esp, u32 bytes) {
  return IsBig(ss) ? esp + bytes : (esp & ~0xffffu) | ((esp + bytes) & 0xffff);
}

[[noreturn]] void PanicAt(const Outcome& o) {
  Panic("unexpected %s (vector %u) error %x cr2 %x at %x:%x flags %x stack %x:%x",
        VectorName(o.vector), o.vector, o.error, o.cr2, o.frame.cs, o.frame.eip, o.frame.eflags,
        o.frame.ss, o.frame.esp);
}

}  // namespace

u16 SetGdt(u16 selector, u64 descriptor) {
  WriteDescriptor<kVmiWriteGdtEntry>(gdt, selector / 8u, descriptor);
  return selector;
}
u8 AccessByte(u16 selector) { return static_cast<u8>(gdt[selector / 8] >> 40); }

void LoadGdt(u16 limit) { WriteGdtr({limit, At(gdt)}); }
void LoadIdt(u16 limit) { WriteIdtr({limit, At(idt)}); }
void LoadLdt() {
  SetGdt(kLdtSelector, Descriptor(At(ldt), sizeof(ldt) - 1, kLdt, 0));
  WriteLdtr(kLdtSelector);
}
void SetIdt(u8 vector, u64 gate) { WriteDescriptor<kVmiWriteIdtEntry>(idt, vector, gate); }
void RestoreIdt(u8 vector) {
  if (vector == kDoubleFault) {
    SetIdt(vector, Gate(kDoubleFaultTss, 0, kTaskGate));
    return;
  }
  const bool user = vector == kBreakpoint || vector == kOverflow || vector == kProbeExit;
  SetIdt(vector, Gate(CodeSelector(0), At(trap_stubs) + kStubSize * vector,
                      kInterruptGate32 | (user ? kDpl3 : kDpl0)));
}
void LoadMainTss(u32 limit) {
  SetGdt(kTss, Descriptor(At(&main_tss), limit, kTss32, 0));
  WriteTr(kTss);
}
void SetHandler(u8 vector, Handler handler) { handlers[vector] = handler; }

u32 RingStackTop(unsigned ring) { return At(ring_stacks[ring] + sizeof(ring_stacks[0])); }
u32 ProbeStackTop() { return At(probe_stack + sizeof(probe_stack)); }

u32 SegmentBase(u32 selector) {
  const u64 d = ((selector & 4) != 0 ? ldt : gdt)[selector / 8];
  return static_cast<u32>((d >> 16 & 0xffffff) | (d >> 56) << 24);
}
u32 StackWord(const Outcome& o, unsigned i) {
  return reinterpret_cast<const u16*>(LinearStack(o.frame.ss, o.frame.esp))[i];
}
u32 StackDword(const Outcome& o, unsigned i) {
  return reinterpret_cast<const u32*>(LinearStack(o.frame.ss, o.frame.esp))[i];
}

extern "C" [[gnu::used]] void TrapDispatch() {
  const u32 cr2 = ReadCr2();
  Outcome& o = outcome;
  o = {};
  o.frame = trap_frame;
  o.vector = trap_vector;
  o.cr2 = cr2;
  o.entry_esp = trap_esp;
  o.entry_ss = trap_ss & 0xffff;
  o.entry_cs = trap_cs & 0xffff;
  o.entry_eflags = trap_eflags;
  o.tr = trap_tr & 0xffff;
  const u32* stack = reinterpret_cast<const u32*>(LinearStack(o.entry_ss, o.entry_esp));
  u32 size = 12;
  if (HasErrorCode(o.vector)) {
    o.error = *stack++;
    size += 4;
  }
  o.frame.eip = stack[0];
  o.frame.cs = stack[1] & 0xffff;
  o.frame.eflags = stack[2];
  if ((o.frame.eflags & kFlagVm) != 0) {
    o.frame.esp = stack[3], o.frame.ss = stack[4] & 0xffff;
    o.frame.es = stack[5], o.frame.ds = stack[6], o.frame.fs = stack[7], o.frame.gs = stack[8];
  } else if ((o.frame.cs & 3) > (o.entry_cs & 3)) {
    o.frame.esp = stack[3], o.frame.ss = stack[4];
  } else {
    o.frame.esp = PaddedEsp(o.entry_ss, o.entry_esp, size), o.frame.ss = o.entry_ss;
  }
  o.frame.ds &= 0xffff, o.frame.es &= 0xffff, o.frame.fs &= 0xffff, o.frame.gs &= 0xffff;
  if (!in_probe) PanicAt(o);
  if (o.vector != kProbeExit && handlers[o.vector] != nullptr) {
    handlers[o.vector](&o);
    ResumeProbe(&o.frame);
  }
}

extern "C" [[gnu::used]] void DoubleFaultDispatch() {
  Outcome& o = outcome;
  o = {};
  o.vector = kDoubleFault;
  o.error = trap_error;
  o.task = true;
  o.tr = double_fault_tss.link;
  const Tss32& t = *reinterpret_cast<const Tss32*>(SegmentBase(double_fault_tss.link));
  o.frame = {t.eax, t.ebx, t.ecx, t.edx,    t.esi, t.edi, t.ebp, t.esp,
             t.ss,  t.eip, t.cs,  t.eflags, t.ds,  t.es,  t.fs,  t.gs};
  double_fault_tss.eip = At(double_fault_entry);
  double_fault_tss.esp = At(double_fault_stack + sizeof(double_fault_stack));
  double_fault_tss.eflags = kFlagsFixed;
  SetGdt(kDoubleFaultTss, Descriptor(At(&double_fault_tss), kTss32Limit, kTss32, 0));
  LoadMainTss(static_cast<u32>(gdt[kTss / 8] & 0xffff));
  if (!in_probe) PanicAt(o);
}

Outcome RunFrame(const Frame& frame) {
  if (in_probe) Panic("probes do not nest");
  in_probe = true;
  EnterProbe(&frame);
  in_probe = false;
  // TrapDispatch wrote it behind the compiler's back.
  asm volatile("" : "+m"(outcome) : : "memory");
  return outcome;
}

Outcome Run(const void* code, Frame f, unsigned ring) {
  f.eip = At(code);
  if (f.cs == 0) f.cs = CodeSelector(ring);
  if (f.ss == 0) f.ss = DataSelector(ring);
  if (f.ds == 0) f.ds = DataSelector(ring);
  if (f.es == 0) f.es = DataSelector(ring);
  if (f.esp == 0) f.esp = ProbeStackTop();
  return RunFrame(f);
}

const char* VectorName(u32 vector) {
  if (vector == kProbeExit) return "no fault";
  return vector < sizeof(kNames) / sizeof(kNames[0]) ? kNames[vector] : "interrupt";
}

void CheckFault(const char* name, const Outcome& o, u8 vector, u32 error, u32 eip) {
  const bool ok = o.Is(vector, error) && (eip == ~0u || eip == o.frame.eip);
  CountCheck(ok);
  if (ok) {
    Print("PASS %s\n", name);
    return;
  }
  Print("FAIL %s: expected %s error 0x%x", name, VectorName(vector), error);
  if (eip != ~0u) Print(" at 0x%x", eip);
  Print(" got %s error 0x%x at 0x%x:0x%x cr2 0x%x\n", VectorName(o.vector), o.error, o.frame.cs,
        o.frame.eip, o.cr2);
}

void CheckDone(const char* name, const Outcome& o) {
  CountCheck(o.Done());
  if (o.Done()) {
    Print("PASS %s\n", name);
    return;
  }
  Print("FAIL %s: expected no fault got %s error 0x%x at 0x%x:0x%x cr2 0x%x\n", name,
        VectorName(o.vector), o.error, o.frame.cs, o.frame.eip, o.cr2);
}

const char* Option(const char* key) {
  for (const char* p = command_line; *p != 0; p++) {
    if (p != command_line && p[-1] != ' ') continue;
    const char* k = key;
    const char* q = p;
    while (*k != 0 && *k == *q) k++, q++;
    if (*k == 0 && *q == '=') return q + 1;
  }
  return nullptr;
}

namespace {

void InitDescriptors() {
  for (unsigned ring = 0; ring < 4; ring++) {
    const u8 dpl = static_cast<u8>(ring << 5);
    SetGdt(CodeSelector(ring), Flat(kCode | dpl));
    SetGdt(DataSelector(ring), Flat(kData | dpl));
  }
  LoadGdt();
  asm volatile(
      "mov %0, %%ds; mov %0, %%es; mov %0, %%ss; mov %1, %%fs; mov %1, %%gs; ljmp $8, $1f; 1:"
      :
      : "r"(u32{DataSelector(0)}), "r"(0));
  main_tss.ss0 = DataSelector(0), main_tss.ss1 = DataSelector(1), main_tss.ss2 = DataSelector(2);
  main_tss.esp0 = RingStackTop(0);
  main_tss.esp1 = RingStackTop(1);
  main_tss.esp2 = RingStackTop(2);
  main_tss.io_map_base = 0xffff;
  LoadMainTss();
  Tss32& t = double_fault_tss;
  t.cs = CodeSelector(0);
  t.ss = t.ds = t.es = DataSelector(0);
  t.eip = At(double_fault_entry);
  t.esp = At(double_fault_stack + sizeof(double_fault_stack));
  t.eflags = kFlagsFixed;
  SetGdt(kDoubleFaultTss, Descriptor(At(&t), kTss32Limit, kTss32, 0));
  for (unsigned v = 0; v < 256; v++) RestoreIdt(static_cast<u8>(v));
  LoadIdt();
  // The LDTR of a reset is not null: base 0, limit 0xffff.
  WriteLdtr(0);
}

void MaskPic() {
  Outb(0x21, 0xff);
  Outb(0xa1, 0xff);
}

}  // namespace

bool Selected(const char* section) {
  const char* p = Option("only");
  if (p == nullptr) return true;
  while (*p != 0 && *p != ' ') {
    const char* s = section;
    while (*s != 0 && *s == *p) s++, p++;
    if (*s == 0 && (*p == 0 || *p == ' ' || *p == ',')) return true;
    while (*p != 0 && *p != ' ' && *p != ',') p++;
    if (*p == ',') p++;
  }
  return false;
}

extern "C" [[gnu::used, noreturn]] void KernelStart(u32 magic, const u32* info) {
  InitConsole();
  Print("\n");  // firmware may have left the terminal in the middle of a line
  if (magic == kMultibootMagic && (info[0] & 4) != 0) {
    const char* text = reinterpret_cast<const char*>(info[4]);
    for (u32 i = 0; i + 1 < sizeof(command_line) && text[i] != 0; i++) command_line[i] = text[i];
  }
  const char* host = Option("host");
  SetOnQemu(host != nullptr && host[0] == 'q');
  MaskPic();  // firmware may have left its timer running
  InitDescriptors();
  Exit(static_cast<u8>(Main()));
}

}  // namespace alibi::frobos
