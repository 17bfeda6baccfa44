// SPDX-License-Identifier: Apache-2.0
#include "direct/code_judge.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>

#include "base/check.h"
#include "direct/code_length.h"
#include "direct/code_votes.h"
#include "direct/row_match.h"
#include "isa/glance.h"
#include "vcpu/state.h"

namespace alibi::direct {
namespace {

constexpr unsigned kMostPrefixes = 14;  // an instruction has 15 bytes
constexpr u8 kEscape = 0x0f;

bool Applies(const Condition& when, const HostTraits& host, bool same_xsave,
             bool same_x87_selectors, const FeatureList& hidden) {
  switch (when.kind) {
    case Condition::Kind::kAlways:
    case Condition::Kind::kAlwaysByVote:
      return true;
    case Condition::Kind::kUnlessSameX87Selectors:
      return !same_x87_selectors;
    case Condition::Kind::kUnlessCpuidTraps:
      return !host.cpuid_traps;
    case Condition::Kind::kUnlessTscTraps:
      return !host.tsc_traps;
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

// Calls found(byte) for each of the row's opcodes.
template <class Found>
void ForEachOpcode(const HostVisibleRow& row, Found found) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (row.opcodes.Has(static_cast<u8>(opcode))) found(static_cast<u8>(opcode));
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

// Offsets at which sequences of instructions arrive, from `begin` on.
class CodeJudge::Reached {
 public:
  explicit Reached(unsigned begin) : begin_(begin) {}
  void Add(unsigned at) { at_[at - begin_] = true; }
  bool Has(unsigned at) const { return at_[at - begin_]; }

 private:
  unsigned begin_;
  std::array<bool, kRunUp + kSpread + kMostPrefixes + 1> at_{};
};

// One page with its surroundings, laid out as one piece.
class CodeJudge::Scan {
 public:
  Scan(const CodeJudge& judge, const Plan& plan, const CodePage& page);

  // Calls found(opcode, starts_below, row, cut) for each place that looks like an instruction of
  // the table, in ascending order, until it returns true. The first two are for Arrives().
  template <class Found>
  void ForEachHit(Found found);
  // Does a sequence of instructions arrive at one of these offsets? (In the buffer; a set over the
  // offsets from `last` downwards.)
  bool Arrives(unsigned last, u32 starts_below) const;
  // Can a breakpoint stop what begins there? Not behind MOV SS and POP SS, which hold it back (SDM
  // vol. 3, 6.8.3), nor where these may stand in another page.
  bool CanBreak(unsigned at) const;
  // Does it lie within an instruction that is known?
  bool IsWithinKnown(unsigned at) const { return within_known_[at - page_begin_]; }
  CodeVotes Votes() const;

  unsigned page_begin() const { return page_begin_; }

 private:
  static constexpr unsigned kSlack = 32;  // for loads of 16 bytes, and CodeLength()
  static constexpr unsigned kZeros = 8;   // that are padding

  template <class Found>
  bool LookAt(unsigned opcode, const Rows& rows, Found found);
  bool IsPage(unsigned at) const { return at >= page_begin_ && at < page_begin_ + kPageSize; }
  bool IsPadding(unsigned end) const;
  bool IsLikelyEntry(unsigned at) const;
  void AddKnownStarts(unsigned from, unsigned last, Reached* reached) const;
  void NoteKnown();

  const CodeJudge& judge_;
  const Plan& plan_;
  unsigned page_begin_, size_;
  std::span<const u16> starts_;
  std::bitset<kPageSize> within_known_;
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
  NoteKnown();
}

void CodeJudge::Scan::NoteKnown() {
  for (const u16 start : starts_) {
    const unsigned end = start + CodeLength(buffer_ + page_begin_ + start, code_.code_bits);
    for (unsigned at = start + 1; at < std::min<unsigned>(end, kPageSize); ++at) {
      within_known_.set(at);
    }
  }
  for (const u16 start : starts_) within_known_.reset(start);
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
      const bool escaped = buffer_[opcode] == kEscape && opcode + 1 < size_;
      const Rows& rows =
          escaped ? plan_.by_second[buffer_[opcode + 1]] : plan_.by_lead[buffer_[opcode]];
      if (!rows.empty() && LookAt(opcode, rows, found)) return;
    }
  }
  // Prefixes up to the end of what is known.
  if (size_ < page_begin_ + kPageSize + kContextBehind) LookAt(size_, plan_.all, found);
}

// Every row at an opcode, with each number of the prefixes in front of it.
template <class Found>
bool CodeJudge::Scan::LookAt(unsigned opcode, const Rows& rows, Found found) {
  unsigned first = opcode;
  while (first > page_begin_ && opcode - first < kMostPrefixes &&
         IsPrefix(buffer_[first - 1], code_.code_bits)) {
    --first;
  }
  for (const HostVisibleRow* row : rows) {
    u32 starts_below = 0;
    bool cut = true;
    for (unsigned start = first; start <= opcode && start < size_; ++start) {
      if (!IsPage(start) || IsWithinKnown(start)) continue;
      const RowMatch match = MatchRow(*row, code_, start, opcode, judge_.hidden_);
      if (match == RowMatch::kNo) continue;
      starts_below |= u32{1} << (opcode - start);
      cut &= match == RowMatch::kCut;
    }
    if (starts_below != 0 && found(opcode, starts_below, *row, cut)) return true;
  }
  return false;
}

// Of the kinds that are rare at the end of displacements and immediates.
bool CodeJudge::Scan::IsPadding(unsigned end) const {
  if (end < kZeros) return false;
  const u8 last = buffer_[end - 1];
  if ((last == 0xcc || last == 0x90) && buffer_[end - 2] == last) return true;
  return std::all_of(buffer_ + end - kZeros, buffer_ + end, [](u8 byte) { return byte == 0; });
}

// As functions begin: aligned, behind padding or a return.
bool CodeJudge::Scan::IsLikelyEntry(unsigned at) const {
  if (!IsPage(at) || (at - page_begin_) % 16 != 0 || at < kZeros) return false;
  const u8 before = buffer_[at - 1];
  if (before == 0xc3 || before == 0xcc || before == 0x90) return true;
  // Fewer are seen at the end of displacements and immediates.
  return std::all_of(buffer_ + at - kZeros, buffer_ + at, [](u8 byte) { return byte == 0; });
}

void CodeJudge::Scan::AddKnownStarts(unsigned from, unsigned last, Reached* reached) const {
  if (last < page_begin_) return;
  const unsigned first = from > page_begin_ ? from - page_begin_ : 0;
  for (auto start = std::lower_bound(starts_.begin(), starts_.end(), first);
       start != starts_.end() && *start + page_begin_ <= last; ++start) {
    reached->Add(*start + page_begin_);
  }
}

bool CodeJudge::Scan::Arrives(unsigned last, u32 starts_below) const {
  const unsigned first = last + 1 - static_cast<unsigned>(std::bit_width(starts_below));
  if (first < kRunUp) return true;
  const unsigned run_up = first - kRunUp;  // the last that is any beginning
  const unsigned begin = run_up >= kSpread ? run_up - kSpread + 1 : 0;
  Reached reached(begin);
  for (unsigned at = begin; at <= run_up; ++at) reached.Add(at);
  for (unsigned at = run_up + 1; at <= last; ++at) {
    if (IsLikelyEntry(at)) reached.Add(at);
  }
  AddKnownStarts(run_up + 1, last, &reached);
  bool passed = false;
  for (unsigned at = begin; at <= last; ++at) {
    if (!reached.Has(at)) continue;
    if (at >= first && (starts_below >> (last - at) & 1)) return true;
    // Linkers pad with zeros, which are half an instruction each.
    unsigned behind = at;
    while (behind < last && buffer_[behind] == 0) ++behind;
    reached.Add(behind);
    const isa::Glance glance = isa::GlanceAt(buffer_ + at, size_ - at, code_.code_bits);
    if (glance.status == isa::DecodeStatus::kUndefined) continue;
    const unsigned next = at + glance.length;
    const bool passes = glance.status != isa::DecodeStatus::kOk || next > last;
    if (!passes) reached.Add(next);
    passed |= passes;
  }
  return !passed;
}

bool CodeJudge::Scan::CanBreak(unsigned at) const {
  constexpr unsigned kLongest = 15;
  constexpr u8 kMovToSegment = 0x8e, kPopSs = 0x17;
  if (at < page_begin_ + kLongest) return false;
  for (unsigned i = at - kLongest; i < at; ++i) {
    if (buffer_[i] == kMovToSegment && (buffer_[i + 1] >> 3 & 7) == vcpu::kSs) return false;
  }
  return code_.code_bits == 64 || buffer_[at - 1] != kPopSs;
}

void HostVisiblePlaces::Add(u16 at) {
  if (count > kMost || std::find(offset, offset + count, at) != offset + count) return;
  if (count < kMost) offset[count] = at;
  ++count;
}

// Behind data nobody votes for the first instructions of a function.
CodeVotes CodeJudge::Scan::Votes() const {
  return CodeVotes(buffer_, size_, code_.code_bits, [&](unsigned at) {
    if (!IsPage(at)) return false;
    const u16 offset = static_cast<u16>(at - page_begin_);
    return (offset % 16 == 0 && IsPadding(at)) ||
           std::binary_search(starts_.begin(), starts_.end(), offset);
  });
}

CodeJudge::CodeJudge(const HostTraits& host, const GuestTraits& guest)
    : hidden_(HiddenFeatures(host, guest)),
      plans64_(MakePlans(host, guest, kCode64)),
      plans32_(MakePlans(host, guest, kCode32)) {}

CodeJudge::Plans CodeJudge::MakePlans(const HostTraits& host, const GuestTraits& guest,
                                      CodeSizes size) const {
  using enum isa::Feature;
  bool same_xsave = host.xcr0 == guest.xcr0;
  for (const isa::Feature feature : {kXsave, kXsaveopt, kXsavec, kXgetbv1}) {
    same_xsave &= !hidden_.Has(feature);
  }
  const bool same_x87_selectors = guest.same_selectors || !host.x87_selectors;
  Plans plans;
  for (const HostVisibleRow& row : HostVisibleRows()) {
    if (!(row.code & size) || !Applies(row.when, host, same_xsave, same_x87_selectors, hidden_)) {
      continue;
    }
    (row.when.kind == Condition::Kind::kAlwaysByVote ? plans.by_vote : plans.by_arrival).Add(&row);
  }
  return plans;
}

void CodeJudge::Plan::Add(const HostVisibleRow* row) {
  all.push_back(row);
  const auto lead = [&](u8 byte) { by_lead[byte].push_back(row); };
  const auto second = [&](u8 byte) {
    lead(kEscape);
    by_second[byte].push_back(row);
  };
  switch (row->map) {
    case OpcodeMap::kOneByte:
      ForEachOpcode(*row, lead);
      break;
    case OpcodeMap::k0F:
      ForEachOpcode(*row, second);
      break;
    case OpcodeMap::k0F38:
      second(0x38);
      break;
    case OpcodeMap::k0F3A:
      second(0x3a);
      break;
    case OpcodeMap::kVexMaps:
      lead(0xc4);
      lead(0xc5);
      break;
    case OpcodeMap::kEvexMaps:
      lead(0x62);
      break;
    case OpcodeMap::kXopMaps:
      lead(0x8f);
      break;
  }
  leads.clear();
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!by_lead[byte].empty()) leads.push_back(static_cast<u8>(byte));
  }
}

