// SPDX-License-Identifier: Apache-2.0
// alibi lab replay: what other policies, of sites or of engines, would have made of a recorded run;
// with --against, how well such predictions hold.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adapt/engine_policy.h"
#include "adapt/policy.h"
#include "adapt/replay/engine_replay.h"
#include "adapt/replay/replay.h"
#include "cli/bench_files.h"
#include "cli/cmd_lab.h"
#include "cli/replay_table.h"

namespace alibi::vmm {
namespace {

using adapt::log::Header;
using adapt::replay::EngineTotals;
using adapt::replay::Totals;
using nlohmann::ordered_json;

struct ReplayOptions {
  std::string log;
  std::vector<std::string> policies;
  std::vector<std::string> engine_policies;
  std::vector<std::string> against;
  double slowdown = adapt::replay::kDefaultSlowdown;
  std::string json;
  std::string csv;
};

// Of either kind of policies.
struct Replayed {
  Header header;
  std::string policy;  // the recorded one
  ReplayTable table;
  ordered_json head;
  u64 lost_records = 0;
  std::string incomplete;
  std::vector<std::string> notes;  // for stderr
};

ReplayRow RowOf(const std::string& policy, const char* what, const Totals& totals) {
  return {policy,
          what,
          {totals.traps, totals.callouts, totals.adaptations, totals.reversions, totals.cycles},
          totals.estimated_callouts,
          totals.callouts};
}

ReplayRow RowOf(const std::string& policy, const char* what, const EngineTotals& totals) {
  return {policy,
          what,
          {totals.runs, totals.stops, totals.calls, totals.switches, totals.translated,
           totals.direct, totals.cycles},
          totals.estimated,
          totals.cycles};
}

ReplayTable EmptyTable(const Totals&) {
  return {{"traps", "callouts", "adaptations", "reversions", "cycles"}, "estimated_callouts", {}};
}
ReplayTable EmptyTable(const EngineTotals&) {
  return {{"runs", "stops", "calls", "switches", "translated", "direct", "cycles"},
          "estimated_cycles",
          {}};
}

// The report of a log; outcomes from `compared` on are of policies whose real figures are there.
template <class Report, class Real>
Replayed Shown(const Report& report, const std::string& policy, const std::vector<Real>& real) {
  Replayed shown{.header = report.header,
                 .policy = policy,
                 .table = EmptyTable(report.recorded),
                 .head = {},
                 .lost_records = report.lost_records,
                 .incomplete = report.incomplete,
                 .notes = {}};
  std::vector<ReplayRow>& rows = shown.table.rows;
  rows.push_back(RowOf(policy, "recorded", report.recorded));
  const std::size_t compared = report.outcomes.size() - real.size();
  for (std::size_t i = 0; i < report.outcomes.size(); ++i) {
    const auto& outcome = report.outcomes[i];
    rows.push_back(RowOf(outcome.policy, "predicted", outcome.totals));
    if (i >= compared) rows.push_back(RowOf(outcome.policy, "real", real[i - compared]));
    if (!outcome.fault.empty()) shown.notes.push_back(outcome.fault);
  }
  return shown;
}

Result<Replayed> ReplaySites(const ReplayOptions& options) {
  std::vector<std::string> policies = options.policies;
  std::vector<Totals> real;
  for (const std::string& path : options.against) {
    auto report = adapt::replay::ReplayFile(path, {});
    if (!report.ok()) return report.error();
    real.push_back(report->recorded);
    policies.push_back(report->header.policy);
  }
  auto report = adapt::replay::ReplayFile(options.log, policies);
  if (!report.ok()) return report.error();
  Replayed shown = Shown(*report, report->header.policy, real);
  shown.head["sites"] = report->sites;
  return shown;
}

Error WithoutEngines(const std::string& path) {
  return Error{path + ": no engine policy decided in this run; record one with --engine auto or " +
               "direct"};
}

Result<Replayed> ReplayEngines(const ReplayOptions& options) {
  std::vector<std::string> policies = options.engine_policies;
  std::vector<EngineTotals> real;
  for (const std::string& path : options.against) {
    auto report = adapt::replay::ReplayEnginesFile(path, {});
    if (!report.ok()) return report.error();
    if (report->header.engine_policy.empty()) return WithoutEngines(path);
    real.push_back(report->recorded);
    policies.push_back(report->header.engine_policy);
  }
  auto report = adapt::replay::ReplayEnginesFile(options.log, policies, options.slowdown);
  if (!report.ok()) return report.error();
  if (report->header.engine_policy.empty()) return WithoutEngines(options.log);
  Replayed shown = Shown(*report, report->header.engine_policy, real);
  shown.head["address_spaces"] = report->spaces;
  shown.head["slowdown"] = options.slowdown;
  shown.head["stop_price"] = report->header.prices.stop;
  shown.head["call_price"] = report->header.prices.call;
  if (!report->ran_directly) {
    shown.notes.push_back(options.log +
                          ": no user code ran directly: what stops would cost is not known");
  }
  return shown;
}

std::string Json(const Replayed& shown) {
  ordered_json json = {{"image", shown.header.image},
                       {"command", shown.header.command},
                       {"recorded_policy", shown.policy}};
  json.update(shown.head);
  json["lost_records"] = shown.lost_records;
  json["rows"] = JsonOf(shown.table);
  return json.dump(1) + "\n";
}

std::optional<int> Check(const ReplayOptions& options) {
  if (!options.policies.empty() && !options.engine_policies.empty()) {
    return Fail(kUsage,
                "lab replay: --policy is of sites, --engine-policy of user code: replay "
                "them one after the other");
  }
  if (options.policies.empty() && options.engine_policies.empty() && options.against.empty()) {
    return Fail(kUsage,
                "lab replay: give --policy POLICY, --engine-policy POLICY, or --against LOG; "
                "--help shows more");
  }
  for (const std::string& spec : options.policies) {
    if (auto policy = adapt::MakePolicy(spec); !policy.ok()) {
      return Fail(kUsage, "--policy: " + policy.error().message);
    }
  }
  for (const std::string& spec : options.engine_policies) {
    if (auto policy = adapt::MakeEnginePolicy(spec); !policy.ok()) {
      return Fail(kUsage, "--engine-policy: " + policy.error().message);
    }
  }
  std::vector<std::string> logs = options.against;
  logs.push_back(options.log);
  for (const std::string& path : logs) {
    if (access(path.c_str(), R_OK) == 0) continue;
    return Fail(kNoInput, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  return std::nullopt;
}

}  // namespace

int CmdLabReplay(int argc, char** argv) {
  ReplayOptions options;
  CLI::App app(
      "Predicts from an event log (alibi run --log FILE) what other policies would have done.\n"
      "--policy: traps and callouts of sites, adaptations, reversions, and the cycles of all of\n"
      "these. A log that was recorded with --policy always shows all that any policy can see; in\n"
      "others clean accesses are estimated (column \"estimated\": their share of the callouts).\n"
      "--engine-policy: runs of user code on the CPU itself, their stops and mapping calls, how\n"
      "often an address space changed sides, and the cycles of user code. A log that was recorded\n"
      "with --engine direct shows most; \"estimated\" is the share of the cycles that rest on\n"
      "assumptions (docs/policies.md).");
  app.add_option("LOG", options.log, "the event log")->required();
  app.add_option("--policy", options.policies, "a policy as alibi run takes it; again for more")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  app.add_option("--engine-policy", options.engine_policies,
                 "an engine policy as alibi run takes it; again for more")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  app.add_option(
         "--against", options.against,
         "a log of the same workload under another policy, which is predicted and compared;\n"
         "again for more; with --engine-policy, its engine policy")
      ->type_name("LOG")
      ->allow_extra_args(false);
  app.add_option("--slowdown", options.slowdown,
                 "for engine policies: translated user code takes so many times as long (2)")
      ->check(CLI::Range(1.0, 100.0))
      ->type_name("TIMES");
  app.add_option("--json", options.json, "write the figures to FILE as JSON")->type_name("FILE");
  app.add_option("--csv", options.csv, "write the figures to FILE as CSV")->type_name("FILE");
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab replay", argc, argv)) return *status;
  if (const auto status = Check(options)) return *status;

  const bool engines = !options.engine_policies.empty();
  auto replayed = engines ? ReplayEngines(options) : ReplaySites(options);
  if (!replayed.ok()) return Fail(kBadImage, replayed.error().message);
  for (const std::string& note : replayed->notes) fmt::print(stderr, "alibi: {}\n", note);
  fmt::print("{}", TextOf(replayed->table));
  if (!options.against.empty()) fmt::print("{}", ErrorsOf(replayed->table));
  if (replayed->lost_records != 0) {
    fmt::print("The log lacks {} records: its ring was full.\n", replayed->lost_records);
  }
  if (!options.json.empty() && !WriteFile(options.json, Json(*replayed))) {
    return Fail(kCannotCreate, options.json + ": cannot be written");
  }
  if (!options.csv.empty() && !WriteFile(options.csv, CsvOf(replayed->table))) {
    return Fail(kCannotCreate, options.csv + ": cannot be written");
  }
  if (!replayed->incomplete.empty()) {
    return Fail(kBadImage, replayed->incomplete + "; replayed as far as it goes");
  }
  return kSuccess;
}

}  // namespace alibi::vmm
