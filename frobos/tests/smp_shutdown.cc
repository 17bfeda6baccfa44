// SPDX-License-Identifier: Apache-2.0
// A triple fault of a processor that did not boot the machine, while the others work: the machine
// must end as at the boot processor's.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/smp.h"

namespace alibi::frobos {

int Main() {
  InitLapic();
  CheckEq("all processors start", StartAllCpus(), CpusWanted());
  Print("PASS the last line of this machine\n");
  Begin(CpusWanted() - 1, [](u64) {
    const TablePointer none = {};
    asm volatile("lidt %0; ud2" : : "m"(none));
  });
  CheckEq("a triple fault shuts down", WaitFor([] { return false; }), true);
  return Summary();
}

}  // namespace alibi::frobos
