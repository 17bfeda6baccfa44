// SPDX-License-Identifier: Apache-2.0
// What each instruction does to what is known, and whether its accesses are justified.
#include <algorithm>
#include <bit>
#include <string_view>

#include "abi/contract.h"
#include "isa/decoder.h"
#include "testsuite/verifier/allowed.h"
#include "testsuite/verifier/flow.h"

namespace alibi::verifier {
namespace {

using Operand = ZydisDecodedOperand;

constexpr u64 kPage = kPageSize;

bool IsMemory(const Operand& op) {
  return op.type == ZYDIS_OPERAND_TYPE_MEMORY && op.mem.type != ZYDIS_MEMOP_TYPE_AGEN;
}
bool IsGs(const Operand& op) { return IsMemory(op) && op.mem.segment == ZYDIS_REGISTER_GS; }
bool IsReg(const Operand& op) { return op.type == ZYDIS_OPERAND_TYPE_REGISTER; }
int Gpr(const Operand& op) { return IsReg(op) ? GprOf(op.reg.value) : -1; }
bool IsImm(const Operand& op) { return op.type == ZYDIS_OPERAND_TYPE_IMMEDIATE; }
bool Writes(const Operand& op) { return op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE; }
bool Reads(const Operand& op) { return op.actions & ZYDIS_OPERAND_ACTION_MASK_READ; }
unsigned Bytes(const Operand& op) { return op.size / 8u; }

bool IsHint(const ZydisDecodedInstruction& z) {
  return z.meta.category == ZYDIS_CATEGORY_WIDENOP || z.meta.category == ZYDIS_CATEGORY_NOP;
}
bool IsBitTest(ZydisMnemonic m) {
  return m == ZYDIS_MNEMONIC_BT || m == ZYDIS_MNEMONIC_BTS || m == ZYDIS_MNEMONIC_BTR ||
         m == ZYDIS_MNEMONIC_BTC;
}
bool IsCacheLine(ZydisMnemonic mnemonic) {
  return mnemonic == ZYDIS_MNEMONIC_CLFLUSH || mnemonic == ZYDIS_MNEMONIC_CLFLUSHOPT ||
         mnemonic == ZYDIS_MNEMONIC_CLWB || mnemonic == ZYDIS_MNEMONIC_CLDEMOTE;
}

// One of the guest's own with prefixes, which the emitter has encoded anew.
bool IsGuestsLahf(const isa::Instr& instr) {
  return instr.encoding == isa::Encoding::kLegacy && !instr.mem.present &&
         isa::MnemonicName(instr.mnemonic) == std::string_view("LAHF");
}

bool IsSecret(const Value& value) { return !value.IsGuests() && value.is != Is::kFlags; }

bool WritesComparedFlags(const ZydisDecodedInstruction& z) {
  if (z.cpu_flags == nullptr) return false;
  const auto& f = *z.cpu_flags;
  return ((f.modified | f.set_0 | f.set_1 | f.undefined) & (ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_ZF)) !=
         0;
}

}  // namespace

bool Flow::IsIdent(const HostInstr& h) const {
  for (const auto& entry : ccf_.map()) {
    if (entry.ident && ccf_.hot_start + entry.host_offset == h.at) return true;
  }
  return false;
}

void Flow::Step(const HostInstr& h, State* s) {
  if (!IsAllowed(h.z, h.all())) Complain(h, "no translation contains this");
  if (!IsHint(h.z)) {
    for (const Operand& op : h.all()) {
      if (IsGs(op)) {
        CheckGs(h, op, *s);
      } else if (IsMemory(op)) {
        CheckMemory(h, op, s);
      }
    }
  }
  Transfer(h, s);
  if (h.z.mnemonic != ZYDIS_MNEMONIC_CMP && WritesComparedFlags(h.z)) s->compared = false;
}

// --- Memory ---

void Flow::CheckGs(const HostInstr& h, const Operand& op, const State& s) {
  const auto& mem = op.mem;
  if (mem.base != ZYDIS_REGISTER_NONE) return Complain(h, "%gs with a base register");
  if (mem.index != ZYDIS_REGISTER_NONE) {
    // The shadow table, or a jump through the jump table.
    const int index = GprOf(mem.index);
    const Is is = index < 0 ? Is::kGuest : s.gpr[index].is;
    const bool table = h.z.mnemonic == ZYDIS_MNEMONIC_MOV && !Writes(op) && mem.disp.value == 0 &&
                       is == Is::kShadowIndex;
    const bool jump = h.z.mnemonic == ZYDIS_MNEMONIC_JMP && mem.disp.value == kJumpTableOffset &&
                      is == Is::kJumpIndex;
    if (mem.scale != 8 || Bytes(op) != 8 || h.z.address_width != 64 || !(table || jump)) {
      Complain(h, "a table with an index that nothing bounds");
    }
    if (jump) CheckClean(h, s, false);
    if (table) accesses_.push_back({h.at, h.instr_index, {}, true});
    if (table) {
      for (unsigned reg = 0; reg < 16; ++reg) accesses_.back().ids[reg] = s.gpr[reg].id;
      accesses_.back().string = false;
    }
    return;
  }
  const CellInfo info = CellAt(mem.disp.value, Bytes(op));
  if (info.cell == Cell::kNone) Complain(h, "%gs at a place that is not emitted code's");
  if (Writes(op) && !info.writable) Complain(h, "a store to a place that is not emitted code's");
  if ((info.cell == Cell::kJumpTable) != (h.z.mnemonic == ZYDIS_MNEMONIC_JMP)) {
    Complain(h, "the jump table is for jumps");
  }
  if (info.cell == Cell::kJumpTable) CheckClean(h, s, false);
  const bool mask = info.cell == Cell::kPageMask || info.cell == Cell::kJumpMask;
  if (mask && h.z.mnemonic != ZYDIS_MNEMONIC_PEXT) Complain(h, "a mask that is no mask's operand");
}

void Flow::CheckMemory(const HostInstr& h, const Operand& op, State* s) {
  const auto& mem = op.mem;
  if (mem.segment == ZYDIS_REGISTER_FS || h.z.address_width != 64 ||
      mem.type == ZYDIS_MEMOP_TYPE_VSIB || mem.base == ZYDIS_REGISTER_RIP) {
    return Complain(h, "memory without a look-up");
  }
  // A cache line never crosses a page.
  const unsigned size = IsCacheLine(h.z.mnemonic) ? 1 : Bytes(op);
  const Value address = Sum(op, *s);
  if (address.is == Is::kNumber || address.is == Is::kLatch) {
    // Counting entries; a port that is a latch: named by the instruction, or by DX.
    const bool counts = ccf_.counts != nullptr && size == 8 && address.is == Is::kNumber &&
                        address.number == reinterpret_cast<u64>(&ccf_.counts->entered);
    const isa::Instr& instr = ccf_.instrs()[h.instr_index];
    const bool latch = (instr.op == isa::Op::kIn || instr.op == isa::Op::kOut) &&
                       size == instr.element_bytes && Writes(op) == (instr.op == isa::Op::kOut) &&
                       (address.is == Is::kNumber ? instr.HasImmediate() : address.number == size);
    if (!counts && !latch) Complain(h, "memory without a look-up");
    return;
  }
  if (address.is != Is::kHost) return Complain(h, "memory without a look-up");
  const bool string = h.z.meta.category == ZYDIS_CATEGORY_STRINGOP;
  if (string) {
    CheckString(h, address, size, *s);
  } else if (address.low > 0 || address.high < i64{size}) {
    Complain(h, "more than was looked up");
  }
  if (Writes(op) && !address.stores) Complain(h, "a store by a load's look-up");
  if (IsBitTest(h.z.mnemonic) && IsReg(h.operands[1])) {
    const Value& bit = s->gpr[Gpr(h.operands[1])];
    if (bit.is != Is::kBelow || bit.number > op.size) Complain(h, "a bit outside its operand");
  }
  if (Writes(op)) {
    for (const Operand& source : h.all()) {
      const int reg = Gpr(source);
      const bool pointer = string && (reg == vcpu::kRsi || reg == vcpu::kRdi);
      if (reg >= 0 && !pointer && Reads(source) && IsSecret(s->gpr[reg])) {
        Complain(h, "a host address is stored where the guest reads");
      }
    }
  }
  CheckClean(h, *s, string);
  Access access{h.at, address.made_by, {}, string};
  for (unsigned reg = 0; reg < 16; ++reg) access.ids[reg] = s->gpr[reg].id;
  accesses_.push_back(access);
}

// A run of elements in one page, or one element.
void Flow::CheckString(const HostInstr& h, const Value& address, unsigned size, const State& s) {
  constexpr ZydisInstructionAttributes kRepeats =
      ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;
  if (!(h.z.attributes & kRepeats)) {
    if (address.low > 0 || address.high < i64{size}) Complain(h, "more than was looked up");
    return;
  }
  const Value& count = s.gpr[vcpu::kRcx];
  if (address.count_root == 0 || count.is != Is::kGuest || count.wraps ||
      count.root != address.count_root || count.offset != address.count_offset ||
      address.scale != size) {
    Complain(h, "a run that was not looked up");
  }
}

Value Flow::Load(const HostInstr& h, const Operand& op, State* s) {
  const unsigned size = Bytes(op);
  if (!IsGs(op)) return Fresh(size == 4);
  if (op.mem.index != ZYDIS_REGISTER_NONE) {
    const Value& index = s->gpr[GprOf(op.mem.index)];
    if (index.is != Is::kShadowIndex) return Fresh();
    Value value = Made(Is::kDisplacement);
    value.root = index.root;
    value.low = index.offset;
    value.high = index.offset + 1;
    for (const PageFact& fact : s->pages) {
      if (fact.slot == 0 && fact.root == index.root && fact.low == index.offset) {
        value.high = std::max(value.high, fact.high);
      }
    }
    value.stores = true;  // the host's hardware stops those that must not be
    value.made_by = h.instr_index;
    return value;
  }
  const CellInfo info = CellAt(op.mem.disp.value, size);
  switch (info.cell) {
    case Cell::kScratch:
      return size == 8 ? s->scratch[info.index] : Fresh(size == 4);
    case Cell::kPeerView:
      return Made(Is::kPeerView);
    case Cell::kLatch: {
      Value value = Made(size == 8 ? Is::kLatch : Is::kSecret);
      value.number = info.index;
      return value;
    }
    case Cell::kNegPage: {
      Value value = Made(Is::kNegPage);
      value.slot = info.slot;
      return value;
    }
    case Cell::kHostPage: {
      Value value = Made(Is::kHostPage);
      value.slot = info.slot;
      value.stores = info.store_slot;
      return value;
    }
    case Cell::kDisplacement: {
      Value value = Made(Is::kSlotDisplacement);
      value.slot = info.slot;
      value.stores = info.store_slot;
      value.made_by = h.instr_index;
      for (const PageFact& fact : s->pages) {
        if (fact.slot != info.slot) continue;
        value.is = Is::kDisplacement;
        value.root = fact.root;
        value.low = fact.low;
        value.high = fact.high;
        value.count_root = fact.count_root;
        value.count_offset = fact.count_offset;
        value.scale = fact.scale;
      }
      return value;
    }
    default:
      return Fresh(size <= 4);
  }
}

void Flow::Store(const HostInstr& h, const Operand& op, const Value& value, State* s) {
  if (!IsGs(op) || op.mem.index != ZYDIS_REGISTER_NONE) return;
  const CellInfo info = CellAt(op.mem.disp.value, Bytes(op));
  if (info.cell == Cell::kScratch) {
    s->scratch[info.index] = Bytes(op) == 8 ? value : Fresh();
  } else if (info.cell == Cell::kPeerView) {
    if (value.is != Is::kOwnView) Complain(h, "a peer that is not this view");
  } else if (IsSecret(value)) {
    Complain(h, "a host address is stored where the guest reads");
  }
}

// --- Values ---

// linear address - page of a slot.
Value Flow::InPage(const Value& a, const Value& b) {
  const Value &page = a.is == Is::kNegPage ? a : b, &address = a.is == Is::kNegPage ? b : a;
  if (page.is != Is::kNegPage || address.is != Is::kGuest || address.wraps)
    return Made(Is::kSecret);
  Value value = Made(Is::kInPage);
  value.slot = page.slot;
  value.root = address.root;
  value.offset = address.offset;
  return value;
}

// [base + index * scale + displacement], in 64 bits.
Value Flow::Sum(const Operand& op, const State& s) {
  const auto& mem = op.mem;
  const i64 disp = mem.disp.has_displacement ? mem.disp.value : 0;
  const int b = mem.base == ZYDIS_REGISTER_NONE ? -1 : GprOf(mem.base);
  const int i = mem.index == ZYDIS_REGISTER_NONE ? -1 : GprOf(mem.index);
  const auto moved = [&](Value value) {
    if (value.is == Is::kGuest || value.is == Is::kInPage) {
      if (value.wraps && disp != 0) return Fresh();
      value.offset += disp;
    } else if (value.is == Is::kHost) {
      value.low -= disp;
      value.high -= disp;
    } else if (value.is == Is::kNumber) {
      value.number += static_cast<u64>(disp);
    } else if (disp != 0) {
      return IsSecret(value) ? Made(Is::kSecret) : Fresh();
    }
    if (disp != 0) {
      value.id = Fresh().id;
      value.narrow = false;
    }
    return value;
  };
  if (b < 0 && i < 0) {
    Value value = Made(Is::kNumber);
    value.number = static_cast<u64>(disp);
    return value;
  }
  if (i < 0) return moved(s.gpr[b]);
  const Value& index = s.gpr[i];
  if (b < 0) {
    const unsigned shift = static_cast<unsigned>(std::countr_zero(unsigned{mem.scale}));
    if (index.is == Is::kMinusCount && disp == static_cast<i64>(kPage)) {
      Value value = Made(Is::kRunLimit);
      value.root = index.root;
      value.offset = index.offset;
      value.scale = mem.scale;
      return value;
    }
    if (IsSecret(index)) return Made(Is::kSecret);
    if (disp != 0) return Fresh();
    Value value = Made(Is::kShifted);
    value.number = shift + (index.is == Is::kShifted ? index.number : 0);
    return value;
  }
  const Value& base = s.gpr[b];
  if (mem.scale != 1) return IsSecret(base) || IsSecret(index) ? Made(Is::kSecret) : Fresh();
  for (const auto& [x, y] : {std::pair{&base, &index}, std::pair{&index, &base}}) {
    if (y->is == Is::kNegPage && x->is == Is::kGuest) return moved(InPage(*x, *y));
    if (y->is == Is::kDisplacement && x->is == Is::kGuest && y->count_root == 0) {
      // Modulo 2^32 the base is what it should be if it is looked up itself, for then it cannot
      // wrap; or if it is back at where it began.
      const bool exact = !x->wraps || (x->offset == 0 && x->root_narrow) ||
                         (y->low <= x->offset && x->offset < y->high);
      if (x->root != y->root || !exact) return Made(Is::kSecret);
      Value value = *y;
      value.is = Is::kHost;
      value.id = Fresh().id;
      value.low = y->low - x->offset;
      value.high = y->high - x->offset;
      value.root = 0;
      value.offset = 0;
      return moved(value);
    }
    // Back from where a string instruction has left the pointer.
    if (x->is == Is::kMovedHost && y->is == Is::kNotDisplacement && x->slot == y->slot &&
        disp == 1) {
      return Fresh();
    }
  }
  return IsSecret(base) || IsSecret(index) ? Made(Is::kSecret) : Fresh();
}

Value Flow::Truncated(const Value& value, bool keep_root) {
  if (value.narrow) return value;
  Value result = Fresh(true);
  if (value.is == Is::kNumber) {
    result.is = Is::kNumber;
    result.number = static_cast<u32>(value.number);
  } else if (value.is == Is::kGuest && keep_root) {
    result.root = value.root;
    result.root_narrow = value.root_narrow;
    result.offset = value.offset;
    result.wraps = true;
  } else if (value.is == Is::kFlags || IsSecret(value)) {
    result.is = value.is == Is::kFlags ? Is::kFlags : Is::kSecret;
  }
  return result;
}

// What is looked up is the register as it is, whatever made it.
void Flow::Exact(int reg, State* s) {
  if (reg < 0) return;
  Value& value = s->gpr[reg];
  if (!value.IsGuests() || (value.is == Is::kGuest && !value.wraps)) return;
  const u32 id = value.id;
  value = Fresh(value.narrow);
  value.id = id;
}

void Flow::Set(const Operand& dest, Value value, State* s) {
  const int reg = Gpr(dest);
  if (reg < 0) return;
  Value& now = s->gpr[reg];
  if (dest.size == 64) {
    now = value;
  } else if (dest.size == 32) {
    now = value.narrow ? value : Truncated(value, true);
  } else {  // the rest stays
    const bool narrow = now.narrow, flags = now.is == Is::kFlags;
    const bool secret = IsSecret(now) || IsSecret(value);
    now = Fresh(narrow);
    if (secret || flags) now.is = flags ? Is::kFlags : Is::kSecret;
  }
}

// A callout has come back, or %gs is another view: no displacement is good any more.
void Flow::ForgetLookups(State* s) {
  s->pages.clear();
  s->bounds.clear();
  s->compared = false;
  for (auto* values : {s->gpr.data(), s->scratch.data()}) {
    const std::size_t count = values == s->gpr.data() ? s->gpr.size() : s->scratch.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (IsSecret(values[i])) values[i] = Made(Is::kSecret);
    }
  }
}

