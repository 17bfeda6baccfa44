// SPDX-License-Identifier: Apache-2.0
// A run's event log agrees with the engine's own counters, ends in order whenever the run does, and
// is of use when it does not; `alibi log` shows it.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapt/log/reader.h"
#include "adapt/log/summary.h"
#include "adapt/log/writer.h"

namespace alibi {
namespace {

using adapt::Event;
using adapt::log::Reader;
using adapt::log::Record;
using adapt::log::RecordKind;
using adapt::log::Summary;
using adapt::log::Why;

std::string TempFile(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

pid_t Start(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {std::getenv("ALIBI")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    const int out = open(TempFile("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err = open(TempFile("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return child;
}

int Wait(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int Call(const std::vector<std::string>& arguments) { return Wait(Start(arguments)); }
std::string Out() { return Contents(TempFile("out")); }
std::string Err() { return Contents(TempFile("err")); }

// A multiboot kernel by its header's own addresses: header, then code, loaded at 1 MB.
std::string FlatKernel(const std::string& name, const std::vector<u8>& code) {
  constexpr u32 kMagic = 0x1badb002, kHasAddresses = 1u << 16, kHeaderBytes = 32, kLoad = 0x100000;
  const u32 end = kLoad + kHeaderBytes + static_cast<u32>(code.size());
  const u32 header[] = {kMagic, kHasAddresses, 0 - (kMagic + kHasAddresses), kLoad, kLoad,
                        end,    end,           kLoad + kHeaderBytes};
  const std::string path = TempFile(name);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header), sizeof(header));
  file.write(reinterpret_cast<const char*>(code.data()), static_cast<std::streamsize>(code.size()));
  return path;
}

// Runs a guest that stores to its own page for ever (mov [0x100100], al; jmp), and waits until
// there is something in its log.
pid_t StartBusy(const std::string& log) {
  unlink(log.c_str());
  const std::string kernel = FlatKernel("busy", {0xa2, 0x00, 0x01, 0x10, 0x00, 0xeb, 0xf9});
  const pid_t child = Start({"run", "--log", log, kernel});
  for (unsigned tries = 0; tries < 600 && Contents(log).size() < 100'000; ++tries) usleep(50'000);
  return child;
}

struct Log {
  Summary sum;
  std::vector<adapt::log::Site> sites;
  std::map<std::string, u64> counters;
  adapt::log::Header header;
  std::string error;
  bool truncated = false;
};

Log ReadLog(const std::string& path) {
  Log log;
  auto reader = Reader::Open(path);
  INFO((reader.ok() ? "" : reader.error().message));
  REQUIRE(reader.ok());
  Record record;
  auto more = (*reader)->Next(&record);
  for (; more.ok() && more.value(); more = (*reader)->Next(&record)) log.sum.Add(record);
  if (!more.ok()) log.error = more.error().message;
  log.truncated = (*reader)->truncated();
  log.sites = (*reader)->sites();
  log.counters.insert((*reader)->counters().begin(), (*reader)->counters().end());
  log.header = (*reader)->header();
  return log;
}

u64 Count(const Log& log, Event event, bool trapped) {
  const auto index = static_cast<unsigned>(event);
  return (trapped ? log.sum.traps : log.sum.callouts)[index].count;
}

u64 Translations(const Log& log, Why why) {
  return log.sum.translations[static_cast<unsigned>(why)].count;
}

void CheckAgreement(const Log& log) {
  const auto counter = [&log](const std::string& name) {
    REQUIRE(log.counters.count("runtime." + name) == 1);
    return log.counters.at("runtime." + name);
  };
  CHECK(log.error.empty());
  REQUIRE(log.sum.complete);
  REQUIRE(log.sum.lost == 0);
  CHECK(Count(log, Event::kTruePageFault, true) == counter("host_faults_true"));
  CHECK(Count(log, Event::kTraceFault, true) == counter("host_faults_trace"));
  CHECK(Count(log, Event::kArithmetic, true) <= counter("host_faults_arithmetic"));
  u64 callouts = 0;
  for (const adapt::log::Tally& tally : log.sum.callouts) callouts += tally.count;
  CHECK(callouts <= counter("checked_callouts") + counter("bounce_callouts") +
                        counter("store_callouts") + counter("raise_callouts"));
  CHECK(log.sum.convictions == counter("adaptations"));
  CHECK(log.sum.acquittals == counter("reversions"));
  CHECK(log.sum.relookups == counter("lookup_changes"));
  CHECK(log.sum.flushes == counter("tc_flushes"));
  CHECK(log.sum.site_table_flushes == counter("site_table_flushes"));
  CHECK(log.sum.overwritten == counter("ccf_invalidations"));
  u64 translations = 0;
  for (const adapt::log::Tally& tally : log.sum.translations) translations += tally.count;
  CHECK(Translations(log, Why::kRevived) == counter("ccf_revivals"));
  CHECK(translations - Translations(log, Why::kRevived) == counter("translations"));
  CHECK(log.sum.translated_instructions == counter("translated_instructions"));
  CHECK(log.sum.translated_guest_bytes == counter("translated_guest_bytes"));
  CHECK(log.sum.emitted_bytes == counter("emitted_bytes"));
  u64 faults = 0;
  for (const u64 count : log.sum.faults) faults += count;
  CHECK(faults <= counter("exceptions_delivered"));  // debug traps are no faults
}

TEST_CASE("The log of a run agrees with the engine's counters, site by site") {
  const std::string path = TempFile("run.log"), stats = TempFile("stats.json");
  u64 acquittals = 0, forgotten = 0, divides = 0;
  // On a busy host the drain thread may come too late: such a run says nothing here.
  const auto run = [&](const char* kernel, const char* policy) {
    Log log;
    for (unsigned tries = 0; tries < 5 && (tries == 0 || log.sum.lost != 0); ++tries) {
      REQUIRE(Call({"run", std::getenv(kernel), "--policy", policy, "--log", path, "--stats-json",
                    stats, "--append", "quick"}) == 1);
      log = ReadLog(path);
    }
    return log;
  };
  for (const char* kernel : {"PAGING", "SMC", "EXCEPTIONS", "RESET"}) {
    for (const char* policy : {"never", "threshold(1)", "hysteresis(2,4)"}) {
      INFO(kernel << " " << policy);
      const Log log = run(kernel, policy);
      CheckAgreement(log);
      CHECK(log.header.policy == policy);
      CHECK(log.header.image == std::getenv(kernel));
      CHECK(log.header.command == "quick");
      acquittals += log.sum.acquittals;
      forgotten += log.sum.forgotten_pages;
      divides += Count(log, Event::kArithmetic, true);
      // A site may have more than one number, when its page was forgotten in between.
      std::map<std::pair<std::string, std::string>, std::pair<u64, u64>> known;
      for (std::size_t i = 0; i < log.sites.size(); ++i) {
        char pc[24], physical[24];
        std::snprintf(pc, sizeof(pc), "%#llx",
                      static_cast<unsigned long long>(log.sites[i].pc.value));
        std::snprintf(physical, sizeof(physical), "%#llx",
                      static_cast<unsigned long long>(log.sites[i].physical.value));
        auto& [traps, callouts] = known[{pc, physical}];
        traps += log.sum.sites[i].traps.count;
        callouts += log.sum.sites[i].callouts.count;
      }
      const nlohmann::json json = nlohmann::json::parse(Contents(stats));
      for (const nlohmann::json& site : json["sites"]) {
        INFO(site.dump());
        const auto found = known.find({site["pc"], site["phys"]});
        if (site["traps"].get<u64>() + site["callouts"].get<u64>() == 0) continue;
        REQUIRE(found != known.end());
        CHECK(found->second.first >= site["traps"].get<u64>());
        CHECK(found->second.second >= site["callouts"].get<u64>());
      }
    }
  }
  CHECK(acquittals > 0);
  CHECK(forgotten > 0);
  CHECK(divides > 0);
}

TEST_CASE("Whatever ends a run in order, its log is complete") {
  const std::string path = TempFile("ends.log");
  const std::string triple_fault = FlatKernel("ud2", {0x0f, 0x0b});
  REQUIRE(Call({"run", "--no-reboot", "--log", path, triple_fault}) == 80);
  Log log = ReadLog(path);
  CheckAgreement(log);
  CHECK(log.sum.faults[6] == 1);

  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const pid_t child = StartBusy(path);
    kill(child, signal);
    CHECK(Wait(child) == 128 + signal);
    log = ReadLog(path);
    CHECK(log.error.empty());
    REQUIRE(log.sum.complete);
    const u64 recorded =
        Count(log, Event::kTraceFault, true) + Count(log, Event::kTraceFault, false);
    CHECK(recorded > 1000);
    // Nothing is missing that is not counted.
    CHECK(recorded + log.sum.lost >= log.counters.at("runtime.store_callouts"));
  }
}

TEST_CASE("A killed process leaves a log that is sound as far as it goes") {
  const std::string path = TempFile("killed.log");
  const pid_t child = StartBusy(path);
  kill(child, SIGKILL);
  CHECK(Wait(child) == 1000 + SIGKILL);
  const Log log = ReadLog(path);
  CHECK(log.truncated);
  CHECK(log.sum.records > 1000);
  CHECK(Call({"log", path}) == 65);
  CHECK(Err().find("truncated at byte " + std::to_string(Contents(path).size())) !=
        std::string::npos);
  CHECK(Out().find("MOV byte ptr [0x100100], al") != std::string::npos);
}

TEST_CASE("A log keeps to --log-size, and says what did not fit") {
  const std::string path = TempFile("small.log");
  REQUIRE(Call({"run", "--log-size", "64K", "--log", path, std::getenv("PAGING")}) == 1);
  CHECK(Contents(path).size() <= 64 << 10);
  const Log log = ReadLog(path);
  CHECK(log.sum.complete);
  CHECK(log.sum.left_out > 0);
  CHECK(Err().find("--log-size") != std::string::npos);
  CHECK(log.counters.at("runtime.translations") > 0);
}

TEST_CASE("alibi log: rows as CSV and JSON, and their filters") {
  const std::string path = TempFile("rows.log");
  REQUIRE(Call({"run", "--policy", "threshold(1)", "--log", path, std::getenv("PAGING")}) == 1);
  const Log log = ReadLog(path);
  REQUIRE(Call({"log", "--csv", path}) == 0);
  const std::string csv = Out();
  const std::string head = csv.substr(0, csv.find('\n'));
  CHECK(static_cast<u64>(std::count(csv.begin(), csv.end(), '\n')) == log.sum.records + 1);
  const std::string docs = Contents(std::getenv("DOCS"));
  for (std::size_t at = 0; at <= head.size();) {
    const std::size_t end = std::min(head.find(',', at), head.size());
    INFO(head.substr(at, end - at) << " is in docs/event_log.md");
    CHECK(docs.find("`" + head.substr(at, end - at) + "`") != std::string::npos);
    at = end + 1;
  }

  REQUIRE(Call({"log", "--json", "--kind", "verdict,end", path}) == 0);
  std::ifstream lines(TempFile("out"));
  u64 verdicts = 0;
  nlohmann::json last;
  std::string pc;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    if (last["record"] != "verdict") continue;
    ++verdicts;
    CHECK(last["from"] != last["to"]);
    pc = last["pc"];
  }
  CHECK(verdicts == log.sum.convictions + log.sum.acquittals);
  CHECK(last["record"] == "end");
  CHECK(last["counters"]["runtime.adaptations"] == log.sum.convictions);

  REQUIRE(Call({"log", "--json", "--site", pc, path}) == 0);
  CHECK(Out().find("\"" + pc + "\"") != std::string::npos);
  std::ifstream of_site(TempFile("out"));
  for (std::string line; std::getline(of_site, line);) {
    CHECK(nlohmann::json::parse(line)["pc"] == pc);
  }
  REQUIRE(Call({"log", "--top", "1", path}) == 0);
  CHECK(Out().find("convictions") != std::string::npos);
}

TEST_CASE("alibi log and --log: what is wrong is said on one line") {
  const std::string path = TempFile("wrong.log");
  adapt::log::Header header;
  header.tsc_hz = 1;
  auto writer = adapt::log::Writer::Create(path, header, adapt::log::kLeastLogBytes);
  REQUIRE(writer.ok());
  REQUIRE((*writer)->Finish(0, {}).ok());
  const std::string whole = Contents(path);
  const auto variant = [&](const char* name, const std::string& bytes) {
    const std::string file = TempFile(name);
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  };
  std::string newer = whole, damaged = whole;
  newer[8] = 9;
  damaged[whole.size() - 1] ^= 1;
  struct Case {
    std::vector<std::string> arguments;
    int status;
    const char* mentions;
  };
  const std::string hello = std::getenv("HELLO");
  const Case cases[] = {
      {{"log"}, 64, "FILE"},
      {{"log", path, "--csv", "--json"}, 64, "--json"},
      {{"log", path, "--kind", "end"}, 64, "--kind"},
      {{"log", path, "--csv", "--kind", "tea"}, 64, "tea"},
      {{"log", path, "--csv", "--site", "0xg"}, 64, "0xg"},
      {{"log", TempFile("missing.log")}, 66, "No such file"},
      {{"log", hello}, 65, "wrong magic"},
      {{"log", variant("newer.log", newer)}, 65, "version 9; this Alibi reads versions up to 3"},
      {{"log", variant("damaged.log", damaged)}, 65, "damaged at byte"},
      {{"log", variant("cut.log", whole.substr(0, 40))}, 65, "truncated at byte 40"},
      {{"log", path}, 0, ""},
      {{"run", hello, "--log", TempFile("no/such.log")}, 73, "cannot be written"},
      {{"run", hello, "--log", "/dev/full"}, 73, "No space left"},
      {{"run", hello, "--log", path, "--log-size", "1K"}, 64, "--log-size"},
      {{"run", hello, "--log", path, "--log-size", "much"}, 64, "--log-size"},
  };
  for (const Case& wrong : cases) {
    INFO(wrong.arguments.back() << " " << wrong.mentions);
    CHECK(Call(wrong.arguments) == wrong.status);
    const std::string err = Err();
    CHECK(err.find(wrong.mentions) != std::string::npos);
    CHECK(std::count(err.begin(), err.end(), '\n') == (wrong.status != 0));
  }
}

}  // namespace
}  // namespace alibi
