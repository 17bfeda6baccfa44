// SPDX-License-Identifier: Apache-2.0
// The serial console (COM1, polled) and the way out of the machine. Compiled for 64-, 32- and
// 16-bit code.
#ifndef ALIBI_FROBOS_COMMON_CONSOLE_H_
#define ALIBI_FROBOS_COMMON_CONSOLE_H_

#include "frobos/common/types.h"

namespace alibi::frobos {

void InitConsole();
void PutChar(char c);

// printf subset: %d %i %u %x %c %s %p %%, the lengths l and z, a width, and the flags 0 and -.
[[gnu::format(printf, 1, 2)]] void Print(const char* format, ...);

// Ends the run through the debug-exit port: code 0 is success. QEMU's exit status is
// (code << 1) | 1.
[[noreturn]] void Exit(u8 code);

// Prints the reason and exits with kExitPanic: the kernel itself is lost, no verdict.
inline constexpr u8 kExitPanic = 2;
[[noreturn, gnu::format(printf, 1, 2)]] void Panic(const char* format, ...);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_CONSOLE_H_
