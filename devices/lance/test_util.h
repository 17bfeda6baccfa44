// SPDX-License-Identifier: Apache-2.0
// The controller with a guest's memory and a wire, and what a driver does with it.
#ifndef ALIBI_DEVICES_LANCE_TEST_UTIL_H_
#define ALIBI_DEVICES_LANCE_TEST_UTIL_H_

#include <catch2/catch.hpp>
#include <memory>

#include "devices/lance/bits.h"
#include "devices/lance/lance.h"
#include "devices/net/test_wire.h"
#include "devices/test_ram.h"
#include "devices/test_util.h"

namespace alibi::devices::lance {

inline constexpr net::MacAddress kTestAddress = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

struct Rig {
  static constexpr u32 kBlock = 0x1000, kReceiveRing = 0x2000, kTransmitRing = 0x4000;
  static constexpr u32 kReceiveBuffers = 0x10000, kTransmitBuffers = 0x40000, kBufferBytes = 0x800;

  static constexpr net::Optimize kPlain = {.ports = true, .combine = false, .notify = true};

  explicit Rig(bool connect = true, const net::Optimize& optimize = kPlain)
      : wire(new net::TestWire),
        lance(kTestAddress, std::unique_ptr<net::Backend>(wire), optimize,
              {.dma = memory, .interrupt = line, .clock = clock, .timers = timers}) {
    if (connect) REQUIRE(lance.Connect(mailbox).ok());
  }

  // As a machine does it.
  void Out(u64 offset, unsigned size, u64 value) {
    if (!lance.Poke(offset, size, value)) lance.Write(offset, size, value);
  }

  // --- Registers, 16 bits wide ---
  u16 Csr(u16 number) {
    Out(0x12, 2, number);
    return static_cast<u16>(lance.Read(0x10, 2));
  }
  void SetCsr(u16 number, u16 value) {
    Out(0x12, 2, number);
    Out(0x10, 2, value);
  }
  u16 Bcr(u16 number) {
    Out(0x12, 2, number);
    return static_cast<u16>(lance.Read(0x16, 2));
  }
  void SetBcr(u16 number, u16 value) {
    Out(0x12, 2, number);
    Out(0x16, 2, value);
  }

  // --- Rings, by the style ---
  u64 DescriptorAt(u32 ring, u32 index) const { return ring + index * (style == 0 ? 8 : 16); }
  void Describe(u32 ring, u32 index, u32 address, u32 size, u32 flags) {
    const u64 at = DescriptorAt(ring, index);
    const u32 low = flags | 0xf000 | ((0x1000 - size) & 0xfff);
    if (style == 0) {
      memory.Set(at, static_cast<u16>(address));
      memory.Set(at + 2, static_cast<u16>((flags >> 16 & 0xff00) | (address >> 16 & 0xff)));
      memory.Set(at + 4, static_cast<u16>(low));
      memory.Set(at + 6, u16{0});
      return;
    }
    memory.Set(at + (style == 3 ? 8 : 0), address);
    memory.Set(at + 4, low);
    memory.Set(at + (style == 3 ? 0 : 8), u32{0});
  }
  u32 Flags(u32 ring, u32 index) {
    const u64 at = DescriptorAt(ring, index);
    if (style == 0) return (memory.Get<u16>(at + 2) & 0xff00u) << 16 | memory.Get<u16>(at + 4);
    return memory.Get<u32>(at + 4);
  }
  // A received frame's length, or the upper half of a transmission's status.
  u32 Status(u32 ring, u32 index) {
    const u64 at = DescriptorAt(ring, index);
    if (style == 0) return memory.Get<u16>(at + 6);
    const u32 status = memory.Get<u32>(at + (style == 3 ? 0 : 8));
    return ring == kTransmitRing ? status >> 16 : status & 0xfff;
  }
  void Receiver(u32 index, u32 size = kBufferBytes) {
    Describe(kReceiveRing, index, kReceiveBuffers + index * kBufferBytes, size, kOwn);
  }
  void Transmission(u32 index, const net::Frame& frame, u32 flags = kOwn | kStp | kEnp) {
    const u32 address = kTransmitBuffers + index * kBufferBytes;
    memory.Write(PhysAddr(address), frame.data(), frame.size());
    Describe(kTransmitRing, index, address, static_cast<u32>(frame.size()), flags);
  }

  // The initialization block, with 4 receive and 8 transmit descriptors, and INIT.
  void Initialize(u8 new_style, u16 mode = 0, u64 filter = 0) {
    style = new_style;
    SetCsr(0, kStop);
    SetBcr(20, style);
    u64 at = kBlock;
    const auto put = [&](u64 value, unsigned words) {
      for (unsigned i = 0; i < words; ++i, at += 2) {
        memory.Set(at, static_cast<u16>(value >> 16 * i));
      }
    };
    put(mode, 1);
    if (style != 0) put(3u << 12 | 2u << 4, 1);
    u64 address = 0;
    for (unsigned i = 0; i < 6; ++i) address |= u64{kTestAddress[i]} << 8 * i;
    put(address, style == 0 ? 3 : 4);
    put(filter, 4);
    put(kReceiveRing | (style == 0 ? 2u << 29 : 0), 2);
    put(kTransmitRing | (style == 0 ? 3u << 29 : 0), 2);
    SetCsr(1, kBlock & 0xffff);
    SetCsr(2, kBlock >> 16);
    SetCsr(0, kInit);
    REQUIRE((Csr(0) & kIdon) != 0);
  }
  void Begin(u8 new_style, u16 mode = 0, u64 filter = 0) {
    Initialize(new_style, mode, filter);
    SetCsr(0, kIdon | kIena | kStrt);
  }
  void Demand() { SetCsr(0, kIena | kTdmd); }

  // A frame from elsewhere.
  void Put(const net::Frame& frame) {
    wire->Put(frame);
    mailbox.Drain();
  }

  u8 style = 2;
  TestRam memory;
  ManualClock clock;
  TimerQueue timers;
  RecordingLine line;
  Mailbox mailbox{[] {}};
  net::TestWire* wire;
  Lance lance;
};

// To `address` from elsewhere, with bytes that count.
inline net::Frame FrameTo(const net::MacAddress& address, std::size_t size = 100) {
  net::Frame frame(size);
  for (std::size_t i = 0; i < size; ++i) {
    frame[i] = i < address.size() ? address[i] : static_cast<u8>(i);
  }
  // A type, not a length.
  if (size > 13) frame[12] = 0x08, frame[13] = 0x00;
  return frame;
}
inline constexpr net::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr net::MacAddress kStranger = {0x52, 0x54, 0x00, 0x12, 0x34, 0x57};
inline constexpr net::MacAddress kGroup = {0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_TEST_UTIL_H_
