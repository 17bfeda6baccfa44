// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/virtqueue.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/check.h"

namespace alibi::devices::virtio {
namespace {

// Descriptor flags (2.7.5).
constexpr u16 kNext = 1, kWrite = 2, kIndirect = 4;
// Flags of the available and the used ring (2.7.6, 2.7.8).
constexpr u16 kNoInterrupt = 1, kNoNotify = 1;
constexpr u64 kFlags = 0, kIndex = 2, kRing = 4;
constexpr u64 kAvailableEntry = 2, kUsedEntry = 8, kDescriptorBytes = 16;
constexpr u64 kMaxBytes = 0xffffffff;

// Copies `size` bytes at `offset` of the segments' concatenation by `copy`, piece by piece.
template <class Copy>
bool ForPieces(const std::vector<Chain::Segment>& segments, u64 offset, u64 size, Copy copy) {
  for (const Chain::Segment& segment : segments) {
    if (size == 0) return true;
    if (offset >= segment.size) {
      offset -= segment.size;
      continue;
    }
    const u64 piece = std::min<u64>(size, segment.size - offset);
    if (!copy(segment.address + offset, piece)) return false;
    size -= piece;
    offset = 0;
  }
  return size == 0;
}

}  // namespace

void Virtqueue::Break(const char* why) {
  if (error_ == nullptr) error_ = why;
}

bool Virtqueue::Read(PhysAddr address, void* out, u64 size) {
  const bool ok = dma_->Read(address, out, size);
  if (!ok) Break("a queue or buffer lies where there is no RAM");
  return ok;
}

bool Virtqueue::Write(PhysAddr address, const void* data, u64 size) {
  const bool ok = dma_->Write(address, data, size);
  if (!ok) Break("a queue or buffer lies where there is no RAM");
  return ok;
}

bool Virtqueue::SetSize(u16 size) {
  if (!std::has_single_bit(size) || size > max_size_) return false;
  size_ = size;
  return true;
}

void Virtqueue::Enable(bool indirect, bool event_index) {
  indirect_ = indirect;
  event_index_ = event_index;
  enabled_ = true;
}

void Virtqueue::Reset() {
  Virtqueue fresh(*dma_, max_size_);
  fresh.generation_ = generation_ + 1;
  *this = fresh;
}

bool Virtqueue::ReadAvailableIndex(u16* index) {
  if (!Read(rings_.driver + kIndex, index, sizeof(*index))) return false;
  if (static_cast<u16>(*index - next_available_) > size_) {
    Break("more chains are available than the queue has room for");
    return false;
  }
  return true;
}

bool Virtqueue::HasChains() {
  u16 index;
  return enabled_ && ok() && ReadAvailableIndex(&index) && index != next_available_;
}

bool Virtqueue::Pop(Chain* chain) {
  if (!HasChains()) {
    if (!enabled_ || !ok()) return false;
    // A driver on another CPU that has looked at the event index before it was published does not
    // notify of the chain that it has made available since this looked.
    if (!PublishAvailableEvent(next_available_) || !HasChains()) return false;
  }
  if (in_use_ >= size_) {
    Break("a chain is available again before it was used");
    return false;
  }
  u16 head;
  const u64 slot = next_available_ & (size_ - 1u);
  if (!Read(rings_.driver + (kRing + slot * kAvailableEntry), &head, sizeof(head))) return false;
  chain->readable.clear();
  chain->writable.clear();
  chain->readable_bytes = chain->writable_bytes = 0;
  chain->head = head;
  chain->generation = generation_;
  unsigned left = kMaxSegments;
  if (!Walk(rings_.descriptors, size_, head, /*indirect=*/false, &left, chain)) return false;
  ++next_available_;
  ++in_use_;
  return true;
}

void Virtqueue::Unpop() {
  ALIBI_CHECK(in_use_ != 0, "what is given back was popped");
  --next_available_;
  --in_use_;
}

bool Virtqueue::ReadDescriptor(PhysAddr table, u64 index, Descriptor* out) {
  return Read(table + index * kDescriptorBytes, out, sizeof(*out));
}

// `left` bounds the whole chain, so one that is a circle ends too.
bool Virtqueue::Walk(PhysAddr table, u64 count, u64 first, bool indirect, unsigned* left,
                     Chain* chain) {
  u64 index = first;
  u64 steps = 0;
  for (;;) {
    if (index >= count) {
      Break("a descriptor's number is beyond its table");
      return false;
    }
    if (++steps > count || *left == 0) {
      Break("a chain of descriptors is a circle, or too long");
      return false;
    }
    --*left;
    Descriptor descriptor;
    if (!ReadDescriptor(table, index, &descriptor)) return false;
    if (descriptor.flags & kIndirect) {
      if (!indirect_ || indirect || (descriptor.flags & kNext) || descriptor.length == 0 ||
          descriptor.length % kDescriptorBytes != 0) {
        Break("an indirect descriptor where none may be, or of a wrong length");
        return false;
      }
      return Walk(PhysAddr(descriptor.address), descriptor.length / kDescriptorBytes, 0,
                  /*indirect=*/true, left, chain);
    }
    if (!AddSegment(descriptor, chain)) return false;
    if (!(descriptor.flags & kNext)) return true;
    index = descriptor.next;
  }
}

bool Virtqueue::AddSegment(const Descriptor& descriptor, Chain* chain) {
  const bool write = descriptor.flags & kWrite;
  if (!write && !chain->writable.empty()) {
    Break("a readable descriptor behind a writable one");
    return false;
  }
  u64& bytes = write ? chain->writable_bytes : chain->readable_bytes;
  bytes += descriptor.length;
  if (bytes > kMaxBytes || descriptor.address + descriptor.length < descriptor.address) {
    Break("a chain of more than 4 GB, or beyond the end of memory");
    return false;
  }
  (write ? chain->writable : chain->readable)
      .push_back({PhysAddr(descriptor.address), descriptor.length});
  return true;
}

bool Virtqueue::CopyFrom(const Chain& chain, u64 offset, void* out, u64 size) {
  if (IsStale(chain) || !ok()) return false;
  u8* to = static_cast<u8*>(out);
  return ForPieces(chain.readable, offset, size, [&](PhysAddr address, u64 piece) {
    const bool copied = Read(address, to, piece);
    to += piece;
    return copied;
  });
}

bool Virtqueue::CopyTo(const Chain& chain, u64 offset, const void* data, u64 size) {
  if (IsStale(chain) || !ok()) return false;
  const u8* from = static_cast<const u8*>(data);
  return ForPieces(chain.writable, offset, size, [&](PhysAddr address, u64 piece) {
    const bool copied = Write(address, from, piece);
    from += piece;
    return copied;
  });
}

void Virtqueue::Push(const Chain& chain, u32 written) {
  if (IsStale(chain) || !ok()) return;
  ALIBI_CHECK(in_use_ != 0, "what is used was popped");
  --in_use_;
  const u32 entry[2] = {chain.head, written};
  const u64 slot = next_used_ & (size_ - 1u);
  if (!Write(rings_.device + (kRing + slot * kUsedEntry), entry, sizeof(entry))) return;
  ++next_used_;
  Write(rings_.device + kIndex, &next_used_, sizeof(next_used_));
}

void Virtqueue::WantNotifications(bool want) {
  if (want == want_notifications_) return;
  want_notifications_ = want;
  if (!enabled_ || !ok()) return;
  if (event_index_) {
    // New is what is not there yet, popped or not.
    u16 index;
    if (want && ReadAvailableIndex(&index)) PublishAvailableEvent(index);
    return;
  }
  const u16 flags = want ? 0 : kNoNotify;
  if (Write(rings_.device + kFlags, &flags, sizeof(flags))) LookBehind();
}

void Virtqueue::NotifyAfter(u16 chains) {
  if (chains == notify_after_) return;
  notify_after_ = chains;
  if (enabled_ && ok()) PublishAvailableEvent(next_available_);
}

// A driver makes chains available and then looks whether it shall notify; here it is the reverse.
void Virtqueue::LookBehind() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// The driver notifies when it fills the entry that the event index names; one it has passed already
// silences it for as long as the index does not come round.
bool Virtqueue::PublishAvailableEvent(u16 next) {
  if (!event_index_ || !want_notifications_) return false;
  const u16 event = static_cast<u16>(next + notify_after_ - 1);
  if (!Write(rings_.device + (kRing + size_ * kUsedEntry), &event, sizeof(event))) return false;
  LookBehind();
  return true;
}

bool Virtqueue::TakeInterruptWish() {
  if (!enabled_ || !ok()) return false;
  const u16 before = signalled_used_;
  const bool first = !signalled_;
  if (next_used_ == before && !first) return false;
  if (next_used_ == 0 && first) return false;
  signalled_used_ = next_used_;
  signalled_ = true;
  u16 word;
  if (!event_index_) {
    if (!Read(rings_.driver + kFlags, &word, sizeof(word))) return false;
    return !(word & kNoInterrupt);
  }
  if (!Read(rings_.driver + (kRing + size_ * kAvailableEntry), &word, sizeof(word))) return false;
  // The entry it waits for is among those that were used since (2.7.7.2).
  return first || static_cast<u16>(next_used_ - word - 1) < static_cast<u16>(next_used_ - before);
}

}  // namespace alibi::devices::virtio
