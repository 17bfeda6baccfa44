// SPDX-License-Identifier: Apache-2.0
// The PCI bus of a PC of the i440FX kind: configuration mechanism 1 (ports 0xcf8 and 0xcfc), the
// functions that every such PC has (devices/pci/pci_chipset.h), and those that are added.
//
//   memory  0xe0000000 .. 0xfebfffff   BARs        ports  0xc000 ..   BARs
//   slots   0 host bridge, 1 ISA bridge (1.1 IDE, 1.3 power management), 2 VGA, 3.. the rest
//
// A slot's pin INTx is wired to PIRQ (slot + x - 1) mod 4 (A is 0), as everywhere; the ISA bridge's
// registers 0x60 to 0x63 lead PIRQA to PIRQD to ISA lines.
#ifndef ALIBI_DEVICES_PCI_PCI_H_
#define ALIBI_DEVICES_PCI_PCI_H_

#include <array>
#include <functional>
#include <vector>

#include "base/types.h"
#include "devices/bus.h"
#include "devices/device.h"
#include "devices/irq/lapic.h"
#include "devices/pci/pci_chipset.h"
#include "devices/pci/pci_function.h"

namespace alibi::devices {

class PciHost : public Device {
 public:
  static constexpr u32 kMemoryBase = 0xe0000000, kMemoryEnd = 0xfec00000;
  static constexpr u32 kIoBase = 0xc000;
  static constexpr unsigned kSlots = 32, kFunctions = 8;
  using Pam = PciHostBridge::Pam;

  // What the bus is connected to; the buses outlive it.
  struct Wiring {
    PortBus& ports;
    MmioBus& mmio;
    // `reset_control` sits in the middle of the address register and takes byte accesses.
    Device& reset_control;
    // The PCI side of an ISA interrupt line.
    std::function<void(unsigned irq, bool level)> isa_line;
    std::function<void(const ApicMessage&)> message;
    // Told of each change, of each new place of the power management's ports, and of what the
    // SMBus is set to.
    std::function<void(const Pam&)> pam;
    std::function<void(u16)> pm_base;
    std::function<void(const PciPowerManagement::SmBusSettings&)> smbus;
  };
  explicit PciHost(Wiring wiring);

  // Puts a function, which outlives the host, on the bus; function 0 of a slot must come too.
  void Add(unsigned slot, unsigned function, PciFunction& pci_function);

  // Places all BARs, enables decoding, and routes interrupts (PIRQA and B to line 10, C and D to
  // 11), for guests that are started without the firmware (SeaBIOS) that does so.
  void AssignAsFirmware();

  // Offset 0 is port 0xcf8.
  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 4; }
  void Reset() override;

  Pam pam() const { return host_bridge_.pam(); }

  // --- For functions ---
  void Send(const ApicMessage& message) { wiring_.message(message); }
  void UpdateMappings(PciFunction& function);
  void DrivePin(unsigned slot, unsigned pin, bool level);

 private:
  static constexpr unsigned kPirqs = 4;

  PciFunction* Selected();
  void Map(PciFunction& function, unsigned index);
  void UpdateRoutes();

  Wiring wiring_;
  u32 address_ = 0;
  std::array<PciFunction*, kSlots * kFunctions> functions_{};
  std::array<unsigned, kPirqs> asserted_{};  // functions that assert each PIRQ
  u16 isa_levels_ = 0;
  PciHostBridge host_bridge_;
  PciIsaBridge isa_bridge_;
  PciPowerManagement power_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_PCI_H_
