// SPDX-License-Identifier: Apache-2.0
#include "isa/decoder.h"

#include <cpuid.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/bits.h"
#include "base/check.h"
#include "isa/decoder_library.h"
#include "isa/opcode_set.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/state.h"

namespace alibi::isa {
namespace {

using Operand = ZydisDecodedOperand;

constexpr unsigned kMaxInstructionLength = 15;

// What the predicates of instructions.inc look at.
struct Facts {
  const ZydisDecodedInstruction& zydis;
  const Operand* operands;
};

bool InRange(ZydisRegister reg, ZydisRegister first, ZydisRegister last) {
  return reg >= first && reg <= last;
}
bool IsSreg(ZydisRegister reg) { return InRange(reg, ZYDIS_REGISTER_ES, ZYDIS_REGISTER_GS); }
bool IsCr(ZydisRegister reg) { return InRange(reg, ZYDIS_REGISTER_CR0, ZYDIS_REGISTER_CR15); }
bool IsDr(ZydisRegister reg) { return InRange(reg, ZYDIS_REGISTER_DR0, ZYDIS_REGISTER_DR15); }
bool IsSystem(ZydisRegister reg) { return InRange(reg, ZYDIS_REGISTER_ES, ZYDIS_REGISTER_DR15); }

ZydisRegister RegOf(const Operand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER ? operand.reg.value : ZYDIS_REGISTER_NONE;
}

// The operand shapes that rows of instructions.inc name.
namespace shape {
bool Any(const Facts&) { return true; }
bool NoSystemRegister(const Facts& f) {
  return !IsSystem(RegOf(f.operands[0])) &&
         (f.zydis.operand_count_visible < 2 || !IsSystem(RegOf(f.operands[1])));
}
bool ToSreg(const Facts& f) { return IsSreg(RegOf(f.operands[0])); }
bool ToSs(const Facts& f) { return RegOf(f.operands[0]) == ZYDIS_REGISTER_SS; }
bool In64(const Facts& f) { return f.zydis.machine_mode == ZYDIS_MACHINE_MODE_LONG_64; }
bool Not64(const Facts& f) { return !In64(f); }
bool FromSreg(const Facts& f) { return IsSreg(RegOf(f.operands[1])); }
bool FromSregToRegister(const Facts& f) {
  return FromSreg(f) && f.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER;
}
bool ToCr(const Facts& f) { return IsCr(RegOf(f.operands[0])); }
bool ToCr2(const Facts& f) { return RegOf(f.operands[0]) == ZYDIS_REGISTER_CR2; }
bool ToCr3(const Facts& f) { return RegOf(f.operands[0]) == ZYDIS_REGISTER_CR3; }
bool FromCr(const Facts& f) { return IsCr(RegOf(f.operands[1])); }
bool Cr8(const Facts& f) {
  return RegOf(f.operands[0]) == ZYDIS_REGISTER_CR8 || RegOf(f.operands[1]) == ZYDIS_REGISTER_CR8;
}
bool ToDr(const Facts& f) { return IsDr(RegOf(f.operands[0])); }
bool FromDr(const Facts& f) { return IsDr(RegOf(f.operands[1])); }
bool Near(const Facts& f) { return f.zydis.meta.branch_type != ZYDIS_BRANCH_TYPE_FAR; }
bool NearDirect(const Facts& f) {
  return Near(f) && f.operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
}
bool NearIndirect(const Facts& f) { return Near(f) && !NearDirect(f); }
bool LegacyString(const Facts& f) { return f.zydis.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT; }
bool BitInMemory(const Facts& f) {
  return f.operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY &&
         f.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER;
}
// 0F 0D with a register operand.
bool PrefetchOfRegister(const Facts& f) {
  return f.zydis.opcode_map == ZYDIS_OPCODE_MAP_0F && f.zydis.opcode == 0x0d &&
         f.zydis.raw.modrm.mod == 3;
}
}  // namespace shape

struct Row {
  ZydisMnemonic mnemonic;
  bool (*fits)(const Facts&);
  Op op;
  Treatment treatment;
};

constexpr Row kRows[] = {
#define ALIBI_ROW(mnemonic, shape_name, op, treatment) \
  {ZYDIS_MNEMONIC_##mnemonic, shape::shape_name, Op::op, Treatment::treatment},
#include "isa/instructions.inc"
};
constexpr std::size_t kRowCount = std::size(kRows);

#define ALIBI_ROW(mnemonic, shape_name, op, treatment)                              \
  static_assert(Offers(InfoOf(Op::op), Treatment::treatment),                       \
                "instructions.inc: " #mnemonic " is " #treatment ", for which " #op \
                " has no function in ops.inc");
#include "isa/instructions.inc"

static_assert(
    [] {
      std::array<bool, kOpCount> used{};
      for (const Row& row : kRows) used[static_cast<std::size_t>(row.op)] = true;
      return std::all_of(used.begin(), used.end(), [](bool u) { return u; });
    }(),
    "every operation of ops.inc has a row in instructions.inc");

// Mnemonic -> first row (kNoRow: its instruction set decides). Rows of one mnemonic are adjacent.
constexpr u8 kNoRow = 0xff;
static_assert(kRowCount < kNoRow);
constexpr auto kFirstRow = [] {
  std::array<u8, ZYDIS_MNEMONIC_MAX_VALUE + 1> first{};
  for (u8& f : first) f = kNoRow;
  for (std::size_t i = kRowCount; i-- > 0;) first[kRows[i].mnemonic] = static_cast<u8>(i);
  return first;
}();

// What a new version of the library adds is #UD until somebody has looked at it.
static_assert(
    ZYDIS_ISA_SET_MAX_VALUE == 182 && ZYDIS_MNEMONIC_MAX_VALUE == 1754,
    "This Zydis knows other instructions than the one that instructions.inc was written "
    "for. New instruction sets: ALIBI_IDENT_SET, if all they do is compute. New mnemonics "
    "of sets that have it: an ALIBI_ROW, if they do more. Then adapt these numbers; "
    "decoder_deny_test walks over all of it.");
constexpr auto kIdentSet = [] {
  std::array<bool, ZYDIS_ISA_SET_MAX_VALUE + 1> ident{};
#define ALIBI_IDENT_SET(name) ident[ZYDIS_ISA_SET_##name] = true;
#include "isa/instructions.inc"
  return ident;
}();

constexpr auto kKeepsUndefined = [] {
  std::array<bool, ZYDIS_MNEMONIC_MAX_VALUE + 1> keeps{};
#define ALIBI_KEEPS_UNDEFINED(mnemonic) keeps[ZYDIS_MNEMONIC_##mnemonic] = true;
#include "isa/instructions.inc"
  return keeps;
}();

constexpr auto kFacts = [] {
  std::array<u16, ZYDIS_MNEMONIC_MAX_VALUE + 1> facts{};
#define ALIBI_FACT(mnemonic, fact) facts[ZYDIS_MNEMONIC_##mnemonic] |= fact;
#include "isa/instructions.inc"
  return facts;
}();

// Sizes that instructions.inc states itself; kLibrarySize: as the library says.
constexpr u16 kLibrarySize = 0xffff, kWholeXsaveArea = 0xfffe;
constexpr auto kMemSize = [] {
  std::array<u16, ZYDIS_MNEMONIC_MAX_VALUE + 1> size{};
  for (u16& s : size) s = kLibrarySize;
#define ALIBI_MEM_SIZE(mnemonic, bytes) size[ZYDIS_MNEMONIC_##mnemonic] = bytes;
#include "isa/instructions.inc"
  return size;
}();

// What the host's XSAVE may touch with the features its kernel has enabled.
u16 HostXsaveAreaSize() {
  static const u16 size = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid_count(0xd, 0, &eax, &ebx, &ecx, &edx) || ebx == 0) return u16{576};
    return static_cast<u16>(std::min(ebx, unsigned{vcpu::kXsaveAreaSize}));
  }();
  return size;
}

// Where AMD's CPUs and Intel's differ in encodings the guest gets the host's way, as it does where
// instructions are IDENT; only a CPU model of another vendor shows another one.
bool NarrowsBranches() { return !vcpu::HostHasIntelsWay(vcpu::HostDifference::kNarrowBranch); }

}  // namespace

