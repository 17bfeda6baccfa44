// SPDX-License-Identifier: Apache-2.0
// What the fuzzer found, minimized: each case runs in every translation kind.
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "testsuite/host_cpu.h"
#include "testsuite/oracle/compare.h"
#include "testsuite/oracle/harness.h"

namespace alibi::oracle {
namespace {

using vcpu::kR10, vcpu::kR11, vcpu::kRax, vcpu::kRbp, vcpu::kRbx, vcpu::kRcx, vcpu::kRdi,
    vcpu::kRdx, vcpu::kRsi, vcpu::kRsp;
using Code = std::vector<std::vector<u8>>;

constexpr u64 kReadOnlyPage = kDataBase + 2 * kPageSize;
constexpr u64 kAbsentPage = kDataBase + 4 * kPageSize;

struct Case {
  const char* name;
  Code code;
  std::function<void(CpuState&)> prepare;
};

GeneratedCase Make(const Case& c) {
  GeneratedCase made;
  made.test.name = c.name;
  made.test.code = c.code;
  CpuState& state = made.test.initial;
  state.rip = kCodeBase + 0x100;
  state.rflags = 0x202;
  for (unsigned i = 0; i < 16; ++i) state.gpr[i] = 0x1111111111111111 * static_cast<u64>(i);
  state.gpr[kRsp] = kStackBase + 2 * kPageSize - 0x100;
  state.gpr[kRsi] = kDataBase + 0x100;
  state.gpr[kRdi] = kDataBase + 0x200;
  for (auto& reg : state.vector.zmm) {
    for (unsigned i = 0; i < sizeof(reg); ++i) reg[i] = static_cast<u8>(i);
  }
  if (c.prepare) c.prepare(state);
  made.traits.user_only = state.rflags & vcpu::kAc;  // at CPL 0 alignment is not checked
  // Reported stories are about the stepping where the sequence shows TF.
  for (const auto& instr : c.code) made.traits.unsteppable |= instr[0] == 0x9c;
  return made;
}

// "" when both sides agree in every kind, else the story.
std::string Run(Harness& harness, const Case& c) {
  auto find = harness.CheckAll(Make(c));
  return find ? harness.Story(*find) : "";
}

// Of the canonical addresses, at rsi.
void MisalignedOverTheEnd(CpuState& s) {
  s.gpr[kRsi] = 0x7ffffffffffb;
  s.rflags |= vcpu::kAc;
}

const Case kCases[] = {
    {"INT3 under TF: no #DB before the handler's first instruction", {{0x90}, {0x90}}, {}},
    {"REP LODSW with a 32-bit address and ECX = 0",
     {{0x67, 0x66, 0xf3, 0xad}},
     [](CpuState& s) { s.gpr[kRcx] = u64{1} << 40; }},
    {"REP STOSB with a 32-bit address, to an absent page",
     {{0xbf, 0x00, 0x40, 0x00, 0x20}, {0x48, 0x0f, 0xba, 0xef, 0x28}, {0x67, 0xf3, 0xaa}},
     [](CpuState& s) { s.gpr[kRcx] = u64{1} << 40 | 2; }},
    {"MOVSXD of 16 bits at the end of a page",
     {{0x66, 0x63, 0x06}},
     [](CpuState& s) { s.gpr[kRsi] = kAbsentPage - 2; }},
    {"MOVSXD of 16 bits from an odd address, checked for alignment",
     {{0x66, 0x63, 0x06}},
     [](CpuState& s) {
       s.gpr[kRsi] += 2;
       s.rflags |= vcpu::kAc;
     }},
    {"VCVTPH2PS and VCVTPS2PH at an odd address, checked for alignment",
     {{0xc4, 0xe2, 0x79, 0x13, 0x36}, {0xc4, 0xe3, 0x79, 0x1d, 0x37, 0}},
     [](CpuState& s) {
       s.gpr[kRsi] += 2;
       s.gpr[kRdi] += 2;
       s.rflags |= vcpu::kAc;
     }},
    {"ROL and ROR by more than one, and RCL all around, keep OF on some hosts",
     {{0x48, 0x8b, 0x1e},
      {0xc1, 0xc3, 0x05},
      {0x48, 0x8b, 0x1f},
      {0x48, 0xc1, 0xcb, 0x3f},
      {0x8a, 0x1e},
      {0xc0, 0xd3, 0x09}},
     [](CpuState& s) { s.rflags |= vcpu::kOf; }},
    {"FSTP of ten bytes, the last two refused",
     {{0xd9, 0xeb}, {0xdb, 0x3e}},
     [](CpuState& s) { s.gpr[kRsi] = kReadOnlyPage - 8; }},
    {"FBSTP of ten bytes, the last two refused",
     {{0xd9, 0xeb}, {0xdf, 0x36}},
     [](CpuState& s) { s.gpr[kRsi] = kReadOnlyPage - 9; }},
    {"FSTP of ten bytes, of which three are refused",
     {{0xd9, 0xeb}, {0xdb, 0x3e}},
     [](CpuState& s) { s.gpr[kRsi] = kReadOnlyPage - 7; }},
    {"A misaligned operand over the end of the canonical addresses, checked for alignment",
     {{0x48, 0x03, 0x1e}},
     MisalignedOverTheEnd},
    {"POP to such an operand", {{0x8f, 0x06}}, MisalignedOverTheEnd},
    {"PUSH of such an operand", {{0xff, 0x36}}, MisalignedOverTheEnd},
    {"FNSTENV to such an operand", {{0xd9, 0x36}}, MisalignedOverTheEnd},
    {"FLDENV of such an operand", {{0xd9, 0x26}}, MisalignedOverTheEnd},
    {"MOVSQ from such an operand", {{0x48, 0xa5}}, MisalignedOverTheEnd},
    {"A masked load over the end of the canonical addresses, whose first elements are absent",
     {{0xc5, 0x15, 0x76, 0xed}, {0xc4, 0x62, 0x15, 0x2c, 0x4d, 0x00}},  // vpcmpeqd; vmaskmovps
     [](CpuState& s) { s.gpr[kRbp] = 0x7fffffffffec; }},
    {"The same under an opmask",
     {{0xc4, 0xe1, 0xf8, 0x46, 0xc8}, {0x62, 0xf1, 0x7c, 0x29, 0x10, 0x0e}},  // kxnorw k1; vmovups
     [](CpuState& s) { s.gpr[kRsi] = 0x7fffffffffec; }},
    {"POP GS at the end of a page",
     {{0x66, 0xc7, 0x04, 0x24, 0, 0}, {0x0f, 0xa9}},
     [](CpuState& s) { s.gpr[kRsp] = kAbsentPage - 2; }},
    {"XSAVE and XRSTOR of components in front of an absent page",
     {{0x31, 0xd2},
      {0xb8, 0x04, 0, 0, 0},
      {0x0f, 0xae, 0x27},
      {0x0f, 0xae, 0x2f},
      {0xb8, 0x20, 0, 0, 0},
      {0x0f, 0xc7, 0x27},
      {0x0f, 0xae, 0x27}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage - 832; }},
    {"XRSTOR whose header is absent",
     {{0x31, 0xd2}, {0x0f, 0xae, 0x2f}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage - 512; }},
    {"XRSTOR of which all is absent",
     {{0x31, 0xd2}, {0x0f, 0xae, 0x2f}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage + 64; }},
    {"XSAVE of which all is absent",
     {{0x31, 0xd2}, {0x0f, 0xae, 0x27}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage + 64; }},
    {"FXSAVE64 and FXSAVE show where the guest's instruction lies",
     {{0xd9, 0xeb}, {0x48, 0x0f, 0xae, 0x07}, {0x0f, 0xae, 0x87, 0, 2, 0, 0}},
     {}},
    {"A pointer comes back from FXRSTOR64",
     {{0xd9, 0xeb},
      {0x48, 0x0f, 0xae, 0x07},
      {0xc7, 0x47, 0x0c, 0x34, 0x12, 0, 0},  // mov dword [rdi+12], 1234h
      {0x48, 0x0f, 0xae, 0x0f},
      {0x48, 0x0f, 0xae, 0x87, 0, 2, 0, 0}},
     {}},
    {"BTR to a read-only page: #PF is a write's",
     {{0x0f, 0xb3, 0x3e}},
     [](CpuState& s) {
       s.gpr[kRsi] = kReadOnlyPage + 0x10;
       s.gpr[kRdi] = 5;
     }},
    {"BTS far from its operand, to an absent page",
     {{0x48, 0x0f, 0xab, 0x3e}},
     [](CpuState& s) { s.gpr[kRdi] = 8 * (kAbsentPage - s.gpr[kRsi]); }},
    {"BT by a 16-bit register at a negative offset; the flags it leaves alone",
     {{0xf9}, {0x66, 0x0f, 0xa3, 0x0e}, {0x0f, 0x92, 0xc0}, {0x0f, 0x94, 0xc3}},
     [](CpuState& s) {
       s.gpr[kRcx] = 0xfff3;
       s.rflags |= vcpu::kArithmeticFlags;
     }},
    {"Flags that are dead when an access faults, behind look-ups",
     {{0x01, 0xd8},   // add eax, ebx
      {0x8b, 0x0e},   // mov ecx, [rsi]
      {0x8b, 0x17},   // mov edx, [rdi]
      {0x31, 0xc0}},  // xor eax, eax
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage; }},
    {"The same with the flags of a translation unit before",
     {{0x01, 0xd8},   // add eax, ebx
      {0x8b, 0x0e},   // mov ecx, [rsi]
      {0xeb, 0x00},   // jmp +0
      {0x8b, 0x17},   // mov edx, [rdi]
      {0x31, 0xc0}},  // xor eax, eax
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage; }},
    {"The same with a fault that a SIMULATE translation finds",
     {{0x01, 0xd8},        // add eax, ebx
      {0x8b, 0x0e},        // mov ecx, [rsi]
      {0x48, 0x8b, 0x17},  // mov rdx, [rdi]
      {0x31, 0xc0}},       // xor eax, eax
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage - 4; }},
    {"Strings at addresses that are not canonical, which empty slots hold",
     {{0xf3, 0xa5}},
     [](CpuState& s) { s.gpr[kRsi] = u64{1} << 63; }},
    {"The same with the destination",
     {{0xf3, 0xa4}},
     [](CpuState& s) { s.gpr[kRdi] = u64{1} << 63; }},
    {"The same without REP", {{0xa7}}, [](CpuState& s) { s.gpr[kRdi] = u64{1} << 63; }},
    {"REP MOVSB onto its own source, one byte ahead; CF lives on",
     {{0xf9}, {0xb9, 0x40, 0, 0, 0}, {0xf3, 0xa4}, {0x0f, 0x92, 0xc0}},
     [](CpuState& s) { s.gpr[kRdi] = s.gpr[kRsi] + 1; }},
    {"REP STOSQ of no element, to an absent page",
     {{0x31, 0xc9}, {0xf3, 0x48, 0xab}, {0x0f, 0x94, 0xc0}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage; }},
    {"REP MOVSW over the end of a page, into one that is read-only",
     {{0xb9, 0x40, 0, 0, 0}, {0xf3, 0x66, 0xa5}},
     [](CpuState& s) { s.gpr[kRdi] = kReadOnlyPage - 0x21; }},
    {"REPNE SCASB that ends early, and at the end of a page",
     {{0xb9, 0x00, 0x01, 0, 0},
      {0xf2, 0xae},
      {0x0f, 0x94, 0xc3},
      {0xb9, 0, 0x08, 0, 0},
      {0xf2, 0xae}},
     [](CpuState& s) { s.gpr[kRdi] = kDataBase + kPageSize - 0x200; }},
    {"REPE CMPSD backward, then forward",
     {{0xfd}, {0xb9, 4, 0, 0, 0}, {0xf3, 0xa7}, {0xfc}, {0xb9, 4, 0, 0, 0}, {0xf3, 0xa7}, {0x9f}},
     {}},
    {"XCHG with a read-only page",
     {{0x48, 0x87, 0x06}},
     [](CpuState& s) { s.gpr[kRsi] = kReadOnlyPage + 0x10; }},
    {"BH stored to memory", {{0x88, 0x7e, 0x0e}}, {}},
    {"AH added from memory, into memory", {{0x02, 0x26}, {0x00, 0x26}, {0x86, 0x26}}, {}},
    {"A page-crossing load while stepping",
     {{0xc5, 0x65, 0xf4, 0x06}},
     [](CpuState& s) { s.gpr[kRsi] = kDataBase + kPageSize - 7; }},
    {"A faulting page-crossing load while stepping",
     {{0xc5, 0x65, 0xf4, 0x06}},
     [](CpuState& s) { s.gpr[kRsi] = kAbsentPage - 7; }},
    {"MUL leaves undefined flags alone on some hosts: they are live in front of it",
     {{0xf7, 0x26}},
     [](CpuState& s) { s.rflags |= vcpu::kArithmeticFlags; }},
    {"IMUL from memory through r10 keeps flags",
     {{0x4d, 0x6b, 0x32, 0xff}},
     [](CpuState& s) {
       s.gpr[kR10] = kDataBase + 0x1b0;
       s.rflags |= vcpu::kArithmeticFlags;
     }},
    {"A load, NOPs, IDIV: flags that IDIV keeps",
     {{0x48, 0x8b, 0x1e}, {0x90}, {0x99}, {0xf7, 0xf9}},
     [](CpuState& s) {
       s.gpr[kRcx] = 7;
       s.rflags |= vcpu::kArithmeticFlags;
     }},
    {"BT keeps flags",
     {{0x48, 0x8b, 0x1e}, {0x0f, 0xba, 0xe0, 0x03}},
     [](CpuState& s) { s.rflags |= vcpu::kArithmeticFlags; }},
    {"ADDPS of a misaligned operand across a page: #GP",
     {{0x0f, 0x58, 0x16}},
     [](CpuState& s) { s.gpr[kRsi] = kDataBase + kPageSize - 6; }},
    {"ADDPS of a misaligned operand on an absent page: #GP before #PF",
     {{0x0f, 0x58, 0x16}},
     [](CpuState& s) { s.gpr[kRsi] = kAbsentPage + 4; }},
    {"PADDD of a misaligned operand", {{0x66, 0x0f, 0xfe, 0x46, 0x04}}, {}},
    {"MOVAPS to a misaligned, absent operand",
     {{0x0f, 0x29, 0x0e}},
     [](CpuState& s) { s.gpr[kRsi] = kAbsentPage + 4; }},
    {"MAXPS, misaligned and not canonical off rbp: #GP, not #SS",
     {{0x0f, 0x5f, 0x65, 0x2b}},
     [](CpuState& s) { s.gpr[kRbp] = 0xe51671f81f8690c9; }},
    {"MOV off a non-canonical rbp: #SS",
     {{0x48, 0x8b, 0x45, 0x00}},
     [](CpuState& s) { s.gpr[kRbp] = 0xe51671f81f8690c9; }},
    {"BSF of zero leaves its destination r11 alone",
     {{0x49, 0xc7, 0xc3, 0x34, 0x12, 0x00, 0x00},
      {0x48, 0xc7, 0x06, 0x00, 0x00, 0x00, 0x00},
      {0x4c, 0x0f, 0xbc, 0x1e}},
     {}},
    {"BSR of zero leaves r10d alone",
     {{0x49, 0xc7, 0xc2, 0x34, 0x12, 0x00, 0x00},
      {0xc7, 0x06, 0x00, 0x00, 0x00, 0x00},
      {0x44, 0x0f, 0xbd, 0x16}},
     {}},
    {"An MMX instruction reports an x87 exception from before: #MF, not #XM",
     {{0xdf, 0xe8}, {0x0f, 0xe5, 0x1e}},
     [](CpuState& s) { s.vector.fcw = 0x340; }},
    {"MASKMOVQ with an x87 exception pending: #MF, and the VMM goes on",
     {{0xd9, 0xe8}, {0xd9, 0xee}, {0xde, 0xf9}, {0x0f, 0xf7, 0xc1}},  // fld1; fldz; fdivp
     [](CpuState& s) { s.vector.fcw = 0x37b; }},
    {"MASKMOVQ with an x87 exception pending from before",
     {{0x0f, 0xf7, 0xc1}},
     [](CpuState& s) {
       s.vector.fcw = 0x37b;
       s.vector.fsw = 0x8084;
     }},
    {"A store from an MMX register that faults: the top of stack",
     {{0x0f, 0x7f, 0x06}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage;
       s.vector.fsw = 0x2800;
       s.vector.ftw = 0x5a;
       for (unsigned i = 0; i < 8; ++i) s.vector.st[i][0] = static_cast<u8>(i + 1);
     }},
    {"FISTP of what is no number to where nothing can be stored: which exception",
     {{0xdf, 0x1e}, {0x90}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage;
       s.vector.fcw = 0x340;
     }},
    {"FSTP, rounded, to where nothing can be stored: the stack is not popped",
     {{0xd9, 0xeb}, {0xd9, 0x1e}},  // fldpi; fstp dword [rsi]
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage;
       s.vector.fcw = 0x340;
     }},
    {"VCVTPS2PH to where nothing can be stored: MXCSR",
     {{0xc4, 0xe3, 0x7d, 0x1d, 0x0e, 0x00}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage;
       for (unsigned i = 0; i < 32; ++i) s.vector.zmm[1][i] = static_cast<u8>(0x11 * (i % 5));
     }},
    {"VCVTPS2PH with an exception that is not masked to where nothing can be stored",
     {{0xc4, 0xe3, 0x7d, 0x1d, 0x0e, 0x00}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage;
       s.vector.mxcsr = 0;
       for (unsigned i = 0; i < 32; ++i) s.vector.zmm[1][i] = static_cast<u8>(0x11 * (i % 5));
     }},
    {"A masked store into a page that refuses it, from the one in front",
     {{0xc4, 0xe2, 0x75, 0x2e, 0x16}},  // vmaskmovps [rsi], ymm1, ymm2
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage - 29;
       s.vector.zmm[1][31] = 0x80;
     }},
    {"A masked store of which one element crosses, another lies behind it",
     {{0xc4, 0xe2, 0x75, 0x2e, 0x16}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage - 13;
       s.vector.zmm[1][15] = s.vector.zmm[1][27] = 0x80;
     }},
    {"A masked store whose active elements all lie in the page that refuses it",
     {{0xc4, 0xe2, 0x75, 0x2e, 0x16}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage - 13;
       s.vector.zmm[1][27] = 0x80;
     }},
    {"A gather of which the second element faults",
     {{0xc4, 0xe2, 0x71, 0x90, 0x14, 0x1e}},  // vpgatherdd xmm2, [rsi + xmm3], xmm1
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage - 8;
       for (unsigned i = 0; i < 64; ++i) s.vector.zmm[2][i] = static_cast<u8>(0x55 + i);
       for (unsigned i = 0; i < 64; ++i) s.vector.zmm[1][i] = static_cast<u8>(0x80 + i);
       for (unsigned i = 0; i < 16; ++i) s.vector.zmm[3][i] = i % 4 == 0 ? 2 * i : 0;
     }},
    {"SHA with an operand that is neither aligned nor there",
     {{0x0f, 0x38, 0xc8, 0x06}},  // sha1nexte xmm0, [rsi]
     [](CpuState& s) { s.gpr[kRsi] = kAbsentPage + 4; }},
    {"Elements that a mask leaves out do not fault, at the end of a page",
     {{0x62, 0xf1, 0x7f, 0x49, 0x6f, 0x06}},  // vmovdqu8 zmm0 {k1}, [rsi]
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage - 16;
       s.vector.k[1] = 0xffff;
     }},
    {"The lowest element that is not left out faults",
     {{0x62, 0xf1, 0x7f, 0x49, 0x6f, 0x06}},
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage - 16;
       s.vector.k[1] = 0x80fff;
     }},
    {"A masked store across the end of a page",
     {{0x62, 0xf1, 0x7f, 0x49, 0x7f, 0x06}},  // vmovdqu8 [rsi] {k1}, zmm0
     [](CpuState& s) {
       s.gpr[kRsi] = kDataBase + kPageSize - 5;
       s.vector.k[1] = 0xf0f0f0f0ff;
     }},
    {"A masked load of an absent page, nothing selected",
     {{0x62, 0xf1, 0x7f, 0x49, 0x6f, 0x06}},
     [](CpuState& s) { s.gpr[kRsi] = kAbsentPage + 3; }},
    {"CR2 of a masked load is its first element's",
     {{0x62, 0xf1, 0x75, 0x09, 0xfd, 0x06}},  // vpaddw xmm0 {k1}, xmm1, [rsi]
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage + 0x30;
       s.vector.k[1] = 0x80;
     }},
    {"An aligned masked move, misaligned, nothing selected",
     {{0x62, 0xf1, 0xfd, 0x29, 0x6f, 0x06}},  // vmovdqa64 ymm0 {k1}, [rsi]
     [](CpuState& s) { s.gpr[kRsi] = kDataBase + kPageSize - 5; }},
    {"An aligned masked move, misaligned, one element selected",
     {{0x62, 0xf1, 0x7c, 0x09, 0x28, 0x06}},  // vmovaps xmm0 {k1}, [rsi]
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage + 2;
       s.vector.k[1] = 1;
     }},
    {"A masked broadcast looks at its own lanes only",
     {{0x62, 0xf1, 0x74, 0x99, 0x58, 0x06}},  // vaddps xmm0 {k1}{z}, xmm1, [rsi]{1to4}
     [](CpuState& s) {
       s.gpr[kRsi] = kAbsentPage + 8;
       s.vector.k[1] = 0xfff0;
     }},
    {"PUSHFQ across a page",
     {{0x9c}},
     [](CpuState& s) { s.gpr[kRsp] = kStackBase + 2 * kPageSize + 6; }},
    {"SCASB backward into an absent page: CR2 is the first element's",
     {{0xf2, 0xae}},
     [](CpuState& s) {
       s.rflags |= vcpu::kDf;
       s.gpr[kRdi] = kAbsentPage + 0x7fa;
       s.gpr[kRcx] = 100;
     }},
    {"Flags of CMP survive a RET to where another CCF has the same jump index",
     {{0x48, 0x8d, 0x1d, 0x03, 0x00, 0x00, 0x00},  // lea rbx, [rip + 3]
      {0xff, 0xd3},                                // call rbx
      {0x90},
      // Called: return to itself plus 2^32, which is not mapped.
      {0x48, 0xb9, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00},
      {0x48, 0x8d, 0x0c, 0x0b},  // lea rcx, [rbx + rcx]
      {0x48, 0x89, 0x0c, 0x24},  // mov [rsp], rcx
      {0x48, 0x83, 0x3e, 0x1f},  // cmp qword [rsi], 0x1f
      {0xc3}},
     {}},
    {"67h, SIB without a base but with VEX.B: no r13",
     {{0x67, 0xc4, 0xc1, 0xbd, 0x65, 0x3c, 0xd5, 0x00, 0x01, 0x00, 0x20}},
     [](CpuState& s) { s.gpr[kRdx] = 0x10; }},
    {"SHA256RNDS2 of a misaligned operand", {{0x0f, 0x38, 0xcb, 0x66, 0x03}}, {}},
    {"A jump to a non-canonical address faults at the jump",
     {{0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0x12, 0x34}, {0xff, 0xe0}},
     {}},
    {"A CHECKED division between accesses that share a look-up",
     {{0x48, 0x8b, 0x06},         // mov rax, [rsi]
      {0x48, 0x89, 0x46, 0x08},   // mov [rsi+8], rax
      {0x31, 0xd2},               // xor edx, edx
      {0x48, 0xf7, 0xf3},         // div rbx
      {0x48, 0x8b, 0x4e, 0x10},   // mov rcx, [rsi+16]
      {0x48, 0x01, 0x46, 0x18}},  // add [rsi+24], rax
     {}},
    {"CALL through an unmapped stack to a non-canonical target: #PF",
     {{0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0x12, 0x34}, {0xff, 0xd0}},
     [](CpuState& s) { s.gpr[kRsp] = kAbsentPage + 8; }},
    {"CALL [mem] with a non-canonical stack: #SS",
     {{0xff, 0x16}},
     [](CpuState& s) { s.gpr[kRsp] = 0x1234000000000000; }},
    {"RET to a non-canonical address keeps RSP",
     {{0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0x12, 0x34}, {0x50}, {0xc3}},
     {}},
};

