// SPDX-License-Identifier: Apache-2.0
// Debian's libasmjit.a is made for programs, not for shared objects: it takes `stderr` to lie in
// the program it is linked into. libalibi.so is linked with --wrap=stderr, which sends every use of
// that name inside to the copy below. It is one of stdio's own pointer, taken when the library is
// loaded.
#include <cstdio>

extern "C" {
extern std::FILE* __real_stderr;  // NOLINT(bugprone-reserved-identifier): the linker's name for it
std::FILE* __wrap_stderr;         // NOLINT(bugprone-reserved-identifier)

// Before the constructors that might write.
__attribute__((constructor(101))) static void TakeStderr() { __wrap_stderr = __real_stderr; }
}
