// SPDX-License-Identifier: Apache-2.0
#include "direct/breakpoint_setter.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/sandbox/call_filter.h"
#include "direct/child_signal.h"
#include "direct/retried.h"

namespace alibi::direct {
namespace {

struct Breakpoints {
  u32 job, count;
  u64 place[BreakpointSetter::kBreakpoints];
};

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

// Where it finds what it reads.
constexpr int kSocket = 0, kNotes = 1;

// The process of a job. Of those that were forked since it asked last, the fork server's notes
// tell.
pid_t ProcessOf(u32 job, pid_t (&forked)[ForkServer::kMostJobs]) {
  if (job >= ForkServer::kMostJobs) return 0;
  ForkServer::Note note;
  while (forked[job] == 0 &&
         Retried([&] { return read(kNotes, &note, sizeof(note)); }) == sizeof(note)) {
    if (note.job < ForkServer::kMostJobs) forked[note.job] = note.pid;
  }
  return forked[job];
}

[[noreturn]] void BecomeSetter(int socket, int notes, std::span<const sock_filter> filter) {
  const u64 all = ~u64{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(all));
  // Away from where they are to be.
  socket = fcntl(socket, F_DUPFD, kNotes + 1);
  notes = fcntl(notes, F_DUPFD, kNotes + 1);
  if (dup3(socket, kSocket, 0) != kSocket || dup3(notes, kNotes, 0) != kNotes ||
      syscall(SYS_close_range, kNotes + 1, ~0u, 0) != 0) {
    _exit(1);
  }
  prctl(PR_SET_NAME, "alibi-debug");
  if (sandbox::EnterFilter(filter, /*all_threads=*/false) != 0) _exit(1);
  pid_t forked[ForkServer::kMostJobs] = {};
  Breakpoints wanted;
  while (Retried([&] { return read(kSocket, &wanted, sizeof(wanted)); }) == sizeof(wanted)) {
    const pid_t process = ProcessOf(wanted.job, forked);
    const u8 done =
        process != 0 && wanted.count <= BreakpointSetter::kBreakpoints && SetAll(process, wanted);
    if (Retried([&] { return write(kSocket, &done, 1); }) != 1) break;
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
void OnTrap(int, siginfo_t*, void*) { _exit(kTrapped); }

[[noreturn]] void TryBreakpoint(int socket, pid_t setter) {
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(setter), 0, 0, 0);
  HandleInChild(SIGTRAP, OnTrap);
  char byte;
  if (Retried([&] { return read(socket, &byte, 1); }) == 1) alibi_break_here();
  _exit(0);
}

}  // namespace

struct BreakpointSetter::Preparation {
  unsigned job = 0;                                 // the setter's
  FileDescriptor theirs{-1};                        // of the socket
  FileDescriptor notes_read{-1}, notes_write{-1};   // a pipe
  FileDescriptor probe_ours{-1}, probe_theirs{-1};  // sockets
  std::vector<sock_filter> filter;

  static void RunSetter(const void* argument, std::span<const pid_t>) {
    const auto& prepared = *static_cast<const Preparation*>(argument);
    BecomeSetter(prepared.theirs.get(), prepared.notes_read.get(), prepared.filter);
  }
  static void RunProbe(const void* argument, std::span<const pid_t> before) {
    const auto& prepared = *static_cast<const Preparation*>(argument);
    TryBreakpoint(prepared.probe_theirs.get(), before[prepared.job]);
  }
};

BreakpointSetter::BreakpointSetter() : preparation_(std::make_unique<Preparation>()) {}

std::unique_ptr<BreakpointSetter> BreakpointSetter::Prepare(unsigned job) {
  std::unique_ptr<BreakpointSetter> setter(new BreakpointSetter);
  Preparation& prepared = *setter->preparation_;
  prepared.job = job;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  setter->socket_.Reset(ends[0]);
  prepared.theirs.Reset(ends[1]);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  prepared.probe_ours.Reset(ends[0]);
  prepared.probe_theirs.Reset(ends[1]);
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return nullptr;
  prepared.notes_read.Reset(ends[0]);
  prepared.notes_write.Reset(ends[1]);
  prepared.filter = SetterFilter();
  return setter;
}

BreakpointSetter::~BreakpointSetter() {
  // Not by closing it alone: whoever was forked since may hold it, too.
  shutdown(socket_.get(), SHUT_RDWR);
  if (pid_ > 0) Retried([&] { return waitpid(pid_, nullptr, __WALL); });
}

ForkServer::Job BreakpointSetter::job() const {
  return {&Preparation::RunSetter,
          preparation_.get(),
          {preparation_->theirs.get(), preparation_->notes_read.get()}};
}

ForkServer::Job BreakpointSetter::probe_job() const {
  return {&Preparation::RunProbe, preparation_.get(), {preparation_->probe_theirs.get()}};
}

int BreakpointSetter::notes_fd() const { return preparation_->notes_write.get(); }

bool BreakpointSetter::Start(ForkServer& server, unsigned probe_job) {
  const std::unique_ptr<Preparation> prepared = std::move(preparation_);
  // Its end must be seen: nobody else holds that of the socket.
  prepared->theirs.Reset(-1);
  ForkServer::Process setter, probe;
  if (!server.Fork(prepared->job, &setter)) return false;
  pid_ = setter.pid;
  if (!server.Fork(probe_job, &probe)) return false;
  const LinearAddr place(reinterpret_cast<u64>(&alibi_break_here));
  const bool told =
      Set(probe_job, {&place, 1}) && send(prepared->probe_ours.get(), "", 1, MSG_NOSIGNAL) == 1;
  if (!told) syscall(SYS_pidfd_send_signal, probe.pidfd.get(), SIGKILL, nullptr, 0);
  int status = 0;
  Retried([&] { return waitpid(probe.pid, &status, __WALL); });
  return told && WIFEXITED(status) && WEXITSTATUS(status) == kTrapped;
}

bool BreakpointSetter::Set(unsigned job, std::span<const LinearAddr> places) {
  if (places.size() > kBreakpoints) return false;
  Breakpoints message{job, static_cast<u32>(places.size()), {}};
  for (unsigned i = 0; i < places.size(); ++i) message.place[i] = places[i].value;
  u8 done = 0;
  return Retried([&] { return send(socket_.get(), &message, sizeof(message), MSG_NOSIGNAL); }) ==
             static_cast<ssize_t>(sizeof(message)) &&
         Retried([&] { return read(socket_.get(), &done, 1); }) == 1 && done == 1;
}

}  // namespace alibi::direct
