// SPDX-License-Identifier: Apache-2.0
// What one host measured for one chapter of the reproduction page: numbers by name, and of what.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_FIGURES_H_
#define ALIBI_BENCH_LAB_REPRODUCE_FIGURES_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace alibi::bench::lab {

struct Figures {
  nlohmann::ordered_json host;      // as DescribeHost has it
  nlohmann::ordered_json settings;  // what was asked for: "quick", the guest's kernel, ...
  std::map<std::string, double> values;
  std::vector<std::string> failures;  // what could not be measured, and why

  void Set(const std::string& name, double value) { values[name] = value; }
  // Every number of a JSON document: "PREFIX.member.member", elements of arrays by number.
  void AddNumbers(const std::string& prefix, const nlohmann::ordered_json& json);
};

// Reads figures and notes which were not there.
class Evidence {
 public:
  explicit Evidence(const Figures& figures) : figures_(figures) {}
  // 0 if it was not measured: nothing that is made of it will be shown.
  double operator()(const std::string& name) const;
  bool Has(const std::string& name) const { return figures_.values.contains(name); }
  // The sum of all whose names begin with `prefix`.
  double Sum(const std::string& prefix) const;
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  const Figures& figures_;
  mutable std::vector<std::string> missing_;
};

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_FIGURES_H_
