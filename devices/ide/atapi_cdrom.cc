// SPDX-License-Identifier: Apache-2.0
#include "devices/ide/atapi_cdrom.h"

#include <algorithm>
#include <utility>

namespace alibi::devices {
namespace {

// Of the count register while a packet runs: what the data port carries (9.8.2).
constexpr u8 kCommandPacket = 1, kToHost = 2, kEnded = 3;
constexpr u8 kDmaFeature = 1;
constexpr u64 kPacketBytes = 12;

// Sense keys and codes (SPC-3 4.5.6).
constexpr u8 kNotReady = 2, kMediumError = 3, kIllegalRequest = 5;
constexpr u8 kNoMedium = 0x3a, kInvalidOperation = 0x20, kOutOfRange = 0x21, kInvalidField = 0x24,
             kUnrecoveredRead = 0x11;

void PutBig(std::vector<u8>& bytes, u64 at, u64 value, unsigned size) {
  for (unsigned i = 0; i < size; ++i)
    bytes[at + i] = static_cast<u8>(value >> (8 * (size - 1 - i)));
}

// Minute, second, frame; blocks count from 2 seconds (MMC-4 table 586).
u32 Msf(u64 lba) {
  const u64 frames = lba + 150;
  return static_cast<u32>((frames / 75 / 60) << 16 | (frames / 75 % 60) << 8 | frames % 75);
}

}  // namespace

struct AtapiCdrom::Row {
  u8 operation;
  void (AtapiCdrom::*run)();
  bool needs_disc = false;
};

const AtapiCdrom::Row* AtapiCdrom::Find(u8 operation) {
  static constexpr Row kRows[] = {
      {0x00, &AtapiCdrom::TestUnitReady, true},
      {0x03, &AtapiCdrom::RequestSense},
      {0x12, &AtapiCdrom::Inquiry},
      {0x1a, &AtapiCdrom::ModeSense6},
      {0x1b, &AtapiCdrom::StartStopUnit},
      {0x1e, &AtapiCdrom::Succeed},  // PREVENT ALLOW MEDIUM REMOVAL
      {0x25, &AtapiCdrom::ReadCapacity, true},
      {0x28, &AtapiCdrom::Read10, true},
      {0x2b, &AtapiCdrom::Succeed, true},  // SEEK
      {0x43, &AtapiCdrom::ReadToc, true},
      {0x46, &AtapiCdrom::GetConfiguration},
      {0x4a, &AtapiCdrom::GetEventStatusNotification},
      {0x51, &AtapiCdrom::ReadDiscInformation, true},
      {0x52, &AtapiCdrom::ReadTrackInformation, true},
      {0x5a, &AtapiCdrom::ModeSense10},
      {0xa8, &AtapiCdrom::Read12, true},
      {0xbb, &AtapiCdrom::Succeed},  // SET CD SPEED
      {0xbd, &AtapiCdrom::MechanismStatus},
      {0xbe, &AtapiCdrom::ReadCd, true},
  };
  for (const Row& row : kRows) {
    if (operation == row.operation) return &row;
  }
  return nullptr;
}

AtapiCdrom::AtapiCdrom(std::unique_ptr<block::Disk> disk, Host& host)
    : IdeDrive(std::move(disk), host) {
  Diagnose();
}

void AtapiCdrom::PutSignature() {
  reg(kIdeCount) = 1;
  reg(kIdeLbaLow) = 1;
  reg(kIdeLbaMid) = 0x14;
  reg(kIdeLbaHigh) = 0xeb;
  reg(kIdeDevice) = 0;
  set_status(0);  // not ready until a packet comes (9.12)
}

void AtapiCdrom::WasReset() { phase_ = Phase::kIdle; }

void AtapiCdrom::Execute(u8 command) {
  phase_ = Phase::kIdle;
  switch (command) {
    case 0x08:  // DEVICE RESET
      Reset();
      return;
    case 0x90:  // EXECUTE DEVICE DIAGNOSTIC
      Diagnose();
      SetInterrupt(true);
      return;
    case 0xa0: {  // PACKET
      by_dma_ = features() & kDmaFeature;
      limit_ = (reg(kIdeLbaMid) | reg(kIdeLbaHigh) << 8) & 0xfffe;
      if (limit_ == 0) limit_ = 0xfffe;
      phase_ = Phase::kPacket;
      buffer().resize(kPacketBytes);
      reg(kIdeCount) = kCommandPacket;
      AskForBlock(0, kPacketBytes, /*with_interrupt=*/false);
      return;
    }
    case 0xa1:
      IdentifyPacketDevice();
      return;
    case 0xec:  // IDENTIFY DEVICE fails in a way that shows what this is
      PutSignature();
      AbortCommand();
      return;
    case 0xe0:  // STANDBY, IDLE, SLEEP
    case 0xe1:
    case 0xe2:
    case 0xe3:
    case 0xe6:
    case 0xef:  // SET FEATURES
      EndCommand();
      return;
    case 0xe5:  // CHECK POWER MODE
      reg(kIdeCount) = 0xff;
      EndCommand();
      return;
    default:
      AbortCommand();
  }
}

// --- The packet protocol ---

void AtapiCdrom::BlockDone() {
  switch (phase_) {
    case Phase::kPacket:
      std::copy_n(buffer().begin(), kPacketBytes, packet_.begin());
      ExecutePacket();
      break;
    case Phase::kReply:
    case Phase::kRead:
      if (block_end() < buffer().size()) {
        OfferPiece(block_end());
      } else if (phase_ == Phase::kRead && left_ != 0) {
        NextStep();
      } else {
        Succeed();
      }
      break;
    case Phase::kIdentification:
    case Phase::kIdle:
      set_status(kIdeReady | kIdeSeek);
      break;
  }
}

void AtapiCdrom::ExecutePacket() {
  const Row* row = Find(packet_[0]);
  if (row == nullptr) {
    Fail({kIllegalRequest, kInvalidOperation, 0});
  } else if (row->needs_disc && !loaded_) {
    Fail({kNotReady, kNoMedium, 0});
  } else {
    // What went wrong before is known until another command runs.
    if (row->run != &AtapiCdrom::RequestSense) sense_ = {};
    (this->*row->run)();
  }
}

void AtapiCdrom::Succeed() {
  phase_ = Phase::kIdle;
  reg(kIdeCount) = kEnded;
  EndCommand();
}

void AtapiCdrom::Fail(const Sense& sense) {
  phase_ = Phase::kIdle;
  sense_ = sense;
  reg(kIdeCount) = kEnded;
  AbortCommand(static_cast<u8>(sense.key << 4 | kIdeAborted));
}

void AtapiCdrom::Reply(u64 allowed) {
  if (buffer().size() > allowed) buffer().resize(allowed);
  if (buffer().empty()) {
    Succeed();
    return;
  }
  phase_ = Phase::kReply;
  if (by_dma_) {
    StartDma(Direction::kIn);
  } else {
    OfferPiece(0);
  }
}

void AtapiCdrom::OfferPiece(u64 begin) {
  // A block of the data port is a whole number of disc blocks if it has room for one.
  u64 piece = std::min<u64>(limit_, buffer().size() - begin);
  if (phase_ == Phase::kRead && piece > kBlockBytes) piece -= piece % kBlockBytes;
  reg(kIdeCount) = kToHost;
  reg(kIdeLbaMid) = static_cast<u8>(piece);
  reg(kIdeLbaHigh) = static_cast<u8>(piece >> 8);
  OfferBlock(begin, begin + piece, /*with_interrupt=*/true);
}

void AtapiCdrom::ReadBlocks(u64 lba, u64 count) {
  if (lba > blocks() || count > blocks() - lba) {
    Fail({kIllegalRequest, kOutOfRange, 0});
    return;
  }
  if (count == 0) {
    Succeed();
    return;
  }
  phase_ = Phase::kRead;
  lba_ = lba;
  left_ = count;
  NextStep();
}

void AtapiCdrom::NextStep() {
  const u64 count = std::min(left_, kMaxStep / kBlockBytes);
  AskImage(block::Operation::kRead, lba_ * kBlockBytes, count * kBlockBytes);
}

void AtapiCdrom::ImageDone(const block::Request& request) {
  if (!request.result.ok()) {
    Fail({kMediumError, kUnrecoveredRead, 0});
    return;
  }
  const u64 count = buffer().size() / kBlockBytes;
  lba_ += count;
  left_ -= count;
  if (by_dma_) {
    StartDma(Direction::kIn);
  } else {
    OfferPiece(0);
  }
}

void AtapiCdrom::DmaDone() {
  if (phase_ == Phase::kRead && left_ != 0) {
    NextStep();
  } else {
    Succeed();
  }
}

u32 AtapiCdrom::Number(unsigned index, unsigned bytes) const {
  u32 value = 0;
  for (unsigned i = 0; i < bytes; ++i) value = value << 8 | packet_[index + i];
  return value;
}

// --- Commands ---

void AtapiCdrom::RequestSense() {
  buffer().assign(18, 0);
  buffer()[0] = 0x70;
  buffer()[2] = sense_.key;
  buffer()[7] = 10;
  buffer()[12] = sense_.code;
  buffer()[13] = sense_.qualifier;
  sense_ = {};
  Reply(Byte(4));
}

void AtapiCdrom::Inquiry() {
  if (Byte(1) & 1) {  // vital product data: none
    Fail({kIllegalRequest, kInvalidField, 0});
    return;
  }
  static constexpr char kText[] = "ALIBI   DVD-ROM         1.0 ";
  buffer().assign(36, 0);
  buffer()[0] = 5;     // CD/DVD
  buffer()[1] = 0x80;  // removable
  buffer()[3] = 0x21;  // ATAPI
  buffer()[4] = 31;
  std::copy_n(kText, 28, buffer().begin() + 8);
  Reply(Number(3, 2));
}

std::vector<u8> AtapiCdrom::ModePages(u8 page, u64 header) {
  constexpr u8 kRecovery = 0x01, kCapabilities = 0x2a, kEvery = 0x3f;
  std::vector<u8> bytes(header);
  if (page == kRecovery || page == kEvery)
    bytes.insert(bytes.end(), {kRecovery, 6, 0, 5, 0, 0, 0, 0});
  if (page == kCapabilities || page == kEvery) {
    std::vector<u8> capabilities(20);
    capabilities[0] = kCapabilities;
    capabilities[1] = 18;
    capabilities[2] = 0x3b;  // reads CD-R, CD-RW, DVD
    capabilities[4] = 0x70;  // mode 2, multisession
    capabilities[6] = 0x29;  // tray, ejects, locks
    PutBig(capabilities, 8, 706, 2);
    PutBig(capabilities, 10, 2, 2);
    PutBig(capabilities, 14, 706, 2);
    bytes.insert(bytes.end(), capabilities.begin(), capabilities.end());
  }
  return bytes;
}

void AtapiCdrom::ModeSense6() {
  std::vector<u8> bytes = ModePages(Byte(2) & 0x3f, 4);
  if (bytes.size() == 4) {
    Fail({kIllegalRequest, kInvalidField, 0});
    return;
  }
  bytes[0] = static_cast<u8>(bytes.size() - 1);
  buffer() = std::move(bytes);
  Reply(Byte(4));
}

void AtapiCdrom::ModeSense10() {
  std::vector<u8> bytes = ModePages(Byte(2) & 0x3f, 8);
  if (bytes.size() == 8) {
    Fail({kIllegalRequest, kInvalidField, 0});
    return;
  }
  PutBig(bytes, 0, bytes.size() - 2, 2);
  bytes[2] = loaded_ ? 0x01 : 0x70;
  buffer() = std::move(bytes);
  Reply(Number(7, 2));
}

void AtapiCdrom::StartStopUnit() {
  constexpr u8 kStart = 1, kLoadEject = 2;
  if (Byte(4) & kLoadEject) {
    const bool loads = Byte(4) & kStart;
    event_ = event_ || loads != loaded_;
    loaded_ = loads;
  }
  Succeed();
}

void AtapiCdrom::ReadCapacity() {
  buffer().assign(8, 0);
  PutBig(buffer(), 0, std::min<u64>(blocks() - 1, 0xffffffff), 4);
  PutBig(buffer(), 4, kBlockBytes, 4);
  Reply(8);
}

void AtapiCdrom::Read10() { ReadBlocks(Number(2, 4), Number(7, 2)); }

void AtapiCdrom::Read12() { ReadBlocks(Number(2, 4), Number(6, 4)); }

void AtapiCdrom::ReadCd() {
  constexpr u8 kUserData = 0x10;
  if (Number(6, 3) == 0 || (Byte(9) & 0xf8) == 0) {
    Succeed();
  } else if ((Byte(9) & 0xf8) != kUserData) {
    Fail({kIllegalRequest, kInvalidField, 0});
  } else {
    ReadBlocks(Number(2, 4), Number(6, 3));
  }
}

void AtapiCdrom::ReadToc() {
  constexpr u8 kLeadOut = 0xaa, kDataTrack = 0x14;
  const bool msf = Byte(1) & 2;
  // Older programs put the format into the last byte.
  u8 format = Byte(2) & 0xf;
  if (format == 0) format = Byte(9) >> 6;
  const auto address = [&](u64 at, u64 lba) { PutBig(buffer(), at, msf ? Msf(lba) : lba, 4); };
  std::vector<u8>& bytes = buffer();
  if (format == 0) {
    const u8 first = Byte(6);
    if (first > 1 && first != kLeadOut) {
      Fail({kIllegalRequest, kInvalidField, 0});
      return;
    }
    const bool track = first <= 1;
    bytes.assign(track ? 20 : 12, 0);
    bytes[2] = bytes[3] = 1;
    if (track) {
      bytes[5] = kDataTrack;
      bytes[6] = 1;
      address(8, 0);
    }
    bytes[bytes.size() - 7] = 0x16;
    bytes[bytes.size() - 6] = kLeadOut;
    address(bytes.size() - 4, blocks());
  } else if (format == 1) {
    bytes.assign(12, 0);
    bytes[2] = bytes[3] = 1;
    bytes[5] = kDataTrack;
    bytes[6] = 1;
    address(8, 0);
  } else if (format == 2) {
    // First and last track, lead-out, and the track itself, each with its point.
    bytes.assign(4 + 4 * 11, 0);
    bytes[2] = bytes[3] = 1;
    const u8 points[] = {0xa0, 0xa1, 0xa2, 0x01};
    for (unsigned i = 0; i < 4; ++i) {
      const u64 at = 4 + 11 * i;
      bytes[at] = 1;
      bytes[at + 1] = kDataTrack;
      bytes[at + 3] = points[i];
      if (i < 2) {
        bytes[at + 8] = 1;
      } else {
        PutBig(bytes, at + 8, Msf(i == 2 ? blocks() : 0), 3);
      }
    }
  } else {
    Fail({kIllegalRequest, kInvalidField, 0});
    return;
  }
  PutBig(bytes, 0, bytes.size() - 2, 2);
  Reply(Number(7, 2));
}

void AtapiCdrom::GetConfiguration() {
  constexpr u16 kCdRom = 0x0008, kDvdRom = 0x0010;
  constexpr u64 kMaxCdBlocks = 405'000;  // 90 minutes
  const u16 profile = blocks() > kMaxCdBlocks ? kDvdRom : kCdRom;
  std::vector<u8>& bytes = buffer();
  bytes.assign(8, 0);
  if (loaded_) PutBig(bytes, 6, profile, 2);
  // The profile list and the core feature (MMC-4 5.3.1, 5.3.2).
  bytes.insert(bytes.end(), {0, 0, 3, 8});
  for (const u16 known : {kDvdRom, kCdRom}) {
    bytes.insert(bytes.end(), {0, static_cast<u8>(known), u8{loaded_ && known == profile}, 0});
  }
  bytes.insert(bytes.end(), {0, 1, 3, 8, 0, 0, 0, 2, 0, 0, 0, 0});
  PutBig(bytes, 0, bytes.size() - 4, 4);
  Reply(Number(7, 2));
}

void AtapiCdrom::GetEventStatusNotification() {
  constexpr u8 kPolled = 1, kMediaClass = 1 << 4, kMedia = 4;
  if (!(Byte(1) & kPolled)) {  // asynchronous operation does not exist here
    Fail({kIllegalRequest, kInvalidField, 0});
    return;
  }
  std::vector<u8>& bytes = buffer();
  if (!(Byte(4) & kMediaClass)) {
    bytes = {0, 2, 0x80, kMediaClass};
  } else {
    constexpr u8 kNewMedia = 2, kRemoved = 3;
    const u8 event = !event_ ? 0 : loaded_ ? kNewMedia : kRemoved;
    bytes = {0, 6, kMedia, kMediaClass, event, static_cast<u8>(loaded_ ? 2 : 1), 0, 0};
    event_ = false;
  }
  Reply(Number(7, 2));
}

void AtapiCdrom::ReadDiscInformation() {
  std::vector<u8>& bytes = buffer();
  bytes.assign(34, 0);
  PutBig(bytes, 0, bytes.size() - 2, 2);
  bytes[2] = 0x0e;  // complete; the last session is complete
  bytes[3] = bytes[4] = bytes[5] = bytes[6] = 1;
  bytes[7] = 0x20;
  Reply(Number(7, 2));
}

void AtapiCdrom::ReadTrackInformation() {
  std::vector<u8>& bytes = buffer();
  bytes.assign(36, 0);
  PutBig(bytes, 0, bytes.size() - 2, 2);
  bytes[2] = bytes[3] = 1;
  bytes[5] = 4;  // a data track
  bytes[6] = 1;
  PutBig(bytes, 24, blocks(), 4);
  Reply(Number(7, 2));
}

void AtapiCdrom::MechanismStatus() {
  buffer().assign(8, 0);
  buffer()[5] = 1;
  Reply(Number(8, 2));
}

void AtapiCdrom::IdentifyPacketDevice() {
  phase_ = Phase::kIdentification;
  std::vector<u8>& data = buffer();
  data.assign(512, 0);
  PutIdeWord(data, 0, 0x85c0);  // CD-ROM, removable, DRQ within 50 us, packets of 12 bytes
  PutIdeText(data, 10, 20, "ALIBI-CD");
  PutIdeText(data, 23, 8, "1.0");
  PutIdeText(data, 27, 40, "ALIBI DVD-ROM");
  PutIdeWord(data, 48, 1);
  PutIdeWord(data, 49, 0x0f00);  // IORDY, LBA, DMA
  PutIdeWord(data, 53, 0x0007);
  PutIdeWord(data, 63, 0x0007);
  PutIdeWord(data, 64, 0x0003);
  for (unsigned word = 65; word <= 68; ++word) PutIdeWord(data, word, 120);
  PutIdeWord(data, 80, 0x0070);  // ATA/ATAPI-4 to 6
  PutIdeWord(data, 82, 0x4210);  // NOP, DEVICE RESET, PACKET
  PutIdeWord(data, 83, 0x4000);
  PutIdeWord(data, 85, 0x4210);
  PutIdeWord(data, 87, 0x4000);
  PutIdeWord(data, 88, 0x203f);  // Ultra DMA 5
  OfferBlock(0, data.size(), /*with_interrupt=*/true);
}

}  // namespace alibi::devices
