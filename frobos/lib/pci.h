// SPDX-License-Identifier: Apache-2.0
// PCI configuration space by mechanism 1, and registers behind BARs. Long mode.
#ifndef ALIBI_FROBOS_LIB_PCI_H_
#define ALIBI_FROBOS_LIB_PCI_H_

#include "frobos/lib/cpu.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

inline constexpr u16 kPciAddress = 0xcf8, kPciData = 0xcfc;

// An address is slot << 11 | function << 8 | offset.
inline void SelectPci(u32 address) { Outl(kPciAddress, 0x80000000 | (address & ~3u)); }
inline u32 ReadPci(u32 address) {
  SelectPci(address);
  return Inl(kPciData);
}
inline u8 ReadPci8(u32 address) {
  SelectPci(address);
  return Inb(static_cast<u16>(kPciData + (address & 3)));
}
inline u16 ReadPci16(u32 address) {
  return static_cast<u16>(ReadPci(address) >> (8 * (address & 2)));
}
inline void WritePci(u32 address, u32 value) {
  SelectPci(address);
  Outl(kPciData, value);
}
inline void WritePci16(u32 address, u16 value) {
  SelectPci(address);
  Outw(static_cast<u16>(kPciData + (address & 2)), value);
}

// Registers in memory.
template <class T>
T Load(u64 address) {
  return *reinterpret_cast<volatile T*>(address);
}
template <class T>
void Store(u64 address, T value) {
  *reinterpret_cast<volatile T*>(address) = value;
}

// Maps the first 16 KB behind a function's BAR, uncached, and says where.
inline u64 MapBar(u32 function, unsigned bar) {
  const u32 low = ReadPci(function + 0x10 + 4 * bar);
  const bool wide = (low & 6) == 4;
  const u64 physical = (low & ~0xfu) | (wide ? u64{ReadPci(function + 0x14 + 4 * bar)} << 32 : 0);
  const u64 address = kHighBase + bar * 0x10000;
  for (u64 at = 0; at < 0x4000; at += kPageSize) {
    Map(address + at, physical + at, kPteW | kPtePcd);
  }
  return address;
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_PCI_H_
