// SPDX-License-Identifier: Apache-2.0
#include "translator/access_groups.h"

#include <algorithm>
#include <bit>

namespace alibi::translator {
namespace {

// A group may cover this many bytes: more shares more, but crosses pages more often.
constexpr i64 kMaxSpan = 256;

// Negative displacements down to here are taken for offsets in a structure or a stack frame; below,
// for the address of a table in the upper half of 32-bit linear memory.
constexpr i64 kLowestOffset32 = -(1 << 20);

constexpr bool FitsI32(i64 value) { return value == static_cast<i32>(value); }

// Both stolen registers as operands: the op then needs r10 for one of them.
bool UsesBothStolen(const isa::Instr& instr) {
  unsigned seen = 0;
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (IsStolen(instr.gprs[k].reg)) seen |= 1u << (instr.gprs[k].reg - vcpu::kR10);
  }
  return seen == 3;
}

bool WritesGpr(const isa::Instr& instr, u8 reg) {
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (instr.gprs[k].reg == reg && instr.gprs[k].written) return true;
  }
  return (instr.implicit_gprs_written >> reg) & 1;
}

// ADD/SUB reg, imm (of the address size): the register moves by a known amount.
bool ConstantAdjust(const isa::Instr& instr, u8 reg, i64* delta) {
  if (!instr.Is(isa::kAddsConstant | isa::kSubtractsConstant) ||
      instr.operand_bits != instr.code_bits || instr.gprs[0].reg != reg) {
    return false;
  }
  const i64 imm =
      instr.code_bits == 32 ? static_cast<i32>(instr.immediate) : static_cast<i64>(instr.immediate);
  *delta = instr.Is(isa::kAddsConstant) ? imm : -imm;
  return true;
}

// MOV and LEA of the address size: `dest` becomes `source` plus a constant.
bool Derived(const isa::Instr& instr, u8* dest, u8* source, i64* delta) {
  if (instr.treatment != isa::Treatment::kIdent || instr.encoding != isa::Encoding::kLegacy ||
      instr.operand_bits != instr.code_bits) {
    return false;
  }
  if (instr.op == isa::Op::kLea) {
    const isa::MemOperand& mem = instr.mem;
    if (mem.base == isa::kNoReg || mem.index != isa::kNoReg || mem.rip_relative ||
        mem.address_bits != instr.code_bits) {
      return false;
    }
    *dest = instr.gprs[0].reg;
    *source = mem.base;
    *delta = mem.disp;
    return true;
  }
  if (instr.op != isa::Op::kMov || instr.mem.present || instr.gpr_count != 2 ||
      instr.gprs[0].bits == 8) {
    return false;
  }
  const unsigned to = instr.gprs[0].written ? 0 : 1;
  *dest = instr.gprs[to].reg;
  *source = instr.gprs[1 - to].reg;
  *delta = 0;
  return true;
}

// The registers that hold the base register's value at the leader, plus a known offset.
class KnownRegisters {
 public:
  bool Holds(u8 reg) const { return reg != isa::kNoReg && ((mask_ >> reg) & 1); }
  bool None() const { return mask_ == 0; }
  i64 Offset(u8 reg) const { return offset_[reg]; }
  void Set(u8 reg, i64 offset) {
    mask_ = static_cast<u16>(mask_ | 1u << reg);
    offset_[reg] = offset;
  }
  void Forget(u8 reg) { mask_ = static_cast<u16>(mask_ & ~(1u << reg)); }
  void Clear() { mask_ = 0; }

  // What the instruction does to them; `stack` is how it moves the stack pointer as an access.
  void Pass(const isa::Instr& instr, i64 stack) {
    u8 dest = isa::kNoReg, source = isa::kNoReg;
    i64 delta = 0;
    if (Derived(instr, &dest, &source, &delta)) {
      const bool known = Holds(source);
      const i64 offset = known ? Offset(source) + delta : 0;
      known ? Set(dest, offset) : Forget(dest);
      return;
    }
    if (instr.op == isa::Op::kLeave) {
      Holds(vcpu::kRbp) ? Set(vcpu::kRsp, Offset(vcpu::kRbp) + instr.operand_bits / 8)
                        : Forget(vcpu::kRsp);
      Forget(vcpu::kRbp);
      return;
    }
    for (unsigned left = mask_; left != 0; left &= left - 1) {
      const u8 reg = static_cast<u8>(std::countr_zero(left));
      if (reg == vcpu::kRsp && stack != 0) {
        offset_[reg] += stack;
      } else if (ConstantAdjust(instr, reg, &delta)) {
        offset_[reg] += delta;
      } else if (WritesGpr(instr, reg)) {
        Forget(reg);
      }
    }
  }