// --- Instructions ---

void Flow::Transfer(const HostInstr& h, State* s) {
  // Of the guest's own instructions, groups follow what moves registers by constants.
  const bool known = TransferMove(h, s) || TransferLea(h, s) || TransferAdd(h, s) ||
                     (!IsIdent(h) && (TransferBits(h, s) || TransferOther(h, s)));
  if (!known) TransferGeneric(h, s);
}

bool Flow::TransferMove(const HostInstr& h, State* s) {
  const Operand &to = h.operands[0], &from = h.operands[1];
  if (h.z.mnemonic == ZYDIS_MNEMONIC_MOV) {
    Value value;
    if (IsImm(from)) {
      value = Made(Is::kNumber);
      value.number = from.imm.value.u;
      value.narrow = value.number >> 32 == 0;
    } else if (Gpr(from) >= 0 && from.size >= 32) {
      if (Gpr(from) == vcpu::kR11 && Gpr(to) == vcpu::kR10) Exact(Gpr(from), s);
      value = s->gpr[Gpr(from)];
      // Its own lower half is what will be looked up.
      if (from.size == 32) value = Truncated(value, Gpr(to) != Gpr(from));
    } else if (IsMemory(from)) {
      value = Load(h, from, s);
    } else {
      return false;
    }
    if (IsMemory(to)) {
      Store(h, to, value, s);
    } else {
      Set(to, value, s);
    }
    return true;
  }
  if (h.z.mnemonic == ZYDIS_MNEMONIC_XCHG && Gpr(to) >= 0 && Gpr(from) >= 0 && to.size == 64) {
    std::swap(s->gpr[Gpr(to)], s->gpr[Gpr(from)]);
    return true;
  }
  return false;
}

