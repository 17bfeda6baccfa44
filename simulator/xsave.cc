// SPDX-License-Identifier: Apache-2.0
// XSAVE, XRSTOR and relatives, FXSAVE and FXRSTOR.
//
// The host's own instructions would heed the host's XCR0, where the guest's may be smaller, in the
// host's 64-bit mode they reach the registers that 16- and 32-bit code does not have, and they show
// host addresses (x87_pointers.h). So they run on an area of ours, and only what the guest's
// instruction would touch is copied (SDM vol. 1, 13.7-13.11; APM vol. 2, 11.5).
#include <algorithm>

#include "simulator/execution.h"
#include "simulator/vector_state.h"
#include "simulator/x87_pointers.h"
#include "vcpu/cpu_differences.h"

namespace alibi::simulator {

using vcpu::GuestFault;
using vcpu::kRax, vcpu::kRdx;
using vcpu::Privilege;

namespace {

constexpr unsigned kMxcsrAt = 24, kXmmAt = 160, kHeaderAt = 512, kExtendedAt = 576;
constexpr unsigned kX87PartsAt[2] = {0, 32}, kX87PartsEnd[2] = {24, 160};
constexpr u64 kCompacted = u64{1} << 63;
constexpr u32 kInitialMxcsr = 0x1f80;

// XSAVE64 and its kin, which keep whole pointers.
bool IsWide(const Execution& e) { return e.instr.operand_bits == 64; }

u64 Requested(const Execution& e) {
  return ((e.state.gpr[kRdx] << 32) | static_cast<u32>(e.state.gpr[kRax])) & e.state.xcr0;
}

// Bytes [begin, end) of the guest's area.
struct Range {
  unsigned begin, end;
};

struct Ranges {
  Range all[16];
  unsigned count = 0;

