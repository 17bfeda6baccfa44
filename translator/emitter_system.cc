// SPDX-License-Identifier: Apache-2.0
// In-TC sequences for privileged and virtualized instructions that are simple and frequent.
// Each preserves what the architecture preserves; what it cannot do it leaves to the simulator.
#include <bit>
#include <utility>

#include "abi/contract.h"
#include "translator/emitter_impl.h"

namespace alibi::translator {

using vcpu::VcpuState;

namespace {

constexpr std::size_t kScratchRax = offsetof(VcpuState, scratch.rax);
constexpr std::size_t kScratchValue = offsetof(VcpuState, scratch.value);

// RFLAGS bits that only the simulator changes.
constexpr u32 kSlowFlags = vcpu::kTf | vcpu::kIopl | vcpu::kNt | vcpu::kAc | vcpu::kId;

constexpr u32 OnesOf(unsigned size) { return ~u32{0} >> (32 - 8 * size); }

x86::Gp LowPartOf(const x86::Gp& reg, unsigned size) {
  if (size == 1) return reg.r8();
  if (size == 2) return reg.r16();
  return reg.r32();
}

// A field of the latched port for accesses of this size.
constexpr std::size_t OfLatchedPort(unsigned size, std::size_t field) {
  return offsetof(VcpuState, latched_port) +
         sizeof(VcpuState::LatchedPort) * static_cast<unsigned>(std::countr_zero(size)) + field;
}

}  // namespace

bool Emitter::Impl::EmitWriteDf(const isa::Instr& instr) {
  a().mov(State(offsetof(VcpuState, df_flag), 1), instr.op == isa::Op::kStd);
  return true;
}

bool Emitter::Impl::EmitCli(const isa::Instr&) {
  a().mov(State(offsetof(VcpuState, if_flag), 1), 0);
  return true;
}

bool Emitter::Impl::EmitSti(const isa::Instr&) {
  // At the TU's end an asynchronous stop could fall between STI and its shadowed successor.
  if (index_ + 1 == tu_->count) return false;
  SiteDesc* site = NewSite();
  a().mov(x86::r10d, State(offsetof(VcpuState, irq_pending), 4));
  SimulateIfTaken(site, hot_.JumpIfR10NonZero());  // sets up the shadow, then the interrupt
  a().mov(State(offsetof(VcpuState, if_flag), 1), 1);
  site->resume = hot_.Here();
  return true;
}

// STAC, CLAC. In a view of closed SMAP AC is clear, in an open one it is set; anywhere else there
// is no peer. Translations do not depend on which it is.
bool Emitter::Impl::EmitWriteAc(const isa::Instr& instr) {
  const bool open = instr.op == isa::Op::kStac;
  const i32 peer = kSmapPeerOffset;
  SiteDesc* slow = NewSite();
  a().mov(x86::r10, GsAbs(peer + static_cast<i32>(open ? offsetof(SmapPeer, no_stac)
                                                       : offsetof(SmapPeer, no_clac)),
                          8));
  const HostCode::FarJump no_peer = hot_.JumpIfR10NonZero();
  a().mov(x86::r10d, State(offsetof(VcpuState, system_flags), 4));
  a().lea(x86::r10d, x86::ptr(x86::r10, open ? i32{vcpu::kAc} : -i32{vcpu::kAc}));
  a().mov(State(offsetof(VcpuState, system_flags), 4), x86::r10d);
  a().mov(x86::r10, GsAbs(peer + static_cast<i32>(offsetof(SmapPeer, gs_base)), 8));
  a().wrgsbase(x86::r10);
  slow->resume = hot_.Here();
  if (open) {
    SimulateIfTaken(slow, no_peer);
  } else {
    EmitIdleClac(slow, no_peer);
  }
  return true;
}

// Of an access to a port that is a plain latch: r10 is its cell's address.
struct Emitter::Impl::LatchAccess {
  SiteDesc* slow = nullptr;  // where the whole access is simulated if DX names another port
  bool keeps_all = false;
};

// The instruction may name a fixed one; DX is compared with the latch that was accessed last.
bool Emitter::Impl::BeginLatch(const isa::Instr& instr, LatchAccess* access) {
  const unsigned size = instr.element_bytes;
  if (instr.HasImmediate()) {
    if (request_->ports == nullptr) return false;
    const PortLatch latch =
        request_->ports->FixedLatch(static_cast<u16>(instr.immediate & 0xff), size);
    if (latch.cell == nullptr || (~latch.kept & OnesOf(size)) != 0) {
      return false;
    }
    portable_ = false;
    a().mov(x86::r10, asmjit::imm(reinterpret_cast<u64>(latch.cell)));
    access->keeps_all = true;
    return true;
  }
  access->slow = NewSite();
  a().movzx(x86::r10d, x86::dx);
  a().mov(x86::r11, State(OfLatchedPort(size, offsetof(VcpuState::LatchedPort, negated))));
  a().lea(x86::r10, x86::ptr(x86::r10, x86::r11, 0, 1));
  SimulateIfTaken(access->slow, hot_.JumpIfR10NonZero());
  a().mov(x86::r10, State(OfLatchedPort(size, offsetof(VcpuState::LatchedPort, cell))));
  return true;
}

bool Emitter::Impl::EmitIn(const isa::Instr& instr) {
  LatchAccess access;
  if (!BeginLatch(instr, &access)) return false;
  const unsigned size = instr.element_bytes;
  a().mov(LowPartOf(x86::rax, size), x86::ptr(x86::r10, 0, size));
  if (access.slow != nullptr) access.slow->resume = hot_.Here();
  return true;
}

bool Emitter::Impl::EmitOut(const isa::Instr& instr) {
  LatchAccess access;
  if (!BeginLatch(instr, &access)) return false;
  const unsigned size = instr.element_bytes;
  const x86::Gp& value = access.keeps_all ? x86::rax : x86::r11;
  if (!access.keeps_all) {
    a().pext(x86::r11, x86::rax,
             State(OfLatchedPort(size, offsetof(VcpuState::LatchedPort, kept))));
  }
  a().mov(x86::ptr(x86::r10, 0, size), LowPartOf(value, size));
  if (access.slow != nullptr) access.slow->resume = hot_.Here();
  return true;
}

// RFLAGS as PUSHF shows them, in r11; rax holds LAHF/SETO's result and must be restored.
void Emitter::Impl::ComposeRflagsInR11() {
  a().mov(State(kScratchRax), x86::rax);
  TakeFlagsToRax(a());
  a().mov(x86::r10, x86::rax);
  a().movzx(x86::r11d, x86::r10b);
  a().shl(x86::r11d, 11);
  a().shr(x86::r10d, 8);
  a().and_(x86::r10d, 0xd5);
  a().or_(x86::r11d, x86::r10d);
  a().movzx(x86::r10d, State(offsetof(VcpuState, if_flag), 1));
  a().shl(x86::r10d, 9);
  a().or_(x86::r11d, x86::r10d);
  a().movzx(x86::r10d, State(offsetof(VcpuState, df_flag), 1));
  a().shl(x86::r10d, 10);
  a().or_(x86::r11d, x86::r10d);
  a().mov(x86::r10d, State(offsetof(VcpuState, system_flags), 4));
  a().and_(x86::r10d, static_cast<i32>(~(vcpu::kRf | vcpu::kVm)));
  a().or_(x86::r11d, x86::r10d);
  a().or_(x86::r11d, vcpu::kFlagsReserved1);
}

// IF and DF out of the RFLAGS image in r11.
void Emitter::Impl::StoreSystemFlagsFromR11() {
  for (const auto& [bit, offset] :
       {std::pair<unsigned, std::size_t>{9, offsetof(VcpuState, if_flag)},
        {10, offsetof(VcpuState, df_flag)}}) {
    a().mov(x86::r10d, x86::r11d);
    a().shr(x86::r10d, bit);
    a().and_(x86::r10d, 1);
    a().mov(State(offset, 1), x86::r10b);
  }
}

// The arithmetic flags out of the RFLAGS image in r11; rax comes back from the scratch fields.
void Emitter::Impl::LoadArithmeticFlagsFromR11() {
  a().mov(x86::eax, x86::r11d);
  a().shr(x86::r11d, 11);
  a().and_(x86::r11d, 1);
  a().mov(x86::ah, x86::al);
  a().mov(x86::al, x86::r11b);
  LoadFlagsFromRax(a());
  a().mov(x86::rax, State(kScratchRax));
}

// The whole image, on a stack without segments.
bool Emitter::Impl::IsWholeFlagsAccess(const isa::Instr& instr) const {
  return request_->mode.flat && instr.operand_bits == instr.code_bits;
}

bool Emitter::Impl::EmitPushf(const isa::Instr& instr) {
  if (!IsWholeFlagsAccess(instr)) return false;
  const unsigned size = instr.operand_bits / 8;
  ComposeRflagsInR11();
  a().mov(State(kScratchValue), x86::r11);
  LoadFlagsFromRax(a());
  a().mov(x86::rax, State(kScratchRax));
  Ea ea = StackEa(vcpu::kRsp, -static_cast<i32>(size), size, true);
  SiteDesc* site = EmitLookup(ea, size, true, AccessShape::kPush);
  a().mov(x86::r11, State(kScratchValue));
  MarkFaultPoint(site, false);
  a().mov(HostOperand(ea, size), size == 8 ? x86::Gp(x86::r11) : x86::Gp(x86::r11d));
  AdjustRsp(-static_cast<i32>(size));
  return true;
}

bool Emitter::Impl::EmitPopf(const isa::Instr& instr) {
  if (!IsWholeFlagsAccess(instr)) return false;
  const unsigned size = instr.operand_bits / 8;
  Ea ea = StackEa(vcpu::kRsp, 0, size, false);
  SiteDesc* pop = EmitLookup(ea, size, false, AccessShape::kPop);
  LoadR11(ea, size, pop);
  SiteDesc* slow = NewSite();
  SimulateUnlessFlagsSimple(slow);
  StoreSystemFlagsFromR11();
  a().mov(State(kScratchRax), x86::rax);
  LoadArithmeticFlagsFromR11();
  AdjustRsp(static_cast<i32>(size));
  slow->resume = hot_.Here();
  return true;
}

// Goes to the simulator when the RFLAGS image in r11 changes a bit that needs it, or lets a waiting
// interrupt in. Clobbers the arithmetic flags.
void Emitter::Impl::SimulateUnlessFlagsSimple(SiteDesc* site) {
  a().mov(x86::r10d, x86::r11d);
  a().xor_(x86::r10d, State(offsetof(VcpuState, system_flags), 4));
  a().test(x86::r10d, static_cast<i32>(kSlowFlags));
  SimulateIfTaken(site, hot_.Jcc(Condition::kNotEqual));
  a().mov(x86::r10d, x86::r11d);
  a().shr(x86::r10d, 9);
  a().and_(x86::r10d, 1);
  a().neg(x86::r10d);
  a().test(State(offsetof(VcpuState, irq_pending), 4), x86::r10d);
  SimulateIfTaken(site, hot_.Jcc(Condition::kNotEqual));
}

void Emitter::Impl::CopySegment(vcpu::SegmentIndex to, std::size_t image) {
  for (unsigned half = 0; half < 2; ++half) {
    a().mov(x86::r10, State(image + 8 * half));
    a().mov(State(offsetof(VcpuState, segment) + sizeof(vcpu::Segment) * to + 8 * half), x86::r10);
  }
}

// %gs to the view on the other side. The user view must return to exactly the supervisor view that
// entered it, so SYSRET leaves its own address behind.
void Emitter::Impl::SwitchToPeer(bool remember_self) {
  const x86::Mem peer = GsAbs(kPeerOffset + static_cast<i32>(offsetof(PrivilegePeer, gs_base)), 8);
  if (remember_self) a().rdgsbase(x86::r11);
  a().mov(x86::r10, peer);
  a().wrgsbase(x86::r10);
  if (remember_self) a().mov(peer, x86::r11);
}

bool Emitter::Impl::EmitSyscall(const isa::Instr& instr) {
  using Fast = VcpuState::FastSyscall;
  constexpr std::size_t kFast = offsetof(VcpuState, fast_syscall);
  SiteDesc* slow = NewSite();
  a().mov(x86::r10, State(kFast + offsetof(Fast, unusable)));
  a().mov(x86::r11, GsAbs(kPeerOffset + static_cast<i32>(offsetof(PrivilegePeer, missing)), 8));
  a().lea(x86::r10, x86::ptr(x86::r10, x86::r11));
  SimulateIfTaken(slow, hot_.JumpIfR10NonZero());
  ComposeRflagsInR11();
  a().mov(GuestGpr(vcpu::kR11), x86::r11);
  MovPc(x86::rcx, instr.next_pc());
  a().and_(x86::r11d, State(kFast + offsetof(Fast, kept_flags), 4));
  StoreSystemFlagsFromR11();
  a().mov(x86::r10d, x86::r11d);
  a().and_(x86::r10d, static_cast<i32>(kSlowFlags | vcpu::kVif | vcpu::kVip));
  a().mov(State(offsetof(VcpuState, system_flags), 4), x86::r10d);
  LoadArithmeticFlagsFromR11();
  CopySegment(vcpu::kCs, kFast + offsetof(Fast, enter_cs));
  CopySegment(vcpu::kSs, kFast + offsetof(Fast, enter_ss));
  a().mov(State(offsetof(VcpuState, cpl), 1), 0);
  SwitchToPeer(false);
  a().mov(x86::r11, State(offsetof(VcpuState, lstar)));
  EmitIndirectExit();
  return true;
}

bool Emitter::Impl::EmitSysret(const isa::Instr&) {
  using Fast = VcpuState::FastSyscall;
  constexpr std::size_t kFast = offsetof(VcpuState, fast_syscall);
  SiteDesc* slow = NewSite();
  // The flags come from r11, so they are dead here.
  a().mov(x86::r10, State(kFast + offsetof(Fast, unusable)));
  a().or_(x86::r10, GsAbs(kPeerOffset + static_cast<i32>(offsetof(PrivilegePeer, missing)), 8));
  SimulateIfTaken(slow, hot_.Jcc(Condition::kNotEqual));
  a().mov(x86::r10, x86::rcx);
  a().shl(x86::r10, 16);
  a().sar(x86::r10, 16);
  a().cmp(x86::r10, x86::rcx);
  SimulateIfTaken(slow, hot_.Jcc(Condition::kNotEqual));  // a non-canonical target
  a().mov(x86::r11d, State(offsetof(VcpuState, gpr) + 8 * vcpu::kR11, 4));
  SimulateUnlessFlagsSimple(slow);
  StoreSystemFlagsFromR11();
  a().mov(State(kScratchRax), x86::rax);
  LoadArithmeticFlagsFromR11();
  CopySegment(vcpu::kCs, kFast + offsetof(Fast, leave_cs));
  if (request_->sysret_loads_ss) {
    CopySegment(vcpu::kSs, kFast + offsetof(Fast, leave_ss));
  } else {
    constexpr std::size_t kSelector = offsetof(vcpu::Segment, selector);
    a().movzx(x86::r10d, State(kFast + offsetof(Fast, leave_ss) + kSelector, 2));
    a().mov(State(offsetof(VcpuState, segment) + sizeof(vcpu::Segment) * vcpu::kSs + kSelector, 2),
            x86::r10w);
  }
  a().mov(State(offsetof(VcpuState, cpl), 1), 3);
  SwitchToPeer(true);
  a().mov(x86::r11, x86::rcx);
  EmitIndirectExit();
  return true;
}

// Kernels are entered by CLAC, mostly with AC clear: nothing to do. Without flags.
void Emitter::Impl::EmitIdleClac(SiteDesc* slow, HostCode::FarJump jump) {
  x86::Assembler& cold = cold_.assembler;
  hot_.Bind(jump, cold_.Here());
  NoteCold(static_cast<u8>(index_));
  cold.mov(x86::r10d, State(offsetof(VcpuState, system_flags), 4));
  cold.rorx(x86::r10d, x86::r10d, static_cast<u32>(std::countr_zero(vcpu::kAc)));
  cold.movzx(x86::r10d, x86::r10b);  // and VIF, VIP, ID: rare, and the simulator's
  cold.xchg(x86::r10, x86::rcx);
  const HostCode::ShortJump idle = cold_.Jrcxz();
  cold.xchg(x86::r10, x86::rcx);
  cold_.JmpWithDescriptor(slow, stubs_.at(Callout::kSimulate));
  cold_.Bind(idle);
  cold.mov(x86::rcx, x86::r10);
  cold_.JmpTo(slow->resume);
}

// RDFSBASE and its kin.
bool Emitter::Impl::EmitSegmentBase(const isa::Instr& instr) {
  const bool write = instr.op == isa::Op::kWrfsbase || instr.op == isa::Op::kWrgsbase;
  const bool fs = instr.op == isa::Op::kRdfsbase || instr.op == isa::Op::kWrfsbase;
  const isa::GprUse& use = instr.gprs[0];
  const x86::Mem base = SegmentBase(fs ? vcpu::kFs : vcpu::kGs);
  SiteDesc* slow = NewSite();
  if (write) LoadGpr(x86::r10, use.reg);
  const FlagsSave save = FlagsLive() ? FlagsSave::kRaxInMemory : FlagsSave::kNone;
  {
    const KeptFlags kept(hot_, save);
    a().test(State(offsetof(VcpuState, cr4), 4), static_cast<i32>(vcpu::kCr4Fsgsbase));
    SimulateIfTaken(slow, hot_.Jcc(Condition::kEqual), save);
    if (write && use.bits == 64) {
      a().mov(x86::r11, x86::r10);
      a().shl(x86::r11, 16);
      a().sar(x86::r11, 16);
      a().cmp(x86::r11, x86::r10);
      SimulateIfTaken(slow, hot_.Jcc(Condition::kNotEqual), save);  // not canonical
    }
  }
  if (!write) a().mov(x86::r10, base);
  if (use.bits == 32) a().mov(x86::r10d, x86::r10d);
  if (write) {
    a().mov(base, x86::r10);
  } else {
    StoreGpr(use.reg, x86::r10);
  }
  slow->resume = hot_.Here();
  return true;
}

bool Emitter::Impl::EmitRdtsc(const isa::Instr& instr) {
  SiteDesc* slow = NewSite();
  a().mov(x86::r10, State(offsetof(VcpuState, slow_rdtsc) + (request_->mode.user ? 8 : 0)));
  SimulateIfTaken(slow, hot_.JumpIfR10NonZero());
  const bool with_aux = instr.op == isa::Op::kRdtscp;  // waits for earlier instructions as well
  if (with_aux) {
    a().rdtscp();
  } else {
    a().rdtsc();
  }
  a().rorx(x86::rdx, x86::rdx, 32);
  a().lea(x86::rax, x86::ptr(x86::rax, x86::rdx));
  a().mov(x86::r10, State(offsetof(VcpuState, tsc_offset)));
  a().lea(x86::rax, x86::ptr(x86::rax, x86::r10));
  a().rorx(x86::rdx, x86::rax, 32);
  a().mov(x86::edx, x86::edx);
  a().mov(x86::eax, x86::eax);
  if (with_aux) a().mov(x86::ecx, State(offsetof(VcpuState, tsc_aux), 4));
  slow->resume = hot_.Here();
  return true;
}

bool Emitter::Impl::EmitReadSelector(const isa::Instr& instr) {
  const isa::GprUse& dest = instr.gprs[0];
  a().movzx(x86::r10d, Selector(instr.system_reg));
  if (dest.bits != 16) {
    StoreGpr(dest.reg, x86::r10);
  } else if (IsStolen(dest.reg)) {
    a().mov(State(offsetof(VcpuState, gpr) + 8u * dest.reg, 2), x86::r10w);
  } else {
    a().mov(Gp64(dest.reg).r16(), x86::r10w);
  }
  return true;
}

bool Emitter::Impl::EmitSwapgs(const isa::Instr&) {
  const x86::Mem base = State(offsetof(VcpuState, segment) + sizeof(vcpu::Segment) * vcpu::kGs +
                              offsetof(vcpu::Segment, base));
  const x86::Mem other = State(offsetof(VcpuState, kernel_gs_base));
  a().mov(x86::r10, base);
  a().mov(x86::r11, other);
  a().mov(base, x86::r11);
  a().mov(other, x86::r10);
  return true;
}

bool Emitter::Impl::EmitReadCr(const isa::Instr& instr) {
  std::size_t offset;
  switch (instr.system_reg) {
    case 0:
      offset = offsetof(VcpuState, cr0);
      break;
    case 2:
      offset = offsetof(VcpuState, cr2);
      break;
    case 3:
      offset = offsetof(VcpuState, cr3);
      break;
    case 4:
      offset = offsetof(VcpuState, cr4);
      break;
    case 8:
      offset = offsetof(VcpuState, cr8);
      break;
    default:
      return false;
  }
  if (instr.code_bits == 64) {
    a().mov(x86::r10, State(offset));
  } else {
    a().mov(x86::r10d, State(offset, 4));
  }
  StoreGpr(instr.gprs[0].reg, x86::r10);
  return true;
}

// Kernels that isolate their page tables alternate between two values, each of which leads to a
// view that is known.
bool Emitter::Impl::EmitWriteCr3(const isa::Instr& instr) {
  const LinearAddr next = instr.next_pc();
  if (request_->mode.single || !IsCanonical(next)) return false;
  const auto peer = [](std::size_t member) {
    return GsAbs(kRootPeerOffset + static_cast<i32>(member), 8);
  };
  SiteDesc* slow = NewSite();
  LoadGpr(x86::r10, instr.gprs[0].reg);
  a().pext(x86::r10, x86::r10, peer(offsetof(RootPeer, mask)));
  a().mov(x86::r11, peer(offsetof(RootPeer, negated)));
  a().lea(x86::r10, x86::ptr(x86::r10, x86::r11));
  SimulateIfTaken(slow, hot_.JumpIfR10NonZero());
  a().mov(x86::r10, peer(offsetof(RootPeer, cr3)));
  a().mov(State(offsetof(VcpuState, cr3)), x86::r10);
  a().mov(x86::r10, peer(offsetof(RootPeer, gs_base)));
  a().wrgsbase(x86::r10);
  MovPc(x86::r11, next);
  EmitIndirectExit();
  return true;
}

bool Emitter::Impl::EmitMovCr8(const isa::Instr& instr) {
  if (instr.gprs[0].written) return EmitReadCr(instr);
  EmitWriteCr8(instr);
  return true;
}

void Emitter::Impl::EmitWriteCr8(const isa::Instr& instr) {
  SiteDesc* site = NewSite();
  LoadGpr(x86::r10, instr.gprs[0].reg);
  a().mov(x86::r11d, State(offsetof(VcpuState, cr8_bias), 4));
  a().lea(x86::r10, x86::ptr(x86::r10, x86::r11));
  a().pext(x86::r10, x86::r10, State(offsetof(VcpuState, cr8_reserved_mask)));
  SimulateIfTaken(site, hot_.JumpIfR10NonZero());
  LoadGpr(x86::r10, instr.gprs[0].reg);
  a().mov(State(offsetof(VcpuState, cr8)), x86::r10);
  site->resume = hot_.Here();
}

}  // namespace alibi::translator
