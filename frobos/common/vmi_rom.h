// SPDX-License-Identifier: Apache-2.0
// A VMI ROM as a kernel finds it (docs/vmi.md), and the sites that become calls of it. For 32-bit
// and for 64-bit kernels.
#ifndef ALIBI_FROBOS_COMMON_VMI_ROM_H_
#define ALIBI_FROBOS_COMMON_VMI_ROM_H_

#include "frobos/common/console.h"
#include "frobos/common/types.h"

namespace alibi::frobos {

struct [[gnu::packed]] VmiHeader {
  u16 signature;
  u8 blocks;
  u8 entry16[4];
  u8 pad;
  u32 vmi_signature;
  u8 minor, major, slots, reserved0;
  u32 virtual_top;
  u16 reserved1, licence, pci, pnp, entries64;
};

struct Relocation {
  enum Type : u8 { kNone, kCall, kJump, kNop };
  Type type;
  Word address;
  bool operator==(const Relocation&) const = default;
};

// Privileged instructions of the kernel's, padded to a call at least, and the call that is the
// same.
struct PrivilegedSite {
  Word address;
  u32 call, bytes;
};
inline constexpr u32 kVmiSiteBytes = 5;

inline bool IsGplText(const char* text) {
  const auto same = [text](const char* word) {
    const char* at = text;
    while (*at != 0 && *at == *word) at++, word++;
    return *at == *word;
  };
  return same("GPL") || same("GPL v2");
}

// The ROM, where physical memory is at its own addresses; null: there is none.
inline const VmiHeader* FindVmi() {
  constexpr Word kFirst = 0xc0000, kEnd = 0xe0000, kStep = 2048;
  for (Word at = kFirst; at < kEnd; at += kStep) {
    const VmiHeader* rom = reinterpret_cast<const VmiHeader*>(at);
    if (rom->signature != 0xaa55 || rom->vmi_signature != 0x696d5663 || rom->major != 3) continue;
    if (rom->licence == 0 || rom->pci == 0) continue;
    if (IsGplText(reinterpret_cast<const char*>(at + rom->licence))) return rom;
  }
  return nullptr;
}

// What a site becomes for that answer: five bytes. For kNone they stay as they are.
inline void PatchSite(void* site, Relocation to) {
  u8* bytes = static_cast<u8*>(site);
  const Word displacement = to.address - (reinterpret_cast<Word>(site) + kVmiSiteBytes);
  switch (to.type) {
    case Relocation::kNone:
      return;
    case Relocation::kCall:
    case Relocation::kJump:
      bytes[0] = to.type == Relocation::kCall ? 0xe8 : 0xe9;
      for (u32 i = 0; i < 4; i++) bytes[1 + i] = static_cast<u8>(displacement >> (8 * i));
      break;
    case Relocation::kNop:
      for (u32 i = 0; i < kVmiSiteBytes; i++) bytes[i] = 0x90;
      break;
  }
  // As the architecture wants it for changed code.
  u32 leaf = 0, subleaf = 0;
  asm volatile("cpuid" : "+a"(leaf), "+c"(subleaf) : : "ebx", "edx", "memory");
}

// Sites become what `relocation_of` answers for their calls.
template <class RelocationOf>
void PatchSites(const PrivilegedSite* begin, const PrivilegedSite* end,
                RelocationOf relocation_of) {
  u32 sites = 0;
  for (const PrivilegedSite* site = begin; site != end; site++) {
    const Relocation to = relocation_of(site->call);
    if (to.type == Relocation::kNone) continue;
    if (site->bytes < kVmiSiteBytes) Panic("no room for a call at %lx", site->address);
    u8* bytes = reinterpret_cast<u8*>(site->address);
    // Behind the call; nobody runs there before PatchSite() has written it.
    for (u32 i = kVmiSiteBytes; i < site->bytes; i++) bytes[i] = 0x90;
    PatchSite(bytes, to);
    sites++;
  }
  Print("  on VMI: %u of %u sites are the ROM's\n", sites, static_cast<u32>(end - begin));
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_VMI_ROM_H_
