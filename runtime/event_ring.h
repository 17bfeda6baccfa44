// What happened in the engine, for logs and traces: fixed-size records in a ring that callouts and
// the host-fault handler can write (no allocation, no vector registers), drained by the run loop.
// With no observer an event costs one test of a byte.
#ifndef ALIBI_RUNTIME_EVENT_RING_H_
#define ALIBI_RUNTIME_EVENT_RING_H_

#include <memory>

#include "base/types.h"

namespace alibi::runtime {

enum class EventKind : u8 {
  kVerdict,     // a site was convicted or acquitted. detail: {from, to, cause, trapped}
  kRelookup,    // a site's look-ups moved to the shadow table
  kUngroup,     // a site no longer shares its look-up: its group crossed a page
  kFault,       // a guest fault was delivered. detail: {vector, has an error code}
  kInvalidate,  // guest code was overwritten. value: where; count[0]: bytes stored
  kControl,     // MOV to a control register, CLTS, LMSW. detail: {number}
  kMsr,         // detail: {1: written}; count[0]: number
};
inline constexpr unsigned kEventKinds = 7;
constexpr u32 EventBit(EventKind kind) { return 1u << static_cast<unsigned>(kind); }

struct EngineEvent {
  u64 tsc;       // the host's
  u64 pc;        // linear, of the guest instruction
  u64 physical;  // verdicts: of the instruction
  u64 cr3;
  u64 value;     // CR2, MSR or control register value, address
  u32 count[2];  // verdicts: traps and callouts of the site so far; faults: error code
  EventKind kind;
  u8 detail[4];
  u8 unused[11];
};
static_assert(sizeof(EngineEvent) == 64);

class EventObserver {
 public:
  virtual ~EventObserver() = default;
  // On the VCPU's thread with the vector registers free, in the order of happening. `dropped`
  // events happened before these and found the ring full.
  virtual void OnEvents(const EngineEvent* events, u32 count, u64 dropped) = 0;
};

class EventRing {
 public:
  static constexpr u32 kCapacity = 4096;

  // At most one observer; `kinds` are EventBits.
  void Observe(EventObserver* observer, u32 kinds) {
    observer_ = observer;
    if (observer != nullptr && events_ == nullptr) {
      events_ = std::make_unique<EngineEvent[]>(kCapacity);
    }
    kinds_ = observer != nullptr ? kinds : 0;
  }
  bool Wants(EventKind kind) const { return __builtin_expect((kinds_ & EventBit(kind)) != 0, 0); }
  // The record to fill, its kind set; null: dropped. Only if Wants(kind).
  EngineEvent* Push(EventKind kind) {
    if (count_ == kCapacity) {
      ++dropped_;
      return nullptr;
    }
    EngineEvent* event = &events_[count_++];
    event->kind = kind;
    return event;
  }
  // Should the run loop drain it soon?
  bool Filling() const { return count_ >= kCapacity / 2; }
  void Drain() {
    if (count_ == 0 && dropped_ == 0) return;
    const u32 count = count_;
    const u64 dropped = dropped_;
    count_ = 0;
    dropped_ = 0;
    observer_->OnEvents(events_.get(), count, dropped);
  }

 private:
  u32 kinds_ = 0;
  u32 count_ = 0;
  u64 dropped_ = 0;
  EventObserver* observer_ = nullptr;
  std::unique_ptr<EngineEvent[]> events_;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_EVENT_RING_H_