TEST_CASE("Everything that the fuzzer ever found", "[oracle]") {
  Harness harness;
  for (const Case& c : kCases) {
    INFO(c.name);
    CHECK(Run(harness, c) == "");
  }
}

const Case kX87Environments[] = {
    {"FNSTENV shows where the guest's instruction lies", {{0xd9, 0xe8}, {0xd9, 0x37}}, {}},
    {"FNSTENV of 16 bits", {{0x90}, {0xd9, 0xe8}, {0x66, 0xd9, 0x37}}, {}},
    {"FNSTENV behind an instruction with a memory operand",
     {{0xc7, 0x07, 0, 0, 0x80, 0x3f}, {0xd9, 0x07}, {0xd9, 0xe8}, {0xd9, 0x37}},
     {}},
    {"FNSAVE shows where the guest's instruction lies",
     {{0xd9, 0xeb}, {0xd9, 0xe8}, {0xdd, 0x37}},
     {}},
    {"FNSAVE of 16 bits", {{0xd9, 0xeb}, {0x66, 0xdd, 0x37}}, {}},
};

// Callouts save the vector state on their way, and on other hosts the pointers are lost with that.
TEST_CASE("x87 environments show where the guest's instruction lies", "[oracle]") {
  if (!testsuite::CanCheck(testsuite::FxsaveAlwaysHasX87Pointers(), "x87 environments' pointers",
                           "FXSAVE to store them without an exception")) {
    return;
  }
  Harness harness;
  for (const Case& c : kX87Environments) {
    INFO(c.name);
    CHECK(Run(harness, c) == "");
  }
}

