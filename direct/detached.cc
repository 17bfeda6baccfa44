// SPDX-License-Identifier: Apache-2.0
// User code that goes on in its satellite while the thread runs other VCPUs.
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/host_clock.h"
#include "base/host_cpus.h"
#include "direct/direct_execution.h"
#include "direct/stop_watcher.h"

namespace alibi::direct {
namespace {

// User code that has computed for so long while another VCPU waits for the thread is detached, or
// at once if it did so when it ran last. Less is mostly the way to a system call, behind which the
// thread would be wanted again.
constexpr i64 kPatienceNs = 100'000;
// Satellites share a CPU for so long before one moves: a stop on another CPU takes several times as
// long.
constexpr u64 kShareNs = 200'000;
constexpr i64 kForever = -1;

}  // namespace

Status DirectExecution::InitDetaching(const Options& options) {
  cpus_ = AllowedCpus();
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_.get() < 0) return Error{std::string("direct execution: ") + std::strerror(errno)};
  auto watcher = StopWatcher::Create(options.stopped);
  if (!watcher.ok()) return watcher.error();
  watcher_ = std::move(*watcher);
  return Ok{};
}

DirectExecution::Place* DirectExecution::DetachedPlace(unsigned vcpu) {
  return std::find_if(std::begin(places_), std::end(places_),
                      [&](const Place& place) { return place.vcpu == vcpu; });
}

// Waits until a satellite that runs has stopped, be it the place's or a detached one, or somebody
// has called Interrupt().
DirectExecution::Awaited DirectExecution::Poll(const Place* place, i64 timeout_ns) {
  pollfd polled[kSatellites + 2];
  unsigned count = 0;
  polled[count++] = {wake_.get(), POLLIN, 0};
  for (const Place& other : places_) {
    if (&other == place || (other.vcpu != kNobody && !other.landed)) {
      polled[count++] = {other.satellite->stop_fd(), POLLIN, 0};
      // The first of them, to be found again.
      if (&other == place) std::swap(polled[1], polled[count - 1]);
    }
  }
  timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  const int ready = ppoll(polled, count, timeout_ns < 0 ? nullptr : &timeout, nullptr);
  if (ready == 0) return Awaited::kTime;
  if (ready < 0) return Awaited::kOther;  // a signal: its handler may have called Interrupt()
  if (polled[0].revents != 0) {
    eventfd_t wakes;
    eventfd_read(wake_.get(), &wakes);
  }
  return place != nullptr && Satellite::IsStop(polled[1].revents) ? Awaited::kIt : Awaited::kOther;
}

// The satellite has been launched. False: it is to be detached.
bool DirectExecution::StopsHere(Place* place) {
  for (;;) {
    const i64 patience = place->computes ? 0 : kPatienceNs;
    const i64 timeout = detaching_ == Detaching::kSoon ? patience : PatienceWith(1);
    switch (Poll(place, timeout)) {
      case Awaited::kIt:
        return true;
      case Awaited::kOther:
        if (detaching_ != Detaching::kNever) return false;
        if (__atomic_load_n(&state_.stop_requested, __ATOMIC_SEQ_CST) != 0) {
          place->satellite->Interrupt();
          return true;
        }
        break;
      case Awaited::kTime:
        if (detaching_ == Detaching::kSoon) return false;
        MakeRoomFor(1, 0);
        if (AnyLanded()) return false;
        break;
    }
  }
}

void DirectExecution::Detach(Place* place) {
  ++counters_.direct_detachments;
  place->vcpu = state_.number;
  place->landed.reset();
  place->pages->set_user(place);
  detached_ |= u32{1} << place->vcpu;
}

// Stops it, if it is detached and runs.
void DirectExecution::Halt(Place* place) {
  if (place->vcpu == kNobody || place->landed) return;
  place->pages->set_user(nullptr);
  if (!place->satellite->HasStopped()) place->satellite->Interrupt();
  place->landed = place->satellite->Land();
  NoteStop(place);
  // It is to have a turn.
  __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
}

bool DirectExecution::AnyLanded() const {
  return std::any_of(std::begin(places_), std::end(places_),
                     [](const Place& place) { return place.landed.has_value(); });
}

bool DirectExecution::HasStopped(unsigned vcpu) {
  const Place& place = *DetachedPlace(vcpu);
  return place.landed || place.satellite->HasStopped();
}

// It is not detached any more. How it has stopped.
Satellite::Stop DirectExecution::Reattach(Place* place) {
  Halt(place);
  detached_ &= ~(u32{1} << std::exchange(place->vcpu, kNobody));
  return *std::exchange(place->landed, std::nullopt);
}

