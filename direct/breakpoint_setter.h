// SPDX-License-Identifier: Apache-2.0
// Sets the CPU's breakpoints of satellites: a process of its own, because only a debugger may, and
// what it may is more than a VMM in its sandbox should. It attaches itself, sets them, and is gone
// again: breakpoints stay with their thread (Linux, flush_ptrace_hw_breakpoint), and a debugger
// that stayed would be asked at each signal.
#ifndef ALIBI_DIRECT_BREAKPOINT_SETTER_H_
#define ALIBI_DIRECT_BREAKPOINT_SETTER_H_

#include <sys/types.h>

#include <memory>
#include <span>

#include "base/file_descriptor.h"
#include "base/types.h"
#include "direct/code_judge.h"

namespace alibi::direct {

class BreakpointSetter {
 public:
  static constexpr unsigned kMostProcesses = 16;
  static constexpr unsigned kBreakpoints = HostVisiblePlaces::kMost;

  // Forks: before the process enters its sandbox. Null if there can be no such process.
  static std::unique_ptr<BreakpointSetter> Start();
  ~BreakpointSetter();
  BreakpointSetter(const BreakpointSetter&) = delete;
  BreakpointSetter& operator=(const BreakpointSetter&) = delete;

  // For PR_SET_PTRACER, which processes must call where systems let nobody else trace them.
  pid_t process() const { return pid_; }
  // Those that it will ever touch. Called once. False: breakpoints do not work here, as a further
  // process has found out.
  bool Begin(std::span<const pid_t> processes);
  // The process of this number, which waits in a system call, gets SIGTRAP in front of these
  // instructions and no others; its call is interrupted, and begins anew. False: that cannot be.
  bool Set(unsigned process, std::span<const LinearAddr> places);

 private:
  BreakpointSetter() = default;

  pid_t pid_ = -1;
  FileDescriptor socket_{-1};
  unsigned processes_ = 0;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_BREAKPOINT_SETTER_H_
