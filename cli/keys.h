// SPDX-License-Identifier: Apache-2.0
// From what a terminal sends to what a PC keyboard sends (US layout, scan code set 2).
#ifndef ALIBI_CLI_KEYS_H_
#define ALIBI_CLI_KEYS_H_

#include <string_view>
#include <vector>

#include "base/types.h"

namespace alibi::vmm {

// The keys that a user pressed to make a terminal send these bytes, each pressed and let go:
// characters with Shift or Ctrl around them; escape sequences (ECMA-48, as xterm and the Linux
// console send them) of arrows, function and editing keys with their modifiers; Alt for a character
// behind an escape. An escape that ends the input is the Esc key. Bytes that no US keyboard has a
// key for, and sequences nobody knows, are left out.
std::vector<u8> KeysOf(std::string_view bytes);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_KEYS_H_
