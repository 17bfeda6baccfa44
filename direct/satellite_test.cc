// SPDX-License-Identifier: Apache-2.0
#include "direct/satellite.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "direct/satellite_rig.h"

using namespace alibi;
using namespace alibi::direct;

// The kernel's answers to so many poll()s are a listener's whose lock was taken when a signal came.
static std::atomic<unsigned> poll_errors = 0;
extern "C" int poll(pollfd* polled, nfds_t count, int timeout_ms) {
  if (poll_errors != 0) {
    --poll_errors;
    polled->revents = POLLERR;
    return 1;
  }
  return static_cast<int>(syscall(SYS_poll, polled, count, timeout_ms));
}

TEST_CASE("user code runs: registers, memory, bases") {
  Rig rig;
  rig.reg(kFrameRdi) = kData;
  rig.reg(kFrameR15) = 77;
  rig.satellite->SetBases(0x1234000, 0x5678000);
  // mov [rdi], r15; inc r15; int3
  REQUIRE(rig.Stopped(rig.Run({0x4c, 0x89, 0x3f, 0x49, 0xff, 0xc7, 0xcc}), SIGTRAP));
  CHECK(rig.memory[kPageSize] == 77);
  CHECK(rig.reg(kFrameR15) == 78);
  CHECK(rig.reg(kFrameRip) == kCode + 7);
  CHECK(rig.satellite->fs_base() == 0x1234000);
  CHECK(rig.satellite->gs_base() == 0x5678000);
}

TEST_CASE("faults are told with address and error code") {
  Rig rig;
  rig.reg(kFrameRdi) = 0x700000;
  REQUIRE(rig.Stopped(rig.Run({0x88, 0x07, 0xcc}), SIGSEGV));  // mov [rdi], al
  CHECK(rig.frame().vector == 14);
  CHECK(rig.frame().cr2 == 0x700000);
  CHECK(rig.frame().error_code == 6);
  // It is mapped, and the instruction goes on.
  rig.satellite->OrderMap(LinearAddr(0x700000), kPageSize, 2 * kPageSize, true, false);
  REQUIRE(rig.Stopped(rig.Go(), SIGTRAP));
  // Code can be read, but not written; data not executed.
  rig.reg(kFrameRdi) = kCode;
  REQUIRE(rig.Stopped(rig.Run({0x8a, 0x07, 0x88, 0x07}), SIGSEGV));
  CHECK(rig.frame().error_code == 7);
  CHECK(rig.reg(kFrameRip) == kCode + 2);
  REQUIRE(rig.Stopped(rig.Run({0xb8, 0x00, 0x00, 0x60, 0x00, 0xff, 0xe0}), SIGSEGV));  // jmp rax
  CHECK(rig.frame().error_code == 0x15);
  // Unmapped again.
  rig.satellite->OrderUnmap(LinearAddr(0x700000), kPageSize);
  rig.reg(kFrameRdi) = 0x700000;
  REQUIRE(rig.Stopped(rig.Run({0x88, 0x07, 0xcc}), SIGSEGV));
}

TEST_CASE("every system call stops, by every entry") {
  Rig rig;
  for (u64 number = 0; number < 600; ++number) {
    INFO(number);
    const Satellite::Stop stop = rig.Run(MovRax(number) + kSyscall + kTrapHere);
    // Those of the kernel's own probes pass all filters since Linux 6.14. They do nothing here:
    // give SIGILL, or an error.
    if (number == 335 || number == 336) continue;
    REQUIRE(rig.Stopped(stop, SIGSYS));
    CHECK(rig.reg(kFrameRax) == number);
    CHECK(rig.reg(kFrameRip) == kCode + 12);
  }
  for (const u64 number : {u64{1} << 30 | 1, ~u64{0}, u64{0xa11b1}}) {  // x32, nonsense, the stop's
    REQUIRE(rig.Stopped(rig.Run(MovRax(number) + kSyscall), SIGSYS));
  }
  REQUIRE(rig.Stopped(rig.Run(MovRax(1) + std::vector<u8>{0xcd, 0x80}), SIGSYS));
}

TEST_CASE("nothing of the VMM's memory can be reached") {
  Rig rig;
  static int variable = 5;
  for (const u64 address :
       {reinterpret_cast<u64>(&variable), reinterpret_cast<u64>(rig.memory),
        reinterpret_cast<u64>(&rig), reinterpret_cast<u64>(&read), u64{0x10000}}) {
    rig.reg(kFrameRdi) = address;
    INFO(std::hex << address);
    REQUIRE(rig.Stopped(rig.Run({0x8a, 0x07, 0xcc}), SIGSEGV));
    CHECK(rig.frame().cr2 == address);
  }
}

