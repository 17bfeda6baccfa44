// SPDX-License-Identifier: Apache-2.0
#include "isa/rewrite.h"

#include <Zydis/Zydis.h>
#include <capstone/capstone.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "isa/decoder.h"

namespace alibi::isa {
namespace {

std::string Hex(const u8* bytes, unsigned length) {
  std::string text;
  char digits[4];
  for (unsigned i = 0; i < length; ++i) {
    std::snprintf(digits, sizeof digits, "%02x ", bytes[i]);
    text += digits;
  }
  if (!text.empty()) text.pop_back();
  return text;
}

// --- Named cases: expected bytes, as an assembler would write them. ---

std::vector<u8> Bytes(const std::string& hex) {
  std::vector<u8> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes.push_back(static_cast<u8>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Instr DecodeHex(const std::string& hex, unsigned code_bits = 64) {
  std::vector<u8> bytes = Bytes(hex);
  Instr instr;
  DecodeStatus status = Decode(bytes.data(), static_cast<unsigned>(bytes.size()),
                               LinearAddr(0x1000), code_bits, &instr);
  REQUIRE(status == DecodeStatus::kOk);
  REQUIRE(instr.length == bytes.size());
  return instr;
}

std::string Rewritten(const std::string& hex, const Rewrite& rewrite, unsigned code_bits = 64) {
  u8 out[kMaxRewrittenLength];
  unsigned length = RewriteInstr(DecodeHex(hex, code_bits), rewrite, out);
  return Hex(out, length);
}

std::string WithMemory(const std::string& hex, HostMem memory, unsigned code_bits = 64) {
  return Rewritten(hex, Rewrite{.replace_memory = true, .memory = memory}, code_bits);
}

std::string WithGprs(const std::string& hex, std::initializer_list<u8> gprs,
                     unsigned code_bits = 64) {
  Rewrite rewrite;
  std::copy(gprs.begin(), gprs.end(), rewrite.gpr.begin());
  return Rewritten(hex, rewrite, code_bits);
}

constexpr u8 kR10 = 10, kR11 = 11, kNone = kNoReg;

TEST_CASE("Base registers that need a SIB byte or a displacement", "[rewrite]") {
  const char* load = "8b 03";  // MOV eax, [rbx]
  CHECK(WithMemory(load, {.base = 4}) == "8b 04 24");
  CHECK(WithMemory(load, {.base = 12}) == "41 8b 04 24");
  CHECK(WithMemory(load, {.base = 5}) == "8b 45 00");
  CHECK(WithMemory(load, {.base = 13}) == "41 8b 45 00");
  CHECK(WithMemory(load, {.base = kR10, .index = kR11}) == "43 8b 04 1a");
  CHECK(WithMemory(load, {.base = 13, .index = 12}) == "43 8b 44 25 00");
  CHECK(WithMemory(load, {.base = 0, .disp = 0x12345678}) == "8b 80 78 56 34 12");
  CHECK(WithMemory(load, {.disp = -8}) == "8b 04 25 f8 ff ff ff");
}

TEST_CASE("Segment and address-size prefixes go with the operand they belong to", "[rewrite]") {
  CHECK(WithMemory("65 48 8b 04 25 28 00 00 00", {.base = kR11}) == "49 8b 03");
  CHECK(WithMemory("67 8b 03", {.base = kR11}) == "41 8b 03");
  CHECK(WithMemory("2e 66 89 05 00 01 00 00", {.base = kR11}) == "66 41 89 03");
}

TEST_CASE("Displacement and immediate keep their order", "[rewrite]") {
  CHECK(WithMemory("48 81 05 11 22 33 44 78 56 34 12", {.base = kR11, .disp = 4}) ==
        "49 81 43 04 78 56 34 12");
}

TEST_CASE("LOCK and mandatory prefixes stand in front of REX", "[rewrite]") {
  CHECK(WithMemory("f0 0f b1 0b", {.base = kR11}) == "f0 41 0f b1 0b");
  CHECK(WithMemory("66 0f 6f 03", {.base = kR11}) == "66 41 0f 6f 03");
  CHECK(WithMemory("f2 0f 10 03", {.base = kR11}) == "f2 41 0f 10 03");
  CHECK(WithMemory("f3 0f b8 03", {.base = kR11}) == "f3 41 0f b8 03");
  CHECK(WithMemory("66 f2 0f 38 f1 03", {.base = kR11}) == "66 f2 41 0f 38 f1 03");
}

TEST_CASE("VEX: two bytes grow to three, vvvv may be a GPR", "[rewrite]") {
  CHECK(WithMemory("c5 f9 6f 03", {.base = kR11}) == "c4 c1 79 6f 03");
  CHECK(WithMemory("c5 f9 6f 03", {.base = 6}) == "c5 f9 6f 06");
  // ANDN eax, r11d, ecx -> eax, r10d, ecx
  CHECK(WithGprs("c4 e2 20 f2 c1", {kNone, kR10, kNone}) == "c4 e2 28 f2 c1");
  // SHLX r11, [rbx], rcx
  Rewrite rewrite{.replace_memory = true, .memory = {.base = kR10, .index = 0}};
  rewrite.gpr[1] = kR11;
  CHECK(Rewritten("c4 e2 f1 f7 03", rewrite) == "c4 c2 a1 f7 04 02");
}

TEST_CASE("EVEX: compressed displacements are undone, broadcast and masks stay", "[rewrite]") {
  // VADDPS zmm0, zmm0, [rax + 0x40] (disp8 = 1) and its {1to16} form
  CHECK(WithMemory("62 f1 7c 49 58 40 01", {.base = kR11, .disp = 0x40}) ==
        "62 d1 7c 49 58 83 40 00 00 00");
  CHECK(WithMemory("62 f1 7c 58 58 40 01", {.base = kR11}) == "62 d1 7c 58 58 03");
  CHECK(WithMemory("62 f1 7c 49 58 40 01", {.base = 13, .index = kR10}) ==
        "62 91 7c 49 58 44 15 00");
  // VCVTUSI2SS xmm17, xmm18, r11d: R' and V' are the vector registers'
  CHECK(WithGprs("62 c1 6e 00 7b cb", {kR10}) == "62 c1 6e 00 7b ca");
}

TEST_CASE("Registers inside the opcode", "[rewrite]") {
  CHECK(WithGprs("0f cb", {kR11}) == "41 0f cb");  // BSWAP
  CHECK(WithGprs("49 0f cb", {3}) == "48 0f cb");  // BSWAP r11 -> rbx
  CHECK(WithGprs("93", {kR11}) == "41 93");        // XCHG ebx, eax
  CHECK(WithGprs("bb 01 00 00 00", {kR11}) == "41 bb 01 00 00 00");
  CHECK(WithGprs("41 93", {0}) == "87 c0");     // not 90, which is NOP
  CHECK(WithGprs("b3 01", {6}) == "40 b6 01");  // MOV bl -> sil
}

TEST_CASE("Byte registers: SPL..DIL need REX, AH..BH forbid it", "[rewrite]") {
  CHECK(WithGprs("8a c3", {kNone, 6}) == "40 8a c6");
  CHECK(WithGprs("40 8a c6", {kNone, 3}) == "8a c3");
  CHECK(WithMemory("8a 23", {.base = 1}) == "8a 21");  // MOV ah, [rbx]
  CHECK(WithMemory("8a 23", {.base = kR11}).empty());  // no REX.B beside AH
  CHECK(WithGprs("8a e3", {kNone, kR11}).empty());     // MOV ah, bl
  CHECK(WithGprs("0f b6 c4", {kR11, kNone}).empty());  // MOVZX eax, ah
}

TEST_CASE("Absolute accumulator moves become ModRM moves", "[rewrite]") {
  CHECK(WithMemory("a1 08 07 06 05 04 03 02 01", {.base = kR11}) == "41 8b 03");
  CHECK(WithMemory("48 a3 08 07 06 05 04 03 02 01", {.base = kR11}) == "49 89 03");
  CHECK(WithMemory("a2 44 33 22 11", {.base = kR11}, 32) == "41 88 03");
  CHECK(WithMemory("a1 22 11", {.base = kR11}, 16) == "66 41 8b 03");
}

TEST_CASE("32-bit code: INC and DEC, aliases, VEX bits without meaning", "[rewrite]") {
  CHECK(WithGprs("40", {}, 32) == "ff c0");
  CHECK(WithGprs("66 4b", {kNone}, 32) == "66 ff cb");
  CHECK(WithGprs("4b", {kR11}, 32) == "41 ff cb");
  CHECK(WithGprs("82 c3 05", {}, 32) == "80 c3 05");
  CHECK(WithGprs("c4 e2 f8 f2 c1", {}, 32) == "c4 e2 78 f2 c1");  // W: ANDN stays 32 bits wide
  CHECK(WithGprs("c4 e2 b8 f2 c1", {}, 32) == "c4 e2 78 f2 c1");  // vvvv[3]
  CHECK(WithMemory("8b 44 24 04", {.base = kR11}, 32) == "41 8b 03");
}

TEST_CASE("16-bit code: the operand-size prefix turns around, mandatory ones stay", "[rewrite]") {
  CHECK(WithGprs("89 c3", {}, 16) == "66 89 c3");
  CHECK(WithGprs("66 89 c3", {}, 16) == "89 c3");
  CHECK(WithGprs("48", {}, 16) == "66 ff c8");
  CHECK(WithMemory("8b 40 04", {.base = kR11}, 16) == "66 41 8b 03");  // [bx + si + 4]
  CHECK(WithGprs("0f 28 c1", {}, 16) == "0f 28 c1");                   // MOVAPS
  CHECK(WithGprs("66 0f 6f c1", {}, 16) == "66 0f 6f c1");             // MOVDQA
  CHECK(WithGprs("0f af c3", {}, 16) == "66 0f af c3");                // IMUL ax, bx
}

TEST_CASE("NOP with operands touches nothing in any mode", "[rewrite]") {
  CHECK(WithGprs("0f 1f 44 00 00", {}) == "90");
  CHECK(SameInHostCode(DecodeHex("0f 1f 44 00 00")));
  CHECK(SameInHostCode(DecodeHex("0f 1f 44 00 00", 32)) == false);
}

TEST_CASE("Same in host code", "[rewrite]") {
  CHECK(SameInHostCode(DecodeHex("48 01 d8")));
  CHECK(SameInHostCode(DecodeHex("48 8d 44 8b 10")));  // LEA
  CHECK(SameInHostCode(DecodeHex("01 d8", 32)));
  CHECK_FALSE(SameInHostCode(DecodeHex("48 8d 05 00 01 00 00")));  // LEA [rip]
  CHECK_FALSE(SameInHostCode(DecodeHex("48 8b 03")));              // a guest address
  CHECK_FALSE(SameInHostCode(DecodeHex("40", 32)));                // INC
  CHECK_FALSE(SameInHostCode(DecodeHex("01 d8", 16)));
  CHECK_FALSE(SameInHostCode(DecodeHex("50")));               // PUSH
  CHECK_FALSE(SameInHostCode(DecodeHex("8d 44 8b 10", 32)));  // LEA, 32-bit address
}

// --- Fuzz: every opcode map, checked against two disassemblers. ---

using Random = std::mt19937_64;

bool OneIn(Random& random, unsigned n) { return random() % n == 0; }

// A plausible encoding: random prefixes, one of the opcode maps, random ModRM and tail.
std::array<u8, 15> RandomEncoding(Random& random, unsigned code_bits) {
  std::array<u8, 32> bytes;
  unsigned n = 0;
  auto put = [&](u64 byte) { bytes[n++] = static_cast<u8>(byte); };
  static constexpr u8 kPrefixes[] = {0x66, 0xf2, 0xf3, 0x67, 0x64, 0x65, 0x2e, 0x36, 0xf0};
  u64 form = random() % 8;
  if (form < 4 || OneIn(random, 8)) {
    while (OneIn(random, 3) && n < 3) put(kPrefixes[random() % std::size(kPrefixes)]);
  } else if (OneIn(random, 4)) {
    put(OneIn(random, 2) ? 0x67 : 0x65);
  }
  bool rex = form < 4 && code_bits == 64 && OneIn(random, 2);
  if (rex) put(0x40 | random() % 16);
  switch (form) {
    case 0:
      break;
    case 1:
      put(0x0f);
      break;
    case 2:
      put(0x0f);
      put(0x38);
      break;
    case 3:
      put(0x0f);
      put(0x3a);
      break;
    case 4:
      put(0xc5);
      put(random() | (code_bits == 64 ? 0 : 0xc0));
      break;
    case 5:
      put(0xc4);
      put((random() & 0xe0) | (1 + random() % 3) | (code_bits == 64 ? 0 : 0xc0));
      put(random());
      break;
    default:
      put(0x62);
      put((random() & 0xf0) | (1 + random() % 3) | (code_bits == 64 ? 0 : 0xc0));
      put(random() | 0x04);
      // Mostly legal: no zeroing without a mask.
      put(OneIn(random, 2) ? random() : (random() & 0x78) | (random() % 2 ? 0 : 1));
  }
  put(random());
  while (n < 15) put(OneIn(random, 4) ? 0 : random());
  std::array<u8, 15> out;
  std::copy_n(bytes.begin(), out.size(), out.begin());
  return out;
}

ZydisRegister GprRegister(u8 reg, unsigned bits, bool high_byte) {
  if (bits == 8) {
    if (high_byte) return static_cast<ZydisRegister>(ZYDIS_REGISTER_AH + reg);
    return static_cast<ZydisRegister>(reg < 4 ? ZYDIS_REGISTER_AL + reg
                                              : ZYDIS_REGISTER_SPL + (reg - 4));
  }
  int first = bits == 16 ? ZYDIS_REGISTER_AX : bits == 32 ? ZYDIS_REGISTER_EAX : ZYDIS_REGISTER_RAX;
  return static_cast<ZydisRegister>(first + reg);
}

struct Case {
  Instr instr;
  Rewrite rewrite;
  u8 out[kMaxRewrittenLength];
  unsigned length;
};

// Empty when the rewritten bytes are the same instruction with the expected operands.
std::string CheckWithZydis(const Case& c) {
  ZydisDecoder decoder;
  ZydisDecodedInstruction guest, host;
  ZydisDecodedOperand guest_ops[ZYDIS_MAX_OPERAND_COUNT], host_ops[ZYDIS_MAX_OPERAND_COUNT];
  unsigned bits = c.instr.code_bits;
  ZydisDecoderInit(&decoder,
                   bits == 64   ? ZYDIS_MACHINE_MODE_LONG_64
                   : bits == 32 ? ZYDIS_MACHINE_MODE_LEGACY_32
                                : ZYDIS_MACHINE_MODE_LEGACY_16,
                   bits == 64   ? ZYDIS_STACK_WIDTH_64
                   : bits == 32 ? ZYDIS_STACK_WIDTH_32
                                : ZYDIS_STACK_WIDTH_16);
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, c.instr.bytes.data(), c.instr.length, &guest,
                                           guest_ops))) {
    return "the guest bytes do not decode";
  }
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, c.out, c.length, &host, host_ops))) {
    return "the host bytes do not decode";
  }
  if (host.length != c.length) return "length";
  if (host.mnemonic != guest.mnemonic) return "mnemonic";
  if (host.operand_count_visible != guest.operand_count_visible) return "operand count";
  if (host.avx.vector_length != guest.avx.vector_length ||
      host.avx.mask.mode != guest.avx.mask.mode || host.avx.mask.reg != guest.avx.mask.reg ||
      host.avx.broadcast.mode != guest.avx.broadcast.mode ||
      host.avx.rounding.mode != guest.avx.rounding.mode || host.avx.has_sae != guest.avx.has_sae) {
    return "AVX attributes";
  }
  constexpr u64 kAttributes =
      ZYDIS_ATTRIB_HAS_LOCK | ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;
  if ((host.attributes ^ guest.attributes) & kAttributes) return "prefixes";
  unsigned gpr = 0;
  for (unsigned i = 0; i < guest.operand_count_visible; ++i) {
    const ZydisDecodedOperand& g = guest_ops[i];
    const ZydisDecodedOperand& h = host_ops[i];
    if (g.type != h.type) return "operand type";
    if (g.actions != h.actions) return "operand action";
    if (g.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      bool address_only = g.mem.type == ZYDIS_MEMOP_TYPE_AGEN;
      if (g.size != h.size && !address_only) return "memory size";
      if (!c.rewrite.replace_memory) {
        if (g.mem.base != h.mem.base || g.mem.index != h.mem.index || g.mem.scale != h.mem.scale ||
            g.mem.disp.value != h.mem.disp.value || g.mem.segment != h.mem.segment) {
          return "kept address";
        }
        continue;
      }
      const HostMem& m = c.rewrite.memory;
      ZydisRegister base = m.base == kNoReg ? ZYDIS_REGISTER_NONE : GprRegister(m.base, 64, false);
      ZydisRegister index =
          m.index == kNoReg ? ZYDIS_REGISTER_NONE : GprRegister(m.index, 64, false);
      if (h.mem.base != base) return "base";
      if (h.mem.index != index || (m.index != kNoReg && h.mem.scale != 1)) return "index";
      if (h.mem.disp.value != m.disp) return "displacement";
      if (h.mem.segment >= ZYDIS_REGISTER_FS) return "segment";
      if (host.address_width != 64) return "address size";
    } else if (g.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
      if (g.imm.value.u != h.imm.value.u) return "immediate";
    } else if (g.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      ZydisRegister expected = g.reg.value;
      bool encoded = g.encoding != ZYDIS_OPERAND_ENCODING_NONE &&
                     g.encoding != ZYDIS_OPERAND_ENCODING_MASK &&
                     g.encoding != ZYDIS_OPERAND_ENCODING_IS4;
      if (encoded && expected <= ZYDIS_REGISTER_R15) {
        if (gpr >= c.instr.gpr_count) return "too few GPRs in the IR";
        const GprUse& use = c.instr.gprs[gpr];
        if (c.rewrite.gpr[gpr] != kNoReg) {
          expected = GprRegister(c.rewrite.gpr[gpr], use.bits, use.high_byte);
        }
        ++gpr;
      }
      if (h.reg.value != expected) return "register";
    }
  }
  return gpr == c.instr.gpr_count ? "" : "too many GPRs in the IR";
}