Feature FeatureOf(ZydisISASet set) {
  static const auto features = [] {
    struct Row {
      std::string_view prefix;
      Feature feature;
    };
    constexpr Row kFeatureRows[] = {
#define ALIBI_FEATURE_OF(prefix, name) {prefix, Feature::name},
#include "isa/features.inc"
    };
    std::array<Feature, ZYDIS_ISA_SET_MAX_VALUE + 1> all{};
    for (unsigned i = 0; i < all.size(); ++i) {
      const std::string_view name = ZydisISASetGetString(static_cast<ZydisISASet>(i));
      for (const Row& row : kFeatureRows) {
        if (name.substr(0, row.prefix.size()) != row.prefix) continue;
        all[i] = row.feature;
        break;
      }
    }
    return all;
  }();
  return features[set];
}

const ZydisDecoder& DecoderFor(unsigned code_bits) {
  static const std::array<ZydisDecoder, 3> decoders = [] {
    std::array<ZydisDecoder, 3> d;
    ZydisDecoderInit(&d[0], ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16);
    ZydisDecoderInit(&d[1], ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
    ZydisDecoderInit(&d[2], ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    // A CPU without MPX runs its opcodes as NOPs.
    for (ZydisDecoder& decoder : d) {
      ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
      ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_AMD_BRANCHES,
                             NarrowsBranches() ? ZYAN_TRUE : ZYAN_FALSE);
    }
    return d;
  }();
  return decoders[code_bits >> 5];
}

namespace {

// A general-purpose register of any width.
struct GprName {
  u8 reg = kNoReg;
  u8 bits = 0;
  bool high_byte = false;
};

constexpr auto kGprNames = [] {
  std::array<GprName, ZYDIS_REGISTER_R15 + 1> names{};
  for (u8 i = 0; i < 4; ++i) {
    names[ZYDIS_REGISTER_AL + i] = {i, 8, false};
    names[ZYDIS_REGISTER_AH + i] = {i, 8, true};
    names[ZYDIS_REGISTER_SPL + i] = {static_cast<u8>(4 + i), 8, false};
  }
  for (u8 i = 0; i < 8; ++i) names[ZYDIS_REGISTER_R8B + i] = {static_cast<u8>(8 + i), 8, false};
  for (u8 i = 0; i < 16; ++i) {
    names[ZYDIS_REGISTER_AX + i] = {i, 16, false};
    names[ZYDIS_REGISTER_EAX + i] = {i, 32, false};
    names[ZYDIS_REGISTER_RAX + i] = {i, 64, false};
  }
  return names;
}();

GprName NameOf(ZydisRegister reg) { return reg <= ZYDIS_REGISTER_R15 ? kGprNames[reg] : GprName{}; }

u16 BitOf(ZydisRegister reg) {
  GprName name = NameOf(reg);
  return name.reg == kNoReg ? 0 : static_cast<u16>(1u << name.reg);
}

u8 SegmentOfPrefix(u8 prefix) {
  switch (prefix) {
    case 0x26:
      return vcpu::kEs;
    case 0x2e:
      return vcpu::kCs;
    case 0x36:
      return vcpu::kSs;
    case 0x3e:
      return vcpu::kDs;
    case 0x64:
      return vcpu::kFs;
    case 0x65:
      return vcpu::kGs;
    default:
      return 0xff;
  }
}

void ReadPrefixes(const ZydisDecodedInstruction& z, Instr* out) {
  for (unsigned i = 0; i < z.raw.prefix_count; ++i) {
    u8 prefix = z.raw.prefixes[i].value;
    if (prefix == 0xf0) out->lock = true;
    // Of several the last counts.
    if (prefix == 0xf2 || prefix == 0xf3) {
      out->repne = prefix == 0xf2;
      out->rep = prefix == 0xf3;
    }
    u8 segment = SegmentOfPrefix(prefix);
    // 64-bit mode ignores the other four, even behind an FS or GS prefix.
    if (segment != 0xff && (out->code_bits != 64 || segment >= vcpu::kFs)) {
      out->segment_override = segment;
    }
  }
}

void ReadLayout(const ZydisDecodedInstruction& z, Instr* out) {
  Layout& layout = out->layout;
  switch (z.encoding) {
    case ZYDIS_INSTRUCTION_ENCODING_XOP:
      out->encoding = Encoding::kXop;
      layout.vector_prefix = z.raw.xop.offset;
      break;
    case ZYDIS_INSTRUCTION_ENCODING_VEX:
      out->encoding = Encoding::kVex;
      layout.vector_prefix = z.raw.vex.offset;
      break;
    case ZYDIS_INSTRUCTION_ENCODING_EVEX:
      out->encoding = Encoding::kEvex;
      layout.vector_prefix = z.raw.evex.offset;
      break;
    default:
      out->encoding = Encoding::kLegacy;
      if (z.attributes & ZYDIS_ATTRIB_HAS_REX) layout.rex = z.raw.rex.offset;
  }
  if (z.raw.disp.size != 0) {
    layout.disp = z.raw.disp.offset;
    layout.disp_size = z.raw.disp.size / 8;
  }
  if (z.raw.imm[0].size != 0) {
    layout.imm = z.raw.imm[0].offset;
    layout.imm_size = static_cast<u8>((z.raw.imm[0].size + z.raw.imm[1].size) / 8);
  }
  if (z.attributes & ZYDIS_ATTRIB_HAS_MODRM) {
    layout.modrm = z.raw.modrm.offset;
    layout.opcode = static_cast<u8>(layout.modrm - 1);
    if (z.attributes & ZYDIS_ATTRIB_HAS_SIB) layout.sib = z.raw.sib.offset;
  } else {
    // The opcode ends where the first other part begins.
    unsigned end = z.length;
    if (layout.disp_size != 0) end = std::min<unsigned>(end, layout.disp);
    if (layout.imm_size != 0) end = std::min<unsigned>(end, layout.imm);
    layout.opcode = static_cast<u8>(end - 1);
  }
}

void ReadImmediates(const ZydisDecodedInstruction& z, Instr* out) {
  const auto& imm = z.raw.imm[0];
  if (imm.size == 0) return;
  out->immediate = imm.value.u;
  out->immediate2 = z.raw.imm[1].size != 0 ? z.raw.imm[1].value.u : 0;
  out->layout.imm_kind = z.raw.imm[1].size != 0 ? ImmKind::kPair
                         : imm.is_relative      ? ImmKind::kRelative
                         : imm.is_signed        ? ImmKind::kSigned
                                                : ImmKind::kUnsigned;
  if (imm.is_relative) {
    unsigned ip_bits = z.operand_width == 16 ? 16 : out->code_bits == 64 ? 64 : 32;
    out->branch_target = LinearAddr(LowBits(out->next_pc().value + imm.value.u, ip_bits));
  } else if (imm.is_signed) {
    out->immediate = LowBits(imm.value.u, z.operand_width);
  }
}

void ReadFlags(const ZydisDecodedInstruction& z, Instr* out) {
  if (z.cpu_flags == nullptr) return;
  const ZydisAccessedFlags& flags = *z.cpu_flags;
  out->flags_read = flags.tested & vcpu::kArithmeticFlags;
  out->flags_written = (flags.modified | flags.set_0 | flags.set_1 | flags.undefined) &
                       static_cast<u32>(vcpu::kArithmeticFlags);
  if (kKeepsUndefined[z.mnemonic]) out->flags_kept_maybe = flags.undefined & out->flags_written;
}

// Operands that must be aligned to their size: the exception classes of SDM vol. 2, 2.4 and 2.7.
u8 DemandedAlignment(const ZydisDecodedInstruction& z, unsigned size) {
  if (z.mnemonic == ZYDIS_MNEMONIC_CMPXCHG16B || z.mnemonic == ZYDIS_MNEMONIC_CVTPD2PI ||
      z.mnemonic == ZYDIS_MNEMONIC_CVTTPD2PI) {
    return 16;
  }
  if (z.mnemonic >= ZYDIS_MNEMONIC_FXRSTOR && z.mnemonic <= ZYDIS_MNEMONIC_FXSAVE64) return 16;
  if (z.meta.isa_ext == ZYDIS_ISA_EXT_XSAVE || z.meta.isa_ext == ZYDIS_ISA_EXT_XSAVEC ||
      z.meta.isa_ext == ZYDIS_ISA_EXT_XSAVEOPT) {
    return 64;
  }
  switch (z.meta.exception_class) {
    case ZYDIS_EXCEPTION_CLASS_SSE1:
    case ZYDIS_EXCEPTION_CLASS_SSE2:
      // Of scalar operands nothing is demanded.
      return size == 16 ? 16 : 1;
    case ZYDIS_EXCEPTION_CLASS_SSE4:
      // But for what stands in this class and is made to be unaligned.
      switch (z.mnemonic) {
        case ZYDIS_MNEMONIC_MOVUPS:
        case ZYDIS_MNEMONIC_MOVUPD:
        case ZYDIS_MNEMONIC_MOVDQU:
        case ZYDIS_MNEMONIC_LDDQU:
        case ZYDIS_MNEMONIC_MASKMOVDQU:
        case ZYDIS_MNEMONIC_PCMPESTRI:
        case ZYDIS_MNEMONIC_PCMPESTRM:
        case ZYDIS_MNEMONIC_PCMPISTRI:
        case ZYDIS_MNEMONIC_PCMPISTRM:
          return 1;
        case ZYDIS_MNEMONIC_SHA1MSG1:
        case ZYDIS_MNEMONIC_SHA1MSG2:
        case ZYDIS_MNEMONIC_SHA1NEXTE:
        case ZYDIS_MNEMONIC_SHA1RNDS4:
        case ZYDIS_MNEMONIC_SHA256MSG1:
        case ZYDIS_MNEMONIC_SHA256MSG2:
        case ZYDIS_MNEMONIC_SHA256RNDS2:
          return vcpu::HostHasIntelsWay(vcpu::HostDifference::kShaAlignment) ? 16 : 1;
        default:
          return size == 16 ? 16 : 1;
      }
    case ZYDIS_EXCEPTION_CLASS_AVX1:
    case ZYDIS_EXCEPTION_CLASS_E1:
    case ZYDIS_EXCEPTION_CLASS_E1NF:
      return static_cast<u8>(size);
    default:
      return 1;
  }
}

// The alignment that CR0.AM checks (SDM vol. 3, table 6-7). Whether 16 bytes and more are checked,
// where the instruction itself does not demand alignment, is the processor's choice.
u8 CheckedAlignment(const ZydisDecodedInstruction& z, unsigned size) {
  switch (z.meta.exception_class) {
    case ZYDIS_EXCEPTION_CLASS_AVX11:
    case ZYDIS_EXCEPTION_CLASS_E11:
      if (vcpu::HostHasIntelsWay(vcpu::HostDifference::kHalfConversionAlignment)) return 1;
      break;
    default:
      break;
  }
  switch (size) {
    case 2:
    case 4:
    case 8:
      return static_cast<u8>(size);
    case 10:  // an extended double
      return 8;
    case 14:  // the x87 environment and state, in two formats
    case 28:
    case 94:
    case 108:
      return z.operand_width / 8;
    default:
      return 1;
  }
}

void ReadMask(const ZydisDecodedInstruction& z, const Operand* operands, const Operand& memory,
              MemOperand* mem) {
  if (z.encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX || mem->size == 0 || mem->vsib ||
      z.avx.mask.mode <= ZYDIS_MASK_MODE_DISABLED || memory.element_size < 8) {
    return;
  }
  switch (z.meta.exception_class) {
    case ZYDIS_EXCEPTION_CLASS_E1:
    case ZYDIS_EXCEPTION_CLASS_E2:
    case ZYDIS_EXCEPTION_CLASS_E3:
    case ZYDIS_EXCEPTION_CLASS_E4:
    case ZYDIS_EXCEPTION_CLASS_E5:
    case ZYDIS_EXCEPTION_CLASS_E6:
    case ZYDIS_EXCEPTION_CLASS_E10:
    case ZYDIS_EXCEPTION_CLASS_E11:
      break;
    default:
      return;
  }
  // A mask bit of theirs takes in several memory elements: no faults are suppressed.
  if (z.mnemonic == ZYDIS_MNEMONIC_VGF2P8AFFINEQB ||
      z.mnemonic == ZYDIS_MNEMONIC_VGF2P8AFFINEINVQB || z.mnemonic == ZYDIS_MNEMONIC_VDBPSADBW ||
      z.mnemonic == ZYDIS_MNEMONIC_VCVTNE2PS2BF16) {
    return;
  }
  if (z.avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID) {
    // From so many memory elements to so many lanes, by broadcast mode.
    constexpr u8 kFrom[] = {0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 8};
    constexpr u8 kTo[] = {0, 2, 4, 8, 16, 32, 64, 4, 8, 16, 8, 16, 16};
    static_assert(std::size(kTo) == ZYDIS_BROADCAST_MODE_MAX_VALUE + 1);
    mem->masked_element = static_cast<u8>(mem->size / kFrom[z.avx.broadcast.mode]);
    mem->mask_bits = kTo[z.avx.broadcast.mode];
    mem->mask_register = z.raw.evex.aaa;
    return;
  }
  unsigned element_bits = memory.element_size;
  // Several memory elements may make up one of the destination (dot products).
  const Operand& destination = operands[0];
  if (destination.type == ZYDIS_OPERAND_TYPE_REGISTER && destination.size == memory.size) {
    element_bits = std::max<unsigned>(element_bits, destination.element_size);
  }
  mem->masked_element = static_cast<u8>(element_bits / 8);
  mem->mask_bits = static_cast<u8>(mem->size / mem->masked_element);
  mem->mask_register = z.raw.evex.aaa;
  mem->packed =
      z.meta.category == ZYDIS_CATEGORY_COMPRESS || z.meta.category == ZYDIS_CATEGORY_EXPAND;
}

// What the instruction accesses of the operand, in bytes.
u16 AccessedBytes(const ZydisDecodedInstruction& z, const Operand& operand) {
  if (z.mnemonic == ZYDIS_MNEMONIC_MOVSXD && z.operand_width == 16 &&
      vcpu::HostHasIntelsWay(vcpu::HostDifference::kNarrowMovsxd)) {
    return 2;
  }
  const u16 stated = kMemSize[z.mnemonic];
  return stated == kLibrarySize      ? static_cast<u16>(operand.size / 8)
         : stated == kWholeXsaveArea ? HostXsaveAreaSize()
                                     : stated;
}

void ReadMemory(const ZydisDecodedInstruction& z, const Operand& operand, Instr* out) {
  MemOperand& mem = out->mem;
  mem.present = true;
  mem.address_bits = z.address_width;
  mem.vsib = operand.mem.type == ZYDIS_MEMOP_TYPE_VSIB;
  mem.disp = operand.mem.disp.value;
  mem.scale = operand.mem.scale == 0 ? 1 : operand.mem.scale;
  if (operand.mem.base == ZYDIS_REGISTER_RIP || operand.mem.base == ZYDIS_REGISTER_EIP) {
    mem.rip_relative = true;
  } else {
    mem.base = NameOf(operand.mem.base).reg;
  }
  // mod 00 with base 101: no base, whatever extends the register number. Zydis 4.0.0 takes it for
  // r13 when the address has 32 bits.
  if ((z.attributes & ZYDIS_ATTRIB_HAS_SIB) && z.raw.modrm.mod == 0 && z.raw.sib.base == 5) {
    mem.base = kNoReg;
    mem.disp = z.raw.disp.value;
  }
  if (mem.vsib) {
    mem.index = static_cast<u8>(ZydisRegisterGetId(operand.mem.index));
  } else {
    mem.index = NameOf(operand.mem.index).reg;
  }
  if (out->segment_override != 0xff) {
    mem.segment = out->segment_override;
  } else {
    bool stack = mem.base == vcpu::kRsp || mem.base == vcpu::kRbp;
    mem.segment = stack ? vcpu::kSs : vcpu::kDs;
  }
  mem.stack_segment = mem.segment == vcpu::kSs;
  mem.size = AccessedBytes(z, operand);
  mem.alignment = DemandedAlignment(z, mem.size);
  mem.checked_alignment = CheckedAlignment(z, mem.size);
  mem.read = mem.size != 0 && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ);
  mem.written = mem.size != 0 && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE);
}

