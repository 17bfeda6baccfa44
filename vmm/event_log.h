// --events: what the engine has learnt of the guest's code, a JSON object per line. The fields are
// described in docs/observability.md.
#ifndef ALIBI_VMM_EVENT_LOG_H_
#define ALIBI_VMM_EVENT_LOG_H_

#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/types.h"
#include "runtime/event_ring.h"
#include "vmm/time_base.h"

namespace alibi::vmm {

class EventLog : public runtime::EventObserver {
 public:
  static constexpr u32 kWanted = EventBit(runtime::EventKind::kVerdict) |
                                 EventBit(runtime::EventKind::kRelookup) |
                                 EventBit(runtime::EventKind::kUngroup);

  // At most `most_bytes` of events are written, later ones only counted. `time` outlives the log.
  static Result<std::unique_ptr<EventLog>> Create(const std::string& path, u64 most_bytes,
                                                  const TimeBase* time);
  ~EventLog() override;

  void OnEvents(const runtime::EngineEvent* events, u32 count, u64 dropped) override;
  // Writes how many events there were, and all of it to the file.
  Status Finish();

  u64 written() const { return written_; }
  u64 dropped() const { return dropped_; }

 private:
  EventLog() = default;

  std::string path_;
  std::FILE* file_ = nullptr;
  const TimeBase* time_ = nullptr;
  u64 room_ = 0;
  u64 written_ = 0;
  u64 dropped_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_EVENT_LOG_H_
