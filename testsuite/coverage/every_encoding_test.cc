// SPDX-License-Identifier: Apache-2.0
// Every encoding that is IDENT, run on the host and in all translation kinds. The oracle's forms
// are chosen by hand; these are what the walk of the opcode space finds.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "isa/decoder.h"
#include "testsuite/coverage/features.h"
#include "testsuite/coverage/inventory.h"
#include "testsuite/coverage/opcode_space.h"
#include "testsuite/oracle/guest_machine.h"
#include "testsuite/oracle/harness.h"

namespace alibi::coverage {
namespace {

using isa::DecodeStatus;
using isa::Instr;
using oracle::GeneratedCase;
using oracle::NativeRunner;

class Runner {
 public:
  Runner() : outcomes_(NativeRunner::kBatch) {
    for (const oracle::InstructionForm& form : oracle::InstructionForms()) {
      if (form.name == "MOV" && form.modrm && !form.memory_only) load_ = &form;
    }
    REQUIRE(load_ != nullptr);
  }

  // One instruction, on the state of a case that the oracle's generator made.
  void Add(const Instr& instr, const InstructionBytes& bytes) {
    auto made = oracle::Generator(oracle::SeedOf(0xe4c, ++count_)).MakeOne(*load_, instr.code_bits);
    REQUIRE(made);
    oracle::Random random(count_);
    std::vector<u8> code(bytes.begin(), bytes.begin() + instr.length);
    for (unsigned i = 0; i < instr.layout.imm_size; ++i) {
      code[instr.layout.imm + i] = static_cast<u8>(random.Next());
    }
    made->test.name = isa::Disassemble(instr);
    made->test.code = {code};
    made->test.code_bits = {instr.code_bits};
    // Alignment is checked at CPL 3 only.
    if (made->test.initial.rflags & vcpu::kAc) made->traits.user_only = true;
    // What the walk's memory operands are based on. Some are aligned, some cross pages.
    auto& gpr = made->test.initial.gpr;
    if (instr.code_bits != 16 && instr.mem.present && instr.mem.base < 16) {
      u64 target = oracle::kDataBase + 64 * random.Below(2 * kPageSize / 64);
      if (random.Percent(30)) target += random.Below(64);
      gpr[instr.mem.base] = target;
      if (instr.mem.index < 16 && !instr.mem.vsib && instr.mem.index != instr.mem.base) {
        gpr[instr.mem.index] = 0;
      }
    }
    made_.push_back(std::move(*made));
    if (made_.size() == NativeRunner::kBatch) Flush();
  }

  void Flush() {
    std::vector<oracle::TestCase> tests;
    for (const GeneratedCase& made : made_) tests.push_back(made.test);
    harness_.native().Run(tests, {outcomes_.data(), tests.size()});
    for (std::size_t i = 0; i < made_.size(); ++i) {
      ended_ += outcomes_[i].end == oracle::End::kException && outcomes_[i].vector == 3;
      for (unsigned kind = 0; kind < oracle::kKindCount && failures_ < 30; ++kind) {
        auto find =
            harness_.Check(made_[i], static_cast<oracle::Kind>(kind), outcomes_[i], /*runs=*/2);
        if (!find) continue;
        ++failures_;
        FAIL_CHECK(harness_.Story(*find));
        break;
      }
    }
    made_.clear();
  }
  unsigned count() const { return count_; }
  unsigned ended() const { return ended_; }

