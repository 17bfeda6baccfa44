// SPDX-License-Identifier: Apache-2.0
#include "testsuite/emitted_code/golden_cases.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/check.h"

namespace alibi::testsuite {

std::vector<GoldenCase> GoldenCases() {
  std::vector<GoldenCase> cases;
  for (const char* name : {"operands", "control", "stack", "strings", "system", "segments",
                           "integer", "x87", "mmx", "sse", "vex", "evex"}) {
    std::ifstream in(fmt::format("testsuite/emitted_code/golden/{}.txt", name));
    ALIBI_CHECK(in.good(), "the golden files are a test's data");
    for (std::string line; std::getline(in, line);) {
      if (line.rfind("64", 0) != 0) continue;
      std::istringstream words(line);
      GoldenCase one;
      one.line = line;
      std::string word;
      words >> word;
      one.user = word == "64u:";
      do {
        words >> word;
        one.bytes.push_back(static_cast<u8>(std::strtoul(word.c_str(), nullptr, 16)));
      } while (word.back() != ':');
      cases.push_back(one);
    }
  }
  // What its PC decides, and nothing else: half of a PC cannot move.
  cases.push_back({"mov eax, [eip + 16]", {0x67, 0x8b, 0x05, 0x10, 0, 0, 0}, false});
  return cases;
}

}  // namespace alibi::testsuite