// The check of the divisor needs r10, which held the look-up that the accesses share.
// The stack's end comes into the range of a group whose leader starts one translation and lies
// inside another: each looked itself up in the other, for ever.
const Case kCrossingGroups = {"Groups that cross a page in two translations of their leader",
                              {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90},
                               {0xb9, 0x04, 0x00, 0x00, 0x00},  // mov ecx, 4
                               {0x41, 0xff, 0xc2},              // loop: inc r10d
                               {0x41, 0x52},                    // push r10
                               {0x5b},                          // pop rbx
                               {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90},
                               {0x5d},  // pop rbp
                               {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90},
                               {0x0f, 0x85, 0xe1, 0xff, 0xff, 0xff}},  // jnz loop
                              [](CpuState& s) { s.gpr[kRsp] = kStackBase + kPageSize + 0xf30; }};

TEST_CASE("Groups that cross a page", "[oracle]") {
  Harness harness;
  CHECK(Run(harness, kCrossingGroups).empty());
}

const Case kCompatCases[] = {
    {"LDMXCSR of a bad value through an address that wraps: the bounced operation faults",
     {{0x0f, 0xae, 0x96, 0x10, 0x01, 0x00, 0x20}},  // ldmxcsr [esi + 0x20000110]
     [](CpuState& s) {
       s.gpr[kRsi] = 0xffffffff;
       // The data page's bytes there are no MXCSR.
     }},
    {"Loads and stores through addresses that wrap",
     {{0x8b, 0x86, 0x10, 0x01, 0x00, 0x20}, {0x89, 0x86, 0x18, 0x01, 0x00, 0x20}},
     [](CpuState& s) { s.gpr[kRsi] = 0xfffffff8; }},
    {"A group whose base register wraps on its way",
     {{0x8b, 0x46, 0x70}, {0x83, 0xee, 0x40}, {0x8b, 0x8e, 0x40, 0x01, 0x00, 0x20}},
     [](CpuState& s) { s.gpr[kRsi] = 0x20; }},
    {"PUSH at the bottom of the address space", {{0x50}}, [](CpuState& s) { s.gpr[kRsp] = 2; }},
    {"POP ES from an odd address, checked for alignment",
     {{0x66, 0xc7, 0x04, 0x24, 0, 0}, {0x07}},
     [](CpuState& s) {
       s.gpr[kRsp] += 2;
       s.rflags |= vcpu::kAc;
     }},
    {"XSAVE of registers that 32-bit code does not have, where an absent page follows",
     {{0xb8, 0x84, 0, 0, 0}, {0x0f, 0xae, 0x27}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage - 2560; }},
    {"XRSTOR of registers that 32-bit code does not have, where an absent page follows",
     {{0xb8, 0x03, 0, 0, 0}, {0x31, 0xd2}, {0x0f, 0xae, 0x27}, {0xb0, 0x83}, {0x0f, 0xae, 0x2f}},
     [](CpuState& s) { s.gpr[kRdi] = kAbsentPage - 2560; }},
};

