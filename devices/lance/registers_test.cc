// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/registers.h"

#include "devices/lance/test_util.h"

namespace alibi::devices::lance {
namespace {

TEST_CASE("Lance: the APROM") {
  Rig rig;
  for (unsigned i = 0; i < 6; ++i) CHECK(rig.lance.Read(i, 1) == kTestAddress[i]);
  CHECK(rig.lance.Read(0, 4) == 0x12005452);
  CHECK(rig.lance.Read(9, 1) == 0x11);
  CHECK(rig.lance.Read(14, 2) == 0x5757);
  unsigned sum = 0;
  for (unsigned i = 0; i < 16; ++i) {
    if (i / 2 != 6) sum += static_cast<unsigned>(rig.lance.Read(i, 1));
  }
  CHECK(rig.lance.Read(12, 2) == sum);
  rig.lance.Write(8, 1, 0x77);
  CHECK(rig.lance.Read(8, 1) == 0);
  rig.SetBcr(2, 0x0102);
  rig.lance.Write(8, 1, 0x77);
  CHECK(rig.lance.Read(8, 1) == 0x77);
  rig.lance.Reset();
  CHECK(rig.lance.Read(8, 1) == 0);
}

TEST_CASE("Lance: registers after H_RESET") {
  Rig rig;
  struct Row {
    u16 number, value;
  };
  for (const Row& row : {Row{0, 0x0004}, Row{3, 0}, Row{4, 0x0115}, Row{5, 0}, Row{12, 0x5452},
                         Row{13, 0x1200}, Row{14, 0x5634}, Row{58, 0x0200}, Row{88, 0x1003},
                         Row{89, 0x0262}, Row{100, 0x0200}, Row{112, 0}}) {
    INFO("CSR" << row.number);
    CHECK(rig.Csr(row.number) == row.value);
  }
  for (const Row& row : {Row{0, 0x0005}, Row{1, 0x0005}, Row{2, 0x0002}, Row{4, 0x80c0},
                         Row{5, 0x0084}, Row{6, 0x0088}, Row{7, 0x0090}, Row{9, 0}, Row{18, 0x9001},
                         Row{20, 0x0200}, Row{22, 0xff06}}) {
    INFO("BCR" << row.number);
    CHECK(rig.Bcr(row.number) == row.value);
  }
  CHECK_FALSE(rig.line.level());
}

TEST_CASE("Lance: widths of accesses") {
  Rig rig;
  rig.lance.Write(0x12, 2, 88);
  CHECK(rig.lance.Read(0x12, 2) == 88);
  CHECK(rig.lance.Read(0x10, 2) == 0x1003);
  CHECK(rig.lance.Read(0x10, 1) == ~u64{0});
  CHECK(rig.lance.Read(0x10, 4) == ~u64{0});
  CHECK(rig.lance.Read(0x18, 2) == ~u64{0});
  // RAP has 7 bits.
  rig.lance.Write(0x12, 2, 0xff58);
  CHECK(rig.lance.Read(0x12, 2) == 88);
  // Reading `reset` is S_RESET: RAP and CSR0, but not the width or BCRs.
  rig.SetBcr(20, 2);
  rig.SetCsr(3, 0x5f00);
  rig.SetCsr(1, 0x1234);
  rig.lance.Read(0x14, 2);
  CHECK(rig.lance.Read(0x12, 2) == 0);
  CHECK(rig.Csr(3) == 0);
  CHECK(rig.Csr(1) == 0x1234);
  CHECK(rig.Bcr(20) == 0x0302);
  // A 32-bit write to RDP, which writes CSR0 as well.
  rig.lance.Write(0x12, 2, 0);
  rig.lance.Write(0x10, 4, kIena);
  CHECK(rig.lance.Read(0x10, 4) == (kIena | kStop));
  CHECK(rig.lance.Read(0x10, 2) == ~u64{0});
  rig.lance.Write(0x14, 4, 18);
  CHECK(rig.lance.Read(0x14, 4) == 18);
  CHECK((rig.lance.Read(0x1c, 4) & kDwio) != 0);
  rig.lance.Read(0x18, 4);
  CHECK(rig.lance.Read(0x14, 4) == 0);
  CHECK(rig.lance.Read(0x10, 4) == kStop);
  rig.lance.Reset();
  CHECK(rig.lance.Read(0x10, 2) == kStop);
}

TEST_CASE("Lance: when registers may be written") {
  Rig rig;
  rig.SetCsr(8, 0x1234);
  CHECK(rig.Csr(8) == 0x1234);
  rig.SetCsr(88, 0xffff);
  CHECK(rig.Csr(88) == 0x1003);
  rig.SetCsr(16, 0x8888);  // another name of CSR1
  CHECK(rig.Csr(1) == 0x8888);
  rig.SetCsr(58, 3);
  CHECK(rig.Bcr(20) == 0x0303);
  rig.SetBcr(20, 0);
  CHECK(rig.Csr(58) == 0x0200);
  rig.SetBcr(20, 1);
  CHECK(rig.Csr(58) == 0x0101);
  rig.Begin(2);
  rig.SetCsr(8, 0x4321);
  CHECK(rig.Csr(8) == 0);
  rig.SetCsr(5, kSpnd);
  CHECK(rig.Csr(5) == kSpnd);
  rig.SetCsr(8, 0x4321);
  CHECK(rig.Csr(8) == 0x4321);
  rig.SetCsr(0, kStop);
  CHECK(rig.Csr(0) == kStop);
  CHECK(rig.Csr(5) == 0);
}

TEST_CASE("Lance: interrupts, their masks, and how they are acknowledged") {
  Rig rig;
  rig.Initialize(2);
  CHECK(rig.Csr(0) == (kIntr | kIdon | kInit));
  CHECK_FALSE(rig.line.level());
  rig.SetCsr(0, kIena);
  CHECK(rig.line.level());
  rig.SetCsr(3, kIdon);
  CHECK_FALSE(rig.line.level());
  CHECK(rig.Csr(0) == (kIdon | kIena | kInit));
  rig.SetCsr(3, 0);
  CHECK(rig.line.level());
  rig.SetCsr(0, kIena | kIdon);
  CHECK_FALSE(rig.line.level());
  // One that software makes, which has no mask.
  rig.SetCsr(4, 0x0115 | kUintcmd);
  CHECK(rig.line.level());
  CHECK(rig.Csr(4) == (0x0115 | kUint));
  rig.SetCsr(4, 0x0115 | kUint);
  CHECK_FALSE(rig.line.level());
  // STOP wins, and clears the rest.
  rig.SetCsr(0, kStop | kStrt | kInit | kIena);
  CHECK(rig.Csr(0) == kStop);
}

TEST_CASE("Lance: RAP is a latch, as wide as its bus is now") {
  Rig rig;
  const PortLatch narrow = rig.lance.Latch(0x12, 2);
  REQUIRE(narrow.cell != nullptr);
  CHECK(narrow.kept == 0x7f);
  CHECK_FALSE(narrow.fixed);
  for (const auto& [offset, size] : {std::pair<u64, unsigned>{0x10, 2},
                                     {0x12, 1},
                                     {0x12, 4},
                                     {0x13, 1},
                                     {0x14, 2},
                                     {0x14, 4},
                                     {0x16, 2}}) {
    CHECK(rig.lance.Latch(offset, size).cell == nullptr);
  }
  // What is written by memory counts, and what is written by the device is there.
  *narrow.cell = 88;
  CHECK(rig.lance.Read(0x12, 2) == 88);
  CHECK(rig.lance.Read(0x10, 2) == rig.lance.registers().ReadCsr(88));
  rig.lance.Write(0x12, 2, 0xff05);
  CHECK(*narrow.cell == 5);
  // Another width, another place.
  rig.lance.Write(0x10, 4, 0);
  CHECK(rig.lance.Latch(0x12, 2).cell == nullptr);
  const PortLatch wide = rig.lance.Latch(0x14, 4);
  REQUIRE(wide.cell == narrow.cell);
  CHECK(rig.lance.Read(0x14, 4) == 5);
  rig.lance.Reset();
  CHECK(rig.lance.Latch(0x12, 2).cell == narrow.cell);
  CHECK(*narrow.cell == 0);
  Rig other(true, {.latch = false});
  CHECK(other.lance.Latch(0x12, 2).cell == nullptr);
}

TEST_CASE("Lance: random accesses") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Rig rig;
    Hammer(rig.lance, Lance::kPorts, seed, 3000, [&](std::mt19937_64& random) {
      if (random() % 16 == 0) rig.clock.Advance(random() % 4'000'000);
      rig.timers.RunExpired(rig.clock.NowNs());
    });
  }
}

