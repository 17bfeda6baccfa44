// SPDX-License-Identifier: Apache-2.0
#include "devices/console/keyboard8042.h"

namespace alibi::devices {
namespace {

// Status register.
constexpr u8 kOutputFull = 1u << 0, kSystemFlag = 1u << 2, kWasCommand = 1u << 3,
             kNotInhibited = 1u << 4, kFromMouse = 1u << 5;
// Command byte.
constexpr u8 kKeyboardIrq = 1u << 0, kMouseIrq = 1u << 1, kFlagBit = 1u << 2,
             kKeyboardOff = 1u << 4, kMouseOff = 1u << 5, kTranslate = 1u << 6;

// Commands to the controller.
enum Controller : u8 {
  kReadCommandByte = 0x20,
  kWriteCommandByte = 0x60,
  kDisableMouse = 0xa7,
  kEnableMouse = 0xa8,
  kTestMouse = 0xa9,
  kSelfTest = 0xaa,
  kTestKeyboard = 0xab,
  kDisableKeyboard = 0xad,
  kEnableKeyboard = 0xae,
  kReadInputPort = 0xc0,
  kReadOutputPort = 0xd0,
  kWriteOutputPort = 0xd1,
  kWriteKeyboardBuffer = 0xd2,
  kWriteMouseBuffer = 0xd3,
  kToMouse = 0xd4,
  kDisableA20 = 0xdd,
  kEnableA20 = 0xdf,
  kFirstPulse = 0xf0,
};

// Codes of set 2 as the controller shows them: set 1. The rest stays as it is.
constexpr u8 kToSet1[128] = {
    0xff, 0x43, 0x41, 0x3f, 0x3d, 0x3b, 0x3c, 0x58, 0x64, 0x44, 0x42, 0x40, 0x3e, 0x0f, 0x29, 0x59,
    0x65, 0x38, 0x2a, 0x70, 0x1d, 0x10, 0x02, 0x5a, 0x66, 0x71, 0x2c, 0x1f, 0x1e, 0x11, 0x03, 0x5b,
    0x67, 0x2e, 0x2d, 0x20, 0x12, 0x05, 0x04, 0x5c, 0x68, 0x39, 0x2f, 0x21, 0x14, 0x13, 0x06, 0x5d,
    0x69, 0x31, 0x30, 0x23, 0x22, 0x15, 0x07, 0x5e, 0x6a, 0x72, 0x32, 0x24, 0x16, 0x08, 0x09, 0x5f,
    0x6b, 0x33, 0x25, 0x17, 0x18, 0x0b, 0x0a, 0x60, 0x6c, 0x34, 0x35, 0x26, 0x27, 0x19, 0x0c, 0x61,
    0x6d, 0x73, 0x28, 0x74, 0x1a, 0x0d, 0x62, 0x6e, 0x3a, 0x36, 0x1c, 0x1b, 0x75, 0x2b, 0x63, 0x76,
    0x55, 0x56, 0x77, 0x78, 0x79, 0x7a, 0x0e, 0x7b, 0x7c, 0x4f, 0x7d, 0x4b, 0x47, 0x7e, 0x7f, 0x6f,
    0x52, 0x53, 0x50, 0x4c, 0x4d, 0x48, 0x01, 0x45, 0x57, 0x4e, 0x51, 0x4a, 0x37, 0x49, 0x46, 0x54,
};
constexpr u8 kReleased = 0xf0, kF7 = 0x83, kSysRq = 0x84;

}  // namespace

u8 Keyboard8042::Translate(u8 code) {
  const u8 bit = release_ ? 0x80 : 0;
  release_ = false;
  if (code < 0x80) return kToSet1[code] | bit;
  if (code == kF7) return 0x41 | bit;
  if (code == kSysRq) return 0x54 | bit;
  return code;
}

// The next byte into the output buffer, if it is empty.
void Keyboard8042::Fill() {
  while (!full_) {
    if (answer_count_ != 0) {
      output_ = answers_[0].value;
      from_mouse_ = answers_[0].from_mouse;
      --answer_count_;
      for (unsigned i = 0; i < answer_count_; ++i) answers_[i] = answers_[i + 1];
    } else if (!(command_byte_ & kKeyboardOff) && keyboard_.HasByte()) {
      output_ = keyboard_.Take();
      from_mouse_ = false;
      if (command_byte_ & kTranslate) {
        if (output_ == kReleased) {
          release_ = true;
          continue;
        }
        output_ = Translate(output_);
      }
    } else if (!(command_byte_ & kMouseOff) && mouse_.HasByte()) {
      output_ = mouse_.Take();
      from_mouse_ = true;
    } else {
      break;
    }
    full_ = true;
  }
  UpdateIrq();
}

void Keyboard8042::UpdateIrq() {
  irq1_.Set(full_ && !from_mouse_ && (command_byte_ & kKeyboardIrq));
  irq12_.Set(full_ && from_mouse_ && (command_byte_ & kMouseIrq));
}

void Keyboard8042::Answer(u8 value, bool from_mouse) {
  if (answer_count_ == answers_.size()) return;
  answers_[answer_count_++] = {value, from_mouse};
}

void Keyboard8042::Type(std::span<const u8> codes) {
  keyboard_.Type(codes);
  Fill();
}

void Keyboard8042::Reset() {
  command_byte_ = kInitialCommandByte;
  pending_command_ = 0;
  last_was_command_ = release_ = full_ = from_mouse_ = false;
  answer_count_ = 0;
  keyboard_.Reset();
  mouse_.Reset();
  UpdateIrq();
}

u8 Keyboard8042::OutputPort() const {
  // Bit 0: the CPU is not in reset; bits 4 and 5: the interrupt lines.
  return static_cast<u8>(0xc1 | (gates_.a20 ? 2 : 0) | (full_ && !from_mouse_ ? 0x10 : 0) |
                         (full_ && from_mouse_ ? 0x20 : 0));
}

bool Keyboard8042::Peek(u64 offset, unsigned, u64* value) const {
  if (offset == 0) return false;
  *value =
      static_cast<u64>((full_ ? kOutputFull : 0) | (command_byte_ & kFlagBit ? kSystemFlag : 0) |
                       (last_was_command_ ? kWasCommand : 0) | kNotInhibited |
                       (full_ && from_mouse_ ? kFromMouse : 0));
  return true;
}

u64 Keyboard8042::Read(u64 offset, unsigned size) {
  u64 status;
  if (Peek(offset, size, &status)) return status;
  // Each byte is an edge of its own.
  full_ = false;
  const u8 value = output_;
  UpdateIrq();
  Fill();
  return value;
}

void Keyboard8042::Write(u64 offset, unsigned, u64 value) {
  last_was_command_ = offset != 0;
  if (last_was_command_) {
    Command(static_cast<u8>(value));
  } else {
    WriteData(static_cast<u8>(value));
  }
  Fill();
}

void Keyboard8042::Command(u8 command) {
  pending_command_ = 0;
  const auto set = [this](u8 bit, bool on) {
    command_byte_ = static_cast<u8>(on ? command_byte_ | bit : command_byte_ & ~bit);
  };
  switch (command) {
    case kReadCommandByte:
      Answer(command_byte_);
      return;
    case kSelfTest:
      set(kFlagBit, true);
      Answer(0x55);
      return;
    case kTestKeyboard:
    case kTestMouse:
      Answer(0);
      return;
    case kDisableKeyboard:
    case kEnableKeyboard:
      set(kKeyboardOff, command == kDisableKeyboard);
      return;
    case kDisableMouse:
    case kEnableMouse:
      set(kMouseOff, command == kDisableMouse);
      return;
    case kReadInputPort:
      Answer(0x80);  // the keyboard is not locked
      return;
    case kReadOutputPort:
      Answer(OutputPort());
      return;
    case kDisableA20:
    case kEnableA20:
      gates_.a20 = command == kEnableA20;
      return;
    case kWriteCommandByte:
    case kWriteOutputPort:
    case kWriteKeyboardBuffer:
    case kWriteMouseBuffer:
    case kToMouse:
      pending_command_ = command;
      return;
    default:
      break;
  }
  // Pulses the output port's lines whose bits are clear; line 0 is RESET.
  if (command >= kFirstPulse && !(command & 1) && gates_.reset) gates_.reset();
}

void Keyboard8042::WriteData(u8 value) {
  const u8 command = pending_command_;
  pending_command_ = 0;
  switch (command) {
    case kWriteCommandByte:
      command_byte_ = value;
      return;
    case kWriteOutputPort:
      gates_.a20 = value & 2;
      if (!(value & 1) && gates_.reset) gates_.reset();
      return;
    case kWriteKeyboardBuffer:
    case kWriteMouseBuffer:
      Answer(value, command == kWriteMouseBuffer);
      return;
    case kToMouse:
      command_byte_ &= static_cast<u8>(~kMouseOff);
      mouse_.Receive(value);
      return;
    default:
      // Sending a byte to the keyboard switches it on.
      command_byte_ &= static_cast<u8>(~kKeyboardOff);
      keyboard_.Receive(value);
      return;
  }
}

}  // namespace alibi::devices
