// SPDX-License-Identifier: Apache-2.0
// Translations that another run has made, or this one before its TC was flushed: when they may take
// the translator's place, and by which keys they are found.
#include <cpuid.h>

#include <algorithm>

#include "base/build_id.h"
#include "runtime/engine_impl.h"
#include "runtime/guest_code.h"
#include "vcpu/cpu_differences.h"

namespace alibi::runtime {

using translator::Ccf;
using translator::CodeMode;
using translator::ExitDesc;
using translator::ExitKind;
using translator::FormOf;
using translator::PackedCcf;
using translator::PcForm;

namespace {

// So many of the code's first bytes are part of its key. Where one of them moves with a kernel's
// place, the first one alone is.
constexpr u64 kKeyBytes = 8, kLooseKeyBytes = 1;

u64 KeyOf(LinearAddr pc, const CodeMode& mode, const u8* bytes, u64 count) {
  struct {
    u32 mode;
    u16 offset;
    u16 count;
    u8 bytes[kKeyBytes];
  } key{mode.Bits(), static_cast<u16>(pc.PageOffset()), 0, {}};
  key.count = static_cast<u16>(std::min(count, kPageSize - pc.PageOffset()));
  std::copy_n(bytes, key.count, key.bytes);
  return TranslationCache::HashBytes(reinterpret_cast<const u8*>(&key), sizeof(key));
}

}  // namespace

// Of whatever decides what the translator makes of the same guest code, and what it refers to.
// Where the program has no name there is no store.
Status EngineImpl::OpenStore() {
  if (options_.store_folder.empty()) return Ok{};
  std::vector<u8> what = BuildId();
  if (what.empty()) return Ok{};
  const auto add = [&](const auto& value) {
    const auto* bytes = reinterpret_cast<const u8*>(&value);
    what.insert(what.end(), bytes, bytes + sizeof(value));
  };
  // The host's CPU, its microcode's differences apart: vendor, family, model, stepping.
  u32 eax, ebx, ecx, edx;
  for (const u32 leaf : {0u, 1u}) {
    __cpuid(leaf, eax, ebx, ecx, edx);
    add(eax);
    if (leaf == 0) add(std::array<u32, 3>{ebx, ecx, edx});
  }
  for (unsigned i = 0; i < static_cast<unsigned>(isa::Feature::kCount); ++i) {
    add(shown_features_.Has(static_cast<isa::Feature>(i)));
  }
  const translator::EmitRequest request = CommonRequest();
  add(request.one_vcpu);
  add(request.sysret_loads_ss);
  add(request.pushes_half_selectors);
  add(request.cmps_destination_first);
  for (const HostAddr stub : stubs_.callout) add(stub - stubs_.miss);
  add(stubs_.entry_miss.lookup - stubs_.miss);
  add(stubs_.entry_miss.restore - stubs_.miss);
  add(stubs_.entry_miss.restore_swapped - stubs_.miss);
  TranslationStore::Options options{.folder = options_.store_folder};
  for (u64& part : options.fingerprint) {
    what.push_back(0);
    part = TranslationCache::HashBytes(what.data(), what.size());
  }
  auto store = TranslationStore::Open(options);
  if (!store.ok()) return store.error();
  store_ = std::move(*store);
  unpacking_ = std::make_unique<PackedCcf::Room>();
  return Ok{};
}

// Not where somebody counts translations, chooses how they are made, or watches them.
bool EngineImpl::UsesStore(const GuestCode& code) const {
  return store_ != nullptr && code.in_ram && code.second_page == translator::kNoPage &&
         !code.mode.single && !code.mode.careful && options_.executions == nullptr &&
         options_.plan_override == nullptr && observer_ == nullptr && !points_.any_breakpoint() &&
         !events_.Wants(RecordKind::kTranslation) && !events_.Wants(RecordKind::kControl);
}

std::optional<PackedCcf> EngineImpl::FindStored(const GuestCode& code, Among among) {
  std::optional<PackedCcf> found;
  if (!UsesStore(code)) return found;
  const auto suits = [&](std::span<const u8> bytes) {
    found = PackedCcf::Parse(bytes);
    if (found && found->MadeFrom(code.pc, code.mode, code.page()) && HasPlansOf(*found, code) &&
        !code.sites.KeepsExactFlagsIn(code.pc, found->ranges())) {
      return true;
    }
    found.reset();
    return false;
  };
  const auto find = [&](u64 key_bytes) {
    const u64 key = KeyOf(code.pc, code.mode, code.bytes, key_bytes);
    return among == Among::kAll ? store_->Find(key, suits) : store_->FindFollowing(key, suits);
  };
  if (!find(kKeyBytes) && FormOf(code.pc) == PcForm::kKernel) find(kLooseKeyBytes);
  return found;
}

// Null: there is nothing that would be made of the code now.
Ccf* EngineImpl::LoadStored(GuestCode* code, Among among, Pending* how) {
  const auto stored = FindStored(*code, among);
  if (!stored || CallsLeaf(code, *stored)) return nullptr;
  Ccf* const ccf = EmitUnit(*code, &*stored, how);
  Register(ccf, *code);
  ++counters_.loaded_translations;
  return ccf;
}

// Loads what an exit of `ccf`, which has just been loaded, leads to; or null.
Ccf* EngineImpl::LoadSuccessor(const Ccf& ccf) {
  for (ExitDesc* exit : ccf.exits()) {
    if (exit->kind != ExitKind::kDirect || exit->linked != nullptr || !tc().HasRoom()) continue;
    const LinearAddr pc = exit->target;
    if (tc().index().Newest(pc, ccf.phys_page, ccf.mode) != nullptr) continue;
    GuestCode code(pc, ccf.phys_page.Base() + pc.PageOffset(), ccf.mode, sites_->table());
    FetchCode(&code);
    Pending how{.exit = exit};
    Ccf* const successor = LoadStored(&code, Among::kFollowing, &how);
    if (successor == nullptr) continue;
    if (how.exit != nullptr) fragments_->Chain(exit, successor);
    return successor;
  }
  return nullptr;
}

// The run that has stored a translation mostly went on to the one that it has stored next, and so
// does this one: each that is there already saves an exit to the run loop.
void EngineImpl::LoadSuccessors(const Ccf& first) {
  constexpr unsigned kMost = 16;
  if (first.mode.simulate) return;
  const Ccf* ccf = &first;
  for (unsigned i = 0; i < kMost && ccf != nullptr; ++i) ccf = LoadSuccessor(*ccf);
}

bool EngineImpl::HasPlansOf(const PackedCcf& stored, const GuestCode& code) {
  unsigned i = 0;
  for (const translator::SitePlan& plan : stored.plans()) {
    if (plan != code.PlanOf(code.pc + stored.offsets()[i++])) return false;
  }
  return true;
}

void EngineImpl::Store(const GuestCode& code, const translator::EmitRequest& request,
                       const translator::EmitResult& emitted, const translator::Ccf& ccf) {
  if (code.sites.KeepsExactFlagsIn(code.pc, tu_->examined.ranges())) return;
  const u64 bytes = PackedCcf::Pack(request, emitted, stubs_, ccf, code.page(), store_->Room());
  if (bytes == 0) return;
  const auto words = tu_->examined.words();
  const bool loose = std::any_of(words.begin(), words.end(), [](const isa::MovingWord& word) {
    return word.offset < i64{kKeyBytes} && word.offset + word.size > 0;
  });
  store_->Add(KeyOf(code.pc, code.mode, code.bytes, loose ? kLooseKeyBytes : kKeyBytes), bytes);
}

}  // namespace alibi::runtime
