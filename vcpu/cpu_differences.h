// SPDX-License-Identifier: Apache-2.0
// The differences between the vendors' CPUs, in one table (cpu_differences.inc;
// docs/cpu_differences.md shows it), and whose way to follow.
#ifndef ALIBI_VCPU_CPU_DIFFERENCES_H_
#define ALIBI_VCPU_CPU_DIFFERENCES_H_

#include <span>

#include "base/types.h"
#include "vcpu/cpuid.h"

namespace alibi::vcpu {

// Of user-level instructions: as the host's CPU does it.
enum class HostDifference : u8 {
#define ALIBI_HOST_DIFFERENCE(name, what, intel, amd, source) k##name,
#include "vcpu/cpu_differences.inc"
  kCount
};

// Of the VMM's own work: as the guest's CPUID says.
enum class GuestDifference : u8 {
#define ALIBI_GUEST_DIFFERENCE(name, what, intel, amd, source) k##name,
#include "vcpu/cpu_differences.inc"
  kCount
};

// The CPU that this process runs on.
struct CpuIdentity {
  Vendor vendor = Vendor::kIntel;
  u16 family = 0, model = 0;  // with their extensions
  u8 stepping = 0;
  char brand[49] = {};  // CPUID's name of it, zero-terminated

  // Read once, before main: CPUID may cost a VM exit. For code that runs before main, too, if its
  // file was linked behind this one.
  static const CpuIdentity kHost;
};

// CPUID leaf 1's EAX.
struct CpuSignature {
  u16 family, model;
  u8 stepping;
};
constexpr CpuSignature DecodeSignature(u32 eax) {
  const u32 family = eax >> 8 & 15, model = eax >> 4 & 15;
  const bool extended = family == 15 || family == 6;
  return {static_cast<u16>(family == 15 ? family + (eax >> 20 & 0xff) : family),
          static_cast<u16>(extended ? model | (eax >> 16 & 15) << 4 : model),
          static_cast<u8>(eax & 15)};
}

// A family of the vendor's CPUs that goes the other vendor's way.
struct HostException {
  HostDifference difference;
  Vendor vendor;
  u16 family;
  const char* cpus;  // as users know them
};
inline constexpr HostException kHostExceptions[] = {
#define ALIBI_HOST_EXCEPTION(name, vendor, family, cpus) \
  {HostDifference::k##name, Vendor::vendor, family, cpus},
#include "vcpu/cpu_differences.inc"
};

// Whose way this CPU follows.
constexpr Vendor WayOf(HostDifference difference, const CpuIdentity& cpu) {
  for (const HostException& exception : kHostExceptions) {
    if (exception.difference == difference && exception.vendor == cpu.vendor &&
        exception.family == cpu.family) {
      return cpu.vendor == Vendor::kIntel ? Vendor::kAmd : Vendor::kIntel;
    }
  }
  return cpu.vendor;
}
constexpr Vendor WayOf(GuestDifference, Vendor guest) { return guest; }

inline bool HostHasIntelsWay(HostDifference difference) {
  return WayOf(difference, CpuIdentity::kHost) == Vendor::kIntel;
}
constexpr bool HasIntelsWay(GuestDifference difference, Vendor guest) {
  return WayOf(difference, guest) == Vendor::kIntel;
}

// Of CMPS: microcode of its own runs REPE CMPSB.
inline bool HostComparesDestinationFirst(bool repe_cmpsb) {
  return HostHasIntelsWay(repe_cmpsb ? HostDifference::kRepeCmpsbFault
                                     : HostDifference::kCompareStringsFault);
}

struct CpuDifferenceRow {
  const char* name;
  bool host;  // follows the host's CPU; else the guest's vendor
  const char* what;
  const char* intel;
  const char* amd;
  const char* source;
};
std::span<const CpuDifferenceRow> CpuDifferences();

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_CPU_DIFFERENCES_H_
