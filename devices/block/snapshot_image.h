// SPDX-License-Identifier: Apache-2.0
// Another image, with what is written kept apart: in a file without a name, gone with the process.
#ifndef ALIBI_DEVICES_BLOCK_SNAPSHOT_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_SNAPSHOT_IMAGE_H_

#include <stdlib.h>

#include <memory>

#include "base/result.h"
#include "devices/block/file_io.h"
#include "devices/block/image.h"

namespace alibi::block {

class SnapshotImage final : public BlockImage {
 public:
  // The file lies in $TMPDIR, or /tmp; it grows with what the guest writes, up to `most_bytes`.
  // Then EDQUOT.
  static Result<std::unique_ptr<BlockImage>> Create(std::unique_ptr<BlockImage> base,
                                                    u64 most_bytes);
  ~SnapshotImage() override;

  IoResult Read(u64 offset, std::span<u8> data) override;
  bool ReadCached(u64 offset, std::span<u8> data) override;
  IoResult Write(u64 offset, std::span<const u8> data) override;
  IoResult Flush() override { return {}; }
  IoResult Discard(u64, u64) override { return {}; }
  IoResult WriteZeroes(u64 offset, u64 bytes, bool may_unmap) override;

 private:
  static constexpr u64 kCluster = 4096;

  // A bit per cluster: it is in the file. An image may say that it is larger than all memory, so
  // that pages of it come with their first use.
  struct Free {
    void operator()(u8* bits) const { free(bits); }
  };
  using Bits = std::unique_ptr<u8[], Free>;

  SnapshotImage(std::unique_ptr<BlockImage> base, u64 most_bytes, Bits written, int fd);
  bool IsWritten(u64 cluster) const { return written_[cluster / 8] >> cluster % 8 & 1; }
  void SetWritten(u64 cluster);
  // What is at the beginning of [offset, offset + bytes) and comes from the same place: its bytes.
  u64 SamePlace(u64 offset, u64 bytes) const;
  bool HasRoom(u64 first_cluster, u64 last_cluster) const;

  std::unique_ptr<BlockImage> base_;
  const u64 most_clusters_;
  const Bits written_;
  u64 written_clusters_ = 0;
  CachedReads cached_reads_;
  const int fd_;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_SNAPSHOT_IMAGE_H_
