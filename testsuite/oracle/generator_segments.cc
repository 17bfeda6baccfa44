// SPDX-License-Identifier: Apache-2.0
// 16- and 32-bit code: addresses, segments, far transfers.
#include <algorithm>

#include "testsuite/oracle/generator.h"

namespace alibi::oracle {

namespace {

// In the order of vcpu::SegmentIndex.
constexpr u8 kOverrides[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65};

constexpr bool FitsI8(u32 value) { return value == static_cast<u32>(static_cast<i8>(value)); }

void PutLittle(std::vector<u8>* out, u32 value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) out->push_back(static_cast<u8>(value >> (8 * i)));
}

}  // namespace

// --- Initial state ---

void Generator::MakeNarrowState() {
  CpuState& state = made_.test.initial;
  selector_ = {kUserDs, kUserCs32, kUserDs, kUserDs, 0, 0};
  if (segmented_) {
    for (;;) {
      const u16 cs = PickSelector(vcpu::kCs);
      const vcpu::Segment segment = SegmentOf(cs);
      if (CodeBitsOf(cs) != bits_ || segment.Long()) continue;
      if (!vcpu::InSegmentLimit(segment, static_cast<u32>(OffsetOf(cs, state.rip)), 1)) {
        state.rip = pc_ = kCodeBase + random_.Below(kPageSize);
        continue;
      }
      selector_[vcpu::kCs] = cs | 3;
      break;
    }
    for (const unsigned i : {vcpu::kEs, vcpu::kSs, vcpu::kDs, vcpu::kFs, vcpu::kGs}) {
      if (random_.Percent(i == vcpu::kSs ? 90 : 80)) selector_[i] = PickSelector(i);
      if (selector_[i] < 4) selector_[i] = 0;  // see the mask for null selectors
    }
    for (unsigned i = 0; i < 8; ++i) {
      u64& value = state.gpr[i];
      if (value >= kDataBase) {
        value = PickOffset(random_.Percent(70) ? vcpu::kDs : vcpu::kEs, 16, false, bits_ == 32);
      }
      if (bits_ == 16 && random_.Percent(50)) value = (value & 0xffff) | random_.Next() << 16;
      value = static_cast<u32>(value);
    }
    u64& rsp = state.gpr[vcpu::kRsp];
    rsp = SegmentSetStack();
    if (random_.Percent(40)) state.gpr[vcpu::kRbp] = static_cast<u32>(rsp + random_.Below(64));
    // The stack pointer's upper half changes when a handler returns to a 16-bit stack.
    if (!SegmentOf(selector_[vcpu::kSs]).Big()) made_.traits.unsteppable = true;
  }
  state.selector = selector_;
}

// A stack pointer for the current SS.
u64 Generator::SegmentSetStack() {
  const vcpu::Segment stack = SegmentOf(selector_[vcpu::kSs]);
  u32 offset = 0;
  bool found = false;
  for (unsigned attempt = 0; attempt < 8 && !found; ++attempt) {
    const u64 linear = random_.Percent(70)
                           ? kStackBase + 2 * kPageSize - 256 + 2 * random_.Below(256)
                           : kStackBase + kPageSize + random_.Below(2 * kPageSize);
    offset = static_cast<u32>(linear - stack.base);
    found = vcpu::InSegmentLimit(stack, offset, 4) && (stack.Big() || offset <= 0xffff);
  }
  if (!found) offset = PickOffset(vcpu::kSs, 4, false, stack.Big());
  if (!stack.Big()) {
    if (random_.Percent(10)) offset = static_cast<u32>(random_.Below(12));  // wraps soon
    offset &= 0xffff;
    if (random_.Percent(50)) offset |= static_cast<u32>(random_.Next()) << 16;
  }
  return offset;
}

