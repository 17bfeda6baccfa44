// SPDX-License-Identifier: Apache-2.0
// Frames of several words that events and far transfers write to or read from a stack.
#ifndef ALIBI_VCPU_STACK_FRAME_H_
#define ALIBI_VCPU_STACK_FRAME_H_

#include "base/types.h"
#include "vcpu/descriptors.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// A stack outside 64-bit mode: offsets wrap at 16 or 32 bits, every word is checked against the
// limit, and a violation is #SS(code).
struct LegacyStack {
  const Segment& segment;
  Privilege privilege;
  u32 code = 0;
  bool check_alignment = false;  // #AC of a word that is not aligned

  LinearAddr Linear(u32 offset) const {
    return LinearAddr(static_cast<u32>(segment.base + offset));
  }

  // How many of `bytes` bytes at `offset` lie before the wrap. 0: a limit violation.
  u32 Contiguous(u32 offset, u32 bytes, unsigned word) const {
    u64 room = u64{StackMask(segment)} + 1 - offset;
    if (room >= bytes) return InSegmentLimit(segment, offset, bytes) ? bytes : 0;
    u32 head = static_cast<u32>(room);
    bool inside = head % word == 0 && InSegmentLimit(segment, offset, head) &&
                  InSegmentLimit(segment, 0, bytes - head);
    return inside ? head : 0;
  }

  // Writes data (lowest address first) below `pointer`; *pointer becomes the new stack pointer.
  Outcome Push(LinearMemory& memory, u32* pointer, const void* data, u32 bytes,
               unsigned word) const {
    const u32 offset = (*pointer - bytes) & StackMask(segment);
    GuestFault fault;
    if (Misaligned(offset, word) || Contiguous(offset, bytes, word) != bytes ||
        !memory.Write(Linear(offset), data, bytes, privilege, &fault)) {
      ALIBI_RETURN_IF_FAULT(PushWords(memory, offset, static_cast<const u8*>(data), bytes, word));
    }
    *pointer = offset;
    return {};
  }

  Outcome Peek(LinearMemory& memory, u32 pointer, void* data, u32 bytes, unsigned word) const {
    const u32 offset = pointer & StackMask(segment);
    GuestFault fault;
    if (!Misaligned(offset, word) && Contiguous(offset, bytes, word) == bytes &&
        memory.Read(Linear(offset), data, bytes, privilege, &fault)) {
      return {};
    }
    for (u32 at = 0; at < bytes; at += word) {
      const u32 place = (offset + at) & StackMask(segment);
      if (!InSegmentLimit(segment, place, word)) return StackFault(code);
      if (Misaligned(place, word)) return Outcome::WithCode(kAlignmentCheck, 0);
      if (!memory.Read(Linear(place), static_cast<u8*>(data) + at, word, privilege, &fault)) {
        return fault;
      }
    }
    return {};
  }

 private:
  bool Misaligned(u32 offset, unsigned word) const {
    return check_alignment && (Linear(offset).value & (word - 1)) != 0;
  }

  // A frame that wraps or faults: which of its words faults first is the order of the pushes.
  Outcome PushWords(LinearMemory& memory, u32 offset, const u8* data, u32 bytes,
                    unsigned word) const {
    GuestFault fault;
    for (u32 at = bytes; at != 0;) {
      at -= word;
      const u32 place = (offset + at) & StackMask(segment);
      if (!InSegmentLimit(segment, place, word)) return StackFault(code);
      if (Misaligned(place, word)) return Outcome::WithCode(kAlignmentCheck, 0);
      if (!memory.ProbeWrite(Linear(place), word, privilege, &fault)) return fault;
    }
    for (u32 at = 0; at < bytes; at += word) {
      const u32 place = (offset + at) & StackMask(segment);
      if (!memory.Write(Linear(place), data + at, word, privilege, &fault)) return fault;
    }
    return {};
  }
};

// Replaces the bits of RSP that this stack uses.
inline u64 MergeStackPointer(const Segment& stack, u64 old_pointer, u64 value) {
  return stack.Big() ? static_cast<u32>(value) : (old_pointer & ~u64{0xffff}) | (value & 0xffff);
}

// Packs words of 2 or 4 bytes, lowest address first.
class FrameWords {
 public:
  explicit FrameWords(unsigned word) : word_(word) {}
  void Add(u64 value) {
    if (word_ == 2) {
      u16 narrow = static_cast<u16>(value);
      __builtin_memcpy(bytes_ + size_, &narrow, 2);
    } else {
      u32 wide = static_cast<u32>(value);
      __builtin_memcpy(bytes_ + size_, &wide, 4);
    }
    size_ += word_;
  }
  const u8* data() const { return bytes_; }
  u32 size() const { return size_; }
  unsigned word() const { return word_; }

 private:
  unsigned word_;
  u32 size_ = 0;
  // A call gate copies up to 31 parameters besides SS:ESP and CS:EIP.
  alignas(8) u8 bytes_[(31 + 4) * 4];
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_STACK_FRAME_H_
