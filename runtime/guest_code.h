// SPDX-License-Identifier: Apache-2.0
// What one translation is made from.
#ifndef ALIBI_RUNTIME_GUEST_CODE_H_
#define ALIBI_RUNTIME_GUEST_CODE_H_

#include <algorithm>
#include <span>

#include "adapt/site_table.h"
#include "base/types.h"
#include "runtime/engine_impl.h"
#include "translator/ccf.h"
#include "translator/flag_liveness.h"

namespace alibi::runtime {

// What is known of the instructions of one page.
class SitesOfPage final : public translator::ExactFlagSites {
 public:
  SitesOfPage(adapt::SiteTable& sites, PhysAddr page)
      : sites_(sites), page_(page.PageBase()), any_(sites.MayHaveInPage(page_)) {}
  bool any() const { return any_; }
  const adapt::SiteRecord* Find(LinearAddr pc) const {
    return any_ ? sites_.Find(page_ + pc.PageOffset()) : nullptr;
  }
  translator::SitePlan PlanOf(LinearAddr pc) const {
    translator::SitePlan plan;
    if (const adapt::SiteRecord* site = Find(pc)) {
      plan.kind = static_cast<translator::SiteKind>(site->kind);
      plan.alone = site->alone;
      // What has no valid entry traps in the table: a site that met that too often asks its slot.
      if (site->table_lookup && plan.kind == translator::SiteKind::kDirect) {
        plan.lookup = translator::LookupKind::kTable;
      }
    }
    return plan;
  }
  // Of any instruction in what was examined for the TU at `pc`?
  bool KeepsExactFlagsIn(LinearAddr pc, std::span<const translator::CodeRange> examined) const {
    return any_ && sites_.AnyInPage(page_.InPage(), [&](const adapt::SiteRecord& site) {
      const i64 at = static_cast<i64>(site.phys.PageOffset()) - static_cast<i64>(pc.PageOffset());
      return site.shows_flags && std::any_of(examined.begin(), examined.end(),
                                             [at](const translator::CodeRange& range) {
                                               return range.begin <= at && at < range.end;
                                             });
    });
  }
  bool KeepsExactFlags(LinearAddr pc) const override {
    const adapt::SiteRecord* site = Find(pc);
    return site != nullptr && site->shows_flags;
  }

 private:
  adapt::SiteTable& sites_;
  const PhysAddr page_;
  const bool any_;
};

// What one translation is made from.
struct GuestCode {
  GuestCode(LinearAddr code_pc, PhysAddr code_phys, const translator::CodeMode& code_mode,
            adapt::SiteTable& table)
      : pc(code_pc), phys(code_phys), mode(code_mode), sites(table, code_phys) {}

  translator::SitePlan PlanOf(LinearAddr instr_pc) const {
    translator::SitePlan plan = sites.PlanOf(instr_pc);
    if (SimulatesAll()) plan.kind = translator::SiteKind::kSimulate;
    return plan;
  }
  bool SimulatesAll() const { return mode.simulate || mode.careful; }
  // The bytes of its physical page; in RAM only.
  const u8* page() const { return bytes - phys.PageOffset(); }

  const LinearAddr pc;
  const PhysAddr phys;
  const translator::CodeMode& mode;
  const SitesOfPage sites;
  bool in_ram = true;
  const u8* bytes = nullptr;  // at `phys`
  unsigned available = 0;     // in this page, and not behind CS's limit
  u64 in_segment = 0;         // up to CS's limit, in whichever page
  unsigned max_instructions = 0;
  PhysPage second_page = translator::kNoPage;  // of an instruction that crosses
  u8 copy[16];
  translator::LeafCall leaf;  // what the CALL at its end calls, once that is known
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_GUEST_CODE_H_
