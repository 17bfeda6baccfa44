// SPDX-License-Identifier: Apache-2.0
// The debug-exit port, as QEMU's isa-debug-exit: writing v ends the machine with exit status
// (v << 1) | 1, so that a guest's success is never taken for a host's exit status 0 by accident.
#ifndef ALIBI_DEVICES_QEMU_DEBUG_EXIT_H_
#define ALIBI_DEVICES_QEMU_DEBUG_EXIT_H_

#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

// Four bytes wide (QEMU: iobase=0xf4,iosize=4); any access width within them counts as one write.
class DebugExit : public Device {
 public:
  // `request_exit` must only note the wish: it is called from inside the guest's OUT.
  explicit DebugExit(std::function<void(u32 status)> request_exit)
      : request_exit_(std::move(request_exit)) {}

  u64 Read(u64, unsigned) override { return 0; }
  void Write(u64, unsigned, u64 value) override {
    if (request_exit_) request_exit_(static_cast<u32>(value) << 1 | 1);
  }
  unsigned MaxAccessSize() const override { return 4; }

 private:
  std::function<void(u32)> request_exit_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_QEMU_DEBUG_EXIT_H_
