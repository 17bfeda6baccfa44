#include "vmm/observe.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "vmm/cli.h"
#include "vmm/loader/linux.h"
#include "vmm/stats.h"

namespace alibi::vmm {
namespace {

constexpr char kDefaultGdb[] = ":1234";  // QEMU's -s

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
  app.add_flag("--stats", stats_, "show every counter on stderr at the end");
  app.add_option("--stats-json", stats_json_, "write the counters to FILE")->type_name("FILE");
  app.add_option("--trace", trace_,
                 "show events on stderr; TOPICS separated by commas, or all:\n" + Tracer::Help())
      ->type_name("TOPICS");
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

std::optional<int> Observation::Check() {
  if (!trace_.empty()) {
    auto parsed = Tracer::Parse(trace_);
    if (!parsed.ok()) return Fail(kUsage, "--trace: " + parsed.error().message);
    tracer_ = *parsed;
  }
  if (!gdb_.empty() && gdb_default_) return Fail(kUsage, "-s is --gdb :1234; give one of them");
  if (gdb_wait_ && gdb_.empty() && !gdb_default_) {
    return Fail(kUsage, "-S waits for gdb: give -s or --gdb as well");
  }
  return std::nullopt;
}

std::optional<int> Observation::Attach(PcMachine& machine, std::span<const u8> image) {
  machine_ = &machine;
  if (!trace_.empty()) {
    machine.machine().set_tracer(&tracer_);
    if (tracer_.observes_translations()) {
      machine.machine().engine().set_translation_observer(&tracer_);
    }
  }
  if (!stats_json_.empty()) {
    stats_file_ = std::fopen(stats_json_.c_str(), "w");
    if (stats_file_ == nullptr) {
      return Fail(kCannotCreate,
                  fmt::format("{}: cannot be written: {}", stats_json_, std::strerror(errno)));
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

std::optional<int> Observation::Finish(int status, u64 wall_ns) {
  if (stub_ != nullptr) stub_->Ended(status);
  stub_.reset();
  if (stats_) fmt::print(stderr, "{}", StatsText(machine_->machine(), wall_ns));
  if (stats_file_ != nullptr) {
    const std::string json = StatsJson(machine_->machine(), wall_ns);
    const bool written = std::fwrite(json.data(), 1, json.size(), stats_file_) == json.size();
    if (std::fclose(stats_file_) != 0 || !written) {
      return Fail(kCannotCreate, stats_json_ + ": not written; is the disk full?");
    }
  }
  return std::nullopt;
}

}  // namespace alibi::vmm
