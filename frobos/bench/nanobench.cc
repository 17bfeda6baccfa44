// SPDX-License-Identifier: Apache-2.0
// The nanobenchmarks of the paper's section 6.3, and their neighbours: what one privileged or
// control-flow operation costs. Per benchmark one JSON line on the console:
//     {"name":"syscall","samples":[cycles per operation,...],"iterations":N}
// or, when the operation did not do what it should, {"name":...,"error":"..."}; then {"done":true}.
// Command line: quick; samples=N; iters=N (else calibrated); only=a,b,c.

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {

struct Timing {
  u64 cycles;
  u64 events;
};
using LoopFunction = Timing(u64 iterations, u64 a, u64 b, u64 c);

extern "C" {
LoopFunction loop_empty, loop_in, loop_in_device, loop_cr8wr, loop_cr3, loop_cr3_pti, loop_copy,
    loop_cr0wp, loop_cr4pge, loop_stacclac, loop_invlpg, loop_clisti, loop_pushfpopf, loop_rdtsc,
    loop_ptemod_unchanged, loop_callret, loop_icall, loop_icall_empty, loop_iret, loop_int3,
    loop_divzero, loop_pgfault, loop_pgfault_map, loop_ptemod_touch, loop_ptestore,
    loop_ptestore_empty, loop_isprime, loop_syscall, loop_int80, loop_user_empty;
void handle_divzero();
void handle_pgfault();
void handle_pgfault_map();
void handle_count();
void handle_syscall();
}

namespace {

constexpr u64 kCyclesPerSample = 22'000'000, kCyclesPerQuickSample = 1'500'000;
constexpr u64 kPage = kHighBase;
constexpr u64 kBatch = 512;  // one leaf table
constexpr u64 kPrime = 4999;
constexpr u64 kPattern = 1;  // the first word of the test page; loop_ptemod_touch counts with it

struct Arguments {
  u64 a = 0, b = 0, c = 0;
};

struct Benchmark {
  const char* name;
  LoopFunction* loop;
  LoopFunction* empty;
  bool user;
  // Makes the machine ready and says what the loop's a, b, c are.
  Arguments (*begin)();
  // Puts everything back; nullptr, or why the operation did not have its effect.
  const char* (*end)();
  // How the loop is run if not by a plain call.
  Timing (*run)(u64 iterations, const Arguments& arguments);
};

u64* page_pte;
u64 page_value;  // the PTE's present value

Timing RunLoop(const Benchmark& b, LoopFunction* loop, u64 n, const Arguments& arguments) {
  if (!b.user) return loop(n, arguments.a, arguments.b, arguments.c);
  const Outcome o = CallUser(reinterpret_cast<const void*>(loop), n, UserStackTop());
  if (!o.Done()) return {0, 0};
  return {o.frame.rax, o.frame.rdx};
}

// ---- Preparations and verifications, in the order of the table below.

Arguments Nothing() { return {}; }
const char* NoCheck() { return nullptr; }

Arguments BeginSyscall() {
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, reinterpret_cast<u64>(handle_syscall));
  WriteMsr(kMsrSfmask, kFlagIf | kFlagDf | kFlagTf | kFlagAc);
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) | kEferSce);
  return {};
}

const char* EndIn() {
  // Whatever the port holds, al must have been loaded from it.
  Outb(0x80, 0x5a);
  u8 value = 0xa5;
  asm volatile("inb $0x80, %0" : "+a"(value));
  return value == 0xa5 ? "in left al unchanged" : nullptr;
}

// The mask register of the first interrupt controller.
constexpr u16 kPicMask = 0x21;
const char* EndInDevice() {
  const u8 mask = Inb(kPicMask), other = mask ^ 0x80;
  Outb(kPicMask, other);
  const u8 seen = Inb(kPicMask);
  Outb(kPicMask, mask);
  return seen == other ? nullptr : "in does not read the device's register";
}

