// SPDX-License-Identifier: Apache-2.0
// What the fuzzer found in 16-bit, 32-bit and segmented code, minimized: each case runs in every
// translation kind.
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "testsuite/oracle/harness.h"

namespace alibi::oracle {
namespace {

using vcpu::kCs, vcpu::kDs, vcpu::kEs, vcpu::kFs, vcpu::kGs, vcpu::kSs;
using vcpu::kRax, vcpu::kRbp, vcpu::kRbx, vcpu::kRcx, vcpu::kRdi, vcpu::kRdx, vcpu::kRsi,
    vcpu::kRsp;

// The selector of the local descriptor with these properties.
u16 Local(u64 base, u32 limit, u16 attributes) {
  const auto table = LocalDescriptors();
  for (unsigned i = 0; i < table.size(); ++i) {
    const vcpu::Segment segment = vcpu::Descriptor{table[i]}.ToSegment(LocalSelector(i));
    if (segment.base == base && segment.limit == limit &&
        (segment.attributes & 0xefff) == attributes) {
      return segment.selector;
    }
  }
  FAIL("the oracle's local table lacks base " << base << " limit " << limit);
  return 0;
}
u16 Code16() { return Local(kCodeBase, 0xffff, 0xfb); }
u16 Code16ExecuteOnly() { return Local(kCodeBase, 0x1fff, 0xf9); }
u16 Code32() { return Local(kCodeBase, 0xffff, 0x40fb); }
u16 Data16() { return Local(kDataBase, 0xffff, 0xf3); }
u16 Stack16() { return Local(kStackBase, 0xffff, 0xf3); }
u16 WrappingStack16() { return Local(kStackBase + 2 * kPageSize, 0xffff, 0xf3); }

struct Case {
  const char* name;
  std::vector<std::vector<u8>> code;
  std::function<void(CpuState&)> prepare;
};

// 32-bit flat code, unless the case says something else.
GeneratedCase Make(const Case& c) {
  GeneratedCase made;
  made.test.name = c.name;
  made.test.code = c.code;
  made.traits.user_only = true;
  made.traits.unsteppable = true;  // handlers' returns change the upper half of 16-bit stacks' ESP
  CpuState& state = made.test.initial;
  state.rip = kCodeBase + 0x100;
  state.rflags = 0x202;
  state.selector[kCs] = kUserCs32;
  for (unsigned i = 0; i < 8; ++i) state.gpr[i] = 0x11111111 * u64{i};
  state.gpr[kRsp] = kStackBase + 2 * kPageSize - 0x100;
  state.gpr[kRsi] = kDataBase + 0x100;
  state.gpr[kRdi] = kDataBase + 0x200;
  for (auto& reg : state.vector.zmm) {
    for (unsigned i = 0; i < sizeof(reg); ++i) reg[i] = static_cast<u8>(i * 7);
  }
  if (c.prepare) c.prepare(state);
  return made;
}

void Segmented16(CpuState& s) {
  s.selector = {Data16(), Code16(), Stack16(), Data16(), 0, 0};
  s.gpr[kRsp] = 0x12342000 - 0x100;
}

const Case kCases[] = {
    {"CALL through a null GS", {{0x65, 0xff, 0x52, 0x3d}}, {}},
    {"JMP through a null FS", {{0x64, 0xff, 0x62, 0x3d}}, {}},
    {"CALL gs:[10h] adds GS's base",
     {{0xc7, 0x05, 0x10, 0x00, 0x00, 0x20, 0x12, 0x01, 0x00, 0x10},  // mov [20000010h], 10000112h
      {0x65, 0xff, 0x15, 0x10, 0x00, 0x00, 0x00},
      {0x90}},
     [](CpuState& s) { s.selector[kGs] = Data16(); }},
    {"Loads and stores through a null FS", {{0x64, 0x8b, 0x06}}, {}},
    {"JCXZ of flat 32-bit code looks at CX",
     {{0x67, 0xe3, 0x02}, {0x8c, 0xca}},
     [](CpuState& s) { s.gpr[kRcx] = 0x10000; }},
    {"LOOP of flat 32-bit code with a counter of 16 bits",
     {{0x40}, {0x67, 0xe2, 0xfc}},
     [](CpuState& s) { s.gpr[kRcx] = 0x10003; }},
    {"VZEROALL of 32-bit code leaves registers 8 to 15 alone", {{0xc5, 0xfc, 0x77}}, {}},
    {"VZEROUPPER of 32-bit code leaves registers 8 to 15 alone", {{0xc5, 0xf8, 0x77}}, {}},
    {"A load that goes over the end of 4 GB", {{0x8b, 0x05, 0xff, 0xff, 0xff, 0xff}}, {}},
    {"AAA's undefined flags are those of a 16-bit addition",
     {{0x37}},
     [](CpuState& s) { s.gpr[kRax] = 0x7f7a; }},
    {"AAS's undefined flags are those of a 16-bit subtraction",
     {{0x3f}},
     [](CpuState& s) {
       s.gpr[kRax] = 0x0006;
       s.rflags |= vcpu::kAf;
     }},
    {"BOUND below its lower bound, the upper one absent",
     {{0xb9, 0xfc, 0x3f, 0x00, 0x20}, {0x62, 0x31}},  // mov ecx, 20003ffch; bound esi, [ecx]
     [](CpuState& s) { s.gpr[kRsi] = 0x80000000; }},
    {"PUSH of a segment register in 32-bit code", {{0x1e}, {0x0f, 0xa0}}, {}},
    {"CMPS whose operands are both absent",
     {{0xa6}},
     [](CpuState& s) {
       s.gpr[kRsi] = 0x20004000;
       s.gpr[kRdi] = 0x20004800;
     }},
    {"REPE CMPS whose operands are both absent",
     {{0xf3, 0xa7}},
     [](CpuState& s) {
       s.gpr[kRcx] = 2;
       s.gpr[kRsi] = 0x20004000;
       s.gpr[kRdi] = 0x20004800;
     }},
    {"DAA's overflow flag", {{0x27}}, [](CpuState& s) { s.gpr[kRax] = 0x7a; }},
    {"DAS's overflow flag", {{0x2f}}, [](CpuState& s) { s.gpr[kRax] = 0x9a; }},
    {"AAD's carries", {{0xd5, 0x7f}}, [](CpuState& s) { s.gpr[kRax] = 0x3cf9; }},
    {"LAR shows bits 19:16 of the limit", {{0xb8, 0x23, 0x00, 0x00, 0x00}, {0x0f, 0x02, 0xc8}}, {}},
    {"ENTER puts all of ESP into EBP, also on a 16-bit stack",
     {{0xc8, 0x20, 0x00, 0x02}},
     [](CpuState& s) {
       s.selector[kSs] = Stack16();
       s.gpr[kRsp] = 0xd4dc200e;
       s.gpr[kRbp] = 0xf0001f7f;
     }},
    {"CALL FAR whose frame wraps at 64 KB",
     {{0x9a, 0x05, 0x01, 0x07, 0x00}},
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kSs] = WrappingStack16();
       s.gpr[kRsp] = 2;
     }},
    {"CALL FAR whose second word is on another page: CR2 is of the first that faults",
     {{0x9a, 0x07, 0x01, 0x00, 0x10, 0x23, 0x00}},
     [](CpuState& s) { s.gpr[kRsp] = kDataBase + 5 * kPageSize - 1; }},
    {"CALL FAR with a misaligned stack under AC: #AC",
     {{0x9a, 0x07, 0x01, 0x00, 0x10, 0x23, 0x00}},
     [](CpuState& s) {
       s.rflags |= vcpu::kAc;
       s.gpr[kRsp] -= 2;
     }},
    {"CALL FAR with a misaligned stack that is too small: #SS",
     {{0x9a, 0x05, 0x01, 0x07, 0x00}},
     [](CpuState& s) {
       Segmented16(s);
       s.rflags |= vcpu::kAc;
       s.selector[kSs] = Local(kDataBase + 0x10, 0, 0xf3);
       s.gpr[kRsp] = 0xfffb;
     }},
    {"PUSHAD to an absent page with a misaligned stack under AC: #AC",
     {{0x60}},
     [](CpuState& s) {
       s.rflags |= vcpu::kAc;
       s.gpr[kRsp] = kDataBase + 5 * kPageSize - 2;
     }},
    {"CLFLUSH may name execute-only code",
     {{0x2e, 0x0f, 0xae, 0x3e, 0x10, 0x00}},
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kCs] = Code16ExecuteOnly();
     }},
    {"A load from execute-only code: #GP",
     {{0x2e, 0xa1, 0x10, 0x00}},
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kCs] = Code16ExecuteOnly();
     }},
    {"Elements that a mask leaves out may lie behind the segment's limit",
     {{0x62, 0xf1, 0x7e, 0x8a, 0x6f, 0x36, 0xf9, 0xff}},  // vmovdqu32 xmm6 {k2} {z}, [fff9h]
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kDs] = Stack16();
       s.vector.k[2] = 0;
     }},
    {"Of a masked operand the first element that faults decides",
     {{0x62, 0xf1, 0x7c, 0x4f, 0x10, 0x0e, 0xdd, 0xff}},  // vmovups zmm1 {k7}, [ffddh]
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kDs] = Stack16();
       s.vector.k[7] = 0xffff;
     }},
    {"Elements of VPMASKMOVQ do not wrap at 64 KB",
     {{0x36, 0xc4, 0xe2, 0xed, 0x8c, 0x1e, 0xf9, 0xff}},  // vpmaskmovq ymm3, ymm2, ss:[fff9h]
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kSs] = WrappingStack16();
       for (unsigned i = 0; i < 32; ++i) s.vector.zmm[2][i] = i >= 24 ? 0xff : 0;
     }},
    {"A masked store to code that stores nothing",
     {{0x2e, 0x62, 0xf1, 0x7c, 0x0f, 0x29, 0x1e}},  // vmovaps cs:[esi] {k7}, xmm3
     [](CpuState& s) { s.vector.k[7] = 0; }},
    {"16-bit, 64-bit and 16-bit code again, amid one page",
     {{0x66, 0xea, 0x08, 0x01, 0x00, 0x10, 0x33, 0x00},  // jmp 33h:10000108h
      {0x89, 0xe4},                                      // mov esp, esp
      {0xbc, 0x00, 0x20, 0x00, 0x30},                    // mov esp, 30002000h
      {0x6a, 0x07},                                      // push the 16-bit segment
      {0x68, 0x18, 0x01, 0x00, 0x00},                    // push 118h
      {0x48, 0xcb},                                      // retfq
      {0xb8, 0x34, 0x12}},                               // mov ax, 1234h
     [](CpuState& s) { Segmented16(s); }},
    {"32-bit code with a base calls 16-bit code, which returns",
     {{0x9a, 0x09, 0x01, 0x00, 0x00, 0x07, 0x00},  // call far 7:109h
      {0xeb, 0x05},                                // jmp behind it
      {0xb8, 0x34, 0x12},                          // mov ax, 1234h
      {0x66, 0xcb}},                               // retf
     [](CpuState& s) {
       s.selector[kCs] = Code32();
       s.selector[kSs] = Stack16();
       s.gpr[kRsp] = 0x2000;
     }},
    {"SP wraps amid a run of pushes",
     {{0x60}, {0x66, 0x60}, {0x61}},
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kSs] = WrappingStack16();
       s.gpr[kRsp] = 0x12340008;
     }},
    {"POP to an expand-down segment, below its limit",
     {{0x8f, 0x06, 0xff, 0x07}},
     [](CpuState& s) {
       Segmented16(s);
       s.selector[kDs] = Local(kDataBase, 0x7ff, 0xf7);
     }},
    {"MOV to a segment register: not present",
     {{0xb8, static_cast<u8>(14 << 3 | 7), 0x00}, {0x8e, 0xd8}},
     [](CpuState& s) { Segmented16(s); }},
};

