// SPDX-License-Identifier: Apache-2.0
// The local APIC of one CPU: one register file seen through the xAPIC page and the x2APIC MSRs
// (Intel SDM volume 3, chapter "Advanced Programmable Interrupt Controller").
//
// Decisions:
//  - After construction it is as a PC BIOS leaves it, because multiboot guests get no BIOS: enabled
//    in IA32_APIC_BASE and in SVR (0x1ff), LINT0 = ExtINT (0x8700) so that the 8259s reach the CPU
//    ("virtual wire"), LINT1 = NMI (0x8400). Reset() gives the architectural reset state instead.
//  - CPU 0 is the boot processor (IA32_APIC_BASE bit 8).
//  - The TPR is one byte that CR8, the MSR and the page share. BindTpr() moves it into the VCPU's
//    own block, where translated code can write it.
//  - Where the page lies is the board's business: it reads base().
//  - The bus clock is 1 GHz: a timer tick with divisor 1 is a nanosecond.
#ifndef ALIBI_DEVICES_IRQ_LAPIC_H_
#define ALIBI_DEVICES_IRQ_LAPIC_H_

#include <array>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq/interrupt_controller.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

// As encoded in ICR, LVT and the I/O APIC's redirection entries.
enum class DeliveryMode : u8 {
  kFixed = 0,
  kLowestPriority = 1,
  kSmi = 2,
  kReserved = 3,
  kNmi = 4,
  kInit = 5,
  kStartup = 6,
  kExtInt = 7,
};

// An interrupt on its way between APICs.
struct ApicMessage {
  u32 destination = 0;
  bool logical = false;
  bool level_triggered = false;
  DeliveryMode mode = DeliveryMode::kFixed;
  u8 vector = 0;
};

// What a local APIC asks of its surroundings. All calls come from inside its own methods.
class LapicHost {
 public:
  virtual ~LapicHost() = default;
  // An interrupt may have become deliverable: the VCPU loop should look.
  virtual void InterruptRaised() = 0;
  virtual void Nmi() = 0;
  virtual void Init() {}
  virtual void Startup(u8 vector) { static_cast<void>(vector); }
  // A message for those CPUs that it is addressed to; the sender is one of them only if `self_too`.
  virtual void Send(const ApicMessage& message, bool self_too) = 0;
  // A level-triggered interrupt was ended: the I/O APIC wants to know.
  virtual void EndOfInterrupt(u8 vector) { static_cast<void>(vector); }
};

class Lapic : public Device, public InterruptController {
 public:
  static constexpr PhysAddr kBase{0xfee00000};
  static constexpr u64 kSize = 0x1000;
  static constexpr u32 kMsrApicBase = 0x1b;
  static constexpr u32 kMsrTscDeadline = 0x6e0;
  static constexpr u32 kFirstMsr = 0x800;
  static constexpr u32 kLastMsr = 0x8ff;

  Lapic(u32 id, Clock& clock, TscSource& tsc, TimerQueue& timers, LapicHost& host);

