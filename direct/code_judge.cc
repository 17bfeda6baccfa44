// SPDX-License-Identifier: Apache-2.0
#include "direct/code_judge.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "direct/row_match.h"
#include "isa/glance.h"
#include "vcpu/state.h"

namespace alibi::direct {
namespace {

constexpr unsigned kMostPrefixes = 14;  // an instruction has 15 bytes

bool Applies(const Condition& when, const HostTraits& host, bool same_xsave,
             const FeatureList& hidden) {
  switch (when.kind) {
    case Condition::Kind::kAlways:
      return true;
    case Condition::Kind::kUnlessCpuidFaults:
      return !host.cpuid_faults;
    case Condition::Kind::kUnlessSameXsave:
      return !same_xsave;
    case Condition::Kind::kOnIntel:
      return host.vendor == vcpu::Vendor::kIntel;
    case Condition::Kind::kOnAmd:
      return host.vendor == vcpu::Vendor::kAmd;
    case Condition::Kind::kWithShadowStacks:
      return host.shadow_stacks;
    case Condition::Kind::kNotShown:
    case Condition::Kind::kUnknown:
      return hidden.Overlaps(when.features);
  }
  return true;
}

FeatureList HiddenFeatures(const HostTraits& host, const GuestTraits& guest) {
  FeatureList hidden;
  for (unsigned i = 1; i < static_cast<unsigned>(isa::Feature::kCount); ++i) {
    const auto feature = static_cast<isa::Feature>(i);
    if (host.features.Has(feature) && !guest.features.Has(feature)) hidden.Add(feature);
  }
  return hidden;
}

void AddLeads(const HostVisibleRow& row, std::vector<u8>* leads, std::array<bool, 256>* lead_0f) {
  const auto lead = [&](u8 byte) {
    if (std::find(leads->begin(), leads->end(), byte) == leads->end()) leads->push_back(byte);
  };
  const auto lead_opcodes = [&](auto add) {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      if (row.opcodes.Has(static_cast<u8>(opcode))) add(static_cast<u8>(opcode));
    }
  };
  switch (row.map) {
    case OpcodeMap::kOneByte:
      return lead_opcodes(lead);
    case OpcodeMap::k0F:
      lead_opcodes([&](u8 opcode) { (*lead_0f)[opcode] = true; });
      return lead(0x0f);
    case OpcodeMap::k0F38:
      (*lead_0f)[0x38] = true;
      return lead(0x0f);
    case OpcodeMap::k0F3A:
      (*lead_0f)[0x3a] = true;
      return lead(0x0f);
    case OpcodeMap::kVexMaps:
      lead(0xc4);
      return lead(0xc5);
    case OpcodeMap::kEvexMaps:
      return lead(0x62);
    case OpcodeMap::kXopMaps:
      return lead(0x8f);
  }
}

}  // namespace

GuestTraits GuestTraitsOf(const isa::FeatureSet& shown, u64 cr4, u64 xcr0) {
  using enum isa::Feature;
  GuestTraits guest{.features = shown, .xcr0 = (cr4 & vcpu::kCr4Osxsave) ? xcr0 : 0};
  const auto need = [&](bool on, std::initializer_list<isa::Feature> features) {
    for (const isa::Feature feature : features) {
      if (!on) guest.features.Hide(feature);
    }
  };
  constexpr u64 kAvxState = vcpu::kXcr0Sse | vcpu::kXcr0Avx;
  constexpr u64 kAvx512State = kAvxState | vcpu::kXcr0Avx512;
  need(cr4 & vcpu::kCr4Fsgsbase, {kFsgsbase});
  need(cr4 & vcpu::kCr4Osxsave, {kXsave, kXsaveopt, kXsavec, kXgetbv1});
  need((guest.xcr0 & kAvxState) == kAvxState, {kAvx});
  need((guest.xcr0 & kAvx512State) == kAvx512State, {kAvx512f});
  return guest;
}

