// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/native_runner.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
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
#include <climits>
#include <cstdlib>
#include <ctime>

#include "base/check.h"
#include "testsuite/native_child.h"

namespace alibi::oracle {

// Shared between parent and child; the child's handler touches nothing else but the test pages.
struct NativeJob {
  u64 gpr[16];
  u64 rip, rflags, fs_base, gs_base;
  u32 code_size;
  u64 code_at;  // linear
  u16 selector[6];
  u8 code[1024];
  u8 xsave[4096];
};

struct NativeResult {
  u16 selector[6];
  u64 gpr[16];
  u64 rip, rflags, fs_base, gs_base, trap, error, cr2;
  u8 end, slow;
  u8 xsave[4096];
  u8 memory[kImageBytes];
  u8 code[kCodeBytes];
};

struct NativeShared {
  u32 batch_number;  // the parent's: a new batch is ready
  u32 batch_done;    // the child's
  u32 count;
  u32 next;  // the sequence that runs or comes next
  u8 initial_memory[kImageBytes];
  NativeJob jobs[NativeRunner::kBatch];
  NativeResult results[NativeRunner::kBatch];
};

namespace {

using native_child::ClearFlagsOfSequence;
using native_child::Copy;

constexpr u64 kChildStack = 512 * 1024;
constexpr u32 kTickMicroseconds = 10'000;
// Guest GPR number -> index into gregs.
constexpr int kGregOf[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                             REG_R12, REG_R13, REG_R14, REG_R15};

// Of the child. One child per process image, so plain globals will do for its handler.
struct Child {
  NativeShared* shared;
  u64 own_fs;
  u64 mask;
  u32 xsave_size;
  u32 ticked;    // the sequence that ran at the last tick, plus one
  bool running;  // a sequence
  bool in_batch;
};
Child child;

ALIBI_BARE inline void Fill(void* to, u8 value, u64 size) {
  asm volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(value) : "memory");
}
ALIBI_BARE inline long Syscall(long number, long a, long b, long c, long d) {
  long result;
  register long r10 asm("r10") = d;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
               : "rcx", "r11", "memory");
  return result;
}

ALIBI_BARE void StoreResult(const ucontext_t* uc, u8 end) {
  NativeShared& shared = *child.shared;
  NativeResult& result = shared.results[shared.next];
  const greg_t* gregs = uc->uc_mcontext.gregs;
  for (unsigned i = 0; i < 16; ++i) result.gpr[i] = static_cast<u64>(gregs[kGregOf[i]]);
  result.rip = static_cast<u64>(gregs[REG_RIP]);
  result.rflags = static_cast<u64>(gregs[REG_EFL]);
  result.trap = static_cast<u64>(gregs[REG_TRAPNO]);
  result.error = static_cast<u64>(gregs[REG_ERR]);
  result.cr2 = static_cast<u64>(gregs[REG_CR2]);
  result.selector[vcpu::kCs] = static_cast<u16>(gregs[REG_CSGSFS]);
  result.selector[vcpu::kSs] = static_cast<u16>(gregs[REG_CSGSFS] >> 48);
  result.end = end;
  result.slow = child.ticked != 0;
  Copy(result.xsave, uc->uc_mcontext.fpregs, child.xsave_size);
  u64 at = 0;
  for (const DataPage& page : kDataPages) {
    if (page.kind == PageKind::kAbsent) continue;
    Copy(result.memory + at, reinterpret_cast<const void*>(page.linear), kPageSize);
    at += kPageSize;
  }
  Copy(result.code, reinterpret_cast<const void*>(kCodeBase), kCodeBytes);
  ++shared.next;
}

