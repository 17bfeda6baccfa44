// SPDX-License-Identifier: Apache-2.0
// What the bench commands share: where programs lie, and files that they read and write.
#ifndef ALIBI_CLI_BENCH_FILES_H_
#define ALIBI_CLI_BENCH_FILES_H_

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "bench/log_folder.h"

namespace alibi::vmm {

// The path of this program.
std::string OwnPath();
// Bazel's bazel-bin, or the same layout in an installed lib/alibi: from ./alibi through ALIBI_DATA,
// or by where this program lies.
std::string DataFolder(const std::string& own_path);
// "out.json" -> "out.svg".
std::string SvgPath(const std::string& json);
Result<std::string> ReadFile(const std::string& path);
// False: not written, at least not whole.
bool WriteFile(const std::string& path, const std::string& text);

// --log and --log-size; `names` is how the files in the folder are called.
void AddLogFolderOptions(CLI::App& app, bench::LogFolder* logs, const char* names);

// `alibi bench linux`, `scaling`, `disk`, `debian` and `vmi`; argv[0] is that word. They return the
// exit status.
int CmdBenchLinux(int argc, char** argv);
int CmdBenchScaling(int argc, char** argv);
int CmdBenchDisk(int argc, char** argv);
int CmdBenchDebian(int argc, char** argv);
int CmdBenchVmi(int argc, char** argv);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_BENCH_FILES_H_