void ReadRegister(const ZydisDecodedInstruction& z, const Operand& operand, Instr* out) {
  // With a source of zero every known CPU leaves the destination alone (AMD documents it).
  const bool keeps_destination =
      z.mnemonic == ZYDIS_MNEMONIC_BSF || z.mnemonic == ZYDIS_MNEMONIC_BSR;
  GprName name = NameOf(operand.reg.value);
  if (name.reg == kNoReg) {
    if (IsSystem(operand.reg.value) && out->system_reg == kNoReg) {
      ZydisRegister first = IsSreg(operand.reg.value) ? ZYDIS_REGISTER_ES
                            : IsCr(operand.reg.value) ? ZYDIS_REGISTER_CR0
                                                      : ZYDIS_REGISTER_DR0;
      if (operand.reg.value >= first) {
        out->system_reg = static_cast<u8>(operand.reg.value - first);
      }
    }
    return;
  }
  bool written = operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
  // What a conditional or partial write leaves alone was an input.
  bool read = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) ||
              (operand.actions & ZYDIS_OPERAND_ACTION_CONDWRITE) || (written && name.bits < 32) ||
              keeps_destination;
  RegSlot slot;
  switch (operand.encoding) {
    case ZYDIS_OPERAND_ENCODING_MODRM_REG:
      slot = RegSlot::kModRmReg;
      break;
    case ZYDIS_OPERAND_ENCODING_MODRM_RM:
      slot = RegSlot::kModRmRm;
      break;
    case ZYDIS_OPERAND_ENCODING_NDSNDD:
      slot = RegSlot::kVvvv;
      break;
    case ZYDIS_OPERAND_ENCODING_OPCODE:
      slot = RegSlot::kOpcode;
      break;
    default:
      if (read) out->implicit_gprs_read |= 1u << name.reg;
      if (written) out->implicit_gprs_written |= 1u << name.reg;
      return;
  }
  ALIBI_CHECK(out->gpr_count < out->gprs.size(), "an instruction names at most four GPRs");
  out->gprs[out->gpr_count++] = {slot, name.reg, name.bits, name.high_byte, read, written};
}

