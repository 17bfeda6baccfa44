// SPDX-License-Identifier: Apache-2.0
// What an experiment left in its folder, as reports look at it.
#ifndef ALIBI_BENCH_LAB_LAB_DATA_H_
#define ALIBI_BENCH_LAB_LAB_DATA_H_

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lab/log_digest.h"
#include "bench/lab/tidy.h"
#include "bench/statistics.h"

namespace alibi::bench::lab {

// A system with its policy and parameters: a series of charts, a column of tables.
struct Configuration {
  SystemId system;
  std::vector<Setting> parameters;
  bool operator==(const Configuration&) const = default;
};

class LabData {
 public:
  LabData(nlohmann::ordered_json experiment, std::vector<TidyRow> rows);
  // A folder of RunLab. Event logs are read anew, those that are gone from their digests;
  // digests are written beside the logs.
  static Result<LabData> Load(const std::string& folder, const Disassembler& disassemble);

  // Of an experiment that was spread over hosts: their names, in the order of the rows. Its figures
  // are only comparable within a host: look at OnHost.
  std::vector<std::string> Hosts() const;
  LabData OnHost(const std::string& name) const;

  const nlohmann::ordered_json& experiment() const { return experiment_; }
  const std::vector<TidyRow>& rows() const { return rows_; }
  double tsc_hz() const;  // 0: not known

  // In the order of the rows: peers first.
  const std::vector<Configuration>& configurations() const { return configurations_; }
  // Those of Alibi.
  std::vector<Configuration> Ours() const;
  // What tells this configuration from the others: "native", "never", "eager", "never, 64M".
  std::string Label(const Configuration& configuration) const;
  // Its class in charts, the same in all of a report.
  std::string Css(const Configuration& configuration) const;

  std::vector<std::string> WorkloadsOf(const std::string& program) const;
  // "" for an unknown workload.
  std::string ProgramOf(const std::string& workload) const;
  std::vector<std::string> Workloads() const;

  // Metrics that benchmarks gave (not counters and the like), in their order.
  std::vector<std::string> Benchmarks(const std::string& workload) const;
  std::string UnitOf(const std::string& workload, const std::string& metric) const;
  // Over the timed runs; nothing if it was not measured.
  std::optional<Summary> Of(const std::string& workload, const Configuration& configuration,
                            const std::string& metric) const;
  // Its median, NaN if it was not measured.
  double Median(const std::string& workload, const Configuration& configuration,
                const std::string& metric) const;
  // The median over those of the experiment's workloads with this program that measured it.
  double MedianOfProgram(const std::string& program, const Configuration& configuration,
                         const std::string& metric) const;

  // Of the observed run; null: there is none.
  const LogDigest* Digest(const std::string& workload, const Configuration& configuration) const;
  const nlohmann::ordered_json* Profile(const std::string& workload,
                                        const Configuration& configuration) const;
  // What is wrong with the logs of observed runs, a line for each.
  const std::vector<std::string>& complaints() const { return complaints_; }

  void AddDigest(const std::string& run, LogDigest digest);
  void AddProfile(const std::string& run, nlohmann::ordered_json profile);

 private:
  struct RunKey {
    std::string workload;
    Configuration configuration;
  };
  std::string ObservedRun(const std::string& workload, const Configuration& configuration) const;

  nlohmann::ordered_json experiment_;
  std::vector<TidyRow> rows_;
  std::vector<Configuration> configurations_;
  std::map<std::string, RunKey> observed_;  // by run
  std::map<std::string, LogDigest> digests_;
  std::map<std::string, nlohmann::ordered_json> profiles_;
  std::vector<std::string> complaints_;
};

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_LAB_DATA_H_
