// SPDX-License-Identifier: Apache-2.0
// A CCF's side data: the lists that only faults, callouts and tools look at. They grow here while
// code is emitted, and are packed behind the CCF when it is done.
#ifndef ALIBI_TRANSLATOR_SIDE_DATA_H_
#define ALIBI_TRANSLATOR_SIDE_DATA_H_

#include <span>
#include <vector>

#include "base/types.h"
#include "translator/ccf.h"
#include "translator/translation_unit.h"

namespace alibi::translator {

class SideData {
 public:
  std::vector<ExitDesc*> exits;
  std::vector<SiteDesc*> sites;
  std::vector<FaultPoint> faults;
  std::vector<CodeMapEntry> map;
  std::vector<ColdMapEntry> cold_map;
  std::vector<PcPlace> pcs;

  // The vectors keep their memory for the next CCF.
  void Clear();
  // What Keep() writes.
  u64 BytesFor(const TranslationUnit& tu) const;
  // Packs the lists at `to`, 8-byte aligned, for ccf's accessors. `ccf` has its pc and mode, and
  // `shown` is what the TU was built with (null: everything); it outlives the CCF.
  void Keep(const TranslationUnit& tu, std::span<const SitePlan> plans,
            const isa::FeatureSet* shown, u8* to, Ccf* ccf) const;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_SIDE_DATA_H_
