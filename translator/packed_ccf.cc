// SPDX-License-Identifier: Apache-2.0
#include "translator/packed_ccf.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "abi/contract.h"
#include "base/check.h"
#include "translator/entry_check.h"

namespace alibi::translator {
namespace {

enum SiteFact : u8 {
  kWindow = 1 << 0,
  kSiteChecked = 1 << 1,
  kShared = 1 << 2,
  kInGroup = 1 << 3,
  kKeepsFlags = 1 << 4,
};

// Writes one thing behind the other, as far as there is room.
class Writer {
 public:
  explicit Writer(std::span<u8> room) : room_(room) {}
  template <class T>
  void Append(const T* from, u64 count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const u64 bytes = count * sizeof(T);
    fits_ = fits_ && bytes <= room_.size() - size_;
    if (!fits_) return;
    if (bytes != 0) std::memcpy(room_.data() + size_, from, bytes);
    size_ += bytes;
  }
  u8* here() const { return room_.data() + size_; }
  // 0: it did not fit.
  u64 size() const { return fits_ ? size_ : 0; }

 private:
  const std::span<u8> room_;
  u64 size_ = 0;
  bool fits_ = true;
};

// Places in the code, by kind.
class RelocationList {
 public:
  void Add(Relocation kind, u64 place) {
    if (count_ == kMost) {
      fits_ = false;
    } else {
      all_[count_++] = {static_cast<u16>(place), kind};
    }
  }
  // One kind behind the other; false: there are too many of one.
  bool Sort(std::array<u8, kRelocationKinds>* counts, std::span<const u16>* places) {
    std::array<unsigned, kRelocationKinds> next{};
    for (unsigned i = 0; i < count_; ++i) ++next[static_cast<unsigned>(all_[i].kind)];
    unsigned begin = 0;
    for (unsigned kind = 0; kind < kRelocationKinds; ++kind) {
      fits_ = fits_ && next[kind] <= 255;
      (*counts)[kind] = static_cast<u8>(next[kind]);
      begin += std::exchange(next[kind], begin);
    }
    for (unsigned i = 0; i < count_; ++i) {
      sorted_[next[static_cast<unsigned>(all_[i].kind)]++] = all_[i].place;
    }
    *places = {sorted_.data(), count_};
    return fits_;
  }

