// SPDX-License-Identifier: Apache-2.0
// Who may touch a page in 32-bit paging with two levels (PSE, PSE-36) and in PAE paging: the rights
// in the entries against the control bits and the kinds of access (Intel SDM vol. 3A 4.3, 4.4, 4.6
// to 4.8). The four-level twin, with more kinds of access, is access.cc.

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kP = 1, kW = 2, kU = 4, kA = 0x20, kD = 0x40, kPs = 0x80;
constexpr u64 kNx = 1ull << 63;
constexpr u32 kPfPresent = 1, kPfWrite = 2, kPfUser = 4, kPfReserved = 8, kPfFetch = 16;
constexpr u32 kCr4Smep = 1u << 20, kCr4Smap = 1u << 21;
constexpr u32 kMsrEfer = 0xc0000080, kEferNxe = 1u << 11;
constexpr u32 kPageSize = 4096;

// RAM from 16 MB on: tables, and a page (large, too) for the accesses.
constexpr u32 kTables = 0x1000000, kLargeFrame = 0x1400000;
// Where the whole of RAM is the user's; the kernel has it at its physical addresses.
constexpr u32 kUserAlias = 0x40000000;
constexpr u32 kAt = 0xc0060000, kFrame = kLargeFrame + 0x60000;
constexpr u32 kCodeOffset = 0x100, kDataOffset = 0x200;
constexpr u32 kMapped = 32u << 20;

enum Kind { kRead, kWrite, kFetch };
struct Access {
  const char* name;
  bool user;
  Kind kind;
};
constexpr Access kAccesses[] = {{"user read", true, kRead},      {"user write", true, kWrite},
                                {"user fetch", true, kFetch},    {"kernel read", false, kRead},
                                {"kernel write", false, kWrite}, {"kernel fetch", false, kFetch}};

struct Mode {
  bool wp, nxe, smep, smap, ac;
};

bool pae;
bool nx_shown, smep_shown, smap_shown, pse36_shown;

// PAE: PDPT, four page directories, the page table. Otherwise: the directory, the table.
constexpr u32 kPdpt = kTables, kDirectories = kTables + 0x1000, kTable = kTables + 0x8000;
u64 ReadEntry(u32 address) {
  return pae ? *reinterpret_cast<volatile u64*>(address)
             : *reinterpret_cast<volatile u32*>(address);
}
void WriteEntry(u32 address, u64 value) {
  const u32 level = address < kTable ? kPageDirectory : kPageTable;
  if (pae) {
    SetEntry(reinterpret_cast<volatile u64*>(address), value, level);
  } else {
    SetEntry(reinterpret_cast<volatile u32*>(address), static_cast<u32>(value), level);
  }
}
u32 DirectoryEntry(u32 va) {
  return pae ? kDirectories + (va >> 21) * 8 : kDirectories + (va >> 22) * 4;
}
u32 TableEntry(u32 va) {
  return pae ? kTable + (va >> 12 & 511) * 8 : kTable + (va >> 12 & 1023) * 4;
}
u32 LargeSize() { return pae ? 2u << 20 : 4u << 20; }

void EnterPaging() {
  memset(reinterpret_cast<void*>(kTables), 0, 0x9000);
  for (u32 pa = 0; pa < kMapped; pa += LargeSize()) {
    WriteEntry(DirectoryEntry(pa), pa | kP | kW | kPs);
    WriteEntry(DirectoryEntry(kUserAlias + pa), pa | kP | kW | kU | kPs);
  }
  for (u32 i = 0; i < 4; i++) {
    if (!pae) continue;
    SetEntry(reinterpret_cast<volatile u64*>(kPdpt + 8 * i), (kDirectories + i * kPageSize) | kP,
             kPointerTable);
  }
  WriteCr4((ReadCr4() & ~(kCr4Pae | kCr4Pse)) | (pae ? kCr4Pae : kCr4Pse));
  WriteCr3(pae ? kPdpt : kDirectories);
  WriteCr0(ReadCr0() | kCr0Pg | kCr0Wp);
}
void LeavePaging() {
  WriteCr0(ReadCr0() & ~kCr0Pg);
  WriteCr4(ReadCr4() & ~(kCr4Pae | kCr4Pse | kCr4Smep | kCr4Smap));
}

