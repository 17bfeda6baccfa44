// SPDX-License-Identifier: Apache-2.0
// The Machine's VCPUs: whose turn it is, and what they do to each other.
#include <algorithm>
#include <utility>

#include "base/host_clock.h"
#include "machine/machine.h"
#include "vcpu/interrupts.h"
#include "vcpu/reset.h"

namespace alibi::vmm {
namespace {

constexpr u64 kTurnNs = 1'000'000;
// The others' turn while one waits for an answer: at least what setting a timer and taking its
// signal are worth, and a few of the waiting one's looks.
constexpr u64 kShortestTurnNs = 15'000;
constexpr unsigned kLooksInTurn = 2;
// How long a turn has been before another VCPU's user code, which has stopped meanwhile, ends it;
// and before it leaves the thread's CPU.
constexpr u64 kShareNs = 200'000;

}  // namespace

// Each begins with the running one's block, which has what is the VMM's own in it.
void Machine::CreateParked(unsigned vcpus) {
  for (unsigned vcpu = 0; vcpu < vcpus && !beside_; ++vcpu) {
    auto state = std::make_unique<vcpu::VcpuState>(*state_);
    state->number = static_cast<u8>(vcpu);
    vcpu::ResetToPowerUp(*state, *cpuid_);
    parked_.push_back(std::move(state));
  }
  questions_.resize(vcpus);
  vcpu_counters_.resize(vcpus);
  detached_ns_.resize(vcpus);
  vcpu_counters_[0].turns = 1;
  turn_begin_ns_ = MonotonicNs();
}

VcpuCounters Machine::counters_of(unsigned vcpu) const {
  VcpuCounters counters = vcpu_counters_[vcpu];
  if (vcpu == running_) counters.turn_us += (MonotonicNs() - turn_begin_ns_) / 1000;
  return counters;
}

void Machine::ResetVcpus(i64 tsc_offset) {
  if (running_ != 0) SwitchTo(0);
  core_->init = contended_ = false;
  waiter_ = kNobody;
  for (Question& question : questions_) question = {};
  for (unsigned vcpu = 0; vcpu < vcpus(); ++vcpu) {
    vcpu::ResetToPowerUp(state(vcpu), *cpuid_);
    state(vcpu).tsc_offset = tsc_offset;
    if (!beside_) continue;
    cores_[vcpu]->init = false;
    cores_[vcpu]->engine->StateChanged();
  }
}

// Has it nothing to execute for now?
bool Machine::Waits(unsigned vcpu) {
  const vcpu::VcpuState& state = this->state(vcpu);
  if (IsDetached(vcpu)) {
    return !state.nmi_pending && !interrupts_.InterruptPendingFor(vcpu) &&
           !engine_->detached()->HasStopped(vcpu);
  }
  if (state.waits_for_startup) return true;
  if (!state.halted) return false;
  if (state.nmi_pending && vcpu::CanTakeNmi(state)) return false;
  return !vcpu::CanTakeInterrupt(state) || !interrupts_.InterruptPendingFor(vcpu);
}

// The running one if there is no other.
unsigned Machine::NextRunnable() {
  for (unsigned i = 1; i < vcpus(); ++i) {
    const unsigned vcpu = (running_ + i) % vcpus();
    if (!Waits(vcpu)) return vcpu;
  }
  return running_;
}

void Machine::TakeInit() {
  if (!std::exchange(core_->init, false)) return;
  DropDetached(running_);
  vcpu::ResetToInit(*state_, *cpuid_);
  engine_->StateChanged();
}

void Machine::ChooseVcpu() {
  if (state_->shutdown) return;  // the machine's end, before anybody else goes on
  TakeInit();
  const unsigned next = NextRunnable();
  contended_ = next != running_;
  // Its kernel mostly does not want the thread for long.
  const u64 now = contended_ ? MonotonicNs() : 0;
  const bool returns = contended_ && IsDetached(next) && now - turn_begin_ns_ >= kShareNs;
  // A debugger's single steps are those of the VCPU that has stopped.
  const bool over =
      Waits(running_) || (!engine_->steps_next() && (yields_ || returns || now >= turn_end_ns_));
  if (contended_ && over) {
    counters_.vcpu_yields += yields_;
    vcpu_counters_[running_].yields += yields_;
    vcpu_counters_[running_].halts += state_->halted;
    SwitchTo(next);
    contended_ = NextRunnable() != running_;
  }
  yields_ = false;
  if (runtime::DetachedCode* const detached = engine_->detached()) {
    if (detached->Is(running_) && !Waits(running_)) ReturnDetached();
    detached->Offer(contended_, /*never=*/debugger_ != nullptr);
    MakeRoom();
  }
  SetDeadline(deadline_ns_);
}

void Machine::MakeRoom() {
  runtime::DetachedCode& detached = *engine_->detached();
  if (IsDetached(running_) || Waits(running_) || !detached.IsCrowded()) {
    room_ns_ = kNoDeadline;
  } else if (const u64 now = MonotonicNs(); room_ns_ == kNoDeadline) {
    room_ns_ = now + kShareNs;
  } else if (now >= room_ns_) {
    detached.MakeRoom();
    room_ns_ = kNoDeadline;
  }
}

// The block is copied whole: what a VCPU is cannot be forgotten field by field.
void Machine::SwitchTo(unsigned vcpu) {
  ++counters_.vcpu_switches;
  const u64 now = MonotonicNs();
  hooks_.VcpuLeaves();
  const unsigned before = running_;
  *parked_[before] = *state_;
  *state_ = *parked_[vcpu];
  running_ = vcpu;
  // Other threads ask for stops in the block at any time; one that came just now shall be seen.
  __atomic_store_n(&state_->stop_requested, 1, __ATOMIC_SEQ_CST);
  engine_->VcpuSwitched(before, vcpu);
  if (observer_ != nullptr) engine_->DrainEvents();  // who watches knows whose accesses follow
  hooks_.VcpuEnters(vcpu);
  turn_end_ns_ = now + TurnNs(before, vcpu, now);
  yields_ = false;
  pauses_ = 0;
  vcpu_counters_[before].turn_us += (now - turn_begin_ns_) / 1000;
  ++vcpu_counters_[vcpu].turns;
  turn_begin_ns_ = now;
  if (IsDetached(vcpu)) ReturnDetached();
}

// The running one's.
void Machine::ReturnDetached() {
  engine_->detached()->Return();
  vcpu_counters_[running_].detached_us += (MonotonicNs() - detached_ns_[running_]) / 1000;
}

// How long the turn is that begins now. The waiting VCPU's looks become rarer, so that they take a
// small part of however long it waits.
u64 Machine::TurnNs(unsigned from, unsigned to, u64 now) {
  Question& question = questions_[from];
  if (!yields_) {
    question = {};
  } else if (question.asked) {
    const u64 look = std::min(now - turn_begin_ns_, kTurnNs);
    if (question.looks != 0) look_ns_ = look_ns_ == 0 ? look : (7 * look_ns_ + look) / 8;
    const u64 shortest = std::max(kShortestTurnNs, kLooksInTurn * look_ns_);
    short_turn_ns_ = std::min(kTurnNs, shortest << question.looks);
    if (short_turn_ns_ < kTurnNs) ++question.looks;
    waiter_ = from;
  }
  if (waiter_ == to) waiter_ = kNobody;
  // One that is woken answers and halts again, mostly: no timer is worth setting.
  if (waiter_ == kNobody || state_->halted) return kTurnNs;
  counters_.vcpu_short_turns += short_turn_ns_ < kTurnNs;
  return short_turn_ns_;
}

// The running VCPU's instruction has interrupted another one.
void Machine::NoteQuestion(unsigned vcpu) {
  if (core_->in_engine && vcpu != running_) questions_[running_] = {.asked = true};
}

void Machine::Select(unsigned vcpu) {
  if (vcpu == running_) return;
  TakeInit();
  SwitchTo(vcpu);
}

// Can nobody but detached code run? Then that is waited for, and the running one's turn stands
// still.
bool Machine::WaitForDetached() {
  runtime::DetachedCode* const detached = engine_->detached();
  if (detached == nullptr || !detached->Any()) return false;
  if (!detached->Is(running_) && !Waits(running_)) return false;
  timer().Resume();
  const u64 begin = MonotonicNs();
  detached->Wait();
  turn_begin_ns_ += MonotonicNs() - begin;
  timer().Disarm();
  return true;
}

// Between runs all states are precise.
void Machine::ReturnAll() {
  runtime::DetachedCode* const detached = engine_->detached();
  if (detached == nullptr || !detached->Any()) return;
  const unsigned running = running_;
  if (detached->Is(running)) ReturnDetached();
  for (unsigned vcpu = 0; vcpu < vcpus(); ++vcpu) {
    if (detached->Is(vcpu)) SwitchTo(vcpu);
  }
  if (running != running_) SwitchTo(running);
}

// All of them wait: the running one's turn stands still.
bool Machine::Sleep() {
  const u64 begin = vcpus() > 1 ? MonotonicNs() : 0;
  const bool woken = hooks_.Idle();
  if (vcpus() > 1) turn_begin_ns_ += MonotonicNs() - begin;
  return woken;
}

// A VCPU that does not run may have got a reason to: whose turn it is will be asked soon.
void Machine::NoticeWork(unsigned vcpu) {
  if (contended_ || vcpu == running_ || Waits(vcpu)) return;
  contended_ = true;
  RequestTurn();
}

void Machine::InterruptsChangedFor(unsigned vcpu) {
  NoteQuestion(vcpu);
  if (vcpu == running_) {
    InterruptsChanged();
  } else if (beside_) {
    InterruptBeside(vcpu);
  } else {
    NoticeWork(vcpu);
  }
}

void Machine::RaiseNmi(unsigned vcpu) {
  NoteQuestion(vcpu);
  if (state(vcpu).waits_for_startup) return;
  state(vcpu).nmi_pending = 1;
  if (vcpu == running_) {
    RequestTurn();
  } else if (beside_) {
    Kick(vcpu);
  } else {
    NoticeWork(vcpu);
  }
}

// To the running one it comes behind the instruction that has sent it.
void Machine::InitVcpu(unsigned vcpu) {
  if (vcpu == running_) {
    core_->init = true;
    RequestTurn();
  } else if (beside_) {
    InitBeside(vcpu);
  } else {
    DropDetached(vcpu);
    vcpu::ResetToInit(*parked_[vcpu], *cpuid_);
  }
}

void Machine::StartVcpu(unsigned vcpu, u8 vector) {
  if (beside_) return StartBeside(vcpu, vector);
  vcpu::StartUp(state(vcpu), vector);
  NoticeWork(vcpu);
}

}  // namespace alibi::vmm
