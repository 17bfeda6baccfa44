// SPDX-License-Identifier: Apache-2.0
#include "mmu/coherence.h"

namespace alibi::mmu {

Result<Coherence> ParseCoherence(const std::string& name) {
  std::string names;
  for (unsigned i = 0; i < std::size(kCoherenceNames); ++i) {
    if (name == kCoherenceNames[i]) return static_cast<Coherence>(i);
    names += (i == 0 ? "" : ", ") + std::string(kCoherenceNames[i]);
  }
  return Error{"there is no coherence strategy '" + name + "'; there are " + names};
}

}  // namespace alibi::mmu
