// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_signal.h"

#include <catch2/catch.hpp>

namespace alibi::runtime {
namespace {

// Bus errors are no page faults: a retry would meet them again, for ever.
TEST_CASE("Bus errors are told from faults that the guest's page tables explain") {
  CHECK(ClassifyHostFault(SIGSEGV, SEGV_MAPERR) == HostFault::kAccess);
  CHECK(ClassifyHostFault(SIGSEGV, SEGV_ACCERR) == HostFault::kAccess);
  CHECK(ClassifyHostFault(SIGSEGV, SI_KERNEL) == HostFault::kAccess);
  CHECK(ClassifyHostFault(SIGBUS, SI_KERNEL) == HostFault::kAccess);  // #SS
  CHECK(ClassifyHostFault(SIGBUS, BUS_ADRALN) == HostFault::kSplitLock);
  CHECK(ClassifyHostFault(SIGBUS, BUS_ADRERR) == HostFault::kMissingMemory);
  CHECK(ClassifyHostFault(SIGBUS, BUS_MCEERR_AR) == HostFault::kMissingMemory);
  CHECK(ClassifyHostFault(SIGBUS, BUS_MCEERR_AO) == HostFault::kMissingMemory);
  CHECK(ClassifyHostFault(SIGFPE, FPE_INTDIV) == HostFault::kArithmetic);
  CHECK(ClassifyHostFault(SIGILL, ILL_ILLOPN) == HostFault::kUndefined);
}

TEST_CASE("What a protection key shuts is no memory of the guest's") {
  CHECK(ClassifyHostFault(SIGSEGV, SEGV_PKUERR) == HostFault::kShutMemory);
}

}  // namespace
}  // namespace alibi::runtime
