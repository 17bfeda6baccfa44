// SPDX-License-Identifier: Apache-2.0
// As probe.c, a program of 32 bits: for kernels of 32 bits, and for those of 64 bits, where it can
// change to 64-bit code. Without a C library, which hosts of 64 bits lack.
//
// Told is the third run of each piece, for the reason that probe.c gives.
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

enum { kPage = 4096 };
enum {
  kExit = 1,
  kWrite = 4,
  kExecve = 11,
  kPersonality = 136,
  kMprotect = 125,
  kMunmap = 91,
  kSigaction = 174,
  kSigaltstack = 186,
  kMmap2 = 192,
  kSetThreadArea = 243
};
enum { kRead = 1, kWritable = 2, kExecute = 4 };

#define kCodeArea ((u8*)0x10000000)
#define kData ((u8*)0x20000000)  // and a page behind it that only reads
#define kStack ((u8*)0x30000000)

static u32 Call(u32 number, u32 a, u32 b, u32 c, u32 d, u32 e) {
  u32 result;
  asm volatile("int $0x80"
               : "=a"(result)
               : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
               : "memory");
  return result;
}

// --- Output ---
static char text[8192];
static u32 used;
static int told;
static void Flush(void) {
  Call(kWrite, 1, (u32)text, used, 0, 0);
  used = 0;
}
static void Put(const char* words) {
  while (told && *words != 0) text[used++] = *words++;
  if (used > sizeof(text) - 512) Flush();
}
static void PutHex(u32 value) {
  char digits[10] = {' '};
  unsigned at = 1;
  for (int shift = 28; shift >= 0; shift -= 4) {
    const u32 digit = value >> shift & 15;
    if (digit != 0 || at > 1 || shift == 0) digits[at++] = "0123456789abcdef"[digit];
  }
  digits[at] = 0;
  Put(digits);
}

// --- Signals: arch/x86/include/uapi/asm/sigcontext.h ---
struct Context {
  u32 flags, link, stack[3];
  u32 gs, fs, es, ds;
  u32 edi, esi, ebp, esp, ebx, edx, ecx, eax;
  u32 trap, error, eip, cs, eflags, esp_at_signal, ss;
  const u8* fpstate;
  u32 oldmask, cr2;
};
static const u32 kRegisters = 8;
static const char* const kNames[] = {" edi", " esi", " ebp", " esp",
                                     " ebx", " edx", " ecx", " eax"};
u32 start[8];  // in this order
u32 start_flags, start_eip, saved_esp, own_gs;
static u8* current;
static int steps_left, resume;

void Start(void);
void Back(void);
asm(".text\n.globl Start, Back\nStart:\n"
    "  pusha\n  mov %esp, saved_esp\n  mov %gs, own_gs\n"
    "  mov start+12, %esp\n  pushl start_flags\n  popf\n"
    "  mov start+0, %edi\n  mov start+4, %esi\n  mov start+8, %ebp\n  mov start+16, %ebx\n"
    "  mov start+20, %edx\n  mov start+24, %ecx\n  mov start+28, %eax\n"
    "  jmp *start_eip\n"
    "Back:\n  mov saved_esp, %esp\n  popa\n  cld\n  ret\n");

