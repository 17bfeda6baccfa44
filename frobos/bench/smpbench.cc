// SPDX-License-Identifier: Apache-2.0
// What processors pay for each other: interrupts between them, TLB shootdowns, locks; and what they
// gain. One line per benchmark:
//     {"name":"ipi_halted","median":N,"p99":N,"max":N,"unit":"cycles","samples":N}
// then {"done":true}. Command line: cpus=N (4); samples=N; only=a,b.

#include "frobos/bench/quantiles.h"
#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/smp.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kCountVector = 0x61, kFlushVector = 0x62;
constexpr u64 kPage = 0x40000000;
constexpr u64 kMaxSamples = 4096;

u64 samples[kMaxSamples];
u64 count;
volatile u64 answers;
volatile bool stop;

void Answer() {
  asm volatile("lock incq %0" : "+m"(answers) : : "memory");
  EndOfIpi();
}
void AwaitAnswers(u64 how_many) {
  while (answers != how_many) Relax();
}

// --- What the other processors do meanwhile ---

void Compute(u64) {
  u64 x = 1;
  while (!stop) {
    for (int i = 0; i < 100; ++i) x = x * 6364136223846793005 + 1442695040888963407;
    asm volatile("" : : "r"(x));
  }
}
void TouchPage(u64) {
  while (!stop) static_cast<void>(*reinterpret_cast<volatile u64*>(kPage));
}

// Interrupts are off most of the time, for a tenth of a turn of a VMM whose CPUs take turns.
void ComputeMasked(u64) {
  while (!stop) {
    asm volatile("cli" : : : "memory");
    for (const u64 begin = Rdtsc(); Rdtsc() - begin < 250'000;) {
    }
    asm volatile("sti" : : : "memory");
  }
}

// --- Benchmarks: the cycles of one operation ---

u64 Ipi() {
  answers = 0;
  const u64 begin = Rdtsc();
  SendIpi(1, kIpiAssert | kCountVector);
  AwaitAnswers(1);
  return Rdtsc() - begin;
}

u64 frames[2];
u64 ShootDown() {
  static u64 round = 0;
  answers = 0;
  const u64 begin = Rdtsc();
  *Entry(kPage) = frames[++round % 2] | kPteP | kPteW;
  Invlpg(kPage);
  SendIpi(0, kIpiOthers | kIpiAssert | kFlushVector);
  AwaitAnswers(CpusWanted() - 1);
  return Rdtsc() - begin;
}

// A token goes to and fro.
alignas(64) volatile u64 token;
constexpr u64 kPasses = 64;
void PassToken(u64 me) {
  for (u64 i = 0; i < kPasses; ++i) {
    while (token % 2 != me) Relax();
    token = token + 1;
  }
}
u64 HandOver() {
  token = 0;
  Begin(1, PassToken, 1);
  const u64 begin = Rdtsc();
  PassToken(0);
  while (token != 2 * kPasses) Relax();
  const u64 end = Rdtsc();
  Finish(1);
  return (end - begin) / (2 * kPasses);
}

alignas(64) volatile u32 lock_word;
alignas(64) volatile u64 guarded;
constexpr u64 kAcquisitions = 2000;
void TakeLocks(u64) {
  for (u64 i = 0; i < kAcquisitions; ++i) {
    TakeLock(&lock_word);
    guarded = guarded + 1;
    LeaveLock(&lock_word);
  }
}
u64 Lock() {
  const u64 begin = Rdtsc();
  Everywhere(TakeLocks, 0);
  return (Rdtsc() - begin) / (kAcquisitions * CpusWanted());
}

// The same work for each: on N processors that run at once it takes what it takes on one.
void Work(u64) {
  u64 x = 1;
  for (int i = 0; i < 2'000'000; ++i) x = x * 6364136223846793005 + 1442695040888963407;
  asm volatile("" : : "r"(x));
}
u64 WorkOnOne() {
  const u64 begin = Rdtsc();
  Work(0);
  return Rdtsc() - begin;
}
u64 WorkOnAll() {
  const u64 begin = Rdtsc();
  Everywhere(Work, 0);
  return Rdtsc() - begin;
}

struct Benchmark {
  const char* name;
  u64 (*once)();
  void (*others)(u64);  // null: they are halted
  u64 divisor;          // of the number of samples: it takes long
};
constexpr Benchmark kBenchmarks[] = {
    {"ipi_halted", Ipi, nullptr, 1},           {"ipi_busy", Ipi, Compute, 1},
    {"ipi_masked", Ipi, ComputeMasked, 1},     {"shootdown_halted", ShootDown, nullptr, 1},
    {"shootdown_busy", ShootDown, Compute, 1}, {"shootdown_touching", ShootDown, TouchPage, 1},
    {"handover", HandOver, nullptr, 10},       {"lock", Lock, nullptr, 10},
    {"work_one", WorkOnOne, nullptr, 50},      {"work_all", WorkOnAll, nullptr, 50},
};

void Measure(const Benchmark& b) {
  const u64 number = count / b.divisor > 2 ? count / b.divisor : 2;
  stop = false;
  for (unsigned cpu = 1; b.others != nullptr && cpu < CpusWanted(); ++cpu) Begin(cpu, b.others);
  for (int i = 0; i < 3; ++i) b.once();  // what has not run is not translated
  for (u64 i = 0; i < number; ++i) samples[i] = b.once();
  stop = true;
  for (unsigned cpu = 1; b.others != nullptr && cpu < CpusWanted(); ++cpu) Finish(cpu);
  Print("{\"name\":\"%s\",", b.name);
  PrintQuantiles(samples, number, "cycles");
}

}  // namespace

int Main() {
  InitLapic();
  const unsigned up = StartAllCpus();
  if (up < 2 || up < CpusWanted()) Panic("%u processors have started, not %u", up, CpusWanted());
  asm volatile("sti");
  SetHandler(kCountVector, [](TrapFrame*) { Answer(); });
  SetHandler(kFlushVector, [](TrapFrame*) {
    Invlpg(kPage);
    Answer();
  });
  frames[0] = AllocPage();
  frames[1] = AllocPage();
  Map(kPage, frames[0], kPteW);
  count = NumberOption("samples", 200);
  if (count < 2 || count > kMaxSamples) count = 200;
  for (const Benchmark& b : kBenchmarks) {
    if (Selected("only", b.name)) Measure(b);
  }
  Print("{\"done\":true}\n");
  return 0;
}

}  // namespace alibi::frobos
