// SPDX-License-Identifier: Apache-2.0
// Golden tests: a text must equal a checked-in file. After a change that is meant,
//     ALIBI_ACCEPT=1 bazel run //folder:test
// writes the new text into the source tree, for `git diff` to show.
#ifndef ALIBI_TESTSUITE_GOLDEN_H_
#define ALIBI_TESTSUITE_GOLDEN_H_

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace alibi::testsuite {

// Compares `text` with `file` (a path from the root, among the test's data). Returns "", or the
// first difference and how to accept it.
inline std::string CompareWithGolden(const std::string& file, const std::string& text) {
  if (std::getenv("ALIBI_ACCEPT") != nullptr) {
    const char* root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
    if (root == nullptr) return "ALIBI_ACCEPT works with `bazel run` only";
    std::ofstream out(std::string(root) + "/" + file);
    out << text;
    out.close();
    return out.good() ? "" : file + ": cannot be written";
  }
  std::ifstream in(file);
  if (!in) return file + ": missing; accept it with ALIBI_ACCEPT=1 bazel run of this test";
  std::stringstream golden;
  golden << in.rdbuf();
  if (golden.str() == text) return "";
  std::istringstream a(golden.str()), b(text);
  std::string expected, got;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, expected));
    const bool more_b = static_cast<bool>(std::getline(b, got));
    if (!more_a && !more_b) return file + ": differs in its last newline";
    if (more_a && more_b && expected == got) continue;
    return file + ":" + std::to_string(line) + "\n- " + (more_a ? expected : "(end)") + "\n+ " +
           (more_b ? got : "(end)") +
           "\nIf this change is meant: ALIBI_ACCEPT=1 bazel run of this test, then git diff.\n" +
           "All of it:\n" + text;
  }
}

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_GOLDEN_H_
