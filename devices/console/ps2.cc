// SPDX-License-Identifier: Apache-2.0
#include "devices/console/ps2.h"

namespace alibi::devices {
namespace {

enum KeyboardCommand : u8 {
  kSetLeds = 0xed,
  kEcho = 0xee,
  kSetScanCodes = 0xf0,
  kIdentify = 0xf2,
  kSetRate = 0xf3,
  kEnable = 0xf4,
  kDisable = 0xf5,
  kDefaults = 0xf6,
  kResendLast = 0xfe,
  kResetDevice = 0xff,
};

enum MouseCommand : u8 {
  kScaling1 = 0xe6,
  kScaling2 = 0xe7,
  kSetResolution = 0xe8,
  kReadStatus = 0xe9,
  kStream = 0xea,
  kReadData = 0xeb,
  kLeaveWrap = 0xec,
  kWrap = 0xee,
  kRemote = 0xf0,
};

}  // namespace

u8 Ps2Device::Take() {
  last_ = bytes_[first_];
  first_ = (first_ + 1) % bytes_.size();
  --count_;
  return last_;
}

void Ps2Device::Say(std::initializer_list<u8> bytes) {
  for (const u8 byte : bytes) {
    if (count_ == bytes_.size()) return;
    bytes_[(first_ + count_++) % bytes_.size()] = byte;
  }
}

void Ps2Keyboard::SetDefaults() {
  code_set_ = 2;
  typed_.clear();
}

void Ps2Keyboard::Reset() {
  Clear();
  SetDefaults();
  command_ = leds_ = 0;
  scanning_ = true;
}

u8 Ps2Keyboard::Take() {
  if (Ps2Device::HasByte()) return Ps2Device::Take();
  last_ = typed_.front();
  typed_.pop_front();
  return last_;
}

void Ps2Keyboard::Type(std::span<const u8> codes) {
  if (!scanning_ || typed_.size() + codes.size() > kMaxTyped) return;
  typed_.insert(typed_.end(), codes.begin(), codes.end());
}

void Ps2Keyboard::Receive(u8 byte) {
  const u8 command = command_;
  command_ = 0;
  if (command != 0 && byte < kSetLeds) {  // its parameter
    Say({kAcknowledge});
    if (command == kSetLeds) leds_ = byte & 7;
    if (command != kSetScanCodes) return;
    if (byte == 0) {
      Say({code_set_});
    } else if (byte <= 3) {
      code_set_ = byte;
    }
    return;
  }
  switch (byte) {
    case kSetLeds:
    case kSetScanCodes:
    case kSetRate:
      command_ = byte;
      Say({kAcknowledge});
      return;
    case kEcho:
      Say({kEcho});
      return;
    case kIdentify:
      Say({kAcknowledge, 0xab, 0x83});
      return;
    case kEnable:
      scanning_ = true;
      Say({kAcknowledge});
      return;
    case kDisable:
    case kDefaults:
      SetDefaults();
      if (byte == kDisable) scanning_ = false;
      Say({kAcknowledge});
      return;
    case kResendLast:
      Say({last_});
      return;
    case kResetDevice:
      Reset();
      Say({kAcknowledge, kSelfTestPassed});
      return;
    default:
      // 0xf7 to 0xfd make keys of set 3 typematic or not, all of them or one.
      Say({byte >= kSetLeds ? kAcknowledge : kResend});
      return;
  }
}

void Ps2Mouse::SetDefaults() {
  resolution_ = 2;
  rate_ = 100;
  scaling_ = reporting_ = remote_ = wrap_ = false;
}

void Ps2Mouse::Reset() {
  Clear();
  SetDefaults();
  command_ = 0;
}

void Ps2Mouse::Receive(u8 byte) {
  if (wrap_ && byte != kLeaveWrap && byte != kResetDevice) {
    Say({byte});
    return;
  }
  const u8 command = command_;
  command_ = 0;
  if (command != 0) {
    if (command == kSetRate) rate_ = byte;
    if (command == kSetResolution) resolution_ = byte & 3;
    Say({kAcknowledge});
    return;
  }
  switch (byte) {
    case kScaling1:
    case kScaling2:
      scaling_ = byte == kScaling2;
      break;
    case kSetResolution:
    case kSetRate:
      command_ = byte;
      break;
    case kReadStatus:
      Say({kAcknowledge,
           static_cast<u8>((remote_ ? 0x40 : 0) | (reporting_ ? 0x20 : 0) | (scaling_ ? 0x10 : 0)),
           resolution_, rate_});
      return;
    case kStream:
    case kRemote:
      remote_ = byte == kRemote;
      break;
    case kReadData:
      Say({kAcknowledge, 0x08, 0, 0});  // no buttons, no motion
      return;
    case kWrap:
    case kLeaveWrap:
      wrap_ = byte == kWrap;
      break;
    case kIdentify:
      Say({kAcknowledge, 0});
      return;
    case kEnable:
    case kDisable:
      reporting_ = byte == kEnable;
      break;
    case kDefaults:
      SetDefaults();
      break;
    case kResendLast:
      Say({last_});
      return;
    case kResetDevice:
      Reset();
      Say({kAcknowledge, kSelfTestPassed, 0});
      return;
    default:
      Say({kResend});
      return;
  }
  Say({kAcknowledge});
}

}  // namespace alibi::devices
