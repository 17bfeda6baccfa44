// SPDX-License-Identifier: Apache-2.0
#include "devices/pci/pci.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr u32 kEnable = 1u << 31;
constexpr u64 kData = 4;  // port 0xcfc
constexpr u8 kManyFunctions = 0x80;

// As SeaBIOS routes PIRQA to PIRQD.
constexpr u8 kFirmwareRoutes[] = {10, 10, 11, 11};

unsigned PirqOf(unsigned slot, unsigned pin) { return (slot + pin - 2) & 3; }

}  // namespace

PciHost::PciHost(Wiring wiring)
    : wiring_(std::move(wiring)),
      host_bridge_(wiring_.pam),
      isa_bridge_([this] { UpdateRoutes(); }),
      power_(wiring_.pm_base, wiring_.smbus) {
  Add(0, 0, host_bridge_);
  Add(1, 0, isa_bridge_);
  Add(1, 3, power_);
}

void PciHost::Add(unsigned slot, unsigned function, PciFunction& pci_function) {
  ALIBI_CHECK(slot < kSlots && function < kFunctions, "a bus has 32 slots of 8 functions");
  PciFunction*& place = functions_[slot * kFunctions + function];
  ALIBI_CHECK(place == nullptr && pci_function.host_ == nullptr,
              "one function in each place, each function once");
  place = &pci_function;
  pci_function.host_ = this;
  pci_function.slot_ = slot;
  pci_function.after_reset_ = pci_function.bytes_;
  PciFunction* first = functions_[slot * kFunctions];
  for (unsigned i = 1; first != nullptr && i < kFunctions; ++i) {
    if (functions_[slot * kFunctions + i] == nullptr) continue;
    first->Set(PciFunction::kHeaderType, first->Get(PciFunction::kHeaderType, 1) | kManyFunctions,
               1);
  }
}

void PciHost::Reset() {
  address_ = 0;
  for (PciFunction* function : functions_) {
    if (function != nullptr) function->Reset();
  }
}

void PciHost::Map(PciFunction& function, unsigned index) {
  PciFunction::Bar& bar = function.bars_[index];
  u64 address;
  if (bar.mapped || !function.WantedAddress(index, &address)) return;
  const Status added =
      bar.io ? wiring_.ports.Add(static_cast<u16>(address), static_cast<u32>(bar.size), *bar.device,
                                 function.name())
             : wiring_.mmio.Add(PhysAddr(address), bar.size, *bar.device, function.name());
  // Somebody else is there: it waits until that one moves.
  if (!added.ok()) return;
  bar.mapped = true;
  bar.address = address;
}

void PciHost::UpdateMappings(PciFunction& function) {
  bool room = false;
  for (unsigned i = 0; i < PciFunction::kBars; ++i) {
    PciFunction::Bar& bar = function.bars_[i];
    u64 address;
    if (!bar.mapped || (function.WantedAddress(i, &address) && address == bar.address)) continue;
    if (bar.io) {
      wiring_.ports.Remove(static_cast<u16>(bar.address));
    } else {
      wiring_.mmio.Remove(PhysAddr(bar.address));
    }
    bar.mapped = false;
    room = true;
  }
  for (unsigned i = 0; i < PciFunction::kBars; ++i) Map(function, i);
  if (!room) return;
  for (PciFunction* other : functions_) {
    for (unsigned i = 0; other != nullptr && i < PciFunction::kBars; ++i) Map(*other, i);
  }
}

void PciHost::DrivePin(unsigned slot, unsigned pin, bool level) {
  unsigned& count = asserted_[PirqOf(slot, pin)];
  ALIBI_CHECK(level || count != 0, "a pin is released by who asserted it");
  count += level ? 1 : -1u;
  UpdateRoutes();
}

void PciHost::UpdateRoutes() {
  u16 levels = 0;
  for (unsigned pirq = 0; pirq < kPirqs; ++pirq) {
    if (asserted_[pirq] != 0) levels = static_cast<u16>(levels | 1u << isa_bridge_.Route(pirq));
  }
  levels &= 0xfffe;  // 0 is no line
  const u16 changed = levels ^ isa_levels_;
  isa_levels_ = levels;
  for (unsigned irq = 1; irq < 16; ++irq) {
    if (changed >> irq & 1) wiring_.isa_line(irq, levels >> irq & 1);
  }
}

void PciHost::AssignAsFirmware() {
  struct Request {
    PciFunction* function;
    unsigned index;
    u64 size;
  };
  std::vector<Request> memory, ports;
  for (PciFunction* function : functions_) {
    for (unsigned i = 0; function != nullptr && i < PciFunction::kRomBar; ++i) {
      const PciFunction::Bar& bar = function->bars_[i];
      if (bar.device != nullptr) (bar.io ? ports : memory).push_back({function, i, bar.size});
    }
  }
  // The largest first: each then begins at a multiple of its size.
  const auto place = [](std::vector<Request>& requests, u64 base, u64 end) {
    std::stable_sort(requests.begin(), requests.end(),
                     [](const Request& a, const Request& b) { return a.size > b.size; });
    for (const Request& request : requests) {
      if (base + request.size > end) continue;
      request.function->SetBarAddress(request.index, base);
      base += request.size;
    }
  };
  place(memory, kMemoryBase, kMemoryEnd);
  place(ports, kIoBase, 0x10000);
  for (unsigned i = 0; i < kPirqs; ++i) {
    isa_bridge_.ConfigWrite(PciIsaBridge::kFirstRoute + i, 1, kFirmwareRoutes[i]);
  }
  for (std::size_t at = 0; at < functions_.size(); ++at) {
    PciFunction* function = functions_[at];
    if (function == nullptr || function == &power_) continue;
    const unsigned pin = function->Get(PciFunction::kInterruptPin, 1);
    if (pin != 0) {
      const u8 line = kFirmwareRoutes[PirqOf(static_cast<unsigned>(at / kFunctions), pin)];
      function->ConfigWrite(PciFunction::kInterruptLine, 1, line);
    }
    const u32 command = function->Get(PciFunction::kCommand, 2);
    function->ConfigWrite(PciFunction::kCommand, 2,
                          command | PciFunction::kIoEnable | PciFunction::kMemoryEnable);
  }
}

PciFunction* PciHost::Selected() {
  if (!(address_ & kEnable) || (address_ >> 16 & 0xff) != 0) return nullptr;
  return functions_[address_ >> 8 & 0xff];  // slot and function
}

u64 PciHost::Read(u64 offset, unsigned size) {
  if (offset < kData) {
    if (offset == 0 && size == 4) return address_;
    if (offset == 1 && size == 1) return wiring_.reset_control.Read(0, 1);
    return ~u64{0};
  }
  PciFunction* function = Selected();
  if (function == nullptr) return ~u64{0};
  return function->ConfigRead((address_ & 0xfc) + static_cast<unsigned>(offset - kData), size);
}

void PciHost::Write(u64 offset, unsigned size, u64 value) {
  if (offset < kData) {
    if (offset == 0 && size == 4) address_ = static_cast<u32>(value);
    if (offset == 1 && size == 1) wiring_.reset_control.Write(0, 1, value);
    return;
  }
  PciFunction* function = Selected();
  if (function == nullptr) return;
  function->ConfigWrite((address_ & 0xfc) + static_cast<unsigned>(offset - kData), size,
                        static_cast<u32>(value));
}

}  // namespace alibi::devices
