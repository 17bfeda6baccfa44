// SPDX-License-Identifier: Apache-2.0
#include "translator/unit_rules.h"

#include <catch2/catch.hpp>
#include <vector>

#include "isa/decoder.h"

namespace alibi::translator {
namespace {

TEST_CASE("the unit of an instruction") {
  struct Case {
    std::vector<u8> bytes;
    isa::Unit unit;
  };
  const Case cases[] = {
      {{0x90}, isa::Unit::kNone},                                  // nop
      {{0xd9, 0xe8}, isa::Unit::kX87},                             // fld1
      {{0xdd, 0x07}, isa::Unit::kX87},                             // fld m64
      {{0x9b}, isa::Unit::kWait},                                  // fwait
      {{0xdb, 0x0f}, isa::Unit::kX87},                             // fisttp m32, of SSE3
      {{0x0f, 0xfc, 0xc1}, isa::Unit::kMmx},                       // paddb mm0, mm1
      {{0x0f, 0x70, 0xc1, 3}, isa::Unit::kMmx},                    // pshufw, of SSE
      {{0x0f, 0x77}, isa::Unit::kMmx},                             // emms
      {{0x0f, 0xe7, 0x07}, isa::Unit::kMmx},                       // movntq
      {{0x0f, 0x2d, 0xc0}, isa::Unit::kSse},                       // cvtps2pi mm0, xmm0
      {{0x0f, 0x58, 0xc1}, isa::Unit::kSse},                       // addps
      {{0x66, 0x0f, 0xfc, 0x07}, isa::Unit::kSse},                 // paddb xmm0, m128
      {{0x0f, 0x11, 0x07}, isa::Unit::kSse},                       // movups m128, xmm0
      {{0xf2, 0x0f, 0x2c, 0xc0}, isa::Unit::kSse},                 // cvttsd2si eax, xmm0
      {{0xf2, 0x0f, 0x2c, 0x07}, isa::Unit::kSse},                 // cvttsd2si eax, m64
      {{0xf3, 0x0f, 0x2d, 0x07}, isa::Unit::kSse},                 // cvtss2si eax, m32
      {{0x0f, 0x2c, 0x07}, isa::Unit::kSse},                       // cvttps2pi mm0, m64
      {{0x0f, 0x2a, 0xc1}, isa::Unit::kSse},                       // cvtpi2ps xmm0, mm1
      {{0x0f, 0x98, 0xc1}, isa::Unit::kNone},                      // sets
      {{0x66, 0x0f, 0x38, 0xdc, 0xc1}, isa::Unit::kSse},           // aesenc
      {{0x0f, 0xae, 0x17}, isa::Unit::kSse},                       // ldmxcsr
      {{0x0f, 0xae, 0x1f}, isa::Unit::kSse},                       // stmxcsr
      {{0x0f, 0x18, 0x0f}, isa::Unit::kNone},                      // prefetcht0
      {{0x0f, 0xae, 0xf8}, isa::Unit::kNone},                      // sfence
      {{0x0f, 0xc3, 0x07}, isa::Unit::kNone},                      // movnti
      {{0xf2, 0x0f, 0x38, 0xf0, 0xc3}, isa::Unit::kNone},          // crc32
      {{0xf3, 0x0f, 0xb8, 0xc3}, isa::Unit::kNone},                // popcnt
      {{0x0f, 0xae, 0x07}, isa::Unit::kFxsave},                    // fxsave
      {{0x0f, 0xae, 0x0f}, isa::Unit::kFxsave},                    // fxrstor
      {{0x0f, 0xae, 0x27}, isa::Unit::kXsave},                     // xsave
      {{0x0f, 0xae, 0x2f}, isa::Unit::kXsave},                     // xrstor
      {{0x0f, 0xc7, 0x27}, isa::Unit::kXsave},                     // xsavec
      {{0xc5, 0xf9, 0xef, 0xc0}, isa::Unit::kAvx},                 // vpxor
      {{0xc5, 0xf8, 0x77}, isa::Unit::kAvx},                       // vzeroupper
      {{0xc5, 0xf8, 0xae, 0x1f}, isa::Unit::kAvx},                 // vstmxcsr
      {{0xc4, 0xe2, 0x71, 0x98, 0xc2}, isa::Unit::kAvx},           // vfmadd132ps
      {{0xc4, 0xe2, 0x60, 0xf2, 0xc1}, isa::Unit::kVexGpr},        // andn
      {{0xc4, 0xe2, 0xf3, 0xf5, 0xc2}, isa::Unit::kVexGpr},        // pdep
      {{0xc5, 0xf8, 0x92, 0xc8}, isa::Unit::kAvx512},              // kmovw k1, eax
      {{0x62, 0xf1, 0x7d, 0x48, 0xef, 0xc0}, isa::Unit::kAvx512},  // vpxord zmm
      {{0x62, 0xf1, 0x7c, 0x08, 0x10, 0x07}, isa::Unit::kAvx512},  // vmovups xmm0, m128 (EVEX)
  };
  for (const Case& c : cases) {
    isa::Instr instr;
    REQUIRE(Decode(c.bytes.data(), static_cast<unsigned>(c.bytes.size()), LinearAddr(0x1000), 64,
                   &instr) == isa::DecodeStatus::kOk);
    CAPTURE(isa::Disassemble(instr));
    CHECK(instr.unit == c.unit);
  }
}

TEST_CASE("rules come from CR0, CR4 and XCR0") {
  vcpu::VcpuState state{};
  CHECK((UnitRules(state) & kNoVex) != 0);
  state.cr0 = vcpu::kCr0Pe;
  state.cr4 = vcpu::kCr4Osfxsr | vcpu::kCr4Osxsave;
  state.xcr0 = 0xe7;
  CHECK(UnitRules(state) == 0);
  state.cr0 = vcpu::kCr0Pe | vcpu::kCr0Ts;
  CHECK(UnitRules(state) == kTaskSwitched);
  state.cr0 = vcpu::kCr0Pe | vcpu::kCr0Ts | vcpu::kCr0Mp;
  CHECK(UnitRules(state) == (kTaskSwitched | kWaitTraps));
  state.cr0 = vcpu::kCr0Pe | vcpu::kCr0Em | vcpu::kCr0Mp;
  CHECK(UnitRules(state) == kEmulation);
  state.cr0 = vcpu::kCr0Pe;
  state.xcr0 = 7;
  CHECK(UnitRules(state) == kNoAvx512);
  state.xcr0 = 3;
  CHECK(UnitRules(state) == (kNoAvx | kNoAvx512));
  state.cr4 = 0;
  CHECK(UnitRules(state) == (kNoAvx | kNoAvx512 | kNoSse | kNoXsave));
  state.cr4 = vcpu::kCr4Osfxsr | vcpu::kCr4Osxsave;
  state.xcr0 = 0xe7;
  state.system_flags = vcpu::kVm;
  CHECK(UnitRules(state) == kNoVex);
}

TEST_CASE("#UD goes before #NM") {
  constexpr u8 kNm = vcpu::kDeviceNotAvailable, kUd = vcpu::kInvalidOpcode;
  CHECK(UnitFault(isa::Unit::kSse, kTaskSwitched) == kNm);
  CHECK(UnitFault(isa::Unit::kSse, kTaskSwitched | kNoSse) == kUd);
  CHECK(UnitFault(isa::Unit::kSse, kTaskSwitched | kEmulation) == kUd);
  CHECK(UnitFault(isa::Unit::kX87, kTaskSwitched | kEmulation) == kNm);
  CHECK(UnitFault(isa::Unit::kWait, kTaskSwitched) == kUnitUsable);
  CHECK(UnitFault(isa::Unit::kWait, kTaskSwitched | kWaitTraps) == kNm);
  CHECK(UnitFault(isa::Unit::kAvx, kEmulation | kNoSse) == kUnitUsable);
  CHECK(UnitFault(isa::Unit::kAvx, kNoAvx512) == kUnitUsable);
  CHECK(UnitFault(isa::Unit::kAvx512, kNoAvx512) == kUd);
  CHECK(UnitFault(isa::Unit::kAvx, kNoVex) == kUd);
  CHECK(UnitFault(isa::Unit::kAvx512, kNoVex) == kUd);
  CHECK(UnitFault(isa::Unit::kVexGpr, kNoVex) == kUd);
  CHECK(UnitFault(isa::Unit::kVexGpr, kTaskSwitched | kNoXsave | kNoAvx) == kUnitUsable);
  for (unsigned rules = 0; rules < 256; ++rules) {
    CHECK(UnitFault(isa::Unit::kNone, static_cast<u8>(rules)) == kUnitUsable);
  }
}

}  // namespace
}  // namespace alibi::translator
