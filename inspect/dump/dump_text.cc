// SPDX-License-Identifier: Apache-2.0
#include "inspect/dump/dump_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "inspect/dump/host_listing.h"
#include "isa/decoder.h"
#include "vcpu/state.h"

namespace alibi::vmm {
namespace {

using isa::Instr;
using isa::Treatment;
using translator::Ccf;
using translator::ExitDesc;
using translator::ExitKind;
using translator::SiteKind;

constexpr const char* kKindNames[] = {"DIRECT", "CHECKED", "SIMULATE"};
constexpr std::size_t kTextWidth = 46;
constexpr std::string_view kBranchRecord = "gs:vcpu.last_branch";

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  return text;
}

std::string Hex(const u8* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", bytes[i]);
  return text;
}

// "C P A Z S O", of those in the set; "-" for none.
std::string FlagSet(u64 flags) {
  static constexpr std::pair<u64, char> kFlags[] = {{vcpu::kCf, 'C'}, {vcpu::kPf, 'P'},
                                                    {vcpu::kAf, 'A'}, {vcpu::kZf, 'Z'},
                                                    {vcpu::kSf, 'S'}, {vcpu::kOf, 'O'}};
  std::string text;
  for (const auto& [flag, letter] : kFlags) {
    if (flags & flag) text += letter;
  }
  return text.empty() ? "-" : text;
}

bool TouchesMemory(const Instr& instr) {
  return (instr.mem.present && instr.mem.size != 0) || instr.treatment == Treatment::kStack;
}

// What the translation of an instruction is, for the comment behind its first host instruction.
std::string Mark(const Translation& translation, std::size_t i) {
  const Ccf& ccf = *translation.ccf;
  for (const translator::CodeMapEntry& entry : ccf.map()) {
    if (entry.instr_index == i && entry.ident) return "IDENT";
  }
  std::string mark = isa::MnemonicName(ccf.instrs()[i].mnemonic);
  mark = Upper(mark);
  if (TouchesMemory(ccf.instrs()[i])) {
    mark += std::string(", ") + kKindNames[static_cast<unsigned>(ccf.plans()[i].kind)];
  } else if (ccf.instrs()[i].treatment == Treatment::kIdent) {
    mark += ", r10/r11 substituted";
  } else if (ccf.instrs()[i].treatment != Treatment::kControl) {
    mark += std::string(", ") + isa::TreatmentName(ccf.instrs()[i].treatment);
  }
  return mark;
}

}  // namespace

DumpText::DumpText(const Recorder& recorder, const runtime::TranslatingEngine& engine,
                   std::map<LinearAddr, std::string> labels)
    : recorder_(recorder), engine_(engine), labels_(std::move(labels)) {
  std::map<LinearAddr, unsigned> versions;
  for (const Translation& translation : recorder_.translations()) {
    const Ccf& ccf = *translation.ccf;
    if (!hot_base_ || translation.hot_start < hot_base_) hot_base_ = translation.hot_start;
    if (!cold_base_ || translation.cold_start < cold_base_) cold_base_ = translation.cold_start;
    // isPrime', isPrime'', ... as an instruction is translated anew.
    const unsigned version = ++versions[translation.pc];
    const std::string name =
        GuestName(translation.pc) +
        (version <= 3 ? std::string(version, '\'') : fmt::format("'{}", version));
    names_[&ccf] = name;
    descriptors_[HostAddr(&ccf)] = "&" + name;
    hosts_[ccf.entry] = name;
    if (ccf.indirect_entry) hosts_[ccf.indirect_entry] = name + " (checked entry)";
    for (std::size_t i = 0; i < ccf.sites().size(); ++i) {
      descriptors_[HostAddr(ccf.sites()[i])] =
          fmt::format("&site[{}]", ccf.sites()[i]->instr_index);
    }
    for (std::size_t i = 0; i < ccf.exits().size(); ++i) {
      descriptors_[HostAddr(ccf.exits()[i])] = fmt::format("&exit[{}]", i);
      if (ccf.exits()[i]->stub) exit_stubs_[ccf.exits()[i]->stub] = ccf.exits()[i];
    }
  }
}

void DumpText::Limit(LinearAddr first, LinearAddr last) {
  first_ = first;
  last_ = last;
}

bool DumpText::Shown(const Translation& translation) const {
  return translation.pc < last_ && translation.pc + translation.ccf->guest_bytes > first_;
}

std::string DumpText::GuestName(LinearAddr pc) const {
  const auto it = labels_.find(pc);
  return it != labels_.end() ? it->second : fmt::format("{:#x}", pc.value);
}

std::string DumpText::Relative(HostAddr host) const {
  for (const Translation& translation : recorder_.translations()) {
    if (host - translation.cold_start < translation.cold.size()) {
      return fmt::format("cold+{:#06x}", host - cold_base_);
    }
    if (host - translation.hot_start < translation.hot.size()) {
      return fmt::format("hot+{:#06x}", host - hot_base_);
    }
  }
  return engine_.DescribeHostPc(host);
}