struct Entries {
  u64 pde, pte;
  bool large;
};

bool IsReserved(u64 entry, bool large_leaf, const Mode& mode) {
  if (!pae) {
    if (!large_leaf) return false;
    return (entry & (pse36_shown ? 1u << 21 : 0x3fe000u)) != 0;
  }
  if ((entry & kNx) != 0 && !mode.nxe) return true;
  if ((entry >> 52 & 0x7ff) != 0) return true;
  return large_leaf && (entry & 0x1fe000) != 0;
}

struct Verdict {
  bool fault;
  u32 error;
};
Verdict Predict(const Entries& e, const Mode& mode, const Access& access) {
  const bool write = access.kind == kWrite, fetch = access.kind == kFetch;
  const u32 error = (write ? kPfWrite : 0) | (access.user ? kPfUser : 0) |
                    (fetch && ((pae && mode.nxe) || mode.smep) ? kPfFetch : 0);
  if ((e.pde & kP) == 0) return {true, error};
  if (IsReserved(e.pde, e.large, mode)) return {true, error | kPfPresent | kPfReserved};
  u64 rights = e.pde & (kW | kU), nx = pae ? e.pde & kNx : 0;
  if (!e.large) {
    if ((e.pte & kP) == 0) return {true, error};
    if (IsReserved(e.pte, false, mode)) return {true, error | kPfPresent | kPfReserved};
    rights &= e.pte;
    nx |= pae ? e.pte & kNx : 0;
  }
  const bool user_page = (rights & kU) != 0, writable = (rights & kW) != 0;
  bool allowed;
  if (access.user) {
    allowed = user_page && (!write || writable) && (!fetch || nx == 0);
  } else if (fetch) {
    allowed = nx == 0 && !(user_page && mode.smep);
  } else {
    allowed = !(user_page && mode.smap && !mode.ac) && (!write || writable || !mode.wp);
  }
  return {!allowed, error | kPfPresent};
}

const void *read_code, *write_code, *fetch_code;

Outcome Do(const Access& access, const Mode& mode) {
  Frame f;
  f.edi = kAt + (access.kind == kFetch ? kCodeOffset : kDataOffset);
  if (mode.ac) f.eflags |= kFlagAc;
  const void* code = access.kind == kRead    ? read_code
                     : access.kind == kWrite ? write_code
                                             : fetch_code;
  if (!access.user) return Run(code, f);
  f.esp = ProbeStackTop() + kUserAlias;
  return Run(reinterpret_cast<const u8*>(code) + kUserAlias, f, 3);
}

void Install(const Entries& e) {
  WriteEntry(DirectoryEntry(kAt), e.pde);
  if (!e.large) WriteEntry(TableEntry(kAt), e.pte);
  InvalidatePage(kAt);
}

void Try(const Entries& e, const Mode& mode, const Access& access, Group* cases) {
  Verdict want = Predict(e, mode, access);
  const Outcome o = Do(access, mode);
  if (OnQemu() && (want.error & kPfReserved) != 0) want.error &= ~kPfPresent;
  const u32 address = kAt + (access.kind == kFetch ? kCodeOffset : kDataOffset);
  bool good = want.fault ? o.Is(kPageFault, want.error) && o.cr2 == address : o.Done();
  const u64 pde = ReadEntry(DirectoryEntry(kAt)), pte = ReadEntry(TableEntry(kAt));
  const u64 done = want.fault ? 0 : kA | (access.kind == kWrite ? kD : 0);
  if (e.large) {
    good &= pde == (e.pde | done) || (OnQemu() && want.fault && pde == (e.pde | kA));
  } else {
    // A walk that ends in a fault may have marked the directory's entry.
    good &= want.fault ? (pde | kA) == (e.pde | kA) : pde == (e.pde | kA);
    good &= pte == (e.pte | done);
  }
  if (cases->Case(good)) return;
  Print("  %s;%s%s%s%s%s; pde %x %x pte %x %x%s: %s %x cr2 %x, expected %s %x; now %x %x\n",
        access.name, mode.wp ? " WP" : "", mode.nxe ? " NXE" : "", mode.smep ? " SMEP" : "",
        mode.smap ? " SMAP" : "", mode.ac ? " AC" : "", static_cast<u32>(e.pde >> 32),
        static_cast<u32>(e.pde), static_cast<u32>(e.pte >> 32), static_cast<u32>(e.pte),
        e.large ? " large" : "", VectorName(o.vector), o.error, o.cr2,
        want.fault ? "#PF" : "no fault", want.fault ? want.error : 0, static_cast<u32>(pde),
        static_cast<u32>(pte));
}