TEST_CASE("user code in the stub gains nothing") {
  // At each of its bytes, with registers that ask for a mapping.
  for (u64 offset = 0; offset < 0x200; ++offset) {
    Rig rig;
    const u64 place = rig.satellite->stub_begin().value + offset;
    rig.reg(kFrameRax) = SYS_mmap;
    rig.reg(kFrameRdi) = 0x900000;
    rig.reg(kFrameRsi) = kPageSize;
    rig.reg(kFrameRdx) = PROT_READ | PROT_WRITE;
    rig.reg(kFrameR10) = MAP_SHARED | MAP_FIXED;
    rig.reg(kFrameR8) = 0;
    rig.reg(kFrameR9) = 0;
    rig.reg(kFrameRbx) = 1;
    rig.reg(kFrameR12) = kData;
    rig.reg(kFrameRsp) = kData + 0x800;
    // The same as an order.
    const u64 order[] = {SYS_mmap, 0x900000, kPageSize, 3, MAP_SHARED | MAP_FIXED, 0, 0};
    std::memcpy(rig.memory + kPageSize, order, sizeof(order));
    rig.reg(kFrameRip) = place;
    INFO("offset " << std::hex << offset);
    std::atomic<bool> over = false;
    std::thread interrupter([&] {  // it may loop there
      while (!over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        rig.satellite->Interrupt();
      }
    });
    Satellite::Stop stop = rig.Go();
    over = true;
    interrupter.join();
    if (stop != Satellite::Stop::kSignal) continue;  // ended, as it should be
    rig.reg(kFrameRdi) = 0x900000;
    stop = rig.RunBehindInterrupts({0x8a, 0x07, 0xcc});
    if (stop == Satellite::Stop::kSignal) CHECK(rig.frame().signal == SIGSEGV);
  }
}

TEST_CASE("a loop is interrupted") {
  Rig rig;
  std::thread interrupter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    rig.satellite->Interrupt();
  });
  CHECK(rig.Stopped(rig.Run({0xeb, 0xfe}), Satellite::StopSignal()));
  interrupter.join();
  CHECK(rig.reg(kFrameRip) == kCode);
}

// A host that pauses, or has no time for it, is no reason to give it up.
TEST_CASE("one that gets no time to stop in is waited for") {
  Rig rig;
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  REQUIRE(sigaction(SIGUSR2, &nothing, nullptr) == 0);
  const pthread_t waiter = pthread_self();
  std::thread pauser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(rig.satellite->process(), SIGSTOP);
    rig.satellite->Interrupt();
    pthread_kill(waiter, SIGUSR2);
    std::this_thread::sleep_for(std::chrono::seconds(12));
    kill(rig.satellite->process(), SIGCONT);
  });
  CHECK(rig.Stopped(rig.Run({0xeb, 0xfe}), Satellite::StopSignal()));
  pauser.join();
}

TEST_CASE("a signal that comes while the kernel's lock is waited for is no stop, and no end") {
  Rig rig;
  for (unsigned errors = 0; errors < 3; ++errors) {
    poll_errors = errors;
    CHECK(rig.Stopped(rig.Run(kTrapHere), SIGTRAP));
    CHECK(poll_errors == 0);
  }
  rig.memory[0] = 0xeb, rig.memory[1] = 0xfe;
  rig.reg(kFrameRip) = kCode;
  rig.satellite->SetAsStopped();
  REQUIRE_FALSE(rig.satellite->LaunchHere(/*run=*/true));
  poll_errors = 1;
  CHECK_FALSE(rig.satellite->HasStopped());
  rig.satellite->Interrupt();
  CHECK(rig.Stopped(rig.satellite->Land(), Satellite::StopSignal()));
}

