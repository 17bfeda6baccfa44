// SPDX-License-Identifier: Apache-2.0
// What other engine policies would have made of a recorded run: per address space the recorded
// events are told to the other policy, as they would have been under its own verdicts.
// docs/policies.md says what that assumes.
//
// Of user code that runs directly the log has each run with its stops; of translated user code only
// samples. So a log recorded with --engine direct shows most; from others the stops of code that
// was translated are estimated.
#ifndef ALIBI_ADAPT_REPLAY_ENGINE_REPLAY_H_
#define ALIBI_ADAPT_REPLAY_ENGINE_REPLAY_H_

#include <string>
#include <vector>

#include "adapt/engine_policy.h"
#include "adapt/log/format.h"
#include "adapt/replay/replay.h"
#include "base/result.h"

namespace alibi::adapt::replay {

struct EngineTotals {
  u64 runs = 0;        // of user code that ran directly
  u64 stops = 0;       // of these
  u64 calls = 0;       // that changed mappings
  u64 switches = 0;    // verdicts that changed the engine
  u64 translated = 0;  // TSC cycles of user code that was translated
  u64 direct = 0;      // the same that ran directly; stops, calls and vain attempts included
  u64 estimated = 0;   // of both: what the log does not show in this way
  u64 cycles = 0;      // both
};

struct EngineOutcome {
  std::string policy;  // as it was asked for
  EngineTotals totals;
  std::string fault;  // of a plug-in that misbehaved
};

struct EngineReport {
  log::Header header;
  u64 spaces = 0;             // address spaces with user code
  bool ran_directly = false;  // else nothing is known of what stops would cost
  u64 lost_records = 0;
  std::string incomplete;               // see Report
  EngineTotals recorded;                // what the log itself says
  std::vector<EngineOutcome> outcomes;  // in the order of the policies
};

// A translated program takes so many times as long as one that runs directly: the least of what
// docs/performance.md has.
inline constexpr double kDefaultSlowdown = 2;

Result<EngineReport> ReplayEngines(const log::Header& header, const OpenRecords& open,
                                   const std::vector<std::string>& policies,
                                   double slowdown = kDefaultSlowdown);
// From a file. A log that ends too soon is replayed as far as it goes.
Result<EngineReport> ReplayEnginesFile(const std::string& path,
                                       const std::vector<std::string>& policies,
                                       double slowdown = kDefaultSlowdown);

}  // namespace alibi::adapt::replay

#endif  // ALIBI_ADAPT_REPLAY_ENGINE_REPLAY_H_
