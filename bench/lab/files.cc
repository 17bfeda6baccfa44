// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace alibi::bench::lab {

Result<std::string> ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return Error{fmt::format("{}: {}", path, std::strerror(errno))};
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return Error{path + ": cannot be read"};
  return text;
}

Status WriteWholeFile(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  std::ofstream file(beside, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  if (!file.good() || std::rename(beside.c_str(), path.c_str()) != 0) {
    return Error{path + ": cannot be written; is the disk full?"};
  }
  return Ok();
}

}  // namespace alibi::bench::lab
