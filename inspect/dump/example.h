// SPDX-License-Identifier: Apache-2.0
// The paper's example (section 3.2) and an adaptation, run and shown.
#ifndef ALIBI_INSPECT_DUMP_EXAMPLE_H_
#define ALIBI_INSPECT_DUMP_EXAMPLE_H_

#include <string>

#include "base/result.h"

namespace alibi::vmm {

// The same text on every host and in every run.
Result<std::string> IsPrimeExample(const std::string& policy);

}  // namespace alibi::vmm

#endif  // ALIBI_INSPECT_DUMP_EXAMPLE_H_
