// SPDX-License-Identifier: Apache-2.0
// The compute programs in a host process, with the same JSON lines as the FrobOS kernel prints:
//     {"name":"sha256","samples":[cycles per run,...],"checksum":"hex"}   then {"done":true}
// Arguments, as on the kernel's command line: samples=N scale=PERCENT only=a,b,c quick.
// Exit status 0; 2 for an unknown argument.

#include <x86intrin.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "frobos/compute/compute.h"

namespace {

struct Program {
  const char* name;
  uint64_t (*run)(unsigned scale);
  unsigned scale;
};

#define COMPUTE_ROW(name, default_scale) {#name, run_##name, default_scale},
constexpr Program kPrograms[] = {COMPUTE_PROGRAMS(COMPUTE_ROW)};
#undef COMPUTE_ROW

struct Options {
  unsigned samples = 9;
  unsigned percent = 100;
  std::string only;
};

bool Selected(const Options& options, std::string_view name) {
  if (options.only.empty()) return true;
  const std::string list = "," + options.only + ",";
  return list.find("," + std::string(name) + ",") != std::string::npos;
}

// fib's scale is an exponent: it is never scaled.
unsigned Scaled(const Program& p, unsigned percent) {
  if (std::string_view(p.name) == "fib") return p.scale;
  const unsigned scale = static_cast<unsigned>(uint64_t{p.scale} * percent / 100);
  return scale != 0 ? scale : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string_view word = argv[i];
    const auto number = [&](size_t at) { return static_cast<unsigned>(std::atoi(argv[i] + at)); };
    if (word.starts_with("samples=")) {
      options.samples = number(8);
    } else if (word.starts_with("scale=")) {
      options.percent = number(6);
    } else if (word.starts_with("only=")) {
      options.only = word.substr(5);
    } else if (word == "quick") {
      options.samples = 3;
    } else {
      std::fprintf(stderr, "unknown argument '%s' (samples=N scale=PERCENT only=a,b quick)\n",
                   argv[i]);
      return 2;
    }
  }
  for (const Program& p : kPrograms) {
    if (!Selected(options, p.name)) continue;
    const unsigned scale = Scaled(p, options.percent);
    uint64_t checksum = p.run(scale);
    std::printf("{\"name\":\"%s\",\"samples\":[", p.name);
    for (unsigned i = 0; i < options.samples; i++) {
      const uint64_t start = __rdtsc();
      checksum = p.run(scale);
      std::printf("%s%" PRIu64, i == 0 ? "" : ",", uint64_t{__rdtsc() - start});
    }
    std::printf("],\"checksum\":\"%016" PRIx64 "\"}\n", checksum);
  }
  std::printf("{\"done\":true}\n");
  return 0;
}
