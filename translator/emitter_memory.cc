// SPDX-License-Identifier: Apache-2.0
// Memory operands: effective addresses, look-ups and their sharing, bounce operands, the stack.
#include <algorithm>
#include <bit>
#include <iterator>
#include <span>

#include "base/check.h"
#include "translator/emitter_impl.h"

namespace alibi::translator {

using vcpu::VcpuState;

// Of operands that name no stolen register: 32-bit code has none.
x86::Mem Emitter::Impl::Address(const isa::MemOperand& mem) {
  const unsigned shift = static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(mem.scale)));
  const i32 disp = static_cast<i32>(mem.disp);
  if (mem.base == isa::kNoReg) {
    const u64 absolute = static_cast<u64>(i64{disp});
    return mem.index == isa::kNoReg ? x86::ptr_abs(absolute)
                                    : x86::ptr(absolute, Gp64(mem.index), shift);
  }
  if (mem.index == isa::kNoReg) return x86::ptr(Gp64(mem.base), disp);
  return x86::ptr(Gp64(mem.base), Gp64(mem.index), shift, disp);
}

// Leaves the EA in r11 unless [base + disp] will do. Uses r10 for a second stolen register.
Emitter::Impl::Ea Emitter::Impl::PrepareEa(const isa::MemOperand& mem, const isa::Instr& instr) {
  if (&mem == &instr.mem && IsBaseDisp(instr, request_->mode)) {
    return {.base_disp = true,
            .base = mem.base,
            .disp = static_cast<i32>(mem.disp),
            .moving = NamesPlace(moving_.displacement)};
  }
  const bool wide = mem.address_bits == 64;
  const bool based =
      instr.code_bits == 64 && (mem.segment == vcpu::kFs || mem.segment == vcpu::kGs);
  if (mem.rip_relative && !wide) {  // half of a PC
    ccf_->movable = false;
    if (form_ != PcForm::kFixed) portable_ = false;
  }
  i64 disp = mem.disp;
  if (mem.rip_relative) disp += static_cast<i64>(instr.next_pc().value);
  u8 base = mem.base, index = mem.index;
  if (base == isa::kNoReg && index == isa::kNoReg) {
    const u64 address = wide ? static_cast<u64>(disp) : static_cast<u32>(disp);
    if (mem.rip_relative && wide) {
      MovPc(x86::r11, LinearAddr(address));
    } else {
      hot_.Move(vcpu::kR11, address);
      if (address >> 32 != 0) NoteDisplacement();
    }
  } else {
    x86::Gp host_base, host_index;
    if (base != isa::kNoReg) {
      host_base = Gp64(base);
      if (IsStolen(base)) {
        host_base = x86::r11;
        LoadGpr(x86::r11, base);
      }
    }
    if (index != isa::kNoReg) {
      host_index = Gp64(index);
      if (IsStolen(index)) {
        host_index = x86::r10;
        LoadGpr(x86::r10, index);
      }
    }
    unsigned shift = static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(mem.scale)));
    x86::Mem address;
    const i32 d = static_cast<i32>(disp);
    if (index == isa::kNoReg) {
      address = x86::ptr(host_base, d);
    } else if (base == isa::kNoReg) {
      address = x86::ptr(static_cast<u64>(static_cast<i64>(d)), host_index, shift);
    } else {
      address = x86::ptr(host_base, host_index, shift, d);
    }
    if (wide) {
      a().lea(x86::r11, address);
      NoteDisplacement();
    } else {
      a().lea(x86::r11d, address);
    }
  }
  if (mem.address_bits == 16) a().movzx(x86::r11d, x86::r11w);
  if (based) {
    a().mov(x86::r10, SegmentBase(mem.segment));
    a().lea(x86::r11, x86::ptr(x86::r11, x86::r10));
  }
  return {};
}