// The foreign check. Capstone 4 knows fewer instructions: `known` says whether it knew this one.
class CapstoneChecker {
 public:
  CapstoneChecker() {
    for (unsigned i = 0; i < 3; ++i) {
      REQUIRE(cs_open(CS_ARCH_X86,
                      i == 0   ? CS_MODE_16
                      : i == 1 ? CS_MODE_32
                               : CS_MODE_64,
                      &handle_[i]) == CS_ERR_OK);
      cs_option(handle_[i], CS_OPT_DETAIL, CS_OPT_ON);
    }
  }
  ~CapstoneChecker() {
    for (csh& handle : handle_) cs_close(&handle);
  }

  std::string Check(const Case& c, bool* known) {
    cs_insn* guest = nullptr;
    cs_insn* host = nullptr;
    std::size_t guest_count = cs_disasm(handle_[c.instr.code_bits >> 5], c.instr.bytes.data(),
                                        c.instr.length, 0, 1, &guest);
    std::size_t host_count = cs_disasm(handle_[2], c.out, c.length, 0, 1, &host);
    *known = guest_count == 1 && guest->size == c.instr.length;
    std::string problem = *known ? Compare(c, *guest, host_count == 1 ? host : nullptr) : "";
    if (!problem.empty()) {
      problem += std::string(": ") + guest->mnemonic + " " + guest->op_str;
      if (host_count == 1) problem += std::string(" -> ") + host->mnemonic + " " + host->op_str;
    }
    if (guest_count != 0) cs_free(guest, guest_count);
    if (host_count != 0) cs_free(host, host_count);
    return problem;
  }

