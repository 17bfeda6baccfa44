// SPDX-License-Identifier: Apache-2.0
#include "direct/row_match.h"

#include "isa/glance.h"

namespace alibi::direct {
namespace {

u8 SelectingPrefixesIn(const CodeBytes& code, unsigned start, unsigned opcode) {
  u8 operand_size = 0, repeat = 0;
  for (unsigned i = start; i < opcode; ++i) {
    if (code.bytes[i] == 0x66) operand_size = k66;
    if (code.bytes[i] == 0xf3) repeat |= kF3;
    if (code.bytes[i] == 0xf2) repeat |= kF2;
  }
  if (repeat != 0) return repeat;
  return operand_size != 0 ? operand_size : u8{kNp};
}

// Where what selects among the rows of a map stands.
struct Place {
  RowMatch match;   // is it this map?
  unsigned opcode;  // the byte that the row's opcodes are about, if kYes
};

Place FindOpcode(OpcodeMap map, const CodeBytes& code, unsigned at) {
  const auto known = [&](unsigned i) { return i < code.size; };
  const auto is = [&](unsigned i, u8 value) { return !known(i) || code.bytes[i] == value; };
  // LDS, LES and BOUND with a memory operand, outside 64-bit code; POP.
  const auto extends = [&](u8 mask, u8 least) {
    return !known(at + 1) || (code.bytes[at + 1] & mask) >= least;
  };
  const auto place = [&](bool fits, unsigned opcode) {
    if (!fits) return Place{RowMatch::kNo, 0};
    return Place{known(opcode) ? RowMatch::kYes : RowMatch::kCut, opcode};
  };
  const u8 least = code.code_bits == 64 ? 0 : 0xc0;
  switch (map) {
    case OpcodeMap::kOneByte:
      return place(true, at);
    case OpcodeMap::k0F:
      return place(is(at, 0x0f), at + 1);
    case OpcodeMap::k0F38:
      return place(is(at, 0x0f) && is(at + 1, 0x38), at + 2);
    case OpcodeMap::k0F3A:
      return place(is(at, 0x0f) && is(at + 1, 0x3a), at + 2);
    case OpcodeMap::kVexMaps: {
      const bool two = is(at, 0xc5), three = is(at, 0xc4);
      return place((two || three) && extends(0xff, least), at + (three ? 3 : 2));
    }
    case OpcodeMap::kEvexMaps:
      return place(is(at, 0x62) && extends(0xff, least), at + 4);
    case OpcodeMap::kXopMaps:
      return place(is(at, 0x8f) && extends(0x1f, 8), at + 3);
  }
  return {RowMatch::kNo, 0};
}

RowMatch MatchFeatures(const Condition& when, const CodeBytes& code, unsigned start,
                       const FeatureList& hidden) {
  const isa::Glance glance = isa::GlanceAt(code.bytes + start, code.size - start, code.code_bits);
  if (glance.status == isa::DecodeStatus::kNeedMoreBytes) return RowMatch::kCut;
  const bool known = glance.status == isa::DecodeStatus::kOk;
  if (when.kind == Condition::Kind::kUnknown) {
    return glance.status == isa::DecodeStatus::kUndefined ? RowMatch::kYes : RowMatch::kNo;
  }
  return known && (hidden.Has(glance.feature) || hidden.Has(glance.state_feature)) ? RowMatch::kYes
                                                                                   : RowMatch::kNo;
}

}  // namespace

RowMatch MatchRow(const HostVisibleRow& row, const CodeBytes& code, unsigned start, unsigned opcode,
                  const FeatureList& hidden) {
  if (!(row.prefix & SelectingPrefixesIn(code, start, opcode))) return RowMatch::kNo;
  const Place place = FindOpcode(row.map, code, opcode);
  if (place.match != RowMatch::kYes) return place.match;
  if (!row.opcodes.Has(code.bytes[place.opcode])) return RowMatch::kNo;
  if (!row.modrm.any) {
    const unsigned modrm = place.opcode + 1;
    if (modrm >= code.size) return RowMatch::kCut;
    if (!row.modrm.Fits(code.bytes[modrm])) return RowMatch::kNo;
  }
  switch (row.when.kind) {
    case Condition::Kind::kNotShown:
    case Condition::Kind::kUnknown:
      return MatchFeatures(row.when, code, start, hidden);
    default:
      return RowMatch::kYes;
  }
}

}  // namespace alibi::direct
