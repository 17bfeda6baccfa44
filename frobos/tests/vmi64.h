// SPDX-License-Identifier: Apache-2.0
// What the parts of the kernel `vmi64` share.
#ifndef ALIBI_FROBOS_TESTS_VMI64_H_
#define ALIBI_FROBOS_TESTS_VMI64_H_

#include "frobos/lib/check.h"
#include "frobos/lib/vmi.h"

namespace alibi::frobos {

// Does the ROM that is looked at answer with a call? Else the kernel's own way stays, and there is
// nothing to test (the name says of what).
bool Is(const char* name, VmiCall call);
// The call returns, and keeps what it has to.
Outcome CheckVmi(const char* name, VmiCall call, u64 rax = 0, u64 rdx = 0, u64 rcx = 0,
                 const u64* word = nullptr);
// The same without a verdict.
Outcome Vmi(VmiCall call, u64 rax = 0, u64 rdx = 0, u64 rcx = 0, const u64* word = nullptr);

void TestSmp();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_TESTS_VMI64_H_
