// SPDX-License-Identifier: Apache-2.0
// A file or block device whose bytes are the disk's bytes.
//
// Locks: as QEMU locks images (open-file-description locks on bytes from 100 and from 200), so that
// neither two Alibis nor Alibi and QEMU write one image. A size that is no multiple of 512 is
// rounded up: the rest of the last sector reads as zeros and a write to it makes the file longer.
#ifndef ALIBI_DEVICES_BLOCK_RAW_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_RAW_IMAGE_H_

#include <memory>
#include <string>

#include "devices/block/file_io.h"
#include "devices/block/image.h"

namespace alibi::block {

class RawImage final : public BlockImage {
 public:
  // Takes an open regular file or block device of at least one byte.
  RawImage(int fd, u64 file_bytes, bool read_only, bool is_block_device);
  ~RawImage() override;

  // Takes the lock on an open file; false if another program has the image open in a way that does
  // not go with it.
  static bool Lock(int fd, bool read_only);

  IoResult Read(u64 offset, std::span<u8> data) override;
  bool ReadCached(u64 offset, std::span<u8> data) override;
  IoResult Write(u64 offset, std::span<const u8> data) override;
  IoResult Flush() override;
  IoResult Discard(u64 offset, u64 bytes) override;
  IoResult WriteZeroes(u64 offset, u64 bytes, bool may_unmap) override;

 private:
  const int fd_;
  const u64 file_bytes_;  // when it was opened
  const bool is_block_device_;
  CachedReads cached_reads_;
  bool written_ = false;  // since the last flush
  int flush_error_ = 0;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_RAW_IMAGE_H_
