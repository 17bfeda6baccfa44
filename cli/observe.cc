// SPDX-License-Identifier: Apache-2.0
#include "cli/observe.h"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "cli/cli.h"
#include "inspect/stats.h"
#include "pc/boot/linux.h"

namespace alibi::vmm {
namespace {

constexpr char kDefaultGdb[] = ":1234";  // QEMU's -s
constexpr std::size_t kTraceBuffer = std::size_t{1} << 18;

// For the signal handler.
std::atomic<PcMachine*>& ShownMachine() {
  static std::atomic<PcMachine*> machine = nullptr;
  return machine;
}

void OnStatsSignal(int) {
  const int saved_errno = errno;
  if (PcMachine* machine = ShownMachine()) machine->RequestAttention();
  errno = saved_errno;
}

void CatchStatsSignal(PcMachine* machine) {
  ShownMachine() = machine;
  struct sigaction action {};
  action.sa_handler = machine != nullptr ? OnStatsSignal : SIG_IGN;
  sigfillset(&action.sa_mask);  // see runtime::Engine::RequestStop
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

// Will it use long mode, although it does not begin in it? (Linux boot protocol, XLF_KERNEL_64 of
// xloadflags; ELF, EI_CLASS.)
bool Is64BitKernel(std::span<const u8> image) {
  constexpr std::size_t kXloadflags = 0x236, kElfClass = 4;
  if (loader::IsLinux(image)) return image.size() > kXloadflags && (image[kXloadflags] & 1);
  return image.size() > kElfClass && std::memcmp(image.data(), "\177ELF", 4) == 0 &&
         image[kElfClass] == 2;
}

}  // namespace

void Observation::AddOptions(CLI::App& app) {
  app.add_flag("--stats", stats_,
               "show every counter on stderr at the end; SIGUSR1 and Ctrl-A S show them at once");
  app.add_option("--stats-json", stats_json_, "write the counters to FILE")->type_name("FILE");
  app.add_option("--profile", profile_name_,
                 "count what the guest executes, and write it to FILE; see docs/observability.md")
      ->type_name("FILE");
  app.add_option("--trace", trace_,
                 "show events on stderr; TOPICS separated by commas, or all:\n" + Tracer::Help())
      ->type_name("TOPICS");
  app.add_option("--trace-file", trace_file_name_, "write the trace to FILE instead")
      ->type_name("FILE");
  app.add_option("--trace-size", trace_size_,
                 "at most so much of it into a file: bytes, or with K, M, G (" + trace_size_ + ")");
  app.add_option("--log", log_name_,
                 "record to FILE what happens at the guest's sites, every translation and fault;\n"
                 "alibi log shows it")
      ->type_name("FILE");
  app.add_option("--log-size", log_size_,
                 "at most so much of it: bytes, or with K, M, G; the rest is counted (256M)");
  app.add_option("--gdb", gdb_,
                 "wait for gdb before the first instruction, at [HOST]:PORT (without a host on\n"
                 "this machine only) or unix:PATH; see docs/observability.md")
      ->type_name("PLACE");
  app.add_option(
         "--gdb-arch", gdb_arch_,
         "how gdb sees the CPU: amd64, i386, or auto: amd64 for a 64-bit kernel, else as the\n"
         "CPU's mode is when gdb comes (auto)")
      ->check(CLI::IsMember({"auto", "amd64", "i386"}));
  app.add_flag("-s", gdb_default_, "as QEMU: gdb may come to :1234 at any time, nobody waits");
  app.add_flag("-S", gdb_wait_, "as QEMU: with -s, wait for gdb before the first instruction");
}

std::optional<int> Observation::CheckEngine(runtime::EngineKind engine) const {
  if (runtime::Translates(engine)) return std::nullopt;
  const std::pair<bool, const char*> needs[] = {
      {!profile_name_.empty(), "--profile"},
      {!log_name_.empty(), "--log"},
      {tracer_.wanted_events() != 0 || tracer_.observes_translations(),
       "--trace of more than irq, io and mmio"},
  };
  for (const auto& [given, option] : needs) {
    if (given) return Fail(kUsage, fmt::format("{} needs --engine translate", option));
  }
  return std::nullopt;
}

const char* Observation::OrderShown() const {
  if (!gdb_.empty() || gdb_default_) return "--gdb";
  if (!log_name_.empty()) return "--log";
  if (!trace_.empty()) return "--trace";
  return profile_name_.empty() ? nullptr : "--profile";
}

std::optional<int> Observation::Check() {
  if (!trace_.empty()) {
    auto parsed = Tracer::Parse(trace_);
    if (!parsed.ok()) return Fail(kUsage, "--trace: " + parsed.error().message);
    tracer_ = *parsed;
  }
  if (!trace_file_name_.empty() && trace_.empty()) {
    return Fail(kUsage, "--trace-file: nothing is traced; give --trace=TOPICS as well");
  }
  auto trace_size = ParseSize(trace_size_);
  if (!trace_size.ok()) return Fail(kUsage, "--trace-size: " + trace_size.error().message);
  most_trace_bytes_ = *trace_size;
  auto size = ParseSize(log_size_);
  if (!size.ok()) return Fail(kUsage, "--log-size: " + size.error().message);
  if (*size < adapt::log::kLeastLogBytes) {
    return Fail(kUsage, fmt::format("--log-size: give at least {}",
                                    FormatSize(adapt::log::kLeastLogBytes)));
  }
  most_log_bytes_ = *size;
  if (!gdb_.empty() && gdb_default_) return Fail(kUsage, "-s is --gdb :1234; give one of them");
  if (gdb_wait_ && gdb_.empty() && !gdb_default_) {
    return Fail(kUsage, "-S waits for gdb: give -s or --gdb as well");
  }
  return std::nullopt;
}

void Observation::Configure(MachineConfig* config) {
  if (profile_name_.empty()) return;
  profile_ = std::make_unique<ExecutionProfile>();
  config->executions = profile_.get();
}

std::optional<int> Observation::Attach(PcMachine& machine, std::span<const u8> image,
                                       const RunDescription& description) {
  machine_ = &machine;
  begin_ns_ = machine.NowNs();
  if (const auto status = OpenFiles(description)) return *status;
  machine.set_on_attention([this] { ShowStats(); });
  CatchStatsSignal(&machine);
  if (!trace_.empty()) {
    tracer_.SetOutput(trace_file_ != nullptr ? trace_file_ : stderr, most_trace_bytes_);
    tracer_.set_time(&machine.time_base());
    machine.machine().set_observer(&tracer_);
    const u32 vcpu = machine.machine().vcpus() > 1 ? KindBit(runtime::RecordKind::kVcpu) : u32{0};
    if ((tracer_.wanted_events() | vcpu) != 0) {
      machine.machine().engine().set_event_observer(&tracer_, tracer_.wanted_events() | vcpu);
    }
    if (tracer_.observes_translations()) {
      machine.machine().translator()->set_translation_observer(&tracer_);
    }
  }
  if (!gdb_.empty() || gdb_default_) {
    gdb::StubOptions options;
    options.address = gdb_default_ ? kDefaultGdb : gdb_;
    options.wait = !gdb_default_ || gdb_wait_;
    if (gdb_arch_ == "amd64" || (gdb_arch_ == "auto" && Is64BitKernel(image))) {
      options.architecture = gdb::Architecture::kAmd64;
    } else if (gdb_arch_ == "i386") {
      options.architecture = gdb::Architecture::kI386;
    }
    auto stub = gdb::Stub::Create(options, machine);
    if (!stub.ok()) return Fail(kCannotCreate, "--gdb: " + stub.error().message);
    stub_ = std::move(*stub);
    fmt::print(stderr, "alibi: {} gdb: target remote {}\n",
               options.wait ? "waiting for" : "ready for", stub_->name());
  }
  return std::nullopt;
}

std::optional<int> Observation::OpenFiles(const RunDescription& description) {
  const auto cannot = [](const std::string& name) {
    return Fail(kCannotCreate,
                fmt::format("{}: cannot be written: {}", name, std::strerror(errno)));
  };
  if (!stats_json_.empty()) {
    stats_file_ = std::fopen(stats_json_.c_str(), "we");
    if (stats_file_ == nullptr) return cannot(stats_json_);
  }
  if (!profile_name_.empty()) {
    profile_file_ = std::fopen(profile_name_.c_str(), "we");
    if (profile_file_ == nullptr) return cannot(profile_name_);
  }
  if (!trace_file_name_.empty()) {
    trace_file_ = std::fopen(trace_file_name_.c_str(), "we");
    if (trace_file_ == nullptr) return cannot(trace_file_name_);
    std::setvbuf(trace_file_, nullptr, _IOFBF, kTraceBuffer);
  }
  if (!log_name_.empty()) {
    auto log = RunLog::Create(log_name_, most_log_bytes_, *machine_, description);
    if (!log.ok()) return Fail(kCannotCreate, "--log: " + log.error().message);
    log_ = std::move(*log);
  }
  return std::nullopt;
}

std::string Observation::socket_folder() const {
  static constexpr char kUnix[] = "unix:";
  if (!gdb_.starts_with(kUnix)) return "";
  const std::string path = gdb_.substr(sizeof(kUnix) - 1);
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

void Observation::Leave() {
  if (machine_ == nullptr) return;
  CatchStatsSignal(nullptr);
  stub_.reset();
  log_.reset();
  machine_->machine().engine().set_event_observer(nullptr, 0);
  machine_ = nullptr;
}

Observation::~Observation() {
  for (std::FILE* file : {trace_file_, stats_file_, profile_file_}) {
    if (file != nullptr) std::fclose(file);
  }
}

void Observation::ShowStats() {
  fmt::print(stderr, "\n{}", StatsText(machine_->machine(), machine_->NowNs() - begin_ns_));
}

std::optional<int> Observation::Finish(int status, u64 wall_ns) {
  if (stub_ != nullptr) stub_->Ended(status);
  stub_.reset();
  if (log_ != nullptr) {
    const Status done = log_->Finish();
    const std::string missing = log_->Missing();
    log_.reset();
    if (!done.ok()) return Fail(kCannotCreate, "--log: " + done.error().message);
    if (!missing.empty()) fmt::print(stderr, "alibi: {}\n", missing);
  }
  if (trace_file_ != nullptr && std::fclose(std::exchange(trace_file_, nullptr)) != 0) {
    return Fail(kCannotCreate, trace_file_name_ + ": not written whole; is the disk full?");
  }
  if (stats_) fmt::print(stderr, "{}", StatsText(machine_->machine(), wall_ns));
  const auto write = [](std::FILE** file, const std::string& name, const std::string& text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), *file) == text.size();
    const bool closed = std::fclose(std::exchange(*file, nullptr)) == 0;
    return written && closed
               ? std::nullopt
               : std::optional(Fail(kCannotCreate, name + ": not written; is the disk full?"));
  };
  std::optional<int> failure;
  if (stats_file_ != nullptr) {
    failure = write(&stats_file_, stats_json_, StatsJson(machine_->machine(), wall_ns));
  }
  if (profile_file_ != nullptr && !failure) {
    machine_->machine().translator()->CollectExecutions();
    failure = write(&profile_file_, profile_name_,
                    ProfileText(*profile_, StatsJson(machine_->machine(), wall_ns)));
  }
  return failure;
}

}  // namespace alibi::vmm
