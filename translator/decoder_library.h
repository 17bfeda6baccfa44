// SPDX-License-Identifier: Apache-2.0
// The decoding library, for the decoder's own files.
#ifndef ALIBI_TRANSLATOR_DECODER_LIBRARY_H_
#define ALIBI_TRANSLATOR_DECODER_LIBRARY_H_

#include <Zydis/Zydis.h>

namespace alibi::translator {

// As the host's CPU decodes (near branches with an operand-size prefix are the vendor's).
const ZydisDecoder& DecoderFor(unsigned code_bits);

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_DECODER_LIBRARY_H_
