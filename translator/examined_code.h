// SPDX-License-Identifier: Apache-2.0
// What a translation was made from, for those who want to use it elsewhere: the code that was
// looked at, and how it names what moves with its linear address.
#ifndef ALIBI_TRANSLATOR_EXAMINED_CODE_H_
#define ALIBI_TRANSLATOR_EXAMINED_CODE_H_

#include <array>
#include <span>

#include "base/types.h"
#include "isa/ir.h"
#include "isa/moving_parts.h"

namespace alibi::translator {

// How code at an address, and the PCs that it names, are encoded: code can be moved between
// addresses of one form, except kFixed. (Code reaches 2 GB beyond its own page.)
enum class PcForm : u8 {
  kFixed,
  kWide,    // 64-bit constants: none fits 32 bits or is negative
  kKernel,  // sign-extended 32-bit ones, in the highest 2 GB
};

constexpr PcForm FormOf(LinearAddr pc) {
  // The negation of the lowest address there would not fit 32 bits.
  if (pc.value > isa::kKernelBase && pc.value < ~u64{0} - kPageSize) return PcForm::kKernel;
  constexpr u64 kReach = u64{1} << 33;
  const bool wide = pc.value >= kReach && pc.value < (u64{1} << 47) - kReach;
  return wide ? PcForm::kWide : PcForm::kFixed;
}

// A stretch of code, in bytes from a TU's PC.
struct CodeRange {
  i16 begin = 0, end = 0;
  bool Meets(const CodeRange& other) const { return begin < other.end && other.begin < end; }
  bool Holds(const CodeRange& other) const { return begin <= other.begin && other.end <= end; }
};

// What a TU and its flag liveness were made from: the instructions that were decoded, and what of
// them moves. Where a word of one instruction lies in another, as code has it that jumps into its
// instructions, nobody knows what the other one becomes: portable() says no then, and when there is
// too much.
class ExaminedCode {
 public:
  static constexpr unsigned kMostRanges = 24, kMostWords = 32;

  void Clear(bool of_kernel) {
    of_kernel_ = of_kernel;
    range_count_ = word_count_ = instr_count_ = 0;
    portable_ = true;
  }
  // Instructions in that range, once or several times; each of them is noted, too.
  void NoteRange(i64 begin, i64 end) { AddRange({static_cast<i16>(begin), static_cast<i16>(end)}); }
  // An instruction so far behind the TU's PC.
  void Note(const isa::Instr& instr, i64 offset) {
    if (!of_kernel_) return;
    NoteParts(instr, {static_cast<i16>(offset), static_cast<i16>(offset + instr.length)});
  }

  bool portable() const { return portable_; }
  std::span<const CodeRange> ranges() const { return {ranges_.data(), range_count_}; }
  std::span<const isa::MovingWord> words() const { return {words_.data(), word_count_}; }

 private:
  static CodeRange RangeOf(const isa::MovingWord& word) {
    return {word.offset, static_cast<i16>(word.offset + word.size)};
  }
  void AddRange(const CodeRange& range) {
    if (range_count_ > 0 && ranges_[range_count_ - 1].end == range.begin) {
      ranges_[range_count_ - 1].end = range.end;
      return;
    }
    for (const CodeRange& other : ranges()) {
      if (other.Holds(range)) return;
    }
    if (range_count_ == kMostRanges) {
      portable_ = false;
    } else {
      ranges_[range_count_++] = range;
    }
  }
  void NoteParts(const isa::Instr& instr, const CodeRange& range) {
    for (unsigned i = 0; i < word_count_; ++i) {
      if (owners_[i].begin != range.begin && range.Meets(RangeOf(words_[i]))) portable_ = false;
    }
    if (instr_count_ == kMostWords) {
      portable_ = false;
    } else {
      instrs_[instr_count_++] = range;
    }
    const isa::MovingParts parts = isa::MovingPartsOf(instr);
    AddWord(parts.displacement, range);
    AddWord(parts.immediate, range);
  }
  void AddWord(isa::MovingWord word, const CodeRange& owner) {
    if (!word) return;
    word.offset = static_cast<i16>(word.offset + owner.begin);
    for (const isa::MovingWord& other : words()) {
      if (other == word) return;
    }
    for (unsigned i = 0; i < instr_count_; ++i) {
      if (instrs_[i].begin != owner.begin && instrs_[i].Meets(RangeOf(word))) portable_ = false;
    }
    if (word_count_ == kMostWords) {
      portable_ = false;
    } else {
      owners_[word_count_] = owner;
      words_[word_count_++] = word;
    }
  }

  std::array<CodeRange, kMostRanges> ranges_{};
  std::array<isa::MovingWord, kMostWords> words_{};
  // In a kernel: whose the words are, and all instructions.
  std::array<CodeRange, kMostWords> owners_{}, instrs_{};
  unsigned range_count_ = 0, word_count_ = 0, instr_count_ = 0;
  bool of_kernel_ = false;
  bool portable_ = true;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_EXAMINED_CODE_H_
