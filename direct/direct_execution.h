// SPDX-License-Identifier: Apache-2.0
// Direct execution: runs a guest's user code on the bare CPU, in satellites that map guest pages as
// the user views of the address spaces say.
//
// A view that runs directly has a satellite of its own, as long as no other view wants it. What the
// satellite traps on is resolved here if a mapping is all that is missing; everything else is the
// translator's: it finds the state precisely in front of the instruction.
//
// With several VCPUs user code of one is *detached* where others have something to do: it goes on
// in its satellite while the thread runs them. Its registers are there until Return(). A page that
// it has mapped changes only after it has been stopped.
#ifndef ALIBI_DIRECT_DIRECT_EXECUTION_H_
#define ALIBI_DIRECT_DIRECT_EXECUTION_H_

#include <sched.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "adapt/engine_policy.h"
#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/simd_guard.h"
#include "base/types.h"
#include "direct/breakpoint_setter.h"
#include "direct/code_judge.h"
#include "direct/code_pages.h"
#include "direct/counters.h"
#include "direct/cpu_time.h"
#include "direct/fork_server.h"
#include "direct/guards.h"
#include "direct/satellite.h"
#include "mmu/followed_pages.h"
#include "mmu/mmu.h"
#include "vcpu/fault.h"
#include "vcpu/guest_gate.h"
#include "vcpu/state.h"

namespace alibi::direct {

class StopWatcher;

// Why user code does not go on directly.
enum class Exit : u8 {
  kStopped,      // Interrupt(), or a stop was requested
  kSystemCall,   // in front of a SYSCALL
  kInstruction,  // in front of an instruction that the host has not executed, or must not
  kCode,         // in front of code that must be translated
  kRefused,      // the same, and it has not run at all
  kTrap,         // behind an instruction that was single-stepped: #DB
  kFault,        // in front of an instruction that raises guest_fault()
  kLost,         // the satellite has died, and with it what it has done to the registers
  kDetached,     // it does go on, and the state is where it does
};

// What runs have cost and what they were good for, in TSC cycles.
struct Report {
  // The CPU time of the user code; with hand-overs and mapping calls at their prices, less what was
  // done for it here between its stops.
  u64 cycles = 0;
  u32 stops = 0;   // of the satellite
  u32 faults = 0;  // of these: for a mapping
  u32 calls = 0;   // mapping calls
};

class DirectExecution {
 public:
  static constexpr unsigned kSatellites = 8;  // at most
  // From which on a report is made: CPU time costs a tenth of a stop to ask for.
  static constexpr u32 kStopsPerReport = 8;

  struct Options {
    mmu::Mmu* mmu = nullptr;
    vcpu::VcpuState* state = nullptr;
    isa::FeatureSet shown;              // what the guest's CPUID shows
    u64 trap_price = 0;                 // TSC cycles of a signal and the return from its handler
    unsigned vcpus = 1;                 // that take turns in `state`
    unsigned satellites = kSatellites;  // at most; at least 1
    // For experiments: each run begins without a page that is mapped.
    bool remaps = false;
    // Of instructions that have been translated.
    CodePages::KnownStarts known_starts;
    std::function<void()> stopped;  // see TellOfStops(), where there are several
    // Not null: user code is guest code that other VCPUs execute theirs beside.
    vcpu::GuestGate* gate = nullptr;
  };
  // Forks a process that forks the others when they are wanted (direct/fork_server.h). An error
  // says in a line what this host lacks.
  static Result<std::unique_ptr<DirectExecution>> Create(const Options& options);
  ~DirectExecution();

  // Starts a satellite, if there is none, to see whether it works and what it costs, which takes
  // some milliseconds. Nothing runs directly, and prices() are 0, before that. On the thread that
  // runs the VCPU: if its policy is a real-time one, it stays on its CPU from now on. An error says
  // in a line what this host lacks; it is the same when asked again.
  Status Begin();

