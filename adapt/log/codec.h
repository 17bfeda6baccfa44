// SPDX-License-Identifier: Apache-2.0
// Records as bytes and back. Both directions come from one description (codec.cc);
// docs/event_log.md has it in words.
#ifndef ALIBI_ADAPT_LOG_CODEC_H_
#define ALIBI_ADAPT_LOG_CODEC_H_

#include <span>
#include <string>
#include <vector>

#include "adapt/log/format.h"
#include "adapt/log/record.h"

namespace alibi::adapt::log {

// A record's first byte: its kind in the low half, what fits of it in the high one. Kinds that do
// not fit have kMoreKindsTag there, the kind less kFirstLongKind in the high half, and what else
// would stand in it in a byte of its own.
inline constexpr unsigned kMoreKindsTag = 0, kFirstLongKind = 16;
inline constexpr unsigned kAddressSpaceTag = 4;  // later records have another CR3

// What the numbers of the next record are differences to.
struct DeltaBase {
  u64 tsc = 0, cr3 = 0, pc = 0, physical = 0, value = 0, site = 0;
};

// No record but the end takes more, with what goes in front of it.
inline constexpr std::size_t kMaxRecordBytes = 128;

class Encoder {
 public:
  explicit Encoder(u64 start_tsc) { base_.tsc = start_tsc; }
  // Writes it to `at` and returns what is behind it, at most kMaxRecordBytes later. Times go
  // forwards: an earlier one becomes the last one's.
  u8* Put(const Record& record, u8* at);
  std::vector<u8> End(const Record& record, const FinalCounters& counters);

 private:
  DeltaBase base_;
};

class Decoder {
 public:
  explicit Decoder(u64 start_tsc) { base_.tsc = start_tsc; }
  // Takes the next record off `bytes`, which is a block's rest. `sites`: how many are defined.
  // False: it is damaged, and nothing can be said about what follows. The end's counters go to
  // *counters. Records of the encoding alone are passed over: *found says whether there was
  // another.
  bool Next(std::span<const u8>* bytes, u64 sites, Record* record, FinalCounters* counters,
            bool* found);

 private:
  DeltaBase base_;
};

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_CODEC_H_
