// SPDX-License-Identifier: Apache-2.0
// What reaches the terminal of what a hostile guest prints.
#include "cli/terminal_filter.h"

#include <catch2/catch.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

namespace alibi::vmm {
namespace {

std::string Filtered(const std::string& text) { return TerminalFilter().Filter(text); }

TEST_CASE("Terminal filter: text and what draws it passes") {
  const std::string texts[] = {
      "hello\r\n\tworld\b \a",
      "\x1b[31;1mred\x1b[0m \x1b[38;2;1;2;3m \x1b[38:5:7m",
      "\x1b[2J\x1b[H\x1b[10;20H\x1b[5A\x1b[K\x1b[1;24r\x1b[3L\x1b[2P",
      "\x1b[?1049h\x1b[?25l\x1b[?7;25h\x1b[4h\x1b[?2004l",
      "\x1b(0lqqk\x1b(B\x0e\x0f",
      "\x1b"
      "7\x1b"
      "8\x1b=\x1b>\x1bM\x1b"
      "c\x1b[!p\x1b[2 q",
      "Gr\xc3\xbc\xc3\x9f"
      "e \xe2\x82\xac \xf0\x9f\x90\xa7",
  };
  for (const std::string& text : texts) CHECK(Filtered(text) == text);
}

TEST_CASE("Terminal filter: what does more does not") {
  const std::string sequences[] = {
      "\x1b]52;c;ZXZpbA==\a",  // the clipboard
      "\x1b]52;c;?\x1b\\",     // its contents, as if typed
      "\x1b]0;title\a",
      "\x1b[21t",                      // and the title, as if typed
      "\x1b]8;;http://example.org\a",  // a link
      "\x1b]4;1;?\a",
      "\x1b]10;?\x1b\\",  // colours, reported
      "\x1bP$qm\x1b\\",
      "\x1bP+q544e\x1b\\",  // settings and capabilities, reported
      "\x1b_G...\x1b\\",
      "\x1b^x\x1b\\",
      "\x1bXx\x1b\\",
      "\x1b[c",
      "\x1b[>c",
      "\x1b[=c",
      "\x1bZ",
      "\x05",  // who are you
      "\x1b[5n",
      "\x1b[6n",
      "\x1b[?6n",
      "\x1b[x",
      "\x1b[8;10;10t",
      "\x1b[3t",
      "\x1b[18t",  // the window
      "\x1b[5i",
      "\x1b[?5i",
      "\x1b[0i",  // the printer
      "\x1b[?1000h",
      "\x1b[?1004h",
      "\x1b[?1006h",
      "\x1b[?25;1000h",
      "\x1b[1;2;3;4;5T",
      "\x1b[2h",
      "\x1b[20h",
      "\x1b[?3h",  // a locked keyboard, another Enter, 132 columns
      "\x1b[>4;2m",
      "\x1b[>1u",
      "\x1b[=1u",  // the keyboard's answers
      "\x1b%@",
      "\x1b F",
      "\x1b G",
      "\x1b#8",
      "\x1bn",
      "\xc2\x9b"
      "6n",
      "\x9b"
      "6n",  // C1 in UTF-8 and without
      "\x1b[$p",
      "\x1b[?1$p",
      "\x1b[999999A",
      "\x1b[1*y",
      "\x1b[\"q",
      "\x1b[" + std::string(500, '1') + "A",
  };
  for (const std::string& sequence : sequences) {
    INFO(sequence);
    // What is left is text: no control bytes at all.
    const std::string left = Filtered("<" + sequence + ">");
    CHECK(left.front() == '<');
    CHECK(left.back() == '>');
    for (const char c : left) CHECK((static_cast<u8>(c) >= 0x20 && static_cast<u8>(c) < 0x7f));
  }
}

TEST_CASE("Terminal filter: broken sequences") {
  CHECK(Filtered("a\x1b[31\nb") == "a\nb");
  CHECK(Filtered("a\x1b]0;no end\nb") == "a\nb");
  CHECK(Filtered("a\x1b[3\x1b[32mb") == "a\x1b[32mb");
  CHECK(Filtered("a\x1b]0;\x1b[6nb") == "ab");
  CHECK(Filtered("a\x18\x1b[\x18"
                 "b") == "ab");
  CHECK(Filtered("\xe2\x82"
                 "a\xc3") == "a");
  CHECK(Filtered("\xe2\x1b[31m\x82\xac") == "\x1b[31m");
  CHECK(Filtered(std::string("a\0b", 3)) == "ab");
}

TEST_CASE("Terminal filter: random output") {
  const std::vector<std::string> pieces = {
      "\x1b", "[",  "]",    "?",    ";",    "52",           "c", "n",  "m",  "h",    "1049", "6",
      "t",    "\a", "\x9b", "\xc2", "\x9d", "\xe2\x82\xac", "P", "\\", "\n", "text", " ",    "q",
      "(",    "0",  "%",    "\x18", "\x05"};
  // All that may begin with ESC, said another way than the filter says it.
  const std::regex allowed(
      "\x1b([78=>DEHMc]|[()][AB0]|\\[([0-9;:]*[ABCDEFGHIJKLMPSTXZ@`adefgmrsu]|!p|[0-9;:]* q|"
      "\\?[0-9;]*[hlJK]|4(;4)*[hl]))");
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (std::size_t i = 0; i < 1 + random() % 24; ++i) {
      text += random() % 8 == 0 ? std::string(1, static_cast<char>(random()))
                                : pieces[random() % pieces.size()];
    }
    const std::string whole = Filtered(text);
    TerminalFilter in_pieces;
    std::string joined;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 3;
      joined += in_pieces.Filter(std::string_view(text).substr(at, size));
      at += size;
    }
    REQUIRE(joined == whole);
    REQUIRE(Filtered(whole) == whole);
    const std::string rest = std::regex_replace(whole, allowed, "");
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const u8 byte = static_cast<u8>(rest[i]);
      REQUIRE((byte >= 0x20 || (byte >= 7 && byte <= 15)));
      REQUIRE_FALSE((byte == 0xc2 && static_cast<u8>(rest[i + 1]) < 0xa0));
    }
  }
}

}  // namespace
}  // namespace alibi::vmm
