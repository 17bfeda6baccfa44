// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/lab_runner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "bench/child_process.h"
#include "bench/host_info.h"
#include "bench/lab/files.h"
#include "bench/lab/lab_folder.h"
#include "bench/lab/network.h"
#include "bench/lab/vmi.h"
#include "bench/linux/engines.h"
#include "bench/linux/guest_files.h"
#include "bench/linux/linux_runner.h"
#include "bench/linux/workloads.h"
#include "bench/runner.h"
#include "bench/statistics.h"

namespace alibi::bench::lab {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

bool IsFrobos(Program program) {
  return program == Program::kNanobench || program == Program::kCompute ||
         program == Program::kCompute32;
}
bool IsNetwork(Program program) {
  return program == Program::kNetwork || program == Program::kTransmit;
}

// Sets an option that the command may have already.
void SetOption(std::vector<std::string>* command, const std::string& name,
               const std::string& value) {
  const auto at = std::find(command->begin(), command->end(), name);
  if (at != command->end() && at + 1 != command->end()) {
    *(at + 1) = value;
  } else {
    command->insert(command->end(), {name, value});
  }
}

std::string HostName() {
  char name[256] = "";
  return gethostname(name, sizeof(name) - 1) == 0 && *name != '\0' ? name : "unnamed";
}

// What every counter of `alibi run --stats-json` counts; its name ends with the unit if it has one.
std::string UnitOf(const std::string& counter) {
  for (const char* unit : {"cycles", "bytes"}) {
    if (counter.find(std::string("_") + unit) != std::string::npos) return unit;
  }
  return "count";
}

void AddCounters(const std::string& text, Record* record) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  // Those about user code that runs directly are there if it may.
  for (const char* group : {"runtime", "mmu", "direct", "prices"}) {
    const bool optional =
        std::string_view(group) == "direct" || std::string_view(group) == "prices";
    const auto counters = json.is_object() ? json.find(group) : json.end();
    if (optional && counters == json.end()) continue;
    if (counters == json.end() || !counters->is_object()) {
      record->failure = fmt::format("its counters have no \"{}\"", group);
      return;
    }
    for (const auto& [name, value] : counters->items()) {
      if (!value.is_number()) continue;
      record->values.push_back({fmt::format("{}.{}", group, name), value, UnitOf(name)});
    }
  }
}

class LabRunner {
 public:
  LabRunner(const Experiment& experiment, const std::string& text, const LabOptions& options)
      : experiment_(experiment), text_(text), options_(options), runs_(Matrix(experiment)) {
    if (options.cell == 0) return;
    std::erase_if(runs_, [&](const RunSpec& run) { return run.cell != options.cell; });
  }

  Result<LabSummary> Run() {
    TryEngines();
    LeaveOutLinux();
    if (Status prepared = Prepare(); !prepared.ok()) return prepared.error();
    summary_.runs = static_cast<unsigned>(runs_.size());
    for (const RunSpec& run : runs_) {
      Record record;
      if (ReadRecord(options_.folder, run.id, &record) && record.failure.empty()) {
        records_[run.id] = std::move(record);
        ++summary_.earlier;
      }
    }
    begin_ = Clock::now();
    for (const RunSpec& run : runs_) {
      if (records_.count(run.id) != 0) continue;
      if (options_.stopped && options_.stopped()) break;
      Progress(run);
      Record record = RunOne(run);
      if (!record.failure.empty()) ++failed_;
      ++made_;
      if (Status written = WriteRecord(options_.folder, run, record); !written.ok()) {
        return written.error();
      }
      records_[run.id] = std::move(record);
    }
    for (const auto& [run, record] : records_) {
      ++summary_.done;
      if (!record.failure.empty()) summary_.failures.push_back(run + ": " + record.failure);
    }
    if (Status written = WriteResults(options_.folder, experiment_, runs_, records_);
        !written.ok()) {
      return written.error();
    }
    if (Status written = WriteFacts(); !written.ok()) return written.error();
    return summary_;
  }

