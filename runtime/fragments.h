// SPDX-License-Identifier: Apache-2.0
// The CCFs there are and what leads from one to another. No guest state: who asks knows the mode,
// the physical page and its bytes.
//
// An exit leads
//   unchained   to its stub, which calls out
//   chained     to the successor's entry: `linked`
//   elided      into the successor, which lies behind it: `linked` and `elided`, there is no jump
//   unlinked    to its stub again (an indirect one: to the Stop callout), until RelinkExits()
//
// An entry is
//   the CCF's own code         while it is current: valid and not retired
//   a jump to its look-up      once it is retired or invalidated: whoever falls in from an elided
//                              exit, comes by a stale jump-table entry or was chained looks again
//   a jump to another CCF      once there is a later one of the same code: `forwards`
//   its own code again         if it is revived: the guest's bytes are what they were
//
// Called while guest vector state is live: compiled for general registers only. Only Add(),
// Revive() and Flush() allocate or free.
#ifndef ALIBI_RUNTIME_FRAGMENTS_H_
#define ALIBI_RUNTIME_FRAGMENTS_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "abi/callouts.h"
#include "base/types.h"
#include "runtime/counters.h"
#include "runtime/debug_points.h"
#include "runtime/translation_cache.h"
#include "translator/ccf.h"

namespace alibi::runtime {

class Fragments {
 public:
  using Ccf = translator::Ccf;
  using CodeMode = translator::CodeMode;
  using ExitDesc = translator::ExitDesc;

  class Listener {
   public:
    // A verdict has led to another translation of the same code.
    virtual void CodeReplaced(const Ccf& from, const Ccf& to) = 0;
    // A CCF of this page is gone: no jump-table entry may lead to it. Its check of the PC could be
    // passed, and spoils flags that a later translation takes for live.
    virtual void CodeInvalidated(PhysAddr page) = 0;

   protected:
    ~Listener() = default;
  };

  // The references outlive this.
  Fragments(std::unique_ptr<TranslationCache> tc, const StubTable& stubs, Counters& counters,
            Listener& listener)
      : tc_(std::move(tc)), stubs_(stubs), counters_(counters), listener_(listener) {}

  TranslationCache& tc() const { return *tc_; }

  // --- Looking up ---
  Ccf* FindByHost(HostAddr host) const { return tc_->FindByHost(host); }
  Ccf* Find(LinearAddr pc, PhysPage phys_page, const CodeMode& mode,
            PhysPage second_page = translator::kNoPage) const {
    return tc_->index().Find(pc, phys_page, mode, second_page);
  }
  // f(ccf) for each that can be run and entered by jumps.
  template <class F>
  void ForEachInMapping(LinearAddr linear_page, PhysPage phys_page, const CodeMode& mode, F f) {
    tc_->index().ForEachInMapping(linear_page, phys_page, mode, f);
    counters_.index_steps = tc_->index().steps();
  }
  // Where jumps through tables enter the CCF: code that checks the PC in r11, made for the first
  // that asks. None: there is no room for it.
  HostAddr IndirectEntry(Ccf* ccf);

  // --- Coming ---
  // The exit's jump is the last hot code there is, and leads where a CCF will begin that is about
  // to be emitted: true, and the jump is gone. Elide() follows when that CCF has been committed.
  bool DropJump(ExitDesc* exit, LinearAddr pc, PhysPage phys_page);
  void Elide(ExitDesc* exit, Ccf* successor);
  // Which CCFs a new one has replaced: the newest of them says it.
  enum class Replaced : u8 { kNothing, kRetired, kOverwritten };
  // A CCF has been committed. Those that it replaces forward to it.
  Replaced Add(Ccf* ccf);
  // An invalidated CCF whose guest code is again what it was (`page`: the bytes of the physical
  // page now), and that holds no breakpoint; or null.
  Ccf* Revive(LinearAddr pc, PhysPage phys_page, const CodeMode& mode, const u8* page,
              const DebugPoints& points);
  // What was translated of the physical page for a linear page where it runs no more,
  // `unused(linear page)`, is from now on its code at `linear_page`: as if it had been translated
  // there. False: there is none. Nothing may be running, and no view may know the old page.
  template <class F>
  bool Move(PhysPage phys_page, LinearAddr linear_page, F unused);
  // Of the bytes that a CCF depends on. `page` is its physical page.
  static u64 ContentHash(const Ccf& ccf, const u8* page);

