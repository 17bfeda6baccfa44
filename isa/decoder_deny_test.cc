// SPDX-License-Identifier: Apache-2.0
// Default deny: over all that the decoding library knows, only what was looked at runs as it is.
#include <Zydis/Zydis.h>

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "isa/decoder.h"
#include "isa/decoder_library.h"

namespace alibi::isa {
namespace {

const std::set<ZydisMnemonic>& MnemonicsWithRow() {
  static const std::set<ZydisMnemonic> with_row = {
#define ALIBI_ROW(mnemonic, shape, op, treatment) ZYDIS_MNEMONIC_##mnemonic,
#include "isa/instructions.inc"
  };
  return with_row;
}

const std::set<ZydisISASet>& IdentSets() {
  static const std::set<ZydisISASet> sets = {
#define ALIBI_IDENT_SET(name) ZYDIS_ISA_SET_##name,
#include "isa/instructions.inc"
  };
  return sets;
}

using Bytes = std::vector<u8>;

constexpr u8 kModRms[] = {0x00, 0x05, 0x08, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0xc0,
                          0xc1, 0xc8, 0xd0, 0xd8, 0xe0, 0xe8, 0xf0, 0xf8, 0xff};

void LegacyOpcodes(const std::function<void(const Bytes&)>& visit) {
  const Bytes prefixes[] = {{},     {0x66},       {0xf3},       {0xf2},
                            {0x48}, {0x66, 0x48}, {0xf3, 0x48}, {0xf2, 0x48}};
  const Bytes maps[] = {{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}};
  for (const Bytes& prefix : prefixes) {
    for (const Bytes& map : maps) {
      for (unsigned opcode = 0; opcode < 256; ++opcode) {
        for (unsigned modrm = 0; modrm < 256; modrm += modrm < 0xc0 ? 8 : 1) {
          Bytes bytes = prefix;
          bytes.insert(bytes.end(), map.begin(), map.end());
          for (const unsigned byte : {opcode, modrm, 0x24u}) bytes.push_back(static_cast<u8>(byte));
          visit(bytes);
        }
      }
    }
  }
  // 3DNow!: the opcode stands last.
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    visit({0x0f, 0x0f, 0xc1, static_cast<u8>(opcode)});
  }
}

void VectorOpcodes(const std::function<void(const Bytes&)>& visit) {
  for (unsigned bits = 0; bits < 1 << 5; ++bits) {  // W, L, vvvv or none, pp
    const u8 w = bits & 16 ? 0x80 : 0, l = bits & 8 ? 4 : 0, v = bits & 4 ? 0x78 : 0x70;
    const u8 pp = bits & 3;
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      for (const u8 modrm : kModRms) {
        const u8 op = static_cast<u8>(opcode), last = static_cast<u8>(w | v | l | pp);
        for (const u8 map : {1, 2, 3}) visit({0xc4, static_cast<u8>(0xe0 | map), last, op, modrm});
        for (const u8 map : {8, 9, 10}) visit({0x8f, static_cast<u8>(0xe0 | map), last, op, modrm});
        if (l != 0) continue;  // EVEX has it elsewhere
        for (const u8 map : {1, 2, 3, 5, 6}) {
          const u8 p1 = static_cast<u8>((last & ~4u) | 4);
          for (const u8 p2 : {0x08, 0x09, 0x28, 0x48, 0x49, 0x18, 0x58}) {
            visit({0x62, static_cast<u8>(0xf0 | map), p1, p2, op, modrm});
          }
        }
      }
    }
  }
}

// Does it do anything but compute, as the library describes it?
std::string MoreThanComputing(const ZydisDecodedInstruction& z) {
  if (z.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) return "privileged";
  switch (z.meta.category) {
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_POP:
    case ZYDIS_CATEGORY_PUSH:
    case ZYDIS_CATEGORY_RDWRFSGS:
    case ZYDIS_CATEGORY_SEGOP:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_SYSTEM:
    case ZYDIS_CATEGORY_XSAVE:
    case ZYDIS_CATEGORY_XSAVEOPT:
    case ZYDIS_CATEGORY_VTX:
    case ZYDIS_CATEGORY_SGX:
    case ZYDIS_CATEGORY_UINTR:
    case ZYDIS_CATEGORY_PKU:
    case ZYDIS_CATEGORY_CET:
    case ZYDIS_CATEGORY_AMX_TILE:
      return ZydisCategoryGetString(z.meta.category);
    default:
      return "";
  }
}

TEST_CASE("Nothing runs on the host as it is unless it was looked at", "[decoder]") {
  std::set<ZydisISASet> used;
  std::set<ZydisMnemonic> seen, wrong;
  u64 ident = 0, refused = 0;
  const auto visit = [&](const Bytes& bytes, std::initializer_list<unsigned> modes) {
    u8 padded[15] = {};
    std::copy(bytes.begin(), bytes.end(), padded);
    for (const unsigned code_bits : modes) {
      ZydisDecodedInstruction z;
      ZydisDecoderContext context;
      if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&DecoderFor(code_bits), &context, padded,
                                                      sizeof(padded), &z))) {
        continue;
      }
      seen.insert(z.mnemonic);
      Instr instr;
      const DecodeStatus status =
          Decode(padded, sizeof(padded), LinearAddr(0x1000), code_bits, &instr);
      const bool row = MnemonicsWithRow().contains(z.mnemonic);
      if (status != DecodeStatus::kOk || instr.treatment == Treatment::kUndefined) {
        refused += !row;
        continue;
      }
      if (!row) used.insert(z.meta.isa_set);
      ident += instr.treatment == Treatment::kIdent;
      const bool allowed = row || IdentSets().contains(z.meta.isa_set);
      const std::string more = row ? "" : MoreThanComputing(z);
      if ((!allowed || !more.empty()) && wrong.insert(z.mnemonic).second) {
        FAIL_CHECK(ZydisMnemonicGetString(z.mnemonic)
                   << " of " << ZydisISASetGetString(z.meta.isa_set) << ": " << more);
      }
    }
  };
  LegacyOpcodes([&](const Bytes& bytes) { visit(bytes, {32, 64}); });
  VectorOpcodes([&](const Bytes& bytes) { visit(bytes, {64}); });
  // The walk is worth something: it met nearly all mnemonics of the library, refused ones among
  // them, and every permission is made use of.
  CHECK(seen.size() > 1600);
  CHECK(ident > 100'000);
  CHECK(refused > 1'000);
  for (const ZydisISASet set : IdentSets()) {
    INFO(ZydisISASetGetString(set));
    CHECK((used.contains(set) || set == ZYDIS_ISA_SET_INVALID));
  }
}

}  // namespace
}  // namespace alibi::isa
