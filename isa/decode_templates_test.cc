// SPDX-License-Identifier: Apache-2.0
#include "isa/decode_templates.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <random>

namespace alibi::isa {
namespace {

// Decodes both ways and compares every field.
void CheckSame(DecodeTemplates& templates, const u8* bytes, unsigned available, LinearAddr pc,
               unsigned code_bits) {
  Instr expected, got;
  const DecodeStatus expected_status = Decode(bytes, available, pc, code_bits, &expected);
  const DecodeStatus status = templates.Decode(bytes, available, pc, code_bits, &got);
  if (status == expected_status && got == expected) return;
  std::string text;
  for (unsigned i = 0; i < available; ++i) text += " " + std::to_string(bytes[i]);
  FAIL_CHECK("bits " << code_bits << ", bytes" << text << ": " << Disassemble(expected));
}

TEST_CASE("Templates decode random bytes as the decoder does") {
  std::mt19937_64 random(20060321);
  for (const unsigned code_bits : {16u, 32u, 64u}) {
    DecodeTemplates templates;
    for (int i = 0; i < 400000; ++i) {
      u8 bytes[15];
      for (u8& byte : bytes) byte = static_cast<u8>(random());
      // Heads must meet again for templates to be used.
      bytes[0] &= 0xcf | static_cast<u8>(random());
      const unsigned available = random() % 8 == 0 ? 1 + random() % 15 : 15;
      CheckSame(templates, bytes, available, LinearAddr(random()), code_bits);
    }
    CHECK((templates.hits() > 1000 || code_bits == 16));
  }
}

// Every opcode of the three legacy maps and of VEX, with many tails behind few heads.
TEST_CASE("Templates decode every opcode with changing values as the decoder does") {
  std::mt19937_64 random(7);
  static constexpr u8 kPrefixes[][4] = {{},
                                        {0x66},
                                        {0xf2},
                                        {0xf3},
                                        {0x48},
                                        {0x66, 0x41},
                                        {0xf0, 0x4c},
                                        {0x67},
                                        {0x65, 0x48},
                                        {0x2e},
                                        {0x48, 0x66},
                                        {0xc5, 0xf9},
                                        {0xc4, 0xe1, 0x7d},
                                        {0xc4, 0xe2, 0xf9},
                                        {0xc4, 0xe3, 0x79}};
  static constexpr unsigned kPrefixLength[] = {0, 1, 1, 1, 1, 2, 2, 1, 2, 1, 2, 2, 3, 3, 3};
  static constexpr u8 kMaps[][3] = {{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}};
  DecodeTemplates templates;
  for (unsigned p = 0; p < std::size(kPrefixes); ++p) {
    for (unsigned map = 0; map < std::size(kMaps); ++map) {
      for (unsigned opcode = 0; opcode < 256; ++opcode) {
        for (unsigned round = 0; round < 24; ++round) {
          u8 bytes[15];
          for (u8& byte : bytes) byte = static_cast<u8>(random());
          unsigned at = 0;
          for (unsigned i = 0; i < kPrefixLength[p]; ++i) bytes[at++] = kPrefixes[p][i];
          for (unsigned i = 0; i < (map == 0 ? 0 : map == 1 ? 1 : 2); ++i)
            bytes[at++] = kMaps[map][i];
          bytes[at++] = static_cast<u8>(opcode);
          static constexpr u8 kModRms[] = {0x05, 0x44, 0x84, 0xc1, 0x24, 0x3f};
          bytes[at] = kModRms[round % 6];
          bytes[at + 1] = static_cast<u8>(round & 6 ? 0x25 : 0x4c);
          if (round % 5 == 0) bytes[at + 2] = 0;  // a shift by zero, among others
          if (round % 7 == 0) bytes[at + 1] = 0;
          const LinearAddr pc(random());
          for (const unsigned code_bits : {64u, 32u}) {
            CheckSame(templates, bytes, 15, pc, code_bits);
          }
        }
      }
    }
  }
  CHECK(templates.hits() > 100000);
}

TEST_CASE("Templates decode a real program as the decoder does, mostly without it") {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<u8> image{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(image.size() > 100000);
  DecodeTemplates templates;
  // From the middle: code, whatever it is preceded by.
  for (std::size_t at = image.size() / 4; at + 15 < image.size() / 4 + 60000;) {
    CheckSame(templates, image.data() + at, 15, LinearAddr(0x401000 + at), 64);
    Instr instr;
    (void)Decode(image.data() + at, 15, {}, 64, &instr);
    at += instr.length;
  }
  CHECK(templates.hits() > templates.misses());
}

TEST_CASE("An instruction cut off by its page is not completed by a template") {
  DecodeTemplates templates;
  const u8 call[] = {0xe8, 1, 2, 3, 4, 0x90, 0x90, 0x90};
  Instr instr;
  REQUIRE(templates.Decode(call, 8, {}, 64, &instr) == DecodeStatus::kOk);
  for (unsigned available = 1; available < 5; ++available) {
    CHECK(templates.Decode(call, available, {}, 64, &instr) == DecodeStatus::kNeedMoreBytes);
  }
  CHECK(templates.Decode(call, 5, LinearAddr(0x1000), 64, &instr) == DecodeStatus::kOk);
  CHECK(instr.branch_target.value == 0x1005 + 0x04030201);
}

}  // namespace
}  // namespace alibi::isa