ALIBI_BARE void LoadJob(ucontext_t* uc) {
  NativeShared& shared = *child.shared;
  const NativeJob& job = shared.jobs[shared.next];
  greg_t* gregs = uc->uc_mcontext.gregs;
  for (unsigned i = 0; i < 16; ++i) gregs[kGregOf[i]] = static_cast<greg_t>(job.gpr[i]);
  gregs[REG_RIP] = static_cast<greg_t>(job.rip);
  gregs[REG_EFL] = static_cast<greg_t>(job.rflags);
  // Four selectors: CS, GS, FS, SS. Of GS and FS sigreturn takes no notice.
  gregs[REG_CSGSFS] =
      static_cast<greg_t>(job.selector[vcpu::kCs] | u64{job.selector[vcpu::kSs]} << 48);
  // All but XSTATE_BV's bits of components that are not ours (PKRU).
  u8* area = reinterpret_cast<u8*>(uc->uc_mcontext.fpregs);
  Copy(area, job.xsave, 416);  // up to the words that Linux keeps for itself
  Copy(area + 576, job.xsave + 576, child.xsave_size - 576);
  u64 present;
  Copy(&present, area + 512, 8);
  present |= child.mask;
  Copy(area + 512, &present, 8);
  u64 at = 0;
  for (const DataPage& page : kDataPages) {
    if (page.kind == PageKind::kAbsent) continue;
    if (page.kind == PageKind::kReadWrite) {
      Copy(reinterpret_cast<void*>(page.linear), shared.initial_memory + at, kPageSize);
    }
    at += kPageSize;
  }
  Fill(reinterpret_cast<void*>(kCodeBase), 0xcc, kCodeBytes);
  Copy(reinterpret_cast<void*>(job.code_at), job.code, job.code_size);
}

ALIBI_BARE void OnSignal(int signal, siginfo_t*, void* context) {
  u64 fs, gs;
  asm volatile("rdfsbase %0" : "=r"(fs));
  asm volatile("rdgsbase %0" : "=r"(gs));
  ClearFlagsOfSequence();
  auto* uc = static_cast<ucontext_t*>(context);
  NativeShared& shared = *child.shared;
  u8 end = static_cast<u8>(End::kException);
  if (signal == SIGPROF) {
    if (!child.running) return;
    if (child.ticked != shared.next + 1) {
      child.ticked = shared.next + 1;
      return;
    }
    end = static_cast<u8>(End::kTimeout);
  }
  if (child.running) {
    NativeResult& result = shared.results[shared.next];
    result.fs_base = fs;
    result.gs_base = gs;
    asm volatile("mov %%es, %0" : "=m"(result.selector[vcpu::kEs]));
    asm volatile("mov %%ds, %0" : "=m"(result.selector[vcpu::kDs]));
    asm volatile("mov %%fs, %0" : "=m"(result.selector[vcpu::kFs]));
    asm volatile("mov %%gs, %0" : "=m"(result.selector[vcpu::kGs]));
    StoreResult(uc, end);
    child.running = false;
  }
  while (!child.in_batch || shared.next == shared.count) {
    const u32 number = __atomic_load_n(&shared.batch_number, __ATOMIC_ACQUIRE);
    if (child.in_batch) {
      child.in_batch = false;
      __atomic_store_n(&shared.batch_done, number, __ATOMIC_RELEASE);
      Syscall(SYS_futex, reinterpret_cast<long>(&shared.batch_done), FUTEX_WAKE, INT_MAX, 0);
    } else if (number == shared.batch_done) {
      Syscall(SYS_futex, reinterpret_cast<long>(&shared.batch_number), FUTEX_WAIT,
              static_cast<long>(number), 0);
    } else {
      child.in_batch = true;
    }
  }
  child.running = true;
  child.ticked = 0;
  LoadJob(uc);
  const NativeJob& job = shared.jobs[shared.next];
  asm volatile("mov %0, %%es" : : "m"(job.selector[vcpu::kEs]));
  asm volatile("mov %0, %%ds" : : "m"(job.selector[vcpu::kDs]));
  asm volatile("mov %0, %%gs" : : "m"(job.selector[vcpu::kGs]));
  asm volatile("mov %0, %%fs" : : "m"(job.selector[vcpu::kFs]));
  if (job.selector[vcpu::kGs] < 4) asm volatile("wrgsbase %0" : : "r"(job.gs_base));
  if (job.selector[vcpu::kFs] < 4) asm volatile("wrfsbase %0" : : "r"(job.fs_base));
}

