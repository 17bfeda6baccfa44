// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/firmware.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>

namespace alibi::loader {
namespace {

class Memory final : public GuestMemory {
 public:
  bool Write(PhysAddr addr, std::span<const u8> data) override {
    if (addr.value + data.size() > bytes.size()) return false;
    std::memcpy(bytes.data() + addr.value, data.data(), data.size());
    return true;
  }
  bool Zero(PhysAddr, u64) override { return true; }
  u64 Get(u64 address, unsigned size) const {
    u64 value = 0;
    for (unsigned i = 0; i < size; ++i) value |= u64{bytes.at(address + i)} << (8 * i);
    return value;
  }
  std::string Text(u64 address, unsigned size) const {
    return std::string(reinterpret_cast<const char*>(bytes.data()) + address, size);
  }
  u8 Sum(u64 address, u64 size) const {
    u8 sum = 0;
    for (u64 i = 0; i < size; ++i) sum = static_cast<u8>(sum + bytes.at(address + i));
    return sum;
  }
  std::vector<u8> bytes = std::vector<u8>(0x100000);
};

TEST_CASE("ACPI tables are found from the RSDP, with checksums") {
  Memory m;
  AcpiHardware hardware;
  REQUIRE(WriteFirmware(hardware, m));
  u64 rsdp = 0;
  for (u64 at = 0xe0000; at < 0x100000 && rsdp == 0; at += 16) {
    if (m.Text(at, 8) == "RSD PTR ") rsdp = at;
  }
  REQUIRE(rsdp != 0);
  CHECK(m.Sum(rsdp, 20) == 0);
  CHECK(m.Sum(rsdp, 36) == 0);
  const u64 rsdt = m.Get(rsdp + 16, 4), xsdt = m.Get(rsdp + 24, 8);
  CHECK(m.Text(rsdt, 4) == "RSDT");
  CHECK(m.Text(xsdt, 4) == "XSDT");
  std::map<std::string, u64> tables;
  for (u64 i = 0; i < (m.Get(rsdt + 4, 4) - 36) / 4; ++i) {
    const u64 table = m.Get(rsdt + 36 + 4 * i, 4);
    CHECK(m.Get(xsdt + 36 + 8 * i, 8) == table);
    tables[m.Text(table, 4)] = table;
  }
  REQUIRE(tables.count("FACP") == 1);
  REQUIRE(tables.count("APIC") == 1);
  const u64 fadt = tables["FACP"];
  tables["RSDT"] = rsdt;
  tables["XSDT"] = xsdt;
  tables["DSDT"] = m.Get(fadt + 40, 4);
  for (const auto& [name, table] : tables) {
    INFO(name);
    CHECK(m.Text(table, 4) == name);
    CHECK(m.Sum(table, m.Get(table + 4, 4)) == 0);
  }
  const std::string dsdt =
      m.Text(tables["DSDT"], static_cast<unsigned>(m.Get(tables["DSDT"] + 4, 4)));
  for (const char* name : {"PCI0", "_PRT", "RTC_", "KBD_", "MOU_", "COM1", "_S5_"}) {
    INFO(name);
    CHECK(dsdt.find(name) != std::string::npos);
  }
  const u64 facs = m.Get(fadt + 36, 4);
  CHECK(facs % 64 == 0);
  CHECK(m.Text(facs, 4) == "FACS");
  CHECK(m.Get(fadt + 4, 4) == 244);
  CHECK(m.Get(fadt + 46, 2) == 9);
  CHECK(m.Get(fadt + 56, 4) == 0x600);
  CHECK(m.Get(fadt + 76, 4) == 0x608);
  CHECK(m.Get(fadt + 112, 4) & 1u << 10);
  CHECK(m.Get(fadt + 120, 8) == 0xcf9);
  CHECK(m.Get(tables["APIC"] + 36, 4) == 0xfee00000);
  REQUIRE(tables.count("HPET") == 1);
  CHECK(m.Get(tables["HPET"] + 4, 4) == 56);
  CHECK(m.Get(tables["HPET"] + 36, 4) == 0x8086a201);
  CHECK(m.Get(tables["HPET"] + 40, 1) == 0);
  CHECK(m.Get(tables["HPET"] + 44, 8) == 0xfed00000);
}

TEST_CASE("Tables of several processors") {
  constexpr unsigned kCpus = 16;
  const AcpiHardware hardware{.cpus = kCpus};
  const std::vector<u8> acpi = BuildAcpi(hardware, 0);
  const auto find = [&](const std::string& name) {
    const std::string text(acpi.begin(), acpi.end());
    return text.find(name);
  };
  const std::size_t madt = find("APIC"), ssdt = find("SSDT");
  REQUIRE(madt != std::string::npos);
  REQUIRE(ssdt != std::string::npos);
  for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
    const u8 wanted[] = {0, 8, static_cast<u8>(cpu), static_cast<u8>(cpu), 1, 0, 0, 0};
    CHECK(std::memcmp(acpi.data() + madt + 44 + 8 * cpu, wanted, 8) == 0);
  }
  // Scope (\\_PR) up to the table's end, and its processors.
  const u32 bytes = acpi[ssdt + 4] | u32{acpi[ssdt + 5]} << 8;
  const u32 package = (acpi[ssdt + 37] & 0xf) | u32{acpi[ssdt + 38]} << 4;
  CHECK(acpi[ssdt + 36] == 0x10);
  CHECK(acpi[ssdt + 37] >> 6 == 1);
  CHECK(package == bytes - 37);
  CHECK(find("CP0F") != std::string::npos);
  CHECK(BuildAcpi({.cpus = 1}, 0).size() < acpi.size());
  CHECK(kRsdpAddress + acpi.size() <= 0xf8000);

