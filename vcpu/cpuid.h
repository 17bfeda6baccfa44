// SPDX-License-Identifier: Apache-2.0
// The CPUID policy: what the guest is told it runs on, made from the host's CPUID by one table.
//
// Instructions that run unchanged on the host are passed through when the host has them; system
// features are shown exactly when we implement them, whatever the host has.
#ifndef ALIBI_VCPU_CPUID_H_
#define ALIBI_VCPU_CPUID_H_

#include <functional>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

enum class Vendor : u8 { kIntel, kAmd };  // AMD-like rules also for Hygon; Intel's for the rest

struct CpuidRegisters {
  u32 eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr bool operator==(const CpuidRegisters&) const = default;
};

// The instruction itself, on the host: where that is a virtual machine, an exit.
CpuidRegisters HostCpuid(u32 leaf, u32 subleaf);
Vendor VendorOf(const CpuidRegisters& leaf0);
u64 HostXcr0();  // what the host's system has enabled

inline constexpr unsigned kPhysicalAddressBits = 40;
inline constexpr unsigned kLinearAddressBits = 48;

// XCR0 bits we can pass through.
inline constexpr u64 kXcr0X87 = 1u << 0, kXcr0Sse = 1u << 1, kXcr0Avx = 1u << 2,
                     kXcr0Avx512 = 7u << 5;

// The highest level of cache is shown with at most this size, whatever the host shares among its
// cores: programs size their buffers by it.
inline constexpr u32 kMaxCacheBytes = u32{16} << 20;

// What CPUID shows and registers exist by.
enum class Feature : u8 { kTscAdjust, kMtrr, kTscDeadline, kX2apic };

class CpuidPolicy {
 public:
  // How the raw leaves are read; tests give their own.
  using RawCpuid = CpuidRegisters (*)(u32 leaf, u32 subleaf);

  // The policy on this host: one for the process, because it takes tens of CPUID exits to make.
  static const CpuidPolicy& ForHost();
  // xcr0: what the system has enabled. Instructions that `limit` has not are not shown.
  static CpuidPolicy Make(RawCpuid raw, u64 xcr0, RawCpuid limit = nullptr);

  // Instructions of a model that the host has not: bits of one leaf.
  struct Missing {
    u32 leaf = 0, subleaf = 0;
    CpuidRegisters bits;
  };
  // A CPU by its name: "host", or one of cpu_models.h. Its instructions that this host lacks are
  // not shown, and added to `missing` if that is given. False: no such model.
  static bool ForModel(std::string_view model, CpuidPolicy* policy,
                       std::vector<Missing>* missing = nullptr);
  static const std::vector<std::string_view>& ModelNames();
  // For engines that run the guest's instructions elsewhere: shows no instruction or system feature
  // that `supported` has not, and allows no control bit of one. (The local APIC's are ours.)
  using Supported = std::function<CpuidRegisters(u32 leaf, u32 subleaf)>;
  void LimitTo(const Supported& supported);
  // For machines whose embedder has no local APIC of ours: nothing shown that needs its MSRs.
  void HideApicMsrs();

  // CPUID as the guest sees it, dynamic bits (OSXSAVE, APIC, XSAVE size, which CPU of how many)
  // taken from state.
  CpuidRegisters Query(const VcpuState& state, u32 leaf, u32 subleaf) const;

  Vendor vendor() const { return vendor_; }
  u64 cr4_valid() const { return cr4_valid_; }
  u64 efer_valid() const { return efer_valid_; }
  u64 xcr0_valid() const { return xcr0_valid_; }
  bool has_xgetbv1() const { return has_xgetbv1_; }
  bool Has(Feature feature) const { return features_ >> static_cast<unsigned>(feature) & 1; }
  // CPUID.1:EAX, which RDX holds after reset.
  u32 signature() const { return signature_; }

  // Without the dynamic bits.
  struct Entry {
    u32 leaf;
    u32 subleaf;
    bool any_subleaf;
    CpuidRegisters registers;
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  const Entry* Find(u32 leaf, u32 subleaf) const;
  CpuidRegisters* FindRegisters(u32 leaf, u32 subleaf);
  void ShowTopology(const VcpuState& state, u32 leaf, u32 subleaf, CpuidRegisters* r) const;
  void BoundCaches();
  void HideStateless();
  void SizeXsave();
  void NoteFeatures();

  std::vector<Entry> entries_;
  u32 max_basic_ = 0, max_extended_ = 0;
  Vendor vendor_ = Vendor::kIntel;
  u64 cr4_valid_ = 0, efer_valid_ = 0, xcr0_valid_ = 0;
  u32 signature_ = 0;
  u32 features_ = 0;
  bool has_xgetbv1_ = false;
};

// The CPUID instruction: EAX, ECX -> EAX, EBX, ECX, EDX (upper halves cleared).
void ExecuteCpuid(VcpuState& state, const CpuidPolicy& policy);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_CPUID_H_