static u32 Hash(u32 hash, const u8* bytes, u32 count) {
  for (u32 i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x01000193;
  return hash;
}
// Without the pointers of the x87 unit. Its FXSAVE image stands behind that of FNSAVE.
static u32 HashOfExtendedState(const u8* area) {
  const u8* const image = area + 112;
  u32 hash = Hash(0x811c9dc5, image, 5);
  hash = Hash(hash, image + 24, 4);
  for (unsigned i = 0; i < 8; ++i) hash = Hash(hash, image + 32 + 16 * i, 10);
  hash = Hash(hash, image + 160, 128);
  const u32 size = *(const u32*)(image + 464 + 16);
  if (size > 576 && size < 16384) hash = Hash(hash, image + 512, size - 512);
  return hash;
}

static void OnSignal(int signal, const int* info, struct Context* c) {
  const u32* const registers = &c->edi;
  if (steps_left > 0 && c->trap == 1) {
    Put(" step");
    PutHex(c->eip - (u32)current);
    PutHex(c->eflags);
    PutHex(c->eax);
    if (--steps_left == 0) c->eflags &= ~0x100u;
    return;
  }
  if (resume) {
    Put(" mended");
    PutHex(c->cr2);
    PutHex(c->error);
    resume = 0;
    Call(kMprotect, (u32)kData + kPage, kPage, kRead | kWritable, 0, 0);
    return;
  }
  Put(" signal");
  PutHex((u32)signal);
  PutHex((u32)info[2]);
  Put(" trap");
  PutHex(c->trap);
  if (c->trap == 14 || c->trap == 13) {
    Put(" error");
    PutHex(c->error);
  }
  if (c->trap == 14) {
    Put(" cr2");
    PutHex(c->cr2);
  }
  Put(" at");
  PutHex(c->eip - (u32)current);
  Put(" flags");
  PutHex(c->eflags);
  Put(" selectors");
  const u32 selectors[] = {c->cs, c->ss, c->ds, c->es, c->fs, c->gs};
  for (unsigned i = 0; i < 6; ++i) PutHex(selectors[i] & 0xffff);
  for (unsigned i = 0; i < kRegisters; ++i) {
    if (registers[i] == start[i]) continue;
    Put(kNames[i]);
    PutHex(registers[i]);
  }
  Put(" x");
  PutHex(HashOfExtendedState(c->fpstate));
  u16 cs, ss;
  asm("mov %%cs, %0\n\tmov %%ss, %1" : "=r"(cs), "=r"(ss));
  c->eip = (u32)Back;
  c->cs = cs;
  c->ss = c->ds = c->es = ss;
  c->fs = 0;
  c->gs = own_gs;
  c->eflags = 0x202;
}
// The kernel calls it with its arguments on the stack.
static void Handler(int signal, const int* info, struct Context* context) {
  asm volatile("pushl $0x202\n\tpopf" : : : "cc", "memory");
  OnSignal(signal, info, context);
}

static void ResetRegisters(void) {
  for (unsigned i = 0; i < kRegisters; ++i) start[i] = 0x11111111 * (i + 1);
  start[0] = (u32)kData + 0x200;
  start[1] = (u32)kData + 0x100;
  start[3] = (u32)kStack + 8 * kPage - 256;
  start_flags = 0x202;
}

static void Run(const char* name, u8* page) {
  Put(name);
  Put(":");
  current = page;
  start_eip = (u32)page;
  static const u32 mxcsr = 0x1f80;
  asm volatile("fninit\n\tldmxcsr %0\n\tpxor %%xmm0, %%xmm0" : : "m"(mxcsr));
  Start();
  steps_left = resume = 0;
  Put("\n");
}
static void RunThrice(const char* name, u8* page) {
  for (unsigned run = 0; run < 3; ++run) {
    told = run == 2;
    ResetRegisters();
    for (unsigned i = 0; i < kPage; ++i) kData[i] = 0x40;
    Run(name, page);
  }
}
static void RunWith(const char* name, u8* page, u32 eax, u32 ecx) {
  ResetRegisters();
  start[7] = eax;
  start[6] = ecx;
  Put(name);
  PutHex(eax);
  PutHex(ecx);
  Run(" ", page);
}

// --- Pieces of code ---
#define SNIPPETS "testsuite/linux/guest/snippets32.inc"
#include "testsuite/linux/guest/snippets.h"

static u8* next_page = kCodeArea;
static u8* Map(u8* at, u32 bytes, u32 rights) {
  return (u8*)Call(kMmap2, (u32)at, bytes, rights, 0x32 /* private, fixed, anonymous */, ~0u);
}
static u8* NewPage(const u8* bytes, u32 count) {
  u8* const page = next_page;
  next_page += 2 * kPage;
  if (Map(page, kPage, kRead | kWritable) != page) Call(kExit, 3, 0, 0, 0, 0);
  for (unsigned i = 0; i < kPage; ++i) page[i] = i < count ? bytes[i] : 0xcc;
  Call(kMprotect, (u32)page, kPage, kRead | kExecute, 0, 0);
  return page;
}
static int Same(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}
static u8* PageOf(const char* name) {
  for (unsigned i = 0; i < kSnippets; ++i) {
    if (Same(snippets[i].name, name)) {
      return NewPage(snippets[i].begin, (u32)(snippets[i].end - snippets[i].begin));
    }
  }
  Call(kExit, 4, 0, 0, 0, 0);
  return 0;
}

static void RunAllOpcodes(void) {
  static const u8 kModrm[] = {0xc0, 0x06, 0x3e, 0xf8};
  for (unsigned map = 0; map < 2; ++map) {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      if (map == 0 && opcode == 0x0f) continue;
      // RDTSC, RDRAND.
      if (map == 1 && (opcode == 0x31 || opcode == 0xc7)) continue;
      for (unsigned m = 0; m < sizeof(kModrm); ++m) {
        u8 code[10] = {0x0f, (u8)opcode, kModrm[m]};
        told = 1;
        PutHex(opcode);
        PutHex(kModrm[m]);
        RunThrice(map == 0 ? "opcode" : "opcode 0f", NewPage(map == 0 ? code + 1 : code, 9));
      }
    }
  }
}

