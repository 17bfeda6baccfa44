// SPDX-License-Identifier: Apache-2.0
// Emitted code as text that is the same in every run: for golden files.
#ifndef ALIBI_TESTSUITE_EMITTED_CODE_STABLE_LISTING_H_
#define ALIBI_TESTSUITE_EMITTED_CODE_STABLE_LISTING_H_

#include <string>
#include <vector>

#include "abi/callouts.h"
#include "translator/ccf.h"

namespace alibi::testsuite {

struct StableLine {
  bool cold = false;
  u32 offset = 0;  // from the beginning of the CCF's hot or cold part
  std::string text;
};

// The hot part, then the cold one. %gs operands are named after the contract; jumps lead to
// "hot+0x12", "cold+0x1b", or a stub by name ("stub Simulate"); addresses of descriptors and of
// guest code are said to be that.
std::vector<StableLine> StableListing(const translator::Ccf& ccf, const StubTable& stubs);

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_EMITTED_CODE_STABLE_LISTING_H_
