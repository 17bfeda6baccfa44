// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/linux_report.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "bench/linux/cpus.h"
#include "bench/linux/engines.h"
#include "bench/linux/reference.h"
#include "bench/linux/workloads.h"
#include "bench/text_table.h"

namespace alibi::bench {
namespace {

constexpr const char* kNote =
    "Time per operation, medians; tcg/alibi: how many times faster Alibi is than QEMU TCG, and "
    "the\n"
    "aim for it, behind a stroke the one for alibi/native.\n";
constexpr const char* kOtherIsCpu = "CPU: the VMM's CPU time for the same.\n";
constexpr const char* kOtherIsClock =
    "Times are the VMM's CPU time; clock: the same by the guest's clock, a boot by the host's.\n";
constexpr const char* kIsolated =
    "NAME/pti: in a guest that isolates its page tables; beside the same native figure.\n";

// Less than this part of an aim is more than missed.
constexpr double kFarOff = 0.5;

// A machine that gets less of a core than this was held up by others.
constexpr double kIdleHost = 0.9;

// To six digits: more would be noise.
double Rounded(double value) {
  if (value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

// What it is, if it is known.
LinuxSystem SystemOf(const LinuxMeasurements& measurements, const SystemId& id) {
  for (const LinuxSystem& system : measurements.systems) {
    if (system.id == id) return system;
  }
  return {id};
}

// What the exec of a new machine costs in an old one, in times, by system.
std::vector<std::pair<SystemId, double>> Ageing(const Results& results) {
  std::vector<std::pair<SystemId, double>> all;
  for (const SystemId& id : results.Systems()) {
    const double fresh = results.Of(kFreshWorkload, id).median;
    const double aged = results.Of(kAgedWorkload, id).median;
    if (fresh > 0 && aged > 0) all.emplace_back(id, aged / fresh);
  }
  return all;
}

// "" if it was not measured.
std::string AgeingLine(const Results& results, bool colors) {
  std::string text;
  for (const auto& [id, times] : Ageing(results)) {
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", id.Name(), times);
    if (id.system != kAlibi) continue;
    const bool ok = times <= kMostAgeing;
    text += fmt::format(" (aim: at most {:g}, {}{}{})", kMostAgeing,
                        colors ? (ok ? kColorGreen : kColorRed) : "", ok ? "met" : "MISSED",
                        colors ? kColorReset : "");
  }
  return text.empty() ? ""
                      : fmt::format("{} in times of {}: {}\n", kAgedWorkload, kFreshWorkload, text);
}

}  // namespace

std::string FormatTimes(double ratio) {
  return ratio < 9.95 ? fmt::format("{:.2f}", ratio) : fmt::format("{:.1f}", ratio);
}

std::string LinuxFailures(const Results& results, bool colors) {
  std::string text;
  for (const auto& [id, what] : results.Misses()) {
    const std::string failed = colors ? std::string(kColorRed) + "FAILED" + kColorReset : "FAILED";
    text += failed + "  " + id.Name() + ": " + what + "\n";
  }
  return text;
}

std::string FormatSeconds(double seconds) {
  struct Unit {
    double size;
    const char* name;
  };
  for (const Unit unit : {Unit{1, "s"}, Unit{1e-3, "ms"}, Unit{1e-6, "us"}, Unit{1e-9, "ns"}}) {
    const double value = seconds / unit.size;
    if (value < 0.9995 && unit.size > 1e-9) continue;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, unit.name);
  }
  return "";
}

std::string LinuxTable(const LinuxMeasurements& measurements, bool colors) {
  const Results& results = measurements.results;
  // The measure that the ratios are not of.
  const char* other = measurements.cpu_time ? "clock" : "CPU";
  TextTable table;
  table.Row({{"workload"},
             {"per"},
             {"native"},
             {"alibi"},
             {"qemu-tcg"},
             {std::string("alibi ") + other},
             {std::string("tcg ") + other},
             {"alibi/native"},
             {"tcg/alibi"},
             {"aim"},
             {""}});
  unsigned met = 0, missed = 0, far_off = 0;
  bool isolated = false;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    const auto native = results.MedianOf(workload.name, kNative);
    const auto own = results.MedianOf(workload.name, kAlibi);
    const auto peer = results.MedianOf(workload.name, kQemuTcg);
    if (!native && !own && !peer) continue;
    isolated = isolated || workload.isolated;
    const auto time = [](const std::optional<double>& seconds) {
      return Cell{seconds ? FormatSeconds(*seconds) : "-"};
    };
    std::vector<Cell> row = {{workload.name}, {workload.per}, time(native), time(own), time(peer)};
    row.push_back(time(measurements.other.MedianOf(workload.name, kAlibi)));
    row.push_back(time(measurements.other.MedianOf(workload.name, kQemuTcg)));
    const bool slow = native && own && workload.most != 0 && *own / *native > workload.most;
    row.push_back({native && own ? FormatTimes(*own / *native) : "-", slow ? kColorRed : nullptr});
    const std::string aim = workload.most == 0
                                ? fmt::format("{:g}", workload.aim)
                                : fmt::format("{:g}/{:g}", workload.aim, workload.most);
    if (own && peer) {
      const double ratio = *peer / *own;
      const bool fast = ratio >= workload.aim, ok = fast && !slow;
      const bool far = ratio < kFarOff * workload.aim;
      row.push_back({FormatTimes(ratio), fast ? kColorGreen : kColorRed});
      row.push_back({aim});
      row.push_back({ok ? "met" : far ? "FAR OFF" : "MISSED", ok ? kColorGreen : kColorRed});
      ++(ok ? met : missed);
      far_off += far;
    } else {
      row.push_back({"-"});
      row.push_back({aim});
    }
    table.Row(std::move(row));
  }
  const auto dim = [colors](const std::string& text) {
    return colors ? kColorDim + text + kColorReset : text;
  };
  std::string text =
      table.Render(colors) + "\n" +
      dim(std::string(kNote) + (measurements.cpu_time ? kOtherIsClock : kOtherIsCpu) +
          (isolated ? kIsolated : "")) +
      AgeingLine(results, colors);
  if (met + missed != 0) {
    text += fmt::format("Aims: {} met, {} missed, {} of them by more than half.\n", met, missed,
                        far_off);
  }
  bool busy = false;
  for (const SystemId& id : results.Systems()) {
    double guest = 0, host = 0, cpu = 0;
    for (const LinuxClock& clock : measurements.clocks) {
      if (clock.system != id) continue;
      guest += clock.guest;
      host += clock.host;
      cpu += clock.cpu;
    }
    if (host > 0) {
      text +=
          dim(fmt::format("{}: {:.2f} s by its clock, {:.2f} s by the host's, {:.0f} % of a core\n",
                          id.Name(), guest, host, 100 * cpu / host));
      busy = busy || cpu < kIdleHost * host;
    }
  }
  if (busy) {
    text +=
        "The host was busy with other things: times are too long and ratios unsure; see "
        "--cpu-time.\n";
  }
  text += LinuxFailures(results, colors);
  if (const std::string engines = EngineTable(measurements, colors); !engines.empty()) {
    text += "\n" + engines;
  }
  if (const std::string cpus = CpusTable(measurements, colors); !cpus.empty()) text += "\n" + cpus;
  for (const std::string& note : measurements.notes) text += note;
  return text;
}

nlohmann::ordered_json LinuxJson(const LinuxMeasurements& measurements,
                                 const nlohmann::ordered_json& host,
                                 const nlohmann::ordered_json& settings) {
  using Json = nlohmann::ordered_json;
  const Results& results = measurements.results;
  const bool several_engines = !EnginesOf(measurements).empty();
  const bool several_numbers = CpuNumbers(measurements).size() > 1;
  Json benchmarks = Json::array(), clocks = Json::array(), failures = Json::array();
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    for (const SystemId& id : results.Systems()) {
      const std::vector<double>& samples = results.Samples(workload.name, id);
      if (samples.empty()) continue;
      const Summary summary = Summarize(samples);
      Json rounded = Json::array();
      for (double sample : samples) rounded.push_back(Rounded(sample));
      benchmarks.push_back({{"name", workload.name},
                            {"system", id.system},
                            {"policy", id.policy},
                            {"per", workload.per},
                            {"median_seconds", Rounded(summary.median)},
                            {"p10", Rounded(summary.p10)},
                            {"p90", Rounded(summary.p90)},
                            {"samples", std::move(rounded)}});
      const double median = Rounded(summary.median);
      const double other = Rounded(measurements.other.Of(workload.name, id).median);
      const LinuxSystem system = SystemOf(measurements, id);
      if (several_engines && !system.engine.empty()) benchmarks.back()["engine"] = system.engine;
      if (several_numbers) benchmarks.back()["cpus"] = system.cpus;
      benchmarks.back()["clock_seconds"] = measurements.cpu_time ? other : median;
      benchmarks.back()["cpu_seconds"] = measurements.cpu_time ? median : other;
    }
  }
  for (const LinuxClock& clock : measurements.clocks) {
    clocks.push_back({{"system", clock.system.system},
                      {"guest_seconds", Rounded(clock.guest)},
                      {"host_seconds", Rounded(clock.host)},
                      {"cpu_seconds", Rounded(clock.cpu)}});
  }
  for (const auto& [id, what] : results.Misses()) {
    failures.push_back({{"system", id.system}, {"what", what}});
  }
  Json json;
  json["host"] = host;
  json["linux"] = settings;
  json["clocks"] = std::move(clocks);
  json["benchmarks"] = std::move(benchmarks);
  json["ratios"] = RatiosJson(RatiosOf(measurements));
  json["ageing"] = Json::object();
  for (const auto& [id, times] : Ageing(results)) json["ageing"][id.system] = Rounded(times);
  json["failures"] = std::move(failures);
  for (const auto& [id, bytes] : measurements.memory) {
    json["memory"].push_back({{"system", id.system},
                              {"cpus", SystemOf(measurements, id).cpus},
                              {"median_bytes", Rounded(Summarize(bytes).median)}});
  }
  if (!measurements.notes.empty()) json["notes"] = measurements.notes;
  return json;
}

}  // namespace alibi::bench
