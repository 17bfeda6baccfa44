// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/text_table.h"

namespace alibi::bench {
namespace {

constexpr const char* kNoValue = "-";
bool IsCompute(const std::string& name) { return !ComputePrefixOf(name).empty(); }

std::string Colored(const ReportStyle& style, const char* color, const std::string& text) {
  return style.colors ? color + text + kColorReset : text;
}

std::vector<SystemId> Columns(const Results& results) {
  std::vector<SystemId> columns;
  for (const char* system : {kNative, kAlibi, kHardware, kQemuTcg}) {
    for (const SystemId& id : results.Systems()) {
      if (id.system == system) columns.push_back(id);
    }
  }
  return columns;
}

std::string Header(const SystemId& id, const ReportStyle& style) {
  if (id.system != kAlibi) return id.system;
  return id.policy == style.default_policy ? id.policy + "*" : id.policy;
}

std::string Ratio(double value) { return fmt::format("{:.2f}", value); }

double Median(const Results& results, const std::string& name, const SystemId& id) {
  return results.Of(name, id).median;
}

bool Measured(const Results& results, const std::string& name, const SystemId& id) {
  return !results.Samples(name, id).empty();
}

// Faults of a process are its kernel's signals: another thing than a guest's exception.
constexpr const char* kNanobenchNote =
    "Cycles per operation, medians. native: what a user process can measure; its faults and int3 "
    "are\n"
    "signal round trips. *: the default policy, which alibi/tcg and the budgets are about.\n";

}  // namespace

std::string HardwareNote(const Results& results) {
  if (!results.HardwareIsEmulated()) return "";
  return fmt::format(
      "hardware: this host's KVM runs ring 0 by an instruction emulator (call+ret {} cycles), so "
      "the\n"
      "column shows that emulator and not hardware.\n",
      FormatCycles(*results.MedianOf("callret", kHardware)));
}

std::string FormatCycles(double cycles) {
  if (cycles < 1) return fmt::format("{:.2f}", cycles);
  if (cycles < 99.95) return fmt::format("{:.1f}", cycles);
  std::string digits = fmt::format("{:.0f}", cycles);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string NanobenchTable(const Results& results, const ReportStyle& style) {
  const SystemId ours = {kAlibi, style.default_policy}, tcg = {kQemuTcg, ""};
  const std::vector<SystemId> columns = Columns(results);
  const bool with_tcg = results.Has(tcg);
  TextTable table;
  std::vector<Cell> header = {{"benchmark"}};
  for (const SystemId& id : columns) header.push_back({Header(id, style)});
  if (with_tcg) header.push_back({"alibi/tcg"});
  header.push_back({"budget"});
  header.push_back({""});
  table.Row(std::move(header));
  bool any = false;
  for (const std::string& name : results.Benchmarks()) {
    if (IsCompute(name) || name == "translation") continue;
    any = true;
    std::vector<Cell> row = {{name}};
    for (const SystemId& id : columns) {
      row.push_back(
          {Measured(results, name, id) ? FormatCycles(Median(results, name, id)) : kNoValue});
    }
    const bool measured = Measured(results, name, ours);
    const double cycles = Median(results, name, ours);
    if (with_tcg) {
      // Below a cycle the loop hides the operation, and a ratio would say nothing.
      const double peer = Median(results, name, tcg);
      Cell ratio = {kNoValue};
      if (measured && peer >= 1) {
        ratio = {Ratio(cycles / peer), cycles <= peer ? kColorGreen : kColorRed};
      }
      row.push_back(ratio);
    }
    const double budget = BudgetOf(name);
    row.push_back({budget != 0 ? fmt::format("{:.0f}", budget) : ""});
    Cell mark;
    if (budget != 0) {
      const bool kept = measured && cycles <= budget;
      mark = kept ? Cell{"ok", kColorGreen} : Cell{measured ? "MISS" : "?", kColorRed};
    }
    row.push_back(mark);
    table.Row(std::move(row));
  }
  if (!any) return "";
  return table.Render(style.colors) + "\n" +
         Colored(style, kColorDim, kNanobenchNote + HardwareNote(results));
}

std::string ComputeTable(const Results& results, const ReportStyle& style,
                         const std::string& prefix) {
  const SystemId native = {kNative, ""}, ours = {kAlibi, style.default_policy},
                 tcg = {kQemuTcg, ""};
  const std::vector<SystemId> columns = Columns(results);
  const bool with_tcg = results.Has(tcg);
  TextTable table;
  std::vector<Cell> header = {{prefix == kCompute32Prefix ? "32-bit compute" : "compute"},
                              {"native"}};
  for (const SystemId& id : columns) {
    if (id != native) header.push_back({Header(id, style)});
  }
  if (with_tcg) header.push_back({"alibi/tcg"});
  table.Row(std::move(header));

  std::vector<std::vector<double>> ratios(columns.size());
  std::vector<double> against_tcg;
  bool any = false;
  for (const std::string& name : results.Benchmarks()) {
    if (ComputePrefixOf(name) != prefix) continue;
    any = true;
    const double base = Median(results, name, native);
    std::vector<Cell> row = {{name.substr(prefix.size())}};
    row.push_back({base > 0 ? fmt::format("{:.2f} M", base / 1e6) : kNoValue});
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] == native) continue;
      const double cycles = Median(results, name, columns[i]);
      if (cycles > 0 && base > 0) {
        ratios[i].push_back(cycles / base);
        row.push_back({Ratio(cycles / base)});
      } else {
        row.push_back({kNoValue});
      }
    }
    if (with_tcg) {
      const double mine = Median(results, name, ours), peer = Median(results, name, tcg);
      if (mine > 0 && peer > 0) {
        against_tcg.push_back(mine / peer);
        row.push_back({Ratio(mine / peer), mine <= peer ? kColorGreen : kColorRed});
      } else {
        row.push_back({kNoValue});
      }
    }
    table.Row(std::move(row));
  }
  if (!any) return "";
  std::vector<Cell> mean = {{"geometric mean", kColorBold}, {""}};
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == native) continue;
    mean.push_back({ratios[i].empty() ? kNoValue : Ratio(GeometricMean(ratios[i])), kColorBold});
  }
  if (with_tcg) {
    mean.push_back(
        {against_tcg.empty() ? kNoValue : Ratio(GeometricMean(against_tcg)), kColorBold});
  }
  table.Row(std::move(mean));
  return table.Render(style.colors) + "\n" +
         Colored(style, kColorDim,
                 "native: cycles of one run; the other columns: times native (medians).\n");
}

