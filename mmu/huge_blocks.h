// SPDX-License-Identifier: Apache-2.0
// Guest memory in huge pages of the host. A first touch of a memory file's page costs some 7,000
// cycles, so 512 of them several times what the host takes for 2 MB at once; and translated code
// then needs fewer of the host's TLB entries. Hosts mostly have huge pages of shared memory
// switched off, but make them for whoever asks for a certain block (MADV_COLLAPSE, Linux 6.1).
//
// A hint: wherever it is refused, or dearer than what it saves, pages come one by one as ever.
// Asked from all VCPUs' threads, while guest vector state is live.
#ifndef ALIBI_MMU_HUGE_BLOCKS_H_
#define ALIBI_MMU_HUGE_BLOCKS_H_

#include <atomic>
#include <memory>

#include "base/huge_page_trial.h"
#include "base/types.h"

namespace alibi::mmu {

class HugeBlocks {
 public:
  static constexpr u64 kBytes = u64{2} << 20;

  // For offsets below `capacity` bytes.
  explicit HugeBlocks(u64 capacity);

  // Has the block that holds the byte at `offset` been asked for, or will none be?
  bool Settled(u64 offset) const {
    const u64 block = offset / kBytes;
    return (asked_[block / 64].load(std::memory_order_relaxed) >> (block % 64) & 1) != 0;
  }
  // Asks for a block all of which is mapped for stores, at `memory`.
  void Ask(u64 offset, u8* memory);
  // It lies at the edge of a slot, and stays as it is.
  void Settle(u64 offset);
  // Whoever has memory there next begins anew.
  void Forget(u64 offset, u64 bytes);

 private:
  std::unique_ptr<std::atomic<u64>[]> asked_;  // a bit for each block
  HugePageTrial trial_;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_HUGE_BLOCKS_H_
