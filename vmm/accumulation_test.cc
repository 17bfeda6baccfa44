// SPDX-License-Identifier: Apache-2.0
// Work that must not grow with what a guest accumulates, by counts: translations of one physical
// page at many linear addresses (what address randomisation does with every exec), and of one
// address whose code keeps changing.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>

#include "alibi/machine.h"

namespace alibi {
namespace {

// Guest-physical: tables at the bottom, one page of code that is mapped at kMaxPlaces addresses
// from kPlaces on, a driver and a stack.
constexpr std::uint64_t kRam = 1 << 20, kDirectory = 0x10000, kTables = 0x11000;
constexpr std::uint64_t kPage = 0x40000, kDriver = 0x1000, kStack = 0x8000;
constexpr std::uint64_t kPlaces = 0x400000;
constexpr unsigned kMaxPlaces = 4096, kFragments = 8;

class Guest {
 public:
  Guest() {
    MachineOptions options;
    options.most_memory_bytes = std::uint64_t{16} << 20;
    machine_ = std::move(Machine::Create(options).value());
    ram_ = static_cast<std::uint8_t*>(machine_->AddMemory(0, kRam).value());
    vcpu_ = machine_->CreateVcpu().value();
    const auto entry = [this](std::uint64_t table, unsigned slot, std::uint32_t value) {
      value |= 0x67;  // present, writable, user, accessed, dirty
      std::memcpy(ram_ + table + 4 * slot, &value, 4);
    };
    entry(kDirectory, 0, kTables);
    for (unsigned i = 0; i < kRam >> 12; ++i) entry(kTables, i, i << 12);
    for (unsigned i = 0; i < kMaxPlaces; ++i) {
      const std::uint64_t table = kTables + 0x1000 + (i / 1024 << 12);
      entry(kDirectory, 1 + i / 1024, static_cast<std::uint32_t>(table));
      entry(table, i % 1024, kPage);
    }
    // kFragments times: inc eax; jnz to the next. Then ret.
    for (unsigned i = 0; i < kFragments; ++i) std::memcpy(ram_ + kPage + 3 * i, "\x40\x75\x00", 3);
    ram_[kPage + 3 * kFragments] = 0xc3;
    SpecialRegisters special = SpecialRegisters::FlatProtectedMode();
    special.cr0 |= 0x80000001;
    special.cr3 = kDirectory;
    REQUIRE(vcpu_->SetSpecialRegisters(special).ok());
  }
  void Run(const std::string& code, const Registers& registers) {
    REQUIRE(machine_->WriteMemory(kDriver, code.data(), code.size()));
    Registers r = registers;
    r.rip = kDriver;
    r.rsp = kStack;
    REQUIRE(vcpu_->SetRegisters(r).ok());
    REQUIRE(vcpu_->Run().reason == ExitReason::kHalt);
  }
  // Calls the page at `count` addresses, from the `first` on.
  void CallPlaces(unsigned first, unsigned count) {
    // call ebx; add ebx, 0x1000; loop; hlt
    Registers r;
    r.rbx = kPlaces + (std::uint64_t{first} << 12);
    r.rcx = count;
    Run(std::string("\xff\xd3\x81\xc3\x00\x10\x00\x00\xe2\xf6\xf4", 11), r);
  }
  // `count` times: changes the operand of the MOV that the page then begins with (unless `where`
  // is elsewhere in the page), and calls one of its places.
  void ChangeAndCall(unsigned count, std::uint32_t where) {
    // mov [edi], ecx; call ebx; loop; hlt
    Registers r;
    r.rbx = kPlaces;
    r.rcx = count;
    r.rdi = kPage + where;
    Run(std::string("\x89\x0f\xff\xd3\xe2\xfa\xf4", 7), r);
  }
  void BeginWithMov() {
    // mov edx, 0, where two fragments were
    REQUIRE(machine_->WriteMemory(kPage, "\xba\0\0\0\0\x90", 6));
  }
  std::uint64_t Counter(const std::string& name) const {
    for (const CounterValue& counter : machine_->Counters()) {
      if (counter.name == name) return counter.value;
    }
    FAIL("no counter " << name);
    return 0;
  }
  std::uint64_t Steps() const {
    return Counter("index_steps") + Counter("executed_steps") + Counter("table_steps");
  }

 private:
  std::unique_ptr<Machine> machine_;
  std::uint8_t* ram_ = nullptr;
  Vcpu* vcpu_ = nullptr;
};

TEST_CASE("Translating a page at one more address does not walk the others") {
  Guest guest;
  guest.CallPlaces(0, 64);
  std::uint64_t translations = guest.Counter("translations"), steps = guest.Steps();
  guest.CallPlaces(64, kMaxPlaces - 64);
  translations = guest.Counter("translations") - translations;
  steps = guest.Steps() - steps;
  INFO(steps << " steps, " << translations << " translations");
  CHECK(translations >= (kMaxPlaces - 64) * kFragments / 2);
  CHECK(steps <= 4 * translations);
}

TEST_CASE("A page that is changed is translated again at no cost of its other addresses") {
  Guest guest;
  guest.CallPlaces(0, kMaxPlaces);
  guest.BeginWithMov();  // concerns every place, once
  guest.CallPlaces(0, kMaxPlaces);
  constexpr unsigned kTimes = 1000;
  SECTION("the bytes of one fragment change") {
    guest.ChangeAndCall(1, 1);
    const std::uint64_t invalidated = guest.Counter("ccf_invalidations"), steps = guest.Steps();
    guest.ChangeAndCall(kTimes, 1);
    INFO(guest.Steps() - steps << " steps");
    CHECK(guest.Counter("ccf_invalidations") - invalidated >= kTimes);
    CHECK(guest.Steps() - steps <= kTimes * 64);
  }
  SECTION("data in the page changes") {
    guest.ChangeAndCall(1, 0x800);
    const std::uint64_t writes = guest.Counter("trace_writes"), steps = guest.Steps();
    guest.ChangeAndCall(kTimes, 0x800);
    INFO(guest.Steps() - steps << " steps");
    CHECK(guest.Counter("trace_writes") - writes >= kTimes);
    CHECK(guest.Steps() - steps <= kTimes * 16);
  }
}

}  // namespace
}  // namespace alibi
