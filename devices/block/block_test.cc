// SPDX-License-Identifier: Apache-2.0
// Images and their workers: contents, sizes, locks, formats, errors, order.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "devices/block/disk.h"
#include "devices/block/nbd_image.h"
#include "devices/block/open_image.h"
#include "devices/block/snapshot_image.h"

namespace alibi::block {
namespace {

std::string Path(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

std::string MakeFile(const std::string& name, const std::string& bytes, u64 size) {
  const std::string path = Path(name);
  std::FILE* file = std::fopen(path.c_str(), "w");
  REQUIRE(file != nullptr);
  REQUIRE(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  std::fclose(file);
  REQUIRE(truncate(path.c_str(), static_cast<off_t>(size)) == 0);
  return path;
}

Result<std::unique_ptr<BlockImage>> Try(const ImageOptions& options,
                                        OpenFailure wanted = OpenFailure::kUnreadable) {
  OpenFailure failure = OpenFailure::kUnreadable;
  auto image = OpenImage(options, &failure);
  if (!image.ok()) {
    UNSCOPED_INFO(image.error().message);
    CHECK(failure == wanted);
    CHECK(image.error().message.find('\n') == std::string::npos);
    CHECK(image.error().message.find(options.path) != std::string::npos);
  }
  return image;
}

std::vector<u8> Pattern(u64 size, u32 seed) {
  std::mt19937 random(seed);
  std::vector<u8> bytes(size);
  for (u8& byte : bytes) byte = static_cast<u8>(random());
  return bytes;
}

// Random reads, writes, zeros against a copy in memory.
void CompareWithMemory(BlockImage& image, int rounds) {
  std::mt19937_64 random(7);
  std::vector<u8> copy(image.size_bytes());
  REQUIRE(image.Read(0, copy).ok());
  for (int i = 0; i < rounds; ++i) {
    const u64 offset = random() % (copy.size() / kSectorBytes) * kSectorBytes;
    const u64 room = std::min<u64>(copy.size() - offset, 65536);
    const u64 size = (1 + random() % (room / kSectorBytes)) * kSectorBytes;
    const auto at = copy.begin() + static_cast<std::ptrdiff_t>(offset);
    switch (random() % 4) {
      case 0: {
        std::vector<u8> read(size);
        REQUIRE(image.Read(offset, read).ok());
        REQUIRE(std::equal(read.begin(), read.end(), at));
        // What was read is cached, as far as the host tells.
        std::fill(read.begin(), read.end(), u8{0xa5});
        if (image.ReadCached(offset, read)) REQUIRE(std::equal(read.begin(), read.end(), at));
        break;
      }
      case 1:
        REQUIRE(image.WriteZeroes(offset, size, random() % 2 == 0).ok());
        std::fill_n(at, size, u8{0});
        break;
      case 2:
        REQUIRE(image.Flush().ok());
        break;
      default: {
        const std::vector<u8> bytes = Pattern(size, static_cast<u32>(random()));
        REQUIRE(image.Write(offset, bytes).ok());
        std::copy(bytes.begin(), bytes.end(), at);
      }
    }
  }
  std::vector<u8> all(copy.size());
  REQUIRE(image.Read(0, all).ok());
  CHECK(all == copy);
}

TEST_CASE("a raw image keeps what is written") {
  const std::string path = MakeFile("raw.img", "hello", 1 << 20);
  {
    auto image = Try({path});
    REQUIRE(image.ok());
    CHECK((*image)->size_bytes() == 1 << 20);
    CompareWithMemory(**image, 300);
    const std::vector<u8> bytes = Pattern(512, 1);
    REQUIRE((*image)->Write(1024, bytes).ok());
    REQUIRE((*image)->Flush().ok());
  }
  auto again = Try({path, "raw", /*read_only=*/true});
  REQUIRE(again.ok());
  std::vector<u8> read(512);
  REQUIRE((*again)->Read(1024, read).ok());
  CHECK(read == Pattern(512, 1));
  CHECK((*again)->Write(0, read).error == EROFS);
  CHECK((*again)->Discard(0, 512).error == EROFS);
  CHECK((*again)->WriteZeroes(0, 512, true).error == EROFS);
}

// Whether the file's file system can say what it has cached: ext4 and XFS do, tmpfs does not.
bool TellsWhatIsCached(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte;
  struct iovec piece = {&byte, 1};
  const ssize_t got = preadv2(fd, &piece, 1, 0, RWF_NOWAIT);
  close(fd);
  return got == 1;
}

TEST_CASE("what the host has cached can be read without waiting") {
  const std::string path = MakeFile("cached.img", std::string(5000, 'b'), 200000);
  std::vector<u8> read(512);
  for (const bool snapshot : {false, true}) {
    auto image = Try({path, "", false, snapshot});
    REQUIRE(image.ok());
    const std::vector<u8> written = Pattern(4096, 3);
    REQUIRE((*image)->Read(0, read).ok());
    REQUIRE((*image)->Write(8192, written).ok());
    const bool tells = TellsWhatIsCached(path);
    CHECK((*image)->ReadCached(0, read) == tells);
    // Both what was written and what was not.
    std::vector<u8> both(8192);
    REQUIRE((*image)->Read(4096, both).ok());
    CHECK((*image)->ReadCached(4096, both) == tells);
    CHECK(std::equal(written.begin(), written.end(), both.begin() + 4096));
  }
  auto image = Try({path});
  REQUIRE(image.ok());
  REQUIRE(truncate(path.c_str(), 4096) == 0);
  CHECK_FALSE((*image)->ReadCached(4096, read));
}

TEST_CASE("an odd size is rounded up, and the file grows only when that sector is written") {
  const std::string path = MakeFile("odd.img", std::string(700, 'x'), 700);
  auto image = Try({path});
  REQUIRE(image.ok());
  CHECK((*image)->size_bytes() == 1024);
  std::vector<u8> read(1024, 1);
  REQUIRE((*image)->Read(0, read).ok());
  CHECK(read[699] == 'x');
  CHECK(read[700] == 0);
  struct stat info;
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK(info.st_size == 700);
  REQUIRE((*image)->Write(512, std::vector<u8>(512, 7)).ok());
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK(info.st_size == 1024);
}

TEST_CASE("a file that becomes shorter under us is an I/O error") {
  const std::string path = MakeFile("shrinks.img", "", 8192);
  auto image = Try({path});
  REQUIRE(image.ok());
  REQUIRE(truncate(path.c_str(), 4096) == 0);
  std::vector<u8> read(1024);
  CHECK((*image)->Read(3584, read).error == EIO);
}

TEST_CASE("what cannot be opened says why") {
  CHECK_FALSE(Try({Path("missing.img")}).ok());
  CHECK_FALSE(Try({Path("")}).ok());
  CHECK_FALSE(Try({MakeFile("empty.img", "", 0)}, OpenFailure::kBadImage).ok());
  CHECK_FALSE(Try({"/dev/null"}).ok());
  const std::string fifo = Path("fifo");
  unlink(fifo.c_str());
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_FALSE(Try({fifo}).ok());
  CHECK_FALSE(Try({fifo, "", true}).ok());
}

TEST_CASE("a format is never guessed") {
  const std::string disguised = MakeFile("disguised.img", "QFI\xfb", 4096);
  auto refused = Try({disguised}, OpenFailure::kBadImage);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("format=raw") != std::string::npos);
  auto raw = Try({disguised, "raw"});
  REQUIRE(raw.ok());
  CHECK((*raw)->size_bytes() == 4096);
  CHECK_FALSE(Try({MakeFile("text.qcow2", "not qcow2", 4096)}, OpenFailure::kBadImage).ok());
  CHECK_FALSE(Try({MakeFile("text.vmdk", "QFI\xfb", 4096)}, OpenFailure::kBadImage).ok());
  CHECK(IsFormat("raw"));
  CHECK(IsFormat("vhdx"));
  CHECK_FALSE(IsFormat("nbd"));
  CHECK(FormatList() == "raw, qcow2, vmdk, vdi, vhdx, vpc");
}

TEST_CASE("two writers never share an image") {
  const std::string path = MakeFile("locked.img", "", 4096);
  auto first = Try({path});
  REQUIRE(first.ok());
  CHECK_FALSE(Try({path}).ok());
  CHECK_FALSE(Try({path, "", true}).ok());
  first->reset();
  auto reader = Try({path, "", true});
  REQUIRE(reader.ok());
  auto second_reader = Try({path, "", true});
  CHECK(second_reader.ok());
  CHECK_FALSE(Try({path}).ok());
  reader->reset();
  if (second_reader.ok()) second_reader->reset();
  CHECK(Try({path}).ok());
}

TEST_CASE("a snapshot leaves its image alone") {
  const std::string path = MakeFile("base.img", std::string(5000, 'b'), 200000);
  {
    auto image = Try({path, "", false, /*snapshot=*/true});
    REQUIRE(image.ok());
    CHECK_FALSE((*image)->read_only());
    CompareWithMemory(**image, 300);
  }
  auto image = Try({path, "", true});
  REQUIRE(image.ok());
  std::vector<u8> read(5120);
  REQUIRE((*image)->Read(0, read).ok());
  CHECK(std::count(read.begin(), read.end(), 'b') == 5000);
}

TEST_CASE("a snapshot keeps to its bound") {
  const std::string path = MakeFile("bounded.img", "b", 200000);
  ImageOptions options{path, "", false, /*snapshot=*/true};
  options.most_snapshot_bytes = 8192;
  auto image = Try(options);
  REQUIRE(image.ok());
  const std::vector<u8> sector = Pattern(512, 1), large = Pattern(8192, 2);
  CHECK((*image)->Write(0, sector).ok());
  CHECK((*image)->Write(65536, large).error == EDQUOT);
  CHECK((*image)->Write(65536, sector).ok());
  CHECK((*image)->Write(66048, sector).ok());  // the same cluster
  CHECK((*image)->Write(0, sector).ok());
  CHECK((*image)->Write(4096, sector).error == EDQUOT);
  CHECK((*image)->WriteZeroes(4096, 512, true).error == EDQUOT);
  std::vector<u8> read(512);
  REQUIRE((*image)->Read(66048, read).ok());
  CHECK(read == sector);
  REQUIRE((*image)->Read(4096, read).ok());
  CHECK(read == std::vector<u8>(512));
}

// As an image's header may say.
class HugeImage final : public BlockImage {
 public:
  explicit HugeImage(u64 size) { size_bytes_ = size; }
  IoResult Read(u64, std::span<u8> data) override {
    std::fill(data.begin(), data.end(), u8{0});
    return {};
  }
  IoResult Write(u64, std::span<const u8>) override { return {EROFS}; }
  IoResult Flush() override { return {}; }
  IoResult Discard(u64, u64) override { return {}; }
  IoResult WriteZeroes(u64, u64, bool) override { return {EROFS}; }
};

TEST_CASE("a snapshot of a disk larger than memory") {
  const auto resident_pages = [] {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    long all = 0, resident = 0;
    REQUIRE(std::fscanf(file, "%ld %ld", &all, &resident) == 2);
    std::fclose(file);
    return resident;
  };
  [[maybe_unused]] const long before = resident_pages();
  constexpr u64 kSize = u64{8} << 40;  // 256 MB of bits
  auto image = SnapshotImage::Create(std::make_unique<HugeImage>(kSize), u64{1} << 20);
  REQUIRE(image.ok());
  std::vector<u8> read(512);
  CHECK((*image)->Write(kSize - 512, Pattern(512, 1)).ok());
  CHECK((*image)->Read(kSize - 512, read).ok());
  CHECK(read == Pattern(512, 1));
#ifndef ALIBI_TSAN  // which touches all of what is mapped
  CHECK(resident_pages() - before < 1000);
#endif

  auto refused = SnapshotImage::Create(std::make_unique<HugeImage>(u64{1} << 62), u64{1} << 20);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::Contains("no memory for a disk of"));
}

TEST_CASE("qcow2 through qemu-nbd") {
  if (NbdImage::FindProgram().empty() || std::system("command -v qemu-img >/dev/null") != 0) {
    WARN("SKIP: qemu-utils is not installed");
    return;
  }
  const std::string path = Path("round, trip.qcow2");
  unlink(path.c_str());
  const std::string quoted = "'" + path + "'";
  REQUIRE(std::system(("qemu-img create -q -f qcow2 " + quoted + " 4M").c_str()) == 0);
  {
    auto image = Try({path});
    REQUIRE(image.ok());
    CHECK((*image)->size_bytes() == 4 << 20);
    CompareWithMemory(**image, 100);
    CHECK((*image)->Discard(0, 65536).ok());
    REQUIRE((*image)->Write(512, Pattern(512, 3)).ok());
    REQUIRE((*image)->Flush().ok());
    CHECK_FALSE(Try({path}, OpenFailure::kUnreadable).ok());
  }
  CHECK(std::system(("qemu-img check -q " + quoted).c_str()) == 0);
  auto again = Try({path, "qcow2", true});
  REQUIRE(again.ok());
  std::vector<u8> read(512);
  REQUIRE((*again)->Read(512, read).ok());
  CHECK(read == Pattern(512, 3));
  CHECK((*again)->Write(0, read).error == EROFS);

  // A damaged header: one line, from the program that knows.
  std::FILE* file = std::fopen((path + ".bad.qcow2").c_str(), "w");
  std::fwrite("QFI\xfb\0\0\0\x09 and nonsense", 1, 20, file);
  std::fclose(file);
  CHECK_FALSE(Try({path + ".bad.qcow2"}, OpenFailure::kBadImage).ok());
}

// An image that takes its time and writes down what is done to it.
class RecordingImage : public BlockImage {
 public:
  RecordingImage() { size_bytes_ = 1 << 20; }
  IoResult Read(u64, std::span<u8>) override { return Note('r'); }
  IoResult Write(u64, std::span<const u8>) override { return Note('w'); }
  IoResult Flush() override { return Note('f'); }
  IoResult Discard(u64, u64) override { return Note('d'); }
  IoResult WriteZeroes(u64, u64, bool) override { return Note('z'); }
  IoResult Note(char c) {
    usleep(200);
    log += c;
    return {error};
  }
  std::string log;
  int error = 0;
};

struct Harness {
  explicit Harness(std::shared_ptr<BlockImage> image) {
    auto created = Disk::Create(
        std::move(image), "test",
        [this](std::function<void()> function) {
          const std::lock_guard lock(mutex);
          posted.push_back(std::move(function));
        },
        [this](const std::string& line) { reports.push_back(line); });
    REQUIRE(created.ok());
    disk = std::move(*created);
  }
  void Submit(Operation operation, u64 offset, u64 bytes, bool durable = false) {
    auto request = std::make_shared<Request>();
    request->operation = operation;
    request->offset = offset;
    request->durable = durable;
    if (operation == Operation::kRead || operation == Operation::kWrite) {
      request->data.resize(bytes);
    }
    request->bytes = bytes;
    request->done = [this](Request& done) { results.push_back(done.result.error); };
    ++submitted;
    disk->Submit(request);
  }
  void RunAll() {
    while (results.size() < submitted) {
      std::vector<std::function<void()>> now;
      {
        const std::lock_guard lock(mutex);
        now.swap(posted);
      }
      for (auto& function : now) function();
      usleep(100);
    }
  }
  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  std::vector<std::string> reports;
  std::vector<int> results;
  std::size_t submitted = 0;
  std::unique_ptr<Disk> disk;
};

TEST_CASE("requests are served in order, and the rest at the end") {
  auto image = std::make_shared<RecordingImage>();
  {
    Harness harness(image);
    harness.Submit(Operation::kWrite, 0, 512);
    harness.Submit(Operation::kFlush, 0, 0);
    harness.Submit(Operation::kRead, 0, 512);
    harness.Submit(Operation::kWrite, 512, 512, /*durable=*/true);
    harness.Submit(Operation::kDiscard, 0, 512);
    harness.Submit(Operation::kWriteZeroes, 0, 512);
    harness.RunAll();
    CHECK(image->log == "wfrwfdz");
    CHECK(harness.results == std::vector<int>(6, 0));
    for (int i = 0; i < 20; ++i) harness.Submit(Operation::kWrite, 0, 512);
  }
  CHECK(image->log == "wfrwfdz" + std::string(20, 'w') + "f");
}

TEST_CASE("a request that leaves the image fails, whatever its numbers") {
  auto image = std::make_shared<RecordingImage>();
  Harness harness(image);
  const u64 end = image->size_bytes();
  harness.Submit(Operation::kRead, end, 512);
  harness.Submit(Operation::kRead, ~u64{0} - 511, 512);
  harness.Submit(Operation::kWrite, end - 512, 1024);
  harness.Submit(Operation::kDiscard, 512, ~u64{0} - 100);
  harness.Submit(Operation::kWriteZeroes, ~u64{0}, ~u64{0});
  harness.Submit(Operation::kRead, end - 512, 512);
  harness.RunAll();
  CHECK(harness.results == std::vector<int>{EIO, EIO, EIO, EIO, EIO, 0});
  CHECK(image->log == "r");
}

TEST_CASE("a failure is reported once per kind") {
  auto image = std::make_shared<RecordingImage>();
  image->error = ENOSPC;
  Harness harness(image);
  for (int i = 0; i < 5; ++i) harness.Submit(Operation::kWrite, 0, 512);
  for (int i = 0; i < 5; ++i) harness.Submit(Operation::kFlush, 0, 0);
  harness.RunAll();
  CHECK(harness.results == std::vector<int>(10, ENOSPC));
  CHECK(harness.reports.size() == 2);
  CHECK(harness.reports.at(0).find("disk is full") != std::string::npos);
}

TEST_CASE("a file that may not grow is an error, not a signal") {
  const std::string path = MakeFile("limited.img", "x", 1 << 20);
  auto image = Try({path});
  REQUIRE(image.ok());
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  {
    Harness harness(std::move(*image));
    harness.Submit(Operation::kWrite, 0, 512);
    harness.Submit(Operation::kWrite, 8192, 512);
    harness.RunAll();
    CHECK(harness.results == std::vector<int>{0, EFBIG});
    CHECK(harness.reports.size() == 1);
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

}  // namespace
}  // namespace alibi::block
