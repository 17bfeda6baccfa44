// Another image, with what is written kept apart: in a file without a name, gone with the process.
#ifndef ALIBI_DEVICES_BLOCK_SNAPSHOT_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_SNAPSHOT_IMAGE_H_

#include <memory>
#include <vector>

#include "base/result.h"
#include "devices/block/image.h"

namespace alibi::block {

class SnapshotImage final : public BlockImage {
 public:
  // The file lies in $TMPDIR, or /tmp; it grows with what the guest writes, up to the image's size.
  static Result<std::unique_ptr<BlockImage>> Create(std::unique_ptr<BlockImage> base);
  ~SnapshotImage() override;

  IoResult Read(u64 offset, std::span<u8> data) override;
  IoResult Write(u64 offset, std::span<const u8> data) override;
  IoResult Flush() override { return {}; }
  IoResult Discard(u64, u64) override { return {}; }
  IoResult WriteZeroes(u64 offset, u64 bytes, bool may_unmap) override;

 private:
  static constexpr u64 kCluster = 4096;

  SnapshotImage(std::unique_ptr<BlockImage> base, int fd);
  bool IsWritten(u64 cluster) const { return written_[cluster]; }

  std::unique_ptr<BlockImage> base_;
  const int fd_;
  std::vector<bool> written_;  // by cluster: it is in the file
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_SNAPSHOT_IMAGE_H_
