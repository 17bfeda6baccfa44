// SPDX-License-Identifier: Apache-2.0
// How the PC/AT reports x87 exceptions: FERR# sets a latch that drives interrupt 13, a write to
// port 0xf0 clears it and asserts IGNNE# for as long as FERR# stays (SDM vol. 1, appendix D.2.1.3).
#ifndef ALIBI_DEVICES_IRQ_NUMERIC_ERROR_H_
#define ALIBI_DEVICES_IRQ_NUMERIC_ERROR_H_

#include <functional>
#include <utility>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"

namespace alibi::devices {

class NumericErrorLatch : public Device {
 public:
  NumericErrorLatch(IrqLine& line, std::function<void()> ignore)
      : line_(line), ignore_(std::move(ignore)) {}

  // FERR# is asserted.
  void Set() {
    latched_ = true;
    line_.Set(true);
  }

  void Reset() override {
    latched_ = false;
    line_.Set(false);
  }

  u64 Read(u64, unsigned) override { return 0xff; }
  void Write(u64, unsigned, u64) override {
    if (!latched_) return;
    latched_ = false;
    line_.Set(false);
    if (ignore_) ignore_();
  }

 private:
  IrqLine& line_;
  std::function<void()> ignore_;
  bool latched_ = false;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_NUMERIC_ERROR_H_
