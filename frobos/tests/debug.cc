// SPDX-License-Identifier: Apache-2.0
// Debug registers and single-stepping: what is reported, where, and in which bits of DR6 (Intel SDM
// vol. 3B ch. 17). While a breakpoint is enabled the whole kernel runs under it.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kExecute = 0, kWrite = 1, kPort = 2, kAccess = 3;  // DR7.R/W
constexpr u64 kOne = 0, kTwo = 1, kEight = 2, kFour = 3;         // DR7.LEN
constexpr u64 kDr6Bd = 1u << 13, kDr6Bs = 1u << 14, kDr6Seen = 0x600f;
constexpr u64 kDr7Gd = 1u << 13, kDr7Fixed = 1u << 10;
constexpr u64 kCr4De = 1u << 3;

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

void WriteDr7(u64 value) { asm volatile("mov %0, %%dr7" : : "r"(value | kDr7Fixed) : "memory"); }
void ClearDr6() { asm volatile("mov %0, %%dr6" : : "r"(0ull)); }
u64 ReadDr6() {
  u64 value;
  asm volatile("mov %%dr6, %0" : "=r"(value));
  return value & kDr6Seen;
}

void SetAddress(unsigned i, u64 address) {
  if (i == 0) asm volatile("mov %0, %%dr0" : : "r"(address));
  if (i == 1) asm volatile("mov %0, %%dr1" : : "r"(address));
  if (i == 2) asm volatile("mov %0, %%dr2" : : "r"(address));
  if (i == 3) asm volatile("mov %0, %%dr3" : : "r"(address));
}

// DR7 of one breakpoint, locally enabled.
u64 Control(unsigned i, u64 kind, u64 length) {
  return (1ull << (2 * i)) | (kind | length << 2) << (16 + 4 * i);
}

// Runs code under one breakpoint.
Outcome RunUnder(unsigned i, u64 address, u64 kind, u64 length, const void* code,
                 const Regs& regs = {}) {
  ClearDr6();
  // Bits of breakpoints that match but are not enabled may be set, too.
  for (unsigned other = 0; other < 4; other++) SetAddress(other, 0);
  SetAddress(i, address);
  WriteDr7(Control(i, kind, length));
  const Outcome o = RunKernel(code, regs);
  WriteDr7(0);
  return o;
}

void TestExecute() {
  const void* code = KERNEL_CODE("nop; nop; ud2");
  for (unsigned i = 0; i < 4; i++) {
    const Outcome o = RunUnder(i, At(code, 1), kExecute, kOne, code);
    CheckFault("#DB instruction breakpoint", o, kDebug, 0, At(code, 1));
    CheckEq("... its bit of DR6", ReadDr6(), 1u << i);
    // SDM vol. 3B 17.3.1.1.
    if (!SkipOnQemu("... RF clear in its image")) {
      CheckEq("... RF clear in its image", o.frame.rflags & kFlagRf, 0);
    }
  }
  Outcome o = RunUnder(0, At(code, 2), kExecute, kOne, code);
  CheckFault("a breakpoint comes before the instruction's own fault", o, kDebug, 0, At(code, 2));
  TrapFrame frame = o.frame;
  frame.rflags |= kFlagRf;
  WriteDr7(Control(0, kExecute, kOne));
  o = RunFrame(frame);
  WriteDr7(0);
  CheckFault("... which comes when RF is set", o, kInvalidOpcode, 0, At(code, 2));
  o = RunUnder(0, At(code, 3), kExecute, kOne, code);
  CheckFault("no breakpoint inside an instruction", o, kInvalidOpcode, 0, At(code, 2));

  ClearDr6();
  SetAddress(2, At(code));
  WriteDr7(2u << 4);  // globally enabled
  o = RunKernel(code);
  WriteDr7(0);
  CheckFault("global enable", o, kDebug, 0, At(code));
  o = RunKernel(code);
  CheckFault("not enabled", o, kInvalidOpcode);

  // RF covers all iterations.
  const void* repeated = KERNEL_CODE("rep stosb; nop");
  frame =
      RunUnder(0, At(repeated), kExecute, kOne, repeated, {.rcx = 3, .rdi = ProbeStackTop() - 512})
          .frame;
  CheckEq("#DB before the first iteration", frame.rcx, 3);
  frame.rflags |= kFlagRf;
  WriteDr7(Control(0, kExecute, kOne));
  o = RunFrame(frame);
  WriteDr7(0);
  // QEMU forgets RF after the first.
  if (!SkipOnQemu("RF covers all iterations")) {
    CheckDone("RF covers all iterations", o);
    CheckEq("... rcx", o.frame.rcx, 0);
  }

  ClearDr6();
  SetAddress(1, At(code, 1));
  SetAddress(3, At(code, 1));
  WriteDr7(Control(1, kExecute, kOne) | Control(3, kExecute, kOne));
  RunKernel(code);
  WriteDr7(0);
  CheckEq("two breakpoints at one instruction", ReadDr6(), 0xa);
}

