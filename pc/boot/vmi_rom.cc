// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/vmi_rom.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "pc/boot/option_rom.h"

// vmi_rom.S
extern "C" const alibi::u8 alibi_vmi_rom[];
extern "C" const alibi::u8 alibi_vmi_rom_end[];
extern "C" const alibi::u8 alibi_vmi_rom_groups[];

namespace alibi::loader {
namespace {

struct Group {
  const char* name;
  u32 bit;
};
constexpr Group kGroups[] = {
#define ALIBI_VMI_GROUP(name, bit, what) {#name, u32{1} << (bit)},
#include "pc/boot/vmi_calls.inc"
};

constexpr u32 AllBits() {
  u32 bits = 0;
  for (const Group& group : kGroups) bits |= group.bit;
  return bits;
}

u32 BitOf(const std::string& name) {
  for (const Group& group : kGroups) {
    if (name == group.name) return group.bit;
  }
  return 0;
}

}  // namespace

Result<VmiGroups> ParseVmiGroups(const std::string& list) {
  VmiGroups groups;
  if (list == "transparent") return groups;
  if (list == "full") {
    groups.bits = AllBits();
    return groups;
  }
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, end - at);
    const u32 bit = BitOf(name);
    if (bit == 0) {
      return Error{"there is no group of calls '" + name +
                   "'; give full, transparent, or some of " + VmiGroupNames()};
    }
    groups.bits |= bit;
    at = end + 1;
  }
  return groups;
}

std::string VmiGroupNames() {
  std::string names;
  for (const Group& group : kGroups) names += (names.empty() ? "" : ",") + std::string(group.name);
  return names;
}

std::vector<u8> VmiRom(VmiGroups groups) {
  std::vector<u8> code(alibi_vmi_rom, alibi_vmi_rom_end);
  std::memcpy(code.data() + (alibi_vmi_rom_groups - alibi_vmi_rom), &groups.bits,
              sizeof(groups.bits));
  return FinishOptionRom(code);
}

}  // namespace alibi::loader