// The offset in r11 becomes a linear address, if the segment has room for `size` bytes there;
// otherwise its descriptor needs a closer look.
void Emitter::Impl::EmitSegment(u8 segment, unsigned size, bool write) {
  SiteDesc* site = NewSite();
  const FlagsSave save = FlagsLive() ? FlagsSave::kRaxInMemory : FlagsSave::kNone;
  {
    const KeptFlags kept(hot_, save);
    a().mov(x86::r10, State(offsetof(VcpuState, segment_fast_limit) + 8 * (6u * write + segment)));
    a().sub(x86::r10, x86::r11);
    a().cmp(x86::r10, size);
    cold_calls_.push_back({site, stubs_.at(Callout::kRecheck), hot_.Jcc(Condition::kLess), save});
  }
  a().mov(x86::r10, SegmentBase(segment));
  a().lea(x86::r11d, x86::ptr(x86::r11, x86::r10));
}

Emitter::Impl::Ea Emitter::Impl::StackEa(u8 base, i32 delta, unsigned size, bool write) {
  if (request_->mode.flat) return {.base_disp = true, .base = base, .disp = delta};
  a().lea(x86::r11d, x86::ptr(Gp64(base), delta));
  if (!request_->mode.wide_stack) a().movzx(x86::r11d, x86::r11w);
  EmitSegment(vcpu::kSs, size, write);
  return {};
}

void Emitter::Impl::EaToR11(const Ea& ea) {
  if (!ea.base_disp) return;
  hot_.Lea(vcpu::kR11, {ea.base, isa::kNoReg, ea.disp});
  if (ea.moving) NoteDisplacement();
}

void Emitter::Impl::LinearToR11(const Ea& ea) {
  EaToR11(ea);
  if (ea.base_disp && request_->mode.code_bits != 64) a().mov(x86::r11d, x86::r11d);
}

isa::HostMem Emitter::Impl::HostMemOf(const Ea& ea) {
  if (ea.host_in_r11) return {vcpu::kR11, isa::kNoReg, 0};
  if (ea.base_disp) return {ea.base, vcpu::kR10, ea.disp};
  return {vcpu::kR11, vcpu::kR10, 0};
}

x86::Mem Emitter::Impl::HostOperand(const Ea& ea, unsigned size) {
  const isa::HostMem at = HostMemOf(ea);
  return at.index == isa::kNoReg ? x86::ptr(Gp64(at.base), at.disp, size)
                                 : x86::ptr(Gp64(at.base), Gp64(at.index), 0, at.disp, size);
}

// Calls keep them (System V ABI), and so they mostly point to what a function works on.
constexpr u8 kKept64[] = {vcpu::kRbx, vcpu::kRbp, vcpu::kR12, vcpu::kR13, vcpu::kR14, vcpu::kR15};
constexpr u8 kKept32[] = {vcpu::kRbx, vcpu::kRbp, vcpu::kRsi, vcpu::kRdi};

// Accesses that are likely to go to the same page share a slot, whatever code makes them: those to
// the stack, to a thread's data, to a constant address; and those off a register that calls keep,
// of the code in one page. The rest take turns.
unsigned Emitter::Impl::ChooseSlot(const isa::Instr& instr, AccessShape shape) {
  constexpr unsigned kStack = 0, kSegments = 6, kConstants = 10, kConstantCount = 22,
                     kObjects = kConstants + kConstantCount, kCodePages = 64,
                     kOthers = kObjects + kCodePages * std::size(kKept64);
  const isa::MemOperand& mem = instr.mem;
  if (shape == AccessShape::kPush || shape == AccessShape::kPop) return kStack;
  if (shape == AccessShape::kFrame) return kStack + 4;
  const auto next = [&] { return kOthers + next_slot_++ % (kSlotCount - kOthers); };
  if (IsString(shape)) return next();
  if (mem.segment == vcpu::kFs || mem.segment == vcpu::kGs) {
    return kSegments + (mem.segment == vcpu::kGs ? 2 : 0) + (mem.index != isa::kNoReg);
  }
  if (mem.index != isa::kNoReg) return next();
  // Large frames reach into the next page.
  if (mem.base == vcpu::kRsp) return kStack + (mem.disp < 0x40 ? 1 : mem.disp < 0x100 ? 2 : 3);
  if (mem.base == vcpu::kRbp && mem.disp < 0) return kStack + (mem.disp >= -0x80 ? 4 : 5);
  if (mem.base == isa::kNoReg) {
    const u64 address = static_cast<u64>(mem.disp) + (mem.rip_relative ? instr.next_pc().value : 0);
    return kConstants + static_cast<unsigned>((address >> 12) % kConstantCount);
  }
  const auto kept = request_->mode.code_bits == 64 ? std::span<const u8>(kKept64) : kKept32;
  const auto at = std::find(kept.begin(), kept.end(), mem.base);
  if (at == kept.end()) return next();
  const u64 code_page = tu_->pc.value / kPageSize % kCodePages;
  return kObjects + static_cast<unsigned>(code_page * std::size(kKept64)) +
         static_cast<unsigned>(at - kept.begin());
}

