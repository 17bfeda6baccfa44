// SPDX-License-Identifier: Apache-2.0
// Process 1 of a 32-bit Linux guest that measures its kernel: an ELF file of i386 without any
// library, so that kernels from 2.6.21 on run it. It prints FrobOS's lines, one JSON line for each
// benchmark with TSC cycles per operation, then {"done":true}, and restarts the machine. With
// "quick" among its arguments it measures a tenth.
//
// With "exit" as an argument it ends at once: what a process executes in `forkexec`. As any other
// process than number 1 it measures, too, but restarts nothing.

typedef unsigned u32;
typedef unsigned long long u64;

enum {
  kSysExit = 1,
  kSysFork = 2,
  kSysRead = 3,
  kSysWrite = 4,
  kSysWaitpid = 7,
  kSysExecve = 11,
  kSysGetpid = 20,
  kSysPipe = 42,
  kSysReboot = 88,
  kSysMmap = 90,
  kSysMunmap = 91,
  kSysModifyLdt = 123,
  kSysMremap = 163,
};
enum {
  kAuxEnd = 0,
  kAuxSysinfo = 32
};  // the auxiliary vector's: where the vsyscall page is entered
enum { kSamples = 5, kPages = 1024, kMovedPages = 64, kPageSize = 4096 };

static int Call5(int number, long a, long b, long c, long d, long e) {
  int result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                   : "memory");
  return result;
}
static int Call(int number, long a, long b, long c) { return Call5(number, a, b, c, 0, 0); }

static u32 vsyscall;  // 0: the kernel has none
static int own_number;
static char* own_path;
static int CallByVsyscall(int number) {
  int result;
  __asm__ volatile("call *%1" : "=a"(result) : "r"(vsyscall), "a"(number) : "memory");
  return result;
}

static u64 Now(void) {
  u32 low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (u64)high << 32 | low;
}

// The quotient must fit: a sample is less than 2^32 cycles per operation.
static u32 Quotient(u64 dividend, u32 divisor) {
  u32 quotient, remainder;
  __asm__("divl %4"
          : "=a"(quotient), "=d"(remainder)
          : "a"((u32)dividend), "d"((u32)(dividend >> 32)), "r"(divisor)
          : "cc");
  return quotient;
}

static char line[512];
static u32 length;
static void PutText(const char* text) {
  while (*text != 0 && length < sizeof(line)) line[length++] = *text++;
}
static void PutNumber(u32 value) {
  char digits[11];
  char* at = digits + sizeof(digits) - 1;
  *at = 0;
  do {
    *--at = (char)('0' + value % 10);
  } while ((value /= 10) != 0);
  PutText(at);
}
static void Flush(void) {
  Call(kSysWrite, 1, (long)line, (long)length);
  length = 0;
}

static int SameText(const char* a, const char* b) {
  while (*a != 0 && *a == *b) a++, b++;
  return *a == *b;
}

// Each does its operation n times, and returns 0 if all of them happened.

static int RunSyscall(u32 n) {
  int wrong = 0;
  for (u32 i = 0; i < n; i++) wrong |= Call(kSysGetpid, 0, 0, 0) != own_number;
  return wrong;
}
static int RunVsyscall(u32 n) {
  int wrong = 0;
  for (u32 i = 0; i < n; i++) wrong |= CallByVsyscall(kSysGetpid) != own_number;
  return wrong;
}

// Waits for a child that has to end with status 0.
static int Wait(int child) {
  int status = 1;
  return child <= 0 || Call(kSysWaitpid, child, (long)&status, 0) != child || status != 0;
}
static int RunForkWait(u32 n) {
  for (u32 i = 0; i < n; i++) {
    const int child = Call(kSysFork, 0, 0, 0);
    if (child == 0) Call(kSysExit, 0, 0, 0);
    if (Wait(child)) return 1;
  }
  return 0;
}
static int RunForkExec(u32 n) {
  char* const arguments[] = {own_path, "exit", 0};
  char* const environment[] = {0};
  for (u32 i = 0; i < n; i++) {
    const int child = Call(kSysFork, 0, 0, 0);
    if (child == 0) {
      Call(kSysExecve, (long)arguments[0], (long)arguments, (long)environment);
      Call(kSysExit, 1, 0, 0);
    }
    if (Wait(child)) return 1;
  }
  return 0;
}

// A byte goes to another process and back: two switches.
static int RunSwitch(u32 n) {
  int there[2], back[2];
  char byte = 0;
  if (Call(kSysPipe, (long)there, 0, 0) != 0 || Call(kSysPipe, (long)back, 0, 0) != 0) return 1;
  const int child = Call(kSysFork, 0, 0, 0);
  if (child == 0) {
    for (u32 i = 0; i < n / 2; i++) {
      if (Call(kSysRead, there[0], (long)&byte, 1) != 1 ||
          Call(kSysWrite, back[1], (long)&byte, 1) != 1) {
        Call(kSysExit, 1, 0, 0);
      }
    }
    Call(kSysExit, 0, 0, 0);
  }
  int wrong = 0;
  for (u32 i = 0; i < n / 2 && !wrong; i++) {
    wrong = Call(kSysWrite, there[1], (long)&byte, 1) != 1 ||
            Call(kSysRead, back[0], (long)&byte, 1) != 1;
  }
  return wrong || Wait(child);
}

// An area whose pages have been written to once each. 0: there is none.
static u32 MapPages(u32 pages) {
  const struct {
    u32 address, bytes, access, flags;
    int file;
    u32 offset;
  } area = {0, pages * kPageSize, 3, 0x22, -1, 0};  // for reads and writes, private, of no file
  const u32 at = (u32)Call(kSysMmap, (long)&area, 0, 0);
  if (at > 0xfffff000) return 0;
  for (u32 i = 0; i < pages; i++) *(volatile char*)(at + i * kPageSize) = 1;
  return at;
}

