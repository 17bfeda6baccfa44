// SPDX-License-Identifier: Apache-2.0
// The user's terminal as the guest's: raw while the guest runs, as it was before afterwards,
// whatever way the process ends.
#ifndef ALIBI_CLI_TERMINAL_H_
#define ALIBI_CLI_TERMINAL_H_

#include <functional>
#include <string>
#include <utility>

namespace alibi::vmm {

// At most one at a time. While it lives:
//  - `fd`, if it is a terminal that belongs to us, is raw: no echo, no lines. Every key goes to the
//    guest; with CtrlC::kSignal, Ctrl-C ends the run.
//  - SIGINT, SIGTERM, SIGHUP and SIGQUIT call `on_signal` once (which must be safe in a signal
//    handler); a second one ends the process. The handlers run on the alternate stack, because the
//    stack pointer of translated code is the guest's.
//  - a crash restores the terminal first.
class TerminalGuard {
 public:
  enum class CtrlC : bool { kKey, kSignal };

  // `farewell` is written to standard output when the terminal is restored, if it was raw: it ends
  // what was drawn there.
  TerminalGuard(int fd, CtrlC ctrl_c, void (*on_signal)(int signal), const char* farewell = "");
  ~TerminalGuard();
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;

  bool raw() const { return raw_; }
  // The signal that ended the run, or 0.
  static int caught();

 private:
  bool raw_ = false;
};

// Finds what the user types at us instead of the guest, behind Ctrl-A; kHelp lists it.
class EscapeFilter {
 public:
  static const char kHelp[];
  // For the beginning of a run, where nobody knows the keys yet.
  static const char kGreeting[];
  // Returns what is the guest's.
  std::string Filter(const std::string& input);
  bool quit() const { return quit_; }
  // Asked for since the last call?
  bool TakeStats() { return std::exchange(stats_, false); }
  bool TakeHelp() { return std::exchange(help_, false); }

 private:
  bool escaped_ = false;
  bool quit_ = false;
  bool stats_ = false;
  bool help_ = false;
};

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_TERMINAL_H_
