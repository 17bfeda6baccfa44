// SPDX-License-Identifier: Apache-2.0
// The serial console (COM1, polled), the way out of the machine, and verdicts: one line per check.
// Compiled for 32-bit and for 16-bit code.
#ifndef ALIBI_FROBOS_LIB32_CONSOLE_H_
#define ALIBI_FROBOS_LIB32_CONSOLE_H_

#include "frobos/lib32/types.h"

namespace alibi::frobos {

inline void Outb(u16 port, u8 value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
inline u8 Inb(u16 port) {
  u8 value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

void InitConsole();
void PutChar(char c);
// printf subset: %x %u %d %s %c %%, a width and the flag 0.
[[gnu::format(printf, 1, 2)]] void Print(const char* format, ...);

// Ends the run through the debug-exit port 0xf4.
[[noreturn]] void Exit(u8 code);
inline constexpr u8 kExitPanic = 2;
[[noreturn, gnu::format(printf, 1, 2)]] void Panic(const char* format, ...);

void Check(bool ok, const char* name);
void CheckEq(const char* name, u32 got, u32 expected);
// For what this machine does not offer.
void Skip(const char* name, const char* reason);
// True (and says so) on QEMU TCG: the check would fail there although the manual is clear. The
// caller names the manual's section, and docs/qemu_differences.md lists it.
bool SkipOnQemu(const char* name);
// Set at the start by the kernel: from the command line's host=qemu, or a ROM from CPUID.
void SetOnQemu(bool on);
bool OnQemu();

// Counts a check whose lines the caller prints itself.
void CountCheck(bool ok);
// Many cases under one name: the caller describes the first few failing ones, and one line ends it.
class Cases {
 public:
  explicit Cases(const char* name) : name_(name) {}
  ~Cases();
  // False asks the caller to describe the failed case by Print.
  bool Case(bool ok);

 private:
  static constexpr u32 kShown = 8;
  const char* name_;
  u32 cases_ = 0;
  u32 failed_ = 0;
};

// Prints "SUMMARY n passed m failed"; the result is the exit code.
int Summary();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB32_CONSOLE_H_
