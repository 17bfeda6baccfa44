// SPDX-License-Identifier: Apache-2.0
#include "simulator/simulator.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "isa/decoder.h"
#include "vcpu/control_registers.h"
#include "vcpu/msr.h"
#include "vcpu/test_machine.h"

namespace alibi::simulator {
namespace {

using namespace vcpu;  // the registers and flags

class FakePorts : public PortIo {
 public:
  u32 In(u16 port, unsigned size) override {
    ports.push_back(port);
    sizes.push_back(size);
    return next++;
  }
  void Out(u16 port, unsigned size, u32 value) override {
    ports.push_back(port);
    sizes.push_back(size);
    values.push_back(value);
  }
  u32 next = 0x11223344;
  std::vector<u16> ports;
  std::vector<unsigned> sizes;
  std::vector<u32> values;
};

class Sim : public TestMachine {
 public:
  isa::Instr Decoded(const std::vector<u8>& bytes) {
    std::vector<u8> padded(bytes);
    padded.resize(16);
    isa::Instr instr;
    REQUIRE(isa::Decode(padded.data(), 15, LinearAddr(state().rip), state().CodeBits(), &instr) ==
            isa::DecodeStatus::kOk);
    INFO(isa::Disassemble(instr));
    REQUIRE(instr.length == bytes.size());
    REQUIRE(CanSimulate(instr.op));
    return instr;
  }

  Outcome Run(const std::vector<u8>& bytes) {
    SimulatorContext context{state(), memory, ports, platform, policy()};
    return Simulate(Decoded(bytes), context);
  }

  // Runs, and checks that RIP went on.
  void Step(const std::vector<u8>& bytes) {
    u64 next = state().rip + bytes.size();
    Outcome outcome = Run(bytes);
    CHECK(outcome.done());
    CHECK(state().rip == next);
  }

  // A fault that leaves no trace in the state.
  Outcome Refused(const std::vector<u8>& bytes) {
    std::vector<u8> before(sizeof(VcpuState));
    std::memcpy(before.data(), &state(), sizeof(VcpuState));
    Outcome outcome = Run(bytes);
    CHECK(outcome.faulted());
    CHECK(std::memcmp(before.data(), &state(), sizeof(VcpuState)) == 0);
    return outcome;
  }

