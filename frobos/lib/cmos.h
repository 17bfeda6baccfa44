// SPDX-License-Identifier: Apache-2.0
// The registers of the RTC and CMOS.
#ifndef ALIBI_FROBOS_LIB_CMOS_H_
#define ALIBI_FROBOS_LIB_CMOS_H_

#include "frobos/lib/cpu.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

inline u8 ReadCmos(u8 index) {
  Outb(0x70, index);
  return Inb(0x71);
}
inline void WriteCmos(u8 index, u8 value) {
  Outb(0x70, index);
  Outb(0x71, value);
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_CMOS_H_
