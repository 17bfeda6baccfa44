// SPDX-License-Identifier: Apache-2.0
#include "devices/block/snapshot_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace alibi::block {
namespace {

// Of clusters that were written, so that the file has them.
IoResult ReadAll(int fd, u64 offset, std::span<u8> data) {
  u64 got = 0;
  const IoResult read = ReadAt(fd, offset, data, &got);
  return read.ok() && got < data.size() ? IoResult{EIO} : read;
}

}  // namespace

Result<std::unique_ptr<BlockImage>> SnapshotImage::Create(std::unique_ptr<BlockImage> base,
                                                          u64 most_bytes) {
  const u64 clusters = (base->size_bytes() + kCluster - 1) / kCluster;
  Bits written(static_cast<u8*>(calloc((clusters + 7) / 8, 1)));
  if (written == nullptr) {
    return Error{"snapshot: this host has no memory for a disk of " +
                 std::to_string(base->size_bytes()) + " bytes"};
  }
  const char* folder = getenv("TMPDIR");
  std::string name = std::string(folder == nullptr || *folder == '\0' ? "/tmp" : folder);
  name += "/alibi-snapshot-XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    return Error{"snapshot: no file can be made in '" + name.substr(0, name.rfind('/')) +
                 "': " + std::strerror(errno) + "; set TMPDIR"};
  }
  unlink(name.c_str());
  return std::unique_ptr<BlockImage>(
      new SnapshotImage(std::move(base), most_bytes, std::move(written), fd));
}

SnapshotImage::SnapshotImage(std::unique_ptr<BlockImage> base, u64 most_bytes, Bits written, int fd)
    : base_(std::move(base)),
      most_clusters_(most_bytes / kCluster),
      written_(std::move(written)),
      fd_(fd) {
  size_bytes_ = base_->size_bytes();
}

SnapshotImage::~SnapshotImage() { close(fd_); }

void SnapshotImage::SetWritten(u64 cluster) {
  if (IsWritten(cluster)) return;
  written_[cluster / 8] = static_cast<u8>(written_[cluster / 8] | 1 << cluster % 8);
  ++written_clusters_;
}

bool SnapshotImage::HasRoom(u64 first_cluster, u64 last_cluster) const {
  u64 clusters = written_clusters_;
  for (u64 cluster = first_cluster; cluster <= last_cluster; ++cluster) {
    clusters += !IsWritten(cluster);
  }
  return clusters <= most_clusters_;
}

u64 SnapshotImage::SamePlace(u64 offset, u64 bytes) const {
  const bool written = IsWritten(offset / kCluster);
  u64 end = offset / kCluster * kCluster + kCluster;
  while (end < offset + bytes && IsWritten(end / kCluster) == written) end += kCluster;
  return std::min(end - offset, bytes);
}

IoResult SnapshotImage::Read(u64 offset, std::span<u8> data) {
  while (!data.empty()) {
    const std::span<u8> piece = data.first(SamePlace(offset, data.size()));
    const IoResult read =
        IsWritten(offset / kCluster) ? ReadAll(fd_, offset, piece) : base_->Read(offset, piece);
    if (!read.ok()) return read;
    offset += piece.size();
    data = data.subspan(piece.size());
  }
  return {};
}

bool SnapshotImage::ReadCached(u64 offset, std::span<u8> data) {
  while (!data.empty()) {
    const std::span<u8> piece = data.first(SamePlace(offset, data.size()));
    if (!(IsWritten(offset / kCluster) ? cached_reads_.Read(fd_, offset, piece)
                                       : base_->ReadCached(offset, piece))) {
      return false;
    }
    offset += piece.size();
    data = data.subspan(piece.size());
  }
  return true;
}

IoResult SnapshotImage::Write(u64 offset, std::span<const u8> data) {
  const u64 end = offset + data.size();
  if (!HasRoom(offset / kCluster, (end - 1) / kCluster)) return {EDQUOT};
  // The first and the last cluster may be written in part: the rest comes from below.
  for (const u64 cluster : {offset / kCluster, (end - 1) / kCluster}) {
    const u64 begin = cluster * kCluster;
    const u64 bytes = std::min(kCluster, size_bytes_ - begin);
    if (IsWritten(cluster) || (begin >= offset && begin + bytes <= end)) continue;
    u8 below[kCluster];
    IoResult copied = base_->Read(begin, std::span(below).first(bytes));
    if (copied.ok()) copied = WriteAt(fd_, begin, std::span<const u8>(below).first(bytes));
    if (!copied.ok()) return copied;
    SetWritten(cluster);
  }
  const IoResult done = WriteAt(fd_, offset, data);
  if (!done.ok()) return done;
  for (u64 cluster = offset / kCluster; cluster <= (end - 1) / kCluster; ++cluster) {
    SetWritten(cluster);
  }
  return {};
}

IoResult SnapshotImage::WriteZeroes(u64 offset, u64 bytes, bool) {
  return StoreZeroes(offset, bytes);
}

}  // namespace alibi::block
