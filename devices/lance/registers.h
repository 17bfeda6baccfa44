// SPDX-License-Identifier: Apache-2.0
// The registers of the Am79C970A: what they keep, who may write them when, and what reads show.
// Nothing happens here; Lance acts on what is written.
#ifndef ALIBI_DEVICES_LANCE_REGISTERS_H_
#define ALIBI_DEVICES_LANCE_REGISTERS_H_

#include <array>
#include <optional>

#include "base/types.h"

namespace alibi::devices::lance {

enum class Direction : u8 { kReceive, kTransmit };

class Registers {
 public:
  static constexpr unsigned kCsrs = 128, kBcrs = 32;
  // How the data sheet calls the ways in which a register is cleared. Each clears what those before
  // it do.
  enum class Reset : u8 { kStopBit, kSReset, kHReset };

  Registers() { Clear(Reset::kHReset); }

  // The state after a reset. Of the STOP bit and of S_RESET, the event bits of CSR4 and 5 are too.
  void Clear(Reset reset);

  // --- As the chip sees them ---
  u16 csr(unsigned number) const { return csrs_[number]; }
  u16 bcr(unsigned number) const { return bcrs_[number]; }
  void set_csr(unsigned number, u16 value) { csrs_[number] = value; }
  void Raise(unsigned number, u16 bits) { csrs_[number] = static_cast<u16>(csrs_[number] | bits); }
  void Lower(unsigned number, u16 bits) { csrs_[number] = static_cast<u16>(csrs_[number] & ~bits); }
  // Two registers, low half first.
  u32 csr_pair(unsigned number) const { return csrs_[number] | u32{csrs_[number + 1]} << 16; }
  void set_csr_pair(unsigned number, u32 value) {
    csrs_[number] = static_cast<u16>(value);
    csrs_[number + 1] = static_cast<u16>(value >> 16);
  }
  bool suspended() const;
  // An event that is not masked: the INTR bit.
  bool interrupt() const;

  // --- As software sees them ---
  u16 ReadCsr(unsigned number) const;
  u16 ReadBcr(unsigned number) const;
  // The bits that the register keeps, if now is the time to write it.
  void WriteCsr(unsigned number, u16 value);
  void WriteBcr(unsigned number, u16 value);

  // Translated code may write it (Lance::Latch), where its bus is as wide as this.
  u32 rap = 0;
  // Registers are 32 bits wide.
  bool dwio() const;
  void EnterDwio();

  // --- Rings ---
  // 0: descriptors of 16-bit words; 1 and 2: of 32-bit words; 3: these in another order.
  u8 software_style() const { return static_cast<u8>(bcrs_[20]); }
  bool size32() const;
  u32 DescriptorBytes() const { return size32() ? 16 : 8; }
  u32 RingLength(Direction direction) const;
  // The place of the descriptor that is next in turn, below the length.
  u32 RingIndex(Direction direction) const;
  void SetRingIndex(Direction direction, u32 index);
  // Addresses of 16-bit structures have 24 bits; the rest is CSR2's.
  u32 Extend(u32 address) const;
  u32 DescriptorAddress(Direction direction, u32 index) const;

 private:
  bool May(u8 when) const;

  std::array<u16, kCsrs> csrs_{};
  std::array<u16, kBcrs> bcrs_{};
};

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_REGISTERS_H_
