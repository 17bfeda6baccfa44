// SPDX-License-Identifier: Apache-2.0
#include "devices/block/raw_image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace alibi::block {
namespace {

// QEMU's permissions, one byte each: from the first base those that a program uses, from the second
// those that it does not let others have (block/file-posix.c of QEMU documents the scheme).
constexpr off_t kUsed = 100, kDenied = 200;
constexpr off_t kConsistentRead = 0, kWrite = 1;
constexpr off_t kPermissions = 64;

bool SetLock(int fd, short type, off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
  // File systems without locks cannot help; a lock that is held says so by these two.
  return errno != EAGAIN && errno != EACCES;
}

bool IsFree(int fd, off_t start) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK;
}

}  // namespace

RawImage::RawImage(int fd, u64 file_bytes, bool read_only, bool is_block_device)
    : fd_(fd), file_bytes_(file_bytes), is_block_device_(is_block_device) {
  size_bytes_ = (file_bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
  read_only_ = read_only;
}

RawImage::~RawImage() {
  if (written_) static_cast<void>(Flush());
  close(fd_);
}

bool RawImage::Lock(int fd, bool read_only) {
  if (!read_only) return SetLock(fd, F_WRLCK, kUsed, kDenied + kPermissions - kUsed);
  return SetLock(fd, F_RDLCK, kUsed + kConsistentRead, 1) &&
         SetLock(fd, F_RDLCK, kDenied + kWrite, 1) && IsFree(fd, kUsed + kWrite) &&
         IsFree(fd, kDenied + kConsistentRead);
}

IoResult RawImage::Read(u64 offset, std::span<u8> data) {
  u64 got = 0;
  const IoResult read = ReadAt(fd_, offset, data, &got);
  if (!read.ok() || got == data.size()) return read;
  // Only the last sector's rest may lie behind the file's end.
  if (offset + got < file_bytes_) return {EIO};
  std::memset(data.data() + got, 0, data.size() - got);
  return {};
}

bool RawImage::ReadCached(u64 offset, std::span<u8> data) {
  return cached_reads_.Read(fd_, offset, data);
}

IoResult RawImage::Write(u64 offset, std::span<const u8> data) {
  if (read_only_) return {EROFS};
  written_ = true;
  return WriteAt(fd_, offset, data);
}

IoResult RawImage::Flush() {
  // The host's kernel reports a failed write-back once and then forgets the pages: what a later
  // fdatasync() says of them would be a lie.
  if (flush_error_ != 0) return {flush_error_};
  if (!written_) return {};
  int result;
  do {
    result = fdatasync(fd_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) flush_error_ = errno;
  written_ = false;
  return {flush_error_};
}

IoResult RawImage::Discard(u64 offset, u64 bytes) {
  if (read_only_) return {EROFS};
  if (is_block_device_) {
    u64 range[2] = {offset, bytes};
    if (ioctl(fd_, BLKDISCARD, range) == 0) written_ = true;
    return {};
  }
  // The host's help is optional: a file system without holes keeps the bytes.
  if (fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes)) == 0) {
    written_ = true;
  }
  return {};
}

IoResult RawImage::WriteZeroes(u64 offset, u64 bytes, bool may_unmap) {
  if (read_only_) return {EROFS};
  written_ = true;
  if (!is_block_device_) {
    const int modes[] = {may_unmap ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE,
                         FALLOC_FL_ZERO_RANGE};
    for (const int mode : modes) {
      if (fallocate(fd_, mode | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes)) == 0) {
        return {};
      }
      if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) return {errno};
    }
  }
  return StoreZeroes(offset, bytes);
}

}  // namespace alibi::block