// One page with its surroundings, laid out as one piece.
class CodeJudge::Scan {
 public:
  Scan(const CodeJudge& judge, const Plan& plan, const CodePage& page);

  // Calls found(offset, row, cut) for each raw hit that `reached` (or nobody) is asked about; stops
  // when it returns true.
  template <class Found>
  void ForEachHit(Found found);
  // Does a sequence of instructions arrive at one of these offsets? (In the buffer; a set over the
  // offsets from `last` downwards.)
  bool Arrives(unsigned last, u32 starts_below) const;

  unsigned page_begin() const { return page_begin_; }

 private:
  static constexpr unsigned kSlack = 16;  // for loads of 16 bytes

  template <class Found>
  bool LookAt(unsigned opcode, Found found);
  bool IsPage(unsigned at) const { return at >= page_begin_ && at < page_begin_ + kPageSize; }
  bool IsLikelyEntry(unsigned at) const;

  const CodeJudge& judge_;
  const Plan& plan_;
  unsigned page_begin_, size_;
  std::span<const u16> starts_;
  CodeBytes code_;
  alignas(16) u8 buffer_[kContextBefore + kPageSize + kContextBehind + kSlack];
};

CodeJudge::Scan::Scan(const CodeJudge& judge, const Plan& plan, const CodePage& page)
    : judge_(judge), plan_(plan), starts_(page.starts) {
  const unsigned before = std::min<std::size_t>(page.before.size(), kContextBefore);
  const unsigned behind = std::min<std::size_t>(page.behind.size(), kContextBehind);
  page_begin_ = before;
  size_ = before + kPageSize + behind;
  std::copy_n(page.before.end() - before, before, buffer_);
  std::memcpy(buffer_ + before, page.bytes.data(), kPageSize);
  std::copy_n(page.behind.begin(), behind, buffer_ + before + kPageSize);
  std::memset(buffer_ + size_, 0x90, kSlack);
  code_ = {buffer_, size_, page.code_bits};
}

template <class Found>
void CodeJudge::Scan::ForEachHit(Found found) {
  // The opcode may stand behind the page's end while its prefixes do not.
  for (unsigned at = page_begin_; at < size_; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(buffer_ + at));
    __m128i any = _mm_setzero_si128();
    for (const u8 lead : plan_.leads) {
      any = _mm_or_si128(any, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(lead))));
    }
    for (unsigned set = static_cast<unsigned>(_mm_movemask_epi8(any)); set != 0; set &= set - 1) {
      const unsigned opcode = at + static_cast<unsigned>(std::countr_zero(set));
      if (opcode >= size_) return;
      const bool known = opcode + 1 < size_;
      if (buffer_[opcode] == 0x0f && known && !plan_.lead_0f[buffer_[opcode + 1]]) continue;
      if (LookAt(opcode, found)) return;
    }
  }
  // Prefixes up to the end of what is known.
  if (size_ < page_begin_ + kPageSize + kContextBehind) LookAt(size_, found);
}

// Every row at an opcode, with each number of the prefixes in front of it.
template <class Found>
bool CodeJudge::Scan::LookAt(unsigned opcode, Found found) {
  unsigned first = opcode;
  while (first > page_begin_ && opcode - first < kMostPrefixes &&
         IsPrefix(buffer_[first - 1], code_.code_bits)) {
    --first;
  }
  for (const HostVisibleRow* row : plan_.rows) {
    u32 starts_below = 0;
    bool cut = true;
    for (unsigned start = first; start <= opcode && start < size_; ++start) {
      if (!IsPage(start)) continue;
      const RowMatch match = MatchRow(*row, code_, start, opcode, judge_.hidden_);
      if (match == RowMatch::kNo) continue;
      starts_below |= u32{1} << (opcode - start);
      cut &= match == RowMatch::kCut;
    }
    if (starts_below != 0 && found(opcode, starts_below, *row, cut)) return true;
  }
  return false;
}

