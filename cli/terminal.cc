// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "cli/exit_codes.h"
#include "runtime/abort_status.h"

namespace alibi::vmm {
namespace {

// Signal handlers take no argument of ours, so what they need is the process's.
struct ProcessState {
  std::atomic<int> raw_fd = -1;
  termios before{};
  void (*on_signal)(int) = nullptr;
  const char* farewell = "";
  std::atomic<int> caught = 0;
  bool in_use = false;
};
ProcessState& State() {
  static ProcessState state;
  return state;
}

void Restore() {
  const int fd = State().raw_fd.exchange(-1);
  if (fd < 0) return;
  tcsetattr(fd, TCSANOW, &State().before);
  const char* farewell = State().farewell;
  [[maybe_unused]] const ssize_t n = write(STDOUT_FILENO, farewell, std::strlen(farewell));
}

void OnEndSignal(int signal) {
  Restore();
  if (State().caught.exchange(signal) != 0) _exit(128 + signal);
  State().on_signal(signal);
}

void OnCrash(int signal) {
  Restore();
  // An abort has said why already.
  if (signal != SIGABRT) {
    static constexpr char kMessage[] = "alibi: internal error: a crash outside translated code\n";
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  }
  _exit(AbortStatus());
}

constexpr int kEndSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kCrashSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

void Install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // With every signal blocked, the engine's own one, which the handler may send to this thread,
  // comes when translated code is what it interrupts.
  sigfillset(&action.sa_mask);
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

TerminalGuard::TerminalGuard(int fd, CtrlC ctrl_c, void (*on_signal)(int), const char* farewell) {
  ProcessState& state = State();
  ALIBI_CHECK(!state.in_use, "one terminal guard at a time");
  state.in_use = true;
  state.on_signal = on_signal;
  state.farewell = farewell;
  state.caught = 0;
  for (int signal : kEndSignals) {
    // What the caller of the process ignores (nohup) stays ignored.
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    Install(signal, OnEndSignal);
  }
  for (int signal : kCrashSignals) Install(signal, OnCrash);
  // A closed pipe is an error of write(), not the end.
  signal(SIGPIPE, SIG_IGN);
  // In the background the terminal is not ours to change.
  if (!isatty(fd) || tcgetpgrp(fd) != getpgrp() || tcgetattr(fd, &state.before) != 0) return;
  termios raw = state.before;
  cfmakeraw(&raw);
  if (ctrl_c == CtrlC::kSignal) raw.c_lflag |= ISIG;
  raw.c_cc[VSUSP] = raw.c_cc[VQUIT] = _POSIX_VDISABLE;
  raw.c_oflag |= OPOST | ONLCR;  // guests and our own messages end lines with \n
  state.raw_fd = fd;
  raw_ = tcsetattr(fd, TCSANOW, &raw) == 0;
  if (!raw_) state.raw_fd = -1;
}

TerminalGuard::~TerminalGuard() {
  Restore();
  // From here on a signal just ends the process: nothing is left to put in order.
  for (int number : kEndSignals) signal(number, SIG_DFL);
  State().in_use = false;
}

int TerminalGuard::caught() { return State().caught; }

const char EscapeFilter::kHelp[] =
    "Ctrl-A X quits, Ctrl-A S shows the counters, Ctrl-A C sends Ctrl-C to the guest,\n"
    "Ctrl-A Ctrl-A sends Ctrl-A, Ctrl-A H or ? shows this.\n";

const char EscapeFilter::kGreeting[] =
    "Ctrl-C goes to the guest; Ctrl-A X ends the run, Ctrl-A H shows more keys";

std::string EscapeFilter::Filter(const std::string& input) {
  static constexpr char kEscape = 1, kCtrlC = 3;
  std::string out;
  for (const char c : input) {
    if (!escaped_) {
      escaped_ = c == kEscape;
      if (!escaped_) out.push_back(c);
      continue;
    }
    escaped_ = false;
    if (c == 'x' || c == 'X') {
      quit_ = true;
    } else if (c == 's' || c == 'S') {
      stats_ = true;
    } else if (c == '?' || c == 'h' || c == 'H') {
      help_ = true;
    } else if (c == 'c' || c == 'C') {
      out.push_back(kCtrlC);
    } else if (c == kEscape) {
      out.push_back(kEscape);
    } else {
      out.push_back(kEscape);
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace alibi::vmm
