// SPDX-License-Identifier: Apache-2.0
// 16-bit code and data in the simulator: operand, address and stack sizes, segment bases and
// limits.
#include <catch2/catch.hpp>
#include <vector>

#include "isa/decoder.h"
#include "simulator/simulator.h"
#include "vcpu/test_machine.h"

namespace alibi::simulator {
namespace {

using namespace vcpu;  // the registers and flags

class NoPorts : public PortIo {
 public:
  u32 In(u16, unsigned) override { return 0x11223344; }
  void Out(u16, unsigned, u32 value) override { last = value; }
  u32 last = 0;
};

constexpr u64 kDsBase = 0x10000, kEsBase = 0x20000, kSsBase = 0x30000;

class Sim : public TestMachine {
 public:
  Sim() {
    RealMode();
    state().segment[kDs].base = kDsBase;
    state().segment[kEs].base = kEsBase;
    state().segment[kSs].base = kSsBase;
    for (SegmentIndex index : {kDs, kEs, kSs, kFs, kGs}) state().segment[index].limit = 0xffff;
    // What 16-bit code must not touch.
    for (u64& reg : state().gpr) reg = 0xabcd0000;
    state().gpr[kRsp] = 0xabcd6000;
  }

  Outcome Run(const std::vector<u8>& bytes) {
    std::vector<u8> padded(bytes);
    padded.resize(16);
    isa::Instr instr;
    REQUIRE(isa::Decode(padded.data(), 15, LinearAddr(state().rip), state().CodeBits(), &instr) ==
            isa::DecodeStatus::kOk);
    INFO(isa::Disassemble(instr));
    REQUIRE(instr.length == bytes.size());
    REQUIRE(CanSimulate(instr.op));
    SimulatorContext context{state(), memory, ports, platform, policy()};
    return Simulate(instr, context);
  }
  void Step(const std::vector<u8>& bytes) {
    const u64 next = state().rip + bytes.size();
    CHECK(Run(bytes).done());
    CHECK(state().rip == next);
  }
  u64& Gpr(unsigned reg) { return state().gpr[reg]; }

