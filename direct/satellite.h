// SPDX-License-Identifier: Apache-2.0
// A satellite: a process that runs a guest's user code on the bare CPU. Its address space holds
// guest pages, where the VMM has ordered them to be mapped, and the stub (stub.S); nothing else. It
// reaches neither files nor any system call. docs/safety.md, "Satellites", has the argument.
//
// It is stopped, or it runs: Go() sets it going and returns when it has stopped, which the kernel
// attests. Then the VMM finds the user code's state in frame(), writes the next one there, and
// gives orders.
#ifndef ALIBI_DIRECT_SATELLITE_H_
#define ALIBI_DIRECT_SATELLITE_H_

#include <poll.h>
#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/types.h"
#include "direct/fork_server.h"
#include "direct/satellite_filter.h"
#include "direct/signal_frame.h"

namespace alibi::direct {

// What all satellites of a machine have in common.
struct SatelliteSetup {
  int memory_fd = -1;  // guest RAM
  // A pipe: satellites end when its other end closes with the VMM.
  FileDescriptor watch_read{-1}, watch_write{-1};
  // Make these trap (direct/host_traits.h).
  bool trapping_cpuid = false, trapping_tsc = false;
  // The fork server's job that may set breakpoints (direct/breakpoint_setter.h); -1: nobody may.
  int debugger_job = -1;
};

class Satellite {
 public:
  // What its process will be, for a fork server, which `setup` outlives. There is none yet.
  static Result<std::unique_ptr<Satellite>> Prepare(const SatelliteSetup& setup);
  ForkServer::Job job() const;
  // Once: has the server, which began with job(), fork it. What the server alone needs goes.
  Status Start(ForkServer& server, unsigned number);
  bool started() const { return pid_ >= 0; }
  ~Satellite();
  Satellite(const Satellite&) = delete;
  Satellite& operator=(const Satellite&) = delete;

  // Where user space ends for Linux, with four levels of page tables: nothing is mapped from there
  // on.
  static constexpr LinearAddr kUserEnd{(u64{1} << 47) - kPageSize};
  // Its own pages: no guest page can be mapped over them.
  LinearAddr stub_begin() const { return LinearAddr(base_); }
  LinearAddr stub_end() const;

  // --- Orders, carried out in their sequence by the next Go() ---
  static constexpr unsigned kMaxOrders = 240;
  unsigned orders() const { return orders_; }
  bool HasRoom(unsigned orders) const { return orders_ + orders <= kMaxOrders; }
  // Guest RAM from this place in its file on.
  void OrderMap(LinearAddr address, u64 bytes, u64 arena_offset, bool write, bool execute);
  void OrderUnmap(LinearAddr address, u64 bytes);
  void OrderUnmapAll();  // two orders

  // --- When it is stopped ---
  SignalFrame& frame() { return *frame_; }
  const SignalFrame& frame() const { return *frame_; }
  u8* xsave_image() { return xsave_; }
  const u8* xsave_image() const { return xsave_; }
  u64 xsave_bytes() const { return xsave_bytes_; }
  u64 fs_base() const;
  u64 gs_base() const;
  u16 selector(unsigned which) const;  // ES, DS, FS, GS
  void SetBases(u64 fs, u64 gs);
  void SetSelectors(u16 es, u16 ds, u16 fs, u16 gs);
  void SetIdFlag(bool id);
  // What the frame does not hold is as user code has left it when it stopped.
  void SetAsStopped();

  enum class Stop : u8 {
    kSignal,  // frame() says which
    kOrders,  // an order was not carried out, nor those behind it; user code has not run
    kLost,    // it has died, or user code has tampered with it: it is of no use any more
  };
  // Carries out the orders and, with `run`, goes on as frame() says. With `run`, Interrupt() makes
  // it stop.
  Stop Go(bool run) {
    const std::optional<Stop> stop = LaunchHere(run);
    return stop ? *stop : Land();
  }
  // The same in two halves. On the CPU where the caller is the hand-over is cheap; elsewhere it
  // runs beside the caller. Nothing: it is under way. Otherwise it is not, and Land() must not be
  // called: how it has stopped instead.
  std::optional<Stop> LaunchHere(bool run);
  std::optional<Stop> LaunchOn(const cpu_set_t& cpus);
  // Waits for the stop. Not if it has come: then IsStop() of what poll() says about stop_fd().
  Stop Land();
  bool HasStopped() const;
  int stop_fd() const { return listener_.get(); }
  // POLLERR is none: the kernel says it where a signal has come while poll() waited for the lock
  // that a satellite takes when it stops.
  static constexpr bool IsStop(int poll_events) { return (poll_events & ~POLLERR) != 0; }
  // Where it was launched; -1: on a set of CPUs.
  int cpu() const { return cpu_; }
  // A debugger has interrupted its stop, and has gone again. False: it is lost.
  bool StopAgain();
  // For handlers on the thread that is in Go(): user code is interrupted soon (SIGNAL of
  // StopSignal()).
  void Interrupt();
  static int StopSignal();
  pid_t process() const { return pid_; }

 private:
  // What the process begins with, and the VMM's end of its socket.
  struct Preparation;

  Satellite();
  Status Init(const SatelliteSetup& setup);
  Status Receive(int socket);
  void Order(u64 number, u64 a0, u64 a1, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0, u64 a5 = 0);
  u64& Word(u64 offset) { return *reinterpret_cast<u64*>(pages_ + offset); }
  u64 Word(u64 offset) const { return *reinterpret_cast<const u64*>(pages_ + offset); }
  bool Listen();
  bool FindFrame();
  void OrderCpus(const cpu_set_t& cpus);
  std::optional<Stop> Launch(bool run);
  void Kill();
  void Fail();

  std::unique_ptr<Preparation> preparation_;  // until it is started
  u64 base_ = 0;
  u8* pages_ = nullptr;  // the stub's, here
  pid_t pid_ = -1;
  FileDescriptor process_{-1};   // pidfd
  FileDescriptor listener_{-1};  // seccomp's
  CallKey key_{};
  SignalFrame* frame_ = nullptr;
  u64 frame_place_ = 0;  // in the satellite
  u8* xsave_ = nullptr;
  u64 xsave_bytes_ = 0;
  u64 held_ = 0;  // the stop call that waits for an answer
  int cpu_ = -1;
  cpu_set_t cpus_{};  // as the kernel knows it
  unsigned orders_ = 0;
  std::atomic<bool> running_ = false;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_SATELLITE_H_
