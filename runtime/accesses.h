// SPDX-License-Identifier: Apache-2.0
// An access of translated code did not just work: what now? The one answer to that question, for
// host faults, inline TLB misses, bounced operands and simulated stores.
//
// What is wrong with an access is looked for in one order: an address that the host computes
// differently, a branch that goes nowhere, alignment that the instruction demands, canonicity,
// what the host's #GP says, #AC, and at last what the Mmu answers. A caller only says how it has
// come upon the access. Nothing here changes anything.
//
// Called while guest vector state is live: compiled for general registers only.
#ifndef ALIBI_RUNTIME_ACCESSES_H_
#define ALIBI_RUNTIME_ACCESSES_H_

#include "adapt/policy.h"
#include "base/types.h"
#include "isa/ir.h"
#include "mmu/mmu.h"
#include "translator/ccf.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::runtime {

// How the runtime has come upon an access.
enum class Found : u8 {
  kTrap,    // the access itself, or the look-up in front of it, has trapped on the host
  kMiss,    // its look-up has missed; nothing has been accessed
  kBounce,  // it is about to be bounced: its instruction will run on a copy
  kStore,   // it is a store that the runtime makes
};

struct Access {
  Found found;
  const translator::SiteDesc& site;
  const isa::Instr& instr;  // the site's
  LinearAddr linear;
  unsigned size;  // bytes that are accessed, from there on

  // kTrap: the host's #GP, which an address can cause, or alignment.
  bool host_protection = false;
  // kTrap: the table that look-ups read has trapped, the access itself has not been tried.
  bool in_table = false;
  // Of a masked operand: at least one of its elements is accessed.
  bool any_element = false;
};

struct Verdict {
  enum class Way : u8 {
    kResume,    // nothing is wrong that is known so far; the access may go on
    kRetry,     // once more, by the same translation
    kSimulate,  // once more, by the SIMULATE translation
    kDeliver,   // `fault` is the guest's
  };
  Way way = Way::kResume;
  // kDeliver: whatever the instruction does before it stores, it does not come to that.
  bool at_once = false;
  bool charged = false;  // the site is charged with `event`
  adapt::Event event{};
  vcpu::GuestFault fault{};

  static constexpr Verdict Go(Way way) { return {.way = way}; }
  static constexpr Verdict Deliver(const vcpu::GuestFault& fault) {
    return {.way = Way::kDeliver, .fault = fault};
  }
  constexpr Verdict Charged(adapt::Event event_) const {
    Verdict verdict = *this;
    verdict.charged = true;
    verdict.event = event_;
    return verdict;
  }
};

class Accesses {
 public:
  explicit Accesses(const vcpu::VcpuState& state) : state_(state) {}  // which outlives this

  // Before the Mmu is asked.
  Verdict Classify(const Access& access) const;
  // The Mmu has answered; `fault` is the guest's, if there is one.
  Verdict Classify(const Access& access, mmu::Resolution answer,
                   const vcpu::GuestFault& fault) const;

  // The address of the site's access, as the emitted code computes it.
  LinearAddr AddressOf(const translator::SiteDesc& site, const isa::Instr& instr) const;
  static bool Writes(const translator::SiteDesc& site, const isa::Instr& instr);
  // #AC, where alignment is checked.
  bool Misaligned(const isa::Instr& instr, LinearAddr linear) const {
    return state_.ChecksAlignment() && (linear.value & (instr.mem.checked_alignment - 1u)) != 0;
  }
  // Of bytes [linear, linear + size) at least one has no canonical address.
  static bool LeavesAddressSpace(LinearAddr linear, unsigned size);
  // Of an element of the explicit operand, or of all of the access.
  vcpu::GuestFault NonCanonicalFault(const isa::Instr& instr, LinearAddr linear) const;

 private:
  // 32-bit code: the host's sum of base and displacement is no 32-bit address.
  bool Wraps(const Access& access) const;
  // The push of a call to what is no address, which faults before the push can.
  bool CallsNowhere(const Access& access) const;
  // Such an operand is #GP(0) whatever is mapped there, also where it would be #SS for another
  // reason. (Where the access itself runs, the host's CPU sees to it.)
  static bool BreaksAlignment(const Access& access);
  // Nothing has been accessed yet, and the instruction, run to its end, may show other effects or
  // no fault at all.
  static bool MayShowOtherEffects(const Access& access);

  const vcpu::VcpuState& state_;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ACCESSES_H_
