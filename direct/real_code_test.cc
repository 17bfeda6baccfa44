// SPDX-License-Identifier: Apache-2.0
// What the judge guarantees (code_judge.h), on compiled code: an instruction of each row of
// host_visible.inc, inserted where an instruction may stand, is found.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "direct/code_judge.h"
#include "direct/elf_code.h"
#include "isa/glance.h"

namespace alibi::direct {
namespace {

using Bytes = std::vector<u8>;

// One instruction of each row; those of features that the decoder does not know cannot be decoded.
struct Sample {
  HostVisible row;
  Bytes bytes;
};
const std::vector<Sample> kSamples = {
    {HostVisible::kCpuid, {0x0f, 0xa2}},
    {HostVisible::kRdtsc, {0x0f, 0x31}},
    {HostVisible::kRdtscp, {0x0f, 0x01, 0xf9}},
    {HostVisible::kXgetbv, {0x0f, 0x01, 0xd0}},
    {HostVisible::kRdpid, {0xf3, 0x0f, 0xc7, 0xf9}},
    {HostVisible::kRdpmc, {0x0f, 0x33}},
    {HostVisible::kRdpru, {0x0f, 0x01, 0xfd}},
    {HostVisible::kSldt, {0x0f, 0x00, 0x00}},
    {HostVisible::kStr, {0x66, 0x0f, 0x00, 0xc9}},
    {HostVisible::kVerr, {0x0f, 0x00, 0x64, 0x24, 0x10}},
    {HostVisible::kVerw, {0x0f, 0x00, 0xe8}},
    {HostVisible::kSgdt, {0x0f, 0x01, 0x44, 0x24, 0x08}},
    {HostVisible::kSidt, {0x0f, 0x01, 0x0b}},
    {HostVisible::kSmsw, {0x0f, 0x01, 0xe0}},
    {HostVisible::kLar, {0x0f, 0x02, 0xc1}},
    {HostVisible::kLsl, {0x66, 0x0f, 0x03, 0x04, 0x24}},
    {HostVisible::kMovSreg, {0x8c, 0xe8}},
    {HostVisible::kMovSreg, {0x8e, 0x6c, 0x24, 0x04}},
    {HostVisible::kPushPopSreg, {0x06}},
    {HostVisible::kPushPopSreg, {0x1f}},
    {HostVisible::kPushPopFsGs, {0x0f, 0xa8}},
    {HostVisible::kLoadFarPointer, {0xc5, 0x06}},
    {HostVisible::kLoadFarPointer0F, {0x0f, 0xb5, 0x06}},
    {HostVisible::kFarDirect, {0xea, 0x00, 0x10, 0x00, 0x00, 0x33, 0x00}},
    {HostVisible::kFarIndirect, {0xff, 0x2c, 0x24}},
    {HostVisible::kFarReturn, {0xcb}},
    {HostVisible::kFarReturn, {0xcf}},
    {HostVisible::kX87Environment, {0xd9, 0x34, 0x24}},
    {HostVisible::kX87Image, {0x0f, 0xae, 0x07}},
    {HostVisible::kX87Compact, {0x0f, 0xc7, 0x64, 0x24, 0x40}},
    {HostVisible::kSysenter, {0x0f, 0x34}},
    {HostVisible::kSyscall32, {0x0f, 0x05}},
    {HostVisible::kInt80, {0xcd, 0x80}},
    {HostVisible::kVmcall, {0x0f, 0x01, 0xc1}},
    {HostVisible::kVmmcall, {0x0f, 0x01, 0xd9}},
    {HostVisible::kVmfunc, {0x0f, 0x01, 0xd4}},
    {HostVisible::kGetsec, {0x0f, 0x37}},
    {HostVisible::kEnclu, {0x0f, 0x01, 0xd7}},
    {HostVisible::kMcommit, {0xf3, 0x0f, 0x01, 0xfa}},
    {HostVisible::kMonitor, {0x0f, 0x01, 0xc9}},
    {HostVisible::kMonitorx, {0x0f, 0x01, 0xfb}},
    {HostVisible::kWaitPkg, {0x66, 0x0f, 0xae, 0xf1}},
    {HostVisible::kClzero, {0x0f, 0x01, 0xfc}},
    {HostVisible::kSerialize, {0x0f, 0x01, 0xe8}},
    {HostVisible::kXresldtrk, {0xf2, 0x0f, 0x01, 0xe9}},
    {HostVisible::kPkru, {0x0f, 0x01, 0xee}},
    {HostVisible::kUintr, {0xf3, 0x0f, 0x01, 0xed}},
    {HostVisible::kSenduipi, {0xf3, 0x0f, 0xc7, 0xf0}},
    {HostVisible::kXtest, {0x0f, 0x01, 0xd6}},
    {HostVisible::kXbegin, {0xc7, 0xf8, 0x10, 0x00, 0x00, 0x00}},
    {HostVisible::kXabort, {0xc6, 0xf8, 0xff}},
    {HostVisible::kPtwrite, {0xf3, 0x0f, 0xae, 0xe0}},
    {HostVisible::kPadlock, {0xf3, 0x0f, 0xa7, 0xc8}},
    {HostVisible::kXsave, {0x0f, 0xae, 0x24, 0x24}},
    {HostVisible::kXsavec, {0x0f, 0xc7, 0x64, 0x24, 0x40}},
    {HostVisible::kRdssp, {0xf3, 0x0f, 0x1e, 0xc8}},
    {HostVisible::kIncssp, {0xf3, 0x0f, 0xae, 0xe8}},
    {HostVisible::kRstorssp, {0xf3, 0x0f, 0x01, 0x28}},
    {HostVisible::kSaveprevssp, {0xf3, 0x0f, 0x01, 0xea}},
    {HostVisible::kWrss, {0x0f, 0x38, 0xf6, 0x07}},
    {HostVisible::kFisttp, {0xdd, 0x0c, 0x24}},
    {HostVisible::kSse3, {0xf2, 0x0f, 0x12, 0xc1}},
    {HostVisible::kSse4a, {0xf2, 0x0f, 0x79, 0xc1}},
    {HostVisible::kAmdNow, {0x0f, 0x0f, 0xc1, 0x9e}},
    {HostVisible::kBitCounts, {0xf3, 0x0f, 0xb8, 0xc1}},
    {HostVisible::kGroup9, {0x0f, 0xc7, 0xf0}},
    {HostVisible::kGroup15, {0x66, 0x0f, 0xae, 0x30}},
    {HostVisible::kMap0F38, {0x66, 0x0f, 0x38, 0xdc, 0xc1}},
    {HostVisible::kMap0F3A, {0x66, 0x0f, 0x3a, 0x0f, 0xc1, 0x04}},
    {HostVisible::kVex, {0xc5, 0xf4, 0x58, 0xc2}},
    {HostVisible::kEvex, {0x62, 0xf1, 0x74, 0x48, 0x58, 0xc2}},
    {HostVisible::kXop, {0x8f, 0xe9, 0x78, 0x81, 0xc0}},
    {HostVisible::kNewVex, {0xc4, 0xe2, 0xf9, 0xb4, 0xc1}},
    {HostVisible::kNewEvex, {0x62, 0xf4, 0x7c, 0x18, 0x01, 0xc1}},
    {HostVisible::kRex2, {0xd5, 0x19, 0x01, 0xc1}},
    {HostVisible::kNew0F38, {0x0f, 0x38, 0xfc, 0x07}},
};

// Where this row applies, and no other feature's.
CodeJudge JudgeWith(const HostVisibleRow& row) {
  HostTraits host{.vendor = row.when.kind == Condition::Kind::kOnAmd ? vcpu::Vendor::kAmd
                                                                     : vcpu::Vendor::kIntel,
                  .xcr0 = 0x600e7,
                  .x87_selectors = true,
                  .shadow_stacks = true};
  GuestTraits guest{.features = {}, .xcr0 = 0xe7};
  for (unsigned i = 1; i < static_cast<unsigned>(isa::Feature::kCount); ++i) {
    const auto feature = static_cast<isa::Feature>(i);
    if (row.when.features.Has(feature)) guest.features.Hide(feature);
  }
  return {host, guest};
}

// Code of a compiler, and where its instructions begin.
struct Code {
  unsigned code_bits;
  Bytes bytes;
  std::vector<unsigned> starts;
};

Code ReadCode(const char* path) {
  Result<ElfCode> elf = ReadElfCode(path);
  REQUIRE(elf.ok());
  REQUIRE(!elf->functions.empty());
  Code code{elf->code_bits, {}, {}};
  const ElfPart& segment = elf->segments.at(0);
  const unsigned size = static_cast<unsigned>(segment.bytes.size());
  std::set<unsigned> starts;
  for (const ElfFunction& function : elf->functions) {
    const u64 first = function.address - segment.address;
    if (function.address < segment.address || first + function.size > size) continue;
    for (unsigned at = static_cast<unsigned>(first); at < first + function.size;) {
      const isa::Glance glance = isa::GlanceAt(&segment.bytes[at], size - at, code.code_bits);
      REQUIRE(glance.status == isa::DecodeStatus::kOk);
      starts.insert(at);
      at += glance.length;
    }
  }
  REQUIRE(starts.size() > 1000);
  // Small programs several times over, to have room for pages.
  while (code.bytes.size() < 16 * kPageSize) {
    for (const unsigned start : starts) {
      code.starts.push_back(static_cast<unsigned>(code.bytes.size()) + start);
    }
    code.bytes.insert(code.bytes.end(), segment.bytes.begin(), segment.bytes.end());
  }
  return code;
}

Code ReadCode64() { return ReadCode("/proc/self/exe"); }
Code ReadCode32() { return ReadCode(std::getenv("CODE_OF_32_BITS")); }

constexpr unsigned kRoom = CodeJudge::kContextBefore;

// A page that begins `before` bytes in front of `at`, in code with its surroundings.
CodePage PageAround(const Bytes& code, unsigned at, unsigned before, unsigned code_bits) {
  const std::span<const u8> all(code);
  const unsigned begin = at - before;
  return {.bytes = all.subspan(begin).first<kPageSize>(),
          .code_bits = code_bits,
          .before = all.subspan(begin - kRoom, kRoom),
          .behind = all.subspan(begin + kPageSize, CodeJudge::kContextBehind),
          .starts = {}};
}

// Does the judge find `sample` put between what precedes it and what follows?
bool IsFound(const CodeJudge& judge, const Bytes& lead, const Sample& sample, const Bytes& rest,
             unsigned code_bits, unsigned before) {
  Bytes all = lead;
  all.insert(all.end(), sample.bytes.begin(), sample.bytes.end());
  all.insert(all.end(), rest.begin(), rest.end());
  const unsigned at = static_cast<unsigned>(lead.size());
  const std::optional<WhyNot> why = judge.Judge(PageAround(all, at, before, code_bits));
  // Not by something behind it. (Without its prefixes it may be another row's instruction.)
  return why && why->offset < before + sample.bytes.size();
}

TEST_CASE("Every row has a sample", "[real_code]") {
  std::set<HostVisible> rows;
  for (const Sample& sample : kSamples) rows.insert(sample.row);
  CHECK(rows.size() == kHostVisibleCount);
}

Bytes Part(const Bytes& code, unsigned from, unsigned size) {
  return Bytes(code.begin() + from, code.begin() + from + size);
}

// Nothing that could be found instead.
Bytes Nothing() { return Bytes(kPageSize + 64, 0x90); }

bool IsByVote(HostVisible row) { return RowOf(row).when.kind == Condition::Kind::kAlwaysByVote; }

// Every one, or of those that are found by vote all but one in a hundred.
void InsertEverywhere(const Code& code, unsigned tries) {
  std::mt19937 random(1);
  const unsigned size = static_cast<unsigned>(code.bytes.size());
  for (const Sample& sample : kSamples) {
    const HostVisibleRow& row = RowOf(sample.row);
    if (!(row.code & (code.code_bits == 64 ? kCode64 : kCode32))) continue;
    const CodeJudge judge = JudgeWith(row);
    unsigned may_miss = IsByVote(sample.row) ? tries / 100 : 0;
    for (unsigned i = 0; i < tries; ++i) {
      const unsigned at = code.starts[random() % code.starts.size()];
      const unsigned before = random() % kPageSize;
      if (at < before + kRoom || at + 2 * kPageSize > size) continue;
      const bool found = IsFound(judge, Part(code.bytes, at - before - kRoom, before + kRoom),
                                 sample, Nothing(), code.code_bits, before);
      if (!found && may_miss != 0) {
        --may_miss;
        continue;
      }
      CAPTURE(row.text, at, before);
      CHECK(found);
    }
  }
}

TEST_CASE("A sample between any two instructions is found: 64-bit code", "[real_code]") {
  InsertEverywhere(ReadCode64(), 300);
}

TEST_CASE("A sample between any two instructions is found: 32-bit code", "[real_code]") {
  InsertEverywhere(ReadCode32(), 300);
}

// Code, then what ends it, then the sample.
void InsertBehind(const Code& code, const Bytes& end) {
  std::mt19937 random(2);
  for (const Sample& sample : kSamples) {
    const HostVisibleRow& row = RowOf(sample.row);
    if (!(row.code & (code.code_bits == 64 ? kCode64 : kCode32))) continue;
    const CodeJudge judge = JudgeWith(row);
    for (unsigned i = 0; i < 50; ++i) {
      const unsigned at = code.starts[code.starts.size() / 4 + random() % (code.starts.size() / 4)];
      Bytes lead = Part(code.bytes, at - 2 * kRoom, 2 * kRoom);
      lead.insert(lead.end(), end.begin(), end.end());
      CAPTURE(row.text, at);
      CHECK(IsFound(judge, lead, sample, Nothing(), code.code_bits, 100));
    }
  }
}

TEST_CASE("A sample directly behind the end of code is found", "[real_code]") {
  const Bytes kEnds[] = {
      {0xc3},                          // RET
      {0xeb, 0x10},                    // JMP
      {0xe9, 0x00, 0x10, 0x00, 0x00},  // JMP
      {0xc3, 0xcc, 0xcc, 0xcc},        // INT3
      {0x0f, 0x0b},                    // UD2
      {0xc3, 0x90, 0x90, 0x90},        // NOPs
      {0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x1f, 0x00},
  };
  for (const Bytes& end : kEnds) {
    InsertBehind(ReadCode64(), end);
    InsertBehind(ReadCode32(), end);
  }
}

// No byte of an instruction that is found by vote: random ones would have many.
u8 DataByte(std::mt19937* random) {
  for (;;) {
    const u8 byte = static_cast<u8>((*random)());
    const bool taken = std::any_of(kSamples.begin(), kSamples.end(), [&](const Sample& sample) {
      return IsByVote(sample.row) && RowOf(sample.row).map == OpcodeMap::kOneByte &&
             RowOf(sample.row).opcodes.Has(byte);
    });
    if (!taken) return byte;
  }
}

// Random bytes, then `distance` bytes of code (a little more, to a boundary), then the sample.
// Share that is found.
double FoundBehindData(const Code& code, unsigned distance, const Bytes& padding, bool aligned,
                       bool by_vote = false) {
  std::mt19937 random(3);
  unsigned found = 0, all = 0;
  for (const Sample& sample : kSamples) {
    const HostVisibleRow& row = RowOf(sample.row);
    if (!(row.code & (code.code_bits == 64 ? kCode64 : kCode32))) continue;
    if (by_vote != IsByVote(sample.row)) continue;
    const CodeJudge judge = JudgeWith(row);
    for (unsigned i = 0; i < 50; ++i) {
      const unsigned from =
          code.starts[code.starts.size() / 4 + random() % (code.starts.size() / 4)];
      unsigned at = from;
      while (at < from + distance) {
        at += std::max(1u, unsigned{isa::GlanceAt(&code.bytes[at], 15, code.code_bits).length});
      }
      Bytes lead(aligned ? 256 + kRoom : 251 + kRoom);
      for (u8& byte : lead) byte = DataByte(&random);
      std::copy(padding.begin(), padding.end(), lead.end() - static_cast<i64>(padding.size()));
      const Bytes part = Part(code.bytes, from, at - from);
      lead.insert(lead.end(), part.begin(), part.end());
      const unsigned before = static_cast<unsigned>(lead.size()) - kRoom;
      Bytes rest = Nothing();
      // Among random bytes there may be another: only this one counts.
      Bytes all_bytes = lead;
      all_bytes.insert(all_bytes.end(), rest.begin(), rest.end());
      if (judge.Judge(PageAround(all_bytes, kRoom, 0, code.code_bits))) continue;
      ++all;
      found += IsFound(judge, lead, sample, rest, code.code_bits, before);
    }
  }
  REQUIRE(all > 100);
  return static_cast<double>(found) / all;
}

TEST_CASE("A sample in code behind data is found", "[real_code]") {
  const Code code64 = ReadCode64(), code32 = ReadCode32();
  const Bytes kZeros(8);
  for (const Code* code : {&code64, &code32}) {
    // Guaranteed: a whole run-up of code, or an aligned entry behind padding.
    CHECK(FoundBehindData(*code, CodeJudge::kRunUp + 15, {}, false) == 1);
    for (const unsigned distance : {0u, 5u, 20u}) {
      for (const Bytes& padding : {kZeros, Bytes{0xc3}, Bytes{0xcc}}) {
        CHECK(FoundBehindData(*code, distance, padding, true) == 1);
      }
      for (const Bytes& padding : {kZeros, Bytes{0xcc, 0xcc}, Bytes{0x90, 0x90}}) {
        CHECK(FoundBehindData(*code, distance, padding, true, true) > 0.99);
      }
    }
    CHECK(FoundBehindData(*code, 2 * CodeJudge::kRunUp, {}, false, true) > 0.99);
    // Not guaranteed: how often chains through data fall into step.
    for (const bool by_vote : {false, true}) {
      std::string shares;
      for (unsigned distance = 0; distance <= CodeJudge::kRunUp; distance += 8) {
        shares += " " + std::to_string(distance) + ": " +
                  std::to_string(FoundBehindData(*code, distance, {}, false, by_vote));
      }
      WARN(code->code_bits << "-bit code, bytes of code behind data and share that is found"
                           << (by_vote ? " by vote:" : ":") << shares);
    }
  }
}

}  // namespace
}  // namespace alibi::direct
