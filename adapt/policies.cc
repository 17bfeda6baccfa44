// SPDX-License-Identifier: Apache-2.0
// Policies by name.
#include <charconv>
#include <utility>

#include "adapt/builtin.h"
#include "adapt/plugin.h"
#include "adapt/plugin_file.h"
#include "adapt/policy.h"

namespace alibi::adapt {
namespace {

constexpr const char* kEventNames[kEventCount] = {"true-page-fault", "trace-fault",
                                                  "device-access",   "page-crossing",
                                                  "arithmetic",      "clean-callout"};
constexpr const char* kKindNames[kKindCount] = {"DIRECT", "CHECKED", "SIMULATE"};
constexpr const char* kAccessNames[kAccessCount] = {"other", "load", "store", "modify",
                                                    "push",  "pop",  "divide"};

constexpr unsigned kMaxNumbers = 3;

// `parameters` numbers may follow the name, those that are not given have their default.
struct Entry {
  const char* name;
  const char* parameters;
  unsigned count;
  u32 defaults[kMaxNumbers];
  MakeBuiltin* make;
};

constexpr Entry kPolicies[] = {
    {"never", "", 0, {}, MakeNever},
    {"always", "", 0, {}, MakeAlways},
    {"threshold", "(N)", 1, {2}, MakeThreshold},
    {"hysteresis", "(N,M,WINDOW)", 3, {2, 256, 0}, MakeHysteresis},
    {"cost-model", "", 0, {}, MakeCostModel},
    {"two-level", "(N,M,P)", 3, {2, 256, 4}, MakeTwoLevel},
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

Error Wrong(const std::string& what) {
  std::string message = what + "; known policies:";
  for (const std::string& name : PolicyNames()) message += " " + name;
  return Error{message + ", or a plug-in's file: ./NAME.so"};
}

}  // namespace

const char* EventName(Event event) { return kEventNames[static_cast<unsigned>(event)]; }
const char* KindName(Kind kind) { return kKindNames[static_cast<unsigned>(kind)]; }
const char* AccessName(Access access) { return kAccessNames[static_cast<unsigned>(access)]; }

Result<std::unique_ptr<Policy>> MakePolicy(const std::string& spec) {
  if (IsPluginSpec(spec)) return LoadPlugin(spec);
  const std::size_t open = spec.find('(');
  const std::string name = spec.substr(0, open);
  for (const Entry& entry : kPolicies) {
    if (name != entry.name) continue;
    u32 numbers[kMaxNumbers] = {entry.defaults[0], entry.defaults[1], entry.defaults[2]};
    if (open != std::string::npos &&
        (spec.back() != ')' ||
         !ParseNumbers(spec.substr(open + 1, spec.size() - open - 2), entry.count, numbers))) {
      return Wrong(entry.count == 0 ? "policy '" + spec + "': it takes no numbers"
                                    : "policy '" + spec + "': give positive numbers as in " +
                                          entry.name + entry.parameters);
    }
    return entry.make(numbers);
  }
  return Wrong("unknown policy '" + spec + "'");
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) {
    names.push_back(std::string(entry.name) + entry.parameters);
  }
  return names;
}

}  // namespace alibi::adapt
