// SPDX-License-Identifier: Apache-2.0
#include "direct/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

using namespace alibi;
using namespace alibi::direct;

namespace {

struct Pipe {
  Pipe() : read(-1), write(-1) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    read.Reset(ends[0]);
    write.Reset(ends[1]);
  }
  FileDescriptor read, write;
};

// Exits with the number of processes that were forked before.
void CountBefore(const void*, std::span<const pid_t> before) {
  int count = 0;
  for (const pid_t pid : before) count += pid != 0;
  _exit(count);
}

// Exits with 1 if it has the descriptor, else with 0.
void LookForDescriptor(const void* fd, std::span<const pid_t>) {
  _exit(fcntl(*static_cast<const int*>(fd), F_GETFD) >= 0);
}

int StatusOf(const ForkServer::Process& process) {
  int status = -1;
  REQUIRE(waitpid(process.pid, &status, __WALL) == process.pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("jobs are forked when they are asked for, each once, and are this process's children") {
  const Pipe notes;
  const ForkServer::Job jobs[] = {{CountBefore, nullptr, {}}, {CountBefore, nullptr, {}}};
  const int shared[] = {notes.write.get()};
  auto server = ForkServer::Start(jobs, shared, notes.write.get());
  REQUIRE(server.ok());
  ForkServer::Process second, first, again;
  REQUIRE((*server)->Fork(1, &second));
  CHECK(StatusOf(second) == 0);
  REQUIRE((*server)->Fork(0, &first));
  pollfd end{first.pidfd.get(), POLLIN, 0};
  CHECK(poll(&end, 1, 10'000) == 1);
  CHECK(StatusOf(first) == 1);
  CHECK_FALSE((*server)->Fork(1, &again));
  CHECK_FALSE((*server)->Fork(2, &again));
  ForkServer::Note written[2];
  REQUIRE(read(notes.read.get(), written, sizeof(written)) == sizeof(written));
  CHECK(written[0].job == 1);
  CHECK(written[0].pid == second.pid);
  CHECK(written[1].job == 0);
  CHECK(written[1].pid == first.pid);
}

TEST_CASE("a fork server has no descriptors but those that were named") {
  const Pipe named, own, other;
  const int fds[] = {named.read.get(), own.read.get(), other.read.get()};
  const ForkServer::Job jobs[] = {{LookForDescriptor, &fds[0], {}},
                                  {LookForDescriptor, &fds[1], {own.read.get()}},
                                  {LookForDescriptor, &fds[1], {}},
                                  {LookForDescriptor, &fds[2], {}}};
  const int shared[] = {named.read.get()};
  auto server = ForkServer::Start(jobs, shared, -1);
  REQUIRE(server.ok());
  // The third looks for what was the second's own, which has been forked by then.
  const int expected[] = {1, 1, 0, 0};
  for (unsigned job = 0; job < 4; ++job) {
    ForkServer::Process process;
    REQUIRE((*server)->Fork(job, &process));
    CHECK(StatusOf(process) == expected[job]);
  }
}
