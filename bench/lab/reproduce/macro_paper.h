// SPDX-License-Identifier: Apache-2.0
// Adams and Agesen's macrobenchmarks (their Figures 2 and 3, and forkwait), and the rows of
// bench/linux/debian.inc that stand in for them.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_MACRO_PAPER_H_
#define ALIBI_BENCH_LAB_REPRODUCE_MACRO_PAPER_H_

#include <string_view>

namespace alibi::bench::lab {

// The part of native speed that the paper's software VMM has, by its table of raw data ("Raw
// data").
struct MacroPaper {
  const char* row;
  const char* what;
  double percent;
};

inline constexpr MacroPaper kMacroPaper[] = {
    {"tar-gzip", "SPECint 2000, gzip", 100 * 130 / 135.0},
    {"bzip2", "SPECint 2000, bzip2", 100 * 114 / 124.0},
    {"xz", "SPECint 2000, gzip", 100 * 130 / 135.0},
    {"python", "SPECint 2000, perlbmk", 100 * 115 / 116.0},
    {"perl", "SPECint 2000, perlbmk", 100 * 115 / 116.0},
    {"sqlite3", "SPECint 2000, vortex", 100 * 113 / 116.0},
    {"gcc-lua", "SPECint 2000, gcc", 100 * 67.5 / 71.0},
    {"minisat", "SPECint 2000, crafty", 100 * 62.7 / 64.7},
    {"java", "SPECjbb 2005, Windows", 100 * 9430 / 9608.0},
    {"web-small", "ApacheBench, 128 clients, Linux", 100 * 985.28 / 2201.90},
    {"web-large", "ApacheBench, 128 clients, Linux", 100 * 985.28 / 2201.90},
    {"make-lua", "make -j8 bzImage, Linux", 100 * 265 / 393.0},
    {"forkwait-40000", "forkwait", 100 * 6.02 / 36.95},
    {"swap", "PassMark, Large RAM, Windows", 100 * 175 / 335.0},
    {"vga-text", "PassMark, 2D graphics, Windows", 100 * 374 / 590.0},
};

// Null: the row stands in for nothing.
constexpr const MacroPaper* MacroPaperOf(std::string_view row) {
  for (const MacroPaper& paper : kMacroPaper) {
    if (row == paper.row) return &paper;
  }
  return nullptr;
}

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_MACRO_PAPER_H_
