// SPDX-License-Identifier: Apache-2.0
// One measured system in a process of its own: whatever it does, the bench goes on.
#ifndef ALIBI_BENCH_CHILD_PROCESS_H_
#define ALIBI_BENCH_CHILD_PROCESS_H_

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::bench {

struct ChildResult {
  bool started = false;
  bool timed_out = false;
  int exit_status = -1;  // -1: ended by `signal`, or not started
  int signal = 0;
  std::string output;  // stdout, complete
  std::string errors;  // the end of stderr

  // "killed by SIGSEGV", "no end within 10 s", "exit status 71: alibi: ...".
  std::string Describe() const;
  std::chrono::milliseconds limit{};
};

// Runs argv[0] (searched in PATH) with stdin from /dev/null, in a process group of its own, which
// is killed when `limit` has passed. `on_output`, if there is one, sees each piece of stdout as it
// comes, and the process group.
ChildResult RunChild(const std::vector<std::string>& argv, std::chrono::milliseconds limit,
                     const std::function<void(std::string_view, int group)>& on_output = nullptr);

// The path of a program in PATH, or "".
std::string FindProgram(const std::string& name);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_CHILD_PROCESS_H_
