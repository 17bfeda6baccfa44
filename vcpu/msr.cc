// SPDX-License-Identifier: Apache-2.0
#include "vcpu/msr.h"

#include <cstddef>

#include "vcpu/descriptors.h"
#include "vcpu/speculation.h"

namespace alibi::vcpu {
namespace {

enum class Rule : u8 {
  kMasked,     // bits outside `mask` are reserved: #GP
  kCanonical,  // an address: non-canonical is #GP
  kReadOnly,   // constant, writes are #GP
  kCommand,    // bits outside `mask` are reserved, the others do nothing; reads are #GP
  kIgnore,     // reads as `mask`, writes are accepted and dropped
  kTypes,      // eight memory types (PAT, fixed-range MTRRs); `mask` has a bit for each legal one
  kMtrrBase,   // a memory type and the address of a variable range
  kApic,       // the local APIC's
  kSpecial,    // see ReadSpecial and WriteSpecial
};
// What a CPU must show in CPUID to have the register.
enum class Need : u8 {
  kNothing,
  kIntel,
  kAmd,
  kTscAdjust,
  kMtrr,
  kTscDeadline,
  kX2apic,
  kLongMode
};

inline constexpr u16 kNowhere = 0xffff;

struct MsrRow {
  u32 first, count;
  const char* name;
  Need need;
  Rule rule;
  u16 offset;  // of the first one's u64 in VcpuState; kNowhere: `mask` is the constant value
  u64 mask;
};

// Places in stored_msr.
enum Stored : u16 {
  kStoredTscAdjust,
  kStoredMcgStatus,
  kStoredMtrrVariable,                        // base, mask, base, mask, ...
  kStoredMtrrFix = kStoredMtrrVariable + 16,  // 64K, 16K twice, 4K eight times
  kStoredSpecCtrl = kStoredMtrrFix + 11,
  kStoredEnd,
};
static_assert(kStoredEnd <= kStoredMsrs);

#define ALIBI_AT(member) static_cast<u16>(offsetof(VcpuState, member))
constexpr u16 kFsBaseAt = ALIBI_AT(segment) + kFs * sizeof(Segment);
constexpr u16 kGsBaseAt = ALIBI_AT(segment) + kGs * sizeof(Segment);
static_assert(offsetof(Segment, base) == 0);
constexpr u16 StoredAt(unsigned place) {
  return static_cast<u16>(ALIBI_AT(stored_msr) + place * sizeof(u64));
}

constexpr u64 kAll = ~u64{0};
constexpr u64 kLow32 = 0xffffffff;
constexpr u64 kPageAddress = ((u64{1} << kPhysicalAddressBits) - 1) & ~kPageMask;

// Memory types, as bits (SDM vol. 3, tables 12-2 and 12-10): PAT has UC- (7), MTRRs do not.
constexpr u64 kPatTypes = 0xf3, kMtrrTypes = 0x73;
constexpr unsigned kVariableMtrrs = 8;
constexpr u64 kMtrrCapValue = kVariableMtrrs | 1u << 8 /*fixed ranges*/ | 1u << 10 /*WC*/;
constexpr u64 kMtrrMaskValid = 1u << 11;

// Turbo, EIST, MONITOR, limits and XD disable may be written and mean nothing here; performance
// monitoring, BTS and PEBS (7, 11, 12) are read-only: writes do not change them.
constexpr u64 kMiscEnableWritable = 0x4'00c5'0809, kMiscEnableReadOnly = 0x1880;

// Sorted by index. What is not here is #GP(0), which is what a guest probing for a feature expects.
constexpr MsrRow kMsrs[] = {
    {0x0, 1, "P5_MC_ADDR", Need::kNothing, Rule::kIgnore, kNowhere, 0},
    {0x1, 1, "P5_MC_TYPE", Need::kNothing, Rule::kIgnore, kNowhere, 0},
    {kMsrTsc, 1, "TSC", Need::kNothing, Rule::kSpecial, kNowhere, kAll},
    {0x17, 1, "PLATFORM_ID", Need::kIntel, Rule::kReadOnly, kNowhere, 0},
    {kMsrApicBase, 1, "APIC_BASE", Need::kNothing, Rule::kSpecial, ALIBI_AT(apic_base),
     kPageAddress | 0xd00},
    // Locked, with everything it could enable off.
    {0x3a, 1, "FEATURE_CONTROL", Need::kIntel, Rule::kReadOnly, kNowhere, 1},
    {kMsrTscAdjust, 1, "TSC_ADJUST", Need::kTscAdjust, Rule::kSpecial, StoredAt(kStoredTscAdjust),
     kAll},
    // IBRS, STIBP and BHI_DIS_S: kept, without effect. There is no SSBD.
    {kMsrSpecCtrl, 1, "SPEC_CTRL", Need::kIntel, Rule::kMasked, StoredAt(kStoredSpecCtrl), 0x403},
    // IBPB. FLUSH_CMD has a CPUID bit of its own, which is not shown.
    {kMsrPredCmd, 1, "PRED_CMD", Need::kIntel, Rule::kCommand, kNowhere, 1},
    {0x79, 1, "BIOS_UPDT_TRIG", Need::kIntel, Rule::kIgnore, kNowhere, 0},
    {0x8b, 1, "BIOS_SIGN_ID", Need::kNothing, Rule::kIgnore, kNowhere, 0},
    // No ratios and nothing that could be programmed: the TSC's frequency is CPUID's to tell.
    {0xce, 1, "PLATFORM_INFO", Need::kIntel, Rule::kReadOnly, kNowhere, 0},
    {kMsrMtrrCap, 1, "MTRRCAP", Need::kMtrr, Rule::kReadOnly, kNowhere, kMtrrCapValue},
    {kMsrArchCapabilities, 1, "ARCH_CAPABILITIES", Need::kIntel, Rule::kReadOnly, kNowhere,
     ClaimedBits(Vendor::kIntel, SpeculationClaim::Place::kArchCapabilities)},
    {kMsrSysenterCs, 1, "SYSENTER_CS", Need::kNothing, Rule::kMasked, ALIBI_AT(sysenter_cs),
     kLow32},
    {kMsrSysenterEsp, 1, "SYSENTER_ESP", Need::kNothing, Rule::kCanonical, ALIBI_AT(sysenter_esp),
     kAll},
    {kMsrSysenterEip, 1, "SYSENTER_EIP", Need::kNothing, Rule::kCanonical, ALIBI_AT(sysenter_eip),
     kAll},
    // No banks.
    {0x179, 1, "MCG_CAP", Need::kNothing, Rule::kReadOnly, kNowhere, 0},
    {0x17a, 1, "MCG_STATUS", Need::kNothing, Rule::kMasked, StoredAt(kStoredMcgStatus), 7},
    // Shown on AMD, too: system software of hypervisor guests reads it without asking whose it is.
    {kMsrMiscEnable, 1, "MISC_ENABLE", Need::kNothing, Rule::kSpecial, ALIBI_AT(misc_enable),
     kMiscEnableWritable},
    // No branch records, no branch trace, no single-stepping of branches.
    {0x1d9, 1, "DEBUGCTL", Need::kNothing, Rule::kMasked, ALIBI_AT(debugctl), kDebugCtlBtf},
    {kMsrMtrrBase0, 2 * kVariableMtrrs, "MTRR_PHYS", Need::kMtrr, Rule::kMtrrBase,
     StoredAt(kStoredMtrrVariable), kPageAddress | 0xff},
    {kMsrMtrrFix64K, 1, "MTRR_FIX64K_00000", Need::kMtrr, Rule::kTypes, StoredAt(kStoredMtrrFix),
     kMtrrTypes},
    {0x258, 2, "MTRR_FIX16K_80000", Need::kMtrr, Rule::kTypes, StoredAt(kStoredMtrrFix + 1),
     kMtrrTypes},
    {0x268, 8, "MTRR_FIX4K_C0000", Need::kMtrr, Rule::kTypes, StoredAt(kStoredMtrrFix + 3),
     kMtrrTypes},
    {kMsrPat, 1, "PAT", Need::kNothing, Rule::kTypes, ALIBI_AT(pat), kPatTypes},
    {kMsrMtrrDefType, 1, "MTRR_DEF_TYPE", Need::kMtrr, Rule::kSpecial, ALIBI_AT(mtrr_def_type),
     0xcff},
    {kMsrTscDeadline, 1, "TSC_DEADLINE", Need::kTscDeadline, Rule::kApic, kNowhere, kAll},
    {kMsrX2apicFirst, kMsrX2apicCount, "X2APIC", Need::kX2apic, Rule::kApic, kNowhere, 0},
    {kMsrEfer, 1, "EFER", Need::kNothing, Rule::kSpecial, ALIBI_AT(efer),
     kEferSce | kEferLme | kEferNxe | kEferAibrse},
    {kMsrStar, 1, "STAR", Need::kLongMode, Rule::kMasked, ALIBI_AT(star), kAll},
    {kMsrLstar, 1, "LSTAR", Need::kLongMode, Rule::kCanonical, ALIBI_AT(lstar), kAll},
    {kMsrCstar, 1, "CSTAR", Need::kLongMode, Rule::kCanonical, ALIBI_AT(cstar), kAll},
    {kMsrSfmask, 1, "SFMASK", Need::kLongMode, Rule::kMasked, ALIBI_AT(sfmask), kLow32},
    {kMsrFsBase, 1, "FS_BASE", Need::kLongMode, Rule::kCanonical, kFsBaseAt, kAll},
    {kMsrGsBase, 1, "GS_BASE", Need::kLongMode, Rule::kCanonical, kGsBaseAt, kAll},
    {kMsrKernelGsBase, 1, "KERNEL_GS_BASE", Need::kLongMode, Rule::kCanonical,
     ALIBI_AT(kernel_gs_base), kAll},
    {kMsrTscAux, 1, "TSC_AUX", Need::kNothing, Rule::kMasked, ALIBI_AT(tsc_aux), kLow32},
    // Every AMD CPU has these counters, without a CPUID bit (APM vol. 2, 13.2). Nothing counts
    // here, and since they do not keep what is written, Linux finds that out and counts by
    // software.
    {0xc0010000, 4, "PERF_CTL", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010004, 4, "PERF_CTR", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010010, 1, "SYSCFG", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    // Bit 24: the TSC counts at the P0 frequency, whatever the power state.
    {0xc0010015, 1, "HWCR", Need::kAmd, Rule::kIgnore, kNowhere, 1u << 24},
    {0xc001001f, 1, "NB_CFG", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010055, 1, "INT_PENDING", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010112, 1, "TSEG_BASE", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010113, 1, "TSEG_MASK", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    // SVM disabled and locked.
    {0xc0010114, 1, "VM_CR", Need::kAmd, Rule::kIgnore, kNowhere, 0x18},
    // Linux reads it before it can handle a #GP; zero: no memory encryption.
    {0xc0010131, 1, "SEV_STATUS", Need::kAmd, Rule::kReadOnly, kNowhere, 0},
    {0xc0011022, 1, "DC_CFG", Need::kAmd, Rule::kIgnore, kNowhere, 0},
    // Bit 1: LFENCE is serializing.
    {0xc0011029, 1, "DE_CFG", Need::kAmd, Rule::kIgnore, kNowhere, 2},
    {0xc001102a, 1, "BU_CFG2", Need::kAmd, Rule::kIgnore, kNowhere, 0},
};
#undef ALIBI_AT
constexpr unsigned kMsrRows = sizeof(kMsrs) / sizeof(kMsrs[0]);

// By Rule: what writes do, as `alibi cpu` tells it.
constexpr const char* kRuleTexts[] = {
    "bits of the mask can be written, others fault",
    "a canonical address",
    "read-only",
    "write-only: bits of the mask do nothing, others fault",
    "writes are ignored",
    "eight memory types; the mask has a bit for each",
    "bits of the mask can be written, others fault",
    "the local APIC's",
    "bits of the mask can be written, others fault",
};

const MsrRow* Find(u32 index) {
  const MsrRow* low = kMsrs;
  const MsrRow* high = kMsrs + kMsrRows;
  while (low < high) {
    const MsrRow* middle = low + (high - low) / 2;
    if (index - middle->first < middle->count) return middle;
    if (middle->first < index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return nullptr;
}

constexpr bool Sorted() {
  for (unsigned i = 1; i < kMsrRows; ++i) {
    if (kMsrs[i - 1].first + kMsrs[i - 1].count > kMsrs[i].first) return false;
  }
  return true;
}
static_assert(Sorted(), "Find is a binary search");

bool Has(const CpuidPolicy& policy, const MsrRow& row) {
  switch (row.need) {
    case Need::kNothing:
      return true;
    case Need::kIntel:
      return policy.vendor() == Vendor::kIntel;
    case Need::kAmd:
      return policy.vendor() == Vendor::kAmd;
    case Need::kTscAdjust:
      return policy.Has(Feature::kTscAdjust);
    case Need::kMtrr:
      return policy.Has(Feature::kMtrr);
    case Need::kTscDeadline:
      return policy.Has(Feature::kTscDeadline);
    case Need::kX2apic:
      return policy.Has(Feature::kX2apic);
    case Need::kLongMode:
      return policy.efer_valid() & kEferLme;
  }
  return false;
}

const MsrRow* FindFor(const CpuidPolicy& policy, u32 index) {
  const MsrRow* row = Find(index);
  return row != nullptr && Has(policy, *row) ? row : nullptr;
}

u64* Field(VcpuState& state, u16 offset) {
  return reinterpret_cast<u64*>(reinterpret_cast<u8*>(&state) + offset);
}
const u64* Field(const VcpuState& state, u16 offset) {
  return reinterpret_cast<const u64*>(reinterpret_cast<const u8*>(&state) + offset);
}

Outcome WriteEfer(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy, u64 value) {
  if (value & ~(policy.efer_valid() | kEferLma)) return GeneralProtection();
  const u64 changed = state.efer ^ value;
  if ((changed & kEferLme) && state.Paging()) return GeneralProtection();
  state.efer = (value & ~kEferLma) | (state.efer & kEferLma);  // LMA follows CR0.PG alone
  if (changed & kEferNxe) memory.PagingModeChanged();
  return {};
}

bool IsType(u64 type, u64 legal) { return type < 8 && (legal >> type & 1); }

bool AreTypes(u64 value, u64 legal) {
  for (unsigned i = 0; i < 64; i += 8) {
    if (!IsType(value >> i & 0xff, legal)) return false;
  }
  return true;
}

// SDM vol. 3, 11.12.5.1: x2APIC without the global enable does not exist; x2APIC is entered from
// xAPIC mode only and left by disabling only.
Outcome WriteApicBase(VcpuState& state, const CpuidPolicy& policy, Platform& platform, u64 value) {
  constexpr u64 kBsp = 1u << 8, kX2apic = 1u << 10, kEnable = 1u << 11;
  const u64 modes = kEnable | (policy.Has(Feature::kX2apic) ? kX2apic : 0);
  if (value & ~(modes | kBsp | kPageAddress)) return GeneralProtection();
  const u64 mode = value & modes, old_mode = state.apic_base & modes;
  if (mode == kX2apic) return GeneralProtection();
  if (old_mode == 0 && mode == (kEnable | kX2apic)) return GeneralProtection();
  if (old_mode == (kEnable | kX2apic) && mode == kEnable) return GeneralProtection();
  state.apic_base = (value & ~kBsp) | (state.apic_base & kBsp);
  platform.ApicBaseWritten();
  return {};
}

Outcome WriteMtrr(u64* field, u32 index, u64 value) {
  if (index & 1) {  // a mask
    if (value & ~(kPageAddress | kMtrrMaskValid)) return GeneralProtection();
  } else if ((value & ~(kPageAddress | 0xff)) || !IsType(value & 0xff, kMtrrTypes)) {
    return GeneralProtection();
  }
  *field = value;
  return {};
}

u64 HostTsc() {
  u32 low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return low | (u64{high} << 32);
}

Outcome CheckTscAllowed(const VcpuState& state) {
  return state.ProtectedMode() && (state.cr4 & kCr4Tsd) && state.cpl != 0 ? GeneralProtection()
                                                                          : Outcome();
}

void SetEdxEax(VcpuState& state, u64 value) {
  state.gpr[kRax] = static_cast<u32>(value);
  state.gpr[kRdx] = value >> 32;
}

// The TSC moves, and what TSC_ADJUST says of it with it (SDM vol. 3, 18.17.3).
void MoveTsc(VcpuState& state, Platform& platform, u64 distance) {
  state.tsc_offset = static_cast<i64>(static_cast<u64>(state.tsc_offset) + distance);
  state.stored_msr[kStoredTscAdjust] += distance;
  platform.TscWritten();
}

Outcome WriteSpecial(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                     Platform& platform, const MsrRow& row, u64 value) {
  switch (row.first) {
    case kMsrTsc:
      MoveTsc(state, platform, value - ReadTsc(state, platform));
      return {};
    case kMsrTscAdjust:
      MoveTsc(state, platform, value - state.stored_msr[kStoredTscAdjust]);
      return {};
    case kMsrApicBase:
      return WriteApicBase(state, policy, platform, value);
    case kMsrMiscEnable:
      if (value & ~(kMiscEnableWritable | kMiscEnableReadOnly)) return GeneralProtection();
      state.misc_enable = (value & kMiscEnableWritable) | (state.misc_enable & kMiscEnableReadOnly);
      return {};
    case kMsrMtrrDefType:
      if ((value & ~row.mask) || !IsType(value & 0xff, kMtrrTypes)) return GeneralProtection();
      state.mtrr_def_type = value;
      return {};
    default:
      return WriteEfer(state, memory, policy, value);
  }
}

}  // namespace

Outcome ReadMsr(const VcpuState& state, const CpuidPolicy& policy, Platform& platform, u32 index,
                u64* value) {
  const MsrRow* row = FindFor(policy, index);
  if (row == nullptr) return GeneralProtection();
  if (row->rule == Rule::kCommand) return GeneralProtection();
  if (row->rule == Rule::kApic) {
    return platform.ReadApicMsr(index, value) ? Outcome() : GeneralProtection();
  }
  if (row->offset != kNowhere) {
    *value = Field(state, row->offset)[index - row->first];
  } else if (row->first == kMsrTsc) {
    *value = ReadTsc(state, platform);
  } else {
    *value = row->rule == Rule::kMasked ? 0 : row->mask;
  }
  return {};
}

Outcome WriteMsr(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                 Platform& platform, u32 index, u64 value) {
  const MsrRow* row = FindFor(policy, index);
  if (row == nullptr) return GeneralProtection();
  u64* field = row->offset == kNowhere ? nullptr : Field(state, row->offset) + (index - row->first);
  switch (row->rule) {
    case Rule::kMasked:
    case Rule::kCommand:
      if (value & ~row->mask) return GeneralProtection();
      if (field != nullptr) *field = value;
      return {};
    case Rule::kCanonical:
      if (!IsCanonical(value)) return GeneralProtection();
      *field = value;
      return {};
    case Rule::kReadOnly:
      return GeneralProtection();
    case Rule::kIgnore:
      return {};
    case Rule::kTypes:
      if (!AreTypes(value, row->mask)) return GeneralProtection();
      *field = value;
      return {};
    case Rule::kMtrrBase:
      return WriteMtrr(field, index, value);
    case Rule::kApic:
      return platform.WriteApicMsr(index, value) ? Outcome() : GeneralProtection();
    case Rule::kSpecial:
      break;
  }
  return WriteSpecial(state, memory, policy, platform, *row, value);
}

void ResetStoredMsrs(VcpuState& state) {
  for (u64& value : state.stored_msr) value = 0;
}

void SetMtrrsAsBiosLeavesThem(VcpuState& state) {
  constexpr u64 kWriteBack = 0x0606060606060606, kWriteProtected = 0x0505050505050505;
  state.mtrr_def_type = 0xc06;
  u64* fixed = state.stored_msr + kStoredMtrrFix;
  fixed[0] = fixed[1] = kWriteBack;
  fixed[2] = 0;  // the display's memory
  for (unsigned i = 3; i < 11; ++i) fixed[i] = kWriteProtected;
}

Outcome ExecuteRdmsr(VcpuState& state, const CpuidPolicy& policy, Platform& platform) {
  u64 value;
  ALIBI_RETURN_IF_FAULT(
      ReadMsr(state, policy, platform, static_cast<u32>(state.gpr[kRcx]), &value));
  SetEdxEax(state, value);
  return {};
}

Outcome ExecuteWrmsr(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                     Platform& platform) {
  u64 value = static_cast<u32>(state.gpr[kRax]) | (state.gpr[kRdx] << 32);
  return WriteMsr(state, memory, policy, platform, static_cast<u32>(state.gpr[kRcx]), value);
}

u64 ReadTsc(const VcpuState& state, Platform& platform) {
  const u64 host_tsc = HostTsc();
  if (state.tsc_watched) platform.TscReading(host_tsc);
  return host_tsc + static_cast<u64>(state.tsc_offset);
}

void UpdateRdtsc(VcpuState& state) {
  state.slow_rdtsc[0] = state.tsc_watched;
  state.slow_rdtsc[1] = state.tsc_watched || (state.cr4 & kCr4Tsd);
}

Outcome ExecuteRdtsc(VcpuState& state, Platform& platform) {
  ALIBI_RETURN_IF_FAULT(CheckTscAllowed(state));
  SetEdxEax(state, ReadTsc(state, platform));
  return {};
}

Outcome ExecuteRdtscp(VcpuState& state, Platform& platform) {
  ALIBI_RETURN_IF_FAULT(CheckTscAllowed(state));
  SetEdxEax(state, ReadTsc(state, platform));
  state.gpr[kRcx] = static_cast<u32>(state.tsc_aux);
  return {};
}

const char* MsrName(u32 index) {
  const MsrRow* row = Find(index);
  return row == nullptr ? "?" : row->name;
}

bool NextMsr(const CpuidPolicy& policy, unsigned* position, MsrDescription* row) {
  while (*position < kMsrRows) {
    const MsrRow& next = kMsrs[(*position)++];
    if (!Has(policy, next)) continue;
    *row = {next.first, next.count, next.name, kRuleTexts[static_cast<unsigned>(next.rule)],
            next.mask};
    return true;
  }
  return false;
}

}  // namespace alibi::vcpu