bool Flow::TransferLea(const HostInstr& h, State* s) {
  if (h.z.mnemonic != ZYDIS_MNEMONIC_LEA) return false;
  const Operand &to = h.operands[0], &op = h.operands[1];
  const bool scratch = Gpr(to) == vcpu::kR10 || Gpr(to) == vcpu::kR11;
  if (scratch && to.size == 64 && op.mem.base != ZYDIS_REGISTER_NONE) {
    Exact(GprOf(op.mem.base), s);
    if (op.mem.index != ZYDIS_REGISTER_NONE) Exact(GprOf(op.mem.index), s);
  }
  // 32-bit sums that stay with a register may be followed; addresses are values of their own.
  const bool follows = op.mem.index == ZYDIS_REGISTER_NONE && op.mem.base != ZYDIS_REGISTER_NONE;
  Value value;
  if (to.size == 32 && follows && s->gpr[GprOf(op.mem.base)].is == Is::kGuest) {
    value = s->gpr[GprOf(op.mem.base)];
    value.id = Fresh().id;
    value.offset += op.mem.disp.has_displacement ? op.mem.disp.value : 0;
    value.wraps = value.narrow = true;
    if (scratch) value = Fresh(true);
  } else {
    value = Sum(op, *s);
    if (to.size == 32 && !IsSecret(value)) value = Fresh(true);
  }
  Set(to, value, s);
  return true;
}

