// SPDX-License-Identifier: Apache-2.0
#include "pc/pc_devices.h"

#include <utility>

#include "devices/virtio/rng.h"

namespace alibi::vmm {

namespace virtio = devices::virtio;

Result<std::unique_ptr<PcDevices>> PcDevices::Create(const PcDevicesConfig& config, devices::Pc& pc,
                                                     devices::Mailbox& mailbox, devices::Dma& dma,
                                                     std::function<void(std::string_view)> output) {
  std::unique_ptr<PcDevices> all(new PcDevices);
  if (config.rng) all->AddVirtio(std::make_unique<virtio::Rng>(), pc, dma);
  if (config.console) {
    auto console =
        std::make_unique<virtio::Console>(std::move(output), config.columns, config.rows);
    all->console_ = console.get();
    all->AddVirtio(std::move(console), pc, dma);
  }
  if (config.network != nullptr) {
    Status added = all->AddNetwork(config, pc, mailbox, dma);
    if (!added.ok()) return added.error();
  }
  auto storage = PcStorage::Create(
      config.drives, pc, mailbox, dma, config.drive_report,
      [&](std::unique_ptr<virtio::VirtioDevice> device) {
        return all->AddVirtio(std::move(device), pc, dma);
      },
      config.boot_first);
  if (!storage.ok()) return storage.error();
  all->storage_ = std::move(*storage);
  return all;
}

Status PcDevices::AddNetwork(const PcDevicesConfig& config, devices::Pc& pc,
                             devices::Mailbox& mailbox, devices::Dma& dma) {
  network_ = config.network;
  if (config.card == net::Card::kLance) {
    lance_ = std::make_unique<devices::lance::LanceFunction>(
        config.mac, config.network, config.optimize, dma, pc.clock(), pc.timers());
    lance_->AddRom(config.rom);
    pc.pci().Add(next_slot_++, 0, *lance_);
    return lance_->lance().Connect(mailbox);
  }
  auto net = std::make_unique<virtio::Net>(
      config.mac, config.network, config.optimize,
      virtio::Net::Wiring{.clock = pc.clock(), .timers = pc.timers()});
  net_ = net.get();
  Status connected = net->Connect(mailbox);
  AddVirtio(std::move(net), pc, dma, config.rom);
  return connected;
}

void PcDevices::ForEachCounter(
    const std::function<void(const char*, const char*, u64)>& report) const {
  if (network_ == nullptr) return;
  report("net_wakes", "system calls that woke the network's thread", network_->wakes());
  report("net_direct", "frames that the VCPU's thread has sent itself instead", network_->direct());
  if (lance_ != nullptr) {
    const devices::lance::Tallies& tallies = lance_->lance().tallies();
#define ALIBI_LANCE_COUNTER(name, what) report(#name, what, tallies.name);
#include "devices/lance/counters.inc"
#undef ALIBI_LANCE_COUNTER
  }
  if (net_ != nullptr) {
    const virtio::NetTallies& tallies = net_->tallies();
#define ALIBI_VIRTIO_NET_COUNTER(name, what) report(#name, what, tallies.name);
#include "devices/virtio/net_counters.inc"
#undef ALIBI_VIRTIO_NET_COUNTER
  }
}

unsigned PcDevices::AddVirtio(std::unique_ptr<virtio::VirtioDevice> device, devices::Pc& pc,
                              devices::Dma& dma, std::vector<u8> rom) {
  transports_.push_back(std::make_unique<virtio::VirtioPci>(*device, dma));
  transports_.back()->AddRom(std::move(rom));
  virtio_.push_back(std::move(device));
  pc.pci().Add(next_slot_, 0, *transports_.back());
  return next_slot_++;
}

}  // namespace alibi::vmm
