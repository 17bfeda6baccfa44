// SPDX-License-Identifier: Apache-2.0
// Control flow: direct exits are chained, computed targets go through the view's jump table.
#include "translator/emitter_impl.h"

namespace alibi::translator {

using vcpu::VcpuState;

namespace {

// Of return addresses and targets in memory.
constexpr unsigned SlotBytes(const isa::Instr& instr) {
  return instr.code_bits == 64 ? 8 : instr.operand_bits / 8u;
}

HostCode::CountJump CountJumpOf(isa::Op op) {
  using enum HostCode::CountJump;
  return op == isa::Op::kLoop     ? kLoop
         : op == isa::Op::kLoope  ? kLoope
         : op == isa::Op::kLoopne ? kLoopne
                                  : kJrcxz;
}

}  // namespace

// Some targets are no addresses, or lie behind the segment's limit: then the branch faults.
bool Emitter::Impl::IsUnusualBranch(const isa::Instr& instr) const {
  const CodeMode& mode = request_->mode;
  if (InfoOf(instr.op).Has(isa::kComputesTarget)) {
    // A stepped branch must not be left before its target has been checked. Outside flat code the
    // target may lie behind the limit, unless it has 16 bits or there is none; in flat code
    // 16-bit branches are what compilers never make.
    const bool within = mode.code_limit >= (instr.operand_bits == 16 ? 0xffff : 0xffffffff);
    return mode.single || (mode.flat ? instr.operand_bits == 16 : !within);
  }
  const bool narrow = mode.flat && instr.operand_bits == 16;
  return !CanBeCode(instr.branch_target) || mode.RipOf(instr.branch_target) > mode.code_limit ||
         (narrow && (instr.op == isa::Op::kCall || instr.code_bits == 64));
}

bool Emitter::Impl::EmitJmp(const isa::Instr& instr) {
  if (IsUnusualBranch(instr)) return false;
  PadEntry();
  EmitExit(instr.branch_target);
  return true;
}

bool Emitter::Impl::EmitJcc(const isa::Instr& instr) {
  if (IsUnusualBranch(instr)) return false;
  EmitJccExit(instr.condition, instr.branch_target);
  EmitExit(instr.next_pc());
  return true;
}

bool Emitter::Impl::EmitCall(const isa::Instr& instr) {
  if (IsUnusualBranch(instr)) return false;
  if (request_->leaf.entry) {
    portable_ = false;  // what is called there next time is another question
    EmitLeafCall(instr);
    return true;
  }
  EmitReturnAddressPush(instr);
  EmitExit(instr.branch_target);
  return true;
}

// Either the CALL as it is, or all of it: the return address is stored, as everybody can see, the
// function's instruction is done, and the stack pointer is where it was.
void Emitter::Impl::EmitLeafCall(const isa::Instr& instr) {
  const LeafCall& leaf = request_->leaf;
  // The function may be another when it is asked for, and that one may need the flags; with the
  // function that is known, the code behind the CALL says. The check keeps them.
  const bool stores_twice =
      !groups_[index_].follower && FlagsLive() && tu_->flags_live_past_leaf == 0;
  if (!stores_twice) StoreReturnAddress(instr);
  a().mov(x86::r10, GsAbs(JumpTablePlace(instr.branch_target, JumpKind::kCrossPage), 8));
  a().mov(x86::r11, asmjit::imm(0 - leaf.entry.value));
  a().lea(x86::r10, x86::ptr(x86::r10, x86::r11));
  if (leaf.op == isa::Op::kSti) {
    // An interrupt that waits is the function's business. No difference of host addresses has bit
    // 63 alone.
    a().mov(x86::r11d, State(offsetof(VcpuState, irq_pending), 4));
    a().rorx(x86::r11, x86::r11, 1);
    a().lea(x86::r10, x86::ptr(x86::r10, x86::r11));
  }
  a().xchg(x86::r10, x86::rcx);
  const HostCode::ShortJump known = hot_.Jrcxz();
  a().xchg(x86::r10, x86::rcx);
  if (stores_twice) StoreReturnAddress(instr);
  AdjustRsp(-static_cast<i32>(SlotBytes(instr)));
  EmitExit(instr.branch_target);

  hot_.Bind(known);
  a().mov(x86::rcx, x86::r10);
  if (stores_twice) {
    past_leaf_ = true;
    StoreReturnAddress(instr)->keeps_flags = false;
    past_leaf_ = false;
  }
  switch (leaf.op) {
    case isa::Op::kCli:
      EmitCli(leaf.instr);
      break;
    case isa::Op::kSti:
      // Its shadow ends with the return, and so does this.
      a().mov(State(offsetof(VcpuState, if_flag), 1), 1);
      break;
    case isa::Op::kReadCr:
      EmitReadCr(leaf.instr);
      break;
    default:
      break;
  }
  EmitExit(instr.next_pc());
}

void Emitter::Impl::EmitReturnAddressPush(const isa::Instr& instr) {
  StoreReturnAddress(instr);
  AdjustRsp(-static_cast<i32>(SlotBytes(instr)));
}

SiteDesc* Emitter::Impl::StoreReturnAddress(const isa::Instr& instr) {
  const unsigned size = SlotBytes(instr);
  Ea ea = StackEa(vcpu::kRsp, -static_cast<i32>(size), size, true);
  SiteDesc* site = EmitLookup(ea, size, true, AccessShape::kPush);
  const bool follower = groups_[index_].follower;
  if (instr.op == isa::Op::kCallIndirect && size == 8) {
    // What the push overwrites, in case the call is undone: see NoteBranch.
    MarkFaultPoint(site, follower);
    hot_.Load(vcpu::kR11, HostMemOf(ea));
    a().mov(State(offsetof(VcpuState, scratch.overwritten)), x86::r11);
  }
  const u64 pc = request_->mode.RipOf(instr.next_pc());
  if (size != 8 || static_cast<u64>(static_cast<i32>(pc)) == pc) {
    MarkFaultPoint(site, follower);
    const i32 value = size == 2 ? static_cast<i16>(pc) : static_cast<i32>(pc);
    if (size == 8) {
      hot_.Store(HostMemOf(ea), value);
    } else {
      a().mov(HostOperand(ea, size), asmjit::imm(i64{value}));
    }
    if (form_ == PcForm::kKernel) {
      hot_.NotePc32();
      portable_ = portable_ && FormOf(instr.next_pc()) == form_ && size == 8;
    }
  } else {
    MovPc(x86::r11, instr.next_pc());  // free: the stack of 64-bit code is [rsp + disp]
    MarkFaultPoint(site, follower);
    hot_.Store(HostMemOf(ea), vcpu::kR11);
  }
  return site;
}

bool Emitter::Impl::EmitRet(const isa::Instr& instr) {
  if (IsUnusualBranch(instr)) return false;
  const unsigned size = SlotBytes(instr);
  Ea ea = StackEa(vcpu::kRsp, 0, size, false);
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kPop);
  LoadR11(ea, size, site);
  AdjustRsp(static_cast<i32>(size + static_cast<u16>(instr.immediate)));
  EmitIndirectExit();
  return true;
}

