// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/file_descriptor.h"

namespace alibi::loader {
namespace {

Error Failed(const std::string& path, const std::string& why) {
  return Error{"cannot read '" + path + "': " + why};
}

// Nobody has touched it. A kernel and its initial RAM disk are thousands of pages, and each would
// be a page fault.
void WantHugePages(void* from, u64 bytes) {
  const u64 begin = (reinterpret_cast<u64>(from) + kPageMask) & ~kPageMask;
  const u64 end = (reinterpret_cast<u64>(from) + bytes) & ~kPageMask;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

Result<std::vector<u8>> ReadWholeFile(const std::string& path, u64 max_bytes) {
  // Non-blocking: opening a FIFO must not wait for a writer before it is refused.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return Failed(path, std::strerror(errno));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return Failed(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return Failed(path, "it is a directory");
  if (!S_ISREG(info.st_mode)) return Failed(path, "it is not a regular file");
  const u64 size = static_cast<u64>(info.st_size);
  if (size > max_bytes) {
    return Failed(path, "it has " + std::to_string(size) + " bytes, more than the " +
                            std::to_string(max_bytes) + " allowed");
  }
  std::vector<u8> bytes;
  bytes.reserve(size);
  WantHugePages(bytes.data(), size);
  bytes.resize(size);
  u64 done = 0;
  while (done < size) {
    const ssize_t got = read(file.get(), bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, std::strerror(errno));
    if (got == 0) return Failed(path, "it became shorter while it was read");
    done += static_cast<u64>(got);
  }
  return bytes;
}

}  // namespace alibi::loader