 private:
  struct Entry {
    u16 place;
    Relocation kind;
  };
  static constexpr unsigned kMost = 1024;
  std::array<Entry, kMost> all_;
  std::array<u16, kMost> sorted_;
  unsigned count_ = 0;
  bool fits_ = true;
};

// bytes of `size` at `place`, with `delta` added.
void AddTo(u8* place, unsigned size, u64 delta) {
  u64 value = 0;
  std::memcpy(&value, place, size);
  value += delta;
  std::memcpy(place, &value, size);
}

u64 OffsetIn(HostAddr host, HostAddr begin) { return host - begin; }

}  // namespace

const PackedCcf::RelocationKind PackedCcf::kKinds[kRelocationKinds] = {
#define ALIBI_RELOCATION(name, holder, bytes, plus, minus) \
  {Part::k##holder, bytes, Part::k##plus, Part::k##minus},
    ALIBI_RELOCATIONS(ALIBI_RELOCATION)
#undef ALIBI_RELOCATION
};

PackedCcf::Mode PackedCcf::Mode::Of(const CodeMode& mode) {
  const unsigned facts = unsigned{mode.user} | unsigned{mode.cpl_1_or_2} << 1 |
                         unsigned{mode.flat} << 2 | unsigned{mode.wide_stack} << 3 |
                         unsigned{mode.simulate} << 4;
  return {mode.code_limit,        mode.code_base,  mode.code_bits,
          static_cast<u8>(facts), mode.unit_rules, 0};
}

void PackedCcf::Relocate(const u8* counts, const u16* offsets, const Places& from, const Places& to,
                         u8* hot, u8* cold) {
  for (unsigned kind = 0; kind < kRelocationKinds; ++kind) {
    const RelocationKind& how = kKinds[kind];
    const auto moved = [&](Part part) {
      return to[static_cast<unsigned>(part)] - from[static_cast<unsigned>(part)];
    };
    const u64 delta = moved(how.plus) - moved(how.minus);
    u8* code = how.holder == Part::kHot ? hot : cold;
    for (unsigned i = 0; i < counts[kind]; ++i) AddTo(code + *offsets++, how.bytes, delta);
  }
}

// --- Packing ---

u64 PackedCcf::Pack(const EmitRequest& request, const EmitResult& emitted, const StubTable& stubs,
                    const Ccf& ccf, const u8* page, std::span<u8> room) {
  ALIBI_CHECK(HostAddr(&ccf + 1) == HostAddr(request.target.data),
              "a CCF's address is known from its descriptors'");
  const TranslationUnit& tu = *request.tu;
  const InstrList instrs = ccf.instrs();
  if (!emitted.portable || instrs.ends_undefined() || ccf.phys_page2 != kNoPage ||
      ccf.mode.single || ccf.mode.careful) {
    return 0;
  }
  const HostAddr hot = ccf.entry;  // behind the check
  const HostAddr cold = ccf.cold_start;
  const u64 check = hot - ccf.hot_start;
  const u32 hot_bytes = emitted.hot_size - static_cast<u32>(check);

  RelocationList list;
  const auto add = [&](Relocation kind, u64 place) { list.Add(kind, place); };
  const auto in_hot = [&](HostAddr at) { return at >= hot && at <= hot + hot_bytes; };
  const auto in_cold = [&](HostAddr at) { return at >= cold && at <= cold + emitted.cold_size; };
  const auto target_of = [](HostAddr code, const u8* bytes, u16 place) {
    i32 rel;
    std::memcpy(&rel, bytes + place, sizeof(rel));
    return code + (place + 4 + static_cast<u64>(i64{rel}));
  };
  const CodeReferences& in_hot_code = *emitted.hot_references;
  const CodeReferences& in_cold_code = *emitted.cold_references;
  for (const u16 place : in_hot_code.jumps) {
    const HostAddr target = target_of(ccf.hot_start, emitted.hot_code, place);
    if (in_hot(target)) continue;
    add(in_cold(target) ? Relocation::kHotToCold : Relocation::kHotToStub, place - check);
  }
  for (const u16 place : in_cold_code.jumps) {
    const HostAddr target = target_of(cold, emitted.cold_code, place);
    if (in_cold(target)) continue;
    add(in_hot(target) ? Relocation::kColdToHot : Relocation::kColdToStub, place);
  }
  for (const u16 place : in_hot_code.descriptors) add(Relocation::kHotDescriptor, place - check);
  for (const u16 place : in_cold_code.descriptors) add(Relocation::kColdDescriptor, place);
  for (const u16 place : in_cold_code.misses) {
    MissWord word;
    std::memcpy(&word, emitted.cold_code + place, sizeof(word));
    const HostAddr resume = stubs.miss + word.ResumeDistance();
    add(in_hot(resume) ? Relocation::kMissOfHot : Relocation::kMissOfCold, place);
  }
  for (const u16 place : in_hot_code.branch_notes) add(Relocation::kBranchNote, place - check);
  for (const u16 place : in_hot_code.pcs32) add(Relocation::kHotPc32, place - check);
  for (const u16 place : in_cold_code.pcs32) add(Relocation::kColdPc32, place);
  for (const u16 place : in_hot_code.pcs64) add(Relocation::kHotPc64, place - check);
  for (const PcPlace place : ccf.pcs()) add(Relocation::kHotPc64, place - check);

  Header head{};
  head.mode = Mode::Of(ccf.mode);
  head.pc = ccf.pc;
  head.hot_bytes = static_cast<u16>(hot_bytes);
  head.cold_bytes = static_cast<u16>(emitted.cold_size);
  head.data_bytes = static_cast<u16>(emitted.data_size);
  head.side_offset = static_cast<u16>(ccf.side - request.target.data);
  head.redirect = static_cast<u16>(ccf.redirect - cold);
  head.slots_used = static_cast<u16>(emitted.slots_used);
  head.examined_begin = static_cast<i16>(tu.examined_begin - tu.pc);
  head.examined_end = static_cast<i16>(tu.examined_end - tu.pc);
  const auto ranges = tu.examined.ranges();
  for (const CodeRange& range : ranges) {
    head.examined_bytes = static_cast<u16>(head.examined_bytes + range.end - range.begin);
  }
  head.guest_bytes = ccf.guest_bytes;
  head.flags_live_in = ccf.flags_live_in;
  head.movable = ccf.movable;
  head.exits = ccf.exit_count;
  head.sites = ccf.site_count;
  head.faults = ccf.fault_count;
  head.cold_map = ccf.cold_count;
  head.pcs = ccf.pc_count;
  head.instrs = ccf.instr_count;
  head.ranges = static_cast<u8>(ranges.size());
  head.words = static_cast<u8>(tu.examined.words().size());
  std::span<const u16> relocations;
  if (!list.Sort(&head.relocations, &relocations)) return 0;
  Writer to(room);
  to.Append(&head, 1);
  const auto data_offset = [&](const void* descriptor) {
    return static_cast<u16>(static_cast<const u8*>(descriptor) - request.target.data);
  };
  for (const SiteDesc* from : ccf.sites()) {
    Site site{};
    site.slot = from->slot;
    site.data_offset = data_offset(from);
    if (from->resume) {
      const bool hot_resume = in_hot(from->resume);
      site.resumes_in = static_cast<u8>(hot_resume ? Part::kHot : Part::kCold);
      site.resume = static_cast<u16>(OffsetIn(from->resume, hot_resume ? hot : cold));
    }
    site.span_minus_1 = from->span_minus_1;
    site.size = from->size;
    site.shape = static_cast<u8>(from->shape);
    site.instr_index = from->instr_index;
    site.vector = from->vector;
    site.facts = static_cast<u8>((from->window ? kWindow : 0) | (from->checked ? kSiteChecked : 0) |
                                 (from->shared ? kShared : 0) | (from->in_group ? kInGroup : 0) |
                                 (from->keeps_flags ? kKeepsFlags : 0));
    to.Append(&site, 1);
  }
  for (const ExitDesc* from : ccf.exits()) {
    Exit exit{};
    if (from->kind != ExitKind::kIndirect) exit.target = static_cast<i32>(from->target - ccf.pc);
    exit.data_offset = data_offset(from);
    exit.patch = static_cast<u16>(from->patch - hot);
    exit.has_stub = bool{from->stub};
    if (from->stub) exit.stub = static_cast<u16>(from->stub - cold);
    exit.kind = static_cast<u8>(from->kind);
    exit.patch_length = from->patch_length;
    exit.instr_index = from->instr_index;
    to.Append(&exit, 1);
  }
  for (FaultPoint fault : ccf.faults()) {
    fault.host_offset = static_cast<u16>(fault.host_offset - check);
    to.Append(&fault, 1);
  }
  for (CodeMapEntry entry : ccf.map()) {
    entry.host_offset = static_cast<u16>(entry.host_offset - check);
    to.Append(&entry, 1);
  }
  to.Append(ccf.cold_map().data(), ccf.cold_map().size());
  to.Append(ranges.data(), ranges.size());
  to.Append(tu.examined.words().data(), tu.examined.words().size());
  for (const PcPlace place : ccf.pcs()) {
    const u16 without_check = static_cast<u16>(place - check);
    to.Append(&without_check, 1);
  }
  to.Append(relocations.data(), relocations.size());
  to.Append(ccf.plans().data(), ccf.plans().size());
  to.Append(instrs.offsets(), instrs.size() + 1);
  for (const CodeRange& range : ranges) {
    to.Append(page + tu.pc.PageOffset() + range.begin, static_cast<u64>(range.end - range.begin));
  }
  u8* const hot_code = to.here();
  to.Append(emitted.hot_code + check, hot_bytes);
  u8* const cold_code = to.here();
  to.Append(emitted.cold_code, emitted.cold_size);

  // As if all parts began at 0.
  Places here{};
  here[static_cast<unsigned>(Part::kHot)] = hot.value;
  here[static_cast<unsigned>(Part::kCold)] = cold.value;
  here[static_cast<unsigned>(Part::kData)] = HostAddr(request.target.data).value;
  here[static_cast<unsigned>(Part::kStubs)] = stubs.miss.value;
  here[static_cast<unsigned>(Part::kOrigin)] = request.target.data_origin.value;
  if (to.size() != 0) {
    Relocate(head.relocations.data(), relocations.data(), here, Places{}, hot_code, cold_code);
  }
  return to.size();
}

// --- Parsing ---

unsigned PackedCcf::RelocationCount() const {
  unsigned count = 0;
  for (const u8 of_kind : header().relocations) count += of_kind;
  return count;
}

bool PackedCcf::Locate() {
  if (bytes_.size() < sizeof(Header)) return false;
  const Header& head = header();
  u64 at = sizeof(Header);
  const auto take = [&]<class T>(const T** list, u64 count) {
    *list = reinterpret_cast<const T*>(bytes_.data() + at);
    at += count * sizeof(T);
  };
  take(&sites_, head.sites);
  take(&exits_, head.exits);
  take(&faults_, head.faults);
  take(&map_, head.instrs);
  take(&cold_map_, head.cold_map);
  take(&ranges_, head.ranges);
  take(&words_, head.words);
  take(&pcs_, head.pcs);
  take(&relocations_, RelocationCount());
  take(&plans_, head.instrs);
  take(&offsets_, head.instrs + 1u);
  take(&guest_, head.examined_bytes);
  take(&hot_, head.hot_bytes);
  take(&cold_, head.cold_bytes);
  return at == bytes_.size();
}

template <class F>
unsigned PackedCcf::ForEachPlace(const isa::MovingWord& word, F f) const {
  u64 examined = 0;
  unsigned count = 0;
  for (const CodeRange& range : ranges()) {
    if (range.Holds({word.offset, static_cast<i16>(word.offset + word.size)})) {
      f(examined + static_cast<u64>(word.offset - range.begin));
      ++count;
    }
    examined += static_cast<u64>(range.end - range.begin);
  }
  return count;
}

bool PackedCcf::IsSound() const {
  const Header& head = header();
  if (head.instrs == 0 || head.instrs > kMaxTuInstructions || head.hot_bytes > kMaxHotBytes ||
      head.cold_bytes > kMaxColdBytes || head.data_bytes > kMaxDataBytes ||
      head.side_offset > head.data_bytes || head.redirect >= head.cold_bytes ||
      head.words > ExaminedCode::kMostWords || head.flags_live_in > 1 || head.movable > 1) {
    return false;
  }
  // In the TU's page; the TU's own bytes are examined.
  const i64 offset = static_cast<i64>(head.pc.PageOffset());
  if (head.examined_begin > 0 || offset + head.examined_begin < 0 ||
      head.examined_end < head.guest_bytes || offset + head.examined_end > i64{kPageSize}) {
    return false;
  }
  u64 examined = 0;
  for (const CodeRange& range : ranges()) {
    if (range.begin < head.examined_begin || range.begin > range.end ||
        range.end > head.examined_end) {
      return false;
    }
    examined += static_cast<u64>(range.end - range.begin);
  }
  if (examined != head.examined_bytes || examined > kPageSize || head.ranges == 0 ||
      !ranges_[0].Holds({0, static_cast<i16>(head.guest_bytes)})) {
    return false;
  }
  const u64 side_bytes = head.exits * sizeof(ExitDesc*) + head.sites * sizeof(SiteDesc*) +
                         head.faults * sizeof(FaultPoint) + head.instrs * sizeof(CodeMapEntry) +
                         head.cold_map * sizeof(ColdMapEntry) + head.pcs * sizeof(PcPlace) +
                         head.instrs * sizeof(SitePlan) +
                         InstrList::BytesFor(head.instrs, head.guest_bytes);
  if (head.side_offset % 8 != 0 || head.side_offset + side_bytes > head.data_bytes) return false;
  for (const Site& site : std::span(sites_, head.sites)) {
    const bool hot = site.resumes_in == static_cast<u8>(Part::kHot);
    if (site.data_offset % 8 != 0 || site.data_offset + sizeof(SiteDesc) > head.side_offset ||
        site.resumes_in > static_cast<u8>(Part::kCold) ||
        site.resume > (hot ? head.hot_bytes : head.cold_bytes) ||
        site.shape > static_cast<u8>(AccessShape::kStringDestination) ||
        site.instr_index >= head.instrs) {
      return false;
    }
  }
  for (const Exit& exit : std::span(exits_, head.exits)) {
    if (exit.data_offset % 8 != 0 || exit.data_offset + sizeof(ExitDesc) > head.side_offset ||
        exit.patch + exit.patch_length > head.hot_bytes || exit.stub > head.cold_bytes ||
        exit.kind > static_cast<u8>(ExitKind::kIndirect) || exit.patch_length < 5 ||
        exit.instr_index >= head.instrs) {
      return false;
    }
  }
  // Their bools as bytes.
  for (unsigned i = 0; i < head.faults; ++i) {
    const auto* raw = reinterpret_cast<const u8*>(faults_ + i);
    if (faults_[i].host_offset >= head.hot_bytes || faults_[i].site >= head.sites ||
        raw[offsetof(FaultPoint, follower)] > 1) {
      return false;
    }
  }
  for (unsigned i = 0; i < head.instrs; ++i) {
    const auto* raw = reinterpret_cast<const u8*>(map_ + i);
    const auto* plan = reinterpret_cast<const u8*>(plans_ + i);
    if (map_[i].host_offset > head.hot_bytes || map_[i].instr_index >= head.instrs ||
        raw[offsetof(CodeMapEntry, ident)] > 1 || plan[offsetof(SitePlan, alone)] > 1 ||
        plan[offsetof(SitePlan, kind)] > static_cast<u8>(SiteKind::kSimulate) ||
        plan[offsetof(SitePlan, lookup)] > static_cast<u8>(LookupKind::kTable) ||
        offsets_[i] >= offsets_[i + 1]) {
      return false;
    }
  }
  if (offsets_[0] != 0 || offsets_[head.instrs] != head.guest_bytes) return false;
  for (const ColdMapEntry& entry : std::span(cold_map_, head.cold_map)) {
    if (entry.cold_offset > head.cold_bytes || entry.instr_index >= head.instrs) return false;
  }
  for (const isa::MovingWord& word : words()) {
    const auto* raw = reinterpret_cast<const u8*>(&word);
    if ((word.size != 4 && word.size != 8) || raw[offsetof(isa::MovingWord, against)] > 1 ||
        ForEachPlace(word, [](u64) {}) == 0) {
      return false;
    }
  }
  for (const PcPlace place : std::span(pcs_, head.pcs)) {
    if (place + sizeof(u64) > head.hot_bytes) return false;
  }
  const u16* place = relocations_;
  for (unsigned kind = 0; kind < kRelocationKinds; ++kind) {
    const u64 room = kKinds[kind].holder == Part::kHot ? head.hot_bytes : head.cold_bytes;
    for (unsigned i = 0; i < head.relocations[kind]; ++i) {
      if (u64{*place++} + kKinds[kind].bytes > room) return false;
    }
  }
  return true;
}

std::optional<PackedCcf> PackedCcf::Parse(std::span<const u8> bytes) {
  PackedCcf packed;
  packed.bytes_ = bytes;
  if (!packed.Locate() || !packed.IsSound()) return std::nullopt;
  return packed;
}

// Do the sign-extended addresses in the code name the highest 2 GB then, too?
bool PackedCcf::StaysInKernel(u64 delta) const {
  const u16* place = relocations_;
  for (unsigned kind = 0; kind < kRelocationKinds; ++kind) {
    const u8* code = kKinds[kind].holder == Part::kHot ? hot_ : cold_;
    for (unsigned i = 0; i < header().relocations[kind]; ++i, ++place) {
      if (kKinds[kind].plus != Part::kPc || kKinds[kind].bytes != 4) continue;
      u32 value;
      std::memcpy(&value, code + *place, sizeof(value));
      if (static_cast<i32>(value + static_cast<u32>(delta)) >= 0) return false;
    }
  }
  return true;
}

bool PackedCcf::MadeFrom(LinearAddr at, const CodeMode& mode, const u8* page) const {
  const Header& head = header();
  if (!(Mode::Of(mode) == head.mode) || at.PageOffset() != pc().PageOffset()) return false;
  const u64 delta = at - pc();
  const PcForm form = FormOf(at);
  if (delta != 0 && (mode.code_bits != 64 || form != FormOf(pc()) || form == PcForm::kFixed ||
                     (form == PcForm::kWide && head.movable == 0))) {
    return false;
  }
  if (delta != 0 && form == PcForm::kKernel && !StaysInKernel(delta)) return false;
  const u8* expected = guest_;
  u8 followed[kPageSize];
  if (delta != 0 && head.words != 0) {
    std::memcpy(followed, guest_, head.examined_bytes);
    for (const isa::MovingWord& word : words()) {
      ForEachPlace(word, [&](u64 place) {
        AddTo(followed + place, word.size, word.against ? 0 - delta : delta);
      });
    }
    expected = followed;
  }
  const u8* const now = page + at.PageOffset();
  for (const CodeRange& range : ranges()) {
    const auto bytes = static_cast<u64>(range.end - range.begin);
    if (std::memcmp(expected, now + range.begin, bytes) != 0) return false;
    expected += bytes;
  }
  return true;
}

// --- Unpacking ---

SiteDesc* PackedCcf::MakeSite(const Site& site, const Places& places, u8* data, Ccf* ccf) const {
  auto* to = new (data + site.data_offset) SiteDesc();
  to->ccf = ccf;
  if (site.resumes_in != static_cast<u8>(Part::kNone)) {
    to->resume = HostAddr(places[site.resumes_in] + site.resume);
  }
  to->slot = site.slot;
  to->span_minus_1 = site.span_minus_1;
  to->size = site.size;
  to->shape = static_cast<AccessShape>(site.shape);
  to->instr_index = site.instr_index;
  to->vector = site.vector;
  to->window = site.facts & kWindow;
  to->checked = site.facts & kSiteChecked;
  to->shared = site.facts & kShared;
  to->in_group = site.facts & kInGroup;
  to->keeps_flags = site.facts & kKeepsFlags;
  return to;
}

ExitDesc* PackedCcf::MakeExit(const Exit& exit, const Request& request, const Places& places,
                              u8* hot, Ccf* ccf) const {
  auto* to = new (request.target.data + exit.data_offset) ExitDesc();
  to->kind = static_cast<ExitKind>(exit.kind);
  if (to->kind != ExitKind::kIndirect) to->target = request.pc + static_cast<u64>(i64{exit.target});
  to->patch = HostAddr(places[static_cast<unsigned>(Part::kHot)] + exit.patch);
  if (exit.has_stub != 0) {
    to->stub = HostAddr(places[static_cast<unsigned>(Part::kCold)] + exit.stub);
  }
  to->ccf = ccf;
  to->patch_length = exit.patch_length;
  to->instr_index = exit.instr_index;
  if (to->NamesTableEntry()) {
    const i32 place = JumpTablePlace(to->target, JumpKind::kCrossPage);
    std::memcpy(hot + exit.patch + exit.patch_length - sizeof(place), &place, sizeof(place));
  }
  return to;
}

void PackedCcf::MakeSideData(const Request& request, unsigned check,
                             std::span<ExitDesc* const> exits, std::span<SiteDesc* const> sites,
                             Ccf* ccf) const {
  const Header& head = header();
  u8* side = request.target.data + head.side_offset;
  ccf->side = side;
  ccf->exit_count = head.exits;
  ccf->site_count = head.sites;
  ccf->fault_count = head.faults;
  ccf->cold_count = head.cold_map;
  ccf->pc_count = head.pcs;
  ccf->instr_count = head.instrs;
  std::memcpy(side, exits.data(), exits.size_bytes());
  std::memcpy(side + ccf->SitesAt(), sites.data(), sites.size_bytes());
  auto* faults = reinterpret_cast<FaultPoint*>(side + ccf->FaultsAt());
  for (unsigned i = 0; i < head.faults; ++i) {
    faults[i] = faults_[i];
    faults[i].host_offset = static_cast<u16>(faults[i].host_offset + check);
  }
  auto* map = reinterpret_cast<CodeMapEntry*>(side + ccf->MapAt());
  for (unsigned i = 0; i < head.instrs; ++i) {
    map[i] = map_[i];
    map[i].host_offset = static_cast<u16>(map[i].host_offset + check);
  }
  std::memcpy(side + ccf->ColdMapAt(), cold_map_, head.cold_map * sizeof(ColdMapEntry));
  auto* pcs = reinterpret_cast<PcPlace*>(side + ccf->PcsAt());
  for (unsigned i = 0; i < head.pcs; ++i) pcs[i] = static_cast<PcPlace>(pcs_[i] + check);
  std::memcpy(side + ccf->PlansAt(), plans_, head.instrs * sizeof(SitePlan));
  InstrList::Keep(offsets_, head.instrs, request.page + request.pc.PageOffset(),
                  side + ccf->InstrsAt());
}

EmitResult PackedCcf::Unpack(const Request& request, Room* room, Ccf* ccf) const {
  const Header& head = header();
  EmitResult result;
  u32 check = 0;
  if (request.indirect_entry) {
    ccf->indirect_entry = request.target.hot;
    check = WriteEntryCheck(request.pc, head.flags_live_in != 0, request.stubs->entry_miss,
                            request.target.hot, room->hot.data());
  }
  result.hot_size = check + head.hot_bytes;
  result.cold_size = head.cold_bytes;
  result.data_size = head.data_bytes;
  result.slots_used = head.slots_used;
  result.fits = result.hot_size <= std::min(request.target.hot_room, kMaxHotBytes) &&
                result.cold_size <= request.target.cold_room &&
                result.data_size <= request.target.data_room;
  if (!result.fits) return result;

  Places here{};
  here[static_cast<unsigned>(Part::kHot)] = (request.target.hot + check).value;
  here[static_cast<unsigned>(Part::kCold)] = request.target.cold.value;
  here[static_cast<unsigned>(Part::kData)] = HostAddr(request.target.data).value;
  here[static_cast<unsigned>(Part::kStubs)] = request.stubs->miss.value;
  here[static_cast<unsigned>(Part::kOrigin)] = request.target.data_origin.value;
  here[static_cast<unsigned>(Part::kPc)] = request.pc.value;
  Places nowhere{};
  nowhere[static_cast<unsigned>(Part::kPc)] = head.pc.value;
  u8* const hot = room->hot.data() + check;
  std::memcpy(hot, hot_, head.hot_bytes);
  std::memcpy(room->cold.data(), cold_, head.cold_bytes);
  Relocate(head.relocations.data(), relocations_, nowhere, here, hot, room->cold.data());

  ccf->pc = request.pc;
  ccf->mode = request.mode;
  ccf->shown = request.shown;
  ccf->guest_bytes = head.guest_bytes;
  ccf->examined_begin = request.pc + static_cast<u64>(i64{head.examined_begin});
  ccf->examined_end = request.pc + static_cast<u64>(i64{head.examined_end});
  ccf->flags_live_in = head.flags_live_in != 0;
  ccf->movable = head.movable != 0;
  ccf->hot_start = request.target.hot;
  ccf->hot_end = ccf->hot_start + result.hot_size;
  ccf->entry = ccf->hot_start + check;
  ccf->cold_start = request.target.cold;
  ccf->cold_end = ccf->cold_start + result.cold_size;
  ccf->redirect = ccf->cold_start + head.redirect;

  std::array<SiteDesc*, 256> sites;
  for (unsigned i = 0; i < head.sites; ++i) {
    sites[i] = MakeSite(sites_[i], here, request.target.data, ccf);
  }
  std::array<ExitDesc*, 256> exits;
  for (unsigned i = 0; i < head.exits; ++i) {
    exits[i] = MakeExit(exits_[i], request, here, hot, ccf);
  }
  MakeSideData(request, check, {exits.data(), head.exits}, {sites.data(), head.sites}, ccf);
  result.hot_code = room->hot.data();
  result.cold_code = room->cold.data();
  return result;
}

}  // namespace alibi::translator
