// SPDX-License-Identifier: Apache-2.0
// A function on the PCI bus: its configuration space, base address registers, interrupt pin and
// capabilities (PCI Local Bus Specification 3.0, chapter 6).
//
// A device derives from PciFunction (or owns one), adds its BARs in its constructor, and is given
// to PciHost::Add(). The host maps each BAR's Device where the guest puts it, while the command
// register allows it; RAM and devices with a fixed place win over a BAR that is put onto them.
#ifndef ALIBI_DEVICES_PCI_PCI_FUNCTION_H_
#define ALIBI_DEVICES_PCI_PCI_FUNCTION_H_

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/irq/msix.h"
#include "devices/pci/rom_image.h"

namespace alibi::devices {

class PciHost;

struct PciIds {
  u16 vendor = 0;
  u16 device = 0;
  u32 class_code = 0;  // 24 bits: class, subclass, programming interface
  u8 revision = 0;
  // By this, firmware and systems know that the machine is QEMU's kind of PC.
  u16 subsystem_vendor = 0x1af4;
  u16 subsystem = 0x1100;
};

class PciFunction {
 public:
  // Offsets in configuration space.
  enum Offset : unsigned {
    kIds = 0x00,
    kCommand = 0x04,
    kStatus = 0x06,
    kRevision = 0x08,
    kProgrammingInterface = 0x09,
    kCacheLine = 0x0c,
    kLatency = 0x0d,
    kHeaderType = 0x0e,
    kFirstBar = 0x10,
    kSubsystem = 0x2c,
    kRom = 0x30,
    kCapabilities = 0x34,
    kInterruptLine = 0x3c,
    kInterruptPin = 0x3d,
    kHeaderEnd = 0x40,
  };
  // Bits of the command register.
  static constexpr u16 kIoEnable = 1u << 0, kMemoryEnable = 1u << 1, kBusMaster = 1u << 2,
                       kIntxDisable = 1u << 10;
  // Bits of the status register.
  static constexpr u8 kInterruptStatus = 1u << 3, kHasCapabilities = 1u << 4;
  static constexpr unsigned kBars = 7, kRomBar = 6;
  static constexpr u64 kLargestRom = u64{16} << 20;

  // `name` is for messages and traces.
  PciFunction(std::string name, const PciIds& ids);
  virtual ~PciFunction() = default;
  PciFunction(const PciFunction&) = delete;
  PciFunction& operator=(const PciFunction&) = delete;

  // --- Before PciHost::Add() ---
  // `size` is a power of two: ports 4 to 256, memory 16 to 2^31. Offset 0 of `device`, which
  // outlives the function, is where the BAR begins. A 64-bit BAR takes two indices (0 to 5).
  void AddIoBar(unsigned index, u32 size, Device& device);
  void AddMemoryBar(unsigned index, u64 size, Device& device, bool bits64 = false);
  // The expansion ROM, up to kLargestRom; none if there are no bytes.
  void AddRom(std::vector<u8> bytes);
  // A BAR of its own for `vectors` messages.
  Msix& AddMsix(unsigned bar, unsigned vectors);
  // 1 to 4 for INTA# to INTD#.
  void SetInterruptPin(unsigned pin);
  // Appends to the list; `body` follows the ID and the next pointer. Returns its offset.
  unsigned AddCapability(u8 id, std::span<const u8> body);
  void Set(unsigned offset, u32 value, unsigned size);
  void SetWritable(unsigned offset, u32 mask, unsigned size);

  // --- Any time ---
  const std::string& name() const { return name_; }
  u32 Get(unsigned offset, unsigned size) const;
  bool bus_master() const { return bytes_[kCommand] & kBusMaster; }
  // The interrupt pin's wire: level-triggered, shared. Held back by the command register's bit, and
  // silent while MSI-X is on.
  IrqLine& intx() { return intx_; }
  // Null without AddMsix().
  Msix* msix() { return msix_.get(); }

  // RST#: configuration space is as when the function was put on the bus, and what is behind its
  // BARs is reset. A device with state of its own extends this.
  virtual void Reset();

  // --- For the host ---
  // `offset` + `size` <= 256.
  u32 ConfigRead(unsigned offset, unsigned size);
  void ConfigWrite(unsigned offset, unsigned size, u32 value);

 protected:
  // Bytes that are computed when they are read are put in place by Set() here.
  virtual void ConfigReading([[maybe_unused]] unsigned offset, [[maybe_unused]] unsigned size) {}
  // The guest wrote these bytes; what may change has changed, BARs are mapped.
  virtual void ConfigWritten([[maybe_unused]] unsigned offset, [[maybe_unused]] unsigned size) {}

 private:
  friend class PciHost;

  struct Bar {
    Device* device = nullptr;  // null: the register does not exist
    u64 size = 0;
    bool io = false;
    bool bits64 = false;
    bool rom = false;
    bool mapped = false;
    u64 address = 0;  // while mapped
  };
  class IntxLine : public IrqLine {
   public:
    explicit IntxLine(PciFunction& function) : function_(function) {}
    void Set(bool level) override;

   private:
    PciFunction& function_;
  };

  static unsigned BarOffset(unsigned index) {
    return index == kRomBar ? kRom : kFirstBar + 4 * index;
  }
  void AddBar(unsigned index, const Bar& bar, u32 flags);
  // Where the guest wants a BAR; false: nowhere.
  bool WantedAddress(unsigned index, u64* address) const;
  void SetBarAddress(unsigned index, u64 address);
  void UpdateIntx();

  std::string name_;
  std::array<u8, 256> bytes_{};
  std::array<u8, 256> writable_{};
  std::array<u8, 256> after_reset_{};
  std::array<Bar, kBars> bars_{};
  std::unique_ptr<Msix> msix_;
  std::unique_ptr<RomImage> rom_;
  unsigned msix_control_ = 0;     // offset of the message control word
  unsigned last_capability_ = 0;  // offset of the pointer to the next one; 0: none
  unsigned capability_end_ = kHeaderEnd;
  IntxLine intx_{*this};
  bool intx_level_ = false;   // what the device says
  bool intx_driven_ = false;  // what the wire shows
  PciHost* host_ = nullptr;
  unsigned slot_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_PCI_PCI_FUNCTION_H_
