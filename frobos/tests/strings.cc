// SPDX-License-Identifier: Apache-2.0
// String instructions: every one in all operand and address sizes, both directions, overlaps,
// prefixes, and stops in the middle: by a page fault with exact registers, by an interrupt (Intel
// SDM vol. 1 7.3.9, vol. 2 REP).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

constexpr u64 kSize = 4096;
constexpr u64 kHigh32 = 0xdeadbeefull << 32;
// Two pages each, absent pages before and behind; below 4 GB for 32-bit addresses.
constexpr u64 kSource = 0x7000'0000, kTarget = 0x7001'0000;
u8* source;  // the same pages by the identity map
u8* target;
u64 source_frame, target_frame;

enum class Op { kMovs, kStos, kLods, kCmps, kScas };
constexpr const char* kOpNames[] = {"movs", "stos", "lods", "cmps", "scas"};

struct Code {
  Op op;
  unsigned size;
  bool address32;
  const void* rep;  // REP or REPE
  const void* repne;
  const void* once;
};

#define STRING(op, name, suffix, size)                                                         \
  {op,                                                                                         \
   size,                                                                                       \
   false,                                                                                      \
   KERNEL_CODE("rep " name suffix),                                                            \
   KERNEL_CODE("repne " name suffix),                                                          \
   KERNEL_CODE(name suffix)},                                                                  \
  {                                                                                            \
    op, size, true, KERNEL_CODE(".byte 0x67; rep " name suffix),                               \
        KERNEL_CODE(".byte 0x67; repne " name suffix), KERNEL_CODE(".byte 0x67; " name suffix) \
  }
#define STRINGS(op, name)                                                       \
  STRING(op, name, "b", 1), STRING(op, name, "w", 2), STRING(op, name, "d", 4), \
      STRING(op, name, "q", 8)

u64 ReadElement(const u8* p, unsigned size) {
  u64 v = 0;
  memcpy(&v, p, size);
  return v;
}

// What the manual's pseudo-code does, on a copy of the memory.
struct Model {
  u64 rax, rcx, rsi, rdi, flags;
};

void Fill(unsigned seed) {
  for (u64 i = 0; i < 2 * kSize; i++) {
    source[i] = static_cast<u8>(seed * 31 + i * 7 + (i >> 7));
    target[i] = static_cast<u8>(seed * 17 + i * 3 + (i >> 6));
  }
}

u64 SubFlags(u64 a, u64 b, unsigned size) {
  u64 flags;
  const unsigned shift = 64 - 8 * size;
  // Shifted up, all flags but AF and PF are those of the smaller operation.
  asm("cmp %2, %1; pushfq; pop %0" : "=r"(flags) : "r"(a << shift), "r"(b << shift) : "cc");
  u64 low;
  asm("cmp %b2, %b1; pushfq; pop %0"
      : "=r"(low)
      : "q"(static_cast<u8>(a)), "q"(static_cast<u8>(b))
      : "cc");
  constexpr u64 kLow = kFlagAf | kFlagPf;
  return (flags & kFlagsArithmetic & ~kLow) | (low & kLow);
}

u64 Advance(u64 value, i64 by, bool address32) {
  return address32 ? static_cast<u32>(value + static_cast<u64>(by)) : value + static_cast<u64>(by);
}

// Runs `model` to its end; kind 0: once, 1: REP/REPE, 2: REPNE.
void Predict(const Code& c, int kind, bool down, u8* s, u8* t, Model* m) {
  const i64 step = down ? -static_cast<i64>(c.size) : static_cast<i64>(c.size);
  u64 count = c.address32 ? static_cast<u32>(m->rcx) : m->rcx;
  const u64 n = kind == 0 ? 1 : count;
  for (u64 i = 0; i < n; i++) {
    u8* const si = s + (static_cast<u32>(m->rsi) - kSource);
    u8* const di = t + (static_cast<u32>(m->rdi) - kTarget);
    bool stop = false;
    switch (c.op) {
      case Op::kMovs:
        memmove(di, si, c.size);
        break;
      case Op::kStos:
        memcpy(di, &m->rax, c.size);
        break;
      case Op::kLods: {
        const u64 v = ReadElement(si, c.size);
        const u64 mask = c.size == 8 ? ~0ull : (1ull << (8 * c.size)) - 1;
        m->rax = c.size == 4 ? v : (m->rax & ~mask) | v;
        break;
      }
      case Op::kCmps:
      case Op::kScas: {
        const u64 a = c.op == Op::kCmps ? ReadElement(si, c.size) : m->rax;
        m->flags = SubFlags(a, ReadElement(di, c.size), c.size);
        const bool equal = (m->flags & kFlagZf) != 0;
        stop = kind == 1 ? !equal : equal;
        break;
      }
    }
    if (c.op != Op::kStos && c.op != Op::kScas) m->rsi = Advance(m->rsi, step, c.address32);
    if (c.op != Op::kLods) m->rdi = Advance(m->rdi, step, c.address32);
    if (kind != 0) {
      m->rcx = Advance(m->rcx, -1, c.address32);
      if (stop) return;
    }
  }
}

