// SPDX-License-Identifier: Apache-2.0
// --trace: one line per event of the topics asked for, on stderr or in a file.
#ifndef ALIBI_INSPECT_TRACE_H_
#define ALIBI_INSPECT_TRACE_H_

#include <cstdio>
#include <optional>
#include <span>
#include <string>

#include "base/file_bound.h"
#include "base/result.h"
#include "base/types.h"
#include "machine/observer.h"
#include "machine/time_base.h"
#include "runtime/translating_engine.h"

namespace alibi::vmm {

enum class TraceTopic : u8 {
#define ALIBI_TRACE_TOPIC(enumerator, name, what) enumerator,
#include "inspect/trace_topics.inc"
#undef ALIBI_TRACE_TOPIC
};

class Tracer final : public MachineObserver,
                     public runtime::TranslationObserver,
                     public runtime::EventObserver {
 public:
  // "adapt,irq" or "all".
  static Result<Tracer> Parse(const std::string& topics);
  // "translate, adapt, ..." with what each shows, a line each.
  static std::string Help();

  // `time` outlives the tracer; null: lines have no time.
  void set_time(const TimeBase* time) { time_ = time; }
  // If it is a file, it gets whole lines, `most_bytes` of them; the rest is dropped, and stderr is
  // told once.
  void SetOutput(std::FILE* file, u64 most_bytes);

  bool on(TraceTopic topic) const { return topics_ & (1u << static_cast<unsigned>(topic)); }
  bool observes_translations() const {
    return on(TraceTopic::kTranslate) || on(TraceTopic::kAdapt);
  }
  // KindBits of what OnEvents() shows.
  u32 wanted_events() const;

  void OnAccess(AccessKind kind, u64 address, unsigned size, u64 value) override;
  void OnInterrupt(InterruptKind kind, u8 vector, u64 rip) override;
  void OnTranslation(const translator::Ccf& ccf) override;
  void OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) override;
  void OnEvents(std::span<const runtime::Record> events) override;

 private:
  void Line(TraceTopic topic, u64 tsc, const std::string& text);
  void Put(const std::string& line);

  u32 topics_ = 0;
  std::optional<unsigned> vcpu_;  // of several: which one runs
  const TimeBase* time_ = nullptr;
  std::FILE* file_ = stderr;
  FileBound bound_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_TRACE_H_
