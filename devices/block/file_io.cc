// SPDX-License-Identifier: Apache-2.0
#include "devices/block/file_io.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

namespace alibi::block {

IoResult ReadAt(int fd, u64 offset, std::span<u8> data, u64* got) {
  *got = 0;
  while (*got < data.size()) {
    const ssize_t piece =
        pread(fd, data.data() + *got, data.size() - *got, static_cast<off_t>(offset + *got));
    if (piece < 0 && errno == EINTR) continue;
    if (piece < 0) return {errno};
    if (piece == 0) break;
    *got += static_cast<u64>(piece);
  }
  return {};
}

bool CachedReads::Read(int fd, u64 offset, std::span<u8> data) {
  if (!offered_) return false;
  struct iovec piece = {data.data(), data.size()};
  const ssize_t got = preadv2(fd, &piece, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  // ENOSYS where a sandbox knows nothing of the call; tmpfs offers it to nobody.
  if (got < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS)) offered_ = false;
  return got >= 0 && static_cast<u64>(got) == data.size();
}

IoResult WriteAt(int fd, u64 offset, std::span<const u8> data) {
  while (!data.empty()) {
    const ssize_t done = pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return {errno};
    if (done == 0) return {ENOSPC};
    offset += static_cast<u64>(done);
    data = data.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

}  // namespace alibi::block
