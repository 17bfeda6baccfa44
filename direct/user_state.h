// SPDX-License-Identifier: Apache-2.0
// A VCPU's state at CPL 3 and what Linux's signal frames hold of it.
#ifndef ALIBI_DIRECT_USER_STATE_H_
#define ALIBI_DIRECT_USER_STATE_H_

#include "base/types.h"
#include "direct/host_traits.h"
#include "direct/satellite.h"
#include "mmu/mmu.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::direct {

// May user code in this state run on the host's CPU, as far as registers and modes go? It must not
// be able to see that they are the host's: flags that PUSHF shows, and what CR0 and CR4 make of
// instructions. Besides,
// - in code of 64 bits: selectors, and the descriptors that the host's table has for every process
//   (Linux's arch/x86/include/asm/segment.h), which segment loads and far branches find there;
// - in code of 32 bits: what the segment registers hold must be what the host's segments hold,
// whole
//   and from 0 on, FS and GS from anywhere. Selectors and descriptors are the guest's own: no
//   instruction that looks at one runs directly (host_visible.inc).
bool CanRunDirectly(const vcpu::VcpuState& state, const mmu::Mmu& mmu, const HostTraits& host);

// The state becomes the satellite's.
void LoadUserState(const vcpu::VcpuState& state, Satellite* satellite);

// The satellite's becomes the VCPU's. Whatever user code has made of the frame, it is a state that
// user code can have.
void SaveUserState(const Satellite& satellite, vcpu::VcpuState* state, mmu::Mmu* mmu);

// Of what it has run last: 64 or 32.
unsigned CodeBitsOf(const SignalFrame& frame);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_USER_STATE_H_
