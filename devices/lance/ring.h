// SPDX-License-Identifier: Apache-2.0
// Descriptors of the rings in guest memory, in every software style, and the initialization block.
//
//   style 0, 8 bytes    address low | flags, address high | size | status
//   style 1, 2          address | flags, size | status | the host's own
//   style 3             status | flags, size | address | the host's own
#ifndef ALIBI_DEVICES_LANCE_RING_H_
#define ALIBI_DEVICES_LANCE_RING_H_

#include <array>

#include "base/types.h"
#include "devices/dma.h"
#include "devices/lance/registers.h"

namespace alibi::devices::lance {

// As style 2 has it.
struct Descriptor {
  u32 address = 0;
  u32 flags = 0;   // bits 31 to 12 and the size's negative below
  u32 status = 0;  // a transmission's errors, or a received frame's length

  // 1 to 4,096 bytes.
  u32 size() const { return 0x1000 - (flags & 0xfff); }
};

class Ring {
 public:
  Ring(Direction direction, Registers& registers, Dma& dma)
      : direction_(direction), registers_(registers), dma_(dma) {}

  // The descriptor that is next in turn; false: it is not in memory.
  bool Load(Descriptor* descriptor) const;
  // Writes flags and status back; false: not in memory that can be written.
  bool Store(const Descriptor& descriptor) { return StoreAt(Index(), descriptor); }
  // To the one that was next before Advance().
  bool StorePrevious(const Descriptor& descriptor);
  void Advance();

 private:
  u32 Index() const { return registers_.RingIndex(direction_); }
  bool StoreAt(u32 index, const Descriptor& descriptor);

  const Direction direction_;
  Registers& registers_;
  Dma& dma_;
};

struct InitBlock {
  u16 mode = 0;
  std::array<u16, 3> physical{};
  std::array<u16, 4> logical{};
  u32 receive = 0, transmit = 0;                       // the rings
  u8 receive_log_length = 0, transmit_log_length = 0;  // as the block has them
};
// From where CSR1 and 2 say; false: it is not in memory.
bool LoadInitBlock(const Registers& registers, Dma& dma, InitBlock* block);

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_RING_H_
