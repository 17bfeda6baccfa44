// SPDX-License-Identifier: Apache-2.0
// CHECK: our bugs. It names the broken invariant and stops; never used for guest or user errors.
#ifndef ALIBI_BASE_CHECK_H_
#define ALIBI_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace alibi {

[[noreturn, gnu::noinline, gnu::cold]] inline void CheckFailed(const char* file, int line,
                                                               const char* what) {
  std::fprintf(stderr, "alibi: internal error at %s:%d: invariant broken: %s\n", file, line, what);
  std::abort();
}

}  // namespace alibi

#define ALIBI_CHECK(condition, invariant)                                                  \
  (__builtin_expect(!(condition), 0) ? ::alibi::CheckFailed(__FILE__, __LINE__, invariant) \
                                     : (void)0)

#endif  // ALIBI_BASE_CHECK_H_
