// SPDX-License-Identifier: Apache-2.0
// The parts of the realmode image: what real-mode programs do.
#ifndef ALIBI_FROBOS_ROM_REALMODE_H_
#define ALIBI_FROBOS_ROM_REALMODE_H_

#include "frobos/rom/real.h"

namespace alibi::frobos {

// alu.cc
void TestArithmetic();
void TestDecimal();
void TestShifts();
void TestBits();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_ROM_REALMODE_H_
