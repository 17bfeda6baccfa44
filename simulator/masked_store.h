// SPDX-License-Identifier: Apache-2.0
// Where a store under a mask is said to fault.
#ifndef ALIBI_SIMULATOR_MASKED_STORE_H_
#define ALIBI_SIMULATOR_MASKED_STORE_H_

#include "base/types.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/fault.h"

namespace alibi::simulator {

// `fault` is that of the first element that faults. Intel's CPUs report the last byte stored, if
// what is stored, from the first active element to the last, crosses a page and the second one
// refuses. `address`: the operand's address, `active`: a bit per element of `size` bytes.
inline void PlaceMaskedStoreFault(LinearAddr address, u64 active, unsigned size, unsigned code_bits,
                                  vcpu::GuestFault* fault) {
  if (fault->vector != vcpu::kPageFault ||
      !vcpu::HostHasIntelsWay(vcpu::HostDifference::kMaskedStoreFault)) {
    return;
  }
  const u64 linear = address.value;
  u64 first = linear + static_cast<unsigned>(__builtin_ctzll(active)) * size;
  u64 last = linear + (64 - static_cast<unsigned>(__builtin_clzll(active))) * size - 1;
  if (code_bits != 64) {
    first &= 0xffffffff;
    last &= 0xffffffff;
  }
  const u64 second_page = last & ~kPageMask;
  if (first < second_page && fault->cr2 >= second_page) fault->cr2 = last;
}

}  // namespace alibi::simulator

#endif  // ALIBI_SIMULATOR_MASKED_STORE_H_
