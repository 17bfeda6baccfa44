// SPDX-License-Identifier: Apache-2.0
#include "testsuite/coverage/opcode_space.h"

#include <vector>

namespace alibi::coverage {
namespace {

using Bytes = std::vector<u8>;

// Prefixes in front of the opcode or of its escape byte. REX stands last where it counts.
const std::vector<Bytes>& LegacyPrefixes(unsigned code_bits, Depth depth) {
  static const std::vector<Bytes> kEssential = {{},     {0x66},       {0xf2},       {0xf3},
                                                {0xf0}, {0x66, 0xf2}, {0xf0, 0x66}, {0x66, 0xf3}};
  static const std::vector<Bytes> kMore = {
      {},           {0x66},       {0xf2},       {0xf3},       {0xf0},       {0x67},
      {0x2e},       {0x65},       {0x66, 0xf2}, {0x66, 0xf3}, {0xf2, 0xf3}, {0xf3, 0xf2},
      {0xf0, 0x66}, {0xf0, 0xf2}, {0xf0, 0xf3}, {0x66, 0x67}, {0x66, 0x66}};
  static const std::vector<Bytes> kWithRex = [] {
    std::vector<Bytes> all = kMore;
    for (u8 rex : {0x40, 0x41, 0x44, 0x48, 0x4f}) {
      for (const Bytes& before : {Bytes{}, {0x66}, {0xf2}, {0xf3}, {0xf0}, {0x67}}) {
        Bytes with = before;
        with.push_back(rex);
        all.push_back(with);
      }
    }
    all.push_back({0x48, 0x66});  // a REX that is not the last prefix
    all.push_back({0x48, 0xf3});
    return all;
  }();
  static const std::vector<Bytes> kEssential64 = [] {
    std::vector<Bytes> all = kEssential;
    for (const Bytes& more : {Bytes{0x48}, {0x66, 0x48}, {0xf3, 0x48}, {0xf2, 0x48}, {0x44}}) {
      all.push_back(more);
    }
    return all;
  }();
  if (depth == Depth::kShort) return code_bits == 64 ? kEssential64 : kEssential;
  return code_bits == 64 ? kWithRex : kMore;
}

// Each extension in ModRM.reg, in memory and as a register; all of them where registers select
// instructions as well (the x87 and system opcodes).
const std::vector<u8>& ModRmBytes(bool all) {
  static const std::vector<u8> kAll = [] {
    std::vector<u8> bytes(256);
    for (unsigned i = 0; i < 256; ++i) bytes[i] = static_cast<u8>(i);
    return bytes;
  }();
  static const std::vector<u8> kFew = [] {
    std::vector<u8> bytes;
    for (unsigned reg = 0; reg < 8; ++reg) {
      for (unsigned rest : {0x00u, 0x04u, 0x45u, 0x80u, 0xc1u, 0xc6u}) {
        bytes.push_back(static_cast<u8>(rest | reg << 3));
      }
    }
    return bytes;
  }();
  return all ? kAll : kFew;
}

const std::vector<u8> kFewModRm = {0x00, 0x04, 0x45, 0xc1, 0xd9, 0x1a};
const std::vector<u8> kTwoModRm = {0x00, 0xc1};

bool SelectsByRegister(const Bytes& escape, unsigned opcode) {
  if (escape.empty()) return opcode >= 0xd8 && opcode <= 0xdf;
  return escape.size() == 1 &&
         (opcode <= 0x01 || opcode == 0xae || opcode == 0xc7 || (opcode >= 0x18 && opcode <= 0x1f));
}

bool IsOpcode(const Bytes& escape, unsigned opcode, unsigned code_bits) {
  if (!escape.empty()) return escape.size() != 1 || (opcode != 0x38 && opcode != 0x3a);
  switch (opcode) {
    case 0x0f:
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
    case 0x67:
    case 0xf0:
    case 0xf2:
    case 0xf3:
      return false;
    case 0x62:
    case 0xc4:
    case 0xc5:
      return code_bits != 64;
    default:
      return code_bits != 64 || (opcode & 0xf0) != 0x40;
  }
}

struct Builder {
  InstructionBytes bytes{};
  unsigned size = 0;

