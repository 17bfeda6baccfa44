// SPDX-License-Identifier: Apache-2.0
// For whoever comes from QEMU.
#ifndef ALIBI_CLI_QEMU_OPTIONS_H_
#define ALIBI_CLI_QEMU_OPTIONS_H_

#include <string_view>
#include <vector>

namespace alibi::vmm {

// The arguments with QEMU's spelling of options that exist here as well put into ours, and with the
// value of an option of ours that is written without one. A null pointer is behind them.
std::vector<char*> WithOwnSpelling(int argc, char** argv);

// What to do instead of a well-known option of QEMU's that does not exist here, by its name without
// dashes; "" for any other.
std::string_view InsteadOfQemuOption(std::string_view name);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_QEMU_OPTIONS_H_
