// SPDX-License-Identifier: Apache-2.0
// The functions that every PC of the i440FX kind has.
#ifndef ALIBI_DEVICES_PCI_PCI_CHIPSET_H_
#define ALIBI_DEVICES_PCI_PCI_CHIPSET_H_

#include <array>
#include <functional>

#include "base/types.h"
#include "devices/pci/pci_function.h"

namespace alibi::devices {

// 82441FX. Its PAM registers say, for 13 ranges between 768 KB and 1 MB, whether reads and writes
// go to RAM or to the ROM.
class PciHostBridge : public PciFunction {
 public:
  static constexpr unsigned kFirstPam = 0x59, kPamCount = 7;
  using Pam = std::array<u8, kPamCount>;

  // `on_pam` is told of each change.
  explicit PciHostBridge(std::function<void(const Pam&)> on_pam);
  Pam pam() const;

 private:
  void ConfigWritten(unsigned offset, unsigned size) override;

  std::function<void(const Pam&)> on_pam_;
  Pam last_pam_{};
};

// The PIIX3's bridge: routes the PCI interrupt lines.
class PciIsaBridge : public PciFunction {
 public:
  static constexpr unsigned kFirstRoute = 0x60;

  explicit PciIsaBridge(std::function<void()> on_routes);
  // The ISA line of PIRQA (0) to PIRQD (3); 0: none.
  unsigned Route(unsigned pirq) const;

 private:
  void ConfigWritten(unsigned offset, unsigned size) override;

  std::function<void()> on_routes_;
};

// The PIIX4's power management and its SMBus: their I/O ranges move to where their base registers
// say, while they are enabled.
class PciPowerManagement : public PciFunction {
 public:
  struct SmBusSettings {
    u16 base = 0;  // 0: nowhere
    bool enabled = false;
    bool interrupts = false;  // by IRQ 9
  };

  PciPowerManagement(std::function<void(u16)> on_pm_base,
                     std::function<void(const SmBusSettings&)> on_smbus);

 private:
  void ConfigWritten(unsigned offset, unsigned size) override;

  std::function<void(u16)> on_pm_base_;
  std::function<void(const SmBusSettings&)> on_smbus_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_PCI_CHIPSET_H_
