// SPDX-License-Identifier: Apache-2.0
// MSI-X (PCI Local Bus Specification 3.0, section 6.8.2): a table of messages, each with a mask, in
// a memory BAR, and the pending bits behind it.
//
//   BAR: 0x000 table, 16 bytes a vector: address (64 bits), data, control (bit 0: masked)
//        PbaOffset()   pending bits, one per vector, read-only
#ifndef ALIBI_DEVICES_IRQ_MSIX_H_
#define ALIBI_DEVICES_IRQ_MSIX_H_

#include <functional>
#include <vector>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq/lapic.h"

namespace alibi::devices {

class Msix : public Device {
 public:
  static constexpr u8 kCapability = 0x11;
  static constexpr unsigned kMaxVectors = 2048;
  // Bits of the message control word.
  static constexpr u16 kEnable = 1u << 15, kFunctionMask = 1u << 14;

  // `send` delivers a message to the local APICs.
  Msix(unsigned vectors, std::function<void(const ApicMessage&)> send);

  unsigned vectors() const { return static_cast<unsigned>(entries_.size()); }
  u32 PbaOffset() const;
  u64 BarSize() const;  // a power of two, at least a page

  // If it is not enabled, interrupts go by INTx.
  bool enabled() const { return control_ & kEnable; }
  // The guest wrote the message control word.
  void SetControl(u16 control);

  // The event of a vector happened: its message is sent now or when it is unmasked. Without effect
  // while MSI-X is off, and for vectors that do not exist.
  void Notify(unsigned vector);

  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 8; }
  void Reset() override;

 private:
  struct Entry {
    u32 words[4] = {0, 0, 0, 1};  // masked at first
    bool pending = false;
    bool masked() const { return words[3] & 1; }
  };

  u32 ReadWord(u64 offset) const;
  void SendPending(Entry& entry);

  std::vector<Entry> entries_;
  std::function<void(const ApicMessage&)> send_;
  u16 control_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_MSIX_H_
