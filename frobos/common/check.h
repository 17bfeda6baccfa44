// SPDX-License-Identifier: Apache-2.0
// Verdicts: one line per check, and a summary that decides the exit code.
#ifndef ALIBI_FROBOS_COMMON_CHECK_H_
#define ALIBI_FROBOS_COMMON_CHECK_H_

#include "frobos/common/types.h"

namespace alibi::frobos {

void Check(bool ok, const char* name);
void CheckEq(const char* name, Word got, Word expected);
// For what this machine does not offer.
void Skip(const char* name, const char* reason);

// Set at the start by the kernel: from the command line's host=qemu, or a ROM from CPUID.
void SetOnQemu(bool on);
bool OnQemu();
// True (and says so) if QEMU TCG is the host and qemu_wrong: the check would fail there although
// the manual is clear. The caller names the manual's section, and docs/qemu_differences.md lists
// it.
bool SkipOnQemu(const char* name, bool qemu_wrong = true);

// Counts a check that is good, and prints its line.
void Pass(const char* name);
// Counts a check whose lines the caller prints itself.
void CountCheck(bool ok);

// Many cases under one name: prints the first few failing ones, and one line at the end.
class Group {
 public:
  explicit Group(const char* name) : name_(name) {}
  ~Group();
  // False asks the caller to describe the failed case by Print (at most kShown times).
  bool Case(bool ok);
  Word failed() const { return failed_; }

 private:
  static constexpr Word kShown = 8;
  const char* name_;
  Word cases_ = 0;
  Word failed_ = 0;
};

// Prints "SUMMARY n passed m failed"; the result is the exit code.
int Summary();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_CHECK_H_
