// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/experiment.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>

#include "adapt/policy.h"
#include "bench/lab/network.h"
#include "bench/lab/vmi.h"
#include "bench/linux/guest_files.h"
#include "bench/linux/workloads.h"
#include "bench/results.h"
#include "frobos/compute/compute.h"
#include "runtime/engine_kind.h"

namespace alibi::bench::lab {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kProgramNames[kProgramCount] = {
    "nanobench", "compute", "compute32", "linux",      "boot",     "network",
    "transmit",  "debian",  "vmibench",  "vmibench64", "vmi-linux"};
constexpr const char* kOrders[] = {"interleaved", "shuffled"};
constexpr i64 kMaxRepeats = 1000, kMaxSeconds = 24 * 3600;

Names NanobenchNames() {
  Names names;
#define ALIBI_BENCH_ROW(name, budget, what) names.push_back(#name);
#include "bench/rows.inc"
#undef ALIBI_BENCH_ROW
  // Measured in every run by the counters, not by the program.
  std::erase(names, "translation");
  return names;
}

Names ComputeNames() {
  Names names;
#define ALIBI_NAME(name, default_scale) names.push_back(#name);
  COMPUTE_PROGRAMS(ALIBI_NAME)
#undef ALIBI_NAME
  return names;
}

Names LinuxNames(Program program) {
  Names names;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    if (!workload.is_boot && !workload.isolated && HasRowsOf(program, workload.suite)) {
      names.push_back(workload.name);
    }
  }
  return names;
}

Names BenchmarksOf(Program program) {
  switch (program) {
    case Program::kNanobench:
    case Program::kVmibench64:
      return NanobenchNames();
    case Program::kCompute:
    case Program::kCompute32:
      return ComputeNames();
    case Program::kLinux:
    case Program::kDebian:
      return LinuxNames(program);
    case Program::kNetwork:
      return NetworkNames();
    case Program::kVmibench:
      return VmibenchNames();
    case Program::kTransmit:
    case Program::kBoot:
    case Program::kVmiLinux:
      break;
  }
  return {};
}

bool UsesKernel(Program program) {
  return program == Program::kLinux || program == Program::kBoot || program == Program::kDebian ||
         program == Program::kNetwork;
}
bool UsesCard(Program program) {
  return program == Program::kNetwork || program == Program::kTransmit;
}

// The options of `alibi run` that an experiment may vary. No choices: a size.
struct ParameterRule {
  const char* name;
  Names choices;
  bool size = false;
};
const std::vector<ParameterRule>& ParameterRules() {
  static const std::vector<ParameterRule> kRules = {
      {"coherence", {"eager", "deferred", "dropped"}},
      {"cpu", {}},
      {"engine", Names(std::begin(runtime::kEngineNames), std::end(runtime::kEngineNames))},
      {"hosting", {}},
      {"net-optimize", {}},
      {"ram", {}, true},
      {"shadow-size", {}, true},
      {"tc-size", {}, true},
      {"vmi", {}},
  };
  return kRules;
}

bool IsSize(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (digits == 0 || text.empty()) return false;
  return digits == std::string::npos ||
         (digits + 1 == text.size() && std::string_view("KMG").find(text[digits]) < 3);
}

std::string Join(const Names& names) {
  return fmt::format("{}", fmt::join(names.begin(), names.end(), ", "));
}

