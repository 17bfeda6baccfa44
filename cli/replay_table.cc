// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace alibi::vmm {
namespace {

// In percent of the real figure; nothing if that is 0 and the prediction is not.
std::optional<double> ErrorOf(u64 predicted, u64 real) {
  if (predicted == real) return 0;
  if (real == 0) return std::nullopt;
  return 100.0 * (static_cast<double>(predicted) - static_cast<double>(real)) /
         static_cast<double>(real);
}

}  // namespace

std::string TextOf(const ReplayTable& table) {
  std::size_t width = 6;
  for (const ReplayRow& row : table.rows) width = std::max(width, row.policy.size());
  std::string text = fmt::format("{:<{}}  {:<9}", "policy", width, "");
  for (const char* column : table.columns) text += fmt::format(" {:>14}", column);
  text += fmt::format(" {:>10}\n", "estimated");
  for (const ReplayRow& row : table.rows) {
    text += fmt::format("{:<{}}  {:<9}", row.policy, width, row.what);
    for (const u64 value : row.values) text += fmt::format(" {:>14L}", value);
    text += row.of == 0 || row.estimated == 0
                ? fmt::format(" {:>10}\n", "-")
                : fmt::format(" {:>9.0f}%\n", 100.0 * static_cast<double>(row.estimated) /
                                                  static_cast<double>(row.of));
  }
  return text;
}

std::string ErrorsOf(const ReplayTable& table) {
  std::string text = "\nError of the prediction, per cent of the real figure:\n";
  for (std::size_t i = 0; i + 1 < table.rows.size(); ++i) {
    const ReplayRow &predicted = table.rows[i], &real = table.rows[i + 1];
    if (predicted.what != "predicted" || real.what != "real") continue;
    text += fmt::format("{}:", predicted.policy);
    for (std::size_t k = 0; k < table.columns.size(); ++k) {
      const auto error = ErrorOf(predicted.values[k], real.values[k]);
      text += error ? fmt::format("  {} {:+.1f}", table.columns[k], *error)
                    : fmt::format("  {} (real: 0)", table.columns[k]);
    }
    text += "\n";
  }
  return text;
}

std::string CsvOf(const ReplayTable& table) {
  std::string text = "policy,what";
  for (const char* column : table.columns) text += fmt::format(",{}", column);
  text += fmt::format(",{}\n", table.estimated);
  for (const ReplayRow& row : table.rows) {
    text += fmt::format("\"{}\",{}", row.policy, row.what);
    for (const u64 value : row.values) text += fmt::format(",{}", value);
    text += fmt::format(",{}\n", row.estimated);
  }
  return text;
}

nlohmann::ordered_json JsonOf(const ReplayTable& table) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const ReplayRow& row : table.rows) {
    nlohmann::ordered_json line = {{"policy", row.policy}, {"what", row.what}};
    for (std::size_t k = 0; k < table.columns.size(); ++k) line[table.columns[k]] = row.values[k];
    line[table.estimated] = row.estimated;
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace alibi::vmm
