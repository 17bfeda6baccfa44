// SPDX-License-Identifier: Apache-2.0
#include "runtime/accesses.h"

#include "base/bits.h"
#include "isa/effective_address.h"
#include "runtime/attempted_store.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/descriptors.h"

namespace alibi::runtime {

using adapt::Event;
using isa::Instr;
using translator::AccessShape;
using translator::SiteDesc;
using vcpu::GuestFault;
using Way = Verdict::Way;

namespace {

// The linear address of the memory operand.
LinearAddr OperandAddress(const Instr& instr, const vcpu::VcpuState& state) {
  const isa::MemOperand& mem = instr.mem;
  u64 address = EffectiveAddress(instr, state.gpr);
  if (InfoOf(instr.op).Has(isa::kBitString)) {
    address = LowBits(address + BitStringUnit(instr, state.gpr), mem.address_bits);
  }
  if (instr.code_bits != 64) {
    return LinearAddr(static_cast<u32>(address + state.segment[mem.segment].base));
  }
  if (mem.segment == vcpu::kFs || mem.segment == vcpu::kGs)
    address += state.segment[mem.segment].base;
  return LinearAddr(address);
}

}  // namespace

LinearAddr Accesses::AddressOf(const SiteDesc& site, const Instr& instr) const {
  u64 offset = 0;
  switch (site.shape) {
    case AccessShape::kPush:
      offset = state_.gpr[vcpu::kRsp] - site.size;
      break;
    case AccessShape::kPop:
      offset = state_.gpr[vcpu::kRsp];
      break;
    case AccessShape::kFrame:
      offset = state_.gpr[vcpu::kRbp];
      break;
    case AccessShape::kStringSource:
      return LinearAddr(state_.gpr[vcpu::kRsi]);
    case AccessShape::kStringDestination:
      return LinearAddr(state_.gpr[vcpu::kRdi]);
    case AccessShape::kOperand:
      return OperandAddress(instr, state_);
  }
  if (instr.code_bits == 64) return LinearAddr(offset);
  if (!site.ccf->mode.wide_stack) offset = static_cast<u16>(offset);
  return LinearAddr(static_cast<u32>(offset + state_.segment[vcpu::kSs].base));
}

bool Accesses::Writes(const SiteDesc& site, const Instr& instr) {
  return site.shape == AccessShape::kPush ||
         (site.shape == AccessShape::kStringDestination && site.window != 0) ||
         (site.shape == AccessShape::kOperand && instr.mem.written);
}

bool Accesses::LeavesAddressSpace(LinearAddr linear, unsigned size) {
  return !IsCanonical(linear) || !IsCanonical(linear + size - 1);
}

GuestFault Accesses::NonCanonicalFault(const Instr& instr, LinearAddr linear) const {
  if (Misaligned(instr, linear) && IsCanonical(linear) &&
      vcpu::HostHasIntelsWay(vcpu::HostDifference::kEndOfCanonical)) {
    return GuestFault::WithCode(vcpu::kAlignmentCheck, 0);
  }
  const bool stack = instr.mem.present ? instr.mem.stack_segment : true;
  return GuestFault::WithCode(stack ? vcpu::kStackFault : vcpu::kGeneralProtection, 0);
}

bool Accesses::Wraps(const Access& access) const {
  if (access.instr.code_bits == 64) return false;
  if (access.found == Found::kMiss) return access.linear.value >> 32 != 0;
  // A bounced operand does not lie at its address.
  if (access.found != Found::kTrap || !access.site.ccf->mode.flat ||
      access.site.ccf->plans()[access.site.instr_index].kind == translator::SiteKind::kSimulate) {
    return false;
  }
  const isa::MemOperand& mem = access.instr.mem;
  switch (access.site.shape) {
    case AccessShape::kPush:
      return state_.gpr[vcpu::kRsp] < access.site.size;
    case AccessShape::kOperand:
      return mem.base != isa::kNoReg && mem.index == isa::kNoReg &&
             (state_.gpr[mem.base] + static_cast<u64>(mem.disp)) >> 32 != 0;
    default:
      return false;
  }
}

bool Accesses::CallsNowhere(const Access& access) const {
  return access.instr.op == isa::Op::kCallIndirect && access.site.shape == AccessShape::kPush &&
         access.instr.code_bits == 64 && !IsCanonical(state_.scratch.target);  // see EmitIndirect
}

bool Accesses::BreaksAlignment(const Access& access) {
  const SiteDesc& site = access.site;
  // Others share the look-up, and its address is the group's.
  if (access.found == Found::kMiss && site.span_minus_1 + 1u != site.size) return false;
  const isa::MemOperand& mem = access.instr.mem;
  return site.shape == AccessShape::kOperand && (access.linear.value & (mem.alignment - 1u)) != 0 &&
         (mem.masked_element == 0 || access.any_element);
}

bool Accesses::MayShowOtherEffects(const Access& access) {
  return (access.found == Found::kMiss || access.in_table) &&
         (access.instr.mem.masked_element != 0 ||
          AttemptedStoreOf(access.instr) != AttemptedStore::kNoTrace);
}

Verdict Accesses::Classify(const Access& access) const {
  const auto protection = GuestFault::WithCode(vcpu::kGeneralProtection, 0);
  const bool trapped = access.found == Found::kTrap;
  const bool made_here = access.found == Found::kBounce || access.found == Found::kStore;
  if (Wraps(access)) return Verdict::Go(Way::kSimulate);
  if (trapped && CallsNowhere(access)) return Verdict::Deliver(protection);
  if (BreaksAlignment(access)) {
    Verdict verdict = Verdict::Deliver(protection);
    verdict.at_once = true;
    return verdict;
  }
  if (access.found == Found::kMiss) return Verdict::Go(Way::kResume);
  if (made_here && access.instr.mem.masked_element != 0) return Verdict::Go(Way::kResume);
  if (LeavesAddressSpace(access.linear, access.size)) {
    if (!trapped) return Verdict::Deliver(NonCanonicalFault(access.instr, access.linear));
    if (MayShowOtherEffects(access)) return Verdict::Go(Way::kSimulate);
    const GuestFault fault = access.site.shape != AccessShape::kOperand
                                 ? GuestFault::WithCode(vcpu::kStackFault, 0)
                                 : NonCanonicalFault(access.instr, access.linear);
    return Verdict::Deliver(fault).Charged(Event::kTruePageFault);
  }
  // The host's #GP, and the address is canonical: alignment that the instruction demands.
  if (access.host_protection) return Verdict::Deliver(protection);
  if (made_here && access.site.ccf->mode.careful && Misaligned(access.instr, access.linear)) {
    return Verdict::Deliver(GuestFault::WithCode(vcpu::kAlignmentCheck, 0));
  }
  return Verdict::Go(Way::kResume);
}

Verdict Accesses::Classify(const Access& access, mmu::Resolution answer,
                           const GuestFault& fault) const {
  const bool missed = access.found == Found::kMiss;
  if (answer == mmu::Resolution::kFilled) {
    if (access.found == Found::kTrap) return Verdict::Go(Way::kRetry);
    // Other entries may have changed as well, such as the one whose displacement waits in r10.
    return Verdict::Go(missed && access.site.in_group ? Way::kRetry : Way::kResume);
  }
  // Innocent: it goes on; the access traps and is charged there.
  if (missed && !access.site.checked) return Verdict::Go(Way::kResume);
  if (answer == mmu::Resolution::kGuestFault && !MayShowOtherEffects(access)) {
    const bool nowhere = missed && CallsNowhere(access);
    return Verdict::Deliver(nowhere ? GuestFault::WithCode(vcpu::kGeneralProtection, 0) : fault)
        .Charged(Event::kTruePageFault);
  }
  const Verdict simulate = Verdict::Go(Way::kSimulate);
  // Perhaps there is no fault at all: the mask decides, or the value.
  if (answer == mmu::Resolution::kGuestFault && !missed) return simulate;
  return simulate.Charged(Event::kTraceFault);
}

}  // namespace alibi::runtime
