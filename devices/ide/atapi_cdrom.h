// SPDX-License-Identifier: Apache-2.0
// A CD-ROM drive with its disc on an IDE channel: the packet commands of ATA/ATAPI-6 9.8, SPC-3
// and MMC-4 that firmware, boot loaders and systems use. A disc is one data track of 2,048-byte
// blocks, as an ISO 9660 image has them.
#ifndef ALIBI_DEVICES_IDE_ATAPI_CDROM_H_
#define ALIBI_DEVICES_IDE_ATAPI_CDROM_H_

#include <memory>

#include "devices/ide/ide_drive.h"

namespace alibi::devices {

class AtapiCdrom final : public IdeDrive {
 public:
  static constexpr u64 kBlockBytes = 2048;

  AtapiCdrom(std::unique_ptr<block::Disk> disk, Host& host);

 private:
  struct Row;
  struct Sense {
    u8 key = 0, code = 0, qualifier = 0;
  };
  enum class Phase : u8 { kIdle, kIdentification, kPacket, kReply, kRead };

  void Execute(u8 command) override;
  void PutSignature() override;
  void WasReset() override;
  void BlockDone() override;
  void DmaDone() override;
  void ImageDone(const block::Request& request) override;

  static const Row* Find(u8 operation);
  void ExecutePacket();
  void Succeed();
  void Fail(const Sense& sense);
  // Sends the buffer, cut to what the packet allows.
  void Reply(u64 allowed);
  void ReadBlocks(u64 lba, u64 count);
  void NextStep();
  void OfferPiece(u64 begin);
  void IdentifyPacketDevice();
  u64 blocks() { return disk().size_bytes() / kBlockBytes; }

  u8 Byte(unsigned index) const { return packet_[index]; }
  u32 Number(unsigned index, unsigned bytes) const;

  // Packet commands, each named after the manual's.
  void TestUnitReady() { Succeed(); }
  void RequestSense();
  void Inquiry();
  void ModeSense6();
  void ModeSense10();
  void StartStopUnit();
  void ReadCapacity();
  void Read10();
  void Read12();
  void ReadCd();
  void ReadToc();
  void GetConfiguration();
  void GetEventStatusNotification();
  void ReadDiscInformation();
  void ReadTrackInformation();
  void MechanismStatus();

  std::vector<u8> ModePages(u8 page, u64 header);

  Phase phase_ = Phase::kIdle;
  bool by_dma_ = false;
  u64 limit_ = 0;  // bytes of a block of the data port
  std::array<u8, 12> packet_{};
  Sense sense_;
  bool loaded_ = true;
  bool event_ = false;      // the tray moved since the last GET EVENT STATUS
  u64 lba_ = 0, left_ = 0;  // blocks of a read
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IDE_ATAPI_CDROM_H_
