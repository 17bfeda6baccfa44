// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/smbios.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "pc/boot/elf.h"
#include "pc/boot/firmware.h"
#include "pc/boot/test_images.h"

namespace alibi::loader {
namespace {

struct Structure {
  std::vector<u8> formatted;
  std::vector<std::string> strings;
};

// As a system reads them: by length, then to two zeros.
std::multimap<u8, Structure> Parse(const std::vector<u8>& tables, u64* largest) {
  std::multimap<u8, Structure> all;
  u64 at = 0;
  *largest = 0;
  while (at < tables.size()) {
    const u64 start = at;
    Structure structure;
    const u8 length = tables.at(at + 1);
    REQUIRE(length >= 4);
    structure.formatted.assign(tables.begin() + static_cast<std::ptrdiff_t>(at),
                               tables.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
    std::string text;
    while (!(tables.at(at) == 0 && text.empty())) {
      if (tables.at(at) == 0) {
        structure.strings.push_back(std::exchange(text, ""));
      } else {
        text += static_cast<char>(tables.at(at));
      }
      ++at;
    }
    at += structure.strings.empty() ? 2 : 1;
    *largest = std::max(*largest, at - start);
    all.emplace(tables[start], structure);
  }
  CHECK(at == tables.size());
  return all;
}

u8 Sum(const std::vector<u8>& bytes, u64 first, u64 end) {
  u8 sum = 0;
  for (u64 i = first; i < end; ++i) sum = static_cast<u8>(sum + bytes.at(i));
  return sum;
}

TEST_CASE("SMBIOS: the entry point leads to structures of the right lengths") {
  FakeRam ram;
  REQUIRE(WriteSmbios({3072 * kMiB, 5120 * kMiB}, ram));
  const std::vector<u8>& anchor = ram.writes.at(kSmbiosAddress);
  CHECK(kSmbiosAddress % 16 == 0);
  REQUIRE(anchor.size() == 31);
  CHECK(std::string(anchor.begin(), anchor.begin() + 4) == "_SM_");
  CHECK(std::string(anchor.begin() + 16, anchor.begin() + 21) == "_DMI_");
  CHECK(anchor[5] == 31);
  CHECK(Sum(anchor, 0, 31) == 0);
  CHECK(Sum(anchor, 16, 31) == 0);
  const u32 at = Load32(anchor, 0x18);
  CHECK(at >= kSmbiosAddress + 31);
  const std::vector<u8>& tables = ram.writes.at(at);
  CHECK(at + tables.size() < kFirmwareHandlers);
  CHECK(Load16(anchor, 0x16) == tables.size());
  u64 largest;
  const auto all = Parse(tables, &largest);
  CHECK(Load16(anchor, 0x1c) == all.size());
  CHECK(Load16(anchor, 8) == largest);
  // Lengths by DSP0134 2.8; each type's first structure.
  const std::map<u8, u64> lengths = {{0, 0x18},  {1, 0x1b},  {3, 0x16},  {4, 0x2a}, {16, 0x17},
                                     {17, 0x28}, {19, 0x1f}, {32, 0x0b}, {127, 4}};
  for (const auto& [type, length] : lengths) {
    INFO(int{type});
    REQUIRE(all.count(type) == (type == 19 ? 2 : 1));
    CHECK(all.find(type)->second.formatted.size() == length);
  }
  CHECK(tables[tables.size() - 6] == 127);
  CHECK(all.find(1)->second.strings[0] == "Alibi");
  CHECK((all.find(0)->second.formatted[0x13] & 0x10) != 0);  // a virtual machine
  const Structure& device = all.find(17)->second;
  CHECK(Load16(device.formatted, 0x0c) == 8192);
  CHECK(Load16(device.formatted, 4) == Load16(all.find(16)->second.formatted, 2));
  CHECK(Load32(all.find(16)->second.formatted, 7) == 8192 * 1024);
  const auto mapped = all.equal_range(19);
  CHECK(Load32(mapped.first->second.formatted, 8) == 3072 * 1024 - 1);
  CHECK(Load32(std::next(mapped.first)->second.formatted, 4) == 4096 * 1024);
  CHECK(Load32(std::next(mapped.first)->second.formatted, 8) == (4096 + 5120) * 1024 - 1);
}

TEST_CASE("SMBIOS: sizes beyond the old fields") {
  const Smbios smbios = BuildSmbios({3072 * kMiB, 5000 * 1024 * kMiB}, 0);
  u64 largest;
  const auto all = Parse(smbios.tables, &largest);
  const u64 ram = 3072 * kMiB + 5000 * 1024 * kMiB;
  CHECK(Load32(all.find(16)->second.formatted, 7) == 0x80000000);
  CHECK(Load64(all.find(16)->second.formatted, 0xf) == ram);
  CHECK(Load16(all.find(17)->second.formatted, 0xc) == 0x7fff);
  CHECK(Load32(all.find(17)->second.formatted, 0x1c) == ram / kMiB);
  const Structure& far = std::next(all.equal_range(19).first)->second;
  CHECK(Load32(far.formatted, 4) == 0xffffffff);
  CHECK(Load64(far.formatted, 0xf) == u64{1} << 32);
}

}  // namespace
}  // namespace alibi::loader
