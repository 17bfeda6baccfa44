// SPDX-License-Identifier: Apache-2.0
#include "devices/irq/pic8259.h"

#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr u8 Bit(unsigned line) { return static_cast<u8>(1u << line); }

// Initialization and operation command words, A0 = 0.
constexpr u8 kIcw1Marker = 0x10;
constexpr u8 kIcw1NeedsIcw4 = 0x01;
constexpr u8 kIcw1Single = 0x02;
constexpr u8 kIcw1LevelTriggered = 0x08;
constexpr u8 kOcw3Marker = 0x08;
constexpr u8 kOcw3ReadIsr = 0x01;
constexpr u8 kOcw3ReadRegister = 0x02;
constexpr u8 kOcw3Poll = 0x04;
constexpr u8 kOcw3SpecialMask = 0x20;
constexpr u8 kOcw3EnableSpecialMask = 0x40;
constexpr u8 kIcw4AutoEoi = 0x02;
constexpr u8 kIcw4FullyNestedSpecial = 0x10;
constexpr u8 kPollInterrupt = 0x80;

}  // namespace

Pic8259::Pic8259(Role role, u8 elcr_writable, std::function<void(bool)> output)
    : role_(role), elcr_writable_(elcr_writable), output_callback_(std::move(output)) {}

void Pic8259::Reset() {
  Initialize(0);
  single_ = trigger_all_levels_ = auto_eoi_ = fully_nested_special_ = false;
  vector_base_ = 0;
  elcr_ = 0;
  step_ = Step::kOperation;
  UpdateOutput();
}

int Pic8259::HighestIn(u8 lines) const {
  for (unsigned priority = 0; priority < 8; ++priority) {
    const unsigned line = (lowest_ + 1 + priority) & 7;
    if (lines & Bit(line)) return static_cast<int>(line);
  }
  return kNone;
}

int Pic8259::Requesting() const {
  // Half initialized, the chip has no vector to give.
  if (step_ != Step::kOperation) return kNone;
  const int request = HighestIn(irr() & static_cast<u8>(~imr_));
  if (request == kNone) return kNone;
  const int serving = HighestIn(special_mask_ ? isr_ & static_cast<u8>(~imr_) : isr_);
  if (serving == kNone) return request;
  const unsigned request_priority = PriorityOf(static_cast<unsigned>(request));
  const unsigned serving_priority = PriorityOf(static_cast<unsigned>(serving));
  if (request_priority < serving_priority) return request;
  // Special fully nested mode: a slave in service may be interrupted by its own higher levels.
  if (request == serving && fully_nested_special_ && role_ == Role::kMaster && request == 2) {
    return request;
  }
  return kNone;
}

void Pic8259::UpdateOutput() {
  const bool level = Requesting() != kNone;
  if (level == output_level_) return;
  output_level_ = level;
  output_callback_(level);
}

void Pic8259::SetLine(unsigned line, bool level) {
  ALIBI_CHECK(line < 8, "an 8259 has eight inputs");
  const u8 bit = Bit(line);
  if (level && !(pins_ & bit)) edge_ |= bit;
  if (!level) edge_ &= static_cast<u8>(~bit);
  pins_ = level ? pins_ | bit : pins_ & static_cast<u8>(~bit);
  UpdateOutput();
}

void Pic8259::set_elcr(u8 value) {
  elcr_ = value & elcr_writable_;
  UpdateOutput();
}

unsigned Pic8259::AcknowledgeLine(bool* spurious) {
  const int request = Requesting();
  *spurious = request == kNone;
  if (request == kNone) return 7;
  const auto line = static_cast<unsigned>(request);
  edge_ &= static_cast<u8>(~Bit(line));
  isr_ |= Bit(line);
  if (auto_eoi_) EndOfInterrupt(line, rotate_on_auto_eoi_);
  // The INT pin falls during INTA, and rises again if another request may interrupt this one:
  // the master must see that as a new edge.
  if (output_level_) {
    output_level_ = false;
    output_callback_(false);
  }
  UpdateOutput();
  return line;
}

void Pic8259::EndOfInterrupt(unsigned line, bool rotate) {
  isr_ &= static_cast<u8>(~Bit(line));
  if (rotate) lowest_ = static_cast<u8>(line);
}

void Pic8259::Initialize(u8 icw1) {
  edge_ = 0;
  isr_ = 0;
  imr_ = 0;
  lowest_ = 7;
  special_mask_ = false;
  poll_ = false;
  read_isr_ = false;
  needs_icw4_ = icw1 & kIcw1NeedsIcw4;
  single_ = icw1 & kIcw1Single;
  trigger_all_levels_ = icw1 & kIcw1LevelTriggered;
  if (!needs_icw4_) {
    auto_eoi_ = false;
    fully_nested_special_ = false;
  }
  rotate_on_auto_eoi_ = false;
  step_ = Step::kIcw2;
}

void Pic8259::WriteOcw2(u8 value) {
  const unsigned level = value & 7;
  const bool rotate = value & 0x80;
  const bool specific = value & 0x40;
  const bool end_of_interrupt = value & 0x20;
  if (end_of_interrupt) {
    if (specific) {
      EndOfInterrupt(level, rotate);
      return;
    }
    const int serving = HighestIn(special_mask_ ? isr_ & static_cast<u8>(~imr_) : isr_);
    if (serving != kNone) EndOfInterrupt(static_cast<unsigned>(serving), rotate);
  } else if (specific) {
    if (rotate) lowest_ = static_cast<u8>(level);  // set priority; without R: no operation
  } else {
    rotate_on_auto_eoi_ = rotate;
  }
}

