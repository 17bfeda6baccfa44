/* SPDX-License-Identifier: Apache-2.0 */
// Floating point. Every operation is correctly rounded, so all machines agree to the last bit.
#include <stdlib.h>

#include "bench/linux/guest/linuxbench.h"

enum { kSize = 192 };
typedef double Matrix[kSize][kSize];
typedef double Vector2 __attribute__((vector_size(16), aligned(16), may_alias));

static Matrix a __attribute__((aligned(16))), b __attribute__((aligned(16))),
    c __attribute__((aligned(16)));

static void Fill(void) {
  uint64_t state = 7;
  for (int i = 0; i < kSize; ++i) {
    for (int k = 0; k < kSize; ++k) {
      a[i][k] = (double)NextRandom(&state) * 0x1p-31;
      b[i][k] = (double)NextRandom(&state) * 0x1p-31 - 0.5;
      c[i][k] = 0;
    }
  }
}

uint64_t RunMatmul(const struct Run* run) {
  Fill();
  StartClock();
  for (unsigned round = 0; round < run->count; ++round) {
    for (int i = 0; i < kSize; ++i) {
      for (int k = 0; k < kSize; ++k) {
        const Vector2 factor = {a[i][k], a[i][k]};
        const Vector2* row = (const Vector2*)b[k];
        Vector2* sum = (Vector2*)c[i];
        for (int j = 0; j < kSize / 2; ++j) sum[j] += factor * row[j];
      }
    }
  }
  StopClock();
  return Sum(kSumStart, c, sizeof(c));
}

__attribute__((optimize("no-tree-vectorize"))) uint64_t RunMatmul1(const struct Run* run) {
  Fill();
  StartClock();
  for (unsigned round = 0; round < run->count; ++round) {
    for (int i = 0; i < kSize; ++i) {
      for (int k = 0; k < kSize; ++k) {
        const double factor = a[i][k];
        for (int j = 0; j < kSize; ++j) c[i][j] += factor * b[k][j];
      }
    }
  }
  StopClock();
  return Sum(kSumStart, c, sizeof(c));
}

uint64_t RunX87(const struct Run* run) {
  // Leibniz: pi/4 = 1 - 1/3 + 1/5 - ...
  long double sum = 0, denominator = 1, sign = 1;
  for (unsigned i = 0; i < run->count; ++i) {
    sum += sign / denominator;
    denominator += 2;
    sign = -sign;
  }
  return Sum(kSumStart, &sum, 10);  // the rest of a long double is padding
}
