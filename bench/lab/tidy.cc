// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/tidy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace alibi::bench::lab {
namespace {

const std::vector<std::string> kBefore = {"run", "workload", "system", "policy"};
// No parameter is called so.
constexpr const char* kHost = "host";
const std::vector<std::string> kAfter = {"repeat", "metric", "value", "unit"};

std::string Quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string text = "\"";
  for (char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string Line(const std::vector<std::string>& cells) {
  std::string text;
  for (const std::string& cell : cells) text += (&cell == &cells[0] ? "" : ",") + Quoted(cell);
  return text + "\n";
}

// The cells of the record that begins at *at, which is moved behind it.
std::vector<std::string> Record(const std::string& text, std::size_t* at) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (; *at < text.size(); ++*at) {
    const char c = text[*at];
    if (quoted && c == '"' && text.substr(*at, 2) == "\"\"") {
      cells.back() += c;
      ++*at;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      cells.emplace_back();
    } else if (!quoted && c == '\n') {
      ++*at;
      break;
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

template <class T>
bool ReadNumber(const std::string& text, T* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

}  // namespace

std::string WriteCsv(const std::vector<TidyRow>& rows, const std::vector<std::string>& parameters) {
  std::vector<std::string> head = kBefore;
  const bool hosts =
      std::any_of(rows.begin(), rows.end(), [](const TidyRow& row) { return !row.host.empty(); });
  if (hosts) head.emplace_back(kHost);
  head.insert(head.end(), parameters.begin(), parameters.end());
  head.insert(head.end(), kAfter.begin(), kAfter.end());
  std::string text = Line(head);
  for (const TidyRow& row : rows) {
    std::vector<std::string> cells = {row.run, row.workload, row.system.system, row.system.policy};
    if (hosts) cells.push_back(row.host);
    for (const std::string& name : parameters) {
      const auto it = std::find_if(row.parameters.begin(), row.parameters.end(),
                                   [&name](const Setting& s) { return s.first == name; });
      cells.push_back(it != row.parameters.end() ? it->second : "");
    }
    cells.insert(cells.end(), {fmt::format("{}", row.repeat), row.value.metric,
                               fmt::format("{}", row.value.value), row.value.unit});
    text += Line(cells);
  }
  return text;
}

Result<std::vector<TidyRow>> ReadCsv(const std::string& text, const std::string& file) {
  std::size_t at = 0;
  const std::vector<std::string> head = Record(text, &at);
  const std::size_t first = kBefore.size(), fixed = first + kAfter.size();
  if (head.size() < fixed || !std::equal(kBefore.begin(), kBefore.end(), head.begin()) ||
      !std::equal(kAfter.rbegin(), kAfter.rend(), head.rbegin())) {
    return Error{file + ":1: these are not the columns of an experiment's results"};
  }
  const std::size_t last = head.size() - kAfter.size();
  const bool hosts = head[first] == kHost;
  std::vector<TidyRow> rows;
  while (at < text.size()) {
    const std::vector<std::string> cells = Record(text, &at);
    const auto wrong = [&](const std::string& what) {
      // Cells hold no newlines: records are lines.
      return Error{fmt::format("{}:{}: {}", file, rows.size() + 2, what)};
    };
    if (cells.size() != head.size()) {
      return wrong(fmt::format("{} cells instead of {}", cells.size(), head.size()));
    }
    TidyRow row{cells[0], cells[1], {cells[2], cells[3]},
                {},       1,        {cells[last + 1], 0, cells.back()}};
    if (hosts) row.host = cells[first];
    for (std::size_t i = first + (hosts ? 1 : 0); i < last; ++i) {
      if (!cells[i].empty()) row.parameters.emplace_back(head[i], cells[i]);
    }
    if (!ReadNumber(cells[last], &row.repeat)) return wrong("'" + cells[last] + "' is no repeat");
    if (!ReadNumber(cells[last + 2], &row.value.value)) {
      return wrong("'" + cells[last + 2] + "' is no value");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace alibi::bench::lab
