// SPDX-License-Identifier: Apache-2.0
// What `alibi lab replay` shows: a line of figures for each policy, recorded, predicted or real.
#ifndef ALIBI_CLI_REPLAY_TABLE_H_
#define ALIBI_CLI_REPLAY_TABLE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::vmm {

struct ReplayRow {
  std::string policy;
  std::string what;         // recorded, predicted, real
  std::vector<u64> values;  // one for each column
  u64 estimated = 0;        // not seen in the log,
  u64 of = 0;               // of so many
};

struct ReplayTable {
  std::vector<const char*> columns;
  const char* estimated;  // its column's name in files
  std::vector<ReplayRow> rows;
};

std::string TextOf(const ReplayTable& table);
// How far each predicted line is from the real one behind it.
std::string ErrorsOf(const ReplayTable& table);
std::string CsvOf(const ReplayTable& table);
nlohmann::ordered_json JsonOf(const ReplayTable& table);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_REPLAY_TABLE_H_
