// SPDX-License-Identifier: Apache-2.0
// The devices of `alibi run` that are not part of every PC: what hangs on its PCI bus from slot 3.
#ifndef ALIBI_PC_PC_DEVICES_H_
#define ALIBI_PC_PC_DEVICES_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devices/dma.h"
#include "devices/lance/lance_function.h"
#include "devices/mailbox.h"
#include "devices/net/options.h"
#include "devices/virtio/console.h"
#include "devices/virtio/net.h"
#include "devices/virtio/virtio_device.h"
#include "devices/virtio/virtio_pci.h"
#include "pc/board.h"
#include "pc/pc_storage.h"

namespace alibi::vmm {

struct PcDevicesConfig {
  bool rng = false;
  bool console = false;       // its input is the terminal's, instead of the serial port's
  u16 columns = 0, rows = 0;  // of the terminal; 0: unknown
  net::Card card = net::Card::kVirtio;
  net::MacAddress mac = {};
  std::vector<u8> rom = {};  // of the network card, for firmware to find; may be empty
  net::Optimize optimize = {};
  std::shared_ptr<net::Backend> network = {};  // null: no card; not started yet
  std::vector<DriveConfig> drives;
  std::string boot_first;  // a boot path that firmware tries before the drives; may be empty
  block::Disk::Report drive_report;  // see PcStorage
};

class PcDevices {
 public:
  // Slot of the first one; they follow in the order rng, console, net, disks.
  static constexpr unsigned kFirstSlot = 3;

  // The rest outlives the devices; workers post to `mailbox` until they are gone.
  // `output` gets what the guest prints on the virtio console.
  static Result<std::unique_ptr<PcDevices>> Create(const PcDevicesConfig& config, devices::Pc& pc,
                                                   devices::Mailbox& mailbox, devices::Dma& dma,
                                                   std::function<void(std::string_view)> output);

  // The guest's world was left, or is about to be: what has waited for that goes out.
  void Crossed() {
    if (lance_ != nullptr) lance_->lance().Crossed();
    if (net_ != nullptr) net_->Crossed();
  }
  // Calls back with the name, the meaning and the value of each counter.
  void ForEachCounter(const std::function<void(const char*, const char*, u64)>& report) const;

  // Null if there is none.
  devices::virtio::Console* console() { return console_; }

 private:
  PcDevices() = default;
  Status AddNetwork(const PcDevicesConfig& config, devices::Pc& pc, devices::Mailbox& mailbox,
                    devices::Dma& dma);
  // Returns the slot. `rom`: an expansion ROM.
  unsigned AddVirtio(std::unique_ptr<devices::virtio::VirtioDevice> device, devices::Pc& pc,
                     devices::Dma& dma, std::vector<u8> rom = {});

  devices::virtio::Console* console_ = nullptr;
  unsigned next_slot_ = kFirstSlot;
  std::vector<std::unique_ptr<devices::virtio::VirtioDevice>> virtio_;
  std::vector<std::unique_ptr<devices::virtio::VirtioPci>> transports_;
  devices::virtio::Net* net_ = nullptr;  // one of these
  std::unique_ptr<devices::lance::LanceFunction> lance_;
  std::shared_ptr<net::Backend> network_;
  std::unique_ptr<PcStorage> storage_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_PC_DEVICES_H_
