// SPDX-License-Identifier: Apache-2.0
// --tc-cache: what one run has translated the next one does not translate again; runs at the same
// time share a folder; what cannot be used is said in one line.
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "testsuite/command.h"

namespace {

namespace fs = std::filesystem;
using alibi::testsuite::Ended;

std::string TempFile(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return std::string(directory != nullptr ? directory : "/tmp") + "/" + name;
}

Ended Run(const std::string& options, const std::string& before = "") {
  const std::string command = before + " timeout -k 5 120 " + std::getenv("ALIBI") + " run " +
                              options + " " + std::getenv("KERNEL") + " </dev/null 2>&1";
  return alibi::testsuite::RunCommand(command);
}

constexpr int kGuestPassed = 1;

struct Counts {
  unsigned long translated, loaded;
};

Counts CountsOf(const std::string& options) {
  const std::string file = TempFile("stats.json");
  const Ended ended = Run(options + " --stats-json " + file);
  INFO(ended.output);
  REQUIRE(ended.status == kGuestPassed);
  const nlohmann::json counters = nlohmann::json::parse(std::ifstream(file))["runtime"];
  return {counters["translations"], counters["loaded_translations"]};
}

std::vector<fs::path> Files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  return files;
}

// (This kernel lives on page faults: what steps over a page's end is made anew.)
TEST_CASE("a second run translates little of what the first did") {
  const std::string folder = TempFile("second");
  const Counts first = CountsOf("--tc-cache " + folder);
  const Counts second = CountsOf("--tc-cache " + folder);
  CHECK(first.translated > 500);
  CHECK(second.translated * 3 < first.translated);
  CHECK(second.loaded * 2 > first.translated);
  CHECK(CountsOf("--tc-cache none").loaded == 0);
  struct stat what;
  REQUIRE(stat(folder.c_str(), &what) == 0);
  CHECK((what.st_mode & 0777) == 0700);
}

TEST_CASE("another CPU model shares nothing") {
  const std::string folder = TempFile("models");
  (void)CountsOf("--tc-cache " + folder);
  CHECK(CountsOf("--tc-cache " + folder + " --cpu base64").loaded <
        CountsOf("--tc-cache " + folder).loaded / 10);
}

TEST_CASE("the usual folder is the user's cache folder; a user without a home keeps nothing") {
  const std::string home = TempFile("home");
  fs::create_directories(home);
  REQUIRE(Run("", "env -u XDG_CACHE_HOME HOME=" + home).status == kGuestPassed);
  CHECK(Files(home + "/.cache/alibi/translations").size() == 1);
  REQUIRE(Run("", "env XDG_CACHE_HOME=" + home + "/x").status == kGuestPassed);
  CHECK(Files(home + "/x/alibi/translations").size() == 1);
  REQUIRE(Run("", "env -u XDG_CACHE_HOME -u HOME").status == kGuestPassed);
}

TEST_CASE("nothing is kept where translations are counted or logged") {
  const std::string folder = TempFile("counted");
  (void)CountsOf("--tc-cache " + folder);
  CHECK(CountsOf("--tc-cache " + folder + " --log " + TempFile("log")).loaded == 0);
}

TEST_CASE("a folder that others may write to is refused") {
  const std::string folder = TempFile("open");
  fs::create_directories(folder);
  REQUIRE(chmod(folder.c_str(), 0777) == 0);
  const Ended ended = Run("--tc-cache " + folder);
  CHECK(ended.status == 64);
  CHECK(ended.output.find("other users may write to it") != std::string::npos);
  CHECK(Files(folder).empty());
  // The usual one is done without.
  const std::string home = TempFile("open_home");
  fs::create_directories(home + "/.cache/alibi/translations");
  REQUIRE(chmod((home + "/.cache/alibi/translations").c_str(), 0777) == 0);
  const Ended usual = Run("", "env -u XDG_CACHE_HOME HOME=" + home);
  CHECK(usual.status == kGuestPassed);
  CHECK(usual.output.find("translations are not kept") != std::string::npos);
}

TEST_CASE("damaged files cost translations, and nothing else") {
  const std::string folder = TempFile("damaged");
  (void)CountsOf("--tc-cache " + folder);
  const fs::path file = Files(folder).at(0);
  std::mt19937 random(4);
  for (unsigned round = 0; round < 12; ++round) {
    {
      std::fstream damaged(file, std::ios::binary | std::ios::in | std::ios::out);
      // At least one of the head's bytes at last.
      const auto size = round == 11 ? std::uintmax_t{64} : fs::file_size(file);
      for (unsigned i = 0; i < 200; ++i) {
        damaged.seekp(static_cast<std::streamoff>(random() % size));
        damaged.put(static_cast<char>(random()));
      }
    }
    const Counts counts = CountsOf("--tc-cache " + folder);
    if (round == 11) CHECK(counts.loaded + counts.translated > 0);
  }
  fs::resize_file(file, fs::file_size(file) / 2);
  CHECK(CountsOf("--tc-cache " + folder).translated > 0);
}

TEST_CASE("runs at the same time share a folder") {
  const std::string folder = TempFile("shared");
  const std::string one = std::string(std::getenv("ALIBI")) + " run --tc-cache " + folder + " " +
                          std::getenv("KERNEL") + " </dev/null >/dev/null 2>&1";
  const std::string all = "(" + one + ") & a=$!; (" + one + ") & b=$!; (" + one +
                          ") & c=$!; r=0; for p in $a $b $c; do wait $p; [ $? = 1 ] || r=9; done; "
                          "exit $r";
  for (unsigned round = 0; round < 3; ++round) {
    const int status = std::system(all.c_str());
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  const Counts after = CountsOf("--tc-cache " + folder);
  CHECK(after.translated < after.loaded);
}

}  // namespace
