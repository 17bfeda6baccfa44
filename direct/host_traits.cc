// SPDX-License-Identifier: Apache-2.0
#include "direct/host_traits.h"

#include <asm/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstring>

#include "direct/child_signal.h"
#include "direct/feature_probe.h"
#include "direct/retried.h"

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
template <bool (*set)(bool on)>
bool EnableIfCheap() {
  return IsCheap(set) && set(true);
}

void ExecuteCpuid() { vcpu::HostCpuid(0, 0); }
void ExecuteRdtsc() {
  u32 low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
}

constexpr u64 kLowBytes = 16 * kPageSize;

constexpr int kNoFault = 0, kFault = 1;  // a child's exit statuses
void OnFault(int) { _exit(kFault); }

bool EnableNothing() { return true; }
void ExecuteInt1() { asm volatile(".byte 0xf1"); }
// The second one is of the same instruction, which is executed again.
void OnTrap(int) {
  static unsigned traps = 0;
  if (++traps == 2) _exit(kFault);
}

// Where code of 32 bits can be, with a stack behind it for the signal's frame.
u8* low_memory = nullptr;
bool MapLowMemory() {
  // Decrements EAX and goes on to INT3; in code of 64 bits it would be UD2.
  constexpr u8 kCode[] = {0x31, 0xc0, 0x48, 0x75, 0x02, 0x0f, 0x0b, 0xcc};
  void* const memory = mmap(nullptr, kLowBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (memory == MAP_FAILED) return false;
  low_memory = static_cast<u8*>(memory);
  std::memcpy(low_memory, kCode, sizeof(kCode));
  return true;
}
void ExecuteCode32() {
  asm volatile("mov %0, %%rsp\n\tpushq $0x23\n\tpush %1\n\tlretq"
               :
               : "r"(low_memory + kLowBytes), "r"(low_memory)
               : "memory");
  __builtin_unreachable();
}

// Does `execute` raise the signal in a child in which `enable` succeeded?
bool Faults(bool (*enable)(), void (*execute)(), int signal = SIGSEGV,
            void (*handler)(int) = OnFault) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    HandleInChild(signal, handler);
    if (enable()) execute();
    _exit(kNoFault);
  }
  int status = 0;
  return Retried([&] { return waitpid(child, &status, 0); }) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == kFault;
}

// Leaves that do not exist show nothing: Intel's CPUs repeat the highest one there.
vcpu::CpuidRegisters ExistingLeaf(u32 leaf, u32 subleaf) {
  const u32 most = vcpu::HostCpuid(leaf & 0xffff0000, 0).eax;
  const bool exists = leaf <= most && most - leaf < 0x10000;
  return exists ? vcpu::HostCpuid(leaf, subleaf) : vcpu::CpuidRegisters();
}

isa::FeatureSet WorkingFeatures() {
  isa::FeatureSet features = isa::FeaturesShownBy(ExistingLeaf);
  for (const isa::Feature feature : ProbeFeatures()) features.Show(feature);
  return features;
}

bool HasShadowStack() {
  u64 enabled = 0;
  return syscall(SYS_arch_prctl, kArchShstkStatus, &enabled) == 0 && (enabled & kArchShstkShstk);
}

}  // namespace

HostTraits DetectHostTraits() {
  constexpr u32 kUmip = u32{1} << 2, kNoX87Selectors = u32{1} << 13;
  return {
      .vendor = vcpu::VendorOf(vcpu::HostCpuid(0, 0)),
      .xcr0 = vcpu::HostXcr0(),
      .cpuid_traps = Faults(EnableIfCheap<SetCpuidFaults>, ExecuteCpuid),
      .tsc_traps = Faults(EnableIfCheap<SetTscFaults>, ExecuteRdtsc),
      .int1_faults = Faults(EnableNothing, ExecuteInt1, SIGTRAP, OnTrap),
      .code32 = Faults(MapLowMemory, ExecuteCode32, SIGTRAP),
      .x87_selectors = (ExistingLeaf(7, 0).ebx & kNoX87Selectors) == 0,
      .umip = (ExistingLeaf(7, 0).ecx & kUmip) != 0,
      .shadow_stacks = HasShadowStack(),
      .features = WorkingFeatures(),
  };
}

}  // namespace alibi::direct
