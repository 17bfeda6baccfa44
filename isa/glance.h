// SPDX-License-Identifier: Apache-2.0
// The least that can be said of an instruction, for those who look at very many of them: how long
// it is and what it needs. Some 100 cycles, where Decode takes several times as many.
#ifndef ALIBI_ISA_GLANCE_H_
#define ALIBI_ISA_GLANCE_H_

#include "base/types.h"
#include "isa/decoder.h"
#include "isa/features.h"

namespace alibi::isa {

struct Glance {
  DecodeStatus status = DecodeStatus::kUndefined;
  u8 length = 0;  // in bytes, 1-15 where status is kOk; else 0
  // The extension that brought it, and the one whose registers' state it needs: AVX of most VEX
  // encodings, AVX512F of EVEX. kBase: none.
  Feature feature = Feature::kBase;
  Feature state_feature = Feature::kBase;
};

// code_bits: 16, 32 or 64. kUndefined only of what the library does not know; what a CPU refuses
// for its privilege or its features is an instruction here.
Glance GlanceAt(const u8* bytes, unsigned available, unsigned code_bits);

}  // namespace alibi::isa

#endif  // ALIBI_ISA_GLANCE_H_
