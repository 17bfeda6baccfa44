// SPDX-License-Identifier: Apache-2.0
// Between VcpuState and the structures of the KVM API. Pure functions: what one direction writes
// the other one reads back, so that a VCPU can go from engine to engine at any instruction
// boundary.
#ifndef ALIBI_HARDWARE_KVM_STATE_H_
#define ALIBI_HARDWARE_KVM_STATE_H_

#include "base/types.h"
#include "hardware/kvm_api.h"
#include "vcpu/msr.h"
#include "vcpu/state.h"

namespace alibi::hardware {

kvm_regs RegistersOf(const vcpu::VcpuState& state);
void TakeRegisters(const kvm_regs& regs, vcpu::VcpuState* state);

// CPL is SS's DPL there. KVM is given our apic_base and keeps it; it is not taken back.
kvm_sregs SpecialRegistersOf(const vcpu::VcpuState& state);
void TakeSpecialRegisters(const kvm_sregs& sregs, vcpu::VcpuState* state);

kvm_debugregs DebugRegistersOf(const vcpu::VcpuState& state);
void TakeDebugRegisters(const kvm_debugregs& registers, vcpu::VcpuState* state);

kvm_xcrs ExtendedControlOf(const vcpu::VcpuState& state);
void TakeExtendedControl(const kvm_xcrs& xcrs, vcpu::VcpuState* state);

kvm_xsave XsaveOf(const vcpu::VcpuState& state);
void TakeXsave(const kvm_xsave& xsave, vcpu::VcpuState* state);

// The interrupt shadow and NMIs. An NMI that waits for an IRET waits in KVM: who gives these events
// to KVM clears nmi_pending, which then says what came later. One that can be taken is the run
// loop's to take.
kvm_vcpu_events EventsOf(const vcpu::VcpuState& state);
void TakeEvents(const kvm_vcpu_events& events, vcpu::VcpuState* state);

// The MSRs that the CPU itself uses and the guest writes without an exit. The others live in
// VcpuState, and each access of the guest's to them is one.
struct SharedMsr {
  u32 index;
  u64 vcpu::VcpuState::*field;
};
inline constexpr SharedMsr kSharedMsrs[] = {
    {vcpu::kMsrSysenterCs, &vcpu::VcpuState::sysenter_cs},
    {vcpu::kMsrSysenterEsp, &vcpu::VcpuState::sysenter_esp},
    {vcpu::kMsrSysenterEip, &vcpu::VcpuState::sysenter_eip},
    {vcpu::kMsrPat, &vcpu::VcpuState::pat},
    {vcpu::kMsrStar, &vcpu::VcpuState::star},
    {vcpu::kMsrLstar, &vcpu::VcpuState::lstar},
    {vcpu::kMsrCstar, &vcpu::VcpuState::cstar},
    {vcpu::kMsrSfmask, &vcpu::VcpuState::sfmask},
    {vcpu::kMsrKernelGsBase, &vcpu::VcpuState::kernel_gs_base},
    {vcpu::kMsrTscAux, &vcpu::VcpuState::tsc_aux},
};
// So are these. The first three's values are in kvm_sregs; the others are KVM's alone: what our
// table says of speculation is true of translated code, not of the host's CPU.
inline constexpr u32 kUnsharedMsrs[] = {vcpu::kMsrEfer,    vcpu::kMsrFsBase,
                                        vcpu::kMsrGsBase,  vcpu::kMsrSpecCtrl,
                                        vcpu::kMsrPredCmd, vcpu::kMsrArchCapabilities};

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_KVM_STATE_H_
