// SPDX-License-Identifier: Apache-2.0
// Decisions on the way from one translation to the next, as values.
#ifndef ALIBI_RUNTIME_PENDING_H_
#define ALIBI_RUNTIME_PENDING_H_

#include "base/types.h"
#include "translator/ccf.h"

namespace alibi::runtime {

// What a callout says: where to go on.
struct Next {
  HostAddr host;        // none: leave translated code, the run loop must act
  bool undone = false;  // the callout's instruction has not been executed
};

// How the guest comes to the PC where it goes on. Whoever finds the translation there takes this;
// while there is none yet, it waits for the run loop to make one.
struct Pending {
  translator::ExitDesc* exit = nullptr;  // through an exit that may be linked to it
  bool by_table = false;                 // by a jump through the table, which did not know it
  u8 jump_kinds = 0;                     // what is known of that jump: a bit per JumpKind
  bool simulate = false;                 // its first instruction shall be simulated
  bool undone = false;                   // it has tried that instruction before, to no effect

  // What comes next need not be what the guest was going to: others may change its state.
  void ForgetLinks() {
    exit = nullptr;
    by_table = false;
  }
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_PENDING_H_
