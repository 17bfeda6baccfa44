// SPDX-License-Identifier: Apache-2.0
// REP MOVS and REP STOS over many pages: what they do, where they stop, and in how many callouts.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "alibi/machine.h"

namespace alibi {
namespace {

// 4 MB, mapped one to one but for the page at kAbsent; #PF halts.
constexpr std::uint64_t kRam = 4 << 20, kDirectory = 0x10000, kTable = 0x11000, kCode = 0x1000;
constexpr std::uint64_t kGdt = 0x2000, kIdt = 0x3000, kHandler = 0x4000, kStack = 0x8000;
constexpr std::uint64_t kFrom = 0x100000, kTo = 0x200000, kAbsent = 0x2c0000;

class Guest {
 public:
  Guest() {
    MachineOptions options;
    options.most_memory_bytes = std::uint64_t{16} << 20;
    machine_ = std::move(Machine::Create(options).value());
    ram_ = static_cast<std::uint8_t*>(machine_->AddMemory(0, kRam).value());
    vcpu_ = machine_->CreateVcpu().value();
    const auto entry = [this](std::uint64_t at, std::uint64_t value) {
      std::memcpy(ram_ + at, &value, 4);
    };
    entry(kDirectory, kTable | 7);
    for (std::uint64_t i = 0; i < kRam >> 12; ++i) {
      entry(kTable + 4 * i, i << 12 == kAbsent ? 0 : i << 12 | 7);
    }
    const std::uint64_t code = 0x00cf9a000000ffff, data = 0x00cf92000000ffff;
    std::memcpy(ram_ + kGdt + 8, &code, 8);
    std::memcpy(ram_ + kGdt + 16, &data, 8);
    const std::uint64_t gate = (kHandler & 0xffff) | 8 << 16 | std::uint64_t{0x8e00} << 32;
    std::memcpy(ram_ + kIdt + 14 * 8, &gate, 8);
    ram_[kHandler] = 0xf4;
    SpecialRegisters special = SpecialRegisters::FlatProtectedMode();
    special.cs.selector = 8;
    special.ss.selector = 16;
    special.gdt = {kGdt, 23};
    special.idt = {kIdt, 0x7f};
    special.cr0 |= 0x80010001;
    special.cr3 = kDirectory;
    REQUIRE(vcpu_->SetSpecialRegisters(special).ok());
    for (std::uint64_t i = kFrom; i < kFrom + 0x90000; ++i)
      ram_[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  }
  // The instruction, and HLT.
  Registers Run(const std::string& instruction, Registers r) {
    const std::string code = instruction + "\xf4";
    REQUIRE(machine_->WriteMemory(kCode, code.data(), code.size()));
    r.rip = kCode;
    r.rsp = kStack;
    REQUIRE(vcpu_->SetRegisters(r).ok());
    REQUIRE(vcpu_->Run().reason == ExitReason::kHalt);
    return vcpu_->GetRegisters();
  }
  std::uint32_t FaultAddress() const {
    return static_cast<std::uint32_t>(vcpu_->GetSpecialRegisters().cr2);
  }
  std::uint64_t Counter(const std::string& name) const {
    for (const CounterValue& counter : machine_->Counters()) {
      if (counter.name == name) return counter.value;
    }
    FAIL("no counter " << name);
    return 0;
  }
  std::uint8_t* ram() { return ram_; }

 private:
  std::unique_ptr<Machine> machine_;
  std::uint8_t* ram_ = nullptr;
  Vcpu* vcpu_ = nullptr;
};

Registers Pointers(std::uint64_t from, std::uint64_t to, std::uint64_t count) {
  Registers r;
  r.rsi = from;
  r.rdi = to;
  r.rcx = count;
  r.rax = 0x4433221187654321;
  return r;
}

struct Size {
  unsigned bytes;
  std::string movs, stos;
};
const Size kSizes[] = {
    {1, "\xf3\xa4", "\xf3\xaa"}, {2, "\xf3\x66\xa5", "\xf3\x66\xab"}, {4, "\xf3\xa5", "\xf3\xab"}};

TEST_CASE("A long run is one callout, however its pointers are aligned") {
  for (const Size& size : kSizes) {
    for (const std::uint64_t skew : {0, 1, 2, 3, 0x7fd}) {
      INFO(size.bytes << " bytes, " << skew);
      Guest guest;
      const std::uint64_t bytes = 0x80000, from = kFrom + 3 * skew, to = kTo + skew;
      std::vector<std::uint8_t> expected(guest.ram() + from, guest.ram() + from + bytes);
      Registers r = guest.Run(size.movs, Pointers(from, to, bytes / size.bytes));
      CHECK((r.rcx == 0 && r.rsi == from + bytes && r.rdi == to + bytes &&
             r.rip == kCode + size.movs.size() + 1));
      CHECK(std::memcmp(guest.ram() + to, expected.data(), bytes) == 0);
      CHECK((guest.ram()[to - 1] == 0 && guest.ram()[to + bytes] == 0));
      CHECK(guest.Counter("simulate_callouts") <= 2);

      r = guest.Run(size.stos, Pointers(from, to, bytes / size.bytes));
      CHECK((r.rcx == 0 && r.rsi == from && r.rdi == to + bytes));
      for (std::uint64_t i = 0; i < bytes; ++i) {
        expected[i] = static_cast<std::uint8_t>(0x87654321 >> (8 * (i % size.bytes)));
      }
      CHECK(std::memcmp(guest.ram() + to, expected.data(), bytes) == 0);
      CHECK(guest.ram()[to + bytes] == 0);
      CHECK(guest.Counter("simulate_callouts") <= 4);
    }
  }
}

TEST_CASE("A long run that faults has done what came before") {
  for (const Size& size : kSizes) {
    for (const std::uint64_t skew : {0, 1}) {
      INFO(size.bytes << " bytes, " << skew);
      Guest guest;
      const std::uint64_t to = kAbsent - 0x8000 - skew, count = 0x10000 / size.bytes;
      const std::uint64_t done = (0x8000 + skew) / size.bytes;
      const Registers r = guest.Run(size.movs, Pointers(kFrom, to, count));
      CHECK(r.rip == kHandler + 1);
      CHECK((r.rcx == count - done && r.rsi == kFrom + done * size.bytes));
      CHECK(r.rdi == to + done * size.bytes);
      // An element that crosses into the page has not been begun.
      CHECK(guest.FaultAddress() == kAbsent);
      CHECK(std::memcmp(guest.ram() + to, guest.ram() + kFrom, done * size.bytes) == 0);
      CHECK(guest.ram()[to + done * size.bytes] == 0);
      // The frame: RIP of the instruction, with RF.
      std::uint32_t frame[4];
      std::memcpy(frame, guest.ram() + r.rsp, sizeof(frame));
      CHECK((frame[1] == kCode && (frame[3] & 0x10000) != 0));
    }
  }
}

TEST_CASE("A long run whose destination follows closely repeats what it writes") {
  Guest guest;
  std::vector<std::uint8_t> expected(guest.ram() + kFrom, guest.ram() + kFrom + 0x9000);
  for (std::size_t i = 0; i + 7 < expected.size(); ++i) expected[i + 7] = expected[i];
  const Registers r = guest.Run(kSizes[0].movs, Pointers(kFrom, kFrom + 7, 0x9000 - 7));
  CHECK(r.rcx == 0);
  CHECK(std::memcmp(guest.ram() + kFrom, expected.data(), expected.size()) == 0);
}

}  // namespace
}  // namespace alibi