void ReadOperands(const ZydisDecodedInstruction& z, const Operand* operands, Instr* out) {
  for (unsigned i = 0; i < z.operand_count; ++i) {
    const Operand& operand = operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      ReadRegister(z, operand, out);
    } else if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      if (operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN) {
        out->implicit_gprs_read |= BitOf(operand.mem.base) | BitOf(operand.mem.index);
      } else {
        ReadMemory(z, operand, out);
        ReadMask(z, operands, operand, &out->mem);
      }
    }
  }
}

// x87, MMX and SSE instructions by what they are encoded as: the extension that introduced an
// instruction says little (SSE brought MMX instructions and prefetches, SSE3 brought FISTTP).
Unit LegacyUnit(const ZydisDecodedInstruction& z, const Operand* operands) {
  if (z.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT) {
    if (z.opcode == 0x9b) return Unit::kWait;
    return (z.opcode & 0xf8) == 0xd8 ? Unit::kX87 : Unit::kNone;
  }
  Unit unit = Unit::kNone;
  for (unsigned i = 0; i < z.operand_count; ++i) {
    const ZydisRegister reg = RegOf(operands[i]);
    if (InRange(reg, ZYDIS_REGISTER_XMM0, ZYDIS_REGISTER_XMM31) || reg == ZYDIS_REGISTER_MXCSR) {
      return Unit::kSse;
    }
    if (InRange(reg, ZYDIS_REGISTER_MM0, ZYDIS_REGISTER_MM7)) unit = Unit::kMmx;
  }
  // A conversion from memory names no vector register.
  if (z.meta.category == ZYDIS_CATEGORY_CONVERT && z.opcode_map == ZYDIS_OPCODE_MAP_0F) {
    return Unit::kSse;
  }
  return z.meta.isa_ext == ZYDIS_ISA_EXT_MMX ? Unit::kMmx : unit;
}

