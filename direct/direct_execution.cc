// SPDX-License-Identifier: Apache-2.0
#include "direct/direct_execution.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/real_time.h"
#include "direct/code_length.h"
#include "direct/stop_watcher.h"
#include "direct/user_state.h"
#include "vcpu/exceptions.h"

namespace alibi::direct {
namespace {

// The fork server's jobs: the satellites by their places' numbers, and these.
constexpr unsigned kSetterJob = DirectExecution::kSatellites, kProbeJob = kSetterJob + 1;

// In TSC cycles: judging pages, setting breakpoints. What takes longer was waiting for a core.
constexpr u64 kMostHere = 1'000'000;

// User code that bounces between pages which run directly and pages which do not computes little
// each time: less than a stop takes more where caches are cold, or the host is being profiled, than
// when it was measured. Such a stop counts for so many more, lest bouncing seem to pay.
constexpr u64 kRefusedStop = 3;

constexpr u64 kVsyscallPage = 0xffffffffff600000;

// A repeated string instruction?
bool Repeats(std::span<const u8> code, unsigned code_bits) {
  bool repeated = false;
  for (const u8 byte : code) {
    repeated |= byte == 0xf2 || byte == 0xf3;
    if (IsPrefix(byte, code_bits)) continue;
    return repeated && ((byte & 0xfc) == 0xa4 || (byte >= 0xaa && byte <= 0xaf));
  }
  return false;
}

// In front of the satellites, which have the priority that this thread had: on one CPU it would
// wait for as long as Linux lets one of several of the same priority run, 100 ms, with each timer.
void RaisePriority() {
  sched_param param{};
  if (sched_getparam(0, &param) != 0) return;
  ++param.sched_priority;
  sched_setparam(0, &param);
}

}  // namespace

Result<std::unique_ptr<DirectExecution>> DirectExecution::Create(const Options& options) {
  std::unique_ptr<DirectExecution> direct(new DirectExecution(options));
  if (Status status = direct->Init(options); !status.ok()) return status.error();
  return direct;
}

DirectExecution::DirectExecution(const Options& options)
    : mmu_(*options.mmu),
      state_(*options.state),
      host_(DetectHostTraits()),
      shown_(options.shown),
      code_pages_(*options.mmu, counters_, options.known_starts),
      trap_price_(options.trap_price),
      gate_(options.gate),
      remaps_(options.remaps) {}

DirectExecution::~DirectExecution() {
  watcher_.reset();
  for (Place& place : places_) {
    if (place.view != nullptr) place.view->RemoveFollower(place.pages.get());
  }
}

Status DirectExecution::Init(const Options& options) {
  if (Status status = code_pages_.Init(); !status.ok()) return status;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Error{std::string("direct execution: no pipe: ") + std::strerror(errno)};
  }
  setup_.watch_read.Reset(ends[0]);
  setup_.watch_write.Reset(ends[1]);
  real_time_ = IsRealTime();
  if (options.vcpus > 1) {
    if (Status status = InitDetaching(options); !status.ok()) return status;
  }
  setup_.memory_fd = options.mmu->memory().fd();
  setup_.trapping_cpuid = host_.cpuid_traps;
  setup_.trapping_tsc = host_.tsc_traps;
  setter_ = BreakpointSetter::Prepare(kSetterJob);
  if (setter_ != nullptr) setup_.debugger_job = kSetterJob;
  std::vector<ForkServer::Job> jobs;
  for (Place& place : places_) {
    place.direct = this;
    auto satellite = Satellite::Prepare(setup_);
    if (!satellite.ok()) return satellite.error();
    place.satellite = std::move(*satellite);
    jobs.push_back(place.satellite->job());
  }
  std::vector<int> shared = {setup_.memory_fd, setup_.watch_read.get()};
  if (setter_ != nullptr) {
    jobs.push_back(setter_->job());
    jobs.push_back(setter_->probe_job());
    shared.push_back(setter_->notes_fd());
  }
  auto server = ForkServer::Start(jobs, shared, setter_ != nullptr ? setter_->notes_fd() : -1);
  if (!server.ok()) return server.error();
  server_ = std::move(*server);
  for (unsigned i = std::max(options.satellites, 1u); i < kSatellites; ++i) {
    places_[i].satellite.reset();
  }
  if (real_time_) RaisePriority();
  return Ok{};
}

