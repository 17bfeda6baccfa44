// SPDX-License-Identifier: Apache-2.0
#include "translator/side_data.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace alibi::translator {
namespace {

u8 CountOf(u64 size) {
  ALIBI_CHECK(size < 256, "a CCF's lists are short");
  return static_cast<u8>(size);
}

template <class T>
u64 Bytes(std::span<const T> list) {
  return list.size_bytes();
}

template <class T>
void Put(std::span<const T> list, u8* to) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (!list.empty()) std::memcpy(to, list.data(), list.size_bytes());
}

}  // namespace

void SideData::Clear() {
  exits.clear();
  sites.clear();
  faults.clear();
  map.clear();
  cold_map.clear();
  pcs.clear();
}

u64 SideData::BytesFor(const TranslationUnit& tu) const {
  return Bytes<ExitDesc*>(exits) + Bytes<SiteDesc*>(sites) + Bytes<FaultPoint>(faults) +
         Bytes<CodeMapEntry>(map) + Bytes<ColdMapEntry>(cold_map) + Bytes<PcPlace>(pcs) +
         tu.count * sizeof(SitePlan) + InstrList::BytesFor(tu);
}

void SideData::Keep(const TranslationUnit& tu, std::span<const SitePlan> plans,
                    const isa::FeatureSet* shown, u8* to, Ccf* ccf) const {
  ALIBI_CHECK(map.size() == tu.count && plans.size() == tu.count,
              "a map entry and a plan for each instruction");
  ccf->shown = shown;
  ccf->side = to;
  ccf->exit_count = CountOf(exits.size());
  ccf->site_count = CountOf(sites.size());
  ccf->fault_count = CountOf(faults.size());
  ccf->cold_count = CountOf(cold_map.size());
  ccf->pc_count = CountOf(pcs.size());
  ccf->instr_count = CountOf(tu.count);
  Put<ExitDesc*>(exits, to);
  Put<SiteDesc*>(sites, to + ccf->SitesAt());
  Put<FaultPoint>(faults, to + ccf->FaultsAt());
  Put<CodeMapEntry>(map, to + ccf->MapAt());
  Put<ColdMapEntry>(cold_map, to + ccf->ColdMapAt());
  Put<PcPlace>(pcs, to + ccf->PcsAt());
  Put<SitePlan>(plans, to + ccf->PlansAt());
  InstrList::Keep(tu, to + ccf->InstrsAt());
}

}  // namespace alibi::translator
