// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal_filter.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace alibi::vmm {
namespace {

constexpr u8 kBel = 0x07, kLineFeed = 0x0a, kCancel = 0x18, kSubstitute = 0x1a, kEscapeByte = 0x1b,
             kDelete = 0x7f;
// BEL, BS, HT, LF, VT, FF, CR, and the shifts to and from line drawing.
constexpr u8 kFirstControl = 0x07, kLastControl = 0x0f;
constexpr std::size_t kMaxSequence = 64, kMaxDigits = 5;

bool IsIn(char byte, std::string_view set) { return set.find(byte) != std::string_view::npos; }

// Whole control sequences without private or intermediate bytes, by their final one: movement,
// tabulation, erasing, inserting and deleting, scrolling, rendition, margins, save and restore.
constexpr std::string_view kDrawing = "ABCDEFGHIJKLMPSTXZ@`adefgmrsu";
// Modes, private ones (behind '?') first: cursor keys, reverse, origin, wrapping, blinking and
// visible cursor, the other screen, marked pasting; then insertion.
constexpr std::string_view kPrivateModes[] = {"1",  "5",    "6",    "7",    "12",  "25",
                                              "47", "1047", "1048", "1049", "2004"};
constexpr std::string_view kModes[] = {"4"};
// ESC and one byte: save, restore, keypad, index, next line, tabulator, reverse index, reset.
constexpr std::string_view kShort = "78=>DEHMc";

template <std::size_t kCount>
bool AllIn(std::string_view list, const std::string_view (&known)[kCount]) {
  while (true) {
    const std::size_t end = list.find(';');
    const std::string_view item = list.substr(0, end);
    if (std::find(std::begin(known), std::end(known), item) == std::end(known)) return false;
    if (end == std::string_view::npos) return true;
    list.remove_prefix(end + 1);
  }
}

// Parameters of digits and separators, no number longer than a screen is large.
bool AreNumbers(std::string_view text) {
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == ';' || c == ':') {
      digits = 0;
    } else if (c < '0' || c > '9' || ++digits > kMaxDigits) {
      return false;
    }
  }
  return true;
}

// `text` is what stands behind ESC [.
bool IsControlAllowed(std::string_view text) {
  const char final = text.back();
  std::string_view parameters = text.substr(0, text.size() - 1);
  const bool is_private = parameters.starts_with('?');
  if (is_private) parameters.remove_prefix(1);
  if (final == 'q' && !is_private && parameters.ends_with(' ')) {  // the cursor's shape
    parameters.remove_suffix(1);
    return AreNumbers(parameters);
  }
  if (text == "!p") return true;  // soft reset
  if (!AreNumbers(parameters)) return false;
  if (final == 'h' || final == 'l') {
    return is_private ? AllIn(parameters, kPrivateModes) : AllIn(parameters, kModes);
  }
  if (is_private) return final == 'J' || final == 'K';  // selective erasing
  // With more parameters it is mouse tracking.
  if (final == 'T' && parameters.find(';') != std::string_view::npos) return false;
  return IsIn(final, kDrawing);
}

bool IsC1(const std::string& character) {
  return character[0] == '\xc2' && static_cast<u8>(character[1]) < 0xa0;
}

}  // namespace

std::string TerminalFilter::Filter(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const u8 byte = static_cast<u8>(c);
    // These end whatever has begun; ESC begins anew.
    if (byte == kEscapeByte || byte == kCancel || byte == kSubstitute) {
      missing_ = 0;
      Begin(byte == kEscapeByte ? State::kEscape : State::kText);
      continue;
    }
    switch (state_) {
      case State::kText:
        Text(byte, &out);
        break;
      case State::kEscape:
        Escape(byte, &out);
        break;
      case State::kControl:
        Control(byte, &out);
        break;
      case State::kString:
        // A command has no lines: a lost end shall not swallow the rest of the output.
        if (command_ && (byte == kBel || byte == kLineFeed)) {
          Begin(State::kText);
          if (byte == kLineFeed) Text(byte, &out);
        }
        break;
    }
  }
  return out;
}

void TerminalFilter::Begin(State state) {
  state_ = state;
  sequence_.clear();
}

void TerminalFilter::Text(u8 byte, std::string* out) {
  if (missing_ != 0) {
    if ((byte & 0xc0) == 0x80) {
      character_ += static_cast<char>(byte);
      // Terminals take the controls of ISO 6429's right half in UTF-8, too.
      if (--missing_ == 0 && !IsC1(character_)) *out += character_;
      return;
    }
    missing_ = 0;  // it was no character
  }
  if (byte < 0x20 ? byte >= kFirstControl && byte <= kLastControl : byte < kDelete) {
    *out += static_cast<char>(byte);
  } else if (byte >= 0xc2 && byte < 0xf5) {
    character_ = static_cast<char>(byte);
    missing_ = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
  }
}

void TerminalFilter::Escape(u8 byte, std::string* out) {
  if (byte < 0x20 || byte >= kDelete) {
    Begin(State::kText);
    return Text(byte, out);
  }
  const char c = static_cast<char>(byte);
  if (sequence_.empty()) {
    if (c == '[') return Begin(State::kControl);
    if (IsIn(c, "]PX^_")) {
      Begin(State::kString);
      command_ = c == ']';
      return;
    }
  }
  if (sequence_.size() < kMaxSequence) sequence_ += c;
  if (byte < 0x30) return;  // intermediate
  // A character set for G0 or G1: UK, US, line drawing.
  const bool set = sequence_.size() == 2 && IsIn(sequence_[0], "()") && IsIn(c, "AB0");
  if (set || (sequence_.size() == 1 && IsIn(c, kShort))) *out += '\x1b' + sequence_;
  Begin(State::kText);
}

void TerminalFilter::Control(u8 byte, std::string* out) {
  if (byte < 0x20 || byte >= kDelete) {
    Begin(State::kText);
    return Text(byte, out);
  }
  sequence_ += static_cast<char>(byte);
  if (byte >= 0x40) {
    if (sequence_.size() <= kMaxSequence && IsControlAllowed(sequence_)) {
      *out += "\x1b[" + sequence_;
    }
    Begin(State::kText);
  } else if (sequence_.size() > kMaxSequence) {
    sequence_.resize(kMaxSequence + 1, '!');  // too long, however it goes on
  }
}

std::function<std::string(std::string_view)> FilterForOutput(int fd, bool raw) {
  if (raw || fd < 0 || !isatty(fd)) return nullptr;
  return
      [filter = TerminalFilter()](std::string_view bytes) mutable { return filter.Filter(bytes); };
}

}  // namespace alibi::vmm
