// SPDX-License-Identifier: Apache-2.0
// Engine policies from shared objects (include/alibi/engine_policy.h has their contract).
#ifndef ALIBI_ADAPT_ENGINE_PLUGIN_H_
#define ALIBI_ADAPT_ENGINE_PLUGIN_H_

#include <memory>
#include <string>

#include "adapt/engine_policy.h"
#include "base/result.h"

namespace alibi::adapt {

// Errors say what is wrong with the file. The policy checks each verdict, and hands over to the
// default one when it throws or talks nonsense. It is called from the run loop, where the guest's
// registers have been put away: nothing guards them here.
Result<std::unique_ptr<EnginePolicy>> LoadEnginePlugin(const std::string& spec);

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_ENGINE_PLUGIN_H_