// What stands behind padding or a return, as functions do.
bool CodeJudge::Scan::IsLikelyEntry(unsigned at) const {
  if (!IsPage(at) || (at - page_begin_) % 16 != 0 || at == 0) return false;
  const u8 before = buffer_[at - 1];
  return before == 0xc3 || before == 0xcc || before == 0x90 || before == 0x00;
}

bool CodeJudge::Scan::Arrives(unsigned last, u32 starts_below) const {
  const unsigned first = last + 1 - static_cast<unsigned>(std::bit_width(starts_below));
  if (first < kRunUp) return true;
  const unsigned run_up = first - kRunUp;  // the last that is any beginning
  const unsigned begin = run_up >= kSpread ? run_up - kSpread + 1 : 0;
  std::array<bool, kContextBefore + kMostPrefixes + 1> reached{};
  for (unsigned at = begin; at <= run_up; ++at) reached[at - begin] = true;
  for (unsigned at = run_up + 1; at <= last; ++at) {
    if (IsLikelyEntry(at)) reached[at - begin] = true;
  }
  if (last >= page_begin_) {
    const unsigned from = run_up + 1 > page_begin_ ? run_up + 1 - page_begin_ : 0;
    for (auto start = std::lower_bound(starts_.begin(), starts_.end(), from);
         start != starts_.end() && *start + page_begin_ <= last; ++start) {
      reached[*start + page_begin_ - begin] = true;
    }
  }
  for (unsigned at = begin; at <= last; ++at) {
    if (!reached[at - begin]) continue;
    if (at >= first && (starts_below >> (last - at) & 1)) return true;
    const isa::Glance glance = isa::GlanceAt(buffer_ + at, size_ - at, code_.code_bits);
    if (glance.status != isa::DecodeStatus::kOk) continue;
    if (at + glance.length <= last) reached[at + glance.length - begin] = true;
  }
  return false;
}

CodeJudge::CodeJudge(const HostTraits& host, const GuestTraits& guest)
    : hidden_(HiddenFeatures(host, guest)),
      plan64_(MakePlan(host, guest, kCode64)),
      plan32_(MakePlan(host, guest, kCode32)) {}

CodeJudge::Plan CodeJudge::MakePlan(const HostTraits& host, const GuestTraits& guest,
                                    CodeSizes size) const {
  using enum isa::Feature;
  bool same_xsave = host.xcr0 == guest.xcr0;
  for (const isa::Feature feature : {kXsave, kXsaveopt, kXsavec, kXgetbv1}) {
    same_xsave &= !hidden_.Has(feature);
  }
  Plan plan;
  for (const HostVisibleRow& row : HostVisibleRows()) {
    if (!(row.code & size) || !Applies(row.when, host, same_xsave, hidden_)) continue;
    plan.rows.push_back(&row);
    AddLeads(row, &plan.leads, &plan.lead_0f);
  }
  return plan;
}

const CodeJudge::Plan& CodeJudge::PlanFor(unsigned code_bits) const {
  ALIBI_CHECK(code_bits == 64 || code_bits == 32, "code of 16 bits does not run directly");
  return code_bits == 64 ? plan64_ : plan32_;
}

std::optional<WhyNot> CodeJudge::Judge(const CodePage& page) const {
  Scan scan(*this, PlanFor(page.code_bits), page);
  std::optional<WhyNot> why;
  scan.ForEachHit([&](unsigned opcode, u32 starts_below, const HostVisibleRow& row, bool cut) {
    if (!scan.Arrives(opcode, starts_below)) return false;
    const unsigned start = opcode + 1 - static_cast<unsigned>(std::bit_width(starts_below));
    why = WhyNot{static_cast<u16>(start - scan.page_begin()), row.name, cut};
    return true;
  });
  return why;
}

unsigned CodeJudge::CountRawHits(const CodePage& page) const {
  Scan scan(*this, PlanFor(page.code_bits), page);
  unsigned hits = 0;
  scan.ForEachHit([&](unsigned, u32, const HostVisibleRow&, bool) {
    ++hits;
    return false;
  });
  return hits;
}

}  // namespace alibi::direct