  // The xAPIC page.
  u64 Read(u64 offset, unsigned size) override;
  bool Peek(u64 offset, unsigned size, u64* value) const override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 4; }

  // IA32_APIC_BASE, IA32_TSC_DEADLINE and 0x800-0x8ff. False: the access is a #GP(0).
  static bool OwnsMsr(u32 msr) {
    return msr == kMsrApicBase || msr == kMsrTscDeadline || (msr >= kFirstMsr && msr <= kLastMsr);
  }
  bool ReadMsr(u32 msr, u64* value);
  bool WriteMsr(u32 msr, u64 value);

  // The controllers behind LINT0, used while they are wired through (or the APIC is disabled).
  // Their output is reported by SetLint0().
  void ConnectExtInt(InterruptController* controller) { ext_int_ = controller; }
  void SetLint0(bool level);
  void SetLint1(bool level);

  // Makes `*tpr` the task priority register; its present value is kept.
  void BindTpr(u8* tpr);
  u8 tpr() const { return *tpr_; }
  void SetTpr(u8 tpr);
  // After the guest's TSC was written, or its offset changed.
  void OnTscChanged();
  // Another timer's interrupt, by the entry of this one's (a paravirtual guest's alarm).
  void FireTimer();

  // InterruptController. The `tpr` passed in becomes the TPR.
  bool InterruptPending(u8 tpr) override;
  u8 Acknowledge() override;
  const u8* TprThreshold() const override { return &tpr_threshold_; }

  // A message from the I/O APIC or another CPU: taken if it is addressed to this one. ApicBus
  // chooses the receivers.
  bool IsDestination(const ApicMessage& message) const;
  void Deliver(const ApicMessage& message);
  // Of those that a message of lowest priority is addressed to, one that can accept it and whose
  // priority is the least gets it (SDM vol. 3, 11.6.2.4).
  bool AcceptsFixed() const { return enabled() && software_enabled(); }
  u8 processor_priority() const { return ppr(); }

  // INIT keeps the APIC's mode and ID; power-on reset does not.
  void Reset(bool keep_mode);
  void Reset() override { Reset(/*keep_mode=*/false); }
  void SetUpAsBiosLeavesIt();

  bool enabled() const { return base_msr_ & kBaseEnable; }
  PhysAddr base() const { return PhysAddr(base_msr_ & ~u64{0xfff}); }
  bool x2apic() const { return (base_msr_ & kBaseX2apic) && enabled(); }
  u32 id() const { return id_; }
  // LINT0 passes on as NMIs what its pin says: this may wake a CPU that takes no interrupts.
  bool Lint0IsNmi() const;

 private:
  static constexpr u64 kBaseBsp = 1u << 8;
  static constexpr u64 kBaseX2apic = 1u << 10;
  static constexpr u64 kBaseEnable = 1u << 11;

  // Register numbers are page offsets / 16, which are also the MSR numbers - 0x800.
  static constexpr unsigned kRegisters = 0x40;

  // 256 bits, one per vector, as eight registers of 32.
  class VectorSet {
   public:
    void Set(u8 vector) { words_[vector >> 5] |= u32{1} << (vector & 31); }
    void Clear(u8 vector) { words_[vector >> 5] &= ~(u32{1} << (vector & 31)); }
    bool Has(u8 vector) const { return words_[vector >> 5] >> (vector & 31) & 1; }
    int Highest() const;  // -1 if empty
    u32 word(unsigned i) const { return words_[i]; }
    void ClearAll() { words_.fill(0); }

   private:
    std::array<u32, 8> words_{};
  };

  u32 ReadRegister(unsigned index);
  // One that changes by accesses and interrupts alone.
  static bool IsStored(unsigned index);
  u32 StoredRegister(unsigned index) const;
  // The value is masked already. `high` is the upper half of the ICR.
  void WriteRegister(unsigned index, u32 value);
  void WriteIcr(u32 low, u32 destination);
  void WriteSvr(u32 value);
  void WriteLvt(unsigned index, u32 value);
  bool WriteApicBase(u64 value);
  void EndOfInterrupt();
  void Accept(u8 vector, bool level_triggered);
  void FireLvt(unsigned index);
  void RaiseError(u32 bits);
  void Lint(unsigned index, bool level, bool* pin);

  bool software_enabled() const { return svr_ & 0x100; }
  bool accepts_ext_int() const;
  u8 ppr() const;
  // The highest request above what is in service, whatever the TPR; -1 if none.
  int Candidate() const;
  void Update();

  unsigned TimerMode() const;
  unsigned TimerDivisor() const;
  u32 CurrentCount();
  void StartTimer(u64 start_ns);
  void ArmTscDeadline();
  void OnTimer(u64 now_ns);

  u32 id_;
  Clock& clock_;
  TscSource& tsc_;
  TimerQueue& timers_;
  LapicHost& host_;
  TimerQueue::TimerId timer_;
  InterruptController* ext_int_ = nullptr;

  u64 base_msr_ = 0;
  u8 own_tpr_ = 0;
  u8* tpr_ = &own_tpr_;
  u8 tpr_threshold_ = 0;
  bool lint0_ = false;
  bool lint1_ = false;

  u32 xapic_id_ = 0;
  u32 ldr_ = 0;
  u32 dfr_ = ~u32{0};
  u32 svr_ = 0xff;
  u32 esr_ = 0;
  u32 esr_pending_ = 0;
  u32 icr_low_ = 0;
  u32 icr_high_ = 0;
  std::array<u32, kRegisters> lvt_{};  // only the LVT's registers are used
  VectorSet isr_;
  VectorSet tmr_;
  VectorSet irr_;

  u32 initial_count_ = 0;
  u32 divide_ = 0;
  u64 timer_start_ns_ = 0;
  bool timer_running_ = false;
  u64 tsc_deadline_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_IRQ_LAPIC_H_
