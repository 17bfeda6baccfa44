// SPDX-License-Identifier: Apache-2.0
// alibi log: what happened in a run that was recorded with --log.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "adapt/log/reader.h"
#include "adapt/log/summary.h"
#include "cli/cli.h"
#include "inspect/log_columns.h"

namespace alibi::vmm {
namespace {

using adapt::log::KindBit;
using adapt::log::Reader;
using adapt::log::Record;
using adapt::log::RecordKind;
using adapt::log::Summary;

struct LogOptions {
  std::string file;
  std::vector<std::string> kinds;
  std::vector<std::string> sites;
  unsigned top = 10;
  bool json = false;
  bool csv = false;
};

struct KindRow {
  const char* name;
  const char* what;
  RecordKind kind;
};
constexpr KindRow kKinds[] = {
#define ALIBI_LOG_RECORD(enumerator, number, name, what) {name, what, RecordKind::enumerator},
#include "adapt/log/record_kinds.inc"
#undef ALIBI_LOG_RECORD
};

std::string KindHelp() {
  std::string text = "only these kinds of records, separated by commas:";
  for (const KindRow& row : kKinds) text += fmt::format("\n  {:<14} {}", row.name, row.what);
  return text;
}

// Which records are shown.
class Filter {
 public:
  Status Parse(const LogOptions& options) {
    kinds_ = options.kinds.empty() ? adapt::log::kAllKinds : 0;
    for (const std::string& name : options.kinds) {
      const auto* row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                     [&](const KindRow& kind) { return name == kind.name; });
      if (row == std::end(kKinds)) {
        return Error{fmt::format("--kind: there is no kind '{}'; --help shows all", name)};
      }
      kinds_ |= KindBit(row->kind);
    }
    for (const std::string& text : options.sites) {
      char* end = nullptr;
      errno = 0;
      const u64 value = std::strtoull(text.c_str(), &end, 0);
      if (text.empty() || *end != '\0' || errno != 0) {
        return Error{
            fmt::format("--site: '{}' is neither a site's number nor its PC, such as "
                        "0xffffffff81000000",
                        text)};
      }
      (text.starts_with("0x") ? pcs_ : numbers_).push_back(value);
    }
    return Ok{};
  }

