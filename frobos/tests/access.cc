// SPDX-License-Identifier: Apache-2.0
// Who may touch a page: every combination of the rights in the paging entries with the control bits
// that interpret them and the kinds of access, against the rules of Intel SDM vol. 3A 4.6 (access
// rights), 4.7 (error codes) and 4.8 (accessed and dirty flags).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

// Under a PML4E of its own, so that its rights concern nothing else.
// Within its 1 GB page it lies where RAM is free.
constexpr u64 kAt = kHighBase + 0x0000'1234'0006'0000ull;
// Where the kinds of access look in the page.
constexpr u64 kDescriptorOffset = 0, kCodeOffset = 0x100, kDataOffset = 0x200;
constexpr u16 kLdtSelector = kSpareSelector;
constexpr u16 kFirstInLdt = 4 | 3;
constexpr u64 kReserved51 = 1ull << 51;
constexpr u64 kReservedLow = 1u << 13;  // of a large page's entry

enum class Kind : u8 { kRead, kWrite, kFetch, kImplicit };
struct Access {
  const char* name;
  bool user;
  Kind kind;
};
constexpr Access kAccesses[] = {
    {"user read", true, Kind::kRead},      {"user write", true, Kind::kWrite},
    {"user fetch", true, Kind::kFetch},    {"user descriptor load", true, Kind::kImplicit},
    {"kernel read", false, Kind::kRead},   {"kernel write", false, Kind::kWrite},
    {"kernel fetch", false, Kind::kFetch}, {"kernel descriptor load", false, Kind::kImplicit},
};

struct Mode {
  bool wp, nxe, smep, smap, ac;
};

// The four entries, by level; [0] is not used. A large page ends at its level.
struct Entries {
  u64 at[5];
  unsigned leaf;
};

struct Verdict {
  bool fault;
  u64 error;
};

bool nx_shown, smep_shown, smap_shown, gigabyte_shown;
// See docs/qemu_differences.md.
bool on_qemu;
bool bit51_reserved;
u64* tables[5];  // the entry of each level
u64 frame, large_frame;

bool IsReserved(u64 entry, unsigned level, const Mode& mode) {
  if ((entry & kPteNx) != 0 && !mode.nxe) return true;
  if ((entry & kReserved51) != 0 && bit51_reserved) return true;
  const bool large = (entry & kPtePs) != 0;
  if (level == 4) return large;
  if (level == 3 && large) return !gigabyte_shown || (entry & 0x3fffe000) != 0;
  if (level == 2 && large) return (entry & 0x1fe000) != 0;
  return false;
}

Verdict Predict(const Entries& e, const Mode& mode, const Access& access) {
  const bool write = access.kind == Kind::kWrite, fetch = access.kind == Kind::kFetch;
  // Loads of descriptors are the supervisor's, whoever loads the selector.
  const bool implicit = access.kind == Kind::kImplicit;
  const bool user_mode = access.user && !implicit;
  const u64 error = (write ? kPfWrite : 0) | (user_mode ? kPfUser : 0) |
                    (fetch && (mode.nxe || mode.smep) ? kPfFetch : 0);
  bool user = true, writable = true, executable = true;
  for (unsigned level = 4; level >= e.leaf; level--) {
    const u64 entry = e.at[level];
    if ((entry & kPteP) == 0) return {true, error};
    if (IsReserved(entry, level, mode)) return {true, error | kPfPresent | kPfReserved};
    user &= (entry & kPteU) != 0;
    writable &= (entry & kPteW) != 0;
    executable &= (entry & kPteNx) == 0;
  }
  bool allowed;
  if (user_mode) {
    allowed = user && (!write || writable) && (!fetch || executable);
  } else if (fetch) {
    allowed = executable && !(user && mode.smep);
  } else {
    const bool kept_out = user && mode.smap && (implicit || !mode.ac);
    allowed = !kept_out && (!write || writable || !mode.wp);
  }
  return {!allowed, error | kPfPresent};
}

const void *user_read, *user_write, *user_fetch, *user_load;
const void *kernel_read, *kernel_write, *kernel_fetch, *kernel_load;

