// SPDX-License-Identifier: Apache-2.0
// What a signal of the host says about an access of translated code.
#ifndef ALIBI_RUNTIME_HOST_SIGNAL_H_
#define ALIBI_RUNTIME_HOST_SIGNAL_H_

#include <csignal>

#include "base/types.h"

namespace alibi::runtime {

enum class HostFault : u8 {
  kAccess,         // no page, no right to it, no canonical address, misaligned vector operand
  kArithmetic,     // #DE, #MF, #XM
  kUndefined,      // #UD
  kSplitLock,      // a locked access to two cache lines, on a host that forbids it (#AC)
  kMissingMemory,  // the host cannot give the page: poisoned, or no room behind the mapping
  kShutMemory,     // behind a protection key: no access of a guest's leads there
};

constexpr HostFault ClassifyHostFault(int signal, int code) {
  switch (signal) {
    case SIGFPE:
      return HostFault::kArithmetic;
    case SIGILL:
      return HostFault::kUndefined;
    case SIGBUS:
      if (code == SI_KERNEL)
        return HostFault::kAccess;  // #SS: no canonical address, off rsp or rbp
      return code == BUS_ADRALN ? HostFault::kSplitLock : HostFault::kMissingMemory;
    case SIGSEGV:
      return code == SEGV_PKUERR ? HostFault::kShutMemory : HostFault::kAccess;
    default:
      return HostFault::kAccess;
  }
}

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_HOST_SIGNAL_H_
