// SPDX-License-Identifier: Apache-2.0
// What goes into KVM's structures comes out again. No test here needs /dev/kvm.
#include "hardware/kvm_state.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>

#include "hardware/kvm_cpuid.h"
#include "vcpu/control_registers.h"
#include "vcpu/reset.h"

namespace alibi::hardware {
namespace {

using vcpu::VcpuState;

constexpr u64 kLongMode = vcpu::kEferLme | vcpu::kEferLma;

std::unique_ptr<VcpuState> PowerUp() {
  auto state = std::make_unique<VcpuState>();
  std::memset(static_cast<void*>(state.get()), 0, sizeof(VcpuState));
  vcpu::ResetToPowerUp(*state, vcpu::CpuidPolicy::ForHost());
  return state;
}

// A state in which every field that goes to KVM has a value of its own.
std::unique_ptr<VcpuState> Busy() {
  auto state = PowerUp();
  std::mt19937_64 random(13);
  for (u64& value : state->gpr) value = random();
  state->rip = 0xffffffff81001234;
  state->SetRflags(0x247 | vcpu::kAc | vcpu::kDf);
  for (vcpu::Segment& segment : state->segment) {
    segment = {.base = random(),
               .limit = static_cast<u32>(random()),
               .selector = static_cast<u16>(random()),
               .attributes = 0xc0f3};
  }
  state->segment[vcpu::kCs].attributes = 0xa0fb;
  state->segment[vcpu::kTr].attributes = 0x8b;
  state->cpl = 3;
  state->gdtr = {.base = random(), .limit = 0x7f};
  state->idtr = {.base = random(), .limit = 0xfff};
  state->cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | vcpu::kCr0Et | vcpu::kCr0Wp;
  state->cr2 = random();
  state->cr3 = 0x12345000;
  state->cr4 = vcpu::kCr4Pae | vcpu::kCr4Osfxsr;
  state->cr8 = 7;
  state->efer = kLongMode | vcpu::kEferSce;
  state->xcr0 = 7;
  for (unsigned i = 0; i < 4; ++i) state->dr[i] = random();
  state->dr[6] = vcpu::kDr6Fixed | vcpu::kDr6Bs;
  state->dr[7] = vcpu::kDr7Fixed | 0x3;
  for (u8& byte : state->xsave_area) byte = static_cast<u8>(random());
  state->interrupt_shadow = 1;
  state->nmi_blocked = 1;
  state->nmi_pending = 1;
  return state;
}

// By way of KVM's structures.
std::unique_ptr<VcpuState> Travelled(const VcpuState& from) {
  auto to = PowerUp();
  TakeRegisters(RegistersOf(from), to.get());
  TakeSpecialRegisters(SpecialRegistersOf(from), to.get());
  TakeDebugRegisters(DebugRegistersOf(from), to.get());
  TakeExtendedControl(ExtendedControlOf(from), to.get());
  TakeXsave(XsaveOf(from), to.get());
  TakeEvents(EventsOf(from), to.get());
  return to;
}

void CheckSame(const VcpuState& a, const VcpuState& b) {
  for (unsigned i = 0; i < 16; ++i) {
    INFO("gpr " << i);
    CHECK(a.gpr[i] == b.gpr[i]);
  }
  CHECK(a.rip == b.rip);
  CHECK(a.Rflags() == b.Rflags());
  CHECK(a.cpl == b.cpl);
  for (unsigned i = 0; i < vcpu::kSegmentCount; ++i) {
    INFO("segment " << i);
    CHECK(a.segment[i].base == b.segment[i].base);
    CHECK(a.segment[i].limit == b.segment[i].limit);
    CHECK(a.segment[i].selector == b.segment[i].selector);
    CHECK(a.segment[i].attributes == b.segment[i].attributes);
  }
  CHECK(a.gdtr.base == b.gdtr.base);
  CHECK(a.gdtr.limit == b.gdtr.limit);
  CHECK(a.idtr.base == b.idtr.base);
  CHECK(a.idtr.limit == b.idtr.limit);
  CHECK(a.cr0 == b.cr0);
  CHECK(a.cr2 == b.cr2);
  CHECK(a.cr3 == b.cr3);
  CHECK(a.cr4 == b.cr4);
  CHECK(a.cr8 == b.cr8);
  CHECK(a.efer == b.efer);
  CHECK(a.xcr0 == b.xcr0);
  for (unsigned i : {0, 1, 2, 3, 6, 7}) CHECK(a.dr[i] == b.dr[i]);
  CHECK(std::memcmp(a.xsave_area, b.xsave_area, sizeof(a.xsave_area)) == 0);
  CHECK(a.interrupt_shadow == b.interrupt_shadow);
  CHECK(a.nmi_blocked == b.nmi_blocked);
  CHECK(a.nmi_pending == b.nmi_pending);
}

}  // namespace

TEST_CASE("The power-up state and a busy one come back as they went") {
  for (const auto& state : {PowerUp(), Busy()}) CheckSame(*state, *Travelled(*state));
}

TEST_CASE("CPL is SS's DPL in KVM, even of an SS that cannot be used") {
  auto state = Busy();
  for (u8 cpl = 0; cpl < 4; ++cpl) {
    state->cpl = cpl;
    state->segment[vcpu::kSs] = {};
    CHECK(SpecialRegistersOf(*state).ss.dpl == cpl);
    CHECK(SpecialRegistersOf(*state).ss.unusable == 1);
    CHECK(Travelled(*state)->cpl == cpl);
  }
}

TEST_CASE("Modes that have no DPL: real mode is CPL 0, virtual-8086 mode CPL 3") {
  auto state = PowerUp();
  state->segment[vcpu::kSs].attributes = 0xf3;
  CHECK(Travelled(*state)->cpl == 0);
  state->cr0 |= vcpu::kCr0Pe;
  state->SetRflags(vcpu::kVm);
  state->cpl = 3;
  CHECK(Travelled(*state)->cpl == 3);
}

TEST_CASE("A base without a segment is kept: FS and GS of 64-bit code") {
  auto state = Busy();
  state->segment[vcpu::kGs] = {.base = 0xffff888000000000};
  CHECK(SpecialRegistersOf(*state).gs.unusable == 1);
  CHECK(Travelled(*state)->segment[vcpu::kGs].base == 0xffff888000000000);
}

TEST_CASE("KVM takes a 64-bit code segment in long mode alone") {
  auto state = Busy();
  CHECK(SpecialRegistersOf(*state).cs.l == 1);
  state->efer = 0;
  CHECK(SpecialRegistersOf(*state).cs.l == 0);
}

TEST_CASE("Shadows: of STI with interrupts on, else of MOV SS") {
  auto state = PowerUp();
  CHECK(EventsOf(*state).interrupt.shadow == 0);
  state->interrupt_shadow = 1;
  CHECK(EventsOf(*state).interrupt.shadow == KVM_X86_SHADOW_INT_MOV_SS);
  state->if_flag = 1;
  CHECK(EventsOf(*state).interrupt.shadow == KVM_X86_SHADOW_INT_STI);
}

TEST_CASE("An NMI that can be taken is the run loop's; one that waits for IRET is KVM's") {
  auto state = PowerUp();
  state->nmi_pending = 1;
  CHECK(EventsOf(*state).nmi.pending == 0);
  kvm_vcpu_events events = EventsOf(*state);
  TakeEvents(events, state.get());
  CHECK(state->nmi_pending == 1);
  state->nmi_blocked = 1;
  CHECK(EventsOf(*state).nmi.pending == 1);
  CHECK(EventsOf(*state).nmi.masked == 1);
  // KVM has it now, and has taken it, as the IRET came.
  state->nmi_pending = 0;
  events = {};
  events.nmi.masked = 1;
  TakeEvents(events, state.get());
  CHECK(state->nmi_pending == 0);
  CHECK(state->nmi_blocked == 1);
  // KVM was about to deliver it: it is taken again from here.
  events.nmi.injected = 1;
  TakeEvents(events, state.get());
  CHECK(state->nmi_pending == 1);
  CHECK(state->nmi_blocked == 0);
  // One that came while the guest ran, which KVM was not told of.
  state->nmi_blocked = 1;
  events = {};
  events.nmi.masked = 1;
  TakeEvents(events, state.get());
  CHECK(state->nmi_pending == 1);
}

TEST_CASE("CPUID: nothing is shown that KVM does not support, and its bits are reserved") {
  constexpr u32 kSse3 = 1u << 0, kXsave = 1u << 26, kX2apic = 1u << 21, kSmep = 1u << 7;
  kvm_cpuid_entry2 leaf1 = {}, leaf7 = {}, ext = {};
  leaf1.function = 1;
  leaf1.ecx = 0;
  leaf1.edx = ~0u;
  leaf7.function = 7;
  leaf7.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
  leaf7.ebx = kSmep;
  ext.function = 0x80000001;
  ext.ecx = ext.edx = ~0u;
  vcpu::CpuidPolicy policy = vcpu::CpuidPolicy::ForHost();
  LimitCpuid({leaf1, leaf7, ext}, &policy);
  const auto state = PowerUp();
  CHECK((policy.Query(*state, 1, 0).ecx & (kSse3 | kXsave)) == 0);
  CHECK((policy.Query(*state, 1, 0).ecx & kX2apic) != 0);  // the local APIC is ours
  CHECK(policy.xcr0_valid() == 0);
  CHECK((policy.cr4_valid() & vcpu::kCr4Smep) != 0);
  CHECK((policy.cr4_valid() & (vcpu::kCr4Smap | vcpu::kCr4Osxsave | vcpu::kCr4Fsgsbase)) == 0);
  CHECK((policy.efer_valid() & vcpu::kEferLme) != 0);
  // KVM gets what is left, leaf by leaf.
  for (const kvm_cpuid_entry2& entry : CpuidEntriesOf(policy)) {
    INFO("leaf " << entry.function << " " << entry.index);
    if (entry.function == 7 && entry.index == 0) CHECK(entry.ebx == kSmep);
    CHECK((entry.flags == 0 || entry.flags == KVM_CPUID_FLAG_SIGNIFCANT_INDEX));
  }
}

}  // namespace alibi::hardware
