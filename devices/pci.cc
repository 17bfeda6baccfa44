#include "devices/pci.h"

#include <utility>

#include "devices/acpi_pm.h"

namespace alibi::devices {
namespace {

constexpr u32 kEnable = 1u << 31;
constexpr u64 kData = 4;  // port 0xcfc

// Configuration space.
enum Offset : unsigned {
  kIds = 0x00,
  kCommand = 0x04,
  kClass = 0x08,  // with the revision
  kHeaderType = 0x0e,
  kSubsystem = 0x2c,
  kInterruptLine = 0x3c,
  kInterruptPin = 0x3d,
};
constexpr u8 kManyFunctions = 0x80;
constexpr u32 kIntel = 0x8086;
// By this, firmware and systems know that the machine is QEMU's kind of PC.
constexpr u32 kQemuSubsystem = 0x1100'1af4;

// The PIIX3's routing of the PCI interrupt lines: off.
constexpr unsigned kPirqRoutes = 0x60;
constexpr u32 kRoutesOff = 0x80808080;
// The PIIX4's power management: I/O base and its enable, as the firmware sets them.
constexpr unsigned kPmBase = 0x40, kPmEnable = 0x80;
// "SMIs by the command port are set up": firmware that finds this set leaves system management
// mode, which does not exist here, alone.
constexpr unsigned kDeviceActivityB = 0x58;
constexpr u32 kSmiCommandEnabled = 1u << 25;

PciFunction MakeFunction(u32 device, u32 class_and_revision) {
  PciFunction function;
  function.Set(kIds, device << 16 | kIntel, 4);
  function.Set(kClass, class_and_revision, 4);
  function.Set(kSubsystem, kQemuSubsystem, 4);
  function.writable[kCommand] = 0x07;
  function.writable[kInterruptLine] = 0xff;
  return function;
}

}  // namespace

PciHost::PciHost(Device& reset_control, std::function<void(const Pam&)> pam,
                 std::function<void(u16)> pm_base)
    : reset_control_(reset_control),
      on_pam_(std::move(pam)),
      on_pm_base_(std::move(pm_base)),
      host_bridge_(MakeFunction(0x1237, 0x06000002)),
      isa_bridge_(MakeFunction(0x7000, 0x06010000)),
      power_(MakeFunction(0x7113, 0x06800003)) {
  host_bridge_.Set(kCommand, 0x0006, 2);
  host_bridge_.writable[kCommand] = 0;
  for (unsigned i = 0; i < kPamCount; ++i) host_bridge_.writable[kFirstPam + i] = 0x33;
  host_bridge_.writable[0x72] = 0x7f;  // SMRAM control: kept, without an effect
  host_bridge_.bytes[0x72] = 0x02;

  isa_bridge_.Set(kCommand, 0x0007, 2);
  isa_bridge_.Set(kHeaderType, kManyFunctions, 1);
  isa_bridge_.Set(kPirqRoutes, kRoutesOff, 4);
  for (unsigned i = 0; i < 4; ++i) isa_bridge_.writable[kPirqRoutes + i] = 0x8f;

  power_.Set(kPmBase, AcpiPm::kDefaultBase | 1, 4);
  power_.Set(kPmEnable, 1, 1);
  power_.Set(kDeviceActivityB, kSmiCommandEnabled, 4);
  power_.writable[kPmBase] = 0xc0;
  power_.writable[kPmBase + 1] = 0xff;
  power_.writable[kPmEnable] = 0x01;
  power_.Set(kInterruptLine, AcpiPm::kSciIrq, 1);
  power_.Set(kInterruptPin, 1, 1);
}

PciHost::Pam PciHost::pam() const {
  Pam pam;
  for (unsigned i = 0; i < kPamCount; ++i) pam[i] = host_bridge_.bytes[kFirstPam + i];
  return pam;
}

PciFunction* PciHost::Selected() {
  if (!(address_ & kEnable)) return nullptr;
  switch (address_ >> 8 & 0xffff) {  // bus, device, function
    case 0x0000:
      return &host_bridge_;
    case 0x0008:
      return &isa_bridge_;
    case 0x000b:
      return &power_;
    default:
      return nullptr;
  }
}

u64 PciHost::Read(u64 offset, unsigned size) {
  if (offset < kData) {
    if (offset == 0 && size == 4) return address_;
    if (offset == 1 && size == 1) return reset_control_.Read(0, 1);
    return ~u64{0};
  }
  const PciFunction* function = Selected();
  if (function == nullptr) return ~u64{0};
  const unsigned first = (address_ & 0xfc) + static_cast<unsigned>(offset - kData);
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) value |= u64{function->bytes[(first + i) & 0xff]} << (8 * i);
  return value;
}

void PciHost::Write(u64 offset, unsigned size, u64 value) {
  if (offset < kData) {
    if (offset == 0 && size == 4) address_ = static_cast<u32>(value);
    if (offset == 1 && size == 1) reset_control_.Write(0, 1, value);
    return;
  }
  PciFunction* function = Selected();
  if (function == nullptr) return;
  const Pam before = pam();
  const unsigned first = (address_ & 0xfc) + static_cast<unsigned>(offset - kData);
  for (unsigned i = 0; i < size; ++i) {
    const unsigned at = (first + i) & 0xff;
    const u8 mask = function->writable[at];
    const u8 byte = static_cast<u8>(value >> (8 * i));
    function->bytes[at] = static_cast<u8>((function->bytes[at] & ~mask) | (byte & mask));
  }
  NoticeChanges(before);
}

void PciHost::NoticeChanges(const Pam& before) {
  if (on_pam_ && pam() != before) on_pam_(pam());
  const u16 base =
      static_cast<u16>((power_.bytes[kPmBase] & 0xc0) | power_.bytes[kPmBase + 1] << 8);
  if (on_pm_base_ && (power_.bytes[kPmEnable] & 1) && base != 0) on_pm_base_(base);
}

}  // namespace alibi::devices
