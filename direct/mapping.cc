// SPDX-License-Identifier: Apache-2.0
// A satellite's mappings: what its view's shadow entries and fetches say, and nothing else.
#include <algorithm>
#include <utility>

#include "direct/direct_execution.h"
#include "vcpu/exceptions.h"

namespace alibi::direct {
namespace {

using mmu::EntryIndex;
using mmu::FollowedPages;
using mmu::PageOfIndex;

// Pages around a fault that are mapped with it, if the shadow knows them: aligned.
constexpr u64 kAround = 16;
// Pages of code behind a fault that are judged with it.
constexpr u64 kBehind = 3;

}  // namespace

// Where the page's shadow entry leads, and what the view may do there; kNotRam: it has no entry.
u64 DirectExecution::ArenaOffsetOf(const mmu::View& view, u64 index, u8* rights) const {
  const mmu::GuestMemory& memory = mmu_.memory();
  const HostAddr host = view.HostOf(PageOfIndex(index));
  *rights = FollowedPages::kRead;
  if (host - memory.ro_base() < memory.capacity()) return host - memory.ro_base();
  *rights |= FollowedPages::kWrite;
  if (host - memory.rw_base() < memory.capacity()) return host - memory.rw_base();
  *rights = 0;
  return mmu::GuestMemory::kNotRam;
}

// Orders that what is no longer so be unmapped.
void DirectExecution::FlushChanged(Place* place) {
  FollowedPages& pages = *place->pages;
  Satellite& satellite = *place->satellite;
  if (!pages.all_changed() && pages.changed_count() == 0) return;
  if (!pages.all_changed() && !satellite.HasRoom(pages.changed_count() + 1)) pages.ChangedAll();
  if (pages.all_changed()) {
    ++counters_.direct_flushes;
    satellite.OrderUnmapAll();
  } else {
    for (u32 i = 0; i < pages.changed_count();) {
      const u64 first = pages.changed(i);
      u64 count = 1;
      while (++i < pages.changed_count() && pages.changed(i) == first + count) ++count;
      satellite.OrderUnmap(PageOfIndex(first), count * kPageSize);
      ++counters_.direct_unmaps;
    }
  }
  pages.ForgetChanged();
}

// Orders so many pages from `first` on to be mapped as their entries say, in at most so many calls,
// each of which maps what lies together: those that have an entry, and are not mapped. Returns how
// many calls are left.
unsigned DirectExecution::OrderPages(Place* place, u64 first, u64 count, unsigned calls) {
  FollowedPages& pages = *place->pages;
  Satellite& satellite = *place->satellite;
  const mmu::View& view = *place->view;
  for (u64 index = first; index < first + count && calls != 0;) {
    u8 run_rights;
    const u64 begin = ArenaOffsetOf(view, index, &run_rights);
    const auto wanted = [&](u64 at) {
      return pages.RightsOf(at) == 0 && CanMap(*place, PageOfIndex(at));
    };
    if (begin == mmu::GuestMemory::kNotRam || !wanted(index)) {
      ++index;
      continue;
    }
    u64 length = 1;
    for (; index + length < first + count && wanted(index + length); ++length) {
      u8 next_rights;
      if (ArenaOffsetOf(view, index + length, &next_rights) != begin + length * kPageSize ||
          next_rights != run_rights) {
        break;
      }
    }
    if (!satellite.HasRoom(1) || pages.count() + length > FollowedPages::kMaxPages) return 0;
    for (u64 i = 0; i < length; ++i) pages.Add(index + i, run_rights);
    satellite.OrderMap(PageOfIndex(index), length * kPageSize, begin,
                       run_rights & FollowedPages::kWrite, false);
    ++counters_.direct_maps;
    counters_.direct_mapped_pages += length;
    index += length;
    --calls;
  }
  return calls;
}

DirectExecution::Mapped DirectExecution::MapData(Place* place, LinearAddr address, bool write) {
  const u64 index = EntryIndex(address);
  FollowedPages& pages = *place->pages;
  const u8 wanted = write ? FollowedPages::kRead | FollowedPages::kWrite : FollowedPages::kRead;
  u8 rights;
  u64 offset = ArenaOffsetOf(*place->view, index, &rights);
  if ((rights & wanted) != wanted) {
    const mmu::Resolution resolution = mmu_.ResolveAccess(address, 1, write, &guest_fault_);
    if (resolution == mmu::Resolution::kGuestFault) return Mapped::kFault;
    if (resolution != mmu::Resolution::kFilled) return Mapped::kNo;
    offset = ArenaOffsetOf(*place->view, index, &rights);
  }
  if (offset == mmu::GuestMemory::kNotRam || (rights & wanted) != wanted) return Mapped::kNo;
  FlushChanged(place);
  const u8 has = pages.RightsOf(index);
  // As it should be, and it traps all the same.
  if ((has & wanted) == wanted) return Mapped::kNo;
  if (has != 0) {
    // Can be read, and is to be written.
    OrderPage(place, index, offset, rights);
    return Mapped::kYes;
  }
  // What lies around may cost as much as the fault that it may save; what is behind comes first.
  const u64 around = index & ~(kAround - 1);
  const auto most = static_cast<unsigned>(std::max<u64>(prices_.stop / (prices_.call + 1), 2));
  const unsigned left = OrderPages(place, index, around + kAround - index, most);
  OrderPages(place, around, index - around, left);
  if (pages.RightsOf(index) == 0) OrderPage(place, index, offset, rights);
  return Mapped::kYes;
}

// One page, as it is now: even if too much is mapped already.
void DirectExecution::OrderPage(Place* place, u64 index, u64 offset, u8 rights) {
  FollowedPages& pages = *place->pages;
  if (!place->satellite->HasRoom(1) || !pages.Add(index, rights)) {
    pages.ChangedAll();
    FlushChanged(place);
    pages.Add(index, rights);
  }
  place->satellite->OrderMap(PageOfIndex(index), kPageSize, offset, rights & FollowedPages::kWrite,
                             rights & FollowedPages::kExecute);
  ++counters_.direct_maps;
  ++counters_.direct_mapped_pages;
}

// Is what begins in the page in front of `address`, and ends in its own, fit to run? Nobody has
// asked as long as this one was not executable.
bool DirectExecution::FitsBehind(Place* place, LinearAddr address, PhysAddr page) {
  const LinearAddr before = address.PageBase() - kPageSize;
  const u64 index = EntryIndex(before);
  if (!(place->pages->RightsOf(index) & FollowedPages::kExecute)) return true;
  const PhysPage in_front = place->view->ExecutedAs(index);
  if (in_front == mmu::View::kNoPage) return false;
  const unsigned bits = place->code_bits;
  return !code_pages_.NeedsNext(*judge_, bits, before, in_front.Base()) ||
         code_pages_.FitsWithNext(*judge_, bits, before, in_front.Base(), page);
}

// The same of what begins in the page itself, at `address`. An instruction that the page's end cuts
// cannot be executed before the next page can.
bool DirectExecution::FitsAhead(Place* place, LinearAddr address, PhysAddr page) {
  const u64 index = EntryIndex(address) + 1;
  if (!(place->pages->RightsOf(index) & FollowedPages::kExecute)) return true;
  const PhysPage next = place->view->ExecutedAs(index);
  return next != mmu::View::kNoPage &&
         code_pages_.FitsWithNext(*judge_, place->code_bits, address, page, next.Base());
}

// The page, which must be translated as it is: can breakpoints help?
bool DirectExecution::Guard(Place* place, LinearAddr address, PhysAddr page) {
  if (setter_ == nullptr) return false;
  const HostVisiblePlaces found = code_pages_.PlacesIn(*judge_, place->code_bits, address, page);
  if (found.count == 0) return false;
  LinearAddr places[Guards::kBreakpoints];
  for (unsigned i = 0; i < found.count; ++i) places[i] = address.PageBase() + found.offset[i];
  std::vector<u64> evicted;
  if (!place->guards.Guard(EntryIndex(address), {places, found.count}, &evicted)) return false;
  for (const u64 other : evicted) place->pages->Changed(other);
  ++counters_.direct_guarded_pages;
  return true;
}

DirectExecution::Mapped DirectExecution::MapCode(Place* place, LinearAddr address) {
  FollowedPages& pages = *place->pages;
  const u64 index = EntryIndex(address);
  PhysAddr page;
  // Before the page is found that is going to be traced.
  mmu_.TakeMachine();
  if (!mmu_.Fetch(address, &page, &guest_fault_)) return Mapped::kFault;
  const u64 offset = mmu_.memory().ArenaOffset(page.PageBase());
  if (offset == mmu::GuestMemory::kNotRam) return Mapped::kRefused;
  Guards& guards = place->guards;
  CodePages::Verdict verdict = code_pages_.Of(*judge_, place->code_bits, address, page);
  if (!FitsBehind(place, address, page)) return Mapped::kRefused;
  if (verdict == CodePages::kIneligible && !guards.Has(index)) {
    if (!guards.Refused(index)) return Mapped::kRefused;
    verdict = code_pages_.Again(*judge_, place->code_bits, address, page);
  }
  if (verdict != CodePages::kIneligible) {
    guards.Release(index);
  } else if (!Guard(place, address, page)) {
    return Mapped::kRefused;
  }
  FlushChanged(place);
  if (pages.RightsOf(index) & FollowedPages::kExecute) return Mapped::kNo;
  if (code_pages_.NeedsNext(*judge_, place->code_bits, address, page) &&
      !FitsAhead(place, address, page)) {
    return Mapped::kRefused;
  }
  OrderPage(place, index, offset, FollowedPages::kRead | FollowedPages::kExecute);
  return Mapped::kYes;
}

// Code goes on behind it, mostly; and what lies around it and was fit to run for another program,
// or before it was unmapped, this one is likely to come to. Only pages that the guest has used.
void DirectExecution::MapCodeAround(Place* place, LinearAddr address) {
  const u64 index = EntryIndex(address);
  // Where it is in memory, unless it runs already.
  const auto offset_of = [&](u64 at) {
    u8 rights = place->pages->RightsOf(at);
    if ((rights & FollowedPages::kExecute) || !CanMap(*place, PageOfIndex(at))) {
      return mmu::GuestMemory::kNotRam;
    }
    const PhysPage executed = place->view->ExecutedAs(at);
    return executed != mmu::View::kNoPage ? mmu_.memory().ArenaOffset(executed.Base())
                                          : ArenaOffsetOf(*place->view, at, &rights);
  };
  const auto map = [&](u64 at) {
    return place->satellite->HasRoom(2) && place->pages->count() < FollowedPages::kMaxPages &&
           MapCode(place, PageOfIndex(at)) == Mapped::kYes;
  };
  for (u64 at = index + 1; at <= index + kBehind; ++at) {
    if (offset_of(at) == mmu::GuestMemory::kNotRam || !map(at)) break;
  }
  const u64 first = index & ~(kAround - 1);
  for (u64 at = first; at < first + kAround; ++at) {
    const u64 offset = offset_of(at);
    if (offset != mmu::GuestMemory::kNotRam && code_pages_.IsKnownToFit(place->code_bits, offset)) {
      map(at);
    }
  }
}

// Nowhere else: systems keep programs from the lowest addresses (vm.mmap_min_addr), and sums of 32
// bits wrap around at the end of the last page below 4 GB, which CPUs do not agree about for an
// operand that lies across.
bool DirectExecution::CanMap(const Place& place, LinearAddr address) const {
  constexpr LinearAddr kLowest(0x10000), kLast32((u64{1} << 32) - kPageSize);
  if (address < kLowest || (place.code_bits == 32 && address >= kLast32)) return false;
  const Satellite& satellite = *place.satellite;
  return address < Satellite::kUserEnd &&
         (address < satellite.stub_begin() || address >= satellite.stub_end());
}

// The page that the satellite has faulted on.
DirectExecution::Mapped DirectExecution::Map(Place* place, LinearAddr address, u64 error_code) {
  if (!CanMap(*place, address)) {
    return error_code & vcpu::kPfFetch ? Mapped::kRefused : Mapped::kNo;
  }
  if (error_code & vcpu::kPfFetch) {
    const Mapped mapped = MapCode(place, address);
    if (mapped == Mapped::kYes) MapCodeAround(place, address);
    return mapped;
  }
  return MapData(place, address, error_code & vcpu::kPfWrite);
}

// What is about to be used, before it faults: the code at `rip`, and what the guest's kernel has
// mapped for the last fault. No accessed or dirty flag is set for it.
DirectExecution::Mapped DirectExecution::MapAhead(Place* place, LinearAddr rip) {
  const LinearAddr wanted = std::exchange(place->fault, LinearAddr());
  u8 rights;
  if (wanted != LinearAddr() && CanMap(*place, wanted) &&
      ArenaOffsetOf(*place->view, EntryIndex(wanted), &rights) != mmu::GuestMemory::kNotRam) {
    MapData(place, wanted, rights & FollowedPages::kWrite);
  }
  if (!CanMap(*place, rip)) return Mapped::kRefused;
  if (place->pages->RightsOf(EntryIndex(rip)) & FollowedPages::kExecute) return Mapped::kYes;
  return Map(place, rip, vcpu::kPfFetch);
}

}  // namespace alibi::direct