Status DirectExecution::Begin() {
  if (begun_) return *begun_;
  // Linux wakes a thread under a real-time policy on another CPU if such a thread runs on its own:
  // at each stop it and the satellite would part, and both CPUs would have to be woken in turn.
  if (real_time_) StayOnCpu(sched_getcpu());
  // Satellites name their debugger when they begin.
  if (setter_ != nullptr && !setter_->Start(*server_, kProbeJob)) setter_.reset();
  begun_ = Start(&places_[0]);
  if (begun_->ok()) {
    MeasurePrices();
  } else {
    for (Place& place : places_) place.satellite.reset();
  }
  return *begun_;
}

Status DirectExecution::Start(Place* place) {
  place->pages = mmu::FollowedPages::Create();
  if (place->pages == nullptr) return Error{"direct execution: out of host memory"};
  return place->satellite->Start(*server_, NumberOf(*place));
}

void DirectExecution::MeasurePrices() {
  constexpr unsigned kSamples = 9, kCalls = 16;
  const auto median = [&](auto operation) {
    u64 samples[kSamples];
    for (u64& sample : samples) {
      const u64 begin = __rdtsc();
      operation();
      sample = __rdtsc() - begin;
    }
    std::sort(samples, samples + kSamples);
    return samples[kSamples / 2];
  };
  Satellite& satellite = *places_[0].satellite;
  const u64 before = cpu_times_.CyclesOf(satellite.process());
  const u64 hand_over = median([&] { satellite.Go(false); });
  const u64 cpu_time = cpu_times_.CyclesOf(satellite.process()) - before;
  const u64 with_calls = median([&] {
    for (unsigned i = 0; i < kCalls; ++i) {
      const LinearAddr address(satellite.stub_begin() - (2 * i + 2) * kPageSize);
      satellite.OrderMap(address, kPageSize, 0, true, false);
    }
    satellite.Go(false);
  });
  prices_.stop = hand_over + trap_price_;
  stop_cpu_time_ = cpu_time / kSamples + trap_price_;
  prices_.call = (std::max(with_calls, hand_over) - hand_over) / kCalls;
  satellite.OrderUnmapAll();
  satellite.Go(false);
}

bool DirectExecution::HasLostAll(const mmu::View& view) {
  bool any = false;
  for (Place& place : places_) {
    if (place.view != &view) continue;
    const bool lost = place.pages->all_changed() ||
                      (place.pages->count() == 0 && place.pages->changed_count() != 0);
    any |= lost && std::exchange(place.has_run, false);
  }
  return any;
}

bool DirectExecution::Fits() const {
  return std::any_of(std::begin(places_), std::end(places_),
                     [](const Place& place) { return place.satellite != nullptr; }) &&
         CanRunDirectly(state_, mmu_, host_);
}

void DirectExecution::Interrupt() {
  if (Satellite* const satellite = running_.load(std::memory_order_acquire)) satellite->Interrupt();
  if (waits_.load(std::memory_order_acquire)) eventfd_write(wake_.get(), 1);
}

// The view's, or one that was never used, or the one that was used longest ago.
DirectExecution::Place* DirectExecution::PlaceOf(mmu::View& view) {
  Place* best = nullptr;
  for (Place& place : places_) {
    if (place.satellite == nullptr || place.vcpu != kNobody) continue;
    if (place.view == &view) {
      best = &place;
      break;
    }
    if (best == nullptr || place.last_used < best->last_used) best = &place;
  }
  if (best == nullptr) return nullptr;
  best->last_used = ++clock_;
  if (best->view == &view) return best;
  if (!best->satellite->started() && !Start(best).ok()) {
    // The host has had enough of them.
    best->satellite.reset();
    return PlaceOf(view);
  }
  if (best->view != nullptr) best->view->RemoveFollower(best->pages.get());
  best->pages->ChangedAll();
  best->guards.Forget();
  (void)Settle(best);
  best->has_run = false;
  best->view = &view;
  view.AddFollower(best->pages.get());
  return best;
}

