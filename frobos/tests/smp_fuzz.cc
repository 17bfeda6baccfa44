// SPDX-License-Identifier: Apache-2.0
// Random operations of several processors on the same few pages. Each has lines of 64 bytes of its
// own on every page, for data, for code that it writes and calls, and for page-table entries, and
// the pages are page directory, page tables, data and code at once, in other parts with each seed.
// So what a processor reads there depends on nobody else, but what a VMM does for one page it does
// while others use it. Checked are
//  - the digest of all that a processor has read, faults included, and its lines at the end: first
//    it runs alone, then all do so beside each other, with the same result;
//  - sums that all add to by locked instructions, inside a line and across pages;
//  - a mapping and a function that are replaced, with an interrupt to everybody: who looks sees
//    nothing older than what everybody has answered for, and nothing that is not yet there
//    (Intel SDM vol. 3A, 4.10.5 and 9.1.3).
//
// seed=N is the first seed, seeds=N how many (4), ops=N how many operations each (1,500). What
// differs is told with its seed, its processor and its number; `lines` finds an operation that has
// stored something else, as all lines are looked at after each.

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

// --- The pages ---

constexpr u64 kLine = 64, kLinesPerPage = kPageSize / kLine, kEntriesPerLine = kLine / 8;
constexpr unsigned kPages = 8, kTables = 3, kDirectoryEntries = 2;
// Sums are on the first one and behind the last, in plain memory: few, so that processors meet.
constexpr unsigned kSumPages[] = {0, kPages};
u64 pool;         // they and two others, identity-mapped for users, too
u64 user_stacks;  // a page for each processor
u64 roots[2];
// What the page directory among them maps.
constexpr u64 kWindow = kHighBase + (u64{1} << 30);
// Of the first line and the last two, which are everybody's: a word in a line, a misaligned one,
// one on two lines, and one that ends on the next page.
constexpr u64 kSums[] = {8, kPageSize - 45, kPageSize - kLine - 3, kPageSize - 4};
constexpr unsigned kSumsPerPage = sizeof(kSums) / sizeof(kSums[0]);

unsigned EntryLine(u64 cpu) { return static_cast<unsigned>(2 * CpusWanted() + cpu); }
bool IsOwnLine(u64 cpu, u64 line) {
  return line != 0 && line < kLinesPerPage - 2 && line % CpusWanted() == cpu &&
         line != EntryLine(cpu);
}

volatile u8& Byte(u64 at) { return *reinterpret_cast<volatile u8*>(at); }
volatile u16& Half(u64 at) { return *reinterpret_cast<volatile u16*>(at); }
volatile u32& Int(u64 at) { return *reinterpret_cast<volatile u32*>(at); }
volatile u64& Word(u64 at) { return *reinterpret_cast<volatile u64*>(at); }

// --- What all replace and look at ---

constexpr u8 kShootdownVector = 0x61, kPokeVector = 0x62;

// Versions: `announced` counts up before one is there, `answered` when nobody has an older one.
class Versions {
 public:
  u64 Announce() {
    announced_ = announced_ + 1;
    return announced_;
  }
  void Answer() { answered_ = announced_; }
  // Looks while others may replace it. False: what was seen was not there at that time.
  template <class See>
  bool Holds(See see) const {
    const u64 oldest = answered_;
    const u64 seen = see();
    return oldest <= seen && seen <= announced_;
  }

 private:
  volatile u64 announced_ = 0, answered_ = 0;
};

constexpr u64 kReplacedPage = kHighBase + (u64{3} << 30);
u64 replaced_frames[2];
u64 replaced_code;  // in a pool page's first line
Versions page_versions, code_versions;
volatile u32 replacing;
volatile u64 answers;
volatile u64 wrong_pages, wrong_code;  // how often they were too old or too new

void OnShootdown(TrapFrame*) {
  Invlpg(kReplacedPage);
  asm volatile("lock incq %0" : "+m"(answers) : : "memory");
  EndOfIpi();
}
void OnPoke(TrapFrame*) { EndOfIpi(); }

