// SPDX-License-Identifier: Apache-2.0
// The manual's tables of protection, row by row.
#include <catch2/catch.hpp>

#include "vcpu/control_transfer.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/port_access.h"
#include "vcpu/segments.h"
#include "vcpu/test_machine.h"

namespace alibi::vcpu {
namespace {

// SDM vol. 2, LAR and LSL: the valid types of system descriptors.
struct SystemType {
  bool lar_legacy, lar_long, lsl_legacy, lsl_long;
};
constexpr SystemType kSystemTypes[16] = {
    {},                           // 0 reserved
    {true, false, true, false},   // 1 16-bit TSS
    {true, true, true, true},     // 2 LDT
    {true, false, true, false},   // 3 busy 16-bit TSS
    {true, false, false, false},  // 4 16-bit call gate
    {true, false, false, false},  // 5 task gate
    {},                           // 6, 7: 16-bit interrupt and trap gates
    {},
    {},                          // 8 reserved
    {true, true, true, true},    // 9 TSS
    {},                          // a reserved
    {true, true, true, true},    // b busy TSS
    {true, true, false, false},  // c call gate
    {},                          // d reserved
    {},                          // e, f: interrupt and trap gates
    {},
};

TEST_CASE("LAR and LSL: every type of system descriptor", "[protection]") {
  for (bool long_mode : {false, true}) {
    TestMachine m;
    if (long_mode) {
      m.LongMode();
    } else {
      m.Protected32();
    }
    for (unsigned type = 0; type < 16; ++type) {
      CAPTURE(long_mode, type);
      m.Describe(kGateSelector, MakeDescriptor(0x123456, 0x789, static_cast<u16>(0x80 | type)));
      m.memory.Put<u64>(kGdt + kGateSelector + 8, 0);
      const SystemType& row = kSystemTypes[type];
      DescriptorQuery query;
      REQUIRE(LoadAccessRights(m.state(), m.memory, kGateSelector, &query).done());
      CHECK(query.ok == (long_mode ? row.lar_long : row.lar_legacy));
      REQUIRE(LoadSegmentLimit(m.state(), m.memory, kGateSelector, &query).done());
      CHECK(query.ok == (long_mode ? row.lsl_long : row.lsl_legacy));
      for (bool write : {false, true}) {
        REQUIRE(VerifyAccess(m.state(), m.memory, kGateSelector, write, &query).done());
        CHECK_FALSE(query.ok);
      }
    }
  }
}

TEST_CASE("Code and data: what LAR, VERR, VERW see and what loads, by type and privilege",
          "[protection]") {
  TestMachine m;
  VcpuState& s = m.state();
  for (unsigned type = 0; type < 16; ++type) {
    const bool code = type & 8, conforming = code && (type & 4);
    const bool readable = !code || (type & 2), writable = !code && (type & 2);
    for (unsigned cpl = 0; cpl < 4; ++cpl) {
      for (unsigned rpl = 0; rpl < 4; ++rpl) {
        for (unsigned dpl = 0; dpl < 4; ++dpl) {
          m.Protected32();
          s.cpl = static_cast<u8>(cpl);
          const u16 attributes = WithDpl(static_cast<u16>(0x4090 | type), dpl);
          m.Describe(kGateSelector, MakeDescriptor(0, 0xffff, attributes));
          const u16 selector = static_cast<u16>(kGateSelector | rpl);
          CAPTURE(type, cpl, rpl, dpl);
          const bool visible = conforming || (cpl <= dpl && rpl <= dpl);
          DescriptorQuery query;
          REQUIRE(LoadAccessRights(s, m.memory, selector, &query).done());
          CHECK(query.ok == visible);
          REQUIRE(LoadSegmentLimit(s, m.memory, selector, &query).done());
          CHECK(query.ok == visible);
          REQUIRE(VerifyAccess(s, m.memory, selector, false, &query).done());
          CHECK(query.ok == (visible && readable));
          REQUIRE(VerifyAccess(s, m.memory, selector, true, &query).done());
          CHECK(query.ok == (visible && writable));
          const Outcome refused = GeneralProtection(kGateSelector);
          const Outcome data = LoadSegment(s, m.memory, kDs, selector);
          CHECK(data == (visible && readable ? Outcome() : refused));
          const Outcome stack = LoadSegment(s, m.memory, kSs, selector);
          CHECK(stack == (writable && rpl == cpl && dpl == cpl ? Outcome() : refused));
        }
      }
    }
  }
}

// A machine (one for a whole test: memory is large) whose selectors 0xb0, 0xb8, 0xc0, 0xc8 are
// stacks of levels 0 to 3, and `target` the descriptor at kGateSelector.
class Levels : public TestMachine {
 public:
  void Prepare(unsigned cpl, u16 target) {
    Protected32();
    VcpuState& s = state();
    s.gdtr.limit = 0xcf;
    for (unsigned level = 0; level < 4; ++level) {
      Describe(Stack(level), MakeDescriptor(0, 0xfffff, WithDpl(kFlatData, level)));
    }
    Describe(kGateSelector, MakeDescriptor(0, 0xfffff, target));
    s.cpl = static_cast<u8>(cpl);
    s.segment[kCs].selector = static_cast<u16>(kCode0 | cpl);
    s.segment[kSs].selector = static_cast<u16>(Stack(cpl) | cpl);
  }
  static u16 Stack(unsigned level) { return static_cast<u16>(0xb0 + 8 * level); }
};

TEST_CASE("Far JMP, CALL, RET and IRET to every kind of segment, by privilege", "[protection]") {
  Levels m;
  VcpuState& s = m.state();
  const Outcome refused = GeneralProtection(kGateSelector);
  const Outcome absent = Outcome::WithCode(kSegmentNotPresent, kGateSelector);
  for (unsigned variant = 0; variant < 16 * 4 * 4 * 4 * 2; ++variant) {
    const unsigned type = variant & 15, cpl = variant >> 4 & 3, rpl = variant >> 6 & 3,
                   dpl = variant >> 8 & 3;
    const bool present = variant >> 10 & 1;
    const bool code = type & 8, conforming = code && (type & 4);
    const u16 target = WithDpl(static_cast<u16>(0xc010 | type | (present ? kAttrPresent : 0)), dpl);
    const u16 selector = static_cast<u16>(kGateSelector | rpl);
    CAPTURE(type, cpl, rpl, dpl, present);

    const bool enters = code && (conforming ? dpl <= cpl : rpl <= cpl && dpl == cpl);
    const Outcome direct = !enters ? refused : present ? Outcome() : absent;
    for (bool call : {false, true}) {
      m.Prepare(cpl, target);
      CHECK((call ? FarCall(s, m.memory, selector, 0x1234, 32, 0x400007)
                  : FarJump(s, m.memory, selector, 0x1234, 32, 0x400007)) == direct);
      if (direct.faulted()) continue;
      CHECK(s.rip == 0x1234);
      CHECK(s.cpl == cpl);
      CHECK(s.segment[kCs].selector == (kGateSelector | cpl));
      CHECK((m.DescriptorOf(kGateSelector) >> 40 & 1) == 1);  // accessed
      CHECK(s.gpr[kRsp] == kKernelStack - (call ? 8 : 0));
    }

    const bool leaves = code && rpl >= cpl && (conforming ? dpl <= rpl : dpl == rpl);
    const Outcome back = !leaves ? refused : present ? Outcome() : absent;
    for (bool iret : {false, true}) {
      m.Prepare(cpl, target);
      u64 at = s.gpr[kRsp];
      const auto put = [&](u64 value) {
        m.memory.Put<u32>(at, static_cast<u32>(value));
        at += 4;
      };
      put(0x1234);
      put(selector);
      if (iret) put(kIf | 2);
      put(kUserStack);
      put(Levels::Stack(rpl) | rpl);
      CHECK((iret ? InterruptReturn(s, m.memory, 32, 0) : FarReturn(s, m.memory, 32, 0)) == back);
      if (back.faulted()) continue;
      CHECK(s.rip == 0x1234);
      CHECK(s.cpl == rpl);
      CHECK(s.segment[kCs].selector == selector);
      CHECK(s.gpr[kRsp] == (rpl > cpl ? kUserStack : kKernelStack + (iret ? 12 : 8)));
      if (rpl > cpl) CHECK(s.segment[kSs].selector == (Levels::Stack(rpl) | rpl));
    }
  }
}

TEST_CASE("Call gates: who may use which, and to which level they lead", "[protection]") {
  Levels m;
  VcpuState& s = m.state();
  for (unsigned variant = 0; variant < 4 * 4 * 4 * 4 * 2; ++variant) {
    const unsigned cpl = variant & 3, rpl = variant >> 2 & 3, gate_dpl = variant >> 4 & 3,
                   code_dpl = variant >> 6 & 3;
    const bool conforming = variant >> 8;
    CAPTURE(cpl, rpl, gate_dpl, code_dpl, conforming);
    const u16 attributes = static_cast<u16>(kFlatCode32 | (conforming ? kAttrConforming : 0));
    for (bool call : {false, true}) {
      m.Prepare(cpl, 0);
      constexpr u16 kCode = kCompat0;
      m.Describe(kCode, MakeDescriptor(0, 0xfffff, WithDpl(attributes, code_dpl)));
      m.memory.Put<u64>(kGdt + kGateSelector,
                        0x5678 | u64{kCode} << 16 | u64{0x8cu | gate_dpl << 5} << 40);
      for (unsigned level = 0; level < 3; ++level) {
        m.memory.Put<u32>(kTss + 4 + 8 * level, static_cast<u32>(kRsp0 + 0x100 * level));
        m.memory.Put<u32>(kTss + 8 + 8 * level, Levels::Stack(level) | level);
      }
      const u16 selector = static_cast<u16>(kGateSelector | rpl);
      const Outcome outcome = call ? FarCall(s, m.memory, selector, 0, 32, 0x400007)
                                   : FarJump(s, m.memory, selector, 0, 32, 0x400007);
      if (gate_dpl < cpl || gate_dpl < rpl) {
        CHECK(outcome == GeneralProtection(kGateSelector));
        continue;
      }
      const bool reaches = call || conforming ? code_dpl <= cpl : code_dpl == cpl;
      if (!reaches) {
        CHECK(outcome == GeneralProtection(kCode));
        continue;
      }
      REQUIRE(outcome.done());
      const unsigned level = conforming ? cpl : code_dpl;
      CHECK(s.cpl == level);
      CHECK(s.rip == 0x5678);
      CHECK(s.segment[kCs].selector == (kCode | level));
      const u64 stack = level != cpl ? kRsp0 + 0x100 * level - 16 : kKernelStack - (call ? 8 : 0);
      CHECK(s.gpr[kRsp] == stack);
    }
  }
}

TEST_CASE("Interrupt gates: who may use which, and to which level they lead", "[protection]") {
  Levels m;
  VcpuState& s = m.state();
  for (unsigned variant = 0; variant < 4 * 4 * 4 * 2 * 2 * 2; ++variant) {
    const unsigned cpl = variant & 3, gate_dpl = variant >> 2 & 3, code_dpl = variant >> 4 & 3;
    const bool conforming = variant >> 6 & 1, software = variant >> 7 & 1, wide = variant >> 8 & 1;
    CAPTURE(cpl, gate_dpl, code_dpl, conforming, software, wide);
    const u16 attributes = static_cast<u16>(kFlatCode32 | (conforming ? kAttrConforming : 0));
    m.Prepare(cpl, 0);
    m.Describe(kCompat0, MakeDescriptor(0, 0xfffff, WithDpl(attributes, code_dpl)));
    m.Gate32(0x41, kCompat0, 0x5678, static_cast<u8>((wide ? 0x8e : 0x86) | gate_dpl << 5));
    for (unsigned level = 0; level < 3; ++level) {
      m.memory.Put<u32>(kTss + 4 + 8 * level, static_cast<u32>(kRsp0 + 0x100 * level));
      m.memory.Put<u32>(kTss + 8 + 8 * level, Levels::Stack(level) | level);
    }
    const Event event = software ? Event::Software(0x41) : Event::External(0x41);
    const Outcome outcome = TryDeliver(s, m.memory, event, s.rip);
    const u32 ext = software ? 0 : 1;
    if (software && gate_dpl < cpl) {
      CHECK(outcome == GeneralProtection(0x41 * 8 + 2));
      continue;
    }
    if (code_dpl > cpl) {
      CHECK(outcome == GeneralProtection(kCompat0 | ext));
      continue;
    }
    REQUIRE(outcome.done());
    const unsigned level = conforming ? cpl : code_dpl, width = wide ? 4 : 2;
    CHECK(s.cpl == level);
    CHECK(s.rip == 0x5678);
    CHECK(s.if_flag == 0);
    CHECK(s.gpr[kRsp] ==
          (level != cpl ? kRsp0 + 0x100 * level - 5 * width : kKernelStack - 3 * width));
  }
}

// SDM vol. 2, IRET and POPF: which flags are loaded, by privilege and operand size.
TEST_CASE("The flags that IRET and POPF load", "[protection]") {
  constexpr u64 kAll =
      kArithmeticFlags | kTf | kIf | kDf | kIopl | kNt | kRf | kAc | kVif | kVip | kId;
  Levels m;
  VcpuState& s = m.state();
  for (unsigned variant = 0; variant < 4 * 4 * 2 * 2; ++variant) {
    const unsigned cpl = variant & 3, iopl = variant >> 2 & 3, bits = variant >> 4 & 1 ? 32 : 16;
    const bool from_ones = variant >> 5 & 1;  // every flag 1 to 0, or 0 to 1
    CAPTURE(cpl, iopl, bits, from_ones);
    u64 loaded = kArithmeticFlags | kTf | kDf | kNt;
    if (bits == 32) loaded |= kAc | kId;
    if (cpl <= iopl) loaded |= kIf;
    if (cpl == 0) loaded |= kIopl;
    const u64 current = ((from_ones ? kAll : 0) & ~(kIopl | kNt)) | u64{iopl} << 12;
    const u64 image = from_ones ? 0 : kAll;
    m.Prepare(cpl, 0);
    s.SetRflags(current);
    REQUIRE(PopFlags(s, m.memory, bits, image).done());
    CHECK(s.Rflags() == ((current & ~loaded) | (image & loaded) | kFlagsReserved1));
    m.Prepare(cpl, WithDpl(kFlatCode32, cpl));
    s.SetRflags(current);
    const u64 words[3] = {0x1234, kGateSelector | cpl, image};
    for (unsigned i = 0; i < 3; ++i) {
      if (bits == 32) {
        m.memory.Put<u32>(s.gpr[kRsp] + i * 4, static_cast<u32>(words[i]));
      } else {
        m.memory.Put<u16>(s.gpr[kRsp] + i * 2, static_cast<u16>(words[i]));
      }
    }
    REQUIRE(InterruptReturn(s, m.memory, bits, 0).done());
    if (bits == 32) loaded |= kRf;
    if (bits == 32 && cpl == 0) loaded |= kVif | kVip;
    CHECK(s.Rflags() == ((current & ~loaded) | (image & loaded) | kFlagsReserved1));
  }
}

TEST_CASE("Limits: expand-up and expand-down, 16 and 32 bits, byte by byte", "[protection]") {
  const u32 limits[] = {0, 1, 7, 0xfff, 0xfffe, 0xffff, 0x10000, 0xfffffffe, 0xffffffff};
  const u32 offsets[] = {0,       1,          6,          7,         8,      0xffe,
                         0xfff,   0x1000,     0xfffd,     0xfffe,    0xffff, 0x10000,
                         0x10001, 0xfffffff8, 0xfffffffe, 0xffffffff};
  const bool wraps = HostHasIntelsWay(HostDifference::kEndOf4Gb);
  for (bool down : {false, true}) {
    for (bool big : {false, true}) {
      for (u32 limit : limits) {
        Segment segment{.limit = limit,
                        .attributes = static_cast<u16>(0x93 | (down ? 4 : 0) | (big ? 0x4000 : 0))};
        const u64 top = big ? 0xffffffff : 0xffff;
        for (u32 offset : offsets) {
          for (u32 size : {1u, 2u, 4u, 8u}) {
            bool inside = true;
            for (u64 at = offset; at < u64{offset} + size; ++at) {
              if (at >> 32 != 0 && wraps && !down) break;
              inside = inside && (down ? at > limit && at <= top : at <= limit);
            }
            CAPTURE(down, big, limit, offset, size);
            CHECK(InSegmentLimit(segment, offset, size) == inside);
          }
        }
      }
    }
  }
  // Code with bit 2 is conforming, not expand-down; system segments have no direction.
  CHECK(InSegmentLimit({.limit = 0xff, .attributes = 0x9f}, 0, 1));
  CHECK(InSegmentLimit({.limit = 0xff, .attributes = 0x85}, 0, 1));
}

TEST_CASE("I/O permission bitmap: every bit, the TSS's end, and who asks", "[protection]") {
  TestMachine m;
  m.Protected32(3);
  VcpuState& s = m.state();
  constexpr u32 kMap = 0x68, kMapBytes = 4;
  m.memory.Put<u16>(kTss + 0x66, kMap);
  s.segment[kTr].limit = kMap + kMapBytes;  // the map and the byte of ones behind it
  const auto check = [&](u16 port, unsigned size) {
    return CheckPortAccess(s, m.memory, port, size);
  };
  for (unsigned denied = 0; denied < 8 * kMapBytes; ++denied) {
    m.memory.Put<u32>(kTss + kMap, u32{1} << denied);
    m.memory.Put<u8>(kTss + kMap + kMapBytes, 0xff);
    for (u16 port = 0; port < 8 * kMapBytes; ++port) {
      for (unsigned size : {1u, 2u, 4u}) {
        const bool hit = denied >= port && denied < port + size;
        const bool end = port + size > 8 * kMapBytes;
        CAPTURE(denied, port, size);
        CHECK(check(port, size).faulted() == (hit || end));
      }
    }
    CHECK(check(8 * kMapBytes, 1) == GeneralProtection());  // its second byte is outside
  }
  m.memory.Put<u32>(kTss + kMap, 0);
  CHECK(check(5, 1).done());
  // Both bytes must be inside, even if all bits lie in the first.
  s.segment[kTr].limit = kMap + kMapBytes - 1;
  CHECK(check(8 * kMapBytes - 8, 1) == GeneralProtection());
  CHECK(check(8 * kMapBytes - 9, 1).done());
  s.segment[kTr].limit = 0x66;  // no map base
  CHECK(check(5, 1) == GeneralProtection());
  s.segment[kTr].limit = 0x1000;
  m.memory.Put<u16>(kTss + 0x66, 0xffff);
  CHECK(check(5, 1) == GeneralProtection());
  CHECK(check(0xffff, 1) == GeneralProtection());
  m.memory.Put<u16>(kTss + 0x66, kMap);
  s.segment[kTr].attributes = 0x83;  // a 16-bit TSS has none
  CHECK(check(5, 1) == GeneralProtection());
  s.segment[kTr].attributes = 0x8b;
  m.memory.Put<u32>(kTss + kMap, ~u32{0});
  CHECK(check(5, 1) == GeneralProtection());
  s.system_flags |= kIopl;
  CHECK(check(5, 1).done());
  s.system_flags |= kVm;  // there, IOPL does not matter
  CHECK(check(5, 1) == GeneralProtection());
  s.system_flags &= ~static_cast<u32>(kVm | kIopl);
  s.cpl = 0;
  CHECK(check(5, 1).done());
  s.cpl = 3;
  s.cr0 &= ~kCr0Pe;
  CHECK(check(5, 1).done());
}

// SDM vol. 3, tables 6-4 and 6-5.
TEST_CASE("Double faults: every first exception, every second", "[protection]") {
  enum Class { kBenign, kContributory, kPage, kDouble };
  const auto class_of = [](u8 vector) {
    switch (vector) {
      case kDivideError:
      case kInvalidTss:
      case kSegmentNotPresent:
      case kStackFault:
      case kGeneralProtection:
        return kContributory;
      case kPageFault:
        return kPage;
      case kDoubleFault:
        return kDouble;
      default:
        return kBenign;
    }
  };
  TestMachine m;
  VcpuState& s = m.state();
  constexpr u64 kFirst = 0x111111, kSecond = 0x222222, kDf = 0x888888;
  for (u8 first = 0; first < 20; ++first) {
    if (first == 9 || first == 15) continue;
    for (u8 second : {u8{kInvalidTss}, u8{kSegmentNotPresent}, u8{kStackFault},
                      u8{kGeneralProtection}, u8{kPageFault}}) {
      for (EventKind kind : {EventKind::kFault, EventKind::kSoftware, EventKind::kExternal}) {
        m.memory.Heal();
        m.LongMode(3);
        s.shutdown = 0;
        for (unsigned vector = 0; vector < 32; ++vector) {
          m.Gate64(static_cast<u8>(vector), kCode0, kSecond, 0xee, 1);
        }
        m.Gate64(kDoubleFault, kCode0, kDf, 0xee, 1);
        m.Gate64(first, kCode0, kFirst, 0xee);
        switch (second) {
          case kInvalidTss:
            m.Gate64(first, kCode0, kFirst, 0xee, 7);
            s.segment[kTr].limit = 0x50;
            break;
          case kSegmentNotPresent:
            m.Gate64(first, kCode0, kFirst, 0x6e);
            break;
          case kStackFault:
            m.memory.Put<u64>(kTss + 4, u64{1} << 50);
            break;
          case kGeneralProtection:
            m.Gate64(first, kCode0, kFirst, 0xe9);
            break;
          default:
            m.memory.Poison(kRsp0 - 8);
        }
        const bool fault = kind == EventKind::kFault;
        const Event event{kind, first, fault && PushesErrorCode(first), 0, 0};
        DeliverEvent(s, m.memory, event, s.rip);
        CAPTURE(first, second, static_cast<int>(kind));
        const Class a = fault ? class_of(first) : kBenign, b = class_of(second);
        if (a == kDouble) {
          CHECK(s.shutdown == 1);
          continue;
        }
        CHECK(s.shutdown == 0);
        const bool doubled = (a == kContributory && b == kContributory) || a == kPage;
        // The same gate again, for the second exception: it fails again.
        if (!doubled && first == second) continue;
        CHECK(s.rip == (doubled ? kDf : kSecond));
        CHECK(m.memory.Get<u64>(s.gpr[kRsp] + 8) == 0x400000);
        if (!doubled && second != kPageFault) {
          const u32 ext = kind == EventKind::kSoftware ? 0 : 1;
          CHECK((m.memory.Get<u64>(s.gpr[kRsp]) & 1) == ext);
        }
      }
    }
  }
}

}  // namespace
}  // namespace alibi::vcpu
