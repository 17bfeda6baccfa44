// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace alibi::loader {
namespace {

using Catch::Matchers::Contains;

struct Folder {
  Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    path = std::string(base != nullptr ? base : "/tmp") + "/alibi_file_test_" +
           std::to_string(getpid());
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
  }
  ~Folder() {
    for (const char* name : {"/data", "/fifo"}) unlink((path + name).c_str());
    rmdir(path.c_str());
  }
  std::string path;
};

TEST_CASE("file: a whole file, byte by byte, also an empty one") {
  Folder folder;
  const std::string path = folder.path + "/data";
  { std::ofstream(path, std::ios::binary) << std::string("a\0b\xff", 4); }
  auto bytes = ReadWholeFile(path);
  REQUIRE(bytes.ok());
  CHECK(bytes.value() == std::vector<u8>{'a', 0, 'b', 0xff});
  { std::ofstream(path, std::ios::trunc); }
  bytes = ReadWholeFile(path);
  REQUIRE(bytes.ok());
  CHECK(bytes.value().empty());
}

TEST_CASE("file: errors name the file and the reason") {
  Folder folder;
  const auto message = [](const Result<std::vector<u8>>& result) {
    REQUIRE_FALSE(result.ok());
    return result.error().message;
  };
  CHECK_THAT(message(ReadWholeFile(folder.path + "/none")),
             Contains("/none'") && Contains("No such file"));
  CHECK_THAT(message(ReadWholeFile(folder.path)), Contains("directory"));
  CHECK_THAT(message(ReadWholeFile("/dev/zero")), Contains("not a regular file"));
  CHECK_THAT(message(ReadWholeFile("")), Contains("No such file"));
  const std::string fifo = folder.path + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(message(ReadWholeFile(fifo)), Contains("not a regular file"));
  const std::string data = folder.path + "/data";
  { std::ofstream(data) << "12345"; }
  CHECK_THAT(message(ReadWholeFile(data, 4)), Contains("5 bytes"));
  CHECK(ReadWholeFile(data, 5).ok());
}

}  // namespace
}  // namespace alibi::loader
