// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/process_use.h"

#include <dirent.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace alibi::bench {
namespace {

// Those in the group, each with its folder and what /proc/PID/stat says behind the name, from the
// state on.
void ForEachProcess(int group,
                    const std::function<void(const std::string& folder,
                                             const std::vector<std::string>& fields)>& visit) {
  constexpr std::size_t kGroupField = 2;
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return;
  while (const dirent* entry = readdir(processes)) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const std::string folder = std::string("/proc/") + entry->d_name;
    std::string line;
    std::getline(std::ifstream(folder + "/stat"), line);
    // The name may hold spaces and parentheses.
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) continue;
    std::istringstream words(line.substr(name_end + 1));
    std::vector<std::string> fields;
    for (std::string field; words >> field;) fields.push_back(field);
    if (fields.size() > kGroupField && fields[kGroupField] == std::to_string(group)) {
      visit(folder, fields);
    }
  }
  closedir(processes);
}

}  // namespace

double GroupCpuSeconds(int group) {
  constexpr std::size_t kFirstTime = 11, kTimes = 4;  // utime, stime, cutime, cstime
  double ticks = 0;
  ForEachProcess(group, [&](const std::string&, const std::vector<std::string>& fields) {
    for (std::size_t i = kFirstTime; i < kFirstTime + kTimes && i < fields.size(); ++i) {
      ticks += std::stod(fields[i]);
    }
  });
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double GroupMemoryBytes(int group) {
  double bytes = 0;
  ForEachProcess(group, [&](const std::string& folder, const std::vector<std::string>&) {
    std::ifstream file(folder + "/smaps_rollup");
    for (std::string word; file >> word;) {
      double kilobytes = 0;
      if (word == "Pss:" && file >> kilobytes) bytes += 1024 * kilobytes;
    }
  });
  return bytes;
}

}  // namespace alibi::bench
