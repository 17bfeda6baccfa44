// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/lab_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "bench/lab/chart.h"
#include "bench/lab/files.h"
#include "bench/lab/lab_folder.h"

namespace alibi::bench::lab {
namespace {

using nlohmann::ordered_json;

// Metrics that every run has, whatever it measures.
bool IsBenchmark(const std::string& metric) {
  return metric != "wall" && metric != "failed" && metric != "core_share" &&
         metric.find('.') == std::string::npos;
}

template <class T>
void AddOnce(const T& value, std::vector<T>* all) {
  if (std::find(all->begin(), all->end(), value) == all->end()) all->push_back(value);
}

}  // namespace

LabData::LabData(ordered_json experiment, std::vector<TidyRow> rows)
    : experiment_(std::move(experiment)), rows_(std::move(rows)) {
  for (const TidyRow& row : rows_) {
    const Configuration configuration = {row.system, row.parameters};
    AddOnce(configuration, &configurations_);
    if (row.repeat == kObserved) observed_[row.run] = {row.workload, configuration};
  }
  std::stable_sort(configurations_.begin(), configurations_.end(),
                   [](const Configuration& a, const Configuration& b) {
                     const auto rank = [](const Configuration& c) {
                       return c.system.system == kNative ? 0 : c.system.system == kAlibi ? 1 : 2;
                     };
                     return rank(a) < rank(b);
                   });
}

Result<LabData> LabData::Load(const std::string& folder, const Disassembler& disassemble) {
  const std::string json_path = folder + "/experiment.json", csv_path = folder + "/results.csv";
  const auto text = ReadWholeFile(json_path);
  if (!text.ok()) return text.error();
  auto experiment = ordered_json::parse(text.value(), nullptr, false);
  if (!experiment.is_object()) return Error{json_path + ": not the JSON of an experiment"};
  const auto csv = ReadWholeFile(csv_path);
  if (!csv.ok()) return csv.error();
  auto rows = ReadCsv(csv.value(), csv_path);
  if (!rows.ok()) return rows.error();
  LabData data(std::move(experiment), std::move(*rows));
  for (const auto& [run, key] : data.observed_) {
    const std::string log = EventLogFile(folder, run), digest_file = DigestFile(folder, run);
    if (access(log.c_str(), R_OK) == 0) {
      auto digest = DigestLog(log, disassemble);
      if (!digest.ok()) {
        data.complaints_.push_back(digest.error().message);
      } else {
        if (Status written = WriteWholeFile(digest_file, DigestToJson(*digest)); !written.ok()) {
          return written.error();
        }
        data.AddDigest(run, std::move(*digest));
      }
    } else if (const auto kept = ReadWholeFile(digest_file); kept.ok()) {
      auto digest = DigestFromJson(kept.value());
      if (!digest.ok()) return Error{digest_file + ": " + digest.error().message};
      data.AddDigest(run, std::move(*digest));
    }
    if (const auto kept = ReadWholeFile(ProfileFile(folder, run)); kept.ok()) {
      auto profile = ordered_json::parse(kept.value(), nullptr, false);
      if (profile.is_object()) data.AddProfile(run, std::move(profile));
    }
  }
  return data;
}

void LabData::AddDigest(const std::string& run, LogDigest digest) {
  if (!digest.damage.empty()) complaints_.push_back(fmt::format("{}: {}", run, digest.damage));
  if (digest.lost != 0) {
    complaints_.push_back(fmt::format("{}: its event log lacks {} records", run, digest.lost));
  }
  digests_[run] = std::move(digest);
}

void LabData::AddProfile(const std::string& run, ordered_json profile) {
  profiles_[run] = std::move(profile);
}

std::vector<std::string> LabData::Hosts() const {
  std::vector<std::string> names;
  for (const TidyRow& row : rows_) {
    if (!row.host.empty()) AddOnce(row.host, &names);
  }
  return names;
}

LabData LabData::OnHost(const std::string& name) const {
  ordered_json experiment = experiment_;
  if (const auto hosts = experiment.find("hosts"); hosts != experiment.end()) {
    experiment["host"] = hosts->value(name, ordered_json::object());
    experiment.erase("hosts");
  }
  ordered_json runs = ordered_json::array();
  for (const auto& run : experiment.value("runs", ordered_json::array())) {
    if (run.value("host", std::string()) == name) runs.push_back(run);
  }
  experiment["runs"] = std::move(runs);
  std::vector<TidyRow> rows = rows_;
  std::erase_if(rows, [&](const TidyRow& row) { return row.host != name; });
  LabData data(std::move(experiment), std::move(rows));
  for (const auto& [run, key] : data.observed_) {
    if (const auto it = digests_.find(run); it != digests_.end()) data.AddDigest(run, it->second);
    if (const auto it = profiles_.find(run); it != profiles_.end()) {
      data.AddProfile(run, it->second);
    }
  }
  return data;
}

double LabData::tsc_hz() const {
  const auto host = experiment_.find("host");
  if (host == experiment_.end() || !host->is_object()) return 0;
  return host->value("tsc_hz", 0.0);
}

std::vector<Configuration> LabData::Ours() const {
  std::vector<Configuration> ours = configurations_;
  std::erase_if(ours, [](const Configuration& c) { return c.system.system != kAlibi; });
  return ours;
}

std::string LabData::Label(const Configuration& configuration) const {
  if (configuration.system.system == kQemuTcg) return "QEMU TCG";
  if (configuration.system.system == kUml) return "User-Mode Linux";
  if (configuration.system.system != kAlibi) return configuration.system.system;
  std::set<std::string> policies;
  std::map<std::string, std::set<std::string>> values;
  for (const Configuration& c : Ours()) {
    policies.insert(c.system.policy);
    for (const auto& [name, value] : c.parameters) values[name].insert(value);
  }
  std::string label = policies.size() > 1 ? configuration.system.policy : "";
  for (const auto& [name, value] : configuration.parameters) {
    if (values[name].size() < 2) continue;
    const bool plain = name == "coherence" || name == "engine";
    label += (label.empty() ? "" : ", ") + (plain ? value : name + " " + value);
  }
  return label.empty() ? "Alibi" : label;
}

std::string LabData::Css(const Configuration& configuration) const {
  if (configuration.system.system == kNative) return "native";
  if (configuration.system.system == kQemuTcg) return "tcg";
  if (configuration.system.system == kUml) return "uml";
  const std::vector<Configuration> ours = Ours();
  const auto at = std::find(ours.begin(), ours.end(), configuration);
  return SeriesClass(static_cast<std::size_t>(at - ours.begin()));
}

std::vector<std::string> LabData::Workloads() const {
  std::vector<std::string> names;
  for (const TidyRow& row : rows_) AddOnce(row.workload, &names);
  return names;
}

std::string LabData::ProgramOf(const std::string& workload) const {
  const auto workloads = experiment_.find("workloads");
  if (workloads == experiment_.end()) return "";
  for (const auto& entry : *workloads) {
    if (entry.value("name", std::string()) == workload) {
      return entry.value("program", std::string());
    }
  }
  return "";
}

std::vector<std::string> LabData::WorkloadsOf(const std::string& program) const {
  std::vector<std::string> names = Workloads();
  std::erase_if(names, [&](const std::string& name) { return ProgramOf(name) != program; });
  return names;
}

std::vector<std::string> LabData::Benchmarks(const std::string& workload) const {
  std::vector<std::string> names;
  for (const TidyRow& row : rows_) {
    if (row.workload == workload && IsBenchmark(row.value.metric)) {
      AddOnce(row.value.metric, &names);
    }
  }
  return names;
}

std::string LabData::UnitOf(const std::string& workload, const std::string& metric) const {
  for (const TidyRow& row : rows_) {
    if (row.workload == workload && row.value.metric == metric) return row.value.unit;
  }
  return "";
}

std::optional<Summary> LabData::Of(const std::string& workload, const Configuration& configuration,
                                   const std::string& metric) const {
  std::vector<double> values;
  for (const TidyRow& row : rows_) {
    if (row.repeat != kObserved && row.workload == workload && row.value.metric == metric &&
        Configuration{row.system, row.parameters} == configuration) {
      values.push_back(row.value.value);
    }
  }
  if (values.empty()) return std::nullopt;
  return Summarize(std::move(values));
}

double LabData::Median(const std::string& workload, const Configuration& configuration,
                       const std::string& metric) const {
  const auto summary = Of(workload, configuration, metric);
  return summary ? summary->median : std::numeric_limits<double>::quiet_NaN();
}

double LabData::MedianOfProgram(const std::string& program, const Configuration& configuration,
                                const std::string& metric) const {
  std::vector<double> medians;
  for (const std::string& workload : WorkloadsOf(program)) {
    if (const auto summary = Of(workload, configuration, metric)) {
      medians.push_back(summary->median);
    }
  }
  return medians.empty() ? std::numeric_limits<double>::quiet_NaN()
                         : Summarize(std::move(medians)).median;
}

std::string LabData::ObservedRun(const std::string& workload,
                                 const Configuration& configuration) const {
  for (const auto& [run, key] : observed_) {
    if (key.workload == workload && key.configuration == configuration) return run;
  }
  return "";
}

const LogDigest* LabData::Digest(const std::string& workload,
                                 const Configuration& configuration) const {
  const auto it = digests_.find(ObservedRun(workload, configuration));
  return it != digests_.end() ? &it->second : nullptr;
}

const ordered_json* LabData::Profile(const std::string& workload,
                                     const Configuration& configuration) const {
  const auto it = profiles_.find(ObservedRun(workload, configuration));
  return it != profiles_.end() ? &it->second : nullptr;
}

}  // namespace alibi::bench::lab
