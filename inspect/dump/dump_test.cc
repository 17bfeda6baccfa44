// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "abi/contract.h"
#include "abi/gs_names.h"
#include "inspect/dump/dump_text.h"
#include "inspect/dump/example.h"
#include "inspect/dump/host_listing.h"
#include "inspect/dump/program.h"
#include "inspect/dump/recorder.h"
#include "testsuite/golden.h"

namespace alibi::vmm {
namespace {

TEST_CASE("The paper's example, as a golden file") {
  auto text = IsPrimeExample("hysteresis");
  REQUIRE(text.ok());
  CHECK(testsuite::CompareWithGolden("inspect/dump/golden/isprime.txt", *text) == "");
}

TEST_CASE("The example is the same text in every run of a process") {
  auto first = IsPrimeExample("hysteresis"), second = IsPrimeExample("hysteresis");
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(*first == *second);
}

TEST_CASE("%gs operands are named after the contract") {
  CHECK(NameGsOperand("r10*8", 0) == "shadow[r10*8]");
  CHECK(NameGsOperand("", kVcpuOffset + 10 * 8) == "vcpu.r10");
  CHECK(NameGsOperand("", kVcpuOffset + offsetof(vcpu::VcpuState, scratch.rcx)) ==
        "vcpu.scratch.rcx");
  CHECK(NameGsOperand("", kVcpuOffset + offsetof(vcpu::VcpuState, system_flags) + 1) ==
        "vcpu.system_flags+1");
  CHECK(NameGsOperand("", kJumpTableOffset + 0x12 * 8) == "jump_table[0x12]");
  CHECK(NameGsOperand("r10*8", kJumpTableOffset) == "jump_table[r10*8]");
  CHECK(NameGsOperand("", kSlotsOffset) == "load_slot[0].neg_page");
  CHECK(NameGsOperand(
            "", kSlotsOffset + (kSlotCount + 3) * static_cast<i64>(sizeof(InlineTlbEntry)) + 8) ==
        "store_slot[3].displacement");
}

TEST_CASE("Host code: jumps have targets, garbage is one byte at a time") {
  const auto listing =
      DisassembleHost({0xeb, 0x02, 0x06, 0x90, 0x65, 0x48, 0x8b, 0x04, 0xd5, 0x00, 0x00,
                       0x00, 0x00, 0xe2, 0x10, 0x62, 0xf2, 0x7d, 0x48, 0x8a, 0x0f},
                      HostAddr(0x1000));
  REQUIRE(listing.size() == 6);
  CHECK(listing[0].jump);
  CHECK(listing[0].target == HostAddr(0x1004));
  CHECK(listing[1].mnemonic == "(bad)");
  CHECK(listing[2].mnemonic == "nop");
  CHECK(listing[3].operands == "rax, gs:shadow[rdx*8]");
  CHECK(listing[4].mnemonic == "loop");
  CHECK(listing[4].jump);
  CHECK(listing[4].target == HostAddr(0x101f));
  CHECK(listing[5].bytes.size() == 6);  // EVEX
}

struct Run {
  std::string end;
  std::string text;
  std::size_t translations;
};

Run RunCode(const std::vector<u8>& code, LinearAddr at, unsigned bits) {
  auto machine = MakeProgramMachine(code, at, bits, "hysteresis");
  REQUIRE(machine.ok());
  Machine& inner = (*machine)->machine();
  Recorder recorder(inner.mmu(), *inner.translator());
  inner.translator()->set_translation_observer(&recorder);
  Run run;
  run.end = RunLimited(**machine, 2);
  inner.translator()->set_translation_observer(nullptr);
  DumpText text(recorder, *inner.translator(), {});
  run.text = text.GuestListing() + text.CacheContents() + text.Exits() + text.Adaptations();
  run.translations = recorder.translations().size();
  return run;
}

TEST_CASE("Code anywhere: low, high, in two pages, 32-bit") {
  const std::vector<u8> ret = {0x31, 0xc0, 0xc3};  // xor eax, eax; ret
  CHECK(RunCode(ret, LinearAddr(0x20000), 64).end == "the code returned");
  CHECK(RunCode(ret, LinearAddr(0xffffffff81000000), 64).end == "the code returned");
  CHECK(RunCode(ret, LinearAddr(0x7ffffffffffd), 64).end == "the code returned");
  CHECK(RunCode(ret, LinearAddr(0x40000fff), 64).end == "the code returned");
  CHECK(RunCode(ret, LinearAddr(0x123456), 32).end == "the code returned");
}

TEST_CASE("Code that does not come back ends anyway") {
  CHECK_THAT(RunCode({0x0f, 0x0b}, kProgramAddress, 64).end, Catch::Contains("triple fault"));
  const Run loop = RunCode({0xeb, 0xfe}, kProgramAddress, 64);  // jmp $
  CHECK_THAT(loop.end, Catch::Contains("still running"));
  CHECK_THAT(loop.text, Catch::Contains("jumps to 0x100000'"));
}

TEST_CASE("Impossible programs are refused with a reason") {
  const std::vector<u8> ret = {0xc3};
  CHECK_FALSE(MakeProgramMachine({}, kProgramAddress, 64, "never").ok());
  CHECK_FALSE(MakeProgramMachine(std::vector<u8>(0x10001), kProgramAddress, 64, "never").ok());
  CHECK_FALSE(MakeProgramMachine(ret, LinearAddr(0x1000), 64, "never").ok());
  CHECK_FALSE(MakeProgramMachine(ret, LinearAddr(0x800000000000), 64, "never").ok());
  CHECK_FALSE(MakeProgramMachine({0x90, 0xc3}, LinearAddr(~u64{0}), 64, "never").ok());
  CHECK_FALSE(MakeProgramMachine({0x90, 0xc3}, LinearAddr(0x7fffffffffff), 64, "never").ok());
  CHECK_FALSE(MakeProgramMachine(ret, LinearAddr(0x1000000), 32, "never").ok());
  CHECK_THAT(MakeProgramMachine(ret, LinearAddr(0x1000), 32, "never").error().message,
             Catch::Contains("0x20000"));
}

}  // namespace
}  // namespace alibi::vmm
