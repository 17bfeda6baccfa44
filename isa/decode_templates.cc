// SPDX-License-Identifier: Apache-2.0
#include "isa/decode_templates.h"

#include <algorithm>
#include <cstring>

#include "base/bits.h"
#include "isa/opcode_set.h"

namespace alibi::isa {
namespace {

constexpr bool IsRex(u8 byte) { return (byte & 0xf0) == 0x40; }

// What a byte is where a prefix or an opcode of the first map may be.
enum class Lead : u8 {
  kOpcode,
  kOpcodeWithModRm,
  kPrefix,
  kEscape,  // 0F
  kVex2,    // C5 and C4
  kVex3,
  kOther,  // not worth a template, or none can be made
};

constexpr std::array<Lead, 256> kLeads = [] {
  std::array<Lead, 256> leads{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    leads[byte] = kModRmOpcodes.Has(static_cast<u8>(byte)) ? Lead::kOpcodeWithModRm : Lead::kOpcode;
  }
  for (const u8 prefix : {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0xf0, 0xf2, 0xf3}) {
    leads[prefix] = Lead::kPrefix;
  }
  leads[0x0f] = Lead::kEscape;
  leads[0xc5] = Lead::kVex2;
  leads[0xc4] = Lead::kVex3;
  // Another address size; EVEX (scaled displacements), XOP; two immediates; an address instead of a
  // displacement.
  for (const u8 other : {0x67, 0x62, 0x8f, 0x9a, 0xea, 0xc8, 0xa0, 0xa1, 0xa2, 0xa3}) {
    leads[other] = Lead::kOther;
  }
  return leads;
}();

}  // namespace

unsigned HeadLength(const u8* bytes, unsigned available, unsigned code_bits) {
  // 16-bit addresses have another ModRM byte; neither they nor their code are frequent.
  if (code_bits == 16) return 0;
  unsigned at = 0;
  while (at < available && kLeads[bytes[at]] == Lead::kPrefix) ++at;
  if (code_bits == 64 && at < available && IsRex(bytes[at])) ++at;
  if (at + 3 >= available) return 0;  // a few bytes at the end of a page are not worth a check each
  bool modrm = true;
  switch (kLeads[bytes[at]]) {
    case Lead::kOpcode:
    case Lead::kPrefix:  // behind REX: the decoder will tell
      modrm = false;
      break;
    case Lead::kOpcodeWithModRm:
      break;
    case Lead::kEscape: {
      const u8 opcode = bytes[++at];
      if (opcode == 0x0f) return 0;  // the opcode is where the immediate would be
      if (opcode == 0x38 || opcode == 0x3a) {
        ++at;
      } else {
        modrm = kModRmOpcodes0F.Has(opcode);
      }
      break;
    }
    case Lead::kVex2:
      if (code_bits != 64) return 0;  // LDS
      at += 2;
      modrm = at < available && bytes[at] != 0x77;
      break;
    case Lead::kVex3:
      if (code_bits != 64) return 0;  // LES
      at += 3;
      break;
    case Lead::kOther:
      return 0;
  }
  ++at;
  if (!modrm) return at <= available ? at : 0;
  if (at >= available) return 0;
  const u8 fields = bytes[at++];
  if ((fields & 7) == 4 && fields < 0xc0) ++at;
  return at <= available ? at : 0;
}

DecodeTemplates::Code DecodeTemplates::Load(const u8* bytes, unsigned available) {
  u64 words[2] = {};
  if (available >= sizeof(words)) {
    std::memcpy(words, bytes, sizeof(words));
  } else {
    std::memcpy(words, bytes, available);
  }
  return Code{words[1]} << 64 | words[0];
}

// Two stores that overlap: bytes end where they do.
void DecodeTemplates::SetBytes(Code code, Instr* instr) {
  const u64 first = static_cast<u64>(code), last = static_cast<u64>(code >> 56);
  static_assert(sizeof(instr->bytes) == 15);
  std::memcpy(instr->bytes.data(), &first, 8);
  std::memcpy(instr->bytes.data() + 7, &last, 8);
}

// `size` bytes from `offset` on, sign-extended or not.
u64 DecodeTemplates::ValueAt(Code code, unsigned offset, unsigned size, bool is_signed) {
  const u64 value = static_cast<u64>(code >> (8 * offset));
  const unsigned unused = 64 - 8 * size;
  return is_signed ? static_cast<u64>(static_cast<i64>(value << unused) >> unused)
                   : value << unused >> unused;
}

std::size_t DecodeTemplates::Hash(Code head, unsigned code_bits) {
  const u64 low = static_cast<u64>(head), high = static_cast<u64>(head >> 64);
  const u64 mixed =
      (low ^ (high * 0x9e3779b97f4a7c15u) ^ (u64{code_bits} << 56)) * 0xff51afd7ed558ccdu;
  return mixed >> 40;
}

DecodeTemplates::DecodeTemplates() : index_(kTemplates) { templates_.reserve(kTemplates); }

DecodeTemplates& DecodeTemplates::OfThread() {
  static thread_local DecodeTemplates templates;
  return templates;
}

DecodeTemplates::Place DecodeTemplates::Find(const u8* bytes, unsigned available,
                                             unsigned code_bits) {
  Place place{.head = HeadLength(bytes, std::min(available, 15u), code_bits)};
  if (place.head == 0) return place;
  place.code = Load(bytes, available);
  const std::size_t hash = Hash(FirstBytes(place.code, place.head), code_bits) % kTemplates;
  for (std::size_t way = 0; way < kWays; ++way) {
    place.number = &index_[hash ^ way];
    if (*place.number == 0) return place;
    const Template& made = templates_[*place.number - 1u];
    if (made.Fits(place.code, place.head, available, code_bits)) {
      place.known = &made;
      return place;
    }
  }
  return place;
}

void DecodeTemplates::Fill(const InstrShape& known, Code code, LinearAddr pc, Instr* out) {
  static_cast<InstrShape&>(*out) = known;
  out->pc = pc;
  out->immediate = out->immediate2 = 0;
  out->branch_target = {};
  SetBytes(FirstBytes(code, known.length), out);
  const Layout& layout = known.layout;
  if (layout.disp_size != 0 && known.mem.present) {
    out->mem.disp = static_cast<i64>(ValueAt(code, layout.disp, layout.disp_size, true));
  }
  if (layout.imm_size == 0) return;
  const bool is_signed = layout.imm_kind != ImmKind::kUnsigned;
  out->immediate = ValueAt(code, layout.imm, layout.imm_size, is_signed);
  if (layout.imm_kind == ImmKind::kRelative) {
    const unsigned bits = known.operand_bits == 16 ? 16 : known.code_bits == 64 ? 64 : 32;
    out->branch_target = LinearAddr(LowBits(out->next_pc().value + out->immediate, bits));
  } else if (is_signed) {
    out->immediate = LowBits(out->immediate, known.operand_bits);
  }
}

DecodeStatus DecodeTemplates::Learn(const Place& place, const u8* bytes, unsigned available,
                                    LinearAddr pc, unsigned code_bits, Instr* out) {
  const DecodeStatus status = isa::Decode(bytes, available, pc, code_bits, out);
  if (place.head == 0) return status;
  ++misses_;
  if (status != DecodeStatus::kOk || out->encoding == Encoding::kEvex ||
      out->layout.imm_kind == ImmKind::kPair) {
    return status;
  }
  unsigned head = out->length;
  if (out->layout.disp_size != 0) head = std::min<unsigned>(head, out->layout.disp);
  if (out->layout.imm_size != 0) head = std::min<unsigned>(head, out->layout.imm);
  if (head != place.head) return status;
  if (*place.number == 0) {
    templates_.emplace_back();
    *place.number = static_cast<u16>(templates_.size());
  }
  Template& made = templates_[*place.number - 1u];
  // An immediate that says more than a value makes a template for the same bytes only.
  made.SetCode(place.code, out->Is(kImmediateDecides) ? out->length : head);
  made.shape = *out;
  return status;
}

DecodeStatus DecodeTemplates::Decode(const u8* bytes, unsigned available, LinearAddr pc,
                                     unsigned code_bits, Instr* out) {
  const Place place = Find(bytes, available, code_bits);
  if (place.known == nullptr) return Learn(place, bytes, available, pc, code_bits, out);
  ++hits_;
  Fill(place.known->shape, place.code, pc, out);
  return DecodeStatus::kOk;
}

}  // namespace alibi::isa
