// SPDX-License-Identifier: Apache-2.0
// Behind EnterSandbox(): what a machine needs works, and whatever broken code could try next ends
// with a line that names it.
#include "cli/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>

#include "base/sandbox/denied_call.h"
#include "hardware/kvm_api.h"

namespace alibi::vmm {
namespace {

struct Outcome {
  int status;  // 128 + signal
  std::string words;
};

// `work` in a process behind the sandbox.
Outcome Confined(const std::function<int()>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    if (!EnterSandbox("", /*kvm=*/false).ok()) _exit(99);
    _exit(work());
  }
  close(ends[1]);
  Outcome outcome;
  char bytes[1000];
  for (ssize_t size; (size = read(ends[0], bytes, sizeof(bytes))) > 0;) {
    outcome.words.append(bytes, static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TEST_CASE("Sandbox: what a machine needs works") {
  const Outcome outcome = Confined([] {
    void* memory = mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_READ | PROT_WRITE) != 0) return 1;
    if (madvise(memory, 4096, MADV_DONTNEED) != 0 || munmap(memory, 1 << 20) != 0) return 2;
    timer_t timer;
    sigevent event{};
    event.sigev_notify = SIGEV_NONE;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_delete(timer) != 0) return 3;
    void* large = malloc(1 << 24);
    large = realloc(large, 1 << 25);
    free(large);
    if (write(STDERR_FILENO, "x", 1) != 1) return 4;
    if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES) return 5;
    if (syscall(SYS_tgkill, getpid(), gettid(), 0) != 0) return 6;
    return 0;
  });
  CHECK(outcome.status == 0);
  CHECK(outcome.words == "x");
}

TEST_CASE("Sandbox: KVM's requests are the hardware engine's alone") {
  const auto allows = [](bool kvm, unsigned long request) {
    for (const sock_filter& instruction : SandboxFilter(kvm)) {
      if (BPF_CLASS(instruction.code) == BPF_JMP && instruction.k == static_cast<__u32>(request)) {
        return true;
      }
    }
    return false;
  };
#define ALIBI_KVM_REQUEST(request)      \
  CHECK(allows(/*kvm=*/true, request)); \
  CHECK_FALSE(allows(/*kvm=*/false, request));
#include "hardware/kvm_requests.inc"
#undef ALIBI_KVM_REQUEST
  CHECK_FALSE(allows(true, KVM_CREATE_VM));
  CHECK_FALSE(allows(true, KVM_CREATE_VCPU));
}

TEST_CASE("Sandbox: anything else ends with its name") {
  const struct {
    const char* name;
    std::function<long()> call;
  } rows[] = {
      {"socket", [] { return socket(AF_INET, SOCK_STREAM, 0); }},
      {"connect", [] { return syscall(SYS_connect, 0, nullptr, 0); }},
      {"bind", [] { return syscall(SYS_bind, 0, nullptr, 0); }},
      {"execve", [] { return syscall(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"clone", [] { return syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr); }},
      {"clone3", [] { return syscall(SYS_clone3, nullptr, 0); }},
      {"fork", [] { return syscall(SYS_fork); }},
      {"ptrace", [] { return syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0); }},
      {"process_vm_writev", [] { return syscall(SYS_process_vm_writev, 1, 0, 0, 0, 0, 0); }},
      {"kill", [] { return kill(1, 0); }},
      {"tgkill", [] { return syscall(SYS_tgkill, 1, 1, 0); }},
      {"mmap",
       [] {
         return reinterpret_cast<long>(
             mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
       }},
      {"mprotect", [] { return mprotect(nullptr, 4096, PROT_READ | PROT_EXEC); }},
      {"pkey_mprotect", [] { return syscall(SYS_pkey_mprotect, 0, 4096, PROT_EXEC, -1); }},
      {"memfd_create", [] { return memfd_create("x", 0); }},
      {"ftruncate", [] { return ftruncate(0, 0); }},
      {"io_uring_setup", [] { return syscall(SYS_io_uring_setup, 1, nullptr); }},
      {"prctl", [] { return prctl(PR_SET_DUMPABLE, 1); }},
      {"ioctl", [] { return syscall(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, nullptr); }},
      {"openat2", [] { return syscall(437, AT_FDCWD, "/etc/passwd", nullptr, 0); }},
      {"creat", [] { return syscall(SYS_creat, "/tmp/x", 0600); }},
      {"personality", [] { return syscall(SYS_personality, 0x400000); }},
      {"unshare", [] { return unshare(0); }},
  };
  for (const auto& row : rows) {
    INFO(row.name);
    const Outcome outcome = Confined([&row] {
      row.call();
      return 0;
    });
    CHECK(outcome.status == 70);
    CHECK_THAT(outcome.words, Catch::Contains(std::string("(") + row.name + ")"));
    CHECK_THAT(outcome.words, Catch::StartsWith("alibi: the sandbox denies the system call "));
    CHECK(outcome.words.find('\n') == outcome.words.size() - 1);
  }
}

TEST_CASE("Sandbox: threads that were there before") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::thread other([&] {
      char byte;
      if (read(ends[0], &byte, 1) == 1) socket(AF_INET, SOCK_DGRAM, 0);
      _exit(1);
    });
    if (!EnterSandbox("", /*kvm=*/false).ok()) _exit(99);
    if (write(ends[1], "x", 1) != 1) _exit(2);
    other.join();
    _exit(3);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 70);
}

TEST_CASE("Sandbox: threads that have only just begun") {
  for (int round = 0; round < 200; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      std::thread other([] { free(malloc(1 << 20)); });
      if (!EnterSandbox("", /*kvm=*/false).ok()) _exit(99);
      other.join();
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("Sandbox: every call of the list has a name") {
#define ALIBI_SANDBOX_CALL(room, call) CHECK(std::string(sandbox::CallName(SYS_##call)) == #call);
#define ALIBI_SANDBOX_CALL_IF(room, call, argument, mask, value) ALIBI_SANDBOX_CALL(room, call)
#define ALIBI_SANDBOX_REFUSED(room, call) ALIBI_SANDBOX_CALL(room, call)
#include "cli/sandbox_calls.inc"
#undef ALIBI_SANDBOX_CALL
#undef ALIBI_SANDBOX_CALL_IF
#undef ALIBI_SANDBOX_REFUSED
}

}  // namespace
}  // namespace alibi::vmm
