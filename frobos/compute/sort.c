/* SPDX-License-Identifier: Apache-2.0 */
/* Quicksort with a comparison callback: calls, returns, indirect calls, unpredictable branches. */
#include "frobos/compute/compute.h"

enum { kMaxElements = 1 << 16 };
static uint64_t elements[kMaxElements];

typedef int (*Compare)(const void*, const void*);

static __attribute__((noinline)) int by_value(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return x < y ? -1 : x > y;
}

static __attribute__((noinline)) int by_low_bits(const void* a, const void* b) {
  const uint32_t x = (uint32_t)(*(const uint64_t*)a), y = (uint32_t)(*(const uint64_t*)b);
  return x < y ? -1 : x > y;
}

static void swap(uint64_t* a, uint64_t* b) {
  const uint64_t t = *a;
  *a = *b;
  *b = t;
}

static __attribute__((noinline)) void quick_sort(uint64_t* base, long n, Compare compare) {
  while (n > 12) {
    swap(base, base + n / 2);
    long i = 0, j = n;
    for (;;) {
      while (++i < n && compare(base + i, base) < 0) {
      }
      while (compare(base + --j, base) > 0) {
      }
      if (i >= j) break;
      swap(base + i, base + j);
    }
    swap(base, base + j);
    quick_sort(base, j, compare);
    base += j + 1;
    n -= j + 1;
  }
  for (long i = 1; i < n; i++) {
    for (long j = i; j > 0 && compare(base + j - 1, base + j) > 0; j--)
      swap(base + j - 1, base + j);
  }
}

uint64_t run_sort(unsigned scale) {
  const long n = scale < kMaxElements ? scale : kMaxElements;
  uint64_t state = 88172645463325252ull, checksum = 0;
  for (long i = 0; i < n; i++) elements[i] = compute_random(&state);
  quick_sort(elements, n, by_value);
  for (long i = 0; i < n; i += 7) checksum = compute_mix(checksum, elements[i]);
  quick_sort(elements, n, by_low_bits);
  for (long i = 0; i < n; i += 7) checksum = compute_mix(checksum, elements[i]);
  return checksum;
}
