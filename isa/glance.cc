// SPDX-License-Identifier: Apache-2.0
#include "isa/glance.h"

#include <algorithm>

#include "isa/decoder_library.h"

namespace alibi::isa {
namespace {

constexpr unsigned kMaxLength = 15;

Feature StateFeatureOf(const ZydisDecodedInstruction& z) {
  switch (z.encoding) {
    case ZYDIS_INSTRUCTION_ENCODING_EVEX:
      return Feature::kAvx512f;
    case ZYDIS_INSTRUCTION_ENCODING_XOP:
      return z.meta.isa_set == ZYDIS_ISA_SET_XOP ? Feature::kAvx : Feature::kBase;
    case ZYDIS_INSTRUCTION_ENCODING_VEX:
      break;
    default:
      return Feature::kBase;
  }
  switch (z.meta.isa_ext) {
    case ZYDIS_ISA_EXT_BMI1:
    case ZYDIS_ISA_EXT_BMI2:
    case ZYDIS_ISA_EXT_AMX_TILE:
    case ZYDIS_ISA_EXT_AMX_INT8:
    case ZYDIS_ISA_EXT_AMX_BF16:
      return Feature::kBase;
    case ZYDIS_ISA_EXT_AVX512VEX:
      return Feature::kAvx512f;
    default:
      return Feature::kAvx;
  }
}

}  // namespace

Glance GlanceAt(const u8* bytes, unsigned available, unsigned code_bits) {
  Glance glance;
  if (available == 0) {
    glance.status = DecodeStatus::kNeedMoreBytes;
    return glance;
  }
  available = std::min(available, kMaxLength);
  ZydisDecoderContext context;
  ZydisDecodedInstruction z;
  const ZyanStatus status =
      ZydisDecoderDecodeInstruction(&DecoderFor(code_bits), &context, bytes, available, &z);
  if (ZYAN_SUCCESS(status)) {
    glance.status = DecodeStatus::kOk;
    glance.length = z.length;
    glance.feature = FeatureOf(z.meta.isa_set);
    glance.state_feature = StateFeatureOf(z);
  } else if (status == ZYDIS_STATUS_NO_MORE_DATA) {
    glance.status = available < kMaxLength ? DecodeStatus::kNeedMoreBytes : DecodeStatus::kTooLong;
  } else if (status == ZYDIS_STATUS_INSTRUCTION_TOO_LONG) {
    glance.status = DecodeStatus::kTooLong;
  }
  return glance;
}

}  // namespace alibi::isa
