// SPDX-License-Identifier: Apache-2.0
// What emitted code and stubs call: the callouts with the types of their descriptors, and where
// their stubs lie.
#ifndef ALIBI_ABI_CALLOUTS_H_
#define ALIBI_ABI_CALLOUTS_H_

#include <type_traits>

#include "base/check.h"
#include "base/types.h"

namespace alibi {

namespace translator {
struct Ccf;
struct ExitDesc;
struct SiteDesc;
}  // namespace translator

// What the miss stub needs to know of a site, in r10: a descriptor that has not been read for a
// while would cost more than all of the stub.
struct MissWord {
  static constexpr unsigned kResumeBits = 31;  // bytes from the miss stub to where the site goes on
  static constexpr unsigned kSpanShift = kResumeBits, kSpanBits = 12;  // bytes to cover, less one
  static constexpr unsigned kSlotShift = kSpanShift + kSpanBits,
                            kSlotBits = 12;  // number of the slot, and 1; 0: none
  static constexpr unsigned kWindowShift = kSlotShift + kSlotBits;  // index into ram_window

  u64 word = 0;

  static MissWord Make(u64 resume_distance, u32 span_minus_1, u32 slot_plus_1, u32 window) {
    ALIBI_CHECK(resume_distance >> kResumeBits == 0 && span_minus_1 >> kSpanBits == 0 &&
                    slot_plus_1 >> kSlotBits == 0,
                "a site's miss fits its word");
    return {resume_distance | u64{span_minus_1} << kSpanShift | u64{slot_plus_1} << kSlotShift |
            u64{window} << kWindowShift};
  }
  constexpr u64 ResumeDistance() const { return word & ((u64{1} << kResumeBits) - 1); }
  constexpr u32 SpanMinus1() const {
    return static_cast<u32>(word >> kSpanShift & ((u64{1} << kSpanBits) - 1));
  }
  constexpr bool Window() const { return (word >> kWindowShift & 1) != 0; }
};

// r10 says nothing.
struct NoDescriptor {};

enum class Callout : u8 {
#define ALIBI_CALLOUT(name, descriptor, contract) k##name,
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
  kCount
};
inline constexpr unsigned kCalloutCount = static_cast<unsigned>(Callout::kCount);

namespace internal {
template <Callout kCallout>
struct Descriptor;
#define ALIBI_CALLOUT(name, descriptor, contract) \
  template <>                                     \
  struct Descriptor<Callout::k##name> {           \
    using Type = descriptor;                      \
  };
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
}  // namespace internal

template <Callout kCallout>
using DescriptorOf = typename internal::Descriptor<kCallout>::Type;

// Is the callout one of a site, by whichever descriptor?
template <class Descriptor>
inline constexpr bool kIsOfSite =
    std::is_same_v<Descriptor, translator::SiteDesc*> || std::is_same_v<Descriptor, MissWord>;

// r10 of a callout as its descriptor.
template <class Descriptor>
Descriptor DescriptorIn(u64 r10) {
  if constexpr (std::is_pointer_v<Descriptor>) {
    return reinterpret_cast<Descriptor>(r10);
  } else if constexpr (std::is_same_v<Descriptor, NoDescriptor>) {
    return {};
  } else {
    return Descriptor{r10};
  }
}

// Where a failed entry check goes.
struct EntryMiss {
  HostAddr lookup;  // looks r11 up
  // The same, once the flags in ah and al (LAHF, SETO) are back, and rax from r10 ...
  HostAddr restore;
  HostAddr restore_swapped;  // ... and r11, whose halves are swapped
};

// Host addresses of the stubs that emitted code jumps to.
struct StubTable {
  HostAddr callout[kCalloutCount] = {};
  // The look-up miss: r11 = linear, r10 = MissWord. Fills the slot and goes on at the site with
  // r10 = entry, or falls back to the Miss callout.
  HostAddr miss;
  EntryMiss entry_miss;

  HostAddr at(Callout which) const { return callout[static_cast<unsigned>(which)]; }

  // For tests and benchmarks that emit but do not run: each stub somewhere of its own behind
  // `host`.
  static StubTable Somewhere(HostAddr host) {
    constexpr u64 kApart = 64;
    StubTable table;
    for (HostAddr& stub : table.callout) stub = host += kApart;
    table.miss = host += kApart;
    table.entry_miss.lookup = host += kApart;
    table.entry_miss.restore = host += kApart;
    table.entry_miss.restore_swapped = host += kApart;
    return table;
  }
};

}  // namespace alibi

#endif  // ALIBI_ABI_CALLOUTS_H_
