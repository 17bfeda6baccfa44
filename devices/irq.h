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

// A wire that two drive: high while either does.
class SharedLine {
 public:
  explicit SharedLine(IrqLine& line) : line_(line) {}
  IrqLine& first() { return inputs_[0]; }
  IrqLine& second() { return inputs_[1]; }

 private:
  class Input : public IrqLine {
   public:
    explicit Input(SharedLine& owner) : owner_(owner) {}
    void Set(bool level) override {
      level_ = level;
      owner_.line_.Set(owner_.inputs_[0].level_ || owner_.inputs_[1].level_);
    }

   private:
    SharedLine& owner_;
    bool level_ = false;
  };

  IrqLine& line_;
  Input inputs_[2] = {Input(*this), Input(*this)};
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
