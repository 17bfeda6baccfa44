// SPDX-License-Identifier: Apache-2.0
// --log of the bench commands: event logs of all of Alibi's runs, a file each.
#ifndef ALIBI_BENCH_LOG_FOLDER_H_
#define ALIBI_BENCH_LOG_FOLDER_H_

#include <algorithm>
#include <string>
#include <vector>

namespace alibi::bench {

struct LogFolder {
  std::string path;  // "": no logs
  std::string size;  // as --log-size takes it; "": its default

  // What `alibi run` needs to write `name`.log there. A name may be anything, such as a policy's
  // file.
  std::vector<std::string> Options(std::string name) const {
    if (path.empty()) return {};
    std::replace(name.begin(), name.end(), '/', '_');
    std::vector<std::string> options = {"--log", path + "/" + name + ".log"};
    if (!size.empty()) options.insert(options.end(), {"--log-size", size});
    return options;
  }
};

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LOG_FOLDER_H_
