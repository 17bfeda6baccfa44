// SPDX-License-Identifier: Apache-2.0
#include "pc/serial_link.h"

#include <utility>

namespace alibi::vmm {
namespace {

constexpr u16 kCom2 = 0x2f8;
constexpr u32 kComPorts = 8;
constexpr unsigned kCom2Irq = 3;
constexpr std::size_t kMaxTyped = 1 << 16;
constexpr u64 kPatienceNs = 2'000'000;  // how long output waits for more

}  // namespace

SerialLink::SerialLink(devices::Pc& pc, Files files, const std::atomic<bool>& stopping,
                       std::function<void()> output_failed)
    : pc_(pc),
      output_failed_(std::move(output_failed)),
      filter_(std::move(files.filter)),
      output_(std::move(files.output), stopping),
      flush_timer_(pc.timers().Register([this](u64) {
        if (!output_.Flush()) output_failed_();
      })),
      uart_(pc.clock(), pc.timers(), pc.Irq(kCom2Irq), [this](u8 byte) { Output(byte); }) {
  uart_.OnDrained([this] { TakeInput(); });
}

Result<std::unique_ptr<SerialLink>> SerialLink::Attach(devices::Pc& pc, devices::Mailbox& mailbox,
                                                       Files files,
                                                       const std::atomic<bool>& stopping,
                                                       std::function<void()> output_failed) {
  std::unique_ptr<SerialLink> link(new SerialLink(pc, files, stopping, std::move(output_failed)));
  if (Status added = pc.ports().Add(kCom2, kComPorts, link->uart_, "COM2"); !added.ok()) {
    return added.error();
  }
  // Messages are bounded, as the thread reads no more than so much ahead.
  auto events = HostEvents::Create(
      files.input, [raw = link.get(), &mailbox] { mailbox.Post([raw] { raw->TakeInput(); }); });
  if (!events.ok()) return events.error();
  link->events_ = std::move(*events);
  return link;
}

void SerialLink::Output(u8 byte) {
  if (output_.Put(byte)) {
    if (!output_.Flush()) output_failed_();
  } else if (!output_.empty() && !pc_.timers().IsArmed(flush_timer_)) {
    pc_.timers().Arm(flush_timer_, pc_.clock().NowNs() + kPatienceNs);
  }
}

// What the guest has not taken stays with the waiting thread, which makes the sender wait. But keys
// are looked at even if the guest does not take them: some are ours.
void SerialLink::TakeInput() {
  if (uart_.backlog() != 0 && !filter_) return;
  std::string input = events_->TakeInput();
  if (filter_ && !input.empty()) input = filter_(std::move(input));
  if (!input.empty() && uart_.backlog() < kMaxTyped) uart_.Receive(input);
}

}  // namespace alibi::vmm