void DirectExecution::Lose(Place* place) {
  ++counters_.direct_losses;
  place->view->RemoveFollower(place->pages.get());
  place->view = nullptr;
  place->satellite.reset();
}

void DirectExecution::ForgetPages() {
  for (Place& place : places_) {
    if (place.pages != nullptr) place.pages->ChangedAll();
  }
}

// A guest could map something where the stub lies: its user code would find the stub there.
bool DirectExecution::GuestUsesStub(const Satellite& satellite) const {
  PhysAddr page;
  for (LinearAddr at = satellite.stub_begin(); at < satellite.stub_end(); at += kPageSize) {
    if (mmu_.DebugTranslate(at, &page)) return true;
  }
  return false;
}

// What the guest may use has changed: so have all verdicts.
void DirectExecution::RenewJudge() {
  // Of several VCPUs' the rest may differ.
  const u64 cr4 = state_.cr4 & kJudgedCr4, efer = state_.efer & vcpu::kEferLma;
  if (judge_ != nullptr && judged_cr4_ == cr4 && judged_xcr0_ == state_.xcr0 &&
      judged_efer_ == efer) {
    return;
  }
  if (judge_ != nullptr) {
    ForgetPages();
    code_pages_.ForgetAll();
  }
  GuestTraits guest = GuestTraitsOf(shown_, cr4, state_.xcr0);
  guest.same_selectors = efer != 0;
  judge_ = std::make_unique<CodeJudge>(host_, guest);
  judged_cr4_ = cr4;
  judged_xcr0_ = state_.xcr0;
  judged_efer_ = efer;
}

Exit DirectExecution::Run(Report* report) {
  RenewJudge();
  Place* const place = PlaceOf(mmu_.current_view());
  if (place == nullptr) return Exit::kCode;
  // Without long mode the guest has no such addresses.
  if (state_.LongModeActive() && GuestUsesStub(*place->satellite)) return Exit::kCode;
  if (std::exchange(place->code_bits, state_.CodeBits()) != state_.CodeBits()) {
    place->pages->ChangedAll();
  }
  if (remaps_) place->pages->ChangedAll();
  const Mapped ahead = MapAhead(place, LinearAddr(state_.rip));
  if (ahead == Mapped::kRefused) {
    ++counters_.direct_refusals;
    return Exit::kRefused;
  }
  if (ahead == Mapped::kFault) return Fault();
  ++counters_.direct_entries;
  place->has_run = true;
  place->holds_state = false;
  LoadUserState(state_, place->satellite.get());
  const u64 begin = __rdtsc();
  u64 in_satellite = 0;
  const Exit exit = Go(place, &in_satellite);
  counters_.direct_cycles += in_satellite;
  place->refused += exit == Exit::kCode;
  place->here += std::min<u64>(__rdtsc() - begin - in_satellite, kMostHere);
  if (place->ran.stops >= kStopsPerReport && exit != Exit::kLost) *report = Settle(place);
  return exit;
}

// What there is to be reported, which is then no more.
Report DirectExecution::Settle(Place* place) {
  Report report = std::exchange(place->ran, {});
  const u64 here = std::exchange(place->here, 0);
  const u64 now = cpu_times_.CyclesOf(place->satellite->process());
  const u64 cpu_time = now - std::exchange(place->cpu_time, now);
  const u64 calls = report.calls * prices_.call;
  const u64 refused = std::exchange(place->refused, 0);
  const u64 own = (report.stops + refused * kRefusedStop) * stop_cpu_time_ + calls;
  const u64 user = cpu_time - std::min(own, cpu_time);
  counters_.direct_user_cycles += user;
  report.cycles = user + report.stops * prices_.stop + calls;
  report.cycles -= std::min(here, report.cycles);
  return report;
}

// The host gives no more mappings. Without any there is room for those that are wanted now.
bool DirectExecution::GivesUpMappings(Place* place) {
  place->pages->ChangedAll();
  place->pages->ForgetChanged();
  ++counters_.direct_flushes;
  place->satellite->OrderUnmapAll();
  return place->satellite->Go(false) == Satellite::Stop::kSignal;
}

