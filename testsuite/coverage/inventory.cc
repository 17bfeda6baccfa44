// SPDX-License-Identifier: Apache-2.0
#include "testsuite/coverage/inventory.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "isa/decoder.h"
#include "testsuite/coverage/features.h"
#include "testsuite/coverage/opcode_space.h"

namespace alibi::coverage {
namespace {

using isa::DecodeStatus;
using isa::Encoding;
using isa::Feature;
using isa::Instr;
using isa::Op;
using isa::Treatment;
using isa::Unit;

constexpr unsigned kModes[] = {64, 32, 16};

std::string Hex(unsigned byte) {
  char text[4];
  std::snprintf(text, sizeof text, "%02X", byte);
  return text;
}

// Map and opcode, and what they were found with.
struct Encodings {
  std::set<std::string> prefixes;
  std::set<u8> modrms;
  bool has_modrm = false;
};

struct Found {
  Feature feature = Feature::kBase;
  bool x87 = false;
  std::array<std::set<std::string>, 3> treatments;
  std::map<std::string, Encodings> encodings;  // by map and opcode
  bool defined = false;
  bool other_than_ident = false;
  bool compared = false;
};

// "/4" where ModRM.reg selects the instruction, or the whole ModRM byte.
std::string Extension(const Encodings& encodings) {
  if (!encodings.has_modrm) return "";
  std::set<unsigned> regs;
  bool registers_only = true;
  for (u8 modrm : encodings.modrms) {
    regs.insert((modrm >> 3) & 7);
    registers_only = registers_only && modrm >= 0xc0;
  }
  if (registers_only && encodings.modrms.size() == 1) return " " + Hex(*encodings.modrms.begin());
  if (regs.size() == 8) return "";
  std::string text = " /";
  for (unsigned reg : regs) text += std::to_string(reg);
  return text;
}

std::string Describe(const std::map<std::string, Encodings>& all) {
  struct Item {
    std::string prefix, map, extension;
    unsigned first, last;
  };
  std::vector<Item> items;
  for (const auto& [opcode, encodings] : all) {
    // Without a mandatory prefix the others only change sizes, or are ignored.
    std::set<std::string> prefixes = encodings.prefixes;
    if (prefixes.count("NP") != 0) {
      for (const char* ignored : {"66", "F2", "F3"}) prefixes.erase(ignored);
    } else if (prefixes.count("66") != 0 && prefixes.count("F2") + prefixes.count("F3") != 0) {
      prefixes.erase("66");
    }
    for (const std::string& prefix : prefixes) {
      Item item;
      item.prefix = prefix == "NP" ? "" : prefix + " ";
      item.map = opcode.substr(0, opcode.size() - 2);
      item.extension = Extension(encodings);
      item.first = item.last =
          static_cast<unsigned>(std::stoul(opcode.substr(opcode.size() - 2), nullptr, 16));
      auto same = std::find_if(items.begin(), items.end(), [&](const Item& other) {
        return other.prefix == item.prefix && other.map == item.map &&
               other.extension == item.extension && other.last + 1 == item.first;
      });
      if (same != items.end()) {
        same->last = item.first;
      } else {
        items.push_back(item);
      }
    }
  }
  std::string text;
  for (const Item& item : items) {
    if (!text.empty()) text += ", ";
    text += item.prefix + item.map + Hex(item.first);
    if (item.last != item.first) text += "-" + Hex(item.last);
    text += item.extension;
  }
  return text;
}

class Inventory {
 public:
  void Walk() {
    for (unsigned mode = 0; mode < std::size(kModes); ++mode) {
      const Visitor visit = [&](const InstructionBytes& bytes, unsigned) {
        return Add(mode, bytes);
      };
      WalkLegacy(kModes[mode], Depth::kShort, visit);
      WalkVex(kModes[mode], Depth::kShort, visit);
      WalkEvex(kModes[mode], Depth::kShort, visit);
    }
  }

  std::vector<InventoryRow> Rows() const {
    std::vector<InventoryRow> rows;
    for (const auto& [mnemonic, found] : found_) {
      InventoryRow row;
      row.mnemonic = isa::MnemonicName(mnemonic);
      row.feature = found.feature;
      row.defined = found.defined;
      row.compared = found.compared;
      row.ident = found.defined && !found.other_than_ident;
      row.section = found.x87 ? "x87"
                    : found.feature == Feature::kBase || found.feature == Feature::kLongMode
                        ? "General and system"
                        : FeatureBitOf(found.feature).text;
      row.encodings = Describe(found.encodings);
      for (unsigned mode = 0; mode < std::size(kModes); ++mode) {
        std::string& cell = row.modes[mode];
        for (const std::string& treatment : found.treatments[mode]) {
          if (!cell.empty()) cell += ", ";
          cell += treatment;
        }
        if (cell.empty()) cell = found.defined ? "-" : "#UD";
      }
      rows.push_back(std::move(row));
    }
    std::sort(rows.begin(), rows.end(), [](const InventoryRow& a, const InventoryRow& b) {
      return std::tie(a.section, a.mnemonic) < std::tie(b.section, b.mnemonic);
    });
    return rows;
  }

