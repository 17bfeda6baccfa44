// SPDX-License-Identifier: Apache-2.0
// QEMU's pvpanic on the ISA bus (docs/specs/pvpanic.rst): the guest's driver tells that its kernel
// gave up, which otherwise looks from outside like any loop.
#ifndef ALIBI_DEVICES_QEMU_PVPANIC_H_
#define ALIBI_DEVICES_QEMU_PVPANIC_H_

#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

class Pvpanic : public Device {
 public:
  static constexpr u16 kPort = 0x505;

  // `panicked` must only note it: it is called from inside the guest's OUT.
  explicit Pvpanic(std::function<void()> panicked) : panicked_(std::move(panicked)) {}

  // The events that are understood: a panic; not one that a crash kernel takes care of.
  u64 Read(u64, unsigned) override { return kPanicked; }
  void Write(u64, unsigned, u64 value) override {
    if ((value & kPanicked) && panicked_) panicked_();
  }

 private:
  static constexpr u64 kPanicked = 1;

  std::function<void()> panicked_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_QEMU_PVPANIC_H_