// Nothing that faults when it is loaded, except null and what belongs to other uses, rarely.
u16 Generator::PickSelector(unsigned segment) {
  for (;;) {
    u16 selector = LocalSelector(static_cast<unsigned>(random_.Below(LocalDescriptors().size())));
    if (segment == vcpu::kCs) {
      if (random_.Percent(10)) selector = kUserCs32;
      if (random_.Percent(15)) selector = static_cast<u16>((selector & ~3u) | random_.Below(4));
      if (LoadsAsCode(selector)) return selector;
      continue;
    }
    if (random_.Percent(12)) selector = kUserDs;
    if (segment == vcpu::kSs) {
      // Stacks mostly where the stack pages are.
      const u64 base = SegmentOf(selector).base;
      if (LoadsAsStack(selector) &&
          (base - kStackBase < kFarStackPage - kStackBase || random_.Percent(20))) {
        return selector;
      }
      continue;
    }
    if (random_.Percent(5)) return static_cast<u16>(random_.Below(4));
    if (random_.Percent(10)) selector = static_cast<u16>((selector & ~3u) | random_.Below(4));
    // Mostly what can be written, too.
    if (!LoadsAsStack(selector | 3) && !random_.Percent(15)) continue;
    if (LoadsAsData(selector)) return selector;
  }
}

// Any selector but the one whose limit says which CPU this is.
u16 Generator::PickWildSelector() {
  switch (random_.Below(5)) {
    case 0:
      return static_cast<u16>(random_.Below(0x78));
    case 1:
      return static_cast<u16>(0x80 + random_.Below(0xff80));
    default:
      return static_cast<u16>(
          (LocalSelector(static_cast<unsigned>(random_.Below(LocalDescriptors().size()))) & ~3u) |
          random_.Below(4));
  }
}

// --- Addresses ---

Generator::Bytes Generator::Sized(unsigned size, Bytes bytes) const {
  if (size != std::min(bits_, 32u)) bytes.insert(bytes.begin(), 0x66);
  return bytes;
}

// An offset in the segment; `wide`: of 32 bits.
u32 Generator::PickOffset(unsigned segment, unsigned size, bool align, bool wide) {
  const vcpu::Segment s = SegmentOf(selector_[segment]);
  const u32 top = wide ? 0xffffffff : 0xffff;
  if (!segmented_) return static_cast<u32>(PickTarget(size, align)) & top;
  if (!random_.Percent(tame_ ? 2 : 16)) {
    const bool code = s.Type() & 8;
    for (unsigned attempt = 0; attempt < 12; ++attempt) {
      u64 target = code ? kCodeBase + random_.Below(kCodeBytes - size) : PickTarget(size, align);
      if (!code && attempt % 2 == 1) {
        target = kStackBase + kPageSize + random_.Below(2 * kPageSize - size);
        if (align) target &= ~u64{size - 1};
      }
      const u32 offset = static_cast<u32>(target - s.base);
      if (offset <= top && vcpu::InSegmentLimit(s, offset, size)) return offset;
    }
  }
  switch (random_.Below(4)) {
    case 0:
    case 1:
      return static_cast<u32>(s.limit + 1 - size - 2 + random_.Below(size + 5)) & top;
    case 2:
      return static_cast<u32>(0 - size - 2 + random_.Below(size + 5)) & top;
    default:
      return static_cast<u32>(random_.Below(std::min(u64{s.limit} + 1, u64{top} + 1)));
  }
}

Generator::Address Generator::MakeNarrowAddress(unsigned size, bool align, bool no_disp8) {
  Address a;
  bool wide = bits_ == 32;
  if (random_.Percent(segmented_ ? 20 : 1)) {
    wide = !wide;
    a.prefixes.push_back(0x67);
  }
  int segment = -1;
  if (random_.Percent(segmented_ ? 25 : 3)) {
    segment = static_cast<int>(random_.Below(segmented_ || random_.Percent(10) ? 6 : 4));
    a.prefixes.push_back(kOverrides[segment]);
  }
  if (wide) {
    MakeAddress32(&a, size, align, no_disp8, segment);
  } else {
    MakeAddress16(&a, size, align, no_disp8, segment);
  }
  return a;
}

