// SPDX-License-Identifier: Apache-2.0
#include "vcpu/breakpoints.h"

#include <catch2/catch.hpp>

#include "vcpu/control_registers.h"

namespace alibi::vcpu {
namespace {

enum Length : u64 { kOne = 0, kTwo = 1, kEight = 2, kFour = 3 };

VcpuState With(unsigned i, BreakpointAccess kind, Length length, u64 address) {
  VcpuState state{};
  state.dr[i] = address;
  state.dr[7] = kDr7Fixed | (u64{1} << (2 * i)) |
                ((static_cast<u64>(kind) | u64{length} << 2) << (16 + 4 * i));
  return state;
}

TEST_CASE("breakpoints are enabled locally or globally") {
  VcpuState state{};
  state.dr[7] = kDr7Fixed;
  CHECK(!BreakpointsEnabled(state));
  for (unsigned bit = 0; bit < 8; ++bit) {
    state.dr[7] = kDr7Fixed | (u64{1} << bit);
    CHECK(BreakpointsEnabled(state));
    CHECK(MatchBreakpoints(state, BreakpointAccess::kExecute, 0, 1) == (u64{1} << (bit / 2)));
  }
  state.dr[7] = kDr7Fixed | (3u << 8);  // LE and GE enable nothing
  CHECK(!BreakpointsEnabled(state));
}

TEST_CASE("a breakpoint answers to its kinds of access") {
  constexpr BreakpointAccess kAll[] = {BreakpointAccess::kExecute, BreakpointAccess::kWrite,
                                       BreakpointAccess::kPort, BreakpointAccess::kRead};
  constexpr bool kAnswers[4][4] = {
      {true, false, false, false},  // execute
      {false, true, false, false},  // write
      {false, false, true, false},  // port
      {false, true, false, true},   // read or write
  };
  for (unsigned kind = 0; kind < 4; ++kind) {
    VcpuState state = With(kind, kAll[kind], kOne, 0x80);
    state.cr4 = kCr4De;
    for (unsigned access = 0; access < 4; ++access) {
      CHECK((MatchBreakpoints(state, kAll[access], 0x80, 1) != 0) == kAnswers[kind][access]);
    }
  }
  CHECK(MatchBreakpoints(With(0, BreakpointAccess::kPort, kOne, 0x80), BreakpointAccess::kPort,
                         0x80, 1) == 0);  // without CR4.DE
}

TEST_CASE("ranges overlap exactly, also around the ends of the address space") {
  struct Case {
    Length length;
    u64 breakpoint, address;
    unsigned size;
    bool hit;
  };
  constexpr Case kCases[] = {
      {kOne, 0x1000, 0x1000, 1, true},       {kOne, 0x1000, 0xfff, 1, false},
      {kOne, 0x1000, 0x1001, 8, false},      {kOne, 0x1000, 0xff9, 8, true},
      {kOne, 0x1000, 0xff8, 8, false},       {kFour, 0x1000, 0x1003, 1, true},
      {kFour, 0x1000, 0x1004, 1, false},     {kFour, 0x1002, 0x1000, 1, true},  // aligned down
      {kEight, 0x1000, 0x1007, 64, true},    {kTwo, 0x1000, 0x1002, 2, false},
      {kOne, ~u64{0}, ~u64{0} - 3, 4, true}, {kOne, 0, ~u64{0} - 3, 4, false},
      {kEight, 0, ~u64{0} - 3, 8, true},
  };
  for (const Case& c : kCases) {
    const VcpuState state = With(2, BreakpointAccess::kWrite, c.length, c.breakpoint);
    CAPTURE(c.breakpoint, c.address, c.size);
    CHECK(MatchBreakpoints(state, BreakpointAccess::kWrite, c.address, c.size) ==
          (c.hit ? 4u : 0u));
  }
}

TEST_CASE("DR6: B0-B3 of the latest #DB, the rest adds up") {
  VcpuState s{};
  s.dr[6] = kDr6Fixed | kDr6Bs | 2;
  ReportDebug(s, 4);
  CHECK(s.dr[6] == (kDr6Fixed | kDr6Bs | 4));
  ReportDebug(s, kDr6Bd);
  CHECK(s.dr[6] == (kDr6Fixed | kDr6Bs | kDr6Bd));
}

}  // namespace
}  // namespace alibi::vcpu
