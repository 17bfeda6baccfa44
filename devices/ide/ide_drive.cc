// SPDX-License-Identifier: Apache-2.0
#include "devices/ide/ide_drive.h"

#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr u8 kDiagnosticPassed = 0x01;
constexpr unsigned kMaxInFlight = 4;

}  // namespace

IdeDrive::IdeDrive(std::unique_ptr<block::Disk> disk, Host& host)
    : disk_(std::move(disk)), host_(host) {}

void IdeDrive::Command(u8 command) {
  SetInterrupt(false);
  constexpr u8 kDeviceReset = 0x08;
  if ((status_ & (kIdeBusy | kIdeDrq)) && command != kDeviceReset) return;
  Forget();
  now_left_ = kMaxNow;
  SetError(0);
  Execute(command);
}

u32 IdeDrive::ReadData(unsigned size) {
  u32 value = 0;
  for (unsigned i = 0; i < size; ++i) {
    if (block_ != Direction::kIn || position_ >= block_end_) break;
    value |= u32{buffer_[position_++]} << (8 * i);
  }
  if (block_ == Direction::kIn && position_ >= block_end_) BlockEnded();
  return value;
}

void IdeDrive::WriteData(unsigned size, u32 value) {
  for (unsigned i = 0; i < size; ++i) {
    if (block_ != Direction::kOut || position_ >= block_end_) break;
    buffer_[position_++] = static_cast<u8>(value >> (8 * i));
  }
  if (block_ == Direction::kOut && position_ >= block_end_) BlockEnded();
}

void IdeDrive::BlockEnded() {
  block_ = Direction::kNone;
  status_ &= static_cast<u8>(~kIdeDrq);
  BlockDone();
}

void IdeDrive::OfferBlock(u64 begin, u64 end, bool with_interrupt) {
  ALIBI_CHECK(begin < end && end <= buffer_.size(), "a block lies in the buffer");
  position_ = begin;
  block_end_ = end;
  block_ = Direction::kIn;
  status_ = kIdeReady | kIdeSeek | kIdeDrq;
  if (with_interrupt) SetInterrupt(true);
}

void IdeDrive::AskForBlock(u64 begin, u64 end, bool with_interrupt) {
  OfferBlock(begin, end, with_interrupt);
  block_ = Direction::kOut;
}

void IdeDrive::StartDma(Direction direction) {
  dma_ = direction;
  status_ = kIdeReady | kIdeSeek | kIdeDrq;
  ContinueDma();
}

void IdeDrive::ContinueDma() {
  BusMasterChannel& master = host_.bus_master();
  if (dma_ == Direction::kNone || !master.running()) return;
  const u64 size = buffer_.size();
  const u64 moved = dma_ == Direction::kIn ? master.ToMemory(buffer_.data(), size)
                                           : master.FromMemory(buffer_.data(), size);
  // Without memory the drive waits, as a real one does, until it is reset.
  if (moved < size) return;
  dma_ = Direction::kNone;
  MakeBusy();
  DmaDone();
}

void IdeDrive::AskImage(block::Operation operation, u64 offset, u64 bytes, bool durable) {
  MakeBusy();
  auto request = std::make_shared<block::Request>();
  request->operation = operation;
  request->offset = offset;
  request->bytes = bytes;
  request->durable = durable;
  if (operation == block::Operation::kRead) buffer_.resize(bytes);
  if (operation == block::Operation::kRead || operation == block::Operation::kWrite) {
    ALIBI_CHECK(buffer_.size() == bytes && bytes <= kMaxStep, "steps are bounded");
    request->data = std::move(buffer_);
  }
  if (bytes <= now_left_ && disk_->ReadNow(*request)) {
    now_left_ -= bytes;
    buffer_ = std::move(request->data);
    ImageDone(*request);
    return;
  }
  request->done = [this, generation = generation_](block::Request& done) {
    --in_flight_;
    if (deferred_ != nullptr) Submit(std::exchange(deferred_, nullptr));
    if (generation != generation_) return;
    buffer_ = std::move(done.data);
    ImageDone(done);
  };
  // A guest that resets the drive over and over leaves requests behind faster than they are served.
  if (in_flight_ >= kMaxInFlight) {
    deferred_ = std::move(request);
  } else {
    Submit(std::move(request));
  }
}

void IdeDrive::Submit(std::shared_ptr<block::Request> request) {
  ++in_flight_;
  disk_->Submit(std::move(request));
}

void IdeDrive::Forget() {
  ++generation_;
  block_ = Direction::kNone;
  dma_ = Direction::kNone;
  deferred_ = nullptr;
}

void IdeDrive::EndCommand() {
  host_.bus_master().EndOfTransfer();
  status_ = kIdeReady | kIdeSeek;
  SetInterrupt(true);
}

void IdeDrive::AbortCommand(u8 error) {
  SetError(error);
  status_ = kIdeReady | kIdeSeek | kIdeErr;
  SetInterrupt(true);
}

void IdeDrive::MakeBusy() { status_ = kIdeBusy; }

void IdeDrive::SetInterrupt(bool level) {
  if (interrupt_ == level) return;
  interrupt_ = level;
  host_.InterruptChanged();
}

void IdeDrive::Reset() {
  Forget();
  before_ = {};
  WasReset();
  Diagnose();
  SetInterrupt(false);
}

void IdeDrive::Diagnose() {
  SetError(kDiagnosticPassed);
  PutSignature();
}

void PutIdeWord(std::vector<u8>& identification, unsigned word, u16 value) {
  identification[2 * word] = static_cast<u8>(value);
  identification[2 * word + 1] = static_cast<u8>(value >> 8);
}

void PutIdeText(std::vector<u8>& identification, unsigned word, unsigned bytes,
                const std::string& text) {
  for (unsigned i = 0; i < bytes; ++i) {
    identification[2 * word + (i ^ 1)] = i < text.size() ? static_cast<u8>(text[i]) : u8{' '};
  }
}

}  // namespace alibi::devices