  FakePorts ports;
};

constexpr u64 kData = 0x10000, kOther = 0x20000;

TEST_CASE("Stack instructions, 64-bit", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  r[kRax] = 0x1122334455667788;
  m.Step({0x50});  // PUSH RAX
  CHECK(r[kRsp] == kKernelStack - 8);
  CHECK(m.memory.Get<u64>(r[kRsp]) == r[kRax]);
  m.Step({0x54});  // PUSH RSP: the old value
  CHECK(m.memory.Get<u64>(r[kRsp]) == kKernelStack - 8);
  m.Step({0x6a, 0xfe});  // PUSH -2
  CHECK(m.memory.Get<u64>(r[kRsp]) == ~u64{1});
  m.Step({0x68, 0, 0, 0, 0x80});  // PUSH imm32
  CHECK(m.memory.Get<u64>(r[kRsp]) == 0xffffffff80000000);
  m.Step({0x66, 0x50});  // PUSH AX
  CHECK(r[kRsp] == kKernelStack - 34);
  CHECK(m.memory.Get<u16>(r[kRsp]) == 0x7788);
  m.Step({0x66, 0x5b});  // POP BX
  CHECK(r[kRbx] == 0x7788);
  m.Step({0x41, 0x5a});  // POP R10
  CHECK(r[kR10] == 0xffffffff80000000);
  m.Step({0x5c});  // POP RSP
  CHECK(r[kRsp] == ~u64{1});
}

TEST_CASE("POP to memory: the address uses the new RSP; faults undo it", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  m.memory.Put<u64>(kKernelStack, 0xabc);
  m.Step({0x8f, 0x44, 0x24, 0x10});  // POP [RSP+16]
  CHECK(m.memory.Get<u64>(kKernelStack + 8 + 16) == 0xabc);
  m.memory.Poison(kData);
  r[kRax] = kData;
  CHECK(m.Refused({0x8f, 0x00}).fault() ==
        GuestFault::Page(LinearAddr(kData), kPfWrite));  // POP [RAX]
}

TEST_CASE("PUSHF and POPF obey CPL and IOPL", "[simulator]") {
  Sim m;
  m.LongMode(3);
  VcpuState& s = m.state();
  s.system_flags |= kRf;
  m.Step({0x9c});
  CHECK(m.memory.Get<u64>(s.gpr[kRsp]) == (kIf | kZf | 2));
  m.memory.Put<u64>(s.gpr[kRsp], kCf | kDf | kIopl | kAc | kId | kTf);
  m.Step({0x9d});
  CHECK(s.Rflags() == (kCf | kDf | kAc | kId | kTf | kIf | 2));  // IF and IOPL stay
  CHECK(m.memory.privilege_changes == 1);                        // AC
  m.LongMode(0);
  m.memory.Put<u64>(s.gpr[kRsp], kIopl);
  m.Step({0x9d});
  CHECK(s.Rflags() == (kIopl | 2));
}

TEST_CASE("ENTER and LEAVE", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  r[kRbp] = 0x7f00;
  m.memory.Put<u64>(0x7ef8, 0x1111);
  m.Step({0xc8, 0x20, 0x00, 0x02});  // ENTER 32, 2
  CHECK(r[kRbp] == kKernelStack - 8);
  CHECK(r[kRsp] == kKernelStack - 24 - 32);
  CHECK(m.memory.Get<u64>(kKernelStack - 8) == 0x7f00);
  CHECK(m.memory.Get<u64>(kKernelStack - 16) == 0x1111);
  CHECK(m.memory.Get<u64>(kKernelStack - 24) == kKernelStack - 8);
  m.Step({0xc9});  // LEAVE
  CHECK(r[kRbp] == 0x7f00);
  CHECK(r[kRsp] == kKernelStack);
}

TEST_CASE("PUSHA, POPA and segment pushes, 32-bit", "[simulator]") {
  Sim m;
  m.Protected32();
  u64* r = m.state().gpr;
  for (unsigned i = 0; i < 8; ++i) {
    if (i != kRsp) r[i] = 0x100 + i;
  }
  m.Step({0x60});
  CHECK(r[kRsp] == kKernelStack - 32);
  CHECK(m.memory.Get<u32>(kKernelStack - 4) == 0x100);
  CHECK(m.memory.Get<u32>(kKernelStack - 20) == kKernelStack);
  r[kRdi] = 0;
  m.Step({0x61});
  CHECK(r[kRdi] == 0x107);
  CHECK(r[kRsp] == kKernelStack);
  m.Step({0x1e});  // PUSH DS
  CHECK(m.memory.Get<u32>(kKernelStack - 4) == kData0);
  m.Step({0x17});  // POP SS
  CHECK(m.state().interrupt_shadow == 1);
  m.Step({0x90});
  CHECK(m.state().interrupt_shadow == 0);
  m.memory.Put<u32>(kKernelStack, kCode3 & ~3);
  CHECK(m.Refused({0x17}) == GeneralProtection(kCode3 & ~3));
}

TEST_CASE("Stack faults of 64-bit code are #SS", "[simulator]") {
  Sim m;
  m.LongMode();
  m.state().gpr[kRsp] = u64{1} << 50;
  CHECK(m.Refused({0x50}) == StackFault(0));
  CHECK(m.Refused({0x58}) == StackFault(0));
  CHECK(m.Refused({0x9c}) == StackFault(0));
  m.state().gpr[kRbp] = u64{1} << 50;
  CHECK(m.Refused({0x48, 0x8b, 0x45, 0x00}) == StackFault(0));  // MOV RAX, [RBP]
  m.state().gpr[kRax] = u64{1} << 50;
  CHECK(m.Refused({0x48, 0x8b, 0x00}) == GeneralProtection(0));  // MOV RAX, [RAX]
}

TEST_CASE("Near control transfers", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  auto at = [&](const std::vector<u8>& bytes) {
    s.rip = 0x400000;
    REQUIRE(m.Run(bytes).done());
    return s.rip;
  };
  CHECK(at({0xeb, 0x10}) == 0x400012);
  CHECK(at({0xe9, 0xfb, 0xff, 0xff, 0xff}) == 0x400000);
  s.arithmetic_flags = kZf;
  CHECK(at({0x74, 0x10}) == 0x400012);
  CHECK(at({0x75, 0x10}) == 0x400002);
  CHECK(at({0x0f, 0x84, 0, 1, 0, 0}) == 0x400106);
  s.arithmetic_flags = kSf;
  CHECK(at({0x7c, 0x10}) == 0x400012);  // JL
  CHECK(at({0x7d, 0x10}) == 0x400002);  // JNL
  CHECK(at({0x7e, 0x10}) == 0x400012);  // JLE
  s.arithmetic_flags = kSf | kOf;
  CHECK(at({0x7f, 0x10}) == 0x400012);  // JNLE
  s.gpr[kRcx] = 0x1'0000'0001;
  CHECK(at({0xe2, 0x10}) == 0x400012);        // LOOP
  CHECK(at({0x67, 0xe3, 0x10}) == 0x400013);  // JECXZ: ECX is 0 now
  CHECK(s.gpr[kRcx] == 0x1'0000'0000);
  CHECK(at({0xe8, 0, 1, 0, 0}) == 0x400105);
  CHECK(m.memory.Get<u64>(kKernelStack - 8) == 0x400005);
  CHECK(at({0xc3}) == 0x400005);
  s.gpr[kRax] = 0x401000;
  CHECK(at({0xff, 0xe0}) == 0x401000);
  CHECK(at({0xff, 0xd0}) == 0x401000);
  CHECK(at({0xc2, 0x10, 0x00}) == 0x400002);
  CHECK(s.gpr[kRsp] == kKernelStack + 16);
  m.memory.Put<u64>(kData, 0x402000);
  s.gpr[kRbx] = kData;
  CHECK(at({0xff, 0x23}) == 0x402000);  // JMP [RBX]
  s.rip = 0x400000;
  s.gpr[kRax] = u64{1} << 48;
  CHECK(m.Refused({0xff, 0xe0}) == GeneralProtection(0));
  CHECK(m.Refused({0xff, 0xd0}) == GeneralProtection(0));
}

TEST_CASE("Near transfers check the code limit and use EIP outside 64-bit mode", "[simulator]") {
  Sim m;
  m.Protected32();
  m.state().segment[kCs].limit = 0x400010;
  CHECK(m.Refused({0xeb, 0x10}) == GeneralProtection(0));
  CHECK(m.Refused({0xe8, 0x10, 0, 0, 0}) == GeneralProtection(0));
  m.state().rip = 0x12;
  REQUIRE(m.Run({0x66, 0xe9, 0xea, 0xff}).done());  // JMP rel16
  CHECK(m.state().rip == 0);
}

TEST_CASE("MOV in all forms", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  r[kRbx] = kData;
  r[kRax] = 0x1122334455667788;
  m.Step({0x48, 0x89, 0x03});  // MOV [RBX], RAX
  m.Step({0x8b, 0x4b, 0x02});  // MOV ECX, [RBX+2]
  CHECK(r[kRcx] == 0x33445566);
  m.Step({0x8a, 0x63, 0x07});  // MOV AH, [RBX+7]
  CHECK(r[kRax] == 0x1122334455661188);
  m.Step({0xc6, 0x03, 0xff});  // MOV byte [RBX], -1
  CHECK(m.memory.Get<u16>(kData) == 0x77ff);
  m.Step({0x48, 0xc7, 0x03, 0, 0, 0, 0x80});
  CHECK(m.memory.Get<u64>(kData) == 0xffffffff80000000);
  m.Step({0x48, 0xa1, 0, 0, 1, 0, 0, 0, 0, 0});  // MOV RAX, [moffs]
  CHECK(r[kRax] == 0xffffffff80000000);
  m.Step({0xa2, 8, 0, 1, 0, 0, 0, 0, 0});  // MOV [moffs], AL
  m.Step({0xb5, 0x77});                    // MOV CH, imm
  CHECK(r[kRcx] == 0x33447766);
  m.Step({0x44, 0x89, 0xd1});  // MOV ECX, R10D
  m.Step({0x87, 0x0b});        // XCHG [RBX], ECX
  CHECK(r[kRcx] == 0x80000000);
  CHECK(m.memory.Get<u32>(kData) == 0);
  m.Step({0x48, 0x8d, 0x44, 0x8b, 0x01});  // LEA RAX, [RBX+RCX*4+1]
  CHECK(r[kRax] == kData + 0x200000001);
  m.Step({0x93});  // XCHG EAX, EBX
  CHECK(r[kRax] == kData);
  CHECK(r[kRbx] == 0x10001);
  r[kRbx] = kData;
  r[kRax] = 0x55;
  m.memory.Put<u8>(kData + 0x55, 0x99);
  m.Step({0xd7});  // XLAT
  CHECK(r[kRax] == 0x99);
  m.state().segment[kGs].base = kOther;
  m.memory.Put<u32>(kOther + 0x40, 0xfeed);
  m.Step({0x65, 0x8b, 0x04, 0x25, 0x40, 0, 0, 0});  // MOV EAX, GS:[40h]
  CHECK(r[kRax] == 0xfeed);
  m.memory.Put<u32>(0x400009, 0xbeef);
  m.state().rip = 0x400000;
  m.Step({0x8b, 0x05, 3, 0, 0, 0});  // RIP-relative
  CHECK(r[kRax] == 0xbeef);
}

TEST_CASE("Bit tests with a register reach beyond the operand", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  s.gpr[kRbx] = kData;
  s.gpr[kRcx] = 100;
  m.Step({0x48, 0x0f, 0xab, 0x0b});  // BTS [RBX], RCX
  CHECK(m.memory.Get<u64>(kData + 8) == u64{1} << 36);
  CHECK((s.arithmetic_flags & kCf) == 0);
  m.Step({0x48, 0x0f, 0xa3, 0x0b});
  CHECK((s.arithmetic_flags & kCf) != 0);
  m.Step({0x48, 0x0f, 0xb3, 0x0b});
  CHECK(m.memory.Get<u64>(kData + 8) == 0);
  s.gpr[kRcx] = static_cast<u32>(-1);
  m.Step({0x0f, 0xbb, 0x0b});  // BTC [RBX], ECX
  CHECK(m.memory.Get<u32>(kData - 4) == 0x80000000);
}

TEST_CASE("REP MOVS: plain, overlapping, backward, all sizes", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  for (unsigned i = 0; i < 0x3000; ++i)
    m.memory.Put<u8>(kData + i, static_cast<u8>(i * 7 + i / 256));
  r[kRsi] = kData + 3;
  r[kRdi] = kOther + 5;
  r[kRcx] = 0x2345;
  m.Step({0xf3, 0xa4});
  CHECK(r[kRcx] == 0);
  CHECK(r[kRsi] == kData + 3 + 0x2345);
  CHECK(r[kRdi] == kOther + 5 + 0x2345);
  bool same = true;
  for (unsigned i = 0; i < 0x2345; ++i) {
    same = same && m.memory.Get<u8>(kOther + 5 + i) == m.memory.Get<u8>(kData + 3 + i);
  }
  CHECK(same);

  m.memory.Put<u16>(kData, 0xabcd);
  r[kRsi] = kData;
  r[kRdi] = kData + 2;
  r[kRcx] = 100;
  m.Step({0xf3, 0xa4});
  CHECK(m.memory.Get<u16>(kData + 100) == 0xabcd);

  s.df_flag = 1;
  m.memory.Put<u64>(kOther - 8, 0x1111);
  m.memory.Put<u64>(kOther, 0x2222);
  r[kRsi] = kOther;
  r[kRdi] = kData + 0x2004;  // elements cross pages on the way
  r[kRcx] = 2;
  m.Step({0xf3, 0x48, 0xa5});
  CHECK(m.memory.Get<u64>(kData + 0x2004) == 0x2222);
  CHECK(m.memory.Get<u64>(kData + 0x1ffc) == 0x1111);
  CHECK(r[kRdi] == kData + 0x1ff4);
  s.df_flag = 0;

  r[kRcx] = 0;
  m.memory.Poison(kOther);
  m.Step({0xf3, 0xa4});  // nothing to do, nothing touched
}

TEST_CASE("REP stops at a fault with exact registers and restarts", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  r[kRsi] = kData;
  r[kRdi] = kOther + 0xff0;
  r[kRcx] = 0x10;
  m.memory.Poison(kOther + 0x1000);
  Outcome outcome = m.Run({0xf3, 0xa5});
  CHECK(outcome.fault() == GuestFault::Page(LinearAddr(kOther + 0x1000), kPfWrite));
  CHECK(r[kRcx] == 12);
  CHECK(r[kRdi] == kOther + 0x1000);
  CHECK(r[kRsi] == kData + 16);
  CHECK(m.state().rip == 0x400000);
  m.memory.Heal();
  m.Step({0xf3, 0xa5});
  CHECK(r[kRcx] == 0);
}

TEST_CASE("A backward REP faults at its first element", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  m.state().df_flag = 1;
  m.memory.Poison(kOther);
  r[kRsi] = kData + 0x1008;
  r[kRdi] = kOther + 0x1008;
  r[kRcx] = 10;
  CHECK(m.Run({0xf3, 0x48, 0xa5}).fault() ==
        GuestFault::Page(LinearAddr(kOther + 0xff8), kPfWrite));
  CHECK(r[kRcx] == 8);
  CHECK(r[kRdi] == kOther + 0xff8);
  CHECK(m.Run({0xf3, 0xae}).fault() == GuestFault::Page(LinearAddr(kOther + 0xff8), 0));
  CHECK(r[kRcx] == 8);
}

TEST_CASE("A long REP lets interrupts in", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  r[kRdi] = kData;
  r[kRcx] = 0x18000;
  REQUIRE(m.Run({0xf3, 0xaa}).done());
  CHECK(m.state().rip == 0x400000);
  CHECK(r[kRcx] == 0x8000);
  m.Step({0xf3, 0xaa});
  CHECK(r[kRcx] == 0);
}

TEST_CASE("A single step of REP is one iteration", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  m.state().system_flags |= kTf;
  r[kRdi] = kData;
  r[kRsi] = kOther;
  r[kRcx] = 2;
  for (const std::vector<u8>& bytes :
       std::vector<std::vector<u8>>{{0xf3, 0xa4}, {0xf3, 0xaa}, {0xf3, 0xac}, {0xf3, 0x6c}}) {
    m.state().rip = 0x400000;
    r[kRcx] = 2;
    REQUIRE(m.Run(bytes).done());
    CHECK(r[kRcx] == 1);
    CHECK(m.state().rip == 0x400000);
    m.Step(bytes);
    CHECK(r[kRcx] == 0);
  }
}

TEST_CASE("STOS, LODS, CMPS, SCAS", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  r[kRax] = 0x1122334455667788;
  r[kRdi] = kData + 0xffc;
  r[kRcx] = 2;
  m.Step({0xf3, 0x48, 0xab});
  CHECK(m.memory.Get<u64>(kData + 0xffc) == r[kRax]);
  CHECK(m.memory.Get<u64>(kData + 0x1004) == r[kRax]);
  r[kRsi] = kData + 0x1004;
  m.Step({0x66, 0xad});  // LODSW
  CHECK(r[kRax] == 0x1122334455667788);
  CHECK(r[kRsi] == kData + 0x1006);

  const char text[] = "hello world";
  for (unsigned i = 0; i < sizeof(text); ++i) {
    m.memory.Put<char>(kData + i, text[i]);
    m.memory.Put<char>(kOther + i, text[i]);
  }
  m.memory.Put<char>(kOther + 6, 'W');
  r[kRsi] = kData;
  r[kRdi] = kOther;
  r[kRcx] = 100;
  m.Step({0xf3, 0xa6});
  CHECK(r[kRcx] == 93);
  CHECK(r[kRdi] == kOther + 7);
  CHECK((s.arithmetic_flags & (kZf | kCf)) == 0);  // 'w' > 'W'
  r[kRax] = ' ';
  r[kRdi] = kData;
  r[kRcx] = ~u64{0};
  m.Step({0xf2, 0xae});
  CHECK(r[kRdi] == kData + 6);
  CHECK((s.arithmetic_flags & kZf) != 0);
  s.arithmetic_flags = kCf;
  r[kRcx] = 0;
  m.Step({0xf3, 0xa6});
  CHECK(s.arithmetic_flags == kCf);
  m.Step({0xae});  // SCASB without REP
  CHECK((s.arithmetic_flags & kZf) == 0);
}

TEST_CASE("Strings in legacy modes: address size, override, limits", "[simulator]") {
  Sim m;
  m.Protected32();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  s.segment[kFs].base = kData;
  m.memory.Put<u32>(kData + 0xfffc, 0x12345678);
  r[kRsi] = 0xabcd'fffc;
  r[kRdi] = 0x9999'0100;
  m.Step({0x67, 0x64, 0xa5});  // MOVSD ES:[DI], FS:[SI]
  CHECK(m.memory.Get<u32>(0x100) == 0x12345678);
  CHECK(r[kRsi] == 0xabcd'0000);
  CHECK(r[kRdi] == 0x9999'0104);
  s.segment[kEs].limit = 0x10f;
  r[kRdi] = 0x108;
  r[kRcx] = 4;
  CHECK(m.Run({0xf3, 0xab}) == GeneralProtection(0));
  CHECK(r[kRcx] == 2);
  CHECK(r[kRdi] == 0x110);
}

TEST_CASE("Ports: IN, OUT, INS, OUTS and the I/O bitmap", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  r[kRax] = ~u64{0};
  m.Step({0xe4, 0x60});
  CHECK(r[kRax] == 0xffffffffffffff44);
  r[kRdx] = 0x3f8;
  m.Step({0xed});
  CHECK(r[kRax] == 0x11223345);
  m.Step({0x66, 0xef});
  CHECK(m.ports.ports.back() == 0x3f8);
  CHECK(m.ports.sizes.back() == 2);
  CHECK(m.ports.values.back() == 0x3345);
  r[kRdi] = kData;
  r[kRcx] = 3;
  m.Step({0xf3, 0x6d});
  CHECK(m.memory.Get<u32>(kData + 8) == 0x11223348);
  r[kRsi] = kData;
  r[kRcx] = 2;
  m.Step({0xf3, 0x6e});
  CHECK(m.ports.values.back() == 0x33);
  m.memory.Poison(kData);
  r[kRdi] = kData;
  const std::size_t before = m.ports.ports.size();
  CHECK(m.Refused({0x6c}).fault().vector == kPageFault);
  CHECK(m.ports.ports.size() == before);  // the port was not read

  m.LongMode(3);
  r[kRdx] = 0x80;
  m.memory.Put<u16>(kTss + 0x66, 0x68);
  CHECK(m.Refused({0xec}) == GeneralProtection(0));  // the map lies beyond the limit
  m.state().segment[kTr].limit = 0x200;
  m.memory.Put<u8>(kTss + 0x68 + 0x10, 0xfe);
  m.Step({0xec});
  CHECK(m.Refused({0xed}) == GeneralProtection(0));  // four ports, three of them denied
}

TEST_CASE("CLI, STI and the interrupt shadow", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  m.Step({0xfa});
  CHECK(s.if_flag == 0);
  m.Step({0xfb});
  CHECK(s.if_flag == 1);
  CHECK(s.interrupt_shadow == 1);
  m.Step({0xfb});
  CHECK(s.interrupt_shadow == 0);  // IF was set already
  m.Step({0xf4});
  CHECK(s.halted == 1);
  m.LongMode(3);
  CHECK(m.Refused({0xfa}) == GeneralProtection(0));
  CHECK(m.Refused({0xfb}) == GeneralProtection(0));
  CHECK(m.Refused({0xf4}) == GeneralProtection(0));
  s.system_flags |= kIopl;
  m.Step({0xfa});
}

TEST_CASE("System registers through their instructions", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  m.Step({0x0f, 0x20, 0xc0});  // MOV RAX, CR0
  CHECK(r[kRax] == s.cr0);
  r[kRbx] = 0x5000;
  m.Step({0x0f, 0x22, 0xdb});  // MOV CR3, RBX
  CHECK(s.cr3 == 0x5000);
  CHECK(m.memory.address_space_loads == 1);
  r[kRax] = 5;
  m.Step({0x44, 0x0f, 0x22, 0xc0});  // MOV CR8, RAX
  CHECK(s.cr8 == 5);
  CHECK(m.platform.task_priority_writes == 1);
  m.Step({0x0f, 0x21, 0xf1});  // MOV RCX, DR6
  CHECK(r[kRcx] == kDr6Fixed);
  r[kRcx] = kMsrLstar;
  r[kRax] = 0x80001000;
  r[kRdx] = 0xffffffff;
  m.Step({0x0f, 0x30});
  CHECK(s.lstar == 0xffffffff80001000);
  m.Step({0x0f, 0x32});
  CHECK(r[kRax] == 0x80001000);
  s.kernel_gs_base = 0x1234;
  m.Step({0x0f, 0x01, 0xf8});  // SWAPGS
  CHECK(s.segment[kGs].base == 0x1234);
  m.Step({0xf3, 0x48, 0x0f, 0xae, 0xc9});  // RDGSBASE RCX
  CHECK(r[kRcx] == 0x1234);
  r[kRcx] = u64{1} << 47;
  CHECK(m.Refused({0xf3, 0x48, 0x0f, 0xae, 0xd1}) == GeneralProtection(0));  // WRFSBASE RCX
  m.state().gpr[kRax] = kData;
  m.Step({0x0f, 0x01, 0x38});  // INVLPG [RAX]
  CHECK(m.memory.invalidated == std::vector<u64>{kData});
  m.memory.Put<u16>(kData, 0x7f);
  m.memory.Put<u64>(kData + 2, 0xffff800000001000);
  m.Step({0x0f, 0x01, 0x10});  // LGDT [RAX]
  CHECK(s.gdtr.limit == 0x7f);
  CHECK(s.gdtr.base == 0xffff800000001000);
  m.Step({0x0f, 0x01, 0x48, 0x20});  // SIDT [RAX+32]
  CHECK(m.memory.Get<u64>(kData + 34) == kIdt);
  m.Step({0x0f, 0x00, 0xc9});  // STR ECX
  CHECK(r[kRcx] == kTssSelector);
  m.Step({0x8c, 0xd1});  // MOV ECX, SS
  CHECK(r[kRcx] == kData0);
  m.Step({0x0f, 0x06});  // CLTS
  r[kRax] = 0;
  r[kRcx] = 0;
  m.Step({0x0f, 0xa2});
  CHECK(r[kRax] >= 1);
  m.Step({0x0f, 0x31});
  m.LongMode(3);
  for (const std::vector<u8>& bytes : std::vector<std::vector<u8>>{{0x0f, 0x20, 0xc0},
                                                                   {0x0f, 0x22, 0xdb},
                                                                   {0x0f, 0x32},
                                                                   {0x0f, 0x30},
                                                                   {0x0f, 0x01, 0xf8},
                                                                   {0x0f, 0x01, 0x10},
                                                                   {0x0f, 0x06},
                                                                   {0x0f, 0x09},
                                                                   {0x0f, 0x01, 0x38},
                                                                   {0x0f, 0x21, 0xf1},
                                                                   {0x0f, 0x07}}) {
    CHECK(m.Refused(bytes) == GeneralProtection(0));
  }
}

TEST_CASE("Selector instructions", "[simulator]") {
  Sim m;
  m.LongMode();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  r[kRcx] = kData3;
  m.Step({0x8e, 0xd9});  // MOV DS, ECX
  CHECK(s.segment[kDs].selector == kData3);
  r[kRcx] = kData0;
  m.Step({0x8e, 0xd1});  // MOV SS, ECX
  CHECK(s.interrupt_shadow == 1);
  r[kRcx] = kCode0;
  m.Step({0x0f, 0x02, 0xc1});  // LAR EAX, CX
  CHECK((s.arithmetic_flags & kZf) != 0);
  CHECK(r[kRax] == 0x00af9b00);
  m.Step({0x0f, 0x03, 0xc1});  // LSL
  CHECK(r[kRax] == 0xffffffff);
  m.Step({0x0f, 0x00, 0xe9});  // VERW CX
  CHECK((s.arithmetic_flags & kZf) == 0);
  m.Step({0x0f, 0x00, 0xe1});  // VERR CX
  CHECK((s.arithmetic_flags & kZf) != 0);
  r[kRbx] = kData;
  m.memory.Put<u32>(kData, 0x4321);
  m.memory.Put<u16>(kData + 4, kData0);
  m.Step({0x0f, 0xb4, 0x03});  // LFS EAX, [RBX]
  CHECK(r[kRax] == 0x4321);
  CHECK(s.segment[kFs].selector == kData0);
}

TEST_CASE("Interrupt instructions and returns", "[simulator]") {
  Sim m;
  m.LongMode(3);
  VcpuState& s = m.state();
  m.Gate64(0x80, kCode0, kHandler, 0xee);
  m.Gate64(3, kCode0, kHandler, 0xee);
  REQUIRE(m.Run({0xcd, 0x80}).done());
  CHECK(s.rip == kHandler);
  CHECK(s.cpl == 0);
  CHECK(m.memory.Get<u64>(s.gpr[kRsp]) == 0x400002);
  s.segment[kGs].base = 0x77;  // a null-descriptor base survives
  REQUIRE(m.Run({0x48, 0xcf}).done());
  CHECK(s.rip == 0x400002);
  CHECK(s.cpl == 3);
  CHECK(s.gpr[kRsp] == kUserStack);
  CHECK(s.Rflags() == (kIf | kZf | 2));
  CHECK(s.segment[kSs].selector == kData3);
  REQUIRE(m.Run({0xcc}).done());
  CHECK(m.memory.Get<u64>(s.gpr[kRsp]) == 0x400003);
  m.LongMode(3);
  CHECK(m.Refused({0xcd, 0x21}) == GeneralProtection(0x21 * 8 + 2));
}

TEST_CASE("SYSCALL and SYSRET", "[simulator]") {
  Sim m;
  m.LongMode(3);
  VcpuState& s = m.state();
  s.star = (u64{0x23} << 48) | (u64{kCode0} << 32);
  s.lstar = 0xffffffff80000000;
  s.sfmask = kIf | kTf;
  REQUIRE(m.Run({0x0f, 0x05}).done());
  CHECK(s.rip == s.lstar);
  CHECK(s.cpl == 0);
  CHECK(s.gpr[kRcx] == 0x400002);
  CHECK(s.gpr[kR11] == (kIf | kZf | 2));
  CHECK(s.if_flag == 0);
  REQUIRE(m.Run({0x48, 0x0f, 0x07}).done());
  CHECK(s.rip == 0x400002);
  CHECK(s.cpl == 3);
  CHECK(s.segment[kCs].selector == 0x33);
  CHECK(s.segment[kSs].selector == 0x2b);
  CHECK(s.if_flag == 1);
}

TEST_CASE("Decimal arithmetic and friends, 32-bit", "[simulator]") {
  Sim m;
  m.Protected32();
  VcpuState& s = m.state();
  u64* r = s.gpr;
  r[kRax] = 0x9c;
  s.arithmetic_flags = 0;
  m.Step({0x27});  // DAA
  CHECK(r[kRax] == 0x02);
  CHECK((s.arithmetic_flags & (kCf | kAf)) == (kCf | kAf));
  r[kRax] = 0x0b;
  s.arithmetic_flags = 0;
  m.Step({0x37});  // AAA
  CHECK(r[kRax] == 0x101);
  r[kRax] = 0x63;
  m.Step({0xd4, 0x0a});  // AAM
  CHECK(r[kRax] == 0x909);
  m.Step({0xd5, 0x0a});  // AAD
  CHECK(r[kRax] == 0x63);
  CHECK(m.Refused({0xd4, 0x00}) == Outcome::Simple(kDivideError));
  s.arithmetic_flags = kCf;
  m.Step({0xd6});
  CHECK(r[kRax] == 0xff);
  s.arithmetic_flags = kOf;
  m.Gate32(4, kCode0, kHandler, 0xee);
  REQUIRE(m.Run({0xce}).done());
  CHECK(s.rip == kHandler);
  m.memory.Put<u32>(kData, 5);
  m.memory.Put<u32>(kData + 4, 10);
  r[kRbx] = kData;
  r[kRcx] = 10;
  m.Step({0x62, 0x0b});  // BOUND ECX, [EBX]
  r[kRcx] = 11;
  CHECK(m.Refused({0x62, 0x0b}) == Outcome::Simple(kBoundRange));
}

TEST_CASE("Far transfers through their instructions", "[simulator]") {
  Sim m;
  m.Protected32();
  VcpuState& s = m.state();
  REQUIRE(m.Run({0xea, 0x00, 0x10, 0, 0, kCode0, 0}).done());
  CHECK(s.rip == 0x1000);
  REQUIRE(m.Run({0x9a, 0x00, 0x20, 0, 0, kCode0, 0}).done());
  CHECK(s.rip == 0x2000);
  CHECK(m.memory.Get<u32>(kKernelStack - 8) == 0x1007);
  REQUIRE(m.Run({0xcb}).done());
  CHECK(s.rip == 0x1007);
  CHECK(s.gpr[kRsp] == kKernelStack);
  s.gpr[kRbx] = kData;
  m.memory.Put<u32>(kData, 0x3000);
  m.memory.Put<u16>(kData + 4, kCode0);
  REQUIRE(m.Run({0xff, 0x2b}).done());
  CHECK(s.rip == 0x3000);
}

TEST_CASE("RDPMC: there is no counter to read", "[simulator]") {
  Sim m;
  m.LongMode();
  CHECK(m.Refused({0x0f, 0x33}).fault().vector == kGeneralProtection);
}

TEST_CASE("What the simulator does not know is #UD", "[simulator]") {
  CHECK_FALSE(CanSimulate(isa::Op::kNone));
}

// SDM vol. 3, 5.9; vol. 2 for the instructions that are undefined outside protected mode.
TEST_CASE("Who may execute what: the traits, at every level", "[simulator]") {
  using Bytes = std::vector<u8>;
  const Bytes privileged[] = {
      {0x0f, 0x20, 0xc0},
      {0x0f, 0x22, 0xc0},
      {0x0f, 0x22, 0xd8},  // MOV CR0, CR3
      {0x0f, 0x21, 0xc0},
      {0x0f, 0x23, 0xc0},  // MOV DR0
      {0xf4},
      {0x0f, 0x32},
      {0x0f, 0x30},  // HLT, RDMSR, WRMSR
      {0x0f, 0x01, 0x13},
      {0x0f, 0x01, 0x1b},
      {0x0f, 0x01, 0xf0},  // LGDT, LIDT, LMSW
      {0x0f, 0x06},
      {0x0f, 0x01, 0x3b},
      {0x66, 0x0f, 0x38, 0x82, 0x03},  // CLTS, INVLPG, INVPCID
      {0x0f, 0x08},
      {0x0f, 0x09},
      {0x0f, 0x35},  // INVD, WBINVD, SYSEXIT
  };
  const Bytes load_selector[] = {{0x0f, 0x00, 0xd0}, {0x0f, 0x00, 0xd8}};  // LLDT, LTR
  const Bytes store_table[] = {{0x0f, 0x01, 0x03}, {0x0f, 0x01, 0x0b}, {0x0f, 0x01, 0xe0}};
  const Bytes store_selector[] = {{0x0f, 0x00, 0xc0}, {0x0f, 0x00, 0xc8}};  // SLDT, STR
  const Bytes query[] = {{0x0f, 0x02, 0xc0},
                         {0x0f, 0x03, 0xc0},
                         {0x0f, 0x00, 0xe0},
                         {0x0f, 0x00, 0xe8},
                         {0x63, 0xc0}};  // LAR, LSL, VERR, VERW, ARPL
  Sim m;
  for (const unsigned cpl : {1u, 2u, 3u}) {
    m.Protected32(0);
    m.state().cpl = static_cast<u8>(cpl);
    m.state().gpr[kRbx] = 0x3000;
    for (const Bytes& bytes : privileged) CHECK(m.Refused(bytes) == GeneralProtection());
    for (const Bytes& bytes : load_selector) CHECK(m.Refused(bytes) == GeneralProtection());
  }
  m.LongMode(3);
  CHECK(m.Refused({0x0f, 0x01, 0xf8}) == GeneralProtection());        // SWAPGS
  CHECK(m.Refused({0x44, 0x0f, 0x20, 0xc0}) == GeneralProtection());  // MOV rax, CR8

  // UMIP forbids what only tells; SLDT and STR are #UD in virtual-8086 mode whatever it says.
  for (const bool umip : {false, true}) {
    for (const unsigned cpl : {0u, 3u}) {
      m.Protected32(cpl);
      m.state().cr4 = umip ? vcpu::kCr4Umip : 0;
      m.state().gpr[kRbx] = 0x3000;
      const auto runs = [&](const Bytes& bytes) {
        return umip && cpl != 0 ? m.Refused(bytes) == GeneralProtection() : m.Run(bytes).done();
      };
      for (const Bytes& bytes : store_table) CHECK(runs(bytes));
      for (const Bytes& bytes : store_selector) CHECK(runs(bytes));
      for (const Bytes& bytes : query) CHECK(m.Run(bytes).done());
    }
    m.state().system_flags |= kVm;
    for (const Bytes& bytes : store_selector) CHECK(m.Refused(bytes) == InvalidOpcode());
    for (const Bytes& bytes : load_selector) CHECK(m.Refused(bytes) == InvalidOpcode());
    for (const Bytes& bytes : query) CHECK(m.Refused(bytes) == InvalidOpcode());
  }
}

}  // namespace
}  // namespace alibi::simulator
