// SPDX-License-Identifier: Apache-2.0
// alibi bench linux, scaling, disk and debian: a Linux guest's speed, against native and QEMU TCG.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "adapt/policy.h"
#include "bench/child_process.h"
#include "bench/host_info.h"
#include "bench/linux/compare.h"
#include "bench/linux/cpus.h"
#include "bench/linux/engines.h"
#include "bench/linux/guest_files.h"
#include "bench/linux/linux_report.h"
#include "bench/linux/linux_runner.h"
#include "bench/linux/reference.h"
#include "bench/linux/scaling_report.h"
#include "bench/linux/workloads.h"
#include "bench/shell_word.h"
#include "cli/bench_files.h"
#include "cli/cli.h"
#include "hardware/kvm.h"
#include "machine/cpu_model.h"
#include "machine/machine.h"

namespace alibi::vmm {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kRuns = 5, kQuickRuns = 1;

// The commands: the same machines, other workloads.
struct Suite {
  bench::LinuxSuite id;
  const char* command;
  const char* help;
  const char* json;
  bool has_isolation;                            // --isolation
  bool has_engines;                              // --engine
  std::chrono::milliseconds limit, quick_limit;  // of one machine's run
  std::string (*table)(const bench::LinuxMeasurements&, bool colors);
  std::string (*svg)(const bench::LinuxMeasurements&, const std::string& subtitle);
};

const Suite kLinux = {
    bench::LinuxSuite::kLinux,
    "bench linux",
    "Boots one of Debian's kernels on Alibi and on QEMU TCG, in turn, and measures the boot and\n"
    "programs in the guest; the same programs run natively. Prints a table, writes JSON and an\n"
    "SVG.",
    "alibi-bench-linux.json",
    true,
    true,
    60min,
    2min,
    bench::LinuxTable,
    bench::LinuxSvg};
const Suite kScaling = {
    bench::LinuxSuite::kScaling,
    "bench scaling",
    "What an operation of a Linux guest costs as something grows past a bound of the engine:\n"
    "processes, pages of code and data, address space, sites; on Alibi, on QEMU TCG and natively.\n"
    "Prints tables, writes JSON and an SVG.",
    "alibi-bench-scaling.json",
    false,
    false,
    20min,
    2min,
    bench::ScalingTable,
    bench::ScalingSvg};
const Suite kDisk = {
    bench::LinuxSuite::kDisk,
    "bench disk",
    "What a Linux guest's reads and writes of a virtio and of an IDE disk cost, past its page\n"
    "cache, on Alibi and on QEMU TCG; the same reads and writes of a cached file natively. Prints "
    "a\n"
    "table, writes JSON and an SVG.",
    "alibi-bench-disk.json",
    false,
    true,
    20min,
    2min,
    bench::LinuxTable,
    bench::LinuxSvg};
const Suite kDebian = {
    bench::LinuxSuite::kDebian,
    "bench debian",
    "Boots a whole Debian to its login prompt and runs its programs, as they are shipped: shells,\n"
    "Python, compilers, gdb, git, compressors; on Alibi, on QEMU TCG and natively. Makes that\n"
    "Debian first, if it is not there. Prints a table, writes JSON and an SVG.",
    "alibi-bench-debian.json",
    false,
    true,
    60min,
    20min,
    bench::LinuxTable,
    bench::LinuxSvg};

// --isolation: whether the guests' kernels isolate their page tables, as those of Intel's CPUs with
// the Meltdown flaw do and AMD's never. Left alone they would not: neither machine shows the flaw.
struct Isolation {
  const char* name;
  bool off, on;
};
constexpr Isolation kIsolations[] = {
    {"off", true, false}, {"on", false, true}, {"both", true, true}};

struct LinuxBenchOptions {
  std::string kernel = "cloud-amd64";
  bench::LinuxGuestOptions guest;
  std::string json;
  std::string svg;
  std::string prepare;
  std::string compare;
  std::vector<std::string> only;
  std::string coherence = mmu::NameOf(MachineConfig().coherence);
  std::string policy = MachineConfig().policy;
  std::string isolation;  // "": the command's own
  std::vector<unsigned> smp = {1};
  std::vector<std::string> engines = {runtime::NameOf(MachineConfig().engine)};
  unsigned runs = 0;
  bench::LogFolder logs;
  bool quick = false;
  bool no_qemu = false;
  bool cpu_time = false;
};

std::string WorkloadNames(const Suite& suite) {
  std::string text;
  for (const bench::LinuxWorkload& workload : bench::LinuxWorkloads()) {
    if (!bench::Belongs(workload, suite.id) || workload.isolated) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", workload.name);
  }
  return text;
}

// `only`: names of workloads; of what is in front of a stroke, all rows: sizes of a bound, both
// settings of isolation.
bool Named(const std::vector<std::string>& only, const bench::LinuxWorkload& workload) {
  return std::any_of(only.begin(), only.end(), [&](const std::string& name) {
    return name == workload.name || workload.name.starts_with(name + "/");
  });
}

// Without names: all rows but those of parallel.inc or, on machines with several numbers of CPUs,
// none but these.
bool Selected(const Suite& suite, const LinuxBenchOptions& options,
              const bench::LinuxWorkload& workload) {
  if (!options.only.empty()) return Named(options.only, workload);
  if (suite.id != bench::LinuxSuite::kLinux || workload.is_boot) return true;
  return (options.smp.size() > 1) == (workload.suite == bench::LinuxSuite::kParallel);
}

// Those that the options ask for.
std::vector<std::string> Wanted(const Suite& suite, const LinuxBenchOptions& options, bool bits64) {
  const Isolation& isolation =
      *std::find_if(std::begin(kIsolations), std::end(kIsolations),
                    [&](const Isolation& row) { return row.name == options.isolation; });
  std::vector<std::string> names;
  for (const bench::LinuxWorkload& workload : bench::LinuxWorkloads()) {
    if (bench::Belongs(workload, suite.id) && Selected(suite, options, workload) &&
        (workload.isolated ? isolation.on && bits64
                           : isolation.off && (workload.is_boot || bits64))) {
      names.push_back(workload.name);
    }
  }
  return names;
}

// The first of `only` that selects nothing, or "".
std::string UnknownName(const Suite& suite, const std::vector<std::string>& only) {
  for (const std::string& name : only) {
    const auto& all = bench::LinuxWorkloads();
    if (std::none_of(all.begin(), all.end(), [&](const bench::LinuxWorkload& workload) {
          return bench::Belongs(workload, suite.id) && Named({name}, workload);
        })) {
      return name;
    }
  }
  return "";
}

// One engine of Alibi's. `name`: of the event logs.
bench::LinuxMachine OwnMachine(const LinuxBenchOptions& options, const bench::LinuxFiles& files,
                               const std::string& own_path, bench::LinuxGuestOptions guest,
                               const std::string& engine, const std::string& name) {
  const bool translates = engine != bench::kHardwareEngine;
  guest.engine = engine;
  if (!translates) guest.tc_cache = "none";
  bench::LinuxMachine machine;
  machine.system = bench::SystemOfEngine(engine, options.policy, engine == options.engines.front());
  machine.engine = engine;
  machine.command = [=, policy = options.policy, coherence = options.coherence, logs = options.logs,
                     boots = 0u](const std::string& words) mutable {
    std::vector<std::string> command = bench::AlibiLinuxCommand(files, own_path, words, guest);
    if (!translates) return command;
    command.insert(command.end(), {"--policy", policy, "--coherence", coherence});
    const std::vector<std::string> log = logs.Options(fmt::format("{}-{}", name, ++boots));
    command.insert(command.end(), log.begin(), log.end());
    return command;
  };
  return machine;
}

// Alibi's engines and QEMU, if it is here, with kernels of one setting.
void AddGuests(const LinuxBenchOptions& options, const bench::LinuxFiles& files,
               const std::string& own_path, const std::string& qemu,
               const bench::LinuxGuestOptions& guest, bool isolated,
               std::chrono::milliseconds hardware_limit,
               std::vector<bench::LinuxMachine>* machines) {
  for (const std::string& engine : options.engines) {
    const std::string name =
        fmt::format("linux{}{}{}", isolated ? "-pti" : "",
                    engine == options.engines.front() ? "" : "-" + engine,
                    guest.smp == options.smp.front() ? "" : fmt::format("-smp{}", guest.smp));
    machines->push_back(OwnMachine(options, files, own_path, guest, engine, name));
    machines->back().isolated = isolated;
    if (engine == bench::kHardwareEngine) machines->back().limit = hardware_limit;
  }
  if (qemu.empty()) return;
  machines->push_back({{bench::kQemuTcg, ""},
                       [files, qemu, guest](const std::string& words) {
                         return bench::QemuLinuxCommand(files, qemu, words, guest);
                       },
                       true,
                       isolated});
}

// Those that the workloads want, with as many CPUs as the options' guest.
std::vector<bench::LinuxMachine> MachinesOfOneNumber(
    const Suite& suite, const LinuxBenchOptions& options, const std::vector<std::string>& names,
    const bench::LinuxFiles& files, const std::string& own_path, const std::string& qemu,
    bool native, std::chrono::milliseconds hardware_limit) {
  std::vector<bench::LinuxMachine> machines;
  if (native) {
    machines.push_back(
        {{bench::kNative, ""},
         [files](const std::string& words) { return bench::NativeLinuxCommand(files, words); },
         false});
  }
  for (const bool isolated : {false, true}) {
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return bench::FindLinuxWorkload(name)->isolated == isolated;
        })) {
      continue;
    }
    bench::LinuxGuestOptions guest = options.guest;
    if (suite.has_isolation) {
      // Behind --append's: Linux takes the last.
      guest.append +=
          fmt::format("{}pti={}", guest.append.empty() ? "" : " ", isolated ? "on" : "off");
    }
    AddGuests(options, files, own_path, qemu, guest, isolated, hardware_limit, &machines);
  }
  return machines;
}