void Generator::MakeAddress32(Address* a, unsigned size, bool align, bool no_disp8, int segment) {
  a->disp_size = 4;
  if (random_.Percent(15)) {
    a->modrm = 5;  // absolute
    a->disp = PickOffset(segment < 0 ? unsigned{vcpu::kDs} : static_cast<unsigned>(segment), size,
                         align, true);
    return;
  }
  // A register of unknown contents may lead anywhere: rarely.
  u8 base = 0, index = 0;
  for (unsigned attempt = 0; attempt < 8; ++attempt) {
    base = static_cast<u8>(random_.Below(8));
    index = static_cast<u8>(random_.Below(8));
    if ((known_[base] && known_[index]) || random_.Percent(5)) break;
  }
  const unsigned scale = static_cast<unsigned>(random_.Below(4));
  const bool has_index = index != vcpu::kRsp && (known_[index] || !tame_) && random_.Percent(40);
  if (segment < 0) segment = base == vcpu::kRsp || base == vcpu::kRbp ? vcpu::kSs : vcpu::kDs;
  u32 disp = PickOffset(static_cast<unsigned>(segment), size, align, true);
  disp -= static_cast<u32>(known_[base].value_or(0));
  if (has_index) disp -= static_cast<u32>(known_[index].value_or(0) << scale);
  a->disp = disp;
  if (FitsI8(disp) && !no_disp8 && !random_.Percent(20)) a->disp_size = 1;
  if (disp == 0 && base != vcpu::kRbp && random_.Percent(70)) a->disp_size = 0;
  a->modrm = a->disp_size == 0 ? 0 : a->disp_size == 1 ? 0x40 : 0x80;
  a->has_sib = has_index || base == vcpu::kRsp || random_.Percent(5);
  a->modrm |= a->has_sib ? 4 : base;
  a->sib = static_cast<u8>(scale << 6 | (has_index ? index : 4u) << 3 | base);
}

void Generator::MakeAddress16(Address* a, unsigned size, bool align, bool no_disp8, int segment) {
  struct Form {
    u8 base, index;  // equal: there is one only
  };
  static constexpr Form kForms[] = {{vcpu::kRbx, vcpu::kRsi}, {vcpu::kRbx, vcpu::kRdi},
                                    {vcpu::kRbp, vcpu::kRsi}, {vcpu::kRbp, vcpu::kRdi},
                                    {vcpu::kRsi, vcpu::kRsi}, {vcpu::kRdi, vcpu::kRdi},
                                    {vcpu::kRbp, vcpu::kRbp}, {vcpu::kRbx, vcpu::kRbx}};
  // Registers of unknown contents may lead anywhere: rarely.
  u8 rm = 0;
  bool known = false;
  for (unsigned attempt = 0; attempt < 8 && !known; ++attempt) {
    rm = static_cast<u8>(random_.Below(8));
    known = (known_[kForms[rm].base] && known_[kForms[rm].index]) || random_.Percent(5);
  }
  const bool absolute = !known || random_.Percent(12);
  if (absolute) rm = 6;
  const Form& form = kForms[rm];
  if (segment < 0) {
    segment = form.base == vcpu::kRbp && !absolute ? vcpu::kSs : vcpu::kDs;
  }
  u32 disp = PickOffset(static_cast<unsigned>(segment), size, align, false);
  a->disp_size = 2;
  a->modrm = static_cast<u8>((absolute ? 0 : 0x80) | rm);
  if (!absolute) {
    disp -= static_cast<u32>(known_[form.base].value_or(0));
    if (form.index != form.base) disp -= static_cast<u32>(known_[form.index].value_or(0));
    disp &= 0xffff;
    const bool short_form = disp < 0x80 || disp >= 0xff80;
    if (short_form && !no_disp8 && !random_.Percent(20)) {
      a->disp_size = 1;
      a->modrm ^= 0xc0;
    }
    if (disp == 0 && rm != 6 && random_.Percent(70)) {
      a->disp_size = 0;
      a->modrm = rm;
    }
  }
  a->disp = disp;
}

// An instruction whose memory operand is [offset], with a segment override where it needs one.
void Generator::EmitAbsolute(unsigned size, Bytes opcode, u8 reg, unsigned segment, u32 offset) {
  Bytes bytes;
  const bool wide = offset > 0xffff || bits_ == 32;
  if (segment != vcpu::kDs) bytes.push_back(kOverrides[segment]);
  if (wide && bits_ == 16) bytes.push_back(0x67);
  bytes.insert(bytes.end(), opcode.begin(), opcode.end());
  bytes.push_back(static_cast<u8>((wide ? 5 : 6) | reg << 3));
  PutLittle(&bytes, offset, wide ? 4 : 2);
  EmitSized(size, std::move(bytes));
}

