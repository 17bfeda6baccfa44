// SPDX-License-Identifier: Apache-2.0
// A FrobOS kernel on Alibi under each policy: the same image that must pass on QEMU. Every check
// the guest makes is a check here.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>
#include <string>

#include "testsuite/command.h"

namespace {

constexpr int kGuestPassed = 1, kGuestFailed = 3;  // debug exit with 0 and 1
constexpr int kUnsupportedHost = 69;

// What the run must end with: success, if the test's rule says nothing else.
int WantedStatus() {
  const char* status = std::getenv("STATUS");
  return status == nullptr ? kGuestPassed : std::atoi(status);
}

// As arguments: a kernel, or a ROM to start from; its drives, and what else it needs.
std::string Image() {
  const std::string image = std::getenv("KERNEL");
  const char* disk = std::getenv("DISK");
  const std::string drives = disk == nullptr
                                 ? ""
                                 : std::string("--disk ") + disk +
                                       ",snapshot,interface=" + std::getenv("INTERFACE") +
                                       " --cdrom " + std::getenv("DISC") + " ";
  const char* options = std::getenv("OPTIONS");
  return drives + (options == nullptr ? "" : options + std::string(" ")) +
         (image.ends_with(".rom") ? "--bios " : "") + image;
}

// A reset ends the run, but for the kernel that tests resets.
std::string Reboot() {
  return std::string(std::getenv("KERNEL")).ends_with("/reset.elf") ? "" : "--no-reboot ";
}

void RunKernel(const std::string& policy, const std::string& options = "") {
  const std::string command = std::string("timeout -k 5 120 ") + std::getenv("ALIBI") + " run " +
                              Reboot() + "--ram 128M --policy '" + policy + "' " + options + " " +
                              Image() + " </dev/null 2>&1";
  const alibi::testsuite::Ended ended = alibi::testsuite::RunCommand(command);
  INFO("policy " << policy);
  std::istringstream lines(ended.output);
  std::string last;
  for (std::string line; std::getline(lines, line); last = line) {
    if (line.rfind("PASS ", 0) == 0) CHECK(true);
    if (line.rfind("FAIL ", 0) == 0) FAIL_CHECK(line);
  }
  INFO("the last line was: " << last);
  REQUIRE(ended.status >= 0);
  const int code = ended.status;
  if (code == kUnsupportedHost) {
    WARN("SKIP: " << last);
    return;
  }
  // The guest's own verdict was reported line by line.
  if (code != kGuestFailed) CHECK(code == WantedStatus());
}

TEST_CASE("policy never") { RunKernel("never"); }
TEST_CASE("policy always") { RunKernel("always"); }
TEST_CASE("policy threshold(1)") { RunKernel("threshold(1)"); }
// Few enough clean callouts for an acquittal to happen within a kernel's run.
TEST_CASE("policy hysteresis(2,64)") { RunKernel("hysteresis(2,64)"); }

TEST_CASE("user code on the CPU itself, where it is fit to") {
  RunKernel("threshold(1)", "--engine direct");
}

TEST_CASE("other coherence strategies") {
  const char* names = std::getenv("COHERENCE");
  std::istringstream words(names == nullptr ? "" : names);
  for (std::string name; words >> name;) RunKernel("threshold(1)", "--coherence " + name);
}

// The second run finds what the first has kept.
TEST_CASE("translations that another run has made") {
  const char* directory = std::getenv("TEST_TMPDIR");
  const std::string store = std::string(directory != nullptr ? directory : "/tmp") + "/store";
  for (unsigned run = 0; run < 2; ++run) RunKernel("threshold(1)", "--tc-cache " + store);
}

// The smallest TC: kernels that translate much fill it many times over, and nothing is lost.
TEST_CASE("a TC that is flushed again and again") { RunKernel("threshold(1)", "--tc-size 1M"); }

}  // namespace
