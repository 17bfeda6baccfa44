// SPDX-License-Identifier: Apache-2.0
// Instruction set extensions, by the CPUID bit that shows them.
#ifndef ALIBI_ISA_FEATURES_H_
#define ALIBI_ISA_FEATURES_H_

#include <iterator>

#include "base/types.h"

namespace alibi::isa {

enum class Feature : u8 {
  kBase,  // on every x86-64 CPU
#define ALIBI_FEATURE(name, text, leaf, subleaf, reg, bit) name,
#include "isa/features.inc"
  kCount
};

enum class CpuidRegister : u8 { eax, ebx, ecx, edx };

struct FeatureBit {
  const char* text;
  u32 leaf, subleaf;
  CpuidRegister reg;
  u8 bit;
};

inline constexpr FeatureBit kFeatureBits[] = {
    {"base", 0, 0, CpuidRegister::eax, 0},
#define ALIBI_FEATURE(name, text, leaf, subleaf, reg, bit) \
  {text, leaf, subleaf, CpuidRegister::reg, bit},
#include "isa/features.inc"
};
static_assert(std::size(kFeatureBits) == static_cast<unsigned>(Feature::kCount));

constexpr const FeatureBit& FeatureBitOf(Feature feature) {
  return kFeatureBits[static_cast<unsigned>(feature)];
}

// What a guest's CPUID shows; everything by default.
class FeatureSet {
 public:
  constexpr bool Has(Feature feature) const {
    const unsigned n = static_cast<unsigned>(feature);
    return (words_[n / 64] >> (n % 64)) & 1;
  }
  constexpr void Show(Feature feature) {
    const unsigned n = static_cast<unsigned>(feature);
    words_[n / 64] |= u64{1} << (n % 64);
  }
  constexpr void Hide(Feature feature) {
    const unsigned n = static_cast<unsigned>(feature);
    words_[n / 64] &= ~(u64{1} << (n % 64));
  }

 private:
  u64 words_[2] = {~u64{0}, ~u64{0}};
  static_assert(static_cast<unsigned>(Feature::kCount) <= 128);
};

// What a CPUID shows: `read` gives the four registers of a leaf and subleaf.
template <class Read>
FeatureSet FeaturesShownBy(Read read) {
  FeatureSet shown;
  for (unsigned i = 1; i < static_cast<unsigned>(Feature::kCount); ++i) {
    const FeatureBit& bit = kFeatureBits[i];
    const auto r = read(bit.leaf, bit.subleaf);
    const u32 registers[] = {r.eax, r.ebx, r.ecx, r.edx};
    if (!((registers[static_cast<unsigned>(bit.reg)] >> bit.bit) & 1)) {
      shown.Hide(static_cast<Feature>(i));
    }
  }
  return shown;
}

}  // namespace alibi::isa

#endif  // ALIBI_ISA_FEATURES_H_
