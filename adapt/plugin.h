// SPDX-License-Identifier: Apache-2.0
// Policies from shared objects (include/alibi/policy.h has their contract).
#ifndef ALIBI_ADAPT_PLUGIN_H_
#define ALIBI_ADAPT_PLUGIN_H_

#include <memory>
#include <string>

#include "adapt/policy.h"
#include "base/result.h"

namespace alibi::adapt {

// "./mine.so", "mine.so(3,5)": it has a '/' or ends in ".so" in front of the parameters.
bool IsPluginSpec(const std::string& spec);

// Errors say what is wrong with the file. The policy puts the extended state away around each call,
// checks each verdict, and hands over to the default policy when it throws or talks nonsense.
Result<std::unique_ptr<Policy>> LoadPlugin(const std::string& spec);

// The plug-in that runs on this thread now (as for dlopen), or null: for crash reports.
const char* RunningPlugin();

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_PLUGIN_H_
