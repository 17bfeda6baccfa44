// SPDX-License-Identifier: Apache-2.0
// The analysis itself: the state in front of every instruction, and what is wrong with it.
#ifndef ALIBI_TESTSUITE_VERIFIER_FLOW_H_
#define ALIBI_TESTSUITE_VERIFIER_FLOW_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "testsuite/verifier/contract_cells.h"
#include "testsuite/verifier/host_code.h"
#include "testsuite/verifier/values.h"

namespace alibi::verifier {

class Flow {
 public:
  Flow(const HostCode& code, const StubTable& stubs, std::vector<std::string>* complaints)
      : code_(code), ccf_(code.ccf()), stubs_(stubs), complaints_(*complaints) {}
  void Run();

 private:
  // How an instruction goes on.
  enum class Via : u8 { kNext, kTaken, kMiss, kSimulated, kBounceBegun, kStored };
  struct Edge {
    HostAddr to;
    Via via;
  };
  // An access that may fault on behalf of the guest.
  struct Access {
    HostAddr at;
    unsigned made_by;
    std::array<u32, 16> ids;
    bool string;
  };

  // --- flow.cc ---
  std::vector<Edge> EdgesOf(const HostInstr& h) const;
  void FindOrder();
  void Visit(HostAddr at, std::set<HostAddr>* open, std::set<HostAddr>* done);
  State Entry();
  State LoopHead(const State& before);
  void CheckLoop(const HostInstr& h, const State& s, const State& head);
  void Merge(const State& from, HostAddr to);
  Value Join(const Value& a, const Value& b);
  void Follow(const Edge& edge, const HostInstr& h, State s);
  void Branched(const HostInstr& h, State* s);
  void CheckTarget(const HostInstr& h, HostAddr target, const State& s);
  void CheckWord(const HostInstr& h, HostAddr stub, const State& s);
  void CheckClean(const HostInstr& h, const State& s, bool string);
  void CheckAccesses();
  void CheckPatches();
  const translator::SiteDesc* SiteOf(u64 word) const;

  // --- transfer.cc ---
  void Step(const HostInstr& h, State* s);
  void Transfer(const HostInstr& h, State* s);
  bool TransferMove(const HostInstr& h, State* s);
  bool TransferLea(const HostInstr& h, State* s);
  bool TransferAdd(const HostInstr& h, State* s);
  bool TransferBits(const HostInstr& h, State* s);
  bool TransferOther(const HostInstr& h, State* s);
  void TransferGeneric(const HostInstr& h, State* s);
  void CheckMemory(const HostInstr& h, const ZydisDecodedOperand& operand, State* s);
  void CheckGs(const HostInstr& h, const ZydisDecodedOperand& operand, const State& s);
  void CheckString(const HostInstr& h, const Value& address, unsigned size, const State& s);
  Value Load(const HostInstr& h, const ZydisDecodedOperand& operand, State* s);
  void Store(const HostInstr& h, const ZydisDecodedOperand& operand, const Value& value, State* s);
  Value Sum(const ZydisDecodedOperand& operand, const State& s);
  Value InPage(const Value& a, const Value& b);
  Value Truncated(const Value& value, bool keep_root);
  void Exact(int reg, State* s);
  void Set(const ZydisDecodedOperand& dest, Value value, State* s);
  void ForgetLookups(State* s);

  Value Fresh(bool narrow = false) {
    Value value;
    value.id = value.root = ++last_id_;
    value.narrow = value.root_narrow = narrow;
    return value;
  }
  Value Made(Is is) {
    Value value = Fresh();
    value.is = is;
    return value;
  }
  void Complain(const HostInstr& h, const char* what) {
    complaints_.push_back(code_.Where(h.at) + ": " + what);
  }
  bool IsLegacy() const { return ccf_.mode.code_bits != 64; }
  bool IsIdent(const HostInstr& h) const;

  const HostCode& code_;
  const translator::Ccf& ccf_;
  const StubTable& stubs_;
  std::vector<std::string>& complaints_;
  std::map<HostAddr, State> in_;
  std::vector<HostAddr> order_;      // topological, but for the edges to loops_
  std::set<HostAddr> loops_;         // what is jumped back to: little is known there
  std::map<HostAddr, State> heads_;  // what is, for those that were come to
  std::set<HostAddr> restarts_;  // where the host's faults are retried: r10 and r11 are anything
  std::map<HostAddr, std::array<u32, 16>> ids_;  // of registers in front of what runs
  std::vector<Access> accesses_;
  u32 last_id_ = 0;
  u32 entry_rax_ = 0;
};

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_FLOW_H_
