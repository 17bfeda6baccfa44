// SPDX-License-Identifier: Apache-2.0
// PcMachine's resets: the guest's own, and triple faults.
#include <x86intrin.h>

#include "base/check.h"
#include "pc/pc_machine.h"

namespace alibi::vmm {
PcEnd PcMachine::Run() {
  reset_loop_.Begin(ThreadWorkNs());
  for (;;) {
    const PcEnd end = RunUntilReset();
    if (end != PcEnd::kReset && end != PcEnd::kTripleFault) return end;
    if (!restart_on_reset_) return end;
    if (stop_requested_.exchange(false)) return PcEnd::kRequested;
    if (reset_loop_.Note(ThreadWorkNs())) return PcEnd::kResetLoop;
    if (!Restart()) return PcEnd::kHostRefused;
  }
}

// As the RESET line would: memory keeps its contents, but what firmware would load is loaded again.
bool PcMachine::Restart() {
  CatchUp();
  const i64 tsc_offset = -static_cast<i64>(__rdtsc());
  machine_->ResetVcpus(tsc_offset);
  pc_->Reset();
  ForgetHypercalls();
  for (devices::HostTsc& tsc : tscs_) tsc.SetOffset(static_cast<u64>(tsc_offset));
  TellTscMoved();
  if (bios_ != nullptr) {
    const Status applied = bios_->Apply(pc_->pci().pam());
    if (!applied.ok()) {
      EndForHost(applied.error());
      return false;
    }
  }
  pam_changed_ = false;
  // Neither translations nor page-table traces of the guest that was are worth keeping.
  machine_->mmu().SlotsChanged();
  if (kernel_.has_value()) {
    const Status loaded = Load(*kernel_);
    ALIBI_CHECK(loaded.ok(), "what was loaded once can be loaded again");
  }
  machine_->StateChanged();
  return true;
}

}  // namespace alibi::vmm
