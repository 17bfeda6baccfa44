// SPDX-License-Identifier: Apache-2.0
// A debugger outside the guest, as the run loop sees it.
#ifndef ALIBI_MACHINE_DEBUGGER_H_
#define ALIBI_MACHINE_DEBUGGER_H_

#include "base/types.h"

namespace alibi::vmm {

// Why the guest stands still.
enum class DebugEvent : u8 {
  kPoint,     // the engine's debug_points().stop() says which
  kShutdown,  // triple fault
  kHalted,    // halted for ever
};

// All calls come on the VCPU's thread, between two instructions.
class Debugger {
 public:
  virtual ~Debugger() = default;
  // Each time before the guest runs: returns when it may, or when the machine was told to stop.
  virtual void Turn() = 0;
  // The guest has met something. The next Turn() tells the user. False: nobody is there to be
  // told.
  virtual bool Met(DebugEvent event) = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_DEBUGGER_H_
