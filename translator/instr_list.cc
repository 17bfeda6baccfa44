// SPDX-License-Identifier: Apache-2.0
#include "translator/instr_list.h"

#include <cstring>

#include "base/check.h"
#include "isa/decode_templates.h"
#include "translator/flag_liveness.h"

namespace alibi::translator {
namespace {

bool EndsUndefined(const TranslationUnit& tu) {
  return tu.instrs[tu.count - 1].treatment == isa::Treatment::kUndefined;
}

}  // namespace

u64 InstrList::BytesFor(const TranslationUnit& tu) {
  return tu.count + 2 + tu.byte_length + (EndsUndefined(tu) ? sizeof(isa::Instr) : 0);
}

void InstrList::Keep(const TranslationUnit& tu, u8* bytes) {
  static_assert(kMaxTuInstructions * 15 < 256, "offsets are bytes");
  *bytes++ = EndsUndefined(tu);
  u8* code = bytes + tu.count + 1;
  unsigned offset = 0;
  for (unsigned i = 0; i < tu.count; ++i) {
    const isa::Instr& instr = tu.instrs[i];
    bytes[i] = static_cast<u8>(offset);
    // As a whole, where that does not reach over the end: such a copy knows its size.
    if (offset + sizeof(instr.bytes) <= tu.byte_length) {
      std::memcpy(code + offset, instr.bytes.data(), sizeof(instr.bytes));
    } else {
      std::memcpy(code + offset, instr.bytes.data(), instr.length);
    }
    offset += instr.length;
  }
  bytes[tu.count] = static_cast<u8>(offset);
  if (!EndsUndefined(tu)) return;
  isa::Instr last = tu.instrs[tu.count - 1];
  last.Move(LinearAddr() - last.pc);
  std::memcpy(code + offset, &last, sizeof(last));
}

void InstrList::Keep(const u8* offsets, unsigned count, const u8* code, u8* bytes) {
  *bytes++ = 0;
  std::memcpy(bytes, offsets, count + 1);
  std::memcpy(bytes + count + 1, code, offsets[count]);
}

isa::Instr InstrList::operator[](u64 i) const {
  isa::Instr instr;
  const unsigned begin = offsets()[i], end = offsets()[i + 1];
  if (ends_undefined() && i + 1 == count_) {
    std::memcpy(&instr, code() + end, sizeof(isa::Instr));
    instr.Move(pc_.value + begin);
    return instr;
  }
  const isa::DecodeStatus status = isa::DecodeTemplates::OfThread().Decode(
      code() + begin, end - begin, pc_ + begin, code_bits_, &instr);
  ALIBI_CHECK(status == isa::DecodeStatus::kOk, "what was decoded once can be decoded again");
  FixBranchTarget(&instr, code_base_);
  if (shown_ != nullptr) isa::HideUnlessShown(*shown_, &instr);
  return instr;
}

}  // namespace alibi::translator