constexpr u64 kTaskPriority = 5;
Arguments BeginCr8() { return {kTaskPriority}; }
const char* EndCr8() {
  const u64 value = ReadCr8();
  WriteCr8(0);
  return value == kTaskPriority ? nullptr : "cr8 does not hold what was written";
}

Arguments BeginPgfault() {
  *page_pte = page_value & ~kPteP;
  Invlpg(kPage);
  SetEntry(kPageFault, reinterpret_cast<const void*>(handle_pgfault));
  return {kPage};
}
const char* EndPgfault() {
  RestoreEntry(kPageFault);
  const u64 cr2 = ReadCr2();
  *page_pte = page_value;
  return cr2 == kPage ? nullptr : "cr2 does not hold the faulting address";
}

Arguments BeginPgfaultMap() {
  *page_pte = 0;
  Invlpg(kPage);
  SetEntry(kPageFault, reinterpret_cast<const void*>(handle_pgfault_map));
  return {kPage, reinterpret_cast<u64>(page_pte), page_value};
}
const char* EndPgfaultMap() {
  RestoreEntry(kPageFault);
  const u64 left = *page_pte;
  *page_pte = page_value;
  return left == 0 ? nullptr : "the page was left mapped";
}

Arguments BeginDivzero() {
  SetEntry(kDivideError, reinterpret_cast<const void*>(handle_divzero));
  return {};
}
const char* EndDivzero() {
  RestoreEntry(kDivideError);
  return nullptr;
}

Arguments BeginPtemod() {
  *page_pte = page_value;
  Invlpg(kPage);
  asm volatile("" : : "r"(*reinterpret_cast<volatile u64*>(kPage)));
  return {kPage, reinterpret_cast<u64>(page_pte), page_value};
}

bool TouchFaults(u64 va) {
  return Catch([va] {
           asm volatile("" : : "r"(*reinterpret_cast<volatile u64*>(va)));
         })
      .Is(kPageFault);
}

const char* EndPtemod() {
  if (*page_pte != page_value) return "the PTE does not hold the stored value";
  if (TouchFaults(kPage)) return "the page is not accessible";
  *page_pte = page_value & ~kPteP;
  Invlpg(kPage);
  const bool faults = TouchFaults(kPage);
  *page_pte = page_value;
  if (!faults) return "a not-present PTE does not fault after invlpg";
  if (TouchFaults(kPage)) return "a present PTE faults";
  return nullptr;
}

// P->NP and NP->P are measured as stores alone, a whole leaf table (mapping one page 512 times) at
// a time, because each direction can only be done once in a row. Outside the measurement all pages
// are invalidated and touched, so that before each batch the translations are in use.
struct BatchState {
  Timing p_np = {0, 0}, np_p = {0, 0};
  bool stale = false;
};

BatchState RunBatches(LoopFunction* store, u64 iterations) {
  BatchState state;
  const u64 table = reinterpret_cast<u64>(page_pte) & ~(kPageSize - 1);
  const auto for_all_pages = [](auto&& f) {
    for (u64 i = 0; i < kBatch; i++) f(kPage + i * kPageSize);
  };
  const auto touch = [](u64 va) { asm volatile("" : : "r"(*reinterpret_cast<volatile u64*>(va))); };
  loop_ptestore(kBatch, 0, table, page_value);
  for (u64 done = 0; done < iterations; done += kBatch) {
    for_all_pages(touch);
    const Timing down = store(kBatch, 0, table, page_value & ~kPteP);
    for_all_pages([](u64 va) { Invlpg(va); });
    if (done == 0 && store == loop_ptestore) {
      state.stale = !TouchFaults(kPage) || !TouchFaults(kPage + (kBatch - 1) * kPageSize);
    }
    const Timing up = store(kBatch, 0, table, page_value);
    if (done == 0 && TouchFaults(kPage + 7 * kPageSize)) state.stale = true;
    state.p_np = {state.p_np.cycles + down.cycles, state.p_np.events + down.events};
    state.np_p = {state.np_p.cycles + up.cycles, state.np_p.events + up.events};
  }
  return state;
}