// The child inherits the address space, half of which the machines' views take up: the test's
// addresses are set aside before there are any, those that the child leaves absent as well.
void ReserveAddresses() {
  const auto reserve = [](u64 linear, u64 size) {
    void* at = mmap(reinterpret_cast<void*>(linear), size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    ALIBI_CHECK(at == reinterpret_cast<void*>(linear), "the test's addresses are free");
  };
  reserve(kCodeBase, kCodeBytes);
  for (const DataPage& page : kDataPages) reserve(page.linear, kPageSize);
}

void Map(u64 linear, u64 size, int protection) {
  void* at = mmap(reinterpret_cast<void*>(linear), size, protection,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ALIBI_CHECK(at == reinterpret_cast<void*>(linear), "the child has memory for a test");
}

// A sequence that changes itself may become a system call: only what the handler needs is let
// through.
void ConfineChild() {
  const sock_filter filter[] = {
      // Numbers of other system call tables mean something else.
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), const_cast<sock_filter*>(filter)};
  ALIBI_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
              "the oracle's child can be confined");
}

[[noreturn]] void RunChild(NativeShared* shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Map(kCodeBase, kCodeBytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  u64 at = 0;
  for (const DataPage& page : kDataPages) {
    if (page.kind == PageKind::kAbsent) continue;
    Map(page.linear, kPageSize, PROT_READ | PROT_WRITE);
    std::memcpy(reinterpret_cast<void*>(page.linear), shared->initial_memory + at, kPageSize);
    at += kPageSize;
    if (page.kind == PageKind::kReadOnly) {
      mprotect(reinterpret_cast<void*>(page.linear), kPageSize, PROT_READ);
    }
  }
  stack_t stack{};
  stack.ss_size = kChildStack;
  stack.ss_sp =
      mmap(nullptr, kChildStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaltstack(&stack, nullptr);
  InstallLocalDescriptors();  // sequences that need them are not made where it fails
  child = {};
  child.shared = shared;
  child.mask = XsaveLayout::Host().mask;
  child.xsave_size = XsaveLayout::Host().size;
  struct sigaction action {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGPROF, SIGUSR1}) {
    sigaction(signal, &action, nullptr);
  }
  itimerval tick{};
  tick.it_interval.tv_usec = tick.it_value.tv_usec = kTickMicroseconds;
  setitimer(ITIMER_PROF, &tick, nullptr);
  const pid_t self = getpid();
  ConfineChild();
  syscall(SYS_tgkill, self, self, SIGUSR1);  // does not come back
  _exit(1);
}

u64 Milliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1000 + static_cast<u64>(now.tv_nsec) / 1'000'000;
}

}  // namespace

