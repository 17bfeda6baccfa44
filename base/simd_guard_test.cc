// SPDX-License-Identifier: Apache-2.0
#include "base/simd_guard.h"

#include <catch2/catch.hpp>

namespace alibi {
namespace {

constexpr u32 kAllUnmasked = 0x0000;
constexpr u16 kX87Unmasked = 0x0340;

struct Status {
  u32 mxcsr = 0;
  u16 fcw = 0, fsw = 0;
};

Status Now() {
  Status status;
  asm volatile("stmxcsr %0; fnstcw %1; fnstsw %2"
               : "=m"(status.mxcsr), "=m"(status.fcw), "=m"(status.fsw));
  return status;
}

// What a guest may leave: exceptions unmasked, one pending.
void BecomeGuests() {
  const u16 masked = 0x037f;
  const u32 mxcsr = kAllUnmasked;
  asm volatile("fninit; fldcw %0; fld1; fldz; fdivrp; fldcw %1; ldmxcsr %2"
               :
               : "m"(masked), "m"(kX87Unmasked), "m"(mxcsr));
}

void BecomeHosts() {
  const u32 mxcsr = 0x1f80;
  asm volatile("fnclex; fninit; ldmxcsr %0" : : "m"(mxcsr));
}

TEST_CASE("Meanwhile floating point is as the C ABI has it, and then the guest's again") {
  SimdState state;
  Status before, inside, after;
  BecomeGuests();
  before = Now();
  {
    SimdGuard guard(state);
    inside = Now();
    // Both would raise a signal in the guest's state.
    if (inside.mxcsr == 0x1f80 && (inside.fsw & 0x80) == 0) {
      volatile double zero = 0;
      volatile double infinity = 1 / zero;
      static_cast<void>(infinity);
      asm volatile("fld1; fwait; fstp %%st(0)" ::: "memory");
    }
  }
  after = Now();
  BecomeHosts();
  CHECK((before.fsw & 0x80) != 0);  // it does wait
  CHECK(inside.mxcsr == 0x1f80);
  CHECK(inside.fcw == 0x037f);
  CHECK((inside.fsw & 0x80) == 0);
  CHECK(after.mxcsr == before.mxcsr);
  CHECK(after.fcw == before.fcw);
  CHECK(after.fsw == before.fsw);
}

}  // namespace
}  // namespace alibi
