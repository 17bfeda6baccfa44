// SPDX-License-Identifier: Apache-2.0
// The I/O APIC of a PC (Intel 82093AA, with the EOI register of version 0x20): 24 inputs, each with
// a redirection entry, that become messages to local APICs.
#ifndef ALIBI_DEVICES_IRQ_IOAPIC_H_
#define ALIBI_DEVICES_IRQ_IOAPIC_H_

#include <array>
#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/irq/lapic.h"

namespace alibi::devices {

class IoApic : public Device {
 public:
  static constexpr PhysAddr kBase{0xfec00000};
  static constexpr u64 kSize = 0x1000;
  static constexpr unsigned kInputs = 24;

  // `send` hands a message to all local APICs; each knows whether it is meant.
  explicit IoApic(std::function<void(const ApicMessage&)> send);

  u64 Read(u64 offset, unsigned size) override;
  bool Peek(u64 offset, unsigned size, u64* value) const override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 4; }
  void Reset() override;

  // The wire to an input. Polarity bits are kept but not applied: lines here say "asserted".
  IrqLine& Line(unsigned input);

  // Some input that is not masked becomes an NMI.
  bool SendsNmis() const;

  // A local APIC ended a level-triggered interrupt.
  void EndOfInterrupt(u8 vector);

 private:
  class Input : public IrqLine {
   public:
    void Connect(IoApic* owner, unsigned number) {
      owner_ = owner;
      number_ = number;
    }
    void Set(bool level) override { owner_->SetInput(number_, level); }

   private:
    IoApic* owner_ = nullptr;
    unsigned number_ = 0;
  };

  void SetInput(unsigned input, bool level);
  void SendIfAsserted(unsigned input);
  void Send(unsigned input);
  u32 ReadIndexed() const;
  void WriteIndexed(u32 value);

  std::function<void(const ApicMessage&)> send_;
  std::array<Input, kInputs> inputs_;
  std::array<u64, kInputs> entries_;
  u32 pins_ = 0;
  u32 id_ = 0;
  u8 index_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_IOAPIC_H_
