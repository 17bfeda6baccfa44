// SPDX-License-Identifier: Apache-2.0
// Ports, a byte at a time.
#ifndef ALIBI_FROBOS_COMMON_PORT_H_
#define ALIBI_FROBOS_COMMON_PORT_H_

#include "frobos/common/types.h"

namespace alibi::frobos {

inline void Outb(u16 port, u8 value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
inline u8 Inb(u16 port) {
  u8 value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_PORT_H_
