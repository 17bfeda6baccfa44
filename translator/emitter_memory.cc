// Memory operands: effective addresses, look-ups and their sharing, bounce operands, the stack.
#include <bit>

#include "base/check.h"
#include "translator/emitter_impl.h"

namespace alibi::translator {

using vcpu::VcpuState;

namespace {

// A group may cover this many bytes: more shares more, but crosses pages more often.
constexpr i32 kMaxGroupSpan = 256;

constexpr bool FitsI32(i64 value) { return value == static_cast<i32>(value); }

bool UsesHighByte(const Instr& instr) {
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (instr.gprs[k].high_byte) return true;
  }
  return false;
}

// Both stolen registers as operands: the op then needs r10 for one of them.
bool UsesBothStolen(const Instr& instr) {
  unsigned seen = 0;
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (IsStolen(instr.gprs[k].reg)) seen |= 1u << (instr.gprs[k].reg - vcpu::kR10);
  }
  return seen == 3;
}

bool UsesStolenOperand(const Instr& instr) {
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (IsStolen(instr.gprs[k].reg)) return true;
  }
  return false;
}

// Can the operand be addressed as [base + disp] off a live host register, in 64 bits?
bool IsBaseDisp(const MemOperand& mem) {
  return mem.address_bits == 64 && mem.base != kNoReg && !IsStolen(mem.base) &&
         mem.index == kNoReg && !mem.rip_relative && mem.segment != vcpu::kFs &&
         mem.segment != vcpu::kGs && FitsI32(mem.disp);
}

bool WritesGpr(const Instr& instr, u8 reg) {
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    if (instr.gprs[k].reg == reg && instr.gprs[k].written) return true;
  }
  return (instr.implicit_gprs_written >> reg) & 1;
}

// ADD/SUB reg, imm (64-bit): the register moves by a known amount.
bool ConstantAdjust(const Instr& instr, u8 reg, i64* delta) {
  if (instr.operand_bits != 64 || instr.gpr_count != 1 || instr.gprs[0].reg != reg ||
      instr.mem.present || instr.layout.modrm == 0xff || instr.layout.imm == 0xff) {
    return false;
  }
  const u8 opcode = instr.bytes[instr.layout.opcode];
  if (opcode != 0x83 && opcode != 0x81) return false;
  const u8 extension = (instr.bytes[instr.layout.modrm] >> 3) & 7;
  if (extension != 0 && extension != 5) return false;
  const i64 imm = static_cast<i64>(instr.immediate);
  *delta = extension == 0 ? imm : -imm;
  return true;
}

}  // namespace

