// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/report.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/linux/linux_report.h"
#include "bench/report.h"
#include "bench/svg_canvas.h"

namespace alibi::bench::lab {
namespace {

constexpr const char* kPageStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1f2328; --soft: #57606a;
  --rule: #d5d9de; --panel: #f5f6f8; --link: #0a58a8;
  --font: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0f1318; --ink: #e6edf3; --soft: #9aa4af; --rule: #30363d; --panel: #181d24;
    --link: #6cb0ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 808px; padding: 1.5rem 1.5rem 4rem; background: var(--ground);
  color: var(--ink); font: 15px/1.5 var(--font); overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .3rem; padding-top: .7rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.5rem 0 .2rem; }
p { margin: .4rem 0 .7rem; max-width: 68ch; }
.soft, .how { color: var(--soft); }
.missing { color: var(--soft); font-style: italic; }
a { color: var(--link); }
nav ul { list-style: none; padding: 0; margin: 1rem 0; display: flex; flex-wrap: wrap;
  gap: .15rem 1.2rem; font-size: .9rem; }
figure { margin: .8rem 0 1.2rem; overflow-x: auto; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .22rem .7rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { padding-left: 0; }
.left { text-align: left; }
pre { background: var(--panel); padding: .7rem .9rem; overflow-x: auto; font-size: .82rem; }
summary { cursor: pointer; color: var(--link); margin: .4rem 0; }
.failed { border-left: 3px solid var(--tcg); padding-left: .8rem; }
@media (max-width: 820px) { body { padding: 1rem 1rem 3rem; } }
@media (max-width: 400px) { body { padding: 1rem .7rem 3rem; } }
)";

struct Section {
  const char* id;
  const char* heading;
  const char* how;  // how to read it
  std::string (*make)(const LabData& data);
};

constexpr Section kSections[] = {
    {"nanobenchmarks", "Nanobenchmarks",
     "The paper's Figure 4: cycles of one operation, medians; the axis is logarithmic. Native is "
     "what a user process can measure: its faults are signal round trips.",
     NanobenchSection},
    {"overhead", "Where a run's overhead goes",
     "The paper's Figure 5: how often each operation happened, times what it costs here more than "
     "natively. Native costs that nobody can measure without privileges count as 0: such bars are "
     "upper "
     "bounds.",
     OverheadSection},
    {"counts", "Counts",
     "What the paper's section 6.3 counts: how often guests did what a VMM must care about.",
     CountsSection},
    {"convergence", "Traps over time",
     "Host traps in translated code, from the event log. A policy that adapts ends them.",
     ConvergenceSection},
    {"coherence", "Traces, hidden faults, context switches",
     "The three-way trade-off of the paper's section 2.4, by coherence strategy of the shadow page "
     "tables: eager traces every guest page table that it used; deferred lets go of those that are "
     "written, until the guest flushes its TLB; dropped traces none.",
     CoherenceSection},
    {"engines", "Engines and kernel entries",
     "The paper's section 7.3: programs that compute gain by running directly, those that enter "
     "their kernel often by translation, and engine auto chooses. Curves: one program that "
     "computes "
     "for a while and then makes a system call, the while being varied; single dots: the workloads "
     "named below them. Both axes are logarithmic.",
     EnginesSection},
    {"macrobenchmarks", "Macrobenchmarks",
     "The paper's Figures 2 and 3: speed in percent of native, which is 100. The programs are free "
     "ones that stand in for the paper's; what each stands in for, and what the paper's software "
     "VMM reached there, is in the table.",
     MacroSection},
    {"translation", "Translation",
     "Cycles of the translator for each guest instruction that it translated (the paper: 2,300), "
     "and what comes out.",
     TranslationSection},
    {"sites", "Sites by kind",
     "Guest instructions that misbehaved at least once, and how they are translated at the end: "
     "DIRECT traps on what it must not touch, CHECKED tests, SIMULATE always calls out.",
     SitesSection},
    {"guiltiest", "The guiltiest sites",
     "Guest instructions that cost most cycles by traps and callouts, from the event log.",
     GuiltiestSection},
    {"network", "Hosted I/O",
     "Sugerman, Venkitachalam and Lim (USENIX 2001): a network card's accesses, "
     "throughput "
     "by the size of writes, crossings to the host, and where the time went. Counters are those of "
     "the run less those of one that only boots.",
     NetworkSection},
    {"vmi", "A paravirtual guest",
     "A kernel's privileged work by its own instructions (unmodified), and by the calls of VMI "
     "(Amsden and others, Linux Symposium 2006) as they are without a hypervisor (transparent) and "
     "as they are on one (paravirtual). The axis is logarithmic. Below: what each group of calls "
     "is "
     "worth when it alone is paravirtual, and when all the others are.",
     VmiSection},
    {"programs", "Programs", "Medians of everything else that was measured.", ProgramsSection},
};

std::string TextOf(const nlohmann::ordered_json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

std::string Head(const LabData& data) {
  const auto& e = data.experiment();
  const auto host = e.value("host", nlohmann::ordered_json::object());
  std::string text = fmt::format("<h1>{}</h1>\n", EscapeMarkup(TextOf(e, "title")));
  if (!TextOf(e, "question").empty()) text += Paragraph(TextOf(e, "question"));
  const auto runs = e.value("runs", nlohmann::ordered_json::array());
  text += fmt::format(
      "<p class=\"soft\">{}</p>\n",
      EscapeMarkup(fmt::format(
          "{} · {} · {} cores · {} · {} · {} of {} runs{}", TextOf(host, "cpu"),
          TextOf(host, "kernel"), host.value("cores", 0), TextOf(e, "version"), TextOf(e, "began"),
          runs.size(), e.value("runs_planned", 0), e.value("quick", false) ? ", short ones" : "")));
  std::string failures;
  for (const auto& run : runs) {
    if (TextOf(run, "failure").empty()) continue;
    failures += fmt::format("<li>{}: {}</li>\n", EscapeMarkup(TextOf(run, "run")),
                            EscapeMarkup(TextOf(run, "failure")));
  }
  for (const std::string& complaint : data.complaints()) {
    failures += fmt::format("<li>{}</li>\n", EscapeMarkup(complaint));
  }
  if (!failures.empty()) {
    text += fmt::format("<div class=\"failed\"><p>Not everything worked:</p><ul>\n{}</ul></div>\n",
                        failures);
  }
  text += "<nav><ul>";
  for (const Section& section : kSections) {
    text += fmt::format("<li><a href=\"#{}\">{}</a></li>", section.id, section.heading);
  }
  return text + "<li><a href=\"#method\">Method</a></li></ul></nav>\n";
}

std::string Method(const LabData& data) {
  const auto& e = data.experiment();
  std::string text =
      "<section id=\"method\">\n<h2>Method</h2>\n" +
      Paragraph(
          "Every run was a process of its own; figures are medians over the timed runs, which "
          "neither log nor count executions. Logs and execution profiles come from one run more of "
          "each configuration, the observed one. results.csv has every value, logs/ what every run "
          "said.");
  HtmlTable host({"host", ""}, 2);
  const auto about = e.value("host", nlohmann::ordered_json::object());
  for (const auto& [name, value] : about.items()) {
    if (value.is_object()) {
      for (const auto& [part, version] : value.items()) {
        host.Row({part, version.is_string() ? version.get<std::string>() : version.dump()});
      }
    } else {
      host.Row({name, value.is_string() ? value.get<std::string>() : value.dump()});
    }
  }
  text += Details("Host", host.Render());
  std::string commands;
  for (const auto& run : e.value("runs", nlohmann::ordered_json::array())) {
    if (run.value("repeat", 0) > 1) continue;
    commands += fmt::format("# {}\n", TextOf(run, "run"));
    for (const auto& word : run.value("command", nlohmann::ordered_json::array())) {
      const std::string plain = word.is_string() ? word.get<std::string>() : "";
      commands += plain.find_first_of(" ()*'\"$;&|<>\\") == std::string::npos && !plain.empty()
                      ? plain + " "
                      : "'" + plain + "' ";
    }
    commands += "\n";
  }
  text += Details("Commands of the first and of the observed runs", Preformatted(commands));
  text += Details("The experiment", Preformatted(TextOf(e, "experiment")));
  return text + "</section>\n";
}

}  // namespace

const Configuration* ReferenceOf(const std::vector<Configuration>& ours) {
  for (const Configuration& configuration : ours) {
    if (configuration.system.policy.starts_with("hysteresis")) return &configuration;
  }
  return ours.empty() ? nullptr : &ours[0];
}

std::string TimeLabel(double seconds) {
  if (seconds == 0) return "0";
  return (seconds < 0 ? "-" : "") + FormatSeconds(std::abs(seconds));
}

std::string CellOf(double value, const std::string& unit) {
  if (std::isnan(value)) return "-";
  if (unit == "count") return FormatCount(value);
  return unit == "s" || unit.starts_with("s/") ? FormatSeconds(value) : FormatCycles(value);
}

std::string PageHead(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Otherwise a browser asks for one.
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n",
      EscapeMarkup(title), kPageStyle, kChartStyle);
}

std::string MakeReport(const LabData& data) {
  std::string page = PageHead(TextOf(data.experiment(), "title")) + Head(data);
  for (const Section& section : kSections) {
    page += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"how\">{}</p>\n{}</section>\n",
                        section.id, section.heading, EscapeMarkup(section.how), section.make(data));
  }
  return page + Method(data) + "</body>\n</html>\n";
}

}  // namespace alibi::bench::lab
