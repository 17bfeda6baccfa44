// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/process_time.h"

#include <dirent.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <sstream>
#include <string>

namespace alibi::bench {

double GroupCpuSeconds(int group) {
  // Fields behind the name, counted from the state: see proc(5).
  constexpr int kGroupField = 2, kFirstTime = 11, kTimes = 4;  // utime, stime, cutime, cstime
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return 0;
  double ticks = 0;
  while (const dirent* entry = readdir(processes)) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    std::string line;
    std::getline(std::ifstream(std::string("/proc/") + entry->d_name + "/stat"), line);
    // The name may hold spaces and parentheses.
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) continue;
    std::istringstream fields(line.substr(name_end + 1));
    std::string field;
    for (int i = 0; i < kFirstTime + kTimes && fields >> field; ++i) {
      if (i == kGroupField && field != std::to_string(group)) break;
      if (i >= kFirstTime) ticks += std::stod(field);
    }
  }
  closedir(processes);
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace alibi::bench
