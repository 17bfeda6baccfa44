// SPDX-License-Identifier: Apache-2.0
#include "direct/breakpoint_setter.h"

#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/sandbox/call_filter.h"
#include "direct/child_signal.h"

namespace alibi::direct {
namespace {

// The first message has the processes, each further one the breakpoints of one of them.
struct Processes {
  u32 count;
  pid_t pid[BreakpointSetter::kMostProcesses];
};
struct Breakpoints {
  u32 process, count;
  u64 place[BreakpointSetter::kBreakpoints];
};

template <class Call>
auto Retried(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// --- The setter's process: system calls only, because the program around us may have threads ---

bool Poke(pid_t pid, unsigned debug_register, u64 value) {
  const u64 place = offsetof(struct user, u_debugreg) + 8 * debug_register;
  return syscall(SYS_ptrace, PTRACE_POKEUSER, pid, place, value) == 0;
}

bool SetAll(pid_t pid, const Breakpoints& wanted) {
  if (syscall(SYS_ptrace, PTRACE_SEIZE, pid, 0, 0) != 0) return false;
  int status = 0;
  bool done = syscall(SYS_ptrace, PTRACE_INTERRUPT, pid, 0, 0) == 0 &&
              Retried([&] { return syscall(SYS_wait4, pid, &status, __WALL, nullptr); }) == pid &&
              WIFSTOPPED(status);
  u64 control = 0;  // DR7: of one byte, executed
  done = done && Poke(pid, 7, control);
  for (unsigned i = 0; done && i < wanted.count; ++i) {
    done = Poke(pid, i, wanted.place[i]);
    control |= u64{1} << (2 * i);
  }
  done = done && Poke(pid, 7, control);
  return syscall(SYS_ptrace, PTRACE_DETACH, pid, 0, 0) == 0 && done;
}

[[noreturn]] void BecomeSetter(int socket, std::span<const sock_filter> filter) {
  const u64 all = ~u64{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(all));
  if (dup3(socket, 0, 0) != 0 || syscall(SYS_close_range, 1, ~0u, 0) != 0) _exit(1);
  prctl(PR_SET_NAME, "alibi-debug");
  if (sandbox::EnterFilter(filter, /*all_threads=*/false) != 0) _exit(1);
  Processes processes;
  if (Retried([&] { return read(0, &processes, sizeof(processes)); }) != sizeof(processes) ||
      processes.count > BreakpointSetter::kMostProcesses) {
    _exit(1);
  }
  Breakpoints wanted;
  while (Retried([&] { return read(0, &wanted, sizeof(wanted)); }) == sizeof(wanted)) {
    const bool possible =
        wanted.process < processes.count && wanted.count <= BreakpointSetter::kBreakpoints;
    const u8 done = possible && SetAll(processes.pid[wanted.process], wanted);
    if (Retried([&] { return write(0, &done, 1); }) != 1) break;
  }
  _exit(0);
}

std::vector<sock_filter> SetterFilter() {
  std::vector<sandbox::CallRule> rules;
  for (const int call : {SYS_read, SYS_write, SYS_wait4, SYS_exit_group}) {
    rules.push_back({call, sandbox::kAllow});
  }
  for (const auto request : {PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_POKEUSER, PTRACE_DETACH}) {
    rules.push_back({SYS_ptrace, sandbox::kAllow, 0, ~u32{0}, static_cast<u32>(request)});
  }
  return sandbox::CompileFilter(rules, sandbox::kTrap);
}

// --- The process that finds out whether it works ---

extern "C" void alibi_break_here();
asm(R"(
        .pushsection .text
        .local alibi_break_here
alibi_break_here:
        nop
        ret
        .popsection
)");

constexpr int kTrapped = 1;
void OnTrap(int) { _exit(kTrapped); }

[[noreturn]] void TryBreakpoint(int socket, pid_t setter) {
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(setter), 0, 0, 0);
  HandleInChild(SIGTRAP, OnTrap);
  char byte;
  if (Retried([&] { return read(socket, &byte, 1); }) == 1) alibi_break_here();
  _exit(0);
}

}  // namespace

std::unique_ptr<BreakpointSetter> BreakpointSetter::Start() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return nullptr;
  std::unique_ptr<BreakpointSetter> setter(new BreakpointSetter);
  setter->socket_.Reset(sockets[0]);
  const FileDescriptor theirs(sockets[1]);
  const std::vector<sock_filter> filter = SetterFilter();
  // Without an exit signal: it is no child that the program around us would have to wait for.
  const long pid = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, 0);
  if (pid == 0) BecomeSetter(theirs.get(), filter);
  if (pid < 0) return nullptr;
  setter->pid_ = static_cast<pid_t>(pid);
  return setter;
}

BreakpointSetter::~BreakpointSetter() {
  // Not by closing it alone: whoever was forked since may hold it, too.
  shutdown(socket_.get(), SHUT_RDWR);
  Retried([&] { return waitpid(pid_, nullptr, __WALL); });
}

bool BreakpointSetter::Begin(std::span<const pid_t> processes) {
  int sockets[2];
  if (processes.size() >= kMostProcesses ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return false;
  }
  const FileDescriptor ours(sockets[0]), theirs(sockets[1]);
  const long tried = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, 0);
  if (tried == 0) {
    close(ours.get());
    TryBreakpoint(theirs.get(), pid_);
  }
  if (tried < 0) return false;
  Processes message{};
  std::ranges::copy(processes, message.pid);
  message.pid[processes.size()] = static_cast<pid_t>(tried);
  message.count = processes_ = static_cast<u32>(processes.size() + 1);
  const LinearAddr place(reinterpret_cast<u64>(&alibi_break_here));
  const bool set = send(socket_.get(), &message, sizeof(message), MSG_NOSIGNAL) ==
                       static_cast<ssize_t>(sizeof(message)) &&
                   Set(processes_ - 1, {&place, 1});
  const bool told = set && send(ours.get(), "", 1, MSG_NOSIGNAL) == 1;
  if (!told) syscall(SYS_kill, tried, SIGKILL);
  int status = 0;
  Retried([&] { return waitpid(static_cast<pid_t>(tried), &status, __WALL); });
  return told && WIFEXITED(status) && WEXITSTATUS(status) == kTrapped;
}

bool BreakpointSetter::Set(unsigned process, std::span<const LinearAddr> places) {
  if (process >= processes_ || places.size() > kBreakpoints) return false;
  Breakpoints message{process, static_cast<u32>(places.size()), {}};
  for (unsigned i = 0; i < places.size(); ++i) message.place[i] = places[i].value;
  u8 done = 0;
  return Retried([&] { return send(socket_.get(), &message, sizeof(message), MSG_NOSIGNAL); }) ==
             static_cast<ssize_t>(sizeof(message)) &&
         Retried([&] { return read(socket_.get(), &done, 1); }) == 1 && done == 1;
}

}  // namespace alibi::direct
