// SPDX-License-Identifier: Apache-2.0
// The walk over a TU, exits, and everything that is not memory, control flow or privileged.
#include "translator/emitter.h"

#include <algorithm>

#include "base/check.h"
#include "translator/emitter_impl.h"
#include "translator/entry_check.h"
#include "translator/unit_rules.h"

namespace alibi::translator {

using vcpu::VcpuState;

x86::Mem Emitter::Impl::GsAbs(i32 displacement, unsigned size) {
  x86::Mem m = x86::ptr_abs(static_cast<u64>(static_cast<i64>(displacement)), size);
  m.setSegment(x86::gs);
  return m;
}

namespace {

// The OpNeeds that do not hold in the mode.
constexpr u8 Missing(const CodeMode& mode) {
  unsigned missing = 0;
  if (mode.code_bits != 64) missing |= isa::kCode64;
  if (mode.user || mode.cpl_1_or_2) missing |= isa::kCpl0;
  if (!mode.user) missing |= isa::kCpl3;
  if (mode.cpl_1_or_2) missing |= isa::kNotCpl1Or2;
  if (mode.single) missing |= isa::kNotStepped;
  return static_cast<u8>(missing);
}

}  // namespace

EmitResult Emitter::Impl::Emit(const EmitRequest& request, Ccf* ccf) {
  request_ = &request;
  tu_ = request.tu;
  ccf_ = ccf;
  data_used_ = 0;
  next_slot_ = request.slot_seed;
  overflow_ = false;
  missing_ = Missing(request.mode);
  if (!request.one_vcpu) missing_ |= isa::kOneVcpu;
  form_ = request.mode.code_bits == 64 ? FormOf(tu_->pc) : PcForm::kFixed;
  portable_ = !request.count && tu_->examined.portable();
  moving_ = {};
  cold_lookups_.clear();
  cold_exits_.clear();
  cold_calls_.clear();
  hot_.Start(request.target.hot);
  cold_.Start(request.target.cold);

  ccf->pc = tu_->pc;
  ccf->movable = form_ == PcForm::kWide;
  ccf->mode = request.mode;
  ccf->guest_bytes = static_cast<u16>(tu_->byte_length);
  ccf->flags_live_in = tu_->flags_live_before[0] != 0;
  side_.Clear();

  if (request.indirect_entry) {
    ccf->indirect_entry = hot_.Here();
    u8 check[kMaxEntryCheckBytes];
    const u32 size =
        WriteEntryCheck(tu_->pc, ccf->flags_live_in, stubs_.entry_miss, hot_.Here(), check);
    a().embed(check, size);
  }
  ccf->entry = hot_.Here();
  if (request.count) EmitCount();

  if (request.one_vcpu) {
    PlanAccesses(*tu_, request.mode, request.plans, &groups_);
  } else {
    // PAUSE is a callout, which no group reaches over.
    std::array<SitePlan, kMaxTuInstructions> plans = request.plans;
    for (unsigned i = 0; i < tu_->count; ++i) {
      if (Calls(tu_->instrs[i])) plans[i].kind = SiteKind::kSimulate;
    }
    PlanAccesses(*tu_, request.mode, plans, &groups_);
  }
  NoteWaitingDisplacements();
  for (index_ = 0; index_ < tu_->count; ++index_) EmitInstr(index_);
  if (!tu_->ends_with_control) {
    PadEntry();
    index_ = tu_->count - 1;
    EmitExit(tu_->instrs[index_].next_pc());
  }
  FlushCold();
  ALIBI_CHECK((hot_.Offset() | cold_.Offset()) >> 16 == 0, "offsets in a CCF fit 16 bits");
  const u64 side_bytes = (side_.BytesFor(*tu_) + 7) & ~u64{7};
  if (u8* side = static_cast<u8*>(NewData(static_cast<u32>(side_bytes))); !overflow_) {
    side_.Keep(*tu_, {request.plans.data(), tu_->count}, request.shown, side, ccf);
  }

  EmitResult result;
  result.hot_size = hot_.Offset();
  result.cold_size = cold_.Offset();
  result.data_size = data_used_;
  result.slots_used = next_slot_ - request.slot_seed;
  result.fits = !overflow_ && result.hot_size <= request.target.hot_room &&
                result.cold_size <= request.target.cold_room;
  if (!result.fits) return result;
  result.portable = portable_;
  result.hot_code = hot_.Bytes();
  result.cold_code = cold_.Bytes();
  result.hot_references = &hot_.references;
  result.cold_references = &cold_.references;
  ccf->hot_start = request.target.hot;
  ccf->hot_end = request.target.hot + result.hot_size;
  ccf->cold_start = request.target.cold;
  ccf->cold_end = request.target.cold + result.cold_size;
  return result;
}

void* Emitter::Impl::NewData(u32 size) {
  if (data_used_ + size > request_->target.data_room) {
    // Keep emitting into a scratch area; the result is thrown away and tried again after a flush.
    overflow_ = true;
    static thread_local std::array<u8, 256> scratch;
    return scratch.data();
  }
  void* p = request_->target.data + data_used_;
  data_used_ += size;
  return p;
}

SiteDesc* Emitter::Impl::NewSite() {
  auto* site = new (NewData(sizeof(SiteDesc))) SiteDesc();
  site->ccf = ccf_;
  site->instr_index = static_cast<u8>(index_);
  // The translation that a SIMULATE one goes on for may have taken them for dead.
  site->keeps_flags =
      request_->mode.code_bits == 16 ||
      (tu_->flags_live_before[index_] == vcpu::kArithmeticFlags && !request_->mode.simulate);
  side_.sites.push_back(site);
  return site;
}

ExitDesc* Emitter::Impl::NewExit(ExitKind kind, LinearAddr target) {
  auto* exit = new (NewData(sizeof(ExitDesc))) ExitDesc();
  exit->kind = kind;
  exit->target = target;
  exit->ccf = ccf_;
  exit->instr_index = static_cast<u8>(index_);
  side_.exits.push_back(exit);
  return exit;
}

// Whatever leads to an entry has left r10 and r11 free; the flags may be live.
void Emitter::Impl::EmitCount() {
  auto* counts = new (NewData(sizeof(ExecutionCounts))) ExecutionCounts();
  ccf_->counts = counts;
  a().mov(x86::r10, asmjit::imm(reinterpret_cast<u64>(&counts->entered)));
  a().mov(x86::r11, x86::ptr(x86::r10));
  a().lea(x86::r11, x86::ptr(x86::r11, 1));
  a().mov(x86::ptr(x86::r10), x86::r11);
}

void Emitter::Impl::MovPc(const x86::Gp& reg, LinearAddr pc) {
  hot_.Move(static_cast<u8>(reg.id()), pc.value);
  if (pc.value >> 32 == 0) return;
  if (form_ == PcForm::kWide) {
    side_.pcs.push_back(static_cast<PcPlace>(hot_.Offset() - sizeof(pc)));
  } else if (form_ == PcForm::kKernel) {
    portable_ = portable_ && FormOf(pc) == PcForm::kKernel;
    hot_.NotePc32();
  }
}

void Emitter::Impl::NoteDisplacement(unsigned behind) {
  if (!NamesPlace(moving_.displacement)) return;
  hot_.NotePc32(behind);
  noted_displacement_ = true;
}

void Emitter::Impl::NoteImmediate() {
  if (!moving_.immediate) return;
  if (moving_.immediate.size == 8) {
    hot_.NotePc64();
  } else {
    hot_.NotePc32();
  }
  noted_immediate_ = true;
}

void Emitter::Impl::CallStub(HostAddr stub, SiteDesc* site) {
  hot_.JmpWithDescriptor(site, stub);
  site->resume = hot_.Here();
}

void Emitter::Impl::MarkFaultPoint(SiteDesc* site, bool follower) {
  unsigned number = side_.sites.size();
  while (side_.sites[--number] != site) {
  }
  side_.faults.push_back({static_cast<u16>(hot_.Offset()), static_cast<u8>(number), follower});
}

void Emitter::Impl::NoteCold(u8 instr_index) {
  side_.cold_map.push_back({static_cast<u16>(cold_.Offset()), instr_index});
}

void Emitter::Impl::NoteWaitingDisplacements() {
  static_assert(kMaxTuInstructions <= 64);
  followed_ = 0;
  bool followed = false;
  for (unsigned i = tu_->count; i-- > 0;) {
    if (followed) followed_ |= u64{1} << i;
    followed = (followed || groups_[i].follower) && !groups_[i].leader;
  }
  ALIBI_CHECK(!followed, "the group of every follower has a leader");
}

void Emitter::Impl::NoticeMovingParts(const isa::Instr& instr) {
  moving_ = isa::MovingPartsOf(instr);
  noted_displacement_ = !NamesPlace(moving_.displacement);
  noted_immediate_ = !NamesPlace(moving_.immediate);
  // What a group's accesses are apart would be reckoned with a constant that moves.
  if (followed_ != 0 &&
      ((!noted_immediate_ && instr.Is(isa::kAddsConstant | isa::kSubtractsConstant)) ||
       (!noted_displacement_ && instr.op == isa::Op::kLea))) {
    portable_ = false;
  }
}

void Emitter::Impl::EmitInstr(unsigned i) {
  const isa::Instr& instr = tu_->instrs[i];
  CodeMapEntry entry{static_cast<u16>(hot_.Offset()), static_cast<u8>(i), false};
  entry.ident = instr.treatment == isa::Treatment::kIdent && !instr.mem.present;
  side_.map.push_back(entry);
  hot_.assembler.set_wrote_r10(false);
  if (form_ == PcForm::kKernel) NoticeMovingParts(instr);
  EmitTranslation(instr);
  if (form_ == PcForm::kKernel) portable_ = portable_ && noted_displacement_ && noted_immediate_;
  // What this check misses, the guest could use to choose an address of the VMM.
  const bool waits = (followed_ >> i) & 1;
  ALIBI_CHECK(!waits || !hot_.assembler.wrote_r10(),
              "nothing between a group's look-up and its last access writes r10");
}

void Emitter::Impl::EmitTranslation(const isa::Instr& instr) {
  if (const u8 vector = UnitFault(instr.unit, request_->mode.unit_rules); vector != kUnitUsable) {
    EmitRaise(static_cast<vcpu::Vector>(vector));
    return;
  }
  switch (instr.treatment) {
    case isa::Treatment::kIdent:
      if (Calls(instr)) {
        EmitSimulateWhole(false);
      } else {
        EmitCopy(instr);
      }
      break;
    case isa::Treatment::kStack:
    case isa::Treatment::kControl:
    case isa::Treatment::kInTc:
      if (!EmitSequence(instr)) EmitSimulateWhole(EndsTranslationUnit(instr));
      break;
    case isa::Treatment::kSimulate:
    case isa::Treatment::kTerminator:
      EmitSimulateWhole(EndsTranslationUnit(instr));
      break;
    case isa::Treatment::kUndefined:
      EmitRaise(vcpu::kInvalidOpcode);
      break;
  }
}

const std::array<Emitter::Impl::Sequence, isa::kOpCount> Emitter::Impl::kSequences = {{
#define ALIBI_OP(name, emit, needs, simulate, traits) &Emitter::Impl::Emit##emit,
#include "isa/ops.inc"
}};

bool Emitter::Impl::EmitSequence(const isa::Instr& instr) {
  const isa::OpInfo& op = InfoOf(instr.op);
  const unsigned missing = missing_ | (instr.operand_bits == 64 ? 0u : unsigned{isa::kOperand64});
  if ((op.needs & missing) != 0 || request_->plans[index_].kind == SiteKind::kSimulate) {
    return false;
  }
  return (this->*kSequences[static_cast<std::size_t>(instr.op)])(instr);
}

bool Emitter::Impl::EmitCopy(const isa::Instr& instr) {
  if (instr.mem.present) {
    EmitMemory(instr);
  } else {
    EmitPlain(instr);
  }
  return true;
}

// Outside 64-bit mode these two know eight registers, and the others keep what they hold.
void Emitter::Impl::EmitVzero32(const isa::Instr& instr) {
  const bool all = instr.Is(isa::kZeroesVectors);
  for (unsigned i = 0; i < 8; ++i) {
    const x86::Xmm reg = x86::xmm(i);
    if (all) {
      a().vxorps(reg, reg, reg);
    } else {
      a().vmovaps(reg, reg);
    }
  }
}

unsigned Emitter::Impl::EmitRewritten(const isa::Instr& instr, const isa::Rewrite& rewrite) {
  static_assert(isa::kMaxRewrittenLength <= WatchingAssembler::kRoom);
  u8* const to = a().Next();
  const unsigned length = isa::RewriteInstr(instr, rewrite, to);
  a().WroteTo(to + length);
  return length;
}

void Emitter::Impl::EmitPlain(const isa::Instr& instr) {
  if (instr.code_bits != 64 && instr.Is(isa::kZeroesUpper | isa::kZeroesVectors)) {
    return EmitVzero32(instr);
  }
  bool uses_stolen = false;
  for (unsigned k = 0; k < instr.gpr_count; ++k) uses_stolen |= IsStolen(instr.gprs[k].reg);
  if (InfoOf(instr.op).Has(isa::kDivides) && request_->plans[index_].kind != SiteKind::kDirect &&
      !instr.gprs[0].high_byte) {
    EmitCheckedDivide(instr);
    return;
  }
  // Host instructions without a memory operand fault only arithmetically (#DE, #XM, #MF).
  SiteDesc* site = instr.Is(isa::kCannotFault) ? nullptr : NewSite();
  if (!uses_stolen) {
    if (site != nullptr) MarkFaultPoint(site, false);
    if (isa::SameInHostCode(instr)) {
      a().Write(instr.bytes, instr.length);
      NoteImmediate();
      return;
    }
    side_.map.back().ident = false;
    const unsigned length = EmitRewritten(instr, isa::Rewrite{});
    ALIBI_CHECK(length != 0, "a register-only instruction can be expressed in 64-bit code");
    NoteImmediate();
    return;
  }
  side_.map.back().ident = false;
  for (u8 reg : {vcpu::kR10, vcpu::kR11}) {
    bool needed = false;
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      needed |= instr.gprs[k].reg == reg && instr.gprs[k].read;
    }
    if (needed) LoadGpr(Gp64(reg), reg);
  }
  if (site != nullptr) MarkFaultPoint(site, false);
  a().Write(instr.bytes, instr.length);
  NoteImmediate();
  for (u8 reg : {vcpu::kR10, vcpu::kR11}) {
    bool written = false;
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      written |= instr.gprs[k].reg == reg && instr.gprs[k].written;
    }
    if (written) StoreGpr(reg, Gp64(reg));
  }
}

