// SPDX-License-Identifier: Apache-2.0
// How the program ends. A guest that writes v to the debug-exit port ends it with (v << 1) | 1, as
// under QEMU; guests should use values below 32, so that the two lists stay apart.
#ifndef ALIBI_CLI_EXIT_CODES_H_
#define ALIBI_CLI_EXIT_CODES_H_

#include <string>

namespace alibi::vmm {

enum ExitCode : int {
#define ALIBI_EXIT_CODE(enumerator, number, meaning) enumerator = number,
#include "cli/exit_codes.inc"
#undef ALIBI_EXIT_CODE
};

// A table for --help, a line per code.
std::string ExitCodeHelp();

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_EXIT_CODES_H_
