// SPDX-License-Identifier: Apache-2.0
// The PC's two cascaded 8259A interrupt controllers, after the Intel 8259A data sheet (231468),
// with the edge/level control registers (ELCR) the PCI chip sets added.
//
// The data sheet's rules that are easily missed, all kept here:
//  - An edge request is the latched edge AND the pin: a request whose line falls before it is
//    acknowledged is gone, and the acknowledge then yields IR7 without setting an ISR bit.
//  - ICW1 resets the edge latches: a line that is already high must fall and rise again.
//  - A poll is an acknowledge.
//  - In special mask mode a masked in-service level does not inhibit others, and a non-specific
//    EOI does not touch it.
#ifndef ALIBI_DEVICES_IRQ_PIC8259_H_
#define ALIBI_DEVICES_IRQ_PIC8259_H_

#include <array>
#include <functional>
#include <memory>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/irq/interrupt_controller.h"

namespace alibi::devices {

// One chip. Offsets 0 and 1 are the data sheet's A0.
class Pic8259 : public Device {
 public:
  enum class Role { kMaster, kSlave };

  // `output` is called with each change of the INT pin. `elcr_writable` has a bit for each input
  // whose trigger mode the ELCR may change.
  Pic8259(Role role, u8 elcr_writable, std::function<void(bool)> output);

  u64 Read(u64 offset, unsigned size) override;
  bool Peek(u64 offset, unsigned size, u64* value) const override;
  void Write(u64 offset, unsigned size, u64 value) override;
  // Masks and ends of interrupts that leave the INT pin as it is.
  bool Poke(u64 offset, unsigned size, u64 value) override;

  void Reset() override;

  void SetLine(unsigned line, bool level);
  bool output() const { return output_level_; }

  // One INTA sequence of this chip alone: the number (0-7) of the input taken; 7, and `*spurious`,
  // if there is no request (any more).
  unsigned AcknowledgeLine(bool* spurious);
  u8 vector_base() const { return vector_base_; }

  u8 elcr() const { return elcr_; }
  void set_elcr(u8 value);

  u8 irr() const { return (edge_ | level_mode()) & pins_; }
  u8 isr() const { return isr_; }
  u8 imr() const { return imr_; }

 private:
  static constexpr int kNone = -1;

  u8 level_mode() const { return trigger_all_levels_ ? 0xff : elcr_; }
  // 0 is the highest priority.
  unsigned PriorityOf(unsigned line) const { return (line - lowest_ - 1) & 7; }
  int HighestIn(u8 lines) const;
  int Requesting() const;
  void UpdateOutput();
  void Initialize(u8 icw1);
  void WriteOcw2(u8 value);
  void WriteOcw3(u8 value);
  void WriteMaskOrIcw(u8 value);
  void EndOfInterrupt(unsigned line, bool rotate);

  const Role role_;
  const u8 elcr_writable_;
  std::function<void(bool)> output_callback_;

  u8 pins_ = 0;
  u8 edge_ = 0;  // edge seen and not yet acknowledged
  u8 isr_ = 0;
  u8 imr_ = 0;
  u8 elcr_ = 0;
  u8 vector_base_ = 0;
  u8 lowest_ = 7;  // the line that has the lowest priority
  bool output_level_ = false;

  // The word expected next at A0 = 1: an operation word (the mask), or an initialization word.
  enum class Step { kOperation, kIcw2, kIcw3, kIcw4 };
  Step step_ = Step::kOperation;
  bool single_ = false;
  bool needs_icw4_ = false;
  bool trigger_all_levels_ = false;
  bool auto_eoi_ = false;
  bool rotate_on_auto_eoi_ = false;
  bool fully_nested_special_ = false;
  bool special_mask_ = false;
  bool poll_ = false;
  bool read_isr_ = false;
};

// The pair as a PC wires it: the slave on the master's IR2. Inputs 0-15 without 2.
class Pic8259Pair : public InterruptController {
 public:
  Pic8259Pair();

  // The wire to an input; input 2 is the cascade and ends nowhere.
  IrqLine& Line(unsigned irq);

  Device& master() { return master_; }    // ports 0x20-0x21
  Device& slave() { return slave_; }      // ports 0xa0-0xa1
  Device& elcr_ports() { return elcr_; }  // ports 0x4d0-0x4d1
  Pic8259& master_chip() { return master_; }
  Pic8259& slave_chip() { return slave_; }

  // The INT pin of the master; `on_output` is called with each change.
  bool output() const { return master_.output(); }
  void OnOutput(std::function<void(bool)> on_output) { on_output_ = std::move(on_output); }

  // An 8259 knows no task priority.
  bool InterruptPending(u8) override { return master_.output(); }
  u8 Acknowledge() override;
  const u8* TprThreshold() const override { return &no_threshold_; }

 private:
  class Input : public IrqLine {
   public:
    void Connect(Pic8259* chip, unsigned line) {
      chip_ = chip;
      line_ = line;
    }
    void Set(bool level) override {
      if (chip_ != nullptr) chip_->SetLine(line_, level);
    }

   private:
    Pic8259* chip_ = nullptr;
    unsigned line_ = 0;
  };

  class Elcr : public Device {
   public:
    explicit Elcr(Pic8259Pair& pair) : pair_(pair) {}
    u64 Read(u64 offset, unsigned size) override;
    bool Peek(u64 offset, unsigned size, u64* value) const override;
    void Write(u64 offset, unsigned size, u64 value) override;

   private:
    Pic8259Pair& pair_;
  };

  static constexpr unsigned kCascade = 2;

  std::function<void(bool)> on_output_;
  Pic8259 master_;
  Pic8259 slave_;
  Elcr elcr_{*this};
  std::array<Input, 16> inputs_;
  u8 no_threshold_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_PIC8259_H_
