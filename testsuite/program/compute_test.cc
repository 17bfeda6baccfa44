// SPDX-License-Identifier: Apache-2.0
// The compute programs on Alibi, in shuffled 4 KB pages at CPL 3, give the checksums that the same
// C gives natively. They found a shared look-up whose store went to the copy of a crossing load.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace {

// Program name -> checksum, from the JSON lines that `command` prints.
std::map<std::string, std::string> Checksums(const std::string& command) {
  std::FILE* pipe = popen((command + " </dev/null").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::map<std::string, std::string> sums;
  char line[65536];
  while (fgets(line, sizeof(line), pipe) != nullptr) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("checksum")) sums[json["name"]] = json["checksum"];
  }
  pclose(pipe);
  return sums;
}

void Compare(const std::string& native, const std::string& image) {
  const std::string alibi = std::getenv("ALIBI");
  for (const std::string scale : {"20", "100"}) {
    const auto expected = Checksums(native + " samples=2 scale=" + scale);
    REQUIRE(expected.size() == 9);
    for (const std::string policy : {"never", "always", "hysteresis(2,64)"}) {
      INFO("scale " << scale << ", policy " << policy);
      CHECK(Checksums(alibi + " run --policy '" + policy + "' --append 'samples=2 scale=" + scale +
                      "' " + image) == expected);
    }
  }
}

TEST_CASE("compute programs agree with the host") {
  Compare(std::getenv("NATIVE"), std::getenv("IMAGE"));
}

TEST_CASE("compute programs as 32-bit code agree with the host") {
  Compare(std::getenv("NATIVE32"), std::getenv("IMAGE32"));
}

}  // namespace
