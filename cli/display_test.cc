// SPDX-License-Identifier: Apache-2.0
// Screens as text and as what a terminal is sent; keys as what a terminal sends.
#include "cli/display.h"

#include <catch2/catch.hpp>

#include "cli/keys.h"

namespace alibi::vmm {
namespace {

using devices::TextScreen;
using Bytes = std::vector<u8>;

TextScreen Screen(unsigned columns, unsigned rows) {
  TextScreen screen;
  screen.columns = columns;
  screen.rows = rows;
  screen.cells.resize(u64{columns} * rows);
  for (unsigned i = 0; i < 16; ++i) screen.colours[i] = {static_cast<u8>(i), 0, 0};
  return screen;
}

TEST_CASE("A screen as text") {
  TextScreen screen = Screen(4, 4);
  CHECK(PlainText(screen).empty());
  screen.cells[0].character = 'a';
  screen.cells[2].character = 0x01;
  screen.cells[9].character = 0xdb;
  CHECK(PlainText(screen) == "a \u263a\n\n \u2588\n");
  CHECK(PlainText(TextScreen()).empty());
  // Each of the 256 characters is one that a terminal shows.
  TextScreen all = Screen(256, 1);
  for (unsigned i = 0; i < 256; ++i) all.cells[i].character = static_cast<u8>(i);
  std::size_t characters = 0;
  for (const char c : PlainText(all)) {
    CHECK((c == '\n' || static_cast<u8>(c) >= 0x20));
    characters += (static_cast<u8>(c) & 0xc0) != 0x80;
  }
  CHECK(characters == 257);
}

TEST_CASE("Only what changed is drawn") {
  TextScreen before = Screen(10, 3);
  TextScreen now = before;
  CHECK(DrawingOf(&before, now).empty());
  now.cells[12].character = 'x';
  now.cells[13].character = 'y';
  now.cells[13].foreground = 12;
  CHECK(DrawingOf(&before, now) ==
        "\x1b[?25l\x1b[2;3H\x1b[0;38;2;7;0;0;48;2;0;0;0mx\x1b[0;38;2;12;0;0;48;2;0;0;0my\x1b[0m");
  before = now;
  now.cursor = 25;
  CHECK(DrawingOf(&before, now) == "\x1b[?25l\x1b[0m\x1b[3;6H\x1b[?25h");
  // All of it the first time, and when the size or a colour changes.
  CHECK(DrawingOf(nullptr, now).find("\x1b[2J") != std::string::npos);
  TextScreen other = now;
  other.colours[7] = {1, 2, 3};
  CHECK(DrawingOf(&now, other).find("38;2;1;2;3") != std::string::npos);
  CHECK(DrawingOf(&now, TextScreen()).find("graphics") != std::string::npos);
}

TEST_CASE("Keys") {
  CHECK(KeysOf("a") == Bytes{0x1c, 0xf0, 0x1c});
  CHECK(KeysOf("A") == Bytes{0x12, 0x1c, 0xf0, 0x1c, 0xf0, 0x12});
  CHECK(KeysOf("\r") == Bytes{0x5a, 0xf0, 0x5a});
  CHECK(KeysOf("\x7f") == Bytes{0x66, 0xf0, 0x66});
  CHECK(KeysOf("\x03") == Bytes{0x14, 0x21, 0xf0, 0x21, 0xf0, 0x14});
  CHECK(KeysOf("\x1b") == Bytes{0x76, 0xf0, 0x76});
  CHECK(KeysOf("\x1bx") == Bytes{0x11, 0x22, 0xf0, 0x22, 0xf0, 0x11});
  CHECK(KeysOf("\x1b[A") == Bytes{0xe0, 0x75, 0xe0, 0xf0, 0x75});
  CHECK(KeysOf("\x1bOP") == Bytes{0x05, 0xf0, 0x05});
  CHECK(KeysOf("\x1b[15~") == Bytes{0x03, 0xf0, 0x03});
  CHECK(KeysOf("\x1b[[B") == Bytes{0x06, 0xf0, 0x06});
  CHECK(KeysOf("\x1b[1;5D") == Bytes{0x14, 0xe0, 0x6b, 0xe0, 0xf0, 0x6b, 0xf0, 0x14});
  CHECK(KeysOf("\x1b[3~") == Bytes{0xe0, 0x71, 0xe0, 0xf0, 0x71});
  CHECK(KeysOf("\xc3\xa4").empty());
  CHECK(KeysOf("\x1b[99999999999999999999;99999999~").empty());
  CHECK(KeysOf("\x1b[1;2;3;4;5m").size() < 100);
}

}  // namespace
}  // namespace alibi::vmm
