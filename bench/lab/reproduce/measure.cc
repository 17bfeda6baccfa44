// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/measure.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>

#include "bench/child_process.h"
#include "bench/host_info.h"
#include "bench/lab/reproduce/overhead.h"
#include "bench/linux/engines.h"
#include "bench/linux/guest_files.h"
#include "bench/linux/linux_runner.h"
#include "bench/runner.h"

namespace alibi::bench::lab {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

constexpr const char* kNever = "never";
// The workloads that claims are about.
const std::vector<std::string> kWorkloads = {"forkwait", "lua", "compile"};

// Ends in a loop unless CS.RPL is 0 and POPF sets IOPL.
constexpr const char* kPrivilegeProgram =
    "8c c8 a8 03 75 fe 9c 48 81 0c 24 00 30 00 00 9d 9c 58 f6 c4 30 74 fe c3";
// Pushes an address and returns to it, over a HLT.
constexpr const char* kReturnProgram = "48 8d 05 03 00 00 00 50 c3 f4 c3";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class Measurer {
 public:
  explicit Measurer(const MeasureOptions& options) : options_(options) {}

  Result<Figures> Run() {
    figures_.host = DescribeHost("");
    auto files = FetchLinux(options_.kernel, options_.alibi, options_.data_folder);
    if (!files.ok()) return files.error();
    files_ = *files;
    if (scratch_.path().empty()) return Error{"/tmp: no folder can be made there"};
    files_.folder = scratch_.path();
    if (const Status written = WriteInitramfs(files_.folder, /*with_linuxbench=*/true, &files_);
        !written.ok()) {
      return written.error();
    }
    figures_.settings = {{"guest", files_.kernel.substr(files_.kernel.rfind('/') + 1)}};
    Dumps();
    if (const Status done = Nanobenchmarks(); !done.ok()) return done.error();
    Boots();
    Workloads();
    return figures_;
  }

 private:
  void Say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }
  void Fail(const std::string& what) { figures_.failures.push_back(what); }

  void Dumps() {
    Say("translations of small programs");
    const auto dump = [&](std::vector<std::string> words) {
      words.insert(words.begin(), {options_.alibi, "dump"});
      return RunChild(words, 1min).output;
    };
    const auto returns = [&](const char* program) {
      const std::string text = dump({"--seconds", "1", "--hex", program});
      return text.find("; the code returned") != std::string::npos ? 1.0 : 0.0;
    };
    figures_.Set("dump.privilege", returns(kPrivilegeProgram));
    figures_.Set("dump.return_address", returns(kReturnProgram));
    ReadExample(dump({"--example", "isprime"}), &figures_);
  }

  Status Nanobenchmarks() {
    auto programs = FindPrograms(options_.data_folder, options_.alibi);
    if (!programs.ok()) return programs.error();
    RunnerOptions runner;
    runner.policies = {kNever, options_.policy};
    runner.quick = options_.quick;
    runner.repeats = options_.quick ? 2 : 5;
    runner.progress = options_.progress;
    const Results results = RunAll(*programs, runner).results;
    for (const auto& [system, what] : results.Misses()) Fail(system.Name() + ": " + what);

    const SystemId native = {kNative, ""}, ours = {kAlibi, options_.policy};
    std::vector<double> ratios;
    for (const std::string& name : results.Benchmarks()) {
      const std::string prefix = ComputePrefixOf(name);
      if (prefix == kCompute32Prefix) continue;
      const std::pair<SystemId, const char*> systems[] = {
          {native, "native"}, {{kAlibi, kNever}, "never"}, {ours, "alibi"}};
      for (const auto& [system, label] : systems) {
        if (!results.Samples(name, system).empty()) {
          figures_.Set(fmt::format("nano.{}.{}", name, label), results.Of(name, system).median);
        }
      }
      if (prefix != kComputePrefix || results.Samples(name, native).empty() ||
          results.Samples(name, ours).empty()) {
        continue;
      }
      ratios.push_back(results.Of(name, ours).median / results.Of(name, native).median);
      figures_.Set("compute." + name.substr(prefix.size()), ratios.back());
    }
    if (!ratios.empty()) figures_.Set("compute.mean", GeometricMean(ratios));
    const TranslationCost cost = results.Translation(ours);
    figures_.Set("translation.instructions", static_cast<double>(cost.instructions));
    figures_.Set("translation.cycles", static_cast<double>(cost.cycles));
    figures_.Set("translation.guest_bytes", static_cast<double>(cost.guest_bytes));
    figures_.Set("translation.emitted_bytes", static_cast<double>(cost.emitted_bytes));
    costs_ = CostsOf(results, ours);
    return Ok{};
  }