  Memory m;
  REQUIRE(WriteFirmware(hardware, m));
  CHECK(m.Text(kMpTableAddress, 4) == "_MP_");
  CHECK(m.Sum(kMpTableAddress, 16) == 0);
  const u64 table = m.Get(kMpTableAddress + 4, 4);
  CHECK(m.Text(table, 4) == "PCMP");
  const u64 end = table + m.Get(table + 4, 2);
  CHECK(end <= kFirmwareHandlers);
  CHECK(m.Sum(table, end - table) == 0);
  u64 at = table + 44;
  unsigned entries = 0, processors = 0;
  for (; at < end; at += m.Get(at, 1) == 0 ? 20 : 8, ++entries) {
    if (m.Get(at, 1) == 0) CHECK(m.Get(at + 1, 1) == processors++);
  }
  CHECK(at == end);
  CHECK(entries == m.Get(table + 34, 2));
  CHECK(processors == kCpus);

  Memory one;
  REQUIRE(WriteFirmware({}, one));
  CHECK(one.Get(kMpTableAddress, 4) == 0);
}

TEST_CASE("The BIOS data area and real-mode vectors") {
  Memory m;
  REQUIRE(WriteFirmware({}, m));
  CHECK(m.Get(0x40e, 2) == 0x9fc0);
  CHECK(m.Get(0x413, 2) == 639);
  CHECK(m.Get(0x400, 2) == 0x3f8);
  const auto handler = [&m](unsigned vector) {
    return m.Get(vector * 4 + 2, 2) * 16 + m.Get(vector * 4, 2);
  };
  CHECK(m.Get(handler(0x10), 1) == 0xcf);
  CHECK(m.Get(handler(0x08), 1) == 0x50);
  CHECK(m.Get(handler(0x70) + 3, 2) == 0xa0e6);
  CHECK(m.Get(0xffff0, 1) == 0xea);
  CHECK(m.Get(0xf0000 + m.Get(0xffff1, 2), 2) == 0x06b0);
}

}  // namespace
}  // namespace alibi::loader
