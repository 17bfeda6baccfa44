// SPDX-License-Identifier: Apache-2.0
// The program. stdout: the guest's console, or the report asked for. stderr: one line per failure,
// traces, statistics. Exit status: cli/exit_codes.inc.
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <string_view>

#include "alibi/version.h"
#include "cli/cli.h"

namespace alibi::vmm {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"run", "run a kernel or a BIOS ROM on a PC, the terminal being its serial port", CmdRun},
    {"bench", "measure against native and QEMU TCG: tables, a chart, JSON and SVG", CmdBench},
    {"dump", "show translations: guest code, IR, CCFs, exits, adaptation", CmdDump},
    {"log", "show what happened in a run that was recorded with --log", CmdLog},
    {"lab", "experiments: matrices of runs, reports, replays under other policies", CmdLab},
    {"net-sink", "be the far end of a machine's --net socket, and count what comes", CmdNetSink},
    {"cpu", "show the CPU that guests see", CmdCpu},
};

void PrintHelp(std::FILE* to) {
  fmt::print(to,
             "Alibi runs x86 operating systems in an ordinary process, by binary translation.\n\n"
             "Usage: alibi COMMAND [ARGUMENTS]   (alibi COMMAND --help shows a command's)\n"
             "       alibi --version\n\nCommands:\n");
  for (const Subcommand& command : kSubcommands) {
    fmt::print(to, "  {:<8} {}\n", command.name, command.summary);
  }
  fmt::print(to, "\n{}", ExitCodeHelp());
}

int Main(int argc, char** argv) {
  // A file that may not grow (ulimit -f) is an error where it is written.
  signal(SIGXFSZ, SIG_IGN);
  if (argc < 2) {
    PrintHelp(stderr);
    return kUsage;
  }
  const std::string_view name = argv[1];
  for (const Subcommand& command : kSubcommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
  }
  if (name == "--help" || name == "-h" || name == "help") {
    PrintHelp(stdout);
    return kSuccess;
  }
  if (name == "--version") {
    fmt::print("alibi {}\n", ALIBI_VERSION);
    return kSuccess;
  }
  return Fail(kUsage, fmt::format("unknown command '{}'; see alibi --help", name));
}

}  // namespace
}  // namespace alibi::vmm

int main(int argc, char** argv) { return alibi::vmm::Main(argc, argv); }
