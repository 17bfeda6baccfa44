// SPDX-License-Identifier: Apache-2.0
// What runs on both sides: a few bytes of user-level code, the state it starts with, and the state
// it ends with.
//
// Both sides see the same linear addresses. Neighbours are not neighbours in guest-physical memory
// (GuestMachine maps them in shuffled order), so an access that crosses pages must be honest.
//
//   10000000  code: two pages, all rights (sequences may change themselves); then nothing
//   20000000  data: see kDataPages
//   30000000  stack: nothing, two pages, nothing; one more page where a 16-bit stack wraps to
//   7123450000000 (47 bits)  two more data pages: addresses that need all of a register
#ifndef ALIBI_TESTSUITE_ORACLE_TEST_CASE_H_
#define ALIBI_TESTSUITE_ORACLE_TEST_CASE_H_

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/types.h"
#include "testsuite/oracle/segments.h"
#include "vcpu/state.h"

namespace alibi::oracle {

inline constexpr u64 kCodeBase = 0x10000000;
inline constexpr unsigned kCodePages = 2;
inline constexpr u64 kCodeBytes = kCodePages * kPageSize;

enum class PageKind : u8 { kAbsent, kReadOnly, kReadWrite };

struct DataPage {
  u64 linear;
  PageKind kind;
};

inline constexpr u64 kDataBase = 0x20000000;
inline constexpr u64 kStackBase = 0x30000000;
inline constexpr u64 kHighBase = 0x712345000000;
inline constexpr u64 kFarStackPage = kStackBase + 0x11000;
inline constexpr std::array<DataPage, 14> kDataPages{{
    {kDataBase + 0 * kPageSize, PageKind::kReadWrite},
    {kDataBase + 1 * kPageSize, PageKind::kReadWrite},
    {kDataBase + 2 * kPageSize, PageKind::kReadOnly},
    {kDataBase + 3 * kPageSize, PageKind::kReadWrite},
    {kDataBase + 4 * kPageSize, PageKind::kAbsent},
    {kDataBase + 5 * kPageSize, PageKind::kReadOnly},
    {kDataBase + 6 * kPageSize, PageKind::kAbsent},
    {kStackBase + 0 * kPageSize, PageKind::kAbsent},
    {kStackBase + 1 * kPageSize, PageKind::kReadWrite},
    {kStackBase + 2 * kPageSize, PageKind::kReadWrite},
    {kStackBase + 3 * kPageSize, PageKind::kAbsent},
    {kHighBase + 0 * kPageSize, PageKind::kReadWrite},
    {kHighBase + 1 * kPageSize, PageKind::kReadWrite},
    {kFarStackPage, PageKind::kReadWrite},
}};
constexpr unsigned CountPresent() {
  unsigned n = 0;
  for (const DataPage& page : kDataPages) n += page.kind != PageKind::kAbsent;
  return n;
}
inline constexpr unsigned kPresentPages = CountPresent();
inline constexpr u64 kImageBytes = kPresentPages * kPageSize;

// The present data pages, in the order of kDataPages.
using MemoryImage = std::array<u8, kImageBytes>;
using CodeImage = std::array<u8, kCodeBytes>;

// What every sequence finds in memory: small numbers, pointers, floating point and noise mixed.
const MemoryImage& InitialMemory();

// Vector state in registers rather than in some XSAVE format.
struct VectorState {
  u16 fcw = 0x37f, fsw = 0;
  u8 ftw = 0;  // abridged: a bit per physical register in use
  u16 fop = 0;
  u64 fip = 0, fdp = 0;
  u32 mxcsr = 0x1f80;
  u8 st[8][10] = {};
  u8 zmm[32][64] = {};
  u64 k[8] = {};
  bool operator==(const VectorState&) const = default;
};

// Where the host's standard XSAVE format keeps what; the compiler of guests and hosts is one CPU.
struct XsaveLayout {
  u32 avx = 0, opmask = 0, zmm_hi256 = 0, hi16_zmm = 0;  // 0: not there
  u64 mask = 3;
  u32 size = 576;
  static const XsaveLayout& Host();
};
void StoreVector(const VectorState& vector, u8* area);
VectorState LoadVector(const u8* area);

struct CpuState {
  std::array<u64, 16> gpr{};
  u64 rip = 0;  // linear: the base of CS included
  // In the order of vcpu::SegmentIndex: ES, CS, SS, DS, FS, GS.
  std::array<u16, 6> selector = {kUserDs, kUserCs64, kUserDs, kUserDs, 0, 0};
  u64 rflags = vcpu::kFlagsReserved1;
  u64 fs_base = 0, gs_base = 0;  // while FS or GS is null
  VectorState vector;
  bool operator==(const CpuState&) const = default;
};

// How a sequence ended.
enum class End : u8 {
  kException,  // `vector`: 3 is the regular end
  kTimeout,    // still running
  kLost,       // the machine is gone: the child died, the guest shut down
};

// Who has executed a sequence on the guest's side.
enum class Way : u8 {
  kTranslated,  // the translator, from the first instruction to the last
  kMixed,       // a satellite, but some instructions amid it were the translator's
  kDirect,      // a satellite, up to the exception that ended it
};

struct Outcome {
  End end = End::kLost;
  Way way = Way::kTranslated;
  bool slow = false;  // of the native side: it took more than a tick
  u8 vector = 0;
  u32 error_code = 0;
  u64 cr2 = 0;  // of #PF
  CpuState state;
  MemoryImage memory;
  CodeImage code;  // the code pages, as the sequence left them
};

struct TestCase {
  u64 seed = 0;
  std::string name;
  // The instructions, laid out one after the other at `initial.rip`; INT3 follows the last one and
  // fills the rest of the code pages.
  std::vector<std::vector<u8>> code;
  CpuState initial;
  // For listings, as far as it is known: 16, 32 or 64 for each instruction.
  std::vector<u8> code_bits;

  unsigned CodeBits() const { return CodeBitsOf(initial.selector[vcpu::kCs]); }
  // The code pages at the start.
  CodeImage CodePages() const {
    CodeImage pages;
    pages.fill(0xcc);
    const std::vector<u8> bytes = Bytes();
    std::memcpy(pages.data() + (initial.rip - kCodeBase), bytes.data(), bytes.size());
    return pages;
  }
  std::vector<u8> Bytes() const {
    std::vector<u8> all;
    for (const auto& instr : code) all.insert(all.end(), instr.begin(), instr.end());
    return all;
  }
};

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_TEST_CASE_H_
