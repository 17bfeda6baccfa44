// SPDX-License-Identifier: Apache-2.0
#include "cli/keys.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace alibi::vmm {
namespace {

constexpr u8 kEscape = 0x1b, kDelete = 0x7f;
constexpr u8 kReleased = 0xf0, kExtended = 0xe0;
constexpr u8 kShiftKey = 0x12, kCtrlKey = 0x14, kAltKey = 0x11;
enum Modifier : unsigned { kShift = 1, kAlt = 2, kCtrl = 4 };  // as xterm encodes them, minus one

struct Character {
  char plain, shifted;  // 0: none
  u8 code;
};
constexpr Character kCharacters[] = {
    {'a', 'A', 0x1c}, {'b', 'B', 0x32}, {'c', 'C', 0x21},  {'d', 'D', 0x23},  {'e', 'E', 0x24},
    {'f', 'F', 0x2b}, {'g', 'G', 0x34}, {'h', 'H', 0x33},  {'i', 'I', 0x43},  {'j', 'J', 0x3b},
    {'k', 'K', 0x42}, {'l', 'L', 0x4b}, {'m', 'M', 0x3a},  {'n', 'N', 0x31},  {'o', 'O', 0x44},
    {'p', 'P', 0x4d}, {'q', 'Q', 0x15}, {'r', 'R', 0x2d},  {'s', 'S', 0x1b},  {'t', 'T', 0x2c},
    {'u', 'U', 0x3c}, {'v', 'V', 0x2a}, {'w', 'W', 0x1d},  {'x', 'X', 0x22},  {'y', 'Y', 0x35},
    {'z', 'Z', 0x1a}, {'1', '!', 0x16}, {'2', '@', 0x1e},  {'3', '#', 0x26},  {'4', '$', 0x25},
    {'5', '%', 0x2e}, {'6', '^', 0x36}, {'7', '&', 0x3d},  {'8', '*', 0x3e},  {'9', '(', 0x46},
    {'0', ')', 0x45}, {'-', '_', 0x4e}, {'=', '+', 0x55},  {'\\', '|', 0x5d}, {'[', '{', 0x54},
    {']', '}', 0x5b}, {';', ':', 0x4c}, {'\'', '"', 0x52}, {',', '<', 0x41},  {'.', '>', 0x49},
    {'/', '?', 0x4a}, {'`', '~', 0x0e}, {' ', 0, 0x29},    {'\r', 0, 0x5a},   {'\n', 0, 0x5a},
    {'\t', 0, 0x0d},  {'\b', 0, 0x66},
};
constexpr u8 kEscapeCode = 0x76, kBackspaceCode = 0x66, kTabCode = 0x0d;

struct Sequence {
  const char* final;  // behind ESC [ (parameters), or behind ESC O
  u8 code;
  bool extended;
};
constexpr Sequence kLetters[] = {
    {"A", 0x75, true},  {"B", 0x72, true},  {"C", 0x74, true},  {"D", 0x6b, true},
    {"H", 0x6c, true},  {"F", 0x69, true},  {"P", 0x05, false}, {"Q", 0x06, false},
    {"R", 0x04, false}, {"S", 0x0c, false},
};
// ESC [ number ~
struct Numbered {
  unsigned number;
  u8 code;
  bool extended;
};
constexpr Numbered kNumbers[] = {
    {1, 0x6c, true},   {2, 0x70, true},   {3, 0x71, true},   {4, 0x69, true},   {5, 0x7d, true},
    {6, 0x7a, true},   {7, 0x6c, true},   {8, 0x69, true},   {11, 0x05, false}, {12, 0x06, false},
    {13, 0x04, false}, {14, 0x0c, false}, {15, 0x03, false}, {17, 0x0b, false}, {18, 0x83, false},
    {19, 0x0a, false}, {20, 0x01, false}, {21, 0x09, false}, {23, 0x78, false}, {24, 0x07, false},
};
// ESC [ [ A to E: F1 to F5 of the Linux console.
constexpr u8 kLinuxConsole[] = {0x05, 0x06, 0x04, 0x0c, 0x03};

class Typist {
 public:
  void Press(u8 code, bool extended, unsigned modifiers) {
    if (modifiers & kCtrl) keys_.push_back(kCtrlKey);
    if (modifiers & kAlt) keys_.push_back(kAltKey);
    if (modifiers & kShift) keys_.push_back(kShiftKey);
    if (extended) keys_.push_back(kExtended);
    keys_.push_back(code);
    if (extended) keys_.push_back(kExtended);
    keys_.push_back(kReleased);
    keys_.push_back(code);
    if (modifiers & kShift) Release(kShiftKey);
    if (modifiers & kAlt) Release(kAltKey);
    if (modifiers & kCtrl) Release(kCtrlKey);
  }
  // A byte that stands for itself.
  void Type(char byte, unsigned modifiers) {
    if (byte == static_cast<char>(kDelete)) return Press(kBackspaceCode, false, modifiers);
    for (const Character& key : kCharacters) {
      if (byte != 0 && byte == key.plain) return Press(key.code, false, modifiers);
      if (byte != 0 && byte == key.shifted) return Press(key.code, false, modifiers | kShift);
    }
    // Ctrl takes the upper bits away.
    if (byte >= 0 && byte < 0x20) {
      const char key = byte == 0 ? ' ' : static_cast<char>(byte < 27 ? byte + 0x60 : byte + 0x40);
      Type(key, modifiers | kCtrl);
    }
  }
  std::vector<u8> TakeKeys() { return std::move(keys_); }

