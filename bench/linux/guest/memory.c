/* SPDX-License-Identifier: Apache-2.0 */
// A working set that no cache, TLB or shadow holds.
#define _GNU_SOURCE
#include <sys/mman.h>

#include "bench/linux/guest/linuxbench.h"

uint64_t RunRandom(const struct Run* run) {
  enum { kWords = (200u << 20) / sizeof(uint64_t) };
  uint64_t* words = mmap(NULL, kWords * sizeof(*words), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) Die("mmap");
  // Huge pages would be few, and where the kernel has them is its own affair.
  madvise(words, kWords * sizeof(*words), MADV_NOHUGEPAGE);
  for (uint64_t i = 0; i < kWords; ++i) words[i] = i;
  StartClock();
  // Each place depends on what was found at the one before.
  uint64_t state = 11, sum = 0;
  for (unsigned i = 0; i < run->count; ++i) {
    uint64_t* word = &words[((uint64_t)NextRandom(&state) * kWords) >> 31];
    sum += *word;
    *word = sum;
    state ^= sum & 1;
  }
  StopClock();
  munmap(words, kWords * sizeof(*words));
  return sum;
}