  bool Shows(const Record& record) const {
    if (!(kinds_ & KindBit(record.kind))) return false;
    if (pcs_.empty() && numbers_.empty()) return true;
    const auto has = [](const std::vector<u64>& list, u64 value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    return record.site != adapt::log::kNoSite &&
           (has(numbers_, record.site) || has(pcs_, record.pc.value));
  }

 private:
  u32 kinds_ = 0;
  std::vector<u64> pcs_, numbers_;
};

double Seconds(u64 tsc, const adapt::log::Header& header) {
  return static_cast<double>(LogNs(tsc, header)) / 1e9;
}

u64 Mean(const adapt::log::Tally& tally) {
  return tally.count == 0 ? 0 : tally.cycles / tally.count;
}

void PrintOccurrences(const Summary& sum) {
  fmt::print("\n{:<18} {:>10} {:>14} {:>10} {:>14}\n", "event", "traps", "cycles each", "callouts",
             "cycles each");
  for (unsigned i = 0; i < adapt::kEventCount; ++i) {
    const adapt::log::Tally &traps = sum.traps[i], &callouts = sum.callouts[i];
    if (traps.count + callouts.count == 0) continue;
    fmt::print("{:<18} {:>10} {:>14} {:>10} {:>14}\n",
               adapt::EventName(static_cast<adapt::Event>(i)), traps.count, Mean(traps),
               callouts.count, Mean(callouts));
  }
  fmt::print(
      "{} convictions, {} acquittals, {} sites to table look-up, {} alone; {} address spaces\n",
      sum.convictions, sum.acquittals, sum.relookups, sum.ungroupings, sum.address_spaces.size());
}

void PrintTranslations(const Summary& sum) {
  fmt::print("\n{:<18} {:>10} {:>14}\n", "translation", "count", "cycles each");
  for (unsigned i = 0; i < adapt::log::kWhyCount; ++i) {
    if (sum.translations[i].count == 0) continue;
    fmt::print("{:<18} {:>10} {:>14}\n", WhyName(static_cast<adapt::log::Why>(i)),
               sum.translations[i].count, Mean(sum.translations[i]));
  }
  fmt::print(
      "{} instructions, {} bytes to {}; {} overwritten, {} pages forgotten, {} flushes ({} "
      "of the site table, too)\n",
      sum.translated_instructions, sum.translated_guest_bytes, sum.emitted_bytes, sum.overwritten,
      sum.forgotten_pages, sum.flushes, sum.site_table_flushes);
  std::string faults;
  for (unsigned vector = 0; vector < std::size(sum.faults); ++vector) {
    if (sum.faults[vector] != 0) faults += fmt::format(" {:#x}: {}", vector, sum.faults[vector]);
  }
  if (!faults.empty()) fmt::print("faults delivered, by vector:{}\n", faults);
}

void PrintEngines(const Summary& sum) {
  if (sum.user_spaces == 0) return;
  fmt::print("\n{:<18} {:>10} {:>14}\n", "user code", "count", "cycles each");
  for (unsigned i = 0; i < adapt::kEngineEventCount; ++i) {
    const adapt::log::EngineTally& tally = sum.engine_events[i];
    if (tally.count == 0) continue;
    fmt::print("{:<18} {:>10} {:>14}\n",
               adapt::EngineEventName(static_cast<adapt::EngineEvent::Kind>(i)), tally.count,
               tally.cycles / tally.count);
  }
  fmt::print(
      "{} stops of direct runs, {} of them for mappings, {} mapping calls; {} verdicts to run "
      "directly, {} to translate; {} address spaces\n",
      sum.direct_stops, sum.direct_faults, sum.mapping_calls, sum.to_direct, sum.to_translation,
      sum.user_spaces);
}

void PrintSites(const Summary& sum, const Reader& reader, unsigned top) {
  const std::vector<u32> worst = sum.Guiltiest(reader.header().prices, top);
  if (worst.empty()) return;
  fmt::print(
      "\n{} sites misbehaved; the guiltiest:\n{:>6} {:>18}  {:<8} {:>9} {:>10} {:>6} {:>6} "
      "{:>14}  instruction\n",
      sum.sites.size(), "site", "pc", "kind", "traps", "callouts", "adapt", "revert", "cycles");
  for (const u32 index : worst) {
    const adapt::log::SiteSummary& site = sum.sites[index];
    const adapt::log::Site& known = reader.sites()[index];
    fmt::print("{:>6} {:>#18x}  {:<8} {:>9} {:>10} {:>6} {:>6} {:>14}  {}\n", index, known.pc.value,
               adapt::KindName(site.kind), site.traps.count, site.callouts.count, site.convictions,
               site.acquittals, site.Cycles(reader.header().prices), InstructionText(known));
  }
}

void PrintSummary(const Summary& sum, const Reader& reader, unsigned top) {
  const adapt::log::Header& header = reader.header();
  fmt::print("{} on {}, policy {}\n{}{}{}\n", header.program, header.host_cpu, header.policy,
             header.image, header.command.empty() ? "" : ": ", header.command);
  fmt::print("prices here: {} cycles a trap, {} a callout", header.prices.trap,
             header.prices.callout);
  if (header.prices.stop != 0) {
    fmt::print(", {} a stop of direct execution, {} a mapping call", header.prices.stop,
               header.prices.call);
  }
  fmt::print("\n");
  if (!header.engine_policy.empty()) {
    fmt::print("engine {}, its policy {}\n", header.engine, header.engine_policy);
  }
  fmt::print("{} records in {} bytes, until {:.3f} s\n", sum.records, reader.offset(),
             Seconds(sum.last_tsc, header));
  if (sum.lost != 0) fmt::print("{} more are lost: they came too fast\n", sum.lost);
  if (sum.left_out != 0) {
    fmt::print("{} more did not fit: what follows is not all of the run\n", sum.left_out);
  }
  PrintOccurrences(sum);
  PrintTranslations(sum);
  PrintEngines(sum);
  PrintSites(sum, reader, top);
}

}  // namespace

int CmdLog(int argc, char** argv) {
  LogOptions options;
  CLI::App app(
      "Shows what happened in a run that was recorded with --log: in sum, or record by record.\n"
      "docs/event_log.md has the columns.");
  app.add_option("FILE", options.file, "the log")->required();
  app.add_flag("--json", options.json, "each record as a JSON object, one per line");
  app.add_flag("--csv", options.csv, "each record as a row, with a first one of names");
  app.add_option("--kind", options.kinds, KindHelp())->type_name("KINDS")->delimiter(',');
  app.add_option("--site", options.sites,
                 "only records of these sites: numbers, or PCs with 0x in front")
      ->type_name("SITES")
      ->delimiter(',');
  app.add_option("--top", options.top, "so many of the guiltiest sites")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "log", argc, argv)) return *status;
  if (options.json && options.csv) return Fail(kUsage, "give --json or --csv, not both");
  const bool rows = options.json || options.csv;
  if (!rows && !(options.kinds.empty() && options.sites.empty())) {
    return Fail(kUsage, "--kind and --site choose rows: give --json or --csv as well");
  }
  Filter filter;
  if (const Status parsed = filter.Parse(options); !parsed.ok()) {
    return Fail(kUsage, parsed.error().message);
  }
  if (access(options.file.c_str(), R_OK) != 0) {
    return Fail(kNoInput, fmt::format("{}: {}", options.file, std::strerror(errno)));
  }
  auto opened = Reader::Open(options.file);
  if (!opened.ok()) return Fail(kBadImage, opened.error().message);
  Reader& reader = **opened;

  Summary sum;
  if (options.csv) fmt::print("{}\n", CsvHead());
  Record record;
  auto more = reader.Next(&record);
  for (; more.ok() && more.value(); more = reader.Next(&record)) {
    if (!rows) {
      sum.Add(record);
    } else if (filter.Shows(record)) {
      fmt::print("{}\n", options.csv ? CsvRow(record, reader) : JsonRow(record, reader));
    }
  }
  if (!rows) PrintSummary(sum, reader, options.top);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Fail(kOutputFailed,
                "the report cannot be written; is its reader gone, or the disk full?");
  }
  if (more.ok()) return kSuccess;
  return Fail(kBadImage,
              more.error().message + (reader.truncated() ? "; what is there was read" : ""));
}

}  // namespace alibi::vmm