// CHECKED: a zero divisor calls out instead of trapping. No flags: the frame of #DE shows them.
void Emitter::Impl::EmitCheckedDivide(const isa::Instr& instr) {
  const isa::GprUse& divisor = instr.gprs[0];
  LoadGpr(x86::r10, divisor.reg);
  if (divisor.bits == 32) a().mov(x86::r10d, x86::r10d);
  if (divisor.bits == 16) a().movzx(x86::r10d, x86::r10w);
  if (divisor.bits == 8) a().movzx(x86::r10d, x86::r10b);
  a().xchg(x86::r10, x86::rcx);
  const HostCode::ShortJump zero = hot_.Jrcxz();
  a().mov(x86::rcx, x86::r10);
  if (IsStolen(divisor.reg)) LoadGpr(Gp64(divisor.reg), divisor.reg);
  SiteDesc* divide = NewSite();
  MarkFaultPoint(divide, false);  // the quotient may overflow
  EmitRewritten(instr, isa::Rewrite{});
  const HostCode::ShortJump done = hot_.JmpShort();
  hot_.Bind(zero);
  a().mov(x86::rcx, x86::r10);
  SiteDesc* raise = NewSite();
  raise->vector = vcpu::kDivideError;
  CallStub(stubs_.at(Callout::kRaise), raise);
  raise->resume = {};
  hot_.Bind(done);
}

