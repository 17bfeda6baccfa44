// SPDX-License-Identifier: Apache-2.0
#include "adapt/log/record.h"

namespace alibi::adapt::log {

Record RecordOf(const Site& site) {
  Record record;
  record.kind = RecordKind::kSite;
  record.pc = site.pc;
  record.physical = site.physical;
  record.before = site.kind;
  record.extra = static_cast<u8>(site.access);
  record.number = static_cast<u8>(site.length | site.code_bits / 16 << 4);
  for (unsigned i = 0; i < kMaxInstructionBytes; ++i) {
    (i < 8 ? record.value : record.more) |= u64{site.bytes[i]} << i % 8 * 8;
  }
  return record;
}

Site SiteOf(const Record& record) {
  Site site;
  site.pc = record.pc;
  site.physical = record.physical;
  site.kind = record.before;
  site.access = static_cast<Access>(record.extra);
  site.length = record.number & 15;
  site.code_bits = static_cast<u8>((record.number >> 4) * 16);
  for (unsigned i = 0; i < kMaxInstructionBytes; ++i) {
    site.bytes[i] = static_cast<u8>((i < 8 ? record.value : record.more) >> i % 8 * 8);
  }
  return site;
}

// pc: the address space; value: cycles; more: stops, and faults above; cycles: calls; number: the
// event; extra: the engine before, and above it the one from then on.
Record RecordOf(const EngineOccurrence& what) {
  Record record;
  record.kind = RecordKind::kEngine;
  record.tsc = what.event.now;
  record.pc = LinearAddr(what.space);
  record.value = what.event.cycles;
  record.more = what.event.stops | u64{what.event.faults} << 32;
  record.cycles = what.event.calls;
  record.number = static_cast<u8>(what.event.kind);
  record.extra =
      static_cast<u8>(static_cast<unsigned>(what.before) | static_cast<unsigned>(what.after) << 1);
  return record;
}

EngineOccurrence EngineOccurrenceOf(const Record& record) {
  EngineOccurrence what;
  what.space = static_cast<u32>(record.pc.value);
  what.before = static_cast<UserEngine>(record.extra & 1);
  what.after = static_cast<UserEngine>(record.extra >> 1 & 1);
  what.event.kind = static_cast<EngineEvent::Kind>(record.number);
  what.event.now = record.tsc;
  what.event.cycles = record.value;
  what.event.stops = static_cast<u32>(record.more);
  what.event.faults = static_cast<u32>(record.more >> 32);
  what.event.calls = record.cycles;
  return what;
}

const char* RecordKindName(RecordKind kind) {
  struct Row {
    RecordKind kind;
    const char* name;
  };
  static constexpr Row kRows[] = {
#define ALIBI_LOG_RECORD(enumerator, number, name, what) {RecordKind::enumerator, name},
#include "adapt/log/record_kinds.inc"
#undef ALIBI_LOG_RECORD
  };
  for (const Row& row : kRows) {
    if (row.kind == kind) return row.name;
  }
  return "?";
}

const char* WhyName(Why why) {
  static constexpr const char* kNames[] = {"first",   "verdict",  "overwritten",
                                           "revived", "simulate", "single"};
  static_assert(sizeof(kNames) / sizeof(*kNames) == kWhyCount);
  return kNames[static_cast<unsigned>(why)];
}

}  // namespace alibi::adapt::log