void Generator::EmitStore(unsigned segment, u32 offset, unsigned size, u32 value) {
  Bytes bytes;
  const bool wide = offset > 0xffff || bits_ == 32;
  if (segment != vcpu::kDs) bytes.push_back(kOverrides[segment]);
  if (wide && bits_ == 16) bytes.push_back(0x67);
  bytes.insert(bytes.end(), {0xc7, static_cast<u8>(wide ? 5 : 6)});
  PutLittle(&bytes, offset, wide ? 4 : 2);
  PutLittle(&bytes, value, size / 8);
  EmitSized(size, std::move(bytes));
}

void Generator::EmitPush(unsigned size, u32 value) {
  Bytes bytes = {0x68};
  PutLittle(&bytes, value, bits_ == 64 ? 4 : size / 8);
  if (bits_ == 64) {
    Emit(std::move(bytes));
  } else {
    EmitSized(size, std::move(bytes));
  }
}

// --- Blocks ---

void Generator::BlockSegmentLoad() {
  static constexpr u8 kLoaded[] = {vcpu::kEs, vcpu::kDs, vcpu::kFs, vcpu::kGs, vcpu::kSs};
  static constexpr u8 kPop[][2] = {{0, 0x07}, {0, 0},       {0, 0x17},
                                   {0, 0x1f}, {0x0f, 0xa1}, {0x0f, 0xa9}};
  static constexpr u8 kLoad[][2] = {{0, 0xc4}, {0, 0},       {0x0f, 0xb2},
                                    {0, 0xc5}, {0x0f, 0xb4}, {0x0f, 0xb5}};
  auto opcode = [](const u8(&pair)[2]) {
    return pair[0] == 0 ? Bytes{pair[1]} : Bytes{pair[0], pair[1]};
  };
  const unsigned segment = random_.Percent(12) ? unsigned{vcpu::kSs} : kLoaded[random_.Below(4)];
  const bool wild = random_.Percent(tame_ ? 8 : 25);
  const u16 selector = wild ? PickWildSelector() : PickSelector(segment);
  const unsigned size = random_.Percent(75) == (bits_ == 16) ? 16 : 32;
  switch (random_.Below(4)) {
    case 0: {
      u8 reg;
      do {
        reg = PickGpr(true);
      } while (reg == vcpu::kRsp);
      EmitMovImmediate(reg, selector | (random_.Next() << 16));
      EmitSized(size, {0x8e, static_cast<u8>(0xc0 | segment << 3 | reg)});
      break;
    }
    case 1:
      EmitPush(size, selector | (static_cast<u32>(random_.Next()) << 16));
      EmitSized(size, opcode(kPop[segment]));
      break;
    case 2: {  // mov sreg, [memory]
      const unsigned from = random_.Percent(70) ? unsigned{vcpu::kDs} : unsigned{vcpu::kEs};
      const u32 offset = PickOffset(from, 2, false, bits_ == 32);
      EmitStore(from, offset, 16, selector);
      EmitAbsolute(bits_, {0x8e}, static_cast<u8>(segment), from, offset);
      break;
    }
    default: {  // LDS and its kin
      const unsigned from = random_.Percent(70) ? unsigned{vcpu::kDs} : unsigned{vcpu::kEs};
      const u32 offset = PickOffset(from, size / 8 + 2, false, bits_ == 32);
      const u8 reg = static_cast<u8>(random_.Below(8));
      EmitStore(from, offset, size, static_cast<u32>(random_.Next()));
      EmitStore(from, static_cast<u32>(offset + size / 8) & (bits_ == 16 ? 0xffff : 0xffffffff), 16,
                selector);
      EmitAbsolute(size, opcode(kLoad[segment]), reg, from, offset);
      break;
    }
  }
  const bool loads = segment == vcpu::kSs ? LoadsAsStack(selector)
                                          : LoadsAsData(selector) || vcpu::NullSelector(selector);
  if (!loads) return;
  selector_[segment] = selector;
  // The stepping handler's IRET takes the RPL off null selectors.
  if (selector != 0 && vcpu::NullSelector(selector)) made_.traits.unsteppable = true;
  if (segment != vcpu::kSs) return;
  if (!SegmentOf(selector).Big()) made_.traits.unsteppable = true;
  if (random_.Percent(90)) EmitMovImmediate(vcpu::kRsp, SegmentSetStack());
}

