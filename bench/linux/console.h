// SPDX-License-Identifier: Apache-2.0
// What linuxbench says on the console, with the host's time of each line, and of a login prompt.
#ifndef ALIBI_BENCH_LINUX_CONSOLE_H_
#define ALIBI_BENCH_LINUX_CONSOLE_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::bench {

// The outcome of one workload in one run.
struct LinuxOutcome {
  std::vector<double> seconds;  // per operation, one for each sample
  std::string check;            // what was computed, as a checksum
  std::string error;            // not empty: it failed, and there are no samples
  // From the line that began it to the line that told the outcome, in seconds: by the host's clock,
  // and of CPU time. 0 if it was not told when it began.
  double host = 0, cpu = 0;
};

// The same moment on three clocks, in seconds, each from a moment of its own: the guest's, the
// host's, and the machine's CPU time.
struct ClockMark {
  double guest = 0, host = 0, cpu = 0;
};

// The first login prompt, which tells no guest's time.
inline constexpr const char* kLoginMark = "login";

class LinuxConsole {
 public:
  // Output as it came from the machine, in pieces of any size, `host_seconds` after its start, when
  // it had used `cpu_seconds` of CPU time.
  void Feed(std::string_view text, double host_seconds, double cpu_seconds = 0);

  const std::map<std::string, LinuxOutcome>& outcomes() const { return outcomes_; }
  // Of linuxbench's lines, or kLoginMark.
  std::optional<ClockMark> Mark(const std::string& name) const;
  // The workload that was begun last and gave no outcome; "" if there is none.
  const std::string& unfinished() const { return unfinished_; }
  // linuxbench went through to its end.
  bool done() const { return Mark("done").has_value(); }
  // The last line that was none of ours, such as a kernel's last words.
  const std::string& last_line() const { return last_line_; }

 private:
  void Line(std::string_view line, const ClockMark& now);

  std::string pending_;
  std::map<std::string, LinuxOutcome> outcomes_;
  std::map<std::string, ClockMark> marks_;
  std::string unfinished_;
  ClockMark begun_;  // when it was
  std::string last_line_;
};

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_CONSOLE_H_
