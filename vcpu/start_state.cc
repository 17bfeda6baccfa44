// SPDX-License-Identifier: Apache-2.0
#include "vcpu/start_state.h"

#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"

namespace alibi::vcpu {
namespace {

// Offsets in VMI's record, in bytes.
enum Field : unsigned {
  kCr0At = 0,
  kCr2At = 4,
  kCr3At = 8,
  kCr4At = 0xc,
  kEferAt = 0x10,
  kEipAt = 0x18,
  kEflagsAt = 0x1c,
  kSelectorsAt = 0x40,
  kGdtLimitAt = 0x4e,
  kGdtBaseAt = 0x50,
  kIdtBaseAt = 0x54,
  kIdtLimitAt = 0x58,
};
struct Register {
  unsigned at;
  unsigned gpr;
};
constexpr Register kRegisters[] = {{0x20, kRax}, {0x24, kRbx}, {0x28, kRcx}, {0x2c, kRdx},
                                   {0x30, kRsp}, {0x34, kRbp}, {0x38, kRsi}, {0x3c, kRdi}};

// Control registers are written as by instructions, for the sake of their checks. Of translations
// nobody needs to be told: the processor that begins has none.
class NoMemory final : public LinearMemory {
 public:
  bool Read(LinearAddr, void*, unsigned, Privilege, GuestFault*) override { return false; }
  bool Write(LinearAddr, const void*, unsigned, Privilege, GuestFault*) override { return false; }
  bool ProbeWrite(LinearAddr, unsigned, Privilege, GuestFault*) override { return false; }
  bool LoadPdptes(u64) override { return true; }
  void PagingModeChanged() override {}
  void AddressSpaceLoaded() override {}
  void InvalidatePage(LinearAddr) override {}
  void InvalidateAll() override {}
  void PrivilegeChanged() override {}
};

struct Rule {
  SegmentIndex index;
  enum : u8 { kCodeOfRing0, kStack, kDataOrNull, kTable } kind;
};
// In the record's order.
constexpr Rule kRules[StartState::kSegments] = {{kCs, Rule::kCodeOfRing0}, {kSs, Rule::kStack},
                                                {kDs, Rule::kDataOrNull},  {kEs, Rule::kDataOrNull},
                                                {kFs, Rule::kDataOrNull},  {kGs, Rule::kDataOrNull},
                                                {kLdtr, Rule::kTable}};

// The checks of loading it (SDM vol. 2, MOV and LLDT), at CPL 0.
bool MayBeLoaded(const Rule& rule, u16 selector, const Descriptor& descriptor) {
  const unsigned rpl = selector & 3;
  if (NullSelector(selector)) {
    return rule.kind == Rule::kDataOrNull || rule.kind == Rule::kTable;
  }
  if (!descriptor.Present()) return false;
  switch (rule.kind) {
    case Rule::kCodeOfRing0:
      return descriptor.Code() && rpl == 0 && descriptor.Dpl() == 0 && !descriptor.Long();
    case Rule::kStack:
      return descriptor.WritableData() && rpl == 0 && descriptor.Dpl() == 0;
    case Rule::kDataOrNull:
      return descriptor.CodeOrData() && descriptor.Readable() &&
             ((descriptor.Code() && descriptor.Conforming()) || rpl <= descriptor.Dpl());
    case Rule::kTable:
      return !descriptor.CodeOrData() && descriptor.Type() == kTypeLdt && (selector & 4) == 0;
  }
  return false;
}

}  // namespace

bool StartState::LoadControl(VcpuState* state, const CpuidPolicy& policy) const {
  NoMemory memory;
  const u64 efer = u64{words_[kEferAt / 4 + 1]} << 32 | words_[kEferAt / 4];
  const u32 cr0 = words_[kCr0At / 4];
  if ((cr0 & kCr0Pe) == 0 || (efer & ~(policy.efer_valid() & ~kEferLme)) != 0) return false;
  state->efer = efer;
  if (WriteCr4(*state, memory, policy, words_[kCr4At / 4]).faulted()) return false;
  if (WriteCr3(*state, memory, words_[kCr3At / 4]).faulted()) return false;
  state->cr2 = words_[kCr2At / 4];
  return !WriteCr0(*state, memory, cr0).faulted();
}

bool StartState::LoadSegments(VcpuState* state) const {
  for (unsigned i = 0; i < kSegments; ++i) {
    const Rule& rule = kRules[i];
    const u16 selector = Half(kSelectorsAt + 2 * i);
    const u32* halves = words_ + kRecordWords + 2 * i;
    const Descriptor descriptor{u64{halves[1]} << 32 | halves[0]};
    if (!MayBeLoaded(rule, selector, descriptor)) return false;
    Segment& segment = state->segment[rule.index];
    if (NullSelector(selector)) {
      segment = {.selector = selector};
      continue;
    }
    segment = descriptor.ToSegment(selector);
    if (descriptor.CodeOrData()) segment.attributes |= kAttrAccessed;
  }
  return true;
}

bool StartState::ApplyTo(VcpuState* state, const CpuidPolicy& policy) const {
  const u32 flags = words_[kEflagsAt / 4];
  if (!complete() || (flags & kVm) != 0) return false;
  const VcpuState before = *state;
  if (!LoadControl(state, policy) || !LoadSegments(state)) {
    *state = before;
    return false;
  }
  state->cpl = 0;
  state->gdtr = {.base = words_[kGdtBaseAt / 4], .limit = Half(kGdtLimitAt)};
  state->idtr = {.base = words_[kIdtBaseAt / 4], .limit = Half(kIdtLimitAt)};
  for (const Register& r : kRegisters) state->gpr[r.gpr] = words_[r.at / 4];
  state->rip = words_[kEipAt / 4];
  state->SetRflags(flags);
  return true;
}

}  // namespace alibi::vcpu
