// SPDX-License-Identifier: Apache-2.0
// Bus-master IDE: the registers and the scatter/gather engine of one channel ("Programming
// Interface for Bus Master IDE Controller", revision 1.0; PIIX3 data sheet, 2.7).
#ifndef ALIBI_DEVICES_IDE_BUS_MASTER_H_
#define ALIBI_DEVICES_IDE_BUS_MASTER_H_

#include <functional>

#include "base/types.h"
#include "devices/dma.h"

namespace alibi::devices {

class BusMasterChannel {
 public:
  static constexpr unsigned kPorts = 8;

  // `allowed`: may the function reach memory now. `started` is called when the guest starts a run.
  BusMasterChannel(Dma& dma, std::function<bool()> allowed, std::function<void()> started);

  // Offsets 0 to 7, a byte at a time.
  u8 Read(unsigned offset) const;
  void Write(unsigned offset, u8 value);
  // Write(), unless that starts a run: false, and nothing is changed.
  bool WriteQuietly(unsigned offset, u8 value);
  bool Starts(unsigned offset, u8 value) const {
    return offset == kCommandAt && (value & kStart) && !(command_ & kStart);
  }

  // The guest has started a run that has not ended.
  bool running() const { return (command_ & kStart) && (status_ & kActive); }

  // Moves bytes between a drive and the memory that the table of regions names, where the last call
  // stopped. Fewer than asked: the table or the memory ended; the run is over then.
  u64 ToMemory(const u8* data, u64 size);
  u64 FromMemory(u8* data, u64 size);

  void Reset();

  // The drive raised its interrupt.
  void NoteInterrupt() { status_ |= kInterrupt; }
  // The drive has moved everything it had.
  void EndOfTransfer();

 private:
  // Registers.
  static constexpr unsigned kCommandAt = 0, kStatusAt = 2, kTableAt = 4;
  enum : u8 { kStart = 1, kToMemory = 8 };                // command
  enum : u8 { kActive = 1, kError = 2, kInterrupt = 4 };  // status
  static constexpr u8 kDriveBits = 0x60;
  // A table does not cross 64 KB: more regions than that would be no table.
  static constexpr unsigned kMaxRegions = 65536 / 8;

  template <class Step>
  u64 Move(u64 size, bool to_memory, Step step);
  bool NextRegion();

  Dma& dma_;
  const std::function<bool()> allowed_;
  const std::function<void()> started_;
  u8 command_ = 0;
  u8 status_ = 0;
  u32 table_ = 0;
  // Where the run is.
  unsigned regions_ = 0;  // read so far
  bool last_region_ = false;
  u32 address_ = 0;
  u32 left_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IDE_BUS_MASTER_H_
