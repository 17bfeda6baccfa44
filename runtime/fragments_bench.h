// SPDX-License-Identifier: Apache-2.0
// Fragments for unit tests, with CCFs that are made by hand.
#ifndef ALIBI_RUNTIME_FRAGMENTS_BENCH_H_
#define ALIBI_RUNTIME_FRAGMENTS_BENCH_H_

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/fragments.h"

namespace alibi::runtime {

inline constexpr LinearAddr kPc{0x401000};
inline constexpr PhysPage kPhysPage{0x123};
inline constexpr u8 kNop = 0x90;
inline constexpr unsigned kBody = 8;        // bytes of hot code in front of the exits' jumps
inline constexpr unsigned kGuestBytes = 4;  // of each CCF

class Replacements final : public Fragments::Listener {
 public:
  void CodeReplaced(const translator::Ccf& from, const translator::Ccf& to) override {
    seen.push_back({&from, &to});
  }
  void CodeInvalidated(PhysAddr page) override { pages.push_back(page); }
  std::vector<std::pair<const translator::Ccf*, const translator::Ccf*>> seen;
  std::vector<PhysAddr> pages;
};

class FragmentsBench {
 public:
  using Ccf = translator::Ccf;
  using CodeMode = translator::CodeMode;
  using ExitDesc = translator::ExitDesc;

  FragmentsBench() { page.resize(kPageSize); }

  // A CCF of four bytes, each exit with a jump to its stub. The index does not know it yet.
  Ccf* Emit(LinearAddr pc, const std::vector<ExitDesc>& exits = {}, const CodeMode& mode = {}) {
    TranslationCache& tc = fragments.tc();
    REQUIRE(tc.HasRoom());
    Ccf* ccf = tc.NewCcf();
    const translator::EmitTarget target = tc.Target();
    ccf->pc = pc;
    ccf->phys_page = kPhysPage;
    ccf->mode = mode;
    ccf->movable = true;
    ccf->examined_begin = pc;
    ccf->examined_end = pc + kGuestBytes;
    ccf->guest_bytes = kGuestBytes;
    ccf->content_hash = Fragments::ContentHash(*ccf, page.data());
    ccf->hot_start = ccf->entry = target.hot;
    ccf->cold_start = ccf->redirect = target.cold;

    std::vector<u8> hot(kBody, kNop), cold(8, kNop);
    std::vector<u8>& side = sides_.emplace_back(8 * exits.size() + 64);
    for (const ExitDesc& wanted : exits) {
      ExitDesc& exit = exits_.emplace_back(wanted);
      exit.ccf = ccf;
      exit.patch = target.hot + hot.size();
      exit.patch_length = 5;
      exit.stub = target.cold + cold.size();
      const i32 rel = static_cast<i32>(exit.stub - (exit.patch + 5));
      const u8* bytes = reinterpret_cast<const u8*>(&rel);
      hot.push_back(0xe9);
      hot.insert(hot.end(), bytes, bytes + 4);
      cold.insert(cold.end(), 8, kNop);
      const ExitDesc* address = &exit;
      std::memcpy(side.data() + 8 * ccf->exit_count++, &address, 8);
    }
    ccf->side = side.data();
    ccf->instr_count = 1;  // at pc: the lists behind the exits are zeros
    ccf->hot_end = target.hot + hot.size();
    ccf->cold_end = target.cold + cold.size();
    translator::EmitResult emitted;
    emitted.hot_code = hot.data();
    emitted.hot_size = static_cast<u32>(hot.size());
    emitted.cold_code = cold.data();
    emitted.cold_size = static_cast<u32>(cold.size());
    tc.Commit(ccf, emitted);
    return ccf;
  }
  Ccf* Make(LinearAddr pc, const std::vector<ExitDesc>& exits = {}, const CodeMode& mode = {}) {
    Ccf* ccf = Emit(pc, exits, mode);
    replaced = fragments.Add(ccf);
    return ccf;
  }
  bool Move(LinearAddr linear_page) {
    return fragments.Move(kPhysPage, linear_page, [](LinearAddr) { return true; });
  }
  Ccf* Revive(LinearAddr pc) { return fragments.Revive(pc, kPhysPage, {}, page.data(), points); }
  Ccf* Find(LinearAddr pc) { return fragments.Find(pc, kPhysPage, {}); }

  Counters counters;
  std::unique_ptr<TranslationCache> tc = std::move(TranslationCache::Create(1 << 20).value());
  StubTable stubs = StubTable::Somewhere(tc->stub_host());
  Replacements replacements;
  Fragments fragments{std::move(tc), stubs, counters, replacements};
  DebugPoints points;
  std::vector<u8> page;  // the guest's code
  Fragments::Replaced replaced{};

 private:
  std::deque<ExitDesc> exits_;
  std::deque<std::vector<u8>> sides_;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_FRAGMENTS_BENCH_H_
