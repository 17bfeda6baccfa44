// SPDX-License-Identifier: Apache-2.0
// The frames of GDB's remote serial protocol (GDB manual, appendix E "Remote Protocol"): packets
// with checksums, acknowledgements, the interrupt byte. Knows nothing of what packets mean.
#ifndef ALIBI_INSPECT_GDB_RSP_H_
#define ALIBI_INSPECT_GDB_RSP_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace alibi::vmm::gdb {

// Longest packet taken and sent, between $ and #.
inline constexpr std::size_t kMaxPacketBytes = 16384;

// "$payload#cs". `payload` is escaped already where it is binary.
std::string Frame(std::string_view payload);

// Binary data in a packet: }, $, # and * become } and the byte XOR 0x20.
std::string Escape(std::string_view bytes);
// Nothing if the data ends in the middle of an escape.
std::optional<std::string> Unescape(std::string_view text);

std::string ToHex(const void* bytes, std::size_t size);
std::string ToHex(std::string_view bytes);
// Nothing if there is an odd digit or no digit.
std::optional<std::string> FromHex(std::string_view text);

// Takes bytes as they come and cuts them into what the peer meant.
class Deframer {
 public:
  enum class Kind : u8 {
    kPacket,     // `payload`, as it was sent
    kInterrupt,  // 0x03 outside a packet
    kDamaged,    // a wrong checksum, or longer than kMaxPacketBytes: ask for it again
    kAck,        // +
    kNak,        // -
  };
  struct Item {
    Kind kind;
    std::string payload;
  };
  // Bytes that belong to nothing are skipped.
  std::vector<Item> Feed(std::string_view bytes);

 private:
  enum class State : u8 { kIdle, kPayload, kChecksum1, kChecksum2 };
  State state_ = State::kIdle;
  std::string payload_;
  u8 sum_ = 0;
  int wanted_ = 0;  // the checksum as sent; -1: no digits
  bool oversized_ = false;
};

// Reads a packet's text from left to right; every method says whether it found what it wants.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : left_(text) {}
  bool Skip(std::string_view prefix);
  // One to 16 hexadecimal digits.
  bool Hex(u64* value);
  // Up to the separator, which is skipped, or the end.
  std::string_view Until(char separator);
  std::string_view rest() const { return left_; }
  bool end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace alibi::vmm::gdb

#endif  // ALIBI_INSPECT_GDB_RSP_H_