// The same with each number of CPUs. Machines that differ in nothing else run one after the other:
// what the host does beside is then as much the same for them as it can be.
std::vector<bench::LinuxMachine> Machines(const Suite& suite, LinuxBenchOptions options,
                                          const std::vector<std::string>& names,
                                          const bench::LinuxFiles& files,
                                          const std::string& own_path, const std::string& qemu,
                                          bool native, std::chrono::milliseconds hardware_limit) {
  std::vector<std::vector<bench::LinuxMachine>> by_number;
  for (unsigned cpus : options.smp) {
    options.guest.smp = cpus;
    by_number.push_back(
        MachinesOfOneNumber(suite, options, names, files, own_path, qemu, native, hardware_limit));
    for (bench::LinuxMachine& machine : by_number.back()) {
      machine.cpus = cpus;
      machine.system = bench::SystemWithCpus(machine.system, options.smp.front(), cpus);
    }
  }
  std::vector<bench::LinuxMachine> machines;
  for (std::size_t i = 0; i < by_number.front().size(); ++i) {
    for (const auto& row : by_number) machines.push_back(row[i]);
  }
  return machines;
}

// Among how many workers the rows of parallel.inc are divided: as many for all machines.
unsigned Workers(const LinuxBenchOptions& options) {
  return std::max(bench::kLeastWorkers, *std::max_element(options.smp.begin(), options.smp.end()));
}

