// SPDX-License-Identifier: Apache-2.0
#include "pc/pc_storage.h"

#include <fmt/format.h>

#include <utility>

#include "devices/ide/ata_disk.h"
#include "devices/ide/atapi_cdrom.h"
#include "devices/virtio/blk.h"

namespace alibi::vmm {
namespace {

constexpr unsigned kIdeSlot = 1, kIdeFunction = 1;
constexpr unsigned kPrimaryIrq = 14, kSecondaryIrq = 15;

}  // namespace

PcStorage::PcStorage(devices::Pc& pc, devices::Dma& dma)
    : ide_(dma, pc.Irq(kPrimaryIrq), pc.Irq(kSecondaryIrq)) {}

Result<std::unique_ptr<PcStorage>> PcStorage::Create(const std::vector<DriveConfig>& drives,
                                                     devices::Pc& pc, devices::Mailbox& mailbox,
                                                     devices::Dma& dma, block::Disk::Report report,
                                                     const AddVirtio& add_virtio,
                                                     const std::string& boot_first) {
  std::unique_ptr<PcStorage> storage(new PcStorage(pc, dma));
  Status added = storage->ide_.AddPorts(pc.ports());
  if (!added.ok()) return added.error();
  pc.pci().Add(kIdeSlot, kIdeFunction, storage->ide_);

  std::string disks_first, cdroms_last;
  for (const DriveConfig& drive : drives) {
    auto disk = block::Disk::Create(
        drive.image, drive.name,
        [&mailbox](std::function<void()> work) { mailbox.Post(std::move(work)); }, report);
    if (!disk.ok()) return disk.error();
    std::string path;
    if (drive.interface == DriveInterface::kVirtio) {
      const unsigned slot = add_virtio(std::make_unique<devices::virtio::Blk>(
          std::move(*disk), fmt::format("alibi-{}", ++storage->virtio_disks_)));
      disks_first += fmt::format("/pci@i0cf8/scsi@{:x}/disk@0,0\n", slot);
      continue;
    }
    if (!storage->AttachIde(std::move(*disk), drive.cdrom, &path)) {
      return Error{fmt::format("'{}': all four IDE drives are taken", drive.name)};
    }
    (drive.cdrom ? cdroms_last : disks_first) += path + "\n";
  }
  // Paths of Open Firmware, as QEMU gives them to SeaBIOS; the list ends with a NUL.
  const std::string order =
      (boot_first.empty() ? "" : boot_first + "\n") + disks_first + cdroms_last;
  if (!order.empty()) {
    pc.fw_cfg().AddFile("bootorder",
                        std::vector<u8>(order.c_str(), order.c_str() + order.size() + 1));
  }
  return storage;
}

bool PcStorage::AttachIde(std::unique_ptr<block::Disk> disk, bool cdrom, std::string* boot_path) {
  static constexpr unsigned kDiskPlaces[] = {0, 1, 2, 3}, kCdromPlaces[] = {2, 3, 1, 0};
  for (const unsigned place : cdrom ? kCdromPlaces : kDiskPlaces) {
    devices::IdeChannel& channel = ide_.channel(place / 2);
    const unsigned index = place % 2;
    if (channel.has_drive(index)) continue;
    std::unique_ptr<devices::IdeDrive> drive;
    if (cdrom) {
      drive = std::make_unique<devices::AtapiCdrom>(std::move(disk), channel);
    } else {
      drive = std::make_unique<devices::AtaDisk>(std::move(disk), channel,
                                                 fmt::format("AL{:05}", ++ide_disks_));
    }
    channel.Attach(index, std::move(drive));
    *boot_path = fmt::format("/pci@i0cf8/ide@{},{}/drive@{}/disk@{}", kIdeSlot, kIdeFunction,
                             place / 2, index);
    return true;
  }
  return false;
}

}  // namespace alibi::vmm