  NoPorts ports;
};

TEST_CASE("16-bit addresses wrap, segments have bases", "[simulator][16-bit]") {
  Sim m;
  m.Gpr(kRbx) = 0xabcdfff0;
  m.Gpr(kRsi) = 0xabcd0020;
  m.memory.Put<u16>(kDsBase + 0x10, 0x1234);
  m.Step({0x8b, 0x00});  // MOV AX, [BX+SI]
  CHECK(m.Gpr(kRax) == 0xabcd1234);
  m.Gpr(kRbp) = 0xabcd0004;
  m.memory.Put<u16>(kSsBase + 2, 0x5678);
  m.Step({0x8b, 0x4e, 0xfe});  // MOV CX, [BP-2]
  CHECK(m.Gpr(kRcx) == 0xabcd5678);
  m.memory.Put<u16>(kEsBase + 0xf234, 0x9abc);
  m.Step({0x26, 0xa1, 0x34, 0xf2});  // MOV AX, ES:[F234]
  CHECK(m.Gpr(kRax) == 0xabcd9abc);
  m.Step({0x8d, 0x42, 0xff});  // LEA AX, [BP+SI-1]
  CHECK(m.Gpr(kRax) == 0xabcd0023);
  m.Step({0x66, 0x8d, 0x00});  // LEA EAX, [BX+SI]: the address has 16 bits all the same
  CHECK(m.Gpr(kRax) == 0x10);
  m.Gpr(kRax) = 0xabcd00fe;
  m.Gpr(kRbx) = 0xabcdff10;
  m.memory.Put<u8>(kDsBase + 0xe, 0x77);
  m.Step({0xd7});  // XLAT wraps, too
  CHECK(m.Gpr(kRax) == 0xabcd0077);
  // An operand that begins inside and ends behind the limit.
  m.Gpr(kRbx) = 0xffff;
  CHECK(m.Run({0x8b, 0x07}).fault().vector == kGeneralProtection);
  m.Gpr(kRbp) = 0xffff;
  CHECK(m.Run({0x8b, 0x46, 0x00}).fault().vector == kStackFault);
  m.Step({0x8a, 0x07});  // a byte is inside
  // 32-bit addresses reach the limit.
  m.Gpr(kRbx) = 0x10000;
  CHECK(m.Run({0x67, 0x8b, 0x03}).fault().vector == kGeneralProtection);
}

TEST_CASE("Bit tests with 16-bit operands and addresses", "[simulator][16-bit]") {
  Sim m;
  m.Gpr(kRbx) = 0x0002;
  m.Gpr(kRax) = 0xabcdffdf;  // -33: bit 15 of the third word below
  m.memory.Put<u16>(kDsBase + 0xfffc, 0x8000);
  m.Step({0x0f, 0xa3, 0x07});  // BT [BX], AX
  CHECK((m.state().arithmetic_flags & kCf) != 0);
  m.Step({0x0f, 0xb3, 0x07});  // BTR
  CHECK(m.memory.Get<u16>(kDsBase + 0xfffc) == 0);
}

TEST_CASE("The stack pointer has 16 bits", "[simulator][16-bit]") {
  Sim m;
  m.Gpr(kRax) = 0xabcd1234;
  m.Step({0x50});  // PUSH AX
  CHECK(m.Gpr(kRsp) == 0xabcd5ffe);
  CHECK(m.memory.Get<u16>(kSsBase + 0x5ffe) == 0x1234);
  m.Step({0x66, 0x50});  // PUSH EAX
  CHECK(m.Gpr(kRsp) == 0xabcd5ffa);
  CHECK(m.memory.Get<u32>(kSsBase + 0x5ffa) == 0xabcd1234);
  m.Gpr(kRsp) = 0xabcd0000;
  m.Step({0x50});  // wraps
  CHECK(m.Gpr(kRsp) == 0xabcdfffe);
  CHECK(m.memory.Get<u16>(kSsBase + 0xfffe) == 0x1234);
  m.Step({0x5b});  // POP BX
  CHECK(m.Gpr(kRsp) == 0xabcd0000);
  CHECK(m.Gpr(kRbx) == 0xabcd1234);
  m.Gpr(kRsp) = 0xabcd0001;
  CHECK(m.Run({0x50}).fault().vector == kStackFault);  // at offset ffff
  m.Gpr(kRsp) = 0xabcd6000;
  m.Step({0x9c});
  CHECK(m.Gpr(kRsp) == 0xabcd5ffe);
  m.Step({0x60});  // PUSHA
  CHECK(m.Gpr(kRsp) == 0xabcd5fee);
  CHECK(m.memory.Get<u16>(kSsBase + 0x5ff4) == 0x5ffe);  // SP as it was
  m.Gpr(kRax) = 0;
  m.Step({0x61});
  CHECK(m.Gpr(kRax) == 0x1234);
  CHECK(m.Gpr(kRsp) == 0xabcd5ffe);
  m.Gpr(kRbp) = 0xabcd7000;
  m.Step({0xc8, 0x10, 0x00, 0x00});  // ENTER 16, 0
  CHECK(m.Gpr(kRsp) == 0xabcd5fec);
  CHECK(m.Gpr(kRbp) == 0xabcd5ffc);
  m.Step({0xc9});
  CHECK(m.Gpr(kRbp) == 0xabcd7000);
  CHECK(m.Gpr(kRsp) == 0xabcd5ffe);
}

TEST_CASE("Near transfers of 16-bit code", "[simulator][16-bit]") {
  Sim m;
  m.state().rip = 0xfff0;
  REQUIRE(m.Run({0xeb, 0x20}).done());
  CHECK(m.state().rip == 0x12);
  REQUIRE(m.Run({0xe8, 0x00, 0x10}).done());
  CHECK(m.state().rip == 0x1015);
  CHECK(m.memory.Get<u16>(kSsBase + 0x5ffe) == 0x15);
  REQUIRE(m.Run({0xc3}).done());
  CHECK(m.state().rip == 0x15);
  CHECK(m.Gpr(kRsp) == 0xabcd6000);
  // A 32-bit target is behind the limit.
  m.state().rip = 0xfff0;
  CHECK(m.Run({0x66, 0xeb, 0x20}).fault().vector == kGeneralProtection);
  m.state().rip = 0x100;
  m.Gpr(kRcx) = 0xabcd0001;
  m.Step({0xe2, 0x10});  // LOOP
  CHECK(m.Gpr(kRcx) == 0xabcd0000);
  REQUIRE(m.Run({0xe3, 0x10}).done());  // JCXZ
  CHECK(m.state().rip == 0x114);
  m.Step({0x67, 0xe3, 0x10});  // JECXZ
  m.Gpr(kRax) = 0xabcd2000;
  REQUIRE(m.Run({0xff, 0xe0}).done());  // JMP AX
  CHECK(m.state().rip == 0x2000);
}

TEST_CASE("Strings with 16-bit registers", "[simulator][16-bit]") {
  Sim m;
  for (unsigned i = 0; i < 64; ++i) {
    m.memory.Put<u8>(kDsBase + 0xffe0 + i % 32, static_cast<u8>(i));
    m.memory.Put<u8>(kDsBase + i, static_cast<u8>(0x40 + i));
  }
  m.Gpr(kRcx) = 0xabcd0010;
  m.Gpr(kRsi) = 0xabcdfff0;  // wraps on the way
  m.Gpr(kRdi) = 0xabcdfff8;
  m.Step({0xf3, 0xa5});  // REP MOVSW
  CHECK(m.Gpr(kRcx) == 0xabcd0000);
  CHECK(m.Gpr(kRsi) == 0xabcd0010);
  CHECK(m.Gpr(kRdi) == 0xabcd0018);
  CHECK(m.memory.Get<u8>(kEsBase + 0xfff8) == 0x30);
  CHECK(m.memory.Get<u8>(kEsBase + 0x0000) == 0x38);
  CHECK(m.memory.Get<u8>(kEsBase + 0x0008) == 0x40);
  CHECK(m.memory.Get<u8>(kEsBase + 0x0017) == 0x4f);

  m.Gpr(kRcx) = 0xabcd0003;
  m.Gpr(kRdi) = 0xabcd0002;
  m.Gpr(kRax) = 0xabcdbeef;
  m.state().df_flag = 1;
  m.Step({0xf3, 0xab});  // STOSW downwards, past zero
  CHECK(m.Gpr(kRdi) == 0xabcdfffc);
  CHECK(m.memory.Get<u16>(kEsBase + 2) == 0xbeef);
  CHECK(m.memory.Get<u16>(kEsBase + 0) == 0xbeef);
  CHECK(m.memory.Get<u16>(kEsBase + 0xfffe) == 0xbeef);
  m.state().df_flag = 0;

  // A word at offset ffff is behind the limit, the words before it are done.
  m.Gpr(kRcx) = 0xabcd0004;
  m.Gpr(kRdi) = 0xabcdfffb;
  CHECK(m.Run({0xf3, 0xab}).fault().vector == kGeneralProtection);
  CHECK(m.Gpr(kRcx) == 0xabcd0002);
  CHECK(m.Gpr(kRdi) == 0xabcdffff);

  // 32-bit registers by prefix; the counter is ECX then.
  m.Gpr(kRcx) = 2;
  m.Gpr(kRsi) = 0x10;
  m.Gpr(kRdi) = 0x30;
  m.Step({0xf3, 0x67, 0x66, 0xa5});
  CHECK(m.Gpr(kRsi) == 0x18);
  CHECK(m.memory.Get<u32>(kEsBase + 0x30) == 0x53525150);
  m.Gpr(kRcx) = 0x10000;  // CX is zero
  m.Step({0xf3, 0xa4});
  CHECK(m.Gpr(kRcx) == 0x10000);

  // An override moves the source only.
  m.Gpr(kRsi) = 0x100;
  m.memory.Put<u8>(kSsBase + 0x100, 0x99);
  m.Step({0x36, 0xac});  // LODSB SS:
  CHECK((m.Gpr(kRax) & 0xff) == 0x99);
  m.Gpr(kRdi) = 0xabcd0200;
  m.Step({0x36, 0xaa});  // STOSB: ES all the same
  CHECK(m.memory.Get<u8>(kEsBase + 0x200) == 0x99);
  m.Step({0x6d});  // INSW
  CHECK(m.memory.Get<u16>(kEsBase + 0x201) == 0x3344);
  m.Gpr(kRsi) = 0xabcd0100;
  m.memory.Put<u16>(kDsBase + 0x100, 0x4242);
  m.Step({0x6f});
  CHECK(m.ports.last == 0x4242);
}

TEST_CASE("Near branches of 64-bit code with 16-bit targets", "[simulator]") {
  Sim m;
  m.LongMode();
  u64* r = m.state().gpr;
  isa::Instr instr;
  const u8 jump[] = {0x66, 0xeb, 0x10};
  REQUIRE(isa::Decode(jump, 3, LinearAddr(0), 64, &instr) == isa::DecodeStatus::kOk);
  if (instr.operand_bits != 16) return;  // this CPU's ignore the prefix
  m.state().rip = 0x401000;
  REQUIRE(m.Run({0x66, 0xe8, 0x10, 0x00}).done());
  CHECK(m.state().rip == 0x1014);
  CHECK(r[kRsp] == kKernelStack - 2);
  CHECK(m.memory.Get<u16>(r[kRsp]) == 0x1004);
  REQUIRE(m.Run({0x66, 0xc3}).done());
  CHECK(m.state().rip == 0x1004);
  CHECK(r[kRsp] == kKernelStack);
  m.state().rip = 0x401000;
  r[kRax] = 0x12345678;
  REQUIRE(m.Run({0x66, 0xff, 0xe0}).done());
  CHECK(m.state().rip == 0x5678);
  m.state().rip = 0x401000;
  m.state().SetRflags(0);
  m.Step({0x66, 0x74, 0x10});  // not taken: RIP keeps its width
}

}  // namespace
}  // namespace alibi::simulator