static void RunSelectors(void) {
  static const char* const kLoads[] = {"load_ds", "load_es", "load_fs", "load_gs", "load_ss"};
  for (unsigned load = 0; load < 5; ++load) {
    u8* const page = PageOf(kLoads[load]);
    for (u32 selector = 0; selector < 0x90; ++selector) {
      // Null ones with an RPL lose it when an interrupt returns (SDM vol. 2, IRET): whether one
      // does in front of the next instruction is chance.
      if (selector == 0 || selector > 3) RunWith(kLoads[load], page, selector, 0);
    }
  }
  u8* const page = PageOf("rights");
  for (u32 selector = 0; selector < 0x100; ++selector) RunWith("rights", page, selector, 0);
}

static void RunInterrupts(void) {
  for (unsigned vector = 0; vector < 256; ++vector) {
    const u8 code[] = {0xcd, (u8)vector};
    RunWith("int", NewPage(code, sizeof(code)), 0xfff0, vector);
  }
  static const u32 kNumbers[] = {600, 1000, 0x40000001, ~0u, 0xa11b1, 20000};
  u8* const page = PageOf("int80");
  for (unsigned i = 0; i < sizeof(kNumbers) / 4; ++i) RunWith("int80", page, kNumbers[i], 0);
}

static void RunFlags(void) {
  u8* const page = PageOf("popf_pushf");
  for (unsigned bit = 0; bit < 32; ++bit) RunWith("popf_pushf", page, 0x202 | 1u << bit, bit);
}

static void RunSteps(void) {
  static const char* const kSteps[] = {"steps_plain", "steps_rep", "steps_int80", "steps_gs"};
  for (unsigned i = 0; i < sizeof(kSteps) / sizeof(kSteps[0]); ++i) {
    ResetRegisters();
    steps_left = 10;
    Run(kSteps[i], PageOf(kSteps[i]));
  }
}

// Segments of threads, one after the other: each has its base.
static void RunThreads(void) {
  u32 entry = ~0u;
  u8* const page = PageOf("thread_load");
  for (u32 i = 0; i < 12; ++i) {
    // Base and limit in pages, of 32 bits.
    u32 area[4] = {entry, (u32)kData + 0x40 * i, 0xfffff, 0x51};
    if (i == 9) area[2] = 1;  // not all of 4 GB
    PutHex(Call(kSetThreadArea, (u32)area, 0, 0, 0, 0));
    entry = area[0];
    for (u32 at = 0; at < kPage / 4; ++at) ((u32*)kData)[at] = at;
    const u32 selector = entry << 3 | 3;
    asm volatile("mov %w0, %%gs" : : "r"(selector));
    RunWith("thread", page, selector, i);
  }
  asm volatile("mov %w0, %%gs" : : "r"(0));
}

