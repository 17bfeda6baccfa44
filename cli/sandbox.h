// SPDX-License-Identifier: Apache-2.0
// What the process gives up before the guest's first instruction: it goes on with what is open, and
// can get nothing else. docs/safety.md, "If translated code were broken", says what is left.
#ifndef ALIBI_CLI_SANDBOX_H_
#define ALIBI_CLI_SANDBOX_H_

#include <linux/filter.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace alibi::vmm {

// Sanitizers make calls of their own.
#if defined(ALIBI_ASAN) || defined(ALIBI_TSAN)
inline constexpr bool kSandboxByDefault = false;
#else
inline constexpr bool kSandboxByDefault = true;
#endif

// sandbox_calls.inc for this process; with the requests of hardware/kvm_requests.inc.
std::vector<sock_filter> SandboxFilter(bool kvm);

// On the VCPU's thread, when all threads and files are there:
//  - every thread makes the calls of sandbox_calls.inc; another one ends the process with a line
//    that names it, status 70 (base/sandbox/denied_call.h);
//  - this thread loses all capabilities, and opens no file even where seccomp is missing; it may
//    remove `socket_folder`'s sockets ("": none).
// `kvm`: the hardware engine runs, on descriptors that are open already.
// An error if the kernel has no filters, or refuses them.
Status EnterSandbox(const std::string& socket_folder, bool kvm);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_SANDBOX_H_