 private:
  u16 mask_ = 0;
  std::array<i64, 16> offset_{};
};

class Planner {
 public:
  Planner(const TranslationUnit& tu, const CodeMode& mode,
          const std::array<SitePlan, kMaxTuInstructions>& sites, AccessPlans* plans)
      : tu_(tu), mode_(mode), sites_(sites), plans_(*plans) {}

  void Run() {
    if (!mode_.flat) return;
    unsigned accesses = 0;
    for (unsigned i = 0; i < tu_.count; ++i) {
      accesses_[i] = AccessOf(i);
      accesses += accesses_[i].base != isa::kNoReg;
    }
    if (accesses < 2) return;
    for (unsigned i = 0; i < tu_.count; ++i) Plan(i);
    Close();
  }

 private:
  struct Access {
    u8 base;
    i64 offset, size;
    i64 base_moves;  // PUSH, POP
    bool store;
  };

  // An access off a base register that may be a leader or follower; base kNoReg: none.
  Access AccessOf(unsigned i) const {
    const isa::Instr& instr = tu_.instrs[i];
    constexpr Access kNone{isa::kNoReg, 0, 0, 0, false};
    if (sites_[i].kind != SiteKind::kDirect || sites_[i].alone) return kNone;
    if (instr.treatment == isa::Treatment::kIdent && instr.mem.present) {
      if (instr.mem.size == 0 || instr.mem.size > 64 || !IsBaseDisp(instr, mode_) ||
          !FitsI32(instr.mem.disp + instr.mem.size) || UsesHighByte(instr) ||
          UsesBothStolen(instr)) {
        return kNone;
      }
      return {instr.mem.base, instr.mem.disp, instr.mem.size, 0, instr.mem.written};
    }
    if (instr.op == isa::Op::kLeave && instr.operand_bits == mode_.code_bits) {
      return {vcpu::kRbp, 0, mode_.code_bits / 8, 0, false};
    }
    const bool push =
        instr.op == isa::Op::kPush || instr.op == isa::Op::kPushSreg || instr.op == isa::Op::kCall;
    const bool pop = instr.op == isa::Op::kPop || instr.op == isa::Op::kRet;
    if (!(push || pop) || instr.mem.present || instr.operand_bits != mode_.code_bits) return kNone;
    // POP rsp reads its own base.
    if (instr.op == isa::Op::kPop && instr.gprs[0].reg == vcpu::kRsp) return kNone;
    const i64 size = mode_.code_bits / 8;
    return {vcpu::kRsp, push ? -size : 0, size, push ? -size : size, push};
  }

  // Nothing of it needs r10, as a check of its segment would. An access off a base register is
  // better off with its displacement in r10, which keeps the look-up out of the address's
  // dependency chain.
  bool Foldable(unsigned i) const {
    const isa::Instr& instr = tu_.instrs[i];
    const isa::MemOperand& mem = instr.mem;
    if (instr.treatment != isa::Treatment::kIdent || !mem.present || mem.size == 0 ||
        mem.size > 64 || mem.vsib || !mode_.flat || sites_[i].kind != SiteKind::kDirect) {
      return false;
    }
    return !IsBaseDisp(instr, mode_) && sites_[i].lookup == LookupKind::kSlot &&
           tu_.flags_live_before[i] == 0 && !UsesStolenOperand(instr) && !UsesHighByte(instr) &&
           mem.segment < vcpu::kFs && !ChecksSegment(instr, mode_) &&
           (mem.base == isa::kNoReg || !IsStolen(mem.base)) &&
           (mem.index == isa::kNoReg || !IsStolen(mem.index));
  }

