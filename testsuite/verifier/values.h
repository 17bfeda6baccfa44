// SPDX-License-Identifier: Apache-2.0
// What the verifier knows of a register: where its value came from, as far as safety needs it.
#ifndef ALIBI_TESTSUITE_VERIFIER_VALUES_H_
#define ALIBI_TESTSUITE_VERIFIER_VALUES_H_

#include <array>
#include <vector>

#include "base/types.h"

namespace alibi::verifier {

// Addresses are written as `root + offset`: a value that was made somewhere, and a constant.
enum class Is : u8 {
  kGuest,    // root + offset, which the guest may have chosen
  kFlags,    // arithmetic flags in ah and al: LAHF, SETO
  kNumber,   // `number`
  kNegPage,  // what these fields of inline TLB entry `slot` hold now
  kSlotDisplacement,
  kHostPage,
  kInPage,       // root + offset, less the page of `slot`
  kPageOffset,   // (root + offset) % 4096
  kShadowIndex,  // the page number of root + offset
  kJumpIndex,
  kDisplacement,     // of the guest addresses root + [low, high): added to one, gives host memory
  kHost,             // a host address, of which [low, high) around it may be accessed
  kMovedHost,        // the same behind a string instruction, from `slot`
  kNotDisplacement,  // ~displacement of `slot`
  kMinusCount,       // -(root + offset)
  kRunLimit,         // 4096 - (root + offset) * scale: the last offset at which a run fits a page
  kShifted,          // its lowest `number` bits are zero
  kShiftedByte,      // the same below 256
  kBelow,            // less than `number`
  kLatch,            // a latched port's cell, of `number` bytes
  kPeerView,         // %gs of another view
  kOwnView,
  kSecret,  // made of host addresses
};

struct Value {
  Is is = Is::kGuest;
  u32 id = 0;  // equal ids: the same value
  u32 root = 0;
  i64 offset = 0;
  bool wraps = false;        // root + offset modulo 2^32
  bool narrow = false;       // its upper half is zero
  bool root_narrow = false;  // so was that of the value at the root
  bool stores = false;       // what it leads to may be stored to
  i32 slot = 0;
  unsigned made_by = 0;  // guest instruction whose look-up it is
  i64 low = 0, high = 0;
  u64 number = 0;
  // kHost, kRunLimit: of a run of that many elements.
  u32 count_root = 0;
  i64 count_offset = 0;
  unsigned scale = 0;

  bool operator==(const Value&) const = default;
  bool IsGuests() const {
    return is == Is::kGuest || is == Is::kNumber || is == Is::kBelow || is == Is::kShifted ||
           is == Is::kShiftedByte || is == Is::kPageOffset || is == Is::kMinusCount ||
           is == Is::kRunLimit || is == Is::kShadowIndex || is == Is::kJumpIndex;
  }
};

// root + [low, high) lies in the page of a slot (slot 0: in one page); a run, if there is a count.
struct PageFact {
  i32 slot = 0;
  u32 root = 0;
  i64 low = 0, high = 0;
  u32 count_root = 0;
  i64 count_offset = 0;
  unsigned scale = 0;
  bool operator==(const PageFact&) const = default;
};

// root + offset is at most `most`, unsigned.
struct BoundFact {
  u32 root = 0;
  i64 offset = 0;
  u64 most = 0;
  bool operator==(const BoundFact&) const = default;
};

// What holds in front of an instruction.
struct State {
  bool reached = false;
  std::array<Value, 16> gpr;
  std::array<Value, sizeof(vcpu::Scratch) / 8> scratch;  // VcpuState::scratch
  std::vector<PageFact> pages;
  std::vector<BoundFact> bounds;
  bool compared = false;  // the flags are those of comparing `left` with `right`
  Value left, right;
};

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_VALUES_H_
