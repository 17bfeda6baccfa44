// SPDX-License-Identifier: Apache-2.0
// The decoder against the host's CPU; see sweep_main.cc.
#ifndef ALIBI_TESTSUITE_COVERAGE_SWEEP_H_
#define ALIBI_TESTSUITE_COVERAGE_SWEEP_H_

#include <string>

#include "testsuite/coverage/opcode_space.h"

namespace alibi::coverage {

struct SweepOptions {
  unsigned code_bits = 0;  // 64 or 32; 0: both
  std::string space;       // legacy, vex, evex; empty: all
  Depth depth = Depth::kShort;
  bool show_expected = false;
};

struct SweepReport {
  u64 encodings = 0;
  u64 differences = 0;  // unexplained
  std::string text;     // one line per kind of difference
};

SweepReport Sweep(const SweepOptions& options);

}  // namespace alibi::coverage

#endif  // ALIBI_TESTSUITE_COVERAGE_SWEEP_H_
