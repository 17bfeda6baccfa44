// SPDX-License-Identifier: Apache-2.0
// The drives of a PC: which controller each one hangs on, and what firmware is told of them.
#ifndef ALIBI_PC_PC_STORAGE_H_
#define ALIBI_PC_PC_STORAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "devices/block/disk.h"
#include "devices/dma.h"
#include "devices/ide/ide_controller.h"
#include "devices/mailbox.h"
#include "devices/virtio/virtio_device.h"
#include "pc/board.h"

namespace alibi::vmm {

enum class DriveInterface : u8 { kIde, kVirtio };

struct DriveConfig {
  std::shared_ptr<block::BlockImage> image;
  std::string name;  // for messages
  DriveInterface interface = DriveInterface::kIde;
  bool cdrom = false;  // an IDE drive
};

class PcStorage {
 public:
  // Puts the controllers onto the board. Disks take the IDE places from the first channel's first
  // drive on, CD-ROM drives from the second channel's, as under QEMU. `report` gets one line for
  // each kind of failure, on the disk's thread.
  // `boot_first`, if not empty, is a boot path that firmware tries before all drives.
  // `add_virtio` puts a device on the bus and returns its slot. What is referred to, with the
  // mailbox first of all, outlives the storage; its end waits until the images have what was
  // written.
  using AddVirtio = std::function<unsigned(std::unique_ptr<devices::virtio::VirtioDevice>)>;
  static Result<std::unique_ptr<PcStorage>> Create(const std::vector<DriveConfig>& drives,
                                                   devices::Pc& pc, devices::Mailbox& mailbox,
                                                   devices::Dma& dma, block::Disk::Report report,
                                                   const AddVirtio& add_virtio,
                                                   const std::string& boot_first);

 private:
  PcStorage(devices::Pc& pc, devices::Dma& dma);
  // False: all places are taken.
  bool AttachIde(std::unique_ptr<block::Disk> disk, bool cdrom, std::string* boot_path);

  devices::IdeController ide_;
  unsigned ide_disks_ = 0;
  unsigned virtio_disks_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_PC_STORAGE_H_
