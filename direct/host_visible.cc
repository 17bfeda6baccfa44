// SPDX-License-Identifier: Apache-2.0
#include "direct/host_visible.h"

namespace alibi::direct {
namespace {

// The table's words.
using enum OpcodeMap;
using enum isa::Feature;

template <class... N>
constexpr isa::OpcodeSet Opcodes(N... opcodes) {
  return {isa::OpcodeRange(opcodes)...};
}
constexpr isa::OpcodeSet AllOpcodes() { return {isa::OpcodeRange(0x00, 0xff)}; }

template <class... N>
constexpr u8 Digits(N... digits) {
  return static_cast<u8>(((1u << digits) | ...));
}
constexpr ModrmRule AnyModrm() { return {.any = true}; }
template <class... N>
constexpr ModrmRule Registers(N... digits) {
  return {.registers = Digits(digits...)};
}
template <class... N>
constexpr ModrmRule Memory(N... digits) {
  return {.memory = Digits(digits...)};
}
template <class... N>
constexpr ModrmRule Both(N... digits) {
  return {.registers = Digits(digits...), .memory = Digits(digits...)};
}
constexpr ModrmRule Bytes(u8 first, u8 last) { return {.first = first, .last = last}; }
constexpr ModrmRule Byte(u8 value) { return Bytes(value, value); }

constexpr Condition Always() { return {}; }
constexpr Condition AlwaysByVote() { return {Condition::Kind::kAlwaysByVote, {}}; }
constexpr Condition UnlessCpuidTraps() { return {Condition::Kind::kUnlessCpuidTraps, {}}; }
constexpr Condition UnlessTscTraps() { return {Condition::Kind::kUnlessTscTraps, {}}; }
constexpr Condition UnlessSameXsave() { return {Condition::Kind::kUnlessSameXsave, {}}; }
constexpr Condition UnlessSameX87Selectors() {
  return {Condition::Kind::kUnlessSameX87Selectors, {}};
}
constexpr Condition OnIntel() { return {Condition::Kind::kOnIntel, {}}; }
constexpr Condition OnAmd() { return {Condition::Kind::kOnAmd, {}}; }
constexpr Condition WithShadowStacks() { return {Condition::Kind::kWithShadowStacks, {}}; }
template <class... F>
constexpr FeatureList List(F... features) {
  FeatureList list;
  (list.Add(features), ...);
  return list;
}
template <class... F>
constexpr Condition NotShown(F... features) {
  return {Condition::Kind::kNotShown, List(features...)};
}
template <class... F>
constexpr Condition Unknown(F... features) {
  return {Condition::Kind::kUnknown, List(features...)};
}

constexpr std::array<HostVisibleRow, kHostVisibleCount> kRows = {{
#define ALIBI_HOST_VISIBLE(name, text, code, prefix, map, opcodes, modrm, when, why) \
  {HostVisible::k##name, text, why, code, prefix, map, opcodes, modrm, when},
#include "direct/host_visible.inc"
}};

}  // namespace

const HostVisibleRow& RowOf(HostVisible name) { return kRows[static_cast<unsigned>(name)]; }
const std::array<HostVisibleRow, kHostVisibleCount>& HostVisibleRows() { return kRows; }

}  // namespace alibi::direct
