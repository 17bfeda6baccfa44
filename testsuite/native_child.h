// SPDX-License-Identifier: Apache-2.0
// What handlers of a child process share in which foreign code runs natively, one signal after
// every sequence. While %fs is that code's there is no C library: no errno, no stack protector.
#ifndef ALIBI_TESTSUITE_NATIVE_CHILD_H_
#define ALIBI_TESTSUITE_NATIVE_CHILD_H_

#include "base/types.h"

#define ALIBI_BARE                                                                     \
  __attribute__((no_stack_protector, no_sanitize("address"), no_sanitize("undefined"), \
                 optimize("no-tree-loop-distribute-patterns")))

namespace alibi::native_child {

ALIBI_BARE inline void Copy(void* to, const void* from, u64 size) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

// First in a handler: what a sequence may have set and sigreturn takes from here rather than from
// the signal frame (ID and NT), and what would trap here (AC).
ALIBI_BARE inline void ClearFlagsOfSequence() {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\t"  // the red zone
      "pushfq\n\t"
      "andq $~0x244000, (%%rsp)\n\t"
      "popfq\n\t"
      "cld\n\t"
      "lea 128(%%rsp), %%rsp"
      :
      :
      : "cc", "memory");
}

}  // namespace alibi::native_child

#endif  // ALIBI_TESTSUITE_NATIVE_CHILD_H_
