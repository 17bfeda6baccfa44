// SPDX-License-Identifier: Apache-2.0
// The check in front of a CCF that the jump table leads to: is r11 its PC?
//
// Raw bytes rather than the assembler library: callouts make entry checks while guest vector state
// is live, and the library does not promise to leave vector registers alone.
#ifndef ALIBI_TRANSLATOR_ENTRY_CHECK_H_
#define ALIBI_TRANSLATOR_ENTRY_CHECK_H_

#include "abi/callouts.h"
#include "base/types.h"

namespace alibi::translator {

inline constexpr u32 kMaxEntryCheckBytes = 48;

namespace internal {

class RawCode {
 public:
  RawCode(HostAddr host, u8* out) : host_(host), out_(out) {}
  u32 size() const { return size_; }
  template <class... Bytes>
  void Put(Bytes... bytes) {
    ((out_[size_++] = static_cast<u8>(bytes)), ...);
  }
  void PutLittle(u64 value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) out_[size_++] = static_cast<u8>(value >> (8 * i));
  }
  void Jne(HostAddr target) {
    Put(0x0f, 0x85);
    PutLittle(target - (host_ + size_ + 4), 4);
  }
  void Jmp(HostAddr target) {
    Put(0xe9);
    PutLittle(target - (host_ + size_ + 4), 4);
  }

 private:
  HostAddr host_;
  u8* out_;
  u32 size_ = 0;
};

}  // namespace internal

// Writes the check (to run at `host`) to `out`: falls through if r11 is `at`, else goes to `miss`.
// What falls through may have lost r10 and r11, and the flags unless they are live. Where it does
// not, another target has the same jump index, and that one may need them: they are always kept.
// Returns the number of bytes.
inline u32 WriteEntryCheck(LinearAddr at, bool flags_live, const EntryMiss& miss, HostAddr host,
                           u8* out) {
  internal::RawCode code(host, out);
  const u64 value = at.value;
  const u64 negated = 0 - value;
  if (!flags_live) {
    // A branch that is not taken also leaves the indirect predictor's history alone.
    code.Put(0x49, 0x89, 0xc2);  // mov r10, rax
    code.Put(0x9f);              // lahf
    code.Put(0x0f, 0x90, 0xc0);  // seto al
    if (static_cast<u64>(static_cast<i32>(value)) == value) {
      code.Put(0x49, 0x81, 0xfb);  // cmp r11, pc
      code.PutLittle(value, 4);
      code.Jne(miss.restore);
    } else {
      code.Put(0x41, 0x81, 0xfb);  // cmp r11d, low half
      code.PutLittle(value, 4);
      code.Jne(miss.restore);
      code.Put(0xc4, 0x43, 0xfb, 0xf0, 0xdb, 0x20);  // rorx r11, r11, 32
      code.Put(0x41, 0x81, 0xfb);                    // cmp r11d, high half
      code.PutLittle(value >> 32, 4);
      code.Jne(miss.restore_swapped);
    }
    code.Put(0x4c, 0x89, 0xd0);  // mov rax, r10
    return code.size();
  }
  if (static_cast<u64>(static_cast<i32>(negated)) == negated) {
    code.Put(0x4d, 0x8d, 0x93);  // lea r10, [r11 - pc]
    code.PutLittle(negated, 4);
  } else {
    code.Put(0x49, 0xba);  // mov r10, -pc
    code.PutLittle(negated, 8);
    code.Put(0x4f, 0x8d, 0x14, 0x1a);  // lea r10, [r10 + r11]
  }
  code.Put(0x4c, 0x87, 0xd1);  // xchg rcx, r10
  code.Put(0xe3, 0x08);        // jrcxz: over the miss
  code.Put(0x4c, 0x87, 0xd1);
  code.Jmp(miss.lookup);
  code.Put(0x4c, 0x89, 0xd1);  // mov rcx, r10
  return code.size();
}

// The check followed by a jump to `entry`.
inline u32 WriteIndirectEntry(LinearAddr at, bool flags_live, HostAddr entry, const EntryMiss& miss,
                              HostAddr host, u8* out) {
  const u32 check = WriteEntryCheck(at, flags_live, miss, host, out);
  internal::RawCode code(host + check, out + check);
  code.Jmp(entry);
  return check + code.size();
}

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_ENTRY_CHECK_H_
