// SPDX-License-Identifier: Apache-2.0
// alibi run: a kernel or a BIOS ROM on a PC, with its serial port on our
// terminal.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host_cpus.h"
#include "cli/cli.h"
#include "cli/console.h"
#include "cli/observe.h"
#include "cli/qemu_options.h"
#include "cli/run_options.h"
#include "cli/sandbox.h"
#include "cli/terminal.h"
#include "devices/time/clock.h"
#include "hardware/kvm.h"
#include "inspect/memory_use.h"
#include "machine/cpu_model.h"
#include "machine/host_check.h"
#include "pc/boot/file.h"
#include "pc/boot/gzip.h"
#include "pc/boot/linux.h"
#include "pc/boot/linux_rom.h"
#include "pc/boot/vmi_rom.h"
#include "pc/pc_machine.h"
#include "runtime/translation_store.h"

namespace alibi::vmm {
namespace {

constexpr u64 kLeastRam = u64{1} << 20;
constexpr u64 kLeastShadow = u64{1} << 20;
constexpr u64 kLeastTc = u64{1} << 20;
constexpr u64 kMaxTc = u64{1} << 30;  // exits are 32-bit displacements

// For the signal handler.
std::atomic<PcMachine*>& RunningMachine() {
  static std::atomic<PcMachine*> machine = nullptr;
  return machine;
}

int ExitStatusOf(PcEnd end, PcMachine& machine, bool quit_by_key) {
  switch (end) {
    case PcEnd::kDebugExit:
      return static_cast<int>(machine.exit_status() & 0xff);
    case PcEnd::kRequested:
      return quit_by_key ? kSuccess : 128 + TerminalGuard::caught();
    case PcEnd::kTripleFault:
      return Fail(kTripleFault,
                  fmt::format("the guest shut down (triple fault) near rip {:#x}; --trace=irq,io "
                              "shows what it did before",
                              machine.machine().state().rip));
    case PcEnd::kReset:
      return Fail(kTripleFault, fmt::format("the guest reset the machine at rip {:#x}",
                                            machine.machine().state().rip));
    case PcEnd::kResetLoop:
      return Fail(kResetLoop,
                  "the guest resets the machine again and again before it has got "
                  "anywhere; "
                  "--no-reboot shows the first time, --trace=irq,io what led to it");
    case PcEnd::kNoBootDevice:
      return Fail(kNoBootDevice,
                  "no bootable device: the firmware found no "
                  "system on any drive; give --disk or "
                  "--cdrom with one, or a kernel's IMAGE");
    case PcEnd::kPanicked:
      return Fail(kGuestPanic, "the guest's kernel panicked; its last words are on its console");
    case PcEnd::kPowerOff:
      return kSuccess;
    case PcEnd::kHaltedForever:
      return Fail(kHaltedForever, fmt::format("the guest halted with interrupts off at rip {:#x}; "
                                              "nothing can wake it",
                                              machine.machine().state().rip));
    case PcEnd::kOutputFailed:
      return Fail(kOutputFailed,
                  "the serial port's output cannot be written; is "
                  "its reader gone, or the disk full?");
    case PcEnd::kEngineFailed:
      return Fail(kUnsupportedHost, "--engine hardware: " + machine.machine().engine().failure());
    case PcEnd::kHostRefused:
      return Fail(kHostResources, machine.host_error());
  }
  return kInternalError;
}

// A run's way from its options to its end.
class RunCommand {
 public:
  int Main(int argc, char** argv);

 private:
  // A step that finds something wrong has reported it and gives the exit
  // status.
  using Failed = std::optional<int>;

  Failed Parse(int argc, char** argv);
  // --- Everything that can be wrong before there is a machine ---
  Failed ChooseFirmware();
  Failed CheckSizes();
  Failed CheckChoices();
  std::optional<std::string> NeedsTurns() const;
  Failed ChooseThreads();
  Failed ChooseGuestCpu();
  Failed ReadDebugPorts();
  Failed ReadDeviceOptions();
  Failed ReadImage();
  Failed ReadModules();
  Failed ReadRom();
  Failed ReadCardRom();
  Failed OpenDevices();
  Failed ChooseStore();
  // --- The machine ---
  Failed OpenConsole();
  Failed OpenCom1();
  Failed CreateMachine();
  Failed LoadKernel();
  Failed Attach();
  // --- The run ---
  Failed Run();
  int Finish();