 private:
  void Release(u8 code) {
    keys_.push_back(kReleased);
    keys_.push_back(code);
  }
  std::vector<u8> keys_;
};

// Types the sequence at the beginning of `rest`, which is behind the escape; returns its length, or
// 0 if it is none.
std::size_t TypeSequence(std::string_view rest, Typist* typist) {
  if (rest.size() < 2 || (rest[0] != '[' && rest[0] != 'O')) return 0;
  if (rest[0] == '[' && rest[1] == '[') {
    const unsigned index = rest.size() < 3 ? 99u : static_cast<unsigned>(rest[2] - 'A');
    if (index >= std::size(kLinuxConsole)) return 0;
    typist->Press(kLinuxConsole[index], false, 0);
    return 3;
  }
  unsigned parameters[2] = {};  // a key's number, and its modifiers plus one
  unsigned index = 0;
  std::size_t at = 1;
  for (; at < rest.size() && (rest[at] == ';' || (rest[at] >= '0' && rest[at] <= '9')); ++at) {
    if (rest[at] != ';') {
      const unsigned digit = static_cast<unsigned>(rest[at] - '0');
      parameters[index] = std::min(parameters[index] * 10 + digit, 1000u);
    } else if (++index == std::size(parameters)) {
      return 0;
    }
  }
  if (at == rest.size()) return 0;
  const unsigned modifiers = (parameters[1] == 0 ? 0 : parameters[1] - 1) & 7;
  if (rest[at] == '~') {
    for (const Numbered& key : kNumbers) {
      if (key.number == parameters[0]) typist->Press(key.code, key.extended, modifiers);
    }
    return at + 1;
  }
  if (rest[at] == 'Z') typist->Press(kTabCode, false, kShift);
  for (const Sequence& key : kLetters) {
    if (rest[at] == key.final[0]) typist->Press(key.code, key.extended, modifiers);
  }
  return at + 1;
}

}  // namespace

std::vector<u8> KeysOf(std::string_view bytes) {
  Typist typist;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (static_cast<u8>(bytes[at]) != kEscape) {
      typist.Type(bytes[at], 0);
      continue;
    }
    const std::string_view rest = bytes.substr(at + 1);
    if (rest.empty() || static_cast<u8>(rest[0]) == kEscape) {
      typist.Press(kEscapeCode, false, 0);
    } else if (const std::size_t length = TypeSequence(rest, &typist); length != 0) {
      at += length;
    } else {
      typist.Type(rest[0], kAlt);
      ++at;
    }
  }
  return typist.TakeKeys();
}

}  // namespace alibi::vmm