 private:
  static bool IsOfHardware(const RunSpec& run) {
    return std::count(run.parameters.begin(), run.parameters.end(),
                      Setting{"engine", kHardwareEngine}) != 0;
  }

  // Where /dev/kvm does not open, or its KVM is an emulator, Linux guests would only use up their
  // time limit on it, one run after the other.
  void TryEngines() {
    const auto doubtful = [](const RunSpec& run) {
      return IsOfHardware(run) && !IsFrobos(run.workload.program);
    };
    if (std::none_of(runs_.begin(), runs_.end(), doubtful)) return;
    const HardwareTrial trial = TryHardware(options_.alibi, options_.data_folder);
    if (trial.note.empty()) return;
    std::erase_if(runs_, doubtful);
    facts_.notes.push_back(trial.note + "Linux guests were not run on it.");
  }

  // Without a kernel to run.
  void LeaveOutLinux() {
    const auto needs_kernel = [](const RunSpec& run) {
      return run.workload.program == Program::kVmiLinux;
    };
    if (!options_.kernel.empty() || std::none_of(runs_.begin(), runs_.end(), needs_kernel)) return;
    std::erase_if(runs_, needs_kernel);
    facts_.notes.push_back("vmi-linux was left out: no kernel was given (--kernel FILE).");
  }

  Status Prepare() {
    for (const std::string& peer : experiment_.peers) {
      if (peer == kUml && RunsUml()) {
        const auto scratch = NewScratch();
        if (!scratch.ok()) return scratch.error();
        uml_ = FindUserModeLinux(options_.data_folder, scratch.value());
        if (uml_.program.empty()) {
          return Error{
              "no linux.uml here; run: sudo apt-get install user-mode-linux, or take uml out of "
              "the experiment's peers"};
        }
      }
      if (peer != kQemuTcg) continue;
      qemu_ = FindProgram("qemu-system-x86_64");
      if (qemu_.empty()) {
        return Error{
            "no qemu-system-x86_64 here; run: sudo apt-get install qemu-system-x86, or "
            "take qemu-tcg out of the experiment's peers"};
      }
    }
    for (const Workload& workload : experiment_.workloads) {
      if (std::none_of(runs_.begin(), runs_.end(),
                       [&](const RunSpec& run) { return run.workload.name == workload.name; })) {
        continue;
      }
      if (IsFrobos(workload.program)) {
        auto found = FindPrograms(options_.data_folder, options_.alibi);
        if (!found.ok()) return found.error();
        programs_ = *found;
      } else if (IsNetwork(workload.program)) {
        if (Status network = PrepareNetwork(workload); !network.ok()) return network;
      } else if (IsVmi(workload.program)) {
        if (Status vmi = PrepareVmi(); !vmi.ok()) return vmi;
      } else if (Status guest = workload.program == Program::kDebian ? PrepareDebian(workload)
                                                                     : PrepareLinux(workload);
                 !guest.ok()) {
        return guest;
      }
    }
    std::error_code error;
    std::filesystem::create_directories(options_.folder + "/logs", error);
    if (error) {
      return Error{fmt::format("{}/logs: cannot be made: {}", options_.folder, error.message())};
    }
    return CheckFolder();
  }

  // A folder that goes with this object.
  Result<std::string> NewScratch() {
    const auto& scratch = scratch_.emplace_back(std::make_unique<ScratchFolder>());
    if (scratch->path().empty()) return Error{"/tmp: no folder can be made there"};
    return scratch->path();
  }

  bool RunsUml() const {
    return std::any_of(runs_.begin(), runs_.end(),
                       [](const RunSpec& run) { return run.system.system == kUml; });
  }

