// SPDX-License-Identifier: Apache-2.0
// Which engine runs user code, and the way to the other one and back.
#include <x86intrin.h>

#include <utility>

#include "runtime/engine_impl.h"
#include "runtime/trap_price.h"
#include "vcpu/control_registers.h"
#include "vcpu/exceptions.h"

namespace alibi::runtime {

using adapt::EngineEvent;
using adapt::UserEngine;
using Kind = EngineEvent::Kind;

Status EngineImpl::StartDirectExecution() {
  if (options_.engine_policy == nullptr) return Ok{};
  auto made = direct::DirectExecution::Create(
      {.mmu = &mmu_,
       .state = &state_,
       .shown = shown_features_,
       .trap_price = TrapPrice(),
       .vcpus = options_.vcpus,
       .satellites = options_.satellites,
       .remaps = options_.remaps_user_code,
       .known_starts = [this](LinearAddr linear,
                              PhysAddr page) { return TranslatedStarts(linear, page); },
       .stopped = [this] { options_.platform->UserCodeStopped(); },
       .gate = options_.gate});
  if (!made.ok()) {
    if (options_.needs_direct_execution) return made.error();
    return Ok{};
  }
  direct_ = std::move(*made);
  return options_.needs_direct_execution ? direct_->Begin() : Ok{};
}

// Offsets in the page, of code of the present mode.
std::vector<u16> EngineImpl::TranslatedStarts(LinearAddr linear_page, PhysAddr page) {
  std::vector<u16> starts;
  fragments_->ForEachInMapping(linear_page, page.InPage(), CurrentMode(), [&](const Ccf* ccf) {
    const translator::InstrList instrs = ccf->instrs();
    const unsigned defined = instrs.size() - instrs.ends_undefined();
    for (unsigned i = 0; i < defined; ++i) {
      starts.push_back(static_cast<u16>(instrs.pc(i).PageOffset()));
    }
  });
  return starts;
}

// The machine was stopped where it is now. The time since it was stopped last is taken for spent
// there: by user code, or by the kernel for the program that was met last.
void EngineImpl::Sample() {
  if (direct_ == nullptr) return;
  const u64 now = __rdtsc();
  const u64 cycles = now - std::exchange(last_sample_, now);
  mmu::View& view = mmu_.current_view();
  if (state_.cpl == 3 && view.user()) {
    sampled_ = &view;
    if (!view.runs_directly()) NoticeProgram(view);
    // Of what runs directly more is known; of what does from now on, it will be.
    if (!view.runs_directly()) TellEnginePolicy(view, {.kind = Kind::kSample, .cycles = cycles});
  } else if (sampled_ != nullptr && !sampled_->runs_directly()) {
    TellEnginePolicy(*sampled_, {.kind = Kind::kKernelSample, .cycles = cycles});
  }
}

void EngineImpl::TellEnginePolicy(mmu::View& view, EngineEvent event) {
  if (direct_ == nullptr || !view.user()) return;
  UserCode& user = user_code_[view.id()];
  if (user.generation != view.generation()) {
    // Machines that run no user code need not wait for it.
    if (!direct_->Begin().ok()) {
      direct_.reset();
      return;
    }
    user = {view.generation(), mmu_.EndingsOf(view), {}};
    user.record.number = ++user_spaces_;
  }
  event.now = __rdtsc();
  user.record.seen = true;
  const UserEngine before = user.record.engine;
  user.record.engine = options_.engine_policy->OnEvent(user.record, event, direct_->prices());
  if (events_.Wants(RecordKind::kEngine)) {
    events_.EngineVerdict(view.key().root(),
                          {user.record.number, before, user.record.engine, event});
  }
  const bool directly = user.record.engine == UserEngine::kDirect;
  if (directly == view.runs_directly()) return;
  view.set_runs_directly(directly);
  view.ResetAllJumps();
}

// Is it another program's address space than the engine policy knows?
void EngineImpl::NoticeProgram(mmu::View& view) {
  UserCode& user = user_code_[view.id()];
  if (user.generation != view.generation() || !user.record.seen) {
    TellEnginePolicy(view, {.kind = Kind::kFirst});
    return;
  }
  const u32 endings = mmu_.EndingsOf(view);
  const bool ended = std::exchange(user.endings, endings) != endings;
  const bool lost = view.runs_directly() && direct_->HasLostAll(view);
  if (ended || lost) TellEnginePolicy(view, {.kind = Kind::kEmptied});
}

bool EngineImpl::GoesDirectly() {
  if (direct_ == nullptr || state_.cpl != 3) return false;
  mmu::View& view = mmu_.current_view();
  NoticeProgram(view);
  if (std::exchange(translate_next_, false) || !view.runs_directly()) return false;
  if (pending_.undone || pending_.simulate) return false;  // what has been begun is ended
  if (points_.any_breakpoint() || points_.any_watch() || options_.executions != nullptr ||
      options_.plan_override != nullptr || !direct_->Fits()) {
    TellEnginePolicy(view, {.kind = Kind::kUnfit});
    return false;
  }
  return true;
}

// False: it is detached.
bool EngineImpl::RunDirectly() {
  pending_ = {};
  direct::Report report;
  const u64 begin = __rdtsc();
  const direct::Exit exit = direct_->Run(&report);
  if (exit == direct::Exit::kDetached) return false;
  EndDirectRun(exit, report, begin);
  return true;
}

// What user code has stopped for is done.
void EngineImpl::EndDirectRun(direct::Exit exit, const direct::Report& report, u64 begin) {
  mmu::View& view = mmu_.current_view();
  switch (exit) {
    case direct::Exit::kStopped:
    case direct::Exit::kDetached:
      break;
    case direct::Exit::kSystemCall:
    case direct::Exit::kCode:
    case direct::Exit::kRefused:
      translate_next_ = true;
      break;
    case direct::Exit::kInstruction:
      step_next_user_ = true;
      break;
    case direct::Exit::kTrap:
      DeliverDebug(
          {.dr6 = vcpu::kDr6Bs, .between_iterations = (state_.system_flags & vcpu::kRf) != 0});
      break;
    case direct::Exit::kFault:
      Deliver(direct_->guest_fault());
      break;
    case direct::Exit::kLost:
      // What it has done to its registers is lost. Its program cannot go on, its kernel can.
      Deliver(vcpu::GeneralProtection().fault());
      break;
  }
  if (exit == direct::Exit::kRefused) {
    TellEnginePolicy(view, {.kind = Kind::kRefused, .cycles = __rdtsc() - begin});
  }
  if (report.stops == 0) return;
  TellEnginePolicy(view, {.kind = Kind::kRan,
                          .cycles = report.cycles,
                          .stops = report.stops,
                          .faults = report.faults,
                          .calls = report.calls});
}

// --- DetachedCode ---

void EngineImpl::Return() {
  direct::Report report;
  const u64 begin = __rdtsc();
  EndDirectRun(direct_->Return(&report), report, begin);
}

void EngineImpl::Wait() {
  BeginRun();
  direct_->WaitForStops();
  EndRun();
  __atomic_store_n(&state_.stop_requested, 0, __ATOMIC_SEQ_CST);
}

void EngineImpl::Offer(bool others_wait, bool never) {
  using Detaching = direct::DirectExecution::Detaching;
  direct_->set_detaching(never         ? Detaching::kNever
                         : others_wait ? Detaching::kSoon
                                       : Detaching::kIfWoken);
}

}  // namespace alibi::runtime
