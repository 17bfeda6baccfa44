// SPDX-License-Identifier: Apache-2.0
// Runs single instructions on the host's CPU, in a confined child process, and says how each ended:
// executed, #UD, another fault, or not fetched completely.
//
// An instruction stands at the end of a page whose successor cannot be executed. So the CPU itself
// says how long it takes the instruction to be: a fetch fault means that it wanted more bytes than
// it was given.
#ifndef ALIBI_TESTSUITE_COVERAGE_HOST_PROBE_H_
#define ALIBI_TESTSUITE_COVERAGE_HOST_PROBE_H_

#include <sys/types.h>

#include <array>
#include <span>

#include "base/types.h"

namespace alibi::coverage {

struct Probe {
  std::array<u8, 15> bytes{};
  u8 length = 0;      // bytes in front of the page's end
  u8 code_bits = 64;  // 64 or 32
};

enum class HostVerdict : u8 {
  kRuns,       // to its end, or to a fault or trap of its own
  kUndefined,  // #UD
  kCutShort,   // the CPU wanted more bytes
  kLost,       // hung, or killed the child
};

struct ProbeResult {
  HostVerdict verdict = HostVerdict::kLost;
  u8 trap = 0;  // vector of what ended it
};

class HostProber {
 public:
  HostProber();
  ~HostProber();
  HostProber(const HostProber&) = delete;
  HostProber& operator=(const HostProber&) = delete;

  // results[i] is what became of probes[i].
  void Run(std::span<const Probe> probes, std::span<ProbeResult> results);

  // A child takes so many; more are run in several children.
  static constexpr unsigned kBatch = 1 << 16;

  struct Shared;

 private:
  Shared* shared_;
};

}  // namespace alibi::coverage

#endif  // ALIBI_TESTSUITE_COVERAGE_HOST_PROBE_H_
