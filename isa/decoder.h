// SPDX-License-Identifier: Apache-2.0
// The decoder: guest bytes -> IR. The only user of the decoding library.
#ifndef ALIBI_ISA_DECODER_H_
#define ALIBI_ISA_DECODER_H_

#include <span>
#include <string>

#include "base/types.h"
#include "isa/ir.h"

namespace alibi::isa {

enum class DecodeStatus : u8 {
  kOk,
  kNeedMoreBytes,  // the instruction goes on past the given bytes
  kTooLong,        // more than 15 bytes: #GP(0)
  kUndefined,      // #UD; `length` is what was understood, treatment is kUndefined
};

// Decodes one instruction at `pc` (branch targets are computed as cs_base-relative only
// when cs_base is 0) in `code_bits` mode.
DecodeStatus Decode(const u8* bytes, unsigned available, LinearAddr pc, unsigned code_bits,
                    Instr* out);

// A cheaper Decode for look-ahead: treatment, flags, length and branch target are right (a move to
// or from a system register counts as a plain one); operands are left empty.
DecodeStatus DecodeFlagsOnly(const u8* bytes, unsigned available, LinearAddr pc, unsigned code_bits,
                             Instr* out);

// Makes #UD of an instruction whose feature is not shown, and BSF and BSR of TZCNT and LZCNT, as
// CPUs without them do.
void HideUnlessShown(const FeatureSet& shown, Instr* instr);

// Intel syntax, absolute branch targets, upper-case mnemonics. For dumps and messages.
std::string Disassemble(const Instr& instr);
// The same of an instruction's bytes, such as a log or a profile keeps them. "(undefined)" if they
// are none.
std::string DisassembleBytes(std::span<const u8> bytes, LinearAddr pc, unsigned code_bits);
const char* MnemonicName(u16 mnemonic);
const char* TreatmentName(Treatment treatment);

}  // namespace alibi::isa

#endif  // ALIBI_ISA_DECODER_H_