// --prepare: a script for each machine, to run it by hand.
int Prepare(const LinuxBenchOptions& options, const std::vector<std::string>& names,
            const std::vector<bench::LinuxMachine>& machines) {
  for (const bench::LinuxMachine& machine : machines) {
    const std::string words = bench::LinuxbenchWords(
        {options.quick, machine.cpus, Workers(options)}, bench::ProgramsOf(machine, names));
    std::string script = "#!/bin/sh\nexec";
    for (const std::string& word : machine.command(words)) script += " " + bench::ShellWord(word);
    script += " \"$@\"\n";
    const std::string path = fmt::format("{}/{}{}.sh", options.prepare, machine.system.system,
                                         machine.isolated ? "-pti" : "");
    if (!WriteFile(path, script) || chmod(path.c_str(), 0755) != 0) {
      return Fail(kCannotCreate, path + ": cannot be written");
    }
    fmt::print("{}\n", path);
  }
  return kSuccess;
}

// Results of other hosts.
Result<std::vector<bench::ReferenceHost>> ReadReference(const std::string& data_folder) {
  const std::string path = data_folder + "/bench/linux/hosts.json";
  const auto text = ReadFile(path);
  if (!text.ok()) return text.error();
  auto hosts = bench::ParseReference(text.value());
  if (!hosts.ok()) return Error{path + ": " + hosts.error().message};
  return hosts;
}