TEST_CASE("What the fuzzer found in 32-bit code", "[oracle]") {
  Harness harness;
  for (const Case& c : kCompatCases) {
    INFO(c.name);
    GeneratedCase made = Make(c);
    made.test.initial.selector[vcpu::kCs] = kUserCs32;
    made.traits.user_only = true;
    for (u64& reg : made.test.initial.gpr) reg = static_cast<u32>(reg);
    const auto find = harness.CheckAll(made);
    if (find) FAIL_CHECK(harness.Story(*find));
  }
}

TEST_CASE("A division that became CHECKED between accesses off one register", "[oracle]") {
  const Code code = {{0x48, 0x8b, 0x46, 0x00},   // mov rax, [rsi]
                     {0x48, 0x89, 0x46, 0x08},   // mov [rsi+8], rax
                     {0x31, 0xd2},               // xor edx, edx
                     {0x48, 0xf7, 0xf3},         // div rbx
                     {0x48, 0x8b, 0x4e, 0x10},   // mov rcx, [rsi+16]
                     {0x48, 0x01, 0x46, 0x18}};  // add [rsi+24], rax
  const Case zero = {"zero", code, [](CpuState& s) { s.gpr[kRbx] = 0; }};
  const Case fine = {"fine", code, [](CpuState& s) { s.gpr[kRbx] = 3; }};
  NativeRunner native;
  GuestMachine machine(Kind::kAlways);
  auto expected = std::make_unique<Outcome>(), got = std::make_unique<Outcome>();
  bool first = true;
  for (const Case* c : {&fine, &zero, &zero, &fine, &fine, &zero, &fine}) {
    const GeneratedCase made = Make(*c);
    native.Run({&made.test, 1}, {expected.get(), 1});
    machine.Run(made.test, {.cold = false, .new_code = first}, got.get());
    first = false;
    INFO(c->name);
    CHECK(Differences(made.test, Kind::kAlways, *expected, *got, 0).empty());
  }
}