  // The view has run directly, and nothing of what its satellite had mapped then is there any more.
  // Said once of each loss.
  bool HasLostAll(const mmu::View& view);
  // May the state, which is the current view's, run directly? Nothing may if there are no
  // satellites, or all have been lost.
  bool Fits() const;
  // Runs user code of the current view until something else must be done. The state is precise on
  // return, extended state included. Once in a while the report is not empty: on all of the view's
  // runs since the last one.
  Exit Run(Report* report);
  // For handlers on the VCPU's thread.
  void Interrupt();

  // --- Several VCPUs; by VcpuState::number. (detached.cc) ---
  // Shall user code that computes be detached soon? Where nobody waits for the thread it need not
  // be, and with `never` Run() never returns kDetached.
  enum class Detaching : u8 { kSoon, kIfWoken, kNever };
  void set_detaching(Detaching detaching) { detaching_ = detaching; }
  bool IsDetached(unsigned vcpu) const { return detached_ >> vcpu & 1; }
  bool AnyDetached() const { return detached_ != 0; }
  // Has it stopped, so that Return() does not have to interrupt it?
  bool HasStopped(unsigned vcpu);
  // The VCPU in the state, which is detached, is no more. As Run().
  Exit Return(Report* report);
  // What it does is lost.
  void Drop(unsigned vcpu);
  // Until one has stopped, or Interrupt(). Returns at once where a stop is requested.
  void WaitForStops();
  // The thread turns to something else: Options::stopped is called on another one when one of them
  // stops, once for each that runs now.
  void TellOfStops();
  // None that is detached runs any more: the caller is alone with the guest's memory. Vector
  // registers stay as they are.
  void StopAll();
  // Are there more on this CPU than the others have, counting the thread itself?
  bool IsCrowded() const;
  // Those go elsewhere.
  void MakeRoom();

  // A page under kDirectTrace was written to. For general registers only.
  void CodeWritten(u64 arena_offset) { code_pages_.Written(arena_offset); }

  // Of the last exit, if it was kFault.
  const vcpu::GuestFault& guest_fault() const { return guest_fault_; }

  const adapt::EnginePrices& prices() const { return prices_; }
  const Counters& counters() const { return counters_; }

 private:
  // A satellite and the view that it follows.
  struct Place final : mmu::FollowedPages::User {
    void StopUsing() override;  // halt.cc

    DirectExecution* direct = nullptr;
    std::unique_ptr<Satellite> satellite;  // null: lost, or there can be none
    std::unique_ptr<mmu::FollowedPages> pages;
    Guards guards;
    mmu::View* view = nullptr;
    Report ran;               // since the last report, but for its cycles
    u32 refused = 0;          // runs since then that ended in front of code to be translated
    u64 here = 0;             // cycles spent between its stops since then
    u64 cpu_time = 0;         // of the satellite, up to then
    bool has_run = false;     // since it lost all
    unsigned code_bits = 64;  // of the code that it runs: its pages were judged for that
    LinearAddr fault;         // that the guest has to resolve; 0: none
    u64 last_used = 0;
    unsigned vcpu = kNobody;  // whose user code is detached here
    u64 launched_ns = 0;      // by CLOCK_MONOTONIC
    bool watched = false;     // since then, for its stop
    bool computes = false;    // its last run was not a short way to a stop
    // Of what is detached: it has been stopped, in this way.
    std::optional<Satellite::Stop> landed;
    // It has run since its registers came here; what the frame lacks is as user code has left it.
    bool holds_state = false;
  };
  static constexpr unsigned kNobody = ~0u;

  explicit DirectExecution(const Options& options);
  Status Init(const Options& options);
  void MeasurePrices();
  unsigned NumberOf(const Place& place) const { return static_cast<unsigned>(&place - places_); }
  Status Start(Place* place);
  Place* PlaceOf(mmu::View& view);
  void ForgetPages();
  void Lose(Place* place);
  void RenewJudge();
  Exit Go(Place* place, u64* in_satellite);
  Exit Leave(Place* place, Exit exit);
  bool Survives(Place* place, Satellite::Stop stop);
  std::optional<Exit> AfterStop(Place* place, Satellite::Stop stop);
  Report Settle(Place* place);
  bool GivesUpMappings(Place* place);
  bool SetGuards(Place* place);
  bool GuestUsesStub(const Satellite& satellite) const;
  void RestoreVsyscallRax();

