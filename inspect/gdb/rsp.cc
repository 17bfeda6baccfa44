// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/rsp.h"

namespace alibi::vmm::gdb {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Frame(std::string_view payload) {
  u8 sum = 0;
  for (const char c : payload) sum = static_cast<u8>(sum + static_cast<u8>(c));
  std::string frame = "$";
  frame += payload;
  frame += '#';
  frame += kHexDigits[sum >> 4];
  frame += kHexDigits[sum & 15];
  return frame;
}

std::string Escape(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    if (c == '}' || c == '$' || c == '#' || c == '*') {
      text += '}';
      text += static_cast<char>(c ^ 0x20);
    } else {
      text += c;
    }
  }
  return text;
}

std::optional<std::string> Unescape(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '}') {
      bytes += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    bytes += static_cast<char>(text[i] ^ 0x20);
  }
  return bytes;
}

std::string ToHex(const void* bytes, std::size_t size) {
  const u8* from = static_cast<const u8*>(bytes);
  std::string text;
  text.reserve(2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    text += kHexDigits[from[i] >> 4];
    text += kHexDigits[from[i] & 15];
  }
  return text;
}

std::string ToHex(std::string_view bytes) { return ToHex(bytes.data(), bytes.size()); }

std::optional<std::string> FromHex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = DigitOf(text[i]), low = DigitOf(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

std::vector<Deframer::Item> Deframer::Feed(std::string_view bytes) {
  static constexpr char kInterruptByte = 3;
  std::vector<Item> items;
  for (const char c : bytes) {
    switch (state_) {
      case State::kIdle:
        if (c == '$') {
          payload_.clear();
          sum_ = 0;
          oversized_ = false;
          state_ = State::kPayload;
        } else if (c == kInterruptByte) {
          items.push_back({Kind::kInterrupt, {}});
        } else if (c == '+' || c == '-') {
          items.push_back({c == '+' ? Kind::kAck : Kind::kNak, {}});
        }
        break;
      case State::kPayload:
        if (c == '#') {
          state_ = State::kChecksum1;
        } else if (c == '$') {
          // Never inside a packet: this is the next one, and the end of the last was lost.
          payload_.clear();
          sum_ = 0;
          oversized_ = false;
        } else {
          sum_ = static_cast<u8>(sum_ + static_cast<u8>(c));
          oversized_ = oversized_ || payload_.size() == kMaxPacketBytes;
          if (!oversized_) payload_ += c;
        }
        break;
      case State::kChecksum1:
        wanted_ = DigitOf(c);
        state_ = State::kChecksum2;
        break;
      case State::kChecksum2: {
        const int digit = DigitOf(c);
        const bool good = wanted_ >= 0 && digit >= 0 && (wanted_ << 4 | digit) == sum_;
        state_ = State::kIdle;
        if (good && !oversized_) {
          items.push_back({Kind::kPacket, std::move(payload_)});
        } else {
          items.push_back({Kind::kDamaged, {}});
        }
        payload_ = {};
        break;
      }
    }
  }
  return items;
}

bool Cursor::Skip(std::string_view prefix) {
  if (!left_.starts_with(prefix)) return false;
  left_.remove_prefix(prefix.size());
  return true;
}

bool Cursor::Hex(u64* value) {
  std::size_t count = 0;
  u64 number = 0;
  while (count < left_.size() && count < 16 && DigitOf(left_[count]) >= 0) {
    number = number << 4 | static_cast<u64>(DigitOf(left_[count++]));
  }
  if (count == 0) return false;
  left_.remove_prefix(count);
  *value = number;
  return true;
}

std::string_view Cursor::Until(char separator) {
  const std::size_t at = left_.find(separator);
  const std::string_view found = left_.substr(0, at);
  left_.remove_prefix(at == std::string_view::npos ? left_.size() : at + 1);
  return found;
}

}  // namespace alibi::vmm::gdb
