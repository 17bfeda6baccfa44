// SPDX-License-Identifier: Apache-2.0
#include "testsuite/verifier/host_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "testsuite/host_disassembler.h"
#include "vcpu/cpu_differences.h"

namespace alibi::verifier {

using testsuite::Capstone, testsuite::HostDecoder;
using translator::Ccf;

namespace {

// Where Capstone 4 is known to be behind or wrong: AVX-512 is spotty there, a rounding mode or a
// mandatory prefix that is not the last one are too much for it.
bool MayNotKnow(const ZydisDecodedInstruction& z) {
  return z.meta.category == ZYDIS_CATEGORY_WIDENOP || z.mnemonic == ZYDIS_MNEMONIC_NOP ||
         z.meta.isa_ext == ZYDIS_ISA_EXT_CET || z.mnemonic == ZYDIS_MNEMONIC_LFENCE ||
         z.mnemonic == ZYDIS_MNEMONIC_MFENCE || z.mnemonic == ZYDIS_MNEMONIC_SFENCE ||
         z.encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY ||
         z.meta.isa_ext == ZYDIS_ISA_EXT_RDWRFSGS || z.raw.prefix_count > 1;
}
bool Misread(const ZydisDecodedInstruction& z) {
  return z.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && z.raw.evex.b != 0;
}

}  // namespace

int GprOf(ZydisRegister reg) {
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  if (ZydisRegisterGetClass(whole) != ZYDIS_REGCLASS_GPR64) return -1;
  return ZydisRegisterGetId(whole);
}

std::optional<HostAddr> HostInstr::target() const {
  if (!z.raw.imm[0].is_relative) return std::nullopt;
  return next() + static_cast<u64>(z.raw.imm[0].value.s);
}

HostCode::HostCode(const Ccf& ccf, std::vector<std::string>* complaints) : ccf_(ccf) {
  Decode(ccf.hot_start, ccf.hot_end, complaints);
  Decode(ccf.cold_start, ccf.cold_end, complaints);
  for (auto& [at, instr] : instrs_) {
    if (at >= ccf.hot_start && at < ccf.hot_end) {
      for (const auto& entry : ccf.map()) {
        if (entry.host_offset <= at - ccf.hot_start) instr.instr_index = entry.instr_index;
      }
    } else {
      for (const auto& entry : ccf.cold_map()) {
        if (entry.cold_offset <= at - ccf.cold_start) instr.instr_index = entry.instr_index;
      }
    }
  }
}

void HostCode::Decode(HostAddr start, HostAddr end, std::vector<std::string>* complaints) {
  static thread_local Capstone capstone;
  for (HostAddr at = start; at < end;) {
    const auto* bytes = at.As<const u8>();
    HostInstr instr;
    instr.at = at;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&HostDecoder(), bytes, end - at, &instr.z,
                                             instr.operands.data()))) {
      complaints->push_back(Where(at) + ": Zydis does not decode it");
      return;
    }
    // The library's size is that of AMD's CPUs.
    if (instr.z.mnemonic == ZYDIS_MNEMONIC_MOVSXD && instr.z.operand_width == 16 &&
        vcpu::HostHasIntelsWay(vcpu::HostDifference::kNarrowMovsxd)) {
      instr.operands[1].size = 16;
    }
    const unsigned foreign = capstone.Decode(bytes, end - at, at.value);
    if (foreign != instr.z.length && !(foreign == 0 && MayNotKnow(instr.z)) && !Misread(instr.z)) {
      complaints->push_back(Where(at) + (foreign == 0 ? ": Capstone does not decode it"
                                                      : ": Capstone sees another length"));
    }
    at = instr.next();
    instrs_.emplace(instr.at, instr);
  }
}

std::optional<u64> HostCode::WordBefore(HostAddr at) const {
  const auto jump = instrs_.find(at);
  if (jump == instrs_.end() || jump == instrs_.begin()) return std::nullopt;
  const HostInstr& move = std::prev(jump)->second;
  if (move.next() != at || move.z.mnemonic != ZYDIS_MNEMONIC_MOV ||
      move.operands[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
      move.operands[0].reg.value != ZYDIS_REGISTER_R10 ||
      move.operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) {
    return std::nullopt;
  }
  return move.operands[1].imm.value.u;
}

std::string HostCode::Where(HostAddr at) const {
  const bool hot = at >= ccf_.hot_start && at < ccf_.hot_end;
  const HostAddr start = hot ? ccf_.hot_start : ccf_.cold_start;
  const HostAddr end = hot ? ccf_.hot_end : ccf_.cold_end;
  std::string text =
      fmt::format("* CCF of {:x}, {}+{:x}:", ccf_.pc.value, hot ? "hot" : "cold", at - start);
  for (HostAddr i = at; i < std::min(end, at + 12); i += 1) {
    text += fmt::format(" {:02x}", *i.As());
  }
  return text;
}

}  // namespace alibi::verifier
