// SPDX-License-Identifier: Apache-2.0
#include "testsuite/coverage/sweep.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

#include "isa/decoder.h"
#include "testsuite/coverage/features.h"
#include "testsuite/coverage/host_probe.h"
#include "testsuite/host_cpu.h"
#include "vcpu/cpu_differences.h"

namespace alibi::coverage {
namespace {

using isa::DecodeStatus;
using isa::Feature;
using isa::Instr;
using isa::Op;

struct Candidate {
  InstructionBytes bytes;
  u8 significant;  // bytes that the walk chose
  u8 length;       // the decoder's
  u8 code_bits;
  DecodeStatus status;
  u16 mnemonic;
  Op op;
  isa::Treatment treatment;
  isa::Feature feature;

  bool undefined() const { return status != DecodeStatus::kOk; }
};

// Bytes behind the legacy prefixes.
bool Begins(const Candidate& c, std::initializer_list<u8> opcode) {
  unsigned at = 0;
  auto is_prefix = [&](u8 byte) {
    constexpr u8 kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
    return std::find(std::begin(kPrefixes), std::end(kPrefixes), byte) != std::end(kPrefixes) ||
           (c.code_bits == 64 && (byte & 0xf0) == 0x40);
  };
  while (at + opcode.size() < c.bytes.size() && is_prefix(c.bytes[at])) ++at;
  return std::equal(opcode.begin(), opcode.end(), c.bytes.begin() + at);
}

// VMCALL and VMMCALL would call the hypervisor that this host runs under.
bool CallsHypervisor(const Candidate& c) {
  return Begins(c, {0x0f, 0x01, 0xc1}) || Begins(c, {0x0f, 0x01, 0xd9});
}

// Undefined for us, and not for the host: why that is right. Null: it is not.
const char* WhyUndefined(const Candidate& c) {
  if (c.mnemonic != 0 && !GuestIsShown(c.feature)) return "the guest's CPUID does not show it";
  if ((Begins(c, {0x0f, 0x20}) || Begins(c, {0x0f, 0x22})) && !GuestIsShown(Feature::kAltMovCr8)) {
    return "LOCK MOV CR0 names CR8 where CPUID shows AltMovCr8";
  }
  const std::string_view name = c.mnemonic != 0 ? isa::MnemonicName(c.mnemonic) : "";
  if (name == "TDCALL" || name == "SEAMCALL" || name == "SEAMRET" || name == "SEAMOPS") {
    return "TDX: #UD outside VMX operation (SDM vol. 2), in which virtual hosts are";
  }
  if (const char* why = testsuite::RunsReservedEncoding(c.bytes)) return why;
  // EVEX.F2.0F with W and a rounding mode: VCVTSI2SD and VCVTUSI2SD of 32 bits cannot round.
  if (c.code_bits != 64 && c.bytes[0] == 0x62 && (c.bytes[1] & 7) == 1 &&
      (c.bytes[2] & 0x83) == 0x83 && (c.bytes[3] & 0x10) != 0 &&
      (c.bytes[4] == 0x2a || c.bytes[4] == 0x7b)) {
    return "VCVTSI2SD of 32 bits has no rounding mode; EVEX.W is ignored here (SDM, APM)";
  }
  return nullptr;
}

// Defined for us, and not for the host at CPL 3.
const char* WhyDefined(const Candidate& c) {
  if (!HostHas(c.feature))
    return "the host does not have it, and raises its #UD in the translation";
  switch (c.op) {
    case Op::kClac:
    case Op::kStac:
    case Op::kSysenter:
    case Op::kSysexit:
      return "the simulator decides: privilege, mode, vendor";
    case Op::kSyscall:
    case Op::kSysret:
      // By the vendor that the guest is shown.
      if (c.code_bits != 64 && vcpu::HasIntelsWay(vcpu::GuestDifference::kSyscallOutside64BitCode,
                                                  vcpu::CpuIdentity::kHost.vendor)) {
        return "the simulator decides: privilege, mode, vendor";
      }
      break;
    default:
      break;
  }
  // PREFETCH with a register operand runs as it stands.
  if (Begins(c, {0x0f, 0x0d}) && c.treatment == isa::Treatment::kIdent) {
    return "0F 0D with a register: what the host does is what the guest gets";
  }
  return nullptr;
}

struct Kind {
  u64 count = 0;
  std::string example;
  const char* reason = nullptr;  // null: unexplained
};

std::string Hex(const u8* bytes, unsigned size) {
  std::string text;
  char byte[4];
  for (unsigned i = 0; i < size; ++i) {
    std::snprintf(byte, sizeof byte, "%02x ", bytes[i]);
    text += byte;
  }
  text.pop_back();
  return text;
}

class Sweeper {
 public:
  explicit Sweeper(const SweepOptions& options) : options_(options) {}

