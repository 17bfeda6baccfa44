// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/firmware.h"

#include <cstring>
#include <string_view>

namespace alibi::loader {
namespace {

using Bytes = std::vector<u8>;

// Bytes that grow, with integers at given offsets.
class Table {
 public:
  explicit Table(u64 size) : bytes_(size) {}
  void Put(u64 offset, u64 value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) bytes_[offset + i] = static_cast<u8>(value >> (8 * i));
  }
  void PutText(u64 offset, std::string_view text) {
    std::memcpy(bytes_.data() + offset, text.data(), text.size());
  }
  void Append(const Bytes& more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  void AppendInteger(u64 value, unsigned size) {
    const u64 at = bytes_.size();
    bytes_.resize(at + size);
    Put(at, value, size);
  }
  // Makes the sum of the first `size` bytes zero.
  void Checksum(u64 at, u64 size) {
    bytes_[at] = 0;
    u8 sum = 0;
    for (u64 i = 0; i < size; ++i) sum = static_cast<u8>(sum + bytes_[i]);
    bytes_[at] = static_cast<u8>(-sum);
  }
  u64 size() const { return bytes_.size(); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

constexpr std::string_view kOem = "ALIBI ";
constexpr u64 kHeaderBytes = 36;

// A system description table with its header (section 5.2.6); `body` follows it.
class DescriptionTable : public Table {
 public:
  DescriptionTable(std::string_view signature, u8 revision, u64 body_bytes = 0)
      : Table(kHeaderBytes + body_bytes) {
    PutText(0, signature);
    Put(8, revision, 1);
    PutText(10, kOem);
    PutText(16, "ALIBIPC ");
    Put(24, 1, 4);
    PutText(28, "ALIB");
    Put(32, 1, 4);
  }
  const Bytes& Finish() {
    Put(4, size(), 4);
    Checksum(9, size());
    return bytes();
  }
};

// Collects tables at rising addresses.
class Heap {
 public:
  explicit Heap(u64 base) : base_(base) {}
  u64 Add(const Bytes& table, u64 alignment = 16) {
    while ((base_ + bytes_.size()) % alignment != 0) bytes_.push_back(0);
    const u64 address = base_ + bytes_.size();
    bytes_.insert(bytes_.end(), table.begin(), table.end());
    return address;
  }
  Bytes& bytes() { return bytes_; }

 private:
  u64 base_;
  Bytes bytes_;
};

// dsdt.asl, compiled, with header and checksum.
constexpr u8 kDsdt[] = {
#include "pc/boot/dsdt.inc"
};

Bytes BuildMadt(const AcpiHardware& hardware) {
  DescriptionTable table("APIC", 3, 8);
  table.Put(36, hardware.local_apic, 4);
  table.Put(40, 1, 4);  // there are 8259s as well
  // Local APICs: a processor's UID, its APIC ID, enabled.
  for (unsigned cpu = 0; cpu < hardware.cpus; ++cpu) {
    table.Append({0, 8, static_cast<u8>(cpu), static_cast<u8>(cpu), 1, 0, 0, 0});
  }
  // The I/O APIC, from global interrupt 0.
  table.Append({1, 12, 0, 0});
  table.AppendInteger(hardware.io_apic, 4);
  table.AppendInteger(0, 4);
  const auto override_irq = [&table](u8 irq, u32 input, u16 flags) {
    table.Append({2, 10, 0, irq});
    table.AppendInteger(input, 4);
    table.AppendInteger(flags, 2);
  };
  constexpr u16 kAsTheBus = 0, kHighLevel = 0xd;
  override_irq(0, 2, kAsTheBus);  // the timer
  override_irq(static_cast<u8>(hardware.sci), hardware.sci, kHighLevel);
  // LINT1 of every processor is NMI.
  table.Append({4, 6, 0xff, 0, 0, 1});
  return table.Finish();
}

// The fixed description table, revision 3 (section 5.2.9).
Bytes BuildFadt(const AcpiHardware& hardware, u64 facs, u64 dsdt) {
  constexpr u32 kWbinvd = 1u << 0, kC1 = 1u << 2, kNoPowerButton = 1u << 4,
                kNoSleepButton = 1u << 5, kNoFixedRtc = 1u << 6, kResetRegister = 1u << 10;
  constexpr u16 kLegacyDevices = 1u << 0, kKeyboardController = 1u << 1;
  constexpr u64 kBytes = 244;
  DescriptionTable table("FACP", 3, kBytes - kHeaderBytes);
  const auto io = [&table](u64 offset, unsigned bytes, u16 port) {
    table.Put(offset, 1, 1);  // I/O space
    table.Put(offset + 1, 8 * bytes, 1);
    table.Put(offset + 3, bytes == 4 ? 3 : bytes, 1);
    table.Put(offset + 4, port, 8);
  };
  table.Put(36, facs, 4);
  table.Put(40, dsdt, 4);
  table.Put(45, 1, 1);  // a desktop
  table.Put(46, hardware.sci, 2);
  table.Put(48, hardware.smi_command, 4);
  table.Put(52, hardware.acpi_enable, 1);
  table.Put(53, hardware.acpi_disable, 1);
  table.Put(56, hardware.pm1_event, 4);
  table.Put(64, hardware.pm1_control, 4);
  table.Put(76, hardware.pm_timer, 4);
  table.Put(88, 4, 1);      // lengths: PM1 event,
  table.Put(89, 2, 1);      // PM1 control,
  table.Put(91, 4, 1);      // timer
  table.Put(96, 0xfff, 2);  // no C2
  table.Put(98, 0xfff, 2);  // no C3
  table.Put(108, 0x32, 1);  // the century's place in CMOS
  table.Put(109, kLegacyDevices | kKeyboardController, 2);
  table.Put(112, kWbinvd | kC1 | kNoPowerButton | kNoSleepButton | kNoFixedRtc | kResetRegister, 4);
  io(116, 1, hardware.reset_port);
  table.Put(128, hardware.reset_value, 1);
  table.Put(140, dsdt, 8);
  io(148, 4, hardware.pm1_event);
  io(172, 2, hardware.pm1_control);
  io(208, 4, hardware.pm_timer);
  return table.Finish();
}

// The processors by their UIDs: Scope (\_PR) { Processor (CP00, 0, 0, 0) {} ... } as AML (ACPI 6.4,
// 20.2.5; Processor as in 5.1).
Bytes BuildProcessors(const AcpiHardware& hardware) {
  constexpr u64 kObjectBytes = 13, kScopeName = 5;
  DescriptionTable table("SSDT", 1);
  // The length of a package of 63 to 4095 bytes, its own two included.
  const u64 length = 2 + kScopeName + kObjectBytes * hardware.cpus;
  table.Append({0x10, static_cast<u8>(0x40 | (length & 0xf)), static_cast<u8>(length >> 4), '\\',
                '_', 'P', 'R', '_'});
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (unsigned cpu = 0; cpu < hardware.cpus; ++cpu) {
    table.Append({0x5b, 0x83, kObjectBytes - 2, 'C', 'P', '0', static_cast<u8>(kDigits[cpu]),
                  static_cast<u8>(cpu), 0, 0, 0, 0, 0});
  }
  return table.Finish();
}

// IA-PC HPET specification 1.0a, 3.2.4.
Bytes BuildHpet(const AcpiHardware& hardware) {
  DescriptionTable table("HPET", 1, 20);
  table.Put(36, hardware.hpet_block, 4);
  table.Put(41, 64, 1);  // memory, 64 bits wide
  table.Put(44, hardware.hpet, 8);
  table.Put(53, 128, 2);  // ticks that a periodic timer can keep up with at least
  return table.Finish();
}

Bytes BuildFacs() {
  Table table(64);
  table.PutText(0, "FACS");
  table.Put(4, 64, 4);
  table.Put(32, 1, 1);  // version
  return table.bytes();
}

// Code that real-mode vectors lead to, at f000:fe00.
constexpr u64 kReturn = kFirmwareHandlers, kMasterIrq = kReturn + 1, kSlaveIrq = kReturn + 8,
              kReset = kReturn + 0x12;
constexpr u8 kHandlers[] = {0xcf,  // iret
                            0x50, 0xb0, 0x20, 0xe6, 0x20, 0x58,
                            0xcf,  // push ax; mov al, 20h; out 20h, al; pop ax; iret
                            // push ax; mov al, 20h; out a0h, al; out 20h, al; pop ax; iret
                            0x50, 0xb0, 0x20, 0xe6, 0xa0, 0xe6, 0x20, 0x58, 0xcf, 0x90,
                            // mov al, 6; mov dx, cf9h; out dx, al; hlt
                            0xb0, 0x06, 0xba, 0xf9, 0x0c, 0xee, 0xf4};

}  // namespace

std::vector<u8> BuildAcpi(const AcpiHardware& hardware, u64 address) {
  constexpr u64 kRsdpBytes = 36;
  Heap heap(address);
  heap.Add(Bytes(kRsdpBytes));
  const u64 facs = heap.Add(BuildFacs(), 64);
  const u64 dsdt = heap.Add(Bytes(std::begin(kDsdt), std::end(kDsdt)));
  std::vector<u64> tables = {heap.Add(BuildFadt(hardware, facs, dsdt)),
                             heap.Add(BuildMadt(hardware)), heap.Add(BuildHpet(hardware))};
  if (hardware.cpus > 1) tables.push_back(heap.Add(BuildProcessors(hardware)));
  DescriptionTable rsdt("RSDT", 1), xsdt("XSDT", 1);
  for (const u64 table : tables) {
    rsdt.AppendInteger(table, 4);
    xsdt.AppendInteger(table, 8);
  }
  const u64 rsdt_address = heap.Add(rsdt.Finish()), xsdt_address = heap.Add(xsdt.Finish());

  Table rsdp(kRsdpBytes);
  rsdp.PutText(0, "RSD PTR ");
  rsdp.PutText(9, kOem);
  rsdp.Put(15, 2, 1);
  rsdp.Put(16, rsdt_address, 4);
  rsdp.Put(20, kRsdpBytes, 4);
  rsdp.Put(24, xsdt_address, 8);
  rsdp.Checksum(8, 20);
  rsdp.Checksum(32, kRsdpBytes);
  std::memcpy(heap.bytes().data(), rsdp.bytes().data(), kRsdpBytes);
  return heap.bytes();
}

std::vector<u8> BuildMpTable(const AcpiHardware& hardware, u64 address) {
  enum Entry : u8 { kProcessor, kBus, kIoApic, kInterrupt, kLocalInterrupt };
  enum Kind : u8 { kVectored, kNmi, kSmi, kExtInt };
  constexpr u8 kPci = 0, kIsa = 1, kLapicVersion = 0x15, kIoApicVersion = 0x20, kAllLapics = 0xff;
  constexpr u16 kAsTheBus = 0, kHighLevel = 0xd;
  const u8 io_apic_id = static_cast<u8>(hardware.cpus);
  Table entries(0);
  u64 count = 0;
  const auto add = [&](std::vector<u8> entry) {
    entries.Append(entry);
    ++count;
  };
  for (unsigned cpu = 0; cpu < hardware.cpus; ++cpu) {
    constexpr u8 kEnabled = 1, kBootProcessor = 2;
    add({kProcessor, static_cast<u8>(cpu), kLapicVersion,
         static_cast<u8>(cpu == 0 ? kEnabled | kBootProcessor : kEnabled), 0, 0, 0, 0, 0, 0, 0, 0});
    // A family and features are what CPUID is for.
    entries.Append({0, 0, 0, 0, 0, 0, 0, 0});
  }
  add({kBus, kPci, 'P', 'C', 'I', ' ', ' ', ' '});
  add({kBus, kIsa, 'I', 'S', 'A', ' ', ' ', ' '});
  add({kIoApic, io_apic_id, kIoApicVersion, 1});
  entries.AppendInteger(hardware.io_apic, 4);
  const auto interrupt = [&](Entry type, Kind kind, u16 flags, u8 bus, unsigned irq, u8 apic,
                             unsigned input) {
    add({type, kind, static_cast<u8>(flags), static_cast<u8>(flags >> 8), bus, static_cast<u8>(irq),
         apic, static_cast<u8>(input)});
  };
  for (unsigned irq = 0; irq < 16; ++irq) {
    constexpr unsigned kTimerInput = 2, kCascade = 2;
    if (irq == kCascade) continue;
    interrupt(kInterrupt, kVectored, irq == hardware.sci ? kHighLevel : kAsTheBus, kIsa, irq,
              io_apic_id, irq == 0 ? kTimerInput : irq);
  }
  // As the DSDT's _PRT has it.
  constexpr u8 kLines[] = {10, 10, 11, 11};
  for (unsigned slot = 0; slot < 32; ++slot) {
    for (unsigned pin = 0; pin < 4; ++pin) {
      interrupt(kInterrupt, kVectored, kHighLevel, kPci, slot << 2 | pin, io_apic_id,
                kLines[(slot + pin + 3) % 4]);
    }
  }
  interrupt(kLocalInterrupt, kExtInt, kAsTheBus, kIsa, 0, kAllLapics, 0);
  interrupt(kLocalInterrupt, kNmi, kAsTheBus, kIsa, 0, kAllLapics, 1);

  constexpr u64 kPointerBytes = 16, kTableHeaderBytes = 44;
  Table table(kTableHeaderBytes);
  table.PutText(0, "PCMP");
  table.Put(4, kTableHeaderBytes + entries.size(), 2);
  table.Put(6, 4, 1);  // specification 1.4
  table.PutText(8, "ALIBI   ");
  table.PutText(16, "ALIBIPC     ");
  table.Put(34, count, 2);
  table.Put(36, hardware.local_apic, 4);
  table.Append(entries.bytes());
  table.Checksum(7, table.size());
  Table pointer(kPointerBytes);
  pointer.PutText(0, "_MP_");
  pointer.Put(4, address + kPointerBytes, 4);
  pointer.Put(8, 1, 1);  // in units of 16 bytes
  pointer.Put(9, 4, 1);
  pointer.Checksum(10, kPointerBytes);
  pointer.Append(table.bytes());
  return pointer.bytes();
}

bool WriteFirmware(const AcpiHardware& hardware, GuestMemory& memory) {
  constexpr u64 kDataArea = 0x400, kExtendedArea = 0x9fc00;
  constexpr u16 kExtendedSegment = kExtendedArea >> 4;
  Table low(0x500);
  const auto vector = [&low](unsigned number, u64 address) {
    low.Put(number * 4, address & 0xffff, 2);
    low.Put(number * 4 + 2, 0xf000, 2);
  };
  for (unsigned i = 0; i < 256; ++i) vector(i, kReturn);
  for (unsigned i = 0; i < 8; ++i) {
    vector(8 + i, kMasterIrq);
    vector(0x70 + i, kSlaveIrq);
  }
  low.Put(kDataArea, 0x3f8, 2);      // COM1
  low.Put(kDataArea + 8, 0x378, 2);  // LPT1
  low.Put(kDataArea + 0xe, kExtendedSegment, 2);
  low.Put(kDataArea + 0x10, 0x4202, 2);  // a coprocessor, a serial and a parallel port
  low.Put(kDataArea + 0x49, 3, 1);       // VGA: mode 3, 80 columns, 4 KB a page,
  low.Put(kDataArea + 0x4a, 80, 2);
  low.Put(kDataArea + 0x4c, 0x1000, 2);
  low.Put(kDataArea + 0x63, 0x3d4, 2);  // the CRT controller, 25 lines of 16 points
  low.Put(kDataArea + 0x84, 24, 1);
  low.Put(kDataArea + 0x85, 16, 2);
  low.Put(kDataArea + 0x13, kExtendedArea / 1024, 2);
  Table extended(16);
  extended.Put(0, 1, 1);  // its size in KB

  Table top(16);
  top.Put(0, 0xea, 1);  // jmp f000:...
  top.Put(1, kReset & 0xffff, 2);
  top.Put(3, 0xf000, 2);
  top.PutText(5, "11/20/26");
  top.Put(14, 0xfc, 1);  // an AT

  return memory.Write(PhysAddr(0), low.bytes()) &&
         memory.Write(PhysAddr(kExtendedArea), extended.bytes()) &&
         memory.Write(PhysAddr(kRsdpAddress), BuildAcpi(hardware, kRsdpAddress)) &&
         (hardware.cpus == 1 ||
          memory.Write(PhysAddr(kMpTableAddress), BuildMpTable(hardware, kMpTableAddress))) &&
         memory.Write(PhysAddr(kFirmwareHandlers), kHandlers) &&
         memory.Write(PhysAddr(0xffff0), top.bytes());
}

}  // namespace alibi::loader
