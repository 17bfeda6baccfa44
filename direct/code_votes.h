// SPDX-License-Identifier: Apache-2.0
// Where instructions begin in code that may have data in it: a vote.
//
// Every byte is taken for a beginning, and gives its vote, with those that it has got, to the byte
// behind its instruction. Sequences that begin anywhere fall into step with the program's own after
// few instructions, so that the program's beginnings have nearly all votes, and other bytes few.
// Old votes fade: behind data it takes some instructions until the program's beginnings have most.
//
// For instructions whose bytes are so common within others that a single sequence which arrives,
// as code_judge.h has it for the rest, says nothing.
#ifndef ALIBI_DIRECT_CODE_VOTES_H_
#define ALIBI_DIRECT_CODE_VOTES_H_

#include <array>

#include "base/types.h"
#include "direct/code_length.h"

namespace alibi::direct {

class CodeVotes {
 public:
  // Bytes of the largest piece of code.
  static constexpr unsigned kMostBytes = 4096 + 512;

  // `bytes`: kCodeLengthReads more than `size` can be read. code_bits: 32 or 64. The beginnings
  // known have as many votes as can be.
  template <class IsKnown>
  CodeVotes(const u8* bytes, unsigned size, unsigned code_bits, IsKnown is_known) {
    Reset(size);
    const CodeLengths& lengths = LengthsOf(code_bits);
    for (unsigned at = 0; at < size; ++at) {
      if (is_known(at)) votes_[at] += kMost;
      Count(at, lengths.At(bytes + at));
    }
  }

  // May an instruction begin at one of these offsets (a set over the offsets from `last`
  // downwards)? Not if more than three to two vote for instructions that go on over `last`. Of the
  // instructions of Debian's programs, each has nine tenths of the votes, or one in 10,000 half of
  // them; bytes within others have two fifths once in 300 pages.
  bool Begins(unsigned last, u32 starts_below) const;

 private:
  static constexpr u32 kAgainst = 3, kInFavour = 2;
  static constexpr u32 kVote = 16, kFade = 64, kMost = 8 * kVote * kFade;

  static constexpr unsigned kLongest = 15;

  static const CodeLengths& LengthsOf(unsigned code_bits);
  void Reset(unsigned size);
  void Count(unsigned at, unsigned length) {
    length_[at] = static_cast<u8>(length <= kLongest ? length : 0);
    if (length_[at] != 0) votes_[at + length] += kVote + votes_[at] - votes_[at] / kFade;
  }

  unsigned size_ = 0;
  std::array<u8, kMostBytes> length_;  // of the instruction there; 0: none
  std::array<u32, kMostBytes + 64> votes_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CODE_VOTES_H_
