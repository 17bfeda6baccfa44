// SPDX-License-Identifier: Apache-2.0
// The table of operations, and what it refuses. That each row of instructions.inc is offered by its
// operation, and that the functions exist, is checked when they are compiled.
#include "isa/op.h"

#include <catch2/catch.hpp>
#include <set>

namespace alibi::isa {
namespace {

constexpr bool Offers(Op op, Treatment treatment) { return Offers(InfoOf(op), treatment); }

TEST_CASE("A treatment without its function is refused", "[op]") {
  // Simulated, although the table once said IN-TC.
  CHECK_FALSE(Offers(Op::kIret, Treatment::kInTc));
  CHECK_FALSE(Offers(Op::kInvlpg, Treatment::kInTc));
  CHECK_FALSE(Offers(Op::kIns, Treatment::kInTc));
  CHECK(Offers(Op::kIret, Treatment::kTerminator));
  CHECK(Offers(Op::kOut, Treatment::kSimulate));
  CHECK(Offers(Op::kIn, Treatment::kInTc));
  // The simulator has no DIV: SIMULATE of IDENT is a bounce operand.
  CHECK(Offers(Op::kDivide, Treatment::kIdent));
  CHECK_FALSE(Offers(Op::kDivide, Treatment::kSimulate));
  CHECK_FALSE(Offers(Op::kDivide, Treatment::kTerminator));
  CHECK_FALSE(Offers(Op::kNone, Treatment::kSimulate));
  CHECK(Offers(Op::kMov, Treatment::kSimulate));
  // The host must not run them.
  CHECK_FALSE(Offers(Op::kCli, Treatment::kIdent));
  CHECK_FALSE(Offers(Op::kJmp, Treatment::kIdent));
  // What follows may lie in another mode.
  CHECK_FALSE(Offers(Op::kSyscall, Treatment::kSimulate));
  CHECK(Offers(Op::kSyscall, Treatment::kTerminator));
  CHECK(Offers(Op::kUd, Treatment::kUndefined));
  CHECK_FALSE(Offers(Op::kMov, Treatment::kUndefined));
}

TEST_CASE("Every emitted sequence has the simulator to fall back on", "[op]") {
  for (const OpInfo& op : kOps) {
    CAPTURE(op.name);
    if (op.emit == OpInfo::Emit::kSequence) CHECK(op.simulate == OpInfo::Simulate::kFunction);
    if (op.simulate == OpInfo::Simulate::kBounce) CHECK(op.emit == OpInfo::Emit::kCopy);
    if ((op.needs & ~kOneVcpu) != 0) CHECK(op.emit == OpInfo::Emit::kSequence);
    if ((op.needs & kOneVcpu) != 0) CHECK(op.simulate == OpInfo::Simulate::kFunction);
    if (op.Has(kEndsTu)) CHECK(op.emit == OpInfo::Emit::kSequence);
  }
}

TEST_CASE("Operations have names of their own", "[op]") {
  std::set<std::string_view> names;
  for (const OpInfo& op : kOps) CHECK(names.insert(op.name).second);
  CHECK(OpName(Op::kBtMemory) == "BtMemory");
}

TEST_CASE("Traits say where a TU ends and which flags are shown", "[op]") {
  const auto ends = [](Op op, Treatment t) { return EndsTranslationUnit(t, InfoOf(op)); };
  CHECK(ends(Op::kWriteCr3, Treatment::kInTc));
  CHECK(ends(Op::kSysret, Treatment::kInTc));
  CHECK(ends(Op::kJmp, Treatment::kControl));
  CHECK_FALSE(ends(Op::kMovCr8, Treatment::kInTc));
  CHECK_FALSE(ends(Op::kCpuid, Treatment::kSimulate));
  const auto shows = [](Op op, Treatment t) { return ShowsAllFlags(t, InfoOf(op)); };
  CHECK(shows(Op::kPushf, Treatment::kInTc));
  CHECK(shows(Op::kCpuid, Treatment::kSimulate));
  CHECK_FALSE(shows(Op::kOut, Treatment::kSimulate));
  CHECK_FALSE(shows(Op::kCld, Treatment::kInTc));
  CHECK_FALSE(shows(Op::kMov, Treatment::kIdent));
}

}  // namespace
}  // namespace alibi::isa
