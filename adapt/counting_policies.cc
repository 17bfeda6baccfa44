// SPDX-License-Identifier: Apache-2.0
// never, always, threshold, hysteresis: they count events of one site.
#include "adapt/builtin.h"
#include "adapt/verdict.h"

namespace alibi::adapt {
namespace {

class Never final : public Policy {
 public:
  const char* name() const override { return "never"; }
  Kind OnEvent(SiteRecord& site, Occurrence) override { return site.kind; }
};

struct Counts {
  u32 guilty;          // events until a conviction
  u32 clean;           // callouts in a row until an acquittal (0: never)
  u64 window;          // TSC cycles within which the guilty events count (0: forever)
  bool always_counts;  // page crossings found without a trap, too
};

class Counting final : public Policy {
 public:
  Counting(const char* name, const Counts& counts) : name_(name), counts_(counts) {}

  const char* name() const override { return name_; }
  Needs needs() const override { return {.clock = counts_.window != 0}; }

  Kind OnEvent(SiteRecord& site, Occurrence what) override {
    if (site.phys == kSharedSite) return Kind::kDirect;
    if (what.event == Event::kCleanCallout) return OnCleanCallout(site, counts_.clean);
    if (IsFree(what) && !counts_.always_counts) return site.kind;
    site.recent_clean = 0;
    const Kind kind = ChargeFor(what.event).kind;
    if (kind <= site.kind) return site.kind;
    if (counts_.window != 0) ForgetOld(site, what.now);
    if (++site.recent_guilty < counts_.guilty) return site.kind;
    site.recent_guilty = 0;
    return kind;
  }

 private:
  // policy_data[0]: when the first of the counted events happened.
  void ForgetOld(SiteRecord& site, u64 now) const {
    if (site.recent_guilty != 0 && now - site.policy_data[0] <= counts_.window) return;
    site.recent_guilty = 0;
    site.policy_data[0] = now;
  }

  const char* name_;
  Counts counts_;
};

}  // namespace

std::unique_ptr<Policy> MakeNever(const u32*) { return std::make_unique<Never>(); }

std::unique_ptr<Policy> MakeAlways(const u32*) {
  return std::make_unique<Counting>("always", Counts{1, 0, 0, true});
}

std::unique_ptr<Policy> MakeThreshold(const u32* numbers) {
  return std::make_unique<Counting>("threshold", Counts{numbers[0], 0, 0, false});
}

std::unique_ptr<Policy> MakeHysteresis(const u32* numbers) {
  return std::make_unique<Counting>("hysteresis",
                                    Counts{numbers[0], numbers[1], u64{numbers[2]} * 1000, false});
}

}  // namespace alibi::adapt