std::string DumpText::HostName(HostAddr host) const {
  if (const auto it = hosts_.find(host); it != hosts_.end()) return it->second;
  if (const auto it = exit_stubs_.find(host); it != exit_stubs_.end()) {
    return "[" + GuestName(it->second->target) + "]";
  }
  return Relative(host);
}

std::string DumpText::Operands(const HostInstr& instr) const {
  if (instr.jump) return HostName(instr.target);
  // The record of computed branches holds a descriptor's offset, which says nothing to a reader.
  if (instr.operands.starts_with(kBranchRecord))
    return std::string(kBranchRecord) + ", (this exit)";
  if (!instr.has_immediate) return instr.operands;
  // An address of ours must not be shown: it differs from run to run.
  const auto it = descriptors_.find(HostAddr(instr.immediate));
  if (it == descriptors_.end()) return instr.operands;
  return instr.operands.substr(0, instr.operands.rfind(' ') + 1) + it->second;
}

std::string DumpText::InstrText(const Translation& translation, std::size_t i) const {
  const Instr& instr = translation.ccf->instrs()[i];
  if (instr.HasRelativeTarget()) {
    const std::string text = isa::Disassemble(instr);
    return text.substr(0, text.find(' ')) + " " + GuestName(instr.branch_target);
  }
  return isa::Disassemble(instr);
}

std::string DumpText::GuestListing() const {
  std::map<LinearAddr, std::string> lines;
  for (const Translation& translation : recorder_.translations()) {
    if (!Shown(translation)) continue;
    for (std::size_t i = 0; i < translation.ccf->instrs().size(); ++i) {
      const Instr& instr = translation.ccf->instrs()[i];
      const auto label = labels_.find(instr.pc);
      lines[instr.pc] = fmt::format(
          "  {:<12}{:#x}  {:<30} {}\n", label != labels_.end() ? label->second + ":" : "",
          instr.pc.value, Hex(instr.bytes.data(), instr.length), InstrText(translation, i));
    }
  }
  std::string text;
  for (const auto& [pc, line] : lines) text += line;
  return text;
}

std::string DumpText::HotListing(const Translation& translation, const std::vector<u8>& bytes,
                                 bool asterisk, HostAddr only_jump_at) const {
  const Ccf& ccf = *translation.ccf;
  std::string text;
  std::size_t map_index = 0;
  for (const HostInstr& instr : DisassembleHost(bytes, translation.hot_start)) {
    const u32 offset = static_cast<u32>(instr.address - translation.hot_start);
    std::string mark;
    while (map_index < ccf.map().size() && ccf.map()[map_index].host_offset <= offset) {
      if (ccf.map()[map_index].host_offset == offset) {
        const bool forwarding = only_jump_at == instr.address;
        mark =
            "; " + (forwarding ? "forwarded" : Mark(translation, ccf.map()[map_index].instr_index));
      }
      ++map_index;
    }
    const bool first = asterisk && instr.address == ccf.entry;
    std::string line = fmt::format("    {:<12} {}{:<7} {}", Relative(instr.address),
                                   first ? '*' : ' ', instr.mnemonic, Operands(instr));
    if (!mark.empty()) line = fmt::format("{:<{}} {}", line, kTextWidth + 20, mark);
    while (line.back() == ' ') line.pop_back();
    text += line + "\n";
    if (only_jump_at && instr.address >= only_jump_at && instr.jump) break;
  }
  return text;
}

