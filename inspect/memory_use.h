// SPDX-License-Identifier: Apache-2.0
// How much of the host's memory a machine takes: what its guest can make grow, with the bound of
// each (docs/observability.md has the whole table).
#ifndef ALIBI_INSPECT_MEMORY_USE_H_
#define ALIBI_INSPECT_MEMORY_USE_H_

#include <vector>

#include "base/types.h"
#include "machine/machine.h"

namespace alibi::vmm {

struct MemoryRow {
  const char* name;  // of the JSON's member
  const char* what;
  u64 now;
  u64 peak;
  u64 bound;  // 0: the host's own figure, of the whole process
};

// In bytes, but for rows that count things.
std::vector<MemoryRow> MemoryUse(Machine& machine);

// Before a sandbox: what MemoryUse() reads of the host is opened.
void OpenMemoryUse();

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_MEMORY_USE_H_
