// SPDX-License-Identifier: Apache-2.0
// Section of the report: what a paravirtual guest gains, and by which of VMI's groups of calls.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kUnmodified = "none";
constexpr const char* kTransparent = "transparent";
constexpr const char* kFull = "full";

using Groups = std::set<std::string>;

// A value of the parameter vmi as a list of groups; empty for the three that are none.
Groups GroupsOf(const std::string& value) {
  if (value == kUnmodified || value == kTransparent || value == kFull) return {};
  Groups groups;
  std::istringstream names(value);
  for (std::string name; std::getline(names, name, ',');) groups.insert(name);
  return groups;
}

class Forms {
 public:
  explicit Forms(const LabData& data) : data_(data) {
    for (const Configuration& c : data.Ours()) {
      const std::string value = ValueOf(c);
      if (value.empty() || Find(value) != nullptr) continue;
      forms_.emplace_back(value, c);
      groups_.merge(GroupsOf(value));
    }
    for (const Configuration& c : data.configurations()) {
      if (c.system.system == kQemuTcg) tcg_ = c;
    }
  }

  std::size_t count() const { return forms_.size(); }
  const Groups& groups() const { return groups_; }
  bool has_tcg() const { return tcg_.has_value(); }

  double Form(const std::string& workload, const std::string& benchmark,
              const std::string& value) const {
    const Configuration* c = Find(value);
    return c == nullptr ? kNone : data_.Median(workload, *c, benchmark);
  }
  double Tcg(const std::string& workload, const std::string& benchmark) const {
    return tcg_ ? data_.Median(workload, *tcg_, benchmark) : kNone;
  }
  // With this group alone, and with all others.
  double Alone(const std::string& workload, const std::string& benchmark,
               const std::string& group) const {
    return WithGroups(workload, benchmark, {group});
  }
  double Without(const std::string& workload, const std::string& benchmark,
                 const std::string& group) const {
    Groups others = groups_;
    others.erase(group);
    return WithGroups(workload, benchmark, others);
  }

 private:
  static std::string ValueOf(const Configuration& configuration) {
    for (const auto& [name, value] : configuration.parameters) {
      if (name == "vmi") return value;
    }
    return "";
  }
  const Configuration* Find(const std::string& value) const {
    for (const auto& [name, configuration] : forms_) {
      if (name == value) return &configuration;
    }
    return nullptr;
  }
  double WithGroups(const std::string& workload, const std::string& benchmark,
                    const Groups& groups) const {
    for (const auto& [value, configuration] : forms_) {
      if (!groups.empty() && GroupsOf(value) == groups) {
        return data_.Median(workload, configuration, benchmark);
      }
    }
    return kNone;
  }

  const LabData& data_;
  std::vector<std::pair<std::string, Configuration>> forms_;  // the first of each value
  Groups groups_;
  std::optional<Configuration> tcg_;
};

std::string Times(double value) { return value > 0 ? fmt::format("{:.2f}", value) : "-"; }

std::string Chart(const Forms& forms, const std::string& workload,
                  const std::vector<std::string>& benchmarks) {
  BarChart chart;
  chart.name = workload + ": cycles of an operation, by the form of VMI's calls";
  chart.axis = "cycles (shorter is better)";
  chart.scale = Scale::kLog;
  chart.series = {{"unmodified", SeriesClass(0)},
                  {kTransparent, SeriesClass(1)},
                  {"paravirtual", SeriesClass(2)}};
  if (forms.has_tcg()) chart.series.push_back({"QEMU TCG, unmodified", "tcg"});
  chart.label = [](double value) { return CellOf(value, "cycles"); };
  for (const std::string& name : benchmarks) {
    BarGroup group{name, {}};
    for (const char* form : {kUnmodified, kTransparent, kFull}) {
      group.values.push_back(forms.Form(workload, name, form));
    }
    if (forms.has_tcg()) group.values.push_back(forms.Tcg(workload, name));
    if (std::any_of(group.values.begin(), group.values.end(), [](double v) { return v >= 0; })) {
      chart.groups.push_back(std::move(group));
    }
  }
  return chart.groups.empty() ? Missing("No figure of these forms is there.") : DrawBars(chart);
}

std::string Table(const LabData& data, const Forms& forms, const std::string& workload,
                  const std::vector<std::string>& benchmarks) {
  HtmlTable table(
      {"benchmark", "unmodified", kTransparent, "paravirtual", "gain", "QEMU TCG, unmodified"});
  for (const std::string& name : benchmarks) {
    const std::string unit = data.UnitOf(workload, name);
    const double base = forms.Form(workload, name, kUnmodified),
                 full = forms.Form(workload, name, kFull);
    table.Row({name, CellOf(base, unit), CellOf(forms.Form(workload, name, kTransparent), unit),
               CellOf(full, unit), Times(base / full), CellOf(forms.Tcg(workload, name), unit)});
  }
  return table.Render();
}

// By how much each group makes a benchmark faster: beside the transparent form, when it alone is
// paravirtual, and beside all the others.
std::string GroupTable(const Forms& forms, const std::string& workload,
                       const std::vector<std::string>& benchmarks) {
  std::vector<std::string> head = {"benchmark"};
  for (const std::string& group : forms.groups()) {
    head.push_back(group + " alone");
    head.push_back(group + " with the others");
  }
  HtmlTable table(head);
  for (const std::string& name : benchmarks) {
    std::vector<std::string> cells = {name};
    for (const std::string& group : forms.groups()) {
      cells.push_back(
          Times(forms.Form(workload, name, kTransparent) / forms.Alone(workload, name, group)));
      cells.push_back(
          Times(forms.Without(workload, name, group) / forms.Form(workload, name, kFull)));
    }
    table.Row(std::move(cells));
  }
  return table.Render();
}

}  // namespace

std::string VmiSection(const LabData& data) {
  const Forms forms(data);
  if (forms.count() < 2) {
    return Missing("The experiment does not vary the parameter vmi, as vmi.toml does.");
  }
  std::string text;
  const auto notes = data.experiment().find("notes");
  if (notes != data.experiment().end() && notes->is_array()) {
    for (const auto& note : *notes) {
      if (note.is_string() && note.get<std::string>().starts_with("vmi-")) {
        text += Paragraph(note.get<std::string>());
      }
    }
  }
  for (const std::string& workload : data.Workloads()) {
    const std::vector<std::string> benchmarks = data.Benchmarks(workload);
    if (benchmarks.empty()) continue;
    text += SubHeading(workload) + Chart(forms, workload, benchmarks) +
            Table(data, forms, workload, benchmarks);
    if (!forms.groups().empty()) {
      text += Details("By group of calls: how many times faster",
                      GroupTable(forms, workload, benchmarks));
    }
  }
  return text.empty() ? Missing("No workload gave a figure.") : text;
}

}  // namespace alibi::bench::lab