std::string DumpText::ColdListing(const Translation& translation) const {
  const Ccf& ccf = *translation.ccf;
  std::string text;
  for (const HostInstr& instr : DisassembleHost(translation.cold, translation.cold_start)) {
    std::string line = fmt::format("    {:<12}  {:<7} {}", Relative(instr.address), instr.mnemonic,
                                   Operands(instr));
    const auto stub = exit_stubs_.find(instr.address);
    if (stub != exit_stubs_.end()) {
      line = fmt::format("{:<{}} ; continuation [{}]", line, kTextWidth + 20,
                         GuestName(stub->second->target));
    } else {
      for (const translator::ColdMapEntry& entry : ccf.cold_map()) {
        if (entry.cold_offset != instr.address - translation.cold_start) continue;
        line = fmt::format("{:<{}} ; #{}, out of line", line, kTextWidth + 20, entry.instr_index);
      }
    }
    while (line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string DumpText::TranslationText(const Translation& translation) const {
  const Ccf& ccf = *translation.ccf;
  std::string text = fmt::format(
      "{}: {} instruction{}, {} guest bytes -> {} hot + {} cold; {}-bit, CPL {}{}{}\n",
      names_.at(&ccf), ccf.instrs().size(), ccf.instrs().size() == 1 ? "" : "s", ccf.guest_bytes,
      translation.hot.size(), translation.cold.size(), ccf.mode.code_bits, ccf.mode.user ? 3 : 0,
      ccf.mode.single ? ", single" : "", ccf.mode.simulate ? ", simulate" : "");
  text += "  IR\n";
  for (std::size_t i = 0; i < ccf.instrs().size(); ++i) {
    const Instr& instr = ccf.instrs()[i];
    std::string line =
        fmt::format("    #{:<2} {:<34} {:<10} {:<11}", i, InstrText(translation, i),
                    isa::TreatmentName(instr.treatment),
                    instr.op == isa::Op::kNone ? "-" : std::string(isa::OpName(instr.op)));
    line += fmt::format(" flags read {:<6} written {:<6}", FlagSet(instr.flags_read),
                        FlagSet(instr.flags_written) + (instr.flags_written_maybe ? "?" : ""));
    if (translation.tu != nullptr) {
      line += fmt::format(" live {:<6}", FlagSet(translation.tu->flags_live_after[i]));
    }
    if (TouchesMemory(instr)) {
      line += fmt::format(" {}", kKindNames[static_cast<unsigned>(ccf.plans()[i].kind)]);
    }
    while (line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  text += "  CCF as first emitted\n" + HotListing(translation, translation.hot, false);
  if (!translation.cold.empty()) text += "  out of line\n" + ColdListing(translation);
  return text;
}

std::string DumpText::CacheContents() const {
  std::vector<const Translation*> order;
  for (const Translation& translation : recorder_.translations()) {
    if (Shown(translation)) order.push_back(&translation);
  }
  std::stable_sort(order.begin(), order.end(), [](const Translation* a, const Translation* b) {
    return a->hot_start < b->hot_start;
  });
  std::string text;
  for (const Translation* translation : order) {
    const Ccf& ccf = *translation->ccf;
    std::string state;
    if (ccf.retired) {
      state = "  (retired: forwards to its replacement)";
    } else if (!ccf.valid) {
      state = "  (invalid: its guest code changed)";
    }
    text += fmt::format("  {}:{}\n", names_.at(&ccf), state);
    const bool forwards = ccf.retired || !ccf.valid;
    // Behind a forwarding jump lies what is left of code that nothing reaches any more.
    text += HotListing(*translation, HostBytes(translation->hot_start, ccf.hot_end), true,
                       forwards ? ccf.entry : HostAddr());
    if (forwards) continue;
    for (const ExitDesc* exit : ccf.exits()) {
      if (!exit->elided) continue;
      const auto name = names_.find(exit->linked);
      text += fmt::format("    {:<12}  ; falls through into {}\n", "",
                          name != names_.end() ? name->second : GuestName(exit->target));
    }
  }
  return text;
}

std::string DumpText::Exits() const {
  std::string text;
  for (const Translation& translation : recorder_.translations()) {
    if (!Shown(translation)) continue;
    const Ccf& ccf = *translation.ccf;
    for (std::size_t i = 0; i < ccf.exits().size(); ++i) {
      const ExitDesc& exit = *ccf.exits()[i];
      static constexpr const char* kKinds[] = {"direct", "cross-page", "indirect"};
      std::string before, after;
      switch (exit.kind) {
        case ExitKind::kDirect:
          before = "[" + GuestName(exit.target) + "]";
          break;
        case ExitKind::kCrossPage:
          before = GuestName(exit.target) + " by jump table";
          break;
        case ExitKind::kIndirect:
          before = "by jump table";
          break;
      }
      const auto linked = names_.find(exit.linked);
      if (exit.elided) {
        after = "elided: falls through";
      } else if (exit.linked != nullptr) {
        after = "jumps to " + (linked != names_.end() ? linked->second : GuestName(exit.target));
      } else {
        after = exit.kind == ExitKind::kDirect ? "never taken" : "by jump table";
      }
      text += fmt::format("  {:<14} exit {}  {:<10} {:<24} -> {}\n", names_.at(&ccf), i,
                          kKinds[static_cast<unsigned>(exit.kind)], before, after);
    }
  }
  return text;
}

std::string DumpText::Adaptations() const {
  std::string text;
  for (const Translation& translation : recorder_.translations()) {
    if (translation.replaced == nullptr || !Shown(translation)) continue;
    const Ccf& from = *translation.replaced;
    const Ccf& to = *translation.ccf;
    const auto old_name = names_.find(&from);
    if (old_name == names_.end()) continue;
    text += fmt::format("  {} -> {}\n", old_name->second, names_.at(&to));
    for (std::size_t i = 0; i < to.plans().size() && i < from.plans().size(); ++i) {
      if (to.plans()[i].kind == from.plans()[i].kind) continue;
      text += fmt::format("    #{} {}: {} -> {}\n", i, InstrText(translation, i),
                          kKindNames[static_cast<unsigned>(from.plans()[i].kind)],
                          kKindNames[static_cast<unsigned>(to.plans()[i].kind)]);
    }
    text += fmt::format("    the old CCF's entry now:\n");
    for (const HostInstr& instr :
         DisassembleHost(HostBytes(from.entry, from.entry + 5), from.entry)) {
      text += fmt::format("    {:<12}  {:<7} {}\n", Relative(instr.address), instr.mnemonic,
                          Operands(instr));
      if (instr.jump) break;
    }
  }
  return text;
}

}  // namespace alibi::vmm
