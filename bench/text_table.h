// SPDX-License-Identifier: Apache-2.0
// Tables for the terminal.
#ifndef ALIBI_BENCH_TEXT_TABLE_H_
#define ALIBI_BENCH_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace alibi::bench {

inline constexpr const char* kColorReset = "\x1b[0m";
inline constexpr const char* kColorBold = "\x1b[1m";
inline constexpr const char* kColorDim = "\x1b[2m";
inline constexpr const char* kColorGreen = "\x1b[32m";
inline constexpr const char* kColorRed = "\x1b[31m";

// A cell is padded by what it shows, not by its escapes.
struct Cell {
  std::string text;
  const char* color = nullptr;  // one of kColor*
};

class TextTable {
 public:
  void Row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  // First column to the left, the others to the right; the first row is the header.
  std::string Render(bool colors) const;

 private:
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_TEXT_TABLE_H_
