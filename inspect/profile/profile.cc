// SPDX-License-Identifier: Apache-2.0
#include "inspect/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "isa/decoder.h"

namespace alibi::vmm {
namespace {

using isa::Instr;
using isa::Op;
using isa::Treatment;
using isa::Unit;
using nlohmann::ordered_json;
using translator::Ccf;
using translator::SiteKind;

constexpr std::size_t kHottestBlocks = 50;  // in a file

struct ClassRow {
  const char* name;
  bool (*holds)(const Instr&);
};

constexpr ClassRow kClasses[] = {
#define ALIBI_INSTRUCTION_CLASS(name, what, predicate) \
  {#name, [](const Instr& i) -> bool { return predicate; }},
#include "inspect/profile/classes.inc"
};
static_assert(std::size(kClasses) == static_cast<std::size_t>(InstrClass::kCount));

constexpr const char* kExecutions[] = {
#define ALIBI_EXECUTION(name, what) #name,
#include "inspect/profile/executions.inc"
};

Execution ExecutionOf(const Ccf& ccf, std::size_t i) {
  const Instr& instr = ccf.instrs()[i];
  const auto by_kind = [&] {
    switch (ccf.plans()[i].kind) {
      case SiteKind::kDirect:
        return Execution::memory_direct;
      case SiteKind::kChecked:
        return Execution::memory_checked;
      case SiteKind::kSimulate:
        return Execution::memory_simulate;
    }
    return Execution::simulate;
  };
  switch (instr.treatment) {
    case Treatment::kIdent:
      if (ccf.map()[i].ident) return Execution::ident;
      return instr.mem.present && instr.mem.size != 0 ? by_kind() : Execution::reg;
    case Treatment::kStack:
      return by_kind();
    case Treatment::kControl:
      return ccf.plans()[i].kind == SiteKind::kSimulate ? Execution::simulate : Execution::control;
    case Treatment::kInTc:
      return ccf.plans()[i].kind == SiteKind::kSimulate ? Execution::simulate : Execution::in_tc;
    case Treatment::kSimulate:
    case Treatment::kTerminator:
    case Treatment::kUndefined:
      return Execution::simulate;
  }
  return Execution::simulate;
}

}  // namespace

u64 ExecutionProfile::Block::Total() const {
  u64 total = 0;
  for (const u64 count : executed) total += count;
  return total;
}

void ExecutionProfile::OnExecutions(const Ccf& ccf, const translator::ExecutionCounts& counts) {
  ModeCounts& mode = modes_[{ccf.mode.code_bits, ccf.mode.user}];
  if (!counts.told_before) {
    ++mode.translations;
    mode.translated += ccf.instrs().size();
    ++lengths_[ccf.instrs().size()];
    if (counts.entered == 0) ++idle_translations_;
  }
  if (counts.entered == 0) return;
  mode.entered += counts.entered;

  BlockKey key{ccf.pc, ccf.mode.code_bits, ccf.mode.user, {}};
  for (const Instr& instr : ccf.instrs()) {
    key.bytes.insert(key.bytes.end(), instr.bytes.begin(), instr.bytes.begin() + instr.length);
  }
  Block& block = blocks_[std::move(key)];
  block.entered += counts.entered;
  block.executed.resize(ccf.instrs().size());
  block.lengths.resize(ccf.instrs().size());
  u64 executed = counts.entered;
  for (std::size_t i = 0; i < ccf.instrs().size(); ++i) {
    const Instr& instr = ccf.instrs()[i];
    executed -= counts.left_before[i];
    instructions_ += executed;
    mode.executed += executed;
    block.executed[i] += executed;
    block.lengths[i] = instr.length;
    MnemonicCounts& mnemonic = mnemonics_[instr.mnemonic];
    (ccf.mode.user ? mnemonic.user : mnemonic.kernel) += executed;
    executions_[static_cast<std::size_t>(ExecutionOf(ccf, i))] += executed;
    for (std::size_t c = 0; c < std::size(kClasses); ++c) {
      if (kClasses[c].holds(instr)) mode.classes[c] += executed;
    }
  }
  if (blocks_.size() > most_blocks_) ForgetColdBlocks();
}

void ExecutionProfile::ForgetColdBlocks() {
  const std::size_t kept = most_blocks_ / 4;
  std::vector<u64> totals;
  for (const auto& [key, block] : blocks_) totals.push_back(block.Total());
  std::nth_element(totals.begin(), totals.begin() + kept, totals.end(), std::greater<>());
  const u64 least = totals[kept];
  // Those that are as hot as the first one dropped: some of them have room.
  std::size_t equals = kept;
  for (std::size_t i = 0; i < kept; ++i) equals -= totals[i] > least;
  forgotten_blocks_ += std::erase_if(blocks_, [&](const auto& entry) {
    const u64 total = entry.second.Total();
    if (total > least || (total == least && equals > 0)) {
      equals -= total == least;
      return false;
    }
    forgotten_instructions_ += total;
    return true;
  });
}

u64 ExecutionProfile::of(InstrClass which) const {
  u64 sum = 0;
  for (const auto& [key, counts] : modes_) sum += counts.classes[static_cast<std::size_t>(which)];
  return sum;
}

u64 ExecutionProfile::ExecutionsAt(LinearAddr pc) const {
  u64 sum = 0;
  for (const auto& [key, block] : blocks_) {
    LinearAddr at = key.pc;
    for (std::size_t i = 0; i < block.executed.size() && at <= pc; at += block.lengths[i++]) {
      if (at == pc) sum += block.executed[i];
    }
  }
  return sum;
}

ordered_json ExecutionProfile::Json(std::size_t most_blocks) const {
  ordered_json json;
  json["instructions"] = instructions_;
  ordered_json& modes = json["modes"] = ordered_json::array();
  for (const auto& [key, counts] : modes_) {
    ordered_json classes = ordered_json::object();
    for (std::size_t i = 0; i < std::size(kClasses); ++i) {
      if (counts.classes[i] != 0) classes[kClasses[i].name] = counts.classes[i];
    }
    modes.push_back({{"code_bits", key.first},
                     {"user", key.second},
                     {"entered", counts.entered},
                     {"instructions", counts.executed},
                     {"translations", counts.translations},
                     {"translated_instructions", counts.translated},
                     {"classes", std::move(classes)}});
  }
  ordered_json& classes = json["classes"] = ordered_json::object();
  for (std::size_t i = 0; i < std::size(kClasses); ++i) {
    classes[kClasses[i].name] = of(static_cast<InstrClass>(i));
  }
  ordered_json& executions = json["executions"] = ordered_json::object();
  for (std::size_t i = 0; i < std::size(kExecutions); ++i) {
    executions[kExecutions[i]] = executions_[i];
  }
  json["translation_lengths"] = lengths_;
  json["translations_not_entered"] = idle_translations_;

  std::vector<std::pair<u16, MnemonicCounts>> by_count(mnemonics_.begin(), mnemonics_.end());
  std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) {
    return a.second.kernel + a.second.user > b.second.kernel + b.second.user;
  });
  ordered_json& mnemonics = json["mnemonics"] = ordered_json::object();
  for (const auto& [number, counts] : by_count) {
    mnemonics[isa::MnemonicName(number)] = {{"kernel", counts.kernel}, {"user", counts.user}};
  }