// Finds runs of accesses off one base register with nothing in between that needs r10 or may
// change a mapping. The leader looks the whole range up once.
void Emitter::Impl::PlanGroups() {
  groups_.fill(GroupPlan{});
  int leader = -1;
  u8 base = kNoReg;
  i64 moved = 0;  // base register now, relative to its value at the leader
  i32 members = 0;
  auto close = [&] {
    if (leader >= 0 && members < 2) groups_[leader] = GroupPlan{};
    leader = -1;
    members = 0;
  };
  for (unsigned i = 0; i < tu_->count; ++i) {
    const Instr& instr = tu_->instrs[i];
    const SitePlan& plan = request_->plans[i];
    const bool plain = plan.kind == SiteKind::kDirect && !plan.alone && request_->mode.flat &&
                       instr.code_bits == 64;
    u8 access_base = kNoReg;
    i64 offset = 0;
    i64 size = 0;
    i64 rsp_delta = 0;
    if (plain && instr.treatment == Treatment::kIdent && instr.mem.present && instr.mem.size > 0 &&
        instr.mem.size <= 64 && IsBaseDisp(instr.mem) && !UsesHighByte(instr) &&
        !UsesBothStolen(instr)) {
      access_base = instr.mem.base;
      offset = instr.mem.disp;
      size = instr.mem.size;
    } else if (plain && !instr.mem.present && instr.operand_bits == 64 &&
               (instr.op == Op::kPush || instr.op == Op::kPop || instr.op == Op::kCall ||
                instr.op == Op::kRet)) {
      access_base = vcpu::kRsp;
      size = 8;
      const bool push = instr.op == Op::kPush || instr.op == Op::kCall;
      offset = push ? -8 : 0;
      rsp_delta = push ? -8 : 8;
      // POP rsp reads its own base.
      if (instr.op == Op::kPop && instr.gprs[0].reg == vcpu::kRsp) access_base = kNoReg;
    }
    if (access_base == kNoReg) {
      // A CHECKED division has its check in r10.
      const bool harmless =
          instr.treatment == Treatment::kIdent && plan.kind == SiteKind::kDirect &&
          (!instr.mem.present || instr.mem.size == 0) && !UsesStolenOperand(instr) &&
          !(instr.mem.present && !IsBaseDisp(instr.mem));
      i64 delta = 0;
      if (leader >= 0 && harmless && ConstantAdjust(instr, base, &delta)) {
        moved += delta;
      } else if (!harmless || (leader >= 0 && WritesGpr(instr, base))) {
        close();
      }
      continue;
    }
    if (leader >= 0 && access_base == base) {
      const i64 low = std::min<i64>(groups_[leader].low, moved + offset);
      const i64 high = std::max<i64>(groups_[leader].high, moved + offset + size);
      if (high - low <= kMaxGroupSpan) {
        groups_[leader].low = static_cast<i32>(low);
        groups_[leader].high = static_cast<i32>(high);
        groups_[i].follower = true;
        ++members;
      } else {
        close();
      }
    } else {
      close();
    }
    if (leader < 0) {
      leader = static_cast<int>(i);
      base = access_base;
      moved = 0;
      members = 1;
      groups_[i].leader = true;
      groups_[i].low = static_cast<i32>(offset);
      groups_[i].high = static_cast<i32>(offset + size);
    }
    moved += base == vcpu::kRsp ? rsp_delta : 0;
    // A load into the base register ends the group after this access.
    if (access_base == base && rsp_delta == 0 && WritesGpr(instr, base)) close();
    if (instr.op == Op::kPop && instr.gprs[0].reg == base) close();
  }
  close();
}

// Leaves the EA in r11 unless [base + disp] will do. Uses r10 for a second stolen register.
Emitter::Impl::Ea Emitter::Impl::PrepareEa(const MemOperand& mem, const Instr& instr) {
  if (IsBaseDisp(mem)) {
    return {.base_disp = true, .base = mem.base, .disp = static_cast<i32>(mem.disp)};
  }
  const bool wide = mem.address_bits == 64;
  const bool based =
      instr.code_bits == 64 && (mem.segment == vcpu::kFs || mem.segment == vcpu::kGs);
  i64 disp = mem.disp;
  if (mem.rip_relative) disp += static_cast<i64>(instr.next_pc());
  u8 base = mem.base, index = mem.index;
  if (base == kNoReg && index == kNoReg) {
    const u64 address = wide ? static_cast<u64>(disp) : static_cast<u32>(disp);
    if (address >> 32 == 0) {
      a().mov(x86::r11d, asmjit::imm(address));
    } else {
      a().mov(x86::r11, asmjit::imm(address));
    }
  } else {
    x86::Gp host_base, host_index;
    if (base != kNoReg) {
      host_base = Gp64(base);
      if (IsStolen(base)) {
        host_base = x86::r11;
        a().mov(x86::r11, GuestGpr(base));
      }
    }
    if (index != kNoReg) {
      host_index = Gp64(index);
      if (IsStolen(index)) {
        host_index = x86::r10;
        a().mov(x86::r10, GuestGpr(index));
      }
    }
    unsigned shift = static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(mem.scale)));
    x86::Mem address;
    const i32 d = static_cast<i32>(disp);
    if (index == kNoReg) {
      address = x86::ptr(host_base, d);
    } else if (base == kNoReg) {
      address = x86::ptr(static_cast<u64>(static_cast<i64>(d)), host_index, shift);
    } else {
      address = x86::ptr(host_base, host_index, shift, d);
    }
    if (wide) {
      a().lea(x86::r11, address);
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
  SaveFlags(hot_, save);
  a().mov(x86::r10, State(offsetof(VcpuState, segment_room) + 8 * (6u * write + segment)));
  a().sub(x86::r10, x86::r11);
  a().cmp(x86::r10, size);
  hot_.Raw({0x0f, 0x8c, 0, 0, 0, 0});  // jl
  cold_calls_.push_back({site, stubs_.recheck, hot_.Offset() - 4, save});
  RestoreFlags(hot_, save);
  a().mov(x86::r10, SegmentBase(segment));
  a().lea(x86::r11d, x86::ptr(x86::r11, x86::r10));
}

