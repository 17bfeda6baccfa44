// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/registers.h"

#include "devices/lance/bits.h"

namespace alibi::devices::lance {
namespace {

enum When : u8 {
  kNever,    // read-only
  kAlways,   // whatever the chip does
  kStopped,  // while the STOP bit is set, or the chip is suspended
};
constexpr auto kStopBit = Registers::Reset::kStopBit;
constexpr auto kSReset = Registers::Reset::kSReset;
constexpr auto kHReset = Registers::Reset::kHReset;

struct Row {
  u16 writable = 0;
  When when = kNever;
  u16 initial = 0;
  Registers::Reset reset = kHReset;
};

constexpr auto kCsrRows = [] {
  std::array<Row, Registers::kCsrs> rows{};
#define LANCE_CSR(first, last, writable, when, initial, reset) \
  for (unsigned i = first; i <= last; ++i) rows[i] = Row{writable, when, initial, reset};
#include "devices/lance/registers.inc"
#undef LANCE_CSR
  return rows;
}();

constexpr auto kBcrRows = [] {
  std::array<Row, Registers::kBcrs> rows{};
#define LANCE_BCR(number, writable, when, initial) \
  rows[number] = Row{writable, when, initial, kHReset};
#include "devices/lance/registers.inc"
#undef LANCE_BCR
  return rows;
}();

struct RingRegisters {
  unsigned base, place, length;
};
constexpr RingRegisters kRings[] = {{24, 72, 76}, {30, 74, 78}};
const RingRegisters& RingOf(Direction direction) { return kRings[static_cast<u8>(direction)]; }

// Registers that are another one as well.
unsigned Aliased(unsigned number) { return number == 16 || number == 17 ? number - 15 : number; }
constexpr unsigned kSoftwareStyleCsr = 58, kSoftwareStyleBcr = 20;

}  // namespace

void Registers::Clear(Reset reset) {
  for (unsigned i = 0; i < kCsrs; ++i) {
    if (kCsrRows[i].reset <= reset) csrs_[i] = kCsrRows[i].initial;
  }
  Lower(4, kCsr4Events);
  Lower(5, kSint | kSpnd);
  csrs_[0] = kStop;
  if (reset >= Reset::kSReset) rap = 0;
  if (reset != Reset::kHReset) return;
  for (unsigned i = 0; i < kBcrs; ++i) bcrs_[i] = kBcrRows[i].initial;
}

bool Registers::suspended() const { return csrs_[5] & kSpnd; }

bool Registers::interrupt() const {
  return (csrs_[0] & ~csrs_[3] & kCsr0Interrupts) || (csrs_[4] >> 1 & ~csrs_[4] & kCsr4Masks) ||
         (csrs_[4] & kUint) || (csrs_[5] >> 1 & csrs_[5] & kCsr5Enables);
}

u16 Registers::ReadCsr(unsigned number) const {
  number = Aliased(number % kCsrs);
  switch (number) {
    case 0: {
      const u16 error = csrs_[0] & (kBabl | kCerr | kMiss | kMerr) ? kErr : 0;
      return static_cast<u16>(csrs_[0] | error | (interrupt() ? kIntr : 0));
    }
    case 28:
    case 29:
      return static_cast<u16>(
          DescriptorAddress(Direction::kReceive, RingIndex(Direction::kReceive)) >>
          16 * (number - 28));
    case 34:
    case 35:
      return static_cast<u16>(
          DescriptorAddress(Direction::kTransmit, RingIndex(Direction::kTransmit)) >>
          16 * (number - 34));
    case kSoftwareStyleCsr:
      return bcrs_[kSoftwareStyleBcr];
    default:
      return csrs_[number];
  }
}

u16 Registers::ReadBcr(unsigned number) const {
  number %= kBcrs;
  const u16 value = bcrs_[number];
  // The link is up: a LED that shows it is on.
  const bool lit = number >= 4 && number <= 7 && (value & kLinkStatus);
  return static_cast<u16>(value | (lit ? kLedOut : 0));
}

bool Registers::May(u8 when) const {
  return when == kAlways || (when == kStopped && ((csrs_[0] & kStop) || suspended()));
}

void Registers::WriteCsr(unsigned number, u16 value) {
  number = Aliased(number % kCsrs);
  if (number == kSoftwareStyleCsr) return WriteBcr(kSoftwareStyleBcr, value);
  const Row& row = kCsrRows[number];
  if (!May(row.when)) return;
  csrs_[number] = static_cast<u16>((csrs_[number] & ~row.writable) | (value & row.writable));
}

void Registers::WriteBcr(unsigned number, u16 value) {
  number %= kBcrs;
  const Row& row = kBcrRows[number];
  if (!May(row.when)) return;
  bcrs_[number] = static_cast<u16>((bcrs_[number] & ~row.writable) | (value & row.writable));
  if (number != kSoftwareStyleBcr) return;
  // What the style implies: all but 0 have 32-bit structures, all but 1 (ILACC) are PCnet's.
  u16 style = static_cast<u16>(bcrs_[number] & ~(kSsize32 | kCsrPcnet));
  if (software_style() != 0) style = static_cast<u16>(style | kSsize32);
  if (software_style() != 1) style = static_cast<u16>(style | kCsrPcnet);
  bcrs_[number] = style;
}

bool Registers::dwio() const { return bcrs_[18] & kDwio; }
void Registers::EnterDwio() { bcrs_[18] = static_cast<u16>(bcrs_[18] | kDwio); }
bool Registers::size32() const { return bcrs_[kSoftwareStyleBcr] & kSsize32; }

u32 Registers::RingLength(Direction direction) const {
  return 0x10000u - csrs_[RingOf(direction).length];
}

// The place counts up from the length's negative; zero is the last descriptor as well.
u32 Registers::RingIndex(Direction direction) const {
  const u32 length = RingLength(direction);
  const u32 left = 0x10000u - csrs_[RingOf(direction).place];
  return left <= length ? length - left : length - 1;
}

void Registers::SetRingIndex(Direction direction, u32 index) {
  csrs_[RingOf(direction).place] = static_cast<u16>(0x10000u - (RingLength(direction) - index));
}

u32 Registers::Extend(u32 address) const {
  return size32() ? address : (address & 0xffffff) | u32{csrs_[2]} >> 8 << 24;
}

u32 Registers::DescriptorAddress(Direction direction, u32 index) const {
  const u32 bytes = DescriptorBytes();
  const u32 base = Extend(csr_pair(RingOf(direction).base)) & ~(bytes - 1);
  return base + index * bytes;
}

}  // namespace alibi::devices::lance
