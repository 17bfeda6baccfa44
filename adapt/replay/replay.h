// SPDX-License-Identifier: Apache-2.0
// What other policies would have made of a recorded run: per site a state machine under the other
// policy, fed with the log's events. docs/policies.md says how well that holds.
//
// A site in SIMULATE shows each of its accesses; in CHECKED and DIRECT only the guilty ones. So a
// log recorded under `always` has all that any policy can see, and one recorded under a policy that
// acquits leaves out clean accesses, which are estimated here, on the low side, from the site's use
// while it was watched.
#ifndef ALIBI_ADAPT_REPLAY_REPLAY_H_
#define ALIBI_ADAPT_REPLAY_REPLAY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adapt/log/format.h"
#include "adapt/log/record.h"
#include "adapt/policy.h"
#include "base/result.h"

namespace alibi::adapt::replay {

struct Totals {
  u64 traps = 0;
  u64 callouts = 0;            // charged to sites
  u64 estimated_callouts = 0;  // of these: clean accesses that the log does not show
  u64 adaptations = 0;
  u64 reversions = 0;
  // TSC: traps and callouts from the guest's instruction into the runtime and until the verdict,
  // and the retranslations that verdicts caused.
  u64 cycles = 0;
};

struct Outcome {
  std::string policy;  // as it was asked for
  Totals totals;
  std::string fault;  // of a plug-in that misbehaved
};

struct Report {
  log::Header header;
  u64 sites = 0;
  u64 lost_records = 0;
  std::string incomplete;         // why the log ends too soon, as one line; empty: it does not
  Totals recorded;                // what the log itself says
  std::vector<Outcome> outcomes;  // in the order of the policies
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // As log::Reader::Next(); sites come as records in front of those that name them.
  virtual Result<bool> Next(log::Record* record) = 0;
};
// A log is read twice: first for what things cost and how often sites are used.
using OpenRecords = std::function<Result<std::unique_ptr<RecordSource>>()>;
// Calls take(record) for each of them.
Status ForEachRecord(const OpenRecords& open, const std::function<void(const log::Record&)>& take);
// Of a file; where it ends too soon, *incomplete says so (see Report).
OpenRecords RecordsOfFile(const std::string& path, std::string* incomplete);

Result<Report> Replay(const log::Header& header, const OpenRecords& open,
                      const std::vector<std::string>& policies);
// From a file. A log that ends too soon is replayed as far as it goes.
Result<Report> ReplayFile(const std::string& path, const std::vector<std::string>& policies);

}  // namespace alibi::adapt::replay

#endif  // ALIBI_ADAPT_REPLAY_REPLAY_H_