// With interrupts on: others may wait for this one's answer.
void TellEverybody() {
  answers = 0;
  Invlpg(kReplacedPage);
  SendIpi(0, kIpiOthers | kIpiAssert | kShootdownVector);
  while (answers != CpusWanted() - 1) Relax();
}

void ReplacePage() {
  const u64 version = page_versions.Announce();
  const u64 frame = replaced_frames[version % 2];
  Word(frame) = version;
  *Entry(kReplacedPage) = frame | kPteP | kPteW;
  TellEverybody();
  page_versions.Answer();
}
// mov eax, version; ret
void ReplaceCode() {
  const u64 version = code_versions.Announce();
  Word(replaced_code) = 0xb8 | version << 8 | 0xc3ull << 40;
  TellEverybody();
  code_versions.Answer();
}

// --- A processor's operations ---

using Function = u64 (*)(u64);

struct Stream {
  u64 me = 0;
  u64 random = 0;
  u64 digest = 0;  // of all that it saw, and what it saw last
  u64 seen = 0;
  u64 added[2][kSumsPerPage] = {};           // to those of kSumPages
  u64 tables[kDirectoryEntries] = {};        // the page table that each directory entry names
  bool is_code[kPages][kLinesPerPage] = {};  // written by WriteCode, at the line's start
  bool interrupts = true;
  u64 user_stack = 0;  // its top
};
Stream streams[kMaxCpus];
Stream* running[kMaxCpus];  // by the number of the processor that runs it
unsigned role[kPages];      // page directory, kTables page tables, the rest

constexpr unsigned kDirectoryRole = 0, kFirstTableRole = 1;
unsigned PageOf(unsigned wanted_role) {
  unsigned page = 0;
  while (role[page] != wanted_role) ++page;
  return page;
}
u64 PageAddress(u64 page) { return pool + page * kPageSize; }
u64 TableAddress(u64 table) {
  return PageAddress(PageOf(static_cast<unsigned>(kFirstTableRole + table)));
}

u64 Random(u64* state) {  // xorshift64* (Vigna 2016)
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1d;
}
u64 Random(Stream* s, u64 below) { return (Random(&s->random) >> 20) % below; }
void Saw(Stream* s, u64 value) {
  s->seen = value;
  s->digest = (s->digest << 7 | s->digest >> 57) ^ value * 0x9e3779b97f4a7c15;
}

u64* DirectoryEntry(const Stream* s, u64 which) {
  return reinterpret_cast<u64*>(PageAddress(PageOf(kDirectoryRole)) + EntryLine(s->me) * kLine) +
         which;
}
u64* TableEntry(const Stream* s, u64 table, u64 which) {
  return reinterpret_cast<u64*>(TableAddress(table) + EntryLine(s->me) * kLine) + which;
}
u64 WindowAddress(const Stream* s, u64 directory_entry, u64 table_entry) {
  const u64 first = EntryLine(s->me) * kEntriesPerLine;
  return kWindow + ((first + directory_entry) << 21) + ((first + table_entry) << 12);
}

// A line of the stream's own, by one of the addresses that it has.
struct Place {
  u64 address;
  u64 page, line;
};
Place SomePlace(Stream* s) {
  Place place = {};
  do {
    place.line = Random(s, kLinesPerPage);
  } while (!IsOwnLine(s->me, place.line));
  if (Random(s, 2) == 0) {
    place.page = Random(s, kPages);
    place.address = PageAddress(place.page) + place.line * kLine;
    return place;
  }
  const u64 directory_entry = Random(s, kDirectoryEntries);
  const u64 table_entry = Random(s, kEntriesPerLine);
  const u64 entry = *TableEntry(s, s->tables[directory_entry], table_entry);
  place.page = ((entry & kPteAddress) - pool) / kPageSize;
  place.address = WindowAddress(s, directory_entry, table_entry) + place.line * kLine;
  return place;
}
// So many bytes of it, which are written.
u64 SomeBytes(Stream* s, u64 bytes, bool written) {
  const Place place = SomePlace(s);
  if (written) s->is_code[place.page][place.line] = false;
  return place.address + Random(s, kLine - bytes + 1);
}