u8 model_source[2 * kSize], model_target[2 * kSize];

void TestAll() {
  const Code codes[] = {STRINGS(Op::kMovs, "movs"), STRINGS(Op::kStos, "stos"),
                        STRINGS(Op::kLods, "lods"), STRINGS(Op::kCmps, "cmps"),
                        STRINGS(Op::kScas, "scas")};
  for (const Code& c : codes) {
    if (c.size == 1 && !c.address32) Print("  %s:\n", kOpNames[static_cast<int>(c.op)]);
    Group group(c.address32 ? "all counts, directions and places, 32-bit addresses"
                            : "all counts, directions and places");
    unsigned seed = 0;
    for (int kind = 0; kind < 3; kind++) {
      for (const bool down : {false, true}) {
        for (const u64 count : {0ull, 1ull, 2ull, 3ull, 7ull, 8ull, 63ull, 200ull}) {
          if (kind == 0 && count != 1) continue;
          // In one page, over the border of two, misaligned.
          for (const u64 place : {u64{1800}, kSize - 16, kSize - 3, kSize + 1500}) {
            Fill(++seed);
            // Equal stretches, so that comparisons go on for a while.
            if (c.op == Op::kCmps && count > 3) memcpy(target + place, source + place, count);
            memcpy(model_source, source, sizeof(model_source));
            memcpy(model_target, target, sizeof(model_target));
            const u64 junk = c.address32 ? kHigh32 : 0;
            Model m = {0x8070605040302010 + seed, count | junk, kSource + place + (seed & 1),
                       kTarget + place + (seed >> 1 & 3), kFlagCf};
            // Behind a 32-bit address the upper half does not count, and is cleared if written.
            Regs regs = {.rax = m.rax,
                         .rcx = m.rcx,
                         .rsi = m.rsi | junk,
                         .rdi = m.rdi | junk,
                         .rflags = kFlagsFixed | kFlagCf | (down ? kFlagDf : 0)};
            const bool compares = c.op == Op::kCmps || c.op == Op::kScas;
            // Of the others F2 is undefined.
            if (kind == 2 && !compares) continue;
            Predict(c, kind, down, model_source, model_target, &m);
            const void* const code = kind == 0 ? c.once : kind == 1 ? c.rep : c.repne;
            const Outcome o = RunKernel(code, regs);
            // With a count of 0 nothing is written, whatever the upper halves hold.
            const bool nothing = kind != 0 && count == 0;
            const u64 mask = c.address32 ? 0xffffffff : ~0ull;
            bool good =
                o.Done() && o.frame.rax == m.rax && (o.frame.rcx & mask) == (m.rcx & mask) &&
                (o.frame.rsi & mask) == (m.rsi & mask) && (o.frame.rdi & mask) == (m.rdi & mask) &&
                (o.frame.rflags & kFlagsArithmetic) == m.flags &&
                memcmp(source, model_source, sizeof(model_source)) == 0 &&
                memcmp(target, model_target, sizeof(model_target)) == 0;
            if (!nothing && !c.address32) good &= o.frame.rcx == m.rcx;
            if (!group.Case(good)) {
              Print(
                  "  size %u kind %d %s count %lu place %lu: %s rax %lx/%lx rcx %lx/%lx rsi "
                  "%lx/%lx rdi %lx/%lx flags %lx/%lx\n",
                  c.size, kind, down ? "down" : "up", static_cast<u64>(count), place,
                  VectorName(o.frame.vector), o.frame.rax, m.rax, o.frame.rcx, m.rcx, o.frame.rsi,
                  m.rsi, o.frame.rdi, m.rdi, o.frame.rflags & kFlagsArithmetic, m.flags);
            }
          }
        }
      }
    }
  }
}

