// SPDX-License-Identifier: Apache-2.0
#include "isa/rewrite.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "isa/decoder.h"

namespace alibi::isa {
namespace {

// The host instruction in parts, in the order in which they are written.
struct Parts {
  bool lock = false;
  bool operand_size = false;   // 66
  u8 repeat = 0;               // F2, F3 or 0
  u8 segment = 0;              // 0: none
  bool address_size = false;   // 67
  bool rex_needed = false;     // SPL..DIL
  bool rex_forbidden = false;  // AH..BH
  bool w = false, r = false, x = false, b = false;
  u8 escape[2] = {};
  unsigned escape_count = 0;
  u8 opcode = 0;
  bool has_modrm = false, has_sib = false;
  u8 modrm = 0, sib = 0;
  u8 disp[8] = {};
  unsigned disp_size = 0;
};

bool FitsI8(i32 value) { return value >= -128 && value <= 127; }

u8 ModRm(unsigned mod, unsigned reg, unsigned rm) {
  return static_cast<u8>(mod << 6 | (reg & 7) << 3 | (rm & 7));
}

// ModRM.mod/rm, SIB and displacement for the new memory operand; `reg` is kept.
void EncodeMemory(const HostMem& mem, bool disp32_only, Parts* parts) {
  unsigned reg = (parts->modrm >> 3) & 7;
  bool has_base = mem.base != kNoReg, has_index = mem.index != kNoReg;
  ALIBI_CHECK(!has_index || mem.index != 4, "rsp is no index register");
  parts->x = has_index && mem.index >= 8;
  parts->b = has_base && mem.base >= 8;
  unsigned mod = 0;
  if (!has_base) {
    parts->disp_size = 4;  // SIB without base: mod 0, base field 5
  } else if (mem.disp == 0 && (mem.base & 7) != 5) {
    parts->disp_size = 0;
  } else if (FitsI8(mem.disp) && (!disp32_only || mem.disp == 0)) {
    mod = 1;
    parts->disp_size = 1;
  } else {
    mod = 2;
    parts->disp_size = 4;
  }
  parts->has_sib = !has_base || has_index || (mem.base & 7) == 4;
  if (parts->has_sib) {
    parts->modrm = ModRm(mod, reg, 4);
    parts->sib = ModRm(0, has_index ? mem.index : 4, has_base ? mem.base : 5);
  } else {
    parts->modrm = ModRm(mod, reg, mem.base);
  }
  std::memcpy(parts->disp, &mem.disp, 4);
}

void CopyAddress(const Instr& instr, Parts* parts) {
  const Layout& layout = instr.layout;
  if (layout.sib != 0xff) {
    parts->has_sib = true;
    parts->sib = instr.bytes[layout.sib];
  }
  if (layout.disp_size != 0) {
    parts->disp_size = layout.disp_size;
    std::memcpy(parts->disp, &instr.bytes[layout.disp], layout.disp_size);
  }
}

// `instr.gprs[i]` as the encoding's four-bit number after replacement; AH..BH are 4-7 there.
unsigned EncodedGpr(const Instr& instr, const Rewrite& rewrite, unsigned i) {
  unsigned reg = rewrite.gpr[i] != kNoReg ? rewrite.gpr[i] : instr.gprs[i].reg;
  return instr.gprs[i].high_byte ? reg + 4 : reg;
}

// False where the registers cannot stand together.
bool PlaceLegacyGprs(const Instr& instr, const Rewrite& rewrite, Parts* parts) {
  for (unsigned i = 0; i < instr.gpr_count; ++i) {
    const GprUse& use = instr.gprs[i];
    unsigned reg = EncodedGpr(instr, rewrite, i);
    if (use.high_byte) {
      if (reg > 7) return false;
      parts->rex_forbidden = true;
    } else if (use.bits == 8 && reg >= 4) {
      parts->rex_needed = true;
    }
    switch (use.slot) {
      case RegSlot::kModRmReg:
        parts->modrm = static_cast<u8>((parts->modrm & ~0x38) | (reg & 7) << 3);
        parts->r = reg >= 8;
        break;
      case RegSlot::kModRmRm:
        parts->modrm = static_cast<u8>((parts->modrm & ~7) | (reg & 7));
        parts->b = reg >= 8;
        break;
      case RegSlot::kOpcode:
        parts->opcode = static_cast<u8>((parts->opcode & ~7) | (reg & 7));
        parts->b = reg >= 8;
        break;
      case RegSlot::kVvvv:
        ALIBI_CHECK(false, "legacy encodings have no vvvv");
    }
  }
  return true;
}

unsigned WriteTail(const Instr& instr, const Parts& parts, u8* out, unsigned n) {
  out[n++] = parts.opcode;
  if (parts.has_modrm) out[n++] = parts.modrm;
  if (parts.has_sib) out[n++] = parts.sib;
  std::memcpy(out + n, parts.disp, parts.disp_size);
  n += parts.disp_size;
  std::memcpy(out + n, &instr.bytes[instr.layout.imm_size != 0 ? instr.layout.imm : 0],
              instr.layout.imm_size);
  return n + instr.layout.imm_size;
}

unsigned WriteLegacy(const Instr& instr, const Parts& parts, u8* out) {
  unsigned n = 0;
  bool rex = parts.rex_needed || parts.w || parts.r || parts.x || parts.b;
  if (rex && parts.rex_forbidden) return 0;
  if (parts.segment != 0) out[n++] = parts.segment;
  if (parts.address_size) out[n++] = 0x67;
  if (parts.lock) out[n++] = 0xf0;
  if (parts.operand_size) out[n++] = 0x66;
  if (parts.repeat != 0) out[n++] = parts.repeat;
  if (rex) {
    out[n++] = static_cast<u8>(0x40 | parts.w << 3 | parts.r << 2 | parts.x << 1 | int{parts.b});
  }
  for (unsigned i = 0; i < parts.escape_count; ++i) out[n++] = parts.escape[i];
  return WriteTail(instr, parts, out, n);
}

// Opcode, its escape bytes, and the prefixes that survive.
void ReadLegacy(const Instr& instr, bool keep_address_prefixes, Parts* parts) {
  const Layout& layout = instr.layout;
  unsigned at = layout.opcode;
  parts->opcode = instr.bytes[at];
  if (at >= 2 && instr.bytes[at - 2] == 0x0f &&
      (instr.bytes[at - 1] == 0x38 || instr.bytes[at - 1] == 0x3a)) {
    parts->escape_count = 2;
    parts->escape[0] = 0x0f;
    parts->escape[1] = instr.bytes[at - 1];
  } else if (at >= 1 && instr.bytes[at - 1] == 0x0f) {
    parts->escape_count = 1;
    parts->escape[0] = 0x0f;
  }
  unsigned prefix_end = at - parts->escape_count;
  if (layout.rex != 0xff) {
    u8 rex = instr.bytes[layout.rex];
    parts->w = rex & 8;
    parts->r = rex & 4;
    parts->x = rex & 2;
    parts->b = rex & 1;
    prefix_end = layout.rex;
  }
  for (unsigned i = 0; i < prefix_end; ++i) {
    u8 prefix = instr.bytes[i];
    if (prefix == 0x66) {
      parts->operand_size = true;
    } else if (prefix == 0x67 && keep_address_prefixes) {
      parts->address_size = true;
    } else if ((prefix == 0x64 || prefix == 0x65) && keep_address_prefixes) {
      parts->segment = prefix;
    }
  }
  parts->lock = instr.lock;
  parts->repeat = instr.repne ? 0xf2 : instr.rep ? 0xf3 : 0;
}

// Encodings that 64-bit mode gives another meaning.
void To64BitOpcode(const Instr& instr, Parts* parts) {
  if (parts->escape_count == 0) {
    u8 opcode = parts->opcode;
    if (opcode >= 0x40 && opcode <= 0x4f) {  // INC, DEC: now REX
      parts->opcode = 0xff;
      parts->has_modrm = true;
      parts->modrm = ModRm(3, opcode >= 0x48, opcode);
    } else if (opcode == 0x82) {  // alias of 80
      parts->opcode = 0x80;
    }
  }
  if (instr.code_bits == 16 && !instr.Is(kOwnsPrefix66)) {
    parts->operand_size = !parts->operand_size;
  }
}

unsigned RewriteLegacy(const Instr& instr, const Rewrite& rewrite, u8* out) {
  Parts parts;
  bool address_kept = instr.mem.present && !rewrite.replace_memory;
  ReadLegacy(instr, address_kept, &parts);
  if (instr.layout.modrm != 0xff) {
    parts.has_modrm = true;
    parts.modrm = instr.bytes[instr.layout.modrm];
  }
  bool is_moffs =
      parts.escape_count == 0 && parts.opcode >= 0xa0 && parts.opcode <= 0xa3 && instr.mem.present;
  if (rewrite.replace_memory && is_moffs) {
    // A0-A3 have only an absolute address: MOV between the accumulator and ModRM memory instead.
    static constexpr u8 kModRmForm[] = {0x8a, 0x8b, 0x88, 0x89};
    parts.opcode = kModRmForm[parts.opcode - 0xa0];
    parts.has_modrm = true;
    parts.modrm = 0;
    parts.r = false;  // the accumulator, whatever REX.R said
  }
  bool opcode_register = false;
  if (instr.code_bits != 64) {
    u8 before = parts.opcode;
    To64BitOpcode(instr, &parts);
    opcode_register = before >= 0x40 && before <= 0x4f && parts.escape_count == 0;
  }
  if (opcode_register) {
    // INC/DEC: the register moved from the opcode to ModRM.rm.
    unsigned reg = EncodedGpr(instr, rewrite, 0);
    parts.modrm = ModRm(3, parts.modrm >> 3, reg);
    parts.b = reg >= 8;
    return WriteLegacy(instr, parts, out);
  }
  if (!instr.mem.present) parts.x = false;
  bool is_short_xchg = parts.escape_count == 0 && (parts.opcode & 0xf8) == 0x90;
  if (is_short_xchg && instr.gpr_count == 1) {
    parts.repeat = 0;  // F3 90 is PAUSE
    if (EncodedGpr(instr, rewrite, 0) == 0) {
      // 90 would be NOP: the two-operand form means what it says.
      parts.opcode = 0x87;
      parts.has_modrm = true;
      parts.modrm = ModRm(3, 0, 0);
      parts.b = parts.r = false;
      return WriteLegacy(instr, parts, out);
    }
  }
  if (!PlaceLegacyGprs(instr, rewrite, &parts)) return 0;
  if (rewrite.replace_memory) {
    EncodeMemory(rewrite.memory, /*disp32_only=*/false, &parts);
  } else {
    CopyAddress(instr, &parts);
  }
  return WriteLegacy(instr, parts, out);
}

// The fields that VEX and EVEX share, as positive logic.
struct VectorPrefix {
  bool r = false, x = false, b = false, w = false;
  unsigned vvvv = 0;
};

void PlaceVectorGprs(const Instr& instr, const Rewrite& rewrite, VectorPrefix* prefix,
                     Parts* parts) {
  for (unsigned i = 0; i < instr.gpr_count; ++i) {
    unsigned reg = EncodedGpr(instr, rewrite, i);
    switch (instr.gprs[i].slot) {
      case RegSlot::kModRmReg:
        parts->modrm = static_cast<u8>((parts->modrm & ~0x38) | (reg & 7) << 3);
        prefix->r = reg >= 8;
        break;
      case RegSlot::kModRmRm:
        parts->modrm = static_cast<u8>((parts->modrm & ~7) | (reg & 7));
        prefix->b = reg >= 8;
        prefix->x = false;
        break;
      case RegSlot::kVvvv:
        prefix->vvvv = reg;
        break;
      case RegSlot::kOpcode:
        ALIBI_CHECK(false, "VEX opcodes hold no register");
    }
  }
}

unsigned RewriteVector(const Instr& instr, const Rewrite& rewrite, u8* out) {
  const Layout& layout = instr.layout;
  const u8* in = &instr.bytes[layout.vector_prefix];
  bool evex = instr.encoding == Encoding::kEvex;
  bool two_byte = in[0] == 0xc5;
  VectorPrefix prefix;
  prefix.r = !(in[1] & 0x80);
  u8 map = 1, last = in[1];
  if (!two_byte) {
    prefix.x = !(in[1] & 0x40);
    prefix.b = !(in[1] & 0x20);
    prefix.w = in[2] & 0x80;
    map = in[1] & 0x1f;
    last = in[2];
  }
  prefix.vvvv = ~(last >> 3) & 0xf;
  // Other modes ignore what would name registers 8-15 (SDM vol. 2, 2.3.5).
  if (instr.code_bits != 64) {
    prefix.r = prefix.x = prefix.b = false;
    prefix.vvvv &= 7;
  }

  Parts parts;
  parts.opcode = instr.bytes[layout.opcode];
  if (layout.modrm != 0xff) {
    parts.has_modrm = true;
    parts.modrm = instr.bytes[layout.modrm];
  }
  PlaceVectorGprs(instr, rewrite, &prefix, &parts);
  unsigned n = 0;
  if (rewrite.replace_memory) {
    if (instr.mem.vsib) return 0;
    EncodeMemory(rewrite.memory, /*disp32_only=*/evex, &parts);
    prefix.x = parts.x;
    prefix.b = parts.b;
  } else {
    CopyAddress(instr, &parts);
    if (instr.mem.present) {
      if (instr.mem.segment >= 4 && instr.segment_override != 0xff) {
        out[n++] = static_cast<u8>(0x60 + instr.mem.segment);
      }
      if (instr.address_bits == 32) out[n++] = 0x67;
    }
  }

  u8 rxb = static_cast<u8>(!prefix.r << 7 | !prefix.x << 6 | !prefix.b << 5);
  u8 tail = static_cast<u8>((last & 7) | (~prefix.vvvv & 0xf) << 3);
  if (evex) {
    out[n++] = 0x62;
    // R' names registers 16-31 where ModRM.reg is a vector register.
    out[n++] = static_cast<u8>(rxb | (map & 0x0f) | (instr.code_bits == 64 ? in[1] & 0x10 : 0x10));
    out[n++] = static_cast<u8>(prefix.w << 7 | tail);
    out[n++] = static_cast<u8>(instr.code_bits == 64 ? in[3] : in[3] | 0x08);
  } else if (two_byte && !prefix.x && !prefix.b) {
    out[n++] = 0xc5;
    out[n++] = static_cast<u8>((rxb & 0x80) | tail);
  } else {
    out[n++] = 0xc4;
    out[n++] = static_cast<u8>(rxb | map);
    out[n++] = static_cast<u8>(prefix.w << 7 | tail);
  }
  unsigned w_at = n - (evex ? 2 : 1);
  n = WriteTail(instr, parts, out, n);

  if (instr.code_bits != 64) {
    // A register in imm8[7:4], of which other modes ignore the high bit: VBLENDVPS/PD, VPBLENDVB.
    if (map == 3 && parts.opcode >= 0x4a && parts.opcode <= 0x4c) out[n - 1] &= 0x7f;
    // Only where the operand would become a 64-bit one do other modes ignore W.
    if (prefix.w) {
      Instr host;
      if (Decode(out, n, {}, 64, &host) != DecodeStatus::kOk || host.mnemonic != instr.mnemonic ||
          host.mem.size != instr.mem.size ||
          (instr.gpr_count != 0 && host.gprs[0].bits != instr.gprs[0].bits)) {
        out[w_at] &= 0x7f;
      }
    }
  }
  return n;
}

}  // namespace

unsigned RewriteInstr(const Instr& instr, const Rewrite& rewrite, u8* out) {
  ALIBI_CHECK(!rewrite.replace_memory || instr.mem.present, "no memory operand to replace");
  if (instr.op == Op::kNop) {
    out[0] = 0x90;
    return 1;
  }
  // 16-bit addresses have no encoding in 64-bit code, and 32-bit ones another base.
  if (instr.code_bits != 64 && instr.mem.present && !rewrite.replace_memory) return 0;
  switch (instr.encoding) {
    case Encoding::kLegacy:
      return RewriteLegacy(instr, rewrite, out);
    case Encoding::kVex:
    case Encoding::kEvex:
      return RewriteVector(instr, rewrite, out);
    case Encoding::kXop:
      return 0;
  }
  return 0;
}

bool SameInHostCode(const Instr& instr) {
  if (instr.treatment != Treatment::kIdent) return false;
  if (instr.mem.present && (instr.mem.size != 0 || instr.mem.rip_relative)) return false;
  if (instr.code_bits == 64) return true;
  u8 host[kMaxRewrittenLength];
  unsigned length = RewriteInstr(instr, Rewrite{}, host);
  return length == instr.length && std::equal(host, host + length, instr.bytes.begin());
}

}  // namespace alibi::isa
