// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/figures.h"

#include <fmt/format.h>

namespace alibi::bench::lab {
namespace {

constexpr const char* kFormat = "alibi-reproduction";
constexpr int kVersion = 1;

}  // namespace

void Figures::AddNumbers(const std::string& prefix, const nlohmann::ordered_json& json) {
  if (json.is_number()) Set(prefix, json.get<double>());
  std::size_t index = 0;
  for (const auto& [key, value] : json.items()) {
    if (!json.is_structured()) break;
    AddNumbers(prefix + "." + (json.is_array() ? fmt::format("{}", index++) : key), value);
  }
}

std::string Figures::ToJson() const {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["host"] = host;
  json["settings"] = settings;
  json["failures"] = failures;
  json["figures"] = values;
  return json.dump(1) + "\n";
}

Result<Figures> Figures::FromJson(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object() || json.value("format", "") != kFormat) {
    return Error{"these are no measurements of alibi lab reproduce"};
  }
  if (json.value("version", 0) != kVersion) {
    return Error{fmt::format("version {} of the measurements' format; this program reads {}",
                             json.value("version", 0), kVersion)};
  }
  Figures figures;
  try {
    figures.host = json.at("host");
    figures.settings = json.at("settings");
    figures.failures = json.at("failures").get<std::vector<std::string>>();
    figures.values = json.at("figures").get<std::map<std::string, double>>();
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("the measurements are damaged: {}", error.what())};
  }
  return figures;
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