TEST_CASE("An instruction that reaches into the next page is found without the VMM", "[oracle]") {
  constexpr u64 kRounds = 1000;
  const Case loop = {"loop",
                     {{0xff, 0xc9},                    // dec ecx
                      {0xeb, 0x00},                    // jmp +0
                      {0xb8, 0x00, 0x00, 0x00, 0x00},  // mov eax, 0: in two pages
                      {0x85, 0xc9},                    // test ecx, ecx
                      {0x75, 0xf3}},                   // jnz
                     [](CpuState& s) {
                       s.rip = kCodeBase + kPageSize - 7;
                       s.gpr[kRcx] = kRounds;
                     }};
  GuestMachine machine(Kind::kThreshold);
  auto outcome = std::make_unique<Outcome>();
  machine.Run(Make(loop).test, {}, outcome.get());
  CHECK(outcome->vector == 3);
  CHECK(outcome->state.gpr[kRcx] == 0);
  CHECK(machine.engine().counters().exit_callouts < kRounds / 10);
}

// A miss is rare in cycles here, but comes with each access.
TEST_CASE("A site that goes to another page each time looks up in the table", "[oracle]") {
  constexpr u64 kRounds = 14000;
  const auto changes = [](u64 distance, Kind kind = Kind::kThreshold) {
    const Case loop = {"loop",
                       {{0x8b, 0x03},                    // mov eax, [rbx]
                        {0x48, 0x31, 0xd3},              // xor rbx, rdx
                        {0xbf, 0x2c, 0x01, 0x00, 0x00},  // mov edi, 300
                        {0xff, 0xcf},                    // dec edi
                        {0x75, 0xfc},                    // jnz -4
                        {0xff, 0xc9},                    // dec ecx
                        {0x75, 0xee}},                   // jnz to the load
                       {}};
    GeneratedCase made = Make(loop);
    made.test.initial.gpr[kRbx] = kDataBase;
    made.test.initial.gpr[kRdx] = distance;
    made.test.initial.gpr[kRcx] = kRounds;
    GuestMachine machine(kind);
    auto outcome = std::make_unique<Outcome>();
    machine.Run(made.test, {}, outcome.get());
    CHECK(outcome->state.gpr[kRcx] == 0);
    return machine.engine().counters().lookup_changes;
  };
  CHECK(changes(2 * kPageSize) == 1);
  // A site that page faults convicted trapped at each of them from then on.
  CHECK(changes(2 * kPageSize, Kind::kChecked) == 0);
  // From page to page: the accesses in a page hit, as far as one can know.
  CHECK(changes(kPageSize) == 0);
}

