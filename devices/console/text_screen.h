// SPDX-License-Identifier: Apache-2.0
// What a text-mode display shows, for whoever draws it.
#ifndef ALIBI_DEVICES_CONSOLE_TEXT_SCREEN_H_
#define ALIBI_DEVICES_CONSOLE_TEXT_SCREEN_H_

#include <array>
#include <vector>

#include "base/types.h"

namespace alibi::devices {

struct TextScreen {
  struct Cell {
    u8 character = ' ';  // code page 437
    u8 foreground = 7;   // 0-15, into `colours`
    u8 background = 0;
    bool blink = false;
    bool operator==(const Cell&) const = default;
  };
  struct Rgb {
    u8 red = 0, green = 0, blue = 0;
    bool operator==(const Rgb&) const = default;
  };
  static constexpr int kNoCursor = -1;

  // 0 by 0: switched off, or a graphics mode.
  unsigned columns = 0, rows = 0;
  std::vector<Cell> cells;  // row by row
  int cursor = kNoCursor;   // index of its cell
  std::array<Rgb, 16> colours{};

  bool operator==(const TextScreen&) const = default;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_CONSOLE_TEXT_SCREEN_H_
