// SPDX-License-Identifier: Apache-2.0
// A satellite with a page of code and one of data, for tests.
#ifndef ALIBI_DIRECT_SATELLITE_RIG_H_
#define ALIBI_DIRECT_SATELLITE_RIG_H_

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "base/memory_file.h"
#include "direct/breakpoint_setter.h"
#include "direct/fork_server.h"
#include "direct/satellite.h"

namespace alibi::direct {

inline constexpr u64 kMemoryBytes = 64 * kPageSize;
inline constexpr u64 kCode = 0x400000, kData = 0x600000;
inline constexpr u16 kFlatData = 0x2b;

struct Rig {
  // with_setter: of breakpoints, if this host has them.
  explicit Rig(bool with_setter = false) : fd(CreateMemoryFile("memory", kMemoryBytes)) {
    memory = static_cast<u8*>(
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    setup.watch_read.Reset(ends[0]);
    setup.watch_write.Reset(ends[1]);
    setup.memory_fd = fd.get();
    setup.trapping_tsc = true;
    enum : unsigned { kSatelliteJob, kSetterJob, kProbeJob };
    if (with_setter) {
      setter = BreakpointSetter::Prepare(kSetterJob);
      REQUIRE(setter != nullptr);
      setup.debugger_job = kSetterJob;
    }
    auto prepared = Satellite::Prepare(setup);
    REQUIRE(prepared.ok());
    satellite = std::move(*prepared);
    std::vector<ForkServer::Job> jobs = {satellite->job()};
    std::vector<int> shared = {setup.memory_fd, setup.watch_read.get()};
    if (with_setter) {
      jobs.push_back(setter->job());
      jobs.push_back(setter->probe_job());
      shared.push_back(setter->notes_fd());
    }
    auto begun = ForkServer::Start(jobs, shared, with_setter ? setter->notes_fd() : -1);
    REQUIRE(begun.ok());
    server = std::move(*begun);
    if (with_setter && !setter->Start(*server, kProbeJob)) setter.reset();
    const Status started = satellite->Start(*server, kSatelliteJob);
    INFO((started.ok() ? "" : started.error().message));
    REQUIRE(started.ok());
    satellite->OrderMap(LinearAddr(kCode), kPageSize, 0, false, true);
    satellite->OrderMap(LinearAddr(kData), kPageSize, kPageSize, true, false);
  }
  ~Rig() { munmap(memory, kMemoryBytes); }

  SignalFrame& frame() { return satellite->frame(); }
  u64& reg(FrameRegister number) { return frame().gpr[number]; }

  Satellite::Stop Run(std::vector<u8> code) {
    std::memcpy(memory, code.data(), code.size());
    reg(kFrameRip) = kCode;
    return Go();
  }
  Satellite::Stop Go(u64 eflags = 0x202) {
    frame().cs = code_bits == 64 ? 0x33 : 0x23;
    frame().ss = kFlatData;
    frame().eflags = eflags;
    if (code_bits == 64) satellite->SetSelectors(0, 0, 0, 0);
    satellite->SetIdFlag(false);
    return satellite->Go(true);
  }
  // An Interrupt() of before may come late.
  Satellite::Stop RunBehindInterrupts(const std::vector<u8>& code) {
    Satellite::Stop stop = Run(code);
    while (Stopped(stop, Satellite::StopSignal())) stop = Run(code);
    return stop;
  }
  bool Stopped(Satellite::Stop stop, int signal) {
    return stop == Satellite::Stop::kSignal && frame().signal == static_cast<u32>(signal);
  }

  unsigned code_bits = 64;
  FileDescriptor fd;
  u8* memory;
  SatelliteSetup setup;
  std::unique_ptr<ForkServer> server;
  std::unique_ptr<BreakpointSetter> setter;
  std::unique_ptr<Satellite> satellite;
};

inline std::vector<u8> operator+(std::vector<u8> a, const std::vector<u8>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline std::vector<u8> MovRax(u64 value) {
  std::vector<u8> code = {0x48, 0xb8};
  for (unsigned i = 0; i < 8; ++i) code.push_back(static_cast<u8>(value >> (8 * i)));
  return code;
}
inline const std::vector<u8> kSyscall = {0x0f, 0x05}, kTrapHere = {0xcc};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_SATELLITE_RIG_H_
