// SPDX-License-Identifier: Apache-2.0
// Plays the firmware's part: the tables, placed by the script, must be those that are built for
// that place.
#include "pc/boot/acpi_script.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "pc/boot/firmware.h"

namespace alibi::loader {
namespace {

u64 Get(const u8* at, unsigned size) {
  u64 value = 0;
  std::memcpy(&value, at, size);
  return value;
}

TEST_CASE("a script places tables as if they had been built there") {
  constexpr u64 kPlace = 0x1ffe0000;
  AcpiHardware hardware;
  std::map<std::string, std::vector<u8>> files;
  for (FirmwareFile& file : ScriptAcpi(BuildAcpi(hardware, 0))) files[file.name] = file.bytes;
  const std::vector<u8> script = files.at("etc/table-loader");
  REQUIRE(script.size() % 128 == 0);
  int allocated = 0;
  for (std::size_t at = 0; at < script.size(); at += 128) {
    const u8* command = script.data() + at;
    std::vector<u8>& file = files.at(reinterpret_cast<const char*>(command + 4));
    switch (Get(command, 4)) {
      case 1:
        ++allocated;
        break;
      case 2: {
        CHECK(std::string(reinterpret_cast<const char*>(command + 60)) == "etc/acpi/tables");
        const u64 field = Get(command + 116, 4);
        const unsigned size = command[120];
        REQUIRE(field + size <= file.size());
        const u64 value = Get(file.data() + field, size) + kPlace;
        std::memcpy(file.data() + field, &value, size);
        break;
      }
      case 3: {
        const u64 field = Get(command + 60, 4), start = Get(command + 64, 4);
        const u64 length = Get(command + 68, 4);
        REQUIRE(start + length <= file.size());
        u8 sum = 0;
        for (u64 i = 0; i < length; ++i) sum = static_cast<u8>(sum + file[start + i]);
        file[field] = static_cast<u8>(file[field] - sum);
        break;
      }
      default:
        FAIL("an unknown command");
    }
  }
  CHECK(allocated == 2);
  const std::vector<u8> wanted = BuildAcpi(hardware, kPlace);
  const std::vector<u8>& tables = files.at("etc/acpi/tables");
  // The copy of the RSDP in front of the tables is nobody's.
  REQUIRE(tables.size() == wanted.size());
  CHECK(std::equal(wanted.begin() + 36, wanted.end(), tables.begin() + 36));
  CHECK(std::equal(wanted.begin(), wanted.begin() + 36, files.at("etc/acpi/rsdp").begin()));
}

}  // namespace
}  // namespace alibi::loader
