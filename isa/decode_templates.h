// SPDX-License-Identifier: Apache-2.0
// Decoding by template: an instruction whose bytes in front of its displacement and immediate were
// decoded before differs from that one in these two values only. Four in five instructions of a C
// library are such, and a template costs a tenth of a decode.
#ifndef ALIBI_ISA_DECODE_TEMPLATES_H_
#define ALIBI_ISA_DECODE_TEMPLATES_H_

#include <array>
#include <vector>

#include "base/types.h"
#include "isa/decoder.h"
#include "isa/ir.h"

namespace alibi::isa {

class DecodeTemplates {
 public:
  DecodeTemplates();

  // The same result as isa::Decode(), always.
  DecodeStatus Decode(const u8* bytes, unsigned available, LinearAddr pc, unsigned code_bits,
                      Instr* out);

  u64 hits() const { return hits_; }
  u64 misses() const { return misses_; }

  // This thread's: a memory of a pure function, so nobody can tell whose it is.
  static DecodeTemplates& OfThread();

 private:
  // An instruction's first bytes as a number, the first one lowest.
  using Code = unsigned __int128;
  static Code FirstBytes(Code code, unsigned count) {
    return code & ((Code{1} << (8 * count)) - 1);
  }
  // Two of the host's cache lines, which it loads together: most templates are met rarely, and a
  // TU's decoding waits for them.
  struct alignas(128) Template {
    Code code = 0;  // the leading bytes that must be equal; the last byte: how many they are
    InstrShape shape;

    unsigned same() const { return static_cast<unsigned>(code >> 120); }
    void SetCode(Code bytes, unsigned count) {
      code = FirstBytes(bytes, count) | Code{count} << 120;
    }
    bool Fits(Code bytes, unsigned head, unsigned available, unsigned code_bits) const {
      return same() >= head && shape.code_bits == code_bits && shape.length <= available &&
             FirstBytes(bytes ^ code, same()) == 0;
    }
  };
  static_assert(sizeof(Template) == 128);
  static constexpr std::size_t kTemplates = 32768;
  static constexpr std::size_t kWays = 2;
  // An instruction's place among them.
  struct Place {
    unsigned head = 0;  // 0: it has none
    Code code = 0;
    u16* number = nullptr;            // its template's, and 1; 0: there is room for one
    const Template* known = nullptr;  // null: there is none that fits
  };

  Place Find(const u8* bytes, unsigned available, unsigned code_bits);
  static void Fill(const InstrShape& known, Code code, LinearAddr pc, Instr* out);
  DecodeStatus Learn(const Place& place, const u8* bytes, unsigned available, LinearAddr pc,
                     unsigned code_bits, Instr* out);

  static Code Load(const u8* bytes, unsigned available);
  static std::size_t Hash(Code head, unsigned code_bits);
  static void SetBytes(Code code, Instr* instr);
  static u64 ValueAt(Code code, unsigned offset, unsigned size, bool is_signed);

  // Templates lie in the order they were made in, so that a short run touches little memory.
  std::vector<u16> index_;  // by the head's hash, two neighbours for one: as Place::number
  std::vector<Template> templates_;
  u64 hits_ = 0, misses_ = 0;
};

// Bytes in front of the displacement and the immediate; 0: not known, or it says too little about
// the rest. May be wrong where the decoder tells: it is compared with what it found.
unsigned HeadLength(const u8* bytes, unsigned available, unsigned code_bits);

}  // namespace alibi::isa

#endif  // ALIBI_ISA_DECODE_TEMPLATES_H_
