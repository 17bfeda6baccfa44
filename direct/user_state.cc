// SPDX-License-Identifier: Apache-2.0
#include "direct/user_state.h"

#include <algorithm>
#include <cstring>

#include "translator/unit_rules.h"
#include "vcpu/breakpoints.h"
#include "vcpu/descriptors.h"
#include "vcpu/segments.h"

namespace alibi::direct {
namespace {

using vcpu::VcpuState;

// Linux's selectors for user code.
constexpr u16 kCode32 = 0x23, kData = 0x2b, kCode64 = 0x33;

// XSAVE components of translated code, too: x87, SSE, AVX, AVX-512.
constexpr u64 kComponents = 0xe7;
constexpr u64 kHeaderBytes = 64;

constexpr u8 kFrameOf[16] = {kFrameRax, kFrameRcx, kFrameRdx, kFrameRbx, kFrameRsp, kFrameRbp,
                             kFrameRsi, kFrameRdi, kFrameR8,  kFrameR9,  kFrameR10, kFrameR11,
                             kFrameR12, kFrameR13, kFrameR14, kFrameR15};

// What user code may change of RFLAGS, besides the arithmetic flags, where IOPL is 0.
constexpr u64 kUserFlags = vcpu::kTf | vcpu::kDf | vcpu::kNt | vcpu::kAc | vcpu::kId;
// ... of which these are set by the frame or not at all.
constexpr u64 kFlagsThatMustBeClear =
    vcpu::kTf | vcpu::kIopl | vcpu::kNt | vcpu::kVm | vcpu::kAc | vcpu::kVif | vcpu::kVip;

bool IsPlainData(u16 selector) { return selector <= 3 || selector == kData; }

// A descriptor of the host's table, without the limit where that is a number of the CPU (LSL, which
// shows it, does not run directly).
struct HostDescriptor {
  u16 selector;
  u64 bits, mask;
};
constexpr HostDescriptor kHostDescriptors[] = {
    {0x20, 0x00cffb000000ffff, ~u64{0}},
    {0x28, 0x00cff3000000ffff, ~u64{0}},
    {0x30, 0x00affb000000ffff, ~u64{0}},
    {0x78, 0x0040f50000000000, 0xfff0ffffffff0000},
};

bool HasHostsDescriptors(const VcpuState& state, const mmu::Mmu& mmu) {
  for (const HostDescriptor& host : kHostDescriptors) {
    u64 bits = 0;
    if (state.gdtr.limit < host.selector + 7u ||
        mmu.DebugRead(LinearAddr(state.gdtr.base + host.selector), &bits, 8) != 8 ||
        (bits & host.mask) != host.bits) {
      return false;
    }
  }
  return true;
}

u32 HostMxcsrMask() {
  static const u32 mask = [] {
    alignas(16) u8 image[512] = {};
    asm volatile("fxsave %0" : "=m"(image));
    u32 value;
    std::memcpy(&value, image + 28, sizeof(value));
    return value != 0 ? value : 0xffbf;
  }();
  return mask;
}

// In code of 64 bits, which can load and read selectors.
bool SegmentsFit64(const VcpuState& state, const mmu::Mmu& mmu) {
  constexpr u64 kNeededCr4 = vcpu::kCr4Fsgsbase;
  const vcpu::Segment* const segment = state.segment;
  return segment[vcpu::kCs].selector == kCode64 && segment[vcpu::kSs].selector == kData &&
         IsPlainData(segment[vcpu::kDs].selector) && IsPlainData(segment[vcpu::kEs].selector) &&
         IsPlainData(segment[vcpu::kFs].selector) && IsPlainData(segment[vcpu::kGs].selector) &&
         (state.efer & vcpu::kEferSce) != 0 && (state.cr4 & kNeededCr4) == kNeededCr4 &&
         HasHostsDescriptors(state, mmu);
}

bool IsUsable(const vcpu::Segment& segment) { return segment.Present() && segment.CodeOrData(); }
// All 4 GB from its base on.
bool IsWhole(const vcpu::Segment& segment) {
  return IsUsable(segment) && segment.limit == ~u32{0} && segment.base <= ~u32{0};
}
bool IsWholeData(const vcpu::Segment& segment) {
  constexpr unsigned kCode = 8, kExpandDown = 4, kWritable = 2;
  return IsWhole(segment) && (segment.Type() & (kCode | kExpandDown | kWritable)) == kWritable;
}
bool IsWholeCode(const vcpu::Segment& segment) {
  constexpr unsigned kCode = 8, kConforming = 4, kReadable = 2;
  return IsWhole(segment) &&
         (segment.Type() & (kCode | kConforming | kReadable)) == (kCode | kReadable);
}

// In code of 32 bits, which cannot load or read any directly: it is what they hold that counts. One
// that holds nothing faults in the satellite, too.
bool SegmentsFit32(const VcpuState& state) {
  const vcpu::Segment* const segment = state.segment;
  const auto fits = [&](vcpu::SegmentIndex index, bool any_base) {
    return !IsUsable(segment[index]) ||
           (IsWholeData(segment[index]) && (any_base || segment[index].base == 0));
  };
  const vcpu::Segment &code = segment[vcpu::kCs], &stack = segment[vcpu::kSs];
  return IsWholeCode(code) && code.base == 0 && IsWholeData(stack) && stack.base == 0 &&
         stack.Big() && fits(vcpu::kDs, false) && fits(vcpu::kEs, false) && fits(vcpu::kFs, true) &&
         fits(vcpu::kGs, true) && (!state.LongModeActive() || code.selector == kCode32);
}

void LoadSegments(const VcpuState& state, Satellite* satellite) {
  const vcpu::Segment* const segment = state.segment;
  SignalFrame& frame = satellite->frame();
  if (state.In64BitCode()) {
    frame.cs = segment[vcpu::kCs].selector;
    frame.ss = segment[vcpu::kSs].selector;
    satellite->SetBases(segment[vcpu::kFs].base, segment[vcpu::kGs].base);
    satellite->SetSelectors(segment[vcpu::kEs].selector, segment[vcpu::kDs].selector,
                            segment[vcpu::kFs].selector, segment[vcpu::kGs].selector);
    return;
  }
  frame.cs = kCode32;
  frame.ss = kData;
  // The data segment with another base is a segment for threads: WRFSBASE changes what a register
  // holds, and the host keeps that.
  const auto selector = [&](vcpu::SegmentIndex index) {
    return IsUsable(segment[index]) ? kData : u16{0};
  };
  const auto base = [&](vcpu::SegmentIndex index) {
    return IsUsable(segment[index]) ? segment[index].base : 0;
  };
  satellite->SetBases(base(vcpu::kFs), base(vcpu::kGs));
  satellite->SetSelectors(selector(vcpu::kEs), selector(vcpu::kDs), selector(vcpu::kFs),
                          selector(vcpu::kGs));
}

// What code of 64 bits has done to them.
void SaveSegments(const Satellite& satellite, VcpuState* state, mmu::Mmu* mmu) {
  const SignalFrame& frame = satellite.frame();
  const u16 selectors[] = {satellite.selector(0), satellite.selector(1), satellite.selector(2),
                           satellite.selector(3)};
  constexpr vcpu::SegmentIndex kSegments[] = {vcpu::kEs, vcpu::kDs, vcpu::kFs, vcpu::kGs};
  for (unsigned i = 0; i < 4; ++i) {
    // The guest's descriptors are the host's, or the satellite would have faulted.
    if (state->segment[kSegments[i]].selector != selectors[i]) {
      (void)vcpu::LoadSegment(*state, *mmu, kSegments[i], selectors[i]);
    }
  }
  // A far branch leads to the other code segment.
  for (const HostDescriptor& code : {kHostDescriptors[0], kHostDescriptors[2]}) {
    if (frame.cs != state->segment[vcpu::kCs].selector && frame.cs == (code.selector | 3)) {
      state->segment[vcpu::kCs] = vcpu::Descriptor{code.bits}.ToSegment(frame.cs);
    }
  }
  if (state->segment[vcpu::kSs].selector != frame.ss) {
    (void)vcpu::LoadSegment(*state, *mmu, vcpu::kSs, frame.ss);
  }
  const u64 fs = satellite.fs_base(), gs = satellite.gs_base();
  if (IsCanonical(fs)) state->segment[vcpu::kFs].base = fs;
  if (IsCanonical(gs)) state->segment[vcpu::kGs].base = gs;
}

}  // namespace

bool CanRunDirectly(const VcpuState& state, const mmu::Mmu& mmu, const HostTraits& host) {
  if (state.cpl != 3 || state.if_flag != 1 || (state.system_flags & kFlagsThatMustBeClear) != 0 ||
      translator::UnitRules(state) != 0 || ((state.xcr0 ^ host.xcr0) & kComponents) != 0 ||
      vcpu::BreakpointsEnabled(state)) {
    return false;
  }
  switch (state.CodeBits()) {
    case 64:
      return SegmentsFit64(state, mmu);
    case 32:
      return host.code32 && state.ProtectedMode() && state.Paging() && SegmentsFit32(state);
    default:
      return false;
  }
}

unsigned CodeBitsOf(const SignalFrame& frame) { return frame.cs == kCode32 ? 32 : 64; }

void LoadUserState(const VcpuState& state, Satellite* satellite) {
  SignalFrame& frame = satellite->frame();
  for (unsigned reg = 0; reg < 16; ++reg) {
    const bool legacy = !state.LongModeActive();
    frame.gpr[kFrameOf[reg]] = !legacy   ? state.gpr[reg]
                               : reg < 8 ? static_cast<u32>(state.gpr[reg])
                                         : 0;
  }
  frame.gpr[kFrameRip] = state.In64BitCode() ? state.rip : static_cast<u32>(state.rip);
  frame.eflags = state.Rflags();
  satellite->SetIdFlag(state.system_flags & vcpu::kId);
  LoadSegments(state, satellite);
  u8* const image = satellite->xsave_image();
  const u64 bytes = std::min<u64>(satellite->xsave_bytes(), vcpu::kXsaveAreaSize);
  std::memcpy(image, state.xsave_area, kFrameSoftwareBytes);
  // Components that are not the guest's stay as they are.
  u64 present, own;
  std::memcpy(&present, state.xsave_area + kFrameXsaveHeader, 8);
  std::memcpy(&own, image + kFrameXsaveHeader, 8);
  present = (present & kComponents) | (own & ~kComponents);
  std::memcpy(image + kFrameXsaveHeader, &present, 8);
  std::memcpy(image + kFrameXsaveExtended, state.xsave_area + kFrameXsaveExtended,
              bytes - kFrameXsaveExtended);
}

void SaveUserState(const Satellite& satellite, VcpuState* state, mmu::Mmu* mmu) {
  const SignalFrame& frame = satellite.frame();
  // Without long mode there are eight of 32 bits, whatever the satellite says.
  const bool wide = state->LongModeActive();
  for (unsigned reg = 0; reg < (wide ? 16 : 8); ++reg) {
    const u64 value = frame.gpr[kFrameOf[reg]];
    state->gpr[reg] = wide ? value : static_cast<u32>(value);
  }
  constexpr u64 kTaken = kUserFlags | vcpu::kArithmeticFlags;
  state->SetRflags((state->Rflags() & ~kTaken) | (frame.eflags & kTaken));

  if (state->In64BitCode()) {
    SaveSegments(satellite, state, mmu);
  } else if (frame.cs == kCode64 && state->LongModeActive() && HasHostsDescriptors(*state, *mmu)) {
    // A far branch that the judge has not seen.
    state->segment[vcpu::kCs] = vcpu::Descriptor{kHostDescriptors[2].bits}.ToSegment(kCode64);
  }
  state->rip = state->In64BitCode() ? frame.gpr[kFrameRip] : static_cast<u32>(frame.gpr[kFrameRip]);

  const u8* const image = satellite.xsave_image();
  const u64 bytes = std::min<u64>(satellite.xsave_bytes(), vcpu::kXsaveAreaSize);
  std::memcpy(state->xsave_area, image, kFrameSoftwareBytes);
  std::memset(state->xsave_area + kFrameSoftwareBytes, 0, kFrameXsaveHeader - kFrameSoftwareBytes);
  std::memset(state->xsave_area + kFrameXsaveHeader, 0, kHeaderBytes);
  u64 present;
  std::memcpy(&present, image + kFrameXsaveHeader, 8);
  present &= kComponents & state->xcr0;
  std::memcpy(state->xsave_area + kFrameXsaveHeader, &present, 8);
  std::memcpy(state->xsave_area + kFrameXsaveExtended, image + kFrameXsaveExtended,
              bytes - kFrameXsaveExtended);
  // What XRSTOR would refuse.
  u32 mxcsr;
  std::memcpy(&mxcsr, state->xsave_area + 24, sizeof(mxcsr));
  mxcsr &= HostMxcsrMask();
  std::memcpy(state->xsave_area + 24, &mxcsr, sizeof(mxcsr));
}

}  // namespace alibi::direct
