// SPDX-License-Identifier: Apache-2.0
// Where emitted code depends on where things lie: on its own place, on the stubs', on its
// descriptors' and on the guest's. By offset of the value in the hot or in the cold code.
//
// With them a CCF can be taken out of one TC and put into another (portable_ccf.h).
#ifndef ALIBI_TRANSLATOR_CODE_REFERENCES_H_
#define ALIBI_TRANSLATOR_CODE_REFERENCES_H_

#include <vector>

#include "base/types.h"

namespace alibi::translator {

struct CodeReferences {
  std::vector<u16> jumps;         // 32 bits, relative to the next byte
  std::vector<u16> descriptors;   // 64 bits, addresses of descriptors
  std::vector<u16> misses;        // 64 bits, MissWord
  std::vector<u16> branch_notes;  // 32 bits, for VcpuState::last_branch
  std::vector<u16> pcs32, pcs64;  // what moves with a kernel's PC (examined_code.h)

  void Clear() {
    for (auto* list : {&jumps, &descriptors, &misses, &branch_notes, &pcs32, &pcs64}) list->clear();
  }
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_CODE_REFERENCES_H_
