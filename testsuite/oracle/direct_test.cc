// SPDX-License-Identifier: Apache-2.0
// The kind `direct`: sequences really run in a satellite, unless they must not; and what the oracle
// found there.
#include <catch2/catch.hpp>
#include <functional>

#include "direct/direct_execution.h"
#include "testsuite/host_cpu.h"
#include "testsuite/oracle/compare.h"
#include "testsuite/oracle/harness.h"
#include "testsuite/oracle/segments.h"

namespace alibi::oracle {
namespace {

using Code = std::vector<std::vector<u8>>;

struct Case {
  const char* name;
  Way way;
  Code code;
  std::function<void(CpuState&)> prepare;
};

TestCase Make(const Case& c) {
  TestCase test;
  test.name = c.name;
  test.code = c.code;
  CpuState& state = test.initial;
  state.rip = kCodeBase + 0x100;
  state.rflags = 0x202;
  state.fs_base = kDataBase + 0x40;
  state.gs_base = kHighBase + 0x80;
  for (unsigned i = 0; i < 16; ++i) state.gpr[i] = 0x1111111111111111 * static_cast<u64>(i);
  state.gpr[vcpu::kRsp] = kStackBase + 2 * kPageSize - 0x100;
  state.gpr[vcpu::kRsi] = kDataBase + 0x100;
  state.gpr[vcpu::kRdi] = kHighBase + 0x200;
  if (c.prepare) c.prepare(state);
  return test;
}

// This host can do it, and machines of the kind work.
bool Works() {
  return testsuite::CanCheck(GuestMachine(Kind::kDirect).works(), "direct execution",
                             "prctl(PR_SET_TSC), seccomp(2)");
}

// Runs on a machine that has mapped nothing yet, and on the same again.
void Check(const Case& c) {
  INFO(c.name);
  const TestCase test = Make(c);
  NativeRunner runner;
  const auto native = std::make_unique<Outcome>(runner.Run(test));
  GuestMachine machine(Kind::kDirect);
  auto guest = std::make_unique<Outcome>();
  for (unsigned run = 0; run < 2; ++run) {
    machine.Run(test, {.cold = false, .new_code = run == 0}, guest.get());
    std::string found;
    for (const std::string& line : Differences(test, Kind::kDirect, *native, *guest, run)) {
      found += line + "\n";
    }
    CHECK(found == "");
    CHECK(guest->way == c.way);
  }
}

const Case kWays[] = {
    {"ADD", Way::kDirect, {{0x48, 0x01, 0xd8}}, {}},
    {"a load and a store to two pages", Way::kDirect, {{0x48, 0x8b, 0x06}, {0x48, 0x89, 0x07}}, {}},
    {"LSL, which shows the host", Way::kTranslated, {{0x0f, 0x03, 0xc3}}, {}},
    {"a page with RDPID behind the end of the sequence",
     Way::kTranslated,
     {{0x90}, {0xcc}, {0xf3, 0x0f, 0xc7, 0xf8}},
     {}},
    {"RFLAGS.AC at the start",
     Way::kTranslated,
     {{0x90}},
     [](CpuState& s) { s.rflags |= vcpu::kAc; }},
    {"RFLAGS.AC by POPF, and what it traps on",
     Way::kDirect,
     {{0x68, 0x02, 0x02, 0x04, 0x00}, {0x9d}, {0x48, 0x8b, 0x46, 0x01}},
     {}},
};

TEST_CASE("Sequences run directly, unless they must not", "[oracle]") {
  if (!Works()) return;
  for (const Case& c : kWays) Check(c);
}

// GS with a base of its own, and all of the 4 GB behind it.
u16 SelectorWithBase() {
  for (unsigned i = 0; i < LocalDescriptors().size(); ++i) {
    const vcpu::Segment segment = SegmentOf(LocalSelector(i));
    if (segment.base == 0xf0000000 && LoadsAsStack(LocalSelector(i))) return LocalSelector(i);
  }
  return 0;
}

void Narrow(CpuState& s) {
  s.selector = {kUserDs, kUserCs32, kUserDs, kUserDs, 0, 0};
  s.fs_base = s.gs_base = 0;
  for (u64& gpr : s.gpr) gpr &= 0xffffffff;
  for (unsigned i = 8; i < 16; ++i) s.gpr[i] = 0;
  s.gpr[vcpu::kRdi] = kDataBase + kPageSize + 0x200;
}

const Case kNarrow[] = {
    {"ADD", Way::kDirect, {{0x01, 0xd8}}, Narrow},
    {"a load and a store to two pages", Way::kDirect, {{0x8b, 0x06}, {0x89, 0x07}}, Narrow},
    {"INC, which is REX in 64-bit code", Way::kDirect, {{0x40}, {0x49}}, Narrow},
    {"a stack operation of 16 bits, and an address of 16 bits",
     Way::kDirect,
     {{0x66, 0x50}, {0x67, 0x8d, 0x47, 0x10}, {0x66, 0x5b}},
     Narrow},
    {"a store to a page that only reads",
     Way::kDirect,
     {{0x89, 0x05, 0x10, 0x20, 0x00, 0x20}},
     Narrow},
    {"PUSHA that meets an absent page",
     Way::kDirect,
     {{0x60}},
     [](CpuState& s) {
       Narrow(s);
       s.gpr[vcpu::kRsp] = kStackBase + kPageSize + 8;
     }},
    {"INTO", Way::kDirect, {{0xb0, 0x7f}, {0x04, 0x01}, {0xce}, {0x40}}, Narrow},
    {"BOUND that fails",
     Way::kDirect,
     {{0x31, 0xc0}, {0x62, 0x06}},
     [](CpuState& s) {
       Narrow(s);
       s.gpr[vcpu::kRsi] = kDataBase + 8;
     }},
    {"INT3 at the start of a page, with none before it",
     Way::kDirect,
     {},
     [](CpuState& s) {
       Narrow(s);
       s.rip = kCodeBase;
     }},
    {"INT 4", Way::kDirect, {{0x90}, {0xcd, 0x04}}, Narrow},
    {"IN", Way::kDirect, {{0xec}}, Narrow},
    {"an access by FS, which is null", Way::kDirect, {{0x64, 0x8b, 0x06}}, Narrow},
    {"RFLAGS.AC by POPF, and what it traps on",
     Way::kDirect,
     {{0x68, 0x02, 0x02, 0x04, 0x00}, {0x9d}, {0x8b, 0x46, 0x01}},
     Narrow},
    {"x87", Way::kDirect, {{0xd9, 0xe8}, {0xd9, 0xeb}, {0xde, 0xc1}, {0xd9, 0x1f}}, Narrow},
    {"XMM and YMM registers",
     Way::kDirect,
     {{0xc5, 0xfd, 0xfe, 0xc8}, {0x66, 0x0f, 0xef, 0xd2}},
     Narrow},
    {"PUSH DS", Way::kTranslated, {{0x90}, {0x1e}}, Narrow},
    {"MOV EAX, CS", Way::kTranslated, {{0x8c, 0xc8}}, Narrow},
    {"a load of ES", Way::kTranslated, {{0x06}, {0x07}}, Narrow},
    {"LAR", Way::kTranslated, {{0x0f, 0x02, 0xc3}}, Narrow},
    {"to 64-bit code and back",
     Way::kTranslated,
     {{0xea, 0x07, 0x01, 0x00, 0x10, 0x33, 0x00},  // jmp 33h:10000107h
      {0x49, 0xff, 0xc0},                          // inc r8
      {0x6a, 0x23},                                // push 23h
      {0x68, 0x13, 0x01, 0x00, 0x10},              // push 10000113h
      {0x48, 0xcb},                                // retf
      {0x40}},                                     // inc eax
     Narrow},
};

TEST_CASE("Code of 32 bits runs directly, unless it must not", "[oracle]") {
  if (!Works()) return;
  for (const Case& c : kNarrow) Check(c);
}

TEST_CASE("GS of 32-bit code has a base of its own", "[oracle]") {
  if (!Works() || !testsuite::CanCheck(HostAllowsSegments(), "GS with a base", "modify_ldt(2)")) {
    return;
  }
  const auto with_base = [](CpuState& s) {
    Narrow(s);
    s.selector[vcpu::kGs] = SelectorWithBase();
    REQUIRE(s.selector[vcpu::kGs] != 0);
    s.gpr[vcpu::kRsi] = static_cast<u32>(kDataBase + 0x100 - 0xf0000000);
  };
  Check({"a load and a store that wrap around at 4 GB",
         Way::kDirect,
         {{0x65, 0x8b, 0x06}, {0x65, 0x89, 0x46, 0x10}, {0x8b, 0x0f}},
         with_base});
}

// Each address of one size lies in the page of the other one's last judgement.
TEST_CASE("Programs of both sizes take turns", "[oracle]") {
  if (!Works()) return;
  NativeRunner runner;
  GuestMachine machine(Kind::kDirect);
  auto guest = std::make_unique<Outcome>();
  // INC EBX; DEC EAX; INC ECX in 32-bit code; in 64-bit code REX.W INC ECX, less one byte.
  const Code code = {{0x43}, {0x48}, {0xff, 0xc1}};
  for (unsigned run = 0; run < 20; ++run) {
    const TestCase test =
        Make({"both", Way::kDirect, code, run % 2 ? Narrow : std::function<void(CpuState&)>()});
    const auto native = std::make_unique<Outcome>(runner.Run(test));
    machine.Run(test, {.cold = false, .new_code = run == 0}, guest.get());
    CHECK(Differences(test, Kind::kDirect, *native, *guest, run).empty());
    CHECK(guest->way == Way::kDirect);
  }
}

const Case kFinds[] = {
    {"Flags in the frame of a fault, of an instruction that writes them",
     Way::kDirect,
     {{0x48, 0x83, 0xe8, 0x01},
      {0x4c, 0x2b, 0x3c, 0x25, 0x00, 0x40, 0x00, 0x20}},  // an absent page
     {}},
    {"RFLAGS.ID by POPF, and then a page that is not mapped yet",
     Way::kDirect,
     {{0x68, 0x02, 0x02, 0x20, 0x00}, {0x9d}, {0x48, 0x8b, 0x06}, {0x48, 0x8b, 0x07}},
     {}},
    {"WRFSBASE, WRGSBASE, and then a page that is not mapped yet",
     Way::kDirect,
     {{0xf3, 0x48, 0x0f, 0xae, 0xd6},
      {0xf3, 0x48, 0x0f, 0xae, 0xdf},
      {0x64, 0x8b, 0x0c, 0x25, 0, 0, 0, 0}},
     {}},
    {"Selectors, and then a page that is not mapped yet",
     Way::kDirect,
     {{0xb8, 0x2b, 0, 0, 0},
      {0x8e, 0xe0},
      {0x31, 0xc0},
      {0x8e, 0xd8},
      {0x48, 0x8b, 0x06},
      {0x48, 0x8b, 0x07}},
     {}},
    {"#MF of an earlier x87 instruction, where the operand would fault, too",
     Way::kDirect,
     {{0x41, 0xdc, 0x93, 0xef, 0x5f, 0x00, 0x20}},  // fcom qword [r11 + 0x20005fef]
     [](CpuState& s) {
       s.gpr[vcpu::kR11] = 14;
       s.vector.fcw = 0x340;
       s.vector.fsw = 0x8081;
     }},
    {"INT3 at the start of a page, with none before it",
     Way::kDirect,
     {},
     [](CpuState& s) { s.rip = kCodeBase; }},
    {"INT1 at the start of a page, with none before it",
     Way::kDirect,
     {{0xf1}},
     [](CpuState& s) { s.rip = kCodeBase; }},
    {"INT1 behind a byte of another one", Way::kDirect, {{0xb0, 0xf1}, {0xf1}}, {}},
    {"INT 4", Way::kDirect, {{0x90}, {0xcd, 0x04}, {0x90}}, {}},
    // The size of code does not change in a satellite, where pages are judged for one.
    {"INTO behind a far return to 32-bit code",
     Way::kTranslated,
     {{0x6a, 0x23},                    // push 23h
      {0x68, 0x09, 0x01, 0x00, 0x10},  // push 10000109h
      {0x48, 0xcb},                    // retf
      {0xb0, 0x7f},                    // mov al, 7fh
      {0x04, 0x01},                    // add al, 1
      {0xce},                          // into
      {0x40}},                         // inc eax
     // Upper halves are undefined after 32-bit code (SDM vol. 1, 3.4.1.1).
     [](CpuState& s) {
       for (u64& gpr : s.gpr) gpr &= 0xffffffff;
     }},
    {"ENTER that copies what it has pushed, and faults in the end",
     Way::kDirect,
     {{0xc8, 0x7a, 0x57, 0x6f}},
     [](CpuState& s) {
       s.gpr[vcpu::kRsp] = kStackBase + kPageSize + 0xc20;
       s.gpr[vcpu::kRbp] = s.gpr[vcpu::kRsp] + 0x6b;
     }},
};

TEST_CASE("What the oracle found in direct execution", "[oracle]") {
  if (!Works()) return;
  for (const Case& c : kFinds) Check(c);
}

void At(CpuState& s, u64 address) { s.gpr[vcpu::kRsi] = address; }
constexpr u64 kAbsentPage = kDataBase + 4 * kPageSize, kReadOnlyPage = kDataBase + 2 * kPageSize;

const Case kPageFaults[] = {
    {"a load from an absent page",
     Way::kDirect,
     {{0x48, 0x8b, 0x06}},
     [](CpuState& s) { At(s, kAbsentPage + 0x123); }},
    {"a store to a page that only reads, behind a load from it",
     Way::kDirect,
     {{0x48, 0x8b, 0x06}, {0x48, 0x89, 0x06}},
     [](CpuState& s) { At(s, kReadOnlyPage + 8); }},
    {"a load, an addition and a store there",
     Way::kDirect,
     {{0x48, 0x01, 0x06}},
     [](CpuState& s) { At(s, kReadOnlyPage + 8); }},
    {"a load that ends in an absent page",
     Way::kDirect,
     {{0x48, 0x8b, 0x06}},
     [](CpuState& s) { At(s, kAbsentPage - 3); }},
    {"a string that comes to an absent page",
     Way::kDirect,
     {{0xb9, 0x00, 0x10, 0x00, 0x00}, {0xf3, 0xac}},  // mov ecx, 1000h; rep lodsb
     [](CpuState& s) { At(s, kAbsentPage - 0x21); }},
    {"a jump to an absent page",
     Way::kDirect,
     {{0xff, 0xe6}},
     [](CpuState& s) { At(s, kAbsentPage + 5); }},
    {"a jump to a page that has no code",
     Way::kDirect,
     {{0xff, 0xe6}},
     [](CpuState& s) { At(s, kDataBase + 5); }},
};

// The translator executed the instruction once more to find that out.
TEST_CASE("Page faults go to the guest's kernel at once", "[oracle]") {
  if (!Works()) return;
  for (const Case& c : kPageFaults) {
    Check(c);
    GuestMachine machine(Kind::kDirect);
    auto guest = std::make_unique<Outcome>();
    machine.Run(Make(c), {.new_code = true}, guest.get());
    CHECK(guest->vector == vcpu::kPageFault);
    CHECK(machine.engine().direct()->counters().direct_guest_faults == 1);
    CHECK(machine.engine().direct()->counters().direct_instructions == 0);
  }
}

// RDPID stands behind the sequence's end: the page is refused, until a breakpoint stands there.
TEST_CASE("A page with one instruction that must be translated runs directly in the end",
          "[oracle]") {
  if (!Works()) return;
  GuestMachine machine(Kind::kDirect);
  const TestCase test =
      Make({"", Way::kDirect, {{0x48, 0x01, 0xd8}, {0xcc}, {0xf3, 0x0f, 0xc7, 0xf8}}, {}});
  auto guest = std::make_unique<Outcome>();
  machine.Run(test, {.new_code = true}, guest.get());
  CHECK(guest->way == Way::kTranslated);
  for (unsigned run = 0; run < 20; ++run) machine.Run(test, {}, guest.get());
  const u64 sets = machine.engine().direct()->counters().direct_guard_sets;
  if (!testsuite::CanCheck(sets != 0, "breakpoints", "ptrace(2)")) return;
  CHECK(guest->way == Way::kDirect);
  CHECK(guest->state.gpr[vcpu::kRax] == test.initial.gpr[vcpu::kRbx]);
  // Of those that are set once nothing is lost.
  for (unsigned run = 0; run < 20; ++run) machine.Run(test, {}, guest.get());
  CHECK(machine.engine().direct()->counters().direct_guard_sets == sets);

  // What is executed there is the guest's, each time. mov ecx, 20; rdpid rax; dec ecx; jnz; int3
  const TestCase loop =
      Make({"",
            Way::kMixed,
            {{0xb9, 20, 0, 0, 0}, {0xf3, 0x0f, 0xc7, 0xf8}, {0xff, 0xc9}, {0x75, 0xf8}, {0xcc}},
            {}});
  machine.Run(loop, {.new_code = true}, guest.get());
  const u64 translated = guest->state.gpr[vcpu::kRax];
  u64 hits = 0;
  for (unsigned run = 0; run < 12; ++run) {
    machine.Run(loop, {}, guest.get());
    hits = machine.engine().direct()->counters().direct_guard_hits;
    CHECK(guest->state.gpr[vcpu::kRax] == translated);
    CHECK(guest->state.gpr[vcpu::kRcx] == 0);
  }
  CHECK(hits >= 20);
}

// A program that others ran before it stopped at each of its pages.
TEST_CASE("Code that was fit to run is mapped with what runs beside it", "[oracle]") {
  if (!Works()) return;
  GuestMachine machine(Kind::kDirect);
  auto guest = std::make_unique<Outcome>();
  // jmp to the page before, where an int3 is
  const TestCase test = Make({"", Way::kDirect, {{0xe9, 0xfb, 0xef, 0xff, 0xff}}, [](CpuState& s) {
                                s.rip += kPageSize;
                              }});
  const auto faults = [&] { return machine.engine().direct()->counters().direct_faults; };
  machine.Run(test, {}, guest.get());
  const u64 first = faults();
  CHECK(first != 0);
  machine.Run(test, {.cold = true, .new_code = false}, guest.get());
  CHECK(faults() == first);
  CHECK(guest->way == Way::kDirect);
}

// Sends it back to translation when all its pages have gone, and is told of that.
struct BackWhenEmptied final : adapt::EnginePolicy {
  unsigned emptied = 0;
  const char* name() const override { return "back when emptied"; }
  adapt::UserEngine OnEvent(adapt::EngineRecord&, const adapt::EngineEvent& what,
                            const adapt::EnginePrices&) override {
    const bool back = what.kind == adapt::EngineEvent::Kind::kEmptied;
    emptied += back;
    return back ? adapt::UserEngine::kTranslate : adapt::UserEngine::kDirect;
  }
};

// It was told again before any user code had run, and again: so no policy's trial ever began.
TEST_CASE("That everything has gone is said once", "[oracle]") {
  if (!Works()) return;
  BackWhenEmptied policy;
  GuestMachine machine(Kind::kDirect, nullptr, &policy);
  auto guest = std::make_unique<Outcome>();
  // mov ecx, 20000000; dec ecx; jnz; int3
  const TestCase test = Make(
      {"", Way::kDirect, {{0xb9, 0x00, 0x2d, 0x31, 0x01}, {0xff, 0xc9}, {0x75, 0xfc}, {0xcc}}, {}});
  SetStopInterval(500);
  machine.Run(test, {.new_code = true}, guest.get());
  CHECK(guest->way != Way::kTranslated);
  policy.emptied = 0;
  machine.Run(test, {.cold = true}, guest.get());
  SetStopInterval(0);
  CHECK(guest->state.gpr[vcpu::kRcx] == 0);
  CHECK(policy.emptied == 1);
  CHECK(guest->way != Way::kTranslated);
}

// The next program was still taken for the one before, with all that the policy knew of that.
TEST_CASE("That everything has gone is said of translated code, too", "[oracle]") {
  struct Told final : adapt::EnginePolicy {
    unsigned emptied = 0;
    const char* name() const override { return "told"; }
    adapt::UserEngine OnEvent(adapt::EngineRecord&, const adapt::EngineEvent& what,
                              const adapt::EnginePrices&) override {
      emptied += what.kind == adapt::EngineEvent::Kind::kEmptied;
      return adapt::UserEngine::kTranslate;
    }
  } policy;
  if (!Works()) return;
  GuestMachine machine(Kind::kDirect, nullptr, &policy);
  auto guest = std::make_unique<Outcome>();
  const TestCase test = Make({"", Way::kTranslated, {{0x90}, {0xcc}}, {}});
  for (unsigned run = 0; run < 3; ++run) machine.Run(test, {.new_code = true}, guest.get());
  CHECK(policy.emptied == 0);
  machine.Run(test, {.cold = true}, guest.get());
  CHECK(policy.emptied == 1);
}

// Of one that came before user code ran, the satellite knew no more than FS, GS and selectors of
// the program before, and they became this one's.
TEST_CASE("A stop in front of user code leaves its state alone", "[oracle]") {
  if (!Works()) return;
  GuestMachine machine(Kind::kDirect);
  auto guest = std::make_unique<Outcome>();
  TestCase test = Make({"NOP", Way::kDirect, {{0x90}}, {}});
  unsigned stops = 0;
  SetStopInterval(50);
  for (u64 i = 0; i < 3000; ++i) {
    test.initial.fs_base = 0x1000 * i;
    test.initial.gs_base = 0x1000 * i + 8;
    test.initial.selector[vcpu::kDs] = i % 2 ? kUserDs : 0;
    stops += machine.Run(test, {}, guest.get());
    REQUIRE(guest->end == End::kException);
    REQUIRE(guest->state.fs_base == test.initial.fs_base);
    REQUIRE(guest->state.gs_base == test.initial.gs_base);
    REQUIRE(guest->state.selector[vcpu::kDs] == test.initial.selector[vcpu::kDs]);
  }
  SetStopInterval(0);
  CHECK(stops > 100);
}

}  // namespace
}  // namespace alibi::oracle
