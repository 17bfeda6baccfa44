// SPDX-License-Identifier: Apache-2.0
// What disks and CD-ROM drives on an IDE channel have in common: the task file, the data port's
// blocks, DMA, the interrupt, and the way to the image's worker (ATA/ATAPI-6, chapters 5 to 9).
//
// A command runs in steps: registers -> BSY while the worker is busy -> DRQ for a block through the
// data port, or DMA -> ... -> an end with status and interrupt. Steps of a command that a reset
// ended find another generation and do nothing.
#ifndef ALIBI_DEVICES_IDE_IDE_DRIVE_H_
#define ALIBI_DEVICES_IDE_IDE_DRIVE_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "devices/block/disk.h"
#include "devices/ide/bus_master.h"

namespace alibi::devices {

// Registers of the command block, by offset.
enum IdeRegister : unsigned {
  kIdeData = 0,
  kIdeError = 1,  // features, when written
  kIdeCount = 2,
  kIdeLbaLow = 3,
  kIdeLbaMid = 4,
  kIdeLbaHigh = 5,
  kIdeDevice = 6,
  kIdeStatus = 7,  // the command, when written
};

// Bits of the status register, and of the error register.
inline constexpr u8 kIdeErr = 0x01, kIdeDrq = 0x08, kIdeSeek = 0x10, kIdeFault = 0x20,
                    kIdeReady = 0x40, kIdeBusy = 0x80;
inline constexpr u8 kIdeAborted = 0x04, kIdeNotFound = 0x10, kIdeUncorrectable = 0x40;

class IdeDrive {
 public:
  // What a drive needs of its channel; both outlive it.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void InterruptChanged() = 0;
    virtual BusMasterChannel& bus_master() = 0;
  };

  IdeDrive(std::unique_ptr<block::Disk> disk, Host& host);
  virtual ~IdeDrive() = default;
  IdeDrive(const IdeDrive&) = delete;
  IdeDrive& operator=(const IdeDrive&) = delete;

  // --- For the channel ---
  // Not data, status or command. `high`: the value written before the last one (HOB).
  u8 ReadRegister(unsigned index, bool high) const;
  void WriteRegister(unsigned index, u8 value);
  u8 status() const { return status_; }
  void Command(u8 command);
  u32 ReadData(unsigned size);
  void WriteData(unsigned size, u32 value);
  // SRST, or EXECUTE DEVICE DIAGNOSTIC: what runs is forgotten, the signature shows.
  void Reset();
  void Diagnose();
  bool interrupt() const { return interrupt_; }
  void ClearInterrupt() { SetInterrupt(false); }
  // The guest started the bus master.
  void DmaStarted() { ContinueDma(); }

 protected:
  enum class Direction : u8 { kNone, kIn, kOut };
  // Most bytes that a step moves between the image and the drive.
  static constexpr u64 kMaxStep = 1 << 20;

  // --- What the kinds of drives do ---
  virtual void Execute(u8 command) = 0;
  virtual void PutSignature() = 0;
  virtual void WasReset() = 0;
  // The guest has taken the whole block, or filled it.
  virtual void BlockDone() = 0;
  // The DMA step is in memory, or its bytes are in buffer().
  virtual void DmaDone() = 0;
  virtual void ImageDone(const block::Request& request) = 0;

  // --- Steps ---
  // Bytes [begin, end) of buffer() are the data port's next block.
  void OfferBlock(u64 begin, u64 end, bool with_interrupt);
  void AskForBlock(u64 begin, u64 end, bool with_interrupt);
  // All of buffer() to or from memory, when the bus master runs.
  void StartDma(Direction direction);
  // BSY until ImageDone(). The buffer travels with a read or a write.
  void AskImage(block::Operation operation, u64 offset, u64 bytes, bool durable = false);
  void EndCommand();
  void AbortCommand(u8 error = kIdeAborted);
  void MakeBusy();
  void SetInterrupt(bool level);

  u8& reg(unsigned index) { return now_[index]; }
  u8& before(unsigned index) { return before_[index]; }
  // Where the last block ended.
  u64 block_end() const { return block_end_; }
  u8 features() const { return features_; }
  void SetError(u8 error) { now_[kIdeError] = error; }
  void set_status(u8 status) { status_ = status; }
  std::vector<u8>& buffer() { return buffer_; }
  block::Disk& disk() { return *disk_; }

 private:
  // What a command may read at once: the guest stands still meanwhile.
  static constexpr u64 kMaxNow = 2 * kMaxStep;

  void ContinueDma();
  void BlockEnded();
  void Submit(std::shared_ptr<block::Request> request);
  // Whatever runs no longer does.
  void Forget();

  const std::unique_ptr<block::Disk> disk_;
  Host& host_;
  std::array<u8, 8> now_{};
  std::array<u8, 8> before_{};
  u8 features_ = 0;
  u8 status_ = 0;
  bool interrupt_ = false;
  u32 generation_ = 0;
  u64 now_left_ = 0;        // of kMaxNow, for the command that runs
  unsigned in_flight_ = 0;  // requests at the image, of this generation and of earlier ones
  std::shared_ptr<block::Request> deferred_;  // waits until there are fewer

  std::vector<u8> buffer_;
  Direction block_ = Direction::kNone;
  u64 position_ = 0, block_end_ = 0;
  Direction dma_ = Direction::kNone;
};

// Identification strings: two characters per word, the first one in the upper byte.
void PutIdeText(std::vector<u8>& identification, unsigned word, unsigned bytes,
                const std::string& text);
void PutIdeWord(std::vector<u8>& identification, unsigned word, u16 value);

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IDE_IDE_DRIVE_H_
