// SPDX-License-Identifier: Apache-2.0
#include "testsuite/coverage/host_probe.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "testsuite/native_child.h"

namespace alibi::coverage {

// Between parent and child.
struct HostProber::Shared {
  u32 count;
  u32 next;  // the probe that runs or comes next
  Probe probes[kBatch];
  ProbeResult results[kBatch];
};

namespace {

using native_child::ClearFlagsOfSequence;
using native_child::Copy;

// Both below 4 GB, for 32-bit code. The data lies around what every register holds.
constexpr u64 kCodePage = 0x1000'0000, kCodeEnd = kCodePage + kPageSize;
constexpr u64 kDataBase = 0x2000'0000, kDataBytes = 0x2'0000;
constexpr u64 kRegisterValue = kDataBase + kDataBytes / 2;
constexpr u64 kStackBytes = 256 * 1024;
// Linux's selectors: __USER32_CS, __USER_CS, __USER_DS.
constexpr u32 kUserCs32 = 0x23, kUserCs64 = 0x33, kUserDs = 0x2b;
constexpr u64 kInvalidOpcode = 6, kPageFault = 14, kFetch = 1 << 4, kTrapFlag = 1 << 8;
constexpr u32 kTickMicroseconds = 20'000;
constexpr unsigned kMaxXsaveArea = 4096;

struct Child {
  HostProber::Shared* shared;
  u32 xsave_size;
  u32 ticked;  // the probe that ran at the last tick, plus one
  bool running;
  alignas(64) u8 xsave[kMaxXsaveArea];
};
Child child;

ALIBI_BARE u64 StartOf(const Probe& probe) { return kCodeEnd - probe.length; }

ALIBI_BARE void Judge(const ucontext_t* uc, int signal) {
  HostProber::Shared& shared = *child.shared;
  const Probe& probe = shared.probes[shared.next];
  ProbeResult& result = shared.results[shared.next];
  const greg_t* gregs = uc->uc_mcontext.gregs;
  const bool at_start = static_cast<u64>(gregs[REG_RIP]) == StartOf(probe);
  const u64 trap = static_cast<u64>(gregs[REG_TRAPNO]), error = static_cast<u64>(gregs[REG_ERR]);
  result.trap = static_cast<u8>(trap);
  result.verdict = HostVerdict::kRuns;
  if (signal == SIGPROF) {
    result.verdict = HostVerdict::kLost;
  } else if (signal == SIGILL && trap == kInvalidOpcode && at_start) {
    result.verdict = HostVerdict::kUndefined;
  } else if (signal == SIGSEGV && trap == kPageFault && (error & kFetch) != 0 && at_start &&
             static_cast<u64>(gregs[REG_CR2]) == kCodeEnd) {
    result.verdict = HostVerdict::kCutShort;
  }
  ++shared.next;
}

ALIBI_BARE void Load(ucontext_t* uc) {
  HostProber::Shared& shared = *child.shared;
  const Probe& probe = shared.probes[shared.next];
  greg_t* gregs = uc->uc_mcontext.gregs;
  for (int reg : {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8,
                  REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15}) {
    gregs[reg] = static_cast<greg_t>(kRegisterValue);
  }
  gregs[REG_RIP] = static_cast<greg_t>(StartOf(probe));
  // Single steps: branches to themselves and repeated instructions come to an end.
  gregs[REG_EFL] = static_cast<greg_t>(kTrapFlag | 2);
  // CS and SS are the lowest and highest of the four selectors there.
  const u64 selectors = (u64{kUserDs} << 48) | (probe.code_bits == 64 ? kUserCs64 : kUserCs32);
  gregs[REG_CSGSFS] = static_cast<greg_t>(selectors);
  // Up to the words that Linux keeps for itself, then the header and the components.
  u8* area = reinterpret_cast<u8*>(uc->uc_mcontext.fpregs);
  Copy(area, child.xsave, 416);
  Copy(area + 512, child.xsave + 512, child.xsave_size - 512);
  Copy(reinterpret_cast<void*>(StartOf(probe)), probe.bytes.data(), probe.length);
}

// The bytes of a signal frame's XSAVE area, as Linux notes them there (its asm/sigcontext.h). CPUID
// counts components too that this process has not asked for, such as AMX's: behind the area lies
// other memory.
ALIBI_BARE u32 FrameXsaveSize(const ucontext_t* uc) {
  constexpr u32 kMagic = 0x46505853;  // FP_XSTATE_MAGIC1
  struct {
    u32 magic, extended_size;
    u64 components;
    u32 xstate_size;
  } note;
  Copy(&note, reinterpret_cast<const u8*>(uc->uc_mcontext.fpregs) + 464, sizeof(note));
  const u32 size = note.magic == kMagic ? note.xstate_size : 512;
  return size < kMaxXsaveArea ? size : kMaxXsaveArea;
}

ALIBI_BARE void OnSignal(int signal, siginfo_t*, void* context) {
  ClearFlagsOfSequence();
  auto* uc = static_cast<ucontext_t*>(context);
  if (signal == SIGPROF) {
    if (!child.running) return;
    if (child.ticked != child.shared->next + 1) {
      child.ticked = child.shared->next + 1;
      return;
    }
  }
  if (child.running) {
    Judge(uc, signal);
  } else {
    child.xsave_size = FrameXsaveSize(uc);
    Copy(child.xsave, uc->uc_mcontext.fpregs, child.xsave_size);
    child.running = true;
  }
  if (child.shared->next == child.shared->count) {
    asm volatile("syscall" : : "a"(SYS_exit_group), "D"(0) : "rcx", "r11", "memory");
  }
  Load(uc);
  asm volatile("mov %0, %%ds\n\tmov %0, %%es" : : "r"(kUserDs));
  asm volatile("wrgsbase %0\n\twrfsbase %0" : : "r"(u64{0}));
}

void Map(u64 at, u64 size, int protection) {
  void* mapped = mmap(reinterpret_cast<void*>(at), size, protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ALIBI_CHECK(mapped == reinterpret_cast<void*>(at), "the probes' addresses are free in the child");
}

// An instruction that is a system call is stopped at it, in 64-bit and in 32-bit code.
void Confine() {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), const_cast<sock_filter*>(filter)};
  ALIBI_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
              "the prober's child can be confined");
}

