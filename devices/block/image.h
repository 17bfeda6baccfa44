// SPDX-License-Identifier: Apache-2.0
// A disk image as the devices see it: a row of bytes that can be read, written and made durable.
//
// Calls but ReadCached() block on host I/O: they come from a disk's worker thread
// (devices/block/disk.h), or from the thread that opens the image before there is a worker. There
// is one call at a time.
#ifndef ALIBI_DEVICES_BLOCK_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_IMAGE_H_

#include <span>

#include "base/types.h"

namespace alibi::block {

inline constexpr u64 kSectorBytes = 512;

// How an operation ended: 0, or the host's errno. The guest sees an I/O error, never this number.
struct [[nodiscard]] IoResult {
  int error = 0;
  bool ok() const { return error == 0; }
};

class BlockImage {
 public:
  virtual ~BlockImage() = default;
  BlockImage(const BlockImage&) = delete;
  BlockImage& operator=(const BlockImage&) = delete;

  // A multiple of kSectorBytes, more than 0; does not change.
  u64 size_bytes() const { return size_bytes_; }
  bool read_only() const { return read_only_; }

  // [offset, offset + size) lies inside the image. Nothing is written to a read-only image: EROFS.
  virtual IoResult Read(u64 offset, std::span<u8> data) = 0;
  // Read(), if the host can do it without waiting for a medium or a server. False: it cannot, or
  // not for all of it; the data is undefined, and Read() says what is wrong. From any thread.
  virtual bool ReadCached(u64 offset, std::span<u8> data) {
    static_cast<void>(offset), static_cast<void>(data);
    return false;
  }
  virtual IoResult Write(u64 offset, std::span<const u8> data) = 0;
  // Everything written before is on stable storage when this succeeds. A failure is final: what was
  // lost is not known, so every later flush fails as well.
  virtual IoResult Flush() = 0;
  // The bytes' contents do not matter any more. Success does not mean that space was freed.
  virtual IoResult Discard(u64 offset, u64 bytes) = 0;
  // `may_unmap`: the host's space may be freed too.
  virtual IoResult WriteZeroes(u64 offset, u64 bytes, bool may_unmap) = 0;

 protected:
  BlockImage() = default;
  // WriteZeroes() by writes, for images or hosts that know nothing better.
  IoResult StoreZeroes(u64 offset, u64 bytes) {
    static constexpr u8 kZeros[64 * 1024] = {};
    while (bytes != 0) {
      const u64 piece = bytes < sizeof(kZeros) ? bytes : sizeof(kZeros);
      const IoResult written = Write(offset, std::span(kZeros).first(piece));
      if (!written.ok()) return written;
      offset += piece;
      bytes -= piece;
    }
    return {};
  }
  u64 size_bytes_ = 0;
  bool read_only_ = false;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_IMAGE_H_
