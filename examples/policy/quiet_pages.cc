// SPDX-License-Identifier: Apache-2.0
// A policy as a plug-in: convicts as a counter would, but lets a site go again once its page of
// code has been quiet for a while. Build and use:
//
//   c++ -O2 -shared -fPIC -std=c++20 -I include -o quiet.so examples/policy/quiet_pages.cc
//   ./alibi run --policy='./quiet.so(2,64)' --stats kernel.elf
#include <cstdio>
#include <stdexcept>
#include <unordered_map>

#include "alibi/policy.h"

namespace {

class QuietPages final : public alibi::PluginPolicy {
 public:
  // "GUILTY,CLEAN": events until a conviction, clean callouts of all of a page's sites until one of
  // them is acquitted.
  explicit QuietPages(const char* parameters) {
    char rest = 0;
    if (*parameters != '\0' && std::sscanf(parameters, "%u,%u%c", &guilty_, &clean_, &rest) != 2) {
      throw std::invalid_argument("give two numbers: guilty events, clean callouts");
    }
  }

  std::uint32_t OnEvent(alibi_site& site, const alibi_occurrence& what) override {
    unsigned& quiet = quiet_[site.phys >> 12];
    if (what.event == ALIBI_CLEAN_CALLOUT) {
      if (++quiet < clean_) return site.kind;
      site.data[0] = 0;
      return ALIBI_DIRECT;
    }
    quiet = 0;
    // A page crossing that cost no trap would not be cheaper in any other kind.
    if (what.event == ALIBI_PAGE_CROSSING && !what.trapped) return site.kind;
    if (++site.data[0] < guilty_) return site.kind;
    const bool checked = what.event == ALIBI_TRUE_PAGE_FAULT || what.event == ALIBI_ARITHMETIC;
    if (checked && site.kind == ALIBI_DIRECT) return ALIBI_CHECKED;
    return checked ? site.kind : ALIBI_SIMULATE;
  }

  void OnPageForgotten(std::uint64_t phys_page) override { quiet_.erase(phys_page >> 12); }

 private:
  unsigned guilty_ = 2, clean_ = 256;
  std::unordered_map<std::uint64_t, unsigned> quiet_;  // by page of code
};

}  // namespace

ALIBI_POLICY_PLUGIN(QuietPages, "quiet-pages", ALIBI_NEEDS_EVERY_EVENT)
