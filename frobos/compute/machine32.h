// SPDX-License-Identifier: Apache-2.0
// A 32-bit kernel's machine: console, options, two-level paging, calls into CPL 3.
#ifndef ALIBI_FROBOS_COMPUTE_MACHINE32_H_
#define ALIBI_FROBOS_COMPUTE_MACHINE32_H_

#include <stddef.h>
#include <stdint.h>

namespace alibi::frobos {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

// Each kernel defines this; the result is the exit code.
int Main(const char* command_line);

void PutChar(char c);
void Print(const char* text);
[[noreturn]] void Exit(u8 code);

inline constexpr u32 kPageSize = 4096;
inline constexpr u32 kPteP = 1, kPteW = 2, kPteU = 4, kPtePs = 0x80;
// Where MapShuffled finds room: above the identity map's 1 GB.
inline constexpr u32 kUserBase = 0x8000'0000;

// size bytes of RAM at a page border. Ends the run when RAM is used up.
u32 AllocPages(u32 size);
// Maps pages 4 KB pages at va, for CPL 3 too, to RAM whose physical order is shuffled.
void MapShuffled(u32 va, u32 pages);
// Moves a part of the linked program to such pages.
void MoveToShuffledPages(u8* begin, u8* end);

// How a call into CPL 3 ended: by its return (vector kProbeExit), or by an exception.
inline constexpr u32 kProbeExit = 0x7f;
struct UserResult {
  u32 vector, error, eip, cr2;
  u64 value;  // EDX:EAX
  bool Done() const { return vector == kProbeExit; }
};
UserResult CallUser(const void* function, u32 argument, u32 stack_top);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMPUTE_MACHINE32_H_
