// SPDX-License-Identifier: Apache-2.0
#include "runtime/translation_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace alibi::runtime {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test.
class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    path_ = fmt::format("{}/store.XXXXXX", base != nullptr ? base : "/tmp");
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_ + "/a/b"; }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(path())) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  std::string path_;
};

std::unique_ptr<TranslationStore> Open(const Folder& folder, u64 fingerprint = 1,
                                       u64 max_bytes = 64 << 20) {
  auto store = TranslationStore::Open(
      {.folder = folder.path(), .fingerprint = {fingerprint, 7}, .max_bytes = max_bytes});
  REQUIRE(store.ok());
  return std::move(*store);
}

std::vector<u8> Record(u64 number) {
  std::mt19937_64 random(number);
  std::vector<u8> bytes(200 + random() % 3000);
  for (u8& byte : bytes) byte = static_cast<u8>(random());
  return bytes;
}

bool Has(TranslationStore& store, u64 key, const std::vector<u8>& record) {
  return store.Find(key, [&](std::span<const u8> bytes) {
    CHECK(reinterpret_cast<u64>(bytes.data()) % 8 == 0);
    return std::vector<u8>(bytes.begin(), bytes.end()) == record;
  });
}

void AddRecord(TranslationStore& store, u64 key, const std::vector<u8>& record) {
  const std::span<u8> room = store.Room();
  if (room.empty()) return;
  REQUIRE(room.size() >= record.size());
  std::copy(record.begin(), record.end(), room.begin());
  store.Add(key, record.size());
}

void AddRange(TranslationStore& store, u64 from, u64 to) {
  for (u64 n = from; n < to; ++n) AddRecord(store, n * 0x9e3779b97f4a7c15, Record(n));
}

unsigned CountOf(TranslationStore& store, u64 from, u64 to) {
  unsigned count = 0;
  for (u64 n = from; n < to; ++n) count += Has(store, n * 0x9e3779b97f4a7c15, Record(n));
  return count;
}

TEST_CASE("what one run adds the next one finds") {
  const Folder folder;
  {
    const auto store = Open(folder);
    CHECK(CountOf(*store, 0, 10) == 0);
    AddRange(*store, 0, 3000);
    CHECK(CountOf(*store, 0, 3000) == 3000);  // at once, too
    REQUIRE(store->Save().ok());
  }
  const auto store = Open(folder);
  CHECK(CountOf(*store, 0, 3000) == 3000);
  CHECK(CountOf(*store, 3000, 3100) == 0);
  CHECK(store->damaged() == 0);
}

