// SPDX-License-Identifier: Apache-2.0
// A port that is a plain latch: what software writes stays there until it reads it, and nothing
// else happens. Translated code accesses it as memory.
#ifndef ALIBI_BASE_PORT_LATCH_H_
#define ALIBI_BASE_PORT_LATCH_H_

#include "base/types.h"

namespace alibi {

struct PortLatch {
  u8* cell = nullptr;      // as many bytes as the access has, little-endian; null: it is no latch
  u32 kept = 0xffff'ffff;  // the lowest bits of what is written reach the cell; zeroes the others
  bool fixed = false;      // the port is this latch as long as its bus lives

  bool operator==(const PortLatch&) const = default;
};

}  // namespace alibi

#endif  // ALIBI_BASE_PORT_LATCH_H_
