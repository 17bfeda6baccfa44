#include "testsuite/oracle/listing.h"

#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <fmt/format.h>

#include "base/check.h"
#include "translator/decoder.h"
#include "vcpu/contract.h"

namespace alibi::oracle {

using translator::Ccf;
using translator::Instr;

namespace {

class Capstone {
 public:
  Capstone() {
    ALIBI_CHECK(cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) == CS_ERR_OK, "Capstone works");
    insn_ = cs_malloc(handle_);
  }
  ~Capstone() {
    cs_free(insn_, 1);
    cs_close(&handle_);
  }
  // Length, 0: not understood.
  unsigned Decode(const u8* bytes, std::size_t size, u64 pc) {
    const u8* at = bytes;
    return cs_disasm_iter(handle_, &at, &size, &pc, insn_) ? insn_->size : 0;
  }
  std::string Text() const { return fmt::format("{} {}", insn_->mnemonic, insn_->op_str); }

 private:
  csh handle_ = 0;
  cs_insn* insn_ = nullptr;
};

const ZydisDecoder& Decoder() {
  static const ZydisDecoder decoder = [] {
    ZydisDecoder d;
    ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);  // NOPs, as in our decoder
    return d;
  }();
  return decoder;
}

std::string HexBytes(const u8* bytes, unsigned size) {
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x} ", bytes[i]);
  return text;
}

std::string FlagNames(u32 flags) {
  constexpr std::pair<u64, char> kNames[] = {{vcpu::kCf, 'c'}, {vcpu::kPf, 'p'}, {vcpu::kAf, 'a'},
                                             {vcpu::kZf, 'z'}, {vcpu::kSf, 's'}, {vcpu::kOf, 'o'}};
  std::string text;
  for (const auto& [flag, name] : kNames) text += flags & flag ? name : '-';
  return text;
}

// The guest instruction whose translation begins at this hot offset, or null.
const translator::CodeMapEntry* MapEntryAt(const Ccf& ccf, u32 offset) {
  for (const auto& entry : ccf.map) {
    if (entry.host_offset == offset) return &entry;
  }
  return nullptr;
}

std::string ListRange(u64 start, u64 end, const Ccf* map) {
  static Capstone capstone;
  std::string text;
  for (u64 at = start; at < end;) {
    const auto* bytes = reinterpret_cast<const u8*>(at);
    if (map != nullptr) {
      for (const auto& entry : map->map) {
        if (entry.host_offset == at - start) {
          text += fmt::format("  {} {}\n", entry.ident ? "IDENT    " : "         ",
                              translator::Disassemble(map->instrs[entry.instr_index]));
        }
      }
    }
    unsigned length = capstone.Decode(bytes, end - at, at);
    const std::string what = length != 0 ? capstone.Text() : "(not understood)";
    if (length == 0) length = 1;
    text += fmt::format("      {:x}  {:<33} {}\n", at, HexBytes(bytes, length), what);
    at += length;
  }
  return text;
}

// Golden listings: what differs between runs is replaced by what it is.
std::string StableOperand(const Ccf& ccf, const ZydisDecodedInstruction& z,
                          const ZydisDecodedOperand* operands, u64 at) {
  u64 target = 0;
  if (operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[0].imm.is_relative) {
    ZydisCalcAbsoluteAddress(&z, &operands[0], at, &target);
    if (target >= ccf.hot_start && target <= ccf.hot_end) {
      return fmt::format("hot+{:#x}", target - ccf.hot_start);
    }
    if (target >= ccf.cold_start && target < ccf.cold_end) {
      return fmt::format("cold+{:#x}", target - ccf.cold_start);
    }
    return "stub";
  }
  return "";
}

std::string ListStable(const Ccf& ccf, u64 start, u64 end, const char* region, bool marks) {
  static Capstone capstone;
  std::string text;
  for (u64 at = start; at < end;) {
    const auto* bytes = reinterpret_cast<const u8*>(at);
    if (marks) {
      if (const auto* entry = MapEntryAt(ccf, static_cast<u32>(at - start))) {
        text += fmt::format("{}{}\n", entry->ident ? "IDENT " : "      ",
                            translator::Disassemble(ccf.instrs[entry->instr_index]));
      }
    }
    ZydisDecodedInstruction z;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    ALIBI_CHECK(ZYAN_SUCCESS(ZydisDecoderDecodeFull(&Decoder(), bytes, end - at, &z, operands)),
                "emitted code decodes");
    capstone.Decode(bytes, end - at, at);
    std::string what = capstone.Text();
    const std::string stable = StableOperand(ccf, z, operands, at);
    if (!stable.empty()) what = fmt::format("{} {}", ZydisMnemonicGetString(z.mnemonic), stable);
    // mov r10, imm64 of a descriptor.
    if (z.mnemonic == ZYDIS_MNEMONIC_MOV && z.length == 10 &&
        operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
        operands[0].reg.value == ZYDIS_REGISTER_R10) {
      what = "mov r10, descriptor";
    }
    text += fmt::format("          {}+{:<4x} {}\n", region, at - start, what);
    at += z.length;
  }
  return text;
}

