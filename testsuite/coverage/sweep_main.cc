// SPDX-License-Identifier: Apache-2.0
// Compares the decoder with the host's CPU over the opcode space: which encodings are #UD, and how
// long the others are.
//
//   bazel run //testsuite/coverage:sweep -- [--mode 32|64] [--space legacy|vex|evex] [--full]
//   [--all]
//
// stdout: the kinds of difference that nothing explains (--all: the others, too), each with its
// count and an example. Exit code 1: there were any; 2: wrong usage.
#include <cstdio>
#include <cstring>
#include <string>

#include "testsuite/coverage/sweep.h"

int main(int argc, char** argv) {
  using namespace alibi::coverage;
  SweepOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool more = i + 1 < argc;
    if (argument == "--full") {
      options.depth = Depth::kFull;
    } else if (argument == "--mode" && more) {
      options.code_bits = static_cast<unsigned>(std::atoi(argv[++i]));
    } else if (argument == "--space" && more) {
      options.space = argv[++i];
    } else if (argument == "--all") {
      options.show_expected = true;
    } else {
      std::fprintf(stderr,
                   "usage: sweep [--mode 32|64] [--space legacy|vex|evex] [--full] [--all]\n");
      return 2;
    }
  }
  const SweepReport report = Sweep(options);
  std::fputs(report.text.c_str(), stdout);
  std::printf("%llu encodings, %llu unexplained differences\n",
              static_cast<unsigned long long>(report.encodings),
              static_cast<unsigned long long>(report.differences));
  return report.differences == 0 ? 0 : 1;
}
