// SPDX-License-Identifier: Apache-2.0
// State, operands and single instructions; the blocks are in generator_blocks.cc.
#include "testsuite/oracle/generator.h"

#include <algorithm>

#include "isa/decoder.h"

namespace alibi::oracle {

namespace {

constexpr u8 kOperandSizePrefix = 0x66, kAddressSizePrefix = 0x67, kLockPrefix = 0xf0;

constexpr bool FitsI32(u64 value) { return value == static_cast<u64>(static_cast<i32>(value)); }
constexpr bool FitsI8(u64 value) { return value == static_cast<u64>(static_cast<i8>(value)); }

template <class Bytes>
void PutLittle(Bytes* out, u64 value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) out->push_back(static_cast<u8>(value >> (8 * i)));
}

constexpr u64 kInteresting[] = {0,
                                1,
                                2,
                                7,
                                8,
                                15,
                                31,
                                32,
                                63,
                                64,
                                0x7f,
                                0x80,
                                0xff,
                                0x7fff,
                                0x8000,
                                0xffff,
                                0x7fffffff,
                                0x80000000,
                                0xffffffff,
                                0x7fffffffffffffff,
                                0x8000000000000000,
                                0xffffffffffffff80,
                                0xffffffffffffffff};

u64 RandomWord(Random* random) {
  switch (random->Below(5)) {
    case 0:
      return random->Pick(kInteresting);
    case 1:
      return random->Below(70);
    case 2:
      return random->Next() >> random->Below(64);
    default:
      return random->Next();
  }
}

}  // namespace

Generator::Generator(u64 seed) : random_(seed), seed_(seed) {}

void Generator::Begin(unsigned code_bits) {
  made_ = {};
  bits_ = code_bits;
  eight_ = code_bits != 64;
  segmented_ = code_bits == 16 || (code_bits == 32 && random_.Percent(60) && HostAllowsSegments());
  made_.traits.user_only = eight_;
  jumps_.clear();
  made_.test.seed = seed_;
  tame_ = random_.Percent(60);
  constexpr u64 kRoom = 1000;  // what a sequence may grow to
  u64 at = random_.Percent(30) ? kPageSize - random_.Below(60) : random_.Below(kCodeBytes - kRoom);
  if (at > kCodeBytes - kRoom) at = kCodeBytes - kRoom;
  made_.test.initial.rip = pc_ = kCodeBase + at;
  MakeState();
}

void Generator::MakeState() {
  CpuState& state = made_.test.initial;
  std::array<u8, 16> order;
  for (u8 i = 0; i < 16; ++i) order[i] = i;
  for (u8 i = 15; i > 0; --i) std::swap(order[i], order[random_.Below(i + 1u)]);
  for (unsigned i = 0; i < 16; ++i) {
    u64& value = state.gpr[order[i]];
    if (i < 6) {
      value = kDataBase + random_.Below(2 * kPageSize);
      if (random_.Percent(50)) value &= ~u64{63};
    } else if (i == 6) {
      value = kHighBase + random_.Below(2 * kPageSize);
    } else if (i < 9) {
      value = random_.Below(64);
    } else {
      value = RandomWord(&random_);
    }
  }
  u64& rsp = state.gpr[vcpu::kRsp];
  rsp = kStackBase + kPageSize + 8 * random_.Below(2 * kPageSize / 8);
  if (random_.Percent(70)) rsp = kStackBase + 2 * kPageSize - 256 + 8 * random_.Below(64);
  if (random_.Percent(10)) rsp += random_.Below(8);
  if (random_.Percent(40)) state.gpr[vcpu::kRbp] = rsp + 8 * random_.Below(16);
  state.fs_base = kDataBase + 16 * random_.Below(64);
  state.gs_base = random_.Percent(50) ? kHighBase : RandomWord(&random_) & 0x7fffffffffff;
  state.rflags = (random_.Next() & vcpu::kArithmeticFlags) | vcpu::kFlagsReserved1 | vcpu::kIf;
  if (random_.Percent(6)) state.rflags |= vcpu::kDf;
  if (random_.Percent(2)) {
    state.rflags |= vcpu::kAc;
    made_.traits.user_only = true;
  }
  for (unsigned i = 0; i < 16; ++i) {
    if (eight_) state.gpr[i] = i < 8 ? static_cast<u32>(state.gpr[i]) : 0;
  }
  selector_ = state.selector;
  if (eight_) MakeNarrowState();
  for (unsigned i = 0; i < 16; ++i) known_[i] = state.gpr[i];
  MakeVector();
}

