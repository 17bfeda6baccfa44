// SPDX-License-Identifier: Apache-2.0
// What Linux puts on the stack of a signal handler (arch/x86/include/asm/sigframe.h), as a VMM
// reads and writes it in a satellite's memory. Nothing in it is to be believed: user code can write
// there.
#ifndef ALIBI_DIRECT_SIGNAL_FRAME_H_
#define ALIBI_DIRECT_SIGNAL_FRAME_H_

#include <cstddef>

#include "base/types.h"

namespace alibi::direct {

// In the order of sigcontext's general registers.
enum FrameRegister : u8 {
  kFrameR8,
  kFrameR9,
  kFrameR10,
  kFrameR11,
  kFrameR12,
  kFrameR13,
  kFrameR14,
  kFrameR15,
  kFrameRdi,
  kFrameRsi,
  kFrameRbp,
  kFrameRbx,
  kFrameRdx,
  kFrameRax,
  kFrameRcx,
  kFrameRsp,
  kFrameRip,
  kFrameRegisters
};

struct SignalFrame {
  u64 restorer;
  u64 uc_flags;
  u64 uc_link;
  u64 stack_base;
  u32 stack_flags, stack_padding;
  u64 stack_size;
  u64 gpr[kFrameRegisters];
  u64 eflags;
  u16 cs, gs, fs, ss;
  u64 error_code;
  u64 vector;  // of the host's exception
  u64 old_mask;
  u64 cr2;
  u64 fpstate;  // where the XSAVE image lies, in the satellite
  u64 reserved[8];
  u64 blocked_signals;
  // siginfo_t
  u32 signal, signal_errno, signal_code, signal_padding;
  u64 signal_address;  // of SIGSYS: behind the system call
};
static_assert(offsetof(SignalFrame, gpr) == 48);
static_assert(offsetof(SignalFrame, fpstate) == 48 + 8 * 23);
static_assert(offsetof(SignalFrame, blocked_signals) == 48 + 256);
static_assert(offsetof(SignalFrame, signal) == 312);

// The XSAVE image: bytes that the kernel uses for itself, and the header.
inline constexpr u64 kFrameSoftwareBytes = 464, kFrameXsaveHeader = 512, kFrameXsaveExtended = 576;

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_SIGNAL_FRAME_H_