 private:
  bool Add(unsigned mode, const InstructionBytes& bytes) {
    Instr instr;
    const DecodeStatus status =
        isa::Decode(bytes.data(), sizeof(bytes), LinearAddr(0x1000), kModes[mode], &instr);
    const bool more = status != DecodeStatus::kOk || instr.layout.modrm != 0xff;
    if (instr.mnemonic == 0 || OfOneVendor(instr)) return more;
    const bool defined = status == DecodeStatus::kOk;
    Found& found = found_[instr.mnemonic];
    // One name, several sets (KNC has VADDPS, too): the defined one counts.
    if (found.defined && !defined) return more;
    if (!found.defined && defined) found = {};
    // The oldest set gives the row its section: VADDPS is AVX, and AVX-512 has it, too.
    if (found.encodings.empty() || FirstOf(instr.feature, found.feature)) {
      found.feature = instr.feature;
    }
    found.defined = defined;
    found.x87 = instr.unit == Unit::kX87 || instr.unit == Unit::kWait;
    found.treatments[mode].insert(NameOf(instr));
    found.compared |= defined && ComparesWithHost(instr);
    found.other_than_ident |= instr.treatment != Treatment::kIdent;
    const auto [prefix, opcode] = OpcodeOf(instr, bytes);
    Encodings& encodings = found.encodings[opcode];
    encodings.prefixes.insert(prefix);
    if (instr.layout.modrm != 0xff) {
      encodings.has_modrm = true;
      encodings.modrms.insert(bytes[instr.layout.modrm]);
    }
    return more;
  }

  static bool FirstOf(Feature a, Feature b) {
    const bool a512 = FeatureBitOf(a).text[0] == 'A' && FeatureBitOf(a).text[3] == '5';
    const bool b512 = FeatureBitOf(b).text[0] == 'A' && FeatureBitOf(b).text[3] == '5';
    return !a512 && b512;
  }

  // Near branches with an operand-size prefix, VPEXTRD with VEX.W: see decoder.cc.
  static bool OfOneVendor(const Instr& instr) {
    if (instr.code_bits == 64 && instr.operand_bits == 16) {
      constexpr u32 kNear = isa::kJumps | isa::kBranches | isa::kComputesTarget;
      if (isa::InfoOf(instr.op).Has(kNear)) return true;
    }
    return instr.encoding == Encoding::kVex && instr.code_bits != 64 &&
           instr.feature == Feature::kAvx512dq;
  }

  // A sequence that needs 64-bit code or operands is not tried where there are others.
  static Treatment TreatmentOf(const Instr& instr) {
    const isa::OpInfo& op = isa::InfoOf(instr.op);
    unsigned missing = instr.code_bits == 64 ? 0u : unsigned{isa::kCode64};
    if (instr.operand_bits != 64) missing |= isa::kOperand64;
    if (instr.treatment != Treatment::kInTc || (op.needs & missing) == 0) return instr.treatment;
    return EndsTranslationUnit(instr.treatment, op) ? Treatment::kTerminator : Treatment::kSimulate;
  }

  static std::string NameOf(const Instr& instr) {
    if (instr.treatment == Treatment::kUndefined) return "#UD";
    std::string text = isa::TreatmentName(TreatmentOf(instr));
    if (instr.op != Op::kNone) text += " " + std::string(isa::OpName(instr.op));
    return text;
  }

  std::map<u16, Found> found_;
};

}  // namespace

bool ComparesWithHost(const Instr& instr) {
  const std::string_view name = isa::MnemonicName(instr.mnemonic);
  // FRSTOR behind its segment's limit: which of its parts faults first is the CPU model's choice.
  if (instr.code_bits == 16 && instr.mem.size > 64) return false;
  return instr.treatment == Treatment::kIdent && HostHas(instr.feature) && name != "RDRAND" &&
         name != "RDSEED";
}

OpcodeName OpcodeOf(const Instr& instr, const InstructionBytes& bytes) {
  constexpr const char* kPp[] = {"NP", "66", "F3", "F2"};
  constexpr const char* kMaps[] = {"", "0F ", "0F 38 ", "0F 3A ", "map4 ", "map5 ", "map6 ", ""};
  const unsigned at = instr.layout.opcode;
  const std::string opcode = Hex(bytes[at]);
  if (instr.encoding != Encoding::kLegacy) {
    const u8* prefix = &bytes[instr.layout.vector_prefix];
    const bool evex = instr.encoding == Encoding::kEvex;
    const unsigned map = prefix[0] == 0xc5 ? 1 : prefix[1] & (evex ? 7 : 0x1f);
    const u8 last = prefix[0] == 0xc5 ? prefix[1] : prefix[2];
    return {(evex ? "EVEX." : "VEX.") + std::string(kPp[last & 3]),
            kMaps[std::min(map, 7u)] + opcode};
  }
  std::string map;
  unsigned first = at;
  if (at >= 2 && bytes[at - 2] == 0x0f && (bytes[at - 1] == 0x38 || bytes[at - 1] == 0x3a)) {
    map = "0F " + Hex(bytes[at - 1]) + " ";
    first = at - 2;
  } else if (at >= 1 && bytes[at - 1] == 0x0f) {
    map = "0F ";
    first = at - 1;
  }
  std::string prefix = "NP";
  for (unsigned i = 0; i < first; ++i) {
    if (bytes[i] == 0x66 && prefix == "NP") prefix = "66";
    if (bytes[i] == 0xf2 || bytes[i] == 0xf3) prefix = Hex(bytes[i]);
  }
  return {prefix, map + opcode};
}

std::vector<InventoryRow> TakeInventory() {
  Inventory inventory;
  inventory.Walk();
  return inventory.Rows();
}

}  // namespace alibi::coverage
