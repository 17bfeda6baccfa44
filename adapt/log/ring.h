// SPDX-License-Identifier: Apache-2.0
// From the VCPU's thread to one reader of what happens: a ring of records with one producer and one
// consumer. The producer never waits, allocates or touches vector registers, so that callouts and
// the host-fault handler may write; what finds the ring full is counted, and the count goes into
// the ring as a record of its own, where the missing ones would be.
#ifndef ALIBI_ADAPT_LOG_RING_H_
#define ALIBI_ADAPT_LOG_RING_H_

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <span>

#include "adapt/log/record.h"
#include "base/check.h"

namespace alibi::adapt::log {

class Ring {
 public:
  // 64 bytes for each record, which the host gives as they are first used.
  explicit Ring(u32 capacity_log2)
      : mask_((u64{1} << capacity_log2) - 1),
        records_(static_cast<Record*>(
            std::aligned_alloc(sizeof(Record), sizeof(Record) << capacity_log2))) {
    ALIBI_CHECK(capacity_log2 >= 1, "a lost record's count needs a place beside the next one's");
    ALIBI_CHECK(records_ != nullptr, "the host has memory for a ring");
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // --- The producer's ---
  // False: there was no room.
  bool Push(const Record& record) {
    if (!HasRoom(lost_ == 0 ? 1 : 2)) {
      ++lost_;
      return false;
    }
    if (__builtin_expect(lost_ != 0, 0)) PushLost(record);
    Put(record);
    return true;
  }
  // Should a consumer that does not look by itself be called?
  bool Filling() const { return head_ - Tail() > mask_ / 2; }
  // Records that were lost since the last one that was not.
  u64 lost() const { return lost_; }

  // --- The consumer's ---
  // The oldest ones, as many as lie together; none: the ring is empty.
  std::span<const Record> Front() const {
    const u64 tail = tail_.load(std::memory_order_relaxed);
    const u64 count = published_.load(std::memory_order_acquire) - tail;
    const u64 first = tail & mask_;
    return {records_.get() + first, std::min(count, mask_ + 1 - first)};
  }
  void Pop(u64 count) {
    tail_.store(tail_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }

 private:
  u64 Tail() const { return tail_.load(std::memory_order_acquire); }
  bool HasRoom(u64 count) {
    if (head_ + count - seen_tail_ <= mask_ + 1) return true;
    seen_tail_ = Tail();
    return head_ + count - seen_tail_ <= mask_ + 1;
  }
  void Put(const Record& record) {
    records_.get()[head_ & mask_] = record;
    published_.store(++head_, std::memory_order_release);
  }
  void PushLost(const Record& before) {
    Record record;
    record.kind = RecordKind::kLost;
    record.tsc = before.tsc;
    record.cr3 = before.cr3;
    record.value = lost_;
    lost_ = 0;
    Put(record);
  }

  const u64 mask_;
  struct Free {
    void operator()(Record* records) const { std::free(records); }
  };
  const std::unique_ptr<Record, Free> records_;
  // Counts of records ever, not places. Each thread's on lines of its own.
  alignas(64) u64 head_ = 0;
  u64 seen_tail_ = 0;
  u64 lost_ = 0;
  alignas(64) std::atomic<u64> published_ = 0;
  alignas(64) std::atomic<u64> tail_ = 0;
};

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_RING_H_