// Source and target overlap: element by element, as the order of the copies makes visible.
void TestOverlap() {
  struct Case {
    const char* name;
    const void* code;
    unsigned size;
  };
  const Case cases[] = {{"movsb over itself", KERNEL_CODE("rep movsb"), 1},
                        {"movsw over itself", KERNEL_CODE("rep movsw"), 2},
                        {"movsd over itself", KERNEL_CODE("rep movsd"), 4},
                        {"movsq over itself", KERNEL_CODE("rep movsq"), 8}};
  for (const Case& c : cases) {
    Group group(c.name);
    for (const bool down : {false, true}) {
      for (i64 distance = -20; distance <= 20; distance++) {
        for (const u64 count : {5ull, 40ull, 150ull}) {
          Fill(static_cast<unsigned>(distance + 100));
          memcpy(model_source, source, sizeof(model_source));
          const u64 from = kSize - 100, to = from + static_cast<u64>(distance);
          const i64 step = down ? -static_cast<i64>(c.size) : static_cast<i64>(c.size);
          for (u64 i = 0; i < count; i++) {
            const i64 at = static_cast<i64>(i) * step;
            u64 v;
            memcpy(&v, model_source + static_cast<i64>(from) + at, c.size);
            memcpy(model_source + static_cast<i64>(to) + at, &v, c.size);
          }
          const Outcome o = RunKernel(c.code, {.rcx = count,
                                               .rsi = kSource + from,
                                               .rdi = kSource + to,
                                               .rflags = kFlagsFixed | (down ? kFlagDf : 0)});
          const bool good = o.Done() && memcmp(source, model_source, sizeof(model_source)) == 0;
          if (!group.Case(good)) {
            Print("  distance %ld count %lu %s\n", distance, static_cast<u64>(count),
                  down ? "down" : "up");
          }
        }
      }
    }
  }
}