// Large enough to be a stack below its middle.
alignas(64) u8 area[8192];

void TestData() {
  struct Case {
    const char* name;
    const void* code;
    u64 length_of_code;
    u64 offset;  // of the breakpoint in area[]
    u64 kind, length;
    bool hit;
    // QEMU 7.2 does not look at accesses of vector registers' and FXSAVE's helpers.
    bool qemu_wrong = false;
  };
  const Case cases[] = {
      {"store of 1 byte", KERNEL_CODE("mov [rdi], al; nop"), 2, 0, kWrite, kOne, true},
      {"store of 2 bytes, last byte", KERNEL_CODE("mov [rdi], ax; nop"), 3, 1, kWrite, kOne, true},
      {"store of 4 bytes", KERNEL_CODE("mov [rdi], eax; nop"), 2, 0, kWrite, kFour, true},
      {"store of 8 bytes into a watched word", KERNEL_CODE("mov [rdi], rax; nop"), 3, 6, kWrite,
       kTwo, true},
      {"store of 1 byte into 8", KERNEL_CODE("mov [rdi + 7], al; nop"), 3, 0, kWrite, kEight, true},
      {"store in front", KERNEL_CODE("mov [rdi + 4], eax; nop"), 3, 8, kWrite, kFour, false},
      {"store behind", KERNEL_CODE("mov [rdi + 12], eax; nop"), 3, 8, kWrite, kFour, false},
      {"misaligned store", KERNEL_CODE("mov [rdi + 5], eax; nop"), 3, 8, kWrite, kFour, true},
      {"load, write breakpoint", KERNEL_CODE("mov eax, [rdi]; nop"), 2, 0, kWrite, kFour, false},
      {"load", KERNEL_CODE("mov eax, [rdi]; nop"), 2, 0, kAccess, kFour, true},
      {"store, access breakpoint", KERNEL_CODE("mov [rdi], eax; nop"), 2, 0, kAccess, kFour, true},
      {"read-modify-write", KERNEL_CODE("add dword ptr [rdi], 1; nop"), 3, 0, kWrite, kFour, true},
      {"locked", KERNEL_CODE("lock inc qword ptr [rdi]; nop"), 4, 0, kWrite, kEight, true},
      {"xchg", KERNEL_CODE("xchg [rdi], rax; nop"), 3, 0, kWrite, kEight, true},
      {"compare", KERNEL_CODE("cmp byte ptr [rdi + 3], 0; nop"), 4, 0, kAccess, kFour, true},
      {"lea", KERNEL_CODE("lea rax, [rdi]; nop"), 3, 0, kAccess, kFour, false},
      {"push", KERNEL_CODE("mov rsp, rdi; push rax; nop"), 4, -8ull & 0x3f, kWrite, kEight, true},
      {"bit test beyond the operand", KERNEL_CODE("mov eax, 99; bts [rdi], eax; nop"), 8, 12,
       kWrite, kFour, true},
      {"movs", KERNEL_CODE("lea rsi, [rdi + 32]; movsd; nop"), 5, 32, kAccess, kFour, true},
      {"stos", KERNEL_CODE("stosq; nop"), 2, 4, kWrite, kFour, true},
      {"16 bytes", KERNEL_CODE("movups [rdi], xmm0; nop"), 3, 12, kWrite, kFour, true},
      {"x87", KERNEL_CODE("fnstcw [rdi]; nop"), 2, 0, kWrite, kTwo, true},
      {"fxsave", KERNEL_CODE("fxsave [rdi - 64]; nop"), 4, 0, kWrite, kOne, true, true},
  };
  const u64 base = reinterpret_cast<u64>(area) + sizeof(area) / 2;
  for (const Case& c : cases) {
    if (SkipOnQemu(c.name, c.qemu_wrong)) continue;
    // The push lies below the area's middle.
    const u64 at = c.offset == 0x38 ? base - 8 : base + c.offset;
    const Outcome o = RunUnder(3, at, c.kind, c.length, c.code, {.rdi = base});
    if (c.hit) {
      CheckFault(c.name, o, kDebug, 0, At(c.code, c.length_of_code));
      CheckEq("... DR6", ReadDr6(), 8);
    } else {
      CheckDone(c.name, o);
      CheckEq("... DR6", ReadDr6(), 0);
    }
  }

  const void* fill = KERNEL_CODE("rep stosb; nop");
  Outcome o = RunUnder(0, base + 5, kWrite, kOne, fill, {.rcx = 16, .rdi = base});
  CheckFault("#DB after the iteration that stores there", o, kDebug, 0, At(fill));
  CheckEq("... rcx", o.frame.rcx, 10);
  o = RunUnder(0, base + 15, kWrite, kOne, fill, {.rcx = 16, .rdi = base});
  if (!SkipOnQemu("#DB after the last iteration")) {
    CheckFault("#DB after the last iteration", o, kDebug, 0, At(fill, 2));
  }
  o = RunUnder(0, base + 16, kWrite, kOne, fill, {.rcx = 16, .rdi = base});
  CheckDone("... behind the last", o);

  const void* call = KERNEL_CODE("mov rsp, rdi; call 2f; nop; 2: nop");
  o = RunUnder(1, base - 8, kWrite, kEight, call, {.rdi = base});
  CheckFault("#DB behind a call that pushes there", o, kDebug, 0, At(call, 9));
  const void* fault = KERNEL_CODE("mov [rdi], eax");
  o = RunUnder(1, kHighBase + 0x700000, kWrite, kFour, fault, {.rdi = kHighBase + 0x700000});
  CheckFault("a store that faults", o, kPageFault, kPfWrite, At(fault));
  CheckEq("... hits nothing", ReadDr6(), 0);

  // B0-B3 are those of the latest #DB; the other bits of DR6 are never cleared by the processor.
  ClearDr6();
  const void* store = KERNEL_CODE("mov [rdi], al; nop");
  SetAddress(0, base);
  SetAddress(2, base + 1);
  WriteDr7(Control(0, kWrite, kOne) | Control(2, kWrite, kOne));
  RunKernel(store, {.rdi = base});
  RunKernel(store, {.rdi = base + 1});
  WriteDr7(0);
  CheckEq("the latest breakpoint's bit of DR6", ReadDr6(), 4);
}

