// SPDX-License-Identifier: Apache-2.0
// What stops detached user code from within callouts. Compiled for general registers only: the
// guest's vector state is live.
#include "direct/direct_execution.h"

namespace alibi::direct {

void DirectExecution::Place::StopUsing() {
  const SimdGuard guard(direct->simd_);
  ++direct->counters_.direct_halts;
  direct->Halt(this);
}

void DirectExecution::StopAll() {
  if (detached_ == 0) return;
  const SimdGuard guard(simd_);
  for (Place& place : places_) Halt(&place);
}

}  // namespace alibi::direct