void Emitter::Impl::EmitSimulateWhole(bool ends_tu) {
  SiteDesc* site = NewSite();
  CallStub(stubs_.at(Callout::kSimulate), site);
  if (ends_tu) site->resume = {};
  NoteNoParts();
}

void Emitter::Impl::EmitRaise(vcpu::Vector vector) {
  SiteDesc* site = NewSite();
  site->vector = vector;
  CallStub(stubs_.at(Callout::kRaise), site);
  site->resume = {};
  hot_.assembler.set_wrote_r10(false);  // for what follows: nothing is reached
  NoteNoParts();
}

void Emitter::Impl::EmitExit(LinearAddr target_pc) {
  if (form_ == PcForm::kKernel && FormOf(target_pc) != form_) portable_ = false;
  if (!Chainable(target_pc)) {
    MovPc(x86::r11, target_pc);
    ExitDesc* exit = NewExit(ExitKind::kCrossPage, target_pc);
    // Falling off the lower half faults behind the instruction, not at it.
    if (!CanBeCode(target_pc)) NoteBranch(nullptr);
    exit->patch = hot_.Here();
    if (request_->mode.single || !request_->mode.UsesJumpTable()) {
      hot_.JmpTo(request_->mode.single ? stubs_.at(Callout::kStop) : stubs_.at(Callout::kLookup));
      exit->patch_length = 5;
      return;
    }
    const u32 before = hot_.Offset();
    hot_.JmpGs(JumpTablePlace(target_pc, JumpKind::kCrossPage));
    exit->patch_length = static_cast<u8>(hot_.Offset() - before);
    return;
  }
  ExitDesc* exit = NewExit(ExitKind::kDirect, target_pc);
  exit->patch = hot_.Here();
  exit->patch_length = 5;
  cold_exits_.push_back({exit, hot_.Jmp(), static_cast<u8>(index_)});
}

