// SPDX-License-Identifier: Apache-2.0
// User code on one processor while the kernel on another stores to its pages, takes them away, and
// changes its code (Intel SDM vol. 3A, 4.10.5, 9.1 and 9.3). A VMM may let such code run on the CPU
// itself, beside what it does for the other processor.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/smp.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kShootdownVector = 0x61;
constexpr u64 kUserRw = kPteU | kPteW;
constexpr u64 kCode = kUserBase + 0x40'0000, kData = kUserBase + 0x80'0000;
constexpr unsigned kUser = 1;  // the processor that runs user code

u64& Word(u64 address) { return *reinterpret_cast<u64*>(address); }
u64 Look(u64 address) { return *reinterpret_cast<volatile u64*>(address); }

// --- The other processor's program: until the word at `stop` is not 0 ---

struct Program {
  const void* code;  // at kCode, which is position-independent
  Regs regs;
};
Outcome outcome;
void RunProgram(u64 program) {
  Regs regs = reinterpret_cast<const Program*>(program)->regs;
  regs.rflags = kFlagsFixed | kFlagIf;
  outcome = RunUser(reinterpret_cast<const void*>(kCode), regs);
}

u64 code_page, stop_page, data_page;
constexpr u64 kStop = kData + 16 * kPageSize;

// rdi is kData, rsi kStop.
class Running {
 public:
  explicit Running(const void* code) : program_{code, {.rsi = kStop, .rdi = kData}} {
    constexpr u64 kMost = 128;
    memcpy(reinterpret_cast<void*>(code_page), code, kMost);
    Word(stop_page) = 0;
    Begin(kUser, RunProgram, reinterpret_cast<u64>(&program_));
  }
  // How it has ended; by itself, or because it is told to.
  const Outcome& Ended() {
    Check(Finish(kUser), "user code on another processor ends");
    return outcome;
  }
  const Outcome& End() {
    *reinterpret_cast<volatile u64*>(stop_page) = 1;
    return Ended();
  }

 private:
  Program program_;
};

// So many rounds of a counter that user code steps.
void Await(u64 counter, u64 rounds) {
  const u64 begin = Look(counter);
  WaitFor([&] {
    Relax();
    return Look(counter) - begin >= rounds;
  });
}

volatile u64 flushed;
void OnShootdown(TrapFrame*) {
  Invlpg(kData);
  Invlpg(kCode);
  asm volatile("lock incq %0" : "+m"(flushed) : : "memory");
  EndOfIpi();
}
bool ShootDown() {
  flushed = 0;
  Invlpg(kData);
  Invlpg(kCode);
  SendIpi(kUser, kIpiAssert | kShootdownVector);
  return WaitFor([] {
    Relax();
    return flushed == 1;
  });
}

// --- Atomic instructions ---

// One instruction for plain memory and for page tables, which a VMM may trace.
[[gnu::noinline]] void AddTwo(u64 address) {
  asm volatile("lock addq $2, (%0)" : : "r"(address) : "memory");
}

void TestAtomics() {
  constexpr u64 kRounds = 20'000;
  Map(kData, data_page, kUserRw);
  memset(reinterpret_cast<void*>(data_page), 0, kPageSize);
  const u64 absent = reinterpret_cast<u64>(Entry(kData + 100 * kPageSize));
  Running user(
      USER_CODE("1: lock inc qword ptr [rdi]; inc qword ptr [rdi + 64]\n"
                "   cmp qword ptr [rsi], 0; je 1b"));
  Await(data_page + 64, 1000);
  for (u64 i = 0; i < kRounds; ++i) {
    AddTwo(absent);
    AddTwo(kData);
  }
  CheckDone("LOCK by user code and by the kernel", user.End());
  CheckEq("... loses nothing", Word(data_page), Word(data_page + 64) + 2 * kRounds);
  Word(absent) = 0;

  const u64 second = AllocPage();
  Map(kData + kPageSize, second, kUserRw);
  const u64 crossing = kData + kPageSize - 3;
  Word(data_page + 64) = Word(crossing) = 0;
  Running splitting(
      USER_CODE("1: lock inc qword ptr [rdi + 4093]; inc qword ptr [rdi + 64]\n"
                "   cmp qword ptr [rsi], 0; je 1b"));
  Await(data_page + 64, 100);
  for (u64 i = 0; i < kRounds; ++i) AddTwo(crossing);
  CheckDone("LOCK across two pages", splitting.End());
  CheckEq("... loses nothing", Word(crossing), Word(data_page + 64) + 2 * kRounds);
  Unmap(kData + kPageSize);
}

// --- Pages that are taken away ---

