// SPDX-License-Identifier: Apache-2.0
#include "hardware/kvm_state.h"

#include <cstring>

#include "vcpu/control_registers.h"
#include "vcpu/segment_fields.h"

namespace alibi::hardware {
namespace {

using vcpu::VcpuState;

// The order of the Gpr numbers.
constexpr __u64 kvm_regs::*kGprs[] = {
    &kvm_regs::rax, &kvm_regs::rcx, &kvm_regs::rdx, &kvm_regs::rbx, &kvm_regs::rsp, &kvm_regs::rbp,
    &kvm_regs::rsi, &kvm_regs::rdi, &kvm_regs::r8,  &kvm_regs::r9,  &kvm_regs::r10, &kvm_regs::r11,
    &kvm_regs::r12, &kvm_regs::r13, &kvm_regs::r14, &kvm_regs::r15};

// The order of the SegmentIndex numbers.
constexpr kvm_segment kvm_sregs::*kSegments[] = {&kvm_sregs::es,  &kvm_sregs::cs, &kvm_sregs::ss,
                                                 &kvm_sregs::ds,  &kvm_sregs::fs, &kvm_sregs::gs,
                                                 &kvm_sregs::ldt, &kvm_sregs::tr};

constexpr u16 kDplMask = 3u << 5;

// In 64-bit mode an unusable segment has a base all the same.
vcpu::Segment SegmentFrom(kvm_segment r) {
  r.present = r.present != 0 && r.unusable == 0;
  return vcpu::SegmentFromFields(r);
}

kvm_dtable TableOf(const vcpu::DescriptorTable& table) {
  return {.base = table.base, .limit = table.limit, .padding = {}};
}

}  // namespace

kvm_regs RegistersOf(const VcpuState& state) {
  kvm_regs regs = {};
  for (unsigned i = 0; i < 16; ++i) regs.*kGprs[i] = state.gpr[i];
  regs.rip = state.rip;
  regs.rflags = state.Rflags();
  return regs;
}

void TakeRegisters(const kvm_regs& regs, VcpuState* state) {
  for (unsigned i = 0; i < 16; ++i) state->gpr[i] = regs.*kGprs[i];
  state->rip = regs.rip;
  state->SetRflags(regs.rflags);
}

kvm_sregs SpecialRegistersOf(const VcpuState& state) {
  kvm_sregs sregs = {};
  for (unsigned i = 0; i < vcpu::kSegmentCount; ++i) {
    sregs.*kSegments[i] = vcpu::FieldsOf<kvm_segment>(state.segment[i]);
  }
  sregs.ss.dpl = state.cpl;
  // A descriptor's L bit means nothing elsewhere, and KVM refuses it there.
  if (!state.LongModeActive()) sregs.cs.l = 0;
  sregs.gdt = TableOf(state.gdtr);
  sregs.idt = TableOf(state.idtr);
  sregs.cr0 = state.cr0;
  sregs.cr2 = state.cr2;
  sregs.cr3 = state.cr3;
  sregs.cr4 = state.cr4;
  sregs.cr8 = state.cr8;
  sregs.efer = state.efer;
  sregs.apic_base = state.apic_base;
  return sregs;
}

void TakeSpecialRegisters(const kvm_sregs& sregs, VcpuState* state) {
  const u16 ss_dpl = state->segment[vcpu::kSs].attributes & kDplMask;
  for (unsigned i = 0; i < vcpu::kSegmentCount; ++i) {
    state->segment[i] = SegmentFrom(sregs.*kSegments[i]);
  }
  state->gdtr = {.base = sregs.gdt.base, .limit = sregs.gdt.limit};
  state->idtr = {.base = sregs.idt.base, .limit = sregs.idt.limit};
  state->cr0 = sregs.cr0;
  state->cr2 = sregs.cr2;
  state->cr3 = sregs.cr3;
  state->cr4 = sregs.cr4;
  state->cr8 = sregs.cr8;
  state->efer = sregs.efer;
  const bool protected_mode = sregs.cr0 & vcpu::kCr0Pe;
  const bool virtual_8086 = protected_mode && (state->system_flags & vcpu::kVm);
  state->cpl = !protected_mode ? 0 : virtual_8086 ? 3 : static_cast<u8>(sregs.ss.dpl & 3);
  // Where SS is unusable or the mode has no privilege, its DPL there is the CPL and no more.
  vcpu::Segment& ss = state->segment[vcpu::kSs];
  if (!ss.Present() || !protected_mode) {
    ss.attributes = static_cast<u16>((ss.attributes & ~kDplMask) | ss_dpl);
  }
}

kvm_debugregs DebugRegistersOf(const VcpuState& state) {
  kvm_debugregs registers = {};
  for (unsigned i = 0; i < 4; ++i) registers.db[i] = state.dr[i];
  registers.dr6 = state.dr[6];
  registers.dr7 = state.dr[7];
  return registers;
}

void TakeDebugRegisters(const kvm_debugregs& registers, VcpuState* state) {
  for (unsigned i = 0; i < 4; ++i) state->dr[i] = registers.db[i];
  state->dr[6] = registers.dr6 | vcpu::kDr6Fixed;
  state->dr[7] = registers.dr7 | vcpu::kDr7Fixed;
}

kvm_xcrs ExtendedControlOf(const VcpuState& state) {
  kvm_xcrs xcrs = {};
  xcrs.nr_xcrs = 1;
  xcrs.xcrs[0].value = state.xcr0;
  return xcrs;
}

void TakeExtendedControl(const kvm_xcrs& xcrs, VcpuState* state) {
  for (u32 i = 0; i < xcrs.nr_xcrs; ++i) {
    if (xcrs.xcrs[i].xcr == 0) state->xcr0 = xcrs.xcrs[i].value;
  }
}

static_assert(sizeof(kvm_xsave) == vcpu::kXsaveAreaSize);

kvm_xsave XsaveOf(const VcpuState& state) {
  kvm_xsave xsave;
  std::memcpy(&xsave, state.xsave_area, sizeof(xsave));
  return xsave;
}

void TakeXsave(const kvm_xsave& xsave, VcpuState* state) {
  std::memcpy(state->xsave_area, &xsave, sizeof(xsave));
}

kvm_vcpu_events EventsOf(const VcpuState& state) {
  kvm_vcpu_events events = {};
  events.flags = KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_NMI_PENDING;
  // STI's shadow with IF clear is a state that no CPU has.
  if (state.interrupt_shadow != 0) {
    events.interrupt.shadow =
        state.if_flag != 0 ? KVM_X86_SHADOW_INT_STI : KVM_X86_SHADOW_INT_MOV_SS;
  }
  events.nmi.masked = state.nmi_blocked != 0;
  events.nmi.pending = state.nmi_blocked != 0 && state.nmi_pending != 0;
  return events;
}

void TakeEvents(const kvm_vcpu_events& events, VcpuState* state) {
  state->interrupt_shadow = events.interrupt.shadow != 0;
  if (events.nmi.pending != 0 || events.nmi.injected != 0) state->nmi_pending = 1;
  state->nmi_blocked = events.nmi.masked != 0 && events.nmi.injected == 0;
}

}  // namespace alibi::hardware