// LAR, LSL, VERR, VERW, ARPL, and selectors stored.
void Generator::BlockInspect() {
  u8 reg;
  do {
    reg = PickGpr(true);
  } while (reg == vcpu::kRsp);
  const unsigned size = random_.Percent(50) ? 16 : 32;
  const u8 other = static_cast<u8>(random_.Below(8));
  auto modrm = [&](unsigned middle) { return static_cast<u8>(0xc0 | middle << 3 | reg); };
  if (random_.Percent(20)) {
    EmitSized(size, {0x8c, modrm(static_cast<unsigned>(random_.Below(6)))});
    return;
  }
  EmitMovImmediate(reg, PickWildSelector() | (random_.Next() << 16));
  switch (random_.Below(6)) {
    case 0:
    case 1:
      EmitSized(size, {0x0f, 0x02, modrm(other)});
      break;
    case 2:
    case 3:
      EmitSized(size, {0x0f, 0x03, modrm(other)});
      break;
    case 4:
      Emit({0x0f, 0x00, modrm(4 + static_cast<unsigned>(random_.Below(2)))});
      break;
    default:
      Emit({0x63, modrm(other)});
      break;
  }
}

// A far transfer to the next instruction, in another (or the same) code segment.
void Generator::BlockFar(unsigned depth) {
  if (random_.Percent(12)) return Block64(depth);
  u16 selector = PickSelector(vcpu::kCs);
  const bool wild = random_.Percent(tame_ ? 4 : 15);
  if (wild) selector = PickWildSelector();
  const bool code = LoadsAsCode(selector) && CodeBitsOf(selector) != 64;
  if (wild && LoadsAsCode(selector) && !code) return;  // 64-bit code has its own block
  unsigned size = random_.Percent(80) == (bits_ == 16) ? 16 : 32;
  // Where the transfer ends, before its length is known.
  auto offset_of = [&](u64 linear) {
    return code ? static_cast<u32>(OffsetOf(selector, linear))
                : static_cast<u32>(random_.Next()) & 0xffff;
  };
  if (code && OffsetOf(selector, Here() + 64) > 0xffff) size = 32;
  const unsigned bytes = size / 8;
  const unsigned prefix = size != bits_;
  switch (random_.Below(5)) {
    case 0: {  // jmp far
      Bytes jump = {0xea};
      PutLittle(&jump, offset_of(Here() + prefix + 1 + bytes + 2), bytes);
      PutLittle(&jump, selector, 2);
      EmitSized(size, std::move(jump));
      break;
    }
    case 1: {  // push, push, retf
      const bool pops = random_.Percent(20);
      EmitPush(size, selector);
      const u64 end = Here() + prefix + 1 + bytes + prefix + (pops ? 3 : 1);
      EmitPush(size, offset_of(end));
      if (pops) {
        EmitSized(size, {0xca, static_cast<u8>(2 * random_.Below(8)), 0});
      } else {
        EmitSized(size, {0xcb});
      }
      break;
    }
    case 2: {  // pushf, push, push, iret
      EmitSized(size, {0x9c});
      EmitPush(size, selector);
      EmitPush(size, offset_of(Here() + prefix + 1 + bytes + prefix + 1));
      EmitSized(size, {0xcf});
      made_.traits.unsteppable = true;
      break;
    }
    case 3: {  // jmp far [memory]
      const unsigned from = random_.Percent(70) ? unsigned{vcpu::kDs} : unsigned{vcpu::kEs};
      const u32 at = PickOffset(from, bytes + 2, false, bits_ == 32);
      // Two stores and the jump have a length that depends on nothing but their forms.
      const unsigned over = from != vcpu::kDs;
      const bool wide = at > 0xffff || bits_ == 32;
      const unsigned address = over + (wide && bits_ == 16) + (wide ? 4 : 2);
      EmitStore(from, static_cast<u32>(at + bytes) & (bits_ == 16 ? 0xffff : 0xffffffff), 16,
                selector);
      const u64 end = Here() + prefix + address + 2 + bytes + prefix + address + 2;
      EmitStore(from, at, size, offset_of(end));
      EmitAbsolute(size, {0xff}, 5, from, at);
      break;
    }
    default:
      if (code) return BlockFarCall(depth, selector, size);
      Bytes call = {0x9a};
      PutLittle(&call, static_cast<u32>(random_.Next()) & 0xffff, bytes);
      PutLittle(&call, selector, 2);
      EmitSized(size, std::move(call));
      return;
  }
  if (!code) return;
  selector_[vcpu::kCs] = selector | 3;
  bits_ = CodeBitsOf(selector);
}

