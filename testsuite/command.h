// SPDX-License-Identifier: Apache-2.0
// A shell command that a test runs, and what it prints.
#ifndef ALIBI_TESTSUITE_COMMAND_H_
#define ALIBI_TESTSUITE_COMMAND_H_

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

namespace alibi::testsuite {

struct Ended {
  int status = -1;     // that it exited with; -1: it did not exit
  std::string output;  // of its stdout
};

inline Ended RunCommand(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Ended ended;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    ended.output.append(buffer, n);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_COMMAND_H_
