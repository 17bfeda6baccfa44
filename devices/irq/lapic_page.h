// SPDX-License-Identifier: Apache-2.0
// The page of memory where each CPU finds its own local APIC: that of the one that runs.
#ifndef ALIBI_DEVICES_IRQ_LAPIC_PAGE_H_
#define ALIBI_DEVICES_IRQ_LAPIC_PAGE_H_

#include "devices/device.h"
#include "devices/irq/lapic.h"

namespace alibi::devices {

class LapicPage final : public Device {
 public:
  void set_running(Lapic& lapic) { running_ = &lapic; }
  Lapic& running() const { return *running_; }

  u64 Read(u64 offset, unsigned size) override { return running_->Read(offset, size); }
  bool Peek(u64 offset, unsigned size, u64* value) const override {
    return running_->Peek(offset, size, value);
  }
  void Write(u64 offset, unsigned size, u64 value) override {
    running_->Write(offset, size, value);
  }
  unsigned MaxAccessSize() const override { return 4; }

 private:
  Lapic* running_ = nullptr;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_LAPIC_PAGE_H_
