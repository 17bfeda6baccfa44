// SPDX-License-Identifier: Apache-2.0
// x87's instruction and data pointers as the guest may see them.
//
// Guest code runs in the TC on operands in the arena, and the host's FPU notes these addresses. No
// image that the guest gets may show them. So there are three kinds of values in the host's FPU:
// below 4 GB a pointer that the guest has loaded, as it is (translations lie above); in the upper
// half of the address space one of the lower half that the guest has loaded from a 64-bit image;
// anything else is the host's, and the instruction is looked up where translations come from. The
// data pointer of such an instruction reads as zero, as it does on CPUs that note it for
// exceptions only. Pointers to the upper half that the guest loads are forgotten. Where the host's
// images have pointers for pending exceptions only (AMD), both read as zero without one: guests
// there find zeros after a task switch, too.
#ifndef ALIBI_SIMULATOR_X87_POINTERS_H_
#define ALIBI_SIMULATOR_X87_POINTERS_H_

#include "simulator/execution.h"

namespace alibi::simulator {

// In FXSAVE's image; with REX.W the pointers take the places of the selectors, too.
inline constexpr unsigned kX87OpcodeAt = 6, kX87InstructionAt = 8, kX87CodeSelectorAt = 12,
                          kX87DataAt = 16, kX87DataSelectorAt = 20, kX87PointersEnd = 24;

struct X87Pointers {
  u64 instruction;
  u64 linear;  // the same as a linear address, if it is translated code's
  u64 data;
  bool host;  // translated code's: the host's selectors go with them
};

// What the guest may see of these two values in the host's FPU.
X87Pointers ShownX87Pointers(const Execution& e, u64 instruction, u64 data);

// What the host's FPU shall hold for a pointer of a 64-bit image.
u64 LoadedX87Pointer(u64 guest);

// Edits an image that FXSAVE or XSAVE has just made on the host, with the registers still live.
void ShowX87Pointers(const Execution& e, bool rex_w, u8* image);

// Edits an image of the guest's for FXRSTOR or XRSTOR on the host.
void LoadX87Pointers(bool rex_w, u8* image);

}  // namespace alibi::simulator

#endif  // ALIBI_SIMULATOR_X87_POINTERS_H_
