// SPDX-License-Identifier: Apache-2.0
// Where the engine's events go: to an event log's ring, which a thread drains, and to an observer
// on the VCPU's thread (--trace), whose own ring the run loop drains, so that its lines come in
// order with what that thread says otherwise. Without either an event costs one test of a bit.
#ifndef ALIBI_RUNTIME_RECORDER_H_
#define ALIBI_RUNTIME_RECORDER_H_

#include <memory>
#include <span>

#include "adapt/log/record.h"
#include "adapt/log/ring.h"
#include "base/types.h"

namespace alibi::runtime {

using adapt::log::Record;
using adapt::log::RecordKind;

class EventObserver {
 public:
  virtual ~EventObserver() = default;
  // On the VCPU's thread with the vector registers free, in the order of happening. Where the ring
  // was full a record of kind kLost says so.
  virtual void OnEvents(std::span<const Record> events) = 0;
};

class Recorder {
 public:
  static constexpr u32 kObserverRingLog2 = 12;

  // At most one observer (null: none); `kinds` are KindBits.
  void Observe(EventObserver* observer, u32 kinds) {
    observer_ = observer;
    if (observer != nullptr && ring_ == nullptr) {
      ring_ = std::make_unique<adapt::log::Ring>(kObserverRingLog2);
    }
    observed_ = observer != nullptr ? kinds : 0;
    wanted_ = observed_ | (log_ != nullptr ? adapt::log::kAllKinds : 0);
  }
  // A log has all kinds (null: none).
  void set_log(adapt::log::Ring* log) {
    log_ = log;
    Observe(observer_, observed_);
  }
  bool has_log() const { return log_ != nullptr; }

  bool Wants(u32 kinds) const { return __builtin_expect((wanted_ & kinds) != 0, 0); }
  bool Wants(RecordKind kind) const { return Wants(KindBit(kind)); }
  void Push(const Record& record) {
    if (log_ != nullptr) log_->Push(record);
    if (observed_ & KindBit(record.kind)) ring_->Push(record);
  }
  // The log alone, which must be there. False: its ring is full.
  bool PushToLog(const Record& record) { return log_->Push(record); }
  // Should the run loop drain it soon?
  bool Filling() const { return observed_ != 0 && ring_->Filling(); }
  void Drain() {
    if (observed_ == 0) return;
    for (auto events = ring_->Front(); !events.empty(); events = ring_->Front()) {
      observer_->OnEvents(events);
      ring_->Pop(events.size());
    }
  }

 private:
  u32 wanted_ = 0;
  u32 observed_ = 0;
  EventObserver* observer_ = nullptr;
  std::unique_ptr<adapt::log::Ring> ring_;
  adapt::log::Ring* log_ = nullptr;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_RECORDER_H_
