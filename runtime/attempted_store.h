// SPDX-License-Identifier: Apache-2.0
// Stores that leave traces even if memory refuses them: Intel's CPUs do an instruction's work
// before they look at its destination (cpu_differences.inc: MmxStoreFault, ConvertToHalfFault,
// X87StoreFault). Where the runtime finds the fault first, the instruction still has to run once.
#ifndef ALIBI_RUNTIME_ATTEMPTED_STORE_H_
#define ALIBI_RUNTIME_ATTEMPTED_STORE_H_

#include "isa/ir.h"
#include "vcpu/cpu_differences.h"

namespace alibi::runtime {

enum class AttemptedStore : u8 {
  kNoTrace,
  kMmx,      // the top of stack is 0 already
  kConvert,  // reports the conversion's exceptions in MXCSR, or by #XM
  kX87,      // is not made, and raises no fault, if its value causes an unmasked exception
};

inline AttemptedStore AttemptedStoreOf(const isa::Instr& instr) {
  using isa::Unit;
  using vcpu::HostDifference, vcpu::HostHasIntelsWay;
  if (!instr.mem.written || instr.treatment != isa::Treatment::kIdent) {
    return AttemptedStore::kNoTrace;
  }
  if (instr.unit == Unit::kMmx && HostHasIntelsWay(HostDifference::kMmxStoreFault)) {
    return AttemptedStore::kMmx;
  }
  if (instr.unit == Unit::kX87 && HostHasIntelsWay(HostDifference::kX87StoreFault)) {
    return instr.Is(isa::kStoresX87Control) ? AttemptedStore::kNoTrace : AttemptedStore::kX87;
  }
  if (instr.Is(isa::kConvertsToHalf) && HostHasIntelsWay(HostDifference::kConvertToHalfFault)) {
    return AttemptedStore::kConvert;
  }
  return AttemptedStore::kNoTrace;
}

// The x87 state, live in the host's FPU, from before such a store.
class X87Snapshot {
 public:
  void Take() {
    asm volatile("xsave64 %0" : "+m"(area_) : "a"(kComponent), "d"(0) : "memory");
    __builtin_memcpy(area_ + 512, &kComponent, 4);  // present, whether or not it is in use
  }
  void PutBack() const {
    asm volatile("xrstor64 %0" : : "m"(area_), "a"(kComponent), "d"(0) : "memory");
  }
  // The same, but for the top of stack. The image's registers are numbered from there.
  void PutBackWithTopZero() {
    u8 registers[8 * 16];
    __builtin_memcpy(registers, area_ + 32, sizeof(registers));
    const unsigned top = area_[3] >> 3 & 7;
    for (unsigned i = 0; i < 8; ++i) {
      __builtin_memcpy(area_ + 32 + ((i + top) & 7) * 16, registers + i * 16, 16);
    }
    area_[3] &= 0xc7;
    PutBack();
  }

  // Whether what has run since has met an exception, unmasked, that keeps x87 results from being
  // stored: all but PE, which comes with a result.
  static bool KeptFromStoring() {
    u16 status, control;
    asm volatile("fnstsw %0" : "=m"(status));
    asm volatile("fnstcw %0" : "=m"(control));
    return (status & ~control & 0x1f) != 0;
  }

 private:
  static constexpr u32 kComponent = 1;  // x87, of the XSAVE feature set
  alignas(64) u8 area_[512 + 64] = {};
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ATTEMPTED_STORE_H_
