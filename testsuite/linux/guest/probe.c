// SPDX-License-Identifier: Apache-2.0
// What a program can find out about the CPU under it, as text that is the same in every run: all
// kinds of unprivileged instructions, and the exceptions that instructions end with.
//
// Each snippet lies in a page of its own, so that one which an engine does not run as it runs the
// others does not keep these from it. Not told: times, random numbers, and x87 pointers in
// registers (docs/design.md, "Known limits").
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint8_t u8;

enum { kPage = 4096, kMostCode = 16 };
static u8* const code_area = (u8*)0x10000000;
static u8* const data_page = (u8*)0x20000000;  // and the next, which only reads
static u8* const snippet_stack = (u8*)0x30000000;
#define kAbsent "0x20002000"

// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15; flags; where to.
u64 start_gpr[16], start_flags, start_rip;
static const int kGregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
static const char* const kNames[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                       "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

void Start(void);
asm(".text\n.globl Start\nStart:\n"
    "  mov start_gpr+32(%rip), %rsp\n"
    "  pushq start_flags(%rip)\n  popfq\n"
    "  mov start_gpr+0(%rip), %rax\n  mov start_gpr+8(%rip), %rcx\n"
    "  mov start_gpr+16(%rip), %rdx\n  mov start_gpr+24(%rip), %rbx\n"
    "  mov start_gpr+40(%rip), %rbp\n  mov start_gpr+48(%rip), %rsi\n"
    "  mov start_gpr+56(%rip), %rdi\n  mov start_gpr+64(%rip), %r8\n"
    "  mov start_gpr+72(%rip), %r9\n  mov start_gpr+80(%rip), %r10\n"
    "  mov start_gpr+88(%rip), %r11\n  mov start_gpr+96(%rip), %r12\n"
    "  mov start_gpr+104(%rip), %r13\n  mov start_gpr+112(%rip), %r14\n"
    "  mov start_gpr+120(%rip), %r15\n"
    "  jmp *start_rip(%rip)\n");

static FILE* told;  // nowhere, or standard output
static sigjmp_buf out;
static u8* current;     // the snippet's page
static int steps_left;  // #DBs to be told and returned from
static int resume;      // the handler mends what it can and returns

static u64 Hash(u64 hash, const u8* bytes, u64 count) {
  for (u64 i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

static u64 HashOfExtendedState(const u8* area) {
  u64 hash = Hash(0xcbf29ce484222325, area, 6);  // FCW, FSW, FTW
  hash = Hash(hash, area + 24, 416 - 24);
  uint32_t size;
  memcpy(&size, area + 464 + 4, sizeof(size));
  if (size > 576 && size < 16384) hash = Hash(hash, area + 512, size - 512 - 4);
  return hash;
}

static void OnSignal(int signal, siginfo_t* info, void* context) {
  // AC, NT and ID are as the snippet has left them.
  asm volatile("pushq $0x202\n popfq" : : : "cc", "memory");
  ucontext_t* const uc = context;
  greg_t* const gregs = uc->uc_mcontext.gregs;
  const u64 flags = (u64)gregs[REG_EFL];
  if (steps_left > 0 && gregs[REG_TRAPNO] == 1) {
    fprintf(told, " step %+lld flags %llx rax %llx;", (long long)(gregs[REG_RIP] - (greg_t)current),
            (long long)flags, gregs[REG_RAX]);
    if (--steps_left == 0) gregs[REG_EFL] &= ~0x100;
    return;
  }
  if (resume) {
    fprintf(told, " mended signal %d trap %lld error %llx cr2 %llx;", signal, gregs[REG_TRAPNO],
            gregs[REG_ERR], gregs[REG_CR2]);
    resume = 0;
    mprotect(data_page + kPage, kPage, PROT_READ | PROT_WRITE);
    gregs[REG_R15] = 0x5151515151515151;
    uc->uc_mcontext.fpregs->_xmm[7].element[1] = 0x77665544;
    return;
  }
  fprintf(told, " signal %d code %d trap %lld error %llx", signal, info->si_code, gregs[REG_TRAPNO],
          gregs[REG_TRAPNO] == 14 || gregs[REG_TRAPNO] == 13 ? gregs[REG_ERR] : 0);
  if (gregs[REG_TRAPNO] == 14) fprintf(told, " cr2 %llx", gregs[REG_CR2]);
  if (signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL) {
    fprintf(told, " address %llx", (long long)info->si_addr);
  }
  const long long at = gregs[REG_RIP] - (greg_t)current;
  if (at > -kPage && at < 2 * kPage) {
    fprintf(told, " at %+lld", at);
  } else {
    fprintf(told, " at %llx", gregs[REG_RIP]);
  }
  fprintf(told, " flags %llx cs %llx", (long long)flags, gregs[REG_CSGSFS]);
  for (unsigned i = 0; i < 16; ++i) {
    const u64 value = (u64)gregs[kGregs[i]];
    if (value != start_gpr[i]) fprintf(told, " %s %llx", kNames[i], (long long)value);
  }
  fprintf(told, " x %llx", (long long)HashOfExtendedState((u8*)uc->uc_mcontext.fpregs));
  siglongjmp(out, 1);
}

static void ResetRegisters(void) {
  for (unsigned i = 0; i < 16; ++i) start_gpr[i] = 0x0101010101010101 * (i + 1);
  start_gpr[4] = (u64)snippet_stack + 8 * kPage - 256;
  start_gpr[6] = (u64)data_page + 0x100;
  start_gpr[7] = (u64)data_page + 0x200;
  start_flags = 0x202;
}

static void Run(const char* name, u8* page) {
  fprintf(told, "%s:", name);
  current = page;
  start_rip = (u64)page;
  if (sigsetjmp(out, 1) == 0) {
    // Known contents of what snippets start with.
    asm volatile("fninit\n ldmxcsr %0\n pxor %%xmm0, %%xmm0\n" : : "m"(*(uint32_t[]){0x1f80}));
    Start();
  }
  steps_left = resume = 0;
  fprintf(told, "\n");
}

// What is told is the third run: a translator may show the first faults of an instruction with
// arithmetic flags that nobody can compute with (docs/design.md, "Known limits").
static void RunThrice(const char* name, u8* page) {
  static FILE* nowhere;
  if (nowhere == NULL) nowhere = fopen("/dev/null", "w");
  for (unsigned run = 0; run < 3; ++run) {
    told = run == 2 ? stdout : nowhere;
    ResetRegisters();
    memset(data_page, 0x40, kPage);
    Run(name, page);
  }
}

// --- The snippets ---
#define SNIPPETS "testsuite/linux/guest/snippets.inc"
#include "testsuite/linux/guest/snippets.h"

static u8* next_page;
static u8* NewPage(const u8* bytes, u64 count) {
  u8* const page = next_page;
  next_page += 2 * kPage;
  void* const got = mmap(page, kPage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != page) exit(3);
  memset(page, 0xcc, kPage);
  memcpy(page, bytes, count);
  mprotect(page, kPage, PROT_READ | PROT_EXEC);
  return page;
}
static u8* PageOf(const char* name) {
  for (unsigned i = 0; i < kSnippets; ++i) {
    if (strcmp(snippets[i].name, name) == 0) {
      return NewPage(snippets[i].begin, (u64)(snippets[i].end - snippets[i].begin));
    }
  }
  exit(4);
}

static void RunWith(const char* name, u8* page, u64 rax, u64 rcx) {
  char line[80];
  ResetRegisters();
  start_gpr[0] = rax;
  start_gpr[1] = rcx;
  snprintf(line, sizeof(line), "%s %llx %llx", name, (long long)rax, (long long)rcx);
  Run(line, page);
}

static void RunLeaves(void) {
  u8* const page = PageOf("cpuid");
  for (u64 block = 0; block < 4; ++block) {
    static const u64 kBlocks[] = {0, 0x40000000, 0x80000000, 0xc0000000};
    for (u64 leaf = 0; leaf < 0x24; ++leaf) {
      for (u64 sub = 0; sub < 4; ++sub) RunWith("cpuid", page, kBlocks[block] + leaf, sub);
    }
  }
  for (u64 sub = 4; sub < 20; ++sub) RunWith("cpuid", page, 0xd, sub);
}

static void RunSelectors(void) {
  static const char* const kLoads[] = {"load_ds", "load_es", "load_fs", "load_gs", "load_ss"};
  for (unsigned load = 0; load < 5; ++load) {
    u8* const page = PageOf(kLoads[load]);
    for (u64 selector = 0; selector < 0x90; ++selector) {
      // Null ones with an RPL lose it when an interrupt returns (SDM vol. 2, IRET): whether one
      // does in front of the next instruction is chance.
      if (selector == 0 || selector > 3) RunWith(kLoads[load], page, selector, 0);
    }
    RunWith(kLoads[load], page, 0xfff8, 0);
  }
  for (unsigned selector = 0; selector < 0x10000; ++selector) {
    u64 rights = 0, limit = 0;
    u8 has_rights, has_limit, read, write;
    asm volatile("lar %2, %0\n setz %1"
                 : "+r"(rights), "=q"(has_rights)
                 : "r"((u64)selector)
                 : "cc");
    asm volatile("lsl %2, %0\n setz %1" : "+r"(limit), "=q"(has_limit) : "r"((u64)selector) : "cc");
    asm volatile("verr %w1\n setz %0" : "=q"(read) : "r"(selector) : "cc");
    asm volatile("verw %w1\n setz %0" : "=q"(write) : "r"(selector) : "cc");
    if (has_rights | has_limit | read | write) {
      fprintf(told, "selector %x: lar %d %llx lsl %d %llx verr %d verw %d\n", selector, has_rights,
              (long long)rights, has_limit, (long long)limit, read, write);
    }
  }
}

static void RunInterrupts(void) {
  for (unsigned vector = 0; vector < 256; ++vector) {
    const u8 code[] = {0xcd, (u8)vector};
    RunWith("int", NewPage(code, sizeof(code)), 0xfff0, vector);
  }
}

static void RunSystemCalls(void) {
  u8* const page = PageOf("syscall");
  // None that exists. Not 336, which Linux 6.17 and later answers before any filter sees it
  // (uprobe; docs/design.md, "Known limits").
  static const u64 kNumbers[] = {335,        500,        600,        1000,    0x40000000,
                                 0x400001ff, 0x80000000, 0xffffffff, ~(u64)0, (u64)1 << 32 | 500,
                                 0xa11b1};
  for (unsigned i = 0; i < sizeof(kNumbers) / 8; ++i) RunWith("syscall", page, kNumbers[i], 0);
}

static void RunFlags(void) {
  u8* const page = PageOf("popf_pushf");
  for (unsigned bit = 0; bit < 32; ++bit) {
    RunWith("popf_pushf", page, 0x202 | (u64)1 << bit, bit);
  }
  u8* const two = PageOf("popfw_pushfw");
  for (unsigned bit = 0; bit < 16; ++bit) RunWith("popfw_pushfw", two, 0x202 | (u64)1 << bit, bit);
}

static void RunSteps(void) {
  static const char* const kSteps[] = {"steps_plain", "steps_rep", "steps_syscall", "steps_branch",
                                       "steps_popf",  "steps_ss",  "steps_cpuid",   "steps_fault"};
  for (unsigned i = 0; i < sizeof(kSteps) / sizeof(kSteps[0]); ++i) {
    ResetRegisters();
    steps_left = 12;
    Run(kSteps[i], PageOf(kSteps[i]));
  }
}

static void RunAllOpcodes(void) {
  // One-byte opcodes and those behind 0F, with a modrm byte that names a register or [rsi].
  static const u8 kModrm[] = {0xc0, 0x06, 0x3e, 0xf8};
  // SYSCALL, RDTSC, what loads FS, RDRAND.
  static const u8 kNotHere[] = {0x05, 0x31, 0xa1, 0xb4, 0xc7};
  for (unsigned map = 0; map < 2; ++map) {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      if (map == 0 && opcode == 0x0f) continue;
      if (map == 1 && memchr(kNotHere, (int)opcode, sizeof(kNotHere)) != NULL) continue;
      for (unsigned m = 0; m < sizeof(kModrm); ++m) {
        u8 code[kMostCode] = {0x0f, (u8)opcode, kModrm[m]};
        u8* const begin = map == 0 ? code + 1 : code;
        char name[32];
        snprintf(name, sizeof(name), "opcode %s%02x %02x", map ? "0f " : "", opcode, kModrm[m]);
        RunThrice(name, NewPage(begin, 10));
      }
    }
  }
}

static void RunPages(void) {
  u8* const page = NewPage((const u8*)"\xb8\x01\x00\x00\x00", 5);
  ResetRegisters();
  Run("code, first", page);
  for (unsigned i = 0; i < 6; ++i) {
    mprotect(page, kPage, PROT_READ | PROT_WRITE);
    page[1] = (u8)(2 + i);
    ResetRegisters();
    Run("code without the right to execute", page);
    mprotect(page, kPage, PROT_READ | PROT_EXEC);
    ResetRegisters();
    Run("code, changed", page);
  }
  mprotect(page, kPage, PROT_NONE);
  ResetRegisters();
  Run("code without any right", page);
  mprotect(page, kPage, PROT_READ | PROT_WRITE | PROT_EXEC);
  ResetRegisters();
  Run("code with all rights", page);
  for (unsigned i = 0; i < 6; ++i) {
    page[1] = (u8)(0x20 + i);
    ResetRegisters();
    Run("code, changed under its rights", page);
  }
  void* const moved = mremap(page, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, page + kPage);
  ResetRegisters();
  Run("code, moved away", page);
  ResetRegisters();
  Run("code, moved", moved);
  munmap(moved, kPage);
  ResetRegisters();
  Run("code, unmapped", moved);
  // A copy on write, of code and of data.
  u8* const shared = NewPage((const u8*)"\xb8\x42\x00\x00\x00", 5);
  data_page[0] = 1;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    mprotect(shared, kPage, PROT_READ | PROT_WRITE | PROT_EXEC);
    ResetRegisters();
    Run("child, as its parent's", shared);
    shared[1] = 0x43;
    data_page[0] = 2;
    ResetRegisters();
    Run("child, changed", shared);
    fprintf(told, "child's data %d\n", data_page[0]);
    fflush(stdout);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ResetRegisters();
  Run("parent", shared);
  fprintf(told, "parent's data %d, child's status %x\n", data_page[0], status);
  // Self-modifying code.
  u8* const self = PageOf("modifies_itself");
  mprotect(self, kPage, PROT_READ | PROT_WRITE | PROT_EXEC);
  for (unsigned i = 0; i < 4; ++i) {
    ResetRegisters();
    Run("modifies_itself", self);
  }
  mprotect(data_page + kPage, kPage, PROT_READ);
  ResetRegisters();
  resume = 1;
  Run("mended_store", PageOf("mended_store"));
  mprotect(data_page + kPage, kPage, PROT_READ);
  ResetRegisters();
  resume = 1;
  Run("mended_store_rep", PageOf("mended_store_rep"));
  mprotect(data_page + kPage, kPage, PROT_READ);
}

static void RunJumps(void) {
  static const u64 kTargets[] = {0xffffffffff600000, 0xffffffffff600001,
                                 0xffffffffff600800, 0xffffffffff601000,
                                 0xffffffff81000000, 0xffff888000000000,
                                 0x0000800000000000, 0x00007ffffffff000,
                                 0x20000000,         0,
                                 0x1234567812345678};
  for (unsigned i = 0; i < sizeof(kTargets) / 8; ++i) {
    ResetRegisters();
    start_gpr[7] = start_gpr[6] = 0;  // gettimeofday, where it exists, has nowhere to put anything
    start_gpr[0] = kTargets[i];
    Run("call", PageOf("call_rax"));
    RunWith("read", PageOf("read_rax"), kTargets[i], 0);
    RunWith("write", PageOf("write_rax"), kTargets[i], 0);
    RunWith("push", PageOf("push_at_rax"), kTargets[i], 0);
    RunWith("xmm", PageOf("read_rax_xmm"), kTargets[i], 0);
  }
}

static const struct Snippet* snippet;
static void RunSnippet(void) { RunThrice(snippet->name, PageOf(snippet->name)); }

// In a process of its own: what an engine makes of one must not decide how the others run.
static void RunApart(void (*group)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    group();
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) printf("ended with %x\n", status);
}

int main(int argc, char** argv) {
  (void)argc;
  if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
    personality(ADDR_NO_RANDOMIZE);
    execv("/proc/self/exe", argv);
    return 2;
  }
  told = stdout;
  static u8 handler_stack[256 * 1024];
  const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof(handler_stack)};
  sigaltstack(&stack, NULL);
  struct sigaction action = {0};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  static const int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  for (unsigned i = 0; i < sizeof(kSignals) / sizeof(kSignals[0]); ++i) {
    sigaction(kSignals[i], &action, NULL);
  }
  next_page = code_area;
  const int kFixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  if (mmap(data_page, 2 * kPage, PROT_READ | PROT_WRITE, kFixed, -1, 0) != data_page ||
      mmap(snippet_stack, 8 * kPage, PROT_READ | PROT_WRITE, kFixed, -1, 0) != snippet_stack) {
    return 3;
  }
  mprotect(data_page + kPage, kPage, PROT_READ);
  for (unsigned i = 0; i < kSnippets; ++i) {
    snippet = &snippets[i];
    if (strncmp(snippet->name, "steps_", 6) == 0) continue;
    if (strncmp(snippet->name, "mended_", 7) != 0) RunApart(RunSnippet);
  }
  static void (*const kGroups[])(void) = {RunAllOpcodes, RunLeaves,      RunSelectors,
                                          RunInterrupts, RunSystemCalls, RunFlags,
                                          RunSteps,      RunPages,       RunJumps};
  for (unsigned i = 0; i < sizeof(kGroups) / sizeof(kGroups[0]); ++i) RunApart(kGroups[i]);
  fprintf(told, "end\n");
  return 0;
}
