// SPDX-License-Identifier: Apache-2.0
// What an ordinary user process can measure of the nanobenchmarks: the host's own cost of the same
// operation, or of the nearest thing a process can do. Same JSON lines as nanobench.cc prints:
//     {"name":"syscall","samples":[cycles per operation,...],"iterations":N}   then {"done":true}
// Faults go through the host kernel's signals, so pgfault, pgfault_map, divzero and int3 here are
// signal round trips, not bare exceptions.
// Arguments, as on the kernel's command line: samples=N iters=N only=a,b,c quick.
// Exit status 0; 1 if an operation did not happen as often as it was asked for; 2 for an unknown
// argument.

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr uint64_t kCyclesPerSample = 8'000'000, kCyclesPerQuickSample = 1'500'000;
constexpr int kPrime = 4999;

char* guarded_page;
// Signal handlers reach nothing else: the events they count, and where the loop goes on.
volatile uint64_t signal_events;

extern "C" {
extern char native_fault_instruction[], native_fault_next[];
extern char native_divide_instruction[], native_divide_next[];
void native_count_event();
int native_isprime(int a);
}

// Loops shaped like loops.S: r12 counts events, rbx iterations.
asm(R"(
.text
.macro NATIVE_LOOP name
.balign 64
native_loop_\name:
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rdi, %rbx
    mov %rsi, %r13
    mov %rdx, %r14
    xor %r12d, %r12d
    lfence
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    mov %rax, %r15
    .balign 32
native_top_\name:
.endm
.macro NATIVE_END name
    dec %rbx
    jnz native_top_\name
    lfence
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    sub %r15, %rax
    mov %r12, %rdx
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    ret
.endm

NATIVE_LOOP empty
    inc %r12
NATIVE_END empty
NATIVE_LOOP syscall
    mov %r13d, %eax
    syscall
    inc %r12
NATIVE_END syscall
NATIVE_LOOP callret
    call native_count_event
NATIVE_END callret
.balign 16
native_count_event:
    inc %r12
    ret
NATIVE_LOOP icall
    inc %r14d
    and $3, %r14d
    call *(%r13, %r14, 8)
NATIVE_END icall
NATIVE_LOOP icall_empty
    inc %r14d
    and $3, %r14d
    inc %r12
NATIVE_END icall_empty
.macro NATIVE_TARGET number
.balign 16
native_target\number:
    inc %r12
    ret
.endm
NATIVE_TARGET 0
NATIVE_TARGET 1
NATIVE_TARGET 2
NATIVE_TARGET 3
NATIVE_LOOP rdtsc
    rdtsc
    inc %r12
NATIVE_END rdtsc
NATIVE_LOOP pushfpopf
    pushfq
    popfq
    inc %r12
NATIVE_END pushfpopf
NATIVE_LOOP pgfault
native_fault_instruction:
    mov (%r13), %rax
native_fault_next:
    inc %r12
NATIVE_END pgfault
NATIVE_LOOP divzero
    xor %ecx, %ecx
native_divide_instruction:
    div %rcx
native_divide_next:
    inc %r12
NATIVE_END divzero
NATIVE_LOOP int3
    int3
    inc %r12
NATIVE_END int3
NATIVE_LOOP isprime
    mov %r13d, %edi
    call native_isprime
    add %rax, %r12
NATIVE_END isprime
.balign 16
native_isprime:
    mov %edi, %ecx
    mov $2, %esi
    cmp %ecx, %esi
    jge 2f
1:  mov %ecx, %eax
    cdq
    idiv %esi
    test %edx, %edx
    jz 3f
    inc %esi
    cmp %ecx, %esi
    jl 1b
2:  mov $1, %eax
    ret
3:  xor %eax, %eax
    ret
.data
.balign 8
native_targets: .quad native_target0, native_target1, native_target2, native_target3
.text
)");

struct Timing {
  uint64_t cycles;
  uint64_t events;
};
using LoopFunction = Timing(uint64_t iterations, uint64_t a, uint64_t b);

extern "C" {
LoopFunction native_loop_empty, native_loop_syscall, native_loop_callret, native_loop_icall,
    native_loop_icall_empty, native_loop_rdtsc, native_loop_pushfpopf, native_loop_pgfault,
    native_loop_divzero, native_loop_int3, native_loop_isprime;
extern uint64_t native_targets[4];
}

void SkipInstruction(int signal, siginfo_t*, void* context) {
  greg_t& rip = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  signal_events = signal_events + 1;
  if (signal == SIGSEGV) {
    rip += native_fault_next - native_fault_instruction;
  } else if (signal == SIGFPE) {
    rip += native_divide_next - native_divide_instruction;
  }
}

void Handle(int signal) {
  struct sigaction action = {};
  action.sa_sigaction = SkipInstruction;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(signal, &action, nullptr);
}

