// SPDX-License-Identifier: Apache-2.0
#include "testsuite/verifier/flow.h"

#include <algorithm>

#include "testsuite/verifier/verifier.h"
#include "vcpu/state.h"

namespace alibi::verifier {

using translator::Ccf;
using translator::ExitDesc;
using translator::FaultPoint;
using translator::SiteDesc;

namespace {

constexpr bool IsScratch(int reg) { return reg == vcpu::kR10 || reg == vcpu::kR11; }

std::array<u32, 16> Ids(const State& s) {
  std::array<u32, 16> ids;
  for (unsigned reg = 0; reg < 16; ++reg) ids[reg] = s.gpr[reg].id;
  return ids;
}

template <class T>
void Intersect(std::vector<T>* facts, const std::vector<T>& others) {
  std::erase_if(*facts, [&](const T& fact) {
    return std::find(others.begin(), others.end(), fact) == others.end();
  });
}

}  // namespace

// --- Where the code goes ---

const SiteDesc* Flow::SiteOf(u64 word) const {
  for (const SiteDesc* site : ccf_.sites()) {
    if (reinterpret_cast<u64>(site) == word) return site;
  }
  return nullptr;
}

// Edges within the CCF. Those through a stub end where its descriptor says.
std::vector<Flow::Edge> Flow::EdgesOf(const HostInstr& h) const {
  std::vector<Edge> edges;
  if (h.falls_through() && code_.Find(h.next()) != nullptr) edges.push_back({h.next(), Via::kNext});
  const std::optional<HostAddr> target = h.target();
  if (!target) return edges;
  if (code_.Contains(*target)) {
    edges.push_back({*target, Via::kTaken});
    return edges;
  }
  const std::optional<u64> word = code_.WordBefore(h.at);
  if (!word) return edges;
  if (*target == stubs_.miss) {
    edges.push_back({stubs_.miss + MissWord{*word}.ResumeDistance(), Via::kMiss});
    return edges;
  }
  const SiteDesc* site = SiteOf(*word);
  if (site == nullptr || site->resume == HostAddr()) return edges;
  if (*target == stubs_.at(Callout::kSimulate)) edges.push_back({site->resume, Via::kSimulated});
  if (*target == stubs_.at(Callout::kBounceBegin))
    edges.push_back({site->resume, Via::kBounceBegun});
  if (*target == stubs_.at(Callout::kBounceEnd) || *target == stubs_.at(Callout::kStore)) {
    edges.push_back({site->resume, Via::kStored});
  }
  return edges;
}

void Flow::Visit(HostAddr at, std::set<HostAddr>* open, std::set<HostAddr>* done) {
  if (done->contains(at)) return;
  if (!open->insert(at).second) {
    loops_.insert(at);
    return;
  }
  if (const HostInstr* h = code_.Find(at)) {
    for (const Edge& edge : EdgesOf(*h)) Visit(edge.to, open, done);
    order_.push_back(at);
  }
  open->erase(at);
  done->insert(at);
}

void Flow::FindOrder() {
  std::set<HostAddr> open, done;
  for (const HostAddr root : {ccf_.redirect, ccf_.entry, ccf_.indirect_entry})
    Visit(root, &open, &done);
  std::reverse(order_.begin(), order_.end());
}

// --- The state in front of each instruction ---

// Guest values everywhere. Outside 64-bit code they have no upper halves.
State Flow::Entry() {
  State s;
  s.reached = true;
  for (int reg = 0; reg < 16; ++reg) s.gpr[reg] = Fresh(IsLegacy() && reg < 8);
  for (Value& value : s.scratch) value = Fresh();
  return s;
}

// What is jumped back to: of values from before only the kind is known, and each jump back is
// checked to bring the same kinds.
State Flow::LoopHead(const State& before) {
  State s = before;
  ForgetLookups(&s);
  const auto forget = [&](Value* value) {
    const Value old = *value;
    *value = Fresh(old.narrow);
    if (old.is == Is::kFlags || !old.IsGuests()) value->is = old.is;
  };
  for (Value& value : s.gpr) forget(&value);
  for (Value& value : s.scratch) forget(&value);
  for (const int reg : {vcpu::kR10, vcpu::kR11}) s.gpr[reg] = Made(Is::kSecret);
  return s;
}

void Flow::CheckLoop(const HostInstr& h, const State& s, const State& head) {
  const auto same = [&](const Value& value, const Value& known) {
    return (value.is != Is::kFlags || known.is == Is::kFlags) &&
           (value.IsGuests() || value.is == Is::kFlags || known.is == Is::kSecret) &&
           (!known.narrow || value.narrow);
  };
  for (int reg = 0; reg < 16; ++reg) {
    if (!IsScratch(reg) && !same(s.gpr[reg], head.gpr[reg])) {
      Complain(h, "a register is of another kind when the loop begins again");
    }
  }
  for (unsigned i = 0; i < s.scratch.size(); ++i) {
    if (!same(s.scratch[i], head.scratch[i])) {
      Complain(h, "a scratch value is of another kind when the loop begins again");
    }
  }
}

Value Flow::Join(const Value& a, const Value& b) {
  if (a == b) return a;
  Value joined = Fresh(a.narrow && b.narrow);
  if (a.id == b.id && a.IsGuests() && b.IsGuests()) {  // known by different names
    joined.id = a.id;
    return joined;
  }
  if ((a.is == Is::kDisplacement || a.is == Is::kHost) && a.is == b.is && a.root == b.root &&
      a.made_by == b.made_by && a.count_root == 0 && b.count_root == 0) {
    // From a slot or from the shadow table: what both are good for.
    const u32 id = joined.id;
    joined = a;
    joined.id = id;
    joined.slot = 0;
    joined.low = std::max(a.low, b.low);
    joined.high = std::min(a.high, b.high);
    joined.stores = a.stores && b.stores;
  } else if (!a.IsGuests() || !b.IsGuests()) {
    joined.is = a.is == Is::kFlags || b.is == Is::kFlags ? Is::kFlags : Is::kSecret;
  }
  return joined;
}

void Flow::Merge(const State& from, HostAddr to) {
  State& state = in_[to];
  if (!state.reached) {
    state = from;
    return;
  }
  for (unsigned i = 0; i < state.gpr.size(); ++i) state.gpr[i] = Join(state.gpr[i], from.gpr[i]);
  for (unsigned i = 0; i < state.scratch.size(); ++i) {
    state.scratch[i] = Join(state.scratch[i], from.scratch[i]);
  }
  Intersect(&state.pages, from.pages);
  Intersect(&state.bounds, from.bounds);
  state.compared =
      state.compared && from.compared && state.left == from.left && state.right == from.right;
}

// A JA that is not taken: what was compared is at most so much.
void Flow::Branched(const HostInstr& h, State* s) {
  if (h.z.mnemonic != ZYDIS_MNEMONIC_JNBE || !s->compared) return;
  const Value &left = s->left, &right = s->right;
  const bool page = left.is == Is::kInPage || left.is == Is::kPageOffset;
  if (right.is == Is::kNumber && page && right.number <= kPageSize) {
    const i64 span = static_cast<i64>(kPageSize - right.number);
    s->pages.push_back({left.is == Is::kInPage ? left.slot : 0, left.root, left.offset,
                        left.offset + span, 0, 0, 0});
  } else if (right.is == Is::kNumber && left.is == Is::kGuest && !left.wraps) {
    s->bounds.push_back({left.root, left.offset, right.number});
  } else if (left.is == Is::kInPage && right.is == Is::kRunLimit) {
    // The run must not be longer than a page, or the limit is nothing of the kind.
    for (const BoundFact& bound : s->bounds) {
      if (bound.root == right.root && bound.offset == right.offset - 1 &&
          bound.most < kPageSize / right.scale) {
        s->pages.push_back({left.slot, left.root, left.offset, left.offset, right.root,
                            right.offset, right.scale});
        return;
      }
    }
  }
}

void Flow::Follow(const Edge& edge, const HostInstr& h, State s) {
  const u64 word = s.gpr[vcpu::kR10].number;
  switch (edge.via) {
    case Via::kNext:
      Branched(h, &s);
      s.compared = s.compared && !h.target();
      break;
    case Via::kTaken:
      s.compared = false;
      break;
    case Via::kMiss: {
      const MissWord miss{word};
      const Value address = s.gpr[vcpu::kR11];
      Value& value = s.gpr[vcpu::kR10];
      value = Made(Is::kDisplacement);
      value.root = address.root;
      value.low = address.offset;
      value.high = address.offset + 1 + i64{miss.SpanMinus1()};
      value.stores = miss.Window();
      value.made_by = h.instr_index;
      // The slot holds another page now. Displacements that wait are the stub's to keep good.
      s.pages.clear();
      s.compared = false;
      break;
    }
    case Via::kSimulated:
      s = Entry();
      break;
    case Via::kBounceBegun:
    case Via::kStored:
      ForgetLookups(&s);
      for (const int reg : {vcpu::kR10, vcpu::kR11}) s.gpr[reg] = Fresh();
      for (Value& value : s.scratch) value = Fresh();
      if (edge.via == Via::kBounceBegun) {
        Value& value = s.gpr[vcpu::kR10];
        value = Made(Is::kHost);
        value.high = SiteOf(word)->size;
        value.stores = true;
        value.made_by = h.instr_index;
      }
      break;
  }
  if (const auto head = heads_.find(edge.to); head != heads_.end()) {
    CheckLoop(h, s, head->second);
  } else {
    Merge(s, edge.to);
  }
}

void Flow::Run() {
  for (const FaultPoint& point : ccf_.faults()) {
    const SiteDesc& site = *ccf_.sites()[point.site];
    const bool memory = ccf_.instrs()[site.instr_index].mem.present ||
                        site.shape != translator::AccessShape::kOperand;
    if (memory && !point.follower && !site.in_group && !translator::IsString(site.shape)) {
      restarts_.insert(site.Restart());
    }
  }
  FindOrder();
  for (const HostAddr root : {ccf_.indirect_entry, ccf_.entry, ccf_.redirect}) {
    if (code_.Find(root) == nullptr) continue;
    const State s = Entry();
    if (root == ccf_.indirect_entry) entry_rax_ = s.gpr[vcpu::kRax].id;
    if (root != ccf_.entry || !ccf_.indirect_entry) Merge(s, root);
  }
  if (ccf_.indirect_entry && code_.Find(ccf_.entry) != nullptr) loops_.insert(ccf_.entry);
  for (const HostAddr at : order_) {
    State s = in_[at];
    if (!s.reached) continue;
    if (loops_.contains(at)) {
      s = at == ccf_.entry ? Entry() : LoopHead(s);
      heads_[at] = s;
    }
    if (restarts_.contains(at)) {
      ForgetLookups(&s);
      for (const int reg : {vcpu::kR10, vcpu::kR11}) s.gpr[reg] = Fresh();
    }
    ids_[at] = Ids(s);
    const HostInstr& h = *code_.Find(at);
    Step(h, &s);
    const std::optional<HostAddr> target = h.target();
    if (h.z.mnemonic == ZYDIS_MNEMONIC_JMP && !target &&
        h.operands[0].type != ZYDIS_OPERAND_TYPE_MEMORY) {
      Complain(h, "jumps to where a register says");
    }
    if (target && !code_.Contains(*target)) {
      CheckTarget(h, *target, s);
    } else if (target && code_.Find(*target) == nullptr) {
      Complain(h, "jumps into an instruction");
    }
    if (h.falls_through() && code_.Find(h.next()) == nullptr) {
      const bool elided =
          std::any_of(ccf_.exits().begin(), ccf_.exits().end(), [&](const ExitDesc* e) {
            return e->elided && e->linked != nullptr && e->linked->entry == h.next();
          });
      if (!elided) Complain(h, "runs off the end of the CCF");
      CheckClean(h, s, false);
    }
    for (const Edge& edge : EdgesOf(h)) {
      if (code_.Find(edge.to) != nullptr) Follow(edge, h, s);
    }
  }
  CheckAccesses();
  CheckPatches();
}

// --- What must hold where the code is left ---

// The rest of the world finds guest values in the guest's registers.
void Flow::CheckClean(const HostInstr& h, const State& s, bool string) {
  for (int reg = 0; reg < 16; ++reg) {
    const Value& value = s.gpr[reg];
    if (IsScratch(reg) || (string && (reg == vcpu::kRsi || reg == vcpu::kRdi))) continue;
    if (value.is == Is::kFlags) Complain(h, "flags are left in rax");
    if (!value.IsGuests() && value.is != Is::kFlags) {
      Complain(h, "a host address is left in a guest register");
    }
    if (IsLegacy() && reg < 8 && !value.narrow) {
      Complain(h, "a register of code that is not 64-bit has an upper half");
    }
  }
}

void Flow::CheckWord(const HostInstr& h, HostAddr stub, const State& s) {
  const Value &word = s.gpr[vcpu::kR10], &argument = s.gpr[vcpu::kR11];
  if (word.is != Is::kNumber || code_.WordBefore(h.at) != word.number) {
    Complain(h, "a stub gets no descriptor");
    return;
  }
  if (stub == stubs_.at(Callout::kReplaced)) {
    if (word.number != reinterpret_cast<u64>(&ccf_)) Complain(h, "another CCF is looked up");
    return;
  }
  if (stub == stubs_.at(Callout::kExit)) {
    const bool known =
        std::any_of(ccf_.exits().begin(), ccf_.exits().end(), [&](const ExitDesc* e) {
          return reinterpret_cast<u64>(e) == word.number && e->ccf == &ccf_;
        });
    if (!known) Complain(h, "an exit without its descriptor");
    return;
  }
  const bool linear = stub == stubs_.miss || stub == stubs_.at(Callout::kBounceBegin) ||
                      stub == stubs_.at(Callout::kStore);
  if (linear && !argument.IsGuests()) Complain(h, "what is looked up is no guest address");
  if (stub == stubs_.miss) {
    const HostAddr resume = stubs_.miss + MissWord{word.number}.ResumeDistance();
    const bool known = std::any_of(ccf_.sites().begin(), ccf_.sites().end(),
                                   [&](const SiteDesc* d) { return d->resume == resume; });
    if (!known || code_.Find(resume) == nullptr) Complain(h, "a miss that no site goes on from");
    if (argument.is != Is::kGuest || argument.wraps) Complain(h, "a miss of no known address");
    return;
  }
  const SiteDesc* site = SiteOf(word.number);
  if (site == nullptr || site->ccf != &ccf_) {
    Complain(h, "a callout without its descriptor");
  } else if (site->resume != HostAddr() && code_.Find(site->resume) == nullptr &&
             site->resume != ccf_.hot_end) {
    Complain(h, "a callout that goes on nowhere");
  }
}

void Flow::CheckTarget(const HostInstr& h, HostAddr target, const State& s) {
  for (const ExitDesc* exit : ccf_.exits()) {
    const bool here = exit->patch == h.at || exit->elided;
    if (here && exit->linked != nullptr && exit->linked->entry == target) {
      return CheckClean(h, s, false);
    }
  }
  // An entry check that fails: the flags are in rax, and rax in r10.
  if (target == stubs_.entry_miss.restore || target == stubs_.entry_miss.restore_swapped) {
    if (s.gpr[vcpu::kR10].id != entry_rax_ || s.gpr[vcpu::kRax].is != Is::kFlags) {
      Complain(h, "an entry check that does not keep rax and the flags");
    }
    return;
  }
  CheckClean(h, s, false);
  const StubTable& t = stubs_;
  for (const HostAddr stub :
       {t.miss, t.at(Callout::kReplaced), t.at(Callout::kExit), t.at(Callout::kSimulate),
        t.at(Callout::kBounceBegin), t.at(Callout::kBounceEnd), t.at(Callout::kStore),
        t.at(Callout::kRecheck), t.at(Callout::kRaise)}) {
    if (target == stub) return CheckWord(h, target, s);
  }
  if (target != t.at(Callout::kLookup) && target != t.at(Callout::kStop) &&
      target != t.entry_miss.lookup) {
    Complain(h, "jumps to what is neither the CCF nor a stub");
  } else if (!s.gpr[vcpu::kR11].IsGuests()) {
    Complain(h, "a host address is taken for a PC");
  }
}

// The host's fault handler finds the access, and what it restarts from.
void Flow::CheckAccesses() {
  for (const Access& access : accesses_) {
    const HostInstr& h = *code_.Find(access.at);
    const FaultPoint* found = nullptr;
    for (const FaultPoint& point : ccf_.faults()) {
      if (ccf_.hot_start + point.host_offset == access.at) found = &point;
    }
    if (found == nullptr || ccf_.sites()[found->site]->instr_index != h.instr_index) {
      Complain(h, "an access that nobody expects to fault");
      continue;
    }
    const bool own = access.made_by == h.instr_index;
    if (found->follower == own) Complain(h, "an access lies about having a look-up of its own");
    const auto start = ids_.find(ccf_.sites()[found->site]->Restart());
    if (start == ids_.end()) {
      Complain(h, "an access restarts at what does not run");
      continue;
    }
    for (int reg = 0; reg < 16; ++reg) {
      if (IsScratch(reg) || access.string) continue;
      if (start->second[reg] != access.ids[reg]) {
        Complain(h, "an access behind a change of guest registers");
        break;
      }
    }
  }
}

// The runtime overwrites exits, and entries.
void Flow::CheckPatches() {
  for (const ExitDesc* exit : ccf_.exits()) {
    if (exit->elided) continue;
    const HostInstr* h = code_.Find(exit->patch);
    if (h == nullptr || h->z.length != exit->patch_length) {
      complaints_.push_back(code_.Where(exit->patch) + ": an exit that cannot be patched");
    }
  }
  for (const auto& [at, h] : code_.instrs()) {
    const std::optional<HostAddr> target = h.target();
    if (target && *target > ccf_.entry && *target - ccf_.entry < translator::kEntryBytes) {
      Complain(h, "jumps to what a redirected entry overwrites");
    }
  }
}

std::vector<std::string> Verify(const Ccf& ccf, const StubTable& stubs) {
  std::vector<std::string> complaints;
  const HostCode code(ccf, &complaints);
  if (complaints.empty()) Flow(code, stubs, &complaints).Run();
  return complaints;
}

}  // namespace alibi::verifier