TEST_CASE("clocks trap, and the vector state passes") {
  Rig rig;
  REQUIRE(rig.Stopped(rig.Run({0x0f, 0x31, 0xcc}), SIGSEGV));
  CHECK(rig.reg(kFrameRip) == kCode);
  const u8 pattern[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::memcpy(rig.satellite->xsave_image() + 160, pattern, 16);
  u64 present;
  std::memcpy(&present, rig.satellite->xsave_image() + kFrameXsaveHeader, 8);
  present |= 3;
  std::memcpy(rig.satellite->xsave_image() + kFrameXsaveHeader, &present, 8);
  // paddq xmm0, xmm0
  REQUIRE(rig.Stopped(rig.Run({0x66, 0x0f, 0xd4, 0xc0, 0xcc}), SIGTRAP));
  u8 doubled[16];
  std::memcpy(doubled, rig.satellite->xsave_image() + 160, 16);
  CHECK(doubled[0] == 2);
  CHECK(doubled[15] == 32);
}

// Where this host lets nobody set breakpoints, nothing relies on them.
TEST_CASE("breakpoints stop what begins there, and nothing else") {
  Rig rig(/*with_setter=*/true);
  BreakpointSetter* const setter = rig.setter.get();
  if (setter == nullptr) {
    WARN("this host lets no process set breakpoints: not tested");
    return;
  }
  const LinearAddr places[] = {LinearAddr(kCode + 2), LinearAddr(kCode + 5)};
  REQUIRE(setter->Set(0, places));
  REQUIRE(rig.satellite->StopAgain());
  // inc eax; cpuid (which must not be executed); mov bl, 0fh; int3
  const std::vector<u8> code = {0xff, 0xc0, 0x0f, 0xa2, 0xb3, 0x0f, 0xcc};
  rig.reg(kFrameRax) = 41;
  REQUIRE(rig.Stopped(rig.Run(code), SIGTRAP));
  for (unsigned again = 0; again < 3; ++again) {
    CHECK(rig.frame().signal_code == TRAP_HWBKPT);
    CHECK(rig.reg(kFrameRip) == kCode + 2);
    CHECK(rig.reg(kFrameRax) == 42);
    // A frame with RF, as of a fault, does not let it pass.
    REQUIRE(rig.Stopped(rig.Go(0x10202), SIGTRAP));
  }
  // In the middle of an instruction it stops nothing.
  rig.reg(kFrameRip) = kCode + 4;
  REQUIRE(rig.Stopped(rig.Go(), SIGTRAP));
  CHECK(rig.frame().signal_code != TRAP_HWBKPT);
  CHECK(rig.reg(kFrameRip) == kCode + 7);
  // Taken away again.
  REQUIRE(setter->Set(0, {}));
  REQUIRE(rig.satellite->StopAgain());
  rig.reg(kFrameRip) = kCode;
  REQUIRE(rig.Stopped(rig.Go(), SIGTRAP));
  CHECK(rig.reg(kFrameRip) == kCode + 7);
  // Others than those that were forked it does not touch, nor itself.
  CHECK_FALSE(setter->Set(1, {}));
  CHECK_FALSE(setter->Set(3, {}));
  CHECK_FALSE(setter->Set(ForkServer::kMostJobs, {}));
}

TEST_CASE("an order that the kernel refuses ends the orders, and user code does not run") {
  Rig rig;
  const std::vector<u8> store = {0xc6, 0x07, 0x05, 0xcc};  // mov byte [rdi], 5
  rig.reg(kFrameRdi) = kData;
  rig.satellite->OrderMap(LinearAddr(0x700001), kPageSize, 0, true, false);  // not a page
  rig.satellite->OrderMap(LinearAddr(0x710000), kPageSize, 0, true, false);
  CHECK(rig.Run(store) == Satellite::Stop::kOrders);
  CHECK(rig.memory[kPageSize] == 0);
  // It is of use as before. What stood behind the order has not been done.
  REQUIRE(rig.Stopped(rig.Run(store), SIGTRAP));
  CHECK(rig.memory[kPageSize] == 5);
  rig.reg(kFrameRdi) = 0x710000;
  REQUIRE(rig.Stopped(rig.Run(store), SIGSEGV));
  CHECK(rig.frame().cr2 == 0x710000);
  // Nor where it was to go to another CPU.
  cpu_set_t all;
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  rig.satellite->OrderMap(LinearAddr(0x700001), kPageSize, 0, true, false);
  CHECK(rig.satellite->LaunchOn(all) == Satellite::Stop::kOrders);
  REQUIRE_FALSE(rig.satellite->LaunchOn(all));
  CHECK(rig.Stopped(rig.satellite->Land(), SIGSEGV));
  CHECK(rig.frame().cr2 == 0x710000);
}

TEST_CASE("one that dies is told of") {
  Rig rig;
  rig.memory[0] = 0xeb;  // a loop
  rig.memory[1] = 0xfe;
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(rig.satellite->process(), SIGKILL);
  });
  rig.reg(kFrameRip) = kCode;
  CHECK(rig.Go() == Satellite::Stop::kLost);
  killer.join();
  CHECK(rig.satellite->Go(true) == Satellite::Stop::kLost);
}