// By whatever directory entry it has been used.
void Invalidate(const Stream* s, u64 table_entry) {
  for (u64 i = 0; i < kDirectoryEntries; ++i) Invlpg(WindowAddress(s, i, table_entry));
}

// Gives it what it lacks. Only the streams' accesses to their windows fault.
void OnPageFault(TrapFrame* frame) {
  Stream* const s = running[CpuNumber()];
  const u64 at = ReadCr2();
  const u64 index = (at >> 21 & 511) - EntryLine(s->me) * kEntriesPerLine;
  if (at - kWindow >= u64{1} << 30 || index >= kDirectoryEntries) {
    Panic("#PF at %lx, error %lx, from %lx", at, frame->error, frame->rip);
  }
  Saw(s, at ^ frame->error << 56);
  const u64 which = (at >> 12 & 511) - EntryLine(s->me) * kEntriesPerLine;
  u64* const entry = TableEntry(s, s->tables[index], which);
  *entry =
      *entry | kPteP | (frame->error & kPfWrite ? kPteW : 0) | (frame->error & kPfUser ? kPteU : 0);
  // Who has used it by the other directory entry need not have faulted.
  Invalidate(s, which);
}

// Translators judge instructions where they stand, so each operation is there kCopies times.
constexpr unsigned kCopies = 3;
template <unsigned kCopy>
struct Operations {
  // Else the compiler would make one function of all copies.
  static void Apart() { asm volatile("" : : "i"(kCopy)); }

  static void Store(Stream* s) {
    Apart();
    const u64 value = Random(&s->random);
    switch (Random(s, 4)) {
      case 0:
        Byte(SomeBytes(s, 1, true)) = static_cast<u8>(value);
        return;
      case 1:
        Half(SomeBytes(s, 2, true)) = static_cast<u16>(value);
        return;
      case 2:
        Int(SomeBytes(s, 4, true)) = static_cast<u32>(value);
        return;
      default:
        Word(SomeBytes(s, 8, true)) = value;
    }
  }
  static void Load(Stream* s) {
    Apart();
    switch (Random(s, 3)) {
      case 0:
        return Saw(s, Byte(SomeBytes(s, 1, false)));
      case 1:
        return Saw(s, Int(SomeBytes(s, 4, false)));
      default:
        Saw(s, Word(SomeBytes(s, 8, false)));
    }
  }
  static void Modify(Stream* s) {
    Apart();
    u64 value = Random(&s->random), flags;
    const u64 at = SomeBytes(s, 8, true);
    asm volatile(
        "addq %1, (%2)\n"
        "pushfq\n"
        "pop %0\n"
        "xorl %k1, 4(%2)\n"
        "movq (%2), %1"
        : "=&r"(flags), "+r"(value)
        : "r"(at)
        : "cc", "memory");
    Saw(s, value ^ (flags & kFlagsArithmetic) << 48);
  }
  static void ModifyLocked(Stream* s) {
    Apart();
    u64 value = Random(&s->random);
    const u64 at = SomeBytes(s, 8, true);
    switch (Random(s, 4)) {
      case 0:
        asm volatile("lock xaddq %0, (%1)" : "+r"(value) : "r"(at) : "cc", "memory");
        break;
      case 1:
        asm volatile("xchgq %0, (%1)" : "+r"(value) : "r"(at) : "memory");
        break;
      case 2: {
        u64 old = Word(at);
        asm volatile("lock cmpxchgq %1, (%2)" : "+a"(old) : "r"(value), "r"(at) : "cc", "memory");
        value = old;
        break;
      }
      default: {
        u8 carry;
        asm volatile("lock btcl %2, (%1)"
                     : "=@ccc"(carry)
                     : "r"(at), "r"(static_cast<u32>(value % 32))
                     : "memory");
        value = carry;
      }
    }
    Saw(s, value);
  }
  static void Copy(Stream* s) {
    Apart();
    const Place source = SomePlace(s), target = SomePlace(s);
    const bool same_line = source.page == target.page && source.line == target.line;
    // Processors that copy many bytes at a time see that operands overlap by their addresses.
    if (same_line && source.address != target.address) return;
    s->is_code[target.page][target.line] = false;
    u64 from = source.address + Random(s, kLine / 2), to = target.address + Random(s, kLine / 2);
    u64 count = 1 + Random(s, kLine / 2);
    asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
    Saw(s, count);
  }
  static void Add(Stream* s) {
    Apart();
    const u64 page = Random(s, 2), which = Random(s, kSumsPerPage);
    const u64 at = PageAddress(kSumPages[page]) + kSums[which];
    const u64 value = Random(s, 100);
    s->added[page][which] += value;
    if (Random(s, 2) == 0) {
      asm volatile("lock addq %0, (%1)" : : "r"(value), "r"(at) : "cc", "memory");
      return;
    }
    for (bool done = false; !done;) {
      u64 old = Word(at);
      asm volatile("lock cmpxchgq %2, (%3)"
                   : "+a"(old), "=@ccz"(done)
                   : "r"(old + value), "r"(at)
                   : "memory");
    }
  }

