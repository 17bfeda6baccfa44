// SPDX-License-Identifier: Apache-2.0
// What every piece of system semantics returns: done, or the guest fault it raises instead.
#ifndef ALIBI_VCPU_OUTCOME_H_
#define ALIBI_VCPU_OUTCOME_H_

#include "base/types.h"
#include "vcpu/fault.h"

namespace alibi::vcpu {

// A faulting operation has changed no architectural state, so the instruction can be restarted.
// 16 bytes and trivially copyable: it comes back in two registers.
class [[nodiscard]] Outcome {
 public:
  constexpr Outcome() = default;
  constexpr Outcome(GuestFault fault) : fault_(fault) {}  // NOLINT(google-explicit-constructor)

  static constexpr Outcome Done() { return {}; }
  static constexpr Outcome Simple(Vector vector) { return GuestFault::Simple(vector); }
  static constexpr Outcome WithCode(Vector vector, u32 code) {
    return GuestFault::WithCode(vector, code);
  }

  constexpr bool faulted() const { return fault_.vector != kNoFault; }
  constexpr bool done() const { return !faulted(); }
  constexpr const GuestFault& fault() const { return fault_; }
  constexpr bool operator==(const Outcome&) const = default;

 private:
  // No exception has this vector, so no further field is needed to say "none".
  static constexpr u8 kNoFault = 0xff;
  GuestFault fault_{kNoFault, false, 0, 0};
};
static_assert(sizeof(Outcome) == 16);

constexpr Outcome GeneralProtection(u32 code = 0) {
  return Outcome::WithCode(kGeneralProtection, code);
}
constexpr Outcome StackFault(u32 code = 0) { return Outcome::WithCode(kStackFault, code); }
constexpr Outcome InvalidOpcode() { return Outcome::Simple(kInvalidOpcode); }

}  // namespace alibi::vcpu

// Leaves the function with the fault of `expression`, if it has one.
#define ALIBI_RETURN_IF_FAULT(expression)                    \
  do {                                                       \
    if (::alibi::vcpu::Outcome alibi_outcome = (expression); \
        __builtin_expect(alibi_outcome.faulted(), 0)) {      \
      return alibi_outcome;                                  \
    }                                                        \
  } while (0)

#endif  // ALIBI_VCPU_OUTCOME_H_
