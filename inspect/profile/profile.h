// SPDX-License-Identifier: Apache-2.0
// What a guest executed, counted exactly: instructions by class, mnemonic, mode and treatment, and
// the hottest blocks. The counts come from the translations themselves (see
// runtime::TranslatingEngineOptions::executions), so that what runs without the VMM is in them.
#ifndef ALIBI_INSPECT_PROFILE_PROFILE_H_
#define ALIBI_INSPECT_PROFILE_PROFILE_H_

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/types.h"
#include "runtime/translating_engine.h"
#include "translator/ccf.h"

namespace alibi::vmm {

// How instructions are executed, from the guest's own bytes to a callout each.
enum class Execution : u8 {
#define ALIBI_EXECUTION(name, what) name,
#include "inspect/profile/executions.inc"
  kCount
};

enum class InstrClass : u8 {
#define ALIBI_INSTRUCTION_CLASS(name, what, predicate) name,
#include "inspect/profile/classes.inc"
  kCount
};

class ExecutionProfile final : public runtime::ExecutionSink {
 public:
  // A guest that loads program after program must not make the profile grow for ever: beyond
  // `most_blocks`, the colder three quarters are dropped.
  explicit ExecutionProfile(std::size_t most_blocks = 200'000) : most_blocks_(most_blocks) {}

  void OnExecutions(const translator::Ccf& ccf, const translator::ExecutionCounts& counts) override;

  u64 instructions() const { return instructions_; }
  u64 of(InstrClass which) const;
  u64 of(Execution how) const { return executions_[static_cast<std::size_t>(how)]; }
  // Executions of the instruction at `pc`, in blocks that are still known.
  u64 ExecutionsAt(LinearAddr pc) const;

  // The members that docs/observability.md describes. `blocks`: how many of the hottest.
  nlohmann::ordered_json Json(std::size_t blocks) const;

 private:
  // Code is told apart by place, mode and bytes, whatever translations it has had.
  struct BlockKey {
    LinearAddr pc;
    u8 code_bits;
    bool user;
    std::vector<u8> bytes;
    auto operator<=>(const BlockKey&) const = default;
  };
  struct Block {
    u64 entered = 0;
    std::vector<u64> executed;  // by instruction
    std::vector<u8> lengths;    // of the instructions, bytes
    u64 Total() const;
  };
  struct ModeCounts {
    u64 entered = 0, executed = 0;
    u64 translations = 0, translated = 0;  // TUs, and instructions in them
    std::array<u64, static_cast<std::size_t>(InstrClass::kCount)> classes{};
  };
  struct MnemonicCounts {
    u64 kernel = 0, user = 0;
  };

  void ForgetColdBlocks();

  const std::size_t most_blocks_;
  u64 instructions_ = 0;
  std::array<u64, static_cast<std::size_t>(Execution::kCount)> executions_{};
  std::array<u64, translator::kMaxTuInstructions + 1> lengths_{};  // TUs by number of instructions
  std::map<std::pair<u8, bool>, ModeCounts> modes_;                // code bits, CPL 3
  std::map<u16, MnemonicCounts> mnemonics_;
  std::map<BlockKey, Block> blocks_;
  u64 forgotten_blocks_ = 0, forgotten_instructions_ = 0;
  u64 idle_translations_ = 0;  // made, and not entered before they were told of
};

// A file of `alibi run --profile`: the profile, and the run's counters as `--stats-json` has them.
std::string ProfileText(const ExecutionProfile& profile, const std::string& stats_json);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_PROFILE_PROFILE_H_
