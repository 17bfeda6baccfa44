// SPDX-License-Identifier: Apache-2.0
// What is found wrong with an access, in which order, and what that leads to.
#include "runtime/accesses.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "vcpu/control_registers.h"
#include "vcpu/cpu_differences.h"

namespace alibi::runtime {
namespace {

using adapt::Event;
using mmu::Resolution;
using translator::AccessShape;
using translator::SiteKind;
using vcpu::GuestFault;
using Way = Verdict::Way;

constexpr u64 kAddress = 0x5000, kNowhere = u64{1} << 47;
constexpr unsigned kSize = 8;
constexpr u8 kNone = 0xff;  // no fault

// A store of 8 bytes by [rax], which demands no alignment; in 64-bit code.
struct Bench {
  explicit Bench(Found found) : found_(found) {
    ccf.instr_count = 1;
    ccf.side = side;
    site.ccf = &ccf;
    site.size = kSize;
    site.span_minus_1 = kSize - 1;
    instr.mem.present = instr.mem.written = true;
    instr.mem.size = kSize;
    instr.mem.base = vcpu::kRax;
  }
  Access Made() {
    Access access{found_, site, instr, LinearAddr(linear), site.size};
    access.host_protection = host_protection;
    access.in_table = in_table;
    access.any_element = any_element;
    return access;
  }
  Verdict Classify() { return Accesses(*state).Classify(Made()); }
  Verdict Classify(Resolution answer) {
    const GuestFault fault = GuestFault::Page(LinearAddr(linear), 0);
    return Accesses(*state).Classify(Made(), answer, fault);
  }

  // --- What rows change ---
  void Address(u64 address) { linear = state->gpr[vcpu::kRax] = address; }
  void Legacy() { instr.code_bits = ccf.mode.code_bits = 32; }
  void Mask() { instr.mem.masked_element = 4; }
  void Demand16() {
    instr.mem.alignment = 16;
    Address(kAddress + 8);
  }
  void CheckAlignment() {
    ccf.mode.careful = true;
    state->cpl = 3;
    state->cr0 |= vcpu::kCr0Am;
    state->system_flags |= static_cast<u32>(vcpu::kAc);
    instr.mem.checked_alignment = 8;
    Address(kAddress + 4);
  }
  void CallNowhere() {
    instr.op = isa::Op::kCallIndirect;
    site.shape = AccessShape::kPush;
    state->scratch.target = kNowhere;
  }
  void Plan(SiteKind kind) {
    const translator::SitePlan plan{.kind = kind};
    std::memcpy(side + sizeof(translator::CodeMapEntry), &plan, sizeof(plan));
  }

  std::unique_ptr<vcpu::VcpuState> state = std::make_unique<vcpu::VcpuState>();
  translator::Ccf ccf;
  translator::SiteDesc site;
  isa::Instr instr;
  u64 linear = kAddress;
  bool host_protection = false, in_table = false, any_element = false;

