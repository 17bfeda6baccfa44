// SPDX-License-Identifier: Apache-2.0
// What an encoding means depends on the code's size: 16-bit code and addresses, and operand-size
// prefixes on near branches of 64-bit code.
#include <cpuid.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "isa/decoder.h"
#include "vcpu/state.h"

namespace alibi::isa {
namespace {

using vcpu::kCs, vcpu::kDs, vcpu::kEs, vcpu::kSs;
using vcpu::kRax, vcpu::kRbp, vcpu::kRbx, vcpu::kRdi, vcpu::kRsi, vcpu::kRsp;

std::vector<u8> Bytes(const std::string& hex) {
  std::vector<u8> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes.push_back(static_cast<u8>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Instr D(const std::string& hex, unsigned code_bits = 16, LinearAddr pc = LinearAddr(0x1000)) {
  const std::vector<u8> bytes = Bytes(hex);
  Instr instr;
  INFO(hex);
  REQUIRE(Decode(bytes.data(), static_cast<unsigned>(bytes.size()), pc, code_bits, &instr) ==
          DecodeStatus::kOk);
  REQUIRE(instr.length == bytes.size());
  return instr;
}

bool HostIsAmd() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  REQUIRE(__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0);
  return ebx == signature_AMD_ebx || ebx == 0x6f677948;
}

TEST_CASE("16-bit addresses: registers, displacement, default segment", "[decoder]") {
  struct Row {
    const char* hex;
    unsigned bits;
    u8 base, index;
    i64 disp;
    u8 segment;
  };
  for (const Row& row : {
           Row{"8b 00", 16, kRbx, kRsi, 0, kDs},
           {"8b 01", 16, kRbx, kRdi, 0, kDs},
           {"8b 02", 16, kRbp, kRsi, 0, kSs},
           {"8b 03", 16, kRbp, kRdi, 0, kSs},
           {"8b 04", 16, kRsi, kNoReg, 0, kDs},
           {"8b 05", 16, kRdi, kNoReg, 0, kDs},
           {"8b 06 34 12", 16, kNoReg, kNoReg, 0x1234, kDs},
           {"8b 07", 16, kRbx, kNoReg, 0, kDs},
           {"8b 46 fe", 16, kRbp, kNoReg, -2, kSs},
           {"8b 82 00 f0", 16, kRbp, kRsi, -0x1000, kSs},
           {"3e 8b 46 00", 16, kRbp, kNoReg, 0, kDs},
           {"2e 8b 46 00", 16, kRbp, kNoReg, 0, kCs},
           {"36 8b 00", 16, kRbx, kRsi, 0, kSs},
           {"26 a1 34 12", 16, kNoReg, kNoReg, 0x1234, kEs},
           {"67 8b 00", 32, kRbx, kRsi, 0, kDs},  // the prefix in 32-bit code
           {"67 8b 46 00", 32, kRbp, kNoReg, 0, kSs},
           {"67 a1 34 12", 32, kNoReg, kNoReg, 0x1234, kDs},
       }) {
    const MemOperand mem = D(row.hex, row.bits).mem;
    INFO(row.hex);
    CHECK(mem.present);
    CHECK(mem.base == row.base);
    CHECK(mem.index == row.index);
    CHECK(mem.disp == row.disp);
    CHECK(mem.segment == row.segment);
    CHECK(mem.stack_segment == (row.segment == kSs));
    CHECK(mem.address_bits == 16);
    CHECK(mem.scale == 1);
  }
  // All of 64 KB can be named, whatever the sign of the displacement.
  CHECK((D("8b 06 34 f2").mem.disp & 0xffff) == 0xf234);
  CHECK(D("67 8b 44 8c 10").mem.address_bits == 32);
  CHECK(D("67 8b 04 24").mem.segment == kSs);
  CHECK(D("67 8b 44 8c 10").mem.base == kRsp);
}

TEST_CASE("16-bit code: operand sizes and what the prefix makes of them", "[decoder]") {
  struct Row {
    const char* hex;
    unsigned operand_bits, memory_size;
  };
  for (const Row& row : {
           Row{"8b 00", 16, 2},
           {"66 8b 00", 32, 4},
           {"8a 00", 8, 1},
           {"50", 16, 0},
           {"66 50", 32, 0},
           {"ff 30", 16, 2},
           {"66 ff 30", 32, 4},
           {"9c", 16, 0},
           {"66 9d", 32, 0},
           {"60", 16, 0},
           {"66 61", 32, 0},
           {"c9", 16, 0},
           {"66 c8 10 00 01", 32, 0},
           {"06", 16, 0},
           {"66 1f", 32, 0},
           {"cf", 16, 0},
           {"66 cf", 32, 0},
           {"c3", 16, 0},
           {"66 c3", 32, 0},
           {"cb", 16, 0},
           {"c4 00", 16, 4},  // LES
           {"66 c5 00", 32, 6},
           {"62 00", 16, 4},  // BOUND
           {"66 62 00", 32, 8},
           {"ff 18", 16, 4},  // CALL far
           {"66 ff 28", 32, 6},
           {"ff 20", 16, 2},
           {"66 ff 20", 32, 4},
           {"d9 30", 16, 14},  // FNSTENV
           {"66 d9 30", 32, 28},
           {"dd 30", 16, 94},
           {"f3 a5", 16, 0},
           {"66 ab", 32, 0},
           {"6d", 16, 0},
           {"66 6f", 32, 0},
           {"e5 10", 16, 0},
           {"66 ed", 32, 0},
           {"0f 01 10", 16, 6},  // LGDT: six bytes with either operand size
           {"66 0f 01 18", 32, 6},
           {"0f c7 08", 32, 8},  // CMPXCHG8B
           {"0f 38 f0 00", 16, 2},
       }) {
    const Instr instr = D(row.hex);
    INFO(row.hex << " " << Disassemble(instr));
    CHECK(instr.operand_bits == row.operand_bits);
    CHECK(instr.mem.size == row.memory_size);
  }
}

TEST_CASE("16-bit code: immediates and branch targets", "[decoder]") {
  CHECK(D("6a ff").immediate == 0xffff);
  CHECK(D("66 6a ff").immediate == 0xffffffff);
  CHECK(D("83 c0 ff").immediate == 0xffff);
  CHECK(D("69 c0 ff ff").immediate == 0xffff);
  CHECK(D("c7 06 00 10 cd ab").immediate == 0xabcd);
  CHECK(D("c2 f0 ff").immediate == 0xfff0);
  const Instr far = D("ea 34 12 00 f0");
  CHECK((far.immediate == 0x1234 && far.immediate2 == 0xf000));
  const Instr wide = D("66 ea 78 56 34 12 00 f0");
  CHECK((wide.immediate == 0x12345678 && wide.immediate2 == 0xf000));
  CHECK((D("c8 10 00 02").immediate == 0x10 && D("c8 10 00 02").immediate2 == 2));

  CHECK(D("eb fe").branch_target.value == 0x1000);
  CHECK(D("e9 fd ef").branch_target.value == 0);
  CHECK(D("eb 10", 16, LinearAddr(0xfff8)).branch_target.value == 0xa);  // wraps at 64 KB
  CHECK(D("66 eb 10", 16, LinearAddr(0xfff8)).branch_target.value == 0x1000b);
  CHECK(D("66 e9 00 00 00 f0").branch_target.value == 0xf0001006);
  CHECK(D("0f 84 00 80").branch_target.value == 0x9004);
  CHECK(D("e2 fe").branch_target.value == 0x1000);
  CHECK(D("66 eb 10", 32, LinearAddr(0x1fff8)).branch_target.value ==
        0xb);  // a 16-bit target in 32-bit code
}

TEST_CASE("16-bit code: counters and indices follow the address size", "[decoder]") {
  CHECK(D("e2 fe").address_bits == 16);
  CHECK(D("67 e2 fe").address_bits == 32);
  CHECK(D("66 e2 fe").address_bits == 16);
  CHECK(D("e3 fe").address_bits == 16);
  CHECK(D("67 e3 fe").address_bits == 32);
  CHECK(D("f3 67 a5").address_bits == 32);
  CHECK(D("f3 a5").address_bits == 16);
  CHECK(D("d7").address_bits == 16);
  CHECK(D("67 0f f7 c1").address_bits == 32);
  CHECK(D("67 e2 fe", 32).address_bits == 16);
}

TEST_CASE("16-bit code has no REX, and VEX and EVEX with a register only", "[decoder]") {
  CHECK(MnemonicName(D("40").mnemonic) == std::string("INC"));
  CHECK(D("40").gprs[0].bits == 16);
  CHECK(D("48").gprs[0].slot == RegSlot::kOpcode);
  CHECK(D("c5 f8 58 c1").encoding == Encoding::kVex);
  CHECK(D("c4 e2 79 18 00").mem.address_bits == 16);  // VBROADCASTSS
  CHECK(D("62 f1 7c 48 58 c1").encoding == Encoding::kEvex);
  CHECK(D("c5 00").op == Op::kLds);
  CHECK(D("62 00").op == Op::kBound);
  // A vector of indices needs a SIB byte, and 16-bit addresses have none.
  Instr instr;
  const std::vector<u8> gather = Bytes("c4 e2 69 92 04 08");
  CHECK(Decode(gather.data(), 6, {}, 16, &instr) == DecodeStatus::kUndefined);
  CHECK(D("67 c4 e2 69 92 04 08").op == Op::kGather);
}

TEST_CASE("VPEXTRD and VPINSRD with VEX.W in 32-bit code: as this vendor has it", "[decoder]") {
  for (const char* hex : {"c4 e3 f9 16 00 00", "c4 e3 f9 16 c0 00", "c4 e3 f9 22 c0 01"}) {
    const std::vector<u8> bytes = Bytes(hex);
    Instr instr;
    const DecodeStatus status = Decode(bytes.data(), 6, {}, 32, &instr);
    CHECK(status == (HostIsAmd() ? DecodeStatus::kUndefined : DecodeStatus::kOk));
    CHECK(Decode(bytes.data(), 6, {}, 64, &instr) == DecodeStatus::kOk);
  }
  CHECK(D("c4 e3 79 16 00 00", 32).mem.size == 4);
  CHECK(D("62 f3 fd 08 16 00 00", 32).mem.size == 4);  // EVEX
}

TEST_CASE("Near branches with an operand-size prefix, 64-bit code", "[decoder]") {
  const bool amd = HostIsAmd();
  const LinearAddr pc(0x12345678);
  for (const char* hex : {"66 eb 10", "66 75 10", "66 e2 10", "66 67 e3 10", "66 c3", "66 ff d0",
                          "66 ff e0", "66 ff 13", "66 ff 23"}) {
    const Instr instr = D(hex, 64, pc);
    INFO(Disassemble(instr));
    CHECK(instr.operand_bits == (amd ? 16 : 64));
    CHECK(instr.treatment == (amd ? Treatment::kTerminator : Treatment::kControl));
    if (instr.mem.present) CHECK(instr.mem.size == (amd ? 2 : 8));
    if (instr.gpr_count != 0) CHECK(instr.gprs[0].bits == (amd ? 16 : 64));
    if (amd) CHECK(instr.branch_target.value <= 0xffff);
  }
  CHECK(D("66 eb 10", 64, pc).branch_target.value == (amd ? 0x568b : 0x1234568b));
  CHECK(D("66 48 eb 10", 64, pc).operand_bits == 64);
  CHECK(D("66 48 eb 10", 64, pc).treatment == Treatment::kControl);
  if (amd) {
    CHECK(D("66 e8 10 00", 64, pc).branch_target.value == 0x568c);
    CHECK(D("66 0f 85 10 00", 64, pc).op == Op::kJcc);
  } else {
    CHECK(D("66 e8 10 00 00 00", 64, pc).branch_target.value == 0x1234568e);
  }
}

TEST_CASE("W of FP16's conversions is ignored outside 64-bit code", "[decoder]") {
  const Instr wide = D("62 f5 fe 08 2a c0", 32), narrow = D("62 f5 7e 08 2a c0", 32);
  CHECK(wide.mnemonic == narrow.mnemonic);
  CHECK(wide.feature == Feature::kAvx512Fp16);
  CHECK(wide.gprs[0].bits == 32);
  CHECK(wide.bytes[2] == 0xfe);  // as the guest has it
  const Instr memory = D("67 62 f5 fe 08 7b 44 02 01", 16);
  CHECK(memory.mem.size == 4);
  CHECK(memory.bytes[3] == 0xfe);
  CHECK(D("62 f5 fe 08 2a c0", 64).gprs[0].bits == 64);
}

TEST_CASE("What CPUID does not show is #UD", "[decoder]") {
  FeatureSet none;
  for (unsigned i = 1; i < static_cast<unsigned>(Feature::kCount); ++i) {
    none.Hide(static_cast<Feature>(i));
  }
  struct Row {
    const char* hex;
    Feature feature;
  };
  for (const Row& row : {
           Row{"0f 38 f0 03", Feature::kMovbe},
           {"66 0f 38 dc c1", Feature::kAes},
           {"66 0f 3a 44 c1 00", Feature::kPclmulqdq},
           {"0f 38 c8 c1", Feature::kSha},
           {"66 0f 38 f6 c1", Feature::kAdx},
           {"0f c7 f0", Feature::kRdrand},
           {"c4 e2 60 f2 c1", Feature::kBmi1},
           {"c4 e2 fb f5 c1", Feature::kBmi2},
           {"0f ae 23", Feature::kXsave},
           {"0f c7 23", Feature::kXsavec},
           {"c5 f8 58 c1", Feature::kAvx},
           {"c4 e2 71 98 c2", Feature::kFma},
           {"62 f1 7c 48 58 c1", Feature::kAvx512f},
           {"62 f5 7c 48 58 c1", Feature::kAvx512Fp16},
           {"66 0f 38 82 03", Feature::kInvpcid},
           {"0f 01 ca", Feature::kSmap},
           {"f3 0f b8 c1", Feature::kPopcnt},
       }) {
    Instr instr = D(row.hex, 64);
    INFO(Disassemble(instr));
    CHECK(instr.feature == row.feature);
    FeatureSet all;
    HideUnlessShown(all, &instr);
    CHECK(instr.treatment != Treatment::kUndefined);
    HideUnlessShown(none, &instr);
    CHECK(instr.treatment == Treatment::kUndefined);
    CHECK(instr.op == Op::kUd);
  }
  // On every CPU, or NOPs where they are not what they could be.
  for (const char* hex : {"90", "01 c0", "d9 e8", "f3 0f 1e fa", "f3 48 0f 1e c8", "0f 1a 03",
                          "0f 1c 00", "0f 0d 0b", "f3 90", "0f a2"}) {
    Instr instr = D(hex, 64);
    INFO(Disassemble(instr));
    HideUnlessShown(none, &instr);
    CHECK(instr.treatment != Treatment::kUndefined);
  }
  Instr lzcnt = D("f3 66 0f bd c1", 64), tzcnt = D("67 f3 0f bc 03", 32);
  HideUnlessShown(none, &lzcnt);
  HideUnlessShown(none, &tzcnt);
  CHECK(MnemonicName(lzcnt.mnemonic) == std::string("BSR"));
  CHECK(MnemonicName(tzcnt.mnemonic) == std::string("BSF"));
  CHECK((tzcnt.mem.address_bits == 16 && tzcnt.length == 5));
}

}  // namespace
}  // namespace alibi::isa