void SetMode(const Mode& mode) {
  WriteCr0((ReadCr0() & ~kCr0Wp) | (mode.wp ? kCr0Wp : 0));
  const u32 cr4 = (ReadCr4() & ~(kCr4Smep | kCr4Smap)) | (mode.smep ? kCr4Smep : 0) |
                  (mode.smap ? kCr4Smap : 0);
  if (cr4 != ReadCr4()) WriteCr4(cr4);
  if (!nx_shown) return;
  const u64 efer = ReadMsr(kMsrEfer);
  WriteMsr(kMsrEfer, (efer & ~u64{kEferNxe}) | (mode.nxe ? kEferNxe : 0));
}

template <class F>
void ForEachMode(F&& f) {
  for (u32 bits = 0; bits < 32; bits++) {
    const Mode mode = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                       (bits & 16) != 0};
    if ((mode.nxe && !nx_shown) || (mode.smep && !smep_shown) || (mode.smap && !smap_shown))
      continue;
    if (mode.ac && (!mode.smap || mode.smep)) continue;
    SetMode(mode);
    f(mode);
  }
  SetMode({true, false, false, false, false});
}

u64 Spread(u32 bits, const u64* which, u32 count) {
  u64 value = 0;
  for (u32 i = 0; i < count; i++) value |= (bits >> i & 1) != 0 ? which[i] : 0;
  return value;
}

void TestSmall() {
  const u64 entry_bits[] = {kW, kU, kA, kD, kP, pae ? kNx : 0};
  const u64 upper_bits[] = {kW, kU, kP, pae ? kNx : 0};
  const u32 count = pae ? 6 : 5, upper_count = pae ? 4 : 3;
  for (const Access& access : kAccesses) {
    Group cases(access.name);
    ForEachMode([&](const Mode& mode) {
      for (u32 upper = 0; upper < 1u << upper_count; upper++) {
        for (u32 lower = 0; lower < 1u << count; lower++) {
          Entries e = {kTable | Spread(upper, upper_bits, upper_count),
                       kFrame | Spread(lower, entry_bits, count), false};
          if ((e.pde & kP) == 0 && lower % 8 != 7) continue;
          Install(e);
          Try(e, mode, access, &cases);
        }
      }
    });
  }
}

void TestLarge() {
  const u64 bits[] = {kW, kU, kA, kD, kP, pae ? u64{0x2000} : u64{1u << 21}, pae ? kNx : 0};
  const u32 count = pae ? 7 : 6;
  Group cases(pae ? "2 MB pages" : "4 MB pages");
  ForEachMode([&](const Mode& mode) {
    for (u32 b = 0; b < 1u << count; b++) {
      const Entries e = {kLargeFrame | kPs | Spread(b, bits, count), 0, true};
      for (const Access& access : kAccesses) {
        Install(e);
        Try(e, mode, access, &cases);
      }
    }
  });
}

// Every reserved bit by itself, and those that are none.
void TestReserved() {
  Group cases("reserved and ignored bits");
  const Mode mode = {true, nx_shown, false, false, false};
  SetMode(mode);
  for (u32 bit = 8; bit < (pae ? 63u : 32u); bit++) {
    const u64 value = 1ull << bit;
    // Not those of the address.
    const bool address = bit >= 12 && bit < 52;
    for (const Access& access : kAccesses) {
      if (!address || bit > 51) {
        const Entries small = {kTable | kP | kW | kU, kFrame | value | kP | kW | kU, false};
        Install(small);
        Try(small, mode, access, &cases);
        const Entries upper = {kTable | value | kP | kW | kU, kFrame | kP | kW | kU, false};
        Install(upper);
        Try(upper, mode, access, &cases);
      }
      const bool low = bit >= 13 && bit < (pae ? 21u : 22u);
      if ((!address || (low && (pae || bit == 21))) && bit != 12) {
        const Entries large = {kLargeFrame | value | kPs | kP | kW | kU, 0, true};
        Install(large);
        Try(large, mode, access, &cases);
      }
    }
  }
  SetMode({true, false, false, false, false});
}

