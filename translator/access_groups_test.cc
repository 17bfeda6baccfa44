// SPDX-License-Identifier: Apache-2.0
#include "translator/access_groups.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace alibi::translator {
namespace {

// The plan in letters: L leader, f follower, r folded, - none of them.
struct Planned {
  std::string letters;
  AccessPlans plans;
};

Planned Plan(const std::string& hex, unsigned code_bits = 64) {
  std::vector<u8> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes.push_back(static_cast<u8>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  auto tu = std::make_unique<TranslationUnit>();
  REQUIRE(BuildTranslationUnit({.pc = LinearAddr(0x2000),
                                .code_bits = code_bits,
                                .bytes = bytes.data(),
                                .available = static_cast<unsigned>(bytes.size())},
                               tu.get()) == isa::DecodeStatus::kOk);
  CodeMode mode;
  mode.code_bits = static_cast<u8>(code_bits);
  Planned planned;
  PlanAccesses(*tu, mode, {}, &planned.plans);
  for (unsigned i = 0; i < tu->count; ++i) {
    const AccessPlan& plan = planned.plans[i];
    planned.letters += plan.leader ? 'L' : plan.follower ? 'f' : plan.folded ? 'r' : '-';
  }
  return planned;
}

TEST_CASE("Accesses off one register share a look-up", "[groups]") {
  // mov rax, [rbx]; mov [rbx + 8], rcx; mov rdx, [rbx - 16]
  const Planned p = Plan("48 8b 03 48 89 4b 08 48 8b 53 f0");
  CHECK(p.letters == "Lff");
  CHECK(p.plans[0].low == -16);
  CHECK(p.plans[0].high == 16);
  CHECK(p.plans[0].stores);
  CHECK_FALSE(Plan("48 8b 03 48 8b 53 08").plans[0].stores);
  CHECK(Plan("48 8b 03").letters == "-");
}

TEST_CASE("A store counts behind an instruction that accesses nothing", "[groups]") {
  // mov rax, [rbx]; mov ecx, edx; mov [rbx + 8], rcx
  const Planned p = Plan("48 8b 03 89 d1 48 89 4b 08");
  CHECK(p.letters == "L-f");
  CHECK(p.plans[0].stores);
}

TEST_CASE("What changes the base register ends a group", "[groups]") {
  // mov rax, [rbx]; mov rbx, [rbx + 8]; mov rax, [rbx]
  CHECK(Plan("48 8b 03 48 8b 5b 08 48 8b 03").letters == "Lf-");
  // mov rax, [rbx]; add rbx, 16; mov rcx, [rbx + 8]
  const Planned p = Plan("48 8b 03 48 83 c3 10 48 8b 4b 08");
  CHECK(p.letters == "L-f");
  CHECK(p.plans[0].high == 32);
  // mov rax, [rbx]; add rbx, rdx; mov rcx, [rbx + 8]
  CHECK(Plan("48 8b 03 48 01 d3 48 8b 4b 08").letters == "---");
}

TEST_CASE("The stack is a base register that moves", "[groups]") {
  // push rax; push rbx; mov rcx, [rsp + 16]; pop rbx; pop rax
  const Planned p = Plan("50 53 48 8b 4c 24 10 5b 58");
  CHECK(p.letters == "Lffff");
  CHECK(p.plans[0].low == -16);
  CHECK(p.plans[0].high == 8);
}

TEST_CASE("Registers derived from the base register belong to its group", "[groups]") {
  // push rbp; mov rbp, rsp; sub rsp, 32; mov [rbp - 8], rax; lea rcx, [rsp + 8]; mov rdx, [rcx]
  const Planned p = Plan("55 48 89 e5 48 83 ec 20 48 89 45 f8 48 8d 4c 24 08 48 8b 11");
  CHECK(p.letters == "L--f-f");
  CHECK(p.plans[0].low == -32);  // the last: -8 - 32 + 8
  CHECK(p.plans[0].high == 0);
  // mov rbx, [rbp - 8]; mov rsp, rbp; pop rbp; ret
  CHECK(Plan("48 8b 5d f8 48 89 ec 5d c3").letters == "L-ff");
  // mov rbx, [rbp - 8]; leave; ret
  CHECK(Plan("48 8b 5d f8 c9 c3").letters == "Lff");
  // mov eax, [ebp - 8]; leave; ret
  CHECK(Plan("8b 45 f8 c9 c3", 32).letters == "Lff");
  // mov rax, [rbx]; mov rcx, rbx; mov rcx, rdx; mov rsi, [rcx]: not any more
  CHECK(Plan("48 8b 03 48 89 d9 48 89 d1 48 8b 31").letters == "----");
  // mov rax, [rbx]; mov ecx, ebx; mov rsi, [rcx]: half of it
  CHECK(Plan("48 8b 03 89 d9 48 8b 31").letters == "---");
  // mov rax, [rbx]; mov rcx, rbx; mov rbx, rdx; mov rsi, [rcx + 8]: what is left of it
  CHECK(Plan("48 8b 03 48 89 d9 48 89 d3 48 8b 71 08").letters == "L--f");
}

TEST_CASE("Indexed accesses with dead flags fold, and the group goes on", "[groups]") {
  // mov rax, [rbx]; mov rcx, [rsi + rdi*8]; mov rdx, [rbx + 8]; xor eax, eax; jmp
  CHECK(Plan("48 8b 03 48 8b 0c fe 48 8b 53 08 31 c0 eb 00").letters ==
        "Lrf-"
        "-");
  // ... but not when the flags are read behind: there is nowhere to keep them.
  CHECK(Plan("39 c8 48 8b 03 48 8b 0c fe 48 8b 53 08 74 00").letters == "-----");
  // ... nor when they name the registers that the translation needs.
  CHECK(Plan("48 8b 03 4a 8b 0c d6 48 8b 53 08 31 c0 eb 00").letters == "-----");
  // ... nor when their segment is asked first: mov eax, [ebx]; mov cs:[0x2000], ecx;
  // mov edx, [ebx + 4]; xor eax, eax; hlt
  CHECK(Plan("8b 03 2e 89 0d 00 20 10 00 8b 53 04 31 c0 f4", 32).letters == "-----");
  CHECK(Plan("8b 03 2e 8b 0d 00 20 10 00 8b 53 04 31 c0 f4", 32).letters == "Lrf--");
  CHECK(Plan("8b 03 64 8b 0d 00 20 10 00 8b 53 04 31 c0 f4", 32).letters == "-----");
  // Off another base register the group changes hands.
  CHECK(Plan("48 8b 03 48 8b 0e 48 8b 53 08 31 c0 eb 00").letters == "-----");
}

TEST_CASE("A range that a displacement cannot express is no group's", "[groups]") {
  // mov rax, [rbx + 0x7fffffff]; mov ecx, [rbx + 0x7fffffff]: ends beyond
  CHECK(Plan("48 8b 83 ff ff ff 7f 8b 8b ff ff ff 7f").letters == "--");
  // mov rax, [rbx + 0x7ffffff0]; add rbx, 16; mov rcx, [rbx + 0x7ffffff0]
  CHECK(Plan("48 8b 83 f0 ff ff 7f 48 83 c3 10 48 8b 8b f0 ff ff 7f").letters == "---");
  // mov rax, [rbx - 0x80000000]; sub rbx, 16; mov rcx, [rbx - 0x80000000]: begins below. The range
  // would be looked up 4 GB away from where it is accessed.
  CHECK(Plan("48 8b 83 00 00 00 80 48 83 eb 10 48 8b 8b 00 00 00 80").letters == "---");
  // mov rax, [rbx - 0x80000000]; mov rcx, [rbx - 0x7ffffff8]
  CHECK(Plan("48 8b 83 00 00 00 80 48 8b 8b 08 00 00 80").letters == "Lf");
}

TEST_CASE("32-bit code: sums that cannot wrap", "[groups]") {
  // mov eax, [ebp - 0x118]; mov [ebp - 0x120], ecx
  CHECK(Plan("8b 85 e8 fe ff ff 89 8d e0 fe ff ff", 32).letters == "Lf");
  // mov eax, [ebx - 0x40000000]: a table in the upper half, ebx is its index
  CHECK(Plan("8b 83 00 00 00 c0 8b 83 04 00 00 c0", 32).letters == "--");
  // mov eax, [esi + 0x70]; sub esi, 0x40; mov ecx, [esi + 0x70]: esi itself must not wrap, so the
  // range reaches down to it.
  const Planned p = Plan("8b 46 70 83 ee 40 8b 4e 70", 32);
  CHECK(p.letters == "L-f");
  CHECK(p.plans[0].low == -0x40);
}

}  // namespace
}  // namespace alibi::translator
