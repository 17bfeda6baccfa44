// SPDX-License-Identifier: Apache-2.0
// two-level: a site is judged by its own record and by its code page's. Where several sites have
// been convicted the next one is convicted at its first guilty event: code that fills page tables
// or drives a device stands together.
#include <vector>

#include "adapt/builtin.h"
#include "adapt/verdict.h"

namespace alibi::adapt {
namespace {

class TwoLevel final : public Policy {
 public:
  TwoLevel(u32 guilty, u32 clean, u32 per_page)
      : guilty_(guilty), clean_(clean), per_page_(per_page), pages_(kPages) {}

  const char* name() const override { return "two-level"; }

  Kind OnEvent(SiteRecord& site, Occurrence what) override {
    if (site.phys == kSharedSite) return Kind::kDirect;
    if (what.event == Event::kCleanCallout) return OnCleanCallout(site, clean_);
    if (IsFree(what)) return site.kind;
    site.recent_clean = 0;
    const Kind kind = ChargeFor(what.event).kind;
    if (kind <= site.kind) return site.kind;
    Page& page = PageOf(site.phys.InPage().number);
    if (++site.recent_guilty < guilty_ && page.convictions < per_page_) return site.kind;
    site.recent_guilty = 0;
    ++page.convictions;
    return kind;
  }

  void OnPageForgotten(PhysPage code) override {
    Page& page = pages_[code.number % kPages];
    if (page.number == code.number) page.convictions = 0;
  }

 private:
  static constexpr u64 kPages = 4096;
  struct Page {
    u64 number = 0;
    u32 convictions = 0;
  };

  // Pages that share a place drive each other out: the second level is a hint.
  Page& PageOf(u64 number) {
    Page& page = pages_[number % kPages];
    if (page.number != number) page = {number, 0};
    return page;
  }

  u32 guilty_, clean_, per_page_;
  std::vector<Page> pages_;
};

}  // namespace

std::unique_ptr<Policy> MakeTwoLevel(const u32* numbers) {
  return std::make_unique<TwoLevel>(numbers[0], numbers[1], numbers[2]);
}

}  // namespace alibi::adapt
