// SPDX-License-Identifier: Apache-2.0
#include "direct/fork_server.h"

#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "direct/descriptor_message.h"
#include "direct/retried.h"

namespace alibi::direct {
namespace {

// Everything that the server's process reads is made before the fork.
struct Service {
  std::span<const ForkServer::Job> jobs;
  std::vector<int> keep;  // ascending
  int socket, notes;
};

void KeepDescriptors(const std::vector<int>& keep) {
  unsigned from = 0;
  for (const int fd : keep) {
    const auto kept = static_cast<unsigned>(fd);
    if (kept > from) syscall(SYS_close_range, from, kept - 1, 0);
    from = kept + 1;
  }
  syscall(SYS_close_range, from, ~0u, 0);
}

// The answer to a request: a process, or the error's number.
struct Answer {
  pid_t pid;
  int error;
};

[[noreturn]] void Serve(const Service& service) {
  const u64 all = ~u64{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(all));
  KeepDescriptors(service.keep);
  prctl(PR_SET_NAME, "alibi-fork");
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  std::array<pid_t, ForkServer::kMostJobs> forked{};
  u8 number;
  while (Retried([&] { return read(service.socket, &number, 1); }) == 1) {
    Answer answer{-1, EINVAL};
    int pidfd = -1;
    if (number < service.jobs.size() && forked[number] == 0) {
      const ForkServer::Job& job = service.jobs[number];
      // The VMM is its parent, which knows of it by its descriptor.
      const long pid = syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD, nullptr, &pidfd, nullptr, 0);
      if (pid == 0) {
        job.run(job.argument, forked);
        _exit(1);
      }
      answer = {static_cast<pid_t>(pid), pid < 0 ? errno : 0};
      if (pid > 0) {
        forked[number] = answer.pid;
        for (const int fd : job.own) close(fd);
        const ForkServer::Note note{number, answer.pid};
        if (service.notes >= 0) (void)!write(service.notes, &note, sizeof(note));
      }
    }
    if (!SendDescriptor(service.socket, &answer, sizeof(answer), pidfd)) break;
    if (pidfd >= 0) close(pidfd);
  }
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<ForkServer>> ForkServer::Start(std::span<const Job> jobs,
                                                      std::span<const int> shared, int notes) {
  ALIBI_CHECK(jobs.size() <= kMostJobs, "more jobs than there are numbers");
  const auto error = [](const char* what) {
    return Error{std::string("direct execution: ") + what + ": " + std::strerror(errno)};
  };
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return error("no pair of sockets");
  }
  std::unique_ptr<ForkServer> server(new ForkServer);
  server->socket_.Reset(sockets[0]);
  const FileDescriptor theirs(sockets[1]);
  Service service{jobs, {shared.begin(), shared.end()}, theirs.get(), notes};
  service.keep.push_back(theirs.get());
  for (const Job& job : jobs) {
    service.keep.insert(service.keep.end(), job.own.begin(), job.own.end());
  }
  std::sort(service.keep.begin(), service.keep.end());
  // Without an exit signal: it is no child that the program around us would have to wait for.
  const long pid = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, 0);
  if (pid == 0) Serve(service);
  if (pid < 0) return error("cannot fork");
  server->pid_ = static_cast<pid_t>(pid);
  return server;
}

ForkServer::~ForkServer() {
  if (pid_ < 0) return;
  // Not by closing it alone: whoever was forked since may hold it, too.
  shutdown(socket_.get(), SHUT_RDWR);
  Retried([&] { return waitpid(pid_, nullptr, __WALL); });
}

bool ForkServer::Fork(unsigned job, Process* process) {
  const u8 number = static_cast<u8>(job);
  if (Retried([&] { return send(socket_.get(), &number, 1, MSG_NOSIGNAL); }) != 1) return false;
  Answer answer{-1, EPIPE};
  int pidfd = -1;
  if (!ReceiveDescriptor(socket_.get(), &answer, sizeof(answer), &pidfd)) {
    errno = EPIPE;
    return false;
  }
  process->pid = answer.pid;
  process->pidfd.Reset(pidfd);
  errno = answer.error;
  return answer.pid > 0;
}

}  // namespace alibi::direct