Unit UnitOf(const ZydisDecodedInstruction& z, const Operand* operands, Op op) {
  switch (op) {
    case Op::kFxsave:
    case Op::kFxrstor:
      return Unit::kFxsave;
    case Op::kXsave:
    case Op::kXsavec:
    case Op::kXsaveopt:
    case Op::kXrstor:
      return Unit::kXsave;
    default:
      break;
  }
  switch (z.encoding) {
    case ZYDIS_INSTRUCTION_ENCODING_EVEX:
      return Unit::kAvx512;
    case ZYDIS_INSTRUCTION_ENCODING_VEX:
      if (z.meta.isa_ext == ZYDIS_ISA_EXT_BMI1 || z.meta.isa_ext == ZYDIS_ISA_EXT_BMI2) {
        return Unit::kVexGpr;
      }
      return z.meta.isa_ext == ZYDIS_ISA_EXT_AVX512VEX ? Unit::kAvx512 : Unit::kAvx;
    default:
      return LegacyUnit(z, operands);
  }
}

// Shift and rotate counts of zero leave the flags alone.
bool IsShift(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD:
      return true;
    default:
      return false;
  }
}

void RefineFlags(const ZydisDecodedInstruction& z, Instr* out) {
  if (IsShift(z.mnemonic) && z.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
    bool shift_by_one = z.opcode == 0xd0 || z.opcode == 0xd1;
    if (out->layout.imm_size != 0) {
      unsigned mask = out->operand_bits == 64 ? 63 : 31;
      if ((out->immediate & mask) == 0) out->flags_written = 0;
    } else if (!shift_by_one) {
      out->flags_written_maybe = true;  // by CL
    }
  } else if ((out->op == Op::kCmps || out->op == Op::kScas) && (out->rep || out->repne)) {
    out->flags_written_maybe = true;  // RCX may be zero
  }
}

