// SPDX-License-Identifier: Apache-2.0
// A TAP interface of the host: frames go where the host's administrator leads them.
#ifndef ALIBI_DEVICES_NET_TAP_H_
#define ALIBI_DEVICES_NET_TAP_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "devices/net/backend.h"

namespace alibi::net {

// `interface` must exist and be this user's, or is made if that is permitted.
Result<std::unique_ptr<Backend>> CreateTap(const std::string& interface);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_TAP_H_
