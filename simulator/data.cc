// SPDX-License-Identifier: Apache-2.0
// Moves, exchanges, bit tests and decimal arithmetic.
#include "base/bits.h"
#include "isa/effective_address.h"
#include "simulator/execution.h"
#include "vcpu/cpu_differences.h"

namespace alibi::simulator {

using vcpu::kAf, vcpu::kCf, vcpu::kPf, vcpu::kSf, vcpu::kZf;
using vcpu::kRax, vcpu::kRbx;

Outcome handlers::Mov(Execution& e) {
  const Instr& instr = e.instr;
  const unsigned size = instr.mem.present ? instr.mem.size : 0;
  u64 value = instr.immediate;
  if (!instr.mem.present) {
    if (instr.gpr_count > 1) value = e.Reg(instr.gprs[1]);
    e.SetReg(instr.gprs[0], value);
    return {};
  }
  if (instr.mem.written) {
    if (instr.IsMoffs()) {
      value = e.Reg(kRax, size * 8);
    } else if (instr.gpr_count > 0) {
      value = e.Reg(instr.gprs[0]);
    }
    return e.WriteOperand(size, value);
  }
  ALIBI_RETURN_IF_FAULT(e.ReadOperand(size, &value));
  if (instr.IsMoffs()) {
    e.SetReg(kRax, size * 8, value);
  } else {
    e.SetReg(instr.gprs[0], value);
  }
  return {};
}

Outcome handlers::Lea(Execution& e) {
  e.SetReg(e.instr.gprs[0], e.Offset());
  return {};
}

Outcome handlers::Xchg(Execution& e) {
  const Instr& instr = e.instr;
  if (!instr.mem.present) {
    const GprUse& first = instr.gprs[0];
    // 90+r: the other one is the accumulator.
    const GprUse other =
        instr.gpr_count > 1 ? instr.gprs[1] : GprUse{.reg = kRax, .bits = first.bits};
    const u64 a = e.Reg(first), b = e.Reg(other);
    e.SetReg(first, b);
    e.SetReg(other, a);
    return {};
  }
  u64 old;
  ALIBI_RETURN_IF_FAULT(e.ReadForUpdate(static_cast<SegmentIndex>(instr.mem.segment), e.Offset(),
                                        instr.mem.size, &old));
  ALIBI_RETURN_IF_FAULT(e.WriteOperand(instr.mem.size, e.Reg(instr.gprs[0])));
  e.SetReg(instr.gprs[0], old);
  return {};
}

Outcome handlers::Nop(Execution&) { return {}; }

Outcome handlers::Pause(Execution& e) {
  e.context.platform.Pausing();
  return {};
}

Outcome handlers::Xlat(Execution& e) {
  const unsigned bits = e.instr.address_bits;
  u64 offset = LowBits(e.Reg(kRbx, bits) + e.Reg(kRax, 8), bits);
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.Read(e.SourceSegment(), offset, 1, &value));
  e.SetReg(kRax, 8, value);
  return {};
}

namespace {

// BT, BTS, BTR, BTC with a register as bit offset: it reaches beyond the operand. `change` makes
// the new value of (value, mask); null: there is none.
Outcome BitTest(Execution& e, u64 (*change)(u64, u64)) {
  const Instr& instr = e.instr;
  const unsigned bits = instr.operand_bits, size = bits / 8;
  const u64 index = SignExtend(e.Reg(instr.gprs[0]), bits);
  const u64 offset =
      LowBits(e.Offset() + BitStringUnit(instr, e.state.gpr), instr.mem.address_bits);
  const auto segment = static_cast<SegmentIndex>(instr.mem.segment);
  const u64 mask = u64{1} << (index & (bits - 1));
  u64 value;
  if (change == nullptr) {
    ALIBI_RETURN_IF_FAULT(e.Read(segment, offset, size, &value));
  } else {
    ALIBI_RETURN_IF_FAULT(e.ReadForUpdate(segment, offset, size, &value));
    ALIBI_RETURN_IF_FAULT(e.Write(segment, offset, size, change(value, mask)));
  }
  e.SetFlag(kCf, value & mask);
  return {};
}

}  // namespace

Outcome handlers::BtMemory(Execution& e) { return BitTest(e, nullptr); }
Outcome handlers::BtsMemory(Execution& e) {
  return BitTest(e, [](u64 value, u64 mask) { return value | mask; });
}
Outcome handlers::BtrMemory(Execution& e) {
  return BitTest(e, [](u64 value, u64 mask) { return value & ~mask; });
}
Outcome handlers::BtcMemory(Execution& e) {
  return BitTest(e, [](u64 value, u64 mask) { return value ^ mask; });
}

