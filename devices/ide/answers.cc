// SPDX-License-Identifier: Apache-2.0
// Accesses that are served next to translated code, because they only read or change registers:
// most of the twenty and more that a driver makes for each command. Compiled for general registers
// only.
#include "devices/ide/ide_controller.h"

namespace alibi::devices {

// --- Drive ---

u8 IdeDrive::ReadRegister(unsigned index, bool high) const {
  return high && index != kIdeError && index != kIdeDevice ? before_[index] : now_[index];
}

void IdeDrive::WriteRegister(unsigned index, u8 value) {
  // Registers belong to the drive while it works (6.2.7).
  if (status_ & (kIdeBusy | kIdeDrq)) return;
  if (index == kIdeError) {
    features_ = value;
    return;
  }
  before_[index] = now_[index];
  now_[index] = value;
}

// --- Channel ---

u8 IdeChannel::Status() const { return chosen() == nullptr ? u8{0} : chosen()->status(); }

u8 IdeChannel::ReadTaskFile(unsigned index) const {
  const bool high = control_ & kHighBytes;
  if (chosen() != nullptr) {
    const u8 value = chosen()->ReadRegister(index, high);
    return index == kIdeDevice
               ? static_cast<u8>((value & ~kSecondDrive) | (chosen_ != 0 ? kSecondDrive : 0) | 0xa0)
               : value;
  }
  // The other drive answers for one that is missing (ATA/ATAPI-6, 9.16.1); its task file is what
  // was written to both.
  const IdeDrive* other = drives_[chosen_ ^ 1].get();
  if (other == nullptr) return 0;
  return index == kIdeError ? u8{0} : other->ReadRegister(index, high);
}

bool IdeChannel::KeepRegister(unsigned index, u8 value) {
  if (index == kIdeDevice && ((value & kSecondDrive) != 0) != (chosen_ != 0)) return false;
  control_ &= static_cast<u8>(~kHighBytes);
  for (const auto& drive : drives_) {
    if (drive != nullptr) drive->WriteRegister(index, value);
  }
  return true;
}

bool IdeChannel::CommandBlock::Peek(u64 offset, unsigned size, u64* value) const {
  if (size != 1 || offset == kIdeData) return false;
  if (offset != kIdeStatus) {
    *value = channel_.ReadTaskFile(static_cast<unsigned>(offset));
    return true;
  }
  // Reading it acknowledges an interrupt.
  if (channel_.chosen() != nullptr && channel_.chosen()->interrupt()) return false;
  *value = channel_.Status();
  return true;
}

bool IdeChannel::CommandBlock::Poke(u64 offset, unsigned size, u64 value) {
  if (size != 1 || offset == kIdeData || offset == kIdeStatus) return false;
  return channel_.KeepRegister(static_cast<unsigned>(offset), static_cast<u8>(value));
}

bool IdeChannel::ControlBlock::Peek(u64, unsigned, u64* value) const {
  *value = channel_.control_ & kSoftwareReset ? kIdeBusy : channel_.Status();
  return true;
}

// --- Bus masters ---

u8 BusMasterChannel::Read(unsigned offset) const {
  switch (offset) {
    case kCommandAt:
      return command_;
    case kStatusAt:
      return status_;
    default:
      return offset >= kTableAt ? static_cast<u8>(table_ >> (8 * (offset - kTableAt))) : u8{0xff};
  }
}

bool BusMasterChannel::WriteQuietly(unsigned offset, u8 value) {
  if (Starts(offset, value)) return false;
  if (offset == kCommandAt) {
    command_ = value & (kStart | kToMemory);
    if (!(command_ & kStart)) status_ &= static_cast<u8>(~kActive);
  } else if (offset == kStatusAt) {
    // The two events are cleared by ones.
    const u8 events = status_ & static_cast<u8>(~value) & (kError | kInterrupt);
    status_ = static_cast<u8>((status_ & kActive) | events | (value & kDriveBits));
  } else if (offset >= kTableAt) {
    const unsigned shift = 8 * (offset - kTableAt);
    table_ = (table_ & ~(u32{0xff} << shift)) | u32{value} << shift;
    table_ &= ~u32{3};
  }
  return true;
}

bool IdeController::BusMasterPorts::Peek(u64 offset, unsigned size, u64* value) const {
  *value = 0;
  for (unsigned i = 0; i < size; ++i) {
    const unsigned at = static_cast<unsigned>(offset) + i;
    const BusMasterChannel& channel =
        controller_.channels_[at / BusMasterChannel::kPorts]->bus_master();
    *value |= u64{channel.Read(at % BusMasterChannel::kPorts)} << (8 * i);
  }
  return true;
}

bool IdeController::BusMasterPorts::Poke(u64 offset, unsigned size, u64 value) {
  const auto each = [&](auto what) {
    for (unsigned i = 0; i < size; ++i) {
      const unsigned at = static_cast<unsigned>(offset) + i;
      BusMasterChannel& channel =
          controller_.channels_[at / BusMasterChannel::kPorts]->bus_master();
      if (!what(channel, at % BusMasterChannel::kPorts, static_cast<u8>(value >> (8 * i)))) {
        return false;
      }
    }
    return true;
  };
  return each([](const BusMasterChannel& channel, unsigned at, u8 byte) {
           return !channel.Starts(at, byte);
         }) &&
         each([](BusMasterChannel& channel, unsigned at, u8 byte) {
           return channel.WriteQuietly(at, byte);
         });
}

}  // namespace alibi::devices
