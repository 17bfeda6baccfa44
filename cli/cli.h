// SPDX-License-Identifier: Apache-2.0
// What the subcommands share. The program's contract: stdout belongs to the guest's console and to
// reports that were asked for; everything else goes to stderr, one line per failure.
#ifndef ALIBI_CLI_CLI_H_
#define ALIBI_CLI_CLI_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/types.h"
#include "cli/exit_codes.h"

namespace CLI {
class App;
}

namespace alibi::vmm {

struct Subcommand {
  const char* name;
  const char* summary;
  // argv[0] is the subcommand's name. Returns the exit status.
  int (*run)(int argc, char** argv);
};

// Says what is wrong, on one line of stderr, and returns the code.
int Fail(ExitCode code, const std::string& message);

// What to do instead of an option of another program's, without its dashes; "" if there is nothing
// to say.
using InsteadOf = std::string_view (*)(std::string_view option);

// The exit status to end with at once (after --help and --version, or when the arguments are
// wrong), or nothing.
std::optional<int> ParseArguments(CLI::App& app, const std::string& command, int argc, char** argv,
                                  InsteadOf instead_of = nullptr);

// "65536", "64K", "128M", "2G": bytes.
Result<u64> ParseSize(const std::string& text);
// "128 MB", for messages.
std::string FormatSize(u64 bytes);

// The user's folder for what can be made again ("name" in it), as the XDG Base Directory
// Specification has it; "": the user has no home.
std::string UserCacheFolder(const std::string& name);

// The subcommands, each in its cmd_*.cc.
int CmdRun(int argc, char** argv);
int CmdCpu(int argc, char** argv);
int CmdBench(int argc, char** argv);
int CmdDump(int argc, char** argv);
int CmdLog(int argc, char** argv);
int CmdLab(int argc, char** argv);
int CmdNetSink(int argc, char** argv);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_CLI_H_
