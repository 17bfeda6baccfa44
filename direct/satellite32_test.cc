// SPDX-License-Identifier: Apache-2.0
// Satellites that run code of 32 bits, and such code that attacks them.
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "direct/satellite_rig.h"

using namespace alibi;
using namespace alibi::direct;

namespace {

using Bytes = std::vector<u8>;

struct Rig32 : Rig {
  Rig32() {
    code_bits = 32;
    satellite->SetSelectors(kFlatData, kFlatData, 0, 0);
    reg(kFrameRsp) = kData + 0x800;
  }
};

Bytes Imm(u8 opcode, u32 value) {
  Bytes code = {opcode};
  for (unsigned i = 0; i < 4; ++i) code.push_back(static_cast<u8>(value >> (8 * i)));
  return code;
}
Bytes MovEax(u32 value) { return Imm(0xb8, value); }
const Bytes kInt80 = {0xcd, 0x80}, kSysenter = {0x0f, 0x34};

}  // namespace

TEST_CASE("Code of 32 bits runs: registers, stack, memory") {
  Rig32 rig;
  rig.reg(kFrameRdi) = kData;
  rig.reg(kFrameRcx) = 77;
  rig.reg(kFrameR12) = 0x1234567890abcdef;
  // inc ecx; mov [edi], ecx; push ecx; pop edx; int3
  REQUIRE(rig.Stopped(rig.Run({0x41, 0x89, 0x0f, 0x51, 0x5a, 0xcc}), SIGTRAP));
  CHECK(rig.memory[kPageSize] == 78);
  CHECK(rig.reg(kFrameRcx) == 78);
  CHECK(rig.reg(kFrameRdx) == 78);
  CHECK(rig.reg(kFrameRip) == kCode + 6);
  CHECK(rig.reg(kFrameR12) == 0x1234567890abcdef);
  CHECK(rig.frame().cs == 0x23);
  CHECK(rig.frame().ss == kFlatData);
}

TEST_CASE("GS has a base of its own, which stays over stops, and wraps") {
  Rig32 rig;
  rig.satellite->SetSelectors(kFlatData, kFlatData, 0, kFlatData);
  rig.satellite->SetBases(0, kData + 0x100);
  rig.memory[kPageSize + 0x104] = 5;
  rig.memory[kPageSize + 0xf0] = 6;
  // mov al, gs:[4]; mov bl, gs:[-16]; int3
  const Bytes code =
      Bytes{0x65} + Imm(0xa0, 4) + Bytes{0x65, 0x8a} + Imm(0x1d, ~u32{15}) + kTrapHere;
  REQUIRE(rig.Stopped(rig.Run(code), SIGTRAP));
  CHECK((rig.reg(kFrameRax) & 0xff) == 5);
  CHECK((rig.reg(kFrameRbx) & 0xff) == 6);
  for (unsigned i = 0; i < 200; ++i) {
    rig.satellite->SetAsStopped();
    rig.reg(kFrameRax) = 0;
    REQUIRE(rig.Stopped(rig.Run(code), SIGTRAP));
    REQUIRE((rig.reg(kFrameRax) & 0xff) == 5);
    REQUIRE(rig.satellite->gs_base() == kData + 0x100);
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // others run
  }
  // A register that holds nothing.
  rig.satellite->SetSelectors(kFlatData, kFlatData, 0, 0);
  REQUIRE(rig.Stopped(rig.Run(code), SIGSEGV));
  CHECK(rig.frame().vector == 13);
  CHECK(rig.reg(kFrameRip) == kCode);
}

TEST_CASE("Faults of 32-bit code are told with address and error code") {
  Rig32 rig;
  rig.reg(kFrameRdi) = 0xfffff000;
  REQUIRE(rig.Stopped(rig.Run({0x88, 0x07, 0xcc}), SIGSEGV));  // mov [edi], al
  CHECK(rig.frame().vector == 14);
  CHECK(rig.frame().cr2 == 0xfffff000);
  CHECK(rig.frame().error_code == 6);
  CHECK(rig.reg(kFrameRip) == kCode);
  // Sums wrap to 32 bits: mov [edi+1002000h], al
  rig.reg(kFrameRdi) = 0xff000000;
  rig.satellite->OrderMap(LinearAddr(0x700000), kPageSize, 2 * kPageSize, true, false);
  REQUIRE(rig.Stopped(rig.Run(Bytes{0x88} + Imm(0x87, 0x1700000) + kTrapHere), SIGTRAP));
  CHECK(rig.memory[2 * kPageSize] == (rig.reg(kFrameRax) & 0xff));
}

TEST_CASE("Every system call of 32-bit code stops, by every entry") {
  Rig32 rig;
  for (u32 number = 0; number < 600; ++number) {
    INFO(number);
    REQUIRE(rig.Stopped(rig.Run(MovEax(number) + kInt80 + kTrapHere), SIGSYS));
    CHECK(rig.reg(kFrameRax) == number);
    CHECK(rig.reg(kFrameRip) == kCode + 7);
  }
  for (const u32 number : {u32{1} << 30 | 1, ~u32{0}, u32{0xa11b1}}) {
    REQUIRE(rig.Stopped(rig.Run(MovEax(number) + kInt80 + kTrapHere), SIGSYS));
  }
  // Of each vendor's CPUs one of these is undefined, and the other one a call of the system's. That
  // forgets where it was: the judge lets nobody do it, and who does it comes to nothing.
  for (const Bytes& entry : {kSysenter, kSyscall}) {
    for (u32 number = 0; number < 600; ++number) {
      INFO(number);
      Rig32 fresh;
      const Satellite::Stop stop = fresh.Run(MovEax(number) + entry + kTrapHere);
      if (stop != Satellite::Stop::kSignal) continue;  // ended
      CHECK((fresh.frame().signal == SIGSYS || fresh.frame().signal == SIGILL ||
             fresh.frame().signal == SIGSEGV));
      number += 7;  // a process each: they are slow
    }
  }
}