// Before user code runs: breakpoints where they are wanted. False: the satellite is lost.
bool DirectExecution::SetGuards(Place* place) {
  if (setter_ == nullptr || !place->guards.changed()) return true;
  place->guards.Set();
  ++counters_.direct_guard_sets;
  if (setter_->Set(NumberOf(*place), place->guards.places())) return place->satellite->StopAgain();
  // It has gone, and what relies on it must go, too.
  setter_.reset();
  ForgetPages();
  FlushChanged(place);
  return true;
}

// Until user code has run, the satellite knows of parts of the state what the last program left.
Exit DirectExecution::Leave(Place* place, Exit exit) {
  if (place->holds_state) SaveUserState(*place->satellite, &state_, &mmu_);
  return exit;
}

Exit DirectExecution::Go(Place* place, u64* in_satellite) {
  Satellite& satellite = *place->satellite;
  const bool alone = watcher_ == nullptr;
  for (;;) {
    FlushChanged(place);
    if (!SetGuards(place)) {
      Lose(place);
      return Exit::kLost;
    }
    place->ran.calls += satellite.orders();
    if (alone) running_.store(&satellite, std::memory_order_seq_cst);
    waits_.store(!alone, std::memory_order_seq_cst);
    if (gate_ != nullptr) gate_->EnterGuest();
    // Whoever has requested it earlier has found nobody to interrupt.
    const bool go = __atomic_load_n(&state_.stop_requested, __ATOMIC_SEQ_CST) == 0;
    std::optional<Satellite::Stop> stop;
    if (go) {
      const u64 begin = __rdtsc();
      stop = alone ? satellite.LaunchHere(/*run=*/true) : LaunchBeside(place);
      if (!stop && (alone || StopsHere(place))) {
        stop = satellite.Land();
        if (!alone) NoteStop(place);
      }
      *in_satellite += __rdtsc() - begin;
    }
    if (gate_ != nullptr) gate_->LeaveGuest();
    running_.store(nullptr, std::memory_order_seq_cst);
    waits_.store(false, std::memory_order_seq_cst);
    if (!go) return Leave(place, Exit::kStopped);
    if (!stop) {
      Detach(place);
      return Exit::kDetached;
    }
    if (const auto exit = AfterStop(place, *stop)) return *exit;
    satellite.SetAsStopped();
  }
}

// False: the satellite is lost.
bool DirectExecution::Survives(Place* place, Satellite::Stop stop) {
  if (stop == Satellite::Stop::kSignal ||
      (stop == Satellite::Stop::kOrders && GivesUpMappings(place))) {
    return true;
  }
  Lose(place);
  return false;
}

// What is to be done about the stop; nothing: a mapping was missing, and has been ordered.
std::optional<Exit> DirectExecution::AfterStop(Place* place, Satellite::Stop stop) {
  ++counters_.direct_stops;
  ++place->ran.stops;
  if (!Survives(place, stop)) return Exit::kLost;
  if (stop == Satellite::Stop::kOrders) return Leave(place, Exit::kStopped);
  place->holds_state = true;
  const SignalFrame& frame = place->satellite->frame();
  if (frame.signal == SIGSEGV && frame.vector == vcpu::kPageFault) {
    // Behind a far branch that the judge has not seen, its pages are not these. Nor are they where
    // its view has come to somebody else meanwhile.
    if (CodeBitsOf(frame) != place->code_bits || place->view != &mmu_.current_view()) {
      return Leave(place, Exit::kStopped);
    }
    const LinearAddr address(frame.cr2);
    const Mapped mapped = Map(place, address, frame.error_code);
    if (mapped == Mapped::kYes) {
      ++counters_.direct_faults;
      ++place->ran.faults;
      return std::nullopt;
    }
    if (mapped == Mapped::kRefused) {
      ++counters_.direct_refusals;
      return Leave(place, Exit::kCode);
    }
    place->fault = address;
    if (mapped == Mapped::kFault) return Leave(place, Fault());
  }
  SaveUserState(*place->satellite, &state_, &mmu_);
  return Classify(place);
}