bool batch_stale;
Timing RunPresentToNot(u64 iterations, const Arguments& arguments) {
  const BatchState state = RunBatches(reinterpret_cast<LoopFunction*>(arguments.a), iterations);
  batch_stale |= state.stale;
  return state.p_np;
}
Timing RunNotToPresent(u64 iterations, const Arguments& arguments) {
  const BatchState state = RunBatches(reinterpret_cast<LoopFunction*>(arguments.a), iterations);
  batch_stale |= state.stale;
  return state.np_p;
}
Arguments BeginBatch() {
  batch_stale = false;
  return {};
}
const char* EndBatch() {
  u64* table = reinterpret_cast<u64*>(reinterpret_cast<u64>(page_pte) & ~(kPageSize - 1));
  for (u64 i = 0; i < kBatch; i++) {
    table[i] = 0;
    Invlpg(kPage + i * kPageSize);
  }
  *page_pte = page_value;
  return batch_stale ? "a translation survived its PTE change and invlpg" : nullptr;
}

// A whole table leads to another frame, and a flush makes that count: the stores, the flush and a
// read, per entry.
u64 other_value;  // page_value's fellow
Timing RunTableChanges(u64 iterations, const Arguments& arguments) {
  LoopFunction* const store = reinterpret_cast<LoopFunction*>(arguments.a);
  const u64 table = reinterpret_cast<u64>(page_pte) & ~(kPageSize - 1);
  Timing sum = {0, 0};
  for (u64 done = 0; done < iterations; done += kBatch) {
    const u64 value = (done / kBatch & 1) != 0 ? page_value : other_value;
    const u64 start = Rdtsc();
    sum.events += store(kBatch, 0, table, value).events;
    FlushTlb();
    const u64 pattern = *reinterpret_cast<volatile u64*>(kPage);
    sum.cycles += Rdtsc() - start;
    const u64 wanted = value == page_value ? kPattern : ~kPattern;
    batch_stale |= store == loop_ptestore && pattern != wanted;
  }
  return sum;
}

Arguments BeginCr3() { return {ReadCr3()}; }
const char* FlushCheck(LoopFunction* loop, u64 argument) {
  BeginPtemod();
  *page_pte = page_value & ~kPteP;
  loop(1, argument, 0, 0);
  const bool faults = TouchFaults(kPage);
  *page_pte = page_value;
  return faults ? nullptr : "a stale translation was used";
}
const char* EndCr3() { return FlushCheck(loop_cr3, ReadCr3()); }

// As Linux isolates page tables: two roots side by side, of which the second lacks what the first
// maps at kIsolated.
constexpr u64 kIsolatedEntry = 300;
constexpr u64 kIsolated = u64{0xffff} << 48 | kIsolatedEntry << 39 | (kPage & ((u64{1} << 39) - 1));
alignas(2 * kPageSize) u64 isolated_roots[2][512];
u64 saved_cr;
Arguments BeginCr3Pti() {
  BeginPtemod();
  saved_cr = ReadCr3();
  const u64* root = reinterpret_cast<const u64*>(saved_cr & ~(kPageSize - 1));
  for (unsigned i = 0; i < 512; i++) isolated_roots[0][i] = isolated_roots[1][i] = root[i];
  isolated_roots[0][kIsolatedEntry] = root[kPage >> 39 & 511];
  return {reinterpret_cast<u64>(isolated_roots[0]), reinterpret_cast<u64>(isolated_roots[1]),
          kPage};
}
const char* EndCr3Pti() {
  WriteCr3(reinterpret_cast<u64>(isolated_roots[1]));
  const bool isolates = TouchFaults(kIsolated);
  WriteCr3(reinterpret_cast<u64>(isolated_roots[0]));
  const bool maps = !TouchFaults(kIsolated);
  WriteCr3(saved_cr);
  return isolates && maps ? nullptr : "a root shows what another one maps";
}