Emitter::Impl::Ea Emitter::Impl::StackEa(i32 delta) {
  if (request_->mode.code_bits == 64) return {.base_disp = true, .base = vcpu::kRsp, .disp = delta};
  a().lea(x86::r11d, x86::ptr(x86::rsp, delta));
  return {};
}

void Emitter::Impl::EaToR11(const Ea& ea) {
  if (ea.base_disp) a().lea(x86::r11, x86::ptr(Gp64(ea.base), ea.disp));
}

x86::Mem Emitter::Impl::HostOperand(const Ea& ea, unsigned size) const {
  x86::Mem m = x86::ptr(x86::r11, x86::r10);
  if (ea.host_in_r11) {
    m = x86::ptr(x86::r11);
  } else if (ea.base_disp) {
    m = x86::ptr(Gp64(ea.base), x86::r10, 0, ea.disp);
  }
  m.setSize(size);
  return m;
}

SiteDesc* Emitter::Impl::EmitLookup(Ea& ea, unsigned size, bool write, AccessShape shape) {
  const SitePlan& plan = ccf_->plans[index_];
  const GroupPlan& group = groups_[index_];
  SiteDesc* site = NewSite();
  site->size = static_cast<u16>(size);
  site->shape = shape;
  if (group.follower) return site;

  Ea range = ea;
  unsigned span = size;
  bool stores = write;
  if (group.leader) {
    site->shared = true;
    range.disp = group.low;
    span = static_cast<unsigned>(group.high - group.low);
    for (unsigned k = index_ + 1; k < tu_->count && groups_[k].follower; ++k) {
      stores |= tu_->instrs[k].mem.present
                    ? tu_->instrs[k].mem.written
                    : (tu_->instrs[k].op == Op::kPush || tu_->instrs[k].op == Op::kCall);
    }
  }
  site->span_minus_1 = span - 1;
  site->window = stores;
  site->checked = plan.kind == SiteKind::kChecked;

  if (plan.lookup == LookupKind::kTable) {
    EaToR11(range);
    if (span > 1) {
      const FlagsSave save = FlagsLive() ? FlagsSave::kRaxInMemory : FlagsSave::kNone;
      SaveFlags(hot_, save);
      a().mov(x86::r10d, x86::r11d);
      a().and_(x86::r10d, static_cast<i32>(kPageMask));
      a().cmp(x86::r10d, static_cast<i32>(kPageSize - span));
      hot_.Raw({0x0f, 0x87, 0, 0, 0, 0});  // ja
      cold_lookups_.push_back({site, hot_.Offset() - 4, Ea{}, static_cast<u8>(index_), save});
      RestoreFlags(hot_, save);
    }
    a().pext(x86::r10, x86::r11, State(offsetof(VcpuState, page_index_mask)));
    MarkFaultPoint(site, false);  // an untouched part of the shadow table
    x86::Mem entry = x86::ptr_abs(0, x86::r10, 3, 8);
    entry.setSegment(x86::gs);
    a().mov(x86::r10, entry);
    site->resume = hot_.Here();
    return site;
  }

  const i32 slot = kSlotsOffset + (static_cast<i32>(stores) * kSlotCount +
                                   static_cast<i32>(next_slot_++ % kSlotCount)) *
                                      static_cast<i32>(sizeof(LookupSlot));
  site->slot = slot;
  const i32 neg_page = slot + static_cast<i32>(offsetof(LookupSlot, neg_page));
  const u32 most = static_cast<u32>(kPageSize) - span;
  if (!FlagsLive() && !range.base_disp) {
    // The address is in r11, and the flags are free: turn it into the host address in place.
    ea.host_in_r11 = true;
    hot_.AddR11Gs(neg_page);
    ColdLookup miss{site, hot_.JaCold(x86::r11, most), range, static_cast<u8>(index_)};
    hot_.AddR11Gs(slot + static_cast<i32>(offsetof(LookupSlot, host_page)));
    miss.hot_resume = hot_.Here();
    cold_lookups_.push_back(miss);
    return site;
  }
  hot_.MovR10Gs(neg_page);
  if (range.base_disp) {
    a().lea(x86::r10, x86::ptr(Gp64(range.base), x86::r10, 0, range.disp));
  } else {
    a().lea(x86::r10, x86::ptr(x86::r10, x86::r11));
  }
  // rax waits in r11 while the flags are in it, or in memory where r11 holds the address.
  const FlagsSave save = !FlagsLive()      ? FlagsSave::kNone
                         : range.base_disp ? FlagsSave::kRaxInR11
                                           : FlagsSave::kRaxInMemory;
  SaveFlags(hot_, save);
  const u32 fixup = hot_.JaCold(x86::r10, most);
  cold_lookups_.push_back({site, fixup, range, static_cast<u8>(index_), save});
  RestoreFlags(hot_, save);
  hot_.MovR10Gs(slot + static_cast<i32>(offsetof(LookupSlot, displacement)));
  site->resume = hot_.Here();
  return site;
}