SiteDesc* Emitter::Impl::EmitLookup(Ea& ea, unsigned size, bool write, AccessShape shape) {
  SiteDesc* site = EmitOneLookup(ea, size, write, shape);
  // From here on a leader's displacement waits for its followers.
  if (groups_[index_].leader) hot_.assembler.set_wrote_r10(false);
  return site;
}

SiteDesc* Emitter::Impl::EmitOneLookup(Ea& ea, unsigned size, bool write, AccessShape shape) {
  const SitePlan& plan = request_->plans[index_];
  const AccessPlan& group = groups_[index_];
  SiteDesc* site = NewSite();
  site->size = static_cast<u16>(size);
  site->shape = shape;
  site->in_group = group.folded;
  // A group's range moves only if all of its addresses do.
  if (ea.moving && (group.leader || group.follower)) portable_ = false;
  if (group.follower) return site;

  Ea range = ea;
  unsigned span = size;
  bool stores = write;
  if (group.leader) {
    site->shared = true;
    range.disp = group.low;
    span = static_cast<unsigned>(group.high - group.low);
    stores = group.stores;
  }
  site->span_minus_1 = static_cast<u16>(span - 1);
  site->window = stores;
  site->checked = plan.kind == SiteKind::kChecked;

  if (plan.lookup == LookupKind::kTable) {
    EaToR11(range);
    if (span > 1) {
      const FlagsSave save = FlagsLive() ? FlagsSave::kRaxInMemory : FlagsSave::kNone;
      const KeptFlags kept(hot_, save);
      a().mov(x86::r10d, x86::r11d);
      a().and_(x86::r10d, static_cast<i32>(kPageMask));
      a().cmp(x86::r10d, static_cast<i32>(kPageSize - span));
      cold_lookups_.push_back(
          {site, hot_.Jcc(Condition::kAbove), Ea{}, static_cast<u8>(index_), save});
    }
    a().pext(x86::r10, x86::r11, State(offsetof(VcpuState, page_index_mask)));
    MarkFaultPoint(site, false);  // an untouched part of the shadow table
    x86::Mem entry = x86::ptr_abs(0, x86::r10, 3, 8);
    entry.setSegment(x86::gs);
    a().mov(x86::r10, entry);
    site->resume = hot_.Here();
    return site;
  }

  const i32 slot = SlotAt(ChooseSlot(tu_->instrs[index_], shape), stores);
  site->slot = slot;
  const i32 neg_page = slot + static_cast<i32>(offsetof(InlineTlbEntry, neg_page));
  const u32 most = static_cast<u32>(kPageSize) - span;
  if (!FlagsLive() && !range.base_disp) {
    // The address is in r11, and the flags are free: turn it into the host address in place.
    ea.host_in_r11 = true;
    hot_.AddGs(vcpu::kR11, neg_page);
    ColdLookup miss{site, hot_.JumpIfAbove(x86::r11, most), range, static_cast<u8>(index_)};
    miss.keep_r10 = group.folded;
    hot_.AddGs(vcpu::kR11, slot + static_cast<i32>(offsetof(InlineTlbEntry, host_page)));
    miss.hot_resume = hot_.Here();
    cold_lookups_.push_back(miss);
    return site;
  }
  hot_.LoadGs(vcpu::kR10, neg_page);
  if (range.base_disp) {
    hot_.Lea(vcpu::kR10, {range.base, vcpu::kR10, range.disp});
    if (range.moving) NoteDisplacement();
  } else {
    hot_.Lea(vcpu::kR10, {vcpu::kR10, vcpu::kR11, 0});
  }
  // rax waits in r11 while the flags are in it, or in memory where r11 holds the address.
  const FlagsSave save = !FlagsLive()      ? FlagsSave::kNone
                         : range.base_disp ? FlagsSave::kRaxInR11
                                           : FlagsSave::kRaxInMemory;
  {
    const KeptFlags kept(hot_, save);
    cold_lookups_.push_back(
        {site, hot_.JumpIfAbove(x86::r10, most), range, static_cast<u8>(index_), save});
  }
  hot_.LoadGs(vcpu::kR10, slot + static_cast<i32>(offsetof(InlineTlbEntry, displacement)));
  site->resume = hot_.Here();
  return site;
}

