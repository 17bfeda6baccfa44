// SPDX-License-Identifier: Apache-2.0
#include "adapt/engine_plugin.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "adapt/plugin_file.h"
#include "alibi/engine_policy.h"

namespace alibi::adapt {
namespace {

using Kind = EngineEvent::Kind;

static_assert(ALIBI_ENGINE_TRANSLATE == static_cast<unsigned>(UserEngine::kTranslate) &&
              ALIBI_ENGINE_DIRECT == static_cast<unsigned>(UserEngine::kDirect));
static_assert(ALIBI_ENGINE_FIRST == static_cast<unsigned>(Kind::kFirst) &&
              ALIBI_ENGINE_SAMPLE == static_cast<unsigned>(Kind::kSample) &&
              ALIBI_ENGINE_KERNEL_SAMPLE == static_cast<unsigned>(Kind::kKernelSample) &&
              ALIBI_ENGINE_RAN == static_cast<unsigned>(Kind::kRan) &&
              ALIBI_ENGINE_REFUSED == static_cast<unsigned>(Kind::kRefused) &&
              ALIBI_ENGINE_UNFIT == static_cast<unsigned>(Kind::kUnfit) &&
              ALIBI_ENGINE_EMPTIED == static_cast<unsigned>(Kind::kEmptied) &&
              ALIBI_ENGINE_EVENT_COUNT == kEngineEventCount);
static_assert(sizeof(alibi_address_space::data) == sizeof(EngineRecord::data));

constexpr PluginContract kContract = {
    .kind = "engine policy plug-in",
    .policy = "engine policy",
    .entry = "alibi_engine_policy",
    .header = "include/alibi/engine_policy.h",
    .abi = ALIBI_ENGINE_POLICY_ABI,
    .table_size = sizeof(alibi_engine_policy_table),
    .known_needs = 0,
};
using Table = alibi_engine_policy_table;
static_assert(offsetof(Table, needs) == offsetof(PluginTableHead, needs) &&
              offsetof(Table, create) == offsetof(PluginTableHead, create) &&
              offsetof(Table, destroy) == offsetof(PluginTableHead, destroy) &&
              offsetof(Table, on_event) == offsetof(PluginTableHead, on_event));

class EnginePlugin final : public EnginePolicy {
 public:
  EnginePlugin(std::unique_ptr<PluginFile> file, std::unique_ptr<EnginePolicy> successor)
      : file_(std::move(file)),
        table_(static_cast<const Table*>(file_->table())),
        successor_(std::move(successor)) {}

  const char* name() const override { return file_->name().c_str(); }
  const char* fault() const override { return file_->fault(); }

  UserEngine OnEvent(EngineRecord& record, const EngineEvent& what,
                     const EnginePrices& prices) override {
    if (fault() == nullptr) {
      const u32 verdict = Ask(record, what, prices);
      if (verdict <= ALIBI_ENGINE_DIRECT) return static_cast<UserEngine>(verdict);
      Blame(what.kind, verdict);
    }
    if (!record.handed_over) {
      // What the plug-in has left there means something else to the successor.
      std::memset(record.data, 0, sizeof(record.data));
      record.handed_over = true;
    }
    return successor_->OnEvent(record, what, prices);
  }

 private:
  u32 Ask(EngineRecord& record, const EngineEvent& what, const EnginePrices& prices) {
    alibi_address_space space = {};
    space.number = record.number;
    space.engine = static_cast<u32>(record.engine);
    std::memcpy(space.data, record.data, sizeof(space.data));
    const alibi_engine_event event = {
        static_cast<u32>(what.kind), what.stops, what.faults, what.calls, what.now, what.cycles};
    const alibi_engine_prices copy = {prices.stop, prices.call};
    const u32 verdict =
        file_->Contained([&] { return table_->on_event(file_->self(), &space, &event, &copy); });
    std::memcpy(record.data, space.data, sizeof(space.data));
    return verdict;
  }

  void Blame(Kind kind, u32 verdict) {
    char what[128];
    if (verdict == PluginFile::kThrew) {
      std::snprintf(what, sizeof(what), "threw an exception on %s", EngineEventName(kind));
    } else {
      std::snprintf(what, sizeof(what), "gave %u as its verdict on %s, which is no engine", verdict,
                    EngineEventName(kind));
    }
    file_->Blame(what, successor_->name());
  }

  std::unique_ptr<PluginFile> file_;
  const Table* table_;
  std::unique_ptr<EnginePolicy> successor_;
};

}  // namespace

Result<std::unique_ptr<EnginePolicy>> LoadEnginePlugin(const std::string& spec) {
  auto file = PluginFile::Load(kContract, spec);
  if (!file.ok()) return file.error();
  auto successor = MakeEnginePolicy(kDefaultEnginePolicy);
  return std::unique_ptr<EnginePolicy>(
      std::make_unique<EnginePlugin>(std::move(*file), std::move(*successor)));
}

}  // namespace alibi::adapt
