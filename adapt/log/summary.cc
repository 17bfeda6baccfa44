// SPDX-License-Identifier: Apache-2.0
#include "adapt/log/summary.h"

#include <algorithm>
#include <numeric>

namespace alibi::adapt::log {

void Summary::Add(const Record& record) {
  ++records;
  if (first_tsc == 0) first_tsc = record.tsc;
  last_tsc = record.tsc;
  switch (record.kind) {
    case RecordKind::kOccurrence:
    case RecordKind::kVerdict: {
      const auto event = static_cast<unsigned>(record.event);
      SiteSummary& site = sites[record.site];
      (record.flag ? traps : callouts)[event].Add(record.cycles);
      (record.flag ? site.traps : site.callouts).Add(record.cycles);
      ++site.events[event];
      ++address_spaces[record.cr3];
      site.kind = record.after;
      if (record.after == record.before) break;
      const bool convicted = record.after > record.before;
      ++(convicted ? convictions : acquittals);
      ++(convicted ? site.convictions : site.acquittals);
      break;
    }
    case RecordKind::kSite:
      sites.emplace_back().kind = record.before;
      break;
    case RecordKind::kTranslation:
      translations[static_cast<unsigned>(record.why)].Add(record.cycles);
      if (record.why == Why::kRevived) break;
      translated_instructions += record.number;
      translated_guest_bytes += record.value;
      emitted_bytes += record.more;
      break;
    case RecordKind::kFault:
      ++faults[record.number];
      break;
    case RecordKind::kOverwritten:
      ++overwritten;
      break;
    case RecordKind::kForgottenPage:
      ++forgotten_pages;
      break;
    case RecordKind::kFlush:
      ++flushes;
      site_table_flushes += record.flag;
      break;
    case RecordKind::kRelookup:
      ++relookups;
      break;
    case RecordKind::kUngroup:
      ++ungroupings;
      break;
    case RecordKind::kEngine: {
      const EngineOccurrence what = EngineOccurrenceOf(record);
      EngineTally& tally = engine_events[static_cast<unsigned>(what.event.kind)];
      ++tally.count;
      tally.cycles += what.event.cycles;
      direct_stops += what.event.stops;
      direct_faults += what.event.faults;
      mapping_calls += what.event.calls;
      user_spaces = std::max(user_spaces, what.space);
      if (what.before != what.after) {
        ++(what.after == UserEngine::kDirect ? to_direct : to_translation);
      }
      break;
    }
    case RecordKind::kLost:
      lost += record.value;
      break;
    case RecordKind::kEnd:
      lost = record.value;
      left_out = record.more;
      complete = true;
      break;
    case RecordKind::kControl:
    case RecordKind::kMsr:
    case RecordKind::kVcpu:
      break;
  }
}

std::vector<u32> Summary::Guiltiest(const HostPrices& prices, std::size_t most) const {
  std::vector<u32> order(sites.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto worse = [&](u32 a, u32 b) {
    const u64 cost_a = sites[a].Cycles(prices), cost_b = sites[b].Cycles(prices);
    return cost_a != cost_b ? cost_a > cost_b : a < b;
  };
  const std::size_t count = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    worse);
  order.resize(count);
  return order;
}

}  // namespace alibi::adapt::log
