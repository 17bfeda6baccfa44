// SPDX-License-Identifier: Apache-2.0
#include "devices/ide/ide_controller.h"

#include <utility>

namespace alibi::devices {
namespace {

constexpr PciIds kPiix3Ide = {0x8086, 0x7010, 0x010180};
// The timing registers' bit that lets a channel decode its ports.
constexpr unsigned kTiming = 0x40;
constexpr u16 kDecode = 0x8000;

}  // namespace

// --- Channel ---

IdeChannel::IdeChannel(IrqLine& irq, Dma& dma, std::function<bool()> bus_master_allowed)
    : irq_(irq), bus_master_(dma, std::move(bus_master_allowed), [this] {
        if (chosen() != nullptr) chosen()->DmaStarted();
      }) {}

void IdeChannel::Attach(unsigned index, std::unique_ptr<IdeDrive> drive) {
  drives_[index] = std::move(drive);
}

void IdeChannel::Reset() {
  for (const auto& drive : drives_) {
    if (drive != nullptr) drive->Reset();
  }
  chosen_ = 0;
  control_ = 0;
  InterruptChanged();
}

void IdeChannel::InterruptChanged() {
  const bool level = chosen() != nullptr && chosen()->interrupt() && !(control_ & kNoInterrupt);
  if (level == irq_level_) return;
  irq_level_ = level;
  if (level) bus_master_.NoteInterrupt();
  irq_.Set(level);
}

u8 IdeChannel::ReadRegister(unsigned index) {
  if (index != kIdeStatus) return ReadTaskFile(index);
  const u8 status = Status();
  if (chosen() != nullptr) chosen()->ClearInterrupt();
  return status;
}

void IdeChannel::WriteRegister(unsigned index, u8 value) {
  if (index == kIdeStatus) {
    constexpr u8 kDiagnostic = 0x90;
    if (value == kDiagnostic) {
      // For both drives; the first one answers.
      if (drives_[1] != nullptr) drives_[1]->Reset();
      chosen_ = 0;
    }
    if (chosen() != nullptr) chosen()->Command(value);
    return;
  }
  // Only the choice of the other drive does more.
  if (KeepRegister(index, value)) return;
  chosen_ ^= 1;
  KeepRegister(index, value);
  InterruptChanged();
}

void IdeChannel::Control(u8 value) {
  const bool reset_ends = (control_ & kSoftwareReset) && !(value & kSoftwareReset);
  control_ = value;
  if (reset_ends) {
    for (const auto& drive : drives_) {
      if (drive != nullptr) drive->Reset();
    }
    chosen_ = 0;
  }
  InterruptChanged();
}

u64 IdeChannel::CommandBlock::Read(u64 offset, unsigned size) {
  IdeDrive* drive = channel_.chosen();
  if (offset == kIdeData) return drive == nullptr ? ~u64{0} : drive->ReadData(size);
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) {
    value |= u64{channel_.ReadRegister(static_cast<unsigned>(offset) + i)} << (8 * i);
  }
  return value;
}

void IdeChannel::CommandBlock::Write(u64 offset, unsigned size, u64 value) {
  if (offset == kIdeData) {
    if (channel_.chosen() != nullptr) {
      channel_.chosen()->WriteData(size, static_cast<u32>(value));
    }
    return;
  }
  for (unsigned i = 0; i < size; ++i) {
    channel_.WriteRegister(static_cast<unsigned>(offset) + i, static_cast<u8>(value >> (8 * i)));
  }
}

u64 IdeChannel::ControlBlock::Read(u64, unsigned) {
  return channel_.control_ & kSoftwareReset ? kIdeBusy : channel_.Status();
}

void IdeChannel::ControlBlock::Write(u64, unsigned, u64 value) {
  channel_.Control(static_cast<u8>(value));
}

// --- Controller ---

IdeController::IdeController(Dma& dma, IrqLine& primary_irq, IrqLine& secondary_irq)
    : PciFunction("IDE", kPiix3Ide) {
  IrqLine* const irqs[] = {&primary_irq, &secondary_irq};
  for (unsigned i = 0; i < kChannels; ++i) {
    channels_[i] = std::make_unique<IdeChannel>(*irqs[i], dma, [this] { return bus_master(); });
  }
  AddIoBar(4, 2 * BusMasterChannel::kPorts, bus_master_ports_);
  // Firmware's first act is to let both channels decode their ports; guests without it find that
  // done.
  Set(kTiming, kDecode | u32{kDecode} << 16, 4);
  SetWritable(kTiming, 0xffffffff, 4);
  SetWritable(kTiming + 4, 0xff, 1);
}

Status IdeController::AddPorts(PortBus& ports) {
  static constexpr struct {
    u16 command, control;
    const char* name;
  } kPorts[kChannels] = {{0x1f0, 0x3f6, "IDE primary"}, {0x170, 0x376, "IDE secondary"}};
  for (unsigned i = 0; i < kChannels; ++i) {
    Status added = ports.Add(kPorts[i].command, 8, channels_[i]->command_block(), kPorts[i].name);
    if (!added.ok()) return added;
    added = ports.Add(kPorts[i].control, 1, channels_[i]->control_block(), kPorts[i].name);
    if (!added.ok()) return added;
  }
  return Ok{};
}

void IdeController::BusMasterPorts::Reset() {
  for (const auto& channel : controller_.channels_) channel->bus_master().Reset();
}

u64 IdeController::BusMasterPorts::Read(u64 offset, unsigned size) {
  u64 value;
  Peek(offset, size, &value);
  return value;
}

void IdeController::BusMasterPorts::Write(u64 offset, unsigned size, u64 value) {
  for (unsigned i = 0; i < size; ++i) {
    const unsigned at = static_cast<unsigned>(offset) + i;
    controller_.channels_[at / BusMasterChannel::kPorts]->bus_master().Write(
        at % BusMasterChannel::kPorts, static_cast<u8>(value >> (8 * i)));
  }
}

}  // namespace alibi::devices
