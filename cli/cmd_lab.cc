// SPDX-License-Identifier: Apache-2.0
// alibi lab: experiments and what is made of them. Each subcommand has its own cmd_lab_*.cc.
#include "cli/cmd_lab.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace alibi::vmm {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"run", "run an experiment file's matrix: CSV and an HTML report", CmdLabRun},
    {"report", "make an experiment's report again", CmdLabReport},
    {"replay", "what other policies would have made of a recorded run", CmdLabReplay},
    {"reproduce", "the paper's claims, measured again, as a page", CmdLabReproduce},
};

void PrintHelp(std::FILE* to) {
  fmt::print(to,
             "Experiments with adaptive translation.\n\n"
             "Usage: alibi lab COMMAND [ARGUMENTS]   (alibi lab COMMAND --help shows a command's)"
             "\n\nCommands:\n");
  for (const Subcommand& command : kSubcommands) {
    fmt::print(to, "  {:<10} {}\n", command.name, command.summary);
  }
}

}  // namespace

int CmdLab(int argc, char** argv) {
  if (argc < 2) {
    PrintHelp(stderr);
    return kUsage;
  }
  const std::string_view name = argv[1];
  for (const Subcommand& command : kSubcommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
  }
  if (name == "--help" || name == "-h") {
    PrintHelp(stdout);
    return kSuccess;
  }
  return Fail(kUsage, fmt::format("unknown command 'lab {}'; see alibi lab --help", name));
}

}  // namespace alibi::vmm
