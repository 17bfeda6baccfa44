// SPDX-License-Identifier: Apache-2.0
// Compiled for general registers only: until CallGuarded() has put it away, the extended state may
// be the guest's.
#include "adapt/plugin.h"

#include <x86intrin.h>

#include <cstdio>
#include <utility>

#include "adapt/plugin_file.h"
#include "alibi/policy.h"
#include "base/simd_guard.h"

namespace alibi::adapt {
namespace {

static_assert(ALIBI_DIRECT == static_cast<unsigned>(Kind::kDirect) &&
              ALIBI_CHECKED == static_cast<unsigned>(Kind::kChecked) &&
              ALIBI_SIMULATE == static_cast<unsigned>(Kind::kSimulate));
static_assert(ALIBI_TRUE_PAGE_FAULT == static_cast<unsigned>(Event::kTruePageFault) &&
              ALIBI_TRACE_FAULT == static_cast<unsigned>(Event::kTraceFault) &&
              ALIBI_DEVICE_ACCESS == static_cast<unsigned>(Event::kDeviceAccess) &&
              ALIBI_PAGE_CROSSING == static_cast<unsigned>(Event::kPageCrossing) &&
              ALIBI_ARITHMETIC == static_cast<unsigned>(Event::kArithmetic) &&
              ALIBI_CLEAN_CALLOUT == static_cast<unsigned>(Event::kCleanCallout) &&
              ALIBI_EVENT_COUNT == kEventCount);
static_assert(ALIBI_OTHER == static_cast<unsigned>(Access::kOther) &&
              ALIBI_DIVIDE == static_cast<unsigned>(Access::kDivide) &&
              ALIBI_DIVIDE + 1 == kAccessCount);
static_assert(sizeof(alibi_prices) == sizeof(Prices) &&
              offsetof(alibi_prices, retranslate) == offsetof(Prices, retranslate));

// What may become of a site by an event, beside DIRECT and what it is: one bit per kind.
constexpr u8 kAllowed[kEventCount] = {
    1u << ALIBI_CHECKED | 1u << ALIBI_SIMULATE,  // kTruePageFault
    1u << ALIBI_CHECKED | 1u << ALIBI_SIMULATE,  // kTraceFault
    1u << ALIBI_CHECKED | 1u << ALIBI_SIMULATE,  // kDeviceAccess
    1u << ALIBI_SIMULATE,                        // kPageCrossing
    1u << ALIBI_CHECKED,                         // kArithmetic
    1u << ALIBI_CHECKED,                         // kCleanCallout, of a SIMULATE site
};

// DF and AC as the ABI wants them; both may be the guest's.
class FlagsGuard {
 public:
  FlagsGuard() : flags_(__readeflags()) {
    constexpr u64 kDirection = u64{1} << 10, kAlignmentCheck = u64{1} << 18;
    __writeeflags(flags_ & ~(kDirection | kAlignmentCheck));
  }
  ~FlagsGuard() { __writeeflags(flags_); }
  FlagsGuard(const FlagsGuard&) = delete;
  FlagsGuard& operator=(const FlagsGuard&) = delete;

 private:
  u64 flags_;
};

constexpr PluginContract kContract = {
    .kind = "policy plug-in",
    .policy = "policy",
    .entry = "alibi_policy",
    .header = "include/alibi/policy.h",
    .abi = ALIBI_POLICY_ABI,
    .table_size = sizeof(alibi_policy_table),
    .known_needs = ALIBI_NEEDS_CLOCK | ALIBI_NEEDS_EVERY_EVENT,
};
static_assert(offsetof(alibi_policy_table, needs) == offsetof(PluginTableHead, needs) &&
              offsetof(alibi_policy_table, create) == offsetof(PluginTableHead, create) &&
              offsetof(alibi_policy_table, destroy) == offsetof(PluginTableHead, destroy) &&
              offsetof(alibi_policy_table, on_event) == offsetof(PluginTableHead, on_event));

class Plugin final : public Policy {
 public:
  Plugin(std::unique_ptr<PluginFile> file, std::unique_ptr<Policy> successor)
      : file_(std::move(file)),
        table_(static_cast<const alibi_policy_table*>(file_->table())),
        self_(file_->self()),
        successor_(std::move(successor)) {}

  const char* name() const override { return file_->name().c_str(); }
  const char* fault() const override { return file_->fault(); }
  Needs needs() const override {
    return {.clock = (table_->needs & ALIBI_NEEDS_CLOCK) != 0,
            .every_event = (table_->needs & ALIBI_NEEDS_EVERY_EVENT) != 0};
  }