void Emitter::Impl::EmitJccExit(u8 condition, LinearAddr target_pc) {
  if (!Chainable(target_pc)) {
    // Jump over the unconditional exit on the opposite condition.
    const HostCode::ShortJump over = hot_.JccShort(condition ^ 1);
    EmitExit(target_pc);
    hot_.Bind(over);
    return;
  }
  ExitDesc* exit = NewExit(ExitKind::kDirect, target_pc);
  exit->patch = hot_.Here();
  exit->patch_length = 6;
  cold_exits_.push_back({exit, hot_.Jcc(condition), static_cast<u8>(index_)});
}

// r11 is the target's RIP.
void Emitter::Impl::EmitIndirectExit() {
  ExitDesc* exit = NewExit(ExitKind::kIndirect, {});
  if (request_->mode.code_bits == 64) NoteBranch(exit);
  if (request_->mode.single) {
    exit->patch = hot_.Here();
    exit->patch_length = 5;
    hot_.JmpTo(stubs_.at(Callout::kStop));
    return;
  }
  if (!request_->mode.UsesJumpTable()) {
    if (request_->mode.code_base != 0) {
      a().lea(x86::r11d, x86::ptr(x86::r11, static_cast<i32>(request_->mode.code_base)));
    }
    exit->patch = hot_.Here();
    exit->patch_length = 5;
    hot_.JmpTo(stubs_.at(Callout::kLookup));
    return;
  }
  a().pext(x86::r10, x86::r11, State(offsetof(VcpuState, jump_index_mask)));
  exit->patch = hot_.Here();
  x86::Mem target =
      x86::ptr_abs(static_cast<u64>(static_cast<i64>(kJumpTableOffset)), x86::r10, 3, 8);
  target.setSegment(x86::gs);
  const u32 before = hot_.Offset();
  a().jmp(target);
  exit->patch_length = static_cast<u8>(hot_.Offset() - before);
}

