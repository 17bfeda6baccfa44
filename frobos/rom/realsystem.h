// SPDX-License-Identifier: Apache-2.0
// The parts of the realsystem image: what systems do in real mode, and how they leave it.
#ifndef ALIBI_FROBOS_ROM_REALSYSTEM_H_
#define ALIBI_FROBOS_ROM_REALSYSTEM_H_

#include "frobos/rom/real.h"

namespace alibi::frobos {

// modes.cc: physical memory that no segment reaches.
void WriteFar(u32 address, u32 value);

// events.cc
void TestInterrupts();
void TestX87();
void TestBreakpoints();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_ROM_REALSYSTEM_H_
