// SPDX-License-Identifier: Apache-2.0
// Litmus tests: what processors may see of each other's loads and stores (Intel SDM vol. 3A, 9.2;
// the model is x86-TSO: Owens, Sarkar and Sewell, "A Better x86 Memory Model: x86-TSO", 2009, whose
// names of the tests these are).
//
// Each test is a few threads on variables x and y, and an outcome that is forbidden, or allowed
// though no interleaving of the threads gives it: such are counted and may be none. A batch runs
// kInstances of a test, each on lines of its own. rounds=N is the number of batches, only=place,...
// says where the variables lie.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/smp.h"

namespace alibi::frobos {
namespace {

constexpr u64 kLine = 64;
constexpr u64 kPages = 8;  // of each variable's instances
// The first line of each page holds code.
constexpr unsigned kPerPage = kPageSize / kLine - 1;
constexpr unsigned kInstances = kPages * kPerPage;
constexpr unsigned kMaxThreads = 4;

// What the threads have seen, and x and y at the end.
struct Seen {
  u64 r[kMaxThreads][2];
  u64 x, y;
};

// The variables of an instance.
struct Instance {
  volatile u64* x;
  volatile u64* y;
};

u64 Load(volatile u64* at) { return *at; }
void Store(volatile u64* at, u64 value) { *at = value; }
void Fence() { asm volatile("mfence" : : : "memory"); }
// A locked instruction on another place orders as well.
void LockedFence() {
  u64 own = 0;
  asm volatile("lock orq $0, %0" : "+m"(own) : : "memory");
}
void Exchange(volatile u64* at, u64 value) {
  asm volatile("xchgq %0, %1" : "+r"(value), "+m"(*at) : : "memory");
}
u64 AddLocked(volatile u64* at, u64 value) {
  asm volatile("lock xaddq %0, %1" : "+r"(value), "+m"(*at) : : "memory");
  return value;
}

using Thread = void (*)(Instance, u64 r[2]);
using Predicate = bool (*)(const Seen&);

struct Test {
  const char* name;
  unsigned threads;
  Thread thread[kMaxThreads];
  Predicate forbidden;
  Predicate relaxed;  // null: there is no such outcome
};

bool Never(const Seen&) { return false; }
bool BothZero(const Seen& o) { return o.r[0][0] == 0 && o.r[1][0] == 0; }
// The two readers of IRIW disagree about the order of the stores.
bool Disagree(const Seen& o) {
  return o.r[2][0] == 1 && o.r[2][1] == 0 && o.r[3][0] == 1 && o.r[3][1] == 0;
}

void StoreX(Instance i, u64*) { Store(i.x, 1); }
void StoreY(Instance i, u64*) { Store(i.y, 1); }
void LoadXy(Instance i, u64* r) {
  r[0] = Load(i.x);
  r[1] = Load(i.y);
}
void LoadYx(Instance i, u64* r) {
  r[0] = Load(i.y);
  r[1] = Load(i.x);
}

constexpr u64 kWhole = 0x0123456789abcdef;

const Test kTests[] = {
    {"SB: store buffering",
     2,
     {[](Instance i, u64* r) { Store(i.x, 1), r[0] = Load(i.y); },
      [](Instance i, u64* r) { Store(i.y, 1), r[0] = Load(i.x); }},
     Never,
     BothZero},
    {"SB with MFENCE",
     2,
     {[](Instance i, u64* r) { Store(i.x, 1), Fence(), r[0] = Load(i.y); },
      [](Instance i, u64* r) { Store(i.y, 1), Fence(), r[0] = Load(i.x); }},
     BothZero,
     nullptr},
    {"SB with a locked instruction elsewhere",
     2,
     {[](Instance i, u64* r) { Store(i.x, 1), LockedFence(), r[0] = Load(i.y); },
      [](Instance i, u64* r) { Store(i.y, 1), LockedFence(), r[0] = Load(i.x); }},
     BothZero,
     nullptr},
    {"SB with XCHG",
     2,
     {[](Instance i, u64* r) { Exchange(i.x, 1), r[0] = Load(i.y); },
      [](Instance i, u64* r) { Exchange(i.y, 1), r[0] = Load(i.x); }},
     BothZero,
     nullptr},
    {"MP: message passing",
     2,
     {[](Instance i, u64*) { Store(i.x, 1), Store(i.y, 1); }, LoadYx},
     [](const Seen& o) { return o.r[1][0] == 1 && o.r[1][1] == 0; },
     nullptr},
    {"MP with XADD",
     2,
     {[](Instance i, u64*) { Store(i.x, 1), AddLocked(i.y, 1); }, LoadYx},
     [](const Seen& o) { return o.r[1][0] == 1 && o.r[1][1] == 0; },
     nullptr},
    {"LB: load buffering",
     2,
     {[](Instance i, u64* r) { r[0] = Load(i.x), Store(i.y, 1); },
      [](Instance i, u64* r) { r[0] = Load(i.y), Store(i.x, 1); }},
     [](const Seen& o) { return o.r[0][0] == 1 && o.r[1][0] == 1; },
     nullptr},
    {"IRIW: independent reads of independent writes",
     4,
     {StoreX, StoreY, LoadXy, LoadYx},
     Disagree,
     nullptr},
    {"IRIW with XCHG",
     4,
     {[](Instance i, u64*) { Exchange(i.x, 1); }, [](Instance i, u64*) { Exchange(i.y, 1); },
      LoadXy, LoadYx},
     Disagree,
     nullptr},
    {"2+2W: two writes twice",
     2,
     {[](Instance i, u64*) { Store(i.x, 1), Store(i.y, 2); },
      [](Instance i, u64*) { Store(i.y, 1), Store(i.x, 2); }},
     [](const Seen& o) { return o.x == 1 && o.y == 1; },
     nullptr},
    {"2+2W with XCHG",
     2,
     {[](Instance i, u64*) { Exchange(i.x, 1), Exchange(i.y, 2); },
      [](Instance i, u64*) { Exchange(i.y, 1), Exchange(i.x, 2); }},
     [](const Seen& o) { return o.x == 1 && o.y == 1; },
     nullptr},
    {"S: a store after what has been read",
     2,
     {[](Instance i, u64*) { Store(i.x, 2), Store(i.y, 1); },
      [](Instance i, u64* r) { r[0] = Load(i.y), Store(i.x, 1); }},
     [](const Seen& o) { return o.r[1][0] == 1 && o.x == 2; },
     nullptr},
    {"R: a store, and a load past it",
     2,
     {[](Instance i, u64*) { Store(i.x, 1), Store(i.y, 1); },
      [](Instance i, u64* r) { Store(i.y, 2), r[0] = Load(i.x); }},
     Never,
     [](const Seen& o) { return o.y == 2 && o.r[1][0] == 0; }},
    {"R with MFENCE",
     2,
     {[](Instance i, u64*) { Store(i.x, 1), Store(i.y, 1); },
      [](Instance i, u64* r) { Store(i.y, 2), Fence(), r[0] = Load(i.x); }},
     [](const Seen& o) { return o.y == 2 && o.r[1][0] == 0; },
     nullptr},
    {"WRC: what a third has been told",
     3,
     {StoreX, [](Instance i, u64* r) { r[0] = Load(i.x), Store(i.y, r[0]); }, LoadYx},
     [](const Seen& o) { return o.r[2][0] == 1 && o.r[2][1] == 0; },
     nullptr},
    {"CoRR: two loads of one place",
     2,
     {StoreX, [](Instance i, u64* r) { r[0] = Load(i.x), r[1] = Load(i.x); }},
     [](const Seen& o) { return o.r[1][0] == 1 && o.r[1][1] == 0; },
     nullptr},
    {"SB+rfi: a processor sees its own store first",
     2,
     {[](Instance i, u64* r) { Store(i.x, 1), r[0] = Load(i.x), r[1] = Load(i.y); },
      [](Instance i, u64* r) { Store(i.y, 1), r[0] = Load(i.y), r[1] = Load(i.x); }},
     [](const Seen& o) { return o.r[0][0] == 0 || o.r[1][0] == 0; },
     [](const Seen& o) { return o.r[0][1] == 0 && o.r[1][1] == 0; }},
    {"eight aligned bytes are stored at once",
     2,
     {[](Instance i, u64*) { Store(i.x, kWhole); }, [](Instance i, u64* r) { r[0] = Load(i.x); }},
     [](const Seen& o) { return o.r[1][0] != 0 && o.r[1][0] != kWhole; },
     nullptr},
    {"XADD: each has a number of its own",
     4,
     {[](Instance i, u64* r) { r[0] = AddLocked(i.x, 1); },
      [](Instance i, u64* r) { r[0] = AddLocked(i.x, 1); },
      [](Instance i, u64* r) { r[0] = AddLocked(i.x, 1); },
      [](Instance i, u64* r) { r[0] = AddLocked(i.x, 1); }},
     [](const Seen& o) {
       u64 taken = 0;
       for (const auto& r : o.r) taken |= u64{1} << r[0];
       return taken != 0xf || o.x != 4;
     },
     nullptr},
};

const Test* test;
u64 x_pages, y_pages, batches;
Seen seen[kInstances];
volatile u64 arrived;
u64 forbidden, relaxed;

Instance InstanceOf(unsigned number) {
  const u64 at = number / kPerPage * kPageSize + (1 + number % kPerPage) * kLine;
  return {reinterpret_cast<volatile u64*>(x_pages + at),
          reinterpret_cast<volatile u64*>(y_pages + at)};
}

void Meet(u64 how_many) {
  asm volatile("lock incq %0" : "+m"(arrived) : : "memory");
  // Whoever pauses may have to be woken, and the others are through by then.
  constexpr unsigned kLooks = 20'000;
  for (unsigned looks = 0; arrived < how_many; ++looks) {
    if (looks > kLooks) Relax();
  }
}

void Judge() {
  for (unsigned i = 0; i < kInstances; ++i) {
    const Instance instance = InstanceOf(i);
    seen[i].x = *instance.x;
    seen[i].y = *instance.y;
    forbidden += test->forbidden(seen[i]);
    relaxed += test->relaxed != nullptr && test->relaxed(seen[i]);
    *instance.x = 0;
    *instance.y = 0;
  }
}

// Where there is no memory: loads give all ones, and stores have no effect.
constexpr u64 kNowhere = 0xfed8'0000;
bool by_callouts;

u64 RunThread(u64 me) {
  const Thread thread = test->thread[me];
  for (u64 batch = 0; batch < batches; ++batch) {
    // A translator that learns what its instructions meet has them all checked from here on.
    for (int i = 0; by_callouts && i < 2; ++i) {
      u64 r[2] = {};
      auto* const nowhere = reinterpret_cast<volatile u64*>(kNowhere);
      thread({nowhere, nowhere}, r);
    }
    Meet((2 * batch + 1) * test->threads);
    // Who comes first need not stay first: each batch begins elsewhere on each processor.
    const u64 first = batch * (me + 1) % 8;
    for (unsigned i = 0; i < kInstances; ++i) {
      const unsigned number = static_cast<unsigned>((first + i) % kInstances);
      u64 r[2] = {};
      thread(InstanceOf(number), r);
      seen[number].r[me][0] = r[0];
      seen[number].r[me][1] = r[1];
    }
    Meet((2 * batch + 2) * test->threads);
    if (me == 0) Judge();  // the others wait for this processor where the next batch begins
  }
  return 0;
}

bool in_user_code;
u64 user_stacks;  // a page for each processor
void RunThreadHere(u64 me) {
  if (in_user_code) {
    CallUserHere(RunThread, me, user_stacks + (me + 1) * kPageSize);
  } else {
    RunThread(me);
  }
}

bool RunTest() {
  arrived = 0;
  for (unsigned cpu = 1; cpu < test->threads; ++cpu) Begin(cpu, RunThreadHere, cpu);
  RunThreadHere(0);
  bool ended = true;
  for (unsigned cpu = 1; cpu < test->threads; ++cpu) ended = Finish(cpu) && ended;
  return ended;
}

// Stores to a page that code runs in are followed by a VMM that translates.
void RunCodeIn(u64 pages) {
  for (u64 page = pages; page < pages + kPages * kPageSize; page += kPageSize) {
    *reinterpret_cast<u8*>(page) = 0xc3;  // ret
    reinterpret_cast<void (*)()>(page)();
  }
}

void RunAll(const char* place) {
  u64 relaxed_of_all = 0;
  for (const Test& one : kTests) {
    test = &one;
    forbidden = 0;
    relaxed = 0;
    if (!RunTest()) Panic("the threads do not end: %s, %s", one.name, place);
    CheckEq(one.name, forbidden, 0);
    relaxed_of_all += relaxed;
  }
  Print("  outcomes of no interleaving, %s: %u\n", place, static_cast<u32>(relaxed_of_all));
}

void TestApart() { RunAll("on pages of their own"); }
void TestCallouts() {
  by_callouts = true;
  RunAll("after accesses to no memory");
  by_callouts = false;
}
void TestBesideCode() {
  RunCodeIn(x_pages);
  RunAll("x beside code");
  RunCodeIn(y_pages);
  RunAll("both beside code");
}
void TestUserCode() {
  user_stacks = AllocRange(kMaxThreads * kPageSize, kPageSize);
  OpenToUsers(0, user_stacks + kMaxThreads * kPageSize);
  Everywhere([](u64) { FlushTlb(); });
  in_user_code = true;
  RunAll("in user code");
  RunCodeIn(x_pages);
  RunAll("in user code, x beside code");
  in_user_code = false;
}

}  // namespace

int Main() {
  InitLapic();
  CheckEq("all processors start", StartAllCpus(), CpusWanted());
  if (CpusWanted() < kMaxThreads) {
    Skip("litmus tests", "they need four processors");
    return Summary();
  }
  asm volatile("sti");
  batches = NumberOption("rounds", 20);
  x_pages = AllocRange(kPages * kPageSize, kPageSize);
  y_pages = AllocRange(kPages * kPageSize, kPageSize);
  constexpr Section kSections[] = {{"apart", TestApart},
                                   {"callouts", TestCallouts},
                                   {"beside_code", TestBesideCode},
                                   {"user", TestUserCode}};
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
