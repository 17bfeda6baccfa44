// SPDX-License-Identifier: Apache-2.0
#include "bench/text_table.h"

#include <algorithm>

namespace alibi::bench {

std::string TextTable::Render(bool colors) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].text.size());
    }
  }
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    std::size_t shown_cells = rows_[r].size();
    while (shown_cells > 0 && rows_[r][shown_cells - 1].text.empty()) --shown_cells;
    for (std::size_t i = 0; i < shown_cells; ++i) {
      const Cell& cell = rows_[r][i];
      const std::string padding(widths[i] - cell.text.size(), ' ');
      const char* color = r == 0 ? kColorBold : cell.color;
      const bool plain = !colors || color == nullptr || cell.text.empty();
      const std::string shown = plain ? cell.text : color + cell.text + kColorReset;
      line += i == 0 ? shown + padding : "  " + padding + shown;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace alibi::bench
