// SPDX-License-Identifier: Apache-2.0
// What a debugger outside the guest wants to be told: breakpoints, watchpoints, single steps. The
// guest sees none of it: its memory, its debug registers and its flags stay its own. And where the
// guest's own breakpoints are, for it is done the same way.
//
// A breakpoint is a linear PC that no translation but a single step contains, so it costs nothing
// elsewhere and holds in every address space. What is watched lies in pages that no view maps for
// such accesses (mmu/watched_pages.h): these call out and are compared.
#ifndef ALIBI_RUNTIME_DEBUG_POINTS_H_
#define ALIBI_RUNTIME_DEBUG_POINTS_H_

#include "base/types.h"

namespace alibi::runtime {

struct Watch {
  LinearAddr address;
  u64 size = 1;  // at least 1
  bool reads = false;
  bool writes = false;
};

enum class DebugCause : u8 {
  kNone,
  kBreakpoint,  // in front of the instruction at `address`
  kStep,        // behind one instruction, or in front of an event's handler
  kWatch,       // behind an access to the watched `address`
};

struct DebugStop {
  DebugCause cause = DebugCause::kNone;
  LinearAddr address;
  Watch watch;  // kWatch: what was hit
};

// Fixed room: fast callouts read it. No vector registers.
class DebugPoints {
 public:
  static constexpr u32 kMaxBreakpoints = 1024;
  static constexpr u32 kMaxWatches = 64;
  static constexpr u32 kMaxGuestBreakpoints = 4;

  // False: there is no room, or nothing to remove.
  bool AddBreakpoint(LinearAddr pc);
  bool RemoveBreakpoint(LinearAddr pc);
  bool AddWatch(const Watch& watch);
  bool RemoveWatch(const Watch& watch);

  // Of the guest's debug registers: any PC in [first, first + size).
  void AddGuestBreakpoint(LinearAddr first, u64 size);
  void ForgetGuestBreakpoints() { guest_breakpoint_count_ = 0; }

  bool any_breakpoint() const { return breakpoint_count_ + guest_breakpoint_count_ != 0; }
  bool any_watch() const { return watch_count_ != 0; }
  bool IsBreakpoint(LinearAddr pc) const {
    return any_breakpoint() && (IsDebuggersBreakpoint(pc) || IsGuestBreakpoint(pc));
  }
  bool IsDebuggersBreakpoint(LinearAddr pc) const;
  // At one of `size` bytes.
  bool AnyBreakpointIn(LinearAddr first, u64 size) const;
  bool IsGuestBreakpoint(LinearAddr pc) const;
  // f(watch) for each.
  template <class F>
  void ForEachWatch(F f) const {
    for (u32 i = 0; i < watch_count_; ++i) f(watches_[i]);
  }
  template <class F>
  void ForEachBreakpoint(F f) const {
    for (u32 i = 0; i < breakpoint_count_; ++i) f(breakpoints_[i]);
  }
  // The watch that an access hits, or null.
  const Watch* FindWatch(LinearAddr address, u64 size, bool read, bool written) const;
  // The first hit since Forget() counts.
  void NoteAccess(LinearAddr address, u64 size, bool read, bool written);

  void Stop(DebugCause cause, LinearAddr address);
  bool stopped() const { return stop_.cause != DebugCause::kNone; }
  const DebugStop& stop() const { return stop_; }
  void Forget() { stop_.cause = DebugCause::kNone; }

 private:
  LinearAddr breakpoints_[kMaxBreakpoints];
  u32 breakpoint_count_ = 0;
  struct GuestBreakpoint {
    LinearAddr first;
    u64 size = 0;
  };
  GuestBreakpoint guest_breakpoints_[kMaxGuestBreakpoints];
  u32 guest_breakpoint_count_ = 0;
  u32 watch_count_ = 0;
  Watch watches_[kMaxWatches];
  DebugStop stop_;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_DEBUG_POINTS_H_
