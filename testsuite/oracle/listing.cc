// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/listing.h"

#include <fmt/format.h>

#include "base/check.h"
#include "testsuite/host_disassembler.h"
#include "translator/decoder.h"

namespace alibi::oracle {

using testsuite::Capstone, testsuite::HostDecoder;
using translator::Ccf;
using translator::Instr;

namespace {

std::string HexBytes(const u8* bytes, unsigned size) {
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x} ", bytes[i]);
  return text;
}

std::string FlagNames(u32 flags) {
  constexpr std::pair<u64, char> kNames[] = {{vcpu::kCf, 'c'}, {vcpu::kPf, 'p'}, {vcpu::kAf, 'a'},
                                             {vcpu::kZf, 'z'}, {vcpu::kSf, 's'}, {vcpu::kOf, 'o'}};
  std::string text;
  for (const auto& [flag, name] : kNames) text += flags & flag ? name : '-';
  return text;
}

// The guest instruction whose translation begins at this hot offset, or null.
const translator::CodeMapEntry* MapEntryAt(const Ccf& ccf, u32 offset) {
  for (const auto& entry : ccf.map()) {
    if (entry.host_offset == offset) return &entry;
  }
  return nullptr;
}

std::string ListRange(u64 start, u64 end, const Ccf* map) {
  static Capstone capstone;
  std::string text;
  for (u64 at = start; at < end;) {
    const auto* bytes = reinterpret_cast<const u8*>(at);
    if (map != nullptr) {
      for (const auto& entry : map->map()) {
        if (entry.host_offset == at - start) {
          text += fmt::format("  {} {}\n", entry.ident ? "IDENT    " : "         ",
                              translator::Disassemble(map->instrs()[entry.instr_index]));
        }
      }
    }
    unsigned length = capstone.Decode(bytes, end - at, at);
    const std::string what = length != 0 ? capstone.Text() : "(not understood)";
    if (length == 0) length = 1;
    text += fmt::format("      {:x}  {:<33} {}\n", at, HexBytes(bytes, length), what);
    at += length;
  }
  return text;
}

// Golden listings: what differs between runs is replaced by what it is.
std::string StableOperand(const Ccf& ccf, const ZydisDecodedInstruction& z,
                          const ZydisDecodedOperand* operands, u64 at) {
  u64 target = 0;
  if (operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[0].imm.is_relative) {
    ZydisCalcAbsoluteAddress(&z, &operands[0], at, &target);
    if (target >= ccf.hot_start && target <= ccf.hot_end) {
      return fmt::format("hot+{:#x}", target - ccf.hot_start);
    }
    if (target >= ccf.cold_start && target < ccf.cold_end) {
      return fmt::format("cold+{:#x}", target - ccf.cold_start);
    }
    return "stub";
  }
  return "";
}

std::string ListStable(const Ccf& ccf, u64 start, u64 end, const char* region, bool marks) {
  static Capstone capstone;
  std::string text;
  for (u64 at = start; at < end;) {
    const auto* bytes = reinterpret_cast<const u8*>(at);
    if (marks) {
      if (const auto* entry = MapEntryAt(ccf, static_cast<u32>(at - start))) {
        text += fmt::format("{}{}\n", entry->ident ? "IDENT " : "      ",
                            translator::Disassemble(ccf.instrs()[entry->instr_index]));
      }
    }
    ZydisDecodedInstruction z;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    ALIBI_CHECK(ZYAN_SUCCESS(ZydisDecoderDecodeFull(&HostDecoder(), bytes, end - at, &z, operands)),
                "emitted code decodes");
    capstone.Decode(bytes, end - at, at);
    std::string what = capstone.Text();
    const std::string stable = StableOperand(ccf, z, operands, at);
    if (!stable.empty()) what = fmt::format("{} {}", ZydisMnemonicGetString(z.mnemonic), stable);
    // mov r10, imm64 of a descriptor.
    if (z.mnemonic == ZYDIS_MNEMONIC_MOV && z.length == 10 &&
        operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
        operands[0].reg.value == ZYDIS_REGISTER_R10) {
      what = "mov r10, descriptor";
    }
    text += fmt::format("          {}+{:<4x} {}\n", region, at - start, what);
    at += z.length;
  }
  return text;
}

}  // namespace

std::string ListGuest(std::span<const u8> bytes, u64 pc, unsigned code_bits) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    Instr instr;
    const auto status = translator::Decode(
        bytes.data() + at, static_cast<unsigned>(std::min<std::size_t>(15, bytes.size() - at)),
        pc + at, code_bits, &instr);
    const unsigned length =
        status == translator::DecodeStatus::kOk && instr.length != 0 ? instr.length : 1;
    text += fmt::format(
        "  {:x}  {:<33} {}\n", pc + at, HexBytes(bytes.data() + at, length),
        status == translator::DecodeStatus::kOk ? translator::Disassemble(instr) : "(undefined)");
    at += length;
  }
  return text;
}

std::string ListGuest(const TestCase& test) {
  std::string text;
  u64 pc = test.initial.rip;
  for (std::size_t i = 0; i < test.code.size(); ++i) {
    const unsigned bits = i < test.code_bits.size() ? test.code_bits[i] : test.CodeBits();
    text += ListGuest(test.code[i], pc, bits);
    pc += test.code[i].size();
  }
  return text;
}

std::string ListIr(const Ccf& ccf) {
  constexpr const char* kPlans[] = {"direct", "checked", "simulate"};
  std::string text = fmt::format("TU at {:x}, {} instructions, {} bytes{}\n", ccf.pc,
                                 ccf.instrs().size(), ccf.guest_bytes,
                                 ccf.mode.simulate ? ", SIMULATE"
                                 : ccf.mode.single ? ", single"
                                                   : "");
  for (std::size_t i = 0; i < ccf.instrs().size(); ++i) {
    const Instr& instr = ccf.instrs()[i];
    text +=
        fmt::format("  {:x}  {:<10} {:<8} read {} write {}{}", instr.pc,
                    translator::TreatmentName(instr.treatment),
                    kPlans[static_cast<unsigned>(ccf.plans()[i].kind)], FlagNames(instr.flags_read),
                    FlagNames(instr.flags_written), instr.flags_written_maybe ? "?" : " ");
    if (instr.mem.present) {
      text += fmt::format("  mem{} {}{}", instr.mem.size, instr.mem.read ? "r" : "",
                          instr.mem.written ? "w" : "");
    }
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      const auto& use = instr.gprs[k];
      text += fmt::format("  r{}.{}{}{}{}", use.reg, use.bits, use.high_byte ? "h" : "",
                          use.read ? "r" : "", use.written ? "w" : "");
    }
    text += fmt::format("  {}\n", translator::Disassemble(instr));
  }
  return text;
}

std::string ListHost(const Ccf& ccf, bool absolute) {
  if (!absolute) {
    return ListStable(ccf, ccf.hot_start, ccf.hot_end, "hot", true) +
           ListStable(ccf, ccf.cold_start, ccf.cold_end, "cold", false);
  }
  return "  hot:\n" + ListRange(ccf.hot_start, ccf.hot_end, &ccf) + "  cold:\n" +
         ListRange(ccf.cold_start, ccf.cold_end, nullptr);
}

}  // namespace alibi::oracle