  // --- Code ---

  // Functions of a u64*; each is at most 16 bytes.
  static void WriteCode(Stream* s) {
    Apart();
    static constexpr u8 kFunctions[][16] = {
        {0xb8, 1, 2, 3, 4, 0xc3},                                // mov eax, 04030201h; ret
        {0xb8, 1, 2, 3, 4, 0x48, 0x03, 0x07, 0xc3},              // ...; add rax, [rdi]; ret
        {0xb8, 1, 2, 3, 4, 0xf0, 0x48, 0x0f, 0xc1, 0x07, 0xc3},  // ...; lock xadd [rdi], rax; ret
        {0xb8, 1, 2, 3, 4, 0x48, 0x31, 0x47, 0x08, 0x48, 0x8b, 0x47, 0x08, 0xc3},
        // ...; xor [rdi + 8], rax; mov rax, [rdi + 8]; ret
    };
    const Place place = SomePlace(s);
    const u8* const function = kFunctions[Random(s, 4)];
    for (unsigned i = 0; i < 16; ++i) Byte(place.address + i) = function[i];
    s->is_code[place.page][place.line] = true;
    Call(s, place);
  }
  static void PatchCode(Stream* s) {
    Apart();
    const Place place = SomePlace(s);
    if (!s->is_code[place.page][place.line]) return;
    Byte(place.address + 1 + Random(s, 4)) = static_cast<u8>(Random(&s->random));
    Call(s, place);
  }
  static void CallCode(Stream* s) {
    Apart();
    const Place place = SomePlace(s);
    if (s->is_code[place.page][place.line]) Call(s, place);
  }
  static void CallInUserCode(Stream* s) {
    Apart();
    Call(s, SomePlace(s), true);
  }
  // If it is code, and still is when there is an operand: its line is none then, as what functions
  // access may lie in its other half.
  static void Call(Stream* s, const Place& place, bool by_user = false) {
    const u64 operand = SomeBytes(s, 16, true);
    if (!s->is_code[place.page][place.line]) return;
    Cpuid(0);  // serializes: the code may have been written by another address
    const auto function = reinterpret_cast<Function>(place.address);
    Saw(s, by_user ? CallUserHere(function, operand, s->user_stack) : function(operand));
  }

  // --- Page tables ---

