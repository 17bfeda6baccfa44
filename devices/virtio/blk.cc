// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/blk.h"

#include <algorithm>
#include <utility>

namespace alibi::devices::virtio {
namespace {

using block::kSectorBytes;

// The configuration's fields (section 5.2.4).
enum Field : unsigned {
  kCapacity = 0,
  kSizeMaxField = 8,
  kSegMaxField = 12,
  kBlockSizeField = 20,
  kWriteback = 32,
  kQueues = 34,
  kMaxDiscardSectors = 36,
  kMaxDiscardRanges = 40,
  kDiscardAlignment = 44,
  kMaxZeroSectors = 48,
  kMaxZeroRanges = 52,
  kZeroMayUnmap = 56,
};
constexpr u32 kMaxRangeSectors = u32{1} << 21;
constexpr u32 kUnmap = 1;
constexpr std::size_t kMaxFree = 8;
constexpr u64 kMaxKept = u64{2} << 20;

}  // namespace

Blk::Blk(std::unique_ptr<block::Disk> disk, std::string id)
    : disk_(std::move(disk)), id_(std::move(id)) {
  PutConfig(kCapacity, disk_->sectors(), 8);
  PutConfig(kSizeMaxField, kMaxSegmentBytes, 4);
  PutConfig(kSegMaxField, kMaxSegments, 4);
  PutConfig(kBlockSizeField, kSectorBytes, 4);
  PutConfig(kWriteback, 1, 1);
  PutConfig(kQueues, 1, 2);
  PutConfig(kMaxDiscardSectors, kMaxRangeSectors, 4);
  PutConfig(kMaxDiscardRanges, 1, 4);
  PutConfig(kDiscardAlignment, 4096 / kSectorBytes, 4);
  PutConfig(kMaxZeroSectors, kMaxRangeSectors, 4);
  PutConfig(kMaxZeroRanges, 1, 4);
  PutConfig(kZeroMayUnmap, 1, 1);
}

void Blk::PutConfig(unsigned offset, u64 value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) config_[offset + i] = static_cast<u8>(value >> (8 * i));
}

u64 Blk::features() const {
  const u64 all = kSizeMax | kSegMax | kBlockSize | kFlush | kConfigWce;
  return all | (disk_->read_only() ? kReadOnly : kDiscard | kWriteZeroes);
}

void Blk::WriteConfig(u64 offset, unsigned size, u64 value) {
  // The only field that a driver may write.
  if (offset == kWriteback && size == 1) config_[kWriteback] = value & 1;
}

void Blk::Start(u64 features) {
  // Without flushes, everything must be safe when it is done (5.2.5.2).
  writeback_allowed_ = features & (kFlush | kConfigWce);
  PutConfig(kWriteback, 1, 1);
}

void Blk::Process(unsigned number) {
  Virtqueue& queue = transport().queue(number);
  Chain chain;
  bool finished = false;
  u64 now = 0;  // bytes read here
  while (in_flight_ < kMaxInFlight && held_ < kMaxHeld && queue.Pop(&chain)) {
    Header header;
    if (chain.readable_bytes < sizeof header || chain.writable_bytes == 0) {
      queue.Break("a request has room for its header and its status");
      return;
    }
    if (!queue.CopyFrom(chain, 0, &header, sizeof header)) return;
    if (header.type == kGetId) {
      u8 text[kIdBytes] = {};
      std::copy_n(id_.begin(), std::min<std::size_t>(id_.size(), kIdBytes), text);
      const u64 room = std::min<u64>(kIdBytes, chain.writable_bytes - 1);
      const bool copied = queue.CopyTo(chain, 0, text, room);
      Finish(chain, copied ? kOk : kIoError, room);
      finished = true;
      continue;
    }
    Outcome outcome = kOk;
    std::shared_ptr<block::Request> request = MakeRequest(chain, header, &outcome);
    if (request == nullptr) {
      Finish(chain, outcome, 0);
      finished = true;
      continue;
    }
    if (now + request->bytes <= kMaxNow && disk_->ReadNow(*request)) {
      now += request->bytes;
      Complete(chain, *request);
      finished = true;
      continue;
    }
    ++in_flight_;
    held_ += request->data.size();
    request->done = [this, chain](block::Request& done) { Done(chain, done); };
    disk_->Submit(std::move(request));
  }
  if (finished) transport().Interrupt(number);
}