void Emitter::Impl::EmitBranchTargetToR11(const isa::Instr& instr) {
  const unsigned size = SlotBytes(instr);
  if (!instr.mem.present) {
    if (size == 8) {
      LoadGpr(x86::r11, instr.gprs[0].reg);
    } else if (size == 2) {
      a().movzx(x86::r11d, Gp64(instr.gprs[0].reg).r16());
    } else {
      a().mov(x86::r11d, Gp64(instr.gprs[0].reg).r32());
    }
    return;
  }
  Ea ea = PrepareEa(instr.mem, instr);
  // call gs:[10h] is how 32-bit programs enter their system.
  if (ChecksSegment(instr, request_->mode)) EmitSegment(instr.mem.segment, size, false);
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kOperand);
  LoadR11(ea, size, site);
}

bool Emitter::Impl::EmitIndirect(const isa::Instr& instr) {
  if (IsUnusualBranch(instr)) return false;
  EmitBranchTargetToR11(instr);
  if (instr.op == isa::Op::kCallIndirect) {
    // The target is read before the push (SDM vol. 2, CALL), and the push needs r11.
    const x86::Mem target = State(offsetof(VcpuState, scratch.target));
    a().mov(target, x86::r11);
    EmitReturnAddressPush(instr);
    a().mov(x86::r11, target);
  }
  EmitIndirectExit();
  return true;
}

bool Emitter::Impl::EmitLoop(const isa::Instr& instr) {
  if (IsUnusualBranch(instr)) return false;
  if (instr.address_bits == 16) {
    EmitLoop16(instr);
    return true;
  }
  PadEntry();
  const HostCode::ShortJump taken = hot_.Count(CountJumpOf(instr.op), instr.address_bits == 32);
  // The fall-through exit must not be elided: the taken one follows it.
  EmitExit(instr.next_pc());
  hot_.Bind(taken);
  EmitExit(instr.branch_target);
  return true;
}

// 64-bit code has no loops that count in CX.
void Emitter::Impl::EmitLoop16(const isa::Instr& instr) {
  PadEntry();
  a().movzx(x86::r10d, x86::cx);
  if (instr.op != isa::Op::kJcxz) {
    a().lea(x86::r10d, x86::ptr(x86::r10, -1));
    a().movzx(x86::r10d, x86::r10w);
    a().mov(x86::cx, x86::r10w);
  }
  a().xchg(x86::r10, x86::rcx);
  const HostCode::ShortJump zero = hot_.Jrcxz();
  a().mov(x86::rcx, x86::r10);
  if (instr.op == isa::Op::kLoope || instr.op == isa::Op::kLoopne) {
    EmitJccExit(instr.op == isa::Op::kLoope ? 4 : 5, instr.branch_target);
    EmitExit(instr.next_pc());
  } else {
    EmitExit(instr.op == isa::Op::kJcxz ? instr.next_pc() : instr.branch_target);
  }
  hot_.Bind(zero);
  a().mov(x86::rcx, x86::r10);
  EmitExit(instr.op == isa::Op::kJcxz ? instr.branch_target : instr.next_pc());
}

}  // namespace alibi::translator
