// SPDX-License-Identifier: Apache-2.0
#include "devices/ide/ata_disk.h"

#include <algorithm>
#include <utility>

namespace alibi::devices {
namespace {

using block::kSectorBytes;

constexpr u8 kLbaMode = 0x40;       // of the device register
constexpr u64 kMax28 = 0x0fffffff;  // sectors that 28-bit commands reach
constexpr u64 kMaxChs = 16383ull * 16 * 63;
constexpr u8 kSmartMid = 0x4f, kSmartHigh = 0xc2;

}  // namespace

struct AtaDisk::Row {
  u8 first, last;  // commands
  void (AtaDisk::*run)(const Row&);
  Mode mode = kSectors;
  u8 flags = 0;
};

const AtaDisk::Row* AtaDisk::Find(u8 command) {
  static constexpr Row kRows[] = {
      {0x10, 0x1f, &AtaDisk::Succeed},  // RECALIBRATE
      {0x20, 0x21, &AtaDisk::Transfer, kSectors},
      {0x24, 0x24, &AtaDisk::Transfer, kSectors, kExtended},
      {0x25, 0x25, &AtaDisk::Transfer, kDma, kExtended},
      {0x27, 0x27, &AtaDisk::ReadNativeMaxAddress, kSectors, kExtended},
      {0x29, 0x29, &AtaDisk::Transfer, kMultiple, kExtended},
      {0x30, 0x31, &AtaDisk::Transfer, kSectors, kWrite},
      {0x34, 0x34, &AtaDisk::Transfer, kSectors, kWrite | kExtended},
      {0x35, 0x35, &AtaDisk::Transfer, kDma, kWrite | kExtended},
      {0x39, 0x39, &AtaDisk::Transfer, kMultiple, kWrite | kExtended},
      {0x3d, 0x3d, &AtaDisk::Transfer, kDma, kWrite | kExtended | kForceUnit},
      {0x40, 0x41, &AtaDisk::Transfer, kVerify},
      {0x42, 0x42, &AtaDisk::Transfer, kVerify, kExtended},
      {0x70, 0x7f, &AtaDisk::Succeed},  // SEEK
      {0x90, 0x90, &AtaDisk::ExecuteDeviceDiagnostic},
      {0x91, 0x91, &AtaDisk::InitializeDeviceParameters},
      {0xb0, 0xb0, &AtaDisk::Smart},
      {0xc4, 0xc4, &AtaDisk::Transfer, kMultiple},
      {0xc5, 0xc5, &AtaDisk::Transfer, kMultiple, kWrite},
      {0xc6, 0xc6, &AtaDisk::SetMultipleMode},
      {0xc8, 0xc9, &AtaDisk::Transfer, kDma},
      {0xca, 0xcb, &AtaDisk::Transfer, kDma, kWrite},
      {0xce, 0xce, &AtaDisk::Transfer, kMultiple, kWrite | kExtended | kForceUnit},
      {0xe0, 0xe3, &AtaDisk::Succeed},  // STANDBY and IDLE
      {0xe5, 0xe5, &AtaDisk::CheckPowerMode},
      {0xe6, 0xe6, &AtaDisk::Succeed},  // SLEEP
      {0xe7, 0xe7, &AtaDisk::FlushCache},
      {0xea, 0xea, &AtaDisk::FlushCache},
      {0xec, 0xec, &AtaDisk::IdentifyDevice},
      {0xef, 0xef, &AtaDisk::SetFeatures},
      {0xf8, 0xf8, &AtaDisk::ReadNativeMaxAddress},
  };
  for (const Row& row : kRows) {
    if (command >= row.first && command <= row.last) return &row;
  }
  return nullptr;
}

AtaDisk::AtaDisk(std::unique_ptr<block::Disk> disk, Host& host, std::string serial)
    : IdeDrive(std::move(disk), host), serial_(std::move(serial)) {
  Diagnose();
}

void AtaDisk::PutSignature() {
  reg(kIdeCount) = 1;
  reg(kIdeLbaLow) = 1;
  reg(kIdeLbaMid) = 0;
  reg(kIdeLbaHigh) = 0;
  reg(kIdeDevice) = 0;
  set_status(kIdeReady | kIdeSeek);
}

void AtaDisk::WasReset() {
  multiple_ = 0;
  page_ = false;
}

void AtaDisk::Execute(u8 command) {
  const Row* row = Find(command);
  page_ = false;
  if (row == nullptr) {
    AbortCommand();
    return;
  }
  (this->*row->run)(*row);
}

// --- Transfers ---

bool AtaDisk::ReadAddress(bool extended, u64* lba, u64* sectors) {
  const u8 device = reg(kIdeDevice);
  const u64 low = reg(kIdeLbaLow), mid = reg(kIdeLbaMid), high = reg(kIdeLbaHigh);
  if (extended) {
    *sectors = u64{before(kIdeCount)} << 8 | reg(kIdeCount);
    if (*sectors == 0) *sectors = 65536;
    *lba = low | mid << 8 | high << 16 | u64{before(kIdeLbaLow)} << 24 |
           u64{before(kIdeLbaMid)} << 32 | u64{before(kIdeLbaHigh)} << 40;
  } else {
    *sectors = reg(kIdeCount);
    if (*sectors == 0) *sectors = 256;
    if (device & kLbaMode) {
      *lba = low | mid << 8 | high << 16 | u64{device & 0xfu} << 24;
    } else {
      if (low == 0) return false;  // sectors of a track count from 1
      *lba = ((mid | high << 8) * heads_ + (device & 0xf)) * sectors_per_track_ + low - 1;
    }
  }
  return *lba <= disk().sectors() && *sectors <= disk().sectors() - *lba;
}

void AtaDisk::Transfer(const Row& row) {
  mode_ = row.mode;
  write_ = row.flags & kWrite;
  force_unit_ = row.flags & kForceUnit;
  if (mode_ == kMultiple && multiple_ == 0) {
    AbortCommand();
    return;
  }
  if (!ReadAddress(row.flags & kExtended, &lba_, &left_)) {
    AbortCommand(kIdeNotFound);
    return;
  }
  if (mode_ == kVerify) {
    EndCommand();
  } else if (!write_) {
    NextStep();
  } else {
    buffer().resize(StepBytes());
    if (mode_ == kDma) {
      StartDma(Direction::kOut);
    } else {
      NextBlock(0, /*with_interrupt=*/false);
    }
  }
}

u64 AtaDisk::StepBytes() const { return std::min(left_ * kSectorBytes, kMaxStep); }

// The image's part of the next step: its bytes are wanted, or are in the buffer.
void AtaDisk::NextStep() {
  AskImage(write_ ? block::Operation::kWrite : block::Operation::kRead, lba_ * kSectorBytes,
           StepBytes(), write_ && (force_unit_ || !write_cache_));
}

void AtaDisk::NextBlock(u64 begin, bool with_interrupt) {
  const u64 block = kSectorBytes * (mode_ == kMultiple ? multiple_ : 1);
  const u64 end = std::min<u64>(begin + block, buffer().size());
  if (write_) {
    AskForBlock(begin, end, with_interrupt);
  } else {
    OfferBlock(begin, end, with_interrupt);
  }
}

void AtaDisk::ImageDone(const block::Request& request) {
  if (!request.result.ok()) {
    AbortCommand(request.operation == block::Operation::kRead ? kIdeUncorrectable : kIdeAborted);
    return;
  }
  if (request.operation == block::Operation::kFlush) {
    EndCommand();
    return;
  }
  lba_ += buffer().size() / kSectorBytes;
  left_ -= buffer().size() / kSectorBytes;
  if (!write_) {
    if (mode_ == kDma) {
      StartDma(Direction::kIn);
    } else {
      NextBlock(0, /*with_interrupt=*/true);
    }
  } else if (left_ == 0) {
    EndCommand();
  } else {
    buffer().resize(StepBytes());
    if (mode_ == kDma) {
      StartDma(Direction::kOut);
    } else {
      NextBlock(0, /*with_interrupt=*/true);
    }
  }
}

void AtaDisk::DmaDone() {
  if (write_ || left_ != 0) {
    NextStep();
  } else {
    EndCommand();
  }
}

void AtaDisk::BlockDone() {
  if (page_) {
    set_status(kIdeReady | kIdeSeek);
  } else if (block_end() < buffer().size()) {
    NextBlock(block_end(), /*with_interrupt=*/true);
  } else if (write_ || left_ != 0) {
    NextStep();
  } else {
    set_status(kIdeReady | kIdeSeek);
  }
}

// --- Other commands ---

void AtaDisk::ExecuteDeviceDiagnostic(const Row&) {
  Diagnose();
  SetInterrupt(true);
}

void AtaDisk::InitializeDeviceParameters(const Row&) {
  if (reg(kIdeCount) == 0) {
    AbortCommand();
    return;
  }
  sectors_per_track_ = reg(kIdeCount);
  heads_ = (reg(kIdeDevice) & 0xf) + 1u;
  EndCommand();
}

void AtaDisk::SetMultipleMode(const Row&) {
  const unsigned count = reg(kIdeCount);
  if (count > kMaxMultiple || (count & (count - 1)) != 0) {
    AbortCommand();
    return;
  }
  multiple_ = count;
  EndCommand();
}

void AtaDisk::CheckPowerMode(const Row&) {
  reg(kIdeCount) = 0xff;  // active
  EndCommand();
}

void AtaDisk::FlushCache(const Row&) { AskImage(block::Operation::kFlush, 0, 0); }

void AtaDisk::ReadNativeMaxAddress(const Row& row) {
  const bool extended = row.flags & kExtended;
  const u64 last = (extended ? disk().sectors() : std::min(disk().sectors(), kMax28)) - 1;
  reg(kIdeLbaLow) = static_cast<u8>(last);
  reg(kIdeLbaMid) = static_cast<u8>(last >> 8);
  reg(kIdeLbaHigh) = static_cast<u8>(last >> 16);
  if (extended) {
    before(kIdeLbaLow) = static_cast<u8>(last >> 24);
    before(kIdeLbaMid) = static_cast<u8>(last >> 32);
    before(kIdeLbaHigh) = static_cast<u8>(last >> 40);
  } else {
    reg(kIdeDevice) = static_cast<u8>((reg(kIdeDevice) & 0xf0) | last >> 24);
  }
  EndCommand();
}

void AtaDisk::SetFeatures(const Row&) {
  switch (features()) {
    case 0x02:
      write_cache_ = true;
      break;
    case 0x82:
      // What was written with the cache on must be safe as well.
      write_cache_ = false;
      AskImage(block::Operation::kFlush, 0, 0);
      return;
    case 0x03:
      transfer_mode_ = reg(kIdeCount);
      break;
    case 0x05:  // power management, acoustics, read look-ahead, defaults: nothing to do
    case 0x42:
    case 0x55:
    case 0x66:
    case 0x85:
    case 0xaa:
    case 0xc2:
    case 0xcc:
      break;
    default:
      AbortCommand();
      return;
  }
  EndCommand();
}

void AtaDisk::Smart(const Row&) {
  enum : u8 {
    kReadData = 0xd0,
    kReadThresholds = 0xd1,
    kEnable = 0xd8,
    kDisable = 0xd9,
    kStatus = 0xda
  };
  const u8 operation = features();
  if (reg(kIdeLbaMid) != kSmartMid || reg(kIdeLbaHigh) != kSmartHigh ||
      (!smart_ && operation != kEnable)) {
    AbortCommand();
    return;
  }
  switch (operation) {
    case kReadData:
    case kReadThresholds: {
      // No attributes; a version and a checksum.
      buffer().assign(kSectorBytes, 0);
      buffer()[0] = 1;
      buffer()[kSectorBytes - 1] = 0xff;
      OfferPage();
      return;
    }
    case kEnable:
    case kDisable:
      smart_ = operation == kEnable;
      break;
    case kStatus:
      break;  // the registers as they are: no threshold was passed
    default:
      AbortCommand();
      return;
  }
  EndCommand();
}

void AtaDisk::OfferPage() {
  page_ = true;
  OfferBlock(0, buffer().size(), /*with_interrupt=*/true);
}

void AtaDisk::IdentifyDevice(const Row&) {
  const u64 sectors = disk().sectors();
  const u64 chs = std::min(sectors, kMaxChs);
  const u16 cylinders = static_cast<u16>(std::max<u64>(chs / (16 * 63), 1));
  std::vector<u8>& data = buffer();
  data.assign(kSectorBytes, 0);
  const auto put = [&data](unsigned word, u64 value) {
    PutIdeWord(data, word, static_cast<u16>(value));
  };
  put(0, 0x0040);  // fixed
  put(1, cylinders);
  put(3, 16);
  put(6, 63);
  PutIdeText(data, 10, 20, serial_);
  PutIdeText(data, 23, 8, "1.0");
  PutIdeText(data, 27, 40, "ALIBI HARDDISK");
  put(47, 0x8000 | kMaxMultiple);
  put(48, 1);       // 32-bit accesses to the data port
  put(49, 0x0f00);  // IORDY, LBA, DMA
  put(51, 0x0200);
  put(53, 0x0007);  // words 54-58, 64-70 and 88 are valid
  put(54, cylinders);
  put(55, heads_);
  put(56, sectors_per_track_);
  const u64 current = u64{cylinders} * heads_ * sectors_per_track_;
  put(57, current);
  put(58, current >> 16);
  if (multiple_ != 0) put(59, 0x0100 | multiple_);
  const u64 sectors28 = std::min(sectors, kMax28);
  put(60, sectors28);
  put(61, sectors28 >> 16);
  const u8 kind = transfer_mode_ >> 3, number = transfer_mode_ & 7;
  put(63, 0x0007 | (kind == 4 ? 0x0100 << number : 0));  // multiword DMA 0-2
  put(64, 0x0003);                                       // PIO 3 and 4
  for (unsigned word = 65; word <= 68; ++word) put(word, 120);
  put(80, 0x00f0);  // ATA-4 to ATA-7
  put(81, 0x0016);
  // SMART, write cache, look-ahead; 48 bits, flush commands; FUA.
  constexpr u16 kSet1 = 0x0061, kSet2 = 0x7400, kSet3 = 0x4040;
  put(82, kSet1);
  put(83, kSet2);
  put(84, kSet3);
  put(85, (kSet1 & ~0x21) | (smart_ ? 1 : 0) | (write_cache_ ? 0x20 : 0));
  put(86, kSet2);
  put(87, kSet3);
  put(88, 0x003f | (kind == 8 ? 0x0100 << number : 0));  // Ultra DMA 0-5
  put(93, 0x600b);                                       // reset's result; an 80-wire cable
  for (unsigned i = 0; i < 4; ++i) put(100 + i, sectors >> (16 * i));
  OfferPage();
}

}  // namespace alibi::devices
