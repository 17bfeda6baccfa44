// The policies. Everything behind OnEvent is integer code without calls: see policy.h.
#include <charconv>
#include <utility>

#include "adapt/policy.h"

namespace alibi::adapt {
namespace {

// What a conviction for an event means, and whether the event counts when it cost no trap.
struct Charge {
  Kind kind;
  // A page-crossing access that was found without a trap is served for the price of one callout;
  // SIMULATE would ask that price of every access of the site.
  bool counts_untrapped;
};
constexpr Charge kCharges[kEventCount] = {
    {Kind::kChecked, true},    // kTruePageFault
    {Kind::kSimulate, true},   // kTraceFault
    {Kind::kSimulate, true},   // kDeviceAccess
    {Kind::kSimulate, false},  // kPageCrossing
    {Kind::kChecked, true},    // kArithmetic
    {Kind::kDirect, false},    // kCleanCallout
};
constexpr const char* kEventNames[kEventCount] = {"true-page-fault", "trace-fault",
                                                  "device-access",   "page-crossing",
                                                  "arithmetic",      "clean-callout"};
constexpr const char* kKindNames[] = {"DIRECT", "CHECKED", "SIMULATE"};

class Never final : public Policy {
 public:
  const char* name() const override { return "never"; }
  Kind OnEvent(SiteRecord& site, Event, bool) override { return site.kind; }
};

// Convicts after `guilty` events that a more general kind would have been better at; acquits after
// `clean` clean callouts in a row (0: never).
class Counting final : public Policy {
 public:
  Counting(const char* name, u32 guilty, u32 clean, bool untrapped_crossings)
      : name_(name), guilty_(guilty), clean_(clean), untrapped_crossings_(untrapped_crossings) {}

  const char* name() const override { return name_; }

  Kind OnEvent(SiteRecord& site, Event event, bool trapped) override {
    if (site.phys == kSharedSite) return Kind::kDirect;
    if (event == Event::kCleanCallout) return OnClean(site);
    const Charge& charge = kCharges[static_cast<unsigned>(event)];
    // Evidence of nothing: every kind pays one callout for it.
    if (!trapped && !charge.counts_untrapped && !untrapped_crossings_) return site.kind;
    site.recent_clean = 0;
    if (charge.kind <= site.kind) return site.kind;
    if (++site.recent_guilty < guilty_) return site.kind;
    site.recent_guilty = 0;
    return charge.kind;
  }

 private:
  Kind OnClean(SiteRecord& site) const {
    if (clean_ == 0 || site.kind == Kind::kDirect) return site.kind;
    if (++site.recent_clean < clean_) return site.kind;
    site.recent_clean = 0;
    site.recent_guilty = 0;
    return Kind::kDirect;
  }

  const char* name_;
  u32 guilty_;
  u32 clean_;
  bool untrapped_crossings_;
};

// A policy's name and its numbers' defaults; `parameters` numbers may follow in parentheses.
struct Entry {
  const char* name;
  unsigned parameters;
  u32 defaults[2];
  std::unique_ptr<Policy> (*make)(const char* name, const u32* numbers);
};

constexpr Entry kPolicies[] = {
    {"never",
     0,
     {},
     [](const char*, const u32*) -> std::unique_ptr<Policy> { return std::make_unique<Never>(); }},
    {"always",
     0,
     {},
     [](const char* name, const u32*) -> std::unique_ptr<Policy> {
       return std::make_unique<Counting>(name, 1, 0, true);
     }},
    {"threshold",
     1,
     {2, 0},
     [](const char* name, const u32* numbers) -> std::unique_ptr<Policy> {
       return std::make_unique<Counting>(name, numbers[0], 0, false);
     }},
    {"hysteresis",
     2,
     {2, 256},
     [](const char* name, const u32* numbers) -> std::unique_ptr<Policy> {
       return std::make_unique<Counting>(name, numbers[0], numbers[1], false);
     }},
};

// "3" or "3,100" into at most `most` positive numbers.
bool ParseNumbers(const std::string& text, unsigned most, u32* numbers) {
  const char* at = text.data();
  const char* end = at + text.size();
  for (unsigned i = 0; i < most; ++i) {
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || numbers[i] == 0) return false;
    if (next == end) return true;
    if (*next != ',') return false;
    at = next + 1;
  }
  return false;
}

Error Unknown(const std::string& spec) {
  std::string message = "unknown policy '" + spec + "'; known are:";
  for (const std::string& name : PolicyNames()) message += " " + name;
  return Error{std::move(message)};
}

}  // namespace

const char* EventName(Event event) { return kEventNames[static_cast<unsigned>(event)]; }
const char* KindName(Kind kind) { return kKindNames[static_cast<unsigned>(kind)]; }

Result<std::unique_ptr<Policy>> MakePolicy(const std::string& spec) {
  const std::size_t open = spec.find('(');
  const std::string name = spec.substr(0, open);
  for (const Entry& entry : kPolicies) {
    if (name != entry.name) continue;
    u32 numbers[2] = {entry.defaults[0], entry.defaults[1]};
    if (open != std::string::npos) {
      if (spec.back() != ')' ||
          !ParseNumbers(spec.substr(open + 1, spec.size() - open - 2), entry.parameters, numbers)) {
        return Unknown(spec);
      }
    }
    return entry.make(entry.name, numbers);
  }
  return Unknown(spec);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  static constexpr const char* kParameters[] = {"", "(N)", "(N,M)"};
  for (const Entry& entry : kPolicies) {
    names.push_back(std::string(entry.name) + kParameters[entry.parameters]);
  }
  return names;
}

}  // namespace alibi::adapt