const CodeJudge::Plans& CodeJudge::PlansFor(unsigned code_bits) const {
  ALIBI_CHECK(code_bits == 64 || code_bits == 32, "code of 16 bits does not run directly");
  return code_bits == 64 ? plans64_ : plans32_;
}

// What is found in a page, in ascending order per scan.
class CodeJudge::Finds {
 public:
  // True: nothing that is still to come can change the verdict.
  bool Add(const Scan& scan, unsigned opcode, u32 starts_below, const HostVisibleRow& row,
           bool cut) {
    const auto offset = [&](unsigned below) {
      return static_cast<u16>(opcode - below - scan.page_begin());
    };
    const unsigned farthest = static_cast<unsigned>(std::bit_width(starts_below)) - 1;
    needs_next_ |= cut;
    if (!why_ || (why_->cut && !cut)) {
      why_.emplace();
      why_->offset = offset(farthest);
      why_->row = row.name;
      why_->cut = cut;
    }
    if (cut) return false;
    for (u32 set = starts_below; set != 0; set &= set - 1) {
      const auto below = static_cast<unsigned>(std::countr_zero(set));
      can_break_ &= scan.CanBreak(opcode - below);
      places_.Add(offset(below));
    }
    can_break_ &= places_.count <= HostVisiblePlaces::kMost;
    return Done();
  }
  bool Done() const { return why_ && !why_->cut && !can_break_; }
  std::optional<WhyNot> Verdict() const {
    std::optional<WhyNot> why = why_;
    if (why) {
      why->needs_next = needs_next_;
      if (can_break_) why->places = places_;
    }
    return why;
  }

