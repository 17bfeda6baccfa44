// SPDX-License-Identifier: Apache-2.0
#include "vcpu/start_state.h"

#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"

namespace alibi::vcpu {
namespace {

// Where a record has what, in bytes.
struct Layout {
  unsigned cr0, cr2, cr3, cr4, efer, ip, flags;
  unsigned registers;  // in the order of kRegisters
  unsigned register_count;
  unsigned selectors, gdt_limit, idt_limit, gdt_base, idt_base;
  unsigned fs_base, gs_base, kernel_gs_base;  // of the 64-bit one
};
constexpr Layout kLayouts[StartState::kKinds] = {
    {.cr0 = 0,
     .cr2 = 4,
     .cr3 = 8,
     .cr4 = 0xc,
     .efer = 0x10,
     .ip = 0x18,
     .flags = 0x1c,
     .registers = 0x20,
     .register_count = 8,
     .selectors = 0x40,
     .gdt_limit = 0x4e,
     .idt_limit = 0x58,
     .gdt_base = 0x50,
     .idt_base = 0x54,
     .fs_base = 0,
     .gs_base = 0,
     .kernel_gs_base = 0},
    {.cr0 = 0,
     .cr2 = 8,
     .cr3 = 0x10,
     .cr4 = 0x18,
     .efer = 0x20,
     .ip = 0x28,
     .flags = 0x30,
     .registers = 0x38,
     .register_count = 16,
     .selectors = 0xe0,
     .gdt_limit = 0xec,
     .idt_limit = 0xee,
     .gdt_base = 0xd0,
     .idt_base = 0xd8,
     .fs_base = 0xb8,
     .gs_base = 0xc0,
     .kernel_gs_base = 0xc8},
};
constexpr unsigned kRegisters[] = {kRax, kRbx, kRcx, kRdx, kRsp, kRbp, kRsi, kRdi,
                                   kR8,  kR9,  kR10, kR11, kR12, kR13, kR14, kR15};

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
// In the records' order; the 64-bit one has no LDTR.
constexpr Rule kRules[StartState::kSegments[StartState::k32]] = {
    {kCs, Rule::kCodeOfRing0}, {kSs, Rule::kStack},      {kDs, Rule::kDataOrNull},
    {kEs, Rule::kDataOrNull},  {kFs, Rule::kDataOrNull}, {kGs, Rule::kDataOrNull},
    {kLdtr, Rule::kTable}};

// The checks of loading it (SDM vol. 2, MOV and LLDT), at CPL 0.
bool MayBeLoaded(const Rule& rule, u16 selector, const Descriptor& descriptor, bool is_64) {
  const unsigned rpl = selector & 3;
  if (NullSelector(selector)) {
    return rule.kind == Rule::kDataOrNull || rule.kind == Rule::kTable ||
           (rule.kind == Rule::kStack && is_64 && rpl == 0);
  }
  if (!descriptor.Present()) return false;
  switch (rule.kind) {
    case Rule::kCodeOfRing0:
      return descriptor.Code() && rpl == 0 && descriptor.Dpl() == 0 && descriptor.Long() == is_64 &&
             !(is_64 && descriptor.Big());
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

// Of the record.
u64 StartState::Field(unsigned offset, unsigned bytes) const {
  const unsigned word_bytes = kind_ == k32 ? 4 : 8;
  u64 value = words_[offset / word_bytes] >> (8 * (offset % word_bytes));
  if (bytes > word_bytes) value |= words_[offset / word_bytes + 1] << 32;
  return bytes == 8 ? value : value & ((u64{1} << (8 * bytes)) - 1);
}

u64 StartState::DescriptorOf(unsigned segment) const {
  const u64* descriptors = words_ + kRecordWords[kind_];
  if (kind_ == k64) return descriptors[segment];
  return descriptors[2 * segment + 1] << 32 | descriptors[2 * segment];
}

bool StartState::LoadControl32(VcpuState* state, const CpuidPolicy& policy) const {
  const Layout& at = kLayouts[k32];
  NoMemory memory;
  const u64 efer = Field(at.efer, 8), cr0 = Word(at.cr0);
  if ((cr0 & kCr0Pe) == 0 || (efer & ~(policy.efer_valid() & ~kEferLme)) != 0) return false;
  state->efer = efer;
  if (WriteCr4(*state, memory, policy, Word(at.cr4)).faulted()) return false;
  if (WriteCr3(*state, memory, Word(at.cr3)).faulted()) return false;
  return !WriteCr0(*state, memory, cr0).faulted();
}

// In the order in which a processor gets there: PCIDs exist in long mode alone.
bool StartState::LoadControl64(VcpuState* state, const CpuidPolicy& policy) const {
  const Layout& at = kLayouts[k64];
  NoMemory memory;
  const u64 efer = Word(at.efer) & ~kEferLma, cr0 = Word(at.cr0), cr4 = Word(at.cr4);
  constexpr u64 kNeeded = kCr0Pe | kCr0Pg;
  if ((cr0 & kNeeded) != kNeeded || (efer & kEferLme) == 0) return false;
  if ((efer & ~policy.efer_valid()) != 0) return false;
  state->efer = efer;
  return !WriteCr4(*state, memory, policy, cr4 & ~kCr4Pcide).faulted() &&
         !WriteCr0(*state, memory, cr0).faulted() &&
         !WriteCr4(*state, memory, policy, cr4).faulted() &&
         !WriteCr3(*state, memory, Word(at.cr3)).faulted();
}

bool StartState::LoadSegments(VcpuState* state) const {
  for (unsigned i = 0; i < kSegments[kind_]; ++i) {
    const Rule& rule = kRules[i];
    const u16 selector = static_cast<u16>(Field(kLayouts[kind_].selectors + 2 * i, 2));
    const Descriptor descriptor{DescriptorOf(i)};
    if (!MayBeLoaded(rule, selector, descriptor, kind_ == k64)) return false;
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

// What is wider than a descriptor has room for, and addresses that have to be some.
bool StartState::LoadBases(VcpuState* state) const {
  const Layout& at = kLayouts[kind_];
  state->gdtr = {.base = Word(at.gdt_base), .limit = static_cast<u16>(Field(at.gdt_limit, 2))};
  state->idtr = {.base = Word(at.idt_base), .limit = static_cast<u16>(Field(at.idt_limit, 2))};
  state->rip = Word(at.ip);
  if (kind_ == k32) return true;
  state->segment[kFs].base = Word(at.fs_base);
  state->segment[kGs].base = Word(at.gs_base);
  state->kernel_gs_base = Word(at.kernel_gs_base);
  for (const u64 address :
       {state->gdtr.base, state->idtr.base, state->rip, state->segment[kFs].base,
        state->segment[kGs].base, state->kernel_gs_base}) {
    if (!IsCanonical(address)) return false;
  }
  return true;
}

bool StartState::ApplyTo(VcpuState* state, const CpuidPolicy& policy) const {
  const Layout& at = kLayouts[kind_];
  const u64 flags = Word(at.flags);
  if (!complete() || (flags & kVm) != 0) return false;
  const VcpuState before = *state;
  const bool control = kind_ == k32 ? LoadControl32(state, policy) : LoadControl64(state, policy);
  if (!control || !LoadSegments(state) || !LoadBases(state)) {
    *state = before;
    return false;
  }
  state->cpl = 0;
  state->cr2 = Word(at.cr2);
  for (unsigned i = 0; i < at.register_count; ++i) {
    state->gpr[kRegisters[i]] = Word(at.registers + i * (kind_ == k32 ? 4 : 8));
  }
  state->SetRflags(flags);
  return true;
}

}  // namespace alibi::vcpu
