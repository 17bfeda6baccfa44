// SPDX-License-Identifier: Apache-2.0
// The rows of host_visible.inc as data.
#ifndef ALIBI_DIRECT_HOST_VISIBLE_H_
#define ALIBI_DIRECT_HOST_VISIBLE_H_

#include <array>
#include <iterator>
#include <string_view>

#include "base/types.h"
#include "isa/features.h"
#include "isa/opcode_set.h"

namespace alibi::direct {

// Names of rows: what makes a page ineligible.
enum class HostVisible : u8 {
#define ALIBI_HOST_VISIBLE(name, text, code, prefix, map, opcodes, modrm, when, why) k##name,
#include "direct/host_visible.inc"
  kCount
};
inline constexpr unsigned kHostVisibleCount = static_cast<unsigned>(HostVisible::kCount);

enum class OpcodeMap : u8 { kOneByte, k0F, k0F38, k0F3A, kVexMaps, kEvexMaps, kXopMaps };

enum CodeSizes : u8 { kCode64 = 1, kCode32 = 2, kAnyCode = kCode64 | kCode32 };

// Which prefixes select an instruction among those of one opcode.
enum SelectingPrefixes : u8 {
  kNp = 1,
  k66 = 2,
  kF3 = 4,
  kF2 = 8,
  kAnyPrefix = kNp | k66 | kF3 | kF2
};

// Values of the ModRM byte.
struct ModrmRule {
  bool any = false;        // of an instruction without a ModRM byte, too
  u8 registers = 0;        // by reg, with mod = 3
  u8 memory = 0;           // by reg, with mod < 3
  u8 first = 1, last = 0;  // or these

  constexpr bool Fits(u8 modrm) const {
    const u8 digits = modrm >= 0xc0 ? registers : memory;
    return any || ((digits >> (modrm >> 3 & 7)) & 1) || (modrm >= first && modrm <= last);
  }
};

// Extensions, by isa::Feature.
struct FeatureList {
  std::array<u64, 2> words{};
  constexpr bool Has(isa::Feature feature) const {
    const unsigned n = static_cast<unsigned>(feature);
    return (words[n / 64] >> (n % 64)) & 1;
  }
  constexpr void Add(isa::Feature feature) {
    const unsigned n = static_cast<unsigned>(feature);
    words[n / 64] |= u64{1} << (n % 64);
  }
  constexpr bool Overlaps(const FeatureList& other) const {
    return ((words[0] & other.words[0]) | (words[1] & other.words[1])) != 0;
  }
};

struct Condition {
  enum class Kind : u8 {
    kAlways,
    kAlwaysByVote,
    kUnlessCpuidTraps,
    kUnlessTscTraps,
    kUnlessSameXsave,
    kUnlessSameX87Selectors,
    kOnIntel,
    kOnAmd,
    kWithShadowStacks,
    kNotShown,
    kUnknown,
  };
  Kind kind = Kind::kAlways;
  FeatureList features;  // of kNotShown and kUnknown
};

struct HostVisibleRow {
  HostVisible name;
  std::string_view text, why;
  u8 code;    // CodeSizes
  u8 prefix;  // SelectingPrefixes
  OpcodeMap map;
  isa::OpcodeSet opcodes;
  ModrmRule modrm;
  Condition when;
};

const HostVisibleRow& RowOf(HostVisible name);
const std::array<HostVisibleRow, kHostVisibleCount>& HostVisibleRows();

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_HOST_VISIBLE_H_
