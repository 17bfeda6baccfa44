// SPDX-License-Identifier: Apache-2.0
#include "isa/decode_templates.h"

#include <algorithm>
#include <cstring>

#include "base/bits.h"
#include "isa/opcode_set.h"

namespace alibi::isa {
namespace {

constexpr bool IsLegacyPrefix(u8 byte) {
  switch (byte) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
    case 0xf0:
    case 0xf2:
    case 0xf3:
      return true;
    default:
      return false;
  }
}

constexpr bool IsRex(u8 byte) { return (byte & 0xf0) == 0x40; }

// Sign-extended or not, from little-endian bytes.
u64 LoadUnsigned(const u8* bytes, unsigned size) {
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) value |= u64{bytes[i]} << (8 * i);
  return value;
}
u64 LoadSigned(const u8* bytes, unsigned size) {
  const unsigned unused = 64 - 8 * size;
  return static_cast<u64>(static_cast<i64>(LoadUnsigned(bytes, size) << unused) >> unused);
}

std::size_t HashHead(const u8* bytes, unsigned length, unsigned code_bits) {
  u64 low = 0, high = 0;
  if (length <= 8) {
    std::memcpy(&low, bytes, length);
  } else {
    std::memcpy(&low, bytes, 8);
    std::memcpy(&high, bytes + 8, length - 8);
  }
  const u64 mixed =
      (low ^ (high * 0x9e3779b97f4a7c15u) ^ (u64{code_bits} << 56)) * 0xff51afd7ed558ccdu;
  return mixed >> 40;
}

}  // namespace

unsigned HeadLength(const u8* bytes, unsigned available, unsigned code_bits) {
  // 16-bit addresses have another ModRM byte; neither they nor their code are frequent.
  if (code_bits == 16) return 0;
  unsigned at = 0;
  while (at < available && IsLegacyPrefix(bytes[at])) ++at;
  if (code_bits == 64 && at < available && IsRex(bytes[at])) ++at;
  if (at + 3 >= available) return 0;  // a few bytes at the end of a page are not worth a check each
  u8 opcode = bytes[at];
  bool modrm;
  switch (opcode) {
    case 0x67:  // another address size
    case 0x62:
    case 0x8f:  // EVEX (scaled displacements), XOP
    case 0x9a:
    case 0xea:
    case 0xc8:  // two immediates
    case 0xa0:
    case 0xa1:
    case 0xa2:
    case 0xa3:  // an address instead of a displacement
      return 0;
    case 0xc4:
      if (code_bits != 64) return 0;  // LES
      at += 3;
      modrm = true;
      break;
    case 0xc5:
      if (code_bits != 64) return 0;  // LDS
      at += 2;
      modrm = at < available && bytes[at] != 0x77;
      break;
    case 0x0f:
      opcode = bytes[++at];
      if (opcode == 0x0f) return 0;  // the opcode is where the immediate would be
      if (opcode == 0x38 || opcode == 0x3a) {
        ++at;
        modrm = true;
      } else {
        modrm = kModRmOpcodes0F.Has(opcode);
      }
      break;
    default:
      modrm = kModRmOpcodes.Has(opcode);
  }
  ++at;
  if (!modrm) return at <= available ? at : 0;
  if (at >= available) return 0;
  const u8 fields = bytes[at++];
  if ((fields & 7) == 4 && fields < 0xc0) ++at;
  return at <= available ? at : 0;
}

DecodeTemplates::DecodeTemplates() : index_(kTemplates) { templates_.reserve(kTemplates); }

DecodeTemplates& DecodeTemplates::OfThread() {
  static thread_local DecodeTemplates templates;
  return templates;
}

DecodeStatus DecodeTemplates::Decode(const u8* bytes, unsigned available, LinearAddr pc,
                                     unsigned code_bits, Instr* out) {
  const unsigned head = HeadLength(bytes, std::min(available, 15u), code_bits);
  if (head == 0) return isa::Decode(bytes, available, pc, code_bits, out);
  u16& number = index_[HashHead(bytes, head, code_bits) % kTemplates];
  const Template* entry = number != 0 ? &templates_[number - 1u] : nullptr;
  if (entry != nullptr && entry->same >= head && entry->instr.code_bits == code_bits &&
      entry->instr.length <= available &&
      std::memcmp(entry->instr.bytes.data(), bytes, entry->same) == 0) {
    const Instr& known = entry->instr;
    ++hits_;
    *out = known;
    out->pc = pc;
    std::memcpy(out->bytes.data(), bytes, known.length);
    const Layout& layout = known.layout;
    if (layout.disp_size != 0 && known.mem.present) {
      out->mem.disp = static_cast<i64>(LoadSigned(bytes + layout.disp, layout.disp_size));
    }
    if (layout.imm_size != 0) {
      const u8* at = bytes + layout.imm;
      if (layout.imm_kind == ImmKind::kUnsigned) {
        out->immediate = LoadUnsigned(at, layout.imm_size);
      } else {
        out->immediate = LoadSigned(at, layout.imm_size);
        if (layout.imm_kind == ImmKind::kRelative) {
          const unsigned bits = known.operand_bits == 16 ? 16 : code_bits == 64 ? 64 : 32;
          out->branch_target = LinearAddr(LowBits(out->next_pc().value + out->immediate, bits));
        } else {
          out->immediate = LowBits(out->immediate, known.operand_bits);
        }
      }
    }
    return DecodeStatus::kOk;
  }
  ++misses_;
  const DecodeStatus status = isa::Decode(bytes, available, pc, code_bits, out);
  if (status != DecodeStatus::kOk || out->encoding == Encoding::kEvex ||
      out->layout.imm_kind == ImmKind::kPair) {
    return status;
  }
  unsigned found = out->length;
  if (out->layout.disp_size != 0) found = std::min<unsigned>(found, out->layout.disp);
  if (out->layout.imm_size != 0) found = std::min<unsigned>(found, out->layout.imm);
  if (found != head) return status;
  if (number == 0) {
    templates_.emplace_back();
    number = static_cast<u16>(templates_.size());
  }
  Template& made = templates_[number - 1u];
  // An immediate that says more than a value makes a template for the same bytes only.
  made.same = static_cast<u8>(out->Is(kImmediateDecides) ? out->length : head);
  made.instr = *out;
  return status;
}

}  // namespace alibi::isa
