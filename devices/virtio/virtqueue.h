// SPDX-License-Identifier: Apache-2.0
// The device's side of a split virtqueue (virtio 1.2, section 2.7), with indirect descriptors and
// event indices.
//
// Everything here - ring addresses, indices, descriptors - is the driver's word, and may be
// garbage: what breaks a rule makes the queue broken (see ok()), and it stays so until it is reset.
#ifndef ALIBI_DEVICES_VIRTIO_VIRTQUEUE_H_
#define ALIBI_DEVICES_VIRTIO_VIRTQUEUE_H_

#include <vector>

#include "base/types.h"
#include "devices/dma.h"

namespace alibi::devices::virtio {

// A buffer that the driver made available: its descriptors, those to read before those to write.
struct Chain {
  struct Segment {
    PhysAddr address;
    u32 size = 0;
  };
  std::vector<Segment> readable;
  std::vector<Segment> writable;
  u64 readable_bytes = 0;  // each sum is below 4 GB
  u64 writable_bytes = 0;
  u16 head = 0;
  u32 generation = 0;  // which life of the queue it belongs to
};

class Virtqueue {
 public:
  static constexpr u16 kMaxSize = 1024;
  // Descriptors in a chain, with those of its indirect table.
  static constexpr unsigned kMaxSegments = 1024;

  // `max_size` is a power of two.
  Virtqueue(Dma& dma, u16 max_size) : dma_(&dma), max_size_(max_size), size_(max_size) {}

  // --- For devices, on the VCPU's thread ---
  // The next available chain. False: there is none, or the queue is not enabled or broken.
  bool Pop(Chain* chain);
  // Gives a popped chain back later, to be popped again; only the one popped last.
  void Unpop();
  // Whether Pop() would yield something.
  bool HasChains();
  // Copies from what the driver wrote, or to what it wants written; the range must lie inside.
  // False: the memory does not exist (the queue is broken then), or the queue was reset since the
  // chain was popped.
  bool CopyFrom(const Chain& chain, u64 offset, void* out, u64 size);
  bool CopyTo(const Chain& chain, u64 offset, const void* data, u64 size);
  // The chain is used, its first `written` writable bytes were written. In any order; without
  // effect if the queue was reset since. An interrupt follows by VirtioTransport::Interrupt().
  void Push(const Chain& chain, u32 written);
  // Whether the driver shall notify of new chains (at first, yes). A hint, as always. Chains that
  // came while it was not wanted may be there: look again.
  void WantNotifications(bool want);
  // The driver need not notify before so many chains wait (at first, 1). A hint that drivers
  // without event indices do not get: see has_event_index().
  void NotifyAfter(u16 chains);
  bool has_event_index() const { return event_index_; }
  // The chain was popped before the last reset: it must not be touched any more.
  bool IsStale(const Chain& chain) const { return chain.generation != generation_; }
  bool enabled() const { return enabled_; }
  // Null, or which rule the driver broke.
  const char* error() const { return error_; }
  bool ok() const { return error_ == nullptr; }
  void Break(const char* why);

  // --- For the transport ---
  struct Rings {
    PhysAddr descriptors, driver, device;  // driver: available ring; device: used ring
  };
  u16 max_size() const { return max_size_; }
  u16 size() const { return size_; }
  // False: not a size that a queue can have.
  bool SetSize(u16 size);
  Rings& rings() { return rings_; }
  const Rings& rings() const { return rings_; }
  void Enable(bool indirect, bool event_index);
  // Back to the beginning: chains that are out are stale.
  void Reset();
  // The driver wants an interrupt for what was pushed since the last time this was asked.
  bool TakeInterruptWish();

 private:
  struct Descriptor {
    u64 address;
    u32 length;
    u16 flags;
    u16 next;
  };
  static_assert(sizeof(Descriptor) == 16);

  bool Read(PhysAddr address, void* out, u64 size);
  bool Write(PhysAddr address, const void* data, u64 size);
  bool ReadDescriptor(PhysAddr table, u64 index, Descriptor* out);
  bool Walk(PhysAddr table, u64 count, u64 first, bool indirect, unsigned* left, Chain* chain);
  bool AddSegment(const Descriptor& descriptor, Chain* chain);
  bool ReadAvailableIndex(u16* index);
  // True: the driver may have made chains available meanwhile, and told nobody.
  bool PublishAvailableEvent(u16 next);  // `next`: the first chain that is to come
  static void LookBehind();

  Dma* dma_;
  u16 max_size_;
  u16 size_;
  Rings rings_;
  bool enabled_ = false;
  bool indirect_ = false;
  bool event_index_ = false;
  bool want_notifications_ = true;
  u16 notify_after_ = 1;
  bool signalled_ = false;  // interrupt wishes were asked for since the queue was enabled
  u16 next_available_ = 0;
  u16 next_used_ = 0;
  u16 signalled_used_ = 0;  // next_used_ when they were asked for last
  u16 in_use_ = 0;          // chains popped and not pushed
  u32 generation_ = 0;
  const char* error_ = nullptr;
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_VIRTQUEUE_H_
