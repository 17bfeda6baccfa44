// SPDX-License-Identifier: Apache-2.0
// The guest cannot make Alibi's own memory grow beyond its bounds: kernels with many address spaces
// and much code run with the least room, are none the worse for it, and no peak passes its bound.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

std::string TempFile(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return std::string(directory != nullptr ? directory : "/tmp") + "/" + name;
}

int Run(const std::string& options, const char* kernel) {
  const std::string command = std::string("timeout -k 5 120 ") + std::getenv("ALIBI") + " run " +
                              options + " " + std::getenv(kernel) + " </dev/null >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("peaks stay within their bounds") {
  const std::string file = TempFile("stats.json");
  for (const char* kernel : {"PCID", "PAGING", "SMC"}) {
    for (const char* room : {"--shadow-size 1M --tc-size 1M", ""}) {
      INFO(kernel << " " << room);
      REQUIRE(Run(std::string(room) + " --stats-json " + file, kernel) == 1);
      const nlohmann::json memory = nlohmann::json::parse(std::ifstream(file))["memory"];
      for (const char* name : {"translations", "ccfs", "shadow", "views", "reverse_map", "sites"}) {
        INFO(name << ": " << memory[name].dump());
        CHECK(memory[name]["peak"] <= memory[name]["bound"]);
        CHECK(memory[name]["now"] <= memory[name]["peak"]);
      }
      if (*room != '\0') CHECK(memory["shadow"]["bound"] == 1 << 20);
    }
  }
}

}  // namespace
