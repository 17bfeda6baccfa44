// SPDX-License-Identifier: Apache-2.0
// alibi lab replay: what other policies would have made of a recorded run; with --against, how well
// such predictions hold.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adapt/policy.h"
#include "adapt/replay/replay.h"
#include "cli/bench_files.h"
#include "cli/cmd_lab.h"

namespace alibi::vmm {
namespace {

using adapt::replay::Outcome;
using adapt::replay::Report;
using adapt::replay::Totals;
using nlohmann::ordered_json;

struct ReplayOptions {
  std::string log;
  std::vector<std::string> policies;
  std::vector<std::string> against;
  std::string json;
  std::string csv;
};

// One line of each output.
struct Row {
  std::string policy;
  std::string what;  // recorded, predicted, real
  Totals totals;
};

struct Column {
  const char* name;
  u64 Totals::*value;
};
constexpr Column kColumns[] = {
    {"traps", &Totals::traps},
    {"callouts", &Totals::callouts},
    {"adaptations", &Totals::adaptations},
    {"reversions", &Totals::reversions},
    {"cycles", &Totals::cycles},
};

std::string Text(const std::vector<Row>& rows) {
  std::size_t width = 6;
  for (const Row& row : rows) width = std::max(width, row.policy.size());
  std::string text = fmt::format("{:<{}}  {:<9}", "policy", width, "");
  for (const Column& column : kColumns) text += fmt::format(" {:>14}", column.name);
  text += fmt::format(" {:>10}\n", "estimated");
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<9}", row.policy, width, row.what);
    for (const Column& column : kColumns) text += fmt::format(" {:>14L}", row.totals.*column.value);
    const u64 callouts = row.totals.callouts;
    text += callouts == 0 || row.totals.estimated_callouts == 0
                ? fmt::format(" {:>10}\n", "-")
                : fmt::format(" {:>9.0f}%\n",
                              100.0 * static_cast<double>(row.totals.estimated_callouts) /
                                  static_cast<double>(callouts));
  }
  return text;
}

// In percent of the real figure; nothing if that is 0 and the prediction is not.
std::optional<double> ErrorOf(u64 predicted, u64 real) {
  if (predicted == real) return 0;
  if (real == 0) return std::nullopt;
  return 100.0 * (static_cast<double>(predicted) - static_cast<double>(real)) /
         static_cast<double>(real);
}

std::string ErrorText(const std::vector<Row>& rows) {
  std::string text = "\nError of the prediction, per cent of the real figure:\n";
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i].what != "predicted" || rows[i + 1].what != "real") continue;
    text += fmt::format("{}:", rows[i].policy);
    for (const Column& column : kColumns) {
      const auto error = ErrorOf(rows[i].totals.*column.value, rows[i + 1].totals.*column.value);
      text += error ? fmt::format("  {} {:+.1f}", column.name, *error)
                    : fmt::format("  {} (real: 0)", column.name);
    }
    text += "\n";
  }
  return text;
}

std::string Csv(const std::vector<Row>& rows) {
  std::string text = "policy,what";
  for (const Column& column : kColumns) text += fmt::format(",{}", column.name);
  text += ",estimated_callouts\n";
  for (const Row& row : rows) {
    text += fmt::format("\"{}\",{}", row.policy, row.what);
    for (const Column& column : kColumns) text += fmt::format(",{}", row.totals.*column.value);
    text += fmt::format(",{}\n", row.totals.estimated_callouts);
  }
  return text;
}

std::string Json(const Report& report, const std::vector<Row>& rows) {
  ordered_json json = {{"image", report.header.image},
                       {"command", report.header.command},
                       {"recorded_policy", report.header.policy},
                       {"sites", report.sites},
                       {"lost_records", report.lost_records}};
  ordered_json& lines = json["rows"] = ordered_json::array();
  for (const Row& row : rows) {
    ordered_json line = {{"policy", row.policy}, {"what", row.what}};
    for (const Column& column : kColumns) line[column.name] = row.totals.*column.value;
    line["estimated_callouts"] = row.totals.estimated_callouts;
    lines.push_back(std::move(line));
  }
  return json.dump(1) + "\n";
}

int Unreadable(const std::string& path) {
  return Fail(kNoInput, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
}

}  // namespace

int CmdLabReplay(int argc, char** argv) {
  ReplayOptions options;
  CLI::App app(
      "Predicts from an event log (alibi run --log FILE) what other policies would have done: "
      "traps\n"
      "and callouts of sites, adaptations, reversions, and the cycles of all of these. A log that\n"
      "was recorded with --policy always shows all that any policy can see; in others clean "
      "accesses\n"
      "are estimated (column \"estimated\": their share of the callouts).");
  app.add_option("LOG", options.log, "the event log")->required();
  app.add_option("--policy", options.policies, "a policy as alibi run takes it; again for more")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  app.add_option(
         "--against", options.against,
         "a log of the same workload under another policy, which is predicted and compared;\n"
         "again for more")
      ->type_name("LOG")
      ->allow_extra_args(false);
  app.add_option("--json", options.json, "write the figures to FILE as JSON")->type_name("FILE");
  app.add_option("--csv", options.csv, "write the figures to FILE as CSV")->type_name("FILE");
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab replay", argc, argv)) return *status;
  if (options.policies.empty() && options.against.empty()) {
    return Fail(kUsage, "lab replay: give --policy POLICY, or --against LOG; --help shows more");
  }
  for (const std::string& spec : options.policies) {
    if (auto policy = adapt::MakePolicy(spec); !policy.ok()) {
      return Fail(kUsage, "--policy: " + policy.error().message);
    }
  }
  std::vector<Totals> real;
  for (const std::string& path : options.against) {
    if (access(path.c_str(), R_OK) != 0) return Unreadable(path);
    auto report = adapt::replay::ReplayFile(path, {});
    if (!report.ok()) return Fail(kBadImage, report.error().message);
    real.push_back(report->recorded);
    options.policies.push_back(report->header.policy);
  }
  if (access(options.log.c_str(), R_OK) != 0) return Unreadable(options.log);
  auto report = adapt::replay::ReplayFile(options.log, options.policies);
  if (!report.ok()) return Fail(kBadImage, report.error().message);

  std::vector<Row> rows = {{report->header.policy, "recorded", report->recorded}};
  const std::size_t asked = report->outcomes.size() - real.size();
  for (std::size_t i = 0; i < report->outcomes.size(); ++i) {
    const Outcome& outcome = report->outcomes[i];
    rows.push_back({outcome.policy, "predicted", outcome.totals});
    if (i >= asked) rows.push_back({outcome.policy, "real", real[i - asked]});
    if (!outcome.fault.empty()) fmt::print(stderr, "alibi: {}\n", outcome.fault);
  }
  fmt::print("{}", Text(rows));
  if (!real.empty()) fmt::print("{}", ErrorText(rows));
  if (report->lost_records != 0) {
    fmt::print("The log lacks {} records: its ring was full.\n", report->lost_records);
  }
  if (!options.json.empty() && !WriteFile(options.json, Json(*report, rows))) {
    return Fail(kCannotCreate, options.json + ": cannot be written");
  }
  if (!options.csv.empty() && !WriteFile(options.csv, Csv(rows))) {
    return Fail(kCannotCreate, options.csv + ": cannot be written");
  }
  if (!report->incomplete.empty()) {
    return Fail(kBadImage, report->incomplete + "; replayed as far as it goes");
  }
  return kSuccess;
}

}  // namespace alibi::vmm
