// SPDX-License-Identifier: Apache-2.0
#include "machine/host_check.h"

#include <cpuid.h>
#include <sys/auxv.h>
#include <sys/resource.h>

#include "abi/contract.h"

namespace alibi::vmm {
namespace {

constexpr u64 kHwcap2Fsgsbase = 1u << 1;

}  // namespace

HostFeatures ReadHostFeatures() {
  HostFeatures host;
  u32 a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) host.bmi2 = b & bit_BMI2;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) host.lahf = c & bit_LAHF_LM;
  if (__get_cpuid(1, &a, &b, &c, &d)) host.avx = (c & bit_OSXSAVE) && (c & bit_AVX);
  host.fsgsbase = getauxval(AT_HWCAP2) & kHwcap2Fsgsbase;
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    host.address_space_limit = limit.rlim_cur;
  }
  return host;
}

Status CheckHost(const HostFeatures& host) {
  struct Row {
    bool ok;
    const char* message;
  };
  const Row rows[] = {
      {host.bmi2,
       "this CPU has no BMI2 instructions; use a host with an Intel Haswell, AMD Zen or later CPU"},
      {host.lahf, "this CPU has no LAHF in 64-bit mode; use a host with a later CPU"},
      {host.avx,
       "this host has no AVX (or hides it); use a later CPU, or let the hypervisor around show it"},
      {host.fsgsbase,
       "this kernel does not let programs write the gs base; use Linux 5.9 or later, without the "
       "boot option nofsgsbase"},
      // A view of one guest address space alone reserves this much.
      {host.address_space_limit > 4 * kShadowTableBytes,
       "the limit on virtual memory is too low for the shadow tables; run: ulimit -v unlimited"},
  };
  for (const Row& row : rows) {
    if (!row.ok) return Error{row.message};
  }
  return Ok{};
}

}  // namespace alibi::vmm
