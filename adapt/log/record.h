// SPDX-License-Identifier: Apache-2.0
// What an event log consists of: one struct for the ring that the VCPU writes, for the drain thread
// and for readers. The file's encoding of it is in docs/event_log.md.
#ifndef ALIBI_ADAPT_LOG_RECORD_H_
#define ALIBI_ADAPT_LOG_RECORD_H_

#include "adapt/engine_policy.h"
#include "adapt/policy.h"
#include "base/types.h"

namespace alibi::adapt::log {

enum class RecordKind : u8 {
#define ALIBI_LOG_RECORD(enumerator, number, name, what) enumerator = number,
#include "adapt/log/record_kinds.inc"
#undef ALIBI_LOG_RECORD
};
constexpr u32 KindBit(RecordKind kind) { return 1u << static_cast<unsigned>(kind); }
inline constexpr u32 kAllKinds = 0
#define ALIBI_LOG_RECORD(enumerator, number, name, what) | 1u << number
#include "adapt/log/record_kinds.inc"
#undef ALIBI_LOG_RECORD
    ;
constexpr bool IsRecordKind(unsigned number) { return number < 32 && (kAllKinds >> number & 1); }

// Why a translation was made.
enum class Why : u8 {
  kFirst,        // there was none, or the TC has been flushed since
  kVerdict,      // it replaces one that a site's verdict, re-lookup or ungrouping retired
  kOverwritten,  // it replaces one whose code was overwritten
  kRevived,      // the code is as it was before: an old translation was found again
  kSimulate,     // one instruction that goes on in SIMULATE this time
  kSingle,       // one instruction: a step, or breakpoints
};
inline constexpr unsigned kWhyCount = 6;

inline constexpr u32 kNoSite = ~u32{0};
inline constexpr unsigned kMaxInstructionBytes = 15;

// 64 bytes: one cache line of the ring. What a kind does not mention below is 0 (kNoSite, kDirect).
// All have a time and an address space (the end the last one's).
struct Record {
  u64 tsc = 0;        // the host's, when it was recorded
  u64 cr3 = 0;        // the guest's address space
  LinearAddr pc;      // of the instruction
  PhysAddr physical;  // of the instruction
  u64 value = 0;
  u64 more = 0;
  u32 site = kNoSite;  // occurrence, verdict, relookup, ungroup: index of the site
  u32 cycles = 0;      // TSC cycles: of an occurrence from the runtime's entry on; of a translation
  RecordKind kind = RecordKind::kOccurrence;
  Event event = Event::kTruePageFault;  // occurrence, verdict
  Kind before = Kind::kDirect;          // occurrence, verdict, site: how it was translated
  Kind after = Kind::kDirect;           // occurrence, verdict: what the policy wants now
  bool flag = false;
  u8 number = 0;
  Why why = Why::kFirst;  // translation
  u8 extra = 0;           // site: its Access; translation: 16, 32 or 64 bits

  // kind            pc  physical  value         more             flag            number
  // occurrence,     pc  physical  traps and callouts of the site trapped         -
  // verdict                       so far; not in files           (else callout)
  // site            pc  physical  instruction bytes              -               length | bits << 4
  // translation     pc  physical  guest bytes   emitted bytes    user mode       instructions
  // fault           pc  -         CR2           error code       has error code  vector
  // overwritten     pc  physical  where (phys.) bytes stored     -               -
  // forgotten-page  -   page      -             -                -               -
  // flush           -   -         -             -                site table too  -
  // relookup,       pc  physical  -             -                -               -
  // ungroup
  // control         pc  -         value         -                -               register
  // msr             pc  -         value         number           written         -
  // engine          see EngineOccurrence: its address space is that of the event
  // vcpu            -   -         -             -                -               which one
  // lost            -   -         how many      -                -               -
  // end             -   -         lost records  records that     -               -
  //                               in all        did not fit
  bool operator==(const Record&) const = default;
};
static_assert(sizeof(Record) == 64);

// One guest instruction that misbehaved at least once. A site whose page was forgotten comes back
// as another one, with another number.
struct Site {
  LinearAddr pc;
  PhysAddr physical;          // kSharedSite: of all sites that had no room in the table
  Kind kind = Kind::kDirect;  // when it was defined
  u8 code_bits = 64;          // 16, 32, 64
  Access access = Access::kOther;
  u8 length = 0;  // of the instruction; 0: unknown
  u8 bytes[kMaxInstructionBytes] = {};
  bool operator==(const Site&) const = default;
};

Record RecordOf(const Site& site);
Site SiteOf(const Record& record);

// What an engine policy was told, and its verdict.
struct EngineOccurrence {
  u32 space = 0;  // EngineRecord::number
  UserEngine before = UserEngine::kTranslate, after = UserEngine::kTranslate;
  EngineEvent event;
};
// With the event's time, and without a CR3.
Record RecordOf(const EngineOccurrence& what);
EngineOccurrence EngineOccurrenceOf(const Record& record);

const char* RecordKindName(RecordKind kind);
const char* WhyName(Why why);

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_RECORD_H_
