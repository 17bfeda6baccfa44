// SPDX-License-Identifier: Apache-2.0
#include "devices/pci/pci_chipset.h"

#include <utility>

#include "devices/pci/smbus.h"
#include "devices/time/acpi_pm.h"

namespace alibi::devices {
namespace {

constexpr u16 kIntel = 0x8086;

// Power management: I/O base and its enable, as the firmware sets them.
constexpr unsigned kPmBase = 0x40, kPmEnable = 0x80;
// "SMIs by the command port are set up": firmware that finds this set leaves system management
// mode, which does not exist here, alone.
constexpr unsigned kDeviceActivityB = 0x58;
constexpr u32 kSmiCommandEnabled = 1u << 25;

// SMBus: I/O base; host configuration, with the controller's enable and how it interrupts.
constexpr unsigned kSmBusBase = 0x90, kSmBusHost = 0xd2;
constexpr u8 kSmBusEnable = 0x01, kSmBusInterrupts = 0x0e, kSmBusIrq9 = 0x08;

// PIRQx route control: bit 7 off, bits 0 to 3 the line (82371SB data sheet, 290550).
constexpr u8 kRouteOff = 0x80, kRouteWritable = 0x8f;
// Lines 0, 1, 2, 8 and 13 are reserved there.
constexpr u16 kRoutableLines = 0xdef8;

}  // namespace

PciHostBridge::PciHostBridge(std::function<void(const Pam&)> on_pam)
    : PciFunction("host bridge",
                  {.vendor = kIntel, .device = 0x1237, .class_code = 0x060000, .revision = 2}),
      on_pam_(std::move(on_pam)) {
  constexpr unsigned kSmram = 0x72;  // kept, without an effect
  Set(kCommand, kMemoryEnable | kBusMaster, 2);
  SetWritable(kCommand, 0, 2);
  for (unsigned i = 0; i < kPamCount; ++i) SetWritable(kFirstPam + i, 0x33, 1);
  SetWritable(kSmram, 0x7f, 1);
  Set(kSmram, 0x02, 1);
}

PciHostBridge::Pam PciHostBridge::pam() const {
  Pam pam;
  for (unsigned i = 0; i < kPamCount; ++i) pam[i] = static_cast<u8>(Get(kFirstPam + i, 1));
  return pam;
}

void PciHostBridge::ConfigWritten(unsigned, unsigned) {
  const Pam now = pam();
  if (now == last_pam_) return;
  last_pam_ = now;
  if (on_pam_) on_pam_(now);
}

PciIsaBridge::PciIsaBridge(std::function<void()> on_routes)
    : PciFunction("ISA bridge", {.vendor = kIntel, .device = 0x7000, .class_code = 0x060100}),
      on_routes_(std::move(on_routes)) {
  Set(kCommand, kIoEnable | kMemoryEnable | kBusMaster, 2);
  for (unsigned i = 0; i < 4; ++i) {
    Set(kFirstRoute + i, kRouteOff, 1);
    SetWritable(kFirstRoute + i, kRouteWritable, 1);
  }
}

unsigned PciIsaBridge::Route(unsigned pirq) const {
  const u32 route = Get(kFirstRoute + pirq, 1);
  const unsigned line = route & 0xf;
  return (route & kRouteOff) || !(kRoutableLines >> line & 1) ? 0 : line;
}

void PciIsaBridge::ConfigWritten(unsigned, unsigned) { on_routes_(); }

PciPowerManagement::PciPowerManagement(std::function<void(u16)> on_pm_base,
                                       std::function<void(const SmBusSettings&)> on_smbus)
    : PciFunction("power management",
                  {.vendor = kIntel, .device = 0x7113, .class_code = 0x068000, .revision = 3}),
      on_pm_base_(std::move(on_pm_base)),
      on_smbus_(std::move(on_smbus)) {
  Set(kCommand, kIoEnable, 2);
  Set(kPmBase, AcpiPm::kDefaultBase | 1, 4);
  Set(kPmEnable, 1, 1);
  Set(kDeviceActivityB, kSmiCommandEnabled, 4);
  SetWritable(kPmBase, 0xffc0, 2);
  SetWritable(kPmEnable, 0x01, 1);
  Set(kSmBusBase, SmBus::kDefaultBase | 1, 4);
  SetWritable(kSmBusBase, 0xfff0, 2);
  Set(kSmBusHost, kSmBusEnable | kSmBusIrq9, 1);
  SetWritable(kSmBusHost, 0xffffff0f, 4);  // and what slaves would use, without an effect
  Set(kInterruptLine, AcpiPm::kSciIrq, 1);
  SetInterruptPin(1);
}

void PciPowerManagement::ConfigWritten(unsigned, unsigned) {
  const u16 base = static_cast<u16>(Get(kPmBase, 2) & 0xffc0);
  if (on_pm_base_ && (Get(kPmEnable, 1) & 1) && base != 0) on_pm_base_(base);
  const u32 host = Get(kSmBusHost, 1);
  if (on_smbus_) {
    on_smbus_({.base = static_cast<u16>(Get(kSmBusBase, 2) & 0xfff0),
               .enabled = (host & kSmBusEnable) && (Get(kCommand, 2) & kIoEnable),
               .interrupts = (host & kSmBusInterrupts) == kSmBusIrq9});
  }
}

}  // namespace alibi::devices