  // Nothing of it needs r10, or may change a mapping.
  bool Harmless(unsigned i) const {
    const isa::Instr& instr = tu_.instrs[i];
    const isa::MemOperand& mem = instr.mem;
    const bool plain_lea = mem.size == 0 && mem.base != isa::kNoReg && !IsStolen(mem.base) &&
                           (mem.index == isa::kNoReg || !IsStolen(mem.index)) &&
                           mem.address_bits == mode_.code_bits && instr.operand_bits != 16;
    return instr.treatment == isa::Treatment::kIdent && sites_[i].kind == SiteKind::kDirect &&
           (!mem.present || plain_lea) && !UsesStolenOperand(instr);
  }

  // Is the open group worth keeping over instruction i, which would be folded?
  bool UsedBehind(unsigned i) const {
    KnownRegisters known = known_;
    for (unsigned k = i + 1; k < tu_.count; ++k) {
      known.Pass(tu_.instrs[k - 1], 0);
      if (known.Holds(accesses_[k].base)) return true;
      if (known.None() || (!Harmless(k) && !Foldable(k))) return false;
    }
    return false;
  }

  void Plan(unsigned i) {
    const Access& access = accesses_[i];
    const bool joined = known_.Holds(access.base) && Join(i, access);
    if (leader_ >= 0 && !joined) {
      if (Foldable(i) && UsedBehind(i)) {
        plans_[i].folded = true;
      } else if (access.base != isa::kNoReg || !Harmless(i)) {
        Close();
      }
    }
    if (access.base != isa::kNoReg && leader_ < 0) Open(i, access);
    if (leader_ < 0) return;
    known_.Pass(tu_.instrs[i], access.base_moves);
    if (known_.None()) Close();
  }

  void Open(unsigned i, const Access& access) {
    leader_ = static_cast<int>(i);
    known_.Set(access.base, 0);
    members_ = 1;
    AccessPlan& plan = plans_[i];
    plan.leader = true;
    plan.low = static_cast<i32>(access.offset);
    plan.high = static_cast<i32>(access.offset + access.size);
    plan.stores = access.store;
  }

  bool Join(unsigned i, const Access& access) {
    AccessPlan& leader = plans_[leader_];
    const i64 moved = known_.Offset(access.base);
    i64 low = std::min<i64>(leader.low, moved + access.offset);
    i64 high = std::max<i64>(leader.high, moved + access.offset + access.size);
    if (mode_.code_bits == 32 && moved != 0) {  // the register must not have wrapped on its way
      low = std::min(low, moved);
      high = std::max(high, moved + 1);
    }
    // The range is addressed off the register as it was at the leader, by an i32.
    if (high - low > kMaxSpan || !FitsI32(low) || !FitsI32(high)) return false;
    leader.low = static_cast<i32>(low);
    leader.high = static_cast<i32>(high);
    leader.stores |= access.store;
    plans_[i].follower = true;
    ++members_;
    return true;
  }

  void Close() {
    if (leader_ >= 0 && members_ < 2) plans_[leader_].leader = false;
    leader_ = -1;
    known_.Clear();
  }

  const TranslationUnit& tu_;
  const CodeMode& mode_;
  const std::array<SitePlan, kMaxTuInstructions>& sites_;
  AccessPlans& plans_;
  std::array<Access, kMaxTuInstructions> accesses_;  // of the TU's instructions
  int leader_ = -1;
  KnownRegisters known_;
  unsigned members_ = 0;
};

}  // namespace

bool UsesHighByte(const isa::Instr& instr) {
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (instr.gprs[k].high_byte) return true;
  }
  return false;
}

bool UsesStolenOperand(const isa::Instr& instr) {
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (IsStolen(instr.gprs[k].reg)) return true;
  }
  return false;
}

bool IsBaseDisp(const isa::Instr& instr, const CodeMode& mode) {
  const isa::MemOperand& mem = instr.mem;
  if (mem.base == isa::kNoReg || IsStolen(mem.base) || mem.index != isa::kNoReg ||
      mem.rip_relative || mem.segment >= vcpu::kFs || !FitsI32(mem.disp) ||
      mem.address_bits != mode.code_bits) {
    return false;
  }
  return mode.code_bits == 64 || (!ChecksSegment(instr, mode) && mem.disp >= kLowestOffset32);
}

void PlanAccesses(const TranslationUnit& tu, const CodeMode& mode,
                  const std::array<SitePlan, kMaxTuInstructions>& sites, AccessPlans* plans) {
  plans->fill(AccessPlan{});
  Planner(tu, mode, sites, plans).Run();
}

}  // namespace alibi::translator
