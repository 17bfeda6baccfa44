// SPDX-License-Identifier: Apache-2.0
// A VCPU's state at CPL 3 and what Linux's signal frames hold of it.
#ifndef ALIBI_DIRECT_USER_STATE_H_
#define ALIBI_DIRECT_USER_STATE_H_

#include "base/types.h"
#include "direct/satellite.h"
#include "mmu/mmu.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::direct {

// May user code in this state run on the host's CPU, as far as registers and modes go? It must not
// be able to see that they are the host's: flags that PUSHF shows, selectors, what CR0 and CR4 make
// of instructions, and the descriptors that the host's table has for every process (Linux's
// arch/x86/include/asm/segment.h), which segment loads and far branches find there.
bool CanRunDirectly(const vcpu::VcpuState& state, const mmu::Mmu& mmu, u64 host_xcr0);

// The state becomes the satellite's.
void LoadUserState(const vcpu::VcpuState& state, Satellite* satellite);

// The satellite's becomes the VCPU's. Whatever user code has made of the frame, it is a state that
// user code can have.
void SaveUserState(const Satellite& satellite, vcpu::VcpuState* state, mmu::Mmu* mmu);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_USER_STATE_H_
