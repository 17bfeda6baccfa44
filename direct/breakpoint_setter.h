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
#include "direct/fork_server.h"

namespace alibi::direct {

class BreakpointSetter {
 public:
  static constexpr unsigned kBreakpoints = HostVisiblePlaces::kMost;

  // What its processes will be, for a fork server that writes its notes to notes_fd(). job: its own
  // number there. Null: the host has no sockets or pipes.
  static std::unique_ptr<BreakpointSetter> Prepare(unsigned job);
  ~BreakpointSetter();
  BreakpointSetter(const BreakpointSetter&) = delete;
  BreakpointSetter& operator=(const BreakpointSetter&) = delete;

  ForkServer::Job job() const;
  // Of a process that finds out whether breakpoints work.
  ForkServer::Job probe_job() const;
  int notes_fd() const;

  // Once: has both jobs forked. Whoever is to be traced comes later, and calls PR_SET_PTRACER with
  // the setter's process, because systems may let nobody else trace it. False: breakpoints do not
  // work here.
  bool Start(ForkServer& server, unsigned probe_job);
  // The process that was forked as this job, which waits in a system call, gets SIGTRAP in front of
  // these instructions and no others; its call is interrupted, and begins anew. False: that cannot
  // be.
  bool Set(unsigned job, std::span<const LinearAddr> places);

 private:
  struct Preparation;

  BreakpointSetter();

  std::unique_ptr<Preparation> preparation_;  // until it is started
  pid_t pid_ = -1;
  FileDescriptor socket_{-1};
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_BREAKPOINT_SETTER_H_