void Emitter::Impl::EmitMemory(const isa::Instr& instr) {
  const isa::MemOperand& mem = instr.mem;
  if (mem.size == 0) {
    if (instr.op != isa::Op::kLea) return;  // NOP, PREFETCH: hints without an access
    if (instr.code_bits == 32 && mem.address_bits == 32 && instr.gprs[0].bits == 32) {
      a().lea(Gp64(instr.gprs[0].reg).r32(), Address(mem));
      return;
    }
    if (isa::SameInHostCode(instr) && !UsesStolenOperand(instr) && !mem.rip_relative &&
        mem.base != isa::kNoReg && !IsStolen(mem.base) &&
        !(mem.index != isa::kNoReg && IsStolen(mem.index))) {
      side_.map.back().ident = true;
      a().Write(instr.bytes, instr.length);
      NoteDisplacement();
      return;
    }
    isa::MemOperand flat = mem;
    flat.segment = vcpu::kDs;
    const Ea ea = PrepareEa(flat, instr);
    EaToR11(ea);
    const isa::GprUse& dest = instr.gprs[0];
    if (dest.bits == 16) {
      LoadGpr(x86::r10, dest.reg);
      a().mov(x86::r10w, x86::r11w);
      StoreGpr(dest.reg, x86::r10);
    } else {
      if (dest.bits == 32) a().mov(x86::r11d, x86::r11d);
      StoreGpr(dest.reg, x86::r11);
    }
    return;
  }
  const SitePlan& plan = request_->plans[index_];
  if (mem.vsib) {
    EmitSimulateWhole(false);
    return;
  }
  const bool segmented = ChecksSegment(instr, request_->mode);
  if (plan.kind == SiteKind::kSimulate || mem.size > 64) {
    if (segmented || !EmitSimulatedStore(instr)) EmitMemoryBounce(instr);
    return;
  }
  Ea ea = PrepareEa(mem, instr);
  if (segmented) EmitSegment(mem.segment, mem.size, mem.written);
  const bool follower = groups_[index_].follower;
  SiteDesc* site = EmitLookup(ea, mem.size, mem.written, AccessShape::kOperand);
  EmitOperation(instr, &ea, site, follower);
}

