// SPDX-License-Identifier: Apache-2.0
// Translation units: at most 12 instructions or up to a terminator, never past the guest page
// (except a single instruction that itself crosses into the next page).
#ifndef ALIBI_TRANSLATOR_TRANSLATION_UNIT_H_
#define ALIBI_TRANSLATOR_TRANSLATION_UNIT_H_

#include <array>

#include "isa/decoder.h"
#include "isa/ir.h"
#include "translator/examined_code.h"
#include "translator/flag_liveness.h"

namespace alibi::translator {

inline constexpr unsigned kMaxTuInstructions = 12;

struct TranslationUnit {
  LinearAddr pc;
  unsigned count = 0;
  unsigned byte_length = 0;
  bool ends_with_control = false;  // the last instruction is kControl/kTerminator/kUndefined
  bool crosses_page = false;
  // [examined_begin, examined_end): range, in the TU's page, of all bytes that the TU and
  // its flag liveness depend on. The translation is stale when any of them changes.
  LinearAddr examined_begin;
  LinearAddr examined_end;
  std::array<isa::Instr, kMaxTuInstructions> instrs;
  // Arithmetic flags that must survive *during* instruction i: live-in flags of instruction i,
  // i.e. an inserted sequence in front of its operation must preserve these ...
  std::array<u32, kMaxTuInstructions> flags_live_before{};
  // ... and those that are live after it (sequences placed behind its operation).
  std::array<u32, kMaxTuInstructions> flags_live_after{};
  // The same more exactly, for those who keep the translation.
  ExaminedCode examined;
  // If CodeRequest asks: the flags that must survive a CALL at its end whose function leaves them
  // alone and returns.
  u32 flags_live_past_leaf = 0;
};

// The code that a TU is made of.
struct CodeRequest {
  LinearAddr pc{};
  unsigned code_bits = 64;
  const u8* bytes = nullptr;  // at pc
  unsigned available = 0;     // of them to the end of the page
  // The following page's, used only when the first instruction crosses; may be null.
  const u8* next_page = nullptr;
  unsigned next_available = 0;
  // So many bytes in front of `bytes` are readable code of the same page: with them the look-ahead
  // follows backward branches.
  unsigned page_before = 0;
  u32 code_base = 0;  // CS's: near branches wrap in the segment, not in linear memory
  unsigned max_instructions = kMaxTuInstructions;  // 1 for single steps and SIMULATE variants
  // Liveness at exits looks ahead, inside the same page, a few instructions past direct exits and
  // the fall-through. False: all flags are live at every exit.
  bool look_ahead = true;
  bool past_leaf = false;                       // look behind the CALL at its end, too
  const isa::FeatureSet* shown = nullptr;       // what is missing there is #UD; null: nothing is
  const ExactFlagSites* exact_sites = nullptr;  // null: there are none
};

// Returns kNeedMoreBytes when the first instruction crosses and next_page is null, kTooLong when it
// is too long (no TU), else kOk: an undefined instruction is the TU's last.
isa::DecodeStatus BuildTranslationUnit(const CodeRequest& code, TranslationUnit* out);

// True when nothing may follow `instr` in its TU: control flow, and whatever may change mode or PC.
bool EndsTranslationUnit(const isa::Instr& instr);

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_TRANSLATION_UNIT_H_