std::shared_ptr<block::Request> Blk::MakeRequest(const Chain& chain, const Header& header,
                                                 Outcome* outcome) {
  auto request = std::make_shared<block::Request>();
  const u64 sectors = disk_->sectors();
  *outcome = kIoError;
  u64 bytes = 0;
  switch (header.type) {
    case kIn:
    case kOut:
      bytes = header.type == kIn ? chain.writable_bytes - 1 : chain.readable_bytes - sizeof header;
      if (bytes == 0 || bytes % kSectorBytes != 0 || bytes > kMaxRequest ||
          header.sector > sectors || bytes / kSectorBytes > sectors - header.sector) {
        return nullptr;
      }
      request->operation = header.type == kIn ? block::Operation::kRead : block::Operation::kWrite;
      request->offset = header.sector * kSectorBytes;
      request->bytes = bytes;
      request->data = TakeBuffer(bytes);
      if (header.type == kIn) break;
      if (disk_->read_only() ||
          !transport().queue(0).CopyFrom(chain, sizeof header, request->data.data(), bytes)) {
        return nullptr;
      }
      request->durable = !writeback_allowed_ || config_[kWriteback] == 0;
      break;
    case kFlushType:
      request->operation = block::Operation::kFlush;
      break;
    case kDiscardType:
    case kZeroType:
      if (!MakeRange(chain, header, request.get(), outcome)) return nullptr;
      break;
    default:
      *outcome = kUnsupported;
      return nullptr;
  }
  *outcome = kOk;
  return request;
}

bool Blk::MakeRange(const Chain& chain, const Header& header, block::Request* request,
                    Outcome* outcome) {
  Range range;
  const u64 sectors = disk_->sectors();
  if (disk_->read_only() || chain.readable_bytes != sizeof header + sizeof range ||
      !transport().queue(0).CopyFrom(chain, sizeof header, &range, sizeof range)) {
    return false;
  }
  const bool zeroes = header.type == kZeroType;
  if (range.flags & ~(zeroes ? kUnmap : 0)) {
    *outcome = kUnsupported;
    return false;
  }
  if (range.sectors > kMaxRangeSectors || range.sector > sectors ||
      range.sectors > sectors - range.sector) {
    return false;
  }
  request->operation = zeroes ? block::Operation::kWriteZeroes : block::Operation::kDiscard;
  request->offset = range.sector * kSectorBytes;
  request->bytes = u64{range.sectors} * kSectorBytes;
  request->may_unmap = range.flags & kUnmap;
  request->durable = !writeback_allowed_ || config_[kWriteback] == 0;
  return true;
}

// New memory of this size comes from the host's kernel, which clears it page by page: that costs
// more than reading a cached file.
std::vector<u8> Blk::TakeBuffer(u64 bytes) {
  auto best = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    if (one->size() >= bytes && (best == free_.end() || one->size() < best->size())) best = one;
  }
  // None is large enough: the smallest makes room.
  if (best == free_.end()) {
    if (free_.size() == kMaxFree) {
      free_.erase(std::min_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) {
        return a.size() < b.size();
      }));
    }
    return std::vector<u8>(bytes);
  }
  std::swap(*best, free_.back());
  std::vector<u8> buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void Blk::Done(const Chain& chain, block::Request& request) {
  --in_flight_;
  held_ -= request.data.size();
  const bool stale = transport().queue(0).IsStale(chain);
  Complete(chain, request);
  if (!stale) transport().Interrupt(0);
  if (transport().running()) Process(0);
}

void Blk::Complete(const Chain& chain, block::Request& request) {
  Virtqueue& queue = transport().queue(0);
  bool ok = request.result.ok();
  u64 written = 0;
  if (ok && request.operation == block::Operation::kRead) {
    written = request.bytes;
    ok = queue.CopyTo(chain, 0, request.data.data(), written);
  }
  Finish(chain, ok ? kOk : kIoError, ok ? written : 0);
  // Larger ones are rare, and memory is bounded.
  if (free_.size() < kMaxFree && request.data.size() <= kMaxKept) {
    free_.push_back(std::move(request.data));
  }
}

void Blk::Finish(const Chain& chain, Outcome outcome, u64 written) {
  Virtqueue& queue = transport().queue(0);
  const u8 status = outcome;
  queue.CopyTo(chain, chain.writable_bytes - 1, &status, 1);
  // The status is the last byte: with all of the data in front of it, everything is written.
  const bool whole = written == chain.writable_bytes - 1;
  queue.Push(chain, static_cast<u32>(whole ? chain.writable_bytes : written));
}

}  // namespace alibi::devices::virtio