  void Watch(const Prices& prices) override {
    successor_->Watch(prices);
    if (table_->watch == nullptr || fault() != nullptr) return;
    const u32 result = CallGuarded([&] {
      table_->watch(self_, reinterpret_cast<const alibi_prices*>(&prices));
      return 0u;
    });
    if (result == PluginFile::kThrew) Blame("threw an exception when it was shown the prices");
  }

  Kind OnEvent(SiteRecord& site, Occurrence what) override {
    if (__builtin_expect(fault() != nullptr, 0)) return successor_->OnEvent(site, what);
    if (site.phys == kSharedSite) return Kind::kDirect;
    alibi_site copy;
    CopyOf(site, &copy);
    const alibi_occurrence occurrence = {static_cast<u32>(what.event), what.trapped, what.cycles, 0,
                                         what.now};
    const u32 verdict = CallGuarded([&] { return table_->on_event(self_, &copy, &occurrence); });
    if (__builtin_expect(!Allowed(site.kind, what.event, verdict), 0)) {
      BlameVerdict(site.kind, what.event, verdict);
      return successor_->OnEvent(site, what);
    }
    site.policy_data[0] = copy.data[0];
    site.policy_data[1] = copy.data[1];
    site.recent_clean = what.event == Event::kCleanCallout;
    return static_cast<Kind>(verdict);
  }

  void OnPageForgotten(PhysPage page) override {
    successor_->OnPageForgotten(page);
    if (table_->on_page_forgotten == nullptr || fault() != nullptr) return;
    const u32 result = CallGuarded([&] {
      table_->on_page_forgotten(self_, page.Base().value);
      return 0u;
    });
    if (result == PluginFile::kThrew) Blame("threw an exception when a page was forgotten");
  }

 private:
  static void CopyOf(const SiteRecord& site, alibi_site* copy) {
    copy->pc = site.pc.value;
    copy->phys = site.phys.value;
    copy->kind = static_cast<u8>(site.kind);
    copy->access = static_cast<u8>(site.access);
    copy->reserved[0] = copy->reserved[1] = 0;
    copy->traps = site.traps;
    copy->callouts = site.callouts;
    for (unsigned i = 0; i < kEventCount; ++i) copy->events[i] = site.events[i];
    copy->adaptations = site.adaptations;
    copy->reversions = site.reversions;
    copy->data[0] = site.policy_data[0];
    copy->data[1] = site.policy_data[1];
  }

  static bool Allowed(Kind now, Event event, u32 verdict) {
    if (verdict == static_cast<u32>(now) || verdict == ALIBI_DIRECT) return true;
    if (verdict >= kKindCount) return false;
    // A clean callout is no reason to convict.
    if (event == Event::kCleanCallout && verdict > static_cast<u32>(now)) return false;
    return (kAllowed[static_cast<unsigned>(event)] >> verdict & 1) != 0;
  }

  // Behind this, code may use any register.
  template <class Call>
  [[gnu::noinline]] u32 CallGuarded(Call&& call) {
    const FlagsGuard flags;
    const SimdGuard guard(simd_);
    return file_->Contained(call);
  }

  // One line, for whoever may write it.
  void Blame(const char* what) {
    CallGuarded([&] {
      file_->Blame(what, successor_->name());
      return 0u;
    });
  }
  void BlameVerdict(Kind now, Event event, u32 verdict) {
    CallGuarded([&] {
      char what[128];
      if (verdict == PluginFile::kThrew) {
        std::snprintf(what, sizeof(what), "threw an exception on %s", EventName(event));
      } else if (verdict >= kKindCount) {
        std::snprintf(what, sizeof(what), "gave %u as its verdict on %s, which is no kind", verdict,
                      EventName(event));
      } else {
        std::snprintf(what, sizeof(what), "gave %s as its verdict on %s at a %s site",
                      KindName(static_cast<Kind>(verdict)), EventName(event), KindName(now));
      }
      Blame(what);
      return 0u;
    });
  }

  std::unique_ptr<PluginFile> file_;
  const alibi_policy_table* table_;
  void* self_;
  std::unique_ptr<Policy> successor_;
  SimdState simd_;
};

}  // namespace

Result<std::unique_ptr<Policy>> LoadPlugin(const std::string& spec) {
  auto file = PluginFile::Load(kContract, spec);
  if (!file.ok()) return file.error();
  auto successor = MakePolicy(kDefaultPolicy);
  return std::unique_ptr<Policy>(std::make_unique<Plugin>(std::move(*file), std::move(*successor)));
}

}  // namespace alibi::adapt