void TestPages() {
  const u64 pages[] = {AllocPage(), AllocPage()};
  Map(kData, pages[0], kUserRw);
  Running user(USER_CODE("1: inc rax; mov [rdi], rax; cmp qword ptr [rsi], 0; je 1b"));
  u64* const entry = Entry(kData);
  Group stores(
      "behind a shootdown user code stores to the page that is mapped now, and to no other");
  for (unsigned round = 0; round < 200; ++round) {
    const u64 old = pages[round % 2], now = pages[1 - round % 2];
    *entry = now | kPteP | kUserRw;
    stores.Case(ShootDown());
    const u64 last = Look(old);
    Await(now, 50);
    stores.Case(Look(old) == last);
  }
  CheckDone("... and ends", user.End());

  Group dirty("a page that user code stores to becomes dirty again");
  Running again(USER_CODE("1: inc rax; mov [rdi], rax; cmp qword ptr [rsi], 0; je 1b"));
  for (unsigned round = 0; round < 100; ++round) {
    asm volatile("lock andq %1, %0" : "+m"(*entry) : "r"(~(kPteA | kPteD)) : "memory");
    dirty.Case(ShootDown());
    Await(*entry & kPteAddress, 50);
    dirty.Case((*entry & (kPteA | kPteD)) == (kPteA | kPteD));
  }
  *entry &= ~kPteW;
  dirty.Case(ShootDown());
  const u64 last = Look(*entry & kPteAddress);
  for (unsigned i = 0; i < 1000; ++i) Relax();
  dirty.Case(Look(*entry & kPteAddress) == last);
  const Outcome& end = again.Ended();
  Check(end.Is(kPageFault, kPfPresent | kPfWrite | kPfUser) && end.cr2 == kData,
        "... and faults when it may no more");
  *entry |= kPteW;
  Invlpg(kData);
}

// --- Code ---

// The kernel runs code in a page that user code writes.
void TestCodeOfUser() {
  Map(kData, data_page, kUserRw);
  // mov eax, imm32; ret. User code writes the operand, then its number, and waits for the answer.
  Word(data_page) = 0xc300000000b8;
  Word(data_page + 64) = Word(data_page + 128) = 0;
  Running user(
      USER_CODE("   xor eax, eax\n"
                "1: inc eax; mov [rdi + 1], eax; mov [rdi + 64], eax\n"
                "2: cmp qword ptr [rsi], 0; jne 3f; cmp [rdi + 128], eax; jne 2b; jmp 1b; 3:"));
  Group group(
      "code that user code on another processor has written, behind a serializing instruction");
  for (u64 round = 1; round <= 300; ++round) {
    group.Case(WaitFor([&] { return Look(data_page + 64) == round; }));
    Cpuid(0);
    group.Case(reinterpret_cast<u32 (*)()>(data_page)() == round);
    *reinterpret_cast<volatile u64*>(data_page + 128) = round;
  }
  CheckDone("... which ends", user.End());
  // The same without an order between the two: the old operand or a new one, and never older.
  Word(data_page) = 0xc300000000b8;
  Running free(
      USER_CODE("   xor eax, eax\n"
                "1: inc eax; mov [rdi + 4], eax; cmp qword ptr [rsi], 0; je 1b"));
  memcpy(reinterpret_cast<void*>(data_page), "\x90\x90\x90\xb8\0\0\0\0\xc3", 9);
  Group unordered("... and without one it is some operand that was there");
  u32 latest = 0;
  for (unsigned round = 0; round < 300; ++round) {
    Cpuid(0);
    const u32 before = static_cast<u32>(Look(data_page) >> 32);
    Cpuid(0);
    const u32 got = reinterpret_cast<u32 (*)()>(data_page)();
    unordered.Case(got - latest < 1u << 31 && before - latest < 1u << 31);
    unordered.Case(static_cast<u32>(Look(data_page) >> 32) - got < 1u << 31);
    latest = got;
  }
  CheckDone("... which ends, too", free.End());
}

// User code runs what the kernel writes.
void TestCodeOfKernel() {
  if (SkipOnQemu("user code that the kernel on another processor writes")) return;  // 9.1.3
  Map(kData, data_page, kUserRw);
  Word(data_page) = 0;
  Running user(USER_CODE(
      "nop; nop; nop; 1: mov eax, 0x11111111; mov [rdi], eax; cmp qword ptr [rsi], 0; je 1b"));
  Group group("user code that the kernel on another processor writes, behind an interrupt");
  for (u32 round = 1; round <= 300; ++round) {
    *reinterpret_cast<volatile u32*>(code_page + 4) = round;
    group.Case(ShootDown());
    group.Case(WaitFor([&] { return Look(data_page) == round; }));
  }
  CheckDone("... ends", user.End());
}

}  // namespace

int Main() {
  InitLapic();
  CheckEq("all processors start", StartAllCpus(), CpusWanted());
  asm volatile("sti");
  Check(Everywhere([](u64) { EnableRegistersLikeLinux(); }),
        "all have the registers that Linux gives user code");
  SetHandler(kShootdownVector, OnShootdown);
  code_page = AllocPage();
  stop_page = AllocPage();
  data_page = AllocPage();
  Map(kCode, code_page, kPteU);
  Map(kStop, stop_page, kUserRw);
  constexpr Section kSections[] = {
      {"atomics", TestAtomics},
      {"pages", TestPages},
      {"code of user", TestCodeOfUser},
      {"code of kernel", TestCodeOfKernel},
  };
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