  // --- detached.cc ---
  Status InitDetaching(const Options& options);
  Place* DetachedPlace(unsigned vcpu);
  enum class Awaited : u8 { kIt, kOther, kTime };
  Awaited Poll(const Place* place, i64 timeout_ns);
  bool StopsHere(Place* place);
  void Detach(Place* place);
  void Halt(Place* place);
  Satellite::Stop Reattach(Place* place);
  void MoveAway(Place* place);
  bool AnyLanded() const;
  cpu_set_t Elsewhere() const;
  unsigned TooManyHere(unsigned others) const;
  i64 PatienceWith(unsigned others) const;
  void MakeRoomFor(unsigned others, u64 least_ns);
  std::optional<Satellite::Stop> LaunchBeside(Place* place);
  void NoteStop(Place* place);

  // --- mapping.cc ---
  enum class Mapped : u8 {
    kYes,
    kNo,       // it is mapped, or no memory
    kRefused,  // it is code that must be translated
    kFault     // the guest's page tables do not allow it: guest_fault_
  };
  u64 ArenaOffsetOf(const mmu::View& view, u64 index, u8* rights) const;
  bool CanMap(const Place& place, LinearAddr address) const;
  void FlushChanged(Place* place);
  unsigned OrderPages(Place* place, u64 first, u64 count, unsigned calls);
  void OrderPage(Place* place, u64 index, u64 offset, u8 rights);
  Mapped MapData(Place* place, LinearAddr address, bool write);
  bool FitsBehind(Place* place, LinearAddr address, PhysAddr page);
  bool FitsAhead(Place* place, LinearAddr address, PhysAddr page);
  bool Guard(Place* place, LinearAddr address, PhysAddr page);
  Mapped MapCode(Place* place, LinearAddr address);
  void MapCodeAround(Place* place, LinearAddr address);
  Mapped Map(Place* place, LinearAddr address, u64 error_code);
  Mapped MapAhead(Place* place, LinearAddr rip);
  Exit Fault() {
    ++counters_.direct_guest_faults;
    return Exit::kFault;
  }
  Exit Classify(Place* place);

  mmu::Mmu& mmu_;
  vcpu::VcpuState& state_;
  HostTraits host_;
  isa::FeatureSet shown_;
  std::unique_ptr<ForkServer> server_;
  std::unique_ptr<BreakpointSetter> setter_;  // null: this host has no breakpoints for us
  std::unique_ptr<CodeJudge> judge_;
  u64 judged_cr4_ = 0, judged_xcr0_ = 0, judged_efer_ = 0;  // what judge_ knows of the guest
  Counters counters_;
  CodePages code_pages_;
  SatelliteSetup setup_;
  Place places_[kSatellites];
  std::atomic<Satellite*> running_ = nullptr;  // Interrupt() stops it
  u32 detached_ = 0;                           // a bit per VCPU
  Detaching detaching_ = Detaching::kNever;
  std::unique_ptr<StopWatcher> watcher_;  // null: one VCPU
  FileDescriptor wake_{-1};               // an eventfd: Interrupt() ends a wait
  std::atomic<bool> waits_ = false;
  cpu_set_t cpus_{};  // that the thread may run on
  SimdState simd_;
  u64 clock_ = 0;
  u64 trap_price_;
  vcpu::GuestGate* const gate_;
  CpuTime cpu_times_;
  u64 stop_cpu_time_ = 0;  // of a satellite, for a stop
  bool remaps_;
  bool real_time_ = false;  // the policy of the thread that made it
  std::optional<Status> begun_;
  vcpu::GuestFault guest_fault_;
  adapt::EnginePrices prices_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_DIRECT_EXECUTION_H_