namespace {

void SetResultFlags(Execution& e, u8 value) {
  e.SetFlag(kZf, value == 0);
  e.SetFlag(kSf, value & 0x80);
  e.SetFlag(kPf, !__builtin_parity(value));
}

// The flags that the manuals leave undefined are here and below those of the addition or
// subtraction that does the work, unless the host's CPU has others. The oracle compares them.
bool HasOwnDecimalFlags() {
  return vcpu::HostHasIntelsWay(vcpu::HostDifference::kDecimalAdjustFlags);
}

constexpr bool Overflows(unsigned a, unsigned b, unsigned result, int direction, unsigned sign) {
  return (direction > 0 ? (a ^ result) & (b ^ result) : (a ^ b) & (a ^ result)) & sign;
}

void AsciiAdjust(Execution& e, int direction) {
  const bool adjust = (e.state.gpr[kRax] & 0xf) > 9 || (e.state.arithmetic_flags & kAf);
  const u16 old = static_cast<u16>(e.state.gpr[kRax]);
  const u16 step = adjust ? 0x106 : 0;
  const u16 ax = static_cast<u16>(old + direction * step);
  e.SetReg(kRax, 16, ax & 0xff0f);
  e.SetFlag(kAf | kCf, adjust);
  if (HasOwnDecimalFlags()) {
    SetResultFlags(e, ax & 0xf);
    e.SetFlag(vcpu::kOf, false);
    return;
  }
  e.SetFlag(kZf, ax == 0);
  e.SetFlag(kSf, ax & 0x8000);
  e.SetFlag(kPf, !__builtin_parity(ax & 0xff));
  e.SetFlag(vcpu::kOf, Overflows(old, step, ax, direction, 0x8000));
}

void DecimalAdjust(Execution& e, int direction) {
  const u8 old = static_cast<u8>(e.state.gpr[kRax]);
  const bool low = (old & 0xf) > 9 || (e.state.arithmetic_flags & kAf);
  const bool high = old > 0x99 || (e.state.arithmetic_flags & kCf);
  const u8 step = static_cast<u8>((low ? 6 : 0) + (high ? 0x60 : 0));
  const u8 al = static_cast<u8>(old + direction * step);
  // DAS also reports the borrow of its first step.
  const bool carry = high || (direction < 0 && low && old < 6);
  e.SetReg(kRax, 8, al);
  SetResultFlags(e, al);
  e.SetFlag(kAf, low);
  e.SetFlag(kCf, carry);
  e.SetFlag(vcpu::kOf, !HasOwnDecimalFlags() && Overflows(old, step, al, direction, 0x80));
}

}  // namespace

Outcome handlers::Daa(Execution& e) {
  DecimalAdjust(e, 1);
  return {};
}

Outcome handlers::Das(Execution& e) {
  DecimalAdjust(e, -1);
  return {};
}

Outcome handlers::Aaa(Execution& e) {
  AsciiAdjust(e, 1);
  return {};
}

Outcome handlers::Aas(Execution& e) {
  AsciiAdjust(e, -1);
  return {};
}

Outcome handlers::Aam(Execution& e) {
  const u8 base = static_cast<u8>(e.instr.immediate);
  const u8 al = static_cast<u8>(e.state.gpr[kRax]);
  if (base == 0) return Outcome::Simple(vcpu::kDivideError);
  e.SetReg(kRax, 16, (u64{static_cast<u8>(al / base)} << 8) | (al % base));
  e.SetFlag(kAf | kCf | vcpu::kOf, false);
  SetResultFlags(e, static_cast<u8>(al % base));
  return {};
}

Outcome handlers::Aad(Execution& e) {
  const u8 base = static_cast<u8>(e.instr.immediate);
  const u8 al = static_cast<u8>(e.state.gpr[kRax]);
  const u8 ah = static_cast<u8>(e.state.gpr[kRax] >> 8);
  const u8 product = static_cast<u8>(ah * base);
  const u8 sum = static_cast<u8>(al + product);
  e.SetReg(kRax, 16, sum);
  SetResultFlags(e, sum);
  e.SetFlag(kCf, sum < al);
  e.SetFlag(kAf, (al ^ product ^ sum) & 0x10);
  e.SetFlag(vcpu::kOf, Overflows(al, product, sum, 1, 0x80));
  return {};
}

Outcome handlers::Salc(Execution& e) {
  e.SetReg(kRax, 8, e.state.arithmetic_flags & kCf ? 0xff : 0);
  return {};
}

}  // namespace alibi::simulator
