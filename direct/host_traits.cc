// SPDX-License-Identifier: Apache-2.0
#include "direct/host_traits.h"

#include <asm/prctl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "direct/feature_probe.h"
#include "direct/trial.h"

namespace alibi::direct {
namespace {

// Linux 6.6, not yet in Debian 12's headers.
constexpr unsigned kArchShstkStatus = 0x5005;
constexpr u64 kArchShstkShstk = 1;

bool SetCpuidFaults(bool on) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, !on) == 0; }
bool SetTscFaults(bool on) { return prctl(PR_SET_TSC, on ? PR_TSC_SIGSEGV : PR_TSC_ENABLE) == 0; }

// On and off again takes some 1,500 cycles where the register is this system's own, and 20,000
// where it is not, beside some 20,000 for a stop that needs no such change.
constexpr u64 kMostCyclesOnAndOff = 5000;
bool IsCheap(bool (*set)(bool on)) {
  u64 least = ~u64{0};
  for (unsigned i = 0; i < 5; ++i) {
    const u64 begin = __rdtsc();
    if (!set(true) || !set(false)) return false;
    least = std::min<u64>(least, __rdtsc() - begin);
  }
  return least <= kMostCyclesOnAndOff;
}
// With what traps if it is cheap, and not for longer.
bool Traps(bool (*set)(bool on), void (*execute)(const void*)) {
  const bool traps = IsCheap(set) && set(true) && Try(execute).signal == SIGSEGV;
  set(false);
  return traps;
}

void ExecuteCpuid(const void*) { vcpu::HostCpuid(0, 0); }
void ExecuteRdtsc(const void*) {
  u32 low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
}

// Does INT1 leave RIP where it is, so that it would be executed again?
u64 int1_at = 0;
void ExecuteInt1(const void*) {
  asm volatile("lea 1f(%%rip), %%rax\n\tmov %%rax, %0\n1:\t.byte 0xf1"
               : "=m"(int1_at)
               :
               : "rax", "memory");
}
bool Int1Faults() {
  const Raised raised = Try(ExecuteInt1);
  return raised.signal == SIGTRAP && raised.rip == int1_at;
}

constexpr u64 kLowBytes = 16 * kPageSize;

void ExecuteCode32(const void* low_memory) {
  asm volatile("mov %0, %%rsp\n\tpushq $0x23\n\tpush %1\n\tlretq"
               :
               : "r"(static_cast<const u8*>(low_memory) + kLowBytes), "r"(low_memory)
               : "memory");
  __builtin_unreachable();
}
bool HasCode32() {
  // Decrements EAX and goes on to INT3; in code of 64 bits it would be UD2.
  constexpr u8 kCode[] = {0x31, 0xc0, 0x48, 0x75, 0x02, 0x0f, 0x0b, 0xcc};
  // Where code of 32 bits can be, with a stack behind it for the signal's frame.
  void* const low_memory = mmap(nullptr, kLowBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (low_memory == MAP_FAILED) return false;
  std::memcpy(low_memory, kCode, sizeof(kCode));
  return Try(ExecuteCode32, low_memory).signal == SIGTRAP;
}

// What the child finds out, as bytes; behind these, of each of FeatureProbes() whether it works.
enum Answer : unsigned { kCpuidTraps, kTscTraps, kInt1Faults, kCode32, kFeatures };
void TryAll(u8* answers) {
  answers[kCpuidTraps] = Traps(SetCpuidFaults, ExecuteCpuid);
  answers[kTscTraps] = Traps(SetTscFaults, ExecuteRdtsc);
  answers[kInt1Faults] = Int1Faults();
  answers[kCode32] = HasCode32();
  ProbeFeatures(answers + kFeatures);
}

// Leaves that do not exist show nothing: Intel's CPUs repeat the highest one there.
vcpu::CpuidRegisters ExistingLeaf(u32 leaf, u32 subleaf) {
  const u32 most = vcpu::HostCpuid(leaf & 0xffff0000, 0).eax;
  const bool exists = leaf <= most && most - leaf < 0x10000;
  return exists ? vcpu::HostCpuid(leaf, subleaf) : vcpu::CpuidRegisters();
}

isa::FeatureSet WorkingFeatures(const u8* works) {
  isa::FeatureSet features = isa::FeaturesShownBy(ExistingLeaf);
  for (const FeatureProbe& probe : FeatureProbes()) {
    if (*works++) features.Show(probe.feature);
  }
  return features;
}

bool HasShadowStack() {
  u64 enabled = 0;
  return syscall(SYS_arch_prctl, kArchShstkStatus, &enabled) == 0 && (enabled & kArchShstkShstk);
}

}  // namespace

HostTraits DetectHostTraits() {
  constexpr u32 kUmip = u32{1} << 2, kNoX87Selectors = u32{1} << 13;
  const std::vector<u8> answers = TryInChild(kFeatures + FeatureProbes().size(), TryAll);
  return {
      .vendor = vcpu::VendorOf(vcpu::HostCpuid(0, 0)),
      .xcr0 = vcpu::HostXcr0(),
      .cpuid_traps = answers[kCpuidTraps] != 0,
      .tsc_traps = answers[kTscTraps] != 0,
      .int1_faults = answers[kInt1Faults] != 0,
      .code32 = answers[kCode32] != 0,
      .x87_selectors = (ExistingLeaf(7, 0).ebx & kNoX87Selectors) == 0,
      .umip = (ExistingLeaf(7, 0).ecx & kUmip) != 0,
      .shadow_stacks = HasShadowStack(),
      .features = WorkingFeatures(answers.data() + kFeatures),
  };
}

}  // namespace alibi::direct
