// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/console.h"

#include <catch2/catch.hpp>

#include "bench/linux/initramfs.h"
#include "bench/linux/workloads.h"

namespace alibi::bench {
namespace {

TEST_CASE("Results come from the console, in pieces and between other lines") {
  LinuxConsole console;
  console.Feed("[    0.000000] Linux version\r\n@@bench {\"mark\":\"begin\",\"clo", 1);
  console.Feed("ck\":0.5}\r\n@@bench {\"begin\":\"getppid\"}\r\n", 2);
  CHECK(console.unfinished() == "getppid");
  CHECK_FALSE(console.done());
  console.Feed(
      "[    1.0] a message@@bench "
      "{\"name\":\"getppid\",\"count\":100,\"check\":\"0f\",\"seconds\":[0.5,0.25]}\n",
      3);
  CHECK(console.unfinished().empty());
  const LinuxOutcome& outcome = console.outcomes().at("getppid");
  CHECK(outcome.error.empty());
  CHECK(outcome.check == "0f");
  CHECK(outcome.seconds == std::vector<double>{0.005, 0.0025});
  const auto begin = console.Mark("begin");
  REQUIRE(begin.has_value());
  CHECK(begin->guest == 0.5);
  CHECK(begin->host == 2);
  CHECK(console.last_line() == "[    0.000000] Linux version");
}

TEST_CASE("The first login prompt is a mark, though no line ends there") {
  LinuxConsole console;
  console.Feed("Debian GNU/Linux 12 debian ttyS0\r\n\r\ndebian lo", 7, 6);
  CHECK_FALSE(console.Mark(kLoginMark).has_value());
  console.Feed("gin: ", 8, 7);
  console.Feed("@@bench {\"mark\":\"begin\",\"clock\":0.5}\ndebian login: ", 9, 8);
  REQUIRE(console.Mark(kLoginMark).has_value());
  CHECK(console.Mark(kLoginMark)->host == 8);
  CHECK(console.Mark(kLoginMark)->cpu == 7);
  CHECK(console.Mark("begin")->host == 9);
}

TEST_CASE("A failed workload has its reason and no figures") {
  LinuxConsole console;
  console.Feed("@@bench {\"name\":\"pipe\",\"error\":\"pipe: too many open files\"}\n", 1);
  CHECK(console.outcomes().at("pipe").error == "pipe: too many open files");
  CHECK(console.outcomes().at("pipe").seconds.empty());
}

TEST_CASE("What a guest may print does no harm") {
  for (const char* line :
       {"@@bench ", "@@bench {", "@@bench 7", "@@bench []", "@@bench {\"name\":3}",
        "@@bench {\"name\":\"x\"}", "@@bench {\"name\":\"x\",\"count\":\"y\"}",
        "@@bench {\"mark\":\"begin\"}", "@@bench {\"begin\":[]}",
        "@@bench {\"name\":\"x\",\"count\":1,\"check\":\"\",\"seconds\":[\"y\"]}"}) {
    LinuxConsole console;
    console.Feed(std::string(line) + "\n", 1);
    CHECK(console.outcomes().empty());
    CHECK(console.last_line() == line);
    CHECK_FALSE(console.Mark("begin").has_value());
  }
  LinuxConsole console;
  console.Feed(std::string(10 << 20, 'x') + "\n", 1);
  CHECK(console.last_line().size() == 65536);
}

TEST_CASE("No figures, or none that could be divided, are a failure") {
  for (const char* figures : {"\"count\":1,\"check\":\"\",\"seconds\":[]",
                              "\"count\":0,\"check\":\"\",\"seconds\":[1]"}) {
    LinuxConsole console;
    console.Feed(std::string("@@bench {\"name\":\"x\",") + figures + "}\n", 1);
    CHECK(console.outcomes().at("x").error == "it gave no figures");
  }
}

TEST_CASE("The archive has the newc format's headers and padding") {
  CpioArchive archive;
  archive.Add("a", 0100644, "hello");
  const std::string bytes = archive.Finish();
  CHECK(bytes.substr(0, 110) ==
        "070701"
        "00000001"
        "000081a4"
        "00000000"
        "00000000"
        "00000001"
        "00000000"
        "00000005"
        "00000000"
        "00000000"
        "00000000"
        "00000000"
        "00000002"
        "00000000");
  CHECK(bytes.substr(110, 10) == std::string("a\0hello\0\0\0", 10));
  CHECK(bytes.size() % 4 == 0);
  CHECK(bytes.find("TRAILER!!!") != std::string::npos);
  const std::string made = MakeInitramfs({{"lib/x/library", "bytes"}});
  CHECK(made.find(std::string("lib/x\0", 6)) < made.find(std::string("lib/x/library\0", 14)));
}

TEST_CASE("Workloads are found by name") {
  REQUIRE(FindLinuxWorkload("forkwait") != nullptr);
  CHECK(FindLinuxWorkload("forkwait")->aim == 3);
  CHECK(FindLinuxWorkload("boot")->is_boot);
  CHECK(FindLinuxWorkload("login")->suite == LinuxSuite::kDebian);
  CHECK(FindLinuxWorkload("true")->most == 5);
  CHECK(FindLinuxWorkload("nothing") == nullptr);
}

}  // namespace
}  // namespace alibi::bench
