/* SPDX-License-Identifier: Apache-2.0 */
/* Naive recursion: nothing but calls and returns. */
#include "frobos/compute/compute.h"

static __attribute__((noinline, optimize("no-optimize-sibling-calls", "no-inline"))) uint64_t fib(
    unsigned n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

uint64_t run_fib(unsigned scale) { return fib(scale); }
