// SPDX-License-Identifier: Apache-2.0
// Verdicts: one line per check, and a summary that decides the exit code.
#ifndef ALIBI_FROBOS_LIB_CHECK_H_
#define ALIBI_FROBOS_LIB_CHECK_H_

#include "frobos/lib/trap.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

void Check(bool ok, const char* name);
void CheckEq(const char* name, u64 got, u64 expected);
// The outcome must be this exception with this error code, at rip (0: any).
void CheckFault(const char* name, const Outcome& outcome, u8 vector, u64 error = 0, u64 rip = 0);
// The code must have run to its end.
void CheckDone(const char* name, const Outcome& outcome);
// For what this machine's CPUID does not offer.
void Skip(const char* name, const char* reason);

// True (and says so) if QEMU TCG is the host, by the command line's host=qemu, and qemu_wrong: the
// check would fail there although the manual is clear. The caller names the manual's section.
bool SkipOnQemu(const char* name, bool qemu_wrong = true);

// Many cases under one name: prints the first few failing ones, and one line at the end.
class Group {
 public:
  explicit Group(const char* name) : name_(name) {}
  ~Group();
  // False asks the caller to describe the failed case by Print (at most kShown times).
  bool Case(bool ok);
  u64 failed() const { return failed_; }

 private:
  static constexpr u64 kShown = 8;
  const char* name_;
  u64 cases_ = 0;
  u64 failed_ = 0;
};

// Prints "SUMMARY n passed m failed"; the result is the exit code.
int Summary();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_CHECK_H_
