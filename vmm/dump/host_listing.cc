// SPDX-License-Identifier: Apache-2.0
#include "vmm/dump/host_listing.h"

#include <capstone/capstone.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "abi/contract.h"
#include "base/check.h"

namespace alibi::vmm {
namespace {

using vcpu::VcpuState;

struct Field {
  const char* name;
  std::size_t offset;
  std::size_t element;  // bytes
  std::size_t count;
};

// What emitted code reaches in the VCPU block.
constexpr Field kFields[] = {
#define ALIBI_FIELD(name) \
  { #name, offsetof(VcpuState, name), sizeof(VcpuState::name), 1 }
#define ALIBI_ARRAY(name)                                         \
  {                                                               \
#name, offsetof(VcpuState, name), sizeof(VcpuState::name[0]), \
        sizeof(VcpuState::name) / sizeof(VcpuState::name[0])      \
  }
    ALIBI_ARRAY(gpr),
    ALIBI_FIELD(rip),
    ALIBI_FIELD(arithmetic_flags),
    ALIBI_FIELD(if_flag),
    ALIBI_FIELD(df_flag),
    ALIBI_FIELD(cpl),
    ALIBI_FIELD(interrupt_shadow),
    ALIBI_FIELD(system_flags),
    ALIBI_FIELD(stop_requested),
    ALIBI_FIELD(cr8_bias),
    ALIBI_FIELD(cr8),
#define ALIBI_SCRATCH(name, what) {"scratch." #name, offsetof(VcpuState, scratch.name), 8, 1},
#include "vcpu/scratch.inc"
    ALIBI_FIELD(host_rsp),
    ALIBI_FIELD(callout_argument),
    ALIBI_FIELD(irq_pending),
    ALIBI_FIELD(last_branch),
    ALIBI_FIELD(resume_host_pc),
    ALIBI_FIELD(page_index_mask),
    ALIBI_FIELD(jump_index_mask),
    ALIBI_ARRAY(ram_window),
    ALIBI_ARRAY(ram_window_size),
    ALIBI_ARRAY(segment),
#undef ALIBI_ARRAY
#undef ALIBI_FIELD
};

std::string NameVcpuField(u64 offset) {
  for (const Field& field : kFields) {
    if (offset < field.offset || offset >= field.offset + field.element * field.count) continue;
    const u64 at = (offset - field.offset) / field.element;
    const u64 rest = (offset - field.offset) % field.element;
    std::string name = field.name;
    if (std::strcmp(field.name, "gpr") == 0) {
      static constexpr const char* kNames[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp",
                                               "rsi", "rdi", "r8",  "r9",  "r10", "r11",
                                               "r12", "r13", "r14", "r15"};
      name = kNames[at];
    } else if (field.count > 1) {
      name += fmt::format("[{}]", at);
    }
    return "vcpu." + name + (rest != 0 ? fmt::format("+{}", rest) : "");
  }
  return fmt::format("vcpu+{:#x}", offset);
}

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

}  // namespace

std::string NameGsOperand(const std::string& index, i64 displacement) {
  const auto element = [&index](const char* name, i64 at) {
    return index.empty() ? fmt::format("{}[{:#x}]", name, at) : fmt::format("{}[{}]", name, index);
  };
  if (displacement >= 0) {
    return displacement == 0 ? fmt::format("shadow[{}]", index)
                             : fmt::format("shadow[{} + {:#x}]", index, displacement);
  }
  if (displacement >= kVcpuOffset) {
    const std::string name = NameVcpuField(static_cast<u64>(displacement - kVcpuOffset));
    return index.empty() ? name : fmt::format("{}[{}]", name, index);
  }
  if (displacement >= kJumpTableOffset) {
    return element("jump_table", (displacement - kJumpTableOffset) / 8);
  }
  if (displacement >= kSlotsOffset) {
    const i64 offset = displacement - kSlotsOffset;
    const i64 slot = offset / static_cast<i64>(sizeof(InlineTlbEntry));
    static constexpr const char* kParts[] = {"neg_page", "displacement", "host_page", "unused"};
    static_assert(sizeof(InlineTlbEntry) == 8 * std::size(kParts));
    return fmt::format("{}_slot[{}].{}", slot < kSlotCount ? "load" : "store", slot % kSlotCount,
                       kParts[offset / 8 % static_cast<i64>(std::size(kParts))]);
  }
  if (displacement == kPeerOffset) return "peer.gs_base";
  if (displacement == kPeerOffset + 8) return "peer.missing";
  return fmt::format("{:#x}", displacement);
}

std::vector<HostInstr> DisassembleHost(const std::vector<u8>& bytes, u64 address) {
  csh handle;
  ALIBI_CHECK(cs_open(CS_ARCH_X86, CS_MODE_64, &handle) == CS_ERR_OK, "the disassembler opens");
  cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
  cs_insn* instr = cs_malloc(handle);
  std::vector<HostInstr> listing;
  const u8* at = bytes.data();
  std::size_t left = bytes.size();
  u64 pc = address;
  while (left != 0) {
    HostInstr line;
    line.address = pc;
    if (!cs_disasm_iter(handle, &at, &left, &pc, instr)) {
      line.bytes = {*at};
      line.mnemonic = "(bad)";
      ++at;
      --left;
      ++pc;
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
          cs_insn_group(handle, instr, X86_GRP_CALL)) {
        line.jump = true;
        line.target = value;
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