  bool Translates() const { return runtime::Translates(config_.machine.engine); }
  Status TakeBios(const std::string& why);
  void ConfigureMachine();
  std::string Keys(std::string input);  // what of them is the guest's

  RunOptions options_;
  Console console_;
  Observation observation_;
  bool firmware_text_ = true;
  bool real_mode_ = false;  // a Linux kernel that starts through the BIOS
  u64 ram_ = 0, tc_ = 0, shadow_ = 0;
  std::string store_folder_;  // "": no translations are kept
  mmu::Coherence coherence_ = MachineConfig().coherence;
  // The machine refers to these.
  std::optional<ChosenCpu> cpu_;
  std::vector<u8> image_;
  std::vector<ModuleFile> modules_;
  EscapeFilter escape_;

  net::Options net_options_;
  PcMachineConfig config_;
  std::unique_ptr<PcMachine> machine_;
  Observation::Leaver leave_;  // before the machine goes
  PcEnd end_ = PcEnd::kRequested;
  u64 wall_ns_ = 0;
};

int RunCommand::Main(int argc, char** argv) {
  if (const Failed status = Parse(argc, argv)) return *status;
  constexpr Failed (RunCommand::*kSteps[])() = {
      &RunCommand::ReadDeviceOptions, &RunCommand::ChooseFirmware, &RunCommand::CheckSizes,
      &RunCommand::CheckChoices,      &RunCommand::ChooseGuestCpu, &RunCommand::ReadDebugPorts,
      &RunCommand::ReadImage,         &RunCommand::ReadModules,    &RunCommand::ReadRom,
      &RunCommand::ReadCardRom,       &RunCommand::OpenDevices,    &RunCommand::ChooseStore,
      &RunCommand::OpenConsole,       &RunCommand::OpenCom1,       &RunCommand::CreateMachine,
      &RunCommand::LoadKernel,        &RunCommand::Attach,         &RunCommand::Run};
  for (const auto step : kSteps) {
    if (const Failed status = (this->*step)()) return *status;
  }
  return Finish();
}

RunCommand::Failed RunCommand::Parse(int argc, char** argv) {
  CLI::App app(
      "Runs a Linux or multiboot 1 kernel, or a BIOS ROM from its "
      "reset vector. The serial port\n"
      "COM1 is the terminal, and every key goes to the guest, Ctrl-C "
      "too; but Ctrl-A X quits,\n"
      "Ctrl-A S shows the counters, Ctrl-A Ctrl-A sends a Ctrl-A, "
      "Ctrl-A H shows these keys.");
  AddKernelOptions(app, &options_);
  AddMachineOptions(app, &options_);
  console_.AddOptions(&app);
  AddEngineOptions(app, &options_);
  observation_.AddOptions(app);
  app.footer(ExitCodeHelp());
  std::vector<char*> arguments = WithOwnSpelling(argc, argv);
  return ParseArguments(app, "run", static_cast<int>(arguments.size()) - 1, arguments.data(),
                        InsteadOfQemuOption);
}

Status RunCommand::TakeBios(const std::string& why) {
  auto found = FindBios();
  if (!found.ok()) return Error{why + ": " + found.error().message};
  options_.bios = *found;
  firmware_text_ = false;  // nobody asked for that one's own story
  return Ok{};
}

RunCommand::Failed RunCommand::ChooseFirmware() {
  const bool bootable = !options_.drives.empty() || !net_options_.rom.empty();
  if (options_.image.empty() && options_.bios.empty() && bootable) {
    auto found = FindBios();
    if (!found.ok()) return Fail(kUnsupportedHost, found.error().message);
    options_.bios = *found;
    firmware_text_ = false;
  }
  // Setup code calls the BIOS.
  real_mode_ = options_.entry == "16";
  if (real_mode_ && options_.bios.empty()) {
    if (Status taken = TakeBios("--entry 16"); !taken.ok()) {
      return Fail(kNoInput, taken.error().message);
    }
  }
  if (real_mode_ && options_.image.empty()) {
    return Fail(kUsage, "--entry 16 is for a Linux kernel's IMAGE");
  }
  if (!real_mode_ && options_.image.empty() == options_.bios.empty()) {
    return Fail(kUsage, options_.image.empty()
                            ? "give a kernel's IMAGE, --disk, --cdrom, --bios ROM, or --net with "
                              "rom=FILE; --help shows more"
                            : "give either a kernel's IMAGE or --bios ROM, not both");
  }
  if (!real_mode_ && !options_.bios.empty() &&
      !(options_.append.empty() && options_.initrd.empty())) {
    return Fail(kUsage,
                "--append and --initrd are for a kernel's IMAGE; leave "
                "them out with --bios");
  }
  return std::nullopt;
}

RunCommand::Failed RunCommand::CheckSizes() {
  auto ram = ParseSize(options_.ram);
  if (!ram.ok()) return Fail(kUsage, "--ram: " + ram.error().message);
  if (*ram < kLeastRam || (*ram & kPageMask) != 0) {
    return Fail(kUsage, fmt::format("--ram: {} is not a size a PC can have; give at least 1M, in "
                                    "whole pages of 4K",
                                    FormatSize(*ram)));
  }
  const u64 host_ram =
      static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * static_cast<u64>(sysconf(_SC_PAGESIZE));
  if (*ram > host_ram) {
    return Fail(kHostResources, fmt::format("--ram: {} is more than this host's {} MB; give less",
                                            FormatSize(*ram), host_ram >> 20));
  }
  auto tc = ParseSize(options_.tc_size);
  if (!tc.ok()) return Fail(kUsage, "--tc-size: " + tc.error().message);
  if (*tc < kLeastTc || *tc > kMaxTc || (*tc & kPageMask) != 0) {
    return Fail(kUsage,
                fmt::format("--tc-size: {} is out of range; give 1M to 1G", FormatSize(*tc)));
  }
  auto shadow = ParseSize(options_.shadow_size);
  if (!shadow.ok()) return Fail(kUsage, "--shadow-size: " + shadow.error().message);
  if (*shadow < kLeastShadow || *shadow > kMaxShadowBytes) {
    return Fail(kUsage, fmt::format("--shadow-size: {} is out of range; give 1M to {}",
                                    FormatSize(*shadow), FormatSize(kMaxShadowBytes)));
  }
  ram_ = *ram;
  tc_ = *tc;
  shadow_ = *shadow;
  return std::nullopt;
}

RunCommand::Failed RunCommand::CheckChoices() {
  auto engine = runtime::ParseEngineKind(options_.engine);
  if (!engine.ok()) return Fail(kUsage, "--engine: " + engine.error().message);
  if (options_.smp - 1 >= vcpu::kMaxVcpus) {
    return Fail(kUsage, fmt::format("--smp: {} is not a number of CPUs here; give 1 to {}",
                                    options_.smp, vcpu::kMaxVcpus));
  }
  engine = runtime::EngineFor(*engine, options_.smp);
  if (!engine.ok()) return Fail(kUsage, "--smp: " + engine.error().message);
  config_.machine.engine = *engine;
  config_.machine.vcpus = options_.smp;
  auto engine_policy =
      runtime::EnginePolicyFor(*engine, options_.engine_policy, adapt::kDefaultEnginePolicy);
  if (!engine_policy.ok()) return Fail(kUsage, "--engine-policy: " + engine_policy.error().message);
  options_.engine_policy = *engine_policy;
  if (!options_.engine_policy.empty()) {
    if (auto policy = adapt::MakeEnginePolicy(options_.engine_policy); !policy.ok()) {
      return Fail(kUsage, "--engine-policy: " + policy.error().message);
    }
  }
  if (auto policy = adapt::MakePolicy(options_.policy); !policy.ok()) {
    return Fail(kUsage, "--policy: " + policy.error().message);
  }
  auto coherence = mmu::ParseCoherence(options_.coherence);
  if (!coherence.ok()) return Fail(kUsage, "--coherence: " + coherence.error().message);
  coherence_ = *coherence;
  auto hosting = ParseHosting(options_.hosting);
  if (!hosting.ok()) return Fail(kUsage, "--hosting: " + hosting.error().message);
  config_.machine.hosting = *hosting;
  if (const Failed status = observation_.Check()) return status;
  if (options_.tc_cache != "" && options_.tc_cache != "none" && !Translates()) {
    return Fail(kUsage, "--tc-cache needs --engine translate");
  }
  if (options_.vmi != "none") {
    if (!Translates()) return Fail(kUsage, "--vmi needs an engine that translates");
    auto groups = loader::ParseVmiGroups(options_.vmi);
    if (!groups.ok()) return Fail(kUsage, "--vmi: " + groups.error().message);
    config_.vmi = *groups;
  }
  if (const Failed status = ChooseThreads()) return status;
  return observation_.CheckEngine(config_.machine.engine);
}

// Why CPUs must take turns.
std::optional<std::string> RunCommand::NeedsTurns() const {
  if (const char* option = observation_.OrderShown(); option != nullptr) {
    return fmt::format("{} shows an order, which there is none", option);
  }
  if (config_.vmi) return "--vmi knows CPUs that take turns";
  if (coherence_ != mmu::Coherence::kEager) return "--coherence must be eager";
  return std::nullopt;
}

RunCommand::Failed RunCommand::ChooseThreads() {
  const std::optional<std::string> why_not = NeedsTurns();
  if (options_.vcpu_threads == "each") {
    if (why_not) {
      return Fail(kUsage, "--vcpu-threads each: " + *why_not + "; give --vcpu-threads one");
    }
    config_.machine.beside = true;
  } else if (options_.vcpu_threads == "auto") {
    // A CPU that waits for a lock's holder does not yield.
    config_.machine.beside = !why_not && options_.smp <= AllowedCpuCount();
  }
  return std::nullopt;
}

RunCommand::Failed RunCommand::ChooseGuestCpu() {
  if (Status host = CheckHost(ReadHostFeatures()); !host.ok()) {
    return Fail(kUnsupportedHost, host.error().message);
  }
  if (!Translates()) {
    if (auto kvm = hardware::Kvm::Open(); !kvm.ok()) {
      return Fail(kUnsupportedHost, "--engine hardware: " + kvm.error().message);
    }
  }
  auto cpu = ChooseCpu(options_.cpu);
  if (!cpu.ok()) return Fail(kUsage, "--cpu: " + cpu.error().message);
  if (!cpu->lacking.empty()) {
    if (cpu->enforce) {
      return Fail(kUnsupportedHost,
                  "--cpu: " + cpu->lacking + "; leave out ',enforce' to run without");
    }
    fmt::print(stderr, "alibi: --cpu: {}: the guest is not shown it\n", cpu->lacking);
  }
  cpu_ = std::move(*cpu);
  return std::nullopt;
}

RunCommand::Failed RunCommand::ReadDebugPorts() {
  for (const std::string& text : options_.debug_ports) {
    char* end = nullptr;
    const unsigned long port = std::strtoul(text.c_str(), &end, 0);
    if (text.empty() || *end != '\0' || port > 0xffff) {
      return Fail(kUsage,
                  fmt::format("--debug-port: '{}' is not a port; write 0x190 or 400", text));
    }
    config_.debug_ports.push_back(static_cast<u16>(port));
  }
  return std::nullopt;
}

RunCommand::Failed RunCommand::ReadDeviceOptions() {
  config_.devices.rng = true;
  config_.devices.console = options_.console == "virtio";
  winsize size;
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    config_.devices.columns = size.ws_col;
    config_.devices.rows = size.ws_row;
  }
  auto net = net::ParseOptions(options_.net);
  if (!net.ok()) return Fail(kUsage, "--net: " + net.error().message);
  net->user.confined = options_.sandbox == "on";
  net_options_ = std::move(*net);
  auto optimize = net::ParseOptimize(options_.net_optimize);
  if (!optimize.ok()) return Fail(kUsage, "--net-optimize: " + optimize.error().message);
  config_.devices.optimize = *optimize;
  return std::nullopt;
}

// The kernel, or else the ROM.
RunCommand::Failed RunCommand::ReadImage() {
  auto image = loader::ReadWholeFile(options_.image.empty() ? options_.bios : options_.image);
  if (!image.ok()) return Fail(kNoInput, image.error().message);
  image_ = std::move(*image);
  if (!options_.image.empty() && loader::IsGzip(image_)) {
    auto kernel = loader::Gunzip(image_, options_.image);
    if (!kernel.ok()) return Fail(kBadImage, kernel.error().message);
    image_ = std::move(*kernel);
  }
  if (options_.bios.empty() && options_.entry.empty() && loader::StartsThroughBios(image_)) {
    if (Status taken = TakeBios("'" + options_.image + "' starts through a BIOS"); !taken.ok()) {
      return Fail(kUnsupportedHost, taken.error().message);
    }
    real_mode_ = true;
  }
  if (real_mode_ && !loader::IsLinux(image_)) {
    return Fail(kBadImage, fmt::format("'{}' is no Linux bzImage: --entry 16 is for those alone",
                                       options_.image));
  }
  return std::nullopt;
}

RunCommand::Failed RunCommand::ReadModules() {
  auto files = ReadModuleFiles(options_.initrd);
  if (!files.ok()) return Fail(kNoInput, "--initrd: " + files.error().message);
  modules_ = std::move(*files);
  return std::nullopt;
}

RunCommand::Failed RunCommand::ReadRom() {
  if (options_.bios.empty()) return std::nullopt;
  if (real_mode_) {
    auto rom = loader::ReadWholeFile(options_.bios);
    if (!rom.ok()) return Fail(kNoInput, rom.error().message);
    config_.bios = std::move(*rom);
    config_.devices.boot_first = loader::kLinuxRomBootPath;
  } else {
    config_.bios = image_;
  }
  if (Status size = BiosRom::CheckSize(config_.bios.size(), options_.bios); !size.ok()) {
    return Fail(kBadImage, size.error().message);
  }
  return std::nullopt;
}

RunCommand::Failed RunCommand::ReadCardRom() {
  if (net_options_.rom.empty()) return std::nullopt;
  auto rom = loader::ReadWholeFile(net_options_.rom, devices::PciFunction::kLargestRom);
  if (!rom.ok()) return Fail(kNoInput, "--net: " + rom.error().message);
  if (rom->size() < 2 || (*rom)[0] != 0x55 || (*rom)[1] != 0xaa) {
    return Fail(kBadImage, fmt::format("--net: '{}' is no expansion ROM: those begin with 55h AAh",
                                       net_options_.rom));
  }
  config_.devices.rom = std::move(*rom);
  return std::nullopt;
}

RunCommand::Failed RunCommand::OpenDevices() {
  options_.drives.confined = options_.sandbox == "on";
  ExitCode drives_code = kUsage;
  auto drives = OpenDrives(options_.drives, &drives_code);
  if (!drives.ok()) return Fail(drives_code, drives.error().message);
  // Its process is made while there is nothing of the guest's to be seen.
  auto network = net::CreateBackend(net_options_);
  if (!network.ok()) return Fail(kHostResources, network.error().message);
  config_.devices.card = net_options_.card;
  config_.devices.mac = net_options_.mac;
  config_.devices.network = std::move(*network);
  config_.devices.drives = std::move(*drives);
  config_.devices.drive_report = [](const std::string& line) {
    fmt::print(stderr, "alibi: {}\n", line);
  };
  return std::nullopt;
}

// A folder that was asked for must do; the usual one is done without.
RunCommand::Failed RunCommand::ChooseStore() {
  if (options_.tc_cache == "none" || !Translates()) return std::nullopt;
  const bool usual = options_.tc_cache.empty();
  store_folder_ = usual ? UserCacheFolder("translations") : options_.tc_cache;
  if (store_folder_.empty()) return std::nullopt;  // a user without a home
  const Status usable = runtime::TranslationStore::CheckFolder(store_folder_);
  if (usable.ok()) return std::nullopt;
  if (!usual) return Fail(kUsage, "--tc-cache: " + usable.error().message);
  fmt::print(stderr, "alibi: translations are not kept: {}\n", usable.error().message);
  store_folder_.clear();
  return std::nullopt;
}

void RunCommand::ConfigureMachine() {
  config_.machine.cpuid = &cpu_->policy;
  config_.machine.policy = options_.policy;
  config_.machine.engine_policy = options_.engine_policy;
  config_.machine.coherence = coherence_;
  config_.machine.policy_report = [](const std::string& line) {
    fmt::print(stderr, "alibi: {}\n", line);
  };
  config_.machine.tc_bytes = tc_;
  config_.machine.store_folder = store_folder_;
  config_.machine.shadow_bytes = shadow_;
  observation_.Configure(&config_.machine);
  config_.ram_bytes = ram_;
  config_.restart_on_reset = !options_.no_reboot;
  config_.firmware_text = firmware_text_;
}

RunCommand::Failed RunCommand::OpenConsole() {
  if (const Console::Failure failure = console_.Open(); failure.status != kSuccess) {
    return Fail(failure.status, failure.message);
  }
  console_.Configure(&config_);
  if (isatty(STDIN_FILENO)) {
    config_.input_filter = [this](std::string input) { return Keys(std::move(input)); };
  }
  return std::nullopt;
}

std::string RunCommand::Keys(std::string input) {
  std::string rest = escape_.Filter(input);
  if (escape_.quit()) RunningMachine().load()->RequestStop();
  if (escape_.TakeStats()) observation_.ShowStats();
  if (escape_.TakeHelp()) fmt::print(stderr, "{}", EscapeFilter::kHelp);
  return rest;
}

RunCommand::Failed RunCommand::OpenCom1() {
  if (options_.com1.empty()) return std::nullopt;
  // Not waiting: a FIFO without a reader is an error, not a hang.
  const int com1 =
      open(options_.com1.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (com1 < 0) {
    return Fail(kCannotCreate,
                fmt::format("--com1: cannot write '{}': {}", options_.com1, std::strerror(errno)));
  }
  config_.output = console_.Output(com1);
  config_.input_fd = -1;
  config_.com2 = SerialLink::Files{STDIN_FILENO, console_.Output(STDOUT_FILENO),
                                   std::move(config_.input_filter)};
  config_.input_filter = nullptr;
  return std::nullopt;
}

RunCommand::Failed RunCommand::CreateMachine() {
  ConfigureMachine();
  auto machine = PcMachine::Create(config_);
  if (!machine.ok()) return Fail(kHostResources, machine.error().message);
  machine_ = std::move(*machine);
  return std::nullopt;
}

RunCommand::Failed RunCommand::LoadKernel() {
  if (options_.image.empty()) return std::nullopt;
  Kernel kernel;
  kernel.image = image_;
  kernel.name = options_.image;
  kernel.command_line = options_.append;
  for (const ModuleFile& file : modules_) {
    kernel.modules.push_back({file.bytes, file.command_line});
  }
  if (loader::IsLinux(image_) && kernel.modules.size() > 1) {
    return Fail(kUsage, "--initrd: a Linux kernel takes one file; join them with cat");
  }
  if (options_.entry == "32") kernel.entry = loader::LinuxEntryPoint::k32;
  if (options_.entry == "64") kernel.entry = loader::LinuxEntryPoint::k64;
  const Status loaded = real_mode_ ? machine_->OfferLinux(kernel) : machine_->Load(kernel);
  if (!loaded.ok()) return Fail(kBadImage, loaded.error().message);
  return std::nullopt;
}

RunCommand::Failed RunCommand::Attach() {
  leave_.reset(&observation_);
  const RunDescription description = {options_.policy, options_.engine_policy,
                                      options_.image.empty() ? options_.bios : options_.image,
                                      options_.append};
  return observation_.Attach(*machine_, image_, description);
}

RunCommand::Failed RunCommand::Run() {
  const u64 begin = devices::MonotonicClock::HostNs();
  {
    RunningMachine() = machine_.get();
    // With --com1 a program's input is there, not a console.
    const auto ctrl_c =
        options_.com1.empty() ? TerminalGuard::CtrlC::kKey : TerminalGuard::CtrlC::kSignal;
    TerminalGuard guard(
        STDIN_FILENO, ctrl_c, [](int) { RunningMachine().load()->RequestStop(); },
        console_.farewell());
    if (guard.raw() && ctrl_c == TerminalGuard::CtrlC::kKey) {
      fmt::print(stderr, "alibi: {}\n", EscapeFilter::kGreeting);
    }
    if (const Status begun = console_.Begin(); !begun.ok()) {
      return Fail(kHostResources, begun.error().message);
    }
    if (options_.sandbox == "on") {
      OpenMemoryUse();
      const Status confined = EnterSandbox(observation_.socket_folder(), !Translates());
      if (!confined.ok()) {
        fmt::print(stderr, "alibi: running without a sandbox: {}\n", confined.error().message);
      }
    }
    end_ = machine_->Run();
    console_.End();
  }
  wall_ns_ = devices::MonotonicClock::HostNs() - begin;
  return std::nullopt;
}

int RunCommand::Finish() {
  const int status = ExitStatusOf(end_, *machine_, escape_.quit() || observation_.killed());
  if (const auto failure = console_.Dump(machine_->pc().vga().Capture());
      failure.status != kSuccess) {
    return Fail(failure.status, failure.message);
  }
  return observation_.Finish(status, wall_ns_).value_or(status);
}

}  // namespace

int CmdRun(int argc, char** argv) { return RunCommand().Main(argc, argv); }

}  // namespace alibi::vmm