// What the guests boot and where native runs are, as far as it is the same for all commands' runs.
Result<bench::LinuxFiles> Fetch(const Suite& suite, const LinuxBenchOptions& options,
                                const std::string& own_path, const std::string& data_folder) {
  if (suite.id != bench::LinuxSuite::kDebian) {
    return bench::FetchLinux(options.kernel, own_path, data_folder);
  }
  return bench::FetchDebian(options.kernel, data_folder, [](const std::string& what) {
    fmt::print(stderr, "alibi: {}\n", what);
  });
}

// Takes the engine out that this host does not offer, or, where it was asked for by name, fails.
std::optional<int> CheckHardware(bool all, std::vector<std::string>* engines) {
  if (std::count(engines->begin(), engines->end(), bench::kHardwareEngine) == 0) return {};
  const auto kvm = hardware::Kvm::Open();
  if (kvm.ok()) return {};
  if (!all) return Fail(kUnsupportedHost, "--engine hardware: " + kvm.error().message);
  fmt::print(stderr, "alibi: no hardware column: {}\n", kvm.error().message);
  std::erase(*engines, bench::kHardwareEngine);
  return {};
}

// A nested KVM that emulates cannot do everything, and is not ours; who asks for it first is told.
bool OwnFailed(const LinuxBenchOptions& options, const bench::LinuxMeasurements& measurements) {
  return std::any_of(measurements.systems.begin(), measurements.systems.end(),
                     [&](const bench::LinuxSystem& system) {
                       return !system.engine.empty() &&
                              (system.engine != bench::kHardwareEngine ||
                               system.engine == options.engines.front()) &&
                              measurements.results.Failed(system.id.system.c_str());
                     });
}

