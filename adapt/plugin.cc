// SPDX-License-Identifier: Apache-2.0
// Compiled for general registers only: until CallGuarded() has put it away, the extended state may
// be the guest's.
#include "adapt/plugin.h"

#include <dlfcn.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

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

// Why a call had no result.
constexpr u32 kThrew = ~u32{0};

thread_local const char* running_plugin = nullptr;

// No exception gets out of the call.
template <class Call>
u32 CallContained(Call&& call) {
  try {
    return call();
  } catch (...) {
    return kThrew;
  }
}

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

class Running {
 public:
  explicit Running(const char* path) : before_(std::exchange(running_plugin, path)) {}
  ~Running() { running_plugin = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const char* before_;
};

class Plugin final : public Policy {
 public:
  Plugin(void* library, const alibi_policy_table* table, std::string path,
         std::unique_ptr<Policy> successor)
      : library_(library),
        table_(table),
        path_(std::move(path)),
        name_(table->name),
        successor_(std::move(successor)) {}
  ~Plugin() override {
    if (self_ != nullptr) {
      const Running running(path_.c_str());
      CallContained([&] { return table_->destroy(self_), 0u; });
    }
    dlclose(library_);
  }

  Status Create(const std::string& parameters) {
    char error[256] = "no reason given";
    const Running running(path_.c_str());
    const u32 result = CallContained([&] {
      self_ = table_->create(parameters.c_str(), error, sizeof(error));
      return 0u;
    });
    error[sizeof(error) - 1] = '\0';
    if (result == kThrew) return Error{"threw an exception when it was made"};
    if (self_ == nullptr) return Error{"refuses its parameters '" + parameters + "': " + error};
    return Ok{};
  }

  const char* name() const override { return name_.c_str(); }
  const char* fault() const override { return fault_[0] != '\0' ? fault_ : nullptr; }
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
    if (result == kThrew) Blame("threw an exception when it was shown the prices");
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
    if (result == kThrew) Blame("threw an exception when a page was forgotten");
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
    const Running running(path_.c_str());
    return CallContained(call);
  }

  // One line, for whoever may write it.
  void Blame(const char* what) {
    CallGuarded([&] {
      std::snprintf(fault_, sizeof(fault_), "policy plug-in '%s' %s; %s decides from now on",
                    path_.c_str(), what, successor_->name());
      return 0u;
    });
  }
  void BlameVerdict(Kind now, Event event, u32 verdict) {
    CallGuarded([&] {
      char what[128];
      if (verdict == kThrew) {
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

  void* library_;
  const alibi_policy_table* table_;
  std::string path_;
  std::string name_;
  std::unique_ptr<Policy> successor_;
  void* self_ = nullptr;
  SimdState simd_;
  char fault_[256] = "";
};

// Empty: the table is sound.
std::string WrongTable(const alibi_policy_table* table) {
  const std::string program = std::to_string(ALIBI_POLICY_ABI);
  if (table == nullptr) return "has no policy for interface version " + program;
  if (table->abi != ALIBI_POLICY_ABI || table->size != sizeof(alibi_policy_table)) {
    return "was built for interface version " + std::to_string(table->abi) + ", this program has " +
           program + ": build it again with this one's include/alibi/policy.h";
  }
  if (table->name == nullptr || table->create == nullptr || table->destroy == nullptr ||
      table->on_event == nullptr) {
    return "lacks a name, create, destroy or on_event in its table";
  }
  if ((table->needs & ~(ALIBI_NEEDS_CLOCK | ALIBI_NEEDS_EVERY_EVENT)) != 0) {
    return "asks for needs that this program does not know";
  }
  return "";
}

}  // namespace

const char* RunningPlugin() { return running_plugin; }

bool IsPluginSpec(const std::string& spec) {
  const std::string path = spec.substr(0, spec.find('('));
  return path.find('/') != std::string::npos || path.ends_with(".so");
}

Result<std::unique_ptr<Policy>> LoadPlugin(const std::string& spec) {
  const std::size_t open = spec.back() == ')' ? spec.rfind('(') : std::string::npos;
  std::string path = spec.substr(0, open);
  const std::string parameters =
      open == std::string::npos ? "" : spec.substr(open + 1, spec.size() - open - 2);
  auto wrong = [&path](const std::string& what) {
    return Error{"policy plug-in '" + path + "' " + what};
  };
  if (access(path.c_str(), R_OK) != 0) {
    return wrong(std::string("cannot be read: ") + std::strerror(errno));
  }
  // A bare name would be looked for where libraries are.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return wrong(std::string("cannot be loaded: ") + (why != nullptr ? why : "unknown reason"));
  }
  using Entry = const alibi_policy_table*(uint32_t);
  auto* entry = reinterpret_cast<Entry*>(dlsym(library, "alibi_policy"));
  if (entry == nullptr) {
    dlclose(library);
    return wrong("has no function alibi_policy(): it is no policy (docs/policies.md)");
  }
  const alibi_policy_table* table = nullptr;
  u32 asked;
  {
    const Running running(path.c_str());
    asked = CallContained([&] { return table = entry(ALIBI_POLICY_ABI), 0u; });
  }
  const std::string what =
      asked == kThrew ? "threw an exception when it was asked for its table" : WrongTable(table);
  if (!what.empty()) {
    dlclose(library);
    return wrong(what);
  }
  auto successor = MakePolicy(kDefaultPolicy);
  auto plugin = std::make_unique<Plugin>(library, table, path, std::move(*successor));
  if (Status made = plugin->Create(parameters); !made.ok()) return wrong(made.error().message);
  return std::unique_ptr<Policy>(std::move(plugin));
}

}  // namespace alibi::adapt