void Generator::MakeVector() {
  VectorState& v = made_.test.initial.vector;
  static constexpr double kDoubles[] = {0.0, -0.0, 1.0, -1.5, 1e300, 1e-310, 2.5, 1e19, -7.0};
  static constexpr float kFloats[] = {0.0f, 1.0f, -2.5f, 1e38f, 1e-40f, 3e9f, -0.0f};
  for (auto& reg : v.zmm) {
    const u64 style = random_.Below(4);
    for (unsigned i = 0; i < 64; i += 8) {
      u64 bits = random_.Next();
      if (style == 0) std::memcpy(&bits, &random_.Pick(kDoubles), 8);
      if (style == 1) {
        std::memcpy(&bits, &random_.Pick(kFloats), 4);
        std::memcpy(reinterpret_cast<u8*>(&bits) + 4, &random_.Pick(kFloats), 4);
      }
      if (style == 2) bits = RandomWord(&random_);
      std::memcpy(reg + i, &bits, 8);
    }
  }
  for (u64& k : v.k) k = RandomWord(&random_);
  if (random_.Percent(25)) {
    // Rounding, flush to zero, denormals are zero, sticky flags; sometimes unmasked exceptions.
    v.mxcsr = static_cast<u32>(random_.Next() & 0xe07f) | 0x1f80;
    if (random_.Percent(20)) v.mxcsr &= ~static_cast<u32>(random_.Next() & 0x1f80);
  }
  if (random_.Percent(25)) {
    v.fcw = static_cast<u16>(0x7f | (random_.Next() & 0xc00) | 0x300);
    if (random_.Percent(20)) v.fcw &= static_cast<u16>(~(random_.Next() & 0x3f));
  }
  const unsigned top = static_cast<unsigned>(random_.Below(8));
  v.fsw = static_cast<u16>(top << 11);
  if (random_.Percent(20)) {
    // Exceptions and conditions from before. One that is not masked is pending, sometimes on
    // purpose.
    v.fsw |= static_cast<u16>(random_.Next() & 0x477f);
    if (random_.Percent(20)) v.fcw &= static_cast<u16>(~v.fsw | 0xffc0);
    if ((v.fsw & ~v.fcw & 0x3f) != 0) v.fsw |= 0x8080;
  }
  for (unsigned i = 0; i < 8; ++i) {
    if (random_.Percent(50)) v.ftw |= static_cast<u8>(1u << i);
    const long double value = static_cast<long double>(random_.Pick(kDoubles)) *
                              static_cast<long double>(random_.Below(1000));
    std::memcpy(v.st[i], &value, 10);
  }
}

GeneratedCase Generator::Finish() { return std::move(made_); }

void Generator::Emit(Bytes bytes) {
  Forget(bytes);
  pc_ += bytes.size();
  made_.test.code_bits.push_back(static_cast<u8>(bits_));
  made_.test.code.push_back(std::move(bytes));
}

void Generator::Forget(const Bytes& bytes) {
  isa::Instr instr;
  if (isa::Decode(bytes.data(), static_cast<unsigned>(bytes.size()), LinearAddr(pc_), bits_,
                  &instr) != isa::DecodeStatus::kOk) {
    return;
  }
  u32 written = instr.implicit_gprs_written & ~(1u << vcpu::kRsp);
  for (unsigned i = 0; i < instr.gpr_count; ++i) {
    if (instr.gprs[i].written) written |= 1u << instr.gprs[i].reg;
  }
  for (unsigned i = 0; i < 16; ++i) {
    if ((written >> i) & 1) known_[i].reset();
  }
}