  static void ChangeEntry(Stream* s) {
    Apart();
    const u64 table = Random(s, kTables), which = Random(s, kEntriesPerLine);
    u64* const entry = TableEntry(s, table, which);
    const u64 flags = (Random(s, 4) != 0 ? kPteP : 0) | (Random(s, 3) != 0 ? kPteW : 0) |
                      (Random(s, 2) != 0 ? kPteU : 0) | (Random(s, 4) == 0 ? kPteA | kPteD : 0);
    u64 value = PageAddress(Random(s, kPages)) | flags;
    const u64 before = *entry;
    switch (Random(s, 6)) {
      case 0:
        *const_cast<volatile u64*>(entry) = value;
        break;
      case 1:
        asm volatile("xchgq %0, (%1)" : "+r"(value) : "r"(entry) : "memory");
        Saw(s, value);
        break;
      case 2: {
        u64 old = before;
        asm volatile("lock cmpxchgq %1, (%2)"
                     : "+a"(old)
                     : "r"(value), "r"(entry)
                     : "cc", "memory");
        Saw(s, old);
        break;
      }
      case 3:  // absent between its halves
        Int(reinterpret_cast<u64>(entry)) = 0;
        Int(reinterpret_cast<u64>(entry) + 4) = static_cast<u32>(value >> 32);
        Int(reinterpret_cast<u64>(entry)) = static_cast<u32>(value);
        break;
      case 4:
        asm volatile("lock andb %0, (%1)"
                     :
                     : "q"(static_cast<u8>(~(kPteD | kPteW))), "r"(entry)
                     : "cc", "memory");
        break;
      default:
        Byte(reinterpret_cast<u64>(entry)) = static_cast<u8>(value);
    }
    // What was absent nobody can have kept.
    if ((before & kPteP) != 0 || Random(s, 2) != 0) Invalidate(s, which);
  }
  static void LookAtEntry(Stream* s) {
    Apart();
    Saw(s, *TableEntry(s, Random(s, kTables), Random(s, kEntriesPerLine)));
  }
  static void ChangeTable(Stream* s) {
    Apart();
    const u64 which = Random(s, kDirectoryEntries), table = Random(s, kTables);
    *const_cast<volatile u64*>(DirectoryEntry(s, which)) =
        TableAddress(table) | kPteP | kPteW | kPteU;
    s->tables[which] = table;
    for (u64 i = 0; i < kEntriesPerLine; ++i) Invlpg(WindowAddress(s, which, i));
  }
  static void ChangeRoot(Stream* s) {
    Apart();
    WriteCr3(roots[Random(s, 2)]);
  }
  static void FlushAll(Stream*) {
    Apart();
    const u64 cr4 = ReadCr4();
    WriteCr4(cr4 ^ kCr4Pge);
    WriteCr4(cr4);
  }

  // --- Others ---

  static void Poke(Stream* s) {
    Apart();
    const u64 cpu = Random(s, CpusWanted());
    if (cpu != s->me) SendIpi(static_cast<u32>(cpu), kIpiAssert | kPokeVector);
  }
  static void Sleep(Stream* s) {
    Apart();
    DisableInterrupts();
    SendIpi(0, kIpiSelf | kIpiAssert | kPokeVector);
    Halt();  // with interrupts on
    s->interrupts = true;
  }
  static void ChangeInterrupts(Stream* s) {
    Apart();
    s->interrupts = !s->interrupts;
    s->interrupts ? EnableInterrupts() : DisableInterrupts();
  }
  static void Replace(Stream* s) {
    Apart();
    EnableInterrupts();
    s->interrupts = true;
    TakeLock(&replacing);
    Random(s, 2) == 0 ? ReplacePage() : ReplaceCode();
    LeaveLock(&replacing);
  }
  static void LookAtReplaced(Stream*) {
    Apart();
    if (!page_versions.Holds([] { return Word(kReplacedPage); })) {
      asm volatile("lock incq %0" : "+m"(wrong_pages) : : "memory");
    }
    if (!code_versions.Holds([] { return reinterpret_cast<Function>(replaced_code)(0); })) {
      asm volatile("lock incq %0" : "+m"(wrong_code) : : "memory");
    }
  }

