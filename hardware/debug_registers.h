// SPDX-License-Identifier: Apache-2.0
// A debugger's breakpoints and watchpoints in the CPU's four debug registers (SDM vol. 3, 17.2).
#ifndef ALIBI_HARDWARE_DEBUG_REGISTERS_H_
#define ALIBI_HARDWARE_DEBUG_REGISTERS_H_

#include "base/types.h"
#include "runtime/debug_points.h"

namespace alibi::hardware {

class DebugRegisters {
 public:
  static constexpr unsigned kCount = 4;

  // False: they do not fit in, or a watch is for reads alone, which the registers cannot tell from
  // stores.
  bool Arm(const runtime::DebugPoints& points);

  bool any() const { return used_ != 0; }
  LinearAddr address(unsigned i) const { return entries_[i].address; }
  // DR7, with or without what is for execution.
  u64 Control(bool breakpoints) const;
  // The data breakpoint that DR6 reports, or kCount.
  unsigned HitWatch(u64 dr6) const;
  unsigned size(unsigned i) const { return entries_[i].size; }
  bool reads(unsigned i) const { return entries_[i].kind == Kind::kAccess; }

 private:
  enum class Kind : u8 { kExecute = 0, kWrite = 1, kAccess = 3 };  // as in DR7
  struct Entry {
    LinearAddr address;
    u8 size = 1;
    Kind kind = Kind::kExecute;
  };
  bool Add(const Entry& entry);

  Entry entries_[kCount];
  unsigned used_ = 0;
};

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_DEBUG_REGISTERS_H_
