// SPDX-License-Identifier: Apache-2.0
// What a report needs of an event log, in a few kilobytes of JSON.
#ifndef ALIBI_BENCH_LAB_LOG_DIGEST_H_
#define ALIBI_BENCH_LAB_LOG_DIGEST_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "adapt/log/reader.h"
#include "base/result.h"
#include "base/types.h"

namespace alibi::bench::lab {

// Things that happened, and what they cost in TSC cycles.
struct Tally {
  u64 count = 0, cycles = 0;
  void Add(u64 more_cycles) {
    ++count;
    cycles += more_cycles;
  }
  bool operator==(const Tally&) const = default;
};

struct TranslationTally {
  u64 count = 0, instructions = 0, guest_bytes = 0, emitted_bytes = 0, cycles = 0;
  bool operator==(const TranslationTally&) const = default;
};

struct GuiltySite {
  LinearAddr pc;
  PhysAddr physical;
  std::string kind;  // at the end
  std::string instruction;
  std::string bytes;  // in hexadecimal; "": not known
  u64 traps = 0, callouts = 0, cycles = 0, adaptations = 0, reversions = 0;
  bool operator==(const GuiltySite&) const = default;
};

// What happened in one interval of the run.
struct Interval {
  u64 traps = 0, callouts = 0, adaptations = 0, reversions = 0;
  bool operator==(const Interval&) const = default;
};

struct LogDigest {
  std::string policy;
  double seconds = 0;           // of the run, by the host's TSC
  double interval_seconds = 0;  // length of each of `intervals`
  std::vector<Interval> intervals;
  // By event's name. Cycles of traps include the trap itself, as the log's header prices it, and
  // those of callouts the callout.
  std::map<std::string, Tally> traps, callouts;
  std::map<std::string, TranslationTally> translations;  // by reason
  std::map<std::string, u64> sites;   // by kind at the end; each instruction once
  std::vector<GuiltySite> guiltiest;  // by cycles
  u64 lost = 0;                       // records missing from the log
  std::string damage;                 // why its end is missing; "": it is whole
  bool operator==(const LogDigest&) const = default;
};

inline constexpr std::size_t kGuiltiest = 10, kMaxIntervals = 240;

using Disassembler = std::function<std::string(const adapt::log::Site& site)>;

// A log that is damaged or has no end gives what can be read of it.
Result<LogDigest> DigestLog(const std::string& path, const Disassembler& disassemble);

std::string DigestToJson(const LogDigest& digest);
Result<LogDigest> DigestFromJson(const std::string& text);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_LOG_DIGEST_H_
