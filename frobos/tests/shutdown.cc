// SPDX-License-Identifier: Apache-2.0
// A triple fault: the machine must end with its shutdown status, and not with a byte at the exit
// port. The only kernel whose success is another exit status.

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {

int Main() {
  RunOnVmi();
  // A double fault first, so that the next one is known to come from nothing else.
  SetIdt(kInvalidOpcode, 0);
  SetIdt(kGeneralProtection, 0);
  CheckFault("a double fault is survived", Run(CODE32("ud2")), kDoubleFault);
  RestoreIdt(kInvalidOpcode);
  RestoreIdt(kGeneralProtection);
  Print("PASS the last line of this machine\n");
  LoadIdt(0);
  asm volatile("ud2");
  CheckEq("a triple fault shuts down", 0, 1);
  return Summary();
}

}  // namespace alibi::frobos
