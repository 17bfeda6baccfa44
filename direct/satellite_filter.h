// SPDX-License-Identifier: Apache-2.0
// What a satellite may ask of its kernel: nothing, but what the stub asks on the VMM's orders.
//
// Two filters, because the first one's listener must be handed over by calls that the second one
// denies: kernels take the stricter answer of the two. System calls by user code, of any number and
// by any instruction, become SIGSYS.
#ifndef ALIBI_DIRECT_SATELLITE_FILTER_H_
#define ALIBI_DIRECT_SATELLITE_FILTER_H_

#include <linux/filter.h>

#include <vector>

#include "base/types.h"

namespace alibi::direct {

// Known to the VMM, and to the kernel as part of the filter. In the satellite's memory only while
// user code cannot run.
struct CallKey {
  u32 words[2];
};

// Where the stub's system calls return to, in the satellite.
struct StubCalls {
  u64 after_stop, after_call, after_return, after_exit;
};

// Holds the thread in the stub's stop call, and tells the listener. All other calls pass.
std::vector<sock_filter> ListenerFilter(const StubCalls& stub);
// Lets through: the stop, mappings and the choice of a CPU with the key in the upper halves of
// arguments 3 and 4 (which no call looks at), sigreturn and the end, each from its place alone.
std::vector<sock_filter> UserFilter(const StubCalls& stub, const CallKey& key);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_SATELLITE_FILTER_H_
