// SPDX-License-Identifier: Apache-2.0
// Whole transfers from and to host files, whatever interrupts them.
#ifndef ALIBI_DEVICES_BLOCK_FILE_IO_H_
#define ALIBI_DEVICES_BLOCK_FILE_IO_H_

#include <span>

#include "devices/block/image.h"

namespace alibi::block {

// `*got` is less than the data's size only where the file ends, or after an error.
IoResult ReadAt(int fd, u64 offset, std::span<u8> data, u64* got);
// All of it; a device that takes nothing more is full (ENOSPC).
IoResult WriteAt(int fd, u64 offset, std::span<const u8> data);

// Reads of what the host has cached (preadv2(2), RWF_NOWAIT), of one file.
class CachedReads {
 public:
  // All of the data; false: the host has not cached it all, or its file system cannot tell.
  bool Read(int fd, u64 offset, std::span<u8> data);

 private:
  bool offered_ = true;  // as far as is known
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_FILE_IO_H_
