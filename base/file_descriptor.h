// SPDX-License-Identifier: Apache-2.0
// A file descriptor that is closed when its owner goes.
#ifndef ALIBI_BASE_FILE_DESCRIPTOR_H_
#define ALIBI_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace alibi {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  // The caller closes it from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace alibi

#endif  // ALIBI_BASE_FILE_DESCRIPTOR_H_