Exit DirectExecution::Return(Report* report) {
  Place* const place = DetachedPlace(state_.number);
  const std::optional<Exit> exit = AfterStop(place, Reattach(place));
  if (!exit) return Leave(place, Exit::kStopped);
  place->refused += *exit == Exit::kCode;
  // Of another view's runs the caller could not say whose they were.
  if (place->ran.stops >= kStopsPerReport && *exit != Exit::kLost &&
      place->view == &mmu_.current_view()) {
    *report = Settle(place);
  }
  return *exit;
}

void DirectExecution::Drop(unsigned vcpu) {
  if (!IsDetached(vcpu)) return;
  Place* const place = DetachedPlace(vcpu);
  (void)Survives(place, Reattach(place));
}

void DirectExecution::WaitForStops() {
  waits_.store(true, std::memory_order_seq_cst);
  while (!AnyLanded() && __atomic_load_n(&state_.stop_requested, __ATOMIC_SEQ_CST) == 0) {
    if (Poll(nullptr, PatienceWith(0)) == Awaited::kOther) break;
    MakeRoomFor(0, 0);
  }
  waits_.store(false, std::memory_order_seq_cst);
}

void DirectExecution::TellOfStops() {
  if (detached_ == 0) return;
  for (Place& place : places_) {
    if (place.vcpu == kNobody || place.landed || std::exchange(place.watched, true)) continue;
    watcher_->Watch(place.satellite->stop_fd());
  }
}

// How many detached ones that run on this CPU, and `others`, which are not detached, are more than
// its share?
unsigned DirectExecution::TooManyHere(unsigned others) const {
  const unsigned cpus = static_cast<unsigned>(CPU_COUNT(&cpus_));
  if (cpus < 2) return 0;
  const int cpu = sched_getcpu();
  unsigned all = others, here = others;
  for (const Place& place : places_) {
    if (place.vcpu == kNobody || place.landed) continue;
    ++all;
    here += place.satellite->cpu() == cpu;
  }
  return here - std::min(here, (all + cpus - 1) / cpus);
}

bool DirectExecution::IsCrowded() const { return detached_ != 0 && TooManyHere(1) != 0; }

// How long a wait may last before some must leave.
i64 DirectExecution::PatienceWith(unsigned others) const {
  return TooManyHere(others) != 0 ? i64{kShareNs} : kForever;
}

void DirectExecution::MakeRoom() { MakeRoomFor(1, 0); }

// Detached ones that have run for so long leave the thread's CPU as long as there are too many.
void DirectExecution::MakeRoomFor(unsigned others, u64 least_ns) {
  unsigned leave = TooManyHere(others);
  for (Place& place : places_) {
    if (leave == 0) return;
    if (place.vcpu == kNobody || place.landed || place.satellite->cpu() != sched_getcpu() ||
        MonotonicNs() - place.launched_ns < least_ns) {
      continue;
    }
    MoveAway(&place);
    --leave;
  }
}

// Two on one CPU wait for each other for as long as Linux lets one of them run, and whoever stops
// one waits with it. One that computes goes elsewhere, or stays there; one that stops often has the
// thread's CPU, which others that compute must leave.
std::optional<Satellite::Stop> DirectExecution::LaunchBeside(Place* place) {
  bool here = TooManyHere(1) == 0;
  if (!here && !place->computes) {
    MakeRoomFor(1, kShareNs);
    here = true;
  }
  place->launched_ns = MonotonicNs();
  place->watched = false;
  Satellite& satellite = *place->satellite;
  return here ? satellite.LaunchHere(/*run=*/true) : satellite.LaunchOn(Elsewhere());
}

void DirectExecution::NoteStop(Place* place) {
  place->computes = MonotonicNs() - place->launched_ns >= kShareNs;
}

cpu_set_t DirectExecution::Elsewhere() const {
  cpu_set_t elsewhere = cpus_;
  CPU_CLR(sched_getcpu(), &elsewhere);
  return elsewhere;
}

// By the satellite's own call: it is stopped for that.
void DirectExecution::MoveAway(Place* place) {
  ++counters_.direct_moves;
  Satellite& satellite = *place->satellite;
  satellite.Interrupt();
  std::optional<Satellite::Stop> stop = satellite.Land();
  if (stop == Satellite::Stop::kSignal &&
      static_cast<int>(satellite.frame().signal) == Satellite::StopSignal()) {
    place->holds_state = true;
    place->watched = false;
    satellite.SetAsStopped();
    stop = satellite.LaunchOn(Elsewhere());
    if (!stop) return;
  }
  place->pages->set_user(nullptr);
  place->landed = stop;
}

}  // namespace alibi::direct
