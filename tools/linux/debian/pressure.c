/* SPDX-License-Identifier: Apache-2.0 */
// What the row swap runs: pressure MEGABYTES STEPS. Reads and writes one page after the other, at
// random places of more memory than there is.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { kPage = 4096 };

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const size_t pages = (size_t)atoi(argv[1]) << 8;
  uint64_t* words =
      mmap(NULL, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) return 1;
  madvise(words, pages * kPage, MADV_NOHUGEPAGE);
  uint64_t state = 1, sum = 0;
  for (size_t i = 0; i < pages; ++i) words[i * kPage / sizeof(*words)] = i;
  for (int step = atoi(argv[2]); step > 0; --step) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t* page = words + (state >> 33) % pages * kPage / sizeof(*words);
    sum = sum * 31 + *page;
    *page = sum;
  }
  printf("%016llx\n", (unsigned long long)sum);
  return 0;
}