// call far F; jmp end; F: ...; retf; end:
void Generator::BlockFarCall(unsigned depth, u16 selector, unsigned size) {
  const unsigned old_bits = bits_;
  const u16 old_selector = selector_[vcpu::kCs];
  // The return address must fit, too.
  if (OffsetOf(old_selector, Here() + 64) > 0xffff) size = 32;
  const unsigned bytes = size / 8;
  const unsigned jump = bits_ == 16 ? 3 : 5;
  const u64 target = Here() + (size != bits_) + 1 + bytes + 2 + jump;
  Bytes call = {0x9a};
  PutLittle(&call, static_cast<u32>(OffsetOf(selector, target)), bytes);
  PutLittle(&call, selector, 2);
  EmitSized(size, std::move(call));
  const std::size_t end = EmitJump({0xe9}, true);
  bits_ = CodeBitsOf(selector);
  selector_[vcpu::kCs] = selector | 3;
  // What the body does to CS by itself would not fit the return.
  for (u64 i = 1 + random_.Below(2); i-- > 0;) {
    if (random_.Percent(50)) {
      EmitForm(PickForm());
    } else {
      BlockSegmentLoad();
    }
  }
  (void)depth;
  if (random_.Percent(70)) {
    EmitSized(size, {0xcb});
  } else {
    EmitSized(size, {0xca, static_cast<u8>(2 * random_.Below(4)), 0});
  }
  bits_ = old_bits;
  selector_[vcpu::kCs] = old_selector;
  Bind(end);
}

