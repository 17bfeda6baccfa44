#include "vcpu/msr.h"

#include <cstddef>

#include "vcpu/descriptors.h"

namespace alibi::vcpu {
namespace {

enum class Rule : u8 {
  kMasked,     // bits outside `mask` are reserved: #GP
  kCanonical,  // an address: non-canonical is #GP
  kReadOnly,   // writes are #GP
  kIgnore,     // reads as `mask`, writes are accepted and dropped
  kSpecial,    // see ReadSpecial and WriteSpecial
};
enum class Scope : u8 { kBoth, kIntel, kAmd };

inline constexpr u16 kNowhere = 0xffff;

struct MsrRow {
  u32 index;
  const char* name;
  Scope scope;
  Rule rule;
  u16 offset;  // of a u64 in VcpuState; kNowhere: `mask` is the constant value
  u64 mask;
};

#define ALIBI_AT(member) static_cast<u16>(offsetof(VcpuState, member))
constexpr u16 kFsBaseAt = ALIBI_AT(segment) + kFs * sizeof(Segment);
constexpr u16 kGsBaseAt = ALIBI_AT(segment) + kGs * sizeof(Segment);
static_assert(offsetof(Segment, base) == 0);

constexpr u64 kAll = ~u64{0};
constexpr u64 kLow32 = 0xffffffff;

// Sorted by index. What is not here is #GP(0), which is what a guest probing for a feature expects.
constexpr MsrRow kMsrs[] = {
    {kMsrTsc, "TSC", Scope::kBoth, Rule::kSpecial, kNowhere, 0},
    {0x17, "PLATFORM_ID", Scope::kIntel, Rule::kReadOnly, kNowhere, 0},
    {kMsrApicBase, "APIC_BASE", Scope::kBoth, Rule::kSpecial, kNowhere, 0},
    {0x79, "BIOS_UPDT_TRIG", Scope::kIntel, Rule::kIgnore, kNowhere, 0},
    {0x8b, "BIOS_SIGN_ID", Scope::kBoth, Rule::kIgnore, kNowhere, 0},
    {kMsrMtrrCap, "MTRRCAP", Scope::kBoth, Rule::kReadOnly, kNowhere, 0x400},
    {kMsrSysenterCs, "SYSENTER_CS", Scope::kBoth, Rule::kMasked, ALIBI_AT(sysenter_cs), kLow32},
    {kMsrSysenterEsp, "SYSENTER_ESP", Scope::kBoth, Rule::kCanonical, ALIBI_AT(sysenter_esp), 0},
    {kMsrSysenterEip, "SYSENTER_EIP", Scope::kBoth, Rule::kCanonical, ALIBI_AT(sysenter_eip), 0},
    {0x179, "MCG_CAP", Scope::kBoth, Rule::kReadOnly, kNowhere, 0},
    {0x17a, "MCG_STATUS", Scope::kBoth, Rule::kIgnore, kNowhere, 0},
    // Fast strings on; no branch trace store, no PEBS, no enhanced SpeedStep to be written.
    {kMsrMiscEnable, "MISC_ENABLE", Scope::kIntel, Rule::kMasked, ALIBI_AT(misc_enable), 0x401859},
    {0x1d9, "DEBUGCTL", Scope::kBoth, Rule::kMasked, kNowhere, 0},
    {kMsrPat, "PAT", Scope::kBoth, Rule::kSpecial, kNowhere, 0},
    {kMsrMtrrDefType, "MTRR_DEF_TYPE", Scope::kBoth, Rule::kMasked, ALIBI_AT(mtrr_def_type), 0xcff},
    {kMsrEfer, "EFER", Scope::kBoth, Rule::kSpecial, kNowhere, 0},
    {kMsrStar, "STAR", Scope::kBoth, Rule::kMasked, ALIBI_AT(star), kAll},
    {kMsrLstar, "LSTAR", Scope::kBoth, Rule::kCanonical, ALIBI_AT(lstar), 0},
    {kMsrCstar, "CSTAR", Scope::kBoth, Rule::kCanonical, ALIBI_AT(cstar), 0},
    {kMsrSfmask, "SFMASK", Scope::kBoth, Rule::kMasked, ALIBI_AT(sfmask), kLow32},
    {kMsrFsBase, "FS_BASE", Scope::kBoth, Rule::kCanonical, kFsBaseAt, 0},
    {kMsrGsBase, "GS_BASE", Scope::kBoth, Rule::kCanonical, kGsBaseAt, 0},
    {kMsrKernelGsBase, "KERNEL_GS_BASE", Scope::kBoth, Rule::kCanonical, ALIBI_AT(kernel_gs_base),
     0},
    {kMsrTscAux, "TSC_AUX", Scope::kBoth, Rule::kMasked, ALIBI_AT(tsc_aux), kLow32},
    {0xc0010010, "SYSCFG", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
    // Bit 24: the TSC counts at the P0 frequency, whatever the power state.
    {0xc0010015, "HWCR", Scope::kAmd, Rule::kIgnore, kNowhere, 1u << 24},
    {0xc001001f, "NB_CFG", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010055, "INT_PENDING", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010112, "TSEG_BASE", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
    {0xc0010113, "TSEG_MASK", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
    // SVM disabled and locked.
    {0xc0010114, "VM_CR", Scope::kAmd, Rule::kIgnore, kNowhere, 0x18},
    // Linux reads it before it can handle a #GP; zero: no memory encryption.
    {0xc0010131, "SEV_STATUS", Scope::kAmd, Rule::kReadOnly, kNowhere, 0},
    {0xc0011022, "DC_CFG", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
    // Bit 1: LFENCE is serializing.
    {0xc0011029, "DE_CFG", Scope::kAmd, Rule::kIgnore, kNowhere, 2},
    {0xc001102a, "BU_CFG2", Scope::kAmd, Rule::kIgnore, kNowhere, 0},
};
#undef ALIBI_AT

const MsrRow* Find(u32 index) {
  const MsrRow* low = kMsrs;
  const MsrRow* high = kMsrs + sizeof(kMsrs) / sizeof(kMsrs[0]);
  while (low < high) {
    const MsrRow* middle = low + (high - low) / 2;
    if (middle->index == index) return middle;
    if (middle->index < index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return nullptr;
}

constexpr bool Sorted() {
  for (std::size_t i = 1; i < sizeof(kMsrs) / sizeof(kMsrs[0]); ++i) {
    if (kMsrs[i - 1].index >= kMsrs[i].index) return false;
  }
  return true;
}
static_assert(Sorted(), "Find is a binary search");

const MsrRow* FindFor(const CpuidPolicy& policy, u32 index) {
  const MsrRow* row = Find(index);
  if (row == nullptr || row->scope == Scope::kBoth) return row;
  bool intel = policy.vendor() == Vendor::kIntel;
  return (row->scope == Scope::kIntel) == intel ? row : nullptr;
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

Outcome WritePat(VcpuState& state, u64 value) {
  // Types 2 and 3 do not exist (SDM vol. 3, table 11-10).
  constexpr u32 kTypes = 0xf3;
  for (int i = 0; i < 64; i += 8) {
    u64 type = (value >> i) & 0xff;
    if (type > 7 || !((kTypes >> type) & 1)) return GeneralProtection();
  }
  state.pat = value;
  return {};
}

Outcome WriteApicBase(VcpuState& state, Platform& platform, u64 value) {
  constexpr u64 kEnable = 1u << 11, kBsp = 1u << 8;
  constexpr u64 kAddress = ((u64{1} << kPhysicalAddressBits) - 1) & ~kPageMask;
  if (value & ~(kEnable | kBsp | kAddress)) return GeneralProtection();
  state.apic_base = (value & ~kBsp) | (state.apic_base & kBsp);
  platform.ApicBaseWritten();
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

}  // namespace

Outcome ReadMsr(const VcpuState& state, const CpuidPolicy& policy, u32 index, u64* value) {
  const MsrRow* row = FindFor(policy, index);
  if (row == nullptr) return GeneralProtection();
  if (row->rule != Rule::kSpecial) {
    *value = row->offset != kNowhere      ? *Field(state, row->offset)
             : row->rule == Rule::kMasked ? 0
                                          : row->mask;
    return {};
  }
  switch (index) {
    case kMsrTsc:
      *value = ReadTsc(state);
      return {};
    case kMsrApicBase:
      *value = state.apic_base;
      return {};
    case kMsrPat:
      *value = state.pat;
      return {};
    default:
      *value = state.efer;
      return {};
  }
}

Outcome WriteMsr(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                 Platform& platform, u32 index, u64 value) {
  const MsrRow* row = FindFor(policy, index);
  if (row == nullptr) return GeneralProtection();
  switch (row->rule) {
    case Rule::kMasked:
      if (value & ~row->mask) return GeneralProtection();
      if (row->offset != kNowhere) *Field(state, row->offset) = value;
      return {};
    case Rule::kCanonical:
      if (!IsCanonical(value)) return GeneralProtection();
      *Field(state, row->offset) = value;
      return {};
    case Rule::kReadOnly:
      return GeneralProtection();
    case Rule::kIgnore:
      return {};
    case Rule::kSpecial:
      break;
  }
  switch (index) {
    case kMsrTsc:
      state.tsc_offset = static_cast<i64>(value - HostTsc());
      return {};
    case kMsrApicBase:
      return WriteApicBase(state, platform, value);
    case kMsrPat:
      return WritePat(state, value);
    default:
      return WriteEfer(state, memory, policy, value);
  }
}

Outcome ExecuteRdmsr(VcpuState& state, const CpuidPolicy& policy) {
  if (state.cpl != 0) return GeneralProtection();
  u64 value;
  ALIBI_RETURN_IF_FAULT(ReadMsr(state, policy, static_cast<u32>(state.gpr[kRcx]), &value));
  SetEdxEax(state, value);
  return {};
}

Outcome ExecuteWrmsr(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                     Platform& platform) {
  if (state.cpl != 0) return GeneralProtection();
  u64 value = static_cast<u32>(state.gpr[kRax]) | (state.gpr[kRdx] << 32);
  return WriteMsr(state, memory, policy, platform, static_cast<u32>(state.gpr[kRcx]), value);
}

u64 ReadTsc(const VcpuState& state) { return HostTsc() + static_cast<u64>(state.tsc_offset); }

Outcome ExecuteRdtsc(VcpuState& state) {
  ALIBI_RETURN_IF_FAULT(CheckTscAllowed(state));
  SetEdxEax(state, ReadTsc(state));
  return {};
}

Outcome ExecuteRdtscp(VcpuState& state) {
  ALIBI_RETURN_IF_FAULT(CheckTscAllowed(state));
  SetEdxEax(state, ReadTsc(state));
  state.gpr[kRcx] = static_cast<u32>(state.tsc_aux);
  return {};
}

const char* MsrName(u32 index) {
  const MsrRow* row = Find(index);
  return row == nullptr ? "?" : row->name;
}

}  // namespace alibi::vcpu
