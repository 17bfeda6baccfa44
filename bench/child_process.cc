// SPDX-License-Identifier: Apache-2.0
#include "bench/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern char** environ;

namespace alibi::bench {
namespace {

constexpr std::size_t kMaxErrors = 4096;

// The last line that says something.
std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const std::size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

struct Pipe {
  int read = -1, write = -1;
  bool Open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    read = fds[0];
    write = fds[1];
    return true;
  }
  void CloseRead() { Close(read); }
  void CloseWrite() { Close(write); }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }

 private:
  static void Close(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

// Returns false at the end of the stream.
bool Drain(int fd, std::string* into) {
  char buffer[16384];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) into->append(buffer, static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

std::string ChildResult::Describe() const {
  const std::string said = LastLine(errors);
  const std::string tail = said.empty() ? "" : ": " + said;
  if (!started) return "cannot be started" + tail;
  if (timed_out) {
    return fmt::format("no end within {:.0f} s{}", static_cast<double>(limit.count()) / 1000, tail);
  }
  if (signal != 0)
    return fmt::format("killed by signal {} ({}){}", signal, strsignal(signal), tail);
  return fmt::format("exit status {}{}", exit_status, tail);
}

ChildResult RunChild(const std::vector<std::string>& argv, std::chrono::milliseconds limit,
                     const std::function<void(std::string_view, int group)>& on_output) {
  using Clock = std::chrono::steady_clock;
  ChildResult result;
  result.limit = limit;
  Pipe output, errors;
  if (!output.Open() || !errors.Open()) {
    result.errors = "no more file descriptors";
    return result;
  }
  std::vector<char*> arguments;
  for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.write, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    result.errors = fmt::format("{}: {}", argv[0], strerror(error));
    return result;
  }
  result.started = true;
  output.CloseWrite();
  errors.CloseWrite();

  const Clock::time_point deadline = Clock::now() + limit;
  pollfd streams[] = {{output.read, POLLIN, 0}, {errors.read, POLLIN, 0}};
  std::string* const sinks[] = {&result.output, &result.errors};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    if (poll(streams, 2, static_cast<int>(left)) < 0) {
      if (errno != EINTR) break;
      continue;  // nothing was said of the streams
    }
    const std::size_t seen = result.output.size();
    for (int i = 0; i < 2; ++i) {
      if (streams[i].revents != 0 && !Drain(streams[i].fd, sinks[i])) streams[i].fd = -1;
    }
    if (on_output && result.output.size() > seen) {
      on_output(std::string_view(result.output).substr(seen), child);
    }
    if (result.errors.size() > 2 * kMaxErrors) {
      result.errors.erase(0, result.errors.size() - kMaxErrors);
    }
  }
  // Closed streams need not mean that the process ended, but nothing more can come of it.
  int status = 0;
  if (!result.timed_out) {
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() >= deadline) {
        result.timed_out = true;
        break;
      }
      usleep(1000);
    }
  }
  if (result.timed_out) {
    kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return result;
  }
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string file = rest.substr(0, colon) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return "";
}

}  // namespace alibi::bench
