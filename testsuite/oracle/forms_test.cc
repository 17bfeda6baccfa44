// SPDX-License-Identifier: Apache-2.0
// Systematic runs: every instruction form, and every addressing mode, in every translation kind.
#include <catch2/catch.hpp>

#include "testsuite/oracle/harness.h"

namespace alibi::oracle {
namespace {

// Runs natively in batches, then in the kinds.
class Batch {
 public:
  explicit Batch(unsigned runs) : runs_(runs), outcomes_(NativeRunner::kBatch) {}
  void Add(GeneratedCase made) {
    made_.push_back(std::move(made));
    if (made_.size() == NativeRunner::kBatch) Flush();
  }
  void Flush() {
    std::vector<TestCase> tests;
    for (const GeneratedCase& made : made_) tests.push_back(made.test);
    harness_.native().Run(tests, {outcomes_.data(), tests.size()});
    for (std::size_t i = 0; i < made_.size(); ++i) {
      for (unsigned kind = 0; kind < kKindCount && failures_ < 3; ++kind) {
        auto find = harness_.Check(made_[i], static_cast<Kind>(kind), outcomes_[i], runs_);
        if (!find) continue;
        ++failures_;
        FAIL_CHECK(harness_.Story(harness_.Shrink(*find)));
      }
      ended_ += outcomes_[i].end == End::kException && outcomes_[i].vector == 3;
    }
    made_.clear();
  }
  unsigned ended() const { return ended_; }

 private:
  Harness harness_;
  unsigned runs_;
  std::vector<GeneratedCase> made_;
  std::vector<Outcome> outcomes_;
  unsigned failures_ = 0;
  unsigned ended_ = 0;
};

TEST_CASE("Every instruction form", "[oracle]") {
  constexpr unsigned kVariants = 40;
  Batch batch(2);
  unsigned count = 0;
  for (const InstructionForm& form : InstructionForms()) {
    for (unsigned variant = 0; variant < kVariants; ++variant) {
      const unsigned bits = variant % 2 == 0 ? 64 : variant % 4 == 1 ? 32 : 16;
      if (auto made = Generator(SeedOf(0xf0, count)).MakeOne(form, bits)) {
        batch.Add(std::move(*made));
        ++count;
      }
    }
  }
  batch.Flush();
  CHECK(count > 13'000);
  CHECK(batch.ended() > count / 2);  // the rest faults
}

// MOV and ADD, both directions, with every base, index and scale, and displacements of all sizes.
GeneratedCase MakeAddressing(unsigned base, unsigned index, unsigned scale, unsigned disp_size,
                             bool narrow, bool store, u8 reg) {
  constexpr unsigned kNone = 16;
  GeneratedCase made;
  TestCase& test = made.test;
  test.seed = 1;
  CpuState& state = test.initial;
  state.rip = kCodeBase + 0x200;
  state.rflags = 0x202 | vcpu::kCf | vcpu::kZf;
  for (unsigned i = 0; i < 16; ++i) state.gpr[i] = 0x0101010101010101 * (i + 1);
  state.gpr[vcpu::kRsp] = kStackBase + 2 * kPageSize - 0x80;
  const u32 disp = disp_size == 0 ? 0 : disp_size == 1 ? static_cast<u32>(-24) : 0x4321;
  const u64 target = kDataBase + 0x780;
  u64 rest = target - static_cast<u64>(static_cast<i64>(static_cast<i32>(disp)));
  if (index != kNone) {
    const u64 value = 0x11;
    if (index != vcpu::kRsp) {
      state.gpr[index] = value;
      if (index == base) {
        // One register is both: it must make up the whole sum.
        state.gpr[base] = rest / ((1u << scale) + 1);
        rest = 0;
      } else {
        rest -= value << scale;
      }
    }
  }
  if (base != kNone && base != index) state.gpr[base] = rest;
  u32 disp32 = disp;
  if (base == kNone) disp32 = static_cast<u32>(disp + rest);
  const bool sib = index != kNone || base == kNone || (base & 7) == 4;
  unsigned mod = disp_size == 0 ? 0 : disp_size == 1 ? 1 : 2;
  if (base == kNone) mod = 0;
  if (mod == 0 && base != kNone && (base & 7) == 5) mod = 1;
  std::vector<u8> code;
  if (narrow) code.push_back(0x67);
  code.push_back(static_cast<u8>(0x48 | (reg >> 3) << 2 | (index != kNone && index >= 8) << 1 |
                                 (base != kNone && base >= 8)));
  code.push_back(store ? 0x01 : 0x8b);
  code.push_back(static_cast<u8>(mod << 6 | (reg & 7) << 3 | (sib ? 4 : base & 7)));
  if (sib) {
    code.push_back(static_cast<u8>(scale << 6 | (index == kNone ? 4 : index & 7) << 3 |
                                   (base == kNone ? 5 : base & 7)));
  }
  const unsigned size = base == kNone ? 4 : mod == 1 ? 1 : mod == 2 ? 4 : 0;
  for (unsigned i = 0; i < size; ++i) code.push_back(static_cast<u8>(disp32 >> (8 * i)));
  test.code = {code, {0x48, 0x11, 0xd2}};  // adc rdx, rdx: the flags count
  test.name = "addressing mode";
  return made;
}

TEST_CASE("Every base, index, scale and displacement", "[oracle]") {
  Batch batch(1);
  unsigned count = 0;
  for (unsigned base = 0; base <= 16; ++base) {
    for (unsigned index = 0; index <= 16; ++index) {
      if (index == vcpu::kRsp) continue;  // means: no index
      for (unsigned variant = 0; variant < 6; ++variant) {
        const unsigned scale = (variant + base) % 4;
        const u8 reg = static_cast<u8>((base + 5 * index + 3 * variant) % 16);
        if (reg == vcpu::kRsp) continue;
        batch.Add(MakeAddressing(base, index, scale, variant % 3, variant >= 3,
                                 (base + index + variant) % 2, reg));
        ++count;
      }
    }
  }
  batch.Flush();
  CHECK(count > 1400);
  CHECK(batch.ended() > count * 3 / 4);
}

}  // namespace
}  // namespace alibi::oracle