// A guest with an enabled breakpoint once ran one instruction at a time, whatever it did.
TEST_CASE("Only what breakpoints may concern leaves the translated code", "[oracle]") {
  constexpr u64 kRounds = 10000;
  const Code::value_type nop = {0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00};
  const auto counters = [&](const Code& body) {
    Code code = {nop, nop};  // where the breakpoint at an instruction is
    u8 length = 4;
    for (const auto& instr : body) length += static_cast<u8>(instr.size());
    code.insert(code.end(), body.begin(), body.end());
    code.push_back({0xff, 0xc9});                         // dec ecx
    code.push_back({0x75, static_cast<u8>(0 - length)});  // jnz
    GeneratedCase made = Make({"loop", code, {}});
    made.test.initial.gpr[kRcx] = kRounds;
    GuestMachine machine(Kind::kWatched);
    auto outcome = std::make_unique<Outcome>();
    machine.Run(made.test, {}, outcome.get());
    CHECK(outcome->vector == vcpu::kBreakpoint);
    CHECK(outcome->state.gpr[kRcx] == 0);
    return machine.engine().counters();
  };
  // The stack's top is watched.
  const runtime::Counters hits = counters({{0x50}, {0x58}});  // push rax; pop rax
  CHECK(hits.exceptions_delivered >= kRounds);
  CHECK(hits.exceptions_delivered <= kRounds + 2);
  const runtime::Counters near = counters({{0x48, 0x89, 0x44, 0x24, 0x40}});  // mov [rsp + 64], rax
  CHECK(near.exceptions_delivered <= 2);
  CHECK(near.full_exits < 100);
  CHECK(near.store_callouts + near.simulate_callouts + near.bounce_callouts >= kRounds - 100);
  const runtime::Counters far = counters({{0x48, 0x89, 0x86, 0x00, 0x30, 0x00, 0x00}});
  CHECK(far.full_exits < 100);
  CHECK(far.store_callouts + far.simulate_callouts + far.bounce_callouts < 100);
}

