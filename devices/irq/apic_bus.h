// SPDX-License-Identifier: Apache-2.0
// What connects the local APICs with each other, the I/O APIC and whoever signals by messages.
#ifndef ALIBI_DEVICES_IRQ_APIC_BUS_H_
#define ALIBI_DEVICES_IRQ_APIC_BUS_H_

#include <vector>

#include "devices/irq/lapic.h"

namespace alibi::devices {

class ApicBus {
 public:
  // It outlives the bus's use.
  void Add(Lapic& lapic) { lapics_.push_back(&lapic); }

  // To all that it is addressed to but `except`; one of lowest priority to one of them.
  void Send(const ApicMessage& message, const Lapic* except = nullptr) {
    if (message.mode == DeliveryMode::kLowestPriority) {
      if (Lapic* least = LeastPriority(message, except)) least->Deliver(message);
      return;
    }
    for (Lapic* lapic : lapics_) {
      if (lapic != except && lapic->IsDestination(message)) lapic->Deliver(message);
    }
  }

 private:
  // Of several the first. Null: nobody can accept it.
  Lapic* LeastPriority(const ApicMessage& message, const Lapic* except) const {
    Lapic* least = nullptr;
    for (Lapic* lapic : lapics_) {
      if (lapic == except || !lapic->AcceptsFixed() || !lapic->IsDestination(message)) continue;
      if (least == nullptr || lapic->processor_priority() < least->processor_priority()) {
        least = lapic;
      }
    }
    return least;
  }

  std::vector<Lapic*> lapics_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_APIC_BUS_H_
