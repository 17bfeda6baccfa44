// SPDX-License-Identifier: Apache-2.0
// The table of model-specific registers: masks, mode transitions, and the CPU models it depends on.
#include "vcpu/msr.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <string>

#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

class Apic final : public Platform {
 public:
  void ApicBaseWritten() override { ++base_writes; }
  void TaskPriorityWritten() override {}
  void TscWritten() override { ++tsc_writes; }
  bool ReadApicMsr(u32 index, u64* value) override {
    *value = index;
    return index != 0x80b;
  }
  bool WriteApicMsr(u32 index, u64 value) override {
    last_index = index;
    last_value = value;
    return value < 0x100;
  }
  int base_writes = 0, tsc_writes = 0;
  u32 last_index = 0;
  u64 last_value = 0;
};

struct Msrs : TestMachine {
  explicit Msrs(const char* model = "host") { REQUIRE(CpuidPolicy::ForModel(model, &cpu)); }
  bool Write(u32 index, u64 value) {
    return WriteMsr(state(), memory, cpu, apic, index, value).done();
  }
  bool Read(u32 index, u64* value) { return ReadMsr(state(), cpu, apic, index, value).done(); }
  u64 Get(u32 index) {
    u64 value = 0;
    REQUIRE(Read(index, &value));
    return value;
  }
  CpuidPolicy cpu;
  Apic apic;
};

TEST_CASE("MSRs: the APIC's modes change along the legal transitions only") {
  Msrs m;
  constexpr u64 kAddress = 0xfee00000, kEnable = 0x800, kX2apic = 0x400, kBsp = 0x100;
  CHECK(m.Get(kMsrApicBase) == (kAddress | kEnable | kBsp));
  CHECK_FALSE(m.Write(kMsrApicBase, kAddress | kX2apic));
  CHECK_FALSE(m.Write(kMsrApicBase, kAddress | kEnable | 1));
  CHECK_FALSE(m.Write(kMsrApicBase, u64{1} << kPhysicalAddressBits | kAddress | kEnable));
  CHECK(m.Write(kMsrApicBase, kAddress | kEnable | kX2apic));
  CHECK_FALSE(m.Write(kMsrApicBase, kAddress | kEnable));
  CHECK_FALSE(m.Write(kMsrApicBase, kAddress | kX2apic));
  CHECK(m.Write(kMsrApicBase, kAddress));
  CHECK_FALSE(m.Write(kMsrApicBase, kAddress | kEnable | kX2apic));
  CHECK(m.Write(kMsrApicBase, 0xfed40000 | kEnable));
  CHECK(m.Get(kMsrApicBase) == (0xfed40000 | kEnable | kBsp));
  CHECK(m.apic.base_writes == 3);
}

TEST_CASE("MSRs: the local APIC's own are its business") {
  Msrs m;
  CHECK(m.Get(0x803) == 0x803);
  CHECK(m.Get(0x8ff) == 0x8ff);
  CHECK(m.Get(kMsrTscDeadline) == kMsrTscDeadline);
  u64 value;
  CHECK_FALSE(m.Read(0x80b, &value));
  CHECK_FALSE(m.Read(0x900, &value));
  CHECK_FALSE(m.Write(0x80f, 0x100));
  CHECK(m.Write(0x80f, 0xff));
  CHECK(m.apic.last_index == 0x80f);
  m.cpu.HideApicMsrs();
  CHECK_FALSE(m.Read(0x803, &value));
  CHECK_FALSE(m.Write(kMsrTscDeadline, 0));
  CHECK_FALSE(m.Write(kMsrApicBase, 0xfee00c00));
  CHECK((m.cpu.Query(m.state(), 1, 0).ecx & (1u << 21 | 1u << 24)) == 0);
}

