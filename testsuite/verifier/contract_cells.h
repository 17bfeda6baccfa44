// SPDX-License-Identifier: Apache-2.0
// What emitted code may reach through %gs (abi/contract.h).
#ifndef ALIBI_TESTSUITE_VERIFIER_CONTRACT_CELLS_H_
#define ALIBI_TESTSUITE_VERIFIER_CONTRACT_CELLS_H_

#include "base/types.h"

namespace alibi::verifier {

enum class Cell : u8 {
  kNone,      // nothing that emitted code may touch
  kState,     // a field of VcpuState
  kGuestGpr,  // VcpuState::gpr of a stolen register
  kScratch,   // of VcpuState::scratch, the word `index`
  kPageMask,  // masks of PEXT
  kJumpMask,
  kNegPage,  // a field of inline TLB entry `slot`
  kDisplacement,
  kHostPage,
  kLatch,     // the address of a latched port's cell, for accesses of `index` bytes
  kPeerView,  // %gs of another view
  kJumpTable,
};

struct CellInfo {
  Cell cell = Cell::kNone;
  bool writable = false;
  bool store_slot = false;
  i32 slot = 0;  // %gs displacement of its beginning
  unsigned index = 0;
};

// The cell that holds all of %gs:[displacement, displacement + size).
CellInfo CellAt(i64 displacement, unsigned size);

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_CONTRACT_CELLS_H_
