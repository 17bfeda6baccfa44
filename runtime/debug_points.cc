// SPDX-License-Identifier: Apache-2.0
// Compiled for general registers only: callouts ask while the guest's vector state is live.
#include "runtime/debug_points.h"

namespace alibi::runtime {

bool DebugPoints::AddBreakpoint(LinearAddr pc) {
  if (IsDebuggersBreakpoint(pc)) return true;
  if (breakpoint_count_ == kMaxBreakpoints) return false;
  breakpoints_[breakpoint_count_++] = pc;
  return true;
}

bool DebugPoints::RemoveBreakpoint(LinearAddr pc) {
  for (u32 i = 0; i < breakpoint_count_; ++i) {
    if (breakpoints_[i] != pc) continue;
    breakpoints_[i] = breakpoints_[--breakpoint_count_];
    return true;
  }
  return false;
}

bool DebugPoints::AddWatch(const Watch& watch) {
  if (watch_count_ == kMaxWatches || watch.size == 0) return false;
  watches_[watch_count_++] = watch;
  return true;
}

bool DebugPoints::RemoveWatch(const Watch& watch) {
  for (u32 i = 0; i < watch_count_; ++i) {
    const Watch& known = watches_[i];
    if (known.address != watch.address || known.size != watch.size || known.reads != watch.reads ||
        known.writes != watch.writes) {
      continue;
    }
    watches_[i] = watches_[--watch_count_];
    return true;
  }
  return false;
}

void DebugPoints::AddGuestBreakpoint(LinearAddr first, u64 size) {
  guest_breakpoints_[guest_breakpoint_count_++] = {first, size};
}

bool DebugPoints::IsDebuggersBreakpoint(LinearAddr pc) const {
  for (u32 i = 0; i < breakpoint_count_; ++i) {
    if (breakpoints_[i] == pc) return true;
  }
  return false;
}

bool DebugPoints::AnyBreakpointIn(LinearAddr first, u64 size) const {
  for (u32 i = 0; i < breakpoint_count_; ++i) {
    if (breakpoints_[i] - first < size) return true;
  }
  for (u32 i = 0; i < guest_breakpoint_count_; ++i) {
    const GuestBreakpoint& guests = guest_breakpoints_[i];
    if (guests.first - first < size || first - guests.first < guests.size) return true;
  }
  return false;
}

bool DebugPoints::IsGuestBreakpoint(LinearAddr pc) const {
  for (u32 i = 0; i < guest_breakpoint_count_; ++i) {
    if (pc - guest_breakpoints_[i].first < guest_breakpoints_[i].size) return true;
  }
  return false;
}

const Watch* DebugPoints::FindWatch(LinearAddr address, u64 size, bool read, bool written) const {
  for (u32 i = 0; i < watch_count_; ++i) {
    const Watch& watch = watches_[i];
    if (!((watch.reads && read) || (watch.writes && written))) continue;
    if (address - watch.address < watch.size || watch.address - address < size) return &watch;
  }
  return nullptr;
}

void DebugPoints::NoteAccess(LinearAddr address, u64 size, bool read, bool written) {
  if (stopped()) return;
  const Watch* watch = FindWatch(address, size, read, written);
  if (watch == nullptr) return;
  stop_.watch = *watch;
  // Inside what is watched, though the access may begin in front of it.
  Stop(DebugCause::kWatch, address - watch->address < watch->size ? address : watch->address);
}

void DebugPoints::Stop(DebugCause cause, LinearAddr address) {
  stop_.cause = cause;
  stop_.address = address;
}

}  // namespace alibi::runtime
