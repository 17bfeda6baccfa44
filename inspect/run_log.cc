// SPDX-License-Identifier: Apache-2.0
#include "inspect/run_log.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <x86intrin.h>

#include <chrono>
#include <cstring>

#include "alibi/version.h"
#include "direct/direct_execution.h"
#include "inspect/stats.h"

namespace alibi::vmm {
namespace {

// SDM vol. 2, CPUID, figure 3-9: the brand string's 48 bytes, padded with spaces.
std::string HostCpu() {
  char text[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned registers[4];
    if (__get_cpuid(0x80000002 + i, &registers[0], &registers[1], &registers[2], &registers[3]) ==
        0) {
      return "unknown";
    }
    std::memcpy(text + 16 * i, registers, sizeof(registers));
  }
  std::string name = text;
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  return name;
}

}  // namespace

Result<std::unique_ptr<RunLog>> RunLog::Create(const std::string& path, u64 most_bytes,
                                               PcMachine& machine,
                                               const RunDescription& description) {
  adapt::log::Header header;
  header.tsc_hz = machine.time_base().hz;
  header.start_tsc = machine.time_base().origin_tsc;
  const u64 unix_ns = static_cast<u64>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
  header.start_unix_ns = unix_ns - machine.time_base().Ns(__rdtsc());
  header.program = std::string("alibi ") + ALIBI_VERSION;
  header.host_cpu = HostCpu();
  header.policy = description.policy;
  header.engine = runtime::NameOf(machine.machine().engine_kind());
  header.engine_policy = description.engine_policy;
  header.image = description.image;
  header.command = description.command_line;
  const adapt::Prices& prices = machine.machine().translator()->prices();
  header.prices = {.trap = prices.trap, .callout = prices.callout};
  if (direct::DirectExecution* const direct = machine.machine().translator()->direct()) {
    // Without satellites there will be none: the prices stay 0.
    (void)direct->Begin();
    header.prices.stop = direct->prices().stop;
    header.prices.call = direct->prices().call;
  }
  auto writer = adapt::log::Writer::Create(path, header, most_bytes);
  if (!writer.ok()) return writer.error();
  std::unique_ptr<RunLog> log(new RunLog(machine));
  log->path_ = path;
  log->writer_ = std::move(*writer);
  machine.machine().engine().set_event_log(&log->writer_->ring());
  return log;
}

RunLog::~RunLog() {
  if (!finished_) (void)Finish();
}

Status RunLog::Finish() {
  finished_ = true;
  machine_.machine().engine().set_event_log(nullptr);
  return writer_->Finish(__rdtsc(), AllCounters(machine_.machine()));
}

std::string RunLog::Missing() const {
  if (writer_->lost() == 0 && writer_->left_out() == 0) return "";
  return fmt::format("{}: {} events; {} more came too fast, and {} did not fit: see --log-size",
                     path_, writer_->written(), writer_->lost(), writer_->left_out());
}

}  // namespace alibi::vmm