  Status PrepareLinux(const Workload& workload) {
    if (linux_.count(workload.kernel) != 0) return Ok();
    auto fetched = FetchLinux(workload.kernel, options_.alibi, options_.data_folder);
    if (!fetched.ok()) return fetched.error();
    // One for each kernel, since busybox is its distribution's.
    const auto scratch = NewScratch();
    if (!scratch.ok()) return scratch.error();
    fetched->folder = scratch.value();
    if (Status written =
            WriteInitramfs(scratch.value(), RunsLinuxbench(workload.kernel), &*fetched);
        !written.ok()) {
      return written;
    }
    linux_[workload.kernel] = *fetched;
    return Ok();
  }

  Status PrepareDebian(const Workload& workload) {
    if (debian_.count(workload.kernel) != 0) return Ok();
    auto fetched =
        FetchDebian(workload.kernel, options_.data_folder, [this](const std::string& what) {
          if (options_.progress) options_.progress(what);
        });
    if (!fetched.ok()) return fetched.error();
    const auto scratch = NewScratch();
    if (!scratch.ok()) return scratch.error();
    fetched->folder = scratch.value();
    if (Status written = WriteProgramDisk(scratch.value(), &*fetched); !written.ok()) {
      return written;
    }
    debian_[workload.kernel] = *fetched;
    return Ok();
  }

  Status PrepareVmi() {
    if (!vmi_.image.empty()) return Ok();
    const auto scratch = NewScratch();
    if (!scratch.ok()) return scratch.error();
    auto files = FindVmiFiles(options_.data_folder, options_.kernel, scratch.value());
    if (!files.ok()) return files.error();
    vmi_ = *files;
    return Ok();
  }

  Status PrepareNetwork(const Workload& workload) {
    const std::string kernel = workload.kernel.empty() ? "amd64" : workload.kernel;
    if (network_.count(kernel) != 0) return Ok();
    const auto scratch = NewScratch();
    if (!scratch.ok()) return scratch.error();
    auto fetched = FetchNetwork(kernel, options_.alibi, options_.data_folder, scratch.value());
    if (!fetched.ok()) return fetched.error();
    network_[kernel] = *fetched;
    return Ok();
  }

  // The folder is new, or this experiment's, measured with this program.
  Status CheckFolder() {
    struct stat about {};
    if (stat(options_.alibi.c_str(), &about) != 0) {
      return Error{options_.alibi + ": the program is not there"};
    }
    facts_.program = {{"path", options_.alibi},
                      {"bytes", static_cast<u64>(about.st_size)},
                      {"changed", static_cast<u64>(about.st_mtime)}};
    if (!options_.kernel.empty()) facts_.program["kernel"] = options_.kernel;
    const std::string path = options_.folder + "/experiment.json";
    if (const auto before = ReadWholeFile(path); before.ok()) {
      const auto json = ordered_json::parse(before.value(), nullptr, false);
      if (!json.is_object() || json.value("experiment", std::string()) != text_) {
        return Error{
            fmt::format("{}: holds another experiment, or this one before it was changed; "
                        "remove it, or give another --out",
                        options_.folder)};
      }
      if (json.contains("hosts")) {
        return Error{options_.folder +
                     ": was spread over hosts; --spread goes on with it, or give another --out"};
      }
      if (json.value("program", ordered_json()) != facts_.program) {
        return Error{
            fmt::format("{}: was measured with another build of alibi, or another kernel; remove "
                        "it, or give another --out",
                        options_.folder)};
      }
      facts_.began = json.value("began", std::string());
      facts_.host = json.value("host", ordered_json());
    }
    if (facts_.began.empty() || !facts_.host.is_object()) {
      facts_.host = DescribeHost(qemu_);
      if (options_.cell != 0) facts_.host["name"] = HostName();
      facts_.began = facts_.host.value("time", std::string());
    }
    facts_.text = text_;
    facts_.file = options_.file;
    const ChildResult version = RunChild({options_.alibi, "--version"}, std::chrono::seconds(10));
    facts_.version = version.output.substr(0, version.output.find('\n'));
    return WriteFacts();
  }