// "1,2".
std::string NumbersText(const std::vector<unsigned>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

// What is wrong with the list of numbers, beside other options; "" if nothing is.
std::string CheckNumbers(const LinuxBenchOptions& options) {
  for (auto number = options.smp.begin(); number != options.smp.end(); ++number) {
    if (std::find(options.smp.begin(), number, *number) != number) {
      return fmt::format("{} is there twice", *number);
    }
    for (const std::string& engine : options.engines) {
      const auto kind = runtime::EngineFor(*runtime::ParseEngineKind(engine), *number);
      if (!kind.ok()) return kind.error().message;
    }
  }
  if (options.smp.size() > 1 && options.cpu_time) {
    return "what several CPUs gain is time that passes, which --cpu-time does not count";
  }
  return "";
}

std::function<void(const std::string&)> Progress() {
  if (isatty(STDERR_FILENO)) {
    return [](const std::string& what) {
      fmt::print(stderr, "\r\x1b[K{}", what);
      std::fflush(stderr);
    };
  }
  return [](const std::string& what) { fmt::print(stderr, "alibi: {}\n", what); };
}

int Run(const Suite& suite, int argc, char** argv) {
  LinuxBenchOptions options;
  options.json = suite.json;
  CLI::App app(suite.help);
  app.add_flag("--quick", options.quick, "one short run of each");
  app.add_option("--only", options.only, "only these workloads: " + WorkloadNames(suite))
      ->type_name("NAMES")
      ->delimiter(',');
  if (suite.id != bench::LinuxSuite::kDebian) {
    app.add_option("--kernel", options.kernel, "which of Debian's kernels, as for ./alibi linux")
        ->type_name("KERNEL")
        ->capture_default_str();
  } else {
    app.add_option("--kernel", options.kernel,
                   "with which kernel: cloud-amd64, or 686, whose programs are of 32 bits, too")
        ->type_name("KERNEL")
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(bench::kDebianKernels),
                                                       std::end(bench::kDebianKernels))))
        ->capture_default_str();
  }
  app.add_option("--cpu", options.guest.cpu,
                 "Alibi's CPU model, as for alibi run: " + CpuModelList())
      ->type_name("MODEL")
      ->capture_default_str();
  app.add_option("--smp", options.smp,
                 "CPUs of the machines, as for alibi run; several numbers are measured beside each "
                 "other, the first being that of the other tables" +
                     std::string(suite.id == bench::LinuxSuite::kLinux
                                     ? ", by rows parallel/NAME if --only names no others"
                                     : ""))
      ->type_name("N[,N...]")
      ->delimiter(',')
      ->check(CLI::Range(1u, vcpu::kMaxVcpus))
      ->capture_default_str();
  app.add_option("--vcpu-threads", options.guest.vcpu_threads, "as for alibi run")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"auto", "one", "each"}))
      ->capture_default_str();
  app.add_option("--tc-cache", options.guest.tc_cache,
                 "as for alibi run: a folder from which later machines have what earlier ones "
                 "translated, or none")
      ->type_name("DIR|none")
      ->capture_default_str();
  app.add_option("--append", options.guest.append, "more for both guests' kernel command line")
      ->type_name("ARGUMENTS");
  if (suite.has_isolation) {
    std::vector<std::string> settings;
    for (const Isolation& row : kIsolations) settings.emplace_back(row.name);
    app.add_option(
           "--isolation", options.isolation,
           "whether the guests' kernels isolate their page tables (pti=on, rows NAME/pti), "
           "as they do on Intel CPUs that have the Meltdown flaw (both; with several numbers "
           "of CPUs off)")
        ->check(CLI::IsMember(settings));
  }
  if (suite.has_engines) {
    app.add_option(
           "--engine", options.engines,
           "which engines of Alibi's to measure, as for alibi run, or all, which leaves out "
           "what this host does not offer; the first is the table's alibi")
        ->type_name("NAMES")
        ->delimiter(',')
        ->capture_default_str();
  }
  app.add_option("--runs", options.runs,
                 fmt::format("runs of each machine ({}; with --quick {})", kRuns, kQuickRuns))
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", options.json, "where the JSON goes")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--compare", options.compare,
                 "an older JSON: its figures beside the new ones, and what got worse")
      ->type_name("OLD.json");
  app.add_option("--svg", options.svg, "where the SVG goes (beside the JSON)")->type_name("FILE");
  app.add_option("--coherence", options.coherence, "as for alibi run")->capture_default_str();
  app.add_flag("--cpu-time", options.cpu_time,
               "count the time that a machine had a core, instead of all that passed: for a busy "
               "host");
  app.add_flag("--no-qemu", options.no_qemu, "leave QEMU out");
  app.add_option(
         "--prepare", options.prepare,
         "measure nothing, but write what is made for the guests and a script for each machine to "
         "this folder: for profiling one workload by hand")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory);
  app.add_option("--policy", options.policy,
                 "Alibi's adaptation policy, as for alibi run (" + options.policy + ")");
  AddLogFolderOptions(app, &options.logs, "linux-BOOT.log");
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, suite.command, argc, argv)) return *status;
  if (auto policy = adapt::MakePolicy(options.policy); !policy.ok()) {
    return Fail(kUsage, "--policy: " + policy.error().message);
  }
  if (const std::string name = UnknownName(suite, options.only); !name.empty()) {
    return Fail(kUsage,
                fmt::format("--only: no workload '{}'; there are {}", name, WorkloadNames(suite)));
  }
  if (const auto coherence = mmu::ParseCoherence(options.coherence); !coherence.ok()) {
    return Fail(kUsage, "--coherence: " + coherence.error().message);
  }
  if (auto cpu = ChooseCpu(options.guest.cpu); !cpu.ok()) {
    return Fail(kUsage, "--cpu: " + cpu.error().message);
  } else if (cpu->enforce && !cpu->lacking.empty()) {
    return Fail(kUnsupportedHost, "--cpu: " + cpu->lacking);
  }
  const bool all_engines = options.engines == std::vector<std::string>{bench::kAllEngines};
  auto engines = bench::ChooseEngines(options.engines);
  if (!engines.ok()) return Fail(kUsage, "--engine: " + engines.error().message);
  options.engines = *engines;
  if (const auto status = CheckHardware(all_engines, &options.engines)) return *status;
  if (const std::string wrong = CheckNumbers(options); !wrong.empty()) {
    return Fail(kUsage, "--smp: " + wrong);
  }
  if (options.isolation.empty()) {
    options.isolation = suite.has_isolation && options.smp.size() > 1 ? "off" : "both";
  }
  if (!options.prepare.empty() && !options.logs.path.empty()) {
    return Fail(kUsage, "--prepare runs nothing: give --log to its alibi.sh instead");
  }
  if (options.svg.empty()) options.svg = SvgPath(options.json);
  // Read before the new one is written, which may be the same file.
  std::optional<bench::OldReport> old;
  if (!options.compare.empty()) {
    const auto text = ReadFile(options.compare);
    if (!text.ok()) return Fail(kNoInput, "--compare: " + text.error().message);
    auto report = bench::ParseReport(text.value(), suite.id);
    if (!report.ok()) {
      return Fail(kBadImage, fmt::format("--compare: {} is no report of alibi {}: {}",
                                         options.compare, suite.command, report.error().message));
    }
    old = *report;
  }

  const std::string own_path = OwnPath(), data_folder = DataFolder(own_path);
  const std::string qemu = options.no_qemu ? "" : bench::FindProgram("qemu-system-x86_64");
  if (qemu.empty() && !options.no_qemu) {
    fmt::print(stderr,
               "alibi: no qemu-system-x86_64 here, so no qemu-tcg column; run: "
               "sudo apt-get install qemu-system-x86\n");
  }
  auto fetched = Fetch(suite, options, own_path, data_folder);
  if (!fetched.ok()) return Fail(kNoInput, fetched.error().message);
  bench::LinuxFiles files = *fetched;
  const bool bits64 = files.IsDebian() || bench::RunsLinuxbench(options.kernel);
  if (!bits64) {
    fmt::print(stderr, "alibi: {} is a 32-bit kernel: only boot and init can be measured\n",
               options.kernel);
  }
  // Natively the programs' files are on tmpfs as well; disks are where users' are.
  const bool with_disks = suite.id == bench::LinuxSuite::kDisk;
  const bench::ScratchFolder scratch(with_disks ? bench::ScratchFolder::Where::kDisk
                                                : bench::ScratchFolder::Where::kMemory);
  if (scratch.path().empty()) return Fail(kCannotCreate, "/tmp: no folder can be made there");
  files.folder = options.prepare.empty() ? scratch.path() : options.prepare;
  const Status written = with_disks ? bench::WriteDiskGuest(options.kernel, own_path, data_folder,
                                                            files.folder, &files)
                         : files.IsDebian() ? bench::WriteProgramDisk(files.folder, &files)
                                            : bench::WriteInitramfs(files.folder, bits64, &files);
  if (!written.ok()) return Fail(kNoInput, written.error().message);
  auto reference = ReadReference(data_folder);
  if (!reference.ok()) return Fail(kNoInput, reference.error().message);
  const std::vector<std::string> names = Wanted(suite, options, bits64);
  if (names.empty()) {
    return Fail(kUsage, "nothing to measure: no workload is left of those that were asked for");
  }
  bench::HardwareTrial hardware;
  if (options.prepare.empty() &&
      std::count(options.engines.begin(), options.engines.end(), bench::kHardwareEngine) != 0) {
    hardware = bench::TryHardware(own_path, data_folder);
  }
  const std::vector<bench::LinuxMachine> machines =
      Machines(suite, options, names, files, own_path, qemu, bits64, hardware.limit);
  if (!options.prepare.empty()) return Prepare(options, names, machines);
  for (const std::string& path : {options.json, options.svg}) {
    // Found out now rather than after minutes of measuring; nothing is overwritten yet.
    if (!std::ofstream(path, std::ios::app).good()) {
      return Fail(kCannotCreate, path + ": cannot be written");
    }
  }

  bench::LinuxRunOptions run;
  run.quick = options.quick;
  run.workers = Workers(options);
  run.memory = options.smp.size() > 1;
  run.cpu_time = options.cpu_time;
  run.runs = options.runs != 0 ? options.runs : options.quick ? kQuickRuns : kRuns;
  run.run_limit = options.quick ? suite.quick_limit : suite.limit;
  run.names = names;
  run.progress = Progress();
  bench::LinuxMeasurements measurements = bench::RunLinux(machines, run);
  if (!hardware.note.empty()) measurements.notes.push_back(hardware.note);
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\x1b[K");

  const auto host = bench::DescribeHost(qemu);
  const std::string kernel_file = files.kernel.substr(files.kernel.rfind('/') + 1);
  const std::string guest = files.IsDebian() ? "Debian, packages " + files.packages : kernel_file;
  const std::string line = fmt::format(
      "{}, {} (Meltdown: {}); guest: {}, {} MB, {} run{}{}", host["cpu"].get<std::string>(),
      host["kernel"].get<std::string>(), host["meltdown"].get<std::string>(), guest,
      files.ram_megabytes, run.runs, run.runs == 1 ? "" : "s",
      fmt::format("{}{}{}{}{}", options.quick ? ", quick" : "",
                  options.cpu_time ? ", CPU time" : "",
                  options.smp == std::vector<unsigned>{1}
                      ? ""
                      : fmt::format(", {} CPUs", NumbersText(options.smp)),
                  options.guest.cpu == "host" ? "" : ", CPU " + options.guest.cpu,
                  options.guest.append.empty() ? "" : ", " + options.guest.append));
  const bool colors = isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr;
  fmt::print("{}\n\n{}", line, suite.table(measurements, colors));
  // Short runs are mostly translation, which the stored ones are not.
  if (!options.quick) {
    fmt::print("{}", bench::MuchWorseThanElsewhere(measurements, *reference, options.kernel));
  }
  nlohmann::ordered_json settings = {
      {"kernel", kernel_file},
      {"cpu", options.guest.cpu},
      {"vcpu_threads", options.guest.vcpu_threads},
      {"tc_cache", options.guest.tc_cache != "none"},
      {"command_line", bench::LinuxCommandLine(files, "", options.guest.append)},
      {"ram_megabytes", std::stoi(files.ram_megabytes)},
      {"runs", run.runs},
      {"quick", options.quick},
      {"coherence", options.coherence},
      {"cpu_time", options.cpu_time}};
  if (suite.has_isolation) settings["isolation"] = options.isolation;
  if (options.smp.size() == 1) {
    settings["cpus"] = options.smp.front();
  } else {
    settings["cpus"] = options.smp;
  }
  // What system "alibi" is.
  settings["engine"] = options.engines.front();
  if (files.IsDebian()) settings["packages"] = files.packages;
  if (old) {
    fmt::print("\n{}", bench::CompareTable(*old, measurements, host, settings, colors));
  }
  if (!WriteFile(options.json, bench::LinuxJson(measurements, host, settings).dump(1) + "\n")) {
    return Fail(kCannotCreate, options.json + ": not written; is the disk full?");
  }
  if (!WriteFile(options.svg, suite.svg(measurements, line))) {
    return Fail(kCannotCreate, options.svg + ": not written; is the disk full?");
  }
  fmt::print("wrote {} and {}\n", options.json, options.svg);
  return OwnFailed(options, measurements) ? kBenchFailed : kSuccess;
}

}  // namespace

int CmdBenchLinux(int argc, char** argv) { return Run(kLinux, argc, argv); }
int CmdBenchScaling(int argc, char** argv) { return Run(kScaling, argc, argv); }
int CmdBenchDisk(int argc, char** argv) { return Run(kDisk, argc, argv); }
int CmdBenchDebian(int argc, char** argv) { return Run(kDebian, argc, argv); }

}  // namespace alibi::vmm