bool Contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Reads a document and remembers the first thing that is wrong with it.
class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  Result<Experiment> Parse(const toml::table& document) {
    const Fields fields = {
        {"title", [this](const toml::node& node) { Text(node, "title", &out_.title); }},
        {"question", [this](const toml::node& node) { Text(node, "question", &out_.question); }},
        {"policies", [this](const toml::node& node) { Policies(node); }},
        {"peers",
         [this](const toml::node& node) {
           out_.peers = Choices(node, "peers", {kNative, kQemuTcg, kUml});
         }},
        {"parameters", [this](const toml::node& node) { Parameters(node); }},
        {"repeats",
         [this](const toml::node& node) {
           out_.repeats = static_cast<unsigned>(Number(node, "repeats", 1, kMaxRepeats));
         }},
        {"order", [this](const toml::node& node) { SetOrder(node); }},
        {"seed",
         [this](const toml::node& node) {
           out_.seed = static_cast<u64>(Number(node, "seed", 0, std::int64_t{1} << 53));
         }},
        {"time-limit",
         [this](const toml::node& node) {
           out_.time_limit = std::chrono::seconds(Number(node, "time-limit", 1, kMaxSeconds));
         }},
        {"quick", [this](const toml::node& node) { Flag(node, "quick", &out_.quick); }},
        {"observe", [this](const toml::node& node) { Flag(node, "observe", &out_.observe); }},
        {"cpu-time", [this](const toml::node& node) { Flag(node, "cpu-time", &out_.cpu_time); }},
        {"workload", [this](const toml::node& node) { Workloads(node); }},
    };
    out_.policies = {"hysteresis"};
    Each(document, fields, "");
    if (out_.title.empty()) Wrong(document, "no title = \"...\"");
    if (out_.workloads.empty()) {
      Wrong(document, fmt::format("no [[workload]] with program = one of {}", Programs()));
    }
    if (out_.policies.empty() && out_.peers.empty()) Wrong(document, "no policies and no peers");
    for (const Parameter& parameter : out_.parameters) {
      if (parameter.name == "engine" && out_.observe &&
          Contains(parameter.values, runtime::NameOf(runtime::EngineKind::kHardware))) {
        Wrong(document, "engine hardware keeps no event log: it needs observe = false");
      }
    }
    if (error_) return *error_;
    return out_;
  }

 private:
  using Fields = std::vector<std::pair<const char*, std::function<void(const toml::node&)>>>;

  void WrongAt(const toml::source_region& where, const std::string& what) {
    if (!error_) error_ = Error{fmt::format("{}:{}: {}", file_, where.begin.line, what)};
  }
  void Wrong(const toml::node& node, const std::string& what) { WrongAt(node.source(), what); }

  // Hands each key of the table to its field. `where`: " of ...", for messages.
  void Each(const toml::table& table, const Fields& fields, const std::string& where) {
    for (const auto& [key, node] : table) {
      const auto field = std::find_if(fields.begin(), fields.end(), [&key = key](const auto& f) {
        return key.str() == std::string_view(f.first);
      });
      if (field != fields.end()) {
        field->second(node);
        continue;
      }
      Names known;
      for (const auto& f : fields) known.push_back(f.first);
      WrongAt(key.source(), fmt::format("unknown key '{}'{}; there are {}",
                                        std::string_view(key.str()), where, Join(known)));
    }
  }

  void Text(const toml::node& node, const char* what, std::string* value) {
    if (const auto text = node.value_exact<std::string>()) {
      *value = *text;
    } else {
      Wrong(node, fmt::format("{} is a text in quotes", what));
    }
  }

  void Flag(const toml::node& node, const char* what, bool* value) {
    if (const auto flag = node.value_exact<bool>()) {
      *value = *flag;
    } else {
      Wrong(node, fmt::format("{} is true or false", what));
    }
  }

  i64 Number(const toml::node& node, const char* what, i64 least, i64 most) {
    const auto number = node.value_exact<std::int64_t>();
    if (number && *number >= least && *number <= most) return *number;
    Wrong(node, fmt::format("{} is a number from {} to {}", what, least, most));
    return least;
  }

  // A text or a list of texts, none of them twice.
  Names List(const toml::node& node, const char* what) {
    Names names;
    const auto add = [&](const toml::node& item) {
      const auto text = item.value_exact<std::string>();
      if (!text || text->empty()) {
        Wrong(item, fmt::format("{} is a list of texts in quotes", what));
      } else if (Contains(names, *text)) {
        Wrong(item, fmt::format("{}: '{}' is there twice", what, *text));
      } else {
        names.push_back(*text);
      }
    };
    if (const toml::array* array = node.as_array()) {
      for (const toml::node& item : *array) add(item);
    } else {
      add(node);
    }
    return names;
  }

  Names Choices(const toml::node& node, const char* what, const Names& known) {
    Names names = List(node, what);
    for (const std::string& name : names) {
      if (!Contains(known, name)) {
        Wrong(node, fmt::format("{}: there is no '{}'; there are {}", what, name, Join(known)));
      }
    }
    return names;
  }

  std::string Choice(const toml::node& node, const char* what, const Names& known) {
    const Names names = Choices(node, what, known);
    if (names.size() == 1) return names[0];
    Wrong(node, fmt::format("{} is one of {}", what, Join(known)));
    return known[0];
  }

  void Policies(const toml::node& node) {
    out_.policies = List(node, "policies");
    for (const std::string& policy : out_.policies) {
      if (const auto made = adapt::MakePolicy(policy); !made.ok()) {
        Wrong(node, "policies: " + made.error().message);
      }
    }
  }

  void SetOrder(const toml::node& node) {
    const std::string order = Choice(node, "order", Names(std::begin(kOrders), std::end(kOrders)));
    out_.order = order == kOrders[1] ? Order::kShuffled : Order::kInterleaved;
  }

  void Parameters(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      Wrong(node, "parameters is a table: [parameters], then lines such as ram = [\"128M\"]");
      return;
    }
    Fields fields;
    for (const ParameterRule& rule : ParameterRules()) {
      fields.emplace_back(rule.name, [this, &rule](const toml::node& values) {
        out_.parameters.push_back({rule.name, rule.choices.empty()
                                                  ? List(values, rule.name)
                                                  : Choices(values, rule.name, rule.choices)});
        for (const std::string& value : out_.parameters.back().values) {
          if (rule.size && !IsSize(value)) {
            Wrong(values, fmt::format("{}: '{}' is no size; write one like 64K, 128M, 2G",
                                      rule.name, value));
          }
        }
        if (out_.parameters.back().values.empty()) {
          Wrong(values, fmt::format("{} has no values", rule.name));
        }
      });
    }
    Each(*table, fields, " of [parameters]");
  }

  static std::string Programs() {
    return Join(Names(std::begin(kProgramNames), std::end(kProgramNames)));
  }

  void Workloads(const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr || !array->is_homogeneous(toml::node_type::table)) {
      Wrong(node, "a workload begins with a line [[workload]]");
      return;
    }
    for (const toml::node& item : *array) OneWorkload(*item.as_table());
  }

  void OneWorkload(const toml::table& table) {
    Workload workload;
    const toml::node* program = table.get("program");
    if (program == nullptr) {
      Wrong(table, fmt::format("a workload has program = one of {}", Programs()));
      return;
    }
    const std::string name =
        Choice(*program, "program", Names(std::begin(kProgramNames), std::end(kProgramNames)));
    workload.program = static_cast<Program>(
        std::find(std::begin(kProgramNames), std::end(kProgramNames), name) - kProgramNames);
    workload.name = name;
    if (UsesKernel(workload.program)) workload.kernel = "cloud-amd64";
    // Debian's cloud kernel has no driver of the Lance.
    if (workload.program == Program::kNetwork) workload.kernel = "amd64";
    if (UsesCard(workload.program)) workload.card = kLance;
    if (workload.program == Program::kNetwork) workload.backend = kUserBackend;
    Each(table,
         {{"program", [](const toml::node&) {}},
          {"name", [&](const toml::node& node) { Text(node, "name", &workload.name); }},
          {"only",
           [&](const toml::node& node) {
             if (BenchmarksOf(workload.program).empty()) {
               Wrong(node, fmt::format("{} has no benchmarks to choose from", name));
             } else {
               workload.only = Choices(node, "only", BenchmarksOf(workload.program));
             }
           }},
          {"kernel", [&](const toml::node& node) { Kernel(node, &workload); }},
          {"card", [&](const toml::node& node) { Card(node, &workload); }},
          {"backend", [&](const toml::node& node) { Backend(node, &workload); }},
          {"rate", [&](const toml::node& node) { Rate(node, &workload); }}},
         " of a workload");
    const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; };
    if (workload.name.empty() || !std::all_of(workload.name.begin(), workload.name.end(), plain)) {
      Wrong(table,
            fmt::format("'{}' is no name: letters, digits, - and _ make one", workload.name));
    }
    for (const Workload& other : out_.workloads) {
      if (other.name == workload.name) {
        Wrong(table, fmt::format("two workloads are called '{}'; give one of them a name = \"...\"",
                                 workload.name));
      }
    }
    out_.workloads.push_back(std::move(workload));
  }

  void Card(const toml::node& node, Workload* workload) {
    workload->card = Choice(node, "card", {kLance, kVirtio});
    if (!UsesCard(workload->program)) {
      Wrong(node, fmt::format("{} has no network card", ProgramName(workload->program)));
    } else if (workload->program == Program::kTransmit && workload->card != kLance) {
      Wrong(node, "transmit is about the Lance");
    }
  }

  void Backend(const toml::node& node, Workload* workload) {
    workload->backend = Choice(node, "backend", {kUserBackend, kTapBackend, kSocketBackend});
    if (workload->program != Program::kNetwork) {
      Wrong(node, fmt::format("{} has no wire", ProgramName(workload->program)));
    }
  }

  void Rate(const toml::node& node, Workload* workload) {
    Text(node, "rate", &workload->rate);
    if (workload->program != Program::kNetwork) {
      Wrong(node, fmt::format("{} has no wire", ProgramName(workload->program)));
    } else if (!IsSize(workload->rate)) {
      Wrong(node, fmt::format("rate: '{}' is no speed; write bits per second like 100M, 1G",
                              workload->rate));
    }
  }

  void Kernel(const toml::node& node, Workload* workload) {
    workload->kernel = Choice(node, "kernel", {"cloud-amd64", "amd64", "686", "686-pae"});
    if (!UsesKernel(workload->program)) {
      Wrong(node, fmt::format("{} has no kernel to choose", ProgramName(workload->program)));
    } else if (workload->program == Program::kLinux && !RunsLinuxbench(workload->kernel)) {
      Wrong(node, fmt::format("linux runs a 64-bit program, which {} cannot; program = \"boot\" "
                              "only boots it",
                              workload->kernel));
    } else if (workload->program == Program::kDebian) {
      const Names kernels(std::begin(kDebianKernels), std::end(kDebianKernels));
      if (!Contains(kernels, workload->kernel)) {
        Wrong(node, "there is a whole Debian with these kernels: " + Join(kernels));
      }
    }
  }

  const std::string& file_;
  Experiment out_;
  std::optional<Error> error_;
};

}  // namespace

const char* ProgramName(Program program) { return kProgramNames[static_cast<unsigned>(program)]; }

bool HasRowsOf(Program program, LinuxSuite suite) {
  if (program == Program::kDebian) return suite == LinuxSuite::kDebian;
  return suite == LinuxSuite::kLinux ||
         (suite == LinuxSuite::kEntries && program == Program::kLinux);
}

Result<Experiment> ParseExperiment(const std::string& text, const std::string& file) {
  const toml::parse_result document = toml::parse(text);
  if (!document) {
    const toml::parse_error& error = document.error();
    return Error{
        fmt::format("{}:{}: not TOML: {}", file, error.source().begin.line, error.description())};
  }
  return Parser(file).Parse(document.table());
}

std::string QuickForm(const std::string& text) {
  toml::parse_result document = toml::parse(text);
  toml::table& table = document.table();
  table.insert_or_assign("quick", true);
  table.insert_or_assign("repeats", 1);
  table.insert_or_assign("observe", false);
  std::ostringstream out;
  out << toml::toml_formatter(table) << '\n';
  return out.str();
}

}  // namespace alibi::bench::lab