// An area of kPages is mapped, written to, and given up; an operation is a page.
static int RunPageFault(u32 n) {
  for (u32 done = 0; done < n; done += kPages) {
    const u32 at = MapPages(kPages);
    if (at == 0 || Call(kSysMunmap, (long)at, kPages * kPageSize, 0) != 0) return 1;
  }
  return 0;
}

// An area of kMovedPages goes to and fro between two places.
static int RunMremap(u32 n) {
  enum { kMayMoveTo = 3, kBytes = kMovedPages * kPageSize };
  u32 at = MapPages(kMovedPages), other = MapPages(kMovedPages);
  if (at == 0 || other == 0) return 1;
  for (u32 i = 0; i < n; i++) {
    if ((u32)Call5(kSysMremap, (long)at, kBytes, kBytes, kMayMoveTo, (long)other) != other)
      return 1;
    const u32 left = at;
    at = other, other = left;
    if (*(volatile char*)(at + i % kMovedPages * kPageSize) != 1) return 1;
  }
  return Call(kSysMunmap, (long)at, kBytes, 0) != 0;
}

// A segment of the LDT is made, loaded and read through.
static int RunLdt(u32 n) {
  enum { kWrite = 1, kBig = 1, kUseable = 1 << 6 };
  static u32 word;
  u32 segment[4] = {0, (u32)&word, sizeof(word) - 1, kBig | kUseable};  // number, base, limit
  int wrong = 0;
  for (u32 i = 0; i < n && !wrong; i++) {
    segment[0] = i % 32;
    word = i;
    wrong = Call(kSysModifyLdt, kWrite, (long)segment, sizeof(segment)) != 0;
    u32 read = ~i;
    __asm__ volatile("movl %1, %%gs; movl %%gs:0, %0; movl %2, %%gs"
                     : "=&r"(read)
                     : "r"(segment[0] << 3 | 7), "r"(0)
                     : "memory");
    wrong |= read != i;
  }
  return wrong;
}

struct Benchmark {
  const char* name;
  int (*run)(u32 n);
  u32 operations;  // of a sample, and of a quick one
  u32 quick_operations;
};
static const struct Benchmark kBenchmarks[] = {
    {"syscall", RunSyscall, 100000, 10000},
    {"vsyscall", RunVsyscall, 100000, 10000},
    {"pgfault", RunPageFault, 8 * kPages, kPages},
    {"ctxswitch", RunSwitch, 10000, 1000},
    {"forkwait", RunForkWait, 1000, 100},
    {"forkexec", RunForkExec, 500, 50},
    {"mremap", RunMremap, 2000, 200},
    {"ldt", RunLdt, 10000, 1000},
};

static void Begin(const char* name) {
  PutText("{\"name\":\"");
  PutText(name);
  PutText("\",\"samples\":[");
}
static void End(u32 operations) {
  PutText("],\"iterations\":");
  PutNumber(operations);
  PutText("}\n");
  Flush();
}

static void Measure(const struct Benchmark* benchmark, int quick) {
  const u32 n = quick ? benchmark->quick_operations : benchmark->operations;
  // What is new at the first time, such as translations, is not the operation's.
  int wrong = benchmark->run(benchmark->quick_operations);
  Begin(benchmark->name);
  for (u32 i = 0; i < kSamples && !wrong; i++) {
    const u64 before = Now();
    wrong = benchmark->run(n);
    const u64 cycles = Now() - before;
    if (i != 0) PutText(",");
    PutNumber(Quotient(cycles, n));
  }
  if (!wrong) {
    End(n);
    return;
  }
  length = 0;
  PutText("{\"name\":\"");
  PutText(benchmark->name);
  PutText("\",\"error\":\"an operation failed\"}\n");
  Flush();
}

// The stack as the kernel hands it over: argc, argv, 0, the environment, 0, the auxiliary vector.
__attribute__((used)) void Start(const u32* stack) {
  const u64 begin = Now();
  char* const* arguments = (char* const*)(stack + 1);
  own_path = arguments[0];
  own_number = Call(kSysGetpid, 0, 0, 0);
  int quick = 0;
  for (u32 i = 1; i < stack[0]; i++) {
    if (SameText(arguments[i], "exit")) Call(kSysExit, 0, 0, 0);
    quick |= SameText(arguments[i], "quick");
  }
  const u32* at = stack + 1 + stack[0] + 1;
  while (*at != 0) at++;
  for (at++; *at != kAuxEnd; at += 2) {
    if (*at == kAuxSysinfo) vsyscall = at[1];
  }
  if (own_number == 1) {
    // Since the machine began, in millions.
    Begin("boot");
    PutNumber(Quotient(begin, 1000000));
    PutText("e6");
    End(1);
  }
  for (u32 i = 0; i < sizeof(kBenchmarks) / sizeof(kBenchmarks[0]); i++) {
    if (kBenchmarks[i].run != RunVsyscall || vsyscall != 0) Measure(&kBenchmarks[i], quick);
  }
  PutText("{\"done\":true}\n");
  Flush();
  if (own_number != 1) Call(kSysExit, 0, 0, 0);
  Call(kSysReboot, (long)0xfee1dead, 0x28121969, 0x01234567);
  for (;;) {
  }
}

__asm__(
    ".globl _start\n"
    "_start:\n"
    "movl %esp, %eax\n"
    "andl $-16, %esp\n"
    "subl $12, %esp\n"
    "pushl %eax\n"
    "call Start\n");
