// SPDX-License-Identifier: Apache-2.0
// How many pages of real programs the judge lets run, and what it takes. By hand:
//   bazel run //direct:code_judge_bench -- [--list] FILE...
// Per ELF file: pages of its executable segments, those with bytes that look like an instruction of
// host_visible.inc, those judged not eligible, cycles per page, and for which rows. --list: also
// where (addresses of the file). Standard output; exit status 1 for a file that cannot be read.
#include <fmt/core.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "direct/code_judge.h"
#include "direct/elf_code.h"

namespace alibi::direct {
namespace {

constexpr unsigned kTries = 3;

// A host and a guest on it.
struct Setting {
  std::string name;
  HostTraits host;
  GuestTraits guest;
};

// A guest that has switched on whatever its CPU shows.
GuestTraits GuestOf(std::string_view model) {
  vcpu::CpuidPolicy policy;
  vcpu::CpuidPolicy::ForModel(model, &policy);
  vcpu::VcpuState state;
  state.cr4 = policy.cr4_valid();
  state.xcr0 = policy.xcr0_valid();
  const isa::FeatureSet shown = isa::FeaturesShownBy(
      [&](u32 leaf, u32 subleaf) { return policy.Query(state, leaf, subleaf); });
  return GuestTraitsOf(shown, state.cr4, state.xcr0);
}

std::vector<Setting> Settings() {
  const HostTraits here = DetectHostTraits();
  std::vector<Setting> settings;
  for (const std::string_view model : {"host", "base64", "intel-v1"}) {
    settings.push_back({fmt::format("this host, --cpu {}", model), here, GuestOf(model)});
  }
  HostTraits other = here;
  other.vendor = vcpu::Vendor::kIntel;
  other.cpuid_traps = true;
  other.xcr0 |= 0x60000;  // AMX
  settings.push_back(
      {"as an Intel host with CPUID faulting and AMX, --cpu host", other, GuestOf("host")});
  return settings;
}

struct Tally {
  unsigned pages = 0, raw = 0, ineligible = 0;
  u64 cycles = 0;
  std::map<HostVisible, unsigned> rows;
};

void JudgeSegment(const CodeJudge& judge, const ElfPart& segment, unsigned code_bits, bool list,
                  Tally* tally) {
  const u64 lead = segment.address % kPageSize;
  std::vector<u8> memory(lead);
  memory.insert(memory.end(), segment.bytes.begin(), segment.bytes.end());
  memory.resize((memory.size() + kPageSize - 1) / kPageSize * kPageSize);
  const std::span<const u8> all(memory);
  for (u64 at = 0; at < memory.size(); at += kPageSize) {
    const u64 before = std::min<u64>(at, CodeJudge::kContextBefore);
    const u64 behind = std::min<u64>(memory.size() - at - kPageSize, CodeJudge::kContextBehind);
    const CodePage page{.bytes = all.subspan(at).first<kPageSize>(),
                        .code_bits = code_bits,
                        .before = all.subspan(at - before, before),
                        .behind = all.subspan(at + kPageSize, behind),
                        .starts = {}};
    std::optional<WhyNot> why;
    u64 least = ~u64{0};  // of some, because others use this CPU, too
    for (unsigned i = 0; i < kTries; ++i) {
      const u64 begin = __rdtsc();
      why = judge.Judge(page);
      least = std::min<u64>(least, __rdtsc() - begin);
    }
    tally->cycles += least;
    ++tally->pages;
    tally->raw += judge.CountRawHits(page) != 0;
    if (!why) continue;
    ++tally->ineligible;
    ++tally->rows[why->row];
    if (list) {
      fmt::print("    {:x} {}\n", segment.address - lead + at + why->offset, RowOf(why->row).text);
    }
  }
}

void JudgeFile(const CodeJudge& judge, const char* path, const ElfCode& code, bool list) {
  Tally tally;
  for (const ElfPart& segment : code.segments) {
    JudgeSegment(judge, segment, code.code_bits, list, &tally);
  }
  const auto percent = [&](unsigned n) { return 100.0 * n / std::max(tally.pages, 1u); };
  fmt::print("  {:<56} {:>6} pages, raw {:5.1f} %, not eligible {:4} ({:5.2f} %), {:6} cycles:",
             path, tally.pages, percent(tally.raw), tally.ineligible, percent(tally.ineligible),
             tally.cycles / std::max(tally.pages, 1u));
  for (const auto& [row, count] : tally.rows) fmt::print(" {} {},", count, RowOf(row).text);
  fmt::print("\n");
}

int Main(int argc, char** argv) {
  std::vector<const char*> paths(argv + 1, argv + argc);
  const auto options = std::erase_if(paths, [](std::string_view word) { return word == "--list"; });
  if (paths.empty()) {
    fmt::print(stderr, "usage: code_judge_bench [--list] FILE...\n");
    return 2;
  }
  std::vector<ElfCode> files;
  for (const char* path : paths) {
    Result<ElfCode> code = ReadElfCode(path);
    if (!code.ok()) {
      fmt::print(stderr, "{}\n", code.error().message);
      return 1;
    }
    files.push_back(std::move(*code));
  }
  for (const Setting& setting : Settings()) {
    fmt::print("{}:\n", setting.name);
    const CodeJudge judge(setting.host, setting.guest);
    for (std::size_t i = 0; i < files.size(); ++i) {
      JudgeFile(judge, paths[i], files[i], options != 0);
    }
  }
  return 0;
}

}  // namespace
}  // namespace alibi::direct

int main(int argc, char** argv) { return alibi::direct::Main(argc, argv); }
