// Sections of the report: what guests did, and what it cost.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct CountRow {
  const char* what;
  const char* source;  // a counter, or a JSON pointer into the execution profile
};

constexpr CountRow kCounts[] = {
    {"guest instructions", "/profile/instructions"},
    {"SYSCALL, SYSENTER", "/profile/classes/syscall"},
    {"IN, INS", "/profile/classes/in"},
    {"OUT, OUTS", "/profile/classes/out"},
    {"MOV to CR8", "/profile/classes/cr8_write"},
    {"near RET", "/profile/classes/ret"},
    {"MOV to CR3", "/profile/classes/cr3_write"},
    {"INVLPG, INVPCID", "/profile/classes/invlpg"},
    {"page faults that the guest saw", "mmu.true_faults"},
    {"hidden faults", "mmu.hidden_faults"},
    {"stores to traced pages", "mmu.trace_writes"},
    {"shadow entries they changed", "mmu.pte_updates"},
    {"exceptions delivered", "runtime.exceptions_delivered"},
    {"interrupts delivered", "runtime.interrupts_delivered"},
    {"host traps", "runtime.host_faults"},
    {"convictions", "runtime.adaptations"},
    {"acquittals", "runtime.reversions"},
    {"translations", "runtime.translations"},
};

double CountOf(const LabData& data, const std::string& workload, const Configuration& c,
               const std::string& source) {
  if (source[0] != '/') return data.Median(workload, c, source);
  const nlohmann::ordered_json* profile = data.Profile(workload, c);
  const nlohmann::ordered_json::json_pointer at(source);
  return profile != nullptr && profile->contains(at) && (*profile)[at].is_number()
             ? (*profile)[at].get<double>()
             : kNone;
}

}  // namespace

std::string OverheadSection(const LabData&) {
  return Missing("There are no execution profiles, which count instructions.");
}

std::string CountsSection(const LabData& data) {
  const std::vector<Configuration> ours = data.Ours();
  const Configuration* reference = ReferenceOf(ours);
  if (reference == nullptr) return Missing("The experiment has no configuration of Alibi.");
  std::vector<std::string> head = {data.Label(*reference)};
  for (const std::string& workload : data.Workloads()) head.push_back(workload);
  HtmlTable table(head);
  bool profiled = false;
  for (const CountRow& row : kCounts) {
    std::vector<std::string> cells = {row.what};
    for (const std::string& workload : data.Workloads()) {
      const double count = CountOf(data, workload, *reference, row.source);
      profiled = profiled || (row.source[0] == '/' && !std::isnan(count));
      cells.push_back(CellOf(count, "count"));
    }
    table.Row(std::move(cells));
  }
  return table.Render() +
         (profiled ? "" : Missing("There are no execution profiles, which count instructions."));
}

}  // namespace alibi::bench::lab