// The four PDPTEs are registers: loaded with CR3, checked then, and deaf to stores.
void TestPdptes() {
  u64* const pdpt = reinterpret_cast<u64*>(kPdpt);
  const Entries e = {kTable | kP | kW | kU, kFrame | kP | kW | kU, false};
  Install(e);
  const void* load = CODE32("mov cr3, eax");
  Frame f;
  f.eax = kPdpt;
  const u64 good = pdpt[3];
  constexpr u32 kReservedBits[] = {1, 2, 5, 6, 7, 8, 52, 62, 63};
  for (const u32 bit : kReservedBits) {
    pdpt[3] = good | 1ull << bit;
    const Outcome o = Run(load, f);
    pdpt[3] = good;
    if (SkipOnQemu("#GP CR3 load with a reserved bit in a PDPTE")) break;
    CheckFault("#GP CR3 load with a reserved bit in a PDPTE", o, kGeneralProtection, 0, At(load));
  }
  // Without P nothing of it matters, until it is used.
  pdpt[3] = 0x1e6;
  CheckDone("CR3 load with a PDPTE that is not present", Run(load, f));
  Outcome o = Run(read_code, {.edi = kAt + kDataOffset});
  CheckFault("#PF by a PDPTE that is not present", o, kPageFault, 0);
  CheckEq("... cr2", o.cr2, kAt + kDataOffset);
  pdpt[3] = good;
  if (!SkipOnQemu("a PDPTE's change waits for CR3")) {
    o = Run(read_code, {.edi = kAt + kDataOffset});
    CheckFault("a PDPTE's change waits for CR3", o, kPageFault, 0);
  }
  CheckDone("... loaded", Run(load, f));
  CheckDone("... and used", Run(read_code, {.edi = kAt + kDataOffset}));
  CheckEq("a PDPTE has no accessed flag", static_cast<u32>(pdpt[3]), static_cast<u32>(good));
  // The table need not be aligned to a page, only to 32 bytes.
  for (u32 i = 0; i < 4; i++) *reinterpret_cast<u64*>(kPdpt + 0x820 + 8 * i) = pdpt[i];
  f.eax = kPdpt + 0x820;
  CheckDone("a PDPT at 32 bytes", Run(load, f));
  CheckDone("... and used", Run(read_code, {.edi = kAt + kDataOffset}));
  f.eax = kPdpt;
  Run(load, f);
}

void TestBoth() {
  EnterPaging();
  const u8 ret = 0xc3;
  memcpy(reinterpret_cast<void*>(kFrame + kCodeOffset), &ret, 1);
  TestSmall();
  TestLarge();
  TestReserved();
  if (pae) TestPdptes();
  LeavePaging();
}

}  // namespace

int Main() {
  RunOnVmi();
  nx_shown = Cpuid(0x80000000).eax >= 0x80000001 && (Cpuid(0x80000001).edx >> 20 & 1) != 0;
  const bool leaf7 = Cpuid(0).eax >= 7;
  smep_shown = leaf7 && (Cpuid(7).ebx >> 7 & 1) != 0;
  smap_shown = leaf7 && (Cpuid(7).ebx >> 20 & 1) != 0;
  pse36_shown = (Cpuid(1).edx >> 17 & 1) != 0;
  read_code = CODE32("mov eax, [edi]");
  write_code = CODE32("mov [edi], eax");
  fetch_code = CODE32("call edi");
  for (u32 i = 0; i < 2; i++) {
    pae = i != 0;
    if (!Selected(pae ? "pae" : "two")) continue;
    Print("  %s:\n", pae ? "PAE paging" : "two levels");
    TestBoth();
  }
  return Summary();
}

}  // namespace alibi::frobos
