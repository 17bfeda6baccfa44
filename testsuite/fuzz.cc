// SPDX-License-Identifier: Apache-2.0
// The native-oracle fuzzer. stdout: progress and, on a difference, the whole story; exit status 0:
// everything agreed, 1: something differed, 2: bad usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <string>
#include <vector>

#include "testsuite/oracle/compare.h"
#include "testsuite/oracle/harness.h"
#include "testsuite/oracle/listing.h"

namespace alibi::oracle {
namespace {

struct Options {
  u64 seed = 1;
  u64 count = 10'000;
  u64 seconds = 0;
  u64 only = ~u64{0};
  std::string kind = "rotate";
  unsigned mode = 0;
  unsigned finds = 1;
  unsigned stops = 0;
  bool verify = false;
  bool masks = false;
  bool counters = false;
  bool whole = false;
};

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The kinds in which sequence `index` runs.
std::vector<Kind> KindsFor(const Options& options, u64 index) {
  if (options.kind == "all") {
    std::vector<Kind> all;
    for (unsigned k = 0; k < kKindCount; ++k) all.push_back(static_cast<Kind>(k));
    return all;
  }
  if (options.kind == "rotate") {
    return {Kind::kThreshold, static_cast<Kind>(1 + index % (kKindCount - 1))};
  }
  if (options.kind == "turn") return {static_cast<Kind>(index % kKindCount)};
  return {KindOf(options.kind)};
}

// The sequence that runs now, for a CHECK that fails under it.
const TestCase* running = nullptr;
Kind running_kind = Kind::kThreshold;

void OnAbort(int) {
  if (running != nullptr) {
    fmt::print("=== internal error in {}, kind {}\n{}", running->name, KindName(running_kind),
               ListGuest(*running));
    std::fflush(stdout);
  }
  std::signal(SIGABRT, SIG_DFL);
}

int Fuzz(const Options& options) {
  Harness harness;
  std::signal(SIGABRT, OnAbort);
  if (options.stops != 0) SetStopInterval(options.stops);
  std::vector<GeneratedCase> made(NativeRunner::kBatch);
  std::vector<TestCase> tests(NativeRunner::kBatch);
  std::vector<Outcome> outcomes(NativeRunner::kBatch);
  const double begin = Now();
  double next_report = begin + 10;
  u64 done = 0, ended = 0, endless = 0;
  unsigned finds = 0;
  std::array<u64, 32> vectors{};
  for (u64 index = options.only != ~u64{0} ? options.only : 0;
       index < options.count || options.only != ~u64{0};) {
    const u64 left = options.only != ~u64{0} ? 1 : options.count - index;
    const u64 batch = std::min<u64>(NativeRunner::kBatch, left);
    for (u64 i = 0; i < batch; ++i) {
      made[i] = Generator(SeedOf(options.seed, index + i)).Make(options.mode);
      made[i].test.name = fmt::format("sequence {} of --seed {}", index + i, options.seed);
      tests[i] = made[i].test;
    }
    harness.native().Run({tests.data(), batch}, {outcomes.data(), batch});
    for (u64 i = 0; i < batch; ++i) {
      if (outcomes[i].end == End::kException) {
        ++ended;
        ++vectors[outcomes[i].vector & 31];
      } else {
        ++endless;
      }
      harness.set_verify(options.verify || (index + i) % 64 == 0);
      for (const Kind kind : KindsFor(options, index + i)) {
        running = &made[i].test;
        running_kind = kind;
        auto find = harness.Check(made[i], kind, outcomes[i]);
        if (!find) continue;
        fmt::print("{}\n", harness.Story(options.whole ? *find : harness.Shrink(*find)));
        std::fflush(stdout);
        if (++finds >= options.finds) return 1;
        break;
      }
      ++done;
    }
    index += batch;
    if (options.only != ~u64{0}) break;
    const double now = Now();
    if (now > next_report) {
      next_report = now + 10;
      fmt::print("{} sequences, {} translated runs, {:.0f}/s, {} finds\n", done, harness.runs(),
                 static_cast<double>(done) / (now - begin), finds);
      std::fflush(stdout);
    }
    if (options.seconds != 0 && now - begin > static_cast<double>(options.seconds)) break;
  }
  fmt::print(
      "seed {}: {} sequences ({} without end or lost), {} translated runs, {:.1f} s, {} finds\n",
      options.seed, done, endless, harness.runs(), Now() - begin, finds);
  fmt::print("ends by vector:");
  for (unsigned v = 0; v < vectors.size(); ++v) {
    if (vectors[v] != 0) fmt::print(" {}:{}", v, vectors[v]);
  }
  fmt::print("\n");
  if (options.counters) fmt::print("{}", harness.CounterSummary());
  return finds == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Runs random user-level sequences natively and translated, and compares"};
  app.add_option("--seed", options.seed, "Seed of the run");
  app.add_option("--count", options.count, "Sequences to run");
  app.add_option("--seconds", options.seconds, "Stop after this time");
  app.add_option("--only", options.only, "Run just this sequence of the run");
  app.add_option("--kind", options.kind,
                 "A translation kind, `all`, `rotate` (the default kind and each other in turn) or "
                 "`turn` (one kind for each sequence)");
  app.add_option("--mode", options.mode,
                 "Code of 16, 32 or 64 bits (default: all that this host has)")
      ->check(CLI::IsMember({16, 32, 64}));
  app.add_option("--finds", options.finds, "Stop after so many differences");
  app.add_option("--stops", options.stops, "Also stop the machine every so many microseconds");
  app.add_flag("--verify", options.verify,
               "Prove every access of every translation (testsuite/verifier)");
  app.add_flag("--whole", options.whole, "Tell what differs as it was made, not shrunk");
  app.add_flag("--masks", options.masks, "Print which differences are masked, and why");
  app.add_flag("--counters", options.counters, "Print the engine's counters at the end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.masks) {
    fmt::print("{}", MaskTable());
    return 0;
  }
  if (options.kind != "all" && options.kind != "rotate" && options.kind != "turn" &&
      KindOf(options.kind) == Kind::kCount) {
    fmt::print(stderr, "fuzz: no such kind: {}\n", options.kind);
    return 2;
  }
  if (options.mode == 16 && !HostAllowsSegments()) {
    fmt::print(stderr,
               "fuzz: this host's kernel allows programs no 16-bit segments (modify_ldt)\n");
    return 2;
  }
  return Fuzz(options);
}

}  // namespace
}  // namespace alibi::oracle

int main(int argc, char** argv) { return alibi::oracle::Main(argc, argv); }