constexpr u64 kCopied = 64 << 10;
alignas(kPageSize) u8 copy_source[kCopied], copy_target[kCopied];
Arguments BeginCopy() {
  for (u64 i = 0; i < kCopied; i++) copy_source[i] = static_cast<u8>(i * 7 + (i >> 8));
  return {reinterpret_cast<u64>(copy_source), reinterpret_cast<u64>(copy_target), kCopied};
}
const char* EndCopy() {
  for (u64 i = 0; i < kCopied; i++) {
    if (copy_target[i] != copy_source[i]) return "the copy is not the original";
  }
  return nullptr;
}

bool StoreFaults(u64 va) {
  return Catch([va] {
           volatile u64* word = reinterpret_cast<volatile u64*>(va);
           *word = *word;
         })
      .Is(kPageFault);
}
Arguments BeginCr0wp() {
  BeginPtemod();
  saved_cr = ReadCr0();
  return {saved_cr, kCr0Wp, kPage};
}
const char* EndCr0wp() {
  WriteCr0(saved_cr);
  *page_pte = page_value & ~kPteW;
  Invlpg(kPage);
  bool protects[3];
  for (u64 toggles = 0; toggles < 3; ++toggles) {
    if (toggles != 0) loop_cr0wp(toggles, saved_cr, kCr0Wp, kPage);
    protects[toggles] = StoreFaults(kPage);
    WriteCr0(saved_cr);
  }
  *page_pte = page_value;
  Invlpg(kPage);
  const bool at_first = saved_cr & kCr0Wp;
  return protects[0] == at_first && protects[1] != at_first && protects[2] == at_first
             ? nullptr
             : "CR0.WP does not decide about supervisor stores";
}
Arguments BeginCr4pge() {
  BeginPtemod();
  saved_cr = ReadCr4();
  return {saved_cr, kCr4Pge, kPage};
}
const char* EndCr4pge() {
  WriteCr4(saved_cr);
  loop_cr4pge(1, saved_cr, kCr4Pge, kPage);
  const bool toggled = ReadCr4() == (saved_cr ^ kCr4Pge);
  WriteCr4(saved_cr);
  return toggled ? nullptr : "cr4 does not hold what was written";
}
Arguments BeginStacClac() {
  BeginPtemod();
  saved_cr = ReadCr4();
  if (HasSmap()) WriteCr4(saved_cr | kCr4Smap);
  return {0, 0, kPage};
}
const char* EndStacClac() {
  const bool closed = !(ReadFlags() & kFlagAc);
  WriteCr4(saved_cr);
  return closed ? nullptr : "AC is set after clac";
}

Arguments BeginInvlpg() {
  BeginPtemod();
  return {kPage};
}
const char* EndInvlpg() { return FlushCheck(loop_invlpg, kPage); }

Arguments BeginCliSti() {
  EnableInterrupts();
  return {};
}
const char* EndCliSti() {
  const u64 flags = ReadFlags();
  DisableInterrupts();
  return flags & kFlagIf ? nullptr : "IF is clear after sti";
}

const char* EndPushf() {
  u64 carry;
  asm volatile("stc; pushfq; clc; popfq; sbb %0, %0" : "=r"(carry) : : "memory", "cc");
  return carry != 0 ? nullptr : "popf did not restore CF";
}

const char* EndRdtsc() {
  const u64 first = Rdtsc();
  return Rdtsc() > first ? nullptr : "the time stamp counter stands still";
}

Arguments BeginIret() { return {0, 0, kFlagsFixed}; }

