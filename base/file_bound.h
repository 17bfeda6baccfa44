// SPDX-License-Identifier: Apache-2.0
// What one run may put into a file that the guest fills: how much comes is the guest's to say, and
// the disk is the host's. Terminals and pipes have no bound but their readers.
#ifndef ALIBI_BASE_FILE_BOUND_H_
#define ALIBI_BASE_FILE_BOUND_H_

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/types.h"

namespace alibi {

inline constexpr u64 kMaxFileBytes = u64{1} << 30;  // unless an option says otherwise

class FileBound {
 public:
  FileBound() = default;  // none
  // `full` is the line on stderr when something is left out for the first time.
  FileBound(int fd, u64 most_bytes, std::string full) : full_(std::move(full)) {
    struct stat info {};
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) room_ = most_bytes;
  }

  // How many of so many bytes more go into the file.
  u64 Take(u64 bytes) {
    const u64 taken = std::min(bytes, room_);
    room_ -= taken;
    if (taken < bytes && !std::exchange(told_, true)) fmt::print(stderr, "alibi: {}\n", full_);
    return taken;
  }

 private:
  u64 room_ = ~u64{0};
  bool told_ = false;
  std::string full_;
};

}  // namespace alibi

#endif  // ALIBI_BASE_FILE_BOUND_H_
