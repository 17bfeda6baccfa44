// SPDX-License-Identifier: Apache-2.0
// The Lance as a function on the PCI bus: its registers in ports (BAR 0) and in memory (BAR 1).
#ifndef ALIBI_DEVICES_LANCE_LANCE_FUNCTION_H_
#define ALIBI_DEVICES_LANCE_LANCE_FUNCTION_H_

#include <memory>

#include "devices/lance/lance.h"
#include "devices/pci/bus_master_dma.h"
#include "devices/pci/pci_function.h"

namespace alibi::devices::lance {

class LanceFunction final : public PciFunction {
 public:
  static constexpr u16 kVendor = 0x1022, kDevice = 0x2000;

  // What is referred to outlives the function.
  LanceFunction(const net::MacAddress& address, std::shared_ptr<net::Backend> backend,
                const net::Optimize& optimize, Dma& dma, Clock& clock, TimerQueue& timers);

  Lance& lance() { return lance_; }

 private:
  BusMasterDma dma_;
  Lance lance_;
};

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_LANCE_FUNCTION_H_
