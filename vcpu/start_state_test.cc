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
    for (u32 i = 0; i < StartState::kRecordWords; ++i) start.Set(i, 0);
    start.Set(0, 0x80050023);
    start.Set(2, 0x123000);
    start.Set(3, 0x10);
    start.Set(6, 0xc0100000);
    for (u32 i = 8; i < 16; ++i) start.Set(i, 0x1000 + i);
    start.Set(16, 0x0068'0060);
    start.Set(17, 0x007b'007b);
    start.Set(18, 0x0000'00d8);
    start.Set(19, 0x00ff'0000);
    start.Set(20, 0xc0200000);
    start.Set(21, 0xc0300000);
    start.Set(22, 0x7ff);
    const u64 descriptors[] = {
        kFlatKernelCode, kFlatKernelData, kFlatUserData, kFlatUserData, kSmallData, 0, 0};
    for (u32 i = 0; i < StartState::kSegments; ++i) SetDescriptor(i, descriptors[i]);
  }
  void SetDescriptor(u32 i, u64 raw) {
    start.Set(StartState::kRecordWords + 2 * i, static_cast<u32>(raw));
    start.Set(StartState::kRecordWords + 2 * i + 1, static_cast<u32>(raw >> 32));
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
  const u32 code = StartState::kRecordWords, stack = code + 2, data = code + 4, ldt = code + 12;
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
    f.start.Set(c.word, c.value);
    CHECK(f.Refused());
  }
  Fixture f;
  f.start.Set(19, 0x00ff'0088);  // an LDT that is none
  f.start.Set(ldt + 1, 0x00cf9200);
  CHECK(f.Refused());
}

TEST_CASE("A state that has not come whole is none", "[start]") {
  Fixture f;
  f.start.Clear();
  CHECK_FALSE(f.start.complete());
  CHECK(f.Refused());
  for (u32 i = 0; i + 1 < StartState::kWords; ++i) f.start.Set(i, 0);
  f.start.Set(StartState::kWords, 0);
  f.start.Set(~0u, 0);
  CHECK_FALSE(f.start.complete());
  f.start.Set(StartState::kWords - 1, 0);
  CHECK(f.start.complete());
}

}  // namespace
}  // namespace alibi::vcpu
