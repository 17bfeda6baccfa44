// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_files.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "cli/cli.h"

namespace alibi::vmm {

std::string OwnPath() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : "alibi";
}

std::string DataFolder(const std::string& own_path) {
  if (const char* folder = std::getenv("ALIBI_DATA"); folder != nullptr && *folder != '\0') {
    return folder;
  }
  const std::size_t name = own_path.rfind('/');
  const std::size_t folder =
      name == std::string::npos || name == 0 ? name : own_path.rfind('/', name - 1);
  const std::string above = folder == std::string::npos ? "." : own_path.substr(0, folder);
  // PREFIX/bin/alibi has PREFIX/lib/alibi; Bazel's cli/alibi has its folders beside vmm.
  const std::string installed = above + "/lib/alibi";
  return access(installed.c_str(), X_OK) == 0 ? installed : above;
}

std::string SvgPath(const std::string& json) {
  constexpr std::string_view kSuffix = ".json";
  return (json.ends_with(kSuffix) ? json.substr(0, json.size() - kSuffix.size()) : json) + ".svg";
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // Iterators over the stream's buffer would throw when a folder is read, which can be opened.
  char piece[4096];
  while (file.read(piece, sizeof(piece)), file.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) return Error{path + ": cannot be read"};
  return text;
}

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  return file.good();
}

void AddLogFolderOptions(CLI::App& app, bench::LogFolder* logs, const char* names) {
  app.add_option("--log", logs->path,
                 std::string("record an event log of each of Alibi's runs in FOLDER, as\n") +
                     names + "; alibi log shows them")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory);
  app.add_option("--log-size", logs->size, "at most so much of each: bytes, or with K, M, G (256M)")
      ->type_name("SIZE")
      ->check([](const std::string& text) {
        const auto size = ParseSize(text);
        return size.ok() ? "" : size.error().message;
      });
}

}  // namespace alibi::vmm
