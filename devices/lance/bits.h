// SPDX-License-Identifier: Apache-2.0
// Bits of the Am79C970A's registers and descriptors, by the data sheet's names (publication 19436).
#ifndef ALIBI_DEVICES_LANCE_BITS_H_
#define ALIBI_DEVICES_LANCE_BITS_H_

#include "base/types.h"

namespace alibi::devices::lance {

// CSR0: status and control. Software clears BABL to IDON by writing ones.
enum Csr0 : u16 {
  kErr = 1u << 15,
  kBabl = 1u << 14,
  kCerr = 1u << 13,
  kMiss = 1u << 12,
  kMerr = 1u << 11,
  kRint = 1u << 10,
  kTint = 1u << 9,
  kIdon = 1u << 8,
  kIntr = 1u << 7,
  kIena = 1u << 6,
  kRxon = 1u << 5,
  kTxon = 1u << 4,
  kTdmd = 1u << 3,
  kStop = 1u << 2,
  kStrt = 1u << 1,
  kInit = 1u << 0,
};
inline constexpr u16 kCsr0Events = kBabl | kCerr | kMiss | kMerr | kRint | kTint | kIdon;
// Those that interrupt unless CSR3 has the same bit; CERR only counts as an error.
inline constexpr u16 kCsr0Interrupts = kCsr0Events & ~kCerr;

// CSR3
inline constexpr u16 kDxsuflo = 1u << 6;

// CSR4: features, and further events, each with its mask one bit below.
enum Csr4 : u16 {
  kTxdpoll = 1u << 12,
  kApadXmt = 1u << 11,
  kAstrpRcv = 1u << 10,
  kMfco = 1u << 9,
  kUintcmd = 1u << 7,
  kUint = 1u << 6,  // cannot be masked
  kRcvcco = 1u << 5,
  kTxstrt = 1u << 3,
  kJab = 1u << 1,
};
inline constexpr u16 kCsr4Events = kMfco | kUint | kRcvcco | kTxstrt | kJab;
inline constexpr u16 kCsr4Masks = (kMfco | kRcvcco | kTxstrt | kJab) >> 1;

// CSR5: more events, each with its enable bit one below.
enum Csr5 : u16 {
  kTokintd = 1u << 15,
  kLtinten = 1u << 14,
  kSint = 1u << 11,
  kSlpint = 1u << 9,
  kExdint = 1u << 7,
  kMpint = 1u << 4,
  kSpnd = 1u << 0,
};
inline constexpr u16 kCsr5Events = kSint | kSlpint | kExdint | kMpint;
inline constexpr u16 kCsr5Enables = kCsr5Events >> 1;

// CSR15: the mode.
enum Mode : u16 {
  kProm = 1u << 15,
  kDrcvbc = 1u << 14,
  kDrcvpa = 1u << 13,
  kIntl = 1u << 6,
  kDxmtfcs = 1u << 3,
  kLoop = 1u << 2,
  kDtx = 1u << 1,
  kDrx = 1u << 0,
};

// CSR124: frames of less than 64 bytes are received as well.
inline constexpr u16 kRpa = 1u << 3;

// BCRs
inline constexpr u16 kApromWrite = 1u << 8;                      // BCR2
inline constexpr u16 kLedOut = 1u << 15, kLinkStatus = 1u << 6;  // BCR4 to 7
inline constexpr u16 kDwio = 1u << 7;                            // BCR18
inline constexpr u16 kSsize32 = 1u << 8, kCsrPcnet = 1u << 9;    // BCR20

// A descriptor's flags, as they lie in the 32-bit styles.
enum Flags : u32 {
  kOwn = 1u << 31,
  kDescriptorErr = 1u << 30,
  kStp = 1u << 25,
  kEnp = 1u << 24,
  // transmit
  kAddFcs = 1u << 29,
  kLtint = 1u << 28,
  // receive
  kFram = 1u << 29,
  kOflo = 1u << 28,
  kCrc = 1u << 27,
  kBuff = 1u << 26,
  kPam = 1u << 22,
  kLafm = 1u << 21,
  kBam = 1u << 20,
};
// A transmit descriptor's status.
inline constexpr u32 kTransmitBuff = 1u << 31, kTransmitUflo = 1u << 30;

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_BITS_H_
