// Control flow: direct exits are chained, computed targets go through the view's jump table.
#include "translator/emitter_impl.h"

namespace alibi::translator {

using vcpu::VcpuState;

namespace {

constexpr bool IsLoop(Op op) {
  return op == Op::kLoop || op == Op::kLoope || op == Op::kLoopne || op == Op::kJcxz;
}

}  // namespace

void Emitter::Impl::EmitControl(const Instr& instr) {
  const CodeMode& mode = request_->mode;
  // Some targets are no addresses, or lie behind the segment's limit: then the branch faults.
  const bool relative = instr.layout.imm_kind == ImmKind::kRelative;
  const bool nowhere = relative && (!CanBeCode(instr.branch_target) ||
                                    mode.RipOf(instr.branch_target) > mode.code_limit);
  // Jumps alone are at home in any code; 64-bit and flat code also call and return here, unless
  // the operand size truncates RIP and the stack slots. Counters of 16 bits have no host loop.
  const bool jump = instr.op == Op::kJmp || instr.op == Op::kJcc ||
                    (IsLoop(instr.op) && instr.address_bits != 16);
  const bool usual = mode.flat && instr.operand_bits != 16;
  if (nowhere || !(usual || (jump && instr.code_bits != 64)) ||
      ccf_->plans[index_].kind == SiteKind::kSimulate) {
    EmitSimulateWhole(true);
    return;
  }
  // A stepped indirect branch must not be left before its target has been checked.
  if (request_->mode.single &&
      (instr.op == Op::kRet || instr.op == Op::kJmpIndirect || instr.op == Op::kCallIndirect)) {
    EmitSimulateWhole(true);
    return;
  }
  switch (instr.op) {
    case Op::kJmp:
      while (hot_.Here() - ccf_->entry < 5) a().nop();
      EmitExit(instr.branch_target);
      break;
    case Op::kJcc:
      EmitJccExit(instr.condition, instr.branch_target);
      EmitExit(instr.next_pc());
      break;
    case Op::kCall:
      EmitReturnAddressPush(instr);
      EmitExit(instr.branch_target);
      break;
    case Op::kRet:
      EmitRet(instr);
      break;
    case Op::kJmpIndirect:
    case Op::kCallIndirect:
      EmitIndirect(instr);
      break;
    case Op::kLoop:
    case Op::kLoope:
    case Op::kLoopne:
    case Op::kJcxz:
      EmitLoop(instr);
      break;
    default:
      EmitSimulateWhole(true);
      break;
  }
}

void Emitter::Impl::EmitReturnAddressPush(const Instr& instr) {
  const unsigned size = request_->mode.code_bits / 8;
  Ea ea = StackEa(-static_cast<i32>(size));
  SiteDesc* site = EmitLookup(ea, size, true, AccessShape::kPush);
  const bool follower = groups_[index_].follower;
  x86::Mem slot = HostOperand(ea, size);
  if (instr.op == Op::kCallIndirect && size == 8) {
    // What the push overwrites, in case the call is undone: see NoteBranch.
    MarkFaultPoint(site, follower);
    a().mov(x86::r11, slot);
    a().mov(State(offsetof(VcpuState, spill) + 6 * 8), x86::r11);
  }
  const u64 pc = instr.next_pc();
  if (size == 4 || static_cast<u64>(static_cast<i32>(pc)) == pc) {
    MarkFaultPoint(site, follower);
    a().mov(slot, asmjit::imm(static_cast<i64>(static_cast<i32>(pc))));
  } else {
    const x86::Gp value = ea.base_disp ? x86::r11 : x86::r10;
    if (!ea.base_disp && !ea.host_in_r11) {
      a().lea(x86::r11, slot);
      slot = x86::ptr(x86::r11);
    }
    a().mov(value, asmjit::imm(pc));
    MarkFaultPoint(site, follower);
    a().mov(slot, value);
  }
  AdjustRsp(-static_cast<i32>(size));
}

void Emitter::Impl::EmitRet(const Instr& instr) {
  const unsigned size = request_->mode.code_bits / 8;
  Ea ea = StackEa(0);
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kPop);
  LoadR11(ea, size, site);
  AdjustRsp(static_cast<i32>(size + (instr.layout.imm != 0xff ? instr.immediate & 0xffff : 0)));
  EmitIndirectExit();
}

void Emitter::Impl::EmitBranchTargetToR11(const Instr& instr) {
  const unsigned size = request_->mode.code_bits / 8;
  if (!instr.mem.present) {
    if (size == 8) {
      LoadGpr(x86::r11, instr.gprs[0].reg);
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

void Emitter::Impl::EmitIndirect(const Instr& instr) {
  EmitBranchTargetToR11(instr);
  if (instr.op == Op::kCallIndirect) {
    // The target is read before the push (SDM vol. 2, CALL), and the push needs r11.
    const x86::Mem target = State(offsetof(VcpuState, spill) + 5 * 8);
    a().mov(target, x86::r11);
    EmitReturnAddressPush(instr);
    a().mov(x86::r11, target);
  }
  EmitIndirectExit();
}

void Emitter::Impl::EmitLoop(const Instr& instr) {
  u8 opcode = 0xe3;
  switch (instr.op) {
    case Op::kLoopne:
      opcode = 0xe0;
      break;
    case Op::kLoope:
      opcode = 0xe1;
      break;
    case Op::kLoop:
      opcode = 0xe2;
      break;
    default:
      break;
  }
  while (hot_.Here() - ccf_->entry < 5) a().nop();
  if (instr.address_bits == 32) hot_.Raw({0x67});
  hot_.Raw({opcode, 0});
  const u32 from = hot_.Offset();
  // The fall-through exit must not be elided: the taken one follows it.
  EmitExit(instr.next_pc());
  hot_.PatchRel8(from);
  EmitExit(instr.branch_target);
}

}  // namespace alibi::translator
