// SPDX-License-Identifier: Apache-2.0
// alibi lab run --spread: an experiment's cells as jobs on several hosts.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "bench/child_process.h"
#include "bench/lab/files.h"
#include "bench/lab/spread.h"
#include "bench/shell_word.h"
#include "cli/cmd_lab.h"
#include "cli/lab_spread.h"

namespace alibi::vmm {
namespace {

namespace lab = bench::lab;

// Splits at blanks; a part in single quotes is one word.
std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  bool within = false, quoted = false;
  for (const char c : text) {
    if (c == ' ' && !quoted) {
      within = false;
      continue;
    }
    if (!within) words.emplace_back();
    within = true;
    if (c == '\'') {
      quoted = !quoted;
    } else {
      words.back() += c;
    }
  }
  return words;
}

// Its stdout is our stderr, since ours is the report's name. Returns the exit status; -1: it could
// not be started, and errno says why.
int RunInForeground(const std::vector<std::string>& words, const std::string& folder) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t pid = -1;
  errno = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (errno != 0) return -1;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void PrintPlan(const lab::Merged& merged, const std::vector<std::string>& command,
               const std::string& job, const std::string& folder) {
  for (const lab::Cell& cell : merged.undone) {
    std::string line = job;
    line.replace(line.find("{}"), 2, fmt::format("{}", cell.number));
    fmt::print("cd {} && {}  # {}, {}, {} runs\n", bench::ShellWord(folder), line, cell.workload,
               cell.repeat == lab::kObserved ? "observed" : fmt::format("round {}", cell.repeat),
               cell.runs.size());
  }
  std::string text;
  for (const std::string& word : command) text += " " + bench::ShellWord(word);
  fmt::print("# {} jobs, {} cells are done; as one command:\n#{}\n", merged.undone.size(),
             merged.finished, text);
}

}  // namespace

std::string SpreadNames() {
  std::string names;
  for (const lab::SpreadEngine& engine : lab::SpreadEngines()) {
    names += (names.empty() ? "" : ", ") + std::string(engine.name);
  }
  return names;
}

int Spread(const lab::Experiment& experiment, const std::string& text, const SpreadOptions& options,
           lab::LabSummary* summary) {
  const auto& engines = lab::SpreadEngines();
  const auto engine = std::find_if(engines.begin(), engines.end(), [&](const lab::SpreadEngine& e) {
    return options.engine == e.name;
  });
  if (engine == engines.end()) {
    return Fail(kUsage,
                fmt::format("--spread: there is no '{}', but {}", options.engine, SpreadNames()));
  }
  std::error_code error;
  const std::string folder = std::filesystem::absolute(options.folder, error).lexically_normal();
  std::filesystem::create_directories(folder + "/cells", error);
  if (error) return Fail(kCannotCreate, fmt::format("{}/cells: {}", folder, error.message()));
  const std::string copy = folder + "/" + lab::kCopiedExperiment;
  if (const auto before = lab::ReadWholeFile(copy); before.ok() && before.value() != text) {
    return Fail(kNoInput, fmt::format("{}: holds another experiment, or this one before it was "
                                      "changed; remove it, or give another --out",
                                      options.folder));
  }
  if (const Status written = lab::WriteWholeFile(copy, text); !written.ok()) {
    return Fail(kCannotCreate, written.error().message);
  }
  auto merged = lab::MergeCells(experiment, text, options.file, folder);
  if (!merged.ok()) return Fail(kNoInput, merged.error().message);
  std::vector<unsigned> cells;
  for (const lab::Cell& cell : merged->undone) cells.push_back(cell.number);
  const std::string job = lab::CellJob(options.alibi);
  const auto command = engine->command(folder, job, cells, Words(options.engine_options));
  if (options.plan) {
    PrintPlan(*merged, command, job, folder);
    return kSuccess;
  }
  int status = 0;
  if (!cells.empty()) {
    if (bench::FindProgram(engine->program).empty()) {
      return Fail(kUnsupportedHost, fmt::format("no {} here; run: sudo apt-get install {}",
                                                engine->program, engine->package));
    }
    const unsigned before = merged->summary.done;
    status = RunInForeground(command, folder);
    if (status < 0) {
      return Fail(kHostResources, fmt::format("{}: {}", engine->program, std::strerror(errno)));
    }
    merged = lab::MergeCells(experiment, text, options.file, folder);
    if (!merged.ok()) return Fail(kNoInput, merged.error().message);
    if (merged->summary.done == before && status != 0) {
      return Fail(kUnsupportedHost,
                  fmt::format("{} ended with status {}, and no run has been made; what it and the "
                              "jobs said is above or in {}/cells",
                              engine->program, status, options.folder));
    }
  }
  *summary = merged->summary;
  summary->earlier = 0;
  return kSuccess;
}

}  // namespace alibi::vmm