Timing MapTouchUnmap(uint64_t iterations, uint64_t, uint64_t) {
  const uint64_t start = __rdtsc();
  uint64_t events = 0;
  for (uint64_t i = 0; i < iterations; i++) {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) break;
    *static_cast<volatile char*>(page) = 1;
    munmap(page, 4096);
    events++;
  }
  return {__rdtsc() - start, events};
}

struct Benchmark {
  const char* name;
  LoopFunction* loop;
  LoopFunction* empty;
  // 0, or the signal that must arrive once per iteration.
  int signal;
  uint64_t a, b;
};

struct Options {
  uint64_t samples = 15;
  uint64_t iterations = 0;
  uint64_t cycles = kCyclesPerSample;
  std::string only;
};

bool Selected(const Options& options, std::string_view name) {
  if (options.only.empty()) return true;
  const std::string list = "," + options.only + ",";
  return list.find("," + std::string(name) + ",") != std::string::npos;
}

// Iterations that take about the wanted number of cycles. Any run may be disturbed: the fastest of
// a few counts.
uint64_t Calibrate(const Benchmark& b, uint64_t wanted) {
  constexpr int kTries = 4;
  for (uint64_t n = 16;; n *= 2) {
    uint64_t elapsed = ~uint64_t{0};
    for (int i = 0; i < kTries && elapsed >= wanted / 8; i++) {
      elapsed = std::min(elapsed, b.loop(n, b.a, b.b).cycles + 1);
    }
    if (elapsed < wanted / 8) continue;
    const uint64_t ideal = n * wanted / elapsed;
    return ideal != 0 ? ideal : 1;
  }
}

bool Measure(const Benchmark& b, const Options& options) {
  if (b.signal != 0) Handle(b.signal);
  const uint64_t n = options.iterations != 0 ? options.iterations : Calibrate(b, options.cycles);
  uint64_t overhead = b.empty != nullptr ? ~uint64_t{0} : 0;
  for (int i = 0; b.empty != nullptr && i < 3; i++) {
    const uint64_t cycles = b.empty(n, b.a, b.b).cycles;
    if (cycles < overhead) overhead = cycles;
  }
  bool good = true;
  std::vector<double> samples;
  for (uint64_t i = 0; i < options.samples; i++) {
    signal_events = 0;
    const Timing t = b.loop(n, b.a, b.b);
    good &= t.events == n && (b.signal == 0 || signal_events == n);
    const uint64_t net = t.cycles > overhead ? t.cycles - overhead : 0;
    samples.push_back(static_cast<double>(net) / static_cast<double>(n));
  }
  if (b.signal != 0) signal(b.signal, SIG_DFL);
  std::printf("{\"name\":\"%s\",", b.name);
  if (!good) {
    std::printf("\"error\":\"not every iteration did the operation\"}\n");
    return false;
  }
  std::printf("\"samples\":[");
  for (size_t i = 0; i < samples.size(); i++) std::printf("%s%.3f", i == 0 ? "" : ",", samples[i]);
  std::printf("],\"iterations\":%" PRIu64 "}\n", n);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string_view word = argv[i];
    const auto number = [&](size_t at) { return std::strtoull(argv[i] + at, nullptr, 10); };
    if (word.starts_with("samples=")) {
      options.samples = number(8);
    } else if (word.starts_with("iters=")) {
      options.iterations = number(6);
    } else if (word.starts_with("only=")) {
      options.only = word.substr(5);
    } else if (word == "quick") {
      options.samples = 9;
      options.cycles = kCyclesPerQuickSample;
    } else {
      std::fprintf(stderr, "unknown argument '%s' (samples=N iters=N only=a,b quick)\n", argv[i]);
      return 2;
    }
  }
  guarded_page =
      static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (guarded_page == MAP_FAILED) {
    std::perror("native_nanobench: mmap");
    return 1;
  }
  const Benchmark benchmarks[] = {
      {"syscall", native_loop_syscall, native_loop_empty, 0, SYS_getppid, 0},
      {"callret", native_loop_callret, native_loop_empty, 0, 0, 0},
      {"icall", native_loop_icall, native_loop_icall_empty, 0,
       reinterpret_cast<uint64_t>(native_targets), 0},
      {"pgfault", native_loop_pgfault, native_loop_empty, SIGSEGV,
       reinterpret_cast<uint64_t>(guarded_page), 0},
      {"pgfault_map", MapTouchUnmap, nullptr, 0, 0, 0},
      {"divzero", native_loop_divzero, native_loop_empty, SIGFPE, 0, 0},
      {"rdtsc", native_loop_rdtsc, native_loop_empty, 0, 0, 0},
      {"pushfpopf", native_loop_pushfpopf, native_loop_empty, 0, 0, 0},
      {"int3", native_loop_int3, native_loop_empty, SIGTRAP, 0, 0},
      {"isprime", native_loop_isprime, native_loop_empty, 0, kPrime, 0},
  };
  bool good = true;
  for (const Benchmark& b : benchmarks) {
    if (Selected(options, b.name)) good &= Measure(b, options);
  }
  std::printf("{\"done\":true}\n");
  return good ? 0 : 1;
}
