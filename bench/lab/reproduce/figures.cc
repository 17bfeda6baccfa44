// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/figures.h"

#include <fmt/format.h>

namespace alibi::bench::lab {
void Figures::AddNumbers(const std::string& prefix, const nlohmann::ordered_json& json) {
  if (json.is_number()) Set(prefix, json.get<double>());
  std::size_t index = 0;
  for (const auto& [key, value] : json.items()) {
    if (!json.is_structured()) break;
    AddNumbers(prefix + "." + (json.is_array() ? fmt::format("{}", index++) : key), value);
  }
}

double Evidence::operator()(const std::string& name) const {
  const auto it = figures_.values.find(name);
  if (it != figures_.values.end()) return it->second;
  missing_.push_back(name);
  return 0;
}

double Evidence::Sum(const std::string& prefix) const {
  double sum = 0;
  bool any = false;
  for (auto it = figures_.values.lower_bound(prefix);
       it != figures_.values.end() && it->first.starts_with(prefix); ++it) {
    sum += it->second;
    any = true;
  }
  if (!any) missing_.push_back(prefix);
  return sum;
}

}  // namespace alibi::bench::lab
