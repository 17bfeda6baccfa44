// SPDX-License-Identifier: Apache-2.0
// FrobOS kernels under `alibi run --engine hardware`: the program, its sandbox, the PC's devices
// and the host's KVM together. Where /dev/kvm does not open there is nothing to test, which is
// said.
//
// The kernels here ask nothing of the CPU that one of the KVMs we know gets wrong. The others do:
// in nested ones that emulate ring 0 they fail, or take minutes (docs/design.md, "The hardware
// engine").
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "hardware/kvm.h"
#include "testsuite/command.h"

namespace {

void RunKernel(const std::string& kernel, const std::string& options) {
  if (auto kvm = alibi::hardware::Kvm::Open(); !kvm.ok()) {
    std::cout << "not tested: the hardware engine: " << kvm.error().message << "\n";
    return;
  }
  const std::string command = std::string("timeout -k 5 100 ") + std::getenv("ALIBI") +
                              " run --engine hardware --ram 64M " + options +
                              std::getenv("KERNELS") + "/" + kernel + ".elf </dev/null 2>&1";
  const alibi::testsuite::Ended ended = alibi::testsuite::RunCommand(command);
  std::istringstream lines(ended.output);
  std::string last;
  for (std::string line; std::getline(lines, line); last = line) {
    if (line.rfind("FAIL ", 0) == 0) FAIL_CHECK(line);
  }
  INFO("the last line was: " << last);
  REQUIRE(ended.status >= 0);
  CHECK(ended.status == 1);
}

constexpr char kNoReboot[] = "--no-reboot ";

TEST_CASE("hardware: hello, in 64 bits") { RunKernel("hello", kNoReboot); }
TEST_CASE("hardware: hello, in 32 bits") { RunKernel("hello32", kNoReboot); }
TEST_CASE("hardware: the keyboard controller") { RunKernel("i8042", kNoReboot); }
TEST_CASE("hardware: PCI and virtio") { RunKernel("pci_virtio", kNoReboot); }
TEST_CASE("hardware: the 8254") { RunKernel("pit", kNoReboot); }
TEST_CASE("hardware: the real-time clock") { RunKernel("rtc", kNoReboot); }
TEST_CASE("hardware: resets") { RunKernel("reset", ""); }
TEST_CASE("hardware: the display") { RunKernel("vga", kNoReboot); }

}  // namespace
