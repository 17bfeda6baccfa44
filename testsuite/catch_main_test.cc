// SPDX-License-Identifier: Apache-2.0
// The test framework's own first test: cases are found, run and counted.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace {

TEST_CASE("The report is well-formed and names the running case", "[catch_main]") {
  const char* path = std::getenv("XML_OUTPUT_FILE");
  if (path == nullptr) return;  // Run by hand, not by Bazel: there is no report.
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str().find("The report is well-formed") != std::string::npos);
  CHECK(text.str().find("the process ended inside this test case") != std::string::npos);
  CHECK(text.str().find("</testsuites>") != std::string::npos);
}

TEST_CASE("Names with <markup> & \"quotes\" are escaped", "[catch_main]") { SUCCEED(); }

}  // namespace
