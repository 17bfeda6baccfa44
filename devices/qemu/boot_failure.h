// SPDX-License-Identifier: Apache-2.0
// Where firmware tells that it found nothing to boot from: the option ROM that it comes to in the
// end (pc/boot/no_boot_rom.S) writes here.
#ifndef ALIBI_DEVICES_QEMU_BOOT_FAILURE_H_
#define ALIBI_DEVICES_QEMU_BOOT_FAILURE_H_

#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"

namespace alibi::devices {

class BootFailure : public Device {
 public:
  static constexpr u16 kPort = 0x508;
  static constexpr unsigned kPortCount = 4;
  static constexpr u32 kFailed = 0x746f6f62;  // "boot": no probe of ports writes that

  // `failed` must only note it: it is called from inside the guest's OUT.
  explicit BootFailure(std::function<void()> failed) : failed_(std::move(failed)) {}

  unsigned MaxAccessSize() const override { return 4; }
  u64 Read(u64, unsigned) override { return 0; }
  void Write(u64 offset, unsigned size, u64 value) override {
    if (offset == 0 && size == 4 && value == kFailed && failed_) failed_();
  }

 private:
  std::function<void()> failed_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_QEMU_BOOT_FAILURE_H_
