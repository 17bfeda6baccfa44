// SPDX-License-Identifier: Apache-2.0
#include "mmu/huge_blocks.h"

#include <sys/mman.h>
#include <x86intrin.h>

namespace alibi::mmu {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which Debian 12's headers do not know

}  // namespace

HugeBlocks::HugeBlocks(u64 capacity)
    : asked_(std::make_unique<std::atomic<u64>[]>(capacity / kBytes / 64 + 1)) {}

void HugeBlocks::Settle(u64 offset) {
  const u64 block = offset / kBytes;
  asked_[block / 64].fetch_or(u64{1} << (block % 64), std::memory_order_relaxed);
}

void HugeBlocks::Ask(u64 offset, u8* memory) {
  Settle(offset);
  if (trial_.Failed()) return;
  const u64 begin = __rdtsc();
  // A block without any page is refused. Another VCPU may be at that byte.
  __atomic_fetch_or(memory, u8{0}, __ATOMIC_RELAXED);
  const bool made = madvise(memory, kBytes, kCollapse) == 0;
  trial_.Note(made && !HugePageTrial::IsDear(__rdtsc() - begin));
}

void HugeBlocks::Forget(u64 offset, u64 bytes) {
  for (u64 block = offset / kBytes; block <= (offset + bytes - 1) / kBytes; ++block) {
    asked_[block / 64].fetch_and(~(u64{1} << (block % 64)), std::memory_order_relaxed);
  }
}

}  // namespace alibi::mmu
