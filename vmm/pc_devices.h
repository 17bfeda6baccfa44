// The devices of `alibi run` that are not part of every PC: what hangs on its PCI bus from slot 3.
#ifndef ALIBI_VMM_PC_DEVICES_H_
#define ALIBI_VMM_PC_DEVICES_H_

#include <memory>
#include <vector>

#include "base/result.h"
#include "devices/dma.h"
#include "devices/mailbox.h"
#include "devices/pc.h"
#include "devices/virtio/virtio_device.h"
#include "devices/virtio/virtio_pci.h"

namespace alibi::vmm {

struct PcDevicesConfig {
  bool rng = false;
};

class PcDevices {
 public:
  // Slot of the first one; they follow in the order rng, console, net, disks.
  static constexpr unsigned kFirstSlot = 3;

  // The rest outlives the devices; workers post to `mailbox` until they are gone.
  static Result<std::unique_ptr<PcDevices>> Create(const PcDevicesConfig& config, devices::Pc& pc,
                                                   devices::Mailbox& mailbox, devices::Dma& dma);

 private:
  PcDevices() = default;
  void AddVirtio(std::unique_ptr<devices::virtio::VirtioDevice> device, devices::Pc& pc,
                 devices::Dma& dma);

  unsigned next_slot_ = kFirstSlot;
  std::vector<std::unique_ptr<devices::virtio::VirtioDevice>> virtio_;
  std::vector<std::unique_ptr<devices::virtio::VirtioPci>> transports_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_PC_DEVICES_H_
