// PCI configuration mechanism 1 (ports 0xcf8 and 0xcfc) and the functions that every PC of the
// i440FX kind has: host bridge, ISA bridge, power management. There are no other devices.
//
// The power management's I/O range moves to where its base register says, while that is enabled.
//
// The host bridge's PAM registers say, for 13 ranges between 768 KB and 1 MB, whether reads and
// writes go to RAM or to the ROM.
#ifndef ALIBI_DEVICES_PCI_H_
#define ALIBI_DEVICES_PCI_H_

#include <array>
#include <functional>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

// A function's 256 bytes, and which of their bits can be written.
struct PciFunction {
  std::array<u8, 256> bytes{};
  std::array<u8, 256> writable{};

  void Set(unsigned offset, u32 value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) bytes[offset + i] = static_cast<u8>(value >> (8 * i));
  }
};

class PciHost : public Device {
 public:
  static constexpr unsigned kFirstPam = 0x59, kPamCount = 7;
  using Pam = std::array<u8, kPamCount>;

  // `reset_control` sits in the middle of the address register and takes byte accesses. `pam` is
  // told of each change, `pm_base` of each new place.
  PciHost(Device& reset_control, std::function<void(const Pam&)> pam,
          std::function<void(u16)> pm_base);

  // Offset 0 is port 0xcf8.
  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 4; }

  Pam pam() const;

 private:
  PciFunction* Selected();
  void NoticeChanges(const Pam& before);

  Device& reset_control_;
  std::function<void(const Pam&)> on_pam_;
  std::function<void(u16)> on_pm_base_;
  u32 address_ = 0;
  PciFunction host_bridge_;
  PciFunction isa_bridge_;
  PciFunction power_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_H_
