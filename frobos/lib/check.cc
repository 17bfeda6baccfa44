// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/check.h"

#include "frobos/lib/console.h"
#include "frobos/lib/kernel.h"

namespace alibi::frobos {
namespace {

u64 checks_passed = 0;
u64 checks_failed = 0;

void Pass(const char* name) {
  checks_passed++;
  Print("PASS %s\n", name);
}

}  // namespace

void Check(bool ok, const char* name) {
  if (ok) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected true got false\n", name);
}

void CheckEq(const char* name, u64 got, u64 expected) {
  if (got == expected) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected 0x%lx got 0x%lx\n", name, expected, got);
}

void CheckFault(const char* name, const Outcome& o, u8 vector, u64 error, u64 rip) {
  if (o.Is(vector, error) && (rip == 0 || rip == o.frame.rip)) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected %s error 0x%lx", name, VectorName(vector), error);
  if (rip != 0) Print(" at 0x%lx", rip);
  Print(" got %s error 0x%lx at 0x%lx cr2 0x%lx\n", VectorName(o.frame.vector), o.frame.error,
        o.frame.rip, o.cr2);
}

void CheckDone(const char* name, const Outcome& o) {
  if (o.Done()) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected no fault got %s error 0x%lx at 0x%lx cr2 0x%lx\n", name,
        VectorName(o.frame.vector), o.frame.error, o.frame.rip, o.cr2);
}

void Skip(const char* name, const char* reason) { Print("SKIP %s: %s\n", name, reason); }

bool SkipOnQemu(const char* name, bool qemu_wrong) {
  if (!qemu_wrong || !OptionIs("host", "qemu")) return false;
  Skip(name, "qemu-wrong");
  return true;
}

bool Group::Case(bool ok) {
  cases_++;
  if (!ok) failed_++;
  return ok || failed_ > kShown;
}

Group::~Group() {
  if (failed_ == 0) {
    checks_passed++;
    Print("PASS %s (%lu cases)\n", name_, cases_);
  } else {
    checks_failed++;
    Print("FAIL %s: expected %lu good cases got %lu\n", name_, cases_, cases_ - failed_);
  }
}

int Summary() {
  Print("SUMMARY %lu passed %lu failed\n", checks_passed, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}

}  // namespace alibi::frobos
