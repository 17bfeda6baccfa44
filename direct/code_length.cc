// SPDX-License-Identifier: Apache-2.0
#include "direct/code_length.h"

#include <array>
#include <initializer_list>

#include "vcpu/cpu_differences.h"

namespace alibi::direct {
namespace {

// What follows an opcode.
enum Part : u16 {
  kModrm = 1 << 0,
  kByte = 1 << 1,     // an immediate of 8 bits
  kWord = 1 << 2,     // ... of 16
  kOperand = 1 << 3,  // ... of 16 or 32, as the operand size says
  kFull = 1 << 4,     // ... 64 with REX.W, else as the operand size says
  kOffset = 1 << 5,   // an address, as the address size says
  kGroup3 = 1 << 6,   // TEST alone has an immediate
  kPrefix = 1 << 7,
  kNot64 = 1 << 8,  // undefined in 64-bit code
  kNear = 1 << 9,   // kOperand; in 64-bit code by the host's CPU (HostDifference::kNarrowBranch)
};
using Map = std::array<u16, 256>;

struct Range {
  unsigned first, last;
};
constexpr void Add(Map* map, u16 parts, std::initializer_list<Range> ranges) {
  for (const Range& range : ranges) {
    for (unsigned opcode = range.first; opcode <= range.last; ++opcode) {
      (*map)[opcode] = static_cast<u16>((*map)[opcode] | parts);
    }
  }
}

// SDM vol. 2, tables.
constexpr Map kOneByte = [] {
  Map map{};
  for (unsigned row = 0; row < 0x40; row += 8) {
    Add(&map, kModrm, {{row, row + 3}});
    Add(&map, kByte, {{row + 4, row + 4}});
    Add(&map, kOperand, {{row + 5, row + 5}});
  }
  Add(&map, kModrm, {{0x63, 0x63}, {0x69, 0x69}, {0x6b, 0x6b}, {0x80, 0x8f}, {0xc0, 0xc1}});
  Add(&map, kModrm, {{0x62, 0x62}, {0xc4, 0xc7}, {0xd0, 0xd3}, {0xd8, 0xdf}, {0xf6, 0xf7}});
  Add(&map, kModrm, {{0xfe, 0xff}});
  Add(&map, kByte, {{0x6a, 0x6b}, {0x70, 0x80}, {0x82, 0x83}, {0xa8, 0xa8}, {0xb0, 0xb7}});
  Add(&map, kByte, {{0xc0, 0xc1}, {0xc6, 0xc6}, {0xc8, 0xc8}, {0xcd, 0xcd}, {0xd4, 0xd5}});
  Add(&map, kByte, {{0xe0, 0xe7}, {0xeb, 0xeb}});
  Add(&map, kOperand, {{0x68, 0x69}, {0x81, 0x81}, {0xa9, 0xa9}, {0xc7, 0xc7}});
  Add(&map, kOperand, {{0x9a, 0x9a}, {0xea, 0xea}});
  Add(&map, kNear, {{0xe8, 0xe9}});
  Add(&map, kWord, {{0xc2, 0xc2}, {0xc8, 0xc8}, {0xca, 0xca}, {0x9a, 0x9a}, {0xea, 0xea}});
  Add(&map, kFull, {{0xb8, 0xbf}});
  Add(&map, kOffset, {{0xa0, 0xa3}});
  Add(&map, kGroup3, {{0xf6, 0xf7}});
  Add(&map, kPrefix, {{0x26, 0x26}, {0x2e, 0x2e}, {0x36, 0x36}, {0x3e, 0x3e}, {0x64, 0x67}});
  Add(&map, kPrefix, {{0xf0, 0xf0}, {0xf2, 0xf3}});
  Add(&map, kNot64, {{0x06, 0x07}, {0x0e, 0x0e}, {0x16, 0x17}, {0x1e, 0x1f}, {0x27, 0x27}});
  Add(&map, kNot64, {{0x2f, 0x2f}, {0x37, 0x37}, {0x3f, 0x3f}, {0x60, 0x61}, {0x82, 0x82}});
  Add(&map, kNot64, {{0x9a, 0x9a}, {0xce, 0xce}, {0xd4, 0xd6}, {0xea, 0xea}});
  return map;
}();
constexpr Map k0F = [] {
  Map map{};
  Add(&map, kModrm, {{0x00, 0x03}, {0x0d, 0x0d}, {0x0f, 0x2f}, {0x40, 0x76}, {0x78, 0x7f}});
  Add(&map, kModrm, {{0x90, 0x9f}, {0xa3, 0xa7}, {0xab, 0xc7}, {0xd0, 0xff}});
  Add(&map, kByte, {{0x0f, 0x0f}, {0x70, 0x73}, {0xa4, 0xa4}, {0xac, 0xac}, {0xba, 0xba}});
  Add(&map, kByte, {{0xc2, 0xc2}, {0xc4, 0xc6}});
  Add(&map, kNear, {{0x80, 0x8f}});
  return map;
}();

struct Sizes {
  bool small = false;          // 66: operands of 16 bits
  bool small_address = false;  // 67
  bool wide = false;           // REX.W
  bool sse4a = false;          // 66 or F2, which give 0F 78 two immediates
};

bool NarrowsBranches() {
  static const bool narrows = !vcpu::HostHasIntelsWay(vcpu::HostDifference::kNarrowBranch);
  return narrows;
}

// ModRM, SIB and displacement.
unsigned OperandLength(const u8* at, bool addresses_of_16) {
  const unsigned mod = *at >> 6, rm = *at & 7;
  if (mod == 3) return 1;
  if (addresses_of_16) {
    if (mod == 0) return rm == 6 ? 3 : 1;
    return 1 + mod;
  }
  const unsigned sib = rm == 4 ? 1 : 0;
  const unsigned base = sib != 0 ? at[1] & 7 : rm;
  const unsigned displacement = mod == 1 ? 1 : mod == 2 || base == 5 ? 4 : 0;
  return 1 + sib + displacement;
}

unsigned PartsLength(u16 parts, const u8* at, const Sizes& sizes, unsigned code_bits) {
  unsigned length = 0;
  if (parts & kModrm) length += OperandLength(at, code_bits == 32 && sizes.small_address);
  const unsigned operand = sizes.small ? 2 : 4;
  if (parts & kByte) length += 1;
  if (parts & kWord) length += 2;
  if (parts & kOperand) length += operand;
  if (parts & kNear) length += code_bits == 64 && !NarrowsBranches() ? 4 : operand;
  if (parts & kFull) length += sizes.wide ? 8 : operand;
  if (parts & kOffset) {
    length += code_bits == 64 ? (sizes.small_address ? 4 : 8) : (sizes.small_address ? 2 : 4);
  }
  if ((parts & kGroup3) && !(*at & 0x30)) length += at[-1] == 0xf6 ? 1 : operand;
  return length;
}

// What a map of VEX, EVEX or XOP has behind its opcode.
unsigned ExtendedLength(unsigned map, const u8* opcode, bool addresses_of_16) {
  if (map == 1 && *opcode == 0x77) return 1;  // VZEROUPPER
  const unsigned operand = OperandLength(opcode + 1, addresses_of_16);
  const unsigned immediate = map == 1    ? (k0F[*opcode] & kByte ? 1 : 0)
                             : map == 3  ? 1
                             : map == 8  ? 1
                             : map == 10 ? 4
                                         : 0;
  return 1 + operand + immediate;
}

bool IsRex(u8 byte, unsigned code_bits) { return code_bits == 64 && (byte & 0xf0) == 0x40; }

}  // namespace

bool IsPrefix(u8 byte, unsigned code_bits) {
  return (kOneByte[byte] & kPrefix) != 0 || IsRex(byte, code_bits);
}

unsigned CodeLength(const u8* bytes, unsigned code_bits) {
  constexpr unsigned kMostPrefixes = 14;
  Sizes sizes;
  unsigned at = 0;
  for (;; ++at) {
    const u8 byte = bytes[at];
    if (IsRex(byte, code_bits)) {
      sizes.wide = byte & 8;
      continue;
    }
    if (!(kOneByte[byte] & kPrefix)) break;
    sizes.wide = false;  // a REX prefix counts directly in front of the opcode
    sizes.small |= byte == 0x66;
    sizes.small_address |= byte == 0x67;
    sizes.sse4a |= byte == 0x66 || byte == 0xf2;
    if (at == kMostPrefixes) return 0;
  }
  if (at > kMostPrefixes) return 0;
  if (sizes.wide) sizes.small = false;
  const bool addresses_of_16 = code_bits == 32 && sizes.small_address;
  const u8 opcode = bytes[at], next = bytes[at + 1];
  const u8* const behind = bytes + at + 1;
  const bool extends = code_bits == 64 || next >= 0xc0;
  if (opcode == 0x0f) {
    if (next == 0x38) return at + 3 + OperandLength(behind + 2, addresses_of_16);
    if (next == 0x3a) return at + 4 + OperandLength(behind + 2, addresses_of_16);
    // MOV from and to control and debug registers takes any ModRM for that of registers.
    if (next >= 0x20 && next <= 0x23) return at + 3;
    u16 parts = k0F[next];
    unsigned more = 0;
    if (next == 0x78 && sizes.sse4a) more = 2;
    return at + 2 + PartsLength(parts, behind + 1, sizes, code_bits) + more;
  }
  if (opcode == 0xc5 && extends) return at + 2 + ExtendedLength(1, behind + 1, addresses_of_16);
  if (opcode == 0xc4 && extends) {
    return at + 3 + ExtendedLength(next & 0x1f, behind + 2, addresses_of_16);
  }
  if (opcode == 0x62 && extends) {
    return at + 4 + ExtendedLength(next & 7, behind + 3, addresses_of_16);
  }
  if (opcode == 0x8f && (next & 0x1f) >= 8) {
    return at + 3 + ExtendedLength(next & 0x1f, behind + 2, addresses_of_16);
  }
  const u16 parts = kOneByte[opcode];
  if (code_bits == 64 && (parts & kNot64)) return 0;
  return at + 1 + PartsLength(parts, behind, sizes, code_bits);
}

CodeLengths::CodeLengths(unsigned code_bits) : code_bits_(code_bits), fixed_{}, operand_{} {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const u16 parts = kOneByte[opcode];
    const bool rex = IsRex(static_cast<u8>(opcode), code_bits);
    const bool undefined = code_bits == 64 && (parts & kNot64);
    constexpr u8 kOthers[] = {0x0f, 0x62, 0x8f, 0xc4, 0xc5};
    bool simple = !rex && !undefined && !(parts & (kPrefix | kGroup3));
    for (const u8 other : kOthers) simple &= opcode != other;
    if (!simple) continue;
    const u8 none[kCodeLengthReads] = {};
    const u16 rest = static_cast<u16>(parts & ~kModrm);
    fixed_[opcode] = static_cast<u8>(1 + PartsLength(rest, none, {}, code_bits));
    if (parts & kModrm) fixed_[opcode] |= kHasModrm;
  }
  for (unsigned modrm = 0; modrm < 256; ++modrm) {
    if (modrm < 0xc0 && (modrm & 7) == 4) continue;
    const u8 bytes[2] = {static_cast<u8>(modrm), 0};
    operand_[modrm] = static_cast<u8>(OperandLength(bytes, false));
  }
}

unsigned CodeLengths::OperandWithSib(const u8* modrm) { return OperandLength(modrm, false); }

}  // namespace alibi::direct
