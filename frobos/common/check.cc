// SPDX-License-Identifier: Apache-2.0
#include "frobos/common/check.h"

#include "frobos/common/console.h"

namespace alibi::frobos {
namespace {

Word checks_passed = 0;
Word checks_failed = 0;
bool on_qemu = false;

}  // namespace

void CountCheck(bool ok) { (ok ? checks_passed : checks_failed)++; }

void Pass(const char* name) {
  checks_passed++;
  Print("PASS %s\n", name);
}

void Check(bool ok, const char* name) {
  if (ok) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected true got false\n", name);
}

void CheckEq(const char* name, Word got, Word expected) {
  if (got == expected) return Pass(name);
  checks_failed++;
  Print("FAIL %s: expected 0x%lx got 0x%lx\n", name, expected, got);
}

void Skip(const char* name, const char* reason) { Print("SKIP %s: %s\n", name, reason); }

void SetOnQemu(bool on) { on_qemu = on; }
bool OnQemu() { return on_qemu; }

bool SkipOnQemu(const char* name, bool qemu_wrong) {
  if (!qemu_wrong || !on_qemu) return false;
  Skip(name, "qemu-wrong");
  return true;
}

bool Group::Case(bool ok) {
  cases_++;
  if (!ok) failed_++;
  return ok || failed_ > kShown;
}

Group::~Group() {
  CountCheck(failed_ == 0);
  if (failed_ == 0) {
    Print("PASS %s (%lu cases)\n", name_, cases_);
  } else {
    Print("FAIL %s: expected %lu good cases got %lu\n", name_, cases_, cases_ - failed_);
  }
}

int Summary() {
  Print("SUMMARY %lu passed %lu failed\n", checks_passed, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}

}  // namespace alibi::frobos