Arguments BeginInt3() {
  SetEntry(kBreakpoint, reinterpret_cast<const void*>(handle_count));
  return {};
}
const char* EndInt3() {
  RestoreEntry(kBreakpoint);
  return nullptr;
}
Arguments BeginInt80() {
  SetEntry(0x80, reinterpret_cast<const void*>(handle_count), 3);
  return {};
}
const char* EndInt80() {
  RestoreEntry(0x80);
  return nullptr;
}

Arguments BeginIsPrime() { return {kPrime}; }

constexpr Benchmark kBenchmarks[] = {
    {"syscall", loop_syscall, loop_user_empty, true, BeginSyscall, NoCheck, nullptr},
    {"in", loop_in, loop_empty, false, Nothing, EndIn, nullptr},
    {"in_device", loop_in_device, loop_empty, false, Nothing, EndInDevice, nullptr},
    {"cr8wr", loop_cr8wr, loop_empty, false, BeginCr8, EndCr8, nullptr},
    {"callret", loop_callret, loop_empty, false, Nothing, NoCheck, nullptr},
    {"icall", loop_icall, loop_icall_empty, false, Nothing, NoCheck, nullptr},
    {"pgfault", loop_pgfault, loop_empty, false, BeginPgfault, EndPgfault, nullptr},
    {"pgfault_map", loop_pgfault_map, loop_empty, false, BeginPgfaultMap, EndPgfaultMap, nullptr},
    {"divzero", loop_divzero, loop_empty, false, BeginDivzero, EndDivzero, nullptr},
    {"ptemod_unchanged", loop_ptemod_unchanged, loop_empty, false, BeginPtemod, EndPtemod, nullptr},
    {"ptemod_p_np", loop_ptestore, loop_ptestore_empty, false, BeginBatch, EndBatch,
     RunPresentToNot},
    {"ptemod_np_p", loop_ptestore, loop_ptestore_empty, false, BeginBatch, EndBatch,
     RunNotToPresent},
    {"ptebatch", loop_ptestore, loop_ptestore_empty, false, BeginBatch, EndBatch, RunTableChanges},
    {"ptemod_touch", loop_ptemod_touch, loop_empty, false, BeginPtemod, EndPtemod, nullptr},
    {"cr3", loop_cr3, loop_empty, false, BeginCr3, EndCr3, nullptr},
    {"cr3_pti", loop_cr3_pti, loop_empty, false, BeginCr3Pti, EndCr3Pti, nullptr},
    {"copy", loop_copy, loop_empty, false, BeginCopy, EndCopy, nullptr},
    {"cr0wp", loop_cr0wp, loop_empty, false, BeginCr0wp, EndCr0wp, nullptr},
    {"cr4pge", loop_cr4pge, loop_empty, false, BeginCr4pge, EndCr4pge, nullptr},
    {"stacclac", loop_stacclac, loop_empty, false, BeginStacClac, EndStacClac, nullptr},
    {"invlpg", loop_invlpg, loop_empty, false, BeginInvlpg, EndInvlpg, nullptr},
    {"clisti", loop_clisti, loop_empty, false, BeginCliSti, EndCliSti, nullptr},
    {"pushfpopf", loop_pushfpopf, loop_empty, false, Nothing, EndPushf, nullptr},
    {"rdtsc", loop_rdtsc, loop_empty, false, Nothing, EndRdtsc, nullptr},
    {"iret", loop_iret, loop_empty, false, BeginIret, NoCheck, nullptr},
    {"int3", loop_int3, loop_empty, false, BeginInt3, EndInt3, nullptr},
    {"int80", loop_int80, loop_user_empty, true, BeginInt80, EndInt80, nullptr},
    {"isprime", loop_isprime, loop_empty, false, BeginIsPrime, NoCheck, nullptr},
};

constexpr u64 kMaxSamples = 1000;
u64 samples[kMaxSamples];  // thousandths of a cycle per operation