// Each opening may merge files and remove them, each run takes a file of its own.
TEST_CASE("runs that begin and end at the same time lose nothing") {
  const Folder folder;
  (void)Open(folder);
  constexpr u64 kThreads = 4, kRuns = 60;
  std::atomic<unsigned> failures = 0;
  std::vector<std::thread> threads;
  for (u64 thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (u64 n = thread * kRuns; n < (thread + 1) * kRuns; ++n) {
        auto store = TranslationStore::Open(
            {.folder = folder.path(), .fingerprint = {1, 7}, .max_bytes = 64 << 20});
        if (!store.ok()) {
          ++failures;
          continue;
        }
        const std::vector<u8> record = Record(n);
        const std::span<u8> room = (*store)->Room();
        std::copy(record.begin(), record.end(), room.begin());
        (*store)->Add(n * 0x9e3779b97f4a7c15, record.size());
        if (!(*store)->Save().ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  const auto store = Open(folder);
  CHECK(CountOf(*store, 0, kThreads * kRuns) == kThreads * kRuns);
  CHECK(store->damaged() == 0);
}

TEST_CASE("what was added behind the record found last is found without a search") {
  const Folder folder;
  const auto following = [](TranslationStore& store, u64 n) {
    const std::vector<u8> record = Record(n);
    return store.FindFollowing(n * 0x9e3779b97f4a7c15, [&](std::span<const u8> bytes) {
      return std::vector<u8>(bytes.begin(), bytes.end()) == record;
    });
  };
  {
    const auto store = Open(folder);
    AddRange(*store, 0, 100);
    REQUIRE(store->Save().ok());
  }
  const auto store = Open(folder);
  CHECK_FALSE(following(*store, 0));  // nothing has been found yet
  CHECK(CountOf(*store, 10, 11) == 1);
  CHECK(following(*store, 11));
  CHECK(following(*store, 13));        // one was left out
  CHECK_FALSE(following(*store, 40));  // too far
  CHECK_FALSE(following(*store, 12));  // behind us
  CHECK(following(*store, 14));
  CHECK(CountOf(*store, 99, 100) == 1);
  CHECK_FALSE(following(*store, 0));  // it was the last one
}

TEST_CASE("records of one key are all offered") {
  const Folder folder;
  for (unsigned run = 0; run < 2; ++run) {
    const auto store = Open(folder);
    for (u64 n = 0; n < 5; ++n) {
      if (run == 0) AddRecord(*store, 42, Record(n));
    }
    for (u64 n = 0; n < 5; ++n) CHECK(Has(*store, 42, Record(n)));
    CHECK_FALSE(Has(*store, 42, Record(6)));
    REQUIRE(store->Save().ok());
  }
}

TEST_CASE("runs at the same time do not disturb each other, and nothing is kept of one that dies") {
  const Folder folder;
  {
    const auto first = Open(folder), second = Open(folder), dies = Open(folder);
    AddRange(*first, 0, 100);
    AddRange(*second, 50, 150);
    AddRange(*dies, 150, 200);
    REQUIRE(first->Save().ok());
    REQUIRE(second->Save().ok());
  }
  CHECK(folder.Files().size() == 3);
  const auto store = Open(folder);
  CHECK(CountOf(*store, 0, 200) == 150);
  CHECK(folder.Files().size() == 3);  // the empty one is used again
}

TEST_CASE("another program or CPU finds nothing") {
  const Folder folder;
  {
    const auto store = Open(folder);
    AddRange(*store, 0, 100);
    REQUIRE(store->Save().ok());
  }
  CHECK(CountOf(*Open(folder, 2), 0, 100) == 0);
  CHECK(CountOf(*Open(folder, 1), 0, 100) == 100);
}

TEST_CASE("many runs leave few files, and every record once") {
  const Folder folder;
  for (u64 run = 0; run < 40; ++run) {
    const auto store = Open(folder);
    CHECK(CountOf(*store, 0, run * 20) == run * 20);
    AddRange(*store, run * 20, run * 20 + 20);
    REQUIRE(store->Save().ok());
  }
  CHECK(folder.Files().size() <= 8);
  u64 bytes = 0;
  for (const auto& file : folder.Files()) bytes += fs::file_size(file);
  u64 expected = 0;
  for (u64 n = 0; n < 800; ++n) expected += Record(n).size() + 32;
  CHECK(bytes < expected + 200'000);
}

TEST_CASE("the folder's size is bounded: the oldest files go") {
  const Folder folder;
  constexpr u64 kMost = 4 << 20;
  for (u64 build = 1; build < 12; ++build) {
    const auto store = Open(folder, build, kMost);
    AddRange(*store, 0, 5000);
    CHECK(store->added() < 1500);  // what one run may add
    REQUIRE(store->Save().ok());
  }
  (void)Open(folder, 1, kMost);
  u64 bytes = 0;
  for (const auto& file : folder.Files()) bytes += fs::file_size(file);
  CHECK(bytes <= kMost);
}

TEST_CASE("a damaged or truncated file costs what is damaged, and is never believed") {
  const Folder folder;
  {
    const auto store = Open(folder);
    AddRange(*store, 0, 300);
    REQUIRE(store->Save().ok());
  }
  const fs::path file = folder.Files().at(0);
  std::string whole;
  {
    std::ifstream in(file, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::mt19937 random(3);
  const auto wrong = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    const auto store = Open(folder);
    unsigned found = 0;
    for (u64 n = 0; n < 300; ++n) {
      store->Find(n * 0x9e3779b97f4a7c15, [&](std::span<const u8> bytes) {
        ++found;
        CHECK(std::vector<u8>(bytes.begin(), bytes.end()) == Record(n));
        return false;
      });
    }
    return 300 - found;
  };
  CHECK(wrong(whole) == 0);
  for (unsigned round = 0; round < 100; ++round) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    const unsigned missing = wrong(damaged);
    CHECK((missing <= 1 || missing == 300));
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{10}, whole.size() / 2, whole.size() - 1}) {
    CHECK(wrong(whole.substr(0, size)) == 300);
  }
}

TEST_CASE("a file that shrinks while it is read is a miss") {
  const Folder folder;
  {
    const auto store = Open(folder);
    AddRange(*store, 0, 1000);
    REQUIRE(store->Save().ok());
  }
  const auto store = Open(folder);
  CHECK(CountOf(*store, 0, 1) == 1);
  fs::resize_file(folder.Files().at(0), 100'000);
  CHECK(CountOf(*store, 0, 1000) < 500);
}

TEST_CASE("what others may write is refused") {
  const Folder folder;
  {
    const auto store = Open(folder);
    AddRange(*store, 0, 100);
    REQUIRE(store->Save().ok());
  }
  const std::string path = folder.path();
  REQUIRE(chmod(path.c_str(), 0777) == 0);
  CHECK_FALSE(TranslationStore::CheckFolder(path).ok());
  CHECK_FALSE(TranslationStore::Open({.folder = path, .fingerprint = {1, 7}}).ok());
  REQUIRE(chmod(path.c_str(), 0700) == 0);
  CHECK(CountOf(*Open(folder), 0, 100) == 100);
  for (const auto& file : folder.Files()) REQUIRE(chmod(file.c_str(), 0666) == 0);
  CHECK(CountOf(*Open(folder), 0, 100) == 0);
}

TEST_CASE("a link in a file's place is not followed") {
  const Folder folder, other;
  {
    const auto store = Open(other);
    AddRange(*store, 0, 100);
    REQUIRE(store->Save().ok());
  }
  (void)Open(folder);
  const fs::path target = other.Files().at(0);
  for (const auto& file : folder.Files()) fs::remove(file);
  fs::create_symlink(target, fs::path(folder.path()) / target.filename());
  const auto store = Open(folder);
  CHECK(CountOf(*store, 0, 100) == 0);
  AddRange(*store, 200, 300);
  REQUIRE(store->Save().ok());
  CHECK(CountOf(*Open(folder), 200, 300) == 100);
  CHECK(fs::file_size(target) > 1000);
}

TEST_CASE("no folder can be made where a file is") {
  const Folder folder;
  (void)Open(folder);
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "x";
  const Status status = TranslationStore::CheckFolder(file + "/store");
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().message.find("file") != std::string::npos);
}

}  // namespace
}  // namespace alibi::runtime
