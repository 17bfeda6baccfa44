// SPDX-License-Identifier: Apache-2.0
#include "testsuite/emitted_code/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/types.h"
#include "isa/decoder.h"
#include "testsuite/emitted_code/stable_listing.h"
#include "translator/emitter.h"
#include "translator/translation_unit.h"

namespace alibi::testsuite {
namespace {

using isa::Instr;
using translator::Ccf;
using translator::CodeMode;
using translator::LookupKind;
using translator::SiteKind;
using translator::SitePlan;
using translator::TranslationUnit;

constexpr LinearAddr kPc(0x401000);

struct NamedPlan {
  const char* name;
  SitePlan plan;
};
constexpr NamedPlan kPlans[] = {{"direct", {}},
                                {"table", {SiteKind::kDirect, LookupKind::kTable}},
                                {"checked", {SiteKind::kChecked}},
                                {"simulate", {SiteKind::kSimulate}}};

struct Case {
  std::string size;  // as it stands in the file
  CodeMode mode;
  std::vector<u8> bytes;
};

// "64u: 48 8b 07: ...". False: the line is no case.
bool ParseCase(const std::string& line, Case* out) {
  std::istringstream words(line);
  words >> out->size;
  CodeMode& mode = out->mode;
  mode.code_bits = static_cast<u8>(std::atoi(out->size.c_str()));
  if (out->size.back() != ':' || mode.code_bits == 0) return false;
  mode.user = out->size.find('u') != std::string::npos;
  mode.flat = mode.code_bits != 16 && out->size.find('s') == std::string::npos;
  mode.wide_stack = mode.code_bits == 32;
  for (std::string word; words >> word;) {
    out->bytes.push_back(static_cast<u8>(std::strtoul(word.c_str(), nullptr, 16)));
    if (word.back() == ':') break;
  }
  return true;
}

// Translates code that never runs. Everything lies in one buffer, so that distances are the same in
// every run.
class Translator {
 public:
  Translator() : buffer_(kBytes), emitter_(stubs_) {}

  // Null: the bytes are no whole instruction.
  const Ccf* Translate(const Case& what, const SitePlan& plan, bool flags_live) {
    TranslationUnit& tu = *tu_;
    const auto status = BuildTranslationUnit({.pc = kPc,
                                              .code_bits = what.mode.code_bits,
                                              .bytes = what.bytes.data(),
                                              .available = static_cast<unsigned>(what.bytes.size()),
                                              .max_instructions = 1,
                                              .look_ahead = false},
                                             &tu);
    if (status != isa::DecodeStatus::kOk || tu.count != 1) return nullptr;
    if (!flags_live) {
      tu.flags_live_before[0] = tu.instrs[0].flags_read;
      tu.flags_live_after[0] = 0;
    }
    translator::EmitRequest request;
    request.tu = &tu;
    request.mode = what.mode;
    request.plans[0] = plan;
    request.target = {.hot = At(kHot),
                      .cold = At(kCold),
                      .hot_room = translator::kMaxHotBytes,
                      .cold_room = translator::kMaxColdBytes,
                      .data_origin = At(kData),
                      .data = &buffer_[kData],
                      .data_room = translator::kMaxDataBytes};
    ccf_ = Ccf();
    const translator::EmitResult emitted = emitter_.Emit(request, &ccf_);
    ALIBI_CHECK(emitted.fits, "one instruction's code fits");
    std::memcpy(&buffer_[kHot], emitted.hot_code, emitted.hot_size);
    std::memcpy(&buffer_[kCold], emitted.cold_code, emitted.cold_size);
    return &ccf_;
  }
  const Instr& instr() const { return tu_->instrs[0]; }
  const StubTable& stubs() const { return stubs_; }

 private:
  static constexpr u64 kStubs = 0, kHot = 4096, kCold = kHot + translator::kMaxHotBytes,
                       kData = kCold + translator::kMaxColdBytes,
                       kBytes = kData + translator::kMaxDataBytes;
  HostAddr At(u64 offset) const { return HostAddr(buffer_.data()) + offset; }

  std::vector<u8> buffer_;
  const StubTable stubs_ = StubTable::Somewhere(At(kStubs));
  translator::Emitter emitter_;
  std::unique_ptr<TranslationUnit> tu_ = std::make_unique<TranslationUnit>();
  Ccf ccf_;
};

bool IsCopied(const Ccf& ccf, HostAddr end, const std::vector<u8>& bytes) {
  return end - ccf.hot_start == bytes.size() &&
         std::memcmp(ccf.hot_start.As(), bytes.data(), bytes.size()) == 0;
}

// The code of the instruction itself: what goes on behind it is no case's.
std::string ListInstruction(const Ccf& ccf, const Instr& instr, const std::vector<u8>& bytes,
                            const StubTable& stubs) {
  HostAddr hot_end = ccf.hot_end, cold_end = ccf.redirect;
  if (!translator::EndsTranslationUnit(instr)) {
    for (const translator::ExitDesc* exit : ccf.exits()) {
      hot_end = std::min(hot_end, exit->patch);
      cold_end = std::min(cold_end, exit->stub);
    }
  }
  if (IsCopied(ccf, hot_end, bytes)) return "    as it is\n";
  std::string text;
  for (const StableLine& line : StableListing(ccf, stubs)) {
    const HostAddr at = (line.cold ? ccf.cold_start : ccf.hot_start) + line.offset;
    if (at >= (line.cold ? cold_end : hot_end)) continue;
    text += fmt::format("    {}+{:<3x} {}\n", line.cold ? "cold" : " hot", line.offset, line.text);
  }
  return text;
}

}  // namespace

std::string MakeAnew(const std::string& text, const std::function<void(const Instr&)>& seen) {
  Translator translator;
  std::istringstream lines(text);
  std::string made, plans = "direct", flags = "live";
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] == ' ') continue;  // made by the last run
    const auto directive = [&line](const char* name, std::string* value) {
      if (line.rfind(name, 0) == 0) *value = line.substr(std::strlen(name));
    };
    directive("plans: ", &plans);
    directive("flags: ", &flags);
    Case what;
    if (line.empty() || !ParseCase(line, &what)) {
      made += line + "\n";
      continue;
    }
    std::string first_name, first_code;
    for (const NamedPlan& plan : kPlans) {
      if (plans.find(plan.name) == std::string::npos) continue;
      const Ccf* const ccf = translator.Translate(what, plan.plan, flags == "live");
      if (ccf == nullptr) {
        made += line + "\n  no instruction\n";
        break;
      }
      const Instr& instr = translator.instr();
      const std::string code = ListInstruction(*ccf, instr, what.bytes, translator.stubs());
      const std::string name =
          fmt::format("  {}, {}:", isa::TreatmentName(instr.treatment), plan.name);
      if (first_name.empty()) {
        first_name = plan.name;
        first_code = code;
        seen(instr);
        std::string hex;
        for (const u8 byte : what.bytes) hex += fmt::format(" {:02x}", byte);
        made += fmt::format("{}{}: {}\n", what.size, hex, isa::Disassemble(instr));
        made += name + "\n" + code;
      } else {
        made += code == first_code ? name + " as " + first_name + "\n" : name + "\n" + code;
      }
      if (ccf->sites().empty()) break;  // plans make no difference
    }
  }
  return made;
}

}  // namespace alibi::testsuite