Outcome Do(const Access& access, const Mode& mode) {
  Regs regs = {.rax = kFirstInLdt, .rdi = kAt + kDataOffset};
  if (access.kind == Kind::kFetch) regs.rdi = kAt + kCodeOffset;
  if (mode.ac) regs.rflags |= kFlagAc;
  const void* const code[2][4] = {{kernel_read, kernel_write, kernel_fetch, kernel_load},
                                  {user_read, user_write, user_fetch, user_load}};
  const void* const which = code[access.user][static_cast<unsigned>(access.kind)];
  return access.user ? RunUser(which, regs) : RunKernel(which, regs);
}

u64 AddressOf(const Access& access) {
  return kAt + (access.kind == Kind::kFetch      ? kCodeOffset
                : access.kind == Kind::kImplicit ? kDescriptorOffset
                                                 : kDataOffset);
}

void Install(const Entries& e) {
  for (unsigned level = 4; level >= e.leaf; level--) {
    if (*tables[level] != e.at[level]) *tables[level] = e.at[level];
  }
  Invlpg(kAt);
}

void Describe(const Entries& e, const Mode& mode, const Access& access) {
  Print("  %s;%s%s%s%s%s;", access.name, mode.wp ? " WP" : "", mode.nxe ? " NXE" : "",
        mode.smep ? " SMEP" : "", mode.smap ? " SMAP" : "", mode.ac ? " AC" : "");
  for (unsigned level = 4; level >= e.leaf; level--) {
    const u64 v = e.at[level];
    Print(" L%u:%s%s%s%s%s%s%s%s%s", level, (v & kPteP) ? "P" : "-", (v & kPteW) ? "W" : "",
          (v & kPteU) ? "U" : "", (v & kPteA) ? "A" : "", (v & kPteD) ? "D" : "",
          (v & kPtePs) ? "S" : "", (v & kPteNx) ? "X" : "", (v & kReserved51) ? "51" : "",
          level > 1 && (v & kPtePs) && (v & kReservedLow) ? "13" : "");
  }
  Print(":");
}

// One access to what is installed, with the verdict and what it leaves in the entries.
bool Try(const Entries& e, const Mode& mode, const Access& access, Group* group) {
  Verdict want = Predict(e, mode, access);
  // QEMU lets EFLAGS.AC open user pages to implicit accesses, too.
  if (on_qemu && mode.smap && mode.ac && access.kind == Kind::kImplicit) return true;
  const Outcome o = Do(access, mode);
  // QEMU reports reserved bits without bit 0 of the error code.
  if (on_qemu && (want.error & kPfReserved) != 0) want.error &= ~kPfPresent;
  bool good;
  if (want.fault) {
    good = o.Is(kPageFault, want.error) && o.cr2 == AddressOf(access);
  } else {
    good = o.Done();
  }
  // The leaf's flags change if and only if the access is done. Those above may be set by the walk.
  bool flags = true;
  for (unsigned level = 4; level >= e.leaf; level--) {
    u64 expected = e.at[level], got = *tables[level];
    if (!want.fault) {
      expected |= kPteA;
      if (level == e.leaf && access.kind == Kind::kWrite) expected |= kPteD;
    } else if (level != e.leaf || (on_qemu && level > 1)) {
      // (QEMU sets it in a large page's entry before it looks at the rights.)
      expected |= kPteA, got |= kPteA;
    }
    flags &= got == expected;
  }
  if (group->Case(good && flags)) return good && flags;
  Describe(e, mode, access);
  if (!good) {
    Print(" got %s %lx cr2 %lx, expected %s %lx\n", VectorName(o.frame.vector), o.frame.error,
          o.cr2, want.fault ? "#PF" : "no fault", want.fault ? want.error : 0);
  } else {
    Print(" good, but the entries are");
    for (unsigned level = 4; level >= e.leaf; level--) Print(" %lx", *tables[level]);
    Print("\n");
  }
  return false;
}

