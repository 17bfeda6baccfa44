// SPDX-License-Identifier: Apache-2.0
// Site policies from shared objects (include/alibi/policy.h has their contract).
#ifndef ALIBI_ADAPT_PLUGIN_H_
#define ALIBI_ADAPT_PLUGIN_H_

#include <memory>
#include <string>

#include "adapt/policy.h"
#include "base/result.h"

namespace alibi::adapt {

// Errors say what is wrong with the file. The policy puts the extended state away around each call,
// checks each verdict, and hands over to the default policy when it throws or talks nonsense.
Result<std::unique_ptr<Policy>> LoadPlugin(const std::string& spec);

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_PLUGIN_H_
