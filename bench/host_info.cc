// SPDX-License-Identifier: Apache-2.0
#include "bench/host_info.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "base/types.h"
#include "bench/child_process.h"

namespace alibi::bench {
namespace {

// The value of a `name<tab>: value` line.
std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// What the kernel says of it, "Mitigation: PTI" if it isolates its page tables.
std::string Meltdown() {
  std::ifstream file("/sys/devices/system/cpu/vulnerabilities/meltdown");
  std::string line;
  return std::getline(file, line) ? line : "unknown";
}

u64 MeasureTscHz() {
  const auto before = std::chrono::steady_clock::now();
  const u64 begin = __rdtsc();
  usleep(50'000);
  const u64 end = __rdtsc();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - before;
  // Calibrated crystals are whole megahertz; the rest of our digits is the sleep's jitter.
  return static_cast<u64>(std::round(static_cast<double>(end - begin) / elapsed.count() / 1e6)) *
         1'000'000;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

nlohmann::ordered_json DescribeHost(const std::string& qemu) {
  nlohmann::ordered_json host;
  host["cpu"] = CpuModel();
  utsname name;
  host["kernel"] = uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "unknown";
  host["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  host["meltdown"] = Meltdown();
  host["tsc_hz"] = MeasureTscHz();
  char now[32];
  const time_t seconds = time(nullptr);
  tm utc;
  strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
  host["time"] = now;
  nlohmann::ordered_json versions;
  versions["compiler"] = "gcc " __VERSION__;
  if (!qemu.empty()) {
    versions["qemu"] = FirstLine(RunChild({qemu, "--version"}, std::chrono::seconds(5)).output);
  }
  host["versions"] = std::move(versions);
  return host;
}

}  // namespace alibi::bench
