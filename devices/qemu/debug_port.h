// SPDX-License-Identifier: Apache-2.0
// Ports for people: 0x80, where firmware shows how far it got, 0xe9, the console of Bochs and QEMU,
// and a printer.
#ifndef ALIBI_DEVICES_QEMU_DEBUG_PORT_H_
#define ALIBI_DEVICES_QEMU_DEBUG_PORT_H_

#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

// A plain latch: reads give the byte written last. Translated code reads it without leaving.
class PostPort : public Device {
 public:
  u64 Read(u64, unsigned) override { return latch_; }
  bool Peek(u64, unsigned, u64* value) const override {
    *value = latch_;
    return true;
  }
  void Write(u64, unsigned, u64 value) override { latch_ = static_cast<u8>(value); }
  PortLatch Latch(u64, unsigned) override { return {.cell = &latch_, .kept = 0xff, .fixed = true}; }
  void Reset() override { latch_ = 0; }

 private:
  u8 latch_ = 0;
};

// A parallel port with a printer that takes every byte at once: data, status, control. A byte is
// taken when the strobe (control bit 0) goes high.
class ParallelPort : public Device {
 public:
  explicit ParallelPort(std::function<void(u8)> sink) : sink_(std::move(sink)) {}
  u64 Read(u64 offset, unsigned) override {
    constexpr u8 kReady = 0xdf;  // not busy, selected, no error
    return offset == 0 ? data_ : offset == 1 ? kReady : control_ | 0xe0u;
  }
  void Write(u64 offset, unsigned, u64 value) override {
    if (offset == 0) data_ = static_cast<u8>(value);
    if (offset != 2) return;
    const bool strobe = (value & 1) && !(control_ & 1);
    control_ = value & 0x1f;
    if (strobe && sink_) sink_(data_);
  }
  void Reset() override {
    data_ = 0;
    control_ = kIdle;
  }

 private:
  std::function<void(u8)> sink_;
  static constexpr u8 kIdle = 0x0c;
  u8 data_ = 0;
  u8 control_ = kIdle;
};

// Writes go to the sink; a read yields 0xe9, by which guests find the port.
class DebugConsole : public Device {
 public:
  explicit DebugConsole(std::function<void(u8)> sink) : sink_(std::move(sink)) {}
  u64 Read(u64, unsigned) override { return 0xe9; }
  void Write(u64, unsigned, u64 value) override {
    if (sink_) sink_(static_cast<u8>(value));
  }

 private:
  std::function<void(u8)> sink_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_QEMU_DEBUG_PORT_H_
