// SPDX-License-Identifier: Apache-2.0
// The subcommands of `alibi lab`; argv[0] is the subcommand's name. Each returns the exit status.
#ifndef ALIBI_CLI_CMD_LAB_H_
#define ALIBI_CLI_CMD_LAB_H_

#include "cli/cli.h"

namespace alibi::vmm {

int CmdLabRun(int argc, char** argv);
int CmdLabReport(int argc, char** argv);
int CmdLabReproduce(int argc, char** argv);
int CmdLabReplay(int argc, char** argv);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_CMD_LAB_H_