void Emitter::Impl::EmitMemory(const Instr& instr) {
  const MemOperand& mem = instr.mem;
  if (mem.size == 0) {
    if (instr.op != Op::kLea) return;  // NOP, PREFETCH: hints without an access
    if (SameInHostCode(instr) && !UsesStolenOperand(instr) && !mem.rip_relative &&
        mem.base != kNoReg && !IsStolen(mem.base) &&
        !(mem.index != kNoReg && IsStolen(mem.index))) {
      ccf_->map.back().ident = true;
      a().embed(instr.bytes.data(), instr.length);
      return;
    }
    MemOperand flat = mem;
    flat.segment = vcpu::kDs;
    const Ea ea = PrepareEa(flat, instr);
    EaToR11(ea);
    const GprUse& dest = instr.gprs[0];
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
  const SitePlan& plan = ccf_->plans[index_];
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
void Emitter::Impl::EmitOperation(const Instr& instr, const Ea* ea, SiteDesc* site, bool follower) {
  Rewrite rewrite;
  rewrite.replace_memory = true;
  const bool in_r11 = ea == nullptr || ea->host_in_r11;
  if (in_r11) {
    rewrite.memory = {vcpu::kR11, kNoReg, 0};
  } else if (ea->base_disp) {
    rewrite.memory = {ea->base, vcpu::kR10, ea->disp};
  } else {
    rewrite.memory = {vcpu::kR11, vcpu::kR10, 0};
  }
  // Which stolen registers the operands name, sources first: a destination may share the
  // address's register, because it is written after the address was used.
  std::array<u8, 2> stolen{kNoReg, kNoReg};
  unsigned count = 0;
  for (const bool sources : {true, false}) {
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      const GprUse& use = instr.gprs[k];
      if (!IsStolen(use.reg) || use.read != sources) continue;
      if ((count > 0 && stolen[0] == use.reg) || (count > 1 && stolen[1] == use.reg)) continue;
      if (count < 2) stolen[count++] = use.reg;
    }
  }
  const bool high_byte = UsesHighByte(instr);
  std::array<u8, 2> host{kNoReg, kNoReg};
  if (count > 0 || high_byte) {
    // One address register only, so that the other is free.
    if (in_r11) {
      host = {vcpu::kR10, vcpu::kR11};
    } else if (ea->base_disp && count < 2 && !high_byte) {
      host = {vcpu::kR11, kNoReg};
    } else {
      a().lea(x86::r11, HostOperand(*ea, 0));
      rewrite.memory = {vcpu::kR11, kNoReg, 0};
      host = {vcpu::kR10, vcpu::kR11};
    }
  }
  u8 high_reg = kNoReg;
  bool high_written = false;
  for (unsigned k = 0; k < instr.gpr_count; ++k) {
    const GprUse& use = instr.gprs[k];
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
    if (read) a().mov(Gp64(host[s]), GuestGpr(stolen[s]));
  }
  if (high_byte) {
    // AH..BH cannot be named next to r11: work on a copy in r10b.
    a().mov(x86::r10, Gp64(high_reg));
    a().rorx(x86::r10, x86::r10, 8);
  }
  u8 bytes[kMaxRewrittenLength];
  unsigned length = 0;
  if (high_byte) {
    Instr low = instr;  // r10b is a low byte
    for (unsigned k = 0; k < low.gpr_count; ++k) low.gprs[k].high_byte = false;
    length = RewriteInstr(low, rewrite, bytes);
  } else {
    length = RewriteInstr(instr, rewrite, bytes);
  }
  ALIBI_CHECK(length != 0, "a memory operand can be rewritten once AH..BH are out of the way");
  MarkFaultPoint(site, follower);
  a().embed(bytes, length);
  for (unsigned s = 0; s < count; ++s) {
    bool written = false;
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      written |= instr.gprs[k].reg == stolen[s] && instr.gprs[k].written;
    }
    if (written) a().mov(GuestGpr(stolen[s]), Gp64(host[s]));
  }
  if (high_written) {
    const x86::Gp low = x86::gpb_lo(high_reg);
    const x86::Gp high = x86::gpb_hi(high_reg);
    a().xchg(low, high);
    a().mov(low, x86::r10b);
    a().xchg(low, high);
  }
}