// A page fault in the middle: the registers say what is done, and the rest can be done afterwards.
void TestFaults() {
  const u64 end = kTarget + 2 * kSize, source_end = kSource + 2 * kSize;
  struct Case {
    const char* name;
    const void* code;
    unsigned size;
    bool reads, writes;
  };
  const Case cases[] = {
      {"rep stosb", KERNEL_CODE("rep stosb"), 1, false, true},
      {"rep stosw", KERNEL_CODE("rep stosw"), 2, false, true},
      {"rep stosd", KERNEL_CODE("rep stosd"), 4, false, true},
      {"rep stosq", KERNEL_CODE("rep stosq"), 8, false, true},
      {"rep movsb", KERNEL_CODE("rep movsb"), 1, true, true},
      {"rep movsw", KERNEL_CODE("rep movsw"), 2, true, true},
      {"rep movsd", KERNEL_CODE("rep movsd"), 4, true, true},
      {"rep movsq", KERNEL_CODE("rep movsq"), 8, true, true},
      {"rep lodsb", KERNEL_CODE("rep lodsb"), 1, true, false},
      {"rep lodsq", KERNEL_CODE("rep lodsq"), 8, true, false},
  };
  for (const Case& c : cases) {
    Group group(c.name);
    for (u64 left = 0; left < 40; left++) {
      for (const bool down : {false, true}) {
        // Room for `left` bytes until the absent page.
        const u64 whole = left / c.size;
        const i64 step = down ? -static_cast<i64>(c.size) : static_cast<i64>(c.size);
        const auto start = [&](u64 base, u64 limit) {
          return down ? base + left - c.size : limit - left;
        };
        const auto after = [&](u64 at, u64 n) {
          return at + static_cast<u64>(step * static_cast<i64>(n));
        };
        for (const bool in_source : {false, true}) {
          if (in_source ? !c.reads : !c.writes) continue;
          Fill(static_cast<unsigned>(left));
          Regs regs = {.rax = 0x1111111111111111,
                       .rcx = 100,
                       .rsi = kSource + 4000,
                       .rdi = kTarget + 4000,
                       .rflags = kFlagsFixed | kFlagCf | (down ? kFlagDf : 0)};
          (in_source ? regs.rsi : regs.rdi) =
              in_source ? start(kSource, source_end) : start(kTarget, end);
          const Outcome o = RunKernel(c.code, regs);
          // The element that faults may begin in the page that is there.
          const u64 at = after(in_source ? regs.rsi : regs.rdi, whole);
          const u64 base = in_source ? kSource : kTarget, limit = base + 2 * kSize;
          const u64 cr2 = at >= base && at < limit ? limit : at;
          const u64 error = in_source ? 0 : kPfWrite;
          bool good = o.Is(kPageFault, error) && o.frame.rip == At(c.code) && o.cr2 == cr2 &&
                      o.frame.rcx == 100 - whole &&
                      o.frame.rsi == (c.reads ? after(regs.rsi, whole) : regs.rsi) &&
                      o.frame.rdi == (c.writes ? after(regs.rdi, whole) : regs.rdi) &&
                      (o.frame.rflags & kFlagCf) != 0;
          if (!group.Case(good)) {
            Print("  left %lu %s, in the %s: %s %lx cr2 %lx/%lx rcx %lu/%lu rsi %lx rdi %lx\n",
                  left, down ? "down" : "up", in_source ? "source" : "target",
                  VectorName(o.frame.vector), o.frame.error, o.cr2, cr2, o.frame.rcx, 100 - whole,
                  o.frame.rsi, o.frame.rdi);
          }
        }
      }
    }
  }

  // Repaired page by page, the whole is done.
  static u64 faults;
  faults = 0;
  const u64 va = 0x7100'0000;
  constexpr u64 kPages = 9;
  SetHandler(kPageFault, [](TrapFrame*) {
    faults++;
    Map(ReadCr2() & ~(kPageSize - 1), AllocPage(), kPteW);
  });
  Outcome o = RunKernel(KERNEL_CODE("rep stosb"),
                        {.rax = 0x5a, .rcx = (kPages - 1) * kPageSize, .rdi = va + 100});
  CheckDone("rep stosb over absent pages, mapped by the handler", o);
  CheckEq("... one fault a page", faults, kPages);
  CheckEq("... rdi", o.frame.rdi, va + 100 + (kPages - 1) * kPageSize);
  bool good = true;
  for (u64 i = 0; i < (kPages - 1) * kPageSize; i++) {
    good &= *reinterpret_cast<u8*>(va + 100 + i) == 0x5a;
  }
  Check(good, "... all bytes");
  faults = 0;
  o = RunKernel(KERNEL_CODE("rep movsd"), {.rcx = kPages * 1024, .rsi = va, .rdi = va + 0x100002});
  CheckDone("rep movsd between pages", o);
  CheckEq("... one fault a page of the target", faults, kPages + 1);
  good = memcmp(reinterpret_cast<void*>(va), reinterpret_cast<void*>(va + 0x100002),
                kPages * kPageSize) == 0;
  Check(good, "... all bytes");
  SetHandler(kPageFault, nullptr);

  // Comparisons stop at the first difference, before the absent page behind it.
  const u64 last = source_end - 10;
  memset(source + 2 * kSize - 10, 'a', 10);
  memset(target + 2 * kSize - 10, 'a', 10);
  o = RunKernel(KERNEL_CODE("repe cmpsb"), {.rcx = 50, .rsi = last, .rdi = end - 10});
  CheckFault("repe cmpsb into an absent page", o, kPageFault, 0);
  CheckEq("... rcx", o.frame.rcx, 40);
  CheckEq("... rsi", o.frame.rsi, source_end);
  target[2 * kSize - 1] = 'b';
  o = RunKernel(KERNEL_CODE("repe cmpsb"), {.rcx = 50, .rsi = last, .rdi = end - 10});
  CheckDone("repe cmpsb that ends before it", o);
  CheckEq("... rcx", o.frame.rcx, 40);
  o = RunKernel(KERNEL_CODE("repne scasb"), {.rax = 'b', .rcx = 50, .rdi = end - 10});
  CheckDone("repne scasb that ends before it", o);
  o = RunKernel(KERNEL_CODE("repne scasb"), {.rax = 'z', .rcx = 50, .rdi = end - 10});
  CheckFault("repne scasb into it", o, kPageFault, 0);
  CheckEq("... rdi", o.frame.rdi, end);
  // A count of 0 touches nothing.
  CheckDone("rep movsb of nothing, from nowhere to nowhere",
            RunKernel(KERNEL_CODE("rep movsb"), {.rsi = kHighBase, .rdi = 0x0000900000000000}));
  CheckFault(
      "#GP rep movsb to an address not canonical",
      RunKernel(KERNEL_CODE("rep movsb"), {.rcx = 5, .rsi = kSource, .rdi = 0x0000800000000000}),
      kGeneralProtection);
  o = RunKernel(KERNEL_CODE("rep stosb"), {.rcx = 50, .rdi = 0x00007fffffffffff});
  CheckFault("rep stosb at the end of the lower half, absent", o, kPageFault, kPfWrite);
}