// Who jumps, in case the target is no address: the branch itself must fault then, not its target.
void Emitter::Impl::NoteBranch(const ExitDesc* exit) {
  u32 offset = 0;
  if (exit != nullptr) {
    offset = 1 + static_cast<u32>(HostAddr(exit) - request_->target.data_origin);
  }
  a().mov(State(offsetof(VcpuState, last_branch), 4), offset);
  if (exit != nullptr) hot_.NoteBranchNote();
}

MissWord Emitter::Impl::MissWordOf(const SiteDesc& site) const {
  const i32 slot = (site.slot - kSlotsOffset) / static_cast<i32>(sizeof(InlineTlbEntry));
  return MissWord::Make(site.resume - stubs_.miss, site.span_minus_1,
                        site.slot == 0 ? 0 : static_cast<u32>(slot) + 1, site.window);
}

void Emitter::Impl::FlushCold() {
  for (const ColdLookup& miss : cold_lookups_) {
    hot_.Bind(miss.jump, cold_.Here());
    NoteCold(miss.instr_index);
    RestoreFlags(cold_, miss.save);
    if (miss.ea.base_disp) {
      cold_.Lea(vcpu::kR11, {miss.ea.base, isa::kNoReg, miss.ea.disp});
      if (miss.ea.moving) cold_.NotePc32();
    }
    const x86::Mem group = State(offsetof(VcpuState, scratch.group));
    if (miss.hot_resume) cold_.SubGs(vcpu::kR11, miss.site->slot);
    if (miss.keep_r10) cold_.assembler.mov(group, x86::r10);
    if (miss.hot_resume) miss.site->resume = cold_.Here() + HostCode::kJmpWithWordBytes;
    cold_.JmpWithMiss(MissWordOf(*miss.site), stubs_.miss);
    if (!miss.hot_resume) continue;
    cold_.Lea(vcpu::kR11, {vcpu::kR11, vcpu::kR10, 0});
    if (miss.keep_r10) cold_.assembler.mov(x86::r10, group);
    cold_.JmpTo(miss.hot_resume);
  }
  for (const ColdCall& call : cold_calls_) {
    hot_.Bind(call.jump, cold_.Here());
    NoteCold(call.site->instr_index);
    RestoreFlags(cold_, call.save);
    cold_.JmpWithDescriptor(call.site, call.stub);
  }
  for (const ColdExit& exit : cold_exits_) {
    hot_.Bind(exit.jump, cold_.Here());
    NoteCold(exit.instr_index);
    exit.exit->stub = cold_.Here();
    cold_.JmpWithDescriptor(exit.exit, stubs_.at(Callout::kExit));
  }
  ccf_->redirect = cold_.Here();
  cold_.JmpWithDescriptor(ccf_, stubs_.at(Callout::kReplaced));
}

void Emitter::Impl::LoadGpr(const x86::Gp& host, u8 guest_reg) {
  if (IsStolen(guest_reg)) {
    hot_.LoadGs(static_cast<u8>(host.id()), PlaceOf(guest_reg));
  } else {
    a().mov(host, Gp64(guest_reg));
  }
}

void Emitter::Impl::StoreGpr(u8 guest_reg, const x86::Gp& host) {
  if (IsStolen(guest_reg)) {
    hot_.StoreGs(PlaceOf(guest_reg), static_cast<u8>(host.id()));
  } else {
    a().mov(Gp64(guest_reg), host);
  }
}

Emitter::Emitter(const StubTable& stubs) : impl_(std::make_unique<Impl>(stubs)) {}
Emitter::~Emitter() = default;
EmitResult Emitter::Emit(const EmitRequest& request, Ccf* ccf) { return impl_->Emit(request, ccf); }

}  // namespace alibi::translator
