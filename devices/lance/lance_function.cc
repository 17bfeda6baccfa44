// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/lance_function.h"

#include <utility>

namespace alibi::devices::lance {
namespace {

constexpr PciIds kIdentity = {.vendor = LanceFunction::kVendor,
                              .device = LanceFunction::kDevice,
                              .class_code = 0x020000,
                              .revision = 0x10,
                              .subsystem_vendor = 0,  // the registers do not exist
                              .subsystem = 0};
// Back-to-back transfers, and the speed with which it answers (DEVSEL# medium).
constexpr u32 kStatusBits = 0x0280;
constexpr unsigned kLatencyWishes = 0x3e;

}  // namespace

LanceFunction::LanceFunction(const net::MacAddress& address, std::shared_ptr<net::Backend> backend,
                             const net::Optimize& optimize, Dma& dma, Clock& clock,
                             TimerQueue& timers)
    : PciFunction("lance", kIdentity),
      dma_(*this, dma),
      lance_(address, std::move(backend), optimize,
             {.dma = dma_, .interrupt = intx(), .clock = clock, .timers = timers}) {
  Set(kStatus, kStatusBits, 2);
  Set(kLatencyWishes, lance_.registers().bcr(22), 2);
  AddIoBar(0, Lance::kPorts, lance_);
  AddMemoryBar(1, Lance::kPorts, lance_);
  SetInterruptPin(1);
}

}  // namespace alibi::devices::lance
