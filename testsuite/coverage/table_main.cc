// SPDX-License-Identifier: Apache-2.0
// Writes docs/coverage.md into the source tree:
//
//   bazel run //testsuite/coverage:table [-- NUMBER_OF_SEQUENCES]
//
// stderr: what is not #UD and has no test. Exit code 1: it could not be written.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "testsuite/coverage/inventory.h"
#include "testsuite/coverage/table.h"

int main(int argc, char** argv) {
  using namespace alibi::coverage;
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string root = workspace != nullptr ? workspace : ".";
  const alibi::u64 sequences = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 100'000;
  const std::vector<InventoryRow> rows = TakeInventory();
  const std::vector<Tested> tested = CountTests(rows, sequences, root);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tested& t = tested[i];
    if (rows[i].defined && t.forms == 0 && t.run[0] + t.run[1] + t.run[2] == 0 &&
        t.elsewhere.empty()) {
      std::fprintf(stderr, "no test: %s\n", rows[i].mnemonic.c_str());
    }
  }
  std::ofstream out(root + "/docs/coverage.md");
  out << RenderTable(rows, tested, sequences);
  out.close();
  if (!out) std::fprintf(stderr, "docs/coverage.md: cannot be written below %s\n", root.c_str());
  return out ? 0 : 1;
}
