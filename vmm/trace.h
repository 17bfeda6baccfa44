// --trace: one line on stderr per event of the topics asked for.
#ifndef ALIBI_VMM_TRACE_H_
#define ALIBI_VMM_TRACE_H_

#include <string>

#include "base/result.h"
#include "base/types.h"
#include "runtime/engine.h"

namespace alibi::vmm {

enum class TraceTopic : u8 {
#define ALIBI_TRACE_TOPIC(enumerator, name, what) enumerator,
#include "vmm/trace_topics.inc"
#undef ALIBI_TRACE_TOPIC
};

class Tracer : public runtime::TranslationObserver {
 public:
  // "adapt,irq" or "all".
  static Result<Tracer> Parse(const std::string& topics);
  // "translate, adapt, ..." with what each shows, a line each.
  static std::string Help();

  bool on(TraceTopic topic) const { return topics_ & (1u << static_cast<unsigned>(topic)); }
  bool observes_translations() const {
    return on(TraceTopic::kTranslate) || on(TraceTopic::kAdapt);
  }

  void Access(TraceTopic topic, const char* what, u64 address, unsigned size, u64 value);
  void Interrupt(const char* what, u8 vector, u64 rip);
  void OnTranslation(const translator::Ccf& ccf) override;
  void OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) override;

 private:
  u32 topics_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_TRACE_H_