void SetMode(const Mode& mode) {
  const u64 cr0 = ReadCr0(), cr4 = ReadCr4(), efer = ReadMsr(kMsrEfer);
  const u64 new_cr0 = (cr0 & ~kCr0Wp) | (mode.wp ? kCr0Wp : 0);
  const u64 new_cr4 =
      (cr4 & ~(kCr4Smep | kCr4Smap)) | (mode.smep ? kCr4Smep : 0) | (mode.smap ? kCr4Smap : 0);
  const u64 new_efer = (efer & ~kEferNxe) | (mode.nxe ? kEferNxe : 0);
  if (new_cr0 != cr0) WriteCr0(new_cr0);
  if (new_cr4 != cr4) WriteCr4(new_cr4);
  if (new_efer != efer) WriteMsr(kMsrEfer, new_efer);
}

// "full" on the command line: no mode is left out.
enum class Modes { kFew, kMost };
bool LeftOut(const Mode& mode, Modes which) {
  if (HasOption("full")) return false;
  // NXE has nothing to do with the others.
  if (nx_shown && !mode.nxe && (which == Modes::kFew || mode.smep || mode.smap)) return true;
  return which == Modes::kFew && mode.smep && mode.smap;
}

template <class F>
void ForEachMode(F&& f, Modes which = Modes::kMost) {
  for (unsigned bits = 0; bits < 32; bits++) {
    const Mode mode = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                       (bits & 16) != 0};
    if ((mode.nxe && !nx_shown) || (mode.smep && !smep_shown) || (mode.smap && !smap_shown))
      continue;
    // Without SMAP the flag means nothing here: once is enough.
    if (mode.ac && !mode.smap && (mode.wp || mode.smep)) continue;
    if (LeftOut(mode, which)) continue;
    f(mode);
  }
}

constexpr u64 kUpper = kPteP | kPteW | kPteU | kPteA;
u64 TableOf(unsigned level) { return reinterpret_cast<u64>(tables[level - 1]) & kPteAddress; }

Entries Usual() {
  return {{0, frame | kPteP | kPteW | kPteU | kPteA | kPteD, TableOf(2) | kUpper,
           TableOf(3) | kUpper, TableOf(4) | kUpper},
          1};
}

// One bit of a counter per paging bit.
u64 Spread(unsigned bits, const u64* which, unsigned count) {
  u64 value = 0;
  for (unsigned i = 0; i < count; i++) value |= (bits >> i & 1) != 0 ? which[i] : 0;
  return value;
}

void TestSmallPages() {
  constexpr u64 kPteBits[] = {kPteW, kPteU, kPteNx, kPteA, kPteD, kPteP, kReserved51};
  constexpr u64 kPdeBits[] = {kPteW, kPteU, kPteNx, kPteA, kPteP, kReserved51};
  for (const Access& access : kAccesses) {
    Group group(access.name);
    ForEachMode([&](const Mode& mode) {
      SetMode(mode);
      Entries e = Usual();
      for (unsigned pde = 0; pde < 1u << 6; pde++) {
        const u64 upper = Spread(pde, kPdeBits, 6);
        // One cause of a fault at a time; not present decides alone.
        if ((upper & kPteP) == 0 && (upper & (kReserved51 | kPteNx)) != 0) continue;
        if ((upper & kReserved51) != 0 && (!bit51_reserved || (upper & kPteNx) != 0)) continue;
        for (unsigned pte = 0; pte < 1u << 7; pte++) {
          const u64 lower = Spread(pte, kPteBits, 7);
          if ((upper & kPteP) == 0 && pte % 16 != 15) continue;
          if ((lower & kPteP) == 0 && (lower & (kPteD | kPteNx)) != 0) continue;
          if ((lower & kReserved51) != 0 && (!bit51_reserved || (lower & (kPteD | kPteA)) != 0))
            continue;
          if ((upper & kReserved51) != 0 && (lower & (kPteA | kPteD)) != 0) continue;
          e.at[2] = TableOf(2) | upper;
          e.at[1] = frame | lower;
          Install(e);
          Try(e, mode, access, &group);
        }
      }
    });
  }
  SetMode({true, nx_shown, false, false, false});
}

