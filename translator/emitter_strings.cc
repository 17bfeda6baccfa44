// SPDX-License-Identifier: Apache-2.0
// String instructions and bit tests with a register offset: their addresses are not in a memory
// operand.
//
// A run of a string instruction is made by the host's own instruction if it lies in one page per
// pointer and both inline TLB entries hold them. No element but the first can fault then (an
// address that is not canonical may hit an empty slot), so rsi and rdi may hold host addresses
// meanwhile; guest pages with the same memory are the same host page, so operands overlap as the
// guest means it. Everything else is the simulator's.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "translator/emitter_impl.h"
#include "vcpu/state.h"

namespace alibi::translator {

using vcpu::VcpuState;

namespace {

struct StringShape {
  bool source = false, destination = false;  // rsi, rdi
  bool stores = false;                       // to the destination
  u8 byte_opcode = 0;
};

StringShape ShapeOf(isa::Op op) {
  switch (op) {
    case isa::Op::kMovs:
      return {.source = true, .destination = true, .stores = true, .byte_opcode = 0xa4};
    case isa::Op::kStos:
      return {.destination = true, .stores = true, .byte_opcode = 0xaa};
    case isa::Op::kLods:
      return {.source = true, .byte_opcode = 0xac};
    case isa::Op::kCmps:
      return {.source = true, .destination = true, .byte_opcode = 0xa6};
    case isa::Op::kScas:
      return {.destination = true, .byte_opcode = 0xae};
    default:
      return {};
  }
}

i32 FieldOf(const SiteDesc& site, std::size_t offset) {
  return site.slot + static_cast<i32>(offset);
}

}  // namespace

bool Emitter::Impl::EmitString(const isa::Instr& instr) {
  const CodeMode& mode = request_->mode;
  const bool repeated = instr.rep || instr.repne;
  // Single steps see each iteration, and LODS ends with one element.
  if (mode.single || !mode.flat || instr.address_bits != mode.code_bits ||
      (instr.segment_override != 0xff && instr.segment_override >= vcpu::kFs) ||
      (repeated && instr.op == isa::Op::kLods)) {
    return false;
  }
  const StringShape shape = ShapeOf(instr.op);
  const unsigned size = instr.element_bytes;
  const FlagsSave save = FlagsLive() ? FlagsSave::kRaxInMemory : FlagsSave::kNone;
  SiteDesc* whole = NewSite();

  SaveFlags(hot_, save);
  a().cmp(State(offsetof(VcpuState, df_flag), 1), 0);
  SimulateIfTaken(whole, hot_.Jcc(Condition::kNotEqual), save);
  const HostAddr retry = hot_.Here();  // behind the bytes of an entry that may be redirected
  HostCode::FarJump long_run;
  if (repeated) {
    a().lea(x86::r10, x86::ptr(x86::rcx, -1));
    long_run = hot_.JumpIfAbove(x86::r10, static_cast<u32>(kPageSize / size - 1));
    // r11: the last offset in a page at which the run still fits.
    a().mov(x86::r11, x86::rcx);
    a().neg(x86::r11);
    const unsigned shift = static_cast<unsigned>(std::countr_zero(size));
    a().lea(x86::r11, x86::ptr(kPageSize, x86::r11, shift));
  }
  struct Pointer {
    u8 reg;
    SiteDesc* site;
    HostCode::FarJump jump{};
  };
  std::array<Pointer, 2> pointers{};
  unsigned count = 0;
  const auto add = [&](u8 reg, AccessShape access, bool store) {
    SiteDesc* site = NewSite();
    site->size = static_cast<u16>(size);
    site->span_minus_1 = static_cast<u16>(size - 1);
    site->shape = access;
    site->window = store;
    site->slot = SlotAt(ChooseSlot(instr, access), store);
    pointers[count++] = {.reg = reg, .site = site};
  };
  if (shape.source) add(vcpu::kRsi, AccessShape::kStringSource, false);
  if (shape.destination) add(vcpu::kRdi, AccessShape::kStringDestination, shape.stores);
  // The first one's fault is reported if both have one.
  if (instr.op == isa::Op::kCmps && request_->cmps_destination_first[instr.rep && size == 1]) {
    std::swap(pointers[0], pointers[1]);
  }
  for (unsigned i = 0; i < count; ++i) {
    Pointer& p = pointers[i];
    hot_.LoadGs(vcpu::kR10, FieldOf(*p.site, offsetof(InlineTlbEntry, neg_page)));
    a().add(x86::r10, Gp64(p.reg));
    if (repeated) {
      a().cmp(x86::r10, x86::r11);
      p.jump = hot_.Jcc(Condition::kAbove);
    } else {
      p.jump = hot_.JumpIfAbove(x86::r10, static_cast<u32>(kPageSize - size));
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    a().add(Gp64(pointers[i].reg),
            GsAbs(FieldOf(*pointers[i].site, offsetof(InlineTlbEntry, displacement)), 8));
  }
  RestoreFlags(hot_, save);
  MarkFaultPoint(pointers[0].site, false);
  hot_.String(instr.rep, instr.repne, size, shape.byte_opcode);
  for (unsigned i = 0; i < count; ++i) {
    // rsi - displacement without flags: they may be the result.
    hot_.LoadGs(vcpu::kR10, FieldOf(*pointers[i].site, offsetof(InlineTlbEntry, displacement)));
    a().not_(x86::r10);
    const x86::Gp reg = Gp64(pointers[i].reg);
    const x86::Mem difference = x86::ptr(reg, x86::r10, 0, 1);
    a().lea(mode.code_bits == 64 ? reg : x86::Gp(reg.r32()), difference);
  }
  whole->resume = hot_.Here();

  const auto cold_begins = [&](HostCode::FarJump jump) {
    hot_.Bind(jump, cold_.Here());
    NoteCold(static_cast<u8>(index_));
  };
  if (repeated) {
    cold_begins(long_run);
    RestoreFlags(cold_, save);
    const HostCode::ShortJump nothing = cold_.Jrcxz();
    cold_.JmpWithDescriptor(whole, stubs_.at(Callout::kSimulate));
    cold_.Bind(nothing);
    cold_.JmpTo(whole->resume);
  }
  for (unsigned i = 0; i < count; ++i) {
    // The stub fills the slot, and the look-ups begin anew. If it cannot, or the slot has the page
    // and the run ends in the next one, the simulator does it.
    const Pointer& p = pointers[i];
    const u32 most = static_cast<u32>(kPageSize - size);
    cold_begins(p.jump);
    HostCode::FarJump leaves_page;
    if (repeated) {
      cold_.assembler.cmp(x86::r10, most);
      leaves_page = cold_.Jcc(Condition::kBelowOrEqual);
    }
    RestoreFlags(cold_, save);
    cold_.assembler.mov(x86::r11, Gp64(p.reg));
    p.site->resume = cold_.Here() + HostCode::kJmpWithWordBytes;
    cold_.JmpWithMiss(MissWordOf(*p.site), stubs_.miss);
    SaveFlags(cold_, save);
    cold_.AddGs(vcpu::kR11, FieldOf(*p.site, offsetof(InlineTlbEntry, neg_page)));
    const HostCode::FarJump unfilled = cold_.JumpIfAbove(x86::r11, most);
    cold_.JmpTo(retry);
    cold_.Bind(unfilled, cold_.Here());
    if (repeated) cold_.Bind(leaves_page, cold_.Here());
    RestoreFlags(cold_, save);
    cold_.JmpWithDescriptor(whole, stubs_.at(Callout::kSimulate));
  }
  return true;
}

// BT, BTS, BTR, BTC: the word that holds the bit is looked up, and the host gets the bit's number
// in that word.
bool Emitter::Impl::EmitBitTest(const isa::Instr& instr) {
  const CodeMode& mode = request_->mode;
  if (!mode.flat || instr.mem.address_bits != mode.code_bits || ChecksSegment(instr, mode)) {
    return false;
  }
  const unsigned bits = instr.operand_bits, size = bits / 8;
  const FlagsSave save = FlagsLive() ? FlagsSave::kRaxInMemory : FlagsSave::kNone;
  EaToR11(PrepareEa(instr.mem, instr));
  LoadGpr(x86::r10, instr.gprs[0].reg);
  if (bits == 32) a().movsxd(x86::r10, x86::r10d);
  if (bits == 16) a().movsx(x86::r10, x86::r10w);
  {
    const KeptFlags kept(hot_, save);
    a().sar(x86::r10, 3);
    a().and_(x86::r10, -static_cast<i32>(size));
  }
  a().lea(mode.code_bits == 64 ? x86::Gp(x86::r11) : x86::Gp(x86::r11d),
          x86::ptr(x86::r11, x86::r10));
  Ea ea;
  SiteDesc* site = EmitLookup(ea, size, instr.mem.written, AccessShape::kOperand);
  if (!ea.host_in_r11) a().lea(x86::r11, HostOperand(ea, 0));
  // The offset modulo the operand's bits, without flags: to the top of a byte and back.
  LoadGpr(x86::r10, instr.gprs[0].reg);
  const unsigned above = 8 - static_cast<unsigned>(std::countr_zero(bits));
  a().lea(x86::r10, x86::ptr(u64{0}, x86::r10, std::min(above, 3u)));
  if (above > 3) a().lea(x86::r10, x86::ptr(u64{0}, x86::r10, above - 3));
  a().movzx(x86::r10d, x86::r10b);
  a().rorx(x86::r10d, x86::r10d, above);
  isa::Rewrite rewrite;
  rewrite.replace_memory = true;
  rewrite.memory = {vcpu::kR11, isa::kNoReg, 0};
  rewrite.gpr[0] = vcpu::kR10;
  MarkFaultPoint(site, false);
  EmitRewritten(instr, rewrite);
  return true;
}

}  // namespace alibi::translator
