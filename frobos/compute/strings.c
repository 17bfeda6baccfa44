/* SPDX-License-Identifier: Apache-2.0 */
/* Byte and word loops over strings at odd addresses: copies, lengths, comparisons, unaligned
   8-byte accesses (some of them across pages). */
#include "frobos/compute/compute.h"

enum { kSize = 16384 };
static char source[kSize + 64], target[kSize + 64];

static __attribute__((noinline)) void copy_bytes(char* to, const char* from, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = from[i];
}

struct __attribute__((packed)) Unaligned {
  uint64_t value;
};

static __attribute__((noinline)) void copy_words(char* to, const char* from, size_t n) {
  for (; n >= 8; n -= 8, to += 8, from += 8) {
    ((struct Unaligned*)to)->value = ((const struct Unaligned*)from)->value;
  }
  copy_bytes(to, from, n);
}

static __attribute__((noinline)) size_t length(const char* s) {
  size_t n = 0;
  while (s[n] != 0) n++;
  return n;
}

static __attribute__((noinline)) int compare(const char* x, const char* y) {
  while (*x != 0 && *x == *y) x++, y++;
  return (unsigned char)*x - (unsigned char)*y;
}

static __attribute__((noinline)) uint64_t sum_words(const char* from, size_t n) {
  uint64_t sum = 0;
  for (; n >= 8; n -= 5, from += 5) sum += ((const struct Unaligned*)from)->value;
  return sum;
}

uint64_t run_strings(unsigned scale) {
  uint64_t checksum = 0;
  for (unsigned i = 0; i < kSize; i++) source[i] = (char)('a' + i % 23);
  for (unsigned i = 0; i < scale; i++) {
    const size_t n = kSize - 1 - i % 64, from = i % 13, to = i % 7;
    source[from + n - 8] = 0;
    copy_words(target + to, source + from, n);
    checksum = compute_mix(checksum, length(target + to));
    checksum = compute_mix(checksum, (uint64_t)compare(target + to, source + from));
    copy_bytes(target + to + 3, source + from + 1, n / 2);
    checksum = compute_mix(checksum, sum_words(target + to, n));
    source[from + n - 8] = 'x';
  }
  return checksum;
}
