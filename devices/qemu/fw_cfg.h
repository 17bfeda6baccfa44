// SPDX-License-Identifier: Apache-2.0
// QEMU's firmware configuration device (docs/specs/fw_cfg.rst), ports 0x510, 0x511 and, for DMA,
// 0x514-0x51b: numbered items and named files, read byte by byte or at once. Firmware and test
// kernels find out about the machine here.
#ifndef ALIBI_DEVICES_QEMU_FW_CFG_H_
#define ALIBI_DEVICES_QEMU_FW_CFG_H_

#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "devices/device.h"
#include "devices/dma.h"

namespace alibi::devices {

class FwCfg : public Device {
 public:
  enum Item : u16 {
    kSignature = 0x00,
    kInterfaceId = 0x01,
    kRamSize = 0x03,
    kNoGraphics = 0x04,
    kCpuCount = 0x05,
    kKernelAddress = 0x07,
    kKernelSize = 0x08,
    kInitrdAddress = 0x0a,
    kInitrdSize = 0x0b,
    kBootMenu = 0x0e,
    kMaxCpus = 0x0f,
    kKernelData = 0x11,
    kInitrdData = 0x12,
    kCommandLineAddress = 0x13,
    kCommandLineSize = 0x14,
    kCommandLineData = 0x15,
    kSetupAddress = 0x16,
    kSetupSize = 0x17,
    kSetupData = 0x18,
    kFileDirectory = 0x19,
    kFirstFile = 0x20,
    kArchitecture = 0x8000,
    kIrq0Override = kArchitecture + 2,
  };

  FwCfg();

  void Add(u16 item, std::vector<u8> bytes) { items_[item] = std::move(bytes); }
  void AddInteger(u16 item, u64 value, unsigned size);
  // `name` has at most 55 characters.
  void AddFile(const std::string& name, std::vector<u8> bytes);

  // From here on there is DMA; `dma` outlives the device.
  void ConnectDma(Dma& dma);
  // Ports 0x514-0x51b.
  Device& dma_ports() { return dma_ports_; }

  // Offset 0: the selector, two bytes wide. Offset 1: data.
  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 2; }
  void Reset() override {
    selected_ = 0;
    position_ = 0;
    descriptor_ = 0;
  }

 private:
  class DmaPorts final : public Device {
   public:
    explicit DmaPorts(FwCfg& owner) : owner_(owner) {}
    u64 Read(u64 offset, unsigned size) override;
    void Write(u64 offset, unsigned size, u64 value) override;
    unsigned MaxAccessSize() const override { return 4; }

   private:
    FwCfg& owner_;
  };

  // Does what the descriptor in guest memory says, and tells there how it went.
  void Transfer(PhysAddr descriptor);
  // Copies from the selected item; false if the place is not RAM.
  bool ReadInto(u64 address, u64 size);

  std::map<u16, std::vector<u8>> items_;
  u16 files_ = 0;
  u16 selected_ = 0;
  u64 position_ = 0;
  Dma* dma_ = nullptr;
  DmaPorts dma_ports_{*this};
  u64 descriptor_ = 0;  // its address, of which the upper half is written first
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_QEMU_FW_CFG_H_
