/* SPDX-License-Identifier: Apache-2.0 */
/* What the compute programs share. They are ordinary C without a C library, so that the same
   sources make FrobOS user programs (CPL 3) and a native host program. Each file has one
       uint64_t run_<name>(unsigned scale)
   that does work proportional to scale and returns a checksum. */
#ifndef ALIBI_FROBOS_COMPUTE_COMPUTE_H_
#define ALIBI_FROBOS_COMPUTE_COMPUTE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, default scale (about 2-5 million cycles natively) */
#define COMPUTE_PROGRAMS(X) \
  X(isprime, 4000)          \
  X(sort, 8000)             \
  X(hashtable, 40000)       \
  X(listwalk, 400000)       \
  X(interp, 120)            \
  X(matmul, 128)            \
  X(sha256, 384)            \
  X(fib, 27)                \
  X(strings, 100)

#define COMPUTE_DECLARE(name, default_scale) uint64_t run_##name(unsigned scale);
COMPUTE_PROGRAMS(COMPUTE_DECLARE)
#undef COMPUTE_DECLARE

static inline uint64_t compute_random(uint64_t* state) {
  uint64_t x = *state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return *state = x;
}

static inline uint64_t compute_mix(uint64_t checksum, uint64_t value) {
  return (checksum ^ value) * 0x100000001b3ull;
}

#ifdef __cplusplus
}
#endif

#endif /* ALIBI_FROBOS_COMPUTE_COMPUTE_H_ */