void Pic8259::WriteOcw3(u8 value) {
  if (value & kOcw3EnableSpecialMask) special_mask_ = value & kOcw3SpecialMask;
  poll_ = value & kOcw3Poll;
  if (value & kOcw3ReadRegister) read_isr_ = value & kOcw3ReadIsr;
}

void Pic8259::WriteMaskOrIcw(u8 value) {
  switch (step_) {
    case Step::kOperation:
      imr_ = value;
      break;
    case Step::kIcw2:
      vector_base_ = value & 0xf8;
      step_ = !single_ ? Step::kIcw3 : needs_icw4_ ? Step::kIcw4 : Step::kOperation;
      break;
    case Step::kIcw3:
      // Names the cascade wiring, which on a PC is fixed.
      step_ = needs_icw4_ ? Step::kIcw4 : Step::kOperation;
      break;
    case Step::kIcw4:
      auto_eoi_ = value & kIcw4AutoEoi;
      fully_nested_special_ = value & kIcw4FullyNestedSpecial;
      step_ = Step::kOperation;
      break;
  }
}

void Pic8259::Write(u64 offset, unsigned, u64 value) {
  const u8 byte = static_cast<u8>(value);
  if (offset == 1) {
    WriteMaskOrIcw(byte);
  } else if (byte & kIcw1Marker) {
    Initialize(byte);
  } else if (byte & kOcw3Marker) {
    WriteOcw3(byte);
  } else {
    WriteOcw2(byte);
  }
  UpdateOutput();
}

bool Pic8259::Poke(u64 offset, unsigned, u64 value) {
  const u8 byte = static_cast<u8>(value);
  const bool initializes = step_ != Step::kOperation || (offset == 0 && (byte & kIcw1Marker));
  const bool polls = offset == 0 && (byte & kOcw3Marker) && (byte & kOcw3Poll);
  if (initializes || polls) return false;
  const u8 imr = imr_, isr = isr_, lowest = lowest_;
  const bool special_mask = special_mask_, poll = poll_, read_isr = read_isr_,
             rotate = rotate_on_auto_eoi_;
  if (offset == 1) {
    imr_ = byte;
  } else if (byte & kOcw3Marker) {
    WriteOcw3(byte);
  } else {
    WriteOcw2(byte);
  }
  if ((Requesting() != kNone) == output_level_) return true;
  imr_ = imr;
  isr_ = isr;
  lowest_ = lowest;
  special_mask_ = special_mask;
  poll_ = poll;
  read_isr_ = read_isr;
  rotate_on_auto_eoi_ = rotate;
  return false;
}

u64 Pic8259::Read(u64 offset, unsigned size) {
  u64 value;
  if (Peek(offset, size, &value)) return value;
  poll_ = false;
  bool spurious;
  const unsigned line = AcknowledgeLine(&spurious);
  return spurious ? 0 : kPollInterrupt | line;
}

bool Pic8259::Peek(u64 offset, unsigned, u64* value) const {
  if (poll_) return false;
  *value = offset == 1 ? imr_ : read_isr_ ? isr_ : irr();
  return true;
}

Pic8259Pair::Pic8259Pair()
    // Inputs 0-2 of the master and 8 and 13 of the slave belong to the board and are always edges.
    : master_(Pic8259::Role::kMaster, 0xf8,
              [this](bool level) {
                if (on_output_) on_output_(level);
              }),
      slave_(Pic8259::Role::kSlave, 0xde,
             [this](bool level) { master_.SetLine(kCascade, level); }) {
  for (unsigned irq = 0; irq < inputs_.size(); ++irq) {
    if (irq != kCascade) inputs_[irq].Connect(irq < 8 ? &master_ : &slave_, irq & 7);
  }
}

IrqLine& Pic8259Pair::Line(unsigned irq) {
  ALIBI_CHECK(irq < inputs_.size(), "a PC has interrupt requests 0 to 15");
  return inputs_[irq];
}

u8 Pic8259Pair::Acknowledge() {
  bool spurious;
  const unsigned line = master_.AcknowledgeLine(&spurious);
  if (line != kCascade || spurious) return static_cast<u8>(master_.vector_base() + line);
  // A request withdrawn at the slave in the meantime: its IR7 vector, and the master keeps its ISR
  // bit for the cascade, which is why a spurious IRQ 15 needs an EOI at the master only.
  return static_cast<u8>(slave_.vector_base() + slave_.AcknowledgeLine(&spurious));
}

u64 Pic8259Pair::Elcr::Read(u64 offset, unsigned size) {
  u64 value = 0;
  Peek(offset, size, &value);
  return value;
}

bool Pic8259Pair::Elcr::Peek(u64 offset, unsigned, u64* value) const {
  *value = offset == 0 ? pair_.master_.elcr() : pair_.slave_.elcr();
  return true;
}

void Pic8259Pair::Elcr::Write(u64 offset, unsigned, u64 value) {
  (offset == 0 ? pair_.master_ : pair_.slave_).set_elcr(static_cast<u8>(value));
}

}  // namespace alibi::devices