void Classify(const ZydisDecodedInstruction& z, const Operand* operands, Instr* out) {
  u8 row = kFirstRow[z.mnemonic];
  if (row != kNoRow) {
    Facts facts{z, operands};
    for (; row < kRowCount && kRows[row].mnemonic == z.mnemonic; ++row) {
      if (kRows[row].fits(facts)) {
        out->op = kRows[row].op;
        out->treatment = kRows[row].treatment;
        // NOPs of CPUs that do not have the feature.
        const bool nop = out->op == Op::kNone || out->op == Op::kNop;
        if (nop && out->treatment == Treatment::kIdent) out->feature = Feature::kBase;
        // VMCALL: not CPUID decides whether there is another side, but the platform.
        if (out->op == Op::kHypercall) out->feature = Feature::kBase;
        return;
      }
    }
  }
  if (!kIdentSet[z.meta.isa_set]) {
    out->op = Op::kUd;
    out->treatment = Treatment::kUndefined;
  }
}

// Near branches of 64-bit code with an operand-size prefix have 16-bit targets on AMD's CPUs (APM
// vol. 3, 1.2.2); Intel's ignore the prefix (SDM vol. 2, 2.2.1.2). Too rare for an emitted
// sequence. The library knows them only where the prefix changes the displacement's size.
void NarrowBranch(const ZydisDecodedInstruction& z, Instr* out) {
  if (out->code_bits != 64 || out->treatment != Treatment::kControl || z.raw.prefix_count == 0) {
    return;
  }
  bool has_66 = false;
  for (unsigned i = 0; i < z.raw.prefix_count; ++i) has_66 |= z.raw.prefixes[i].value == 0x66;
  if (!has_66 || z.raw.rex.W || !NarrowsBranches()) return;
  out->treatment = Treatment::kTerminator;
  out->operand_bits = 16;
  out->branch_target = LinearAddr(LowBits(out->branch_target.value, 16));
  if (out->mem.present) out->mem.size = out->mem.checked_alignment = 2;
  for (unsigned i = 0; i < out->gpr_count; ++i) out->gprs[i].bits = 16;
}