constexpr bool IsStolenName(ZydisRegister reg) {
  return reg == ZYDIS_REGISTER_R10 || reg == ZYDIS_REGISTER_R11;
}

// May emitted code have this memory operand? Guest memory is reached through r10 (a looked-up
// displacement) or r11 (a host address made from one, or the bounce buffer's), the VMM through
// %gs with a displacement that no guest value takes part in.
bool AllowedOperand(const ZydisDecodedInstruction& z, const ZydisDecodedOperand& operand) {
  const auto& mem = operand.mem;
  if (mem.type == ZYDIS_MEMOP_TYPE_AGEN) return true;  // LEA
  if (mem.segment == ZYDIS_REGISTER_GS) {
    // The VCPU block, slots, jump table; or a table indexed by r10 (the result of PEXT).
    if (mem.base != ZYDIS_REGISTER_NONE) return false;
    if (mem.index == ZYDIS_REGISTER_NONE) {
      return mem.disp.value < 0 && mem.disp.value >= kSlotsOffset;
    }
    return mem.index == ZYDIS_REGISTER_R10 && mem.scale == 8 &&
           (mem.disp.value == 0 || mem.disp.value == kJumpTableOffset);
  }
  if (mem.segment == ZYDIS_REGISTER_FS) return false;
  if (z.address_width != 64) return false;
  return IsStolenName(mem.index) || (mem.base == ZYDIS_REGISTER_R11);
}

// Instructions without a place in any translation.
bool ForbiddenMnemonic(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_CALL:
    case ZYDIS_MNEMONIC_RET:
    case ZYDIS_MNEMONIC_PUSH:
    case ZYDIS_MNEMONIC_POP:
    case ZYDIS_MNEMONIC_PUSHFQ:
    case ZYDIS_MNEMONIC_POPFQ:
    case ZYDIS_MNEMONIC_WRGSBASE:
    case ZYDIS_MNEMONIC_WRFSBASE:
    case ZYDIS_MNEMONIC_STD:
    case ZYDIS_MNEMONIC_CLI:
    case ZYDIS_MNEMONIC_STI:
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_CPUID:
      return true;
    default:
      return false;
  }
}

// Registers that ADD reg, %gs:[...] has made host addresses, for string instructions: a bit each.
u32 HostPointers(u32 before, const ZydisDecodedInstruction& z,
                 const ZydisDecodedOperand* operands) {
  if (z.operand_count == 0 || operands[0].type != ZYDIS_OPERAND_TYPE_REGISTER) return before;
  const ZydisRegister reg = operands[0].reg.value;
  const u32 bit = reg == ZYDIS_REGISTER_RSI ? 1 : reg == ZYDIS_REGISTER_RDI ? 2 : 0;
  const bool made = z.mnemonic == ZYDIS_MNEMONIC_ADD &&
                    operands[1].type == ZYDIS_OPERAND_TYPE_MEMORY &&
                    operands[1].mem.segment == ZYDIS_REGISTER_GS;
  return made ? before | bit : before & ~bit;
}

bool IsHostString(u32 host_pointers, const ZydisDecodedInstruction& z,
                  const ZydisDecodedOperand& operand) {
  const ZydisRegister base = operand.mem.base;
  return z.meta.category == ZYDIS_CATEGORY_STRINGOP &&
         ((base == ZYDIS_REGISTER_RSI && (host_pointers & 1)) ||
          (base == ZYDIS_REGISTER_RDI && (host_pointers & 2)));
}