NativeRunner::NativeRunner() {
  static const bool reserved = (ReserveAddresses(), true);
  (void)reserved;
  void* memory = mmap(nullptr, sizeof(NativeShared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ALIBI_CHECK(memory != MAP_FAILED, "memory shared with the oracle's child");
  shared_ = static_cast<NativeShared*>(memory);
  std::memcpy(shared_->initial_memory, InitialMemory().data(), kImageBytes);
  ALIBI_CHECK(XsaveLayout::Host().size <= sizeof(NativeJob::xsave), "the XSAVE area fits");
}

NativeRunner::~NativeRunner() {
  Stop();
  munmap(shared_, sizeof(NativeShared));
}

void NativeRunner::Start() {
  child_ = fork();
  ALIBI_CHECK(child_ >= 0, "fork");
  if (child_ == 0) RunChild(shared_);
}

void NativeRunner::Stop() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = -1;
}

void NativeRunner::Run(std::span<const TestCase> tests, std::span<Outcome> outcomes) {
  for (std::size_t begin = 0; begin < tests.size(); begin += kBatch) {
    const u32 count = static_cast<u32>(std::min<std::size_t>(kBatch, tests.size() - begin));
    for (u32 i = 0; i < count; ++i) {
      const TestCase& test = tests[begin + i];
      NativeJob& job = shared_->jobs[i];
      std::copy(test.initial.gpr.begin(), test.initial.gpr.end(), job.gpr);
      job.rip = OffsetOf(test.initial.selector[vcpu::kCs], test.initial.rip);
      job.code_at = test.initial.rip;
      std::copy(test.initial.selector.begin(), test.initial.selector.end(), job.selector);
      job.rflags = test.initial.rflags;
      job.fs_base = test.initial.fs_base;
      job.gs_base = test.initial.gs_base;
      const std::vector<u8> bytes = test.Bytes();
      ALIBI_CHECK(bytes.size() <= sizeof(job.code) &&
                      test.initial.rip - kCodeBase + bytes.size() < kCodeBytes,
                  "the sequence fits the code pages");
      job.code_size = static_cast<u32>(bytes.size());
      std::copy(bytes.begin(), bytes.end(), job.code);
      StoreVector(test.initial.vector, job.xsave);
    }
    for (u32 i = 0; i < count; ++i) shared_->results[i].end = static_cast<u8>(End::kLost);
    shared_->next = 0;
    shared_->count = count;
    if (child_ < 0) Start();
    const u32 number = shared_->batch_number + 1;
    __atomic_store_n(&shared_->batch_number, number, __ATOMIC_RELEASE);
    syscall(SYS_futex, &shared_->batch_number, FUTEX_WAKE, INT_MAX, nullptr);
    u64 since = Milliseconds();
    u32 seen = 0;
    for (;;) {
      const u32 done = __atomic_load_n(&shared_->batch_done, __ATOMIC_ACQUIRE);
      if (done == number) break;
      const timespec wait{0, 5'000'000};
      syscall(SYS_futex, &shared_->batch_done, FUTEX_WAIT, done, &wait);
      const u32 next = __atomic_load_n(&shared_->next, __ATOMIC_RELAXED);
      if (next != seen) {
        seen = next;
        since = Milliseconds();
      }
      const bool died = waitpid(child_, nullptr, WNOHANG) == child_;
      if (died || Milliseconds() - since > 2000) {
        if (died) child_ = -1;
        Stop();
        ++lost_;
        shared_->next = next + 1;  // its result stays kLost
        if (shared_->next >= count) {
          shared_->batch_done = number;
          break;
        }
        Start();  // it goes on with the batch
        since = Milliseconds();
      }
    }
    for (u32 i = 0; i < count; ++i) {
      const NativeResult& result = shared_->results[i];
      Outcome& outcome = outcomes[begin + i];
      outcome.end = static_cast<End>(result.end);
      if (outcome.end == End::kLost) continue;
      outcome.slow = result.slow;
      outcome.vector = static_cast<u8>(result.trap);
      outcome.error_code = static_cast<u32>(result.error);
      outcome.cr2 = result.cr2;
      std::copy(std::begin(result.gpr), std::end(result.gpr), outcome.state.gpr.begin());
      outcome.state.rip = LinearOf(result.selector[vcpu::kCs], result.rip);
      std::copy(std::begin(result.selector), std::end(result.selector),
                outcome.state.selector.begin());
      outcome.state.rflags = result.rflags;
      outcome.state.fs_base = result.fs_base;
      outcome.state.gs_base = result.gs_base;
      outcome.state.vector = LoadVector(result.xsave);
      std::memcpy(outcome.memory.data(), result.memory, kImageBytes);
      std::memcpy(outcome.code.data(), result.code, kCodeBytes);
    }
  }
}

}  // namespace alibi::oracle