// The instruction itself, with its memory operand at the host address that `ea` and the
// displacement in r10 give (or, without `ea`, at [r11]), and its stolen registers substituted.
void Emitter::Impl::EmitOperation(const isa::Instr& instr, const Ea* ea, SiteDesc* site,
                                  bool follower) {
  isa::Rewrite rewrite;
  rewrite.replace_memory = true;
  const bool in_r11 = ea == nullptr || ea->host_in_r11;
  rewrite.memory = ea == nullptr ? isa::HostMem{vcpu::kR11, isa::kNoReg, 0} : HostMemOf(*ea);
  // Which stolen registers the operands name, sources first: a destination may share the
  // address's register, because it is written after the address was used.
  std::array<u8, 2> stolen{isa::kNoReg, isa::kNoReg};
  unsigned count = 0;
  for (const bool sources : {true, false}) {
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      const isa::GprUse& use = instr.gprs[k];
      if (!IsStolen(use.reg) || use.read != sources) continue;
      if ((count > 0 && stolen[0] == use.reg) || (count > 1 && stolen[1] == use.reg)) continue;
      if (count < 2) stolen[count++] = use.reg;
    }
  }
  const bool high_byte = UsesHighByte(instr);
  std::array<u8, 2> host{isa::kNoReg, isa::kNoReg};
  if (count > 0 || high_byte) {
    // One address register only, so that the other is free.
    if (in_r11) {
      host = {vcpu::kR10, vcpu::kR11};
    } else if (ea->base_disp && count < 2 && !high_byte) {
      host = {vcpu::kR11, isa::kNoReg};
    } else {
      a().lea(x86::r11, HostOperand(*ea, 0));
      if (ea->moving) NoteDisplacement();
      rewrite.memory = {vcpu::kR11, isa::kNoReg, 0};
      host = {vcpu::kR10, vcpu::kR11};
    }
  }
  u8 high_reg = isa::kNoReg;
  bool high_written = false;
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    const isa::GprUse& use = instr.gprs[k];
    for (unsigned s = 0; s < count; ++s) {
      if (use.reg == stolen[s] && !use.high_byte) rewrite.gpr[k] = host[s];
    }
    if (use.high_byte) {
      high_reg = use.reg;
      high_written |= use.written;
      rewrite.gpr[k] = vcpu::kR10;
    }
  }
  for (unsigned s = 0; s < count; ++s) {
    bool read = false;
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      read |= instr.gprs[k].reg == stolen[s] && instr.gprs[k].read;
    }
    if (read) LoadGpr(Gp64(host[s]), stolen[s]);
  }
  if (high_byte) {
    // AH..BH cannot be named next to r11: work on a copy in r10b.
    a().mov(x86::r10, Gp64(high_reg));
    a().rorx(x86::r10, x86::r10, 8);
  }
  for (const u8 reg : rewrite.gpr) {
    if (reg == vcpu::kR10) hot_.assembler.set_wrote_r10(true);
  }
  MarkFaultPoint(site, follower);
  unsigned length = 0;
  if (high_byte) {
    isa::Instr low = instr;  // r10b is a low byte
    for (unsigned k = 0; k < low.gpr_count; ++k) low.gprs[k].high_byte = false;
    length = EmitRewritten(low, rewrite);
  } else {
    length = EmitRewritten(instr, rewrite);
  }
  ALIBI_CHECK(length != 0, "a memory operand can be rewritten once AH..BH are out of the way");
  if (ea != nullptr && ea->moving && rewrite.memory.base == ea->base) {
    NoteDisplacement(instr.immediate_bytes());
  }
  NoteImmediate();
  for (unsigned s = 0; s < count; ++s) {
    bool written = false;
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      written |= instr.gprs[k].reg == stolen[s] && instr.gprs[k].written;
    }
    if (written) StoreGpr(stolen[s], Gp64(host[s]));
  }
  if (high_written) {
    const x86::Gp low = x86::gpb_lo(high_reg);
    const x86::Gp high = x86::gpb_hi(high_reg);
    a().xchg(low, high);
    a().mov(low, x86::r10b);
    a().xchg(low, high);
  }
}

void Emitter::Impl::EmitMemoryBounce(const isa::Instr& instr) {
  const Ea ea = PrepareEa(instr.mem, instr);
  LinearToR11(ea);
  SiteDesc* begin = NewSite();
  begin->size = instr.mem.size;
  begin->window = instr.mem.written;
  CallStub(stubs_.at(Callout::kBounceBegin), begin);
  a().mov(x86::r11, x86::r10);  // where the operand lies now
  SiteDesc* op_site = NewSite();
  EmitOperation(instr, nullptr, op_site, false);
  if (instr.mem.written) {
    SiteDesc* end = NewSite();
    end->size = instr.mem.size;
    end->window = true;
    CallStub(stubs_.at(Callout::kBounceEnd), end);
  }
}

