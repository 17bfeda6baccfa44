// QEMU's firmware configuration device (docs/specs/fw_cfg.rst), ports 0x510 and 0x511 without DMA:
// numbered items and named files, read byte by byte. Firmware and test kernels find out about the
// machine here.
#ifndef ALIBI_DEVICES_FW_CFG_H_
#define ALIBI_DEVICES_FW_CFG_H_

#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

class FwCfg : public Device {
 public:
  enum Item : u16 {
    kSignature = 0x00,
    kInterfaceId = 0x01,
    kRamSize = 0x03,
    kNoGraphics = 0x04,
    kCpuCount = 0x05,
    kBootMenu = 0x0e,
    kMostCpus = 0x0f,
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

  // Offset 0: the selector, two bytes wide. Offset 1: data.
  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 2; }
  void Reset() override {
    selected_ = 0;
    position_ = 0;
  }

 private:
  std::map<u16, std::vector<u8>> items_;
  u16 files_ = 0;
  u16 selected_ = 0;
  u64 position_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_FW_CFG_H_