void TestPorts() {
  const u64 cr4 = ReadCr4();
  WriteCr4(cr4 | kCr4De);
  const void* out = KERNEL_CODE("out 0x80, al; nop");
  const void* in = KERNEL_CODE("in al, 0x80; nop");
  const void* by_dx = KERNEL_CODE("in ax, dx; nop");
  const Outcome written = RunUnder(0, 0x80, kPort, kOne, out);
  const Outcome read = RunUnder(1, 0x80, kPort, kOne, in);
  const u64 dr6 = ReadDr6();
  const Outcome word = RunUnder(2, 0x80, kPort, kOne, by_dx, {.rdx = 0x7f});
  const Outcome other = RunUnder(0, 0x81, kPort, kOne, out);
  const Outcome reserved = RunKernel(KERNEL_CODE("mov rax, dr4"));
  WriteCr4(cr4);
  CheckFault("#DB out", written, kDebug, 0, At(out, 2));
  CheckFault("#DB in", read, kDebug, 0, At(in, 2));
  CheckEq("... DR6", dr6, 2);
  if (!SkipOnQemu("#DB in of a word that reaches the port")) {
    CheckFault("#DB in of a word that reaches the port", word, kDebug, 0, At(by_dx, 2));
  }
  CheckDone("out to another port", other);
  CheckFault("#UD DR4 with CR4.DE", reserved, kInvalidOpcode);
  CheckDone("DR4 without CR4.DE", RunKernel(KERNEL_CODE("mov rax, dr4")));
}

