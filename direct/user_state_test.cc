// SPDX-License-Identifier: Apache-2.0
#include "direct/user_state.h"

#include <functional>

#include "direct/satellite_rig.h"
#include "mmu/test_machine.h"
#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"

namespace alibi::direct {
namespace {

using vcpu::Descriptor;
using vcpu::Segment;
using vcpu::VcpuState;

constexpr u64 kAllState = 0xe7;
constexpr u64 kFlatCode = 0x00cffb000000ffff, kFlatDataBits = 0x00cff3000000ffff;

HostTraits Host() { return {.xcr0 = kAllState, .code32 = true}; }

// As Linux's kernels of 32 bits, and of 64 bits, run a 32-bit program.
void MakeState(VcpuState* state, bool long_mode) {
  VcpuState& s = *state;
  s.cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | vcpu::kCr0Wp | vcpu::kCr0Ne | vcpu::kCr0Am;
  s.cr4 = vcpu::kCr4Pae | vcpu::kCr4Osfxsr | vcpu::kCr4Osxsave;
  s.efer = long_mode ? vcpu::kEferLme | vcpu::kEferLma | vcpu::kEferSce : 0;
  s.xcr0 = kAllState;
  s.cpl = 3;
  s.SetRflags(0x202);
  const u16 code = long_mode ? 0x23 : 0x73, data = long_mode ? 0x2b : 0x7b;
  s.segment[vcpu::kCs] = Descriptor{kFlatCode}.ToSegment(code);
  for (const auto index : {vcpu::kSs, vcpu::kDs, vcpu::kEs}) {
    s.segment[index] = Descriptor{kFlatDataBits}.ToSegment(data);
  }
  s.segment[vcpu::kFs] = {};
  s.segment[vcpu::kGs] = Descriptor{kFlatDataBits}.ToSegment(long_mode ? 0x63 : 0x33);
  s.segment[vcpu::kGs].base = 0xb7d01940;
  s.dr[7] = vcpu::kDr7Fixed;
}

TEST_CASE("Flat code of 32 bits fits, and nothing else of 32 bits", "[user_state]") {
  struct Row {
    const char* name;
    bool fits;
    std::function<void(VcpuState&)> change;
  };
  const auto attributes = [](vcpu::SegmentIndex index, u16 clear, u16 set) {
    return [=](VcpuState& s) {
      u16& bits = s.segment[index].attributes;
      bits = static_cast<u16>((bits & ~clear) | set);
    };
  };
  const Row kRows[] = {
      {"as it is", true, [](VcpuState&) {}},
      {"GS null", true, [](VcpuState& s) { s.segment[vcpu::kGs] = {}; }},
      {"FS with a base", true, [](VcpuState& s) { s.segment[vcpu::kFs] = s.segment[vcpu::kGs]; }},
      {"DS null", true, [](VcpuState& s) { s.segment[vcpu::kDs] = {}; }},
      {"descriptors not accessed yet", true, attributes(vcpu::kDs, 1, 0)},
      {"kernel", false, [](VcpuState& s) { s.cpl = 0; }},
      {"CS not from 0 on", false, [](VcpuState& s) { s.segment[vcpu::kCs].base = 0x1000; }},
      {"CS with a limit", false, [](VcpuState& s) { s.segment[vcpu::kCs].limit = 0xbfffffff; }},
      {"CS execute-only", false, attributes(vcpu::kCs, 2, 0)},
      {"CS conforming", false, attributes(vcpu::kCs, 0, 4)},
      {"16-bit code", false, attributes(vcpu::kCs, 0x4000, 0)},
      {"SS with a base", false, [](VcpuState& s) { s.segment[vcpu::kSs].base = 0x10; }},
      {"SS with a limit", false, [](VcpuState& s) { s.segment[vcpu::kSs].limit = 0xffff; }},
      {"SS expand-down", false, attributes(vcpu::kSs, 0, 4)},
      {"16-bit stack", false, attributes(vcpu::kSs, 0x4000, 0)},
      {"DS with a base", false, [](VcpuState& s) { s.segment[vcpu::kDs].base = 0x10; }},
      {"DS with a limit", false, [](VcpuState& s) { s.segment[vcpu::kDs].limit = 0xfffffffe; }},
      {"ES read-only", false, attributes(vcpu::kEs, 2, 0)},
      {"ES expand-down", false, attributes(vcpu::kEs, 0, 4)},
      {"ES code", false, attributes(vcpu::kEs, 0, 8)},
      {"GS with a limit", false, [](VcpuState& s) { s.segment[vcpu::kGs].limit = 0xfff; }},
      {"GS read-only", false, attributes(vcpu::kGs, 2, 0)},
      {"TF", false, [](VcpuState& s) { s.SetRflags(s.Rflags() | vcpu::kTf); }},
      {"AC", false, [](VcpuState& s) { s.SetRflags(s.Rflags() | vcpu::kAc); }},
      {"IOPL", false, [](VcpuState& s) { s.SetRflags(s.Rflags() | vcpu::kIopl); }},
      {"virtual-8086 mode", false, [](VcpuState& s) { s.SetRflags(s.Rflags() | vcpu::kVm); }},
      {"no interrupts", false, [](VcpuState& s) { s.if_flag = 0; }},
      {"CR0.TS", false, [](VcpuState& s) { s.cr0 |= vcpu::kCr0Ts; }},
      {"another XCR0", false, [](VcpuState& s) { s.xcr0 = 3; }},
      {"a breakpoint", false, [](VcpuState& s) { s.dr[7] |= 3; }},
  };
  mmu::TestMachine m;
  for (const bool long_mode : {false, true}) {
    for (const Row& row : kRows) {
      MakeState(m.state, long_mode);
      row.change(*m.state);
      CAPTURE(row.name, long_mode);
      CHECK(CanRunDirectly(*m.state, *m.mmu, Host()) == row.fits);
    }
    MakeState(m.state, long_mode);
    HostTraits host = Host();
    host.code32 = false;
    CHECK(!CanRunDirectly(*m.state, *m.mmu, host));
  }
  // What FNSTENV shows there must be the guest's.
  MakeState(m.state, true);
  m.state->segment[vcpu::kCs].selector = 0x0f;
  CHECK(!CanRunDirectly(*m.state, *m.mmu, Host()));
  // Without paging, pages are not the guest's choice.
  MakeState(m.state, false);
  m.state->cr0 &= ~vcpu::kCr0Pg;
  CHECK(!CanRunDirectly(*m.state, *m.mmu, Host()));
}

struct StateRig : Rig {
  explicit StateRig(bool long_mode) {
    MakeState(m.state, long_mode);
    VcpuState& s = *m.state;
    for (unsigned i = 0; i < 16; ++i) s.gpr[i] = u64{0x1111111100000000} * i + i;
    s.rip = kCode;
    s.segment[vcpu::kGs].base = kData + 8;
    // An XSAVE image of the initial state.
    const u16 fcw = 0x37f;
    std::memcpy(s.xsave_area, &fcw, 2);
    const u32 mxcsr = 0x1f80;
    std::memcpy(s.xsave_area + 24, &mxcsr, 4);
  }
  Satellite::Stop RunState(std::vector<u8> code) {
    std::memcpy(memory, code.data(), code.size());
    LoadUserState(*m.state, satellite.get());
    const Satellite::Stop stop = satellite->Go(true);
    SaveUserState(*satellite, m.state, m.mmu.get());
    return stop;
  }
  mmu::TestMachine m;
};

TEST_CASE("The state of 32-bit code passes, and comes back", "[user_state]") {
  for (const bool long_mode : {false, true}) {
    CAPTURE(long_mode);
    StateRig rig(long_mode);
    VcpuState& s = *rig.m.state;
    const Segment before[] = {s.segment[vcpu::kCs], s.segment[vcpu::kSs], s.segment[vcpu::kGs]};
    rig.memory[kPageSize + 12] = 0x5a;
    // mov al, gs:[4]; xor ecx, ecx; std; int3
    REQUIRE(rig.Stopped(rig.RunState({0x65, 0xa0, 4, 0, 0, 0, 0x31, 0xc9, 0xfd, 0xcc}), SIGTRAP));
    CHECK((s.gpr[vcpu::kRax] & 0xffffffff) == 0x5a);
    CHECK(static_cast<u32>(s.gpr[vcpu::kRcx]) == 0);
    CHECK(s.rip == kCode + 10);
    CHECK(s.df_flag == 1);
    CHECK(s.if_flag == 1);
    // Descriptors and selectors are the guest's.
    const Segment* const after[] = {&s.segment[vcpu::kCs], &s.segment[vcpu::kSs],
                                    &s.segment[vcpu::kGs]};
    for (unsigned i = 0; i < 3; ++i) {
      CHECK(after[i]->selector == before[i].selector);
      CHECK(after[i]->attributes == before[i].attributes);
      CHECK(after[i]->base == before[i].base);
    }
    for (unsigned i = 8; i < 16; ++i) CHECK(s.gpr[i] == u64{0x1111111100000000} * i + i);
    // Without long mode nothing has an upper half.
    for (unsigned i = 0; i < 8 && !long_mode; ++i) CHECK(s.gpr[i] <= ~u32{0});
  }
}

TEST_CASE("A guest of 32 bits gets no other state, whatever its code makes of the satellite",
          "[user_state]") {
  StateRig rig(false);
  VcpuState& s = *rig.m.state;
  // To code of 64 bits: mov rax, -1; mov r9, rax; int3.
  REQUIRE(rig.Stopped(rig.RunState({0xea, 7, 0, 0x40, 0, 0x33, 0, 0x48, 0xc7, 0xc0, 0xff, 0xff,
                                    0xff, 0xff, 0x49, 0x89, 0xc1, 0xcc}),
                      SIGTRAP));
  REQUIRE(rig.frame().cs == 0x33);
  CHECK(CodeBitsOf(rig.frame()) == 64);
  CHECK(s.CodeBits() == 32);
  CHECK(s.segment[vcpu::kCs].selector == 0x73);
  CHECK(s.gpr[vcpu::kRax] == ~u32{0});
  CHECK(s.gpr[vcpu::kR9] == u64{0x1111111100000000} * 9 + 9);
  // A frame of its own.
  rig.frame().gpr[kFrameRip] = 0x123456789abc;
  rig.frame().gpr[kFrameRsp] = ~u64{0};
  rig.frame().ss = 0x33;
  rig.frame().eflags = ~u64{0};
  SaveUserState(*rig.satellite, &s, rig.m.mmu.get());
  CHECK(s.rip == 0x56789abc);
  CHECK(s.gpr[vcpu::kRsp] == ~u32{0});
  CHECK(s.segment[vcpu::kSs].selector == 0x7b);
  CHECK((s.Rflags() & (vcpu::kIopl | vcpu::kVm | vcpu::kVif | vcpu::kVip)) == 0);
}

}  // namespace
}  // namespace alibi::direct
