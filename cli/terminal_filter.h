// SPDX-License-Identifier: Apache-2.0
// What a guest's console may say to the user's terminal. A terminal obeys escape sequences: some
// read and write the clipboard, some make it answer as if the user had typed, some print, resize
// or rename. Text passes, and sequences that only draw: colours, cursor movement, erasing,
// scrolling, the other screen. Everything else is left out.
//
// The terms are ECMA-48's (5th edition), the private ones xterm's (ctlseqs).
#ifndef ALIBI_CLI_TERMINAL_FILTER_H_
#define ALIBI_CLI_TERMINAL_FILTER_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace alibi::vmm {

class TerminalFilter {
 public:
  // What of `bytes` is the terminal's. Sequences and UTF-8 may be cut anywhere: their beginning
  // waits for the rest.
  std::string Filter(std::string_view bytes);

 private:
  enum class State : u8 {
    kText,
    kEscape,   // behind ESC, and intermediate bytes
    kControl,  // behind ESC [
    kString,   // behind ESC ] and the like, up to its end
  };

  void Text(u8 byte, std::string* out);
  void Escape(u8 byte, std::string* out);
  void Control(u8 byte, std::string* out);
  void Begin(State state);

  State state_ = State::kText;
  std::string sequence_;     // behind ESC, so far
  bool command_ = false;     // the string is an operating system command: BEL, too, ends it
  std::string character_;    // the beginning of one in UTF-8
  std::size_t missing_ = 0;  // bytes of it
};

// For a file that a guest's output goes to: a TerminalFilter's work if it is a terminal, unless
// `raw`; else empty, which leaves the bytes as they are.
std::function<std::string(std::string_view)> FilterForOutput(int fd, bool raw);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_TERMINAL_FILTER_H_
