// SPDX-License-Identifier: Apache-2.0
// Interrupt request lines: the wire between a device and an interrupt controller's input.
#ifndef ALIBI_DEVICES_IRQ_H_
#define ALIBI_DEVICES_IRQ_H_

#include <functional>
#include <utility>

namespace alibi::devices {

class IrqLine {
 public:
  virtual ~IrqLine() = default;
  // Drives the line. Repeating the level it already has is allowed and changes nothing.
  virtual void Set(bool level) = 0;
};

// A wire that ends nowhere.
class UnconnectedLine : public IrqLine {
 public:
  void Set(bool) override {}
};

// A wire that ends in a function.
class CallbackLine : public IrqLine {
 public:
  explicit CallbackLine(std::function<void(bool)> callback) : callback_(std::move(callback)) {}
  void Set(bool level) override { callback_(level); }

 private:
  std::function<void(bool)> callback_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_H_
