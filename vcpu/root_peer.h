// The view that a MOV to CR3 leads to, beside the other peers in front of a view (vcpu/contract.h).
// As SYSCALL, SYSRET, STAC and CLAC do, it changes %gs without the VMM.
#ifndef ALIBI_VCPU_ROOT_PEER_H_
#define ALIBI_VCPU_ROOT_PEER_H_

#include "vcpu/contract.h"

namespace alibi {

// Of a kernel's 64-bit view: a load of this value leads to the view gs_base, and needs nothing
// else.
struct RootPeer {
  u64 mask;     // the bits of the operand that count
  u64 negated;  // those bits (PEXT) plus this are zero for the value
  u64 cr3;      // what CR3 becomes
  u64 gs_base;

  static constexpr RootPeer Of(u64 cr3, u64 ignored, u64 gs_base) {
    return {~ignored, 0 - cr3, cr3, gs_base};
  }
  static constexpr RootPeer None() { return {0, 1, 0, 0}; }  // no operand fits
};
inline constexpr i32 kRootPeerOffset = kSmapPeerOffset + static_cast<i32>(sizeof(SmapPeer));
static_assert(kRootPeerOffset + static_cast<i32>(sizeof(RootPeer)) <= kSlotsOffset);

}  // namespace alibi

#endif  // ALIBI_VCPU_ROOT_PEER_H_