void Emitter::Impl::EmitMemoryBounce(const Instr& instr) {
  const Ea ea = PrepareEa(instr.mem, instr);
  EaToR11(ea);
  SiteDesc* begin = NewSite();
  begin->size = instr.mem.size;
  begin->window = instr.mem.written;
  CallStub(stubs_.bounce_begin, begin);
  a().mov(x86::r11, x86::r10);  // where the operand lies now
  SiteDesc* op_site = NewSite();
  EmitOperation(instr, nullptr, op_site, false);
  if (instr.mem.written) {
    SiteDesc* end = NewSite();
    end->size = instr.mem.size;
    end->window = 1;
    CallStub(stubs_.bounce_end, end);
  }
}

// MOV of a register or immediate to memory: one callout instead of two.
bool Emitter::Impl::EmitSimulatedStore(const Instr& instr) {
  if (instr.op != Op::kMov || !instr.mem.written || instr.mem.read || UsesHighByte(instr) ||
      instr.mem.size > 8) {
    return false;
  }
  const Ea ea = PrepareEa(instr.mem, instr);
  EaToR11(ea);
  const x86::Mem value = State(offsetof(VcpuState, spill) + 6 * 8);
  if (instr.gpr_count == 1) {
    LoadGpr(x86::r10, instr.gprs[0].reg);
  } else if (instr.layout.imm != 0xff && instr.layout.modrm != 0xff) {
    a().mov(x86::r10, asmjit::imm(instr.immediate));
  } else {
    a().mov(x86::r10, Gp64(vcpu::kRax));  // the moffs form
  }
  a().mov(value, x86::r10);
  SiteDesc* site = NewSite();
  site->size = instr.mem.size;
  site->window = 1;
  CallStub(stubs_.store, site);
  return true;
}

void Emitter::Impl::EmitStack(const Instr& instr) {
  const bool simple = ccf_->plans[index_].kind != SiteKind::kSimulate && !instr.mem.present;
  if (simple && instr.op == Op::kPush) {
    EmitPush(instr);
  } else if (simple && instr.op == Op::kPop) {
    EmitPop(instr);
  } else if (ccf_->plans[index_].kind != SiteKind::kSimulate && instr.op == Op::kLeave &&
             instr.operand_bits == request_->mode.code_bits) {
    EmitLeave(instr);
  } else {
    EmitSimulateWhole(false);
  }
}