// 32-bit addresses wrap at 4 GB; the absent page at the top is met before.
void TestWrap() {
  const u64 low = AllocPage();
  const u64 top = 0xfffff000;
  u64* const pte = Entry(top);
  if (pte == nullptr) return Skip("wrap at 4 GB", "a large page is in the way");
  const u64 old = *pte;
  *pte = low | kPteP | kPteW;
  Invlpg(top);
  // (The compiler must not know that this pointer is null.)
  u8* first = nullptr;
  asm("" : "+r"(first));
  const u64 old_first = ReadElement(first, 8);
  Outcome o = RunKernel(KERNEL_CODE(".byte 0x67; rep stosb"),
                        {.rax = 0x77, .rcx = kHigh32 | 6, .rdi = kHigh32 | 0xfffffffe});
  CheckDone("rep stosb over 4 GB with 32-bit addresses", o);
  CheckEq("... edi", o.frame.rdi & 0xffffffff, 4);
  CheckEq("... ecx", o.frame.rcx & 0xffffffff, 0);
  CheckEq("... the last bytes below", *reinterpret_cast<u16*>(low + 0xffe), 0x7777);
  CheckEq("... and the first", ReadElement(first, 4), 0x77777777);
  memcpy(first, &old_first, 8);
  *pte = old;
  Invlpg(top);
}

// Interrupted by a timer while it runs: continued without a trace.
void TestInterrupted() {
  static volatile u64 ticks;
  static volatile u64 inside;
  static const void* code;
  static bool consistent;
  ticks = 0;
  inside = 0;
  consistent = true;
  constexpr u64 kBytes = 2u << 20;
  static u64 from, to;
  from = AllocRange(kBytes, kPageSize);
  to = AllocRange(kBytes, kPageSize);
  for (u64 i = 0; i < kBytes; i += 8) *reinterpret_cast<u64*>(from + i) = i * 0x9e3779b97f4a7c15;
  InitPic();
  SetHandler(kIrqBase, [](TrapFrame* frame) {
    ticks = ticks + 1;
    EndOfIrq(0);
    if (frame->rip != At(code)) return;
    inside = inside + 1;
    // rcx counts what is left, wherever it was stopped.
    const u64 done = frame->rsi - from;
    consistent &= done == frame->rdi - to && frame->rcx == kBytes - done;
    if (done > 0)
      consistent &=
          *reinterpret_cast<u8*>(to + done - 1) == *reinterpret_cast<u8*>(from + done - 1);
  });
  UnmaskIrq(0);
  code = KERNEL_CODE("rep movsb");
  bool good = true;
  for (int round = 0; round < 40 && inside < 3; round++) {
    memset(reinterpret_cast<void*>(to), 0, kBytes);
    StartPit(PitMode::kPeriodic, 200);
    const Outcome o =
        RunKernel(code, {.rcx = kBytes, .rsi = from, .rdi = to, .rflags = kFlagsFixed | kFlagIf});
    StopPit();
    good &= o.Done() && o.frame.rcx == 0 && o.frame.rsi == from + kBytes &&
            o.frame.rdi == to + kBytes &&
            memcmp(reinterpret_cast<void*>(from), reinterpret_cast<void*>(to), kBytes) == 0;
  }
  Check(good, "rep movsb of 2 MB under a timer");
  Check(consistent, "... interrupted, its registers fit");
  MaskIrq(0);
  SetHandler(kIrqBase, nullptr);
}

constexpr Section kSections[] = {{"all", TestAll},
                                 {"overlap", TestOverlap},
                                 {"faults", TestFaults},
                                 {"wrap", TestWrap},
                                 {"interrupted", TestInterrupted}};

}  // namespace

int Main() {
  source_frame = AllocRange(2 * kSize, kPageSize);
  target_frame = AllocRange(2 * kSize, kPageSize);
  source = reinterpret_cast<u8*>(source_frame);
  target = reinterpret_cast<u8*>(target_frame);
  for (u64 page = 0; page < 2; page++) {
    Map(kSource + page * kPageSize, source_frame + page * kPageSize, kPteW);
    Map(kTarget + page * kPageSize, target_frame + page * kPageSize, kPteW);
  }
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