  Status WriteFacts() {
    facts_.planned = runs_.size();
    return WriteExperiment(options_.folder, experiment_, facts_, runs_, records_);
  }

  void Progress(const RunSpec& run) const {
    if (!options_.progress) return;
    const unsigned done = summary_.earlier + made_;
    std::string text = fmt::format("{} of {}: {}, {}", done + 1, runs_.size(), run.workload.name,
                                   run.system.Name());
    for (const auto& [name, value] : run.parameters) text += fmt::format(", {} {}", name, value);
    if (run.repeat == kObserved) text += ", observed";
    if (failed_ != 0) text += fmt::format(" ({} failed)", failed_);
    if (made_ != 0) {
      const double each = std::chrono::duration<double>(Clock::now() - begin_).count() / made_;
      const double left = each * static_cast<double>(runs_.size() - done);
      text += left < 90 ? fmt::format(", {:.0f} s left", left)
                        : fmt::format(", {:.0f} min left", left / 60);
    }
    options_.progress(text);
  }

  // Policy, parameters, counters; what an observed run writes.
  std::vector<std::string> Configured(std::vector<std::string> command, const RunSpec& run) const {
    SetOption(&command, "--policy", run.system.policy);
    for (const auto& [name, value] : run.parameters) {
      if (name == "vmi") {
        command.push_back(fmt::format("--vmi={}", value));  // alone it has a value of its own
      } else {
        SetOption(&command, "--" + name, value);
      }
    }
    SetOption(&command, "--stats-json", StatsFile(run));
    if (run.repeat == kObserved) {
      SetOption(&command, "--log", EventLogFile(options_.folder, run.id));
      SetOption(&command, "--profile", ProfileFile(options_.folder, run.id));
    }
    return command;
  }

  std::string StatsFile(const RunSpec& run) const {
    return options_.folder + "/logs/" + run.id + ".stats.json";
  }

  void KeepOutput(const RunSpec& run, const ChildResult& child) const {
    const std::string stem = options_.folder + "/logs/" + run.id;
    // What a run said helps to understand a failure; no result depends on it.
    if (!WriteWholeFile(stem + ".out", child.output).ok()) return;
    if (!child.errors.empty()) (void)WriteWholeFile(stem + ".err", child.errors);
  }

  Record RunOne(const RunSpec& run) {
    unlink(StatsFile(run).c_str());
    const Clock::time_point start = Clock::now();
    Record record = IsFrobos(run.workload.program)    ? RunImage(run)
                    : IsNetwork(run.workload.program) ? RunNetwork(run)
                    : IsVmi(run.workload.program)     ? RunVmi(run)
                                                      : RunGuest(run);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    record.values.push_back({"wall", seconds, "s"});
    if (run.system.system == kAlibi && record.failure.empty()) {
      const auto stats = ReadWholeFile(StatsFile(run));
      if (!stats.ok()) {
        record.failure = stats.error().message;
      } else {
        AddCounters(stats.value(), &record);
      }
    }
    record.values.push_back({"failed", record.failure.empty() ? 0.0 : 1.0, "runs"});
    return record;
  }

  Record RunImage(const RunSpec& run) {
    struct Image {
      std::string Programs::*guest;
      std::string Programs::*native;
      const char* prefix;
    };
    static constexpr Image kImages[] = {
        {&Programs::nanobench_image, &Programs::native_nanobench, ""},
        {&Programs::compute_image, &Programs::native_compute, kComputePrefix},
        {&Programs::compute32_image, &Programs::native_compute32, kCompute32Prefix},
    };
    const Image& image = kImages[static_cast<unsigned>(run.workload.program)];
    const bool compute = *image.prefix != 0, native = run.system.system == kNative;
    const std::string words = MeasuringWords(compute, experiment_.quick, run.workload.only);
    Record record;
    if (native) {
      record.command = NativeCommand(programs_.*image.native, words);
    } else if (run.system.system == kQemuTcg) {
      record.command = QemuImageCommand(qemu_, programs_.*image.guest, words);
    } else {
      record.command = Configured(
          AlibiImageCommand(options_.alibi, programs_.*image.guest, run.system.policy, words), run);
    }
    return MeasureImage(run, std::move(record.command), image.prefix);
  }

