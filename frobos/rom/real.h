// SPDX-License-Identifier: Apache-2.0
// Real mode for test code: probes, memory of other segments, the modes reached from there. C++ here
// is 32-bit code with prefixes (gcc -m16) in the one segment kSegment, for code, data and stack
// alike.
#ifndef ALIBI_FROBOS_ROM_REAL_H_
#define ALIBI_FROBOS_ROM_REAL_H_

#include "frobos/common/check.h"
#include "frobos/common/console.h"
#include "frobos/common/port.h"
#include "frobos/lib32/types.h"

namespace alibi::frobos {

// The image is linked to offset 0 and runs in this segment; probes have others.
inline constexpr u16 kSegment = 0x1000, kStackSegment = 0x2000, kDataSegment = 0x3000,
                     kOtherSegment = 0x4000, kCodeSegment = 0x5000;

enum Vector : u8 {
  kDivideError = 0,
  kDebug = 1,
  kBreakpoint = 3,
  kOverflow = 4,
  kBoundRange = 5,
  kInvalidOpcode = 6,
  kDeviceNotAvailable = 7,
  kStackFault = 12,
  kGeneralProtection = 13,
  kX87Error = 16,
};

inline constexpr u32 kFlagCf = 1u << 0, kFlagPf = 1u << 2, kFlagAf = 1u << 4, kFlagZf = 1u << 6,
                     kFlagSf = 1u << 7, kFlagTf = 1u << 8, kFlagIf = 1u << 9, kFlagDf = 1u << 10,
                     kFlagOf = 1u << 11;
inline constexpr u32 kFlagsArithmetic = kFlagCf | kFlagPf | kFlagAf | kFlagZf | kFlagSf | kFlagOf;
inline constexpr u32 kFlagsFixed = 2;

// The order is fixed by real.S.
struct Frame {
  u32 eax = 0, ebx = 0, ecx = 0, edx = 0, esi = 0, edi = 0, ebp = 0, esp = 0x1000;
  u32 eip = 0, cs = kSegment, eflags = kFlagsFixed;
  u32 ss = kStackSegment, ds = kDataSegment, es = kDataSegment, fs = kOtherSegment,
      gs = kOtherSegment;
};

inline constexpr u8 kProbeExit = 0x7f;
struct Outcome {
  Frame frame;
  u32 vector;
  bool Done() const { return vector == kProbeExit; }
};

// All 256 vectors lead to the library.
void InitReal();
Outcome RunFrame(const Frame& frame);
// In the image's own segment.
Outcome Run(const void* code, Frame frame = {});
// In a copy at kCodeSegment:offset.
Outcome RunAt(const void* code, u32 offset, Frame frame = {});

void CheckFault(const char* name, const Outcome& o, u8 vector, u32 eip = ~0u);
void CheckDone(const char* name, const Outcome& o);

u8 ReadByte(u32 segment, u32 offset);
u16 ReadWord(u32 segment, u32 offset);
u32 ReadDword(u32 segment, u32 offset);
void WriteByte(u32 segment, u32 offset, u8 value);
void WriteWord(u32 segment, u32 offset, u16 value);
void WriteDword(u32 segment, u32 offset, u32 value);

inline u32 At(const void* p, u32 offset = 0) { return reinterpret_cast<u32>(p) + offset; }

// A piece of 16-bit code in Intel syntax; it ends by leaving the probe. Numeric labels from 2 on.
#define CODE16(text)                                                                              \
  ({                                                                                              \
    const void* code_;                                                                            \
    asm volatile(                                                                                 \
        "movl $1f, %0\n.pushsection .snippet, \"ax\"\n.code16\n.intel_syntax noprefix\n1:\n" text \
        "\n int 0x7f\n.att_syntax prefix\n.code16gcc\n.popsection"                                \
        : "=r"(code_));                                                                           \
    code_;                                                                                        \
  })

// What the CPU looked like at its first instruction, if this is a ROM (real.S).
struct BootState {
  u32 is_rom;
  u32 cr0, edx, eflags, dr6, dr7, esp;
  u16 cs, ss, ds, idt_limit;
  u32 idt_base;
  u16 gdt_limit;
  u32 ip_bytes;  // read through CS at the reset vector
};
extern "C" BootState boot_state;

// What an image tests, after the state of the reset.
void RunTests();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_ROM_REAL_H_
