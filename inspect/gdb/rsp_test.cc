// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/rsp.h"

#include <catch2/catch.hpp>
#include <random>

namespace alibi::vmm::gdb {
namespace {

using Kind = Deframer::Kind;

TEST_CASE("a frame is what the deframer takes, in whatever pieces it comes") {
  const std::string frame = Frame("qSupported:multiprocess+");
  CHECK(frame.starts_with("$qSupported"));
  for (std::size_t cut = 0; cut <= frame.size(); ++cut) {
    Deframer deframer;
    auto items = deframer.Feed(frame.substr(0, cut));
    for (auto& item : deframer.Feed(frame.substr(cut))) items.push_back(std::move(item));
    REQUIRE(items.size() == 1);
    CHECK(items[0].kind == Kind::kPacket);
    CHECK(items[0].payload == "qSupported:multiprocess+");
  }
  CHECK(Frame("") == "$#00");
  CHECK(Frame("OK") == "$OK#9a");
}

TEST_CASE("acknowledgements and the interrupt stand between packets") {
  Deframer deframer;
  const auto items = deframer.Feed("+\x03$OK#9a-garbage" + Frame("g"));
  REQUIRE(items.size() == 5);
  CHECK(items[0].kind == Kind::kAck);
  CHECK(items[1].kind == Kind::kInterrupt);
  CHECK(items[2].payload == "OK");
  CHECK(items[3].kind == Kind::kNak);
  CHECK(items[4].payload == "g");
}

TEST_CASE("an interrupt byte inside a packet is data") {
  Deframer deframer;
  const auto items = deframer.Feed(Frame("X0,1:\x03"));
  REQUIRE(items.size() == 1);
  CHECK(items[0].payload == "X0,1:\x03");
}

TEST_CASE("damaged packets are asked for again") {
  for (const char* bytes : {"$OK#9b", "$OK#zz", "$OK#9", "$OK##"}) {
    Deframer deframer;
    auto items = deframer.Feed(std::string(bytes) + "  ");
    REQUIRE(items.size() == 1);
    CHECK(items[0].kind == Kind::kDamaged);
    // ... and what follows is understood.
    items = deframer.Feed(Frame("g"));
    REQUIRE(items.size() == 1);
    CHECK(items[0].payload == "g");
  }
  Deframer deframer;
  const auto items = deframer.Feed("$lost" + Frame("m0,1"));
  REQUIRE(items.size() == 1);
  CHECK(items[0].payload == "m0,1");
}

TEST_CASE("a packet may have the longest size, and none takes more memory than that") {
  Deframer deframer;
  auto items = deframer.Feed(Frame(std::string(kMaxPacketBytes, 'a')));
  REQUIRE(items.size() == 1);
  CHECK(items[0].kind == Kind::kPacket);
  items = deframer.Feed(Frame(std::string(kMaxPacketBytes + 1, 'a')));
  REQUIRE(items.size() == 1);
  CHECK(items[0].kind == Kind::kDamaged);
  for (int i = 0; i < 100; ++i) CHECK(deframer.Feed("$" + std::string(1 << 16, 'b')).empty());
  items = deframer.Feed("#00" + Frame("g"));
  REQUIRE(items.size() == 2);
  CHECK(items[1].payload == "g");
}

TEST_CASE("binary data survives escaping") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::string escaped = Escape(bytes);
  CHECK(escaped.find_first_of("$#*") == std::string::npos);
  CHECK(Unescape(escaped) == bytes);
  CHECK_FALSE(Unescape("ab}"));
  CHECK(FromHex(ToHex(bytes)) == bytes);
  CHECK_FALSE(FromHex("abc"));
  CHECK_FALSE(FromHex("0g"));
}

TEST_CASE("a cursor stops where there is nothing to read") {
  Cursor cursor("1f,ffffffffffffffff1:rest;x");
  u64 value;
  REQUIRE(cursor.Hex(&value));
  CHECK(value == 0x1f);
  CHECK_FALSE(cursor.Hex(&value));
  REQUIRE(cursor.Skip(","));
  REQUIRE(cursor.Hex(&value));
  CHECK(value == ~u64{0});
  CHECK(cursor.Until(':') == "1");
  CHECK(cursor.Until(';') == "rest");
  CHECK(cursor.Until(';') == "x");
  CHECK(cursor.end());
  CHECK(cursor.Until(';').empty());
  CHECK_FALSE(Cursor("").Hex(&value));
}

TEST_CASE("random bytes never confuse it for good") {
  std::mt19937 random(7);
  Deframer deframer;
  static constexpr char kLikely[] = "$#+-}\x03*:;,0123456789abcdef";
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes;
    for (unsigned size = random() % 64; size-- > 0;) {
      bytes += random() % 2 != 0 ? kLikely[random() % (sizeof(kLikely) - 1)]
                                 : static_cast<char>(random());
    }
    for (const auto& item : deframer.Feed(bytes)) {
      REQUIRE(item.payload.size() <= kMaxPacketBytes);
    }
  }
  deframer.Feed("#00");
  deframer.Feed("00");
  const auto items = deframer.Feed(Frame("g"));
  REQUIRE(items.size() == 1);
  CHECK(items[0].payload == "g");
}

}  // namespace
}  // namespace alibi::vmm::gdb
