// SPDX-License-Identifier: Apache-2.0
// The decoding library, for the decoder's own files.
#ifndef ALIBI_ISA_DECODER_LIBRARY_H_
#define ALIBI_ISA_DECODER_LIBRARY_H_

#include <Zydis/Zydis.h>

#include "isa/features.h"

namespace alibi::isa {

// As the host's CPU decodes (near branches with an operand-size prefix are the vendor's).
const ZydisDecoder& DecoderFor(unsigned code_bits);

// By the library's instruction set.
Feature FeatureOf(ZydisISASet set);

}  // namespace alibi::isa

#endif  // ALIBI_ISA_DECODER_LIBRARY_H_
