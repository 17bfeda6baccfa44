#include "translator/translation_unit.h"

#include <algorithm>

#include "base/check.h"
#include "translator/decode_templates.h"
#include "translator/flag_liveness.h"
#include "vcpu/state.h"

namespace alibi::translator {
namespace {

// The first instruction's bytes lie in two pages.
DecodeStatus DecodeAcrossPages(const u8* page_bytes, unsigned page_available,
                               const u8* next_page_bytes, unsigned next_available, u64 pc,
                               unsigned code_bits, Instr* out) {
  std::array<u8, 15> bytes;
  unsigned first = std::min<unsigned>(page_available, bytes.size());
  unsigned second = std::min<unsigned>(next_available, bytes.size() - first);
  std::copy_n(page_bytes, first, bytes.begin());
  std::copy_n(next_page_bytes, second, bytes.begin() + first);
  return Decode(bytes.data(), first + second, pc, code_bits, out);
}

void FindLiveFlags(CodeWindow* window, bool look_ahead, TranslationUnit* tu) {
  u32 live = static_cast<u32>(vcpu::kArithmeticFlags);
  if (look_ahead) live = FlagsLiveAtExit(tu->instrs[tu->count - 1], window);
  for (unsigned i = tu->count; i-- > 0;) {
    tu->flags_live_after[i] = live;
    live = FlagsLiveBefore(tu->instrs[i], live);
    tu->flags_live_before[i] = live;
  }
}

}  // namespace

bool EndsTranslationUnit(const Instr& instr) {
  switch (instr.treatment) {
    case Treatment::kControl:
    case Treatment::kTerminator:
    case Treatment::kUndefined:
      return true;
    default:
      return instr.op == Op::kSyscall || instr.op == Op::kSysret || instr.op == Op::kIret ||
             (instr.op == Op::kMovCr && instr.system_reg == 3 && !instr.gprs[0].written);
  }
}

DecodeStatus BuildTranslationUnit(const u8* page_bytes, unsigned page_available,
                                  const u8* next_page_bytes, unsigned next_available, u64 pc,
                                  unsigned code_bits, unsigned max_instructions,
                                  TranslationUnit* out, unsigned page_before, bool look_ahead,
                                  u32 code_base, const FeatureSet* shown) {
  ALIBI_CHECK(page_available > 0 && max_instructions > 0, "a TU has at least one instruction");
  out->pc = pc;
  out->count = 0;
  out->byte_length = 0;
  out->ends_with_control = false;
  out->crosses_page = false;
  unsigned limit = std::min(max_instructions, kMaxTuInstructions);
  DecodeTemplates& templates = DecodeTemplates::OfThread();
  while (out->count < limit && out->byte_length < page_available && !out->ends_with_control) {
    Instr& instr = out->instrs[out->count];
    unsigned left = page_available - out->byte_length;
    u64 instr_pc = pc + out->byte_length;
    DecodeStatus status =
        templates.Decode(page_bytes + out->byte_length, left, instr_pc, code_bits, &instr);
    if (status == DecodeStatus::kNeedMoreBytes && out->count == 0 && next_page_bytes != nullptr) {
      out->crosses_page = true;
      status = DecodeAcrossPages(page_bytes, page_available, next_page_bytes, next_available, pc,
                                 code_bits, &instr);
    }
    if (status == DecodeStatus::kNeedMoreBytes || status == DecodeStatus::kTooLong) {
      // Behind other instructions it becomes the first of its own TU when it is reached.
      if (out->count != 0) break;
      return status;
    }
    FixBranchTarget(&instr, code_base);
    if (shown != nullptr) HideUnlessShown(*shown, &instr);
    ++out->count;
    out->byte_length += instr.length;
    out->ends_with_control = EndsTranslationUnit(instr);
  }

  CodeWindow window{.bytes = page_bytes - page_before,
                    .begin = pc - page_before,
                    .end = pc + page_available,
                    .code_bits = code_bits,
                    .code_base = code_base,
                    .examined_begin = pc,
                    .examined_end = pc + std::min(out->byte_length, page_available)};
  FindLiveFlags(&window, look_ahead, out);
  out->examined_begin = window.examined_begin;
  out->examined_end = window.examined_end;
  return DecodeStatus::kOk;
}

}  // namespace alibi::translator
