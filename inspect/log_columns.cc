// SPDX-License-Identifier: Apache-2.0
#include "inspect/log_columns.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "isa/decoder.h"

namespace alibi::vmm {
namespace {

using adapt::log::KindBit;
using adapt::log::Reader;
using adapt::log::Record;
using adapt::log::RecordKind;
using adapt::log::Site;

struct Address {
  u64 value;
};
// Nothing: the record has no such thing, although others of its kind have.
using Cell = std::variant<std::monostate, u64, Address, bool, std::string>;

constexpr u32 kOccurrences = KindBit(RecordKind::kOccurrence) | KindBit(RecordKind::kVerdict);
constexpr u32 kOfSites = kOccurrences | KindBit(RecordKind::kSite) |
                         KindBit(RecordKind::kRelookup) | KindBit(RecordKind::kUngroup);
constexpr u32 kFault = KindBit(RecordKind::kFault);
constexpr u32 kTranslation = KindBit(RecordKind::kTranslation);
constexpr u32 kOverwritten = KindBit(RecordKind::kOverwritten);
constexpr u32 kSystem = KindBit(RecordKind::kControl) | KindBit(RecordKind::kMsr);
constexpr u32 kEngine = KindBit(RecordKind::kEngine);
constexpr u32 kEnd = KindBit(RecordKind::kEnd);

const Site& SiteNamed(const Record& record, const Reader& reader) {
  return reader.sites()[record.site];
}

std::string Hex(const Site& site) {
  std::string text;
  for (unsigned i = 0; i < site.length; ++i) text += fmt::format("{:02x}", site.bytes[i]);
  return text;
}

using Counts = u32 adapt::EngineEvent::*;
// Of what has run directly alone.
Cell CountOf(const Record& record, Counts count) {
  const adapt::EngineEvent event = EngineOccurrenceOf(record).event;
  return event.kind == adapt::EngineEvent::Kind::kRan ? Cell(u64{event.*count}) : Cell();
}

struct Column {
  const char* name;
  u32 kinds;
  Cell (*cell)(const Record& record, const Reader& reader);
};

// Their meaning is in docs/event_log.md.
constexpr Column kColumns[] = {
    {"ns", adapt::log::kAllKinds,
     [](const Record& r, const Reader& reader) -> Cell { return LogNs(r.tsc, reader.header()); }},
    {"record", adapt::log::kAllKinds,
     [](const Record& r, const Reader&) -> Cell { return std::string(RecordKindName(r.kind)); }},
    {"vcpu", adapt::log::kAllKinds & ~kEnd,
     [](const Record&, const Reader& reader) -> Cell {
       return reader.vcpu() ? Cell(u64{*reader.vcpu()}) : Cell();
     }},
    {"cr3", adapt::log::kAllKinds & ~kEnd,
     [](const Record& r, const Reader&) -> Cell { return Address{r.cr3}; }},
    {"pc", kOfSites | kFault | kTranslation | kOverwritten | kSystem,
     [](const Record& r, const Reader&) -> Cell { return Address{r.pc.value}; }},
    {"physical", kOfSites | kTranslation | kOverwritten | KindBit(RecordKind::kForgottenPage),
     [](const Record& r, const Reader&) -> Cell { return Address{r.physical.value}; }},
    {"site", kOfSites, [](const Record& r, const Reader&) -> Cell { return u64{r.site}; }},
    {"event", kOccurrences | kEngine,
     [](const Record& r, const Reader&) -> Cell {
       return std::string(r.kind == RecordKind::kEngine
                              ? EngineEventName(EngineOccurrenceOf(r).event.kind)
                              : EventName(r.event));
     }},
    {"trapped", kOccurrences, [](const Record& r, const Reader&) -> Cell { return r.flag; }},
    {"from", kOccurrences | kEngine | KindBit(RecordKind::kSite),
     [](const Record& r, const Reader&) -> Cell {
       return std::string(r.kind == RecordKind::kEngine
                              ? UserEngineName(EngineOccurrenceOf(r).before)
                              : KindName(r.before));
     }},
    {"to", kOccurrences | kEngine,
     [](const Record& r, const Reader&) -> Cell {
       return std::string(r.kind == RecordKind::kEngine
                              ? UserEngineName(EngineOccurrenceOf(r).after)
                              : KindName(r.after));
     }},
    {"cycles", kOccurrences | kTranslation | kEngine,
     [](const Record& r, const Reader&) -> Cell {
       return r.kind == RecordKind::kEngine ? EngineOccurrenceOf(r).event.cycles : u64{r.cycles};
     }},
    {"access", KindBit(RecordKind::kSite),
     [](const Record& r, const Reader& reader) -> Cell {
       return std::string(AccessName(SiteNamed(r, reader).access));
     }},
    {"code_bits", kTranslation | KindBit(RecordKind::kSite),
     [](const Record& r, const Reader& reader) -> Cell {
       return u64{r.kind == RecordKind::kSite ? SiteNamed(r, reader).code_bits : r.extra};
     }},
    {"bytes", KindBit(RecordKind::kSite),
     [](const Record& r, const Reader& reader) -> Cell { return Hex(SiteNamed(r, reader)); }},
    {"instruction", KindBit(RecordKind::kSite),
     [](const Record& r, const Reader& reader) -> Cell {
       return InstructionText(SiteNamed(r, reader));
     }},
    {"why", kTranslation,
     [](const Record& r, const Reader&) -> Cell { return std::string(WhyName(r.why)); }},
    {"user", kTranslation, [](const Record& r, const Reader&) -> Cell { return r.flag; }},
    {"instructions", kTranslation,
     [](const Record& r, const Reader&) -> Cell { return u64{r.number}; }},
    {"guest_bytes", kTranslation, [](const Record& r, const Reader&) -> Cell { return r.value; }},
    {"emitted_bytes", kTranslation, [](const Record& r, const Reader&) -> Cell { return r.more; }},
    {"vector", kFault, [](const Record& r, const Reader&) -> Cell { return u64{r.number}; }},
    {"error_code", kFault,
     [](const Record& r, const Reader&) -> Cell { return r.flag ? Cell(r.more) : Cell(); }},
    {"address", kFault | kOverwritten,
     [](const Record& r, const Reader&) -> Cell {
       constexpr u8 kPageFault = 14;  // the only one that has one
       const bool none = r.kind == RecordKind::kFault && r.number != kPageFault;
       return none ? Cell() : Cell(Address{r.value});
     }},
    {"stored", kOverwritten, [](const Record& r, const Reader&) -> Cell { return r.more; }},
    {"site_table", KindBit(RecordKind::kFlush),
     [](const Record& r, const Reader&) -> Cell { return r.flag; }},
    {"register", kSystem,
     [](const Record& r, const Reader&) -> Cell {
       return r.kind == RecordKind::kMsr ? Cell(Address{r.more}) : Cell(u64{r.number});
     }},
    {"written", KindBit(RecordKind::kMsr),
     [](const Record& r, const Reader&) -> Cell { return r.flag; }},
    {"value", kSystem, [](const Record& r, const Reader&) -> Cell { return Address{r.value}; }},
    {"lost", kEnd | KindBit(RecordKind::kLost),
     [](const Record& r, const Reader&) -> Cell { return r.value; }},
    {"left_out", kEnd, [](const Record& r, const Reader&) -> Cell { return r.more; }},
    {"space", kEngine,
     [](const Record& r, const Reader&) -> Cell { return u64{EngineOccurrenceOf(r).space}; }},
    {"stops", kEngine,
     [](const Record& r, const Reader&) -> Cell { return CountOf(r, &adapt::EngineEvent::stops); }},
    {"faults", kEngine,
     [](const Record& r, const Reader&) -> Cell {
       return CountOf(r, &adapt::EngineEvent::faults);
     }},
    {"calls", kEngine,
     [](const Record& r, const Reader&) -> Cell { return CountOf(r, &adapt::EngineEvent::calls); }},
};

Cell CellOf(const Column& column, const Record& record, const Reader& reader) {
  return (column.kinds & KindBit(record.kind)) != 0 ? column.cell(record, reader) : Cell();
}

// RFC 4180, for the one column that may have commas.
std::string Quoted(const std::string& text) {
  return text.find(',') == std::string::npos ? text : '"' + text + '"';
}

}  // namespace

u64 LogNs(u64 tsc, const adapt::log::Header& header) {
  if (tsc < header.start_tsc) return 0;
  return static_cast<u64>(static_cast<unsigned __int128>(tsc - header.start_tsc) * 1'000'000'000 /
                          header.tsc_hz);
}

std::string InstructionText(const Site& site) {
  isa::Instr instr;
  if (site.length == 0 ||
      Decode(site.bytes, site.length, site.pc, site.code_bits, &instr) != isa::DecodeStatus::kOk) {
    return "?";
  }
  return Disassemble(instr);
}

std::string CsvHead() {
  std::string text;
  for (const Column& column : kColumns)
    text += (text.empty() ? "" : ",") + std::string(column.name);
  return text;
}

std::string CsvRow(const Record& record, const Reader& reader) {
  struct Text {
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(u64 value) const { return fmt::format("{}", value); }
    std::string operator()(Address address) const { return fmt::format("{:#x}", address.value); }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(const std::string& text) const { return Quoted(text); }
  };
  std::string row;
  for (const Column& column : kColumns) {
    if (&column != kColumns) row += ',';
    row += std::visit(Text(), CellOf(column, record, reader));
  }
  return row;
}

std::string JsonRow(const Record& record, const Reader& reader) {
  nlohmann::ordered_json json;
  struct Put {
    nlohmann::ordered_json& json;
    const char* name;
    void operator()(std::monostate) const {}
    void operator()(u64 value) const { json[name] = value; }
    void operator()(Address address) const { json[name] = fmt::format("{:#x}", address.value); }
    void operator()(bool value) const { json[name] = value; }
    void operator()(const std::string& text) const { json[name] = text; }
  };
  for (const Column& column : kColumns) {
    std::visit(Put{json, column.name}, CellOf(column, record, reader));
  }
  if (record.kind == RecordKind::kEnd) {
    for (const auto& [name, value] : reader.counters()) json["counters"][name] = value;
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace alibi::vmm