// The same page touched twice: what the first access cached must not decide the second.
void TestTwice() {
  constexpr u64 kPteBits[] = {kPteW, kPteU, kPteNx, kPteD};
  constexpr u64 kPdeBits[] = {kPteW, kPteU};
  Group group("an access after another one to the same page");
  ForEachMode(
      [&](const Mode& mode) {
        SetMode(mode);
        Entries e = Usual();
        for (unsigned bits = 0; bits < 1u << 6; bits++) {
          e.at[1] = frame | kPteP | Spread(bits & 15, kPteBits, 4);
          e.at[2] = TableOf(2) | kPteP | Spread(bits >> 4, kPdeBits, 2);
          for (const Access& first : kAccesses) {
            for (const Access& second : kAccesses) {
              Install(e);
              if (!Try(e, mode, first, &group)) continue;
              Entries now = e;
              for (unsigned level = 4; level > 0; level--) now.at[level] = *tables[level];
              Try(now, mode, second, &group);
            }
          }
        }
      },
      Modes::kFew);
  SetMode({true, nx_shown, false, false, false});
}

void TestLargePages() {
  constexpr u64 kBits[] = {kPteW, kPteU, kPteNx, kPteA, kPteD, kPteP, kReserved51, kReservedLow};
  for (const unsigned leaf : {2u, 3u}) {
    if (leaf == 3 && !gigabyte_shown) {
      Skip("1 GB pages", "CPUID has none");
      continue;
    }
    Group group(leaf == 2 ? "2 MB pages" : "1 GB pages");
    ForEachMode([&](const Mode& mode) {
      SetMode(mode);
      Entries e = Usual();
      e.leaf = leaf;
      for (unsigned bits = 0; bits < 1u << 8; bits++) {
        const u64 value = Spread(bits, kBits, 8);
        const u64 reserved = value & (kReserved51 | kReservedLow);
        if (reserved != 0 && (value & (kPteA | kPteD)) != 0) continue;
        if (reserved == (kReserved51 | kReservedLow)) continue;
        if ((value & kReserved51) != 0 && !bit51_reserved) continue;
        // The 1 GB page is RAM from 0 on: its page at kAt's offset must be ours.
        e.at[leaf] = (leaf == 2 ? large_frame : 0) | kPtePs | value;
        for (const Access& access : kAccesses) {
          Install(e);
          Try(e, mode, access, &group);
        }
      }
    });
    // Whatever was under the large page is a table again.
    Install(Usual());
    FlushTlb();
  }
  SetMode({true, nx_shown, false, false, false});
}

// The rights of all levels count.
void TestUpperLevels() {
  constexpr u64 kBits[] = {kPteW, kPteU, kPteNx, kPteP};
  for (const unsigned level : {3u, 4u}) {
    Group group(level == 3 ? "rights in the PDPTE" : "rights in the PML4E");
    ForEachMode([&](const Mode& mode) {
      SetMode(mode);
      for (unsigned bits = 0; bits < 1u << 4; bits++) {
        for (const u64 lower : {kPteP | kPteW | kPteU, kPteP | kPteU, kPteP | kPteW}) {
          for (const u64 extra : {u64{0}, kPteA, kReserved51 * bit51_reserved,
                                  level == 4 ? u64{kPtePs} : u64{kPteA}}) {
            Entries e = Usual();
            e.at[level] = TableOf(level) | Spread(bits, kBits, 4) | extra;
            e.at[1] = frame | lower;
            for (const Access& access : kAccesses) {
              Install(e);
              Try(e, mode, access, &group);
            }
          }
        }
      }
    });
    Install(Usual());
  }
  SetMode({true, nx_shown, false, false, false});
}