  // One run of `alibi run` with linuxbench's words ("": boot and halt), and what it wrote with
  // `option` FILE. Null if it failed.
  ordered_json RunLinuxGuest(const std::string& words, const std::string& option,
                             const std::vector<std::string>& more, const std::string& what) {
    Say(what);
    // A name that the scratch folder takes with it.
    const std::string file = files_.folder + "/output";
    std::vector<std::string> command = AlibiLinuxCommand(files_, options_.alibi, words);
    command.insert(command.end(), {option, file});
    command.insert(command.end(), more.begin(), more.end());
    const ChildResult child =
        RunChild(command, 5min, [this](std::string_view, int process) { CountMappings(process); });
    const ordered_json json = ordered_json::parse(ReadFile(file), nullptr, false);
    if (!child.started || child.timed_out || child.exit_status != 0 || json.is_discarded()) {
      Fail(what + ": " + child.Describe());
      return {};
    }
    return json;
  }

  // Guest memory in the running program's address space: is any of it executable?
  void CountMappings(int process) {
    if (figures_.values.contains("maps.guest")) return;
    std::ifstream maps(fmt::format("/proc/{}/maps", process));
    double all = 0, executable = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:alibi-guest-memory") == std::string::npos) continue;
      ++all;
      if (line.find(" r-xs ") != std::string::npos || line.find(" rwxs ") != std::string::npos) {
        ++executable;
      }
    }
    figures_.Set("maps.guest", all);
    figures_.Set("maps.guest_executable", executable);
  }

  double TscHz() const { return figures_.host["tsc_hz"].get<double>(); }
  double TranslationShare(const ordered_json& stats) const {
    const double seconds = stats["wall_ns"].get<double>() / 1e9;
    return stats["runtime"]["translation_cycles"].get<double>() / TscHz() / seconds;
  }

  void Boots() {
    ordered_json stats;  // of the median run
    std::vector<ordered_json> runs;
    for (unsigned i = 0; i < (options_.quick ? 1u : 5u); ++i) {
      ordered_json run = RunLinuxGuest("", "--stats-json", {}, "a boot, counted");
      if (!run.is_null()) runs.push_back(std::move(run));
    }
    if (!runs.empty()) {
      std::sort(runs.begin(), runs.end(), [](const ordered_json& a, const ordered_json& b) {
        return a["wall_ns"].get<u64>() < b["wall_ns"].get<u64>();
      });
      stats = runs[runs.size() / 2];
      figures_.Set("boot.seconds", stats["wall_ns"].get<double>() / 1e9);
      figures_.Set("boot.translation_share", TranslationShare(stats));
    }
    ordered_json profile = RunLinuxGuest("", "--profile", {}, "a boot, profiled");
    if (!profile.is_null() && !stats.is_null()) {
      // Counting costs time; what takes time is of a run without.
      profile["stats"] = stats;
      ReadProfile(profile, "boot", &figures_);
      Decompose(profile);
    }
    const ordered_json never =
        RunLinuxGuest("", "--stats-json", {"--policy", kNever}, "a boot without adaptation");
    if (!never.is_null()) {
      figures_.Set("boot_never.stats.runtime.host_faults",
                   never["runtime"]["host_faults"].get<double>());
    }
    const ordered_json bios =
        RunLinuxGuest("", "--profile", {"--entry", "16"}, "a boot through a BIOS, profiled");
    if (!bios.is_null()) {
      for (const ordered_json& mode : bios["profile"]["modes"]) {
        const u64 bits = mode["code_bits"].get<u64>();
        figures_.values[fmt::format("bios.units.{}", bits)] += mode["translations"].get<double>();
        figures_.values[fmt::format("bios.io.{}", bits)] +=
            mode["classes"].value("in", 0.0) + mode["classes"].value("out", 0.0);
      }
    }
  }

  void Decompose(const ordered_json& profile) {
    const auto rows = DecomposeOverhead(profile, costs_, TscHz());
    if (!rows.ok()) return Fail("Figure 5: " + rows.error().message);
    for (const OverheadRow& row : rows.value()) {
      const std::string prefix = "overhead." + row.name + ".";
      figures_.Set(prefix + "count", static_cast<double>(row.count));
      figures_.Set(prefix + "here", row.here);
      figures_.Set(prefix + "native", row.native);
      figures_.Set(prefix + "upper_bound", row.upper_bound);
      figures_.Set(prefix + "seconds", row.seconds);
    }
  }

  void Workloads() {
    const LinuxMachine native = {
        {kNative, ""},
        [this](const std::string& words) { return NativeLinuxCommand(files_, words); },
        false};
    const auto engine = [this](const char* name, bool first) {
      LinuxGuestOptions guest;
      guest.engine = name;
      return LinuxMachine{SystemOfEngine(name, options_.policy, first),
                          [this, guest](const std::string& words) {
                            return AlibiLinuxCommand(files_, options_.alibi, words, guest);
                          }};
    };
    const LinuxMachine alibi = engine(kTranslateEngine, true), directs = engine(kAutoEngine, false);
    LinuxRunOptions run;
    run.runs = options_.quick ? 1 : 3;
    run.quick = options_.quick;
    run.names = kWorkloads;
    run.progress = options_.progress;
    const LinuxMeasurements measured = RunLinux({native, alibi, directs}, run);
    for (const auto& [system, what] : measured.results.Misses()) Fail(system.Name() + ": " + what);
    for (const std::string& name : kWorkloads) {
      for (const auto& [system, label] :
           {std::pair{native.system, "native"}, std::pair{alibi.system, "alibi"},
            std::pair{directs.system, "auto"}}) {
        if (measured.results.Samples(name, system).empty()) continue;
        figures_.Set(fmt::format("linux.{}.{}", name, label),
                     measured.results.Of(name, system).median);
      }
    }
    // The same short run with traces that stay, and with traces that the first store ends.
    for (const char* strategy : {"eager", "deferred"}) {
      const ordered_json run =
          RunLinuxGuest("quick:only=forkwait", "--stats-json", {"--coherence", strategy},
                        fmt::format("forkwait, {} coherence", strategy));
      if (run.is_null()) continue;
      for (const char* counter : {"hidden_faults", "trace_writes"}) {
        figures_.Set(fmt::format("coherence.{}.{}", strategy, counter),
                     run["mmu"][counter].get<double>());
      }
    }
    const ordered_json forkwait =
        RunLinuxGuest(options_.quick ? "quick:only=forkwait" : "full:only=forkwait", "--stats-json",
                      {}, "forkwait, counted");
    if (!forkwait.is_null()) {
      figures_.AddNumbers("forkwait.stats.runtime", forkwait["runtime"]);
      figures_.AddNumbers("forkwait.stats.mmu", forkwait["mmu"]);
      figures_.Set("forkwait.translation_share", TranslationShare(forkwait));
    }
  }

  const MeasureOptions& options_;
  Figures figures_;
  const ScratchFolder scratch_;
  LinuxFiles files_;
  OperationCosts costs_;
};

double Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  return static_cast<double>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

}  // namespace

Result<Figures> MeasureTranslation(const MeasureOptions& options) {
  return Measurer(options).Run();
}

Result<Figures> Measure(const std::string& chapter, const MeasureOptions& options) {
  struct Row {
    const char* chapter;
    Result<Figures> (*measure)(const MeasureOptions&);
  };
  static constexpr Row kRows[] = {
      {"translation", MeasureTranslation},  {"macro", MeasureMacro}, {"macro32", MeasureMacro32},
      {"hosted-io", MeasureHostedIo},       {"vmi", MeasureVmi},     {"type-ii", MeasureTypeIi},
      {"type-ii-cures", MeasureTypeIiCures}};
  double load = 0;
  const bool knows_load = getloadavg(&load, 1) == 1;
  const ordered_json host = DescribeHost("");
  for (const Row& row : kRows) {
    if (chapter != row.chapter) continue;
    auto figures = row.measure(options);
    if (!figures.ok()) return figures;
    figures->host = host;
    ordered_json settings =
        figures->settings.is_object() ? figures->settings : ordered_json::object();
    settings.update({{"policy", options.policy},
                     {"quick", options.quick},
                     {"realtime", sched_getscheduler(0) != SCHED_OTHER}});
    if (options.repeats != 0) settings["repeats"] = options.repeats;
    figures->settings = std::move(settings);
    if (knows_load) figures->Set("host.load", load);
    return figures;
  }
  return Error{chapter + ": no chapter"};
}