  Record RunVmi(const RunSpec& run) const {
    const bool ours = run.system.system == kAlibi, quick = experiment_.quick;
    if (run.workload.program == Program::kVmiLinux) {
      return MeasureImage(
          run, !ours ? QemuVmiLinuxCommand(vmi_, qemu_, quick)
                     : Configured(AlibiVmiLinuxCommand(vmi_, options_.alibi, quick), run));
    }
    const std::string& image =
        run.workload.program == Program::kVmibench64 ? vmi_.image64 : vmi_.image;
    const std::string words = VmibenchWords(quick, run.workload.only);
    return MeasureImage(
        run, !ours ? QemuImageCommand(qemu_, image, words)
                   : Configured(AlibiImageCommand(options_.alibi, image, run.system.policy, words),
                                run));
  }

  Record MeasureImage(const RunSpec& run, std::vector<std::string> command,
                      const std::string& prefix = "") const {
    Record record;
    record.command = std::move(command);
    const bool native = run.system.system == kNative;
    const ChildResult child = RunChild(record.command, experiment_.time_limit);
    KeepOutput(run, child);
    const ProgramOutput output = ParseProgramOutput(child.output);
    for (const Measurement& measurement : output.measurements) {
      if (!measurement.error.empty()) {
        record.failure = measurement.name + ": " + measurement.error;
        continue;
      }
      record.values.push_back(
          {prefix + measurement.name, Summarize(measurement.samples).median, "cycles"});
    }
    const int success = native ? kNativeSuccess : kGuestSuccess;
    const int failure = native ? kNativeFailure : kGuestFailure;
    // Linux has no status to end with.
    const bool any_status = run.workload.program == Program::kVmiLinux;
    const bool ended = child.started && !child.timed_out && child.signal == 0 &&
                       (any_status || child.exit_status == success || child.exit_status == failure);
    if (!ended || !output.done) {
      record.failure = ended && !any_status ? "its output is incomplete" : child.Describe();
    }
    return record;
  }

  // nettest in a guest, after a run that only boots; or the kernel that measures accesses.
  Record RunNetwork(const RunSpec& run) {
    const Workload& workload = run.workload;
    const NetworkFiles& files = network_.at(workload.kernel.empty() ? "amd64" : workload.kernel);
    const bool quick = experiment_.quick, ours = run.system.system == kAlibi;
    if (workload.program == Program::kTransmit) {
      return MeasureImage(
          run, !ours
                   ? QemuTransmitCommand(files, qemu_, quick)
                   : Configured(AlibiTransmitCommand(files, options_.alibi, workload, quick), run));
    }
    const std::vector<std::string> names = workload.only.empty() ? NetworkNames() : workload.only;
    const auto command = [&](const std::vector<std::string>& some) {
      const bool native = run.system.system == kNative;
      const auto operations = NetworkOperations(some, quick, native ? kLoopback : kGuestsHost);
      if (native) return NativeNetworkCommand(files, operations);
      if (run.system.system == kUml) return UmlNetworkCommand(files, uml_, operations);
      if (!ours) return QemuNetworkCommand(files, qemu_, workload, operations);
      return Configured(AlibiNetworkCommand(files, options_.alibi, workload, operations), run);
    };
    Record record;
    std::string boot_stats;
    if (ours) {
      const ChildResult boot = RunChild(command({}), experiment_.time_limit);
      const auto stats = ReadWholeFile(StatsFile(run));
      if (!stats.ok()) {
        record.failure = "only booting: " + boot.Describe();
        return record;
      }
      boot_stats = stats.value();
    }
    record.command = command(names);
    const ChildResult child = RunChild(record.command, experiment_.time_limit);
    KeepOutput(run, child);
    auto values = ParseNetwork(child.output, names);
    if (!values.ok()) {
      record.failure = fmt::format("{}; {}", values.error().message, child.Describe());
      return record;
    }
    record.values = std::move(*values);
    if (!ours) return record;
    const auto stats = ReadWholeFile(StatsFile(run));
    if (!stats.ok()) return record;  // who reads it next says so
    auto distribution = Distribution(stats.value(), boot_stats);
    if (!distribution.ok()) {
      record.failure = distribution.error().message;
      return record;
    }
    record.values.insert(record.values.end(), distribution->begin(), distribution->end());
    return record;
  }

