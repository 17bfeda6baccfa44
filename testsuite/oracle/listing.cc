// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/listing.h"

#include <fmt/format.h>

#include "isa/decoder.h"
#include "testsuite/emitted_code/stable_listing.h"
#include "testsuite/host_disassembler.h"

namespace alibi::oracle {

using isa::Instr;
using testsuite::Capstone;
using translator::Ccf;

namespace {

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
  for (const auto& entry : ccf.map()) {
    if (entry.host_offset == offset) return &entry;
  }
  return nullptr;
}

std::string ListRange(HostAddr start, HostAddr end, const Ccf* map) {
  static Capstone capstone;
  std::string text;
  for (HostAddr at = start; at < end;) {
    const u8* bytes = at.As();
    if (map != nullptr) {
      for (const auto& entry : map->map()) {
        if (entry.host_offset == at - start) {
          text += fmt::format("  {} {}\n", entry.ident ? "IDENT    " : "         ",
                              isa::Disassemble(map->instrs()[entry.instr_index]));
        }
      }
    }
    unsigned length = capstone.Decode(bytes, end - at, at.value);
    const std::string what = length != 0 ? capstone.Text() : "(not understood)";
    if (length == 0) length = 1;
    text += fmt::format("      {:x}  {:<33} {}\n", at.value, HexBytes(bytes, length), what);
    at += length;
  }
  return text;
}

}  // namespace

std::string ListGuest(std::span<const u8> bytes, u64 pc, unsigned code_bits) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    Instr instr;
    const auto status = isa::Decode(
        bytes.data() + at, static_cast<unsigned>(std::min<std::size_t>(15, bytes.size() - at)),
        LinearAddr(pc + at), code_bits, &instr);
    const unsigned length =
        status == isa::DecodeStatus::kOk && instr.length != 0 ? instr.length : 1;
    text += fmt::format("  {:x}  {:<33} {}\n", pc + at, HexBytes(bytes.data() + at, length),
                        status == isa::DecodeStatus::kOk ? isa::Disassemble(instr) : "(undefined)");
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
  std::string text = fmt::format("TU at {:x}, {} instructions, {} bytes{}\n", ccf.pc.value,
                                 ccf.instrs().size(), ccf.guest_bytes,
                                 ccf.mode.simulate ? ", SIMULATE"
                                 : ccf.mode.single ? ", single"
                                                   : "");
  for (std::size_t i = 0; i < ccf.instrs().size(); ++i) {
    const Instr& instr = ccf.instrs()[i];
    text +=
        fmt::format("  {:x}  {:<10} {:<8} read {} write {}{}", instr.pc.value,
                    isa::TreatmentName(instr.treatment),
                    kPlans[static_cast<unsigned>(ccf.plans()[i].kind)], FlagNames(instr.flags_read),
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
    text += fmt::format("  {}\n", isa::Disassemble(instr));
  }
  return text;
}

std::string ListHost(const Ccf& ccf) {
  return "  hot:\n" + ListRange(ccf.hot_start, ccf.hot_end, &ccf) + "  cold:\n" +
         ListRange(ccf.cold_start, ccf.cold_end, nullptr);
}

std::string ListStable(const Ccf& ccf, const StubTable& stubs) {
  std::string text;
  for (const testsuite::StableLine& line : testsuite::StableListing(ccf, stubs)) {
    if (const auto* entry = line.cold ? nullptr : MapEntryAt(ccf, line.offset)) {
      text += fmt::format("{}{}\n", entry->ident ? "IDENT " : "      ",
                          isa::Disassemble(ccf.instrs()[entry->instr_index]));
    }
    text +=
        fmt::format("          {}+{:<4x} {}\n", line.cold ? "cold" : "hot", line.offset, line.text);
  }
  return text;
}

}  // namespace alibi::oracle
