// SPDX-License-Identifier: Apache-2.0
// Adaptation policies: one pure interface, event in, verdict out. A policy sees a site's record and
// what has just happened there, and says which translation kind the site should have.
//
// This header is what a built-in policy includes. A plug-in (a shared object) sees the same through
// the C table of include/alibi/policy.h. docs/policies.md is the tutorial.
//
// Sources: Adams & Agesen 2006, section 3.3 ("innocent until proven guilty", hysteresis).
#ifndef ALIBI_ADAPT_POLICY_H_
#define ALIBI_ADAPT_POLICY_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::adapt {

// Translation kinds, from optimistic to general (the emitter's SiteKind has the same order).
enum class Kind : u8 {
  kDirect,    // no cost but the look-up; what the access must not touch costs a host trap
  kChecked,   // the same, but what it must not touch, or a zero divisor, costs a callout
  kSimulate,  // every access costs a callout
};
inline constexpr unsigned kKindCount = 3;

// What happened at a site. Traps cost a host signal, callouts a call into the runtime.
enum class Event : u8 {
  kTruePageFault,  // the guest's own fault
  kTraceFault,     // store to a page table, to code, to ROM; access of a memory-mapped device
  kDeviceAccess,   // reserved: such accesses are kTraceFault today
  kPageCrossing,   // the access reached into a page that is not its neighbour's
  kArithmetic,     // divide error
  kCleanCallout,   // SIMULATE called out, and the access was innocent
};
inline constexpr unsigned kEventCount = 6;

// How the site's instruction uses memory, or kDivide.
enum class Access : u8 { kOther, kLoad, kStore, kModify, kPush, kPop, kDivide };
inline constexpr unsigned kAccessCount = 7;

const char* EventName(Event event);
const char* KindName(Kind kind);
const char* AccessName(Access access);

// The `phys` of the record that sites share once the table is full: no policy convicts it.
inline constexpr PhysAddr kSharedSite{~u64{0}};

// A site's record: one per guest instruction that ever misbehaved.
struct SiteRecord {
  LinearAddr pc{};  // where it was first seen
  PhysAddr phys{};  // sites are keyed by it
  Kind kind = Kind::kDirect;
  Access access = Access::kOther;
  bool alone = false;            // its accesses do not share another's look-up
  bool table_lookup = false;     // its look-ups missed the slot too often
  bool shows_flags = false;      // its faults show the guest flags that nothing reads afterwards
  LinearAddr faulted_page{};     // its latest page fault's, while it does not show them yet
  u32 traps = 0;                 // host faults charged to it, ever
  u32 callouts = 0;              // CHECKED/SIMULATE callouts, ever
  u32 events[kEventCount] = {};  // by Event, ever
  u32 adaptations = 0;           // convictions
  u32 reversions = 0;            // acquittals
  u32 log_number = 0;            // in the event log, from 1 on; 0: not in it

  // --- The policy's own: zero in a new record, and again when the site's page is forgotten ---
  u32 recent_guilty = 0;
  u32 recent_clean = 0;  // see Needs::every_event
  u64 policy_data[2] = {};
};

// One event. Small enough for two registers.
struct Occurrence {
  Event event;
  bool trapped;    // it cost a host trap, else a callout
  u32 cycles = 0;  // TSC cycles since the runtime's handler or callout was entered; Needs::clock
  u64 now = 0;     // the host's TSC; Needs::clock
};

// What things cost on this host, in TSC cycles, measured.
struct Prices {
  u32 trap = 0;         // a host signal's round trip, at the start of the process
  u32 callout = 0;      // an empty callout's round trip, at the start of the engine
  u32 retranslate = 0;  // a translation, mean of those made so far
};

struct Needs {
  bool clock = false;  // Occurrence::cycles and ::now are filled in: two RDTSC per event
  // Otherwise OnEvent is not called for a guilty event at a SIMULATE site whose recent_clean is 0:
  // most policies have no verdict that could differ.
  bool every_event = false;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual const char* name() const = 0;
  // The same for as long as the policy lives.
  virtual Needs needs() const { return {}; }
  // Called before the first event. The prices are kept up to date and outlive the policy's use.
  virtual void Watch(const Prices& /*prices*/) {}

  // The kind that the site should have. May change the record's last group of members only. The
  // site's counters include this event. Called with guest vector state live: integer registers
  // only, no allocation, no I/O.
  virtual Kind OnEvent(SiteRecord& site, Occurrence what) = 0;
  // Code in this page was replaced: its sites start innocent again. As OnEvent.
  virtual void OnPageForgotten(PhysPage /*page*/) {}

  // Why a plug-in no longer decides, as one line; null as long as it does.
  virtual const char* fault() const { return nullptr; }
};

// A built-in policy by name, its numbers in parentheses if not the default ones (docs/policies.md),
// or a plug-in by its file: whatever has a '/' or ends in ".so", its parameters in parentheses.
// Errors list the known names.
Result<std::unique_ptr<Policy>> MakePolicy(const std::string& spec);
inline constexpr const char* kDefaultPolicy = "hysteresis";
// With their parameters: "threshold(N)".
std::vector<std::string> PolicyNames();

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_POLICY_H_
