// SPDX-License-Identifier: Apache-2.0
#include "base/sandbox/denied_call.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace alibi::sandbox {
namespace {

constexpr int kInternalError = 70;

struct Row {
  int number;
  const char* name;
};
constexpr Row kCalls[] = {
#define ALIBI_CALL(number, name) {number, #name},
#include "base/sandbox/call_names.inc"
#undef ALIBI_CALL
};

std::atomic<const char*>& Who() {
  static std::atomic<const char*> who = "";
  return who;
}

// In a signal handler nothing may allocate.
class Line {
 public:
  Line& operator<<(const char* text) {
    for (; *text != '\0' && size_ < sizeof(text_); ++text) text_[size_++] = *text;
    return *this;
  }
  Line& operator<<(int number) {
    char digits[12];
    char* at = digits + sizeof(digits) - 1;
    *at = '\0';
    do {
      *--at = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << at;
  }
  void Write() const { [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text_, size_); }

 private:
  char text_[256];
  std::size_t size_ = 0;
};

void OnDenied(int, siginfo_t* info, void*) {
  Line line;
  line << Who().load() << ": the sandbox denies the system call " << info->si_syscall << " ("
       << CallName(info->si_syscall) << "); if it is needed, this is a bug: report it, and use "
       << "--sandbox off\n";
  line.Write();
  _exit(kInternalError);
}

}  // namespace

const char* CallName(int number) {
  for (const Row& row : kCalls) {
    if (row.number == number) return row.name;
  }
  return "?";
}

void UnblockDeniedCalls() {
  sigset_t denied;
  sigemptyset(&denied);
  sigaddset(&denied, SIGSYS);
  pthread_sigmask(SIG_UNBLOCK, &denied, nullptr);
}

void NameDeniedCalls(const char* who) {
  Who() = who;
  struct sigaction action {};
  action.sa_sigaction = OnDenied;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  sigaction(SIGSYS, &action, nullptr);
}

}  // namespace alibi::sandbox
