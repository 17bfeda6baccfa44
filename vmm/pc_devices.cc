#include "vmm/pc_devices.h"

#include <utility>

#include "devices/virtio/rng.h"

namespace alibi::vmm {

namespace virtio = devices::virtio;

Result<std::unique_ptr<PcDevices>> PcDevices::Create(const PcDevicesConfig& config, devices::Pc& pc,
                                                     [[maybe_unused]] devices::Mailbox& mailbox,
                                                     devices::Dma& dma) {
  std::unique_ptr<PcDevices> all(new PcDevices);
  if (config.rng) all->AddVirtio(std::make_unique<virtio::Rng>(), pc, dma);
  return all;
}

void PcDevices::AddVirtio(std::unique_ptr<virtio::VirtioDevice> device, devices::Pc& pc,
                          devices::Dma& dma) {
  transports_.push_back(std::make_unique<virtio::VirtioPci>(*device, dma));
  virtio_.push_back(std::move(device));
  pc.pci().Add(next_slot_++, 0, *transports_.back());
}

}  // namespace alibi::vmm
