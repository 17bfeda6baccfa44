// SPDX-License-Identifier: Apache-2.0
// A TU's instructions, kept as the guest's bytes: an Instr is 160 bytes, and most are never asked
// for again once they are translated. Whoever asks decodes.
#ifndef ALIBI_TRANSLATOR_INSTR_LIST_H_
#define ALIBI_TRANSLATOR_INSTR_LIST_H_

#include "base/types.h"
#include "isa/features.h"
#include "isa/ir.h"
#include "translator/translation_unit.h"

namespace alibi::translator {

class InstrList {
 public:
  // What Keep() writes.
  static u64 BytesFor(const TranslationUnit& tu);
  static void Keep(const TranslationUnit& tu, u8* bytes);
  // The same, of `count` defined instructions: where each begins in `code`, and the last one ends.
  static u64 BytesFor(unsigned count, unsigned byte_length) { return count + 2 + byte_length; }
  static void Keep(const u8* offsets, unsigned count, const u8* code, u8* bytes);

  // Of a TU of `count` instructions at `pc` that was kept at `bytes`, and was built for these.
  InstrList(const u8* bytes, unsigned count, LinearAddr pc, unsigned code_bits, u32 code_base,
            const isa::FeatureSet* shown)
      : bytes_(bytes),
        pc_(pc),
        shown_(shown),
        code_base_(code_base),
        count_(count),
        code_bits_(code_bits) {}

  unsigned size() const { return count_; }
  LinearAddr pc(unsigned i) const { return pc_ + offsets()[i]; }
  // The last one is undefined: see Keep().
  bool ends_undefined() const { return bytes_[0] != 0; }
  // Where each begins, and the last one ends.
  const u8* offsets() const { return bytes_ + 1; }
  // Decodes: uses vector registers.
  isa::Instr operator[](u64 i) const;
  isa::Instr front() const { return (*this)[0]; }

  class Iterator {
   public:
    Iterator(const InstrList* list, unsigned at) : list_(list), at_(at) {}
    isa::Instr operator*() const { return (*list_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const InstrList* list_;
    unsigned at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, count_}; }

 private:
  // Behind each other: is the last instruction undefined? Where each instruction begins, and the
  // last one ends; their bytes; the last instruction as it would be at 0, if it is undefined: how
  // far the decoder looked for that is not known.
  const u8* code() const { return offsets() + count_ + 1; }

  const u8* bytes_;
  LinearAddr pc_;
  const isa::FeatureSet* shown_;
  u32 code_base_;
  unsigned count_;
  unsigned code_bits_;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_INSTR_LIST_H_