TEST_CASE("What the fuzzer found in 16- and 32-bit code", "[oracle]") {
  if (!HostAllowsSegments()) {
    WARN("this host's kernel allows no local descriptors");
    return;
  }
  Harness harness;
  for (const Case& c : kCases) {
    INFO(c.name);
    const auto find = harness.CheckAll(Make(c));
    if (find) FAIL_CHECK(harness.Story(*find));
  }
}

// The native side must see what the table says: a program that loads a selector finds its base.
TEST_CASE("The host has the oracle's descriptors", "[oracle]") {
  if (!HostAllowsSegments()) return;
  NativeRunner native;
  for (unsigned i = 0; i < LocalDescriptors().size(); ++i) {
    const u16 selector = LocalSelector(i);
    if (!LoadsAsData(selector)) continue;
    // mov eax, selector; mov gs, eax; lsl ebx, eax; lar ecx, eax
    const Case load = {"load",
                       {{0xb8, static_cast<u8>(selector), static_cast<u8>(selector >> 8), 0, 0},
                        {0x8e, 0xe8},
                        {0x0f, 0x03, 0xd8},
                        {0x0f, 0x02, 0xc8}},
                       {}};
    const Outcome outcome = native.Run(Make(load).test);
    INFO("selector " << selector);
    REQUIRE(outcome.end == End::kException);
    const vcpu::Segment segment = SegmentOf(selector);
    CHECK(outcome.vector == vcpu::kBreakpoint);
    CHECK(outcome.state.selector[kGs] == selector);
    CHECK(outcome.state.gs_base == segment.base);
    CHECK(static_cast<u32>(outcome.state.gpr[kRbx]) == segment.limit);
    CHECK((outcome.state.gpr[kRcx] >> 8 & 0xf0ff) == segment.attributes);
  }
}

}  // namespace
}  // namespace alibi::oracle