void TestGeneralDetect() {
  CheckFault("#GP mov from a debug register in CPL 3", RunUser(USER_CODE("mov rax, dr7")),
             kGeneralProtection);
  // QEMU has no general detect.
  if (SkipOnQemu("#DB access under DR7.GD")) return;
  ClearDr6();
  // In the probe, because the next access to a debug register traps.
  const void* code = KERNEL_CODE("mov dr7, rax; nop; mov rbx, dr0");
  const Outcome o = RunKernel(code, {.rax = kDr7Gd | kDr7Fixed});
  CheckFault("#DB access under DR7.GD", o, kDebug, 0, At(code, 4));
  CheckEq("... DR6.BD", ReadDr6(), kDr6Bd);
  u64 dr7;
  asm volatile("mov %%dr7, %0" : "=r"(dr7));
  CheckEq("... clears GD", dr7 & kDr7Gd, 0);
  CheckFault("#GP upper half of DR7", RunKernel(KERNEL_CODE("mov dr7, rax"), {.rax = 1ull << 40}),
             kGeneralProtection);
}

void TestStep() {
  constexpr u64 kStep = kFlagsFixed | kFlagTf;
  ClearDr6();
  const void* load_ss = KERNEL_CODE("mov ss, eax; nop; nop");
  Outcome o = RunKernel(load_ss, {.rax = kKernelData, .rflags = kStep});
  CheckFault("no single step between mov ss and the next", o, kDebug, 0, At(load_ss, 3));
  CheckEq("... DR6.BS", ReadDr6(), kDr6Bs);
  // SDM vol. 3A 6.8.3. AMD's CPUs report it.
  constexpr u32 kAmdsEbx = 0x68747541;
  const void* shadowed = KERNEL_CODE("mov ss, eax; nop; nop");
  o = RunUnder(0, At(shadowed, 2), kExecute, kOne, shadowed, {.rax = kKernelData});
  if (!SkipOnQemu("a breakpoint behind mov ss")) {
    if (Cpuid(0).ebx == kAmdsEbx) {
      CheckFault("a breakpoint behind mov ss", o, kDebug, 0, At(shadowed, 2));
      CheckEq("... DR6", ReadDr6(), 1);
    } else {
      CheckDone("no breakpoint behind mov ss", o);
      CheckEq("... DR6", ReadDr6(), 0);
    }
  }
  ClearDr6();
  const void* sti = KERNEL_CODE("sti; cli; nop");
  o = RunKernel(sti, {.rflags = kStep});
  // The shadow of STI holds back interrupts, not traps (SDM vol. 3A 6.8.3). QEMU holds both.
  if (!SkipOnQemu("single step of sti")) {
    CheckFault("single step of sti", o, kDebug, 0, At(sti, 1));
  }
  const void* ud = KERNEL_CODE("ud2");
  o = RunKernel(ud, {.rflags = kStep});
  CheckFault("a fault, not a single step", o, kInvalidOpcode, 0, At(ud));
  CheckEq("... TF in its image", o.frame.rflags & kFlagTf, kFlagTf);
  const void* jump = KERNEL_CODE("jmp 2f; nop; 2: nop");
  o = RunKernel(jump, {.rflags = kStep});
  CheckFault("single step of a jump", o, kDebug, 0, At(jump, 3));
  const void* cpuid = KERNEL_CODE("cpuid; nop");
  o = RunKernel(cpuid, {.rflags = kStep});
  CheckFault("single step of cpuid", o, kDebug, 0, At(cpuid, 2));
  o = RunUser(USER_CODE("mov rax, [rsp - 8]; nop"), {.rflags = kStep});
  CheckEq("single step in CPL 3", o.frame.vector, kDebug);
  const void* clear = KERNEL_CODE("popfq; nop");
  u64* const stack = reinterpret_cast<u64*>(area + sizeof(area) / 2);
  *stack = kFlagsFixed;
  o = RunKernel(clear, {.rsp = reinterpret_cast<u64>(stack), .rflags = kStep});
  // SDM vol. 3B 17.3.1.4: TF as the instruction begins decides. QEMU looks behind it.
  if (!SkipOnQemu("single step of popf that clears TF")) {
    CheckFault("single step of popf that clears TF", o, kDebug, 0, At(clear, 1));
  }
  const void* repeated = KERNEL_CODE("rep stosb; nop");
  const u64 buffer = reinterpret_cast<u64>(area);
  o = RunKernel(repeated, {.rcx = 2, .rdi = buffer, .rflags = kStep});
  CheckFault("single step of an iteration", o, kDebug, 0, At(repeated));
  // SDM vol. 3B 17.3.1.1.
  if (!SkipOnQemu("... RF set in its image")) {
    CheckEq("... RF set in its image", o.frame.rflags & kFlagRf, kFlagRf);
  }
  o = RunFrame(o.frame);
  CheckFault("single step of the last iteration", o, kDebug, 0, At(repeated, 2));

  // Both at once are one exception.
  ClearDr6();
  SetAddress(0, reinterpret_cast<u64>(area));
  WriteDr7(Control(0, kWrite, kFour));
  const void* store = KERNEL_CODE("mov [rdi], eax; nop");
  o = RunKernel(store, {.rdi = buffer, .rflags = kStep});
  WriteDr7(0);
  // QEMU reports the step in the handler of the breakpoint.
  if (!SkipOnQemu("single step and data breakpoint")) {
    CheckFault("single step and data breakpoint", o, kDebug, 0, At(store, 2));
    CheckEq("... DR6", ReadDr6(), kDr6Bs | 1);
  }

  // A page that is not there yet, and one that is crossed.
  const u64 page = kHighBase + 0x800000;
  static u64 mapped;
  mapped = page;
  SetHandler(kPageFault, [](TrapFrame*) { Map(mapped, AllocPage(), kPteW); });
  o = RunKernel(KERNEL_CODE("mov rax, [rdi]; nop"), {.rdi = page, .rflags = kStep});
  SetHandler(kPageFault, nullptr);
  CheckFault("single step of a load after its page fault", o, kDebug);
  Unmap(page);
}