void Generator::BlockIndirectNarrow(unsigned depth) {
  u8 reg;
  do {
    reg = PickGpr(true);
  } while (reg == vcpu::kRsp);
  const std::size_t move = made_.test.code.size();
  EmitMovImmediate(reg, 0);
  if (random_.Percent(50)) {
    EmitSized(32, {0xff, static_cast<u8>(0xe0 | reg)});
  } else {
    EmitSized(32, {static_cast<u8>(0x50 | reg)});
    EmitSized(32, {0xc3});
  }
  if (depth < 2) EmitInner(depth + 1);
  const u32 target = static_cast<u32>(OffsetOf(selector_[vcpu::kCs], Here()));
  Bytes& bytes = made_.test.code[move];
  for (unsigned i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<u8>(target >> (8 * i));
  known_[reg].reset();
}

// Several accesses off one base register.
void Generator::BlockRmwRunNarrow() {
  u8 base;
  do {
    base = static_cast<u8>(random_.Below(8));
  } while (base == vcpu::kRsp);
  const unsigned segment = base == vcpu::kRbp ? vcpu::kSs : vcpu::kDs;
  EmitMovImmediate(base, PickOffset(segment, 64, false, true));
  const bool prefix = bits_ == 16;  // addresses of 32 bits
  const u64 count = 2 + random_.Below(5);
  for (u64 i = 0; i < count; ++i) {
    const u8 reg = PickGpr(true);
    const u8 disp = static_cast<u8>(random_.Percent(70) ? 8 * random_.Below(8) : random_.Next());
    static constexpr u8 kOps[] = {0x8b, 0x89, 0x01, 0x03, 0x88, 0x8a, 0x33, 0x39, 0x87, 0x29};
    Bytes access = {random_.Pick(kOps), static_cast<u8>(0x40 | reg << 3 | base), disp};
    if (prefix) access.insert(access.begin(), 0x67);
    if (random_.Percent(10)) access.insert(access.begin(), 0x66);
    Emit(std::move(access));
    if (random_.Percent(25)) {  // the base moves by a known amount, perhaps over an end
      EmitSized(32, {0x83, static_cast<u8>((random_.Percent(50) ? 0xc0 : 0xe8) | base),
                     static_cast<u8>(8 * random_.Below(16))});
    }
    if (random_.Percent(10)) EmitForm(PickForm());
  }
}

void Generator::BlockStackRunNarrow() {
  if (random_.Percent(30)) EmitMovImmediate(vcpu::kRsp, SegmentSetStack());
  const u64 count = 2 + random_.Below(6);
  bool pop = random_.Percent(40);
  for (u64 i = 0; i < count; ++i) {
    if (random_.Percent(30)) pop = !pop;
    const u8 reg = PickGpr(pop);
    const unsigned size = random_.Percent(90) == (bits_ == 16) ? 16 : 32;
    EmitSized(size, {static_cast<u8>((pop ? 0x58 : 0x50) | reg)});
    if (random_.Percent(15)) {
      EmitSized(32, {0x83, static_cast<u8>(random_.Percent(50) ? 0xc4 : 0xec),
                     static_cast<u8>(4 * random_.Below(8))});
    }
    if (random_.Percent(15)) {  // mov reg, [esp+n] / mov [esp+n], reg
      Bytes access = {static_cast<u8>(random_.Percent(50) ? 0x8b : 0x89),
                      static_cast<u8>(0x44 | random_.Below(4) << 3), 0x24,
                      static_cast<u8>(4 * random_.Below(8))};
      if (bits_ == 16) access.insert(access.begin(), 0x67);
      Emit(std::move(access));
    }
  }
}

// Stores to code that is still to come, through a flat segment; the immediate of a MOV.
void Generator::BlockSelfModifyNarrow() {
  unsigned segment = vcpu::kDs;
  for (const unsigned i : {vcpu::kEs, vcpu::kDs}) {
    if (selector_[i] == kUserDs) segment = i;
  }
  if (selector_[segment] != kUserDs) return BlockRmwRunNarrow();
  const std::size_t store = made_.test.code.size();
  EmitStore(segment, kCodeBase, 32, static_cast<u32>(random_.Next()));
  if (random_.Percent(50)) EmitForm(PickForm());
  u8 reg;
  do {
    reg = PickGpr(true);
  } while (reg == vcpu::kRsp);
  EmitMovImmediate(reg, 0x1234567);
  const u32 target = static_cast<u32>(Here() - 4);
  Bytes& bytes = made_.test.code[store];
  for (unsigned i = 0; i < 4; ++i) bytes[bytes.size() - 8 + i] = static_cast<u8>(target >> (8 * i));
  known_[reg].reset();
}

// Into 64-bit code and back. What the upper halves of registers hold there is undefined.
void Generator::Block64(unsigned depth) {
  (void)depth;
  const unsigned old_bits = bits_;
  const u16 old_selector = selector_[vcpu::kCs];
  const unsigned prefix = bits_ == 16;
  Bytes jump = {0xea};
  PutLittle(&jump, static_cast<u32>(Here() + prefix + 7), 4);
  PutLittle(&jump, kUserCs64, 2);
  EmitSized(32, std::move(jump));
  bits_ = 64;
  selector_[vcpu::kCs] = kUserCs64;
  const auto known = known_;
  for (u8 reg = 0; reg < 8; ++reg) Emit({0x89, static_cast<u8>(0xc0 | reg << 3 | reg)});
  known_ = known;
  EmitMovImmediate(vcpu::kRsp, kStackBase + 2 * kPageSize - 64 + 8 * random_.Below(8));
  for (u64 i = random_.Below(4); i-- > 0;) {
    const InstructionForm& form = PickForm();
    if (form.space == Space::kLegacy && form.name != "WRFSBASE" && form.name != "WRGSBASE") {
      EmitForm(form);
    }
  }
  EmitPush(32, old_selector);
  const bool wide = random_.Percent(70);
  if (wide) {
    EmitPush(32, static_cast<u32>(OffsetOf(old_selector, Here() + 5 + 2)));
    Emit({0x48, 0xcb});
  } else {
    // retf of 32 bits takes two halves of 4 bytes: the offset, then the selector.
    EmitPush(32, static_cast<u32>(OffsetOf(old_selector, Here() + 5 + 7 + 1)));
    Emit({0x66, 0xc7, 0x44, 0x24, 0x04, static_cast<u8>(old_selector), 0});
    Emit({0xcb});
  }
  bits_ = old_bits;
  selector_[vcpu::kCs] = old_selector;
  EmitMovImmediate(vcpu::kRsp, SegmentSetStack());
}

}  // namespace alibi::oracle
