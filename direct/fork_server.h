// SPDX-License-Identifier: Apache-2.0
// A process that forks others when they are wanted. The VMM itself cannot: it is in its sandbox by
// then, and large.
//
// What there is to be forked is said before, as jobs in the VMM's memory; the server has them in
// its copy. All that can be asked of it later is a job by its number, each once.
#ifndef ALIBI_DIRECT_FORK_SERVER_H_
#define ALIBI_DIRECT_FORK_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/types.h"

namespace alibi::direct {

class ForkServer {
 public:
  static constexpr unsigned kMostJobs = 16;

  struct Job {
    // Does not return. The program may have had threads: system calls only. `before` has the
    // processes by their jobs' numbers; 0: not forked by then.
    void (*run)(const void* argument, std::span<const pid_t> before) = nullptr;
    const void* argument = nullptr;
    // Those that nobody else wants: the server closes them behind the fork.
    std::vector<int> own;
  };
  // What is written about each process that was forked, whole, before Fork() returns.
  struct Note {
    u32 job;
    pid_t pid;
  };

  // Forks. `shared`: descriptors that the jobs want; with their own ones, all that the server
  // keeps. notes: one of `shared`, to write Notes to; -1: none.
  static Result<std::unique_ptr<ForkServer>> Start(std::span<const Job> jobs,
                                                   std::span<const int> shared, int notes);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  struct Process {
    pid_t pid = -1;  // a child of this process without an exit signal: waitpid(__WALL) has its end
    FileDescriptor pidfd{-1};
  };
  // False, with errno: the host has no more processes, or the server is gone.
  bool Fork(unsigned job, Process* process);

 private:
  ForkServer() = default;

  pid_t pid_ = -1;
  FileDescriptor socket_{-1};
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_FORK_SERVER_H_
