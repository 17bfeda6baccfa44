// SPDX-License-Identifier: Apache-2.0
// The process in which libslirp runs, and the messages to and from it: one byte that says what it
// is, and the rest.
#ifndef ALIBI_DEVICES_NET_SLIRP_PROCESS_H_
#define ALIBI_DEVICES_NET_SLIRP_PROCESS_H_

#include <sys/types.h>

#include "base/result.h"
#include "devices/net/slirp.h"

namespace alibi::net {

inline constexpr u8 kFrame = 'f';         // both ways
inline constexpr u8 kLargeReceive = 'l';  // to it, with a flag: see Backend::SetLargeReceive
inline constexpr u8 kReady = 'r';         // from it, first
inline constexpr u8 kFailed = 'e';        // from it, first: and why
inline constexpr std::size_t kMaxMessage = 1 << 17;

struct SlirpProcess {
  pid_t id;
  int channel;  // it ends when this is closed
};

// Forks: what this process has in memory by then, that one has too.
Result<SlirpProcess> StartSlirp(const SlirpConfig& config);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_SLIRP_PROCESS_H_
