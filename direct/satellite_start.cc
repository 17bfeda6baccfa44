// SPDX-License-Identifier: Apache-2.0
// Everything here is a bare system call: the child of a process with threads may not rely on the C
// library.
#include "direct/satellite_start.h"

#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#include "direct/descriptor_message.h"
#include "direct/stub_layout.h"
#include "direct/stub_symbols.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS  // Linux 6.6
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

namespace alibi::direct {
namespace {

constexpr int kSocketFd = 2, kPagesFd = 3, kKeptFds = 4;
constexpr u64 kSaRestorer = 0x04000000;
constexpr unsigned kSsAutodisarm = 1u << 31;

long Call(long number, u64 a0 = 0, u64 a1 = 0, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0, u64 a5 = 0) {
  long result;
  register u64 r10 asm("r10") = a3;
  register u64 r8 asm("r8") = a4;
  register u64 r9 asm("r9") = a5;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a0), "S"(a1), "d"(a2), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}
template <class T>
u64 Word(T* pointer) {
  return reinterpret_cast<u64>(pointer);
}

[[noreturn]] void Fail() {
  for (;;) Call(SYS_exit_group, 1);
}
void Must(long result) {
  if (result < 0) Fail();
}

u64 BitOf(int signal) { return u64{1} << (signal - 1); }

// Nothing of the VMM's stays open but what is named here.
void KeepDescriptors(const SatelliteStart& start) {
  constexpr u64 kAbove = 100;
  const int from[kKeptFds] = {start.memory_fd, start.watch_fd, start.socket, start.pages_fd};
  const int to[kKeptFds] = {STUB_MEMORY_FD, STUB_WATCH_FD, kSocketFd, kPagesFd};
  long high[kKeptFds];
  for (unsigned i = 0; i < kKeptFds; ++i) {
    Must(high[i] = Call(SYS_fcntl, static_cast<u64>(from[i]), F_DUPFD, kAbove));
  }
  for (unsigned i = 0; i < kKeptFds; ++i) {
    Must(Call(SYS_dup3, static_cast<u64>(high[i]), static_cast<u64>(to[i]), 0));
  }
  Must(Call(SYS_close_range, kKeptFds, ~u32{0}, 0));
}

void MapPages(u64 base) {
  const auto map = [&](u64 begin, u64 end, u64 rights) {
    Must(Call(SYS_mmap, base + begin, end - begin, rights, MAP_SHARED | MAP_FIXED_NOREPLACE,
              kPagesFd, begin));
  };
  map(STUB_CODE, STUB_ORDERS, PROT_READ | PROT_EXEC);
  map(STUB_ORDERS, STUB_NOTES, PROT_READ);
  map(STUB_NOTES, STUB_END, PROT_READ | PROT_WRITE);
}

// The thread that ends the process when the VMM is gone.
void StartWatch(u64 base) {
  constexpr u64 kFlags =
      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  using Start = long (*)(u64 flags, u64 stack);
  const auto start = reinterpret_cast<Start>(base + StubOffset(alibi_stub_start_watch));
  Must(start(kFlags, base + STUB_END - 64));
}

void HandleSignals(const SatelliteStart& start) {
  struct KernelAction {
    u64 handler, flags, restorer, mask;
  };
  const KernelAction action = {start.base + StubOffset(alibi_stub_handler),
                               SA_SIGINFO | SA_ONSTACK | kSaRestorer,
                               start.base + StubOffset(alibi_stub_restorer), ~u64{0}};
  u64 blocked = ~u64{0};
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, start.stop_signal}) {
    Must(Call(SYS_rt_sigaction, static_cast<u64>(signal), Word(&action), 0, sizeof(u64)));
    blocked &= ~BitOf(signal);
  }
  // Always from its top: where user code's rsp points must not matter.
  stack_t stack{};
  stack.ss_sp = reinterpret_cast<void*>(start.base + STUB_STACK);
  stack.ss_size = STUB_END - STUB_STACK;
  stack.ss_flags = static_cast<int>(kSsAutodisarm);
  Must(Call(SYS_sigaltstack, Word(&stack), 0));
  Must(Call(SYS_rt_sigprocmask, SIG_SETMASK, Word(&blocked), 0, sizeof(u64)));
}

void ForgetLibrary() {
#ifdef RSEQ_SIG
  // The kernel would write to memory that is about to go.
  if (__rseq_size != 0) {
    const u64 area = Word(static_cast<u8*>(__builtin_thread_pointer()) + __rseq_offset);
    Call(SYS_rseq, area, 32, 1 /* RSEQ_FLAG_UNREGISTER */, RSEQ_SIG);
  }
#endif
  Call(SYS_set_robust_list, 0, 24);
  Call(SYS_set_tid_address, 0);
}

}  // namespace

void BecomeSatellite(const SatelliteStart& start, pid_t debugger) {
  const u64 all = ~u64{0};
  Must(Call(SYS_rt_sigprocmask, SIG_SETMASK, Word(&all), 0, sizeof(u64)));
  ForgetLibrary();
  KeepDescriptors(start);
  MapPages(start.base);
  Must(Call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1));
  Call(SYS_prctl, PR_SET_NAME, Word("alibi-user"));
  // Where nobody but ancestors may trace a process (Yama), one more may.
  if (debugger != 0) Call(SYS_prctl, PR_SET_PTRACER, static_cast<u64>(debugger));
  Must(Call(SYS_prctl, PR_SET_DUMPABLE, debugger != 0));
  const rlimit no_core{0, 0};
  Call(SYS_setrlimit, RLIMIT_CORE, Word(&no_core));
  if (start.trapping_tsc) Must(Call(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV));
  if (start.trapping_cpuid) Must(Call(SYS_arch_prctl, ARCH_SET_CPUID, 0));
  const long listener = Call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                             Word(&start.listener_filter));
  Must(listener);
  // Each side wakes up the other one at once.
  constexpr u64 kSyncWakeUp = 1;
  Call(SYS_ioctl, static_cast<u64>(listener), SECCOMP_IOCTL_NOTIF_SET_FLAGS, kSyncWakeUp);
  char byte = 0;
  if (!SendDescriptor(kSocketFd, &byte, 1, static_cast<int>(listener))) Fail();
  StartWatch(start.base);
  Must(Call(SYS_close_range, kSocketFd, kPagesFd, 0));
  Must(Call(SYS_close_range, static_cast<u64>(listener), static_cast<u64>(listener), 0));
  HandleSignals(start);
  Must(Call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, Word(&start.user_filter)));
  reinterpret_cast<void (*)()>(start.base + StubOffset(alibi_stub_first))();
  __builtin_unreachable();
}

}  // namespace alibi::direct