// MOV SS holds back its data breakpoint: it comes with the next instruction's own #DB, or before
// the first instruction of that one's handler (vol. 3A 6.8.3).
void TestHeldBack() {
  // QEMU reports the breakpoint behind MOV SS at once.
  if (SkipOnQemu("mov ss under a data breakpoint")) return;
  u64* const word = reinterpret_cast<u64*>(area);
  *word = kKernelData;
  const u64 at = reinterpret_cast<u64>(word);
  const void* plain = KERNEL_CODE("mov ss, [rdi]; nop; nop");
  Outcome o = RunUnder(1, at, kAccess, kFour, plain, {.rdi = at});
  CheckFault("mov ss under a data breakpoint", o, kDebug, 0, At(plain, 3));
  CheckEq("... DR6", ReadDr6(), 2);
  const void* int1 = KERNEL_CODE("mov ss, [rdi]; .byte 0xf1; nop");
  o = RunUnder(1, at, kAccess, kFour, int1, {.rdi = at});
  CheckFault("... and int1: one #DB for both", o, kDebug, 0, At(int1, 3));
  CheckEq("... DR6", ReadDr6(), 2);
  struct Case {
    const char* name;
    const void* code;
    u8 vector;
  };
  const Case cases[] = {
      {"... and int3: in front of its handler", KERNEL_CODE("mov ss, [rdi]; int3"), kBreakpoint},
      {"... and a #UD", KERNEL_CODE("mov ss, [rdi]; ud2"), kInvalidOpcode},
      {"... and a #PF", KERNEL_CODE("mov ss, [rdi]; mov eax, [rsi]"), kPageFault},
      {"... and a #GP", KERNEL_CODE("mov ss, [rdi]; mov cr3, r8"), kGeneralProtection},
      {"... and a #DE", KERNEL_CODE("mov ss, [rdi]; div ecx"), kDivideError},
  };
  const void* handler = KERNEL_CODE("nop; nop");
  const u64 nowhere = kHighBase + 0x800000;
  for (const Case& c : cases) {
    SetEntry(c.vector, handler);
    o = RunUnder(1, at, kAccess, kFour, c.code, {.rsi = nowhere, .rdi = at, .r8 = ~0ull});
    RestoreEntry(c.vector);
    CheckFault(c.name, o, kDebug, 0, At(handler));
    CheckEq("... DR6", ReadDr6(), 2);
  }
  const void* detect = KERNEL_CODE("mov ss, [rdi]; mov rax, dr0; nop");
  ClearDr6();
  SetAddress(1, at);
  WriteDr7(Control(1, kAccess, kFour) | kDr7Gd);
  o = RunKernel(detect, {.rdi = at});
  WriteDr7(0);
  CheckFault("... and DR7.GD: one #DB for both", o, kDebug, 0, At(detect, 2));
  CheckEq("... DR6", ReadDr6(), 2 | kDr6Bd);
}

// TF as SYSCALL and SYSRET leave it decides, not TF as they begin.
void TestSyscallStep() {
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, At(KERNEL_CODE("sysretq")));
  WriteMsr(kMsrSfmask, kFlagTf | kFlagIf);
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) | kEferSce);
  ClearDr6();
  const void* call = USER_CODE("syscall; nop; nop");
  const Outcome o = RunUser(call, {.rflags = kFlagsFixed | kFlagTf});
  CheckFault("single step over syscall with TF masked, and sysret", o, kDebug, 0, At(call, 2));
  CheckEq("... CPL", o.frame.cs & 3, 3);
  CheckEq("... DR6.BS", ReadDr6(), kDr6Bs);
}

