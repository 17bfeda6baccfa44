// SPDX-License-Identifier: Apache-2.0
// Is host_visible.inc complete? Every encoding that the decoder knows is put to the question.
#include "direct/host_visible.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "direct/code_length.h"
#include "direct/row_match.h"
#include "isa/decoder.h"
#include "isa/glance.h"

namespace alibi::direct {
namespace {

using Bytes = std::vector<u8>;

FeatureList AllFeatures() {
  FeatureList all;
  for (unsigned i = 1; i < static_cast<unsigned>(isa::Feature::kCount); ++i) {
    all.Add(static_cast<isa::Feature>(i));
  }
  return all;
}

// Calls visit(bytes, offset of the opcode) for every encoding of all maps, with what may follow.
template <class Visit>
void ForEachEncoding(unsigned code_bits, Visit visit) {
  const auto visit_all = [&](Bytes head, unsigned opcode_at) {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      const bool one_byte = head.size() == opcode_at;
      if (one_byte && IsPrefix(static_cast<u8>(opcode), code_bits)) continue;
      for (unsigned modrm = 0; modrm < 256; ++modrm) {
        Bytes bytes = head;
        bytes.push_back(static_cast<u8>(opcode));
        bytes.push_back(static_cast<u8>(modrm));
        bytes.resize(15);
        visit(bytes, opcode_at);
      }
    }
  };
  for (Bytes prefixes : {Bytes{}, Bytes{0x66}, Bytes{0xf3}, Bytes{0xf2}}) {
    for (const bool wide : {false, true}) {
      if (wide && code_bits != 64) continue;
      if (wide) prefixes.push_back(0x48);
      const unsigned at = static_cast<unsigned>(prefixes.size());
      for (const Bytes& escape : {Bytes{}, Bytes{0x0f}, Bytes{0x0f, 0x38}, Bytes{0x0f, 0x3a}}) {
        Bytes head = prefixes;
        head.insert(head.end(), escape.begin(), escape.end());
        visit_all(head, at);
      }
    }
  }
  for (unsigned fields = 0; fields < 16; ++fields) {
    const u8 w = fields & 8 ? 0x80 : 0, pp = fields & 3, l = fields & 4 ? 4 : 0;
    for (const u8 map : {1, 2, 3}) visit_all({0xc4, u8(0xe0 | map), u8(w | 0x78 | l | pp)}, 0);
    for (const u8 map : {8, 9, 10}) visit_all({0x8f, u8(0xe0 | map), u8(w | 0x78 | l | pp)}, 0);
    for (const u8 map : {1, 2, 3, 5, 6}) {
      for (const u8 length : {0x08, 0x28, 0x48, 0x49}) {
        visit_all({0x62, u8(0xf0 | map), u8(w | 0x7c | pp), length}, 0);
      }
    }
  }
}

bool HasRow(const Bytes& bytes, unsigned opcode_at, unsigned code_bits) {
  static const FeatureList all = AllFeatures();
  const CodeBytes code{bytes.data(), static_cast<unsigned>(bytes.size()), code_bits};
  for (const HostVisibleRow& row : HostVisibleRows()) {
    if (!(row.code & (code_bits == 64 ? kCode64 : kCode32))) continue;
    if (row.when.kind == Condition::Kind::kUnknown) continue;
    if (MatchRow(row, code, 0, opcode_at, all) == RowMatch::kYes) return true;
  }
  return false;
}

// Is there a row that looks there when the feature is hidden?
bool HasRowForFeature(const Bytes& bytes, unsigned opcode_at, unsigned code_bits,
                      isa::Feature feature) {
  FeatureList hidden;
  hidden.Add(feature);
  const CodeBytes code{bytes.data(), static_cast<unsigned>(bytes.size()), code_bits};
  for (const HostVisibleRow& row : HostVisibleRows()) {
    if (!(row.code & (code_bits == 64 ? kCode64 : kCode32))) continue;
    if (row.when.kind == Condition::Kind::kUnknown) continue;
    const bool by_feature = row.when.kind == Condition::Kind::kNotShown;
    if (by_feature && !row.when.features.Overlaps(hidden)) continue;
    if (MatchRow(row, code, 0, opcode_at, hidden) == RowMatch::kYes) return true;
  }
  return false;
}

// What does in user code the same wherever it runs.
bool IsAsOnHost(const isa::Instr& instr, unsigned code_bits) {
  using enum isa::Op;
  // Selectors and descriptors are compared on entry to 64-bit code.
  static const std::set<isa::Op> kOps64 = {kReadSreg, kWriteSreg, kPushSreg, kPopSreg,
                                           kLfs,      kLgs,       kLss};
  if (code_bits == 64 && kOps64.count(instr.op) != 0) return true;
  static const std::set<isa::Op> kOps = {
      kNone,
      kMov,
      kDivide,
      kLea,
      kXchg,
      kNop,
      kPause,
      kXlat,
      kPush,
      kPop,
      kPusha,
      kPopa,
      kEnter,
      kLeave,
      kJmp,
      kJmpIndirect,
      kJcc,
      kLoop,
      kLoope,
      kLoopne,
      kJcxz,
      kCall,
      kCallIndirect,
      kRet,
      kRdfsbase,
      kRdgsbase,
      kWrfsbase,
      kWrgsbase,
      kCld,
      kStd,
      kArpl,
      kMovs,
      kStos,
      kLods,
      kCmps,
      kScas,
      kBtMemory,
      kBtsMemory,
      kBtrMemory,
      kBtcMemory,
      kMaskMovQ,
      kMaskMovDqu,
      kMaskMov32,
      kMaskMov64,
      kGather,
      kFxsave,
      kFxrstor,
      kFnstenv,
      kFnsave,
      kFldenv,
      kFrstor,
      kAaa,
      kAad,
      kAam,
      kAas,
      kDaa,
      kDas,
      kSalc,
      // Flags are compared on entry.
      kPushf,
      kPopf,
  };
  return kOps.count(instr.op) != 0;
}

// What traps at CPL 3, whether the CPU knows it or not.
bool TrapsOnHost(const isa::Instr& instr) {
  using enum isa::Op;
  static const std::set<isa::Op> kOps = {
      kReadCr,  kWriteCr, kWriteCr3, kMovCr8, kMovDr,  kInt,     kInt1,   kInt3,   kInto,
      kBound,   kSysret,  kSysexit,  kSwapgs, kCli,    kSti,     kClac,   kStac,   kHlt,
      kIn,      kOut,     kIns,      kOuts,   kRdmsr,  kWrmsr,   kXsetbv, kLgdt,   kLidt,
      kLldt,    kLtr,     kLmsw,     kClts,   kInvlpg, kInvpcid, kInvd,   kWbinvd,
      kSyscall,  // by ptrace; outside of 64-bit code there is a row
  };
  // #UD for every guest; on the host privileged, or #UD as well.
  static const std::set<std::string> kNames = {
      "CLGI",    "ENCLS",     "ENCLV",     "INVLPGA",   "INVLPGB",  "PCONFIG",
      "PSMASH",  "PVALIDATE", "RMPADJUST", "RMPUPDATE", "RSM",      "SEAMCALL",
      "SEAMOPS", "SEAMRET",   "SETSSBSY",  "SKINIT",    "STGI",     "TDCALL",
      "TLBSYNC", "UD0",       "UD1",       "UD2",       "VMLAUNCH", "VMLOAD",
      "VMREAD",  "VMRESUME",  "VMRUN",     "VMSAVE",    "VMWRITE",  "VMXOFF"};
  return kOps.count(instr.op) != 0 || kNames.count(isa::MnemonicName(instr.mnemonic)) != 0;
}

// Features whose instructions every CPU of 64 bits has, or that trap.
bool NeedsNoRow(isa::Feature feature) {
  using enum isa::Feature;
  static const std::set<isa::Feature> kFeatures = {kBase, kLongMode, kCmov, kClflush, kMmx,
                                                   kFxsr, kSse,      kSse2, kRdtscp};
  return kFeatures.count(feature) != 0;
}

TEST_CASE("Every instruction that shows the host has a row", "[table]") {
  for (const unsigned code_bits : {64u, 32u}) {
    std::set<std::string> missing;
    ForEachEncoding(code_bits, [&](const Bytes& bytes, unsigned opcode_at) {
      const isa::Glance glance = isa::GlanceAt(bytes.data(), 15, code_bits);
      if (glance.status != isa::DecodeStatus::kOk) return;
      isa::Instr instr;
      isa::Decode(bytes.data(), 15, LinearAddr(0x1000), code_bits, &instr);
      const std::string name = isa::MnemonicName(instr.mnemonic);
      if (TrapsOnHost(instr)) return;
      const bool undefined = instr.treatment == isa::Treatment::kUndefined;
      if ((undefined || !IsAsOnHost(instr, code_bits)) && !HasRow(bytes, opcode_at, code_bits)) {
        missing.insert(name);
      }
      if (undefined) return;
      for (const isa::Feature feature : {glance.feature, glance.state_feature}) {
        if (NeedsNoRow(feature) || instr.feature == isa::Feature::kBase) continue;
        if (!HasRowForFeature(bytes, opcode_at, code_bits, feature)) {
          missing.insert(name + " (" + isa::FeatureBitOf(feature).text + ")");
        }
      }
    });
    std::string all;
    for (const std::string& name : missing) all += name + ", ";
    CAPTURE(code_bits, all);
    CHECK(missing.empty());
  }
}

}  // namespace
}  // namespace alibi::direct