  void Add(unsigned begin, unsigned end) {
    if (begin < end) all[count++] = {begin, end};
  }
};

// Of a component: 16- and 32-bit code has eight vector registers.
unsigned ComponentBytes(const Execution& e, unsigned i) {
  const u32 size = HostXsaveLayout::kHost.size[i];
  if (e.instr.code_bits == 64 || i == 5) return size;
  return i == 7 ? 0 : size / 2;
}
unsigned XmmEnd(const Execution& e) { return kXmmAt + (e.instr.code_bits == 64 ? 256 : 128); }

void AddLegacy(const Execution& e, bool x87, bool mxcsr, bool sse, Ranges* ranges) {
  if (x87) ranges->Add(kX87PartsAt[0], kX87PartsEnd[0]);
  if (mxcsr) ranges->Add(kMxcsrAt, kMxcsrAt + 8);
  if (x87) ranges->Add(kX87PartsAt[1], kX87PartsEnd[1]);
  if (sse) ranges->Add(kXmmAt, XmmEnd(e));
}

// The components from 2 on that `which` names, in an area whose format is compacted to `layout`
// (zero: the standard format).
template <class F>
void ForEachExtended(u64 which, u64 layout, const F& visit) {
  unsigned at = kExtendedAt;
  for (unsigned i = 2; i < 8; ++i) {
    if (layout != 0 && !((layout >> i) & 1)) continue;
    if ((which >> i) & 1) visit(i, layout == 0 ? HostXsaveLayout::kHost.offset[i] : at);
    at += HostXsaveLayout::kHost.size[i];
  }
}

u64 AreaOffset(const Execution& e, unsigned at) {
  return LowBits(e.Offset() + at, e.instr.mem.address_bits);
}

Outcome CheckAlignedTo(Execution& e, unsigned alignment) {
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(
      e.Linear(static_cast<SegmentIndex>(e.instr.mem.segment), e.Offset(), 1, false, &linear));
  return (linear.value & (alignment - 1)) != 0 ? vcpu::GeneralProtection() : Outcome();
}

Outcome Access(Execution& e, const Ranges& ranges, bool write, bool probe, u8* area) {
  const auto segment = static_cast<SegmentIndex>(e.instr.mem.segment);
  for (unsigned i = 0; i < ranges.count; ++i) {
    const Range& range = ranges.all[i];
    const unsigned size = range.end - range.begin;
    LinearAddr linear;
    GuestFault fault;
    ALIBI_RETURN_IF_FAULT(e.Linear(segment, AreaOffset(e, range.begin), size, write, &linear));
    const bool done =
        probe   ? e.memory.ProbeWrite(linear, size, Privilege::kCpl, &fault)
        : write ? e.memory.Write(linear, area + range.begin, size, Privilege::kCpl, &fault)
                : e.memory.Read(linear, area + range.begin, size, Privilege::kCpl, &fault);
    if (!done) return fault;
  }
  return {};
}

Outcome Store(Execution& e, const Ranges& ranges, u8* area) {
  ALIBI_RETURN_IF_FAULT(Access(e, ranges, true, true, area));
  return Access(e, ranges, true, false, area);
}

// The last byte of the components from 2 on that `requested` names, in use or not, or else of the
// header: where it has to be looked at first (cpu_differences.inc: XsaveAreaEnd).
Ranges FirstLookAt(u64 requested, u64 layout) {
  Ranges ranges;
  if (!vcpu::HostHasIntelsWay(vcpu::HostDifference::kXsaveAreaEnd)) return ranges;
  unsigned end = kExtendedAt;
  ForEachExtended(requested, layout, [&](unsigned i, unsigned at) {
    end = std::max(end, at + HostXsaveLayout::kHost.size[i]);
  });
  ranges.Add(end - 1, end);
  return ranges;
}

u64 Load64(const u8* at) {
  u64 value;
  __builtin_memcpy(&value, at, 8);
  return value;
}
void Store64(u8* at, u64 value) { __builtin_memcpy(at, &value, 8); }
u32 Load32(const u8* at) {
  u32 value;
  __builtin_memcpy(&value, at, 4);
  return value;
}

// MXCSR bits that this CPU has, from an image with MXCSR_MASK (SDM vol. 1, 11.6.6).
bool ValidMxcsr(u32 mxcsr, const u8* image) {
  const u32 mask = Load32(image + kMxcsrAt + 4);
  return (mxcsr & ~(mask != 0 ? mask : 0xffbf)) == 0;
}

#define ALIBI_ON_AREA(instruction, area, components)                        \
  asm volatile(instruction " %0"                                            \
               : "+m"(*reinterpret_cast<u8(*)[vcpu::kXsaveAreaSize]>(area)) \
               : "a"(static_cast<u32>(components)), "d"(0)                  \
               : "memory")

enum class How : u8 { kPlain, kCompact, kOptimized };

Outcome Save(Execution& e, How how) {
  ALIBI_RETURN_IF_FAULT(CheckAlignedTo(e, 64));
  const bool compact = how == How::kCompact, optimized = how == How::kOptimized;
  const u64 requested = Requested(e);
  alignas(64) u8 area[vcpu::kXsaveAreaSize];
  // CPUs leave out pointers that they keep for pending exceptions only, and may leave out reserved
  // bytes; what lies there must not be the VMM's.
  __builtin_memset(area, 0, kExtendedAt);
  // The host's XSAVEOPT would compare with the last XRSTOR from our area.
  if (compact) {
    if (IsWide(e)) {
      ALIBI_ON_AREA("xsavec64", area, requested);
    } else {
      ALIBI_ON_AREA("xsavec", area, requested);
    }
  } else if (IsWide(e)) {
    ALIBI_ON_AREA("xsave64", area, requested);
  } else {
    ALIBI_ON_AREA("xsave", area, requested);
  }
  if (requested & kX87State) ShowX87Pointers(e, IsWide(e), area);
  const VectorState keep;  // the memory may be a device whose model uses vector registers
  ALIBI_RETURN_IF_FAULT(
      Access(e, FirstLookAt(requested, compact ? requested : 0), true, true, area));
  const u64 in_use = Load64(area + kHeaderAt);
  const u64 stored = compact || optimized ? in_use : requested;
  Ranges ranges;
  AddLegacy(e, stored & kX87State,
            compact ? stored & kSseState : requested & (kSseState | kAvxState), stored & kSseState,
            &ranges);
  ranges.Add(kHeaderAt, kHeaderAt + (compact ? 16 : 8));
  ForEachExtended(stored, compact ? requested : 0,
                  [&](unsigned i, unsigned at) { ranges.Add(at, at + ComponentBytes(e, i)); });
  if (!compact) {
    // XSTATE_BV keeps the bits of what was not asked for.
    u8 old[8];
    Ranges header;
    header.Add(0, 8);
    LinearAddr linear;
    GuestFault fault;
    ALIBI_RETURN_IF_FAULT(e.Linear(static_cast<SegmentIndex>(e.instr.mem.segment),
                                   AreaOffset(e, kHeaderAt), 8, true, &linear));
    if (!e.memory.ProbeWrite(linear, 8, Privilege::kCpl, &fault) ||
        !e.memory.Read(linear, old, 8, Privilege::kCpl, &fault)) {
      return fault;
    }
    Store64(area + kHeaderAt, (Load64(old) & ~requested) | in_use);
  }
  return Store(e, ranges, area);
}

}  // namespace

Outcome handlers::Xsave(Execution& e) { return Save(e, How::kPlain); }
Outcome handlers::Xsavec(Execution& e) { return Save(e, How::kCompact); }
Outcome handlers::Xsaveopt(Execution& e) { return Save(e, How::kOptimized); }

namespace {

// What XRSTOR refuses in the header (SDM vol. 1, 13.8).
bool ValidHeader(const Execution& e, const u8* header) {
  const u64 present = Load64(header), layout = Load64(header + 8);
  const bool compact = layout & kCompacted;
  for (unsigned at = compact ? 16 : 8; at < (compact ? 64u : 24u); at += 8) {
    if (Load64(header + at) != 0) return false;
  }
  if (!compact) return (present & ~e.state.xcr0) == 0;
  const bool known = e.context.cpuid.Query(e.state, 0xd, 1).eax & 2;  // XSAVEC
  return known && (layout & ~kCompacted & ~e.state.xcr0) == 0 && (present & ~layout) == 0;
}

}  // namespace

Outcome handlers::Xrstor(Execution& e) {
  ALIBI_RETURN_IF_FAULT(CheckAlignedTo(e, 64));
  u64 requested = Requested(e);
  alignas(64) u8 given[vcpu::kXsaveAreaSize];
  alignas(64) u8 area[vcpu::kXsaveAreaSize];
  {
    const VectorState keep;
    Ranges header;
    // Where the area's end comes first, so does XCOMP_BV, which says where the end is.
    if (vcpu::HostHasIntelsWay(vcpu::HostDifference::kXsaveAreaEnd)) {
      header.Add(kHeaderAt + 8, kHeaderAt + 16);
    }
    header.Add(kHeaderAt, kHeaderAt + kXsaveHeaderBytes);
    ALIBI_RETURN_IF_FAULT(Access(e, header, false, false, given));
    const u64 layout = Load64(given + kHeaderAt + 8);
    ALIBI_RETURN_IF_FAULT(
        Access(e, FirstLookAt(requested, layout & kCompacted ? layout : 0), false, false, given));
    if (!ValidHeader(e, given + kHeaderAt)) return vcpu::GeneralProtection();
  }
  // Outside 64-bit mode nothing can be done to ZMM16-31.
  if (e.instr.code_bits != 64) requested &= ~kZmm16State;
  const u64 present = Load64(given + kHeaderAt) & requested;
  const u64 layout = Load64(given + kHeaderAt + 8);
  const bool compact = layout & kCompacted;
  const bool loads_mxcsr = compact ? present & kSseState : requested & (kSseState | kAvxState);
  // What is there now, because 16- and 32-bit code changes the lower registers only.
  __builtin_memset(area + kHeaderAt, 0, kXsaveHeaderBytes);
  HostXsave(area, requested | kSseState);
  {
    const VectorState keep;
    Ranges ranges;
    AddLegacy(e, present & kX87State, loads_mxcsr, present & kSseState, &ranges);
    ForEachExtended(present, compact ? layout : 0,
                    [&](unsigned i, unsigned at) { ranges.Add(at, at + ComponentBytes(e, i)); });
    ALIBI_RETURN_IF_FAULT(Access(e, ranges, false, false, given));
  }
  if (loads_mxcsr && !ValidMxcsr(Load32(given + kMxcsrAt), area)) {
    return vcpu::GeneralProtection();
  }
  if (present & kX87State) {
    for (unsigned part = 0; part < 2; ++part) {
      __builtin_memcpy(area + kX87PartsAt[part], given + kX87PartsAt[part],
                       kX87PartsEnd[part] - kX87PartsAt[part]);
    }
    LoadX87Pointers(IsWide(e), area);
  }
  if (loads_mxcsr) {
    __builtin_memcpy(area + kMxcsrAt, given + kMxcsrAt, 4);
  } else if (compact && (requested & kSseState)) {
    __builtin_memcpy(area + kMxcsrAt, &kInitialMxcsr, 4);
  }
  // Initial values, where only half of a component gets them.
  const bool halves = e.instr.code_bits != 64;
  if (present & kSseState) {
    __builtin_memcpy(area + kXmmAt, given + kXmmAt, XmmEnd(e) - kXmmAt);
  } else if (halves && (requested & kSseState)) {
    __builtin_memset(area + kXmmAt, 0, XmmEnd(e) - kXmmAt);
  }
  ForEachExtended(requested, 0, [&](unsigned i, unsigned at) {
    if (halves && !((present >> i) & 1)) __builtin_memset(area + at, 0, ComponentBytes(e, i));
  });
  ForEachExtended(present, compact ? layout : 0, [&](unsigned i, unsigned at) {
    __builtin_memcpy(area + HostXsaveLayout::kHost.offset[i], given + at, ComponentBytes(e, i));
  });
  Store64(area + kHeaderAt, halves ? present | (requested & ~kX87State) : present);
  Store64(area + kHeaderAt + 8, 0);
  if (IsWide(e)) {
    ALIBI_ON_AREA("xrstor64", area, requested);
  } else {
    ALIBI_ON_AREA("xrstor", area, requested);
  }
  return {};
}

Outcome handlers::Fxsave(Execution& e) {
  ALIBI_RETURN_IF_FAULT(CheckAlignedTo(e, 16));
  alignas(64) u8 area[vcpu::kXsaveAreaSize];
  __builtin_memset(area, 0, kHeaderAt);
  if (IsWide(e)) {
    asm volatile("fxsave64 %0" : "+m"(area) : : "memory");
  } else {
    asm volatile("fxsave %0" : "+m"(area) : : "memory");
  }
  ShowX87Pointers(e, IsWide(e), area);
  const VectorState keep;
  Ranges ranges;
  ranges.Add(0, XmmEnd(e));
  return Store(e, ranges, area);
}

Outcome handlers::Fxrstor(Execution& e) {
  ALIBI_RETURN_IF_FAULT(CheckAlignedTo(e, 16));
  alignas(64) u8 area[vcpu::kXsaveAreaSize];
  asm volatile("fxsave64 %0" : "=m"(area) : : "memory");
  u8 mask[4];
  __builtin_memcpy(mask, area + kMxcsrAt + 4, 4);
  {
    const VectorState keep;
    Ranges ranges;
    ranges.Add(0, XmmEnd(e));
    ALIBI_RETURN_IF_FAULT(Access(e, ranges, false, false, area));
  }
  __builtin_memcpy(area + kMxcsrAt + 4, mask, 4);
  if (!ValidMxcsr(Load32(area + kMxcsrAt), area)) return vcpu::GeneralProtection();
  LoadX87Pointers(IsWide(e), area);
  // XRSTOR does to these two components what FXRSTOR does.
  constexpr u64 kLegacyState = kX87State | kSseState;
  __builtin_memset(area + kHeaderAt, 0, kXsaveHeaderBytes);
  Store64(area + kHeaderAt, kLegacyState);
  if (IsWide(e)) {
    ALIBI_ON_AREA("xrstor64", area, kLegacyState);
  } else {
    ALIBI_ON_AREA("xrstor", area, kLegacyState);
  }
  return {};
}

#undef ALIBI_ON_AREA

namespace {

HostXsaveLayout LayoutOfHost() {
  HostXsaveLayout layout;
  u32 low, high, features, other;
  constexpr u32 kOsxsave = 1u << 27;
  asm volatile("cpuid" : "=a"(low), "=b"(other), "=c"(features), "=d"(high) : "a"(1), "c"(0));
  // A host without it is refused later, with a message.
  if (!(features & kOsxsave)) return layout;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  layout.components = low & (kSseState | kAvxState | kOpmaskState | kZmmHighState | kZmm16State);
  for (u32 i = 2; i < 8; ++i) {
    if (!((layout.components >> i) & 1)) continue;
    u32 extra;
    asm volatile("cpuid"
                 : "=a"(layout.size[i]), "=b"(layout.offset[i]), "=c"(extra), "=d"(high)
                 : "a"(0xd), "c"(i));
  }
  return layout;
}

}  // namespace

const HostXsaveLayout HostXsaveLayout::kHost = LayoutOfHost();

}  // namespace alibi::simulator