  void Add(u8 byte) { bytes[size++] = byte; }
  void Add(const Bytes& more) {
    for (u8 byte : more) Add(byte);
  }
};

void WalkModRm(Builder builder, const std::vector<u8>& modrms, const Visitor& visit) {
  const unsigned at = builder.size++;
  for (u8 modrm : modrms) {
    builder.bytes[at] = modrm;
    if (!visit(builder.bytes, builder.size)) break;
  }
}

}  // namespace

void WalkLegacy(unsigned code_bits, Depth depth, const Visitor& visit) {
  const std::vector<Bytes> kMaps = {{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}};
  for (const Bytes& prefixes : LegacyPrefixes(code_bits, depth)) {
    for (const Bytes& escape : kMaps) {
      for (unsigned opcode = 0; opcode < 256; ++opcode) {
        if (!IsOpcode(escape, opcode, code_bits)) continue;
        Builder builder;
        builder.Add(prefixes);
        builder.Add(escape);
        builder.Add(static_cast<u8>(opcode));
        const bool all = depth == Depth::kFull || SelectsByRegister(escape, opcode);
        if (escape.size() == 1 && opcode == 0x0f) {
          // 3DNow: its opcode comes last.
          for (u8 modrm : {0x00, 0xc1}) {
            for (unsigned suffix = 0; suffix < 256; ++suffix) {
              Builder whole = builder;
              whole.Add(modrm);
              whole.Add(static_cast<u8>(suffix));
              visit(whole.bytes, whole.size);
            }
          }
          continue;
        }
        WalkModRm(builder, ModRmBytes(all), visit);
      }
    }
  }
}

void WalkVex(unsigned code_bits, Depth depth, const Visitor& visit) {
  const bool full = depth == Depth::kFull;
  const std::vector<u8>& modrms = full ? ModRmBytes(false) : kFewModRm;
  constexpr u8 kNoExtension = 0xe0;  // R, X, B, which are inverted
  // Of VEX.vvvv: unused, and a register.
  for (unsigned vvvv : {0xfu, 0xdu}) {
    if (!full && vvvv != 0xf) continue;
    for (unsigned tail = 0; tail < 8; ++tail) {  // L, pp
      const u8 low = static_cast<u8>(vvvv << 3 | tail);
      for (unsigned opcode = 0; opcode < 256; ++opcode) {
        if (full || vvvv == 0xf) {
          Builder two;
          two.Add(Bytes{0xc5, static_cast<u8>(0x80 | low), static_cast<u8>(opcode)});
          WalkModRm(two, modrms, visit);
        }
        for (unsigned map = 0; map < 32; ++map) {
          if (map > 3 && (opcode % 16 != 8 || !full)) continue;  // no such maps
          for (unsigned wide = 0; wide < 2; ++wide) {
            Builder three;
            three.Add(Bytes{0xc4, static_cast<u8>(kNoExtension | map),
                            static_cast<u8>(wide << 7 | low), static_cast<u8>(opcode)});
            WalkModRm(three, modrms, visit);
          }
        }
      }
    }
  }
  // Prefixes that VEX does not allow, and one it does.
  for (const Bytes& prefix : {Bytes{0x66}, {0xf2}, {0xf3}, {0xf0}, {0x48}, {0x67}, {0x2e}}) {
    if (code_bits != 64 && prefix[0] == 0x48) continue;
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      for (u8 tail : {0xf8, 0xf9, 0xe8, 0xe9}) {
        Builder two;
        two.Add(prefix);
        two.Add(Bytes{0xc5, tail, static_cast<u8>(opcode)});
        WalkModRm(two, kTwoModRm, visit);
        Builder three;
        three.Add(prefix);
        three.Add(Bytes{0xc4, 0xe2, tail, static_cast<u8>(opcode)});
        WalkModRm(three, kTwoModRm, visit);
      }
    }
  }
}

void WalkEvex(unsigned code_bits, Depth depth, const Visitor& visit) {
  const bool full = depth == Depth::kFull;
  struct Fields {
    u8 vvvv;  // inverted, with V' as bit 4
    u8 mask;
    bool zeroing, broadcast;
  };
  std::vector<Fields> fields;
  for (u8 vvvv : {0x1f, 0x1d, 0x0f}) {
    for (u8 mask : {0, 1}) {
      for (bool zeroing : {false, true}) {
        for (bool broadcast : {false, true}) {
          const bool plain = vvvv != 0x0f && mask == (vvvv == 0x1d) && !zeroing && !broadcast;
          if (full || plain) fields.push_back({vvvv, mask, zeroing, broadcast});
        }
      }
    }
  }
  const std::vector<u8>& extensions = ModRmBytes(false);
  for (const Fields& f : fields) {
    for (unsigned map = 0; map < 8; ++map) {
      for (unsigned pp = 0; pp < 4; ++pp) {
        for (unsigned wide = 0; wide < 2; ++wide) {
          for (unsigned length = 0; length < 4; ++length) {
            for (unsigned opcode = 0; opcode < 256; ++opcode) {
              Builder builder;
              builder.Add(Bytes{
                  0x62, static_cast<u8>(0xf0 | map),
                  static_cast<u8>(wide << 7 | (f.vvvv & 0xf) << 3 | 4 | pp),
                  static_cast<u8>((f.zeroing ? 0x80 : 0) | length << 5 | (f.broadcast ? 0x10 : 0) |
                                  (f.vvvv & 0x10 ? 8 : 0) | f.mask),
                  static_cast<u8>(opcode)});
              // Groups 12-15, gathers and scatters with hints.
              const bool group = (map == 1 && opcode >= 0x70 && opcode <= 0x73) ||
                                 (map == 2 && (opcode == 0xc6 || opcode == 0xc7));
              WalkModRm(builder, group ? extensions : full ? kFewModRm : kTwoModRm, visit);
            }
          }
        }
      }
    }
  }
  for (const Bytes& prefix : {Bytes{0x66}, {0xf2}, {0xf3}, {0xf0}, {0x48}, {0x67}, {0x2e}}) {
    if (code_bits != 64 && prefix[0] == 0x48) continue;
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      for (unsigned map = 1; map <= 2; ++map) {
        for (u8 p1 : {0x7c, 0x6c, 0x7d, 0x6d}) {
          Builder builder;
          builder.Add(prefix);
          builder.Add(Bytes{0x62, static_cast<u8>(0xf0 | map), p1, 0x48, static_cast<u8>(opcode)});
          WalkModRm(builder, kTwoModRm, visit);
        }
      }
    }
  }
  // The bit of P0 that must be zero, the one of P1 that must be one.
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    for (const Bytes& wrong : {Bytes{0x62, 0xf9, 0x7c, 0x48},
                               {0x62, 0xf1, 0x78, 0x48},
                               {0x62, 0xf2, 0x79, 0x48},
                               {0x62, 0xe1, 0x7c, 0x48},
                               {0x62, 0xd1, 0x7c, 0x48},
                               {0x62, 0xb1, 0x7c, 0x48}}) {
      Builder builder;
      builder.Add(wrong);
      builder.Add(static_cast<u8>(opcode));
      WalkModRm(builder, kTwoModRm, visit);
    }
  }
}

}  // namespace alibi::coverage
