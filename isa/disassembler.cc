// SPDX-License-Identifier: Apache-2.0
// Instructions as text.
#include <cctype>
#include <iterator>
#include <vector>

#include "isa/decoder.h"
#include "isa/decoder_library.h"

namespace alibi::isa {

std::string Disassemble(const Instr& instr) {
  static const ZydisFormatter formatter = [] {
    ZydisFormatter f;
    ZydisFormatterInit(&f, ZYDIS_FORMATTER_STYLE_INTEL);
    ZydisFormatterSetProperty(&f, ZYDIS_FORMATTER_PROP_UPPERCASE_MNEMONIC, ZYAN_TRUE);
    ZydisFormatterSetProperty(&f, ZYDIS_FORMATTER_PROP_FORCE_SIZE, ZYAN_TRUE);
    ZydisFormatterSetProperty(&f, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE,
                              ZYDIS_PADDING_DISABLED);
    ZydisFormatterSetProperty(&f, ZYDIS_FORMATTER_PROP_DISP_PADDING, ZYDIS_PADDING_DISABLED);
    ZydisFormatterSetProperty(&f, ZYDIS_FORMATTER_PROP_IMM_PADDING, ZYDIS_PADDING_DISABLED);
    return f;
  }();
  ZydisDecodedInstruction z;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  if (instr.length == 0 ||
      !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&DecoderFor(instr.code_bits), instr.bytes.data(),
                                           instr.length, &z, operands.data()))) {
    return "(undefined)";
  }
  char text[256];
  if (!ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&formatter, &z, operands.data(),
                                                    z.operand_count_visible, text, sizeof text,
                                                    instr.pc.value, nullptr))) {
    return "(unprintable)";
  }
  return text;
}

std::string DisassembleBytes(std::span<const u8> bytes, LinearAddr pc, unsigned code_bits) {
  Instr instr;
  Decode(bytes.data(), static_cast<unsigned>(bytes.size()), pc, code_bits, &instr);
  return Disassemble(instr);
}

const char* MnemonicName(u16 mnemonic) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all(ZYDIS_MNEMONIC_MAX_VALUE + 1);
    for (unsigned i = 0; i < all.size(); ++i) {
      all[i] = ZydisMnemonicGetString(static_cast<ZydisMnemonic>(i));
      for (char& c : all[i]) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return all;
  }();
  return mnemonic < names.size() ? names[mnemonic].c_str() : "?";
}

const char* TreatmentName(Treatment treatment) {
  static constexpr const char* kNames[] = {"IDENT",    "STACK",      "CONTROL",  "IN-TC",
                                           "SIMULATE", "TERMINATOR", "UNDEFINED"};
  auto index = static_cast<std::size_t>(treatment);
  return index < std::size(kNames) ? kNames[index] : "?";
}

}  // namespace alibi::isa
