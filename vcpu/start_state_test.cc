// SPDX-License-Identifier: Apache-2.0
#include "vcpu/start_state.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>

#include "vcpu/reset.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

constexpr u64 kFlatKernelCode = 0x00cf9a000000ffff, kFlatKernelData = 0x00cf92000000ffff,
              kFlatUserData = 0x00cff2000000ffff, kSmallData = 0x0040920000000fff;

struct Fixture {
  const CpuidPolicy& policy = CpuidPolicy::ForHost();
  std::unique_ptr<VcpuState> state = std::make_unique<VcpuState>();
  StartState start;

  Fixture() {
    state->number = 1;
    ResetToPowerUp(*state, policy);
    StartUp(*state, 8);
    for (u32 i = 0; i < StartState::kRecordWords[StartState::k32]; ++i)
      start.Set(StartState::k32, i, 0);
    start.Set(StartState::k32, 0, 0x80050023);
    start.Set(StartState::k32, 2, 0x123000);
    start.Set(StartState::k32, 3, 0x10);
    start.Set(StartState::k32, 6, 0xc0100000);
    for (u32 i = 8; i < 16; ++i) start.Set(StartState::k32, i, 0x1000 + i);
    start.Set(StartState::k32, 16, 0x0068'0060);
    start.Set(StartState::k32, 17, 0x007b'007b);
    start.Set(StartState::k32, 18, 0x0000'00d8);
    start.Set(StartState::k32, 19, 0x00ff'0000);
    start.Set(StartState::k32, 20, 0xc0200000);
    start.Set(StartState::k32, 21, 0xc0300000);
    start.Set(StartState::k32, 22, 0x7ff);
    const u64 descriptors[] = {
        kFlatKernelCode, kFlatKernelData, kFlatUserData, kFlatUserData, kSmallData, 0, 0};
    for (u32 i = 0; i < StartState::kSegments[StartState::k32]; ++i)
      SetDescriptor(i, descriptors[i]);
  }
  void SetDescriptor(u32 i, u64 raw) {
    start.Set(StartState::k32, StartState::kRecordWords[StartState::k32] + 2 * i,
              static_cast<u32>(raw));
    start.Set(StartState::k32, StartState::kRecordWords[StartState::k32] + 2 * i + 1,
              static_cast<u32>(raw >> 32));
  }
  bool Refused() {
    const auto before = std::make_unique<VcpuState>(*state);
    return !start.ApplyTo(state.get(), policy) &&
           std::memcmp(before.get(), state.get(), sizeof(VcpuState)) == 0;
  }
};

TEST_CASE("A processor begins in the state that Linux gives", "[start]") {
  Fixture f;
  REQUIRE(f.start.ApplyTo(f.state.get(), f.policy));
  const VcpuState& s = *f.state;
  CHECK(s.cr0 == 0x80050033);
  CHECK(s.cr3 == 0x123000);
  CHECK(s.cr4 == 0x10);
  CHECK(s.rip == 0xc0100000);
  CHECK(s.Rflags() == kFlagsReserved1);
  CHECK(s.gpr[kRax] == 0x1008);
  CHECK(s.gpr[kRsp] == 0x100c);
  CHECK(s.gpr[kRbp] == 0x100d);
  CHECK(s.gpr[kRdi] == 0x100f);
  CHECK(s.segment[kCs].selector == 0x60);
  CHECK(s.segment[kCs].Big());
  CHECK(s.segment[kDs].selector == 0x7b);
  CHECK(s.segment[kFs].limit == 0xfff);
  CHECK_FALSE(s.segment[kGs].Present());
  CHECK_FALSE(s.segment[kLdtr].Present());
  CHECK(s.gdtr.base == 0xc0200000);
  CHECK(s.gdtr.limit == 0xff);
  CHECK(s.idtr.base == 0xc0300000);
  CHECK(s.idtr.limit == 0x7ff);
  CHECK(s.cpl == 0);
}

TEST_CASE("What no instruction leads to is refused, and changes nothing", "[start]") {
  struct Case {
    const char* what;
    u32 word, value;
  };
  const u32 code = StartState::kRecordWords[StartState::k32], stack = code + 2, data = code + 4,
            ldt = code + 12;
  const Case cases[] = {
      {"no protected mode", 0, 0x10},
      {"paging without protection", 0, 0x80000010},
      {"NW without CD", 0, 0xa0050023},
      {"reserved bits of CR4", 3, 0x80000000},
      {"long mode", 4, 0x100},
      {"reserved bits of EFER", 4, 0x2},
      {"... and above", 5, 1},
      {"virtual-8086 mode", 7, 1u << 17},
      {"a CS of ring 3", 16, 0x0068'0063},
      {"a null CS", 16, 0x0068'0000},
      {"a null SS", 16, 0x0000'0060},
      {"CS is data", code + 1, 0x00cf9200},
      {"CS is not there", code + 1, 0x00cf1a00},
      {"CS is of ring 3", code + 1, 0x00cffa00},
      {"CS is of 64 bits", code + 1, 0x00af9a00},
      {"SS is read-only", stack + 1, 0x00cf9000},
      {"DS is of ring 0, its selector of ring 3", data + 1, 0x00cf9200},
      {"DS is a gate", data + 1, 0x00008e00},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    Fixture f;
    f.start.Set(StartState::k32, c.word, c.value);
    CHECK(f.Refused());
  }
  Fixture f;
  f.start.Set(StartState::k32, 19, 0x00ff'0088);  // an LDT that is none
  f.start.Set(StartState::k32, ldt + 1, 0x00cf9200);
  CHECK(f.Refused());
}

TEST_CASE("A state that has not come whole is none", "[start]") {
  Fixture f;
  f.start.Clear();
  CHECK_FALSE(f.start.complete());
  CHECK(f.Refused());
  for (u32 i = 0; i + 1 < StartState::kWords[StartState::k32]; ++i)
    f.start.Set(StartState::k32, i, 0);
  f.start.Set(StartState::k32, StartState::kWords[StartState::k32], 0);
  f.start.Set(StartState::k32, ~0u, 0);
  CHECK_FALSE(f.start.complete());
  f.start.Set(StartState::k32, StartState::kWords[StartState::k32] - 1, 0);
  CHECK(f.start.complete());
}

// --- 64 bits ---

constexpr u64 kCode64 = 0x00af9a000000ffff, kNoAddress = u64{1} << 47;
constexpr u32 kSelectors64 = 28, kLimits64 = 29, kCs64 = StartState::kRecordWords[StartState::k64];

struct Fixture64 : Fixture {
  Fixture64() {
    start.Clear();
    for (u32 i = 0; i < StartState::kWords[StartState::k64]; ++i) Set(i, 0);
    Set(0, 0x80050023);
    Set(1, 0x8877665544332211);
    Set(2, 0x123000);
    Set(3, 0xa0);
    Set(4, kEferLme | kEferLma | kEferSce | kEferNxe);
    Set(5, 0xffffffff81000000);
    for (u32 i = 7; i < 23; ++i) Set(i, (u64{i} << 56) | i);
    Set(23, 0x7fff00000000);
    Set(24, 0xffff888000000000);
    Set(25, 0x1000);
    Set(26, 0xfffffe0000001000);
    Set(27, 0xfffffe0000000000);
    Set(kSelectors64, 0x002b'002b'0000'0010);
    Set(kLimits64, 0x0fff'007f'0000'0000);
    Set(kCs64, kCode64);
    Set(kCs64 + 2, kFlatUserData);
    Set(kCs64 + 3, kFlatUserData);
  }
  void Set(u32 word, u64 value) { start.Set(StartState::k64, word, value); }
};

TEST_CASE("A processor begins in 64-bit mode", "[start]") {
  Fixture64 f;
  REQUIRE(f.start.ApplyTo(f.state.get(), f.policy));
  const VcpuState& s = *f.state;
  CHECK(s.cr0 == 0x80050033);
  CHECK(s.cr2 == 0x8877665544332211);
  CHECK(s.cr3 == 0x123000);
  CHECK(s.cr4 == 0xa0);
  CHECK(s.efer == (kEferLme | kEferLma | kEferSce | kEferNxe));
  CHECK(s.rip == 0xffffffff81000000);
  CHECK(s.In64BitCode());
  CHECK(s.gpr[kRax] == (u64{7} << 56 | 7));
  CHECK(s.gpr[kRsp] == (u64{11} << 56 | 11));
  CHECK(s.gpr[kR15] == (u64{22} << 56 | 22));
  CHECK(s.segment[kCs].selector == 0x10);
  CHECK_FALSE(s.segment[kSs].Present());
  CHECK(s.segment[kDs].selector == 0x2b);
  CHECK(s.segment[kFs].base == 0x7fff00000000);
  CHECK(s.segment[kGs].base == 0xffff888000000000);
  CHECK(s.kernel_gs_base == 0x1000);
  CHECK(s.gdtr.base == 0xfffffe0000001000);
  CHECK(s.gdtr.limit == 0x7f);
  CHECK(s.idtr.base == 0xfffffe0000000000);
  CHECK(s.idtr.limit == 0xfff);
  CHECK(s.cpl == 0);
}

TEST_CASE("PCIDs begin when long mode has", "[start]") {
  Fixture64 f;
  f.Set(2, 0x123005);
  f.Set(3, 0xa0 | kCr4Pcide);
  if ((f.policy.cr4_valid() & kCr4Pcide) == 0) return;
  REQUIRE(f.start.ApplyTo(f.state.get(), f.policy));
  CHECK(f.state->cr3 == 0x123005);
  CHECK(f.state->cr4 == (0xa0 | kCr4Pcide));
}

TEST_CASE("What no instruction leads to in 64-bit mode is refused as well", "[start]") {
  struct Case {
    const char* what;
    u32 word;
    u64 value;
  };
  const Case cases[] = {
      {"no paging", 0, 0x50023},
      {"no protected mode", 0, 0x80050022},
      {"CR0 above 32 bits", 0, u64{1} << 32 | 0x80050023},
      {"CR3 beyond physical addresses", 2, u64{1} << 52},
      {"no PAE", 3, 0x80},
      {"reserved bits of CR4", 3, u64{1} << 32 | 0xa0},
      {"no long mode", 4, kEferNxe},
      {"reserved bits of EFER", 4, kEferLme | 2},
      {"RIP is no address", 5, kNoAddress},
      {"virtual-8086 mode", 6, kVm},
      {"FS's base is no address", 23, kNoAddress},
      {"GS's base is no address", 24, kNoAddress},
      {"SWAPGS's is no address", 25, kNoAddress},
      {"the GDT is at no address", 26, kNoAddress},
      {"the IDT is at no address", 27, kNoAddress},
      {"a CS of ring 3", kSelectors64, 0x0013},
      {"a null CS", kSelectors64, 0},
      {"a null SS of ring 3", kSelectors64, 0x0003'0010},
      {"SS is not there", kSelectors64, 0x0018'0010},
      {"CS is of 32 bits", kCs64, kFlatKernelCode},
      {"CS is of 32 and of 64 bits", kCs64, kCode64 | kFlatKernelCode},
      {"CS is data", kCs64, kFlatKernelData},
      {"CS is of ring 3", kCs64, kCode64 | u64{3} << 45},
      {"DS is of ring 0, its selector of ring 3", kCs64 + 2, kFlatKernelData},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    Fixture64 f;
    f.Set(c.word, c.value);
    CHECK(f.Refused());
  }
}

TEST_CASE("A state is of one kind", "[start]") {
  Fixture64 f;
  f.start.Set(StartState::k32, 0, ~u64{0});
  CHECK_FALSE(f.start.complete());
  CHECK(f.Refused());
  for (u32 i = 0; i < StartState::kWords[StartState::k64]; ++i) f.Set(i, 0);
  CHECK(f.start.complete());
  CHECK(f.Refused());
  f.start.Set(StartState::k64, StartState::kWords[StartState::k64], 0);
  f.start.Set(StartState::k32, ~u64{0}, 0);
  CHECK(f.start.complete());
}

}  // namespace
}  // namespace alibi::vcpu
