// SPDX-License-Identifier: Apache-2.0
#include "vcpu/reset.h"

#include <initializer_list>

#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"
#include "vcpu/msr.h"

namespace alibi::vcpu {
namespace {

void ResetCommon(VcpuState& state, const CpuidPolicy& policy) {
  for (u64& value : state.gpr) value = 0;
  state.gpr[kRdx] = policy.signature();
  state.SetRflags(kFlagsReserved1);
  state.cpl = 0;
  state.interrupt_shadow = 0;
  state.stop_requested = 0;
  state.cr8_bias = 0;
  state.irq_pending = 0;
  state.cr8 = 0;
  state.debugctl = 0;
  state.cr0 = kCr0Et | kCr0Nw | kCr0Cd;
  state.cr2 = state.cr3 = state.cr4 = state.efer = 0;
  state.xcr0 = kXcr0X87;
  for (u64& value : state.dr) value = 0;
  state.dr[6] = kDr6Fixed;
  state.dr[7] = kDr7Fixed;
  for (Segment& segment : state.segment) segment = {.limit = 0xffff, .attributes = 0x93};
  state.segment[kLdtr].attributes = 0x82;
  state.segment[kTr].attributes = 0x8b;
  state.gdtr = {.base = 0, .limit = 0xffff};
  state.idtr = {.base = 0, .limit = 0xffff};
  state.star = state.lstar = state.cstar = state.sfmask = state.kernel_gs_base = 0;
  state.sysenter_cs = state.sysenter_esp = state.sysenter_eip = 0;
  state.pat = 0x0007040600070406;
  state.mtrr_def_type = 0;
  state.apic_base = 0xfee00000 | (1u << 11) | (state.number == 0 ? 1u << 8 : 0);  // enabled, boot
  state.tsc_aux = 0;
  state.misc_enable = 0x1 | (1u << 11) | (1u << 12);  // fast strings, no BTS, no PEBS
  ResetStoredMsrs(state);
  state.task_trap = state.halted = state.nmi_blocked = state.nmi_pending = state.shutdown = 0;
  state.waits_for_startup = 0;
  // The initial configuration of x87 and SSE (SDM vol. 1, 13.6): all zero but FCW and MXCSR, and
  // XSTATE_BV zero, so that XRSTOR makes the rest.
  for (u8& byte : state.xsave_area) byte = 0;
  const u16 fcw = 0x37f;
  const u32 mxcsr = 0x1f80, mxcsr_mask = 0xffff;
  __builtin_memcpy(state.xsave_area, &fcw, sizeof(fcw));
  __builtin_memcpy(state.xsave_area + 24, &mxcsr, sizeof(mxcsr));
  __builtin_memcpy(state.xsave_area + 28, &mxcsr_mask, sizeof(mxcsr_mask));
}

}  // namespace

void ResetToPowerUp(VcpuState& state, const CpuidPolicy& policy) {
  ResetCommon(state, policy);
  state.cr0 = kCr0Et | kCr0Nw | kCr0Cd;
  state.segment[kCs] = {
      .base = 0xffff0000, .limit = 0xffff, .selector = 0xf000, .attributes = 0x9b};
  state.rip = 0xfff0;
  state.waits_for_startup = state.number != 0;
}

void ResetToInit(VcpuState& state, const CpuidPolicy& policy) {
  const VcpuState before = state;
  ResetToPowerUp(state, policy);
  state.cr0 = kCr0Et | (before.cr0 & (kCr0Nw | kCr0Cd));
  state.xcr0 = before.xcr0;
  __builtin_memcpy(state.xsave_area, before.xsave_area, sizeof(state.xsave_area));
  state.star = before.star;
  state.lstar = before.lstar;
  state.cstar = before.cstar;
  state.sfmask = before.sfmask;
  state.kernel_gs_base = before.kernel_gs_base;
  state.sysenter_cs = before.sysenter_cs;
  state.sysenter_esp = before.sysenter_esp;
  state.sysenter_eip = before.sysenter_eip;
  state.pat = before.pat;
  state.mtrr_def_type = before.mtrr_def_type;
  state.apic_base = before.apic_base;
  state.tsc_aux = before.tsc_aux;
  state.misc_enable = before.misc_enable;
  __builtin_memcpy(state.stored_msr, before.stored_msr, sizeof(state.stored_msr));
  state.waits_for_startup = 1;
}

void StartUp(VcpuState& state, u8 vector) {
  if (!state.waits_for_startup) return;
  state.waits_for_startup = 0;
  Segment& code = state.segment[kCs];
  code.selector = static_cast<u16>(vector << 8);
  code.base = u64{vector} << 12;
  state.rip = 0;
}

namespace {

// 32-bit protected mode with flat segments and no paging. GDTR is empty.
void ResetToFlat(VcpuState& state, const CpuidPolicy& policy, u32 entry, u16 code, u16 data) {
  ResetCommon(state, policy);
  state.gpr[kRdx] = 0;
  state.cr0 = kCr0Pe | kCr0Et;
  for (SegmentIndex index : {kEs, kSs, kDs, kFs, kGs}) {
    state.segment[index] = {
        .base = 0, .limit = 0xffffffff, .selector = data, .attributes = kFlatData};
  }
  state.segment[kCs] = {
      .base = 0, .limit = 0xffffffff, .selector = code, .attributes = kFlatCode32};
  state.gdtr = {};
  state.rip = entry;
}

}  // namespace

void ResetToMultiboot(VcpuState& state, const CpuidPolicy& policy, u32 entry, u32 magic,
                      u32 info_address) {
  ResetToFlat(state, policy, entry, 0x08, 0x10);
  state.gpr[kRax] = magic;
  state.gpr[kRbx] = info_address;
}

void ResetToLinux32(VcpuState& state, const CpuidPolicy& policy, u32 entry, u32 boot_params,
                    u32 gdt) {
  ResetToFlat(state, policy, entry, kLinuxBootCs, kLinuxBootDs);
  state.gdtr = {.base = gdt, .limit = kLinuxBootDs + 7};
  state.gpr[kRsi] = boot_params;
}

void ResetToLinux64(VcpuState& state, const CpuidPolicy& policy, u64 entry, u64 boot_params,
                    u32 gdt, u64 page_tables) {
  ResetToLinux32(state, policy, 0, 0, gdt);
  state.segment[kCs].attributes = kFlatCode64;
  state.cr0 = kCr0Pg | kCr0Pe | kCr0Et;
  state.cr3 = page_tables;
  state.cr4 = kCr4Pae;
  state.efer = kEferLme | kEferLma;
  state.rip = entry;
  state.gpr[kRsi] = boot_params;
}

void ResetToPvh(VcpuState& state, const CpuidPolicy& policy, u32 entry, u32 start_info) {
  ResetToFlat(state, policy, entry, 0x08, 0x10);
  state.segment[kTr] = {.limit = 0x67, .attributes = 0x80 | kTypeTssBusy};
  state.gpr[kRbx] = start_info;
}

}  // namespace alibi::vcpu
