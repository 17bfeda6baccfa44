// SPDX-License-Identifier: Apache-2.0
#include "isa/decoder.h"

#include <Zydis/Zydis.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "vcpu/state.h"

namespace alibi::isa {
namespace {

std::vector<u8> Bytes(const std::string& hex) {
  std::vector<u8> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes.push_back(static_cast<u8>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

DecodeStatus StatusOf(const std::string& hex, unsigned code_bits, Instr* out) {
  std::vector<u8> bytes = Bytes(hex);
  return Decode(bytes.data(), static_cast<unsigned>(bytes.size()), LinearAddr(0x1000), code_bits,
                out);
}

Instr D(const std::string& hex, unsigned code_bits = 64) {
  Instr instr;
  DecodeStatus status = StatusOf(hex, code_bits, &instr);
  INFO(hex << ": " << Disassemble(instr));
  REQUIRE((status == DecodeStatus::kOk || status == DecodeStatus::kUndefined));
  return instr;
}

constexpr u32 kAll = static_cast<u32>(vcpu::kArithmeticFlags);
constexpr u32 kCf = static_cast<u32>(vcpu::kCf), kZf = static_cast<u32>(vcpu::kZf);

TEST_CASE("Status: complete, cut short, too long, undefined", "[decoder]") {
  Instr instr;
  CHECK(StatusOf("48 8b 03", 64, &instr) == DecodeStatus::kOk);
  CHECK(instr.length == 3);
  CHECK(StatusOf("48 8b", 64, &instr) == DecodeStatus::kNeedMoreBytes);
  CHECK(StatusOf("", 64, &instr) == DecodeStatus::kNeedMoreBytes);
  CHECK(StatusOf("66 66 66 66 66 66 66 66 66 66 66 66 66 66 90", 64, &instr) == DecodeStatus::kOk);
  CHECK(instr.length == 15);
  CHECK(StatusOf("66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 90", 64, &instr) ==
        DecodeStatus::kTooLong);
  CHECK(StatusOf("66 66 66 66 66 66 66 66 66 66 66 66 81 00 00 00 00", 64, &instr) ==
        DecodeStatus::kTooLong);
  for (const char* undefined : {"0f 0b", "0f ff c0", "06", "f0 90", "f0 8b 03", "0f 20 c8", "8e c8",
                                "c4 e2 7d 90 04 08", "62 00 00 00 00 00"}) {
    INFO(undefined);
    CHECK(StatusOf(undefined, 64, &instr) == DecodeStatus::kUndefined);
    CHECK(instr.treatment == Treatment::kUndefined);
    CHECK(instr.op == Op::kUd);
    CHECK(instr.length >= 1);
  }
}

TEST_CASE("Layout: the byte positions of every part", "[decoder]") {
  Layout layout = D("66 48 81 84 8b 11 22 33 44 78 56 34 12").layout;
  CHECK(layout.rex == 1);
  CHECK(layout.opcode == 2);
  CHECK(layout.modrm == 3);
  CHECK(layout.sib == 4);
  CHECK((layout.disp == 5 && layout.disp_size == 4));
  CHECK((layout.imm == 9 && layout.imm_size == 4));
  layout = D("48 66 8b 03").layout;  // a REX that is not the last prefix is none
  CHECK(layout.rex == 0xff);
  layout = D("0f c8").layout;
  CHECK((layout.opcode == 1 && layout.modrm == 0xff));
  layout = D("48 b8 01 02 03 04 05 06 07 08").layout;
  CHECK((layout.opcode == 1 && layout.imm == 2 && layout.imm_size == 8));
  layout = D("c8 01 00 02").layout;
  CHECK((layout.imm == 1 && layout.imm_size == 3));
  Instr vex = D("67 c5 f9 6f 03");
  CHECK(vex.encoding == Encoding::kVex);
  CHECK((vex.layout.vector_prefix == 1 && vex.layout.opcode == 3 && vex.layout.modrm == 4));
  Instr evex = D("62 f1 7c 49 58 40 01");
  CHECK(evex.encoding == Encoding::kEvex);
  CHECK((evex.layout.vector_prefix == 0 && evex.layout.opcode == 4 && evex.layout.disp_size == 1));
}

TEST_CASE("Memory operands: parts, segment, access", "[decoder]") {
  MemOperand mem = D("8b 44 8b 10").mem;  // MOV eax, [rbx + rcx*4 + 16]
  CHECK((mem.present && mem.read && !mem.written && mem.size == 4));
  CHECK((mem.base == 3 && mem.index == 1 && mem.scale == 4 && mem.disp == 16));
  CHECK((mem.segment == vcpu::kDs && !mem.stack_segment && mem.address_bits == 64));

  mem = D("f0 0f b1 0c 24").mem;  // LOCK CMPXCHG [rsp], ecx
  CHECK((mem.read && mem.written && mem.stack_segment && mem.segment == vcpu::kSs));
  CHECK(D("8b 45 00").mem.stack_segment);
  CHECK_FALSE(D("8b 04 2b").mem.stack_segment);     // rbp as index
  CHECK_FALSE(D("41 8b 45 00").mem.stack_segment);  // r13
  // 64-bit mode ignores the four other overrides, also after FS.
  CHECK(D("36 8b 03").mem.segment == vcpu::kDs);
  CHECK(D("3e 8b 45 00").mem.segment == vcpu::kSs);
  CHECK(D("64 3e 8b 03").mem.segment == vcpu::kFs);
  CHECK_FALSE(D("64 8b 04 24").mem.stack_segment);
  CHECK(D("36 8b 03", 32).mem.stack_segment);
  CHECK(D("3e 8b 45 00", 32).mem.segment == vcpu::kDs);
  CHECK(D("64 26 8b 03", 32).mem.segment == vcpu::kEs);

  mem = D("8b 05 f8 ff ff ff").mem;
  CHECK((mem.rip_relative && mem.base == kNoReg && mem.disp == -8));
  CHECK(D("67 8b 05 00 00 00 00").mem.address_bits == 32);
  mem = D("8b 40 fe", 16).mem;  // [bx + si - 2]
  CHECK((mem.base == 3 && mem.index == 6 && mem.scale == 1 && mem.disp == -2));
  CHECK(mem.address_bits == 16);
  mem = D("48 a1 88 77 66 55 44 33 22 11").mem;
  CHECK((mem.base == kNoReg && mem.disp == 0x1122334455667788 && mem.size == 8));
  CHECK(D("c7 03 01 00 00 00").mem.written);
  CHECK_FALSE(D("c7 03 01 00 00 00").mem.read);
  CHECK_FALSE(D("39 03").mem.written);  // CMP
  CHECK_FALSE(D("a4").mem.present);     // hidden operands are the simulator's
  CHECK_FALSE(D("50").mem.present);
  CHECK(D("ff 33").mem.present);  // PUSH [rbx]
  CHECK(D("c4 e2 e9 92 04 08").mem.vsib);
}

TEST_CASE("Sizes of memory operands", "[decoder]") {
  struct Row {
    const char* hex;
    unsigned bits;
    unsigned size;
  };
  for (const Row& row : {
           Row{"8a 03", 64, 1},
           {"66 8b 03", 64, 2},
           {"8b 03", 16, 2},
           {"66 8b 03", 16, 4},
           {"48 8d 03", 64, 0},     // LEA
           {"0f 18 03", 64, 0},     // PREFETCHNTA
           {"0f 0d 0b", 64, 0},     // PREFETCHW
           {"0f ae 3b", 64, 1},     // CLFLUSH
           {"66 0f ae 33", 64, 1},  // CLWB
           {"0f 01 3b", 64, 0},     // INVLPG
           {"db 2b", 64, 10},       // FLD m80
           {"df 23", 64, 10},       // FBLD
           {"d9 33", 64, 28},       // FNSTENV
           {"66 d9 33", 64, 14},
           {"d9 33", 16, 14},
           {"dd 33", 64, 108},  // FNSAVE
           {"66 dd 33", 64, 94},
           {"0f ae 03", 64, 512},     // FXSAVE
           {"48 0f ae 0b", 64, 512},  // FXRSTOR64
           {"0f ae 1b", 64, 4},       // STMXCSR
           {"d9 2b", 64, 2},          // FLDCW
           {"0f c7 0b", 64, 8},       // CMPXCHG8B
           {"48 0f c7 0b", 64, 16},   // CMPXCHG16B
           {"0f 01 13", 64, 10},      // LGDT
           {"0f 01 13", 32, 6},
           {"66 0f 38 82 03", 64, 16},     // INVPCID
           {"c5 fd 6f 03", 64, 32},        // VMOVDQA ymm
           {"c5 fa 10 03", 64, 4},         // VMOVSS
           {"62 f1 7c 49 58 03", 64, 64},  // VADDPS zmm {k1}
           {"62 f1 7c 58 58 03", 64, 4},   // {1to16}
           {"62 f1 fd 58 58 03", 64, 8},   // VADDPD {1to8}
           {"0f c4 03 01", 64, 2},         // PINSRW
           {"66 0f 3a 14 03 01", 64, 1},   // PEXTRB
           {"0f 12 03", 64, 8},            // MOVLPS
           {"66 0f 38 20 03", 64, 8},      // PMOVSXBW
           {"66 0f 38 22 03", 64, 2},      // PMOVSXBQ
           {"0f b6 03", 64, 1},            // MOVZX
           {"48 63 03", 64, 4},            // MOVSXD
           {"0f 38 f0 03", 64, 4},         // MOVBE
           {"ff 23", 64, 8},               // JMP [rbx]
           {"ff 2b", 64, 6},               // JMP far
           {"c5 03", 32, 6},               // LDS
       }) {
    Instr instr = D(row.hex, row.bits);
    INFO(Disassemble(instr));
    CHECK(instr.mem.present);
    CHECK(instr.mem.size == row.size);
    if (row.size == 0) CHECK_FALSE((instr.mem.read || instr.mem.written));
  }
  u16 area = D("0f ae 23").mem.size;  // XSAVE: as large as the host's
  CHECK((area >= 576 && area <= vcpu::kXsaveAreaSize));
}

TEST_CASE("GPR operands: slot, width, access", "[decoder]") {
  Instr add = D("4d 01 d8");  // ADD r8, r11
  REQUIRE(add.gpr_count == 2);
  CHECK((add.gprs[0].slot == RegSlot::kModRmRm && add.gprs[0].reg == 8 && add.gprs[0].bits == 64));
  CHECK((add.gprs[0].read && add.gprs[0].written));
  CHECK((add.gprs[1].slot == RegSlot::kModRmReg && add.gprs[1].reg == 11 && add.gprs[1].read));
  CHECK_FALSE(add.gprs[1].written);

  CHECK_FALSE(D("8b c3").gprs[0].read);  // 32-bit writes are whole writes
  CHECK(D("66 8b c3").gprs[0].read);     // 16-bit ones are not
  CHECK(D("0f 94 c0").gprs[0].read);     // SETZ al
  CHECK(D("0f 44 c3").gprs[0].read);     // CMOVZ may keep it
  CHECK(D("0f 44 c3").gprs[0].written);
  CHECK(D("0f bc c3").gprs[0].written);  // BSF

  GprUse ah = D("88 e3").gprs[1];  // MOV bl, ah
  CHECK((ah.high_byte && ah.reg == 0 && ah.bits == 8));
  GprUse spl = D("40 88 e3").gprs[1];  // MOV bl, spl
  CHECK((!spl.high_byte && spl.reg == 4));

  Instr andn = D("c4 e2 60 f2 c1");  // ANDN eax, ebx, ecx
  REQUIRE(andn.gpr_count == 3);
  CHECK((andn.gprs[1].slot == RegSlot::kVvvv && andn.gprs[1].reg == 3));
  Instr bswap = D("41 0f cb");
  CHECK((bswap.gprs[0].slot == RegSlot::kOpcode && bswap.gprs[0].reg == 11));
  CHECK(D("0f 1f 44 00 00").gpr_count == 0);  // NOP
  CHECK_FALSE(D("0f 1f 44 00 00").mem.present);
}

TEST_CASE("Hidden GPRs", "[decoder]") {
  auto bits = [](std::initializer_list<int> regs) {
    unsigned mask = 0;
    for (int reg : regs) mask |= 1u << reg;
    return mask;
  };
  Instr mul = D("f7 e1");
  CHECK(mul.implicit_gprs_read == bits({0}));
  CHECK(mul.implicit_gprs_written == bits({0, 2}));
  Instr shl = D("d3 e3");
  CHECK(shl.implicit_gprs_read == bits({1}));
  CHECK(D("04 05").implicit_gprs_written == bits({0}));
  CHECK(D("f3 48 a5").implicit_gprs_read == bits({1, 6, 7}));
  CHECK(D("66 0f f7 c1").implicit_gprs_read == bits({7}));  // MASKMOVDQU
  CHECK(D("d7").implicit_gprs_read == bits({0, 3}));        // XLAT
  CHECK(D("50").implicit_gprs_written == bits({4}));
  CHECK(D("48 0f c7 0b").implicit_gprs_read == bits({0, 1, 2, 3}));
  CHECK(D("0f 05").implicit_gprs_written == bits({1, 11}));
  CHECK(D("c4 e2 f3 f6 c1").implicit_gprs_read == bits({2}));  // MULX
}

TEST_CASE("Flags: read, written, maybe written", "[decoder]") {
  CHECK(D("01 d8").flags_written == kAll);
  CHECK(D("01 d8").flags_read == 0);
  CHECK(D("11 d8").flags_read == kCf);
  CHECK(D("ff c0").flags_written == (kAll & ~kCf));
  CHECK(D("89 d8").flags_written == 0);
  CHECK(D("21 d8").flags_written == kAll);  // AF is undefined
  CHECK(D("75 00").flags_read == kZf);
  CHECK(D("0f 94 c0").flags_read == kZf);
  CHECK(D("9e").flags_written == (kAll & ~static_cast<u32>(vcpu::kOf)));  // SAHF
  CHECK(D("9c").flags_read == kAll);
  CHECK(D("f5").flags_read == kCf);
  CHECK(D("0f bc c3").flags_written == kAll);

  CHECK_FALSE(D("01 d8").flags_written_maybe);
  CHECK(D("d3 e0").flags_written_maybe);        // SHL eax, cl
  CHECK(D("0f a5 d8").flags_written_maybe);     // SHLD eax, ebx, cl
  CHECK_FALSE(D("d1 e0").flags_written_maybe);  // SHL eax, 1
  CHECK_FALSE(D("c1 e0 05").flags_written_maybe);
  CHECK(D("c1 e0 05").flags_written == kAll);
  CHECK(D("c1 e0 20").flags_written == 0);  // a count of zero
  CHECK(D("48 c1 e0 20").flags_written == kAll);
  CHECK(D("48 c1 e0 40").flags_written == 0);
  CHECK(D("0f a4 d8 00").flags_written == 0);
  CHECK(D("f3 a6").flags_written_maybe);  // REPE CMPSB
  CHECK_FALSE(D("a6").flags_written_maybe);
  CHECK(D("c4 e2 61 f7 c1").flags_written == 0);  // SHLX
}

TEST_CASE("Immediates and branch targets", "[decoder]") {
  CHECK(D("83 c8 ff").immediate == 0xffffffff);
  CHECK(D("66 83 c8 ff").immediate == 0xffff);
  CHECK(D("48 83 c8 ff").immediate == ~u64{0});
  CHECK(D("6a ff").immediate == ~u64{0});
  CHECK(D("6a ff", 32).immediate == 0xffffffff);
  CHECK(D("48 c7 c0 00 00 00 80").immediate == 0xffffffff80000000);
  CHECK(D("b8 00 00 00 80").immediate == 0x80000000);
  CHECK(D("cd 80").immediate == 0x80);
  CHECK(D("e6 80").immediate == 0x80);
  CHECK(D("c2 f0 ff").immediate == 0xfff0);
  CHECK((D("c8 34 12 05").immediate == 0x1234 && D("c8 34 12 05").immediate2 == 5));
  Instr far = D("ea 78 56 34 12 08 00", 32);
  CHECK((far.immediate == 0x12345678 && far.immediate2 == 8));
  CHECK(D("eb fe").branch_target.value == 0x1000);
  CHECK(D("e8 00 01 00 00").branch_target.value == 0x1105);
  CHECK(D("75 80").branch_target.value == 0xf82);
  CHECK(D("e9 00 e0 ff ff", 32).branch_target.value == 0xfffff005);
  CHECK(D("e9 00 e0", 16).branch_target.value == 0xf003);
  CHECK(D("0f 85 00 00 00 00").condition == 5);
  CHECK(D("0f 44 c3").condition == 4);
}

TEST_CASE("Treatment depends on the operands where it must", "[decoder]") {
  struct Row {
    const char* hex;
    unsigned bits;
    Op op;
    Treatment treatment;
  };
  using enum Op;
  using enum Treatment;
  for (const Row& row : {
           Row{"89 d8", 64, kMov, kIdent},
           {"8e d0", 64, kWriteSreg, kTerminator},  // MOV ss
           {"8e d8", 64, kWriteSreg, kSimulate},
           {"8e d8", 32, kWriteSreg, kSimulate},
           {"8e d0", 32, kWriteSreg, kTerminator},
           {"8c d8", 64, kReadSreg, kInTc},
           {"8c 1b", 64, kReadSreg, kSimulate},
           {"44 0f 22 c0", 64, kMovCr8, kInTc},  // MOV cr8
           {"44 0f 20 c0", 64, kMovCr8, kInTc},
           {"0f 22 d8", 64, kWriteCr3, kInTc},       // MOV cr3
           {"0f 22 e0", 64, kWriteCr, kTerminator},  // MOV cr4
           {"0f 22 d0", 64, kWriteCr, kSimulate},    // MOV cr2
           {"0f 20 d8", 64, kReadCr, kInTc},
           {"0f 23 f8", 64, kMovDr, kTerminator},
           {"0f 21 f8", 64, kMovDr, kSimulate},
           {"0f a3 d8", 64, kNone, kIdent},     // BT eax, ebx
           {"0f a3 1b", 64, kBtMemory, kInTc},  // BT [rbx], ebx
           {"0f ba 23 05", 64, kNone, kIdent},  // BT [rbx], 5
           {"50", 64, kPush, kStack},
           {"0f a0", 64, kPushSreg, kStack},
           {"0f a1", 64, kPopSreg, kSimulate},
           {"17", 32, kPopSreg, kTerminator},  // POP ss
           {"68 00 00 00 00", 64, kPush, kStack},
           {"c9", 64, kLeave, kStack},
           {"eb 00", 64, kJmp, kControl},
           {"ff e0", 64, kJmpIndirect, kControl},
           {"ff 23", 64, kJmpIndirect, kControl},
           {"ff 2b", 64, kJmpFar, kTerminator},
           {"ea 00 00 00 00 08 00", 32, kJmpFar, kTerminator},
           {"e8 00 00 00 00", 64, kCall, kControl},
           {"ff d0", 64, kCallIndirect, kControl},
           {"ff 1b", 64, kCallFar, kTerminator},
           {"c3", 64, kRet, kControl},
           {"f2 c3", 64, kRet, kControl},
           {"cb", 64, kRetFar, kTerminator},
           {"e2 00", 64, kLoop, kControl},
           {"67 e3 00", 64, kJcxz, kControl},
           {"a5", 64, kMovs, kInTc},
           {"f2 0f 10 03", 64, kNone, kIdent},     // MOVSD xmm
           {"f2 0f c2 c1 00", 64, kNone, kIdent},  // CMPSD xmm
           {"0f 01 f8", 64, kSwapgs, kInTc},
           {"f3 0f ae c0", 64, kRdfsbase, kInTc},
           {"0f 05", 64, kSyscall, kInTc},
           {"48 cf", 64, kIret, kTerminator},
           {"e6 80", 64, kOut, kInTc},
           {"0f 01 3b", 64, kInvlpg, kSimulate},
           {"cc", 64, kInt3, kTerminator},
           {"f4", 64, kHlt, kTerminator},
           {"0f a2", 64, kCpuid, kSimulate},
           {"0f c7 f0", 64, kNone, kIdent},  // RDRAND
           {"f3 0f c7 f8", 64, kRdpid, kSimulate},
           {"f3 90", 64, kPause, kIdent},
           {"f3 0f 1e fa", 64, kNone, kIdent},     // ENDBR64
           {"f3 48 0f 1e c8", 64, kNone, kIdent},  // RDSSPQ: a NOP without CET
           {"0f 1a 03", 64, kNop, kIdent},         // BNDLDX: a NOP without MPX
           {"f3 0f ae e8", 64, kUd, kUndefined},   // INCSSPD
           {"0f 01 d5", 64, kUd, kUndefined},      // XEND
           {"0f 01 ee", 64, kUd, kUndefined},      // RDPKRU
           {"0f 01 ef", 64, kUd, kUndefined},      // WRPKRU
           {"0f 01 c1", 64, kHypercall, kSimulate},
           {"0f 01 d9", 64, kUd, kUndefined},     // VMMCALL
           {"0f 01 fc", 64, kUd, kUndefined},     // CLZERO
           {"0f c7 2b", 64, kUd, kUndefined},     // XSAVES
           {"0f 0f c1 9e", 64, kUd, kUndefined},  // PFADD
           {"27", 32, kDaa, kSimulate},
           {"0f ae 23", 64, kXsave, kSimulate},
           {"0f ae 03", 64, kFxsave, kSimulate},
           {"0f ae 03", 32, kFxsave, kSimulate},
           {"0f ae 0b", 32, kFxrstor, kSimulate},
           {"c5 f9 f7 c1", 64, kMaskMovDqu, kSimulate},
       }) {
    Instr instr = D(row.hex, row.bits);
    INFO(row.hex << " " << Disassemble(instr) << " " << OpName(instr.op) << " "
                 << TreatmentName(instr.treatment));
    CHECK(instr.op == row.op);
    CHECK(instr.treatment == row.treatment);
  }
  CHECK(D("8e d0").system_reg == vcpu::kSs);
  CHECK(D("44 0f 22 c0").system_reg == 8);
  CHECK(D("0f 23 f8").system_reg == 7);
  CHECK(D("0f a1").system_reg == vcpu::kFs);
}

TEST_CASE("Prefixes: the last of several counts", "[decoder]") {
  CHECK(D("f2 f3 a4").rep);
  CHECK_FALSE(D("f2 f3 a4").repne);
  CHECK(D("f3 f2 a6").repne);
  CHECK(D("f0 01 03").lock);
  CHECK(D("64 65 8b 03").segment_override == vcpu::kGs);
}

TEST_CASE("Names and listings", "[decoder]") {
  CHECK(Disassemble(D("48 8b 44 8b 10")) == "MOV rax, qword ptr [rbx+rcx*4+0x10]");
  CHECK(Disassemble(D("eb fe")) == "JMP 0x1000");
  CHECK(std::string(MnemonicName(D("48 01 d8").mnemonic)) == "ADD");
  CHECK(OpName(Op::kReadSreg) == "ReadSreg");
  CHECK(OpName(Op::kUd) == "Ud");
  CHECK(std::string(TreatmentName(Treatment::kTerminator)) == "TERMINATOR");
}

TEST_CASE("The cheap decode for look-ahead agrees with the full one", "[decoder]") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200'000; ++i) {
    u8 bytes[15];
    for (u8& byte : bytes) byte = static_cast<u8>(random());
    if (i % 2 != 0) bytes[0] = 0x0f;
    unsigned bits = i % 5 == 0 ? 32 : 64;
    Instr full, cheap;
    DecodeStatus status = Decode(bytes, sizeof bytes, LinearAddr(0x1000), bits, &full);
    DecodeStatus cheap_status =
        DecodeFlagsOnly(bytes, sizeof bytes, LinearAddr(0x1000), bits, &cheap);
    if (status != cheap_status || full.length != cheap.length ||
        full.flags_read != cheap.flags_read || full.flags_written != cheap.flags_written ||
        full.branch_target != cheap.branch_target ||
        (full.op != cheap.op && full.system_reg == kNoReg)) {
      FAIL(Disassemble(full));
    }
  }
  SUCCEED();
}

// What must never run unchanged on the host, as the decoding library describes it.
std::string WhyNotIdent(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands) {
  if (z.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) return "privileged";
  switch (z.meta.category) {
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_GATHER:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_POP:
    case ZYDIS_CATEGORY_PUSH:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_SCATTER:
    case ZYDIS_CATEGORY_STRINGOP:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_SYSTEM:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_VTX:
      return "category";
    default:
      break;
  }
  for (unsigned i = 0; i < z.operand_count; ++i) {
    const ZydisDecodedOperand& operand = operands[i];
    bool hidden = operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN;
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && hidden) return "hidden memory operand";
    if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    ZydisRegister reg = operand.reg.value;
    if (reg >= ZYDIS_REGISTER_IP && reg <= ZYDIS_REGISTER_DR15) return "system register";
    if (hidden && (reg == ZYDIS_REGISTER_RSP || reg == ZYDIS_REGISTER_ESP)) return "stack";
    bool writes_flags = reg >= ZYDIS_REGISTER_FLAGS && reg <= ZYDIS_REGISTER_RFLAGS &&
                        (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE);
    if (writes_flags && z.cpu_flags != nullptr &&
        ((z.cpu_flags->modified | z.cpu_flags->set_0 | z.cpu_flags->set_1) &
         ~static_cast<u32>(vcpu::kArithmeticFlags))) {
      return "system flag";
    }
  }
  return "";
}

TEST_CASE("No IDENT instruction is privileged or touches more than its operands", "[decoder]") {
  std::mt19937_64 random(3);
  std::map<std::string, std::string> offenders;
  std::set<u16> seen;
  for (unsigned bits : {64u, 32u, 16u}) {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder,
                     bits == 64   ? ZYDIS_MACHINE_MODE_LONG_64
                     : bits == 32 ? ZYDIS_MACHINE_MODE_LEGACY_32
                                  : ZYDIS_MACHINE_MODE_LEGACY_16,
                     bits == 64   ? ZYDIS_STACK_WIDTH_64
                     : bits == 32 ? ZYDIS_STACK_WIDTH_32
                                  : ZYDIS_STACK_WIDTH_16);
    // Maps: one byte, 0F, 0F38, 0F3A; each opcode, each mandatory prefix, many ModRM bytes.
    for (unsigned form = 0; form < 4 * 4 * 256 * 256; ++form) {
      unsigned map = form & 3, prefix = form >> 2 & 3, opcode = form >> 4 & 0xff;
      std::vector<u8> bytes;
      if (prefix != 0) bytes.push_back(static_cast<u8>(prefix == 1 ? 0x66 : 0xf0 + prefix));
      if (bits == 64 && random() % 2 != 0) bytes.push_back(static_cast<u8>(0x40 + random() % 16));
      if (map != 0) bytes.push_back(0x0f);
      if (map >= 2) bytes.push_back(map == 2 ? 0x38 : 0x3a);
      bytes.push_back(static_cast<u8>(opcode));
      bytes.push_back(static_cast<u8>(form >> 12));
      while (bytes.size() < 15) bytes.push_back(static_cast<u8>(random()));
      Instr instr;
      if (Decode(bytes.data(), 15, LinearAddr(0x1000), bits, &instr) != DecodeStatus::kOk) continue;
      seen.insert(instr.mnemonic);
      if (instr.treatment != Treatment::kIdent) continue;
      ZydisDecodedInstruction z;
      ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
      ZydisDecoderDecodeFull(&decoder, bytes.data(), 15, &z, operands);
      std::string why = WhyNotIdent(z, operands);
      if (!why.empty()) offenders[MnemonicName(instr.mnemonic)] = why;
    }
  }
  for (const auto& [name, why] : offenders) UNSCOPED_INFO(name << ": " << why);
  CHECK(offenders.empty());
  CHECK(seen.size() > 500);
}

}  // namespace
}  // namespace alibi::isa