void VerifyRange(const Ccf& ccf, u64 start, u64 end, std::vector<std::string>* complaints) {
  static Capstone capstone;
  u32 host_pointers = 0;
  for (u64 at = start; at < end;) {
    const auto* bytes = reinterpret_cast<const u8*>(at);
    ZydisDecodedInstruction z;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    auto complain = [&](const char* what) {
      complaints->push_back(
          fmt::format("* CCF of {:x}, host +{:x}: {}: {}", ccf.pc, at - start, what,
                      HexBytes(bytes, std::min<unsigned>(15, static_cast<unsigned>(end - at)))));
    };
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&Decoder(), bytes, end - at, &z, operands))) {
      complain("Zydis does not decode it");
      return;
    }
    // What Capstone 4 does not know (AVX-512 is spotty there) it cannot confirm.
    const unsigned foreign = capstone.Decode(bytes, end - at, at);
    const bool hint = z.meta.category == ZYDIS_CATEGORY_WIDENOP ||
                      z.mnemonic == ZYDIS_MNEMONIC_NOP || z.meta.isa_ext == ZYDIS_ISA_EXT_CET ||
                      z.mnemonic == ZYDIS_MNEMONIC_LFENCE || z.mnemonic == ZYDIS_MNEMONIC_MFENCE ||
                      z.mnemonic == ZYDIS_MNEMONIC_SFENCE;
    const bool newer = hint || z.encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY ||
                       z.meta.isa_ext == ZYDIS_ISA_EXT_RDWRFSGS;
    // It misreads EVEX instructions with a rounding mode.
    const bool rounding = z.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && z.raw.evex.b != 0;
    // A mandatory prefix that is not the last one is too much for it.
    const bool shuffled = z.raw.prefix_count > 1;
    if (foreign != z.length && !(foreign == 0 && (newer || shuffled)) && !rounding) {
      complain(foreign == 0 ? "Capstone does not decode it" : "Capstone sees another length");
    }
    if (ForbiddenMnemonic(z.mnemonic)) complain("no translation contains this");
    if (z.raw.imm[0].is_relative) {
      const u64 target = at + z.length + static_cast<u64>(z.raw.imm[0].value.s);
      if (target > ccf.entry && target - ccf.entry < translator::kEntryBytes) {
        complain("jumps to what a redirected entry overwrites");
      }
    }
    for (unsigned i = 0; i < z.operand_count; ++i) {
      if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY && !hint &&
          !AllowedOperand(z, operands[i]) && !IsHostString(host_pointers, z, operands[i])) {
        complain("memory without %gs or a displacement");
      }
    }
    host_pointers = HostPointers(host_pointers, z, operands);
    at += z.length;
  }
}

}  // namespace

std::string ListGuest(std::span<const u8> bytes, u64 pc, unsigned code_bits) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    Instr instr;
    const auto status = translator::Decode(
        bytes.data() + at, static_cast<unsigned>(std::min<std::size_t>(15, bytes.size() - at)),
        pc + at, code_bits, &instr);
    const unsigned length =
        status == translator::DecodeStatus::kOk && instr.length != 0 ? instr.length : 1;
    text += fmt::format(
        "  {:x}  {:<33} {}\n", pc + at, HexBytes(bytes.data() + at, length),
        status == translator::DecodeStatus::kOk ? translator::Disassemble(instr) : "(undefined)");
    at += length;
  }
  return text;
}

std::string ListGuest(const TestCase& test) {
  std::string text;
  u64 pc = test.initial.rip;
  for (std::size_t i = 0; i < test.code.size(); ++i) {
    const unsigned bits = i < test.code_bits.size() ? test.code_bits[i] : test.CodeBits();
    text += ListGuest(test.code[i], pc, bits);
    pc += test.code[i].size();
  }
  return text;
}

std::string ListIr(const Ccf& ccf) {
  constexpr const char* kPlans[] = {"direct", "checked", "simulate"};
  std::string text = fmt::format("TU at {:x}, {} instructions, {} bytes{}\n", ccf.pc,
                                 ccf.instrs.size(), ccf.guest_bytes,
                                 ccf.mode.simulate ? ", SIMULATE"
                                 : ccf.mode.single ? ", single"
                                                   : "");
  for (std::size_t i = 0; i < ccf.instrs.size(); ++i) {
    const Instr& instr = ccf.instrs[i];
    text +=
        fmt::format("  {:x}  {:<10} {:<8} read {} write {}{}", instr.pc,
                    translator::TreatmentName(instr.treatment),
                    kPlans[static_cast<unsigned>(ccf.plans[i].kind)], FlagNames(instr.flags_read),
                    FlagNames(instr.flags_written), instr.flags_written_maybe ? "?" : " ");
    if (instr.mem.present) {
      text += fmt::format("  mem{} {}{}", instr.mem.size, instr.mem.read ? "r" : "",
                          instr.mem.written ? "w" : "");
    }
    for (unsigned k = 0; k < instr.gpr_count; ++k) {
      const auto& use = instr.gprs[k];
      text += fmt::format("  r{}.{}{}{}{}", use.reg, use.bits, use.high_byte ? "h" : "",
                          use.read ? "r" : "", use.written ? "w" : "");
    }
    text += fmt::format("  {}\n", translator::Disassemble(instr));
  }
  return text;
}

std::string ListHost(const Ccf& ccf, bool absolute) {
  if (!absolute) {
    return ListStable(ccf, ccf.hot_start, ccf.hot_end, "hot", true) +
           ListStable(ccf, ccf.cold_start, ccf.cold_end, "cold", false);
  }
  return "  hot:\n" + ListRange(ccf.hot_start, ccf.hot_end, &ccf) + "  cold:\n" +
         ListRange(ccf.cold_start, ccf.cold_end, nullptr);
}

std::vector<std::string> Verify(const Ccf& ccf) {
  std::vector<std::string> complaints;
  VerifyRange(ccf, ccf.hot_start, ccf.hot_end, &complaints);
  VerifyRange(ccf, ccf.cold_start, ccf.cold_end, &complaints);
  return complaints;
}

}  // namespace alibi::oracle