 private:
  std::string NameOf(unsigned reg) {
    const char* name = cs_reg_name(handle_[2], reg);
    return name == nullptr ? "" : name;
  }

  static std::string GprName(u8 reg, unsigned bits, bool high_byte) {
    return ZydisRegisterGetString(GprRegister(reg, bits, high_byte));
  }

  std::string Compare(const Case& c, const cs_insn& guest, const cs_insn* host) {
    bool comparable = CapstoneReadsGuest(c.instr);
    if (host == nullptr) {
      // Capstone 4 knows no EVEX memory operand with both a high base and a high index; the GNU
      // assembler emits them just so.
      bool high_evex = c.instr.encoding == Encoding::kEvex && (c.out[1] & 0x60) == 0;
      return comparable && !high_evex ? "the host bytes do not decode" : "";
    }
    if (host->size != c.length) return "length";
    if (!comparable) return "";
    if (host->id != guest.id && guest.id != X86_INS_MOVABS) return "mnemonic";
    const cs_x86& g = guest.detail->x86;
    const cs_x86& h = host->detail->x86;
    if (g.op_count != h.op_count) return "operand count";
    for (unsigned i = 0; i < g.op_count; ++i) {
      const cs_x86_op& go = g.operands[i];
      const cs_x86_op& ho = h.operands[i];
      if (go.type != ho.type) return "operand type";
      // It takes EVEX.W and the size of FXSAVE and XSAVE areas from the mode.
      bool size_known = c.instr.encoding != Encoding::kEvex && c.instr.op == Op::kNone;
      if (size_known && go.size != ho.size) return "operand size";
      // XCHG with the accumulator is printed in another order.
      if (go.type == X86_OP_REG && guest.id != X86_INS_XCHG &&
          !RegisterMatches(c, NameOf(go.reg), NameOf(ho.reg))) {
        return "register";
      }
      if (go.type == X86_OP_IMM && go.imm != ho.imm) return "immediate";
      if (go.type == X86_OP_MEM && c.rewrite.replace_memory) {
        const HostMem& m = c.rewrite.memory;
        if (NameOf(ho.mem.base) != (m.base == kNoReg ? "" : GprName(m.base, 64, false))) {
          return "base";
        }
        std::string index = NameOf(ho.mem.index);
        if (index == "riz") index.clear();
        // Capstone 4 takes V' for the high bit of an index also where there is a plain SIB byte.
        bool wrong_index = c.instr.encoding == Encoding::kEvex &&
                           !(c.instr.bytes[c.instr.layout.vector_prefix + 3] & 0x08);
        if (!wrong_index && index != (m.index == kNoReg ? "" : GprName(m.index, 64, false)))
          return "index";
        // Capstone does not scale EVEX disp8; the new displacement is never a scaled one.
        if (ho.mem.disp != m.disp) return "displacement";
        if (ho.mem.segment != X86_REG_INVALID) return "segment";
      }
    }
    return "";
  }