std::string TranslationTable(const Results& results, const ReportStyle& style) {
  TextTable table;
  table.Row({{"translation"},
             {"TUs"},
             {"guest instructions"},
             {"cycles/instruction"},
             {"CCF bytes/guest byte"},
             {"budget"},
             {""}});
  bool any = false;
  const double budget = BudgetOf("translation");
  for (const SystemId& id : Columns(results)) {
    const TranslationCost cost = results.Translation(id);
    if (cost.instructions == 0 || cost.guest_bytes == 0) continue;
    any = true;
    // Of the runs' costs the median: one preemption during a short run would rule the sum.
    const double per_instruction = Median(results, "translation", id);
    const bool budgeted = id.policy == style.default_policy;
    const bool kept = per_instruction <= budget;
    table.Row(
        {{Header(id, style)},
         {fmt::format("{}", cost.translations)},
         {fmt::format("{}", cost.instructions)},
         {FormatCycles(per_instruction)},
         {Ratio(static_cast<double>(cost.emitted_bytes) / static_cast<double>(cost.guest_bytes))},
         {budgeted ? FormatCycles(budget) : ""},
         budgeted ? Cell{kept ? "ok" : "MISS", kept ? kColorGreen : kColorRed} : Cell{}});
  }
  return any ? table.Render(style.colors) : "";
}

std::string BarChart(const Results& results, const ReportStyle& style) {
  struct Series {
    SystemId id;
    std::string label;
    const char* color;
  };
  const std::vector<Series> all = {{{kNative, ""}, "native", "\x1b[90m"},
                                   {{kAlibi, style.default_policy}, "alibi", "\x1b[36m"},
                                   {{kHardware, ""}, "hardware", "\x1b[35m"},
                                   {{kQemuTcg, ""}, "qemu-tcg", "\x1b[33m"}};
  std::size_t name_width = 0;
  double most = 10;
  std::vector<std::string> names;
  for (const std::string& name : results.Benchmarks()) {
    if (IsCompute(name)) continue;
    names.push_back(name);
    name_width = std::max(name_width, name.size());
    for (const Series& series : all) most = std::max(most, Median(results, name, series.id));
  }
  if (names.empty()) return "";
  const double decades = std::ceil(std::log10(most));
  constexpr std::size_t kLabelWidth = 8, kValueWidth = 9;
  const std::size_t fixed = name_width + kLabelWidth + kValueWidth + 4;
  const std::size_t bar_width = style.width > fixed + 20 ? style.width - fixed : 20;

  std::string text = fmt::format("{:<{}}  {:<{}}  ", "cycles, log", name_width, "", kLabelWidth);
  std::string axis(bar_width + kValueWidth, ' ');
  for (int d = 0; d <= static_cast<int>(decades); ++d) {
    static constexpr const char* kUnits[] = {"", "k", "M", "G"};
    const std::string tick = fmt::format("|{:.0f}{}", std::pow(10, d % 3), kUnits[d / 3 % 4]);
    const std::size_t at = static_cast<std::size_t>(std::round(d / decades * bar_width));
    if (at + tick.size() <= axis.size()) axis.replace(at, tick.size(), tick);
  }
  while (!axis.empty() && axis.back() == ' ') axis.pop_back();
  text += Colored(style, kColorDim, axis) + "\n";

  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (const std::string& name : names) {
    bool first = true;
    for (const Series& series : all) {
      if (!Measured(results, name, series.id)) continue;
      const double cycles = Median(results, name, series.id);
      const double length = std::max(0.0, std::log10(std::max(cycles, 1.0)) / decades) *
                            static_cast<double>(bar_width) * 8;
      const std::size_t eighths = static_cast<std::size_t>(std::round(length));
      std::string bar;
      for (std::size_t i = 0; i < eighths / 8; ++i) bar += "█";
      bar += kEighths[eighths % 8];
      if (bar.empty()) bar = kEighths[1];
      text += fmt::format("{:<{}}  {:<{}}  {} {}\n", first ? name : "", name_width, series.label,
                          kLabelWidth, Colored(style, series.color, bar), FormatCycles(cycles));
      first = false;
    }
  }
  return text;
}

std::string MissList(const Results& results, const ReportStyle& style) {
  std::string text;
  for (const auto& [id, what] : results.Misses()) {
    text += Colored(style, kColorRed, "FAILED") + "  " + id.Name() + ": " + what + "\n";
  }
  return text;
}

std::string FullReport(const Results& results, const ReportStyle& style) {
  std::string text;
  for (const std::string& part :
       {NanobenchTable(results, style), ComputeTable(results, style, kComputePrefix),
        ComputeTable(results, style, kCompute32Prefix), TranslationTable(results, style),
        BarChart(results, style), MissList(results, style)}) {
    if (part.empty()) continue;
    if (!text.empty()) text += "\n";
    text += part;
  }
  return text;
}

}  // namespace alibi::bench