// MOV of a register or immediate to memory: one callout instead of two.
bool Emitter::Impl::EmitSimulatedStore(const isa::Instr& instr) {
  if (instr.op != isa::Op::kMov || !instr.mem.written || instr.mem.read || UsesHighByte(instr) ||
      instr.mem.size > 8) {
    return false;
  }
  const Ea ea = PrepareEa(instr.mem, instr);
  LinearToR11(ea);
  const x86::Mem value = State(offsetof(VcpuState, scratch.store));
  if (instr.gpr_count == 1) {
    LoadGpr(x86::r10, instr.gprs[0].reg);
  } else if (instr.IsMoffs()) {
    a().mov(x86::r10, Gp64(vcpu::kRax));
  } else {
    a().mov(x86::r10, asmjit::imm(instr.immediate));
    NoteImmediate();
  }
  a().mov(value, x86::r10);
  SiteDesc* site = NewSite();
  site->size = instr.mem.size;
  site->window = true;
  CallStub(stubs_.at(Callout::kStore), site);
  return true;
}

void Emitter::Impl::AdjustRsp(i32 delta) { SetRsp(vcpu::kRsp, delta); }

// The stack pointer becomes base + delta, in its own width.
void Emitter::Impl::SetRsp(u8 base, i32 delta) {
  if (request_->mode.code_bits == 64) return hot_.Lea(vcpu::kRsp, {base, isa::kNoReg, delta});
  const x86::Mem sum = x86::ptr(Gp64(base), delta);
  if (request_->mode.wide_stack) {
    a().lea(x86::esp, sum);
  } else {
    a().lea(x86::sp, sum);
  }
}

// Kernels copy the frames of exceptions so, and 32-bit code passes arguments. Read first, as one
// access; then pushed.
bool Emitter::Impl::EmitPushMemory(const isa::Instr& instr) {
  if (!request_->mode.flat || instr.operand_bits != instr.code_bits ||
      ChecksSegment(instr, request_->mode)) {
    return false;
  }
  const unsigned size = instr.operand_bits / 8;
  Ea ea = PrepareEa(instr.mem, instr);
  SiteDesc* load = EmitLookup(ea, size, false, AccessShape::kOperand);
  LoadR11(ea, size, load);
  const x86::Mem value = State(offsetof(VcpuState, scratch.value));
  a().mov(value, x86::r11);
  Ea slot = StackEa(vcpu::kRsp, -static_cast<i32>(size), size, true);
  SiteDesc* push = EmitLookup(slot, size, true, AccessShape::kPush);
  a().mov(x86::r11, value);
  MarkFaultPoint(push, false);
  a().mov(HostOperand(slot, size), size == 8 ? x86::Gp(x86::r11) : x86::Gp(x86::r11d));
  AdjustRsp(-static_cast<i32>(size));
  return true;
}

bool Emitter::Impl::EmitPush(const isa::Instr& instr) {
  if (instr.mem.present) return EmitPushMemory(instr);
  const unsigned size = instr.operand_bits / 8;
  Ea ea = StackEa(vcpu::kRsp, -static_cast<i32>(size), size, true);
  const bool follower = groups_[index_].follower;
  SiteDesc* site = EmitLookup(ea, size, true, AccessShape::kPush);
  if (instr.gpr_count == 0) {
    MarkFaultPoint(site, follower);
    a().mov(HostOperand(ea, size), asmjit::imm(static_cast<i64>(instr.immediate)));
    NoteImmediate();
    AdjustRsp(-static_cast<i32>(size));
    return true;
  }
  u8 value = instr.gprs[0].reg;
  if (IsStolen(value)) {
    LoadGpr(x86::r11, value);  // free: 64-bit code, [rsp + disp]
    value = vcpu::kR11;
  }
  MarkFaultPoint(site, follower);
  if (size == 8) {
    hot_.Store(HostMemOf(ea), value);
  } else {
    a().mov(HostOperand(ea, size), size == 4 ? x86::Gp(Gp64(value).r32()) : Gp64(value).r16());
  }
  AdjustRsp(-static_cast<i32>(size));
  return true;
}