TEST_CASE("MSRs: MTRRs take legal types and addresses only") {
  Msrs m;
  CHECK(m.Get(kMsrMtrrCap) == 0x508);
  for (u32 index : {0x250u, 0x258u, 0x259u, 0x268u, 0x26fu}) {
    INFO(index);
    CHECK(m.Write(index, 0x0605040100060606));
    CHECK(m.Get(index) == 0x0605040100060606);
    CHECK_FALSE(m.Write(index, 0x0600000000000002));
    CHECK_FALSE(m.Write(index, 7));
  }
  CHECK(m.Get(0x269) == 0);
  CHECK(m.Write(0x200, 0xc0000006));
  CHECK(m.Write(0x201, 0xff'c0000800));
  CHECK(m.Get(0x200) == 0xc0000006);
  CHECK(m.Get(0x201) == 0xff'c0000800);
  CHECK_FALSE(m.Write(0x200, 0xc0000102));
  CHECK_FALSE(m.Write(0x201, 0x100'00000800));
  CHECK_FALSE(m.Write(0x201, 0x400));
  CHECK(m.Write(0x20f, 0));
  CHECK_FALSE(m.Write(0x210, 0));
  CHECK(m.Write(kMsrMtrrDefType, 0xc06));
  CHECK_FALSE(m.Write(kMsrMtrrDefType, 0xc02));
  CHECK_FALSE(m.Write(kMsrMtrrDefType, 0x100));
  SetMtrrsAsBiosLeavesThem(m.state());
  CHECK(m.Get(0x259) == 0);
  CHECK(m.Get(0x26f) == 0x0505050505050505);
}

TEST_CASE("MSRs: the TSC and its adjustment move together") {
  Msrs m;
  const u64 before = m.Get(kMsrTsc);
  CHECK(m.Write(kMsrTscAdjust, u64{1} << 40));
  CHECK(m.Get(kMsrTsc) - before >= u64{1} << 40);
  CHECK(m.Write(kMsrTsc, 0));
  CHECK(m.Get(kMsrTsc) < u64{1} << 36);
  CHECK(static_cast<i64>(m.Get(kMsrTscAdjust)) < 0);
  CHECK(m.apic.tsc_writes == 2);
}

TEST_CASE("MSRs: read-only bits of MISC_ENABLE stay, reserved ones fault") {
  Msrs m;
  CHECK(m.Write(kMsrMiscEnable, 0x4'00c5'0809));
  CHECK(m.Get(kMsrMiscEnable) == ((0x4'00c5'0809 & ~u64{0x1880}) | 0x1800));
  CHECK_FALSE(m.Write(kMsrMiscEnable, 2));
  u64 value;
  CHECK(m.Get(0x179) == 0);
  CHECK_FALSE(m.Read(0x400, &value));  // MC0_CTL: no banks
  CHECK_FALSE(m.Write(0x1d9, 1));
  CHECK(m.Write(0x1d9, kDebugCtlBtf));
  CHECK(m.Write(0x1d9, 0));
}

TEST_CASE("MSRs: the table is listed in order, all of what the CPU has and no more") {
  constexpr u32 kX2apicId = 0x802;
  for (const char* model : {"host", "base64", "intel", "amd"}) {
    INFO(model);
    Msrs m(model);
    unsigned position = 0;
    u64 end = 0;
    std::set<u32> listed, write_only;
    MsrDescription row;
    while (NextMsr(m.cpu, &position, &row)) {
      INFO(row.name);
      CHECK(row.first >= end);
      end = u64{row.first} + row.count;
      for (u32 i = 0; i < row.count; ++i) listed.insert(row.first + i);
      if (std::strncmp(row.rule, "write-only", 10) == 0) write_only.insert(row.first);
      CHECK(std::strcmp(MsrName(row.first), row.name) == 0);
    }
    // The APIC decides by itself which of its own there are.
    std::set<u32> readable;
    for (u32 base : {0u, 0xc0000000u, 0xc0010000u}) {
      for (u32 index = base; index < base + 0x2000; ++index) {
        u64 value;
        if (index - kMsrX2apicFirst >= kMsrX2apicCount && m.Read(index, &value)) {
          readable.insert(index);
        }
      }
    }
    if (listed.contains(kX2apicId)) {
      for (u32 i = 0; i < kMsrX2apicCount; ++i) readable.insert(kMsrX2apicFirst + i);
    }
    for (u32 index : write_only) {
      CHECK_FALSE(readable.contains(index));
      CHECK(m.Write(index, 0));
      readable.insert(index);
    }
    CHECK(listed == readable);
    CHECK(listed.contains(kMsrPat));
    CHECK(listed.contains(kMsrTscAux));
  }
}

TEST_CASE("MSRs: each vendor has its own") {
  for (const char* model : {"host", "base64", "intel", "amd"}) {
    INFO(model);
    Msrs m(model);
    u64 value = 1;
    if (m.cpu.vendor() == Vendor::kIntel) {
      CHECK(m.Get(0xce) == 0);  // PLATFORM_INFO
      CHECK_FALSE(m.Write(0xce, 0));
      CHECK_FALSE(m.Read(0xc0010000, &value));
      continue;
    }
    CHECK_FALSE(m.Read(0xce, &value));
    // K7's performance counters: four to select events, four to count.
    for (u32 index = 0xc0010000; index <= 0xc0010007; ++index) {
      CHECK(m.Write(index, 0x430076));
      CHECK(m.Get(index) == 0);
    }
    CHECK_FALSE(m.Read(0xc0010008, &value));
  }
}

}  // namespace
}  // namespace alibi::vcpu