 private:
  oracle::Harness harness_;
  const oracle::InstructionForm* load_ = nullptr;
  std::vector<oracle::Outcome> outcomes_;
  std::vector<GeneratedCase> made_;
  unsigned count_ = 0, ended_ = 0, failures_ = 0;
};

void RunAll(unsigned code_bits, unsigned at_least) {
  // Of each opcode, prefix and extension with memory and with a register.
  constexpr unsigned kEach = 2, kEachEvex = 1;
  SayWhatHostLacks("what encodings do");
  Runner runner;
  std::map<std::string, unsigned> seen;
  const Visitor visit = [&](const InstructionBytes& bytes, unsigned) {
    Instr instr;
    const DecodeStatus status =
        isa::Decode(bytes.data(), sizeof(bytes), LinearAddr(0x1000), code_bits, &instr);
    const bool more = status != DecodeStatus::kOk || instr.layout.modrm != 0xff;
    if (status != DecodeStatus::kOk || !ComparesWithHost(instr)) return more;
    const OpcodeName opcode = OpcodeOf(instr, bytes);
    std::string key = opcode.prefix + opcode.opcode + isa::MnemonicName(instr.mnemonic);
    key += instr.mem.present ? "m" : "r";
    key += static_cast<char>('0' + instr.operand_bits / 8);
    const bool evex = instr.encoding == isa::Encoding::kEvex;
    // W and the vector's length.
    if (instr.layout.vector_prefix != 0xff) {
      const u8* prefix = &bytes[instr.layout.vector_prefix];
      key += prefix[0] != 0xc5 && (prefix[2] & 0x80) ? "W" : "-";
      key += std::to_string(evex ? prefix[3] >> 5 : (prefix[prefix[0] == 0xc5 ? 1 : 2] >> 2) & 1);
    }
    if (++seen[key] <= (evex ? kEachEvex : kEach)) runner.Add(instr, bytes);
    return more;
  };
  WalkLegacy(code_bits, Depth::kShort, visit);
  WalkVex(code_bits, Depth::kShort, visit);
  WalkEvex(code_bits, Depth::kShort, visit);
  runner.Flush();
  CHECK(runner.count() > at_least);
  CHECK(runner.ended() > runner.count() / 3);  // the rest faults
}

// Their results cannot be compared, but their flags can: CF says whether there is a number.
TEST_CASE("RDRAND and RDSEED", "[coverage]") {
  using isa::Feature;
  oracle::Harness harness;
  auto outcome = std::make_unique<oracle::Outcome>();
  const auto& forms = oracle::InstructionForms();
  for (u8 extension : {6, 7}) {
    if (!HostHas(extension == 6 ? Feature::kRdrand : Feature::kRdseed)) continue;
    for (unsigned kind : {0u, static_cast<unsigned>(oracle::Kind::kSimulate)}) {
      oracle::GuestMachine machine(static_cast<oracle::Kind>(kind));
      std::set<u64> values;
      for (unsigned i = 0; i < 50; ++i) {
        auto made = oracle::Generator(oracle::SeedOf(0x4d, i)).MakeOne(forms[0], 64);
        REQUIRE(made);
        const u8 reg = static_cast<u8>(8 + i % 4);  // R8 to R11
        made->test.code = {{0x4d, 0x0f, 0xc7, static_cast<u8>(0xc0 | extension << 3 | (reg & 7))}};
        made->test.code_bits = {64};
        const auto before = made->test.initial.gpr;
        machine.Run(made->test, {}, outcome.get());
        REQUIRE(outcome->vector == 3);
        const u64 flags = outcome->state.rflags & vcpu::kArithmeticFlags;
        REQUIRE((flags & ~vcpu::kCf) == 0);
        const u64 value = outcome->state.gpr[reg];
        if (flags == 0) {
          REQUIRE(value == 0);
        } else {
          values.insert(value);
        }
        for (unsigned other = 0; other < 16; ++other) {
          if (other != reg) REQUIRE(outcome->state.gpr[other] == before[other]);
        }
      }
      CHECK(values.size() > 30);  // RDSEED may run dry
    }
  }
}

TEST_CASE("Every IDENT encoding of 64-bit code agrees with the host", "[coverage]") {
  RunAll(64, 3000);
}
TEST_CASE("Every IDENT encoding of 32-bit code agrees with the host", "[coverage]") {
  RunAll(32, 3000);
}
TEST_CASE("Every IDENT encoding of 16-bit code agrees with the host", "[coverage]") {
  RunAll(16, 3000);
}

}  // namespace
}  // namespace alibi::coverage