  SweepReport Run() {
    for (unsigned code_bits : {64u, 32u}) {
      if (options_.code_bits != 0 && options_.code_bits != code_bits) continue;
      const Visitor visit = [&](const InstructionBytes& bytes, unsigned significant) {
        return Add(bytes, significant, code_bits);
      };
      if (Wants("legacy")) WalkLegacy(code_bits, options_.depth, visit);
      if (Wants("vex")) WalkVex(code_bits, options_.depth, visit);
      if (Wants("evex")) WalkEvex(code_bits, options_.depth, visit);
    }
    Flush();
    for (const auto& [name, kind] : kinds_) {
      if (kind.reason == nullptr) report_.differences += kind.count;
      if (kind.reason != nullptr && !options_.show_expected) continue;
      char line[256];
      std::snprintf(line, sizeof line, "%c %8llu  %-55s %-30s %s\n", kind.reason ? ' ' : '!',
                    static_cast<unsigned long long>(kind.count), name.c_str(), kind.example.c_str(),
                    kind.reason ? kind.reason : "");
      report_.text += line;
    }
    return report_;
  }

 private:
  bool Wants(const char* space) const { return options_.space.empty() || options_.space == space; }

  bool Add(const InstructionBytes& bytes, unsigned significant, unsigned code_bits) {
    Instr instr;
    const DecodeStatus status =
        isa::Decode(bytes.data(), sizeof(bytes), LinearAddr(0x1000), code_bits, &instr);
    ++report_.encodings;
    const Candidate candidate{bytes,        static_cast<u8>(significant),
                              instr.length, static_cast<u8>(code_bits),
                              status,       instr.mnemonic,
                              instr.op,     instr.treatment,
                              instr.feature};
    if (CallsHypervisor(candidate)) {
      // What CPUID says is all that can be compared, and of VMCALL the platform decides.
      if (!candidate.undefined() && candidate.op != isa::Op::kHypercall)
        Note(candidate, "hypercalls are not shown", nullptr);
      return true;
    }
    candidates_.push_back(candidate);
    if (candidates_.size() >= HostProber::kBatch) Flush();
    // Without a ModRM byte the walked byte is an immediate or the next instruction.
    return status != DecodeStatus::kOk || instr.layout.modrm != 0xff;
  }

  void Flush() {
    std::vector<Probe> probes;
    std::vector<u32> of;  // candidate
    for (u32 i = 0; i < candidates_.size(); ++i) {
      const Candidate& c = candidates_[i];
      Probe probe{c.bytes, sizeof(c.bytes), c.code_bits};
      if (!c.undefined()) {
        probe.length = c.length;
        if (c.length > 1) {
          Probe shorter = probe;
          --shorter.length;
          probes.push_back(shorter);
          of.push_back(i);
        }
      }
      probes.push_back(probe);
      of.push_back(i);
    }
    std::vector<ProbeResult> results(probes.size());
    prober_.Run(probes, results);
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const Candidate& c = candidates_[of[i]];
      if (!c.undefined() && probes[i].length < c.length) {
        // What the host does not know it may refuse before all of it is there.
        if (results[i].verdict == HostVerdict::kRuns) {
          Note(c, "host takes it to be shorter", nullptr);
        }
        continue;
      }
      Compare(c, results[i]);
    }
    candidates_.clear();
  }

  void Compare(const Candidate& c, const ProbeResult& result) {
    switch (result.verdict) {
      case HostVerdict::kUndefined:
        if (!c.undefined()) Note(c, "host #UD", WhyDefined(c));
        break;
      case HostVerdict::kRuns:
        if (c.undefined()) Note(c, "host runs it", WhyUndefined(c));
        break;
      case HostVerdict::kCutShort:
        Note(c, c.undefined() ? "host wants more than 15 bytes" : "host takes it to be longer",
             nullptr);
        break;
      case HostVerdict::kLost:
        Note(c, "lost", nullptr);
        break;
    }
  }

  // `reason` explains a difference that is meant to be.
  void Note(const Candidate& c, const char* what, const char* reason) {
    std::string name = std::string(what) + ": ";
    if (c.mnemonic != 0) {
      name += isa::MnemonicName(c.mnemonic);
    } else {
      name += Hex(c.bytes.data(), std::max<unsigned>(c.significant, 2) - 1);
    }
    name += std::string(" ") + isa::TreatmentName(c.treatment) + " " +
            std::string(isa::OpName(c.op)) + " " + std::to_string(c.code_bits);
    Kind& kind = kinds_[name];
    ++kind.count;
    kind.reason = reason;
    if (kind.example.empty()) {
      kind.example = Hex(c.bytes.data(), std::min<unsigned>(15, std::max(c.length, c.significant)));
    }
  }

  const SweepOptions options_;
  SweepReport report_;
  HostProber prober_;
  std::vector<Candidate> candidates_;
  std::map<std::string, Kind> kinds_;
};

}  // namespace

SweepReport Sweep(const SweepOptions& options) { return Sweeper(options).Run(); }

}  // namespace alibi::coverage
