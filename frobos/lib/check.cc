// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/check.h"

#include "frobos/common/console.h"

namespace alibi::frobos {

void CheckFault(const char* name, const Outcome& o, u8 vector, u64 error, u64 rip) {
  if (o.Is(vector, error) && (rip == 0 || rip == o.frame.rip)) return Pass(name);
  CountCheck(false);
  Print("FAIL %s: expected %s error 0x%lx", name, VectorName(vector), error);
  if (rip != 0) Print(" at 0x%lx", rip);
  Print(" got %s error 0x%lx at 0x%lx cr2 0x%lx\n", VectorName(o.frame.vector), o.frame.error,
        o.frame.rip, o.cr2);
}

void CheckDone(const char* name, const Outcome& o) {
  if (o.Done()) return Pass(name);
  CountCheck(false);
  Print("FAIL %s: expected no fault got %s error 0x%lx at 0x%lx cr2 0x%lx\n", name,
        VectorName(o.frame.vector), o.frame.error, o.frame.rip, o.cr2);
}

}  // namespace alibi::frobos