void Emitter::Impl::AdjustRsp(i32 delta) {
  if (request_->mode.code_bits == 64) {
    a().lea(x86::rsp, x86::ptr(x86::rsp, delta));
  } else {
    a().lea(x86::esp, x86::ptr(x86::rsp, delta));
  }
}

void Emitter::Impl::EmitPush(const Instr& instr) {
  const unsigned size = instr.operand_bits / 8;
  Ea ea = StackEa(-static_cast<i32>(size));
  const bool follower = groups_[index_].follower;
  SiteDesc* site = EmitLookup(ea, size, true, AccessShape::kPush);
  x86::Mem slot = HostOperand(ea, size);
  if (instr.gpr_count == 0) {
    MarkFaultPoint(site, follower);
    a().mov(slot, asmjit::imm(static_cast<i64>(instr.immediate)));
    AdjustRsp(-static_cast<i32>(size));
    return;
  }
  x86::Gp value = Gp64(instr.gprs[0].reg);
  if (IsStolen(instr.gprs[0].reg)) {
    if (!ea.base_disp) {  // r11 is in use: fold the address into it
      if (!ea.host_in_r11) a().lea(x86::r11, slot);
      slot = x86::ptr(x86::r11);
      slot.setSize(size);
      a().mov(x86::r10, GuestGpr(instr.gprs[0].reg));
      value = x86::r10;
    } else {
      a().mov(x86::r11, GuestGpr(instr.gprs[0].reg));
      value = x86::r11;
    }
  }
  MarkFaultPoint(site, follower);
  const x86::Gp sized =
      size == 8 ? value : x86::Gp(size == 4 ? x86::Gp(value.r32()) : x86::Gp(value.r16()));
  a().mov(slot, sized);
  AdjustRsp(-static_cast<i32>(size));
}

void Emitter::Impl::LoadR11(const Ea& ea, unsigned bytes, SiteDesc* site) {
  MarkFaultPoint(site, groups_[index_].follower);
  const x86::Mem source = HostOperand(ea, bytes);
  if (bytes == 8) {
    a().mov(x86::r11, source);
  } else if (bytes == 4) {
    a().mov(x86::r11d, source);
  } else {
    a().movzx(x86::r11d, source);
  }
}

void Emitter::Impl::EmitPop(const Instr& instr) {
  const unsigned size = instr.operand_bits / 8;
  const u8 reg = instr.gprs[0].reg;
  Ea ea = StackEa(0);
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kPop);
  if (size == 8 && !IsStolen(reg)) {
    MarkFaultPoint(site, groups_[index_].follower);
    a().mov(Gp64(reg), HostOperand(ea, 8));
    if (reg != vcpu::kRsp) AdjustRsp(8);
    return;
  }
  LoadR11(ea, size, site);
  if (reg != vcpu::kRsp) AdjustRsp(static_cast<i32>(size));
  if (size == 2) {
    if (IsStolen(reg)) {
      a().mov(State(offsetof(VcpuState, gpr) + 8u * reg, 2), x86::r11w);
    } else {
      a().mov(Gp64(reg).r16(), x86::r11w);
    }
  } else {
    StoreGpr(reg, x86::r11);
  }
}

void Emitter::Impl::EmitLeave(const Instr& instr) {
  const unsigned size = instr.operand_bits / 8;
  Ea ea{.base_disp = true, .base = vcpu::kRbp};
  if (size == 4) {
    a().mov(x86::r11d, x86::ebp);
    ea = Ea{};
  }
  SiteDesc* site = EmitLookup(ea, size, false, AccessShape::kFrame);
  LoadR11(ea, size, site);
  if (size == 8) {
    a().lea(x86::rsp, x86::ptr(x86::rbp, 8));
    a().mov(x86::rbp, x86::r11);
  } else {
    a().lea(x86::esp, x86::ptr(x86::rbp, 4));
    a().mov(x86::ebp, x86::r11d);
  }
}

}  // namespace alibi::translator
