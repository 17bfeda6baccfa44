// SPDX-License-Identifier: Apache-2.0
#include "vcpu/control_registers.h"

#include "vcpu/breakpoints.h"
#include "vcpu/control_transfer.h"
#include "vcpu/descriptors.h"
#include "vcpu/msr.h"

namespace alibi::vcpu {
namespace {

constexpr u64 kCr0Writable =
    kCr0Pe | kCr0Mp | kCr0Em | kCr0Ts | kCr0Ne | kCr0Wp | kCr0Am | kCr0Nw | kCr0Cd | kCr0Pg;
// Bits whose change alters what a linear address means.
constexpr u64 kCr0Paging = kCr0Pg | kCr0Wp;
constexpr u64 kCr4Paging = kCr4Pse | kCr4Pae | kCr4Smep | kCr4Smap;
// Bits whose change loads PAE's page-directory pointers (SDM vol. 3, 4.4.1).
constexpr u64 kCr0LoadsPdptes = kCr0Pg | kCr0Cd | kCr0Nw;
constexpr u64 kCr4LoadsPdptes = kCr4Pae | kCr4Pge | kCr4Pse | kCr4Smep;
// Bits whose change invalidates translations (SDM vol. 3, 4.10.4.1).
constexpr u64 kCr4Invalidates = kCr4Pge | kCr4Pse | kCr4Pae | kCr4Pcide | kCr4Smep;
constexpr u64 kNoFlush = u64{1} << 63;  // of MOV to CR3 with PCIDs

// Truncated by the operand size: 64 bits in 64-bit mode, 32 elsewhere.
u64 Operand(const VcpuState& state, u64 value) {
  return state.In64BitCode() ? value : static_cast<u32>(value);
}

// EFER.LMA and the checks of turning paging on in IA-32e mode (SDM vol. 3, 9.8.5).
Outcome CheckPagingSwitch(const VcpuState& state, u64 value) {
  const bool on = value & kCr0Pg;
  if (on == state.Paging()) return {};
  if (on && (state.efer & kEferLme)) {
    if (!(state.cr4 & kCr4Pae) || state.segment[kCs].Long()) return GeneralProtection();
    // A 16-bit TSS has no meaning in long mode.
    const Segment& tr = state.segment[kTr];
    if (!NullSelector(tr.selector) && (tr.Type() & ~2u) == kTypeTss16) return GeneralProtection();
  }
  if (!on && (state.In64BitCode() || (state.cr4 & kCr4Pcide))) return GeneralProtection();
  return {};
}

Outcome CheckDebugAccess(VcpuState& state, unsigned* number) {
  if (*number > 7) return InvalidOpcode();
  if (*number == 4 || *number == 5) {
    if (state.cr4 & kCr4De) return InvalidOpcode();
    *number += 2;
  }
  if (state.cpl != 0) return GeneralProtection();
  if (state.dr[7] & kDr7Gd) {
    ReportDebug(state, kDr6Bd);
    return Outcome::Simple(kDebug);
  }
  return {};
}

}  // namespace

Outcome ReadControlRegister(const VcpuState& state, unsigned number, u64* value) {
  const u64* const registers[9] = {&state.cr0, nullptr, &state.cr2, &state.cr3, &state.cr4,
                                   nullptr,    nullptr, nullptr,    &state.cr8};
  if (number > 8 || registers[number] == nullptr) return InvalidOpcode();
  *value = *registers[number];
  return {};
}

Outcome WriteControlRegister(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                             Platform& platform, unsigned number, u64 value) {
  u64 previous;
  ALIBI_RETURN_IF_FAULT(ReadControlRegister(state, number, &previous));
  value = Operand(state, value);
  switch (number) {
    case 0:
      return WriteCr0(state, memory, value);
    case 3:
      return WriteCr3(state, memory, value);
    case 4:
      return WriteCr4(state, memory, policy, value);
    case 8:
      return WriteCr8(state, platform, value);
    default:
      state.cr2 = value;
      return {};
  }
}

Outcome WriteCr0(VcpuState& state, LinearMemory& memory, u64 value) {
  if (value >> 32) return GeneralProtection();
  const bool paging_unprotected = (value & kCr0Pg) && !(value & kCr0Pe);
  const bool write_through_uncached = (value & kCr0Nw) && !(value & kCr0Cd);
  if (paging_unprotected || write_through_uncached) return GeneralProtection();
  value = (value & kCr0Writable) | kCr0Et;  // the other reserved bits are ignored
  ALIBI_RETURN_IF_FAULT(CheckPagingSwitch(state, value));
  const u64 changed = state.cr0 ^ value;
  if ((changed & kCr0LoadsPdptes) && UsesPdptes(value, state.cr4, state.efer) &&
      !memory.LoadPdptes(state.cr3)) {
    return GeneralProtection();
  }
  state.cr0 = value;
  if (changed & kCr0Pg) {
    const bool long_mode = (value & kCr0Pg) && (state.efer & kEferLme);
    state.efer = long_mode ? state.efer | kEferLma : state.efer & ~kEferLma;
  }
  if (changed & kCr0Paging) memory.PagingModeChanged();
  if (changed & kCr0Pg) memory.InvalidateAll();
  return {};
}

Outcome WriteCr3(VcpuState& state, LinearMemory& memory, u64 value) {
  // Bit 63 allows to keep a PCID's translations; nobody needs to.
  if (state.cr4 & kCr4Pcide) value &= ~kNoFlush;
  // Bits 51:40 lie beyond MAXPHYADDR, the rest is reserved without LAM.
  if (state.LongModeActive() && (value >> kPhysicalAddressBits)) return GeneralProtection();
  if (UsesPdptes(state) && !memory.LoadPdptes(value)) return GeneralProtection();
  state.cr3 = value;
  memory.AddressSpaceLoaded();
  return {};
}

Outcome WriteCr4(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy, u64 value) {
  if (value & ~policy.cr4_valid()) return GeneralProtection();
  if (state.LongModeActive() && !(value & kCr4Pae)) return GeneralProtection();
  const u64 changed = state.cr4 ^ value;
  // PCIDs start with an empty PCID and only in long mode (SDM vol. 3, 4.10.1).
  if ((changed & value & kCr4Pcide) && (!state.LongModeActive() || (state.cr3 & 0xfff))) {
    return GeneralProtection();
  }
  if ((changed & kCr4LoadsPdptes) && UsesPdptes(state.cr0, value, state.efer) &&
      !memory.LoadPdptes(state.cr3)) {
    return GeneralProtection();
  }
  state.cr4 = value;
  if (changed & kCr4Paging) memory.PagingModeChanged();
  if (changed & kCr4Invalidates) memory.InvalidateAll();
  if (changed & kCr4Smap) PrepareFastSyscall(state);
  if (changed & kCr4Tsd) UpdateRdtsc(state);
  return {};
}

Outcome WriteCr8(VcpuState& state, Platform& platform, u64 value) {
  if (value & ~u64{0xf}) return GeneralProtection();
  state.cr8 = value;
  platform.TaskPriorityWritten();
  return {};
}

Outcome LoadMachineStatus(VcpuState& state, LinearMemory& memory, u16 value) {
  // PE can be set this way but not cleared.
  u64 low = (value & 0xf) | (state.cr0 & kCr0Pe);
  return WriteCr0(state, memory, (state.cr0 & ~u64{0xf}) | low);
}

u64 StoreMachineStatus(const VcpuState& state) { return state.cr0; }

Outcome ClearTaskSwitched(VcpuState& state, LinearMemory&) {
  state.cr0 &= ~kCr0Ts;
  return {};
}

Outcome InvalidateContext(VcpuState& state, LinearMemory& memory, u64 type, u64 pcid,
                          LinearAddr address) {
  enum : u64 { kAddress, kSingleContext, kAllContexts, kAllButGlobal };
  constexpr u64 kPcidMask = 0xfff;
  if (type > kAllButGlobal || (pcid & ~kPcidMask)) return GeneralProtection();
  if (type <= kSingleContext && pcid != 0 && !(state.cr4 & kCr4Pcide)) return GeneralProtection();
  if (type != kAddress) {
    memory.InvalidateAll();
    return {};
  }
  if (!IsCanonical(address.value)) return GeneralProtection();
  memory.InvalidatePage(address);
  return {};
}

Outcome ReadDebugRegister(VcpuState& state, unsigned number, u64* value) {
  ALIBI_RETURN_IF_FAULT(CheckDebugAccess(state, &number));
  *value = state.dr[number];
  return {};
}

Outcome WriteDebugRegister(VcpuState& state, unsigned number, u64 value) {
  ALIBI_RETURN_IF_FAULT(CheckDebugAccess(state, &number));
  value = Operand(state, value);
  if (number >= 6 && (value >> 32)) return GeneralProtection();
  // Reserved bits read as fixed values (SDM vol. 3, 17.2).
  if (number == 6) value = (value & 0xe00f) | kDr6Fixed;
  if (number == 7) value = (value & 0xffff23ff) | kDr7Fixed;
  state.dr[number] = value;
  return {};
}

Outcome ExecuteXgetbv(VcpuState& state, const CpuidPolicy& policy) {
  if (!(state.cr4 & kCr4Osxsave)) return InvalidOpcode();
  u64 value = state.xcr0;
  switch (static_cast<u32>(state.gpr[kRcx])) {
    case 0:
      break;
    case 1: {
      if (!policy.has_xgetbv1()) return GeneralProtection();
      // Which components are in use is the host's knowledge: the registers are the host's own.
      u32 low, high;
      asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
      value &= low | (u64{high} << 32);
      break;
    }
    default:
      return GeneralProtection();
  }
  state.gpr[kRax] = static_cast<u32>(value);
  state.gpr[kRdx] = value >> 32;
  return {};
}

Outcome ExecuteXsetbv(VcpuState& state, const CpuidPolicy& policy) {
  if (!(state.cr4 & kCr4Osxsave)) return InvalidOpcode();
  if (state.cpl != 0 || static_cast<u32>(state.gpr[kRcx]) != 0) return GeneralProtection();
  const u64 value = static_cast<u32>(state.gpr[kRax]) | (state.gpr[kRdx] << 32);
  const bool x87 = value & kXcr0X87, sse = value & kXcr0Sse, avx = value & kXcr0Avx;
  const u64 avx512 = value & kXcr0Avx512;
  if ((value & ~policy.xcr0_valid()) || !x87 || (avx && !sse) ||
      (avx512 != 0 && (avx512 != kXcr0Avx512 || !avx))) {
    return GeneralProtection();
  }
  state.xcr0 = value;
  return {};
}

}  // namespace alibi::vcpu
