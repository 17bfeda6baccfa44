// SPDX-License-Identifier: Apache-2.0
#include "translator/side_data.h"

#include <cstring>

namespace alibi::translator {
void SideData::Clear() {
  exits.clear();
  sites.clear();
  faults.clear();
  map.clear();
  cold_map.clear();
  pcs.clear();
}

u64 SideData::BytesFor(const TranslationUnit& tu) const {
  return exits.bytes() + sites.bytes() + faults.bytes() + map.bytes() + cold_map.bytes() +
         pcs.bytes() + tu.count * sizeof(SitePlan) + InstrList::BytesFor(tu);
}

void SideData::Keep(const TranslationUnit& tu, std::span<const SitePlan> plans,
                    const isa::FeatureSet* shown, u8* to, Ccf* ccf) const {
  ALIBI_CHECK(map.size() == tu.count && plans.size() == tu.count,
              "a map entry and a plan for each instruction");
  ccf->shown = shown;
  ccf->side = to;
  ccf->exit_count = exits.size();
  ccf->site_count = sites.size();
  ccf->fault_count = faults.size();
  ccf->cold_count = cold_map.size();
  ccf->pc_count = pcs.size();
  ccf->instr_count = static_cast<u8>(tu.count);
  // Each over the end of the one in front of it.
  const u8* const end = to + BytesFor(tu);
  exits.CopyTo(to, end);
  sites.CopyTo(to + ccf->SitesAt(), end);
  faults.CopyTo(to + ccf->FaultsAt(), end);
  map.CopyTo(to + ccf->MapAt(), end);
  cold_map.CopyTo(to + ccf->ColdMapAt(), end);
  pcs.CopyTo(to + ccf->PcsAt(), end);
  std::memcpy(to + ccf->PlansAt(), plans.data(), plans.size_bytes());
  InstrList::Keep(tu, to + ccf->InstrsAt());
}

}  // namespace alibi::translator
