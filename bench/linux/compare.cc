// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/linux/cpus.h"
#include "bench/linux/engines.h"
#include "bench/linux/linux_report.h"
#include "bench/text_table.h"

namespace alibi::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* kNote =
    "was: in the old report. cost: what Alibi takes beside native and QEMU TCG, as far as both say "
    "so, "
    "in\n"
    "times of what it took; noise: what that may differ by without a reason.\n";

// Of the host; all that a report's settings say but for the number of runs.
constexpr const char* kHostKeys[] = {"cpu", "cores", "kernel", "meltdown"};

// Of one system in one report; count 0: not measured.
struct Pair {
  Summary was, now;
  bool Both() const { return was.count != 0 && now.count != 0; }
  // The median of n samples is uncertain by some two standard errors, 2 * 1.25 / sqrt(n)
  // deviations; 2.56 deviations are from p10 to p90.
  double Noise() const {
    const auto of = [](const Summary& summary) {
      const double spread = (summary.p90 - summary.p10) / summary.median;
      return std::max(spread / std::sqrt(summary.count),
                      summary.count == 1 ? kNoiseOfOne : kLeastNoise);
    };
    return std::max(of(was), of(now));
  }
  // How many times as much as before.
  double Times() const { return now.median / was.median; }
};

struct Row {
  Pair native, own, peer;
};

Summary NowOf(const LinuxMeasurements& now, const std::string& workload,
              const std::string& system) {
  for (const SystemId& id : now.results.Systems()) {
    if (id.system == system) return now.results.Of(workload, id);
  }
  return {};
}

// Of a workload with so many CPUs.
Row RowOf(const OldReport& old, const LinuxMeasurements& now, const std::string& workload,
          unsigned cpus) {
  const auto pair = [&](const char* first) {
    const std::string system = SystemWithCpus({first, ""}, CpuNumbers(now).front(), cpus).system;
    const auto was = old.rows.find({workload, system});
    return Pair{was == old.rows.end() ? Summary{} : was->second, NowOf(now, workload, system)};
  };
  return {pair(kNative), pair(kAlibi), pair(kQemuTcg)};
}

struct Verdict {
  double cost = 1, noise = kLeastNoise;
  bool Worse() const { return cost > 1 + noise; }
  bool Better() const { return cost < 1 / (1 + noise); }
};

std::optional<Verdict> Judge(const Row& row) {
  if (!row.own.Both()) return std::nullopt;
  std::vector<double> costs;
  double noise = row.own.Noise();
  for (const Pair* other : {&row.native, &row.peer}) {
    if (!other->Both()) continue;
    costs.push_back(row.own.Times() / other->Times());
    noise = std::max(noise, other->Noise());
  }
  if (costs.empty()) costs.push_back(row.own.Times());
  // What they agree on: if one says better and the other worse, it is neither.
  const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  return Verdict{*least > 1 ? *least : *most < 1 ? *most : 1, noise};
}

Cell Time(const Summary& summary) {
  return {summary.count != 0 ? FormatSeconds(summary.median) : "-"};
}

Cell Ratio(const Summary& one, const Summary& other) {
  return {one.count != 0 && other.count != 0 ? FormatTimes(one.median / other.median) : "-"};
}

// What has to be the same for figures to be compared.
std::string Difference(const Json& old, const Json& now, const std::string& key) {
  const Json was = old.value(key, Json()), is = now.value(key, Json());
  return was == is ? "" : fmt::format("DIFFERS  {}: was {}, is {}\n", key, was.dump(), is.dump());
}

std::string Differences(const OldReport& old, const Json& host, const Json& settings) {
  std::string text;
  for (const char* key : kHostKeys) text += Difference(old.host, host, key);
  for (const auto& [key, value] : settings.items()) {
    if (key != "runs") text += Difference(old.settings, settings, key);
  }
  return text;
}

}  // namespace

Result<OldReport> ParseReport(const std::string& text, LinuxSuite suite) {
  OldReport report;
  bool of_suite = false;
  // Missing members, wrong types and broken texts throw.
  try {
    const Json json = Json::parse(text);
    report.host = json.at("host");
    report.settings = json.at("linux");
    if (!report.host.is_object() || !report.settings.is_object()) return Error{"it is no report"};
    // Reports that do not name theirs are older than the choice.
    if (!report.settings.contains("engine")) report.settings["engine"] = kTranslateEngine;
    for (const Json& row : json.at("benchmarks")) {
      const std::string name = row.at("name").get<std::string>();
      const LinuxWorkload* workload = FindLinuxWorkload(name);
      of_suite = of_suite || (workload != nullptr && Belongs(*workload, suite));
      Summary summary;
      summary.median = row.at("median_seconds").get<double>();
      summary.p10 = row.at("p10").get<double>();
      summary.p90 = row.at("p90").get<double>();
      summary.count = row.at("samples").size();
      if (!(summary.median > 0)) return Error{name + " has a median that is no time"};
      report.rows[{name, row.at("system").get<std::string>()}] = summary;
    }
  } catch (const std::exception& problem) {
    return Error{problem.what()};
  }
  if (!of_suite) return Error{"no row in it is of this command"};
  return report;
}

std::string CompareTable(const OldReport& old, const LinuxMeasurements& now, const Json& host,
                         const Json& settings, bool colors) {
  TextTable table;
  table.Row({{"workload"},
             {"alibi"},
             {"was"},
             {"alibi/native"},
             {"was"},
             {"tcg/alibi"},
             {"was"},
             {"cost"},
             {"noise"},
             {""}});
  unsigned worse = 0, better = 0;
  const std::vector<unsigned> numbers = CpuNumbers(now);
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    for (unsigned cpus : numbers) {
      const Row row = RowOf(old, now, workload.name, cpus);
      if (row.own.now.count == 0) continue;
      const std::string name =
          numbers.size() == 1 ? workload.name : fmt::format("{}, CPUs: {}", workload.name, cpus);
      std::vector<Cell> cells = {{name},
                                 Time(row.own.now),
                                 Time(row.own.was),
                                 Ratio(row.own.now, row.native.now),
                                 Ratio(row.own.was, row.native.was),
                                 Ratio(row.peer.now, row.own.now),
                                 Ratio(row.peer.was, row.own.was)};
      if (const auto verdict = Judge(row)) {
        cells.push_back({FormatTimes(verdict->cost)});
        cells.push_back({fmt::format("{:.0f} %", 100 * verdict->noise)});
        if (verdict->Worse()) cells.push_back({"WORSE", kColorRed});
        if (verdict->Better()) cells.push_back({"better", kColorGreen});
        worse += verdict->Worse();
        better += verdict->Better();
      }
      table.Row(std::move(cells));
    }
  }
  return table.Render(colors) + "\n" +
         (colors ? kColorDim + std::string(kNote) + kColorReset : kNote) +
         fmt::format("Beyond the noise: {} worse, {} better.\n", worse, better) +
         Differences(old, host, settings);
}

}  // namespace alibi::bench
