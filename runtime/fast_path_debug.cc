// SPDX-License-Identifier: Apache-2.0
// Callouts' part of what debuggers see: data and port breakpoints, and branches that go nowhere.
// Compiled for general registers only, as fast_path.cc.
#include <x86intrin.h>

#include "runtime/engine_impl.h"
#include "runtime/watch.h"
#include "vcpu/breakpoints.h"
#include "vcpu/descriptors.h"
#include "vcpu/exceptions.h"

namespace alibi::runtime {

using isa::Instr;
using isa::Op;
using translator::ExitDesc;
using translator::SiteDesc;
using vcpu::BreakpointAccess;
using vcpu::MatchBreakpoints;
using vcpu::Privilege;

namespace {

BreakpointAccess AccessTo(const Instr& instr) {
  return instr.mem.written ? BreakpointAccess::kWrite : BreakpointAccess::kRead;
}

}  // namespace

bool WatchedMemory::Read(LinearAddr address, void* out, unsigned size, Privilege who,
                         vcpu::GuestFault* fault) {
  // Not the processor's own reading of descriptors.
  if (who == Privilege::kCpl) {
    hits_ |= MatchBreakpoints(state_, BreakpointAccess::kRead, address.value, size);
    points_.NoteAccess(address, size, /*read=*/true, /*written=*/false);
  }
  return memory_.Read(address, out, size, who, fault);
}

bool WatchedMemory::Write(LinearAddr address, const void* data, unsigned size, Privilege who,
                          vcpu::GuestFault* fault) {
  if (who == Privilege::kCpl) {
    hits_ |= MatchBreakpoints(state_, BreakpointAccess::kWrite, address.value, size);
    points_.NoteAccess(address, size, /*read=*/false, /*written=*/true);
  }
  return memory_.Write(address, data, size, who, fault);
}

bool WatchedMemory::ProbeWrite(LinearAddr address, unsigned size, Privilege who,
                               vcpu::GuestFault* fault) {
  return memory_.ProbeWrite(address, size, who, fault);
}

bool WatchedMemory::LoadPdptes(u64 cr3) { return memory_.LoadPdptes(cr3); }
void WatchedMemory::PagingModeChanged() { memory_.PagingModeChanged(); }
void WatchedMemory::AddressSpaceLoaded() { memory_.AddressSpaceLoaded(); }
void WatchedMemory::InvalidatePage(LinearAddr address) { memory_.InvalidatePage(address); }
void WatchedMemory::InvalidateAll() { memory_.InvalidateAll(); }
void WatchedMemory::PrivilegeChanged() { memory_.PrivilegeChanged(); }

u32 WatchedPorts::In(u16 port, unsigned size) {
  hits_ |= MatchBreakpoints(state_, BreakpointAccess::kPort, port, size);
  return ports_.In(port, size);
}

void WatchedPorts::Out(u16 port, unsigned size, u32 value) {
  hits_ |= MatchBreakpoints(state_, BreakpointAccess::kPort, port, size);
  ports_.Out(port, size, value);
}

bool EngineImpl::HitsWatch(const Instr& instr, LinearAddr linear, unsigned size) const {
  return (watching_ && MatchBreakpoints(state_, AccessTo(instr), linear.value, size) != 0) ||
         points_.FindWatch(linear, size, instr.mem.read || !instr.mem.written, instr.mem.written) !=
             nullptr;
}

void EngineImpl::NoteWatched(const Instr& instr, LinearAddr linear, unsigned size) {
  if (!in_single_) return;
  if (watching_) watch_hits_ |= MatchBreakpoints(state_, AccessTo(instr), linear.value, size);
  if (points_.any_watch()) {
    points_.NoteAccess(linear, size, instr.mem.read || !instr.mem.written, instr.mem.written);
  }
}

// What a #DB behind it shows of the flags was set in front of it: to be kept from the next time on.
Next EngineImpl::LeaveToStep(SiteDesc* site) {
  if (!site->keeps_flags) {
    sites_->NoteShownFlags(*site, vcpu::GuestFault::Simple(vcpu::kDebug));
  }
  step_over_watch_ = true;
  SyncGs();
  return {};
}

// Behind an instruction of the simulator, which has told what it touched.
void EngineImpl::NoteSimulatedWatch(bool faulted) {
  if (!points_.stopped()) return;
  if (faulted) {
    points_.Forget();
  } else {
    RequestAttention();
  }
}

vcpu::SteppedInstruction EngineImpl::DescribeStep(const Instr& instr,
                                                  const translator::CodeMode& mode) {
  const isa::OpInfo& op = InfoOf(instr.op);
  vcpu::SteppedInstruction step;
  step.next_rip = mode.RipOf(instr.next_pc());
  step.loads_ss = op.Has(isa::kLoadsSs);
  step.software_interrupt = op.Has(isa::kSoftwareInterrupt);
  step.steps_itself = op.Has(isa::kSystemCall);
  step.returns = instr.op == Op::kIret;
  step.loads_task = instr.op == Op::kLtr;
  step.repeated_string = (instr.rep || instr.repne) && op.Has(isa::kString);
  return step;
}

void EngineImpl::DeliverDebug(const vcpu::DebugException& trap) {
  if (trap.dr6 == 0) return;
  vcpu::ReportDebug(state_, trap.dr6);
  ++counters_.exceptions_delivered;
  vcpu::Event event = vcpu::Event::Trap(vcpu::kDebug);
  event.between_iterations = trap.between_iterations;
  vcpu::DeliverEvent(state_, mmu_, event, state_.rip);
}

void EngineImpl::BeginWatched() {
  // No translation but a single step begins at a breakpoint.
  debug_step_.Begin(state_, LinearPc(), options_.cpuid->vendor());
  watch_hits_ = 0;
}

bool EngineImpl::TrapsBehind(const SiteDesc& site) {
  const vcpu::DebugException trap =
      debug_step_.Completed(state_, DescribeStep(InstrOf(site), site.ccf->mode), watch_hits_);
  DeliverDebug(trap);
  return trap.dr6 != 0;
}

// The target of a computed branch is no address. The branch itself faults then, before it changes
// anything: put back what its translation has changed.
bool EngineImpl::UndoBranch(LinearAddr target) {
  if (state_.last_branch == 0 || IsCanonical(target) || !state_.In64BitCode()) return false;
  const auto* exit = (tc().data_origin() + state_.last_branch - 1).As<const ExitDesc>();
  Instr instr;
  Sites::DecodeAgain(*exit->ccf, exit->instr_index, &instr);
  if (exit->ccf->counts != nullptr) ++exit->ccf->counts->left_before[exit->instr_index];
  state_.rip = instr.pc.value;
  if (instr.op == Op::kRet) {
    state_.gpr[vcpu::kRsp] -= 8 + static_cast<u16>(instr.immediate);
  } else if (instr.op == Op::kCallIndirect) {
    u64& rsp = state_.gpr[vcpu::kRsp];
    vcpu::GuestFault fault;
    mmu_.Write(LinearAddr(rsp), &state_.scratch.overwritten, 8, Privilege::kCpl, &fault);
    rsp += 8;
  }
  return true;
}

}  // namespace alibi::runtime
