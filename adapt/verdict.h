// SPDX-License-Identifier: Apache-2.0
// What the built-in policies agree on: which kind serves an event without a trap.
#ifndef ALIBI_ADAPT_VERDICT_H_
#define ALIBI_ADAPT_VERDICT_H_

#include "adapt/policy.h"

namespace alibi::adapt {

struct Charge {
  Kind kind;  // of a conviction for this event
  // A page-crossing access that was found without a trap is served for the price of one callout;
  // SIMULATE would ask that price of every access of the site.
  bool counts_untrapped;
};

inline constexpr Charge kCharges[kEventCount] = {
    {Kind::kChecked, true},    // kTruePageFault
    {Kind::kSimulate, true},   // kTraceFault
    {Kind::kSimulate, true},   // kDeviceAccess
    {Kind::kSimulate, false},  // kPageCrossing
    {Kind::kChecked, true},    // kArithmetic
    {Kind::kDirect, false},    // kCleanCallout
};

inline const Charge& ChargeFor(Event event) { return kCharges[static_cast<unsigned>(event)]; }

// Evidence of nothing: every kind pays one callout for it.
inline bool IsFree(const Occurrence& what) {
  return !what.trapped && !ChargeFor(what.event).counts_untrapped;
}

// Acquits after `most` clean callouts in a row (0: never).
inline Kind OnCleanCallout(SiteRecord& site, u32 most) {
  if (most == 0 || site.kind == Kind::kDirect) return site.kind;
  if (++site.recent_clean < most) return site.kind;
  site.recent_clean = 0;
  site.recent_guilty = 0;
  return Kind::kDirect;
}

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_VERDICT_H_