Timing RunOnce(const Benchmark& b, LoopFunction* loop, u64 n, Arguments arguments) {
  if (b.run == nullptr) return RunLoop(b, loop, n, arguments);
  arguments.a = reinterpret_cast<u64>(loop);
  return b.run(n, arguments);
}

u64 Elapsed(const Benchmark& b, const Arguments& arguments, u64 n) {
  const u64 start = Rdtsc();
  RunOnce(b, b.loop, n, arguments);
  return Rdtsc() - start + 1;
}

// Iterations that take about the wanted number of cycles, preparations included. The first runs pay
// for translation and adaptation, and any run may be disturbed: the fastest of a few counts.
u64 Calibrate(const Benchmark& b, const Arguments& arguments, u64 wanted) {
  constexpr int kTries = 4;
  const u64 step = b.run != nullptr ? kBatch : 1;
  for (u64 n = b.run != nullptr ? kBatch : 16;; n *= 2) {
    u64 elapsed = ~u64{0};
    for (int i = 0; i < kTries && elapsed >= wanted / 8; i++) {
      const u64 again = Elapsed(b, arguments, n);
      if (again < elapsed) elapsed = again;
    }
    if (elapsed < wanted / 8) continue;
    const u64 ideal = n * wanted / elapsed / step * step;
    return ideal != 0 ? ideal : step;
  }
}

const char* Measure(const Benchmark& b, u64 count, u64* iterations, u64 wanted) {
  const Arguments arguments = b.begin();
  u64 n = *iterations;
  if (n == 0) {
    n = Calibrate(b, arguments, wanted);
  } else if (b.run != nullptr) {
    n = (n + kBatch - 1) / kBatch * kBatch;
  }
  *iterations = n;
  const char* error = nullptr;
  u64 overhead = ~u64{0};
  for (int i = 0; i < 3; i++) {
    const Timing t = RunOnce(b, b.empty, n, arguments);
    if (t.events != n) error = "the empty loop lost count";
    if (t.cycles < overhead) overhead = t.cycles;
  }
  for (u64 i = 0; i < count && error == nullptr; i++) {
    const Timing t = RunOnce(b, b.loop, n, arguments);
    if (t.events != n) error = "not every iteration did the operation";
    const u64 net = t.cycles > overhead ? t.cycles - overhead : 0;
    samples[i] = net / n * 1000 + net % n * 1000 / n;
  }
  const char* effect = b.end();
  return error != nullptr ? error : effect;
}

}  // namespace

int Main() {
  const bool quick = HasOption("quick");
  u64 count = NumberOption("samples", quick ? 9 : 15);
  if (count == 0 || count > kMaxSamples) count = kMaxSamples;

  page_pte = Entry(kPage);
  page_value = AllocPage() | kPteP | kPteW | kPteA | kPteD;
  *page_pte = page_value;
  *reinterpret_cast<volatile u64*>(kPage) = kPattern;
  const u64 other = AllocPage();
  *reinterpret_cast<volatile u64*>(other) = ~kPattern;
  other_value = other | (page_value & ~kPteAddress);

  bool good = true;
  for (const Benchmark& b : kBenchmarks) {
    if (!Selected("only", b.name)) continue;
    if (b.loop == loop_stacclac && !HasSmap()) continue;
    u64 iterations = NumberOption("iters", 0);
    const char* error =
        Measure(b, count, &iterations, quick ? kCyclesPerQuickSample : kCyclesPerSample);
    Print("{\"name\":\"%s\",", b.name);
    if (error != nullptr) {
      good = false;
      Print("\"error\":\"%s\"}\n", error);
      continue;
    }
    Print("\"samples\":[");
    for (u64 i = 0; i < count; i++) {
      Print("%s%lu.%03lu", i == 0 ? "" : ",", samples[i] / 1000, samples[i] % 1000);
    }
    Print("],\"iterations\":%lu}\n", iterations);
  }
  Print("{\"done\":true}\n");
  return good ? 0 : 1;
}

}  // namespace alibi::frobos
