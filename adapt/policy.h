// Adaptation policies: one pure interface, event in, verdict out. A policy sees a site's statistics
// and what has just happened there, and says which translation kind the site should have.
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
enum class Kind : u8 { kDirect, kChecked, kSimulate };

// What happened at a site. Traps cost a host signal, callouts a call into the runtime.
enum class Event : u8 {
  kTruePageFault,  // the guest's own fault
  kTraceFault,     // store to a page table, to code, to ROM
  kDeviceAccess,   // memory-mapped device
  kPageCrossing,   // the access reached into a page that is not its neighbour's
  kArithmetic,     // divide error
  kCleanCallout,   // CHECKED or SIMULATE called out, and the access was innocent
};
inline constexpr unsigned kEventCount = 6;
const char* EventName(Event event);
const char* KindName(Kind kind);

// The `phys` of the record that sites share once the table is full: no policy convicts it.
inline constexpr u64 kSharedSite = ~u64{0};

// A site's record: one per guest instruction that ever misbehaved.
struct SiteRecord {
  u64 pc = 0;    // guest-linear
  u64 phys = 0;  // guest-physical; sites are keyed by it and pc
  Kind kind = Kind::kDirect;
  bool alone = false;            // its accesses do not share another's look-up
  bool table_lookup = false;     // its look-ups missed the slot too often
  u32 traps = 0;                 // host faults charged to it, ever
  u32 callouts = 0;              // CHECKED/SIMULATE callouts, ever
  u32 events[kEventCount] = {};  // by Event, ever
  u32 recent_guilty = 0;         // policy's own window counters
  u32 recent_clean = 0;
  u32 adaptations = 0;  // convictions
  u32 reversions = 0;   // acquittals
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual const char* name() const = 0;
  // `trapped`: the event cost a host trap (else a callout). May change the site's recent_* fields
  // only. Not called for a guilty event at a site that is SIMULATE already and has no recent clean
  // ones: no verdict could differ. Called with guest vector state live: integer registers only, no
  // allocation, no I/O.
  virtual Kind OnEvent(SiteRecord& site, Event event, bool trapped) = 0;
};

// "never", "always", "threshold", "threshold(N)", "hysteresis", "hysteresis(N,M)": convict after N
// guilty events, acquit after M clean callouts in a row. Errors list the known names.
Result<std::unique_ptr<Policy>> MakePolicy(const std::string& spec);
std::vector<std::string> PolicyNames();

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_POLICY_H_
