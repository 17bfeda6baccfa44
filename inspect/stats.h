// SPDX-License-Identifier: Apache-2.0
// What a run cost: every counter of every layer, and the guiltiest sites.
#ifndef ALIBI_INSPECT_STATS_H_
#define ALIBI_INSPECT_STATS_H_

#include <string>

#include "adapt/log/format.h"
#include "base/types.h"
#include "machine/machine.h"

namespace alibi::vmm {

inline constexpr unsigned kGuiltiestSites = 10;

// `wall_ns`: how long the guest ran, by the host's clock.
std::string StatsText(Machine& machine, u64 wall_ns);
// One JSON object:
//   {"policy", "wall_ns", "tc_bytes_used", "sites_known", "runtime": {...}, "mmu": {...},
//    "vmm": {...}, "devices": {...}, "memory": {name: {"now", "peak", "bound"}},
//    "vcpus": [{...}] (of several), "sites": [{"pc",
//    "phys", "kind", "traps", "callouts", "adaptations", "reversions", "events": {...}}]}
std::string StatsJson(Machine& machine, u64 wall_ns);

// All counters, with their group: "runtime.host_faults", "mmu. ...", "vmm. ...",
// "devices. ...".
adapt::log::FinalCounters AllCounters(Machine& machine);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_STATS_H_