u8 Generator::PickGpr(bool destination) {
  // The stolen registers are what translation must get right.
  if (!eight_ && random_.Percent(25)) return static_cast<u8>(vcpu::kR10 + random_.Below(2));
  for (;;) {
    const u8 reg = AnyGpr();
    if (destination && reg == vcpu::kRsp && !random_.Percent(5)) continue;
    if (destination && known_[reg] && *known_[reg] >= kDataBase && random_.Percent(50)) continue;
    return reg;
  }
}

u64 Generator::PickTarget(unsigned size, bool align) {
  const u64 mask = align && !random_.Percent(8) ? ~u64{size - 1} : ~u64{0};
  const u64 usual = (kDataBase + random_.Below(2 * kPageSize - size)) & mask;
  // Ends or begins `near` bytes around a boundary.
  auto around = [&](u64 boundary) {
    return (boundary - size - 2 + random_.Below(size + 5)) & mask;
  };
  switch (random_.Below(24)) {
    case 0:
    case 1:
      return around(kDataBase + kPageSize);  // both writable
    case 2:
      return (kHighBase + random_.Below(2 * kPageSize - size)) & mask;
    case 3:
      return around(kHighBase + kPageSize);
    case 4:
      return (kStackBase + kPageSize + random_.Below(2 * kPageSize - size)) & mask;
    default:
      break;
  }
  if (tame_) return usual;
  switch (random_.Below(24)) {
    case 0:
      return around(kDataBase + 2 * kPageSize);  // writable | read-only
    case 1:
      return around(kDataBase + 3 * kPageSize);  // read-only | writable
    case 2:
      return around(kDataBase + 4 * kPageSize);  // writable | absent
    case 3:
      return around(kDataBase + 5 * kPageSize);  // absent | read-only
    case 4:
      return around(kDataBase + 6 * kPageSize);  // read-only | absent
    case 5:
      return kDataBase + 2 * kPageSize + random_.Below(kPageSize - size);
    case 6:
      return kDataBase + 4 * kPageSize + random_.Below(kPageSize);
    case 7:
      return around(kHighBase);
    case 8:
      return around(kHighBase + 2 * kPageSize);
    case 9:
      return random_.Percent(50) ? around(kStackBase + kPageSize)
                                 : around(kStackBase + 3 * kPageSize);
    case 10:
      return RandomWord(&random_);
    case 11:
      // Non-canonical, and across the ends of the canonical halves.
      return random_.Percent(50) ? around(0x800000000000) : around(0xffff800000000000);
    case 12:
      return random_.Percent(50) ? around(0) : random_.Next() | u64{1} << 55;
    case 13:
      return kCodeBase + random_.Below(kCodeBytes - size);
    default:
      return usual;
  }
}

// Of the forms that the mode has.
bool Generator::Encodable(const InstructionForm& form) const {
  if (!Narrow()) return !form.narrow;
  // ARPL and nothing have taken their places.
  static constexpr const char* kOnly64[] = {"MOVSXD",   "SWAPGS",   "RDFSBASE",
                                            "RDGSBASE", "WRFSBASE", "WRGSBASE"};
  for (const char* name : kOnly64) {
    if (form.name == name) return false;
  }
  // Some CPUs ignore W, to others it is undefined.
  return form.wide != 1 || (form.space != Space::kLegacy && form.rm != Bank::kGpr);
}

const InstructionForm& Generator::PickForm() {
  for (;;) {
    const InstructionForm& form = random_.Pick(InstructionForms());
    if (Encodable(form)) return form;
  }
}

