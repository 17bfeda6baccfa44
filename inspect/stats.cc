// SPDX-License-Identifier: Apache-2.0
#include "inspect/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "direct/direct_execution.h"
#include "inspect/add_words.h"
#include "inspect/memory_use.h"
#include "mmu/counters.h"

namespace alibi::vmm {
namespace {

using adapt::SiteRecord;

template <class Callback>
void ForEachCounter(const runtime::Counters& counters, Callback&& callback) {
#define ALIBI_COUNTER(name, what) callback(#name, what, counters.name);
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
}

template <class Callback>
void ForEachCounter(const Counters& counters, Callback&& callback) {
#define ALIBI_VMM_COUNTER(name, what) callback(#name, what, counters.name);
#include "machine/counters.inc"
#undef ALIBI_VMM_COUNTER
}

template <class Callback>
void ForEachCounter(const VcpuCounters& counters, Callback&& callback) {
#define ALIBI_VCPU_COUNTER(name, what) callback(#name, what, counters.name);
#include "machine/vcpu_counters.inc"
#undef ALIBI_VCPU_COUNTER
}

// Measured on the first development machine, in cycles; only the order of sites depends on them.
constexpr u64 kTrapCost = 3000, kCalloutCost = 150;

std::vector<const SiteRecord*> SitesOf(Machine& machine) {
  std::vector<const SiteRecord*> sites;
  for (const auto& core : machine.cores()) {
    if (core->translator == nullptr) continue;
    const std::vector<const SiteRecord*> more = core->translator->sites().All();
    sites.insert(sites.end(), more.begin(), more.end());
  }
  return sites;
}

u64 TcBytesOf(Machine& machine) {
  u64 bytes = 0;
  for (const auto& core : machine.cores()) {
    if (core->translator != nullptr) bytes += core->translator->tc_bytes_used();
  }
  return bytes;
}

// Of all cores; null: a core has none.
template <class Counters, class Of>
Counters Sum(Machine& machine, Of of) {
  Counters sum{};
  for (const auto& core : machine.cores()) {
    if (const Counters* counters = of(*core)) AddWords(*counters, &sum);
  }
  return sum;
}

runtime::Counters EngineCounters(Machine& machine) {
  return Sum<runtime::Counters>(machine,
                                [](const VcpuCore& core) { return &core.engine->counters(); });
}

mmu::Counters MmuCounters(Machine& machine) {
  return Sum<mmu::Counters>(machine, [](const VcpuCore& core) { return &core.mmu->counters(); });
}

u64 CostOf(const SiteRecord& site) { return site.traps * kTrapCost + site.callouts * kCalloutCost; }

std::vector<const SiteRecord*> Guiltiest(const std::vector<const SiteRecord*>& all) {
  std::vector<const SiteRecord*> sites = all;
  std::stable_sort(sites.begin(), sites.end(), [](const SiteRecord* a, const SiteRecord* b) {
    return CostOf(*a) > CostOf(*b);
  });
  if (sites.size() > kGuiltiestSites) sites.resize(kGuiltiestSites);
  return sites;
}

// None without direct execution.
template <class Callback>
void ForEachCounterOfDirect(Machine& machine, Callback&& callback) {
  if (machine.translator() == nullptr || machine.translator()->direct() == nullptr) return;
  const auto counters = Sum<direct::Counters>(machine, [](const VcpuCore& core) {
    const direct::DirectExecution* const direct = core.translator->direct();
    return direct == nullptr ? nullptr : &direct->counters();
  });
  direct::ForEachCounter(counters, callback);
}

}  // namespace

std::string StatsText(Machine& machine, u64 wall_ns) {
  const double seconds = static_cast<double>(wall_ns) / 1e9;
  std::string text =
      machine.translator() == nullptr
          ? fmt::format("engine {}, {:.3f} s\n", runtime::NameOf(machine.engine_kind()), seconds)
          : fmt::format("policy {}, {:.3f} s, {} bytes of translations\n", machine.policy().name(),
                        seconds, TcBytesOf(machine));
  if (const char* fault = machine.policy().fault()) text += fmt::format("{}\n", fault);
  if (const adapt::EnginePolicy* engine = machine.engine_policy()) {
    text += fmt::format("engine policy {}\n", engine->name());
    if (const char* fault = engine->fault()) text += fmt::format("{}\n", fault);
  }
  // Zeros say nothing to a person; the JSON has them.
  auto row = [&text](const char*, const char* what, u64 value) {
    if (value != 0) text += fmt::format("{:>16}  {}\n", value, what);
  };
  ForEachCounter(EngineCounters(machine), row);
  mmu::ForEachCounter(MmuCounters(machine), row);
  ForEachCounterOfDirect(machine, row);
  ForEachCounter(machine.counters(), row);
  machine.ForEachDeviceCounter(row);
  for (unsigned vcpu = 0; machine.vcpus() > 1 && vcpu < machine.vcpus(); ++vcpu) {
    text += fmt::format("VCPU {}:\n", vcpu);
    ForEachCounter(machine.counters_of(vcpu), row);
  }
  text += fmt::format("memory: {:>14} {:>16} {:>16}\n", "now", "peak", "bound");
  for (const MemoryRow& row : MemoryUse(machine)) {
    const auto or_dash = [](u64 n) { return n == 0 ? std::string("-") : fmt::format("{}", n); };
    text += fmt::format("{:>22} {:>16} {:>16}  {}\n", row.now, or_dash(row.peak),
                        or_dash(row.bound), row.what);
  }
  const std::vector<const SiteRecord*> all = SitesOf(machine);
  if (all.empty()) return text;
  text += fmt::format("{} sites misbehaved; the guiltiest:\n", all.size());
  text += fmt::format("{:>18}  {:<8} {:>10} {:>10} {:>6} {:>6}  events\n", "pc", "kind", "traps",
                      "callouts", "adapt", "revert");
  for (const SiteRecord* site : Guiltiest(all)) {
    text += fmt::format("{:>#18x}  {:<8} {:>10} {:>10} {:>6} {:>6} ", site->pc.value,
                        adapt::KindName(site->kind), site->traps, site->callouts, site->adaptations,
                        site->reversions);
    for (unsigned i = 0; i < adapt::kEventCount; ++i) {
      if (site->events[i] != 0) {
        text +=
            fmt::format(" {} {}", site->events[i], adapt::EventName(static_cast<adapt::Event>(i)));
      }
    }
    text += "\n";
  }
  return text;
}

std::string StatsJson(Machine& machine, u64 wall_ns) {
  using nlohmann::ordered_json;
  ordered_json json;
  json["engine"] = runtime::NameOf(machine.engine_kind());
  json["policy"] = machine.policy().name();
  json["coherence"] = mmu::NameOf(machine.mmu().coherence());
  if (const char* fault = machine.policy().fault()) json["policy_fault"] = fault;
  if (const adapt::EnginePolicy* engine = machine.engine_policy()) {
    json["engine_policy"] = engine->name();
    if (const char* fault = engine->fault()) json["engine_policy_fault"] = fault;
  }
  json["wall_ns"] = wall_ns;
  json["tc_bytes_used"] = TcBytesOf(machine);
  auto into = [&json](const char* group) {
    ordered_json& object = json[group] = ordered_json::object();
    return [&object](const char* name, const char*, u64 value) { object[name] = value; };
  };
  const std::vector<const SiteRecord*> all = SitesOf(machine);
  json["sites_known"] = all.size();
  ForEachCounter(EngineCounters(machine), into("runtime"));
  mmu::ForEachCounter(MmuCounters(machine), into("mmu"));
  ForEachCounterOfDirect(machine, into("direct"));
  if (machine.translator() != nullptr && machine.translator()->direct() != nullptr) {
    const adapt::EnginePrices& prices = machine.translator()->direct()->prices();
    json["prices"] = {{"direct_stop_cycles", prices.stop}, {"direct_call_cycles", prices.call}};
  }
  ForEachCounter(machine.counters(), into("vmm"));
  machine.ForEachDeviceCounter(into("devices"));
  for (unsigned vcpu = 0; machine.vcpus() > 1 && vcpu < machine.vcpus(); ++vcpu) {
    ordered_json& object = json["vcpus"].emplace_back(ordered_json::object());
    ForEachCounter(machine.counters_of(vcpu),
                   [&object](const char* name, const char*, u64 value) { object[name] = value; });
  }
  ordered_json& memory = json["memory"] = ordered_json::object();
  for (const MemoryRow& row : MemoryUse(machine)) {
    memory[row.name] = {{"now", row.now}, {"peak", row.peak}, {"bound", row.bound}};
  }
  ordered_json& sites = json["sites"] = ordered_json::array();
  for (const SiteRecord* site : Guiltiest(all)) {
    ordered_json events = ordered_json::object();
    for (unsigned i = 0; i < adapt::kEventCount; ++i) {
      events[adapt::EventName(static_cast<adapt::Event>(i))] = site->events[i];
    }
    sites.push_back({{"pc", fmt::format("{:#x}", site->pc.value)},
                     {"phys", fmt::format("{:#x}", site->phys.value)},
                     {"kind", adapt::KindName(site->kind)},
                     {"traps", site->traps},
                     {"callouts", site->callouts},
                     {"adaptations", site->adaptations},
                     {"reversions", site->reversions},
                     {"events", std::move(events)}});
  }
  return json.dump(1) + "\n";
}

adapt::log::FinalCounters AllCounters(Machine& machine) {
  adapt::log::FinalCounters counters;
  const auto into = [&counters](const std::string& group) {
    return [&counters, group](const char* name, const char*, u64 value) {
      counters.emplace_back(group + "." + name, value);
    };
  };
  ForEachCounter(EngineCounters(machine), into("runtime"));
  mmu::ForEachCounter(MmuCounters(machine), into("mmu"));
  ForEachCounterOfDirect(machine, into("direct"));
  ForEachCounter(machine.counters(), into("vmm"));
  machine.ForEachDeviceCounter(into("devices"));
  return counters;
}

}  // namespace alibi::vmm