[[noreturn]] void RunChild(HostProber::Shared* shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Map(kCodePage, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC);
  Map(kCodeEnd, kPageSize, PROT_NONE);
  Map(kDataBase, kDataBytes, PROT_READ | PROT_WRITE);
  stack_t stack{};
  stack.ss_size = kStackBytes;
  stack.ss_sp =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaltstack(&stack, nullptr);
  child = {};
  child.shared = shared;
  struct sigaction action {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF, SIGUSR1}) {
    sigaction(signal, &action, nullptr);
  }
  itimerval tick{};
  tick.it_interval.tv_usec = tick.it_value.tv_usec = kTickMicroseconds;
  setitimer(ITIMER_PROF, &tick, nullptr);
  const pid_t self = getpid();
  Confine();
  syscall(SYS_tgkill, self, self, SIGUSR1);  // does not come back
  _exit(1);
}

}  // namespace

HostProber::HostProber() {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ALIBI_CHECK(memory != MAP_FAILED, "memory shared with the prober's child");
  shared_ = static_cast<Shared*>(memory);
}

HostProber::~HostProber() { munmap(shared_, sizeof(Shared)); }

void HostProber::Run(std::span<const Probe> probes, std::span<ProbeResult> results) {
  for (std::size_t begin = 0; begin < probes.size(); begin += kBatch) {
    const u32 count = static_cast<u32>(std::min<std::size_t>(kBatch, probes.size() - begin));
    std::copy_n(probes.begin() + static_cast<std::ptrdiff_t>(begin), count, shared_->probes);
    std::fill_n(shared_->results, count, ProbeResult{});
    shared_->count = count;
    shared_->next = 0;
    while (shared_->next < count) {
      const pid_t pid = fork();
      ALIBI_CHECK(pid >= 0, "fork");
      if (pid == 0) RunChild(shared_);
      int status = 0;
      waitpid(pid, &status, 0);
      // What killed the child stays lost; another goes on behind it.
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++shared_->next;
    }
    std::copy_n(shared_->results, count, results.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace alibi::coverage