// Control bits take effect without any invalidation (they are no part of a cached translation's
// rights, SDM vol. 3A 4.10.4.1 for those that invalidate by themselves).
void TestToggledModes() {
  constexpr u64 kBits[] = {kPteW, kPteU};
  Group group("control bits toggled over one mapping");
  Entries e = Usual();
  for (int round = 0; round < 12; round++) {
    for (unsigned bits = 0; bits < 4; bits++) {
      e.at[1] = frame | kPteP | kPteA | kPteD | Spread(bits, kBits, 2);
      Install(e);
      for (const Access& access : kAccesses) {
        ForEachMode([&](const Mode& mode) {
          SetMode(mode);
          Try(e, mode, access, &group);
        });
      }
    }
  }
  SetMode({true, nx_shown, false, false, false});
}

// Two ways to the same page: each has its own rights and its own dirty flag, whatever the other
// has left behind.
void TestTwoMappings() {
  const u64 other = kAt + 0x40000000;
  Install(Usual());
  const auto store = [](u64 va) {
    return RunKernel(KERNEL_CODE("mov [rdi], rax"), {.rax = 7, .rdi = va + kDataOffset});
  };
  // The same page directory under two PDPTEs, one of which is read-only and not the user's.
  const u64 table = TableOf(3);
  *Entry(other, 3) = table | kPteP | kPteA;
  FlushTlb();
  CheckDone("store through the writable PDPTE", store(kAt));
  CheckFault("store through the read-only PDPTE of the same tables", store(other), kPageFault,
             kPfWrite | kPfPresent);
  CheckFault("user load through the supervisor's PDPTE",
             RunUser(user_read, {.rdi = other + kDataOffset}), kPageFault, kPfUser | kPfPresent);
  CheckDone("user load through the user's PDPTE", RunUser(user_read, {.rdi = kAt + kDataOffset}));
  SetMode({false, nx_shown, false, false, false});
  CheckDone("... written all the same without CR0.WP", store(other));
  SetMode({true, nx_shown, false, false, false});
  *Entry(other, 3) = 0;

  // Two PTEs for one frame.
  const u64 alias = kAt + kPageSize;
  Map(alias, frame, kPteW);
  *tables[1] = frame | kPteP | kPteW;
  FlushTlb();
  CheckDone("load by the first PTE", RunKernel(kernel_read, {.rdi = kAt + kDataOffset}));
  CheckDone("store by the second PTE", store(alias));
  CheckEq("the first PTE stays clean", *tables[1] & kPteD, 0);
  CheckEq("the second is dirty", *Entry(alias) & kPteD, kPteD);
  CheckDone("store by the first PTE", store(kAt));
  CheckEq("... now it is dirty, too", *tables[1] & kPteD, kPteD);
  Unmap(alias);

  // Two PDEs for one large page, written without CR0.WP.
  const u64 large = kAt + 0x200000;
  SetMode({false, nx_shown, false, false, false});
  u64* const first = Entry(kAt, 2);
  const u64 old = *first;
  *first = large_frame | kPteP | kPtePs;
  *Entry(large, 2) = large_frame | kPteP | kPtePs;
  FlushTlb();
  CheckDone("load by the first PDE", RunKernel(kernel_read, {.rdi = kAt + kDataOffset}));
  CheckDone("store by the second, read-only PDE without CR0.WP", store(large));
  CheckEq("the first PDE stays clean", *first & kPteD, 0);
  CheckDone("store by the first PDE", store(kAt));
  CheckEq("... now it is dirty, too", *first & kPteD, kPteD);
  SetMode({true, nx_shown, false, false, false});
  *first = old;
  *Entry(large, 2) = 0;
  FlushTlb();
}

