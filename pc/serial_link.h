// SPDX-License-Identifier: Apache-2.0
// One more serial port on a PC, COM2, between host files: how a program on the host and one in the
// guest talk without the console in between.
#ifndef ALIBI_PC_SERIAL_LINK_H_
#define ALIBI_PC_SERIAL_LINK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "devices/console/uart16550.h"
#include "devices/mailbox.h"
#include "pc/board.h"
#include "pc/host_events.h"
#include "pc/output_buffer.h"

namespace alibi::vmm {

class SerialLink {
 public:
  struct Files {
    int input = -1;  // -1: nothing ever comes
    OutputFile output;
    // A terminal's: filters input before the guest sees it, on the VCPU's thread (escape keys).
    std::function<std::string(std::string)> filter;
  };

  // Everything outlives the link. `output_failed` is called on the VCPU's thread.
  static Result<std::unique_ptr<SerialLink>> Attach(devices::Pc& pc, devices::Mailbox& mailbox,
                                                    Files files, const std::atomic<bool>& stopping,
                                                    std::function<void()> output_failed);
  SerialLink(const SerialLink&) = delete;
  SerialLink& operator=(const SerialLink&) = delete;

  // On the VCPU's thread. False if the output cannot be written.
  bool Flush() { return output_.Flush(); }

 private:
  SerialLink(devices::Pc& pc, Files files, const std::atomic<bool>& stopping,
             std::function<void()> output_failed);
  void Output(u8 byte);
  void TakeInput();

  devices::Pc& pc_;
  std::function<void()> output_failed_;
  std::function<std::string(std::string)> filter_;
  OutputBuffer output_;
  devices::TimerQueue::TimerId flush_timer_;
  devices::Uart16550 uart_;
  std::unique_ptr<HostEvents> events_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_SERIAL_LINK_H_
