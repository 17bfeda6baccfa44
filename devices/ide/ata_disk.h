// SPDX-License-Identifier: Apache-2.0
// A disk on an IDE channel (ATA/ATAPI-6): PIO, multiple, DMA, 28- and 48-bit addresses.
#ifndef ALIBI_DEVICES_IDE_ATA_DISK_H_
#define ALIBI_DEVICES_IDE_ATA_DISK_H_

#include <memory>
#include <string>

#include "devices/ide/ide_drive.h"

namespace alibi::devices {

class AtaDisk final : public IdeDrive {
 public:
  // `serial` has at most 20 characters.
  AtaDisk(std::unique_ptr<block::Disk> disk, Host& host, std::string serial);

 private:
  struct Row;
  // How a command's data moves.
  enum Mode : u8 { kSectors, kMultiple, kDma, kVerify };
  enum : u8 { kWrite = 1, kExtended = 2, kForceUnit = 4 };  // flags of transfers
  static constexpr unsigned kMaxMultiple = 16;

  void Execute(u8 command) override;
  void PutSignature() override;
  void WasReset() override;
  void BlockDone() override;
  void DmaDone() override;
  void ImageDone(const block::Request& request) override;

  static const Row* Find(u8 command);
  void Transfer(const Row& row);
  bool ReadAddress(bool extended, u64* lba, u64* sectors);
  void NextStep();
  void NextBlock(u64 begin, bool with_interrupt);
  u64 StepBytes() const;

  // Commands without sectors, each named after the manual's.
  void Succeed(const Row&) { EndCommand(); }
  void ExecuteDeviceDiagnostic(const Row&);
  void InitializeDeviceParameters(const Row&);
  void SetMultipleMode(const Row&);
  void CheckPowerMode(const Row&);
  void FlushCache(const Row&);
  void IdentifyDevice(const Row&);
  void ReadNativeMaxAddress(const Row& row);
  void SetFeatures(const Row&);
  void Smart(const Row&);

  void OfferPage();

  const std::string serial_;
  unsigned multiple_ = 0;  // sectors per block; 0: off
  unsigned heads_ = 16, sectors_per_track_ = 63;
  u8 transfer_mode_ = 0x45;  // as SET FEATURES counts: Ultra DMA 5
  bool write_cache_ = true;
  bool smart_ = true;

  // The transfer that runs.
  Mode mode_ = kSectors;
  bool write_ = false;
  bool force_unit_ = false;
  bool page_ = false;  // one block that is no sector: identification and the like
  u64 lba_ = 0, left_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IDE_ATA_DISK_H_
