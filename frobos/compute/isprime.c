/* SPDX-License-Identifier: Apache-2.0 */
/* The paper's example, section 3.2: trial division of every number below scale. */
#include "frobos/compute/compute.h"

static __attribute__((noinline)) int is_prime(int a) {
  for (int i = 2; i < a; i++) {
    if (a % i == 0) return 0;
  }
  return 1;
}

uint64_t run_isprime(unsigned scale) {
  uint64_t checksum = 0;
  for (unsigned a = 2; a < scale; a++) {
    if (is_prime((int)a)) checksum = compute_mix(checksum, a);
  }
  return checksum;
}