  struct Kind {
    const char* name;
    unsigned weight;  // how often it comes, in relation to others
    void (*run)(Stream*);
  };
  static constexpr Kind kKinds[] = {
      {"store", 20, Store},
      {"load", 20, Load},
      {"modify", 12, Modify},
      {"modify locked", 10, ModifyLocked},
      {"copy", 6, Copy},
      {"add to a sum", 10, Add},
      {"write code", 8, WriteCode},
      {"patch code", 8, PatchCode},
      {"call code", 8, CallCode},
      {"call user code", 2, CallInUserCode},
      {"change an entry", 4, ChangeEntry},
      {"look at an entry", 4, LookAtEntry},
      {"change a directory entry", 2, ChangeTable},
      {"change CR3", 2, ChangeRoot},
      {"change CR4.PGE", 1, FlushAll},
      {"interrupt another", 2, Poke},
      {"HLT", 1, Sleep},
      {"change IF", 3, ChangeInterrupts},
      {"replace", 1, Replace},
      {"look at what is replaced", 8, LookAtReplaced},
  };
  // Its name.
  static const char* RunOne(Stream* s) {
    unsigned weights = 0;
    for (const Kind& kind : kKinds) weights += kind.weight;
    u64 chosen = Random(s, weights);
    const Kind* kind = kKinds;
    while (chosen >= kind->weight) chosen -= (kind++)->weight;
    kind->run(s);
    return kind->name;
  }
};

// --- Runs ---

u64 operations;
bool always_look;  // at all lines, after each operation
// After an operation; there is one more, with the lines at the end.
struct Step {
  const char* kind;
  u64 digest;
  u64 seen;
};
Step* alone[kMaxCpus];
Step* beside[kMaxCpus];

// Everything that a seed decides: roles, contents, and where the streams begin.
void Prepare(u64 seed) {
  u64 random = seed * 2 + 1;
  for (int i = 0; i < 8; ++i) Random(&random);
  for (unsigned page = 0; page < kPages; ++page) role[page] = page;
  for (unsigned page = kPages - 1; page > 0; --page) {
    const u64 other = (Random(&random) >> 20) % (page + 1);
    const unsigned kept = role[page];
    role[page] = role[other];
    role[other] = kept;
  }
  for (u64 at = pool; at < pool + kPages * kPageSize; at += 8) Word(at) = Random(&random);
  replaced_code = PageAddress(PageOf(kPages - 1)) + 16;
  for (const unsigned page : kSumPages) {
    for (const u64 sum : kSums) Word(PageAddress(page) + sum) = 0;
  }
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    Stream* const s = &streams[cpu];
    *s = {.me = cpu,
          .random = Random(&random) | 1,
          .user_stack = user_stacks + (cpu + 1) * kPageSize};
    for (u64 i = 0; i < kDirectoryEntries; ++i) {
      s->tables[i] = i;
      *DirectoryEntry(s, i) = TableAddress(i) | kPteP | kPteW | kPteU;
    }
    for (u64 table = 0; table < kTables; ++table) {
      for (u64 i = 0; i < kEntriesPerLine; ++i) {
        *TableEntry(s, table, i) =
            PageAddress((Random(&random) >> 20) % kPages) | kPteP | kPteW | kPteU;
      }
    }
  }
  *Entry(kWindow, 3) = PageAddress(PageOf(kDirectoryRole)) | kPteP | kPteW | kPteU;
  ReplacePage();
  ReplaceCode();
}

const char* RunOne(Stream* s) {
  switch (Random(s, kCopies)) {
    case 0:
      return Operations<0>::RunOne(s);
    case 1:
      return Operations<1>::RunOne(s);
    default:
      return Operations<2>::RunOne(s);
  }
}

void LookAtLines(Stream* s) {
  for (unsigned page = 0; page < kPages; ++page) {
    for (u64 line = 0; line < kLinesPerPage; ++line) {
      if (!IsOwnLine(s->me, line) && line != EntryLine(s->me)) continue;
      for (u64 i = 0; i < kLine; i += 8) Saw(s, Word(PageAddress(page) + line * kLine + i));
    }
  }
}

void RunStream(Stream* s, Step* steps) {
  running[CpuNumber()] = s;
  WriteCr3(roots[0]);
  for (u64 i = 0; i < operations; ++i) {
    steps[i].kind = RunOne(s);
    steps[i].seen = s->seen;
    if (always_look) LookAtLines(s);
    steps[i].digest = s->digest;
  }
  WriteCr3(roots[0]);
  EnableInterrupts();
  LookAtLines(s);
  steps[operations] = {"all lines at the end", s->digest, s->seen};
}

