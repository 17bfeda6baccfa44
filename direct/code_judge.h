// SPDX-License-Identifier: Apache-2.0
// May a page of user code run on the host's CPU as it stands? Not if an instruction of
// host_visible.inc begins in it: that would show the host without a trap.
//
// The bytes of such an instruction stand in half of all pages, mostly within others: MOV EDX, 15
// has those of SLDT. One is taken for such if sequences of instructions that begin earlier step
// over it and none arrives at it. They begin
// - at each of the kSpread offsets that end kRunUp bytes before it,
// - nearer only where the caller knows that an instruction begins, and at offsets divisible by 16
//   behind a return, INT3, NOP or eight zeros: as functions begin;
// they skip zeros, too, because linkers pad with them, and end at bytes that are no instruction.
// What lies within an instruction that the caller knows of is none: five calls of one function had
// the bytes of SLDT in their displacements, and kept a hot page of GCC from running.
//
// What is guaranteed: an instruction of the table is found
// - behind kRunUp + 15 bytes of whole instructions, whatever these are: returns and jumps with code
//   behind them, padding of NOPs, INT3 or zeros,
// - in a function that is aligned to 16 and stands behind padding or a return,
// - on the way from a known start, if that is less than kRunUp bytes before it,
// - within kRunUp bytes of the first byte known (the page's own, if `before` is empty): there every
//   offset is a beginning.
//
// What is not: one that stands less than that behind data which a program has among its code, in a
// function that is not aligned or without padding (most are found: real_code_test says how many);
// and one within other instructions into which the program jumps (overlapping code). Such a page
// may be judged eligible, and would show the host. It cannot reach more of it than other code can.
//
// The bytes of some instructions of the table are so common within others (PUSH ES is one byte, 06)
// that a sequence arrives at one in every sixth page. These, by vote in the table, are found where
// no more than three of five sequences step over them (code_votes.h): real_code_test finds all
// but one in a hundred between any two instructions of real code, and says how many behind data.
//
// An instruction belongs to the page of its first byte. A verdict holds as long as the page, and
// the 15 bytes behind it if they were given, stay as they are; the bytes before it are advice.
#ifndef ALIBI_DIRECT_CODE_JUDGE_H_
#define ALIBI_DIRECT_CODE_JUDGE_H_

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "direct/host_traits.h"
#include "direct/host_visible.h"

namespace alibi::direct {

// How the guest's CPU stands where its user code runs.
struct GuestTraits {
  isa::FeatureSet features = {};  // shown and switched on
  u64 xcr0 = 0;                   // 0 while CR4.OSXSAVE is
  bool same_selectors = false;    // its 32-bit code has the host's selector in CS
};
// Of CR4, what counts for them.
inline constexpr u64 kJudgedCr4 = vcpu::kCr4Fsgsbase | vcpu::kCr4Osxsave;
// shown: what the guest's CPUID shows. What CR4 and XCR0 switch off is not in the result.
GuestTraits GuestTraitsOf(const isa::FeatureSet& shown, u64 cr4, u64 xcr0);

struct CodePage {
  std::span<const u8, kPageSize> bytes;
  unsigned code_bits = 64;  // 64 or 32
  // What lies directly before and behind it in the guest's address space; empty: unknown. Of the
  // former the last kContextBefore bytes are used, of the latter the first kContextBehind.
  std::span<const u8> before, behind;
  // Offsets within the page where instructions are known to begin, ascending: a program has
  // executed them, say.
  std::span<const u16> starts;
};

// Where instructions of the table begin in a page, or may begin.
struct HostVisiblePlaces {
  static constexpr unsigned kMost = 4;  // as many breakpoints as a CPU has
  // Offsets within the page; more than kMost: not all are known.
  unsigned count = 0;
  u16 offset[kMost] = {};

  void Add(u16 at);
  std::span<const u16> all() const { return {offset, count}; }
};

// Why a page is not eligible.
struct WhyNot {
  u16 offset = 0;     // of the instruction, within the page
  HostVisible row{};  // what it is, or may be
  // The page's end hides the rest of an instruction that may be one, and `behind` is too short. It
  // cannot be executed before the page behind can.
  bool needs_next = false;
  // There is no other reason: until then the page is as good as eligible.
  bool cut = false;
  // A breakpoint in front of each of these stops every such instruction that is not cut
  // (direct/guards.h). None: no breakpoints do.
  HostVisiblePlaces places;
};

class CodeJudge {
 public:
  static constexpr unsigned kRunUp = 48, kSpread = 16;
  static constexpr unsigned kContextBefore = 256, kContextBehind = 15;

  CodeJudge(const HostTraits& host, const GuestTraits& guest);

  // Nothing: eligible.
  std::optional<WhyNot> Judge(const CodePage& page) const;
  // How many places look like an instruction of the table, wherever instructions begin. To measure.
  unsigned CountRawHits(const CodePage& page) const;

 private:
  using Rows = std::vector<const HostVisibleRow*>;
  // Rows that are looked for together.
  struct Plan {
    Rows all;
    std::vector<u8> leads;          // first bytes of their opcodes
    std::array<Rows, 256> by_lead;  // of 0F: by the second byte, in the next
    std::array<Rows, 256> by_second;

    void Add(const HostVisibleRow* row);
  };
  class Reached;
  class Scan;
  class Finds;

  // What applies to code of one size, and how it is looked for.
  struct Plans {
    Plan by_arrival, by_vote;
  };

  void JudgeByArrival(const CodePage& page, Finds* finds) const;
  void JudgeByVote(const CodePage& page, Finds* finds) const;
  Plans MakePlans(const HostTraits& host, const GuestTraits& guest, CodeSizes size) const;
  const Plans& PlansFor(unsigned code_bits) const;

  // Extensions that the host may have and the guest has not.
  FeatureList hidden_;
  Plans plans64_, plans32_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CODE_JUDGE_H_
