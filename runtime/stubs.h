// SPDX-License-Identifier: Apache-2.0
// The fixed code at the start of the TC: entry, callout stubs, and the way out.
//
// A callout stub saves the guest's registers and flags in the VCPU block, switches to the VMM's
// stack and calls its function with vector state untouched; the functions are compiled for general
// registers only. A callout that returns 0 becomes a full exit: the extended state is saved, too.
#ifndef ALIBI_RUNTIME_STUBS_H_
#define ALIBI_RUNTIME_STUBS_H_

#include <vector>

#include "abi/callouts.h"
#include "base/types.h"

namespace alibi::runtime {

// u64 fn(engine, r10, r11)
using CalloutFunction = u64 (*)(void*, u64, u64);

struct StubRequest {
  void* engine = nullptr;
  CalloutFunction callouts[kCalloutCount] = {};
  // Called when a stop was requested while a callout ran: u64 fn(engine, resume host PC, 0).
  CalloutFunction stop_soon = nullptr;
  // Called to go on from a state that a signal handler left in the VCPU block.
  CalloutFunction dispatch = nullptr;
  HostAddr host;        // where the stubs will run
  u64 xstate_mask = 0;  // XSAVE components saved at full exits
};

struct Stubs : StubTable {
  // void enter(u64 host_pc): runs translated code until a full exit. %gs is the view already.
  HostAddr enter;
  // Where a signal handler resumes after it put the guest's state into the VCPU block.
  HostAddr dispatch;
  // The miss stub's load of the entry: may fault in an untouched part of the table.
  HostAddr miss_load, miss_end;
  HostAddr miss_slow;  // where such a fault resumes
  // Through the jump table, to the PC in r11.
  HostAddr jump, jump_end;
  // Through the conflict table, to the PC in r11. From conflict_saved on RCX is in
  // VcpuState::scratch.
  HostAddr conflict, conflict_saved, conflict_end;
  // As translated code: ECX round trips of the Probe callout, then a full exit.
  HostAddr probe;
  u64 size = 0;
};

inline constexpr u64 kStubBytes = 16 * 1024;

// `bytes` are what belongs at request.host.
Stubs EmitStubs(const StubRequest& request, std::vector<u8>* bytes);

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_STUBS_H_
