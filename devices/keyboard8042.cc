#include "devices/keyboard8042.h"

namespace alibi::devices {
namespace {

// Status register.
constexpr u8 kOutputFull = 1u << 0, kSystemFlag = 1u << 2, kWasCommand = 1u << 3,
             kNotInhibited = 1u << 4;
// Command byte.
constexpr u8 kIrqEnabled = 1u << 0, kFlagBit = 1u << 2, kKeyboardOff = 1u << 4;

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
  kToMouse = 0xd4,
  kDisableA20 = 0xdd,
  kEnableA20 = 0xdf,
  kFirstPulse = 0xf0,
};

// Commands to the keyboard.
enum Keyboard : u8 {
  kSetLeds = 0xed,
  kEcho = 0xee,
  kSetScanCodes = 0xf0,
  kIdentify = 0xf2,
  kSetRate = 0xf3,
  kResend = 0xfe,
  kReset = 0xff,
};
constexpr u8 kAcknowledge = 0xfa;

}  // namespace

void Keyboard8042::UpdateIrq() { irq1_.Set(answer_count_ != 0 && (command_byte_ & kIrqEnabled)); }

void Keyboard8042::Answer(u8 value) {
  if (answer_count_ == answers_.size()) return;
  answers_[answer_count_++] = value;
  UpdateIrq();
}

void Keyboard8042::Reset() {
  command_byte_ = kInitialCommandByte;
  pending_command_ = keyboard_command_ = last_answer_ = 0;
  last_was_command_ = false;
  answer_count_ = 0;
  UpdateIrq();
}

u8 Keyboard8042::OutputPort() const {
  // Bit 0: the CPU is not in reset; bit 4: the output buffer's interrupt line.
  return static_cast<u8>(0xc1 | (gates_.a20 ? 2 : 0) | (answer_count_ != 0 ? 0x10 : 0));
}

u64 Keyboard8042::Read(u64 offset, unsigned) {
  if (offset != 0) {
    return static_cast<u64>((answer_count_ != 0 ? kOutputFull : 0) |
                            (command_byte_ & kFlagBit ? kSystemFlag : 0) |
                            (last_was_command_ ? kWasCommand : 0) | kNotInhibited);
  }
  if (answer_count_ == 0) return last_answer_;
  last_answer_ = answers_[0];
  --answer_count_;
  for (unsigned i = 0; i < answer_count_; ++i) answers_[i] = answers_[i + 1];
  // Each byte is an edge of its own.
  irq1_.Set(false);
  UpdateIrq();
  return last_answer_;
}

void Keyboard8042::Write(u64 offset, unsigned, u64 value) {
  last_was_command_ = offset != 0;
  if (last_was_command_) {
    Command(static_cast<u8>(value));
  } else {
    WriteData(static_cast<u8>(value));
  }
}

void Keyboard8042::Command(u8 command) {
  pending_command_ = 0;
  switch (command) {
    case kReadCommandByte:
      Answer(command_byte_);
      return;
    case kSelfTest:
      command_byte_ |= kFlagBit;
      Answer(0x55);
      return;
    case kTestKeyboard:
      Answer(0);
      return;
    case kTestMouse:
      Answer(0xff);  // no such port
      return;
    case kDisableKeyboard:
      command_byte_ |= kKeyboardOff;
      return;
    case kEnableKeyboard:
      command_byte_ &= static_cast<u8>(~kKeyboardOff);
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
    case kToMouse:
      pending_command_ = command;
      return;
    default:
      break;  // mouse on and off, and what nobody knows
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
      UpdateIrq();
      return;
    case kWriteOutputPort:
      gates_.a20 = value & 2;
      if (!(value & 1) && gates_.reset) gates_.reset();
      return;
    case kWriteKeyboardBuffer:
      Answer(value);
      return;
    case kToMouse:
      return;
    default:
      // Sending a byte to the keyboard switches it on.
      command_byte_ &= static_cast<u8>(~kKeyboardOff);
      ToKeyboard(value);
      return;
  }
}

void Keyboard8042::ToKeyboard(u8 value) {
  const u8 command = keyboard_command_;
  keyboard_command_ = 0;
  if (command != 0 && value < kSetLeds) {  // the parameter of the command before
    Answer(kAcknowledge);
    if (command == kSetScanCodes && value == 0) Answer(2);  // asked which set: the usual one
    return;
  }
  switch (value) {
    case kSetLeds:
    case kSetScanCodes:
    case kSetRate:
      keyboard_command_ = value;
      Answer(kAcknowledge);
      break;
    case kEcho:
      Answer(kEcho);
      break;
    case kIdentify:  // an MF2 keyboard, as it looks behind the translation
      Answer(kAcknowledge);
      Answer(0xab);
      Answer(0x41);
      break;
    case kResend:
      Answer(last_answer_);
      break;
    case kReset:
      Answer(kAcknowledge);
      Answer(0xaa);
      break;
    default:
      Answer(kAcknowledge);
      break;
  }
}

}  // namespace alibi::devices