Generator::Address Generator::MakeAddress(unsigned size, bool align, bool evex) {
  // EVEX scales 8-bit displacements.
  if (Narrow()) return MakeNarrowAddress(size, align, evex);
  u64 target = PickTarget(size, align);
  Address a;
  if (!eight_ && random_.Percent(6)) {
    const bool gs = random_.Percent(50);
    a.prefixes.push_back(gs ? 0x65 : 0x64);
    target -= gs ? made_.test.initial.gs_base : made_.test.initial.fs_base;
  } else if (random_.Percent(3)) {
    static constexpr u8 kIgnored[] = {0x26, 0x2e, 0x36, 0x3e};
    a.prefixes.push_back(random_.Pick(kIgnored));
  }
  const bool narrow = target >> 32 == 0 && random_.Percent(10);
  if (narrow) a.prefixes.push_back(kAddressSizePrefix);
  auto reaches = [&](u64 from) { return narrow || FitsI32(target - from); };
  for (unsigned attempt = 0; attempt < 12; ++attempt) {
    const bool has_base = !random_.Percent(10);
    const bool has_index = random_.Percent(has_base ? 35 : 60);
    if (!has_base && !has_index) break;
    const u8 base =
        !eight_ && random_.Percent(20) ? static_cast<u8>(vcpu::kR10 + random_.Below(2)) : AnyGpr();
    const u8 index =
        !eight_ && random_.Percent(30) ? static_cast<u8>(vcpu::kR10 + random_.Below(2)) : AnyGpr();
    const unsigned scale = static_cast<unsigned>(random_.Below(4));
    if (has_index && index == vcpu::kRsp) continue;
    const bool wild = !tame_ && random_.Percent(3);
    if (!wild && ((has_base && !known_[base]) || (has_index && !known_[index]))) continue;
    u64 from = 0;
    if (has_base) from += known_[base].value_or(0);
    if (has_index) from += known_[index].value_or(0) << scale;
    if (!wild && !reaches(from)) continue;
    a.disp = target - from;
    if (narrow || wild) a.disp = static_cast<u64>(static_cast<i64>(static_cast<i32>(a.disp)));
    a.disp_size = 4;
    // EVEX scales an 8-bit displacement: there it is a (small) surprise where the access goes.
    if (FitsI8(a.disp) && (!evex || random_.Percent(10)) && !random_.Percent(20)) a.disp_size = 1;
    if (a.disp == 0 && has_base && (base & 7) != vcpu::kRbp) a.disp_size = 0;
    if (!has_base) a.disp_size = 4;
    a.has_sib = has_index || !has_base || (base & 7) == vcpu::kRsp || random_.Percent(5);
    a.modrm = a.disp_size == 0 || !has_base ? 0 : a.disp_size == 1 ? 0x40 : 0x80;
    a.rex_b = has_base && base >= 8;
    a.rex_x = has_index && index >= 8;
    if (a.has_sib) {
      a.modrm |= 4;
      a.sib = static_cast<u8>(scale << 6 | (has_index ? index & 7u : 4u) << 3 |
                              (has_base ? base & 7u : 5u));
    } else {
      a.modrm |= base & 7;
    }
    return a;
  }
  a.disp_size = 4;
  a.disp = target;
  if (!narrow && !FitsI32(target - Here())) {
    if (FitsI32(target)) {
      a.modrm = 4;
      a.has_sib = true;
      a.sib = 0x25;
      return a;
    }
    // Out of reach: load a register first.
    const u8 reg = PickGpr(true);
    if (reg == vcpu::kRsp) a.has_sib = true, a.sib = 0x24;
    EmitMovImmediate(reg, target);
    a.disp_size = 1;
    a.disp = 0;
    a.modrm = 0x40 | (reg & 7);
    a.rex_b = reg >= 8;
    if ((reg & 7) == vcpu::kRsp) {
      a.has_sib = true;
      a.sib = 0x24;
    }
    return a;
  }
  a.modrm = 5;
  a.rip_relative = true;
  return a;
}

