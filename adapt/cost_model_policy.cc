// SPDX-License-Identifier: Apache-2.0
// cost-model: convicts when the expected saving exceeds the price of adaptation.
//
// What a site will do is expected to be what it has done: a site that has cost so much more than it
// need have is about to cost the same again. Each site has an account in cycles. Guilty events pay
// in what a more general kind saves (has saved), clean callouts draw what an optimistic kind would
// have saved. A verdict changes when the account reaches the price of a retranslation: never more
// than twice what the better of the two kinds would have cost, whatever comes (ski rental).
#include <algorithm>

#include "adapt/builtin.h"
#include "adapt/verdict.h"

namespace alibi::adapt {
namespace {

class CostModel final : public Policy {
 public:
  const char* name() const override { return "cost-model"; }
  void Watch(const Prices& prices) override { prices_ = &prices; }

  Kind OnEvent(SiteRecord& site, Occurrence what) override {
    if (site.phys == kSharedSite) return Kind::kDirect;
    if (what.event == Event::kCleanCallout) return OnClean(site);
    if (IsFree(what)) return site.kind;
    u64& account = site.policy_data[0];
    const Kind kind = ChargeFor(what.event).kind;
    const u64 price = prices_->retranslate;
    const u64 trap_saving = prices_->trap - std::min(prices_->trap, prices_->callout);
    if (kind > site.kind) {
      // A callout that a more general kind would not have spared, but made cheaper: CHECKED that
      // ends in the simulator calls out twice.
      account += what.trapped ? trap_saving : prices_->callout;
      return account >= price ? kind : site.kind;
    }
    // The kind has proved its worth. A full account need not hear of the next time.
    account = std::min(account + trap_saving, 2 * price);
    if (account == 2 * price) site.recent_clean = 0;
    return site.kind;
  }

 private:
  Kind OnClean(SiteRecord& site) const {
    if (site.kind == Kind::kDirect) return site.kind;
    u64& account = site.policy_data[0];
    site.recent_clean = 1;
    if (account > prices_->callout) {
      account -= prices_->callout;
      return site.kind;
    }
    account = 0;
    return Kind::kDirect;
  }

  static constexpr Prices kUnknown{};
  const Prices* prices_ = &kUnknown;
};

}  // namespace

std::unique_ptr<Policy> MakeCostModel(const u32*) { return std::make_unique<CostModel>(); }

}  // namespace alibi::adapt