// Tells the first operation that differs.
bool Compare(u64 seed, unsigned cpu) {
  for (u64 i = 0; i <= operations; ++i) {
    if (alone[cpu][i].digest == beside[cpu][i].digest) continue;
    Print("  seed=%lu, processor %u: operation %lu differs: %s, which saw %lx, alone %lx\n", seed,
          cpu, i, alone[cpu][i].kind, beside[cpu][i].seen, alone[cpu][i].seen);
    return false;
  }
  return true;
}

bool CompareSums(u64 seed) {
  bool good = true;
  for (unsigned page = 0; page < 2; ++page) {
    for (unsigned which = 0; which < kSumsPerPage; ++which) {
      u64 wanted = 0;
      for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) wanted += streams[cpu].added[page][which];
      const u64 got = Word(PageAddress(kSumPages[page]) + kSums[which]);
      if (got == wanted) continue;
      Print("  seed=%lu: the sum at %lx %s is %lu, not %lu\n", seed, kSums[which],
            page == 0 ? "of a shared page" : "in plain memory", got, wanted);
      good = false;
    }
  }
  return good;
}

void TestSeeds() {
  const u64 first = NumberOption("seed", 1), count = NumberOption("seeds", 4);
  operations = NumberOption("ops", 1500);
  always_look = HasOption("lines");
  Group digests("what a processor reads beside others is what it reads alone");
  Group sums("locked additions lose nothing");
  for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) {
    const u64 bytes = (operations + 1) * sizeof(Step);
    alone[cpu] = reinterpret_cast<Step*>(AllocRange(bytes, kPageSize));
    beside[cpu] = reinterpret_cast<Step*>(AllocRange(bytes, kPageSize));
  }
  for (u64 seed = first; seed < first + count; ++seed) {
    const u64 wrong_before = wrong_pages + wrong_code;
    Prepare(seed);
    for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) RunStream(&streams[cpu], alone[cpu]);
    Prepare(seed);
    const auto run = [](u64 cpu) { RunStream(&streams[cpu], beside[cpu]); };
    for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) Begin(cpu, run, cpu);
    run(0);
    for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) {
      if (!Finish(cpu)) Panic("seed=%lu: processor %u does not end", seed, cpu);
    }
    for (unsigned cpu = 0; cpu < CpusWanted(); ++cpu) digests.Case(Compare(seed, cpu));
    sums.Case(CompareSums(seed));
    if (wrong_pages + wrong_code != wrong_before) {
      Print("  seed=%lu: %lu pages, %lu functions\n", seed, u64{wrong_pages}, u64{wrong_code});
    }
  }
  CheckEq("a page that is replaced is never too old or too new", wrong_pages, 0);
  constexpr char kFunctions[] = "a function that is replaced is never too old or too new";
  if (!SkipOnQemu(kFunctions)) CheckEq(kFunctions, wrong_code, 0);  // 9.1.3
}

}  // namespace

int Main() {
  InitLapic();
  CheckEq("all processors start", StartAllCpus(), CpusWanted());
  EnableInterrupts();
  SetHandler(kShootdownVector, OnShootdown);
  SetHandler(kPokeVector, OnPoke);
  SetHandler(kPageFault, OnPageFault);
  pool = AllocRange((kPages + 2) * kPageSize, kPageSize);
  user_stacks = AllocRange(kMaxCpus * kPageSize, kPageSize);
  OpenToUsers(pool, user_stacks + kMaxCpus * kPageSize);
  for (u64& frame : replaced_frames) frame = AllocPage();
  Entry(kReplacedPage);  // makes the tables
  Entry(kWindow, 3);
  roots[0] = ReadCr3();
  roots[1] = AllocPage();
  memcpy(reinterpret_cast<void*>(roots[1]), reinterpret_cast<const void*>(roots[0]), kPageSize);
  Everywhere([](u64) { EnableRegistersLikeLinux(); });
  TestSeeds();
  SetHandler(kPageFault, nullptr);
  return Summary();
}

}  // namespace alibi::frobos