bool Flow::TransferAdd(const HostInstr& h, State* s) {
  const Operand &to = h.operands[0], &by = h.operands[1];
  const bool add = h.z.mnemonic == ZYDIS_MNEMONIC_ADD, sub = h.z.mnemonic == ZYDIS_MNEMONIC_SUB;
  const int reg = Gpr(to);
  if (!(add || sub) || reg < 0 || to.size < 32) return false;
  Value& now = s->gpr[reg];
  if (IsImm(by) && now.is == Is::kGuest) {
    const i64 delta = add ? by.imm.value.s : -by.imm.value.s;
    if (delta == 0 && (to.size == 64 || now.narrow)) return true;
    now.offset += delta;
    now.id = Fresh().id;
    if (to.size == 32) now.wraps = now.narrow = true;
    if (to.size == 64) now.narrow = false;
    // 64 bits more than 32 are another value.
    if (to.size == 64 && now.wraps) now = Fresh();
    return true;
  }
  if (to.size != 64) return false;
  if (add && Gpr(by) >= 0 && now.is == Is::kNegPage) {
    Exact(Gpr(by), s);
    now = InPage(now, s->gpr[Gpr(by)]);
    return true;
  }
  if (!IsGs(by)) return false;
  const Value field = Load(h, by, s);
  if (add && field.is == Is::kNegPage) {
    Exact(reg, s);
    now = InPage(field, now);
    return true;
  }
  if (sub && field.is == Is::kNegPage && now.is == Is::kInPage && now.slot == field.slot) {
    Value value = Fresh();
    value.root = now.root;
    value.offset = now.offset;
    now = value;
    return true;
  }
  const bool in_page =
      add && field.is == Is::kHostPage && now.is == Is::kInPage && now.slot == field.slot;
  const bool pointer = add && field.is == Is::kDisplacement && now.is == Is::kGuest && !now.wraps;
  if (in_page || pointer) {
    for (const PageFact& fact : s->pages) {
      if (fact.slot != field.slot || fact.root != now.root) continue;
      Value value = Made(Is::kHost);
      value.slot = field.slot;
      value.stores = field.stores;
      value.made_by = h.instr_index;
      value.low = fact.low - now.offset;
      value.high = fact.high - now.offset;
      value.count_root = value.low == 0 ? fact.count_root : 0;
      value.count_offset = fact.count_offset;
      value.scale = fact.scale;
      value.root = 0;
      now = value;
      return true;
    }
  }
  if (field.is == Is::kNegPage || IsSecret(field)) {
    now = Made(Is::kSecret);
    return true;
  }
  return false;
}

