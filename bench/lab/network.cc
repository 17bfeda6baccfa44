// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/child_process.h"

namespace alibi::bench::lab {
namespace {

using nlohmann::ordered_json;

constexpr unsigned kSizes[] = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
constexpr const char* kDirections[] = {"send", "receive"};
// Of datagrams: with headers the shortest frames and the longest.
constexpr unsigned kDatagrams[] = {18, 1472};
// The paper's 100 megabytes.
constexpr u64 kBytes = 100'000'000, kQuickBytes = 10'000'000;
constexpr const char* kRam = "256";  // MB

std::string Join(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), between));
}

std::string NettestWord(const std::vector<std::string>& operations) {
  return "nettest=" + (operations.empty() ? "idle:0" : Join(operations, "+"));
}

std::string CommandLine(const std::vector<std::string>& operations) {
  return fmt::format("{} {}", kLinuxKernelWords, NettestWord(operations));
}

// The machine's socket and the host's.
std::string GuestsSocket(const NetworkFiles& files) { return files.folder + "/guest"; }
std::string HostsSocket(const NetworkFiles& files) { return files.folder + "/host"; }

std::string NetOption(const NetworkFiles& files, const Workload& workload) {
  std::string backend = "user,loopback=on";
  if (workload.backend == kTapBackend) backend = fmt::format("tap,ifname={}", kTap);
  if (workload.backend == kSocketBackend) {
    backend = fmt::format("socket,path={},peer={}", GuestsSocket(files), HostsSocket(files));
  }
  return fmt::format("{},{}{}", workload.card, backend,
                     workload.rate.empty() ? "" : ",rate=" + workload.rate);
}

std::vector<std::string> QemuNetOptions(const NetworkFiles& files, const Workload& workload) {
  const char* model = workload.card == kLance ? "pcnet" : "virtio-net-pci";
  if (workload.backend == kTapBackend) {
    return {"-nic", fmt::format("tap,ifname={},script=no,downscript=no,model={}", kTap, model)};
  }
  if (workload.backend == kSocketBackend) {
    return {"-netdev",
            fmt::format("dgram,id=wire,local.type=unix,local.path={},remote.type=unix,"
                        "remote.path={}",
                        GuestsSocket(files), HostsSocket(files)),
            "-device", fmt::format("{},netdev=wire", model)};
  }
  return {"-nic", fmt::format("user,model={}", model)};
}

// The machine with nettest's server beside it, in a network of its own if it needs a TAP interface.
std::vector<std::string> WithServer(const NetworkFiles& files, const std::string& backend,
                                    const std::vector<std::string>& machine) {
  const bool own_network = backend != kUserBackend;
  std::vector<std::string> command = {files.nettest, "with", own_network ? kGuestsHost : kLoopback};
  command.insert(command.end(), machine.begin(), machine.end());
  if (backend == kSocketBackend) {
    command.insert(command.begin(),
                   {files.nettest, "bridge", kTap, HostsSocket(files), GuestsSocket(files)});
  }
  return own_network ? InOwnNetwork(command) : command;
}

// One counter of a run, wherever it is.
double CounterOf(const ordered_json& stats, const std::string& name) {
  for (const auto& [group, counters] : stats.items()) {
    if (!counters.is_object()) continue;
    const auto it = counters.find(name);
    if (it != counters.end() && it->is_number()) return *it;
  }
  return 0;
}

// Counters whose sum is a category's time.
struct Source {
  const char* metric;
  const char* counter;
};
constexpr Source kTimes[] = {
    {"time.ports", "port_cycles"},
    {"time.memory", "device_cycles"},
    {"time.timers", "timer_cycles"},
    {"time.news", "notice_cycles"},
    {"time.translating", "translation_cycles"},
    {"time.translating", "loading_cycles"},
    {"time.idle", "idle_cycles"},
};
constexpr const char* kCounts[] = {"port_reads",          "port_writes",
                                   "port_reads_answered", "port_writes_answered",
                                   "port_crossings",      "device_crossings",
                                   "timer_crossings",     "notice_crossings",
                                   "interrupts_taken",    "idle_sleeps",
                                   "stop_requests",       "net_wakes",
                                   "net_direct",          "lance_demands",
                                   "lance_held",          "lance_transmitted",
                                   "lance_received",      "lance_missed",
                                   "lance_send_cycles",   "vcpu_us",
                                   "virtio_net_notified", "virtio_net_transmitted",
                                   "virtio_net_received"};

}  // namespace

std::vector<std::string> NetworkNames() {
  std::vector<std::string> names;
  for (const char* direction : kDirections) {
    for (const unsigned size : kSizes) names.push_back(fmt::format("{}-{}", direction, size));
  }
  for (const unsigned size : kDatagrams) names.push_back(fmt::format("datagrams-{}", size));
  return names;
}

