// SPDX-License-Identifier: Apache-2.0
#include "adapt/log/codec.h"

#include <algorithm>

#include "base/check.h"

namespace alibi::adapt::log {
namespace {

constexpr unsigned kMaxVarintBytes = 10;
constexpr std::size_t kMaxCounters = 4096, kMaxNameBytes = 255;

// Small differences in either direction become small numbers.
constexpr u64 ZigZag(u64 value) { return value << 1 ^ (0 - (value >> 63)); }
constexpr u64 UnZigZag(u64 value) { return value >> 1 ^ (0 - (value & 1)); }

// --- The two directions: what a description below can say ---

class Output {
 public:
  Output(u8* at, DeltaBase* base) : base_(*base), at_(at) {}

  u8* at() const { return at_; }
  void Tag(unsigned low, unsigned high) { *at_++ = static_cast<u8>(low | high << 4); }
  void Number(u64 value) {
    while (value >= 0x80) {
      *at_++ = static_cast<u8>(value | 0x80);
      value >>= 7;
    }
    *at_++ = static_cast<u8>(value);
  }
  template <class T>
  void Plain(T& value) {
    Number(value);
  }
  template <class T>
  void Delta(T& value, u64& last) {
    Number(ZigZag(value - last));
    last = value;
  }
  template <class Tag>
  void Delta(Address<Tag>& address, u64& last) {
    Delta(address.value, last);
  }
  void Time(u64& tsc) {
    const u64 now = std::max(tsc, base_.tsc);
    Number(now - base_.tsc);
    base_.tsc = now;
  }
  // A number and two kinds, the first of which is mostly all there is to say.
  void CyclesAndKind(u32& cycles, Kind& kind) {
    Number(u64{cycles} << 2 | static_cast<unsigned>(kind));
  }
  void Small(u8& value) { *at_++ = value; }
  void Bytes(u64& low, u64& high, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      *at_++ = static_cast<u8>((i < 8 ? low : high) >> i % 8 * 8);
    }
  }
  void Require(bool) {}
  DeltaBase& base_;

 private:
  u8* at_;
};

class Input {
 public:
  Input(std::span<const u8> bytes, DeltaBase* base) : base_(*base), rest_(bytes) {}

