// SPDX-License-Identifier: Apache-2.0
// The file's framing (docs/event_log.md has all of it): a preamble, the header as JSON, then blocks
// of records, each with its length and checksum. Numbers are little-endian.
#ifndef ALIBI_ADAPT_LOG_FORMAT_H_
#define ALIBI_ADAPT_LOG_FORMAT_H_

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::adapt::log {

inline constexpr char kMagic[8] = {'A', 'l', 'i', 'b', 'i', 'L', 'o', 'g'};
// Grows when a reader of the older one would misunderstand. Versions 1 and 2 have no records of
// kinds from 16 and from 17 on, and are read as ever.
inline constexpr u32 kVersion = 3;

struct Preamble {
  char magic[8];
  u32 version;
  u32 header_bytes;
  u32 header_checksum;
  u32 reserved;  // 0
};
static_assert(sizeof(Preamble) == 24);
inline constexpr u32 kMaxHeaderBytes = 1 << 20;

struct BlockFrame {
  u32 bytes;  // of the records that follow
  u32 checksum;
};
static_assert(sizeof(BlockFrame) == 8);
inline constexpr u32 kMaxBlockBytes = 1 << 20;

// The low half of XXH3_64bits.
u32 Checksum(const void* data, std::size_t bytes);

// What something costs on this host, in TSC cycles, measured at the start; 0: not measured.
struct HostPrices {
  u64 trap = 0;     // a host signal and the return from its handler
  u64 callout = 0;  // into the runtime and back, where nothing is done
  // As EnginePrices; 0 where no user code can run directly.
  u64 stop = 0;
  u64 call = 0;
  bool operator==(const HostPrices&) const = default;
};

struct Header {
  u64 tsc_hz = 0;
  u64 start_tsc = 0;      // guest time 0
  u64 start_unix_ns = 0;  // the same moment on the host's calendar
  std::string program;    // "alibi 0.1"
  std::string host_cpu;
  std::string policy;         // as --policy takes it
  std::string engine;         // as --engine takes it
  std::string engine_policy;  // as --engine-policy takes it; "": there was none
  std::string image;          // the guest: kernel or ROM
  std::string command;        // its command line
  HostPrices prices;
  bool operator==(const Header&) const = default;
};

std::string HeaderToJson(const Header& header);
// Members that are missing keep their defaults, unknown ones are passed over.
Result<Header> HeaderFromJson(const std::string& text);

// The engine's and the MMU's, by name, when the run ended.
using FinalCounters = std::vector<std::pair<std::string, u64>>;

}  // namespace alibi::adapt::log

#endif  // ALIBI_ADAPT_LOG_FORMAT_H_