  // Capstone 4 mistakes ignored prefixes for mandatory ones and the other way round, and operand
  // sizes and ignored VEX and EVEX bits outside 64-bit mode.
  static bool CapstoneReadsGuest(const Instr& instr) {
    if (instr.code_bits == 16) return false;
    if (instr.encoding != Encoding::kLegacy && instr.code_bits != 64) return false;
    unsigned first = instr.encoding == Encoding::kLegacy
                         ? instr.layout.rex != 0xff ? instr.layout.rex : instr.layout.opcode
                         : instr.layout.vector_prefix;
    static constexpr u8 kKnown[] = {0x66, 0xf2, 0xf3, 0x64, 0x65, 0xf0};
    unsigned prefixes = 0;
    for (; prefixes < first && instr.bytes[prefixes] != 0x0f; ++prefixes) {
      u8 prefix = instr.bytes[prefixes];
      if (std::count(std::begin(kKnown), std::end(kKnown), prefix) == 0) return false;
    }
    return prefixes <= 1;
  }

  static bool RegisterMatches(const Case& c, const std::string& guest, const std::string& host) {
    if (guest == host) return true;
    // Capstone 4 takes the GPR of some EVEX conversions for a vector register.
    if (c.instr.encoding == Encoding::kEvex && c.instr.gpr_count != 0) return true;
    for (unsigned i = 0; i < c.instr.gpr_count; ++i) {
      const GprUse& use = c.instr.gprs[i];
      u8 host_reg = c.rewrite.gpr[i] == kNoReg ? use.reg : c.rewrite.gpr[i];
      // Capstone states other widths for some registers (MOVMSKPS, PEXTRW): compare them whole.
      for (unsigned bits : {8u, 16u, 32u, 64u}) {
        bool high = use.high_byte && bits == 8;
        if (guest != GprName(use.reg, bits, high)) continue;
        for (unsigned host_bits : {8u, 16u, 32u, 64u}) {
          if (host == GprName(host_reg, host_bits, high && host_bits == 8)) return true;
        }
      }
    }
    return false;
  }