// The kernel has put the function's number into RAX, whose value is lost. As a rule it was the
// address that was called: CALL RAX.
void DirectExecution::RestoreVsyscallRax() {
  constexpr u8 kCallRax[] = {0xff, 0xd0};
  u64 back = 0;
  u8 caller[2] = {};
  if (mmu_.DebugRead(LinearAddr(state_.gpr[vcpu::kRsp]), &back, 8) == 8 &&
      mmu_.DebugRead(LinearAddr(back - 2), caller, 2) == 2 &&
      std::equal(caller, caller + 2, kCallRax)) {
    state_.gpr[vcpu::kRax] = state_.rip;
  }
}

// What the state is in front of, or behind.
Exit DirectExecution::Classify(Place* place) {
  const SignalFrame& frame = place->satellite->frame();
  const bool wide = state_.In64BitCode();
  const auto back = [&](unsigned bytes) {
    return wide ? state_.rip - bytes : static_cast<u32>(state_.rip - bytes);
  };
  // The page before may not be there.
  u8 before[2] = {};
  for (unsigned i = 0; i < 2; ++i) {
    (void)mmu_.DebugRead(LinearAddr(back(2 - i)), &before[i], 1);
  }
  const bool system_call =
      wide ? before[0] == 0x0f && before[1] == 0x05 : before[0] == 0xcd && before[1] == 0x80;
  switch (frame.signal) {
    case SIGILL:
      // System calls for the kernel's own probes, which no filter sees since Linux 6.14. RAX has
      // been overwritten; of the two numbers, neither is a call of the guest's.
      if (wide && frame.signal_code == SI_KERNEL && system_call &&
          state_.gpr[vcpu::kRax] == ~u64{0}) {
        constexpr u64 kUretprobe = 335;
        state_.gpr[vcpu::kRax] = kUretprobe;
        state_.rip = back(2);
        return Exit::kSystemCall;
      }
      break;
    case SIGFPE:
      // Executed again it might fault on its operand first.
      if (frame.vector == vcpu::kX87Error && (state_.cr0 & vcpu::kCr0Ne)) {
        guest_fault_ = vcpu::GuestFault::Simple(vcpu::kX87Error);
        return Fault();
      }
      break;
    case SIGSYS:
      if (wide && frame.signal_address >> 12 == kVsyscallPage >> 12) {
        // The kernel has returned for the function there, which it has not executed.
        state_.rip = frame.signal_address;
        state_.gpr[vcpu::kRsp] -= 8;
        RestoreVsyscallRax();
        break;
      }
      state_.rip = back(2);
      if (system_call) {
        ++counters_.direct_system_calls;
        return Exit::kSystemCall;
      }
      break;
    case SIGTRAP:
      if (frame.signal_code == TRAP_HWBKPT) {
        ++counters_.direct_guard_hits;
        const u64 index = mmu::EntryIndex(LinearAddr(state_.rip));
        if (place->guards.Hit(index)) place->pages->Changed(index);
      } else if (frame.vector == vcpu::kBreakpoint) {
        state_.rip = back(before[1] == 0xcc ? 1 : 2);
      } else if (state_.system_flags & vcpu::kTf) {
        // POPF has set it, for the instruction behind it. If that has more iterations to come,
        // the translator says so by RF (SDM vol. 3, 18.3.1.1); not every CPU does.
        constexpr u8 kPopf = 0x9d;
        u8 code[15] = {};
        const unsigned known = mmu_.DebugRead(LinearAddr(state_.rip), code, sizeof(code));
        const bool more = before[1] == kPopf && Repeats({code, known}, state_.CodeBits());
        state_.system_flags &= ~static_cast<u32>(vcpu::kRf);
        if (more) state_.system_flags |= static_cast<u32>(vcpu::kRf);
        return Exit::kTrap;
      } else if (!host_.int1_faults) {
        state_.rip = back(1);
      }
      break;
    case SIGSEGV:
      if (frame.vector == vcpu::kOverflow) state_.rip = back(before[1] == 0xce ? 1 : 2);
      break;
    default:
      if (static_cast<int>(frame.signal) == Satellite::StopSignal()) {
        ++counters_.direct_interrupts;
        return Exit::kStopped;
      }
      break;
  }
  ++counters_.direct_instructions;
  return Exit::kInstruction;
}

}  // namespace alibi::direct