// What the cases rest on: a difference is seen.
TEST_CASE("A wrong result is found, shrunk and told", "[oracle]") {
  Harness harness;
  GeneratedCase made = Make({"ADD", {{0x90}, {0x48, 0x01, 0xd8}}, {}});
  auto native = std::make_unique<Outcome>();
  harness.native().Run({&made.test, 1}, {native.get(), 1});
  CHECK(native->vector == 3);
  CHECK(native->state.gpr[kRax] == made.test.initial.gpr[kRbx]);
  CHECK_FALSE(harness.Check(made, Kind::kThreshold, *native).has_value());
  native->state.gpr[kRax] ^= 4;
  auto find = harness.Check(made, Kind::kThreshold, *native);
  REQUIRE(find.has_value());
  REQUIRE(find->differences.size() == 1);
  CHECK(find->differences[0].find("* rax") == 0);
  const std::string story = harness.Story(*find);
  for (const char* part : {"ADD rax, rbx", "48 01 d8", "IDENT", "add rax, rbx", "initial state"}) {
    CHECK(story.find(part) != std::string::npos);
  }
}

TEST_CASE("A sequence without end is given up on both sides", "[oracle]") {
  Harness harness;
  GeneratedCase made = Make({"jmp self", {{0xeb, 0xfe}}, {}});
  auto native = std::make_unique<Outcome>();
  harness.native().Run({&made.test, 1}, {native.get(), 1});
  CHECK(native->end == End::kTimeout);
  GuestMachine machine(Kind::kThreshold);
  machine.Run(made.test, {.cold = false, .new_code = true, .limit_ms = 100}, native.get());
  CHECK(native->end == End::kTimeout);
  CHECK(native->state.rip == made.test.initial.rip);
}

}  // namespace
}  // namespace alibi::oracle