TEST_CASE("Lance: answers next to translated code are those of the slow way") {
  for (u64 seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    Rig quick, slow(true, {.ports = false, .latch = false, .combine = false, .notify = true});
    u64 value;
    CHECK_FALSE(slow.lance.Peek(0x12, 2, &value));
    CHECK_FALSE(slow.lance.Poke(0x12, 2, 0));
    quick.Begin(2);
    slow.Begin(2);
    u64 poked = 0;
    for (int i = 0; i < 2000; ++i) {
      const u64 offset = 0x10 + 2 * (random() % 4);
      if (random() % 3 == 0) {
        u64 read = 0;
        if (!quick.lance.Peek(offset, 2, &read)) read = quick.lance.Read(offset, 2);
        REQUIRE((read & 0xffff) == (slow.lance.Read(offset, 2) & 0xffff));
      } else {
        u64 to = offset == 0x12 ? random() % 8 : random() & 0xffff;
        // The chip is rarely told to stop, or it would never do anything else.
        if (offset == 0x10 && random() % 8 != 0) to &= ~u64{kStop | kInit};
        const bool done = quick.lance.Poke(offset, 2, to);
        if (!done) quick.lance.Write(offset, 2, to);
        poked += done;
        slow.lance.Write(offset, 2, to);
      }
      REQUIRE(quick.line.level() == slow.line.level());
      for (const unsigned number : {0u, 3u, 4u, 5u}) {
        REQUIRE(quick.lance.registers().ReadCsr(number) == slow.lance.registers().ReadCsr(number));
      }
    }
    CHECK(poked > 200);
  }
}

}  // namespace
}  // namespace alibi::devices::lance