// VPEXTRD and VPINSRD with VEX.W outside 64-bit mode: Intel's CPUs ignore W; AMD's take it to say
// VPEXTRQ and VPINSRQ, which need 64-bit mode. (Other ignored Ws are dropped in rewriting.)
void RefuseWideExtract(const ZydisDecodedInstruction& z, Instr* out) {
  if (z.mnemonic != ZYDIS_MNEMONIC_VPEXTRD && z.mnemonic != ZYDIS_MNEMONIC_VPINSRD) return;
  if (out->code_bits == 64 || out->encoding != Encoding::kVex ||
      vcpu::HostHasIntelsWay(vcpu::HostDifference::kWideExtract)) {
    return;
  }
  if (!(out->bytes[out->layout.vector_prefix + 2u] & 0x80)) return;
  out->op = Op::kUd;
  out->treatment = Treatment::kUndefined;
}

// The W of AVX512-FP16's conversions from and to general registers, which CPUs ignore outside
// 64-bit mode (SDM vol. 2, VCVTSI2SH) and the library refuses there. Where it is, or 0.
unsigned RefusedW(const u8* bytes, unsigned available, unsigned code_bits) {
  if (code_bits == 64) return 0;
  unsigned at = 0;
  const auto is_prefix = [](u8 byte) {  // those that may stand in front of EVEX
    return byte == 0x26 || byte == 0x2e || byte == 0x36 || byte == 0x3e || byte == 0x64 ||
           byte == 0x65 || byte == 0x67;
  };
  while (at < available && is_prefix(bytes[at])) ++at;
  if (at + 5 > available || bytes[at] != 0x62) return 0;
  const bool evex = (bytes[at + 1] & 0xc0) == 0xc0, map5 = (bytes[at + 1] & 7) == 5;
  const bool wide = bytes[at + 2] & 0x80, scalar = (bytes[at + 2] & 3) == 2;
  if (!evex || !map5 || !wide || !scalar) return 0;
  for (const u8 opcode : {0x2a, 0x2c, 0x2d, 0x78, 0x79, 0x7b}) {
    if (bytes[at + 4] == opcode) return at + 2;
  }
  return 0;
}

// What the sets of opcodes say.
unsigned LegacyFacts(const ZydisDecodedInstruction& z, const Instr& instr) {
  const bool fault_free =
      instr.unit == Unit::kNone && (instr.op == Op::kNone || !InfoOf(instr.op).Has(kDivides));
  switch (z.opcode_map) {
    case ZYDIS_OPCODE_MAP_DEFAULT:
      return fault_free && kFaultFreeOpcodes.Has(z.opcode) ? kCannotFault : 0;
    case ZYDIS_OPCODE_MAP_0F: {
      // RDRAND and RDSEED have 16-bit forms.
      const bool group9_memory = z.opcode == 0xc7 && instr.mem.present;
      unsigned facts = group9_memory || kPrefix66Opcodes0F.Has(z.opcode) ? kOwnsPrefix66 : 0;
      if (fault_free && kFaultFreeOpcodes0F.Has(z.opcode)) facts |= kCannotFault;
      return facts;
    }
    case ZYDIS_OPCODE_MAP_0F38:
      return z.opcode >= kMovbeFirst0F38 && z.opcode <= kMovbeLast0F38 ? 0 : kOwnsPrefix66;
    default:
      return kOwnsPrefix66;
  }
}

void ReadFacts(const ZydisDecodedInstruction& z, Instr* out) {
  const bool legacy = out->encoding == Encoding::kLegacy;
  unsigned facts = kFacts[z.mnemonic];
  if (legacy) facts |= LegacyFacts(z, *out);
  if (out->layout.imm_size != 0) {
    if (!legacy || IsShift(z.mnemonic)) facts |= kImmediateDecides;
    if (out->gpr_count == 1 && out->gprs[0].bits != 8 && !out->mem.present) {
      if (z.mnemonic == ZYDIS_MNEMONIC_ADD) facts |= kAddsConstant;
      if (z.mnemonic == ZYDIS_MNEMONIC_SUB) facts |= kSubtractsConstant;
    }
  }
  out->facts = static_cast<u16>(facts);
  if (out->op == Op::kNone) return;
  const bool port = out->op == Op::kIn || out->op == Op::kOut;
  if (port || InfoOf(out->op).Has(kString)) {
    const bool narrow = port || out->op == Op::kIns || out->op == Op::kOuts;
    const unsigned bytes = z.opcode & 1 ? out->operand_bits / 8u : 1;
    out->element_bytes = static_cast<u8>(narrow ? std::min(bytes, 4u) : bytes);
  }
}