  csh handle_[3];
};

Rewrite RandomRewrite(Random& random, const Instr& instr) {
  Rewrite rewrite;
  if (instr.mem.present && (instr.code_bits != 64 || !OneIn(random, 8)) && !instr.mem.vsib) {
    rewrite.replace_memory = true;
    rewrite.memory.base = OneIn(random, 16) ? kNoReg : static_cast<u8>(random() % 16);
    u8 index = static_cast<u8>(random() % 16);
    rewrite.memory.index = index == 4 || OneIn(random, 2) ? kNoReg : index;
    i32 disp = static_cast<i32>(random());
    rewrite.memory.disp = OneIn(random, 3) ? 0 : OneIn(random, 2) ? static_cast<i8>(disp) : disp;
  }
  for (unsigned i = 0; i < instr.gpr_count; ++i) {
    if (OneIn(random, 2)) continue;
    rewrite.gpr[i] = static_cast<u8>(random() % (instr.gprs[i].high_byte ? 4 : 16));
  }
  return rewrite;
}

bool MayBeInexpressible(const Case& c) {
  for (unsigned i = 0; i < c.instr.gpr_count; ++i) {
    if (c.instr.gprs[i].high_byte) return true;
  }
  return false;
}

TEST_CASE("Fuzzed encodings survive rewriting, as Zydis and Capstone read them", "[rewrite]") {
  // ALIBI_FUZZ_ROUNDS=N for a long run by hand.
  const char* rounds_text = std::getenv("ALIBI_FUZZ_ROUNDS");
  const char* seed_text = std::getenv("ALIBI_FUZZ_SEED");
  unsigned long rounds = rounds_text != nullptr ? std::strtoul(rounds_text, nullptr, 0) : 4'000'000;
  Random random(seed_text != nullptr ? std::strtoul(seed_text, nullptr, 0) : 1);
  CapstoneChecker capstone;
  unsigned long rewritten = 0, known_to_capstone = 0, inexpressible = 0, failures = 0;
  std::vector<bool> seen(65536);
  for (unsigned long round = 0; round < rounds && failures < 40; ++round) {
    unsigned code_bits = OneIn(random, 4) ? (OneIn(random, 2) ? 16 : 32) : 64;
    std::array<u8, 15> bytes = RandomEncoding(random, code_bits);
    Case c;
    if (Decode(bytes.data(), bytes.size(), LinearAddr(0x1000), code_bits, &c.instr) !=
            DecodeStatus::kOk ||
        c.instr.treatment != Treatment::kIdent || c.instr.op == Op::kNop) {
      continue;
    }
    c.rewrite = RandomRewrite(random, c.instr);
    c.length = RewriteInstr(c.instr, c.rewrite, c.out);
    if (c.length == 0) {
      ++inexpressible;
      if (!MayBeInexpressible(c)) {
        ++failures;
        UNSCOPED_INFO("not rewritten: " << Hex(c.instr.bytes.data(), c.instr.length) << " "
                                        << Disassemble(c.instr));
      }
      continue;
    }
    ++rewritten;
    seen[c.instr.mnemonic] = true;
    std::string problem = CheckWithZydis(c);
    bool known = false;
    std::string foreign = capstone.Check(c, &known);
    known_to_capstone += known;
    if (!problem.empty() || !foreign.empty()) {
      ++failures;
      UNSCOPED_INFO(code_bits << "-bit " << Disassemble(c.instr) << " ["
                              << Hex(c.instr.bytes.data(), c.instr.length) << "] -> ["
                              << Hex(c.out, c.length) << "] Zydis: " << problem
                              << " Capstone: " << foreign);
    }
  }
  unsigned long mnemonics = std::count(seen.begin(), seen.end(), true);
  UNSCOPED_INFO(rewritten << " rewritten, " << known_to_capstone << " known to Capstone, "
                          << inexpressible << " inexpressible, " << mnemonics << " mnemonics");
  if (rounds_text != nullptr) {
    std::printf("%lu rewritten, %lu known to Capstone, %lu inexpressible, %lu mnemonics\n",
                rewritten, known_to_capstone, inexpressible, mnemonics);
  }
  CHECK(failures == 0);
  if (rounds >= 4'000'000) {
    CHECK(mnemonics > 1000);
    CHECK(known_to_capstone > rewritten / 2);
  }
}

}  // namespace
}  // namespace alibi::isa