std::vector<std::string> TransmitNames() { return {"rap", "csr0", "ack", "transmit", "frame"}; }

Result<NetworkFiles> FetchNetwork(const std::string& kernel, const std::string& alibi,
                                  const std::string& data_folder, const std::string& folder) {
  const std::string own = data_folder + "/bench/lab/nettest/";
  NetworkFiles files;
  files.nettest = own + "nettest";
  files.transmit = data_folder + "/frobos/bench/transmit.elf";
  files.folder = folder;
  files.initrd = fmt::format("{}/network-{}", folder, kernel);
  const ChildResult child =
      RunChild({"/usr/bin/env", "ALIBI_PROGRAM=" + alibi, "PYTHONDONTWRITEBYTECODE=1", "python3",
                data_folder + "/bench/linux/boot.py", "--kernel", kernel, "--write-initrd",
                files.initrd, "--modules", "pcnet32,virtio_pci,virtio_net", "--add", files.nettest,
                "--add", own + "setup.sh:etc/net"},
               std::chrono::minutes(10));
  if (child.exit_status != 0) {
    return Error{
        fmt::format("no kernel to boot ({}); it comes through apt once: is there a network?",
                    child.Describe())};
  }
  files.kernel = child.output.substr(0, child.output.find('\n'));
  return files;
}

std::vector<std::string> NetworkOperations(const std::vector<std::string>& names, bool quick,
                                           const std::string& address) {
  std::vector<std::string> operations;
  for (const std::string& name : names) {
    const std::size_t dash = name.find('-');
    const std::string what = name.substr(0, dash), size = name.substr(dash + 1);
    const u64 bytes = quick ? kQuickBytes : kBytes;
    // As many datagrams of any size as there are full ones in so many bytes.
    operations.push_back(fmt::format("{}:{}:%PORT%:{}:{}", what, address,
                                     what == "datagrams" ? bytes / kDatagrams[1] : bytes, size));
  }
  return operations;
}

std::vector<std::string> AlibiNetworkCommand(const NetworkFiles& files, const std::string& alibi,
                                             const Workload& workload,
                                             const std::vector<std::string>& operations) {
  // Translations that an earlier run has kept would make repeats differ from the first run.
  return WithServer(files, workload.backend,
                    {alibi, "run", "--kernel", files.kernel, "--initrd", files.initrd, "--ram",
                     std::string(kRam) + "M", "--tc-cache", "none", "--engine", "translate",
                     "--net", NetOption(files, workload), "--append", CommandLine(operations)});
}

std::vector<std::string> QemuNetworkCommand(const NetworkFiles& files, const std::string& qemu,
                                            const Workload& workload,
                                            const std::vector<std::string>& operations) {
  std::vector<std::string> machine =
      QemuKernelCommand(qemu, kRam, files.kernel, files.initrd, CommandLine(operations));
  const auto net = QemuNetOptions(files, workload);
  machine.insert(machine.end(), net.begin(), net.end());
  return WithServer(files, workload.backend, machine);
}

std::vector<std::string> UmlNetworkCommand(const NetworkFiles& files, const UserModeLinux& uml,
                                           const std::vector<std::string>& operations) {
  return WithServer(
      files, kTapBackend,
      UmlCommand(uml, kRam,
                 {"initrd=" + files.initrd, "con0=fd:0,fd:1", kUmlCard, NettestWord(operations)}));
}

std::vector<std::string> NativeNetworkCommand(const NetworkFiles& files,
                                              const std::vector<std::string>& operations) {
  std::vector<std::string> command = {files.nettest};
  command.insert(command.end(), operations.begin(), operations.end());
  return WithServer(files, kUserBackend, command);
}

std::vector<std::string> AlibiTransmitCommand(const NetworkFiles& files, const std::string& alibi,
                                              const Workload& workload, bool quick) {
  return {alibi,         "run",
          "--engine",    "translate",
          "--net",       NetOption(files, workload),
          "--append",    quick ? "quick" : "full",
          files.transmit};
}

std::vector<std::string> QemuTransmitCommand(const NetworkFiles& files, const std::string& qemu,
                                             bool quick) {
  return {qemu,      "-accel",
          "tcg",     "-cpu",
          "max",     "-m",
          kRam,      "-display",
          "none",    "-no-reboot",
          "-serial", "stdio",
          "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
          "-nic",    "user,model=pcnet",
          "-kernel", files.transmit,
          "-append", quick ? "quick" : "full"};
}

