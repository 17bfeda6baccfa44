// Ports for people: 0x80, where firmware shows how far it got, and 0xe9, the console of Bochs and
// QEMU.
#ifndef ALIBI_DEVICES_DEBUG_PORT_H_
#define ALIBI_DEVICES_DEBUG_PORT_H_

#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

// A plain latch: reads give the byte written last. Translated code reads it without leaving.
class PostPort : public Device {
 public:
  u64 Read(u64, unsigned) override { return latch_; }
  void Write(u64, unsigned, u64 value) override { latch_ = static_cast<u8>(value); }
  const u8* Latch(u64) const override { return &latch_; }

 private:
  u8 latch_ = 0;
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

#endif  // ALIBI_DEVICES_DEBUG_PORT_H_