u64 ReadDr7() {
  u64 value;
  asm volatile("mov %%dr7, %0" : "=r"(value));
  return value;
}

// Which bits of DR6 and DR7 are what they are (SDM vol. 3B 17.2.3, 17.2.4).
void TestFixedBits() {
  asm volatile("mov %0, %%dr6" : : "r"(0ull));
  u64 dr6;
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  CheckEq("DR6 written 0", dr6, 0xffff0ff0);
  asm volatile("mov %0, %%dr6" : : "r"(0xffffffffull));
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  // Bits 11 (bus lock) and 16 (RTM) are set, or of features that this processor may have.
  CheckEq("DR6 written with ones: what exists is set", dr6 & 0xf000e00f, 0xf000e00f & ~0x1000);
  ClearDr6();
  if (!SkipOnQemu("#GP upper half of DR6")) {
    CheckFault("#GP upper half of DR6", RunKernel(KERNEL_CODE("mov dr6, rax"), {.rax = 1ull << 32}),
               kGeneralProtection);
  }
  asm volatile("mov %0, %%dr7" : : "r"(0ull));
  CheckEq("DR7 written 0", ReadDr7(), kDr7Fixed);
  const Outcome o = RunKernel(KERNEL_CODE("mov dr7, rbx; mov rax, dr5; mov dr7, rcx; mov rdx, dr4"),
                              {.rbx = kDr7Fixed | 0xf << 16, .rcx = kDr7Fixed});
  CheckDone("DR4 and DR5 without CR4.DE", o);
  CheckEq("... DR5 is DR7", o.frame.rax, kDr7Fixed | 0xf << 16);
  CheckEq("... DR4 is DR6", o.frame.rdx, 0xffff0ff0);
  SetAddress(3, 0xffff'8000'1234'5678);
  u64 dr3;
  asm volatile("mov %%dr3, %0" : "=r"(dr3));
  CheckEq("DR3 holds 64 bits", dr3, 0xffff'8000'1234'5678);
  SetAddress(3, 0);
}

extern "C" void debug_syscall_entry();
asm(R"(
.global debug_syscall_entry
debug_syscall_entry:
    nop
    nop
    sysretq
)");

// Steps over what changes TF or the privilege level.
void TestStepOver() {
  constexpr u64 kStep = kFlagsFixed | kFlagTf;
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, reinterpret_cast<u64>(debug_syscall_entry));
  const void* syscall = USER_CODE("syscall; nop; nop");
  // TF is looked at when SYSCALL and SYSRET are through.
  WriteMsr(kMsrSfmask, kFlagIf | kFlagTf);
  ClearDr6();
  SetIst(kDebug, 4);  // SYSCALL leaves the user's stack in rsp
  Outcome o = RunUser(syscall, {.rflags = kStep});
  CheckFault("single step of syscall that masks TF: behind sysret", o, kDebug, 0, At(syscall, 2));
  CheckEq("... in CPL 3", o.frame.cs, kUserCode);
  CheckEq("... DR6.BS", ReadDr6(), kDr6Bs);
  WriteMsr(kMsrSfmask, kFlagIf);
  o = RunUser(syscall, {.rflags = kStep});
  CheckFault("single step of syscall that leaves TF: at the entry", o, kDebug, 0,
             reinterpret_cast<u64>(debug_syscall_entry));
  CheckEq("... in CPL 0", o.frame.cs, kKernelCode);
  RestoreEntry(kDebug);
  WriteMsr(kMsrSfmask, kFlagIf | kFlagTf);
  // A sysret that sets TF, taken without it.
  const void* target = USER_CODE("nop; nop");
  o = RunKernel(KERNEL_CODE("sysretq"), {.rcx = At(target), .rsp = UserStackTop(), .r11 = kStep});
  CheckFault("sysret that sets TF", o, kDebug, 0, At(target));

  // Into a handler with TF clear, and back: the instruction behind is stepped.
  static u64 handler_flags;
  SetHandler(0x90, [](TrapFrame*) { handler_flags = ReadFlags(); });
  const void* interrupt = KERNEL_CODE("int 0x90; nop; nop");
  o = RunKernel(interrupt, {.rflags = kStep});
  SetHandler(0x90, nullptr);
  CheckFault("single step of int n: behind the instruction that follows", o, kDebug, 0,
             At(interrupt, 3));
  CheckEq("... TF clear in the handler", handler_flags & kFlagTf, 0);

  // POPF sets TF: the next instruction is the first one stepped.
  const void* popf = KERNEL_CODE("popfq; nop; nop");
  u64* const stack = reinterpret_cast<u64*>(area + sizeof(area) / 2);
  *stack = kStep;
  o = RunKernel(popf, {.rsp = reinterpret_cast<u64>(stack)});
  CheckFault("popf that sets TF", o, kDebug, 0, At(popf, 2));
  const void* loop = KERNEL_CODE("loop $; nop");
  o = RunKernel(loop, {.rcx = 3, .rflags = kStep});
  CheckFault("single step of a loop to itself", o, kDebug, 0, At(loop));
  CheckEq("... rcx", o.frame.rcx, 2);
  const void* rep = KERNEL_CODE("rep movsb; nop");
  const u64 buffer = reinterpret_cast<u64>(area);
  o = RunKernel(rep, {.rcx = 0, .rsi = buffer, .rdi = buffer + 64, .rflags = kStep});
  CheckFault("single step of rep movsb of nothing", o, kDebug, 0, At(rep, 2));
  const void* wrmsr = KERNEL_CODE("wrmsr; nop");
  o = RunKernel(wrmsr, {.rcx = kMsrKernelGsBase, .rflags = kStep});
  CheckFault("single step of wrmsr", o, kDebug, 0, At(wrmsr, 2));
  const void* cr3 = KERNEL_CODE("mov cr3, rax; nop");
  o = RunKernel(cr3, {.rax = ReadCr3(), .rflags = kStep});
  CheckFault("single step of mov cr3", o, kDebug, 0, At(cr3, 3));
  const void* out = KERNEL_CODE("out 0x80, al; nop");
  o = RunKernel(out, {.rflags = kStep});
  CheckFault("single step of out", o, kDebug, 0, At(out, 2));

  // Every instruction of a stretch, counted.
  static u64 steps;
  steps = 0;
  SetHandler(kDebug, [](TrapFrame*) { steps++; });
  o = RunKernel(KERNEL_CODE("mov ecx, 10\n2: inc rax; dec ecx; jnz 2b; nop"), {.rflags = kStep});
  SetHandler(kDebug, nullptr);
  CheckDone("a loop stepped to its end", o);
  CheckEq("... its result", o.frame.rax, 10);
  CheckEq("... steps", steps, 1 + 30 + 1);
}

// RF: set only by IRET, never by POPF; not seen by PUSHF (SDM vol. 3B 17.3.1.1).
void TestResumeFlag() {
  const void* code =
      KERNEL_CODE("pushfq; or qword ptr [rsp], 0x10000; popfq; nop; pushfq; pop rax");
  Outcome o = RunUnder(0, At(code, 10), kExecute, kOne, code);
  CheckFault("popf does not set RF", o, kDebug, 0, At(code, 10));
  o = RunKernel(code, {.rflags = kFlagsFixed | kFlagRf});
  CheckEq("pushf stores RF as 0", o.frame.rax & kFlagRf, 0);
  // One instruction, and it is gone.
  const void* again = KERNEL_CODE("2: dec ecx; jnz 2b; nop");
  SetAddress(1, At(again));
  ClearDr6();
  WriteDr7(Control(1, kExecute, kOne));
  o = RunKernel(again, {.rcx = 3, .rflags = kFlagsFixed | kFlagRf});
  WriteDr7(0);
  CheckFault("RF lasts for one instruction", o, kDebug, 0, At(again));
  CheckEq("... the second time round", o.frame.rcx, 2);
  // A fault's image has RF set, so that its handler's IRET does not meet the breakpoint again.
  static u64 faults, hits;
  static u64 page;
  page = kHighBase + 0x900000;
  faults = 0;
  hits = 0;
  SetHandler(kPageFault, [](TrapFrame*) {
    faults++;
    Map(page, AllocPage(), kPteW);
  });
  SetHandler(kDebug, [](TrapFrame* frame) {
    hits++;
    frame->rflags |= kFlagRf;
  });
  const void* load = KERNEL_CODE("mov rax, [rdi]; nop");
  o = RunUnder(2, At(load), kExecute, kOne, load, {.rdi = page});
  SetHandler(kPageFault, nullptr);
  SetHandler(kDebug, nullptr);
  Unmap(page);
  CheckDone("a breakpoint at a load that faults", o);
  CheckEq("... one fault", faults, 1);
  if (!SkipOnQemu("... one breakpoint")) CheckEq("... one breakpoint", hits, 1);
}

// A data breakpoint hit by a load of SS waits, with everything else, for the next instruction (SDM
// vol. 3A 6.8.3).
void TestStackSegment() {
  static u64 selector = kKernelData;
  const u64 at = reinterpret_cast<u64>(&selector);
  const void* code = KERNEL_CODE("mov ss, [rdi]; nop; nop");
  Outcome o = RunUnder(0, at, kAccess, kTwo, code, {.rdi = at});
  if (!SkipOnQemu("data breakpoint at mov ss: behind the next instruction")) {
    CheckFault("data breakpoint at mov ss: behind the next instruction", o, kDebug, 0, At(code, 3));
    CheckEq("... DR6", ReadDr6(), 1);
  }
  const void* plain = KERNEL_CODE("mov ds, [rdi]; nop; nop");
  o = RunUnder(0, at, kAccess, kTwo, plain, {.rdi = at});
  CheckFault("... at mov ds: at once", o, kDebug, 0, At(plain, 2));
}

void TestRepeatedPorts() {
  const u64 cr4 = ReadCr4();
  WriteCr4(cr4 | kCr4De);
  const void* outs = KERNEL_CODE("rep outsb; nop");
  const Regs regs = {.rcx = 3, .rdx = 0x80, .rsi = reinterpret_cast<u64>(area)};
  const Outcome o = RunUnder(1, 0x80, kPort, kOne, outs, regs);
  const u64 dr6 = ReadDr6();
  const void* ins = KERNEL_CODE("insb; nop");
  const Outcome in =
      RunUnder(0, 0x80, kPort, kOne, ins, {.rdx = 0x80, .rdi = reinterpret_cast<u64>(area)});
  WriteCr4(cr4);
  if (!SkipOnQemu("#DB in rep outsb, after an iteration")) {
    CheckFault("#DB in rep outsb, after an iteration", o, kDebug, 0, At(outs));
    CheckEq("... rcx", o.frame.rcx, 2);
    CheckEq("... DR6", dr6, 2);
  }
  CheckFault("#DB insb", in, kDebug, 0, At(ins, 1));
}

// DEBUGCTL.BTF: single steps from branch to branch (vol. 3B 17.4.3).
void TestBranchSteps() {
  constexpr u32 kDebugCtl = 0x1d9;
  constexpr u64 kBtf = 1u << 1;
  if (SkipOnQemu("DEBUGCTL.BTF")) return;
  const auto run = [](const void* code) {
    ClearDr6();
    WriteMsr(kDebugCtl, kBtf);
    return RunKernel(code, {.rcx = 2, .rflags = kFlagsFixed | kFlagTf});
  };
  const void* jump = KERNEL_CODE("nop; nop; jz 2f; jmp 2f; nop; 2: nop; nop");
  const Outcome o = run(jump);
  CheckFault("BTF: single step of the first branch taken", o, kDebug, 0, At(jump, 7));
  CheckEq("... DR6.BS", ReadDr6(), kDr6Bs);
  CheckEq("... clears BTF", ReadMsr(kDebugCtl), 0);
  const void* call = KERNEL_CODE("nop; call 2f; nop; 2: nop");
  CheckFault("BTF: single step of a call", run(call), kDebug, 0, At(call, 7));
  const void* string = KERNEL_CODE("lea rdi, [rsp - 64]; mov eax, 1; rep stosb; cpuid; ud2");
  CheckFault("BTF: nothing but a branch", run(string), kInvalidOpcode, 0, At(string, 14));
  WriteMsr(kDebugCtl, 0);
}

constexpr Section kSections[] = {
    {"execute", TestExecute},
    {"data", TestData},
    {"ports", TestPorts},
    {"detect", TestGeneralDetect},
    {"step", TestStep},
    {"held", TestHeldBack},
    {"syscall", TestSyscallStep},
    {"branches", TestBranchSteps},
    {"fixed", TestFixedBits},
    {"over", TestStepOver},
    {"rf", TestResumeFlag},
    {"ss", TestStackSegment},
    {"repeated", TestRepeatedPorts},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
