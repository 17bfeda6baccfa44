// SPDX-License-Identifier: Apache-2.0
// Event logs, from the ring to the file and back; and files that are not as they should be.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "adapt/log/reader.h"
#include "adapt/log/ring.h"
#include "adapt/log/writer.h"

namespace alibi::adapt::log {
namespace {

constexpr u64 kStart = 1'000'000'000'000;
constexpr RecordKind kKinds[] = {
#define ALIBI_LOG_RECORD(enumerator, number, name, what) RecordKind::enumerator,
#include "adapt/log/record_kinds.inc"
#undef ALIBI_LOG_RECORD
};

std::string TempFile(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A file in memory, for contents by the thousand.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("log", MFD_CLOEXEC)) { REQUIRE(fd_ >= 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void Become(const std::string& bytes) {
    REQUIRE(ftruncate(fd_, 0) == 0);
    REQUIRE(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int fd_;
};

Header SomeHeader() {
  Header header;
  header.tsc_hz = 2'100'000'000;
  header.start_tsc = kStart;
  header.start_unix_ns = 1'700'000'000'000'000'000;
  header.program = "alibi test";
  header.host_cpu = "a CPU";
  header.policy = "hysteresis(2,256)";
  header.engine = "auto";
  header.engine_policy = "./mine.so(5)";
  header.image = "a \"kernel\"\n";
  header.command = "console=ttyS0";
  header.prices = {3400, 120, 21'000, 9'000};
  return header;
}

const FinalCounters kCounters = {{"host_faults", 17}, {"adaptations", ~u64{0}}, {"", 0}};

// Records of all kinds as the engine makes them: with what the kind says, and with extremes.
class RecordMaker {
 public:
  explicit RecordMaker(u64 seed) : random_(seed) {}

  Record Make(RecordKind kind) {
    Record record;
    record.kind = kind;
    record.tsc = tsc_ += Pick(4) == 0 ? Number() >> 8 : Pick(10'000);
    if (Pick(8) == 0) cr3_ = Number();
    record.cr3 = cr3_;
    switch (kind) {
      case RecordKind::kVerdict:
      case RecordKind::kOccurrence:
        NameSite(&record);
        record.event = static_cast<Event>(Pick(kEventCount));
        record.flag = Pick(2);
        record.cycles = static_cast<u32>(Number());
        record.before = static_cast<Kind>(Pick(3));
        record.after = kind == RecordKind::kVerdict ? static_cast<Kind>(Pick(3)) : record.before;
        break;
      case RecordKind::kSite: {
        Site site;
        site.pc = LinearAddr(Number());
        site.physical = PhysAddr(Number());
        site.kind = static_cast<Kind>(Pick(3));
        site.access = static_cast<Access>(Pick(kAccessCount));
        site.code_bits = static_cast<u8>(16 << Pick(3));
        site.length = static_cast<u8>(Pick(kMaxInstructionBytes + 1));
        for (unsigned i = 0; i < site.length; ++i) site.bytes[i] = static_cast<u8>(Pick(256));
        const Record encoded = RecordOf(site);
        CHECK(SiteOf(encoded) == site);
        const u64 tsc = record.tsc, cr3 = record.cr3;
        record = encoded;
        record.tsc = tsc;
        record.cr3 = cr3;
        record.site = static_cast<u32>(sites_.size());
        sites_.push_back(site);
        break;
      }
      case RecordKind::kTranslation:
        record.pc = LinearAddr(Number());
        record.physical = PhysAddr(Number());
        record.value = Number();
        record.more = Number();
        record.cycles = static_cast<u32>(Number());
        record.number = static_cast<u8>(Pick(256));
        record.extra = static_cast<u8>(Pick(256));
        record.why = static_cast<Why>(Pick(kWhyCount));
        record.flag = Pick(2);
        break;
      case RecordKind::kFault:
        record.pc = LinearAddr(Number());
        record.value = Number();
        record.more = Number();
        record.number = static_cast<u8>(Pick(256));
        record.flag = Pick(2);
        break;
      case RecordKind::kOverwritten:
        record.pc = LinearAddr(Number());
        record.physical = PhysAddr(Number());
        record.value = Number();
        record.more = Number();
        break;
      case RecordKind::kForgottenPage:
        record.physical = PhysAddr(Number());
        break;
      case RecordKind::kFlush:
        record.flag = Pick(2);
        break;
      case RecordKind::kRelookup:
      case RecordKind::kUngroup:
        NameSite(&record);
        break;
      case RecordKind::kControl:
        record.pc = LinearAddr(Number());
        record.value = Number();
        record.number = static_cast<u8>(Pick(16));
        break;
      case RecordKind::kMsr:
        record.pc = LinearAddr(Number());
        record.value = Number();
        record.more = Number();
        record.flag = Pick(2);
        break;
      case RecordKind::kEngine: {
        EngineOccurrence what;
        what.space = static_cast<u32>(Number());
        what.before = static_cast<UserEngine>(Pick(2));
        what.after = static_cast<UserEngine>(Pick(2));
        what.event.kind = static_cast<EngineEvent::Kind>(Pick(kEngineEventCount));
        what.event.now = record.tsc;
        what.event.cycles = Number();
        if (what.event.kind == EngineEvent::Kind::kRan) {
          what.event.stops = static_cast<u32>(Number());
          what.event.faults = static_cast<u32>(Number());
          what.event.calls = static_cast<u32>(Number());
        }
        record = RecordOf(what);
        record.cr3 = cr3_;
        CHECK(RecordOf(EngineOccurrenceOf(record)).more == record.more);
        break;
      }
      case RecordKind::kVcpu:
        record.number = static_cast<u8>(Pick(16));
        break;
      case RecordKind::kLost:
        record.value = Number();
        break;
      case RecordKind::kEnd:
        break;
    }
    return record;
  }

  // A log's worth: a site first, then anything.
  std::vector<Record> Log(unsigned count) {
    std::vector<Record> records = {Make(RecordKind::kSite)};
    while (records.size() < count) {
      const RecordKind kind = kKinds[Pick(std::size(kKinds))];
      if (kind != RecordKind::kEnd) records.push_back(Make(kind));
    }
    return records;
  }

 private:
  void NameSite(Record* record) {
    record->site = static_cast<u32>(Pick(sites_.size()));
    record->pc = sites_[record->site].pc;
    record->physical = sites_[record->site].physical;
  }
  u64 Pick(u64 count) { return random_() % count; }
  u64 Number() { return Pick(3) == 0 ? (Pick(2) ? ~u64{0} : 0) : random_() >> Pick(64); }

  std::mt19937_64 random_;
  u64 tsc_ = kStart, cr3_ = 0;
  std::vector<Site> sites_;
};

void WriteLog(const std::string& path, const std::vector<Record>& records,
              u64 most_bytes = u64{64} << 20) {
  auto writer = Writer::Create(path, SomeHeader(), most_bytes);
  REQUIRE(writer.ok());
  for (const Record& record : records) {
    while (!(*writer)->ring().Push(record)) FAIL("the ring is smaller than this test needs");
  }
  REQUIRE((*writer)->Finish(records.back().tsc + 1, kCounters).ok());
}

struct ReadResult {
  std::vector<Record> records;
  std::string error;  // "": read to its end
  bool truncated = false;
  std::vector<Site> sites;
  FinalCounters counters;
};

ReadResult ReadLog(const std::string& path) {
  ReadResult result;
  auto reader = Reader::Open(path);
  if (!reader.ok()) {
    result.error = reader.error().message;
    return result;
  }
  for (;;) {
    Record record;
    const auto more = (*reader)->Next(&record);
    if (!more.ok()) {
      result.error = more.error().message;
      result.truncated = (*reader)->truncated();
      Record again;
      CHECK(!(*reader)->Next(&again).ok());
    }
    if (!more.ok() || !more.value()) break;
    result.records.push_back(record);
  }
  result.sites = (*reader)->sites();
  result.counters = (*reader)->counters();
  return result;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("Every kind of record comes back as it was") {
  const std::string path = TempFile("round_trip.log");
  for (u64 seed = 1; seed <= 20; ++seed) {
    RecordMaker maker(seed);
    const std::vector<Record> records = maker.Log(2000);
    WriteLog(path, records);
    const ReadResult read = ReadLog(path);
    INFO("seed " << seed << ": " << read.error);
    CHECK(read.error.empty());
    REQUIRE(read.records.size() == records.size() + 1);
    std::size_t sites = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      INFO("record " << i << ", " << RecordKindName(records[i].kind));
      if (read.records[i] != records[i]) FAIL("another record came back");
      if (records[i].kind == RecordKind::kSite) {
        CHECK(read.sites[sites++] == SiteOf(records[i]));
      }
    }
    CHECK(read.sites.size() == sites);
    CHECK(read.records.back().kind == RecordKind::kEnd);
    CHECK(read.records.back().tsc == records.back().tsc + 1);
    CHECK(read.counters == kCounters);
  }
}

TEST_CASE("The header comes back, and another version's members do no harm") {
  const std::string path = TempFile("header.log");
  RecordMaker maker(1);
  WriteLog(path, maker.Log(1));
  auto reader = Reader::Open(path);
  REQUIRE(reader.ok());
  CHECK((*reader)->header() == SomeHeader());
  const auto later = HeaderFromJson(R"({"tsc_hz": 5, "moon": "full", "prices": {"tea": 3}})");
  REQUIRE(later.ok());
  CHECK(later.value().tsc_hz == 5);
  for (const char* wrong : {"", "[]", "{}", R"({"tsc_hz": "5"})", R"({"tsc_hz": 5, "policy": 1})",
                            R"({"tsc_hz": 5, "prices": 3})", R"({"tsc_hz": -5})"}) {
    INFO(wrong);
    CHECK(!HeaderFromJson(wrong).ok());
  }
}

TEST_CASE("A log of an earlier version is read as ever") {
  const u32 version = GENERATE(1u, 2u);
  // As the first Alibi wrote it: a header without engines, a page forgotten at 5, a flush at 7.
  const std::string header =
      R"({"program":"alibi 0.1","tsc_hz":1000,"start_tsc":2,"prices":{"trap":3,"callout":4}})";
  const u8 records[] = {0x04, 0x80, 0x40, 0x08, 0x03, 0x80, 0x80, 0x01, 0x19, 0x02};
  const u8 end[] = {0x0f, 0x01, 0x00, 0x00, 0x00};
  std::string log(kMagic, sizeof(kMagic));
  const auto put = [&log](u32 number) {
    log.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  const auto block = [&](const u8* bytes, u32 size) {
    put(size);
    put(Checksum(bytes, size));
    log.append(reinterpret_cast<const char*>(bytes), size);
  };
  put(version);
  put(static_cast<u32>(header.size()));
  put(Checksum(header.data(), header.size()));
  put(0);
  log += header;
  block(records, sizeof(records));
  block(end, sizeof(end));
  MemoryFile file;
  file.Become(log);
  const ReadResult read = ReadLog(file.path());
  CHECK(read.error.empty());
  REQUIRE(read.records.size() == 3);
  CHECK(read.records[0].kind == RecordKind::kForgottenPage);
  CHECK(read.records[0].tsc == 5);
  CHECK(read.records[0].cr3 == 0x1000);
  CHECK(read.records[0].physical == PhysAddr(0x2000));
  CHECK(read.records[1].kind == RecordKind::kFlush);
  CHECK(read.records[1].flag);
  CHECK(read.records[2].tsc == 8);
  auto reader = Reader::Open(file.path());
  CHECK((*reader)->header().prices == HostPrices{.trap = 3, .callout = 4});
  CHECK((*reader)->header().engine_policy.empty());
}

TEST_CASE("A log that ends too early is sound up to there") {
  MemoryFile file;
  const std::string path = file.path();
  RecordMaker maker(3);
  const std::vector<Record> records = maker.Log(40);
  WriteLog(path, records);
  const std::string whole = Contents(path);
  std::size_t most = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    file.Become(whole.substr(0, size));
    const ReadResult read = ReadLog(path);
    INFO(size << " of " << whole.size() << " bytes: " << read.error);
    CHECK(Contains(read.error, path));
    if (size == 0) {
      CHECK(Contains(read.error, "no event log"));
    } else {
      CHECK(Contains(read.error, "truncated at byte " + std::to_string(size)));
    }
    REQUIRE(read.records.size() <= records.size());
    CHECK(std::equal(read.records.begin(), read.records.end(), records.begin()));
    most = std::max(most, read.records.size());
  }
  CHECK(most == records.size());  // the end is a block of its own
}

TEST_CASE("What is no log, or a later version's, is refused with a reason") {
  MemoryFile file;
  const std::string path = file.path();
  RecordMaker maker(4);
  WriteLog(path, maker.Log(3));
  const std::string whole = Contents(path);
  CHECK(Contains(ReadLog(path + ".missing").error, "No such file"));
  file.Become("\177ELF and what follows in such a file");
  CHECK(Contains(ReadLog(path).error, "wrong magic"));
  std::string later = whole;
  later[8] = static_cast<char>(kVersion + 1);
  file.Become(later);
  CHECK(Contains(ReadLog(path).error, "version 4; this Alibi reads versions up to 3 (byte 8)"));
  file.Become(whole + "x");
  CHECK(Contains(ReadLog(path).error, "damaged at byte " + std::to_string(whole.size())));
  for (std::size_t at = sizeof(Preamble::magic); at < whole.size(); ++at) {
    if (at >= offsetof(Preamble, reserved) && at < sizeof(Preamble)) continue;
    std::string wrong = whole;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x10);
    file.Become(wrong);
    INFO("byte " << at);
    CHECK(!ReadLog(path).error.empty());
  }
}

// Gives every block the checksum that it should have, so that the damage gets to the decoder.
void MendChecksums(std::string* log) {
  Preamble preamble;
  std::memcpy(&preamble, log->data(), sizeof(preamble));
  std::size_t at = sizeof(preamble) + preamble.header_bytes;
  while (at + sizeof(BlockFrame) <= log->size()) {
    BlockFrame frame;
    std::memcpy(&frame, log->data() + at, sizeof(frame));
    const std::size_t begin = at + sizeof(frame);
    if (frame.bytes > log->size() - begin) return;
    frame.checksum = Checksum(log->data() + begin, frame.bytes);
    std::memcpy(log->data() + at, &frame, sizeof(frame));
    at = begin + frame.bytes;
  }
}

TEST_CASE("Damage that no checksum shows is no harm to the reader") {
  MemoryFile file;
  const std::string path = file.path();
  RecordMaker maker(5);
  const std::vector<Record> records = maker.Log(300);
  WriteLog(path, records);
  const std::string whole = Contents(path);
  const std::size_t first = sizeof(Preamble) + HeaderToJson(SomeHeader()).size();
  std::mt19937_64 random(6);
  unsigned refused = 0;
  for (unsigned round = 0; round < 1000; ++round) {
    std::string wrong = whole;
    for (u64 n = random() % 4 + 1; n > 0; --n) {
      const std::size_t at = first + random() % (wrong.size() - first);
      switch (random() % 4) {
        case 0:
          wrong[at] = static_cast<char>(random());
          break;
        case 1:
          wrong[at] = static_cast<char>(wrong[at] ^ (1 << random() % 8));
          break;
        case 2:
          wrong.erase(at, random() % 8);
          break;
        case 3:
          wrong.insert(at, std::string(random() % 16, '\xff'));
          break;
      }
      if (wrong.size() <= first) wrong = whole;
    }
    MendChecksums(&wrong);
    file.Become(wrong);
    const ReadResult read = ReadLog(path);
    refused += !read.error.empty();
    // Whatever it says: what it says is well-formed.
    REQUIRE(read.records.size() <= wrong.size());
    REQUIRE(std::all_of(read.records.begin(), read.records.end(), [&](const Record& record) {
      return static_cast<unsigned>(record.event) < kEventCount &&
             (record.site == kNoSite || record.site < read.sites.size()) &&
             record.before <= Kind::kSimulate && record.after <= Kind::kSimulate &&
             (record.kind != RecordKind::kEngine ||
              EngineOccurrenceOf(record).event.kind <= EngineEvent::Kind::kEmptied);
    }));
  }
  CHECK(refused > 300);
}

TEST_CASE("What no engine record says is refused") {
  const auto decodes = [](std::vector<u8> bytes) {
    Decoder decoder(0);
    std::span<const u8> rest = bytes;
    Record record;
    FinalCounters counters;
    bool found = false;
    return decoder.Next(&rest, 0, &record, &counters, &found) && found && rest.empty();
  };
  // Kind 16, of which event and engines; time 1, space 2, cycles 3; of a run 4, 5, 6 as well.
  CHECK(decodes({0x00, 0x01, 1, 2, 3}));
  CHECK(decodes({0x00, 0x1b, 1, 2, 3, 4, 5, 6}));
  CHECK_FALSE(decodes({0x00, 0x1b, 1, 2, 3, 4, 5}));
  CHECK_FALSE(decodes({0x00, 0x07, 1, 2, 3}));  // no such event
  CHECK_FALSE(decodes({0x00, 0x21, 1, 2, 3}));  // no such engine
  CHECK_FALSE(decodes({0x00, 0x01, 1, 0xff, 0xff, 0xff, 0xff, 0x1f, 3}));
  CHECK(decodes({0x10, 0x0f, 1}));              // VCPU 15
  CHECK_FALSE(decodes({0x10, 0x10, 1}));        // no such VCPU
  CHECK_FALSE(decodes({0x20, 0x01, 1, 2, 3}));  // no such kind
  CHECK_FALSE(decodes({0x00}));
}

TEST_CASE("A full ring counts what it loses, where it is missing") {
  Ring ring(3);
  Record record;
  record.kind = RecordKind::kForgottenPage;
  for (u64 i = 0; i < 8; ++i) {
    record.physical = PhysAddr(i);
    CHECK(ring.Push(record));
  }
  for (unsigned i = 0; i < 5; ++i) CHECK(!ring.Push(record));
  CHECK(ring.lost() == 5);
  CHECK(ring.Filling());
  REQUIRE(ring.Front().size() == 8);
  ring.Pop(1);
  CHECK(!ring.Push(record));  // the count and the record need two places
  ring.Pop(1);
  record.physical = PhysAddr(99);
  CHECK(ring.Push(record));
  CHECK(ring.lost() == 0);
  ring.Pop(6);
  REQUIRE(ring.Front().size() == 2);
  CHECK(ring.Front()[0].kind == RecordKind::kLost);
  CHECK(ring.Front()[0].value == 6);
  CHECK(ring.Front()[1].physical == PhysAddr(99));
  ring.Pop(2);
  CHECK(ring.Front().empty());
}

TEST_CASE("Two threads: all that was pushed arrives in order, or is counted") {
  constexpr u64 kCount = 200'000;
  Ring ring(8);
  u64 lost_at_end = 0;
  std::atomic<bool> done = false;
  std::thread producer([&] {
    Record record;
    record.kind = RecordKind::kForgottenPage;
    for (u64 i = 0; i < kCount; ++i) {
      record.physical = PhysAddr(i);
      ring.Push(record);
    }
    lost_at_end = ring.lost();
    done = true;
  });
  u64 next = 0, arrived = 0, lost = 0, out_of_order = 0;
  for (bool last = false; !last;) {
    last = done;
    for (auto records = ring.Front(); !records.empty(); records = ring.Front()) {
      for (const Record& record : records) {
        if (record.kind == RecordKind::kLost) {
          lost += record.value;
          next += record.value;
        } else {
          out_of_order += record.physical != PhysAddr(next);
          ++next;
          ++arrived;
        }
      }
      ring.Pop(records.size());
    }
  }
  producer.join();
  CHECK(out_of_order == 0);
  CHECK(arrived + lost + lost_at_end == kCount);
}

TEST_CASE("Losses of the ring are in the file, and in its end") {
  const std::string path = TempFile("lost.log");
  auto writer = Writer::Create(path, SomeHeader(), u64{64} << 20);
  REQUIRE(writer.ok());
  Record record;
  record.kind = RecordKind::kFlush;
  record.tsc = kStart;
  // As fast as this loop is, no drain thread keeps up with it for long.
  u64 pushed = 0, lost = 0;
  for (; lost == 0 && pushed < 100'000'000; ++pushed) lost += !(*writer)->ring().Push(record);
  REQUIRE(lost == 1);
  REQUIRE((*writer)->Finish(kStart, {}).ok());
  CHECK((*writer)->lost() == 1);
  const ReadResult read = ReadLog(path);
  CHECK(read.error.empty());
  CHECK(read.records.size() == pushed);  // without the lost one, with the end
  CHECK(read.records.back().value == 1);
}

TEST_CASE("A log keeps to its size, and says what did not fit") {
  const std::string path = TempFile("bounded.log");
  RecordMaker maker(7);
  const std::vector<Record> records = maker.Log(20'000);
  WriteLog(path, records, kLeastLogBytes);
  CHECK(Contents(path).size() <= kLeastLogBytes);
  const ReadResult read = ReadLog(path);
  CHECK(read.error.empty());
  REQUIRE(read.records.size() > 1);
  const std::size_t kept = read.records.size() - 1;
  CHECK(std::equal(read.records.begin(), read.records.end() - 1, records.begin()));
  u64 losses = 0;
  for (std::size_t i = kept; i < records.size(); ++i) {
    losses += records[i].kind == RecordKind::kLost;
  }
  CHECK(read.records.back().more == records.size() - kept - losses);
  CHECK(read.records.back().tsc == records.back().tsc + 1);
  CHECK(read.counters == kCounters);
}

TEST_CASE("A file that cannot be written is an error") {
  CHECK(Contains(
      Writer::Create(TempFile("no/such/folder"), SomeHeader(), kLeastLogBytes).error().message,
      "cannot be written"));
  auto writer = Writer::Create("/dev/full", SomeHeader(), kLeastLogBytes);
  CHECK(!writer.ok());
}

}  // namespace
}  // namespace alibi::adapt::log
