// SPDX-License-Identifier: Apache-2.0
// Blocks of several instructions that belong together.
#include <string_view>

#include "isa/decoder.h"
#include "isa/raw.h"
#include "testsuite/oracle/generator.h"

namespace alibi::oracle {

namespace {

constexpr std::size_t kMaxCodeBytes = 560;

// Instructions that may not run here although they decode as plain ones: their results depend on
// more than the state (or on where the code runs), or they change what the harness stands on.
constexpr std::string_view kNotComparable[] = {
    "RDRAND",    "RDSEED", "RDPKRU",  "WRPKRU",  "FXSAVE", "FXSAVE64", "FXRSTOR",
    "FXRSTOR64", "FNSAVE", "FSAVE",   "FNSTENV", "FSTENV", "FLDENV",   "FRSTOR",
    "XBEGIN",    "XTEST",  "PTWRITE", "RDPID",   "CLZERO", "RDPRU"};

bool Comparable(const isa::Instr& instr) {
  using isa::Op;
  using isa::Treatment;
  const std::string_view name = isa::MnemonicName(instr.mnemonic);
  // W is ignored by some CPUs, undefined to others.
  if (instr.code_bits != 64 && instr.encoding != isa::Encoding::kLegacy &&
      (name.substr(0, 5) == "VPINS" || name.substr(0, 5) == "VPEXT")) {
    return false;
  }
  if (name.substr(0, 5) == "XSAVE" || name.substr(0, 6) == "XRSTOR") return false;
  for (const std::string_view excluded : kNotComparable) {
    if (name == excluded) return false;
  }
  switch (instr.treatment) {
    case Treatment::kIdent:
    case Treatment::kStack:
      return true;
    case Treatment::kControl:
      // AMD's CPUs honor an operand-size prefix here, Intel's do not.
      if (isa::HasPrefix66(instr)) return false;
      return instr.op == Op::kRet || instr.op == Op::kJmpIndirect || instr.op == Op::kCallIndirect;
    case Treatment::kInTc:
      switch (instr.op) {
        case Op::kReadSreg:  // the host's are not the guest's in 64-bit code
          return instr.code_bits != 64;
        case Op::kCld:
        case Op::kStd:
        case Op::kMovs:
        case Op::kStos:
        case Op::kLods:
        case Op::kCmps:
        case Op::kScas:
        case Op::kBtMemory:
        case Op::kBtsMemory:
        case Op::kBtrMemory:
        case Op::kBtcMemory:
          return true;
        default:
          return false;
      }
    case Treatment::kTerminator:
      if (instr.code_bits == 64) return false;
      return instr.op == Op::kInto || instr.op == Op::kWriteSreg || instr.op == Op::kPopSreg ||
             InfoOf(instr.op).Has(isa::kLoadsFarPointer) || instr.op == Op::kJmpFar ||
             instr.op == Op::kCallFar || instr.op == Op::kRetFar;
    case Treatment::kSimulate:
      switch (instr.op) {
        case Op::kReadSreg:
        case Op::kWriteSreg:
        case Op::kPopSreg:
        case Op::kLar:
        case Op::kVerr:
        case Op::kVerw:
        case Op::kArpl:
        case Op::kAaa:
        case Op::kAad:
        case Op::kAam:
        case Op::kAas:
        case Op::kDaa:
        case Op::kDas:
        case Op::kLeave:
          return instr.code_bits != 64;
        case Op::kPusha:
        case Op::kPopa:
        case Op::kSalc:
        case Op::kBound:
        case Op::kXlat:
        case Op::kGather:
        case Op::kEnter:
          return true;
        case Op::kMaskMov32:
        case Op::kMaskMov64:
          return true;
        case Op::kMaskMovQ:
        case Op::kMaskMovDqu:
          // The CPU's model decides whether bytes that are left out may fault.
          return false;
        default:
          return false;
      }
    default:
      return false;
  }
}

}  // namespace

void Generator::EmitMovImmediate(u8 reg, u64 value) {
  Bytes bytes;
  if (eight_) value = static_cast<u32>(value);
  if (bits_ == 16) {
    bytes.push_back(0x66);
    bytes.push_back(static_cast<u8>(0xb8 | reg));
    for (unsigned i = 0; i < 4; ++i) bytes.push_back(static_cast<u8>(value >> (8 * i)));
  } else if (Narrow() || (value >> 32 == 0 && random_.Percent(70))) {
    if (reg >= 8) bytes.push_back(0x41);
    bytes.push_back(static_cast<u8>(0xb8 | (reg & 7)));
    for (unsigned i = 0; i < 4; ++i) bytes.push_back(static_cast<u8>(value >> (8 * i)));
  } else {
    bytes = {static_cast<u8>(0x48 | (reg >> 3)), static_cast<u8>(0xb8 | (reg & 7))};
    for (unsigned i = 0; i < 8; ++i) bytes.push_back(static_cast<u8>(value >> (8 * i)));
  }
  Emit(std::move(bytes));
  known_[reg] = value;
}

void Generator::EmitLeaRip(u8 reg, u64 target) {
  Bytes bytes = {static_cast<u8>(0x48 | (reg >> 3) << 2), 0x8d,
                 static_cast<u8>(5 | (reg & 7) << 3)};
  const u32 relative = static_cast<u32>(target - (Here() + 7));
  for (unsigned i = 0; i < 4; ++i) bytes.push_back(static_cast<u8>(relative >> (8 * i)));
  Emit(std::move(bytes));
}

std::size_t Generator::EmitJump(Bytes opcode, bool wide) {
  const unsigned size = !wide ? 1 : bits_ == 16 ? 2 : 4;
  for (unsigned i = 0; i < size; ++i) opcode.push_back(0);
  Emit(std::move(opcode));
  jumps_.push_back({made_.test.code.size() - 1, size, Here()});
  return jumps_.size() - 1;
}

void Generator::Bind(std::size_t jump) {
  const Jump& j = jumps_[jump];
  const u64 distance = Here() - j.end;
  Bytes& bytes = made_.test.code[j.instr];
  for (unsigned i = 0; i < j.size; ++i) {
    bytes[bytes.size() - j.size + i] = static_cast<u8>(distance >> (8 * i));
  }
}

void Generator::EmitInner(unsigned depth) {
  const u64 count = 1 + random_.Below(3);
  for (u64 i = 0; i < count; ++i) EmitAny(depth + 1);
}

void Generator::BlockIf(unsigned depth) {
  const u8 condition = static_cast<u8>(random_.Below(16));
  const bool wide = depth > 0 || random_.Percent(50);
  Bytes opcode = wide ? Bytes{0x0f, static_cast<u8>(0x80 | condition)}
                      : Bytes{static_cast<u8>(0x70 | condition)};
  if (!wide && random_.Percent(15)) {  // JCXZ, JECXZ, JRCXZ
    opcode = random_.Percent(30) ? Bytes{0x67, 0xe3} : Bytes{0xe3};
  }
  const std::size_t over = EmitJump(opcode, wide);
  if (wide) {
    EmitInner(depth);
  } else {
    EmitForm(PickForm());
  }
  if (wide && random_.Percent(30)) {
    const std::size_t end = EmitJump({0xe9}, true);
    Bind(over);
    EmitInner(depth);
    Bind(end);
    return;
  }
  Bind(over);
}

void Generator::BlockLoop(unsigned depth) {
  EmitMovImmediate(vcpu::kRcx, 1 + random_.Below(4));
  const u64 head = Here();
  const auto before = known_[vcpu::kRcx];
  EmitInner(depth);
  // Somebody wrote the counter: this must be the last round.
  if (known_[vcpu::kRcx] != before || depth > 0) EmitMovImmediate(vcpu::kRcx, 1);
  known_[vcpu::kRcx].reset();
  if (random_.Percent(50) && Here() - head < 110) {
    // LOOP, and LOOPE/LOOPNE which end earlier.
    Bytes loop = {static_cast<u8>(random_.Percent(70) ? 0xe2 : 0xe0 + random_.Below(2))};
    if (random_.Percent(15)) loop.insert(loop.begin(), 0x67);
    loop.push_back(static_cast<u8>(head - (Here() + loop.size() + 1)));
    Emit(std::move(loop));
    return;
  }
  if (random_.Percent(50)) {
    Emit({0xff, 0xc9});  // dec ecx
  } else {
    Emit({0x83, 0xe9, 0x01});  // sub ecx, 1
  }
  const unsigned size = bits_ == 16 ? 2 : 4;
  const u32 back = static_cast<u32>(head - (Here() + 2 + size));
  Bytes jump = {0x0f, 0x85};
  for (unsigned i = 0; i < size; ++i) jump.push_back(static_cast<u8>(back >> (8 * i)));
  Emit(std::move(jump));
}

void Generator::BlockCall(unsigned depth) {
  // call F; jmp end; F: ...; ret; end:
  const u64 style = random_.Below(4);
  // Of the other operand size: a return address of 16 bits in 32-bit code and vice versa.
  const bool other = segmented_ && Narrow() && random_.Percent(25) &&
                     OffsetOf(selector_[vcpu::kCs], Here() + 1000) <= 0xffff;
  const unsigned size = other ? 48 - bits_ : bits_;
  auto emit_return = [&](Bytes bytes) { other ? EmitSized(size, std::move(bytes)) : Emit(bytes); };
  if (other) {
    Bytes call = {0xe8, static_cast<u8>(bits_ == 16 ? 3 : 5), 0};
    if (size == 32) call.insert(call.end(), {0, 0});
    EmitSized(size, std::move(call));
  } else if (style == 0 && !eight_) {
    const u8 reg = PickGpr(true);
    EmitLeaRip(reg, Here() + 7 + (reg >= 8 ? 3 : 2) + 5);
    Bytes call = {0xff, static_cast<u8>(0xd0 | (reg & 7))};
    if (reg >= 8) call.insert(call.begin(), 0x41);
    Emit(call);
  } else if (bits_ == 16) {
    Emit({0xe8, 3, 0});
  } else {
    Emit({0xe8, 5, 0, 0, 0});
  }
  const std::size_t end = EmitJump({0xe9}, true);
  if (depth < 2) EmitInner(depth + 1);
  if (random_.Percent(80)) {
    emit_return({0xc3});
  } else {
    emit_return({0xc2, static_cast<u8>(8 * random_.Below(3)), 0});
  }
  Bind(end);
}

void Generator::BlockIndirect(unsigned depth) {
  if (Narrow()) return BlockIndirectNarrow(depth);
  const u8 reg = PickGpr(true);
  const std::size_t lea = made_.test.code.size();
  EmitLeaRip(reg, 0);
  const u64 lea_end = Here();
  switch (random_.Below(3)) {
    case 0: {
      Bytes jump = {0xff, static_cast<u8>(0xe0 | (reg & 7))};
      if (reg >= 8) jump.insert(jump.begin(), 0x41);
      Emit(jump);
      break;
    }
    case 1: {  // push reg; ret
      Bytes push = {static_cast<u8>(0x50 | (reg & 7))};
      if (reg >= 8) push.insert(push.begin(), 0x41);
      Emit(push);
      Emit({0xc3});
      break;
    }
    default: {  // mov [rsp-24], reg; jmp [rsp-24]
      Emit({static_cast<u8>(0x48 | (reg >> 3) << 2), 0x89, static_cast<u8>(0x44 | (reg & 7) << 3),
            0x24, 0xe8});
      Emit({0xff, 0x64, 0x24, 0xe8});
      break;
    }
  }
  if (depth < 2) EmitInner(depth + 1);
  const u32 relative = static_cast<u32>(Here() - lea_end);
  Bytes& bytes = made_.test.code[lea];
  for (unsigned i = 0; i < 4; ++i) bytes[3 + i] = static_cast<u8>(relative >> (8 * i));
}

void Generator::BlockString() {
  Bytes bytes;
  unsigned source = vcpu::kDs;
  bool wide_address = bits_ != 16;
  if (random_.Percent(segmented_ ? 25 : eight_ ? 1 : 10)) {
    bytes.push_back(0x67);
    wide_address = bits_ != 32;
  }
  if (segmented_ && random_.Percent(25)) {
    static constexpr u8 kOverrides[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65};
    source = static_cast<unsigned>(random_.Below(6));
    bytes.push_back(kOverrides[source]);
  }
  auto pointer = [&](unsigned segment) -> u64 {
    const unsigned size = static_cast<unsigned>(1 + random_.Below(64));
    if (!Narrow()) return PickTarget(size, false);
    u64 offset = PickOffset(segment, size, false, wide_address);
    if (!wide_address && random_.Percent(50)) offset |= random_.Next() << 16;
    return offset;
  };
  if (random_.Percent(85)) EmitMovImmediate(vcpu::kRsi, pointer(source));
  if (random_.Percent(85)) EmitMovImmediate(vcpu::kRdi, pointer(vcpu::kEs));
  if (random_.Percent(85))
    EmitMovImmediate(vcpu::kRcx, random_.Below(random_.Percent(20) ? 700 : 20));
  if (random_.Percent(30)) Emit({static_cast<u8>(0xfc + random_.Below(2))});
  static constexpr u8 kOps[] = {0xa4, 0xaa, 0xac, 0xa6, 0xae};
  u8 op = random_.Pick(kOps);
  if (!eight_ && random_.Percent(8)) bytes.push_back(0x64);
  if (random_.Percent(70)) bytes.push_back(static_cast<u8>(0xf2 + random_.Below(2)));
  switch (random_.Below(4)) {
    case 0:
      break;
    case 1:
      bytes.push_back(0x66);
      ++op;
      break;
    case 2:
      ++op;
      break;
    default:
      if (!Narrow()) bytes.push_back(0x48);
      ++op;
      break;
  }
  bytes.push_back(op);
  Emit(std::move(bytes));
}

void Generator::BlockDivide() {
  // Dividends and divisors that often fit, and sometimes just not.
  const bool wide = !Narrow() && random_.Percent(50);
  const bool is_signed = random_.Percent(50);
  if (random_.Percent(70)) {
    if (is_signed) {
      Emit(wide ? Bytes{0x48, 0x99} : Bytes{0x99});
    } else {
      Emit({0x31, 0xd2});
    }
  }
  u8 reg = PickGpr(false);
  if (random_.Percent(60)) {
    do {
      reg = PickGpr(true);
    } while (reg == vcpu::kRsp || reg == vcpu::kRdx || reg == vcpu::kRax);
    EmitMovImmediate(reg, random_.Percent(20) ? 0 : random_.Percent(30) ? ~u64{0} : random_.Next());
  }
  Bytes divide = {0xf7, static_cast<u8>((is_signed ? 0xf8 : 0xf0) | (reg & 7))};
  if (!Narrow()) divide.insert(divide.begin(), static_cast<u8>(0x40 | wide << 3 | (reg >> 3)));
  Emit(std::move(divide));
}

void Generator::BlockFlags() {
  made_.traits.unsteppable = true;
  if (random_.Percent(50)) {
    Emit({0x9c});
    if (random_.Percent(60)) Emit({static_cast<u8>(0x58 | random_.Below(4))});
    return;
  }
  made_.traits.user_only = true;  // POPF changes IF and IOPL there
  constexpr u64 kPopped = vcpu::kArithmeticFlags | vcpu::kDf | vcpu::kIf | vcpu::kIopl | vcpu::kId;
  u64 flags = random_.Next() & kPopped;
  if (random_.Percent(6)) flags |= vcpu::kTf;
  if (random_.Percent(10)) flags |= vcpu::kAc;
  if (!random_.Percent(30)) flags &= ~vcpu::kDf;
  EmitMovImmediate(vcpu::kRax, flags);
  Emit({0x50});
  if (random_.Percent(15)) {
    Emit({0x66, 0x9d});
  } else {
    Emit({0x9d});
  }
}

// Several accesses off one base register: they share a look-up.
void Generator::BlockRmwRun() {
  if (Narrow()) return BlockRmwRunNarrow();
  u8 base;
  do {
    base = static_cast<u8>(random_.Below(16));
  } while (base == vcpu::kR10 || base == vcpu::kR11 || (base & 7) == vcpu::kRsp);
  u64 target = PickTarget(64, false);
  if (target < kDataBase) target = kDataBase + 0x500;
  if (known_[base] && *known_[base] >= kDataBase && random_.Percent(60)) {
    target = *known_[base];
  } else {
    EmitMovImmediate(base, target);
  }
  const u64 count = 2 + random_.Below(5);
  for (u64 i = 0; i < count; ++i) {
    const u8 reg = PickGpr(true);
    const u8 disp = static_cast<u8>(random_.Percent(70) ? 8 * random_.Below(8) : random_.Next());
    static constexpr u8 kOps[] = {0x8b, 0x89, 0x01, 0x03, 0x88, 0x8a, 0x33, 0x39, 0x87, 0x29};
    Emit({static_cast<u8>(0x40 | random_.Below(2) << 3 | (reg >> 3) << 2 | (base >> 3)),
          random_.Pick(kOps), static_cast<u8>(0x40 | (reg & 7) << 3 | (base & 7)), disp});
    if (random_.Percent(15)) {  // the base moves by a known amount
      Emit({static_cast<u8>(0x48 | (base >> 3)), 0x83,
            static_cast<u8>((random_.Percent(50) ? 0xc0 : 0xe8) | (base & 7)),
            static_cast<u8>(8 * random_.Below(4))});
    }
    if (random_.Percent(10)) EmitForm(PickForm());
  }
}

void Generator::BlockStackRun() {
  if (Narrow()) return BlockStackRunNarrow();
  const u64 count = 2 + random_.Below(6);
  if (random_.Percent(20)) {
    const u64 target = random_.Percent(50) ? kStackBase + 2 * kPageSize + 8 * random_.Below(8)
                                           : kStackBase + 3 * kPageSize - 8 * random_.Below(8);
    EmitMovImmediate(vcpu::kRsp, target - random_.Below(random_.Percent(20) ? 8 : 1));
  }
  bool pop = random_.Percent(40);
  for (u64 i = 0; i < count; ++i) {
    if (random_.Percent(30)) pop = !pop;
    const u8 reg = PickGpr(pop);
    Bytes bytes;
    if (random_.Percent(5)) bytes.push_back(0x66);
    if (reg >= 8) bytes.push_back(0x41);
    bytes.push_back(static_cast<u8>((pop ? 0x58 : 0x50) | (reg & 7)));
    Emit(std::move(bytes));
    if (random_.Percent(15)) {
      Emit({0x48, 0x83, static_cast<u8>(random_.Percent(50) ? 0xc4 : 0xec),
            static_cast<u8>(8 * random_.Below(6))});
    }
    if (random_.Percent(15)) {  // mov reg, [rsp+n] / mov [rsp+n], reg
      Emit({0x48, static_cast<u8>(random_.Percent(50) ? 0x8b : 0x89),
            static_cast<u8>(0x44 | random_.Below(4) << 3), 0x24,
            static_cast<u8>(8 * random_.Below(6))});
    }
  }
}

void Generator::BlockGather() {
  // Indices are element numbers near a base: make both plausible first.
  const u8 base = vcpu::kRbx;
  EmitMovImmediate(base, Narrow() ? PickOffset(vcpu::kDs, 64, false, true) : PickTarget(64, false));
  const bool narrow_address = bits_ == 16;  // gathers need an index byte
  auto emit = [&](Bytes bytes) {
    if (narrow_address) bytes.insert(bytes.begin(), 0x67);
    Emit(std::move(bytes));
  };
  const u8 index = static_cast<u8>(random_.Below(8));
  u8 data, mask;
  do {
    data = static_cast<u8>(random_.Below(8));
    mask = static_cast<u8>(random_.Below(8));
  } while ((data == index || mask == index || data == mask) && !random_.Percent(3));
  // vpsrld index, index, 24: indices below 256
  Emit({0xc5, static_cast<u8>(0x80 | (~index & 15) << 3 | 4 | 1), 0x72,
        static_cast<u8>(0xd0 | index), 24});
  static constexpr u8 kOps[] = {0x90, 0x91, 0x92, 0x93};
  const u8 sib = static_cast<u8>(random_.Below(4) << 6 | index << 3 | base);
  if (random_.Percent(60)) {
    emit({0xc4, 0xe2,
          static_cast<u8>(random_.Below(2) << 7 | (~mask & 15) << 3 | random_.Below(2) << 2 | 1),
          random_.Pick(kOps), static_cast<u8>(4 | data << 3), sib});
  } else {
    const u8 op = static_cast<u8>(random_.Pick(kOps) + (random_.Percent(40) ? 0x10 : 0));
    emit({0x62, 0xf2, static_cast<u8>(random_.Below(2) << 7 | 0x7d),
          static_cast<u8>(random_.Below(3) << 5 | 8 | (1 + random_.Below(7))), op,
          static_cast<u8>(4 | data << 3), sib});
  }
}

void Generator::BlockXsave() {
  // Without the x87 component, whose pointers differ.
  EmitMovImmediate(vcpu::kRax, random_.Next() & 0xe6);
  Emit({0x31, 0xd2});
  const u64 area = kDataBase + 64 * random_.Below((2 * kPageSize - 2496) / 64);
  EmitMovImmediate(vcpu::kRbx, area + (random_.Percent(5) ? 8 : 0));
  const bool wide = !Narrow() && random_.Percent(50);
  auto emit = [&](std::initializer_list<u8> bytes) {
    Bytes all(bytes);
    if (wide) all.insert(all.begin(), 0x48);
    Emit(std::move(all));
  };
  emit({0x0f, 0xae, 0x23});  // xsave [rbx]
  // Whether a component in its initial configuration counts as in use depends on what the host's
  // kernel and the VMM did with it (SDM vol. 1, 13.6): or [rbx + XSTATE_BV], rax.
  Bytes mark = {0x09, 0x83, 0x00, 0x02, 0x00, 0x00};
  if (!Narrow()) mark.insert(mark.begin(), 0x48);
  Emit(std::move(mark));
  if (random_.Percent(70)) {
    EmitAny(2);
    EmitMovImmediate(vcpu::kRax, random_.Next() & 0xe6);
    Emit({0x31, 0xd2});
    EmitMovImmediate(vcpu::kRbx, area);
    emit({0x0f, 0xae, 0x2b});  // xrstor [rbx]
  }
}

// Stores into code of the sequence: the immediate or the opcode of an instruction that is still to
// come, or that has run and comes again.
void Generator::BlockSelfModify(unsigned depth) {
  const u8 reg = PickGpr(true);
  if (random_.Percent(40)) {
    // A loop whose body is changed from the second round on.
    EmitMovImmediate(vcpu::kRcx, 2 + random_.Below(3));
    const u64 head = Here();
    const u64 patched = Here();
    Emit({0x05, 1, 0, 0, 0});  // add eax, imm32
    if (random_.Percent(50)) EmitForm(PickForm());
    const u32 back = static_cast<u32>(patched + random_.Below(2) - (Here() + 7));
    // mov byte [rip + back], imm8: OR, AND, SUB, XOR, CMP for ADD, or another immediate. Not one
    // that reads flags: those that the old code overwrote are dead when the store looks up its
    // page.
    static constexpr u8 kOpcodes[] = {0x0d, 0x25, 0x2d, 0x35, 0x3d};
    Emit({0xc6, 0x05, static_cast<u8>(back), static_cast<u8>(back >> 8),
          static_cast<u8>(back >> 16), static_cast<u8>(back >> 24), random_.Pick(kOpcodes)});
    if (known_[vcpu::kRcx] || depth > 0) EmitMovImmediate(vcpu::kRcx, 1);
    known_[vcpu::kRcx].reset();
    if (Here() - head < 110) Emit({0xe2, static_cast<u8>(head - (Here() + 2))});
    return;
  }
  // mov dword [rip + ahead], imm32: the immediate of the MOV behind the filler.
  const std::size_t store = made_.test.code.size();
  const u64 value = random_.Next();
  Emit({0xc7, 0x05, 0, 0, 0, 0, static_cast<u8>(value), static_cast<u8>(value >> 8),
        static_cast<u8>(value >> 16), static_cast<u8>(value >> 24)});
  const u64 store_end = Here();
  switch (random_.Below(4)) {
    case 0:
      break;
    case 1:
      Emit({0xeb, 0x00});  // jmp +0: another TU
      break;
    default:
      EmitForm(PickForm());
      break;
  }
  const u64 target = Here() + (reg >= 8 ? 2 : 1);
  EmitMovImmediate(reg, 0x1234567);
  // EmitMovImmediate may have chosen the long form.
  const u32 ahead =
      static_cast<u32>(target + (made_.test.code.back().size() > 6 && reg < 8 ? 1 : 0) - store_end);
  for (unsigned i = 0; i < 4; ++i) {
    made_.test.code[store][2 + i] = static_cast<u8>(ahead >> (8 * i));
  }
  known_[reg].reset();
}

void Generator::EmitRandomBytes() {
  static constexpr u8 kPrefixes[] = {0x66, 0xf2, 0xf3, 0x67, 0x64, 0x65, 0x2e, 0xf0, 0x3e};
  for (unsigned attempt = 0; attempt < 200; ++attempt) {
    Bytes bytes;
    while (random_.Percent(20)) bytes.push_back(random_.Pick(kPrefixes));
    switch (random_.Below(6)) {
      case 0:
        if (!Narrow()) bytes.push_back(static_cast<u8>(0x40 | random_.Below(16)));
        break;
      case 1:
        bytes.push_back(0xc5);
        break;
      case 2:
        bytes.insert(bytes.end(),
                     {0xc4, static_cast<u8>((random_.Next() & 0xe0) | (1 + random_.Below(3)))});
        break;
      case 3:
        bytes.insert(bytes.end(),
                     {0x62, static_cast<u8>((random_.Next() & 0xf0) | (1 + random_.Below(3))),
                      static_cast<u8>(random_.Next() | 4)});
        break;
      default:
        break;
    }
    if (random_.Percent(40)) bytes.push_back(0x0f);
    while (bytes.size() < 15) bytes.push_back(static_cast<u8>(random_.Next()));
    isa::Instr instr;
    if (isa::Decode(bytes.data(), 15, LinearAddr(Here()), bits_, &instr) !=
            isa::DecodeStatus::kOk ||
        !Comparable(instr)) {
      continue;
    }
    // The stack pointer's upper half changes when a handler returns to a 16-bit stack.
    if (isa::InfoOf(instr.op).Has(isa::kLoadsSs)) {
      made_.traits.unsteppable = true;
    }
    bytes.resize(instr.length);
    Emit(std::move(bytes));
    return;
  }
}

void Generator::EmitAny(unsigned depth) {
  if (pc_ - made_.test.initial.rip > kMaxCodeBytes) return;
  const u64 choice = random_.Below(100);
  if (segmented_ && Narrow() && choice < 24) {
    switch (random_.Below(5)) {
      case 0:
      case 1:
        return BlockSegmentLoad();
      case 2:
        return BlockInspect();
      case 3:
        // A jump around a change of mode would meet code of the other one.
        if (depth == 0) return BlockFar(depth);
        return random_.Percent(40) ? Block64(depth) : BlockSegmentLoad();
      default:
        break;
    }
  }
  if (eight_ && Narrow() && choice < 45 && random_.Percent(50)) {
    switch (random_.Below(14)) {
      case 6:
      case 7:
        return BlockRmwRun();
      case 8:
      case 9:
        return BlockStackRun();
      case 10:
        return BlockIndirect(depth);
      case 11:
        return BlockGather();
      case 12:
        return BlockSelfModifyNarrow();
      case 13:
        if (!segmented_) return BlockXsave();
        return BlockRmwRun();
      case 0:
        return BlockIf(depth);
      case 1:
        return BlockLoop(depth);
      case 2:
        return BlockCall(depth);
      case 3:
        return BlockString();
      case 4:
        return BlockDivide();
      default:
        return BlockFlags();
    }
  }
  if (!eight_ && depth < 3 && choice < 22) {
    switch (random_.Below(13)) {
      case 0:
      case 1:
        return BlockIf(depth);
      case 2:
        return BlockLoop(depth);
      case 3:
        return BlockCall(depth);
      case 4:
        return BlockIndirect(depth);
      case 5:
        return BlockString();
      case 6:
        return BlockDivide();
      case 7:
        return BlockFlags();
      case 8:
      case 9:
        return BlockRmwRun();
      case 10:
        return BlockStackRun();
      case 11:
        return BlockSelfModify(depth);
      default:
        return random_.Percent(75) ? BlockGather() : BlockXsave();
    }
  }
  if (eight_ ? Narrow() && random_.Percent(tame_ ? 3 : 10) : choice < 32) return EmitRandomBytes();
  const InstructionForm* form;
  do {
    form = &PickForm();
  } while (form->rare && !random_.Percent(10));
  EmitForm(*form);
}

GeneratedCase Generator::Make(unsigned code_bits) {
  const u64 dice = random_.Below(100);
  Begin(code_bits != 0 ? code_bits : dice < 70 ? 64 : dice < 86 || !HostAllowsSegments() ? 32 : 16);
  const u64 count = 1 + random_.Below(10);
  const bool raw = random_.Percent(10);
  for (u64 i = 0; i < count; ++i) {
    if (raw) {
      EmitRandomBytes();
    } else {
      EmitAny(0);
    }
  }
  return Finish();
}

}  // namespace alibi::oracle
