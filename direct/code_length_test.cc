// SPDX-License-Identifier: Apache-2.0
#include "direct/code_length.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "isa/glance.h"

namespace alibi::direct {
namespace {

using Bytes = std::vector<u8>;

std::string Text(const Bytes& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const u8 byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15], ' '};
  return text;
}

// JKZD and JKNZD of a coprocessor that no guest is (Knights Corner), and the decoder knows.
bool IsKnightsCorners(const Bytes& bytes) {
  for (std::size_t i = 0; i + 3 < bytes.size(); ++i) {
    const std::size_t opcode = i + (bytes[i] == 0xc5 ? 2 : bytes[i] == 0xc4 ? 3 : 99);
    if (opcode < bytes.size()) return (bytes[opcode] & 0xfe) == 0x84;
  }
  return false;
}

// Whatever the decoder knows has the decoder's length. Returns whether it knows it.
bool Check(Bytes bytes, unsigned code_bits) {
  bytes.resize(kCodeLengthReads, 0x11);
  const isa::Glance glance = isa::GlanceAt(bytes.data(), 15, code_bits);
  if (glance.status != isa::DecodeStatus::kOk) return false;
  static const CodeLengths kLengths32(32), kLengths64(64);
  const unsigned length = CodeLength(bytes.data(), code_bits);
  if ((code_bits == 64 ? kLengths64 : kLengths32).At(bytes.data()) != length) {
    CAPTURE(code_bits, Text(bytes), length);
    CHECK((code_bits == 64 ? kLengths64 : kLengths32).At(bytes.data()) == length);
  }
  if (length != glance.length && !IsKnightsCorners(bytes)) {
    CAPTURE(code_bits, Text(bytes), length, unsigned{glance.length});
    CHECK(length == glance.length);
  }
  return true;
}

TEST_CASE("Every encoding has the decoder's length", "[length]") {
  const Bytes kPrefixes[] = {{},     {0x66}, {0xf3},       {0xf2},       {0x67},
                             {0x2e}, {0xf0}, {0x66, 0x67}, {0x66, 0xf2}, {0x65, 0x66, 0xf3}};
  const Bytes kEscapes[] = {{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}};
  for (const unsigned code_bits : {32u, 64u}) {
    unsigned known = 0;
    const auto each = [&](const Bytes& head) {
      for (unsigned opcode = 0; opcode < 256; ++opcode) {
        for (unsigned modrm = 0; modrm < 256; ++modrm) {
          for (const u8 sib : {0x24, 0x25, 0x65}) {
            Bytes bytes = head;
            bytes.insert(bytes.end(), {u8(opcode), u8(modrm), sib});
            known += Check(bytes, code_bits);
          }
        }
      }
    };
    for (const Bytes& prefix : kPrefixes) {
      for (const Bytes& escape : kEscapes) {
        for (const u8 rex : {0x00, 0x41, 0x48}) {
          if (rex != 0 && code_bits == 32) continue;
          Bytes head = prefix;
          if (rex != 0) head.push_back(rex);
          head.insert(head.end(), escape.begin(), escape.end());
          each(head);
        }
      }
    }
    for (unsigned fields = 0; fields < 16; ++fields) {
      const u8 w = fields & 8 ? 0x80 : 0, pp = fields & 3, l = fields & 4 ? 4 : 0;
      each({0xc5, u8(0xf8 | l | pp)});
      for (const u8 map : {1, 2, 3}) each({0xc4, u8(0xe0 | map), u8(w | 0x78 | l | pp)});
      for (const u8 map : {8, 9, 10}) each({0x8f, u8(0xe0 | map), u8(w | 0x78 | l | pp)});
      for (const u8 map : {1, 2, 3, 5, 6}) each({0x62, u8(0xf0 | map), u8(w | 0x7c | pp), 0x48});
    }
    CHECK(known > 500'000);
  }
}

TEST_CASE("Random bytes have the decoder's length, where it knows them", "[length]") {
  std::mt19937_64 random(1);
  for (const unsigned code_bits : {32u, 64u}) {
    unsigned known = 0;
    for (unsigned i = 0; i < 500'000; ++i) {
      Bytes bytes(kCodeLengthReads);
      for (u8& byte : bytes) byte = static_cast<u8>(random());
      known += Check(bytes, code_bits);
    }
    CHECK(known > 100'000);
  }
}

}  // namespace
}  // namespace alibi::direct
