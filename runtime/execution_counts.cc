// SPDX-License-Identifier: Apache-2.0
// What keeps execution counts exact: a CCF's entry counts all of its instructions, and some of them
// are not executed. Compiled for general registers only, as fast_path.cc.
#include "runtime/engine_impl.h"

namespace alibi::runtime {

using isa::Treatment;

void EngineImpl::CountLeaving(const SiteDesc& site, bool undone) {
  const isa::Instr& instr = InstrOf(site);
  const bool jumps =
      instr.treatment == Treatment::kControl || instr.treatment == Treatment::kTerminator;
  // Between two iterations of a repeated instruction, which has not been executed yet; or in front
  // of one that a debugger wants stepped. A branch may lead to itself.
  if (state_.rip == site.ccf->mode.RipOf(instr.pc) && (!jumps || instr.rep || instr.repne)) {
    undone = true;
  }
  const unsigned first = site.instr_index + (undone ? 0u : 1u);
  if (first < site.ccf->instrs().size()) ++site.ccf->counts->left_before[first];
}

}  // namespace alibi::runtime