bool Flow::TransferBits(const HostInstr& h, State* s) {
  const Operand &to = h.operands[0], &from = h.operands[1];
  switch (h.z.mnemonic) {
    case ZYDIS_MNEMONIC_CMP:
      if (Gpr(to) < 0 || to.size < 32) return false;
      s->left = s->gpr[Gpr(to)];
      s->compared = to.size == 64 || s->left.is == Is::kPageOffset;
      if (IsImm(from)) {
        s->right = Made(Is::kNumber);
        s->right.number = from.imm.value.u;
      } else if (Gpr(from) >= 0) {
        s->right = s->gpr[Gpr(from)];
      } else {
        s->compared = false;
      }
      return true;
    case ZYDIS_MNEMONIC_AND: {
      const int reg = Gpr(to);
      if (reg < 0 || to.size < 32 || !IsImm(from) || from.imm.value.u != kPageMask ||
          s->gpr[reg].is != Is::kGuest) {
        return false;
      }
      Value value = s->gpr[reg];
      value.is = Is::kPageOffset;
      value.id = Fresh().id;
      value.narrow = true;
      s->gpr[reg] = value;
      return true;
    }
    case ZYDIS_MNEMONIC_PEXT: {
      if (!IsGs(h.operands[2]) || Gpr(from) < 0 || to.size != 64) return false;
      const Cell cell = CellAt(h.operands[2].mem.disp.value, 8).cell;
      Exact(Gpr(from), s);
      Value value = s->gpr[Gpr(from)];
      if (cell == Cell::kJumpMask) {
        if (IsSecret(value)) return false;
        value = Made(Is::kJumpIndex);
      } else if (cell == Cell::kPageMask && value.is == Is::kGuest) {
        value.is = Is::kShadowIndex;
        value.id = Fresh().id;
      } else {
        return false;
      }
      Set(to, value, s);
      return true;
    }
    case ZYDIS_MNEMONIC_NEG:
      if (Gpr(to) < 0 || to.size != 64 || s->gpr[Gpr(to)].is != Is::kGuest ||
          s->gpr[Gpr(to)].wraps) {
        return false;
      }
      s->gpr[Gpr(to)].is = Is::kMinusCount;
      s->gpr[Gpr(to)].id = Fresh().id;
      s->gpr[Gpr(to)].narrow = false;
      return true;
    case ZYDIS_MNEMONIC_NOT: {
      if (Gpr(to) < 0 || to.size != 64) return false;
      const Value now = s->gpr[Gpr(to)];
      if (now.is != Is::kSlotDisplacement && now.is != Is::kDisplacement) return false;
      s->gpr[Gpr(to)] = Made(Is::kNotDisplacement);
      s->gpr[Gpr(to)].slot = now.slot;
      return true;
    }
    case ZYDIS_MNEMONIC_MOVZX: {
      if (Gpr(from) < 0 || from.size != 8 || s->gpr[Gpr(from)].is != Is::kShifted) return false;
      Value value = Made(Is::kShiftedByte);
      value.number = s->gpr[Gpr(from)].number;
      value.narrow = true;
      Set(to, value, s);
      return true;
    }
    case ZYDIS_MNEMONIC_RORX: {
      if (Gpr(from) < 0 || s->gpr[Gpr(from)].is != Is::kShiftedByte ||
          h.operands[2].imm.value.u != s->gpr[Gpr(from)].number || from.imm.value.u > 8) {
        return false;
      }
      Value value = Made(Is::kBelow);
      value.number = u64{256} >> h.operands[2].imm.value.u;
      value.narrow = true;
      Set(to, value, s);
      return true;
    }
    default:
      return false;
  }
}