// True when the first row of the mnemonic (or its absence) decides, for look-ahead purposes.
bool ClassifiedWithoutOperands(ZydisMnemonic mnemonic) {
  u8 row = kFirstRow[mnemonic];
  return row == kNoRow || kRows[row].fits == shape::Any ||
         kRows[row].fits == shape::NoSystemRegister || kRows[row].fits == shape::PrefetchOfRegister;
}

DecodeStatus Undefined(unsigned length, Instr* out) {
  out->length = static_cast<u8>(std::max(length, 1u));
  out->op = Op::kUd;
  out->treatment = Treatment::kUndefined;
  return DecodeStatus::kUndefined;
}

DecodeStatus DecodeParts(const u8* bytes, unsigned available, LinearAddr pc, unsigned code_bits,
                         bool flags_only, Instr* out) {
  ALIBI_CHECK(code_bits == 16 || code_bits == 32 || code_bits == 64, "code is 16, 32 or 64 bits");
  *out = Instr{};
  out->pc = pc;
  out->code_bits = static_cast<u8>(code_bits);
  if (available == 0) return DecodeStatus::kNeedMoreBytes;
  available = std::min(available, kMaxInstructionLength);

  const ZydisDecoder& decoder = DecoderFor(code_bits);
  ZydisDecoderContext context;
  ZydisDecodedInstruction z;
  z.length = 0;
  ZyanStatus status = ZydisDecoderDecodeInstruction(&decoder, &context, bytes, available, &z);
  if (!ZYAN_SUCCESS(status)) {
    if (const unsigned w = RefusedW(bytes, available, code_bits); w != 0) {
      std::array<u8, kMaxInstructionLength> narrow{};
      std::copy_n(bytes, available, narrow.begin());
      narrow[w] &= 0x7f;
      const DecodeStatus narrow_status =
          DecodeParts(narrow.data(), available, pc, code_bits, flags_only, out);
      out->bytes[w] |= 0x80;
      return narrow_status;
    }
    std::copy_n(bytes, available, out->bytes.begin());
    if (status == ZYDIS_STATUS_NO_MORE_DATA || status == ZYDIS_STATUS_INSTRUCTION_TOO_LONG) {
      out->length = static_cast<u8>(available);
      return available < kMaxInstructionLength ? DecodeStatus::kNeedMoreBytes
                                               : DecodeStatus::kTooLong;
    }
    return Undefined(std::min<unsigned>(z.length, available), out);
  }
  std::array<Operand, ZYDIS_MAX_OPERAND_COUNT> operands;
  bool with_operands = !flags_only || !ClassifiedWithoutOperands(z.mnemonic);
  if (with_operands) {
    status = ZydisDecoderDecodeOperands(&decoder, &context, &z, operands.data(), z.operand_count);
    if (!ZYAN_SUCCESS(status)) return Undefined(z.length, out);
  } else {
    operands[0].type = operands[1].type = ZYDIS_OPERAND_TYPE_UNUSED;
  }

  out->length = z.length;
  std::copy_n(bytes, z.length, out->bytes.begin());
  out->mnemonic = static_cast<u16>(z.mnemonic);
  out->operand_bits = z.operand_width;
  out->address_bits = z.address_width;
  out->condition = z.opcode & 0xf;
  out->feature = FeatureOf(z.meta.isa_set);
  ReadPrefixes(z, out);
  ReadLayout(z, out);
  ReadImmediates(z, out);
  ReadFlags(z, out);
  Classify(z, operands.data(), out);
  if (!flags_only && out->op != Op::kNop) {
    ReadOperands(z, operands.data(), out);
    out->unit = UnitOf(z, operands.data(), out->op);
  }
  RefuseWideExtract(z, out);
  RefineFlags(z, out);
  ReadFacts(z, out);
  NarrowBranch(z, out);
  return out->treatment == Treatment::kUndefined ? DecodeStatus::kUndefined : DecodeStatus::kOk;
}

}  // namespace

DecodeStatus Decode(const u8* bytes, unsigned available, LinearAddr pc, unsigned code_bits,
                    Instr* out) {
  return DecodeParts(bytes, available, pc, code_bits, /*flags_only=*/false, out);
}

DecodeStatus DecodeFlagsOnly(const u8* bytes, unsigned available, LinearAddr pc, unsigned code_bits,
                             Instr* out) {
  return DecodeParts(bytes, available, pc, code_bits, /*flags_only=*/true, out);
}

void HideUnlessShown(const FeatureSet& shown, Instr* instr) {
  if (shown.Has(instr->feature) || instr->treatment == Treatment::kUndefined) return;
  if (instr->mnemonic == ZYDIS_MNEMONIC_TZCNT || instr->mnemonic == ZYDIS_MNEMONIC_LZCNT) {
    // Without F3. F2 in its place says nothing there.
    std::array<u8, 15> bytes = instr->bytes;
    for (unsigned i = 0; i < instr->layout.opcode; ++i) {
      if (bytes[i] == 0xf3) bytes[i] = 0xf2;
    }
    const DecodeStatus status =
        Decode(bytes.data(), instr->length, instr->pc, instr->code_bits, instr);
    ALIBI_CHECK(status == DecodeStatus::kOk, "BSF and BSR are as long as TZCNT and LZCNT");
    return;
  }
  instr->op = Op::kUd;
  instr->treatment = Treatment::kUndefined;
}

}  // namespace alibi::isa