 private:
  std::optional<WhyNot> why_;
  HostVisiblePlaces places_;
  bool needs_next_ = false, can_break_ = true;
};

std::optional<WhyNot> CodeJudge::Judge(const CodePage& page) const {
  Finds finds;
  JudgeByVote(page, &finds);
  if (!finds.Done()) JudgeByArrival(page, &finds);
  return finds.Verdict();
}

void CodeJudge::JudgeByArrival(const CodePage& page, Finds* finds) const {
  Scan scan(*this, PlansFor(page.code_bits).by_arrival, page);
  scan.ForEachHit([&](unsigned opcode, u32 starts_below, const HostVisibleRow& row, bool cut) {
    return scan.Arrives(opcode, starts_below) && finds->Add(scan, opcode, starts_below, row, cut);
  });
}

void CodeJudge::JudgeByVote(const CodePage& page, Finds* finds) const {
  Scan scan(*this, PlansFor(page.code_bits).by_vote, page);
  const CodeVotes votes = scan.Votes();
  scan.ForEachHit([&](unsigned opcode, u32 starts_below, const HostVisibleRow& row, bool cut) {
    return votes.Begins(opcode, starts_below) && finds->Add(scan, opcode, starts_below, row, cut);
  });
}

unsigned CodeJudge::CountRawHits(const CodePage& page) const {
  Scan scan(*this, PlansFor(page.code_bits).by_arrival, page);
  unsigned hits = 0;
  scan.ForEachHit([&](unsigned, u32, const HostVisibleRow&, bool) {
    ++hits;
    return false;
  });
  return hits;
}

}  // namespace alibi::direct
