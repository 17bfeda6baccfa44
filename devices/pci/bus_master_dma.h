// SPDX-License-Identifier: Apache-2.0
// A function's way to guest memory: one whose bus mastering is off reaches none.
#ifndef ALIBI_DEVICES_PCI_BUS_MASTER_DMA_H_
#define ALIBI_DEVICES_PCI_BUS_MASTER_DMA_H_

#include "devices/dma.h"
#include "devices/pci/pci_function.h"

namespace alibi::devices {

class BusMasterDma final : public Dma {
 public:
  BusMasterDma(const PciFunction& function, Dma& dma) : function_(function), dma_(dma) {}
  bool Read(PhysAddr address, void* out, u64 size) override {
    return function_.bus_master() && dma_.Read(address, out, size);
  }
  bool Write(PhysAddr address, const void* data, u64 size) override {
    return function_.bus_master() && dma_.Write(address, data, size);
  }

 private:
  const PciFunction& function_;
  Dma& dma_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_BUS_MASTER_DMA_H_