TEST_CASE("Mappings cannot be ordered by 32-bit code, with any arguments") {
  // mmap, munmap, mprotect, mremap, mmap2, set_thread_area, modify_ldt: by the numbers of both.
  for (const u32 number : {9u, 10u, 11u, 90u, 91u, 123u, 125u, 163u, 192u, 243u}) {
    Rig32 rig;
    rig.reg(kFrameRbx) = 0x900000;
    rig.reg(kFrameRcx) = kPageSize;
    rig.reg(kFrameRdx) = PROT_READ | PROT_WRITE;
    rig.reg(kFrameRsi) = MAP_SHARED | MAP_FIXED;
    rig.reg(kFrameRdi) = 0;
    rig.reg(kFrameRbp) = 0;
    REQUIRE(rig.Stopped(rig.Run(MovEax(number) + kInt80), SIGSYS));
    REQUIRE(rig.Stopped(rig.Run(Imm(0xa0, 0x900000)), SIGSEGV));
  }
}

TEST_CASE("32-bit code reaches the stub by a far branch alone, and gains nothing there") {
  // The stub is far above what its addresses reach: to the stub's address, cut to 32 bits.
  {
    Rig32 rig;
    const u32 low = static_cast<u32>(rig.satellite->stub_begin().value);
    REQUIRE(rig.Stopped(rig.Run(Imm(0xb8, low) + Bytes{0xff, 0xe0}), SIGSEGV));
    CHECK(rig.frame().cr2 == low);
  }
  // By way of 64-bit code: to each of the stub's bytes, with registers that ask for a mapping.
  for (u64 offset = 0; offset < 0x200; ++offset) {
    Rig32 rig;
    rig.reg(kFrameRdi) = 0x900000;
    rig.reg(kFrameRsi) = kPageSize;
    rig.reg(kFrameRdx) = PROT_READ | PROT_WRITE;
    rig.reg(kFrameRbx) = 1;
    rig.reg(kFrameR9) = 0;
    rig.reg(kFrameR10) = MAP_SHARED | MAP_FIXED;
    rig.reg(kFrameR8) = 0;
    rig.reg(kFrameR11) = rig.satellite->stub_begin().value + offset;
    rig.reg(kFrameR12) = kData;
    const u64 order[] = {SYS_mmap, 0x900000, kPageSize, 3, MAP_SHARED | MAP_FIXED, 0, 0};
    std::memcpy(rig.memory + kPageSize, order, sizeof(order));
    INFO("offset " << std::hex << offset);
    // mov eax, SYS_mmap; ljmp 33h:next; next: jmp r11
    const Bytes code =
        MovEax(SYS_mmap) + Imm(0xea, kCode + 12) + Bytes{0x33, 0x00, 0x41, 0xff, 0xe3};
    std::atomic<bool> over = false;
    std::thread interrupter([&] {  // it may loop there
      while (!over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        rig.satellite->Interrupt();
      }
    });
    Satellite::Stop stop = rig.Run(code);
    over = true;
    interrupter.join();
    if (stop != Satellite::Stop::kSignal) continue;  // ended, as it should be
    rig.code_bits = 64;
    rig.reg(kFrameRdi) = 0x900000;
    stop = rig.RunBehindInterrupts({0x8a, 0x07, 0xcc});
    if (stop == Satellite::Stop::kSignal) CHECK(rig.frame().signal == SIGSEGV);
  }
}

TEST_CASE("A loop of 32-bit code is interrupted, and goes on") {
  Rig32 rig;
  std::thread interrupter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    rig.satellite->Interrupt();
  });
  CHECK(rig.Stopped(rig.Run({0x41, 0xeb, 0xfd}), Satellite::StopSignal()));  // inc ecx; jmp
  interrupter.join();
  CHECK((rig.reg(kFrameRip) == kCode || rig.reg(kFrameRip) == kCode + 1));
  CHECK(rig.reg(kFrameRcx) > 0);
  CHECK(rig.reg(kFrameRcx) <= ~u32{0});
}

TEST_CASE("Both sizes of code take turns in one satellite") {
  Rig32 rig;
  for (unsigned i = 0; i < 50; ++i) {
    rig.code_bits = 32;
    rig.satellite->SetSelectors(kFlatData, kFlatData, 0, kFlatData);
    rig.satellite->SetBases(0, kData);
    rig.reg(kFrameRax) = i;
    REQUIRE(rig.Stopped(rig.Run({0x40, 0xcc}), SIGTRAP));  // inc eax; in 64-bit code REX
    CHECK(rig.reg(kFrameRax) == i + 1);
    rig.code_bits = 64;
    rig.satellite->SetBases(0x7fff12345000, 0);
    rig.reg(kFrameR15) = i;
    REQUIRE(rig.Stopped(rig.Run({0x49, 0xff, 0xc7, 0xcc}), SIGTRAP));
    CHECK(rig.reg(kFrameR15) == i + 1);
    CHECK(rig.satellite->fs_base() == 0x7fff12345000);
  }
}
