// SPDX-License-Identifier: Apache-2.0
// The block device (virtio 1.2, section 5.2): one queue, requests of up to 8 MB that are served in
// the order in which they became available.
#ifndef ALIBI_DEVICES_VIRTIO_BLK_H_
#define ALIBI_DEVICES_VIRTIO_BLK_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "devices/block/disk.h"
#include "devices/virtio/virtio_device.h"

namespace alibi::devices::virtio {

class Blk final : public VirtioDevice {
 public:
  // Features (section 5.2.3).
  static constexpr u64 kSizeMax = u64{1} << 1, kSegMax = u64{1} << 2, kReadOnly = u64{1} << 5,
                       kBlockSize = u64{1} << 6, kFlush = u64{1} << 9, kConfigWce = u64{1} << 11,
                       kDiscard = u64{1} << 13, kWriteZeroes = u64{1} << 14;
  // Request types and their outcomes (section 5.2.6).
  enum Type : u32 {
    kIn = 0,
    kOut = 1,
    kFlushType = 4,
    kGetId = 8,
    kDiscardType = 11,
    kZeroType = 13
  };
  enum Outcome : u8 { kOk = 0, kIoError = 1, kUnsupported = 2 };
  static constexpr u64 kIdBytes = 20;
  // A request's data; and what all requests at the image may hold before more are taken.
  static constexpr u32 kMaxSegments = 254, kMaxSegmentBytes = 65536;
  static constexpr u64 kMaxRequest = u64{kMaxSegments} * kMaxSegmentBytes;
  static constexpr u64 kMaxHeld = u64{16} << 20;
  static constexpr unsigned kMaxInFlight = 256;
  // What a notification may read at once: the guest stands still meanwhile, some 100 us per MB.
  static constexpr u64 kMaxNow = u64{2} << 20;

  // `id` has at most 20 characters.
  Blk(std::unique_ptr<block::Disk> disk, std::string id);

  const char* name() const override { return "virtio-blk"; }
  u16 id() const override { return 2; }
  u32 pci_class() const override { return 0x010000; }
  unsigned queue_count() const override { return 1; }
  u64 features() const override;
  std::span<const u8> config() const override { return config_; }
  void WriteConfig(u64 offset, unsigned size, u64 value) override;
  void Start(u64 features) override;
  void Process(unsigned queue) override;

 private:
  struct Header {
    u32 type = 0, reserved = 0;
    u64 sector = 0;
  };
  static_assert(sizeof(Header) == 16);
  struct Range {
    u64 sector = 0;
    u32 sectors = 0, flags = 0;
  };
  static_assert(sizeof(Range) == 16);

  void PutConfig(unsigned offset, u64 value, unsigned size);
  // What follows the header decides; the request, or null and an outcome.
  std::shared_ptr<block::Request> MakeRequest(const Chain& chain, const Header& header,
                                              Outcome* outcome);
  bool MakeRange(const Chain& chain, const Header& header, block::Request* request,
                 Outcome* outcome);
  std::vector<u8> TakeBuffer(u64 bytes);  // of at least so many
  void Done(const Chain& chain, block::Request& request);
  // Gives the guest what the image did, and takes the buffer back. No interrupt.
  void Complete(const Chain& chain, block::Request& request);
  // Ends a request with its outcome; `written` bytes of data are in place.
  void Finish(const Chain& chain, Outcome outcome, u64 written);

  const std::unique_ptr<block::Disk> disk_;
  const std::string id_;
  std::array<u8, 60> config_{};
  bool writeback_allowed_ = false;     // the driver knows how to flush
  unsigned in_flight_ = 0;             // with those of the queue's earlier lives
  u64 held_ = 0;                       // bytes of theirs
  std::vector<std::vector<u8>> free_;  // buffers for requests
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_BLK_H_
