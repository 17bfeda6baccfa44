// SPDX-License-Identifier: Apache-2.0
// docs/coverage.md says what the decoder does, and names a test for everything that is not #UD.
#include "testsuite/coverage/table.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "testsuite/coverage/inventory.h"

namespace alibi::coverage {
namespace {

constexpr const char* kHowTo = "bazel run //testsuite/coverage:table writes it anew";

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  std::string cell;
  std::getline(in, cell, '|');
  while (std::getline(in, cell, '|')) cells.push_back(cell);
  return cells;
}

TEST_CASE("The coverage table is up to date, and nothing is untested", "[coverage]") {
  std::ifstream in("docs/coverage.md");
  REQUIRE(in);
  std::set<std::string> heads;
  std::string line, undefined;
  bool in_undefined = false;
  while (std::getline(in, line)) {
    if (line.rfind("## #UD", 0) == 0) in_undefined = true;
    if (in_undefined) {
      undefined += line + ",";
      continue;
    }
    const std::vector<std::string> cells = Cells(line);
    if (cells.size() != 8 || cells[0] == "---") continue;
    std::string head = "|";
    for (unsigned i = 0; i < 5; ++i) head += cells[i] + "|";
    heads.insert(head);
    const bool tested = cells[5] != " 0 " || cells[6] != " 0 / 0 / 0 " || cells[7].size() > 2;
    INFO(line << "\n" << kHowTo);
    CHECK(tested);
  }
  unsigned defined = 0;
  for (const InventoryRow& row : TakeInventory()) {
    INFO(RowHead(row) << "\n" << kHowTo);
    if (row.defined) {
      ++defined;
      CHECK(heads.count(RowHead(row)) == 1);
    } else {
      CHECK(undefined.find(" " + row.mnemonic) != std::string::npos);
    }
  }
  CHECK(defined > 1200);
  CHECK(heads.size() == defined + 1);  // and the titles of the columns
}

}  // namespace
}  // namespace alibi::coverage