bool Flow::TransferOther(const HostInstr& h, State* s) {
  switch (h.z.mnemonic) {
    case ZYDIS_MNEMONIC_LAHF: {
      if (IsGuestsLahf(ccf_.instrs()[h.instr_index])) return false;
      Value& rax = s->gpr[vcpu::kRax];
      const bool narrow = rax.narrow;
      rax = Made(Is::kFlags);
      rax.narrow = narrow;
      return true;
    }
    case ZYDIS_MNEMONIC_WRGSBASE:
      if (s->gpr[Gpr(h.operands[0])].is != Is::kPeerView) Complain(h, "%gs becomes no peer view");
      CheckClean(h, *s, false);
      ForgetLookups(s);
      return true;
    case ZYDIS_MNEMONIC_RDGSBASE:
      Set(h.operands[0], Made(Is::kOwnView), s);
      return true;
    default:
      break;
  }
  if (h.z.meta.category != ZYDIS_CATEGORY_STRINGOP) return false;
  const Value source = s->gpr[vcpu::kRsi], destination = s->gpr[vcpu::kRdi];
  const bool narrow = s->gpr[vcpu::kRcx].narrow;
  TransferGeneric(h, s);
  s->gpr[vcpu::kRcx].narrow = narrow;  // it is only counted down
  for (const auto& [reg, before] : {std::pair{vcpu::kRsi, source}, {vcpu::kRdi, destination}}) {
    if (!IsSecret(before)) continue;
    s->gpr[reg] = Made(before.is == Is::kHost ? Is::kMovedHost : Is::kSecret);
    s->gpr[reg].slot = before.slot;
  }
  return true;
}

// Whatever else: results are new values, secret ones if they were made of secrets. What a string
// instruction loads was not made of its pointer.
void Flow::TransferGeneric(const HostInstr& h, State* s) {
  const bool string = h.z.meta.category == ZYDIS_CATEGORY_STRINGOP;
  bool secret = false;
  for (const Operand& op : h.all()) {
    const int reg = Gpr(op);
    const bool pointer = string && (reg == vcpu::kRsi || reg == vcpu::kRdi);
    if (reg >= 0 && Reads(op) && !pointer) secret |= IsSecret(s->gpr[reg]);
    if (IsGs(op) && Reads(op)) secret |= IsSecret(Load(h, op, s));
  }
  for (const Operand& op : h.all()) {
    if (!Writes(op)) continue;
    Value value = Fresh(Gpr(op) >= 0 && op.size <= 32);
    if (secret) value.is = Is::kSecret;
    if (IsMemory(op)) {
      Store(h, op, value, s);
    } else if (Gpr(op) >= 0) {
      Set(op, value, s);
    }
  }
}

}  // namespace alibi::verifier