void ReadExample(const std::string& text, Figures* figures) {
  // An adaptation follows the paper's example.
  const std::size_t example_end = text.find("\nAdaptation:");
  const std::string example = text.substr(0, example_end);
  const std::size_t cache = example.find("\nThe TC afterwards"), exits = example.find("\nExits ");
  const std::size_t first = example.find("\nisPrime': ");
  if (example_end == std::string::npos || cache == std::string::npos ||
      exits == std::string::npos || first == std::string::npos) {
    figures->failures.push_back("alibi dump --example isprime: nothing as it should be");
    return;
  }
  const std::string exit_text = example.substr(exits);
  figures->Set("dump.isprime.ccfs", Matches(example.substr(cache, exits - cache), "\n  \\w+':"));
  figures->Set("dump.isprime.never_taken", Matches(exit_text, "-> never taken"));
  figures->Set("dump.isprime.elided", Matches(exit_text, "-> elided"));
  figures->Set("dump.isprime.jumps", Matches(exit_text, "-> jumps to"));
  figures->Set("dump.isprime.prime_translated",
               Matches(example.substr(cache, exits - cache), "\n  prime':"));
  const std::string unit = example.substr(first, example.find("\n\n", first) - first);
  const std::size_t code = unit.find("  CCF as first emitted");
  figures->Set("dump.isprime.first_instructions", Matches(unit, "\n    #\\d+ "));
  figures->Set("dump.isprime.first_ident",
               code == std::string::npos ? 0 : Matches(unit.substr(code), "; IDENT"));
  figures->Set("dump.isprime.forwards", Matches(text.substr(example_end), "; forwarded"));
}

void ReadProfile(const ordered_json& file, const std::string& prefix, Figures* figures) {
  figures->AddNumbers(prefix + ".stats.runtime", file["stats"]["runtime"]);
  figures->AddNumbers(prefix + ".stats.mmu", file["stats"]["mmu"]);
  figures->AddNumbers(prefix + ".stats.sites_known", file["stats"]["sites_known"]);
  for (const char* member : {"instructions", "modes", "classes", "executions",
                             "translation_lengths", "translations_not_entered"}) {
    figures->AddNumbers(fmt::format("{}.profile.{}", prefix, member), file["profile"][member]);
  }
}

}  // namespace alibi::bench::lab