Result<std::vector<Value>> ParseNetwork(const std::string& output,
                                        const std::vector<std::string>& names) {
  std::vector<Value> values;
  std::vector<std::string> missing = names;
  std::map<std::string, double> bits;
  struct Used {
    std::string name;
    double busiest, all;
  };
  std::vector<Used> used;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t mark = line.find("@nettest ");
    if (mark == std::string::npos) continue;
    char name[64];
    unsigned long long bytes, us, idle, user, system, busiest, all, samples[4];
    const char* text = line.c_str() + mark;
    if (std::sscanf(text, "@nettest host user=%llu system=%llu", &user, &system) == 2) {
      values.push_back({"host.user", static_cast<double>(user) / 1e6, "s"});
      values.push_back({"host.system", static_cast<double>(system) / 1e6, "s"});
    } else if (std::sscanf(text, "@nettest used %63[a-z0-9-] busiest=%llu all=%llu", name, &busiest,
                           &all) == 3) {
      used.push_back({name, static_cast<double>(busiest), static_cast<double>(all)});
    } else if (std::sscanf(text,
                           "@nettest sampled %63[a-z0-9-] translated=%llu program=%llu "
                           "libraries=%llu kernel=%llu",
                           name, &samples[0], &samples[1], &samples[2], &samples[3]) == 5) {
      const double sum = static_cast<double>(samples[0] + samples[1] + samples[2] + samples[3]);
      for (std::size_t i = 0; i < SampleKinds().size() && sum != 0; ++i) {
        values.push_back({fmt::format("{}.sampled.{}", name, SampleKinds()[i].metric),
                          static_cast<double>(samples[i]) / sum, "part"});
      }
    } else if (std::sscanf(text, "@nettest %63[a-z0-9-] bytes=%llu us=%llu idle=%llu", name, &bytes,
                           &us, &idle) == 4 &&
               us != 0) {
      const auto wanted = std::find(missing.begin(), missing.end(), name);
      if (wanted == missing.end()) continue;
      missing.erase(wanted);
      const double time = static_cast<double>(us);
      bits[name] = static_cast<double>(bytes) * 8;
      values.push_back({name, static_cast<double>(bytes) * 8 / time, "Mb/s"});
      values.push_back({std::string(name) + ".idle", static_cast<double>(idle) / time, "part"});
    }
  }
  // The order of the two lines of an operation is not fixed.
  for (const Used& each : used) {
    const auto found = bits.find(each.name);
    if (found == bits.end() || each.busiest == 0) continue;
    values.push_back({each.name + ".limit", found->second / each.busiest, "Mb/s"});
    values.push_back({each.name + ".all", found->second / each.all, "Mb/s"});
  }
  if (!missing.empty()) return Error{"no result of " + Join(missing, ", ")};
  return values;
}

const std::vector<TimeCategory>& SampleKinds() {
  static const std::vector<TimeCategory> kKinds = {
      {"translated", "translated code: the guest's own"},
      {"program", "the VMM: devices, callouts, the run loop, translating"},
      {"libraries", "libraries it calls"},
      {"kernel", "the host's kernel: system calls, interrupts"},
  };
  return kKinds;
}

const std::vector<TimeCategory>& TimeCategories() {
  static const std::vector<TimeCategory> kCategories = {
      {"time.guest", "guest code, and callouts that stay in the VMM"},
      {"time.translating", "translating it"},
      {"time.ports", "port accesses that devices serve: sending among them"},
      {"time.memory", "accesses to device memory: the APICs' among them"},
      {"time.news", "frames that come in, and other news of threads"},
      {"time.timers", "timers of devices"},
      {"time.idle", "the guest is idle: HLT"},
  };
  return kCategories;
}

Result<std::vector<Value>> Distribution(const std::string& stats, const std::string& boot_stats) {
  const auto all = ordered_json::parse(stats, nullptr, false);
  const auto boot = ordered_json::parse(boot_stats, nullptr, false);
  if (!all.is_object() || !boot.is_object()) return Error{"the counters are no JSON"};
  const auto of = [&](const char* counter) {
    return std::max(CounterOf(all, counter) - CounterOf(boot, counter), 0.0);
  };
  std::map<std::string, double> times;
  double known = 0;
  for (const Source& source : kTimes) {
    times[source.metric] += of(source.counter);
    known += of(source.counter);
  }
  times["time.guest"] = std::max(of("run_cycles") - known, 0.0);
  std::vector<Value> values;
  for (const TimeCategory& category : TimeCategories()) {
    values.push_back({category.metric, times[category.metric], "cycles"});
  }
  for (const char* counter : kCounts) {
    values.push_back({std::string("count.") + counter, of(counter), "count"});
  }
  return values;
}

}  // namespace alibi::bench::lab