Generator::Bytes Generator::Encode(const InstructionForm& form) {
  unsigned bits = 0;
  switch (form.size) {
    case Size::kByte:
      bits = 8;
      break;
    case Size::kAny:
      bits = random_.Percent(bits_ == 16 ? 70 : 20) ? 16
             : Narrow() || random_.Percent(45)      ? 32
                                                    : 64;
      break;
    case Size::kDoubleOrQuad:
      bits = Narrow() || random_.Percent(45) ? 32 : 64;
      break;
    case Size::kStack:
      bits = random_.Percent(bits_ == 16 ? 80 : 12) ? 16 : Narrow() ? 32 : 64;
      break;
    case Size::kNone:
      break;
  }
  u8 length = form.vector_length;
  if (form.any_length) length = static_cast<u8>(random_.Below(form.space == Space::kEvex ? 3 : 2));
  auto pick = [&](Bank bank, bool destination) -> u8 {
    switch (bank) {
      case Bank::kGpr:
        return PickGpr(destination);
      case Bank::kXmm:
        return static_cast<u8>(random_.Below(eight_ ? 8 : form.space == Space::kEvex ? 32 : 16));
      case Bank::kMmx:
      case Bank::kMask:
        return static_cast<u8>(random_.Below(8));
    }
    return 0;
  };
  const bool memory =
      form.modrm && !form.register_only && (form.memory_only || random_.Percent(55));
  const u8 reg = form.extension >= 0 ? static_cast<u8>(form.extension) : pick(form.reg, true);
  const u8 rm = pick(form.rm, form.extension >= 0 || random_.Percent(50));
  const u8 vvvv =
      form.uses_vvvv
          ? pick(form.reg == Bank::kMask && form.space == Space::kEvex ? Bank::kXmm : form.reg,
                 form.extension >= 0)
          : 0;
  Address address;
  if (memory) {
    const unsigned size = form.reg == Bank::kXmm || form.rm == Bank::kXmm ? 16u << length
                          : bits == 0                                     ? (form.align ? 16 : 8)
                                                                          : bits / 8;
    address = MakeAddress(size, form.align, form.space == Space::kEvex);
  }

  Bytes out = address.prefixes;
  const bool extend_b = memory       ? address.rex_b
                        : form.modrm ? rm & 8
                                     : form.reg_in_opcode && (rm & 8);
  const bool extend_x = memory && address.rex_x;
  const bool wide = form.wide == 1 || (form.wide < 0 && bits == 64 && form.size != Size::kStack);
  const u8 pp = form.prefix == 0x66 ? 1 : form.prefix == 0xf3 ? 2 : form.prefix == 0xf2 ? 3 : 0;
  if (form.space == Space::kLegacy) {
    if (form.lock && memory && random_.Percent(20)) out.push_back(kLockPrefix);
    // Of the 32/64-bit forms some ignore the prefix, and to some it is another instruction.
    const bool word = form.size == Size::kAny || form.size == Size::kStack;
    if (word && (bits_ == 16 ? bits == 32 : bits == 16)) out.push_back(kOperandSizePrefix);
    if (form.prefix != 0) out.push_back(form.prefix);
    const u8 rex = static_cast<u8>(wide << 3 | ((reg >> 3) & 1 && form.extension < 0) << 2 |
                                   extend_x << 1 | extend_b);
    if (!Narrow() && (rex != 0 || (bits == 8 && random_.Percent(25)) || random_.Percent(2))) {
      out.push_back(0x40 | rex);
    }
    out.insert(out.end(), form.opcode.begin(), form.opcode.end());
    if (form.reg_in_opcode) out.back() |= rm & 7;
  } else if (form.space == Space::kVex) {
    const u8 not_r = reg & 8 && form.extension < 0 ? 0 : 0x80;
    const u8 last = static_cast<u8>((~vvvv & 15) << 3 | length << 2 | pp);
    if (form.map == 1 && !extend_x && !extend_b && !wide && random_.Percent(70)) {
      out.insert(out.end(), {0xc5, static_cast<u8>(not_r | last)});
    } else {
      out.insert(
          out.end(),
          {0xc4, static_cast<u8>(not_r | (extend_x ? 0 : 0x40) | (extend_b ? 0 : 0x20) | form.map),
           static_cast<u8>(wide << 7 | last)});
    }
    out.push_back(form.opcode.back());
  } else {
    const bool r4 = form.extension < 0 && (reg & 16);
    const bool x = memory ? address.rex_x : (rm & 16) != 0;
    u8 mask = 0;
    bool zero = false, broadcast = false;
    if (form.maybe && random_.Percent(40)) {
      mask = static_cast<u8>(random_.Below(8));
      zero = mask != 0 && random_.Percent(30);
    }
    if (form.maybe && memory && random_.Percent(15)) broadcast = true;
    if (form.maybe && !memory && random_.Percent(3)) broadcast = true;  // rounding control
    const bool r3 = form.extension < 0 && (reg & 8);
    out.insert(out.end(), {0x62,
                           static_cast<u8>((r3 ? 0 : 0x80) | (x ? 0 : 0x40) |
                                           (extend_b ? 0 : 0x20) | (r4 ? 0 : 0x10) | form.map),
                           static_cast<u8>(wide << 7 | (~vvvv & 15) << 3 | 4 | pp),
                           static_cast<u8>(zero << 7 | length << 5 | broadcast << 4 |
                                           (vvvv & 16 ? 0 : 8) | mask),
                           form.opcode.back()});
  }
  std::size_t disp_at = 0;
  if (form.modrm) {
    const u8 reg_bits = static_cast<u8>((reg & 7) << 3);
    if (memory) {
      out.push_back(static_cast<u8>(address.modrm | reg_bits));
      if (address.has_sib) out.push_back(address.sib);
      disp_at = out.size();
      PutLittle(&out, address.disp, address.disp_size);
    } else {
      out.push_back(static_cast<u8>(0xc0 | reg_bits | (rm & 7)));
    }
  }
  const u64 immediate = random_.Percent(60) ? random_.Pick(kInteresting) : random_.Next();
  const unsigned full = bits / 8;
  switch (form.immediate) {
    case Immediate::kNone:
      break;
    case Immediate::kByte:
      PutLittle(&out, immediate, 1);
      break;
    case Immediate::kWord:
      PutLittle(&out, immediate & 0x3f8, 2);
      break;
    case Immediate::kUpTo4:
      PutLittle(&out, immediate, std::min(full, 4u));
      break;
    case Immediate::kFull:
      PutLittle(&out, immediate, full);
      break;
  }
  out.insert(out.end(), form.tail.begin(), form.tail.end());
  if (memory && address.rip_relative) {
    const u32 relative = static_cast<u32>(address.disp - (Here() + out.size()));
    for (unsigned i = 0; i < 4; ++i) out[disp_at + i] = static_cast<u8>(relative >> (8 * i));
  }
  return out;
}

void Generator::EmitForm(const InstructionForm& form) {
  // Of MASKMOVDQU the CPU's model decides whether bytes that are left out may fault.
  if (form.name == "MASKMOVDQU") {
    if (segmented_) return;
    EmitMovImmediate(vcpu::kRdi, kDataBase + random_.Below(2 * kPageSize - 16));
  }
  Bytes bytes = Encode(form);
  if (bytes.size() > 15) return;
  if (form.user) made_.traits.user_only = true;
  Emit(std::move(bytes));
}

std::optional<GeneratedCase> Generator::MakeOne(const InstructionForm& form, unsigned code_bits) {
  if (code_bits == 16 && !HostAllowsSegments()) return std::nullopt;
  Begin(code_bits);
  if (!Encodable(form)) return std::nullopt;
  EmitForm(form);
  made_.test.name = form.name;
  return Finish();
}

}  // namespace alibi::oracle
