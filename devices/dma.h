// SPDX-License-Identifier: Apache-2.0
// How devices reach guest memory.
#ifndef ALIBI_DEVICES_DMA_H_
#define ALIBI_DEVICES_DMA_H_

#include "base/types.h"

namespace alibi::devices {

// On the VCPU's thread only. Writes are seen by everything that follows guest memory (translations
// of code, shadows of page tables).
class Dma {
 public:
  virtual ~Dma() = default;
  // False, and nothing happens, unless [address, address + size) is all RAM (or ROM, to read): what
  // a guest names may be anything, and devices do not reach each other's registers this way.
  virtual bool Read(PhysAddr address, void* out, u64 size) = 0;
  virtual bool Write(PhysAddr address, const void* data, u64 size) = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_DMA_H_