// Where half of it is written, it is the alignment of that half that counts.
bool Emitter::Impl::EmitPushSelector(const isa::Instr& instr) {
  if (!request_->mode.flat || request_->mode.careful) return false;
  const unsigned size = instr.operand_bits / 8;
  Ea ea = StackEa(vcpu::kRsp, -static_cast<i32>(size), size, true);
  SiteDesc* site = EmitLookup(ea, size, true, AccessShape::kPush);
  a().movzx(x86::r11d, Selector(instr.system_reg));
  MarkFaultPoint(site, groups_[index_].follower);
  const unsigned written = size == 4 && request_->pushes_half_selectors ? 2 : size;
  a().mov(HostOperand(ea, written), written == 8   ? x86::Gp(x86::r11)
                                    : written == 4 ? x86::Gp(x86::r11d)
                                                   : x86::Gp(x86::r11w));
  AdjustRsp(-static_cast<i32>(size));
  return true;
}

void Emitter::Impl::LoadR11(const Ea& ea, unsigned bytes, SiteDesc* site) {
  MarkFaultPoint(site, groups_[index_].follower);
  if (bytes == 8) {
    hot_.Load(vcpu::kR11, HostMemOf(ea));
  } else if (bytes == 4) {
    a().mov(x86::r11d, HostOperand(ea, bytes));
  } else {
    a().movzx(x86::r11d, HostOperand(ea, bytes));
  }
  if (ea.moving) NoteDisplacement();
}

bool Emitter::Impl::EmitPop(const isa::Instr& instr) {
  if (instr.mem.present) return false;
  const unsigned size = instr.operand_bits / 8;
  const u8 reg = instr.gprs[0].reg;
  Ea ea = StackEa(vcpu::kRsp, 0, size, false);
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kPop);
  if (size == request_->mode.code_bits / 8u && size != 2 && !IsStolen(reg)) {
    MarkFaultPoint(site, groups_[index_].follower);
    if (size == 8) {
      hot_.Load(reg, HostMemOf(ea));
    } else {
      a().mov(Gp64(reg).r32(), HostOperand(ea, 4));
    }
    if (reg != vcpu::kRsp) AdjustRsp(static_cast<i32>(size));
    return true;
  }
  LoadR11(ea, size, site);
  // POP SP replaces the low half of what the addition makes, carry and all.
  if (reg != vcpu::kRsp || size == 2) AdjustRsp(static_cast<i32>(size));
  if (size == 2) {
    if (IsStolen(reg)) {
      a().mov(State(offsetof(VcpuState, gpr) + 8u * reg, 2), x86::r11w);
    } else {
      a().mov(Gp64(reg).r16(), x86::r11w);
    }
  } else {
    StoreGpr(reg, x86::r11);
  }
  return true;
}

bool Emitter::Impl::EmitLeave(const isa::Instr& instr) {
  if (instr.operand_bits != request_->mode.code_bits && request_->mode.flat) return false;
  const unsigned size = instr.operand_bits / 8;
  Ea ea = StackEa(vcpu::kRbp, 0, size, false);
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kFrame);
  LoadR11(ea, size, site);
  SetRsp(vcpu::kRbp, static_cast<i32>(size));
  if (size == 8) {
    a().mov(x86::rbp, x86::r11);
  } else if (size == 4) {
    a().mov(x86::ebp, x86::r11d);
  } else {
    a().mov(x86::bp, x86::r11w);
  }
  return true;
}

}  // namespace alibi::translator