  // --- Links ---
  // Makes the exit lead straight to the target, where that is allowed.
  void Chain(ExitDesc* exit, Ccf* target);
  // Makes a CCF that is running come out at its end.
  void UnlinkExits(Ccf* ccf);
  void RelinkExits();

  // --- Going ---
  // Nothing may enter it again: its guest code changed, a debugger's breakpoint lies in it, or it
  // loses flags that its guest is shown. Code that is running in it leaves at the next callout,
  // because valid is false.
  void Invalidate(Ccf* ccf);
  // Invalidates the CCFs that depend on bytes [from, to) of the page, and tells f(ccf) of each.
  // Returns whether the page has others.
  template <class F>
  bool InvalidateBytes(PhysPage phys_page, u64 from, u64 to, F f) {
    const bool others = tc_->index().ForEachDependent(phys_page, from, to, [&](Ccf* ccf) {
      Invalidate(ccf);
      f(ccf);
    });
    counters_.index_steps = tc_->index().steps();
    return others;
  }
  // There is a breakpoint at `pc` from now on: the same for what depends on the instruction there.
  void InvalidateAt(LinearAddr pc);
  // A new translation of the same code will take its place. Predecessors are not visited: its entry
  // forwards as soon as the new one exists, and until then looks up.
  void Retire(Ccf* ccf);
  // Throws everything away. Nothing may be running.
  void Flush();

  u64 tc_bytes_peak() const { return std::max(peak_tc_bytes_, tc_->used()); }
  u64 ccfs_peak() const { return std::max<u64>(peak_ccfs_, tc_->all().size()); }

 private:
  struct UnlinkedExit {
    HostAddr at;
    u8 length;
    u8 bytes[10];
  };
  static constexpr unsigned kMaxUnlinkedExits = 64;

  void PatchJump(HostAddr at, u8 length, HostAddr target);
  void Unlink(HostAddr at, u8 length, HostAddr target);
  void Unchain(ExitDesc* exit);
  void RedirectEntry(Ccf* ccf, HostAddr target) { PatchJump(ccf->entry, 5, target); }
  void RedirectEntryToLookup(Ccf* ccf);
  Replaced ForwardReplaced(Ccf* to);
  void MoveMapping(translator::CodeMapping* mapping, LinearAddr linear_page);
  // Of its mapping's address; the alias is open.
  void MoveCcf(Ccf* ccf);
  void MoveEntryCheck(Ccf* ccf);
  void GiveUp(Ccf* ccf);

  std::unique_ptr<TranslationCache> tc_;
  const StubTable& stubs_;
  Counters& counters_;
  Listener& listener_;
  u64 peak_tc_bytes_ = 0, peak_ccfs_ = 0;  // when it was last flushed
  UnlinkedExit unlinked_exits_[kMaxUnlinkedExits];
  unsigned unlinked_exit_count_ = 0;
};

template <class F>
bool Fragments::Move(PhysPage phys_page, LinearAddr linear_page, F unused) {
  CodeIndex& index = tc_->index();
  if (!translator::IsMovable(linear_page) || index.FindMapping(linear_page, phys_page)) {
    return false;
  }
  translator::CodeMapping* mapping =
      index.FindUnused(phys_page, [&](const translator::CodeMapping& one) {
        return translator::IsMovable(one.linear_page) && unused(one.linear_page);
      });
  if (mapping == nullptr) return false;
  MoveMapping(mapping, linear_page);
  return true;
}

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_FRAGMENTS_H_
