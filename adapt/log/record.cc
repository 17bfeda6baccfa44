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
