// SPDX-License-Identifier: Apache-2.0
// What is denied is denied, and what is not still works: each in a process of its own.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "base/sandbox/call_filter.h"
#include "base/sandbox/file_rules.h"

namespace alibi::sandbox {
namespace {

std::string Path(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

// The exit status of `work` in a child; 128 + the signal that ended it.
int InChild(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int OpenError(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags, 0600);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

TEST_CASE("File rules: only what was allowed can be opened, and only that way") {
  if (LandlockVersion() == 0) {
    WARN("SKIP: this kernel has no Landlock");
    return;
  }
  const std::string readable = Path("readable"), writable = Path("writable"), other = Path("other");
  for (const std::string& path : {readable, writable, other}) {
    REQUIRE(OpenError(path, O_WRONLY | O_CREAT) == 0);
  }
  unlink(Path("new").c_str());
  FileRules rules({.tcp = true, .signals = true});
  REQUIRE(rules.work());
  rules.Allow(readable, FileAccess::kRead);
  rules.Allow(writable, FileAccess::kWrite);
  rules.Allow(Path("missing"), FileAccess::kWrite);
  const int open_before = open(other.c_str(), O_RDWR);
  CHECK(InChild([&] {
          if (!rules.Enter()) return 1;
          if (OpenError(readable, O_RDONLY) != 0) return 2;
          if (OpenError(readable, O_WRONLY) != EACCES) return 3;
          if (OpenError(writable, O_RDWR) != 0) return 4;
          if (LandlockVersion() >= 3 && OpenError(writable, O_RDWR | O_TRUNC) != 0) return 5;
          if (OpenError(other, O_RDONLY) != EACCES) return 6;
          if (OpenError(Path("new"), O_WRONLY | O_CREAT) != EACCES) return 7;
          if (unlink(other.c_str()) == 0) return 8;
          if (write(open_before, "x", 1) != 1) return 9;
          return 0;
        }) == 0);
  CHECK(InChild([&] {
          // The threads that it makes are confined as it is.
          if (!rules.Enter()) return 1;
          int error = 0;
          std::thread([&] { error = OpenError(other, O_RDONLY); }).join();
          return error == EACCES ? 0 : 2;
        }) == 0);
  close(open_before);
}

TEST_CASE("File rules: no TCP where it is said") {
  if (LandlockVersion() < 4) {
    WARN("SKIP: this kernel's Landlock knows no network");
    return;
  }
  const auto bind_error = [](bool no_tcp) {
    return InChild([no_tcp] {
      if (!FileRules({.tcp = no_tcp, .signals = true}).Enter()) return 1;
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in place{};
      place.sin_family = AF_INET;
      place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return bind(fd, reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0 ? 0 : errno;
    });
  };
  CHECK(bind_error(true) == EACCES);
  CHECK(bind_error(false) == 0);
}

TEST_CASE("Call filter: the first rule that holds answers, the rest is caught") {
  const CallRule rules[] = {
      {SYS_getppid, FailWith(EXDEV)},
      {SYS_fcntl, FailWith(ENOTTY), 1, ~u32{0}, F_GETFD},
      {SYS_fcntl, kAllow, 1, ~u32{0}, F_GETFL},
      {SYS_dup, kAllow, 0, 0xfe, 0},
      {SYS_exit_group, kAllow},
  };
  const auto filter = CompileFilter(rules, kTrap);
  const auto run = [&](const std::function<int()>& work) {
    return InChild([&] { return EnterFilter(filter, false) == 0 ? work() : 99; });
  };
  CHECK(run([] { return syscall(SYS_getppid) == -1 && errno == EXDEV ? 0 : 1; }) == 0);
  CHECK(run([] { return fcntl(0, F_GETFD) == -1 && errno == ENOTTY ? 0 : 1; }) == 0);
  CHECK(run([] { return fcntl(0, F_GETFL) >= 0 ? 0 : 1; }) == 0);
  CHECK(run([] { return fcntl(0, F_GETLK); }) == 128 + SIGSYS);
  CHECK(run([] { return dup(1) >= 0 ? 0 : 1; }) == 0);
  CHECK(run([] { return dup(2); }) == 128 + SIGSYS);
  CHECK(run([] { return static_cast<int>(syscall(SYS_uname, nullptr)); }) == 128 + SIGSYS);
  // The calls of 32-bit programs have numbers of their own.
  CHECK(run([] {
          long result = 20;  // its getpid
          asm volatile("int $0x80" : "+a"(result) : : "memory");
          return 0;
        }) == 128 + SIGSYS);
  CHECK(run([] { return static_cast<int>(syscall(0x40000000 | SYS_getppid)); }) == 128 + SIGSYS);
}

TEST_CASE("Call filter: all threads that there are") {
  const CallRule rules[] = {{SYS_getppid, FailWith(EXDEV)}};
  const auto filter = CompileFilter(rules, kAllow);
  CHECK(InChild([&] {
          int pipe_fds[2];
          if (pipe(pipe_fds) != 0) return 1;
          int error = 0;
          std::thread other([&] {
            char byte;
            if (read(pipe_fds[0], &byte, 1) == 1 && syscall(SYS_getppid) == -1) error = errno;
          });
          if (EnterFilter(filter, true) != 0) return 2;
          if (write(pipe_fds[1], "x", 1) != 1) return 3;
          other.join();
          return error == EXDEV ? 0 : 4;
        }) == 0);
}

}  // namespace
}  // namespace alibi::sandbox
