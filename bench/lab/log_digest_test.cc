// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/log_digest.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "adapt/log/writer.h"

namespace alibi::bench::lab {
namespace {

using adapt::Event;
using adapt::Kind;
using adapt::log::Record;
using adapt::log::RecordKind;
using adapt::log::Site;
using adapt::log::Writer;

constexpr u64 kHz = 1'000'000'000, kStart = 5'000'000'000;

std::string TempFile(const char* name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

class Log {
 public:
  explicit Log(const std::string& path) {
    adapt::log::Header header;
    header.tsc_hz = kHz;
    header.start_tsc = kStart;
    header.policy = "threshold(4)";
    header.prices = {3000, 100};
    auto writer = Writer::Create(path, header, 1 << 20);
    REQUIRE(writer.ok());
    writer_ = std::move(*writer);
  }
  Record& At(double seconds, RecordKind kind) {
    record_ = {};
    record_.kind = kind;
    record_.tsc = kStart + static_cast<u64>(seconds * kHz);
    return record_;
  }
  void Push() { REQUIRE(writer_->ring().Push(record_)); }
  void DefineSite(double seconds, u64 pc, u64 physical) {
    Site site;
    site.pc = LinearAddr(pc);
    site.physical = PhysAddr(physical);
    site.length = 3;
    site.bytes[0] = 0x48;
    site.bytes[1] = 0x89;
    site.bytes[2] = 0x37;
    const Record record = RecordOf(site);
    At(seconds, RecordKind::kSite) = record;
    record_.tsc = kStart + static_cast<u64>(seconds * kHz);
    Push();
  }
  void Happen(double seconds, u32 site, bool trapped, u32 cycles, Kind before, Kind after) {
    Record& record = At(seconds, before == after ? RecordKind::kOccurrence : RecordKind::kVerdict);
    record.site = site;
    record.event = trapped ? Event::kTraceFault : Event::kCleanCallout;
    record.flag = trapped;
    record.cycles = cycles;
    record.before = before;
    record.after = after;
    Push();
  }
  void Finish(double seconds) {
    REQUIRE(writer_->Finish(kStart + static_cast<u64>(seconds * kHz), {}).ok());
  }

 private:
  std::unique_ptr<Writer> writer_;
  Record record_;
};

TEST_CASE("A log's digest counts events, prices them, and knows how sites ended") {
  const std::string path = TempFile("digest.log");
  {
    Log log(path);
    log.DefineSite(0.001, 0x1000, 0x5000);
    log.DefineSite(0.001, 0x2000, 0x6000);
    log.Happen(0.002, 0, true, 500, Kind::kDirect, Kind::kDirect);
    log.Happen(0.003, 0, true, 700, Kind::kDirect, Kind::kSimulate);
    log.Happen(0.500, 0, false, 50, Kind::kSimulate, Kind::kSimulate);
    log.Happen(0.600, 1, true, 10, Kind::kDirect, Kind::kChecked);
    log.Happen(0.900, 1, false, 20, Kind::kChecked, Kind::kDirect);
    Record& made = log.At(0.950, RecordKind::kTranslation);
    made.why = adapt::log::Why::kVerdict;
    made.number = 7;
    made.value = 20;
    made.more = 160;
    made.cycles = 9000;
    log.Push();
    // Its page was forgotten: the same instruction gets another number.
    log.DefineSite(0.960, 0x1000, 0x5000);
    log.Happen(0.970, 2, true, 300, Kind::kDirect, Kind::kDirect);
    log.Finish(1.0);
  }
  const auto made = DigestLog(path, [](const Site& site) {
    return "at " + std::to_string(site.pc.value) + " of " + std::to_string(site.length);
  });
  INFO((made.ok() ? "" : made.error().message));
  REQUIRE(made.ok());
  const LogDigest& digest = made.value();
  CHECK(digest.damage == "");
  CHECK(digest.lost == 0);
  CHECK(digest.policy == "threshold(4)");
  CHECK(digest.seconds == Approx(1.0));
  CHECK(digest.traps.at(EventName(Event::kTraceFault)) == Tally{4, 4 * 3000 + 1510});
  CHECK(digest.callouts.at(EventName(Event::kCleanCallout)) == Tally{2, 2 * 100 + 70});
  CHECK(digest.translations.at("verdict") == TranslationTally{1, 7, 20, 160, 9000});
  CHECK(digest.sites == std::map<std::string, u64>{{"DIRECT", 2}});
  REQUIRE(digest.guiltiest.size() == 2);
  CHECK(digest.guiltiest[0] == GuiltySite{LinearAddr(0x1000), PhysAddr(0x5000), "DIRECT",
                                          "at 4096 of 3", "488937", 3, 1, 3 * 3000 + 100 + 1550, 1,
                                          0});
  CHECK(digest.guiltiest[1].adaptations == 1);
  CHECK(digest.guiltiest[1].reversions == 1);
  // 1 ms at first; one second does not fit into 240 of them.
  CHECK(digest.interval_seconds == Approx(0.008));
  REQUIRE(digest.intervals.size() == 126);
  CHECK(digest.intervals[0] == Interval{2, 0, 1, 0});
  CHECK(digest.intervals[62] == Interval{0, 1, 0, 0});
  u64 traps = 0;
  for (const Interval& interval : digest.intervals) traps += interval.traps;
  CHECK(traps == 4);
}

TEST_CASE("A log without its end gives what it has, and says so; what is no log is an error") {
  const std::string path = TempFile("cut.log");
  {
    Log log(path);
    log.DefineSite(0.001, 0x1000, 0x5000);
    log.Happen(0.002, 0, true, 500, Kind::kDirect, Kind::kDirect);
    log.Finish(0.1);
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const auto cut = DigestLog(path, nullptr);
  REQUIRE(cut.ok());
  CHECK(cut.value().damage != "");
  std::filesystem::resize_file(path, 4);
  CHECK_FALSE(DigestLog(path, nullptr).ok());
  CHECK_FALSE(DigestLog(TempFile("absent.log"), nullptr).ok());
}

}  // namespace
}  // namespace alibi::bench::lab
