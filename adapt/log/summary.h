// SPDX-License-Identifier: Apache-2.0
// What a log says in sum: per site, per event, per reason.
#ifndef ALIBI_ADAPT_LOG_SUMMARY_H_
#define ALIBI_ADAPT_LOG_SUMMARY_H_

#include <map>
#include <vector>

#include "adapt/log/format.h"
#include "adapt/log/record.h"

namespace alibi::adapt::log {

struct Tally {
  u64 count = 0;
  u64 cycles = 0;  // TSC, as recorded: without what it costs to get into the runtime and back
  void Add(u32 of_cycles) {
    ++count;
    cycles += of_cycles;
  }
};

struct SiteSummary {
  Tally traps, callouts;
  u64 events[kEventCount] = {};
  u64 convictions = 0, acquittals = 0;
  Kind kind = Kind::kDirect;  // after the last record
  // With the host's prices.
  u64 Cycles(const HostPrices& prices) const {
    return traps.cycles + callouts.cycles + traps.count * prices.trap +
           callouts.count * prices.callout;
  }
};

// What an engine policy was told of one kind.
struct EngineTally {
  u64 count = 0;
  u64 cycles = 0;
};

class Summary {
 public:
  // In the log's order, all of them.
  void Add(const Record& record);

  u64 records = 0;
  u64 first_tsc = 0, last_tsc = 0;
  Tally traps[kEventCount], callouts[kEventCount];
  u64 convictions = 0, acquittals = 0;
  u64 relookups = 0, ungroupings = 0;
  Tally translations[kWhyCount];
  u64 translated_instructions = 0, translated_guest_bytes = 0, emitted_bytes = 0;
  u64 faults[256] = {};  // by vector
  u64 overwritten = 0, forgotten_pages = 0, flushes = 0, site_table_flushes = 0;
  EngineTally engine_events[kEngineEventCount];
  u64 direct_stops = 0, direct_faults = 0, mapping_calls = 0;
  u64 to_direct = 0, to_translation = 0;  // verdicts of engine policies
  u32 user_spaces = 0;
  u64 lost = 0;  // by the ring
  u64 left_out = 0;
  bool complete = false;
  std::map<u64, u64> address_spaces;  // CR3 -> occurrences
  std::vector<SiteSummary> sites;     // by Record::site

  // Indices of the `most` sites that cost most, the worst first.
  std::vector<u32> Guiltiest(const HostPrices& prices, std::size_t most) const;
};

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_SUMMARY_H_
