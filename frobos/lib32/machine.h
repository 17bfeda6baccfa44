// SPDX-License-Identifier: Apache-2.0
// A 32-bit protected-mode machine without paging: descriptors, traps, and probes - code run with
// chosen registers and segments in any ring or in virtual-8086 mode, until it leaves or faults,
// with the exact state reported back (Intel SDM vol. 3A ch. 3, 5, 6, 7).
#ifndef ALIBI_FROBOS_LIB32_MACHINE_H_
#define ALIBI_FROBOS_LIB32_MACHINE_H_

#include "frobos/common/check.h"
#include "frobos/common/console.h"
#include "frobos/common/port.h"
#include "frobos/lib32/privileged.h"
#include "frobos/lib32/types.h"

namespace alibi::frobos {

// The kernel's body; the result is the exit code.
int Main();

// The kernel's parts, which the command line's only=a,b,c selects.
struct Section {
  const char* name;
  void (*run)();
};
bool Selected(const char* section);
// The value after "key=" on the command line, or nullptr.
const char* Option(const char* key);
template <u32 kCount>
void RunSections(const Section (&sections)[kCount]) {
  for (const Section& s : sections) {
    if (Selected(s.name)) s.run();
  }
}

enum Vector : u8 {
  kDivideError = 0,
  kDebug = 1,
  kBreakpoint = 3,
  kOverflow = 4,
  kBoundRange = 5,
  kInvalidOpcode = 6,
  kDeviceNotAvailable = 7,
  kDoubleFault = 8,
  kInvalidTss = 10,
  kSegmentNotPresent = 11,
  kStackFault = 12,
  kGeneralProtection = 13,
  kPageFault = 14,
  kAlignmentCheck = 17,
};

inline constexpr u32 kFlagCf = 1u << 0, kFlagPf = 1u << 2, kFlagAf = 1u << 4, kFlagZf = 1u << 6,
                     kFlagSf = 1u << 7, kFlagTf = 1u << 8, kFlagIf = 1u << 9, kFlagDf = 1u << 10,
                     kFlagOf = 1u << 11, kFlagIopl = 3u << 12, kFlagNt = 1u << 14,
                     kFlagRf = 1u << 16, kFlagVm = 1u << 17, kFlagAc = 1u << 18,
                     kFlagVif = 1u << 19, kFlagVip = 1u << 20, kFlagId = 1u << 21;
inline constexpr u32 kFlagsFixed = 2;

// Descriptors. Access: P, DPL, S and type as in the fifth byte; the flags are G, D/B, L, AVL.
inline constexpr u8 kPresent = 0x80, kData = 0x92, kDataReadOnly = 0x90, kExpandDown = 0x96,
                    kCode = 0x9a, kCodeExecuteOnly = 0x98, kConforming = 0x9e, kLdt = 0x82;
inline constexpr u8 kTss16 = 0x81, kTss32 = 0x89, kCallGate16 = 0x84, kTaskGate = 0x85,
                    kInterruptGate16 = 0x86, kTrapGate16 = 0x87, kCallGate32 = 0x8c,
                    kInterruptGate32 = 0x8e, kTrapGate32 = 0x8f;
inline constexpr u8 kDpl0 = 0, kDpl1 = 0x20, kDpl2 = 0x40, kDpl3 = 0x60;
inline constexpr u8 kGranular = 8, k32Bit = 4, k16Bit = 0;

constexpr u64 Descriptor(u32 base, u32 limit, u8 access, u8 flags) {
  return (limit & 0xffff) | u64{base & 0xffffff} << 16 | u64{access} << 40 |
         u64{limit >> 16 & 0xf} << 48 | u64{flags} << 52 | u64{base >> 24} << 56;
}
constexpr u64 Flat(u8 access) { return Descriptor(0, 0xfffff, access, kGranular | k32Bit); }
constexpr u64 Gate(u16 selector, u32 offset, u8 access, u8 parameters = 0) {
  return (offset & 0xffff) | u64{selector} << 16 | u64{parameters} << 32 | u64{access} << 40 |
         u64{offset >> 16} << 48;
}

// The library's selectors; ring r has flat code at CodeSelector(r) and data at DataSelector(r).
constexpr u16 CodeSelector(unsigned ring) { return static_cast<u16>((0x08 + 0x10 * ring) | ring); }
constexpr u16 DataSelector(unsigned ring) { return static_cast<u16>((0x10 + 0x10 * ring) | ring); }
inline constexpr u16 kTss = 0x48, kDoubleFaultTss = 0x50;
// Slots free for tests: kSpare, kSpare + 8, ... up to the GDT's end.
inline constexpr u16 kSpare = 0x60;
inline constexpr unsigned kGdtEntries = 64;

extern "C" u64 gdt[kGdtEntries];
extern u64 ldt[16];
extern u64 idt[256];

// Writes a descriptor and returns its selector, for use in an expression.
u16 SetGdt(u16 selector, u64 descriptor);
u8 AccessByte(u16 selector);
void LoadGdt(u16 limit = sizeof(gdt) - 1);
void LoadIdt(u16 limit = sizeof(idt) - 1);
// Installs `ldt` as the LDT (its descriptor is in the GDT).
inline constexpr u16 kLdtSelector = 0x58;
void LoadLdt();
void SetIdt(u8 vector, u64 gate);
// Puts the library's own entry back.
void RestoreIdt(u8 vector);

struct Tss32 {
  u16 link, reserved0;
  u32 esp0;
  u16 ss0, reserved1;
  u32 esp1;
  u16 ss1, reserved2;
  u32 esp2;
  u16 ss2, reserved3;
  u32 cr3, eip, eflags, eax, ecx, edx, ebx, esp, ebp, esi, edi;
  u32 es, cs, ss, ds, fs, gs, ldt;
  u16 trap, io_map_base;
  // Filled by LoadMainTss: no map unless a test says so.
  u8 io_map[32 + 8192 + 1];
};
inline constexpr u32 kTss32Limit = 103;
extern Tss32 main_tss;
extern Tss32 double_fault_tss;
// TR = kTss with the given limit, available before.
void LoadMainTss(u32 limit = kTss32Limit);

// Stacks of rings 0..2 in main_tss, and one for probes in any ring.
u32 RingStackTop(unsigned ring);
u32 ProbeStackTop();

// Register image of a probe and of its end. The order is fixed by trap32.S.
struct Frame {
  u32 eax = 0, ebx = 0, ecx = 0, edx = 0, esi = 0, edi = 0, ebp = 0;
  u32 esp = 0, ss = 0, eip = 0, cs = 0, eflags = kFlagsFixed;
  u32 ds = 0, es = 0, fs = 0, gs = 0;
};

inline constexpr u8 kProbeExit = 0x7f;
struct Outcome {
  Frame frame;
  u32 vector;
  u32 error;
  u32 cr2;
  // What the handler found: where the frame was pushed, and in which state.
  u32 entry_esp, entry_ss, entry_cs, entry_eflags, tr;
  // Through the double-fault task rather than a gate.
  bool task;
  bool Done() const { return vector == kProbeExit; }
  bool Is(u8 v, u32 e) const { return vector == v && error == e; }
};

// Runs the frame exactly as it is.
Outcome RunFrame(const Frame& frame);
// Fills what is 0 in cs, ss, esp (and ds, es) by the ring's own, and runs.
Outcome Run(const void* code, Frame frame = {}, unsigned ring = 0);

// A handler may change the frame; the probe continues with it. nullptr removes it.
using Handler = void (*)(Outcome* at);
void SetHandler(u8 vector, Handler handler);

// Memory at a selector and an offset, by the descriptor's base.
u32 SegmentBase(u32 selector);
// The i-th word or dword on the stack on which a probe ended.
u32 StackWord(const Outcome& o, unsigned i);
u32 StackDword(const Outcome& o, unsigned i);

const char* VectorName(u32 vector);
void CheckFault(const char* name, const Outcome& o, u8 vector, u32 error = 0, u32 eip = ~0u);
void CheckDone(const char* name, const Outcome& o);

// Pieces of code for probes, in Intel syntax: 32- and 16-bit. They end by leaving the probe and may
// use numeric labels from 2 on.
#define FROBOS_CODE_(width, text)                                           \
  ({                                                                        \
    const void* code_;                                                      \
    asm volatile("movl $1f, %0\n.pushsection .snippet, \"ax\"\n.code" width \
                 "\n.intel_syntax noprefix\n1:\n" text                      \
                 "\n int 0x7f\n.att_syntax prefix\n.code32\n.popsection"    \
                 : "=r"(code_));                                            \
    code_;                                                                  \
  })
#define CODE32(text) FROBOS_CODE_("32", text)
#define CODE16(text) FROBOS_CODE_("16", text)

}  // namespace alibi::frobos

extern "C" {
void* memcpy(void* to, const void* from, __SIZE_TYPE__ n);
void* memset(void* to, int value, __SIZE_TYPE__ n);
}

#endif  // ALIBI_FROBOS_LIB32_MACHINE_H_
