// SPDX-License-Identifier: Apache-2.0
#include "testsuite/emitted_code/stable_listing.h"

#include <fmt/format.h>

#include <cstddef>

#include "inspect/dump/host_listing.h"

namespace alibi::testsuite {
namespace {

using translator::Ccf;
using vmm::HostInstr;

std::string StubName(HostAddr target, const StubTable& stubs) {
#define ALIBI_CALLOUT(name, descriptor, contract) \
  if (target == stubs.at(Callout::k##name)) return "stub " #name;
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
  if (target == stubs.miss) return "stub miss";
  if (target == stubs.entry_miss.lookup) return "stub entry_miss.lookup";
  if (target == stubs.entry_miss.restore) return "stub entry_miss.restore";
  if (target == stubs.entry_miss.restore_swapped) return "stub entry_miss.restore_swapped";
  return "elsewhere";
}

std::string TargetName(HostAddr target, const Ccf& ccf, const StubTable& stubs) {
  if (target >= ccf.hot_start && target <= ccf.hot_end) {
    return fmt::format("hot+{:#x}", target - ccf.hot_start);
  }
  if (target >= ccf.cold_start && target < ccf.cold_end) {
    return fmt::format("cold+{:#x}", target - ccf.cold_start);
  }
  return StubName(target, stubs);
}

// What a 64-bit immediate is, where it differs from run to run.
std::string ImmediateName(u64 value, const Ccf& ccf, const StubTable& stubs) {
  if (value == reinterpret_cast<u64>(&ccf)) return "this CCF";
  for (const translator::ExitDesc* exit : ccf.exits()) {
    if (value == reinterpret_cast<u64>(exit)) return "exit descriptor";
  }
  for (const translator::SiteDesc* site : ccf.sites()) {
    if (value == reinterpret_cast<u64>(site)) return "site descriptor";
    const MissWord miss{value};
    if (site->resume && miss.ResumeDistance() == site->resume - stubs.miss &&
        miss.SpanMinus1() == site->span_minus_1) {
      return fmt::format("miss word ({} bytes, {}, resumes at {})", site->span_minus_1 + 1,
                         miss.Window() ? "store" : "load", TargetName(site->resume, ccf, stubs));
    }
  }
  return "";
}

std::string Text(const HostInstr& line, const Ccf& ccf, const StubTable& stubs) {
  if (line.jump) return line.mnemonic + " " + TargetName(line.target, ccf, stubs);
  if (line.has_immediate) {
    const std::string name = ImmediateName(line.immediate, ccf, stubs);
    const std::size_t comma = line.operands.rfind(", ");
    if (!name.empty() && comma != std::string::npos) {
      return "mov " + line.operands.substr(0, comma) + ", " + name;
    }
  }
  return line.operands.empty() ? line.mnemonic : line.mnemonic + " " + line.operands;
}

void List(HostAddr begin, HostAddr end, bool cold, const Ccf& ccf, const StubTable& stubs,
          std::vector<StableLine>* lines) {
  const u8* bytes = begin.As();
  for (const HostInstr& line : vmm::DisassembleHost({bytes, bytes + (end - begin)}, begin)) {
    lines->push_back({cold, static_cast<u32>(line.address - begin), Text(line, ccf, stubs)});
  }
}

}  // namespace

std::vector<StableLine> StableListing(const Ccf& ccf, const StubTable& stubs) {
  std::vector<StableLine> lines;
  List(ccf.hot_start, ccf.hot_end, false, ccf, stubs, &lines);
  List(ccf.cold_start, ccf.cold_end, true, ccf, stubs, &lines);
  return lines;
}

}  // namespace alibi::testsuite
