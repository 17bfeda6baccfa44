// SPDX-License-Identifier: Apache-2.0
#include "pc/pc_machine.h"

#include <unistd.h>

#include <catch2/catch.hpp>

namespace alibi::vmm {
namespace {

// The second serial port has a thread of its own, which pokes the machine when input comes: at the
// latest the end of its file, as `alibi linux` closes it when the machine is about to end.
TEST_CASE("A machine goes while input arrives at its second serial port") {
  for (int i = 0; i < 300; ++i) {
    int input[2];
    REQUIRE(pipe(input) == 0);
    PcMachineConfig config;
    config.ram_bytes = 1 << 20;
    config.com2 = SerialLink::Files{.input = input[0], .output = {}, .filter = nullptr};
    auto machine = PcMachine::Create(config);
    REQUIRE(machine.ok());
    REQUIRE(write(input[1], "x", 1) == 1);
    close(input[1]);
    machine->reset();
    close(input[0]);
  }
}

}  // namespace
}  // namespace alibi::vmm