 private:
  const Found found_;
  alignas(8) u8 side[64] = {};
};

struct Row {
  const char* what;
  Found found;
  std::function<void(Bench&)> prepare;
  Way way;
  u8 vector = kNone;
  bool charged = false;
};

const Row kBeforeMemory[] = {
    // --- It has trapped ---
    {"an ordinary page fault", Found::kTrap, [](Bench&) {}, Way::kResume},
    {"an operand that wraps at 4 GB", Found::kTrap,
     [](Bench& b) {
       b.Legacy();
       b.Address(0xffffffff);
       b.instr.mem.disp = 1;
     },
     Way::kSimulate},
    {"... in code that is not flat", Found::kTrap,
     [](Bench& b) {
       b.Legacy();
       b.ccf.mode.flat = false;
       b.Address(0xffffffff);
       b.instr.mem.disp = 1;
     },
     Way::kResume},
    {"... that is bounced: it does not lie there", Found::kTrap,
     [](Bench& b) {
       b.Legacy();
       b.Plan(SiteKind::kSimulate);
       b.Address(0xffffffff);
       b.instr.mem.disp = 1;
     },
     Way::kResume},
    {"a push below address 0", Found::kTrap,
     [](Bench& b) {
       b.Legacy();
       b.site.shape = AccessShape::kPush;
     },
     Way::kSimulate},
    {"the push of a call to what is no address", Found::kTrap, [](Bench& b) { b.CallNowhere(); },
     Way::kDeliver, vcpu::kGeneralProtection},
    {"... is looked at before the stack is", Found::kTrap,
     [](Bench& b) {
       b.CallNowhere();
       b.Address(kNowhere);
     },
     Way::kDeliver, vcpu::kGeneralProtection},
    {"alignment that the instruction demands", Found::kTrap, [](Bench& b) { b.Demand16(); },
     Way::kDeliver, vcpu::kGeneralProtection},
    {"... also off the stack segment, where the address is none", Found::kTrap,
     [](Bench& b) {
       b.Demand16();
       b.Address(kNowhere + 8);
       b.instr.mem.stack_segment = true;
     },
     Way::kDeliver, vcpu::kGeneralProtection},
    {"... of a masked operand of which nothing is accessed", Found::kTrap,
     [](Bench& b) {
       b.Demand16();
       b.Mask();
     },
     Way::kResume},
    {"... of one of which something is", Found::kTrap,
     [](Bench& b) {
       b.Demand16();
       b.Mask();
       b.any_element = true;
     },
     Way::kDeliver, vcpu::kGeneralProtection},
    {"no canonical address", Found::kTrap, [](Bench& b) { b.Address(kNowhere); }, Way::kDeliver,
     vcpu::kGeneralProtection, true},
    {"... that the operand ends at", Found::kTrap,
     [](Bench& b) { b.Address(kNowhere - kSize + 1); }, Way::kDeliver, vcpu::kGeneralProtection,
     true},
    {"... that it just does not reach", Found::kTrap, [](Bench& b) { b.Address(kNowhere - kSize); },
     Way::kResume},
    {"... by rsp", Found::kTrap,
     [](Bench& b) {
       b.Address(kNowhere);
       b.instr.mem.stack_segment = true;
     },
     Way::kDeliver, vcpu::kStackFault, true},
    {"... of a push", Found::kTrap,
     [](Bench& b) {
       b.Address(kNowhere);
       b.site.shape = AccessShape::kPush;
     },
     Way::kDeliver, vcpu::kStackFault, true},
    {"... of a masked operand, before any access", Found::kTrap,
     [](Bench& b) {
       b.Address(kNowhere);
       b.Mask();
       b.in_table = true;
     },
     Way::kSimulate},
    {"the host's #GP at a canonical address", Found::kTrap,
     [](Bench& b) { b.host_protection = true; }, Way::kDeliver, vcpu::kGeneralProtection},
    // --- Its look-up has missed ---
    {"an ordinary miss", Found::kMiss, [](Bench&) {}, Way::kResume},
    {"a sum beyond 4 GB", Found::kMiss,
     [](Bench& b) {
       b.Legacy();
       b.Address(u64{1} << 32);
     },
     Way::kSimulate},
    {"alignment", Found::kMiss, [](Bench& b) { b.Demand16(); }, Way::kDeliver,
     vcpu::kGeneralProtection},
    {"... of an access that shares its look-up with others", Found::kMiss,
     [](Bench& b) {
       b.Demand16();
       b.site.span_minus_1 = 63;
     },
     Way::kResume},
    {"no canonical address: the access itself will trap", Found::kMiss,
     [](Bench& b) { b.Address(kNowhere); }, Way::kResume},
    // --- The runtime makes it, or a copy ---
    {"an ordinary store", Found::kStore, [](Bench&) {}, Way::kResume},
    {"no canonical address", Found::kStore, [](Bench& b) { b.Address(kNowhere); }, Way::kDeliver,
     vcpu::kGeneralProtection},
    {"#AC", Found::kStore, [](Bench& b) { b.CheckAlignment(); }, Way::kDeliver,
     vcpu::kAlignmentCheck},
    {"... of the kernel", Found::kStore,
     [](Bench& b) {
       b.CheckAlignment();
       b.state->cpl = 0;
     },
     Way::kResume},
    {"#AC of a bounced operand", Found::kBounce, [](Bench& b) { b.CheckAlignment(); },
     Way::kDeliver, vcpu::kAlignmentCheck},
    {"alignment of a bounced operand", Found::kBounce, [](Bench& b) { b.Demand16(); },
     Way::kDeliver, vcpu::kGeneralProtection},
    {"a masked operand is looked at by elements", Found::kBounce,
     [](Bench& b) {
       b.Mask();
       b.CheckAlignment();
       b.Address(kNowhere);
     },
     Way::kResume},
    {"... but for its alignment", Found::kBounce,
     [](Bench& b) {
       b.Mask();
       b.Demand16();
       b.any_element = true;
     },
     Way::kDeliver, vcpu::kGeneralProtection},
};

TEST_CASE("What is wrong with an access before memory is asked") {
  for (const Row& row : kBeforeMemory) {
    INFO(row.what << ", found as " << static_cast<unsigned>(row.found));
    Bench bench(row.found);
    row.prepare(bench);
    const Verdict verdict = bench.Classify();
    CHECK(verdict.way == row.way);
    CHECK(verdict.charged == row.charged);
    if (row.charged) CHECK(verdict.event == Event::kTruePageFault);
    CHECK((row.vector != kNone) == (verdict.way == Way::kDeliver));
    if (verdict.way == Way::kDeliver) {
      CHECK(verdict.fault == GuestFault::WithCode(static_cast<vcpu::Vector>(row.vector), 0));
    }
  }
}

TEST_CASE("Only broken alignment comes before what an instruction does before its store") {
  Bench aligned(Found::kBounce);
  aligned.Demand16();
  CHECK(aligned.Classify().at_once);
  Bench checked(Found::kBounce);
  checked.CheckAlignment();
  CHECK_FALSE(checked.Classify().at_once);
  Bench nowhere(Found::kBounce);
  nowhere.Address(kNowhere);
  CHECK_FALSE(nowhere.Classify().at_once);
}

TEST_CASE("An operand that is misaligned and ends behind the last address: #AC on Intel's CPUs") {
  Bench bench(Found::kStore);
  bench.CheckAlignment();
  bench.Address(kNowhere - 4);
  const bool intel = vcpu::HostHasIntelsWay(vcpu::HostDifference::kEndOfCanonical);
  CHECK(bench.Classify().fault.vector ==
        (intel ? vcpu::kAlignmentCheck : vcpu::kGeneralProtection));
}

struct Answered {
  const char* what;
  Found found;
  std::function<void(Bench&)> prepare;
  Resolution answer;
  Way way;
  bool charged = false;
  Event event = Event::kTruePageFault;
};

const Answered kAfterMemory[] = {
    {"a hidden fault", Found::kTrap, [](Bench&) {}, Resolution::kFilled, Way::kRetry},
    {"the guest's own", Found::kTrap, [](Bench&) {}, Resolution::kGuestFault, Way::kDeliver, true},
    {"... of a masked operand, before any access", Found::kTrap,
     [](Bench& b) {
       b.Mask();
       b.in_table = true;
     },
     Resolution::kGuestFault, Way::kSimulate},
    {"... of one that was accessed", Found::kTrap, [](Bench& b) { b.Mask(); },
     Resolution::kGuestFault, Way::kDeliver, true},
    {"a trace", Found::kTrap, [](Bench&) {}, Resolution::kSimulate, Way::kSimulate, true,
     Event::kTraceFault},
    {"a page that was not there yet", Found::kMiss, [](Bench&) {}, Resolution::kFilled,
     Way::kResume},
    {"... for one of a group, whose displacement may be stale now", Found::kMiss,
     [](Bench& b) { b.site.in_group = true; }, Resolution::kFilled, Way::kRetry},
    {"the guest's fault: the access will trap, and pay", Found::kMiss, [](Bench&) {},
     Resolution::kGuestFault, Way::kResume},
    {"... of a CHECKED site", Found::kMiss, [](Bench& b) { b.site.checked = true; },
     Resolution::kGuestFault, Way::kDeliver, true},
    {"... whose mask may leave it out", Found::kMiss,
     [](Bench& b) {
       b.site.checked = true;
       b.Mask();
     },
     Resolution::kGuestFault, Way::kSimulate, true, Event::kTraceFault},
    {"a trace: the access will trap, and pay", Found::kMiss, [](Bench&) {}, Resolution::kSimulate,
     Way::kResume},
    {"... of a CHECKED site", Found::kMiss, [](Bench& b) { b.site.checked = true; },
     Resolution::kSimulate, Way::kSimulate, true, Event::kTraceFault},
    {"a store that the guest may not make", Found::kStore, [](Bench&) {}, Resolution::kGuestFault,
     Way::kDeliver, true},
};

TEST_CASE("What memory's answer leads to") {
  for (const Answered& row : kAfterMemory) {
    INFO(row.what << ", found as " << static_cast<unsigned>(row.found));
    Bench bench(row.found);
    row.prepare(bench);
    const Verdict verdict = bench.Classify(row.answer);
    CHECK(verdict.way == row.way);
    CHECK(verdict.charged == row.charged);
    if (row.charged) CHECK(verdict.event == row.event);
    if (verdict.way == Way::kDeliver) CHECK(verdict.fault.vector == vcpu::kPageFault);
  }
  Bench nowhere(Found::kMiss);
  nowhere.CallNowhere();
  nowhere.site.checked = true;
  CHECK(nowhere.Classify(Resolution::kGuestFault).fault.vector == vcpu::kGeneralProtection);
}

TEST_CASE("Where an access lies, by its shape") {
  Bench bench(Found::kTrap);
  vcpu::VcpuState& state = *bench.state;
  const Accesses accesses(state);
  state.gpr[vcpu::kRax] = 0x1000;
  state.gpr[vcpu::kRcx] = 0x20;
  state.gpr[vcpu::kRsp] = 0x8000;
  state.gpr[vcpu::kRbp] = 0x9000;
  isa::MemOperand& mem = bench.instr.mem;
  mem.index = vcpu::kRcx;
  mem.scale = 4;
  mem.disp = -8;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x1000 + 0x80 - 8));
  mem.segment = vcpu::kGs;
  state.segment[vcpu::kGs].base = 0x100000000;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x100001078));
  mem.address_bits = 16;
  state.gpr[vcpu::kRax] = 0xfff8;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x100000070));
  bench.site.shape = AccessShape::kPush;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x8000 - kSize));
  CHECK(Accesses::Writes(bench.site, bench.instr));
  bench.site.shape = AccessShape::kPop;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x8000));
  CHECK_FALSE(Accesses::Writes(bench.site, bench.instr));
  bench.site.shape = AccessShape::kFrame;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x9000));

  // A 16-bit stack wraps in its segment.
  bench.Legacy();
  bench.ccf.mode.wide_stack = false;
  state.segment[vcpu::kSs].base = 0x20000;
  state.gpr[vcpu::kRsp] = 4;
  bench.site.shape = AccessShape::kPush;
  CHECK(accesses.AddressOf(bench.site, bench.instr) == LinearAddr(0x20000 + 0xfffc));
}

}  // namespace
}  // namespace alibi::runtime