// Accesses to two pages, and accesses that read first.
void TestPartialAccesses() {
  const u64 next = kAt + kPageSize;
  Install(Usual());
  const auto reset = [next](u64 second) {
    *tables[1] = frame | kPteP | kPteW | kPteU;
    *Entry(next) = second;
    Invlpg(kAt);
    Invlpg(next);
  };
  const u64 other = AllocPage();
  reset(0);
  const void* store = KERNEL_CODE("mov [rdi], rax");
  Outcome o = RunKernel(store, {.rdi = next - 4});
  CheckFault("store into two pages, the second absent", o, kPageFault, kPfWrite);
  CheckEq("... cr2", o.cr2, next);
  reset(other | kPteP | kPteW);
  CheckDone("store into two pages", RunKernel(store, {.rdi = next - 4}));
  CheckEq("... both dirty", (*tables[1] & *Entry(next) & (kPteD | kPteA)), kPteD | kPteA);
  reset(other | kPteP);
  CheckFault("store into two pages, the second read-only", RunKernel(store, {.rdi = next - 4}),
             kPageFault, kPfWrite | kPfPresent);
  reset(other | kPteP | kPteW);
  CheckDone("a load", RunKernel(kernel_read, {.rdi = kAt + kDataOffset}));
  CheckEq("... sets A alone", *tables[1] & (kPteA | kPteD), kPteA);
  // A read-modify-write is a write from its beginning.
  *tables[1] = frame | kPteP;
  Invlpg(kAt);
  CheckFault("a read-modify-write of a read-only page",
             RunKernel(KERNEL_CODE("add [rdi], rax"), {.rdi = kAt + kDataOffset}), kPageFault,
             kPfWrite | kPfPresent);
  CheckFault(
      "CMPXCHG that would not store, to a read-only page",
      RunKernel(KERNEL_CODE("lock cmpxchg [rdi], rbx"), {.rax = 1, .rdi = kAt + kDataOffset}),
      kPageFault, kPfWrite | kPfPresent);
  *Entry(next) = 0;
  Invlpg(next);
}

constexpr Section kSections[] = {
    {"small", TestSmallPages},     {"twice", TestTwice},         {"large", TestLargePages},
    {"upper", TestUpperLevels},    {"toggle", TestToggledModes}, {"two", TestTwoMappings},
    {"part", TestPartialAccesses},
};

void Prepare() {
  nx_shown = HasNx(), smep_shown = HasSmep(), smap_shown = HasSmap();
  gigabyte_shown = HasGigabytePages();
  on_qemu = OptionIs("host", "qemu");
  bit51_reserved = (Cpuid(0x80000008).eax & 0xff) < 52;
  if (!smap_shown) Skip("SMAP", "CPUID has none");
  large_frame = AllocRange(2u << 20, 2u << 20);
  frame = large_frame + (kAt & 0x1fffff);
  for (unsigned level = 4; level > 0; level--) tables[level] = Entry(kAt, level);
  // What the accesses find: in the small and the 2 MB page, and in RAM at the 1 GB page's offset.
  const u8 ret = 0xc3;
  const u64 descriptor = SegmentDescriptor(0x3, 3);
  for (const u64 page : {frame, kAt & 0x3fffffff}) {
    memcpy(reinterpret_cast<void*>(page + kCodeOffset), &ret, 1);
    memcpy(reinterpret_cast<void*>(page + kDescriptorOffset), &descriptor, 8);
  }
  gdt[kLdtSelector / 8] = 0xfff | (kAt & 0xffffff) << 16 | 0x82ull << 40 | (kAt >> 24 & 0xff) << 56;
  gdt[kLdtSelector / 8 + 1] = kAt >> 32;
  asm volatile("lldt %0" : : "r"(kLdtSelector));
  user_read = USER_CODE("mov rax, [rdi]");
  user_write = USER_CODE("mov [rdi], rax");
  user_fetch = USER_CODE("call rdi");
  user_load = USER_CODE("mov fs, eax");
  kernel_read = KERNEL_CODE("mov rax, [rdi]");
  kernel_write = KERNEL_CODE("mov [rdi], rax");
  kernel_fetch = KERNEL_CODE("call rdi");
  kernel_load = KERNEL_CODE("mov fs, eax");
}

}  // namespace

int Main() {
  Prepare();
  for (const Section& s : kSections) {
    if (!Selected("only", s.name)) continue;
    const u64 start = Rdtsc();
    s.run();
    if (HasOption("time")) Print("%s: %lu million cycles\n", s.name, (Rdtsc() - start) / 1000000);
  }
  return Summary();
}

}  // namespace alibi::frobos
