// SPDX-License-Identifier: Apache-2.0
// The network controller Am79C970A, "PCnet-PCI II" of the Lance family (AMD, publication 19436).
//
//   offset  00-0f  APROM: the interface's address, a checksum, 'WW'
//   WIO     10 RDP   12 RAP   14 reset   16 BDP     16 bits each, after H_RESET
//   DWIO    10 RDP   14 RAP   18 reset   1c BDP     32 bits each, after a 32-bit write to RDP
//
// RAP chooses the register behind RDP (CSRs) and BDP (BCRs). Reading `reset` is S_RESET.
//
// Traps of the data sheet:
//   - STRT takes both rings from their beginning, without INIT as well.
//   - A transmission whose next buffer is not there (no ENP, no OWN) is an underflow, which turns
//     the transmitter off unless CSR3 says DXSUFLO.
//   - A descriptor of the transmit ring without STP where a frame begins is given back unused.
//
// What differs from the chip, because there is no wire that takes its time: a frame that finds no
// receive buffer waits for a while before it is missed (kPatience). A driver that demands
// transmissions (TDMD) is polled more seldom, so that an idle guest sleeps. Access to memory that
// does not exist stops the transmitter or the receiver and sets MERR and SINT.
#ifndef ALIBI_DEVICES_LANCE_LANCE_H_
#define ALIBI_DEVICES_LANCE_LANCE_H_

#include <array>
#include <memory>

#include "base/result.h"
#include "base/types.h"
#include "devices/device.h"
#include "devices/dma.h"
#include "devices/irq.h"
#include "devices/lance/registers.h"
#include "devices/lance/ring.h"
#include "devices/mailbox.h"
#include "devices/net/backend.h"
#include "devices/net/combine.h"
#include "devices/net/options.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices::lance {

// What happened, for those who measure.
struct Tallies {
#define ALIBI_LANCE_COUNTER(name, what) u64 name = 0;
#include "devices/lance/counters.inc"
#undef ALIBI_LANCE_COUNTER
};

class Lance final : public Device {
 public:
  static constexpr u32 kPorts = 32;
  // The interval of CSR47 counts cycles of the PCI clock.
  static constexpr u64 kClockNs = 30;
  // How much longer it is for drivers that use TDMD.
  static constexpr u64 kSeldom = 16;
  // A frame that waits for a buffer is tried again so often. Tries count, not time: a host that is
  // busy may not have run the guest meanwhile, nor for long between two of them: a tenth of this
  // would do for a guest that has a core.
  static constexpr u64 kRetryNs = 1'000'000;
  static constexpr unsigned kPatience = 250;
  // Descriptors that one access has looked at before it lets the guest go on.
  static constexpr unsigned kMostAtOnce = 256;

  // What is referred to outlives the device.
  struct Wiring {
    Dma& dma;
    IrqLine& interrupt;
    Clock& clock;
    TimerQueue& timers;
  };
  Lance(const net::MacAddress& address, std::shared_ptr<net::Backend> backend,
        const net::Optimize& optimize, const Wiring& wiring);
  // Frames may come from here on; `mailbox` outlives the device.
  Status Connect(Mailbox& mailbox);

  // The guest's world was left for another reason: transmissions that have waited for that go out.
  void Crossed();
  const Tallies& tallies() const { return tallies_; }

  // --- Device ---
  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  bool Peek(u64 offset, unsigned size, u64* value) const override;
  bool Poke(u64 offset, unsigned size, u64 value) override;
  PortLatch Latch(u64 offset, unsigned size) override;
  unsigned MaxAccessSize() const override { return 4; }
  void Reset() override;

  const Registers& registers() const { return registers_; }

 private:
  enum class Port : u8 { kData, kAddress, kReset, kBusData, kAprom, kNone };
  // One that went out, or could not, as far as `frame_` has it.
  enum class Sent : u8 { kDone, kNoRoom };

  void FillAprom();

  // --- answers.cc: called with the guest's vector state live ---
  Port PortAt(u64 offset, unsigned size) const;
  bool ReadQuietly(Port port, u64 offset, unsigned size, u64* value) const;
  bool WriteCsrQuietly(u16 value);
  // What the interrupt pin shows.
  bool asserted() const;

  // Whether the driver's wish to transmit may wait.
  bool MayHold();
  void WriteCsr(u16 value);
  void WriteControl(u16 value);
  void WriteFeatures(u16 value);
  void WriteExtendedControl(u16 value);
  void SoftReset();
  void Stop();
  void Initialize();
  void Start();
  void UpdateInterrupt();
  // What the chip looks at by itself comes round again at the right time.
  void ArmPoll();
  void Poll();
  void MemoryError(u16 receiver_or_transmitter);
  bool running(u16 receiver_or_transmitter) const;

  // --- transmit.cc ---
  // Frames leave as far as the ring has some, and the host takes them.
  void Transmit();
  // One descriptor's worth; false: there is nothing to do now.
  bool TransmitNext();
  bool TransmitLast(Descriptor& descriptor);
  void Underflow(Descriptor& descriptor);
  bool CopyFromGuest(const Descriptor& descriptor);
  Sent SendFrame(const Descriptor& descriptor);
  Sent SendBare();
  void LoopBack();

  // --- receive.cc ---
  void Noticed();
  // Frames of the host's come in as far as there are buffers.
  void Deliver();
  // False: there is no buffer now.
  bool DeliverFrame(net::Frame& frame);
  // With the check sequence behind it. False: there is no buffer.
  bool ReceiveFrame(const net::Frame& frame, bool check_sequence_holds);
  bool ReceiveInto(Descriptor descriptor, const net::Frame& frame, u32 last_flags);
  std::size_t StoredSize(const net::Frame& frame) const;
  void Missed();

  const net::MacAddress address_;
  const std::shared_ptr<net::Backend> backend_;
  Dma& dma_;
  IrqLine& interrupt_;
  Clock& clock_;
  TimerQueue& timers_;
  TimerQueue::TimerId poll_timer_;
  const net::Optimize optimize_;
  net::Traffic traffic_;
  Tallies tallies_;

  Registers registers_;
  std::array<u8, 16> aprom_{};
  Ring transmit_ring_, receive_ring_;

  // --- The transmitter ---
  bool in_frame_ = false;        // the ring's next descriptor continues frame_
  bool unsent_ = false;          // frame_ is whole, and the host has no room
  bool bare_ = false;            // it has no check sequence
  bool unfinished_ = false;      // kMostAtOnce was reached
  unsigned held_ = 0;            // wishes to transmit that wait for a crossing
  bool demands_ = false;         // the driver knows TDMD
  std::size_t frame_bytes_ = 0;  // of which frame_ keeps no more than can be sent
  net::Frame frame_;

  // --- The receiver ---
  bool waits_ = false;    // waiting_ waits for a buffer
  unsigned retries_ = 0;  // that timers have made for it
  net::Frame waiting_;
};

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_LANCE_H_
