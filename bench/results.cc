// SPDX-License-Identifier: Apache-2.0
#include "bench/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace alibi::bench {
namespace {

struct Row {
  const char* name;
  double budget;
  const char* what;
};

constexpr Row kRows[] = {
#define ALIBI_BENCH_ROW(name, budget, what) {#name, budget, what},
#include "bench/rows.inc"
#undef ALIBI_BENCH_ROW
};

const Row* FindRow(const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// The guests give thousandths of a cycle; more digits would only be noise in the file.
double Rounded(double cycles) { return std::round(cycles * 1000) / 1000; }

}  // namespace

double BudgetOf(const std::string& benchmark) {
  const Row* row = FindRow(benchmark);
  return row != nullptr ? row->budget : 0;
}

std::string MeaningOf(const std::string& benchmark) {
  const Row* row = FindRow(benchmark);
  return row != nullptr ? row->what : "";
}

std::string ComputePrefixOf(const std::string& benchmark) {
  for (const char* prefix : {kComputePrefix, kCompute32Prefix}) {
    if (benchmark.starts_with(prefix)) return prefix;
  }
  return "";
}

std::string KnownBenchmarks() {
  std::string names;
  for (const Row& row : kRows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

ProgramOutput ParseProgramOutput(const std::string& text) {
  ProgramOutput output;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t brace = line.find('{');
    if (brace == std::string::npos) continue;
    const auto json = nlohmann::json::parse(line.substr(brace), nullptr, false);
    if (!json.is_object()) continue;
    if (json.value("done", nlohmann::json()) == true) output.done = true;
    const auto name = json.find("name");
    if (name == json.end() || !name->is_string()) continue;
    Measurement measurement;
    measurement.name = *name;
    if (const auto error = json.find("error"); error != json.end() && error->is_string()) {
      measurement.error = *error;
    }
    if (const auto samples = json.find("samples"); samples != json.end() && samples->is_array()) {
      for (const auto& sample : *samples) {
        if (sample.is_number()) measurement.samples.push_back(sample);
      }
    }
    if (measurement.samples.empty() && measurement.error.empty()) {
      measurement.error = "no samples";
    }
    output.measurements.push_back(std::move(measurement));
  }
  return output;
}

Result<TranslationCost> ParseStats(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto runtime = json.is_object() ? json.find("runtime") : json.end();
  if (runtime == json.end() || !runtime->is_object()) {
    return Error{"the statistics have no \"runtime\" counters"};
  }
  TranslationCost cost;
  const std::pair<const char*, u64*> fields[] = {
      {"translations", &cost.translations},
      {"translated_instructions", &cost.instructions},
      {"translated_guest_bytes", &cost.guest_bytes},
      {"emitted_bytes", &cost.emitted_bytes},
      {"translation_cycles", &cost.cycles},
  };
  for (const auto& [name, value] : fields) {
    const auto field = runtime->find(name);
    if (field == runtime->end() || !field->is_number_unsigned()) {
      return Error{fmt::format("the statistics have no counter \"{}\"", name)};
    }
    *value = *field;
  }
  return cost;
}

void Results::Add(const SystemId& system, const std::string& prefix,
                  const Measurement& measurement) {
  const std::string name = prefix + measurement.name;
  if (std::find(order_.begin(), order_.end(), name) == order_.end()) order_.push_back(name);
  if (!Has(system)) systems_.push_back(system);
  if (!measurement.error.empty()) {
    AddMiss(system, name + ": " + measurement.error);
    return;
  }
  std::vector<double>& all = samples_[{name, system}];
  all.insert(all.end(), measurement.samples.begin(), measurement.samples.end());
}

void Results::AddTranslation(const SystemId& system, const TranslationCost& cost) {
  TranslationCost& sum = translation_[system];
  sum.translations += cost.translations;
  sum.instructions += cost.instructions;
  sum.guest_bytes += cost.guest_bytes;
  sum.emitted_bytes += cost.emitted_bytes;
  sum.cycles += cost.cycles;
  if (cost.instructions == 0) return;
  Add(system, "",
      {"translation",
       {static_cast<double>(cost.cycles) / static_cast<double>(cost.instructions)},
       ""});
}

void Results::AddMiss(const SystemId& system, const std::string& what) {
  if (!Has(system)) systems_.push_back(system);
  const std::pair<SystemId, std::string> miss = {system, what};
  if (std::find(misses_.begin(), misses_.end(), miss) == misses_.end()) misses_.push_back(miss);
}

const std::vector<double>& Results::Samples(const std::string& benchmark,
                                            const SystemId& system) const {
  static const std::vector<double> kNone;
  const auto it = samples_.find({benchmark, system});
  return it != samples_.end() ? it->second : kNone;
}

std::optional<double> Results::MedianOf(const std::string& benchmark, const char* system) const {
  for (const SystemId& id : systems_) {
    if (id.system == system && !Samples(benchmark, id).empty()) return Of(benchmark, id).median;
  }
  return std::nullopt;
}

std::vector<std::string> Results::Benchmarks() const {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (std::find(order_.begin(), order_.end(), row.name) != order_.end()) {
      names.push_back(row.name);
    }
  }
  for (const char* prefix : {"", kComputePrefix, kCompute32Prefix}) {
    for (const std::string& name : order_) {
      if (FindRow(name) == nullptr && ComputePrefixOf(name) == prefix) {
        names.push_back(name);
      }
    }
  }
  return names;
}

bool Results::Has(const SystemId& system) const {
  return std::find(systems_.begin(), systems_.end(), system) != systems_.end();
}

TranslationCost Results::Translation(const SystemId& system) const {
  const auto it = translation_.find(system);
  return it != translation_.end() ? it->second : TranslationCost{};
}

bool Results::Failed(const char* system) const {
  return std::any_of(misses_.begin(), misses_.end(),
                     [system](const auto& miss) { return miss.first.system == system; });
}

bool Results::HardwareIsEmulated() const {
  constexpr double kMostOfHardware = 500;
  return MedianOf("callret", kHardware).value_or(0) > kMostOfHardware;
}

nlohmann::ordered_json Results::ToJson(const nlohmann::ordered_json& host) const {
  nlohmann::ordered_json benchmarks = nlohmann::ordered_json::array();
  for (const std::string& name : Benchmarks()) {
    for (const SystemId& system : systems_) {
      const std::vector<double>& samples = Samples(name, system);
      if (samples.empty()) continue;
      const Summary summary = Summarize(samples);
      nlohmann::ordered_json rounded = nlohmann::ordered_json::array();
      for (double sample : samples) rounded.push_back(Rounded(sample));
      benchmarks.push_back({{"name", name},
                            {"system", system.system},
                            {"policy", system.policy},
                            {"median_cycles", Rounded(summary.median)},
                            {"p10", Rounded(summary.p10)},
                            {"p90", Rounded(summary.p90)},
                            {"samples", std::move(rounded)}});
    }
  }
  nlohmann::ordered_json json;
  json["host"] = host;
  json["benchmarks"] = std::move(benchmarks);
  return json;
}

}  // namespace alibi::bench