  std::vector<std::pair<const BlockKey*, const Block*>> hottest;
  for (const auto& [key, block] : blocks_) hottest.emplace_back(&key, &block);
  std::stable_sort(hottest.begin(), hottest.end(), [](const auto& a, const auto& b) {
    return a.second->Total() > b.second->Total();
  });
  json["blocks_forgotten"] = forgotten_blocks_;
  json["instructions_forgotten"] = forgotten_instructions_;
  ordered_json& blocks = json["blocks"] = ordered_json::array();
  for (std::size_t b = 0; b < std::min(most_blocks, hottest.size()); ++b) {
    const auto& [key, block] = hottest[b];
    ordered_json lines = ordered_json::array();
    LinearAddr pc = key->pc;
    std::span<const u8> bytes(key->bytes);
    for (std::size_t i = 0; i < block->executed.size(); ++i) {
      lines.push_back(
          {{"executed", block->executed[i]},
           {"text", isa::DisassembleBytes(bytes.first(block->lengths[i]), pc, key->code_bits)}});
      bytes = bytes.subspan(block->lengths[i]);
      pc += block->lengths[i];
    }
    blocks.push_back({{"pc", fmt::format("{:#x}", key->pc.value)},
                      {"code_bits", key->code_bits},
                      {"user", key->user},
                      {"entered", block->entered},
                      {"instructions", block->Total()},
                      {"code", std::move(lines)}});
  }
  return json;
}

std::string ProfileText(const ExecutionProfile& profile, const std::string& stats_json) {
  ordered_json json;
  json["format"] = "alibi-profile";
  json["version"] = 1;
  json["stats"] = ordered_json::parse(stats_json);
  json["profile"] = profile.Json(kHottestBlocks);
  return json.dump(1) + "\n";
}

}  // namespace alibi::vmm