static void RunPages(void) {
  u8* const page = NewPage((const u8*)"\xb8\x01\x00\x00\x00", 5);
  ResetRegisters();
  Run("code, first", page);
  for (unsigned i = 0; i < 6; ++i) {
    Call(kMprotect, (u32)page, kPage, kRead | kWritable, 0, 0);
    page[1] = (u8)(2 + i);
    ResetRegisters();
    Run("code without the right to execute", page);
    Call(kMprotect, (u32)page, kPage, kRead | kExecute, 0, 0);
    ResetRegisters();
    Run("code, changed", page);
  }
  Call(kMprotect, (u32)page, kPage, kRead | kWritable | kExecute, 0, 0);
  for (unsigned i = 0; i < 6; ++i) {
    page[1] = (u8)(0x20 + i);
    ResetRegisters();
    Run("code, changed under its rights", page);
  }
  Call(kMunmap, (u32)page, kPage, 0, 0, 0);
  ResetRegisters();
  Run("code, unmapped", page);
  // MOV EAX, imm32 over the end of a page, whose next one comes later.
  u8* const cut = NewPage(0, 0);
  Call(kMprotect, (u32)cut, kPage, kRead | kWritable, 0, 0);
  cut[kPage - 2] = 0xb8;
  Call(kMprotect, (u32)cut, kPage, kRead | kExecute, 0, 0);
  ResetRegisters();
  Run("code, cut by a page's end", cut + kPage - 2);
  Map(cut + kPage, kPage, kRead | kWritable | kExecute);
  cut[kPage] = 7;
  cut[kPage + 3] = 0x1e;  // PUSH DS
  cut[kPage + 4] = 0xcc;
  ResetRegisters();
  Run("code over a page's end", cut + kPage - 2);
  u8* const self = PageOf("modifies_itself");
  Call(kMprotect, (u32)self, kPage, kRead | kWritable | kExecute, 0, 0);
  for (unsigned i = 0; i < 4; ++i) {
    ResetRegisters();
    Run("modifies_itself", self);
  }
  ResetRegisters();
  resume = 1;
  Run("mended_store", PageOf("mended_store"));
  Call(kMprotect, (u32)kData + kPage, kPage, kRead, 0, 0);
}

static void RunAddresses(void) {
  static const u32 kAddresses[] = {0,          0x1000,     0xffff,     0x20001ffe, 0x20002000,
                                   0x7fffffff, 0xbfffffff, 0xc0000000, 0xf7fff000, 0xffffd000,
                                   0xffffe000, 0xfffff000, 0xfffffffc, 0xfffffffe, 0xffffffff};
  static const char* const kAccesses[] = {"call_eax", "read_eax", "write_eax", "read_eax_xmm"};
  for (unsigned way = 0; way < 4; ++way) {
    u8* const page = PageOf(kAccesses[way]);
    for (unsigned i = 0; i < sizeof(kAddresses) / 4; ++i) {
      // Data would be executed where there is no NX.
      if (way == 0 && kAddresses[i] >> 24 == 0x20) continue;
      for (unsigned run = 0; run < 3; ++run) {
        told = run == 2;
        RunWith(kAccesses[way], page, kAddresses[i], 0);
      }
    }
  }
}

void Main(u32* arguments) {
  // At the same addresses in every run.
  enum { kNoRandom = 0x0040000 };
  if (!(Call(kPersonality, ~0u, 0, 0, 0, 0) & kNoRandom)) {
    Call(kPersonality, kNoRandom, 0, 0, 0, 0);
    Call(kExecve, (u32) "/proc/self/exe", (u32)(arguments + 1), (u32)(arguments + 2 + arguments[0]),
         0, 0);
    Call(kExit, 2, 0, 0, 0, 0);
  }
  told = 1;
  static u8 handler_stack[256 * 1024];
  const u32 stack[3] = {(u32)handler_stack, 0, sizeof(handler_stack)};
  Call(kSigaltstack, (u32)stack, 0, 0, 0, 0);
  static const int kSignals[] = {11, 7, 8, 4, 5, 31};
  for (unsigned i = 0; i < sizeof(kSignals) / sizeof(kSignals[0]); ++i) {
    // With siginfo, on the stack of its own; the kernel's code returns from it.
    const u32 action[5] = {(u32)Handler, 0x4 | 0x08000000 | 0x40000000, 0, 0, 0};
    Call(kSigaction, (u32)kSignals[i], (u32)action, 0, 8, 0);
  }
  if (Map(kData, 2 * kPage, kRead | kWritable) != kData ||
      Map(kStack, 8 * kPage, kRead | kWritable) != kStack) {
    Call(kExit, 3, 0, 0, 0, 0);
  }
  Call(kMprotect, (u32)kData + kPage, kPage, kRead, 0, 0);
  for (unsigned i = 0; i < kSnippets; ++i) {
    RunThrice(snippets[i].name, PageOf(snippets[i].name));
  }
  told = 1;
  RunAllOpcodes();
  RunSelectors();
  RunInterrupts();
  RunFlags();
  RunSteps();
  RunThreads();
  RunPages();
  RunAddresses();
  Put("end\n");
  Flush();
  Call(kExit, 0, 0, 0, 0, 0);
}
asm(".text\n.globl _start\n_start:\n  mov %esp, %eax\n  and $-16, %esp\n  sub $12, %esp\n"
    "  push %eax\n  call Main\n");
