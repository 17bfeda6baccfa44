// SPDX-License-Identifier: Apache-2.0
#include "translator/leaf_call.h"

#include "vcpu/state.h"

namespace alibi::translator {

namespace {

bool IsPlainReturn(const isa::Instr& instr) {
  return instr.op == isa::Op::kRet && instr.operand_bits == instr.code_bits && instr.immediate == 0;
}

bool CanStandBeforeReturn(const isa::Instr& instr) {
  switch (instr.op) {
    case isa::Op::kCli:
    case isa::Op::kSti:
      return true;
    case isa::Op::kReadCr:
      return instr.gprs[0].reg != vcpu::kRsp;
    default:
      return false;
  }
}

}  // namespace

bool IsLeaf(const Ccf& ccf) {
  if (ccf.instr_count > 2 || ccf.phys_page2 != kNoPage || !InlinesLeaves(ccf.mode)) return false;
  const InstrList instrs = ccf.instrs();
  return IsPlainReturn(instrs[instrs.size() - 1]) &&
         (instrs.size() == 1 || CanStandBeforeReturn(instrs.front()));
}

LeafCall LeafOf(const Ccf& ccf, HostAddr entry) {
  for (const SitePlan& plan : ccf.plans()) {
    if (plan.kind == SiteKind::kSimulate) return {};  // somebody wants to hear of it
  }
  LeafCall leaf{.entry = entry, .op = isa::Op::kNone, .instr = {}};
  if (ccf.instr_count == 2) {
    leaf.instr = ccf.instrs().front();
    leaf.op = leaf.instr.op;
  }
  return leaf;
}

}  // namespace alibi::translator
