// SPDX-License-Identifier: Apache-2.0
// For whoever comes from QEMU.
#ifndef ALIBI_CLI_QEMU_OPTIONS_H_
#define ALIBI_CLI_QEMU_OPTIONS_H_

#include <string_view>

namespace alibi::vmm {

// What to do instead of a well-known option of QEMU's that does not exist here, by its name without
// dashes; "" for any other.
std::string_view InsteadOfQemuOption(std::string_view name);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_QEMU_OPTIONS_H_
