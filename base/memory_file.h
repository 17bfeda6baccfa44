// SPDX-License-Identifier: Apache-2.0
// A file in memory whose size is fixed. It is sealed: whoever comes to hold the descriptor (a
// process that has inherited it, say) can neither truncate it, which would make an access to a
// mapping of it a bus error, nor let it grow, nor run it as a program.
#ifndef ALIBI_BASE_MEMORY_FILE_H_
#define ALIBI_BASE_MEMORY_FILE_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/types.h"

namespace alibi {

// Closed by programs that this one runs. -1, with errno, if there can be none.
inline int CreateMemoryFile(const char* name, u64 bytes) {
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, which implies that seals are allowed
  int fd = memfd_create(name, MFD_CLOEXEC | kNoExecSeal);
  // Linux has it since 6.3.
  if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace alibi

#endif  // ALIBI_BASE_MEMORY_FILE_H_
