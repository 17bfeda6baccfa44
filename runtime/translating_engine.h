// SPDX-License-Identifier: Apache-2.0
// The engine that translates: guest code becomes CCFs in a translation cache, which run in this
// process (dispatch, chaining, callouts, host faults, adaptation, invalidation). What dumps,
// profiles, statistics and tests ask of it and of no other engine stands here.
#ifndef ALIBI_RUNTIME_TRANSLATING_ENGINE_H_
#define ALIBI_RUNTIME_TRANSLATING_ENGINE_H_

#include <memory>
#include <string>

#include "adapt/engine_policy.h"
#include "adapt/policy.h"
#include "adapt/site_table.h"
#include "base/result.h"
#include "runtime/engine.h"

namespace alibi {
struct StubTable;
}  // namespace alibi

namespace alibi::direct {
class DirectExecution;
}  // namespace alibi::direct

namespace alibi::isa {
struct Instr;
}  // namespace alibi::isa

namespace alibi::translator {
struct Ccf;
struct ExecutionCounts;
struct SitePlan;
}  // namespace alibi::translator

namespace alibi::runtime {

// For tests and experiments: how sites are translated, over what the site table says.
class PlanOverride {
 public:
  virtual ~PlanOverride() = default;
  virtual void Override(const isa::Instr& instr, translator::SitePlan* plan) = 0;
  // At most this many instructions per TU.
  virtual unsigned MaxInstructions() const = 0;
};

// Takes what translations have counted: each one before it is thrown away, and all of them when
// they are asked for (TranslatingEngine::CollectExecutions). Nothing is told twice.
class ExecutionSink {
 public:
  virtual ~ExecutionSink() = default;
  virtual void OnExecutions(const translator::Ccf& ccf,
                            const translator::ExecutionCounts& counts) = 0;
};

struct TranslatingEngineOptions : EngineOptions {
  adapt::Policy* policy = nullptr;
  PlanOverride* plan_override = nullptr;
  ExecutionSink* executions = nullptr;  // not null: translations count how often they run
  u64 tc_bytes = u64{64} << 20;         // of translations; at least 1 MB
  // Which user code runs directly (direct/direct_execution.h); null: none.
  adapt::EnginePolicy* engine_policy = nullptr;
  bool needs_direct_execution = false;  // a host that cannot run code directly: Create() fails
  // See direct::DirectExecution::Options.
  unsigned satellites = ~0u;
  bool remaps_user_code = false;
  // Of translations that other runs have made (runtime/translation_store.h); "": none are kept, nor
  // where this program was linked without a build ID.
  std::string store_folder;
};

// What the guest can make grow; now, at most so far, at most ever.
struct MemoryUse {
  u64 tc_bytes, tc_bytes_peak, tc_bytes_bound;
  u64 ccfs, ccfs_peak, ccfs_bound;
};

// What a dump of one translation needs (see `alibi dump`).
class TranslationObserver {
 public:
  virtual ~TranslationObserver() = default;
  virtual void OnTranslation(const translator::Ccf& ccf) = 0;
  virtual void OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) = 0;
};

class TranslatingEngine : public Engine {
 public:
  static Result<std::unique_ptr<TranslatingEngine>> Create(const TranslatingEngineOptions& options);

  virtual const adapt::SiteTable& sites() const = 0;
  virtual const adapt::Prices& prices() const = 0;
  // Null: all code is translated.
  virtual direct::DirectExecution* direct() const = 0;
  virtual void set_translation_observer(TranslationObserver* observer) = 0;
  // Between runs: tells TranslatingEngineOptions::executions what was counted since it was told
  // last.
  virtual void CollectExecutions() = 0;
  virtual u64 tc_bytes_used() const = 0;
  virtual MemoryUse memory_use() const = 0;
  // Where a host address in the TC came from, for crash reports.
  virtual std::string DescribeHostPc(HostAddr host_pc) const = 0;
  // Where emitted code may jump to, for those who verify it.
  virtual const StubTable& stub_table() const = 0;
  // The translation that runs at `pc` now (null: none), for dumps and tests.
  virtual const translator::Ccf* FindCcf(LinearAddr pc) const = 0;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_TRANSLATING_ENGINE_H_
