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
    u32 offset = (*pointer - bytes) & StackMask(segment);
    u32 head = Contiguous(offset, bytes, word);
    if (head == 0) return StackFault(code);
    GuestFault fault;
    const u8* source = static_cast<const u8*>(data);
    if (head != bytes && !memory.ProbeWrite(Linear(0), bytes - head, privilege, &fault)) {
      return fault;
    }
    if (!memory.Write(Linear(offset), source, head, privilege, &fault)) return fault;
    if (head != bytes && !memory.Write(Linear(0), source + head, bytes - head, privilege, &fault)) {
      return fault;
    }
    *pointer = offset;
    return {};
  }

  Outcome Peek(LinearMemory& memory, u32 pointer, void* data, u32 bytes, unsigned word) const {
    u32 offset = pointer & StackMask(segment);
    u32 head = Contiguous(offset, bytes, word);
    if (head == 0) return StackFault(code);
    GuestFault fault;
    u8* destination = static_cast<u8*>(data);
    if (!memory.Read(Linear(offset), destination, head, privilege, &fault)) return fault;
    if (head != bytes &&
        !memory.Read(Linear(0), destination + head, bytes - head, privilege, &fault)) {
      return fault;
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
