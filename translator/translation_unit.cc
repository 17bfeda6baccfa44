// SPDX-License-Identifier: Apache-2.0
#include "translator/translation_unit.h"

#include <algorithm>

#include "base/check.h"
#include "isa/decode_templates.h"
#include "vcpu/state.h"

namespace alibi::translator {
namespace {

// The first instruction's bytes lie in two pages.
isa::DecodeStatus DecodeAcrossPages(const CodeRequest& code, isa::Instr* out) {
  std::array<u8, 15> bytes;
  unsigned first = std::min<unsigned>(code.available, bytes.size());
  unsigned second = std::min<unsigned>(code.next_available, bytes.size() - first);
  std::copy_n(code.bytes, first, bytes.begin());
  std::copy_n(code.next_page, second, bytes.begin() + first);
  return Decode(bytes.data(), first + second, code.pc, code.code_bits, out);
}

void FindLiveFlags(CodeWindow* window, bool look_ahead, TranslationUnit* tu) {
  u32 live = static_cast<u32>(vcpu::kArithmeticFlags);
  if (look_ahead) live = FlagsLiveAtExit(tu->instrs[tu->count - 1], window);
  for (unsigned i = tu->count; i-- > 0;) {
    tu->flags_live_after[i] = live;
    live = FlagsLiveBefore(tu->instrs[i], live, window->exact_sites);
    tu->flags_live_before[i] = live;
  }
}

}  // namespace

bool EndsTranslationUnit(const isa::Instr& instr) {
  return EndsTranslationUnit(instr.treatment, InfoOf(instr.op));
}

isa::DecodeStatus BuildTranslationUnit(const CodeRequest& code, TranslationUnit* out) {
  ALIBI_CHECK(code.available > 0 && code.max_instructions > 0, "a TU has at least one instruction");
  out->pc = code.pc;
  out->count = 0;
  out->byte_length = 0;
  out->ends_with_control = false;
  out->crosses_page = false;
  out->examined.Clear(code.code_bits == 64 && FormOf(code.pc) == PcForm::kKernel);
  unsigned limit = std::min(code.max_instructions, kMaxTuInstructions);
  isa::DecodeTemplates& templates = isa::DecodeTemplates::OfThread();
  while (out->count < limit && out->byte_length < code.available && !out->ends_with_control) {
    isa::Instr& instr = out->instrs[out->count];
    unsigned left = code.available - out->byte_length;
    const LinearAddr instr_pc = code.pc + out->byte_length;
    isa::DecodeStatus status =
        templates.Decode(code.bytes + out->byte_length, left, instr_pc, code.code_bits, &instr);
    if (status == isa::DecodeStatus::kNeedMoreBytes && out->count == 0 &&
        code.next_page != nullptr) {
      out->crosses_page = true;
      status = DecodeAcrossPages(code, &instr);
    }
    if (status == isa::DecodeStatus::kNeedMoreBytes || status == isa::DecodeStatus::kTooLong) {
      // Behind other instructions it becomes the first of its own TU when it is reached.
      if (out->count != 0) break;
      return status;
    }
    FixBranchTarget(&instr, code.code_base);
    if (code.shown != nullptr) isa::HideUnlessShown(*code.shown, &instr);
    out->examined.Note(instr, out->byte_length);
    ++out->count;
    out->byte_length += instr.length;
    out->ends_with_control = EndsTranslationUnit(instr);
  }

  out->examined.NoteRange(0, out->byte_length);
  CodeWindow window{.bytes = code.bytes - code.page_before,
                    .begin = code.pc - code.page_before,
                    .end = code.pc + code.available,
                    .code_bits = code.code_bits,
                    .code_base = code.code_base,
                    .shown = code.shown,
                    .exact_sites = code.exact_sites,
                    .examined_begin = code.pc,
                    .examined_end = code.pc + std::min(out->byte_length, code.available),
                    .examined = &out->examined,
                    .pc = code.pc};
  FindLiveFlags(&window, code.look_ahead, out);
  if (code.past_leaf) {
    const isa::Instr& call = out->instrs[out->count - 1];
    out->flags_live_past_leaf =
        FlagsLiveBefore(call,
                        code.look_ahead ? FlagsLiveAt(call.next_pc(), &window)
                                        : static_cast<u32>(vcpu::kArithmeticFlags),
                        code.exact_sites);
  }
  out->examined_begin = window.examined_begin;
  out->examined_end = window.examined_end;
  return isa::DecodeStatus::kOk;
}

}  // namespace alibi::translator