  Record RunGuest(const RunSpec& run) {
    const LinuxFiles& files = run.workload.program == Program::kDebian
                                  ? debian_.at(run.workload.kernel)
                                  : linux_.at(run.workload.kernel);
    Record record;
    LinuxMachine machine;
    machine.system = run.system;
    machine.boots = run.system.system != kNative;
    machine.command = [&](const std::string& words) {
      record.command = run.system.system == kNative ? NativeLinuxCommand(files, words)
                       : run.system.system == kUml  ? UmlLinuxCommand(files, uml_, words)
                       : run.system.system == kQemuTcg
                           ? QemuLinuxCommand(files, qemu_, words)
                           : Configured(AlibiLinuxCommand(files, options_.alibi, words), run);
      return record.command;
    };
    LinuxRunOptions options;
    options.runs = 1;
    options.quick = experiment_.quick;
    options.cpu_time = experiment_.cpu_time;
    options.run_limit = experiment_.time_limit;
    options.ended = [&](const ChildResult& child) { KeepOutput(run, child); };
    for (const LinuxWorkload& workload : LinuxWorkloads()) {
      const std::vector<std::string>& only = run.workload.only;
      if (!HasRowsOf(run.workload.program, workload.suite) || workload.isolated) continue;
      // Each machine here has one run: what takes minutes is for those who name it.
      const bool named = std::count(only.begin(), only.end(), workload.name) != 0;
      const bool usual =
          only.empty() && workload.how != LinuxHow::kOnce && workload.suite != LinuxSuite::kEntries;
      if (workload.is_boot || (run.workload.program != Program::kBoot && (named || usual))) {
        options.names.push_back(workload.name);
      }
    }
    const LinuxMeasurements measured = RunLinux({machine}, options);
    for (const std::string& name : options.names) {
      const std::vector<double>& samples = measured.results.Samples(name, run.system);
      if (samples.empty()) continue;
      record.values.push_back(
          {name, Summarize(samples).median, fmt::format("s/{}", FindLinuxWorkload(name)->per)});
    }
    for (const LinuxClock& clock : measured.clocks) {
      if (clock.host > 0) record.values.push_back({"core_share", clock.cpu / clock.host, "cores"});
    }
    for (const auto& [system, what] : measured.results.Misses()) record.failure = what;
    return record;
  }

  const Experiment& experiment_;
  const std::string& text_;
  const LabOptions& options_;
  std::vector<RunSpec> runs_;
  FolderFacts facts_;
  std::map<std::string, Record> records_;
  LabSummary summary_;
  Programs programs_;
  std::string qemu_;
  UserModeLinux uml_;
  std::map<std::string, LinuxFiles> linux_;      // by kernel
  std::map<std::string, LinuxFiles> debian_;     // whole ones, by kernel
  std::map<std::string, NetworkFiles> network_;  // by kernel
  VmiFiles vmi_;
  std::vector<std::unique_ptr<ScratchFolder>> scratch_;
  Clock::time_point begin_;
  unsigned made_ = 0, failed_ = 0;  // this time
};

}  // namespace

Result<LabSummary> RunLab(const Experiment& experiment, const std::string& text,
                          const LabOptions& options) {
  return LabRunner(experiment, text, options).Run();
}

}  // namespace alibi::bench::lab