  bool sound() const { return sound_; }
  std::span<const u8> rest() const { return rest_; }
  u64 Number() {
    u64 value = 0;
    for (unsigned i = 0; i < kMaxVarintBytes; ++i) {
      const u8 byte = Byte();
      const unsigned shift = 7 * i;
      Require(shift < 63 || byte <= 1);  // 64 bits are full
      value |= shift < 64 ? u64{byte & 0x7fu} << shift : 0;
      if (byte < 0x80) return value;
    }
    return value;
  }
  template <class T>
  void Plain(T& value) {
    const u64 number = Number();
    Require(number <= static_cast<T>(~T{0}));
    value = static_cast<T>(number);
  }
  template <class T>
  void Delta(T& value, u64& last) {
    const u64 number = last + UnZigZag(Number());
    Require(number <= static_cast<T>(~T{0}));
    last = number;
    value = static_cast<T>(number);
  }
  template <class Tag>
  void Delta(Address<Tag>& address, u64& last) {
    Delta(address.value, last);
  }
  void Time(u64& tsc) {
    base_.tsc += Number();
    tsc = base_.tsc;
  }
  void CyclesAndKind(u32& cycles, Kind& kind) {
    const u64 number = Number();
    Require(number >> 34 == 0 && (number & 3) < kKindCount);
    cycles = static_cast<u32>(number >> 2);
    kind = static_cast<Kind>(number & 3);
  }
  void Small(u8& value) { value = Byte(); }
  void Bytes(u64& low, u64& high, unsigned count) {
    for (unsigned i = 0; i < count; ++i) (i < 8 ? low : high) |= u64{Byte()} << i % 8 * 8;
  }
  u8 Byte() {
    if (rest_.empty()) {
      sound_ = false;
      return 0;
    }
    const u8 byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  std::string Text(u64 bytes) {
    Require(bytes <= rest_.size());
    if (!sound_) return {};
    std::string text(reinterpret_cast<const char*>(rest_.data()), bytes);
    rest_ = rest_.subspan(bytes);
    return text;
  }
  void Require(bool condition) { sound_ = sound_ && condition; }
  DeltaBase& base_;

 private:
  std::span<const u8> rest_;
  bool sound_ = true;
};

// --- The description ---

constexpr bool IsCodeBits(unsigned bits) { return bits == 16 || bits == 32 || bits == 64; }

// What stands in the upper half of a record's first byte, or in the second one of kinds that do not
// fit the lower half.
unsigned HighHalf(const Record& record) {
  const unsigned flag = record.flag;
  switch (record.kind) {
    case RecordKind::kOccurrence:
    case RecordKind::kVerdict:
      return static_cast<unsigned>(record.event) | flag << 3;
    case RecordKind::kTranslation:
      return static_cast<unsigned>(record.why) | flag << 3;
    case RecordKind::kControl:
    case RecordKind::kVcpu:
      return record.number;
    case RecordKind::kEngine:
      return record.number | static_cast<unsigned>(record.extra) << 3;
    default:
      return flag;
  }
}
static_assert(kEventCount <= 8 && kWhyCount <= 8 && kEngineEventCount <= 8,
              "an event or a reason and a flag fit half a byte");

// False: no record has that.
bool SetHighHalf(unsigned half, Record* record) {
  switch (record->kind) {
    case RecordKind::kOccurrence:
    case RecordKind::kVerdict:
      record->event = static_cast<Event>(half & 7);
      record->flag = half >> 3;
      return (half & 7) < kEventCount;
    case RecordKind::kTranslation:
      record->why = static_cast<Why>(half & 7);
      record->flag = half >> 3;
      return (half & 7) < kWhyCount;
    case RecordKind::kControl:
    case RecordKind::kVcpu:
      record->number = static_cast<u8>(half);
      return half < 16;
    case RecordKind::kEngine:
      record->number = half & 7;
      record->extra = static_cast<u8>(half >> 3);
      return record->number < kEngineEventCount && record->extra < 4;
    default:
      record->flag = half & 1;
      return half <= 1;
  }
}

// What follows the first byte.
template <class Stream>
void Body(Stream& stream, Record& record) {
  DeltaBase& base = stream.base_;
  stream.Time(record.tsc);
  switch (record.kind) {
    case RecordKind::kOccurrence:
      stream.Delta(record.site, base.site);
      stream.CyclesAndKind(record.cycles, record.before);
      record.after = record.before;
      break;
    case RecordKind::kVerdict: {
      u8 after = static_cast<u8>(record.after);
      stream.Delta(record.site, base.site);
      stream.CyclesAndKind(record.cycles, record.before);
      stream.Small(after);
      stream.Require(after <= static_cast<u8>(Kind::kSimulate));
      record.after = static_cast<Kind>(after);
      break;
    }
    case RecordKind::kSite: {
      u8 kind = static_cast<u8>(record.before);
      stream.Delta(record.pc, base.pc);
      stream.Delta(record.physical, base.physical);
      stream.Small(kind);
      stream.Require(kind <= static_cast<u8>(Kind::kSimulate));
      record.before = static_cast<Kind>(kind);
      stream.Small(record.extra);
      stream.Require(record.extra < kAccessCount);
      stream.Small(record.number);
      stream.Require(IsCodeBits((record.number >> 4) * 16));
      stream.Bytes(record.value, record.more, record.number & 15);
      break;
    }
    case RecordKind::kTranslation:
      stream.Delta(record.pc, base.pc);
      stream.Delta(record.physical, base.physical);
      stream.Small(record.number);
      stream.Small(record.extra);
      stream.Plain(record.value);
      stream.Plain(record.more);
      stream.Plain(record.cycles);
      break;
    case RecordKind::kFault:
      stream.Delta(record.pc, base.pc);
      stream.Small(record.number);
      stream.Plain(record.more);
      stream.Delta(record.value, base.value);
      break;
    case RecordKind::kOverwritten:
      stream.Delta(record.pc, base.pc);
      stream.Delta(record.physical, base.physical);
      stream.Delta(record.value, base.physical);
      stream.Plain(record.more);
      break;
    case RecordKind::kForgottenPage:
      stream.Delta(record.physical, base.physical);
      break;
    case RecordKind::kRelookup:
    case RecordKind::kUngroup:
      stream.Delta(record.site, base.site);
      break;
    case RecordKind::kControl:
      stream.Delta(record.pc, base.pc);
      stream.Plain(record.value);
      break;
    case RecordKind::kMsr:
      stream.Delta(record.pc, base.pc);
      stream.Plain(record.more);
      stream.Plain(record.value);
      break;
    case RecordKind::kEngine: {
      u32 space = static_cast<u32>(record.pc.value);
      stream.Plain(space);
      record.pc = LinearAddr(space);
      stream.Plain(record.value);
      if (record.number != static_cast<u8>(EngineEvent::Kind::kRan)) break;
      u32 stops = static_cast<u32>(record.more), faults = static_cast<u32>(record.more >> 32);
      stream.Plain(stops);
      stream.Plain(faults);
      record.more = stops | u64{faults} << 32;
      stream.Plain(record.cycles);
      break;
    }
    case RecordKind::kLost:
      stream.Plain(record.value);
      break;
    case RecordKind::kFlush:
    case RecordKind::kVcpu:
      break;
    case RecordKind::kEnd:
      stream.Plain(record.value);
      stream.Plain(record.more);
      break;
  }
}

bool NamesSite(RecordKind kind) {
  constexpr u32 kNaming = KindBit(RecordKind::kOccurrence) | KindBit(RecordKind::kVerdict) |
                          KindBit(RecordKind::kRelookup) | KindBit(RecordKind::kUngroup);
  return (kNaming & KindBit(kind)) != 0;
}

}  // namespace

u8* Encoder::Put(const Record& record, u8* at) {
  ALIBI_CHECK(record.kind != RecordKind::kEnd, "an end has counters: it is End()'s");
  Output stream(at, &base_);
  if (record.cr3 != base_.cr3) {
    u64 cr3 = record.cr3;
    stream.Tag(kAddressSpaceTag, 0);
    stream.Delta(cr3, base_.cr3);
  }
  Record copy = record;
  const auto kind = static_cast<unsigned>(record.kind);
  if (kind < kFirstLongKind) {
    stream.Tag(kind, HighHalf(record));
  } else {
    u8 half = static_cast<u8>(HighHalf(record));
    stream.Tag(kMoreKindsTag, kind - kFirstLongKind);
    stream.Small(half);
  }
  Body(stream, copy);
  return stream.at();
}

std::vector<u8> Encoder::End(const Record& record, const FinalCounters& counters) {
  ALIBI_CHECK(counters.size() <= kMaxCounters, "a log's end has room for all counters");
  std::vector<u8> bytes(kMaxRecordBytes + counters.size() * (kMaxNameBytes + kMaxVarintBytes));
  Record copy = record;
  Output stream(bytes.data(), &base_);
  stream.Tag(static_cast<unsigned>(RecordKind::kEnd), 0);
  Body(stream, copy);
  stream.Number(counters.size());
  for (const auto& [name, value] : counters) {
    ALIBI_CHECK(name.size() <= kMaxNameBytes, "counters have short names");
    stream.Number(name.size());
    for (const char c : name) {
      u8 byte = static_cast<u8>(c);
      stream.Small(byte);
    }
    stream.Number(value);
  }
  bytes.resize(static_cast<std::size_t>(stream.at() - bytes.data()));
  return bytes;
}

bool Decoder::Next(std::span<const u8>* bytes, u64 sites, Record* record, FinalCounters* counters,
                   bool* found) {
  *found = false;
  while (!bytes->empty() && !*found) {
    Input stream(*bytes, &base_);
    const u8 tag = stream.Byte();
    unsigned kind = tag & 15, high = tag >> 4;
    if (kind == kMoreKindsTag) {
      kind = kFirstLongKind + high;
      high = stream.Byte();
    }
    if (kind == kAddressSpaceTag) {
      u64 cr3 = 0;
      stream.Require(high == 0);
      stream.Delta(cr3, base_.cr3);
    } else if (!IsRecordKind(kind)) {
      return false;
    } else {
      *record = Record{};
      record->kind = static_cast<RecordKind>(kind);
      stream.Require(SetHighHalf(high, record));
      *found = true;
      record->cr3 = base_.cr3;
      Body(stream, *record);
      if (record->kind == RecordKind::kEnd) {
        const u64 count = stream.Number();
        stream.Require(count <= kMaxCounters);
        for (u64 i = 0; i < count && stream.sound(); ++i) {
          std::string name = stream.Text(stream.Number());
          counters->emplace_back(std::move(name), stream.Number());
        }
      }
      stream.Require(!NamesSite(record->kind) || record->site < sites);
    }
    if (!stream.sound()) return false;
    *bytes = stream.rest();
  }
  return true;
}

}  // namespace alibi::adapt::log
