// SPDX-License-Identifier: Apache-2.0
#include "translator/translation_unit.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "translator/flag_liveness.h"
#include "vcpu/state.h"

namespace alibi::translator {
namespace {

constexpr u32 kAll = static_cast<u32>(vcpu::kArithmeticFlags);
constexpr u32 kCf = static_cast<u32>(vcpu::kCf), kZf = static_cast<u32>(vcpu::kZf);

std::vector<u8> Bytes(const std::string& hex) {
  std::vector<u8> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes.push_back(static_cast<u8>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// A TU whose page ends with the given bytes.
struct Built {
  isa::DecodeStatus status;
  TranslationUnit tu;
};

Built Build(const std::string& hex, const std::string& next_page = "", unsigned max = 12,
            unsigned start = 0, bool look_ahead = true, unsigned code_bits = 64,
            const isa::FeatureSet* shown = nullptr) {
  std::vector<u8> page = Bytes(hex), next = Bytes(next_page);
  Built built;
  built.status = BuildTranslationUnit({.pc = LinearAddr(0x2000 + start),
                                       .code_bits = code_bits,
                                       .bytes = page.data() + start,
                                       .available = static_cast<unsigned>(page.size()) - start,
                                       .next_page = next.empty() ? nullptr : next.data(),
                                       .next_available = static_cast<unsigned>(next.size()),
                                       .page_before = start,
                                       .max_instructions = max,
                                       .look_ahead = look_ahead,
                                       .shown = shown},
                                      &built.tu);
  return built;
}

TEST_CASE("A TU ends with control flow", "[tu]") {
  Built b = Build("48 89 d8 48 01 d8 eb 10 90 90");
  REQUIRE(b.status == isa::DecodeStatus::kOk);
  CHECK(b.tu.count == 3);
  CHECK(b.tu.byte_length == 8);
  CHECK(b.tu.ends_with_control);
  CHECK(b.tu.instrs[2].branch_target == LinearAddr(0x2018));
  CHECK_FALSE(b.tu.crosses_page);
}

TEST_CASE("SYSCALL, SYSRET and IRET end a TU; CLI and STI do not", "[tu]") {
  for (const char* hex : {"0f 05 90", "48 0f 07 90", "48 cf 90"}) {
    Built b = Build(hex);
    CHECK(b.tu.count == 1);
    CHECK(b.tu.ends_with_control);
  }
  CHECK(Build("fa fb 90 90").tu.count == 4);
}

TEST_CASE("At most twelve instructions, or fewer when asked", "[tu]") {
  std::string nops = "90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90";
  CHECK(Build(nops).tu.count == 12);
  CHECK_FALSE(Build(nops).tu.ends_with_control);
  CHECK(Build(nops, "", 1).tu.count == 1);
  CHECK(Build(nops, "", 100).tu.count == 12);
}

TEST_CASE("The page's end is the TU's", "[tu]") {
  Built b = Build("90 90 48 8b");  // MOV begins here and goes on in the next page
  REQUIRE(b.status == isa::DecodeStatus::kOk);
  CHECK(b.tu.count == 2);
  CHECK(b.tu.byte_length == 2);
  CHECK_FALSE(b.tu.crosses_page);
}

TEST_CASE("A first instruction may cross into the next page", "[tu]") {
  CHECK(Build("48 8b").status == isa::DecodeStatus::kNeedMoreBytes);
  Built b = Build("48 8b", "03 90 90");
  REQUIRE(b.status == isa::DecodeStatus::kOk);
  CHECK(b.tu.crosses_page);
  CHECK(b.tu.count == 1);
  CHECK(b.tu.byte_length == 3);
  CHECK(b.tu.examined_end == LinearAddr(0x2002));
}

TEST_CASE("Undefined instructions are a TU's last, too long ones have none", "[tu]") {
  Built b = Build("90 0f 0b 90");
  REQUIRE(b.status == isa::DecodeStatus::kOk);
  CHECK(b.tu.count == 2);
  CHECK(b.tu.instrs[1].treatment == isa::Treatment::kUndefined);
  CHECK(b.tu.ends_with_control);
  std::string too_long = "66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 90";
  CHECK(Build(too_long).status == isa::DecodeStatus::kTooLong);
  Built behind = Build("90 " + too_long);
  CHECK(behind.status == isa::DecodeStatus::kOk);
  CHECK(behind.tu.count == 1);
}

TEST_CASE("Liveness inside a TU", "[liveness]") {
  // MOV eax, [rbx]; ADD eax, ecx; MOV edx, [rbx]; JZ +0
  Built b = Build("8b 03 01 c8 8b 13 74 00", "", 12, 0, /*look_ahead=*/false);
  CHECK(b.tu.flags_live_before[0] == 0);
  CHECK(b.tu.flags_live_after[0] == 0);
  CHECK(b.tu.flags_live_before[1] == 0);
  CHECK(b.tu.flags_live_after[1] == kAll);
  CHECK(b.tu.flags_live_before[2] == kAll);
  CHECK(b.tu.flags_live_before[3] == kAll);
}

TEST_CASE("Partial writers leave the other flags alive", "[liveness]") {
  // ADD eax, ecx; INC eax; ADC eax, ecx
  Built b = Build("01 c8 ff c0 11 c8");
  CHECK(b.tu.flags_live_after[0] == kCf);
  CHECK(b.tu.flags_live_before[1] == kCf);
  CHECK(b.tu.flags_live_before[0] == 0);
}

// The look-ahead took such an instruction for what it is elsewhere, which writes flags or ignores
// them (found by the fuzzer on a host without AVX512-FP16).
TEST_CASE("The #UD of an instruction that is not shown shows all flags", "[liveness]") {
  // ADD eax, ecx; JMP +0; ANDN eax, ebx, ecx
  const char* hex = "01 c8 eb 00 c4 e2 60 f2 c1";
  isa::FeatureSet shown;
  CHECK(Build(hex, "", 12, 0, true, 64, &shown).tu.flags_live_after[1] != kAll);
  shown.Hide(isa::Feature::kBmi1);
  CHECK(Build(hex, "", 12, 0, true, 64, &shown).tu.flags_live_after[1] == kAll);
}

TEST_CASE("Faults of 16-bit code show all flags", "[liveness]") {
  // MOV ax, [bx+si]; ADD ax, cx; RET
  CHECK(Build("8b 00 01 c8 c3", "", 12, 0, true, 16).tu.flags_live_before[0] == kAll);
  CHECK(Build("8b 00 01 c8 c3", "", 12, 0, true, 32).tu.flags_live_before[0] == 0);
}

TEST_CASE("A shift by CL kills nothing", "[liveness]") {
  // MOV eax, [rbx]; SHL eax, cl; RET
  Built b = Build("8b 03 d3 e0 c3");
  CHECK(b.tu.flags_live_before[0] == kAll);
  // SHL eax, 3 does
  CHECK(Build("8b 03 c1 e0 03 c3").tu.flags_live_before[0] == 0);
}

TEST_CASE("What shows the flag image keeps all flags alive", "[liveness]") {
  for (const char* hex : {"0f 05", "9c 01 c0", "cc", "0f 0b", "0f a2 01 c0", "cb"}) {
    INFO(hex);
    CHECK(Build(std::string("8b 03 ") + hex).tu.flags_live_before[0] == kAll);
  }
  CHECK(Build("8b 03 fa 01 c0").tu.flags_live_before[0] == 0);  // CLI does not
}

TEST_CASE("Look-ahead: both sides of a conditional branch", "[liveness]") {
  // JNZ +2; ADD eax, eax; SUB eax, eax
  CHECK(Build("75 02 01 c0 29 c0").tu.flags_live_after[0] == 0);
  // The taken side reads CF.
  CHECK(Build("75 02 01 c0 11 c0").tu.flags_live_after[0] == kCf);
  // One side leaves the page.
  CHECK(Build("75 20 01 c0 29 c0").tu.flags_live_after[0] == kAll);
  CHECK(Build("75 02 01 c0 29 c0", "", 12, 0, false).tu.flags_live_after[0] == kAll);
}

TEST_CASE("Look-ahead: direct jumps and calls, fall-through, nothing else", "[liveness]") {
  CHECK(Build("eb 00 01 c0").tu.flags_live_after[0] == 0);
  CHECK(Build("e8 01 00 00 00 90 01 c0").tu.flags_live_after[0] == 0);
  CHECK(Build("90 01 c0", "", 1).tu.flags_live_after[0] == 0);
  CHECK(Build("c3 01 c0").tu.flags_live_after[0] == kAll);
  CHECK(Build("ff e0 01 c0").tu.flags_live_after[0] == kAll);
  // A jump to a jump is followed, a jump to itself ends.
  CHECK(Build("eb 02 90 90 eb 00 01 c0").tu.flags_live_after[0] == 0);
  CHECK(Build("90 eb fe", "", 1).tu.flags_live_after[0] == kAll);
  // ZF is read behind a MOV, the rest is written behind that.
  CHECK(Build("eb 00 89 d8 0f 94 c0 01 c0").tu.flags_live_after[0] == kZf);
}

TEST_CASE("Look-ahead is bounded, and says how far it looked", "[liveness]") {
  CHECK(Build("eb 00 90 90 90 90 90 90 90 90 01 c0").tu.flags_live_after[0] == kAll);
  Built b = Build("eb 02 90 90 01 c0 90");
  CHECK(b.tu.examined_begin == LinearAddr(0x2000));
  CHECK(b.tu.examined_end == LinearAddr(0x2006));
}

TEST_CASE("Look-ahead backwards needs the page in front", "[liveness]") {
  // ADD eax, eax; NOP; JMP to the ADD. The TU begins at the NOP.
  Built b = Build("01 c0 90 eb fb", "", 12, 2);
  CHECK(b.tu.flags_live_before[0] == 0);
  CHECK(b.tu.examined_begin == LinearAddr(0x2000));
  std::vector<u8> page = Bytes("01 c0 90 eb fb");
  TranslationUnit tu;
  BuildTranslationUnit({.pc = LinearAddr(0x2002), .bytes = page.data() + 2, .available = 3}, &tu);
  CHECK(tu.flags_live_before[0] == kAll);
  CHECK(tu.examined_begin == LinearAddr(0x2002));
}

}  // namespace
}  // namespace alibi::translator
