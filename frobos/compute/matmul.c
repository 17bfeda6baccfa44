/* SPDX-License-Identifier: Apache-2.0 */
/* A product of two double matrices: SSE2 arithmetic with memory operands, strided loads. */
#include "frobos/compute/compute.h"

enum { kMaxSize = 192 };
static double a[kMaxSize][kMaxSize], b[kMaxSize][kMaxSize], c[kMaxSize][kMaxSize];

uint64_t run_matmul(unsigned scale) {
  const unsigned n = scale < kMaxSize ? scale : kMaxSize;
  for (unsigned i = 0; i < n; i++) {
    for (unsigned j = 0; j < n; j++) {
      a[i][j] = (double)(i * 3 + j) * 0.125;
      b[i][j] = (double)(i + j * 5) * 0.25 - 7.0;
    }
  }
  for (unsigned i = 0; i < n; i++) {
    for (unsigned j = 0; j < n; j++) {
      double sum = 0;
      for (unsigned k = 0; k < n; k++) sum += a[i][k] * b[k][j];
      c[i][j] = sum;
    }
  }
  uint64_t checksum = 0;
  for (unsigned i = 0; i < n; i++) {
    for (unsigned j = 0; j < n; j++) checksum = compute_mix(checksum, (uint64_t)(int64_t)c[i][j]);
  }
  return checksum;
}
