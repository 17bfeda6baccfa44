// SPDX-License-Identifier: Apache-2.0
#include "inspect/dump/host_listing.h"

#include <Zydis/Zydis.h>
#include <capstone/capstone.h>

#include <cstdlib>
#include <cstring>

#include "abi/gs_names.h"
#include "base/check.h"

namespace alibi::vmm {
namespace {

// "r10*8 - 0x42000", "0xffffffffffffe050", "-0x1fb0" -> index and displacement.
void SplitAddress(const std::string& text, std::string* index, i64* displacement) {
  *displacement = 0;
  index->clear();
  std::size_t number = text.rfind(' ');
  bool negative = false;
  std::string digits = text;
  if (number != std::string::npos) {
    negative = number > 0 && text[number - 1] == '-';
    *index = text.substr(0, number - 2);
    digits = text.substr(number + 1);
  }
  char* end = nullptr;
  if (!digits.empty() && digits[0] == '-') {
    negative = true;
    digits.erase(0, 1);
  }
  const u64 value = std::strtoull(digits.c_str(), &end, 0);
  if (end == digits.c_str()) {
    *index = text;  // registers only
    return;
  }
  *displacement = negative ? -static_cast<i64>(value) : static_cast<i64>(value);
}

std::string NameGsOperands(std::string operands) {
  const std::size_t open = operands.find("gs:[");
  if (open == std::string::npos) return operands;
  const std::size_t close = operands.find(']', open);
  if (close == std::string::npos) return operands;
  std::string index;
  i64 displacement;
  SplitAddress(operands.substr(open + 4, close - open - 4), &index, &displacement);
  std::string named = operands.substr(0, open) + "gs:" + NameGsOperand(index, displacement) +
                      operands.substr(close + 1);
  // The name says how wide it is.
  for (const char* width : {"qword ptr ", "dword ptr ", "byte ptr "}) {
    const std::size_t at = named.find(width);
    if (at != std::string::npos && named.compare(at + std::strlen(width), 3, "gs:") == 0) {
      named.erase(at, std::strlen(width));
    }
  }
  return named;
}

// What the library does not know (some of EVEX) is read by the one that decodes guest code. Returns
// the length.
unsigned Reread(const u8* bytes, std::size_t size, u64 pc, HostInstr* line) {
  ZydisDisassembledInstruction read;
  if (!ZYAN_SUCCESS(ZydisDisassembleIntel(ZYDIS_MACHINE_MODE_LONG_64, pc, bytes, size, &read))) {
    line->bytes = {*bytes};
    line->mnemonic = "(bad)";
    return 1;
  }
  line->bytes.assign(bytes, bytes + read.info.length);
  const std::string text = read.text;
  const std::size_t space = text.find(' ');
  line->mnemonic = text.substr(0, space);
  if (space != std::string::npos) line->operands = NameGsOperands(text.substr(space + 1));
  return read.info.length;
}

}  // namespace

std::vector<HostInstr> DisassembleHost(const std::vector<u8>& bytes, HostAddr address) {
  csh handle;
  ALIBI_CHECK(cs_open(CS_ARCH_X86, CS_MODE_64, &handle) == CS_ERR_OK, "the disassembler opens");
  cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
  cs_insn* instr = cs_malloc(handle);
  std::vector<HostInstr> listing;
  const u8* at = bytes.data();
  std::size_t left = bytes.size();
  u64 pc = address.value;
  while (left != 0) {
    HostInstr line;
    line.address = HostAddr(pc);
    if (!cs_disasm_iter(handle, &at, &left, &pc, instr)) {
      const unsigned length = Reread(at, left, pc, &line);
      at += length;
      left -= length;
      pc += length;
      listing.push_back(std::move(line));
      continue;
    }
    line.bytes.assign(instr->bytes, instr->bytes + instr->size);
    line.mnemonic = instr->mnemonic;
    line.operands = NameGsOperands(instr->op_str);
    const cs_x86& x86 = instr->detail->x86;
    for (unsigned i = 0; i < x86.op_count; ++i) {
      if (x86.operands[i].type != X86_OP_IMM) continue;
      const u64 value = static_cast<u64>(x86.operands[i].imm);
      if (cs_insn_group(handle, instr, X86_GRP_JUMP) ||
          cs_insn_group(handle, instr, X86_GRP_CALL) ||
          cs_insn_group(handle, instr, X86_GRP_BRANCH_RELATIVE)) {  // LOOP
        line.jump = true;
        line.target = HostAddr(value);
      } else if (x86.encoding.imm_size == 8 || line.mnemonic == "movabs") {
        line.has_immediate = true;
        line.immediate = value;
      }
    }
    listing.push_back(std::move(line));
  }
  cs_free(instr, 1);
  cs_close(&handle);
  return listing;
}

}  // namespace alibi::vmm
