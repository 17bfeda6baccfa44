/* SPDX-License-Identifier: Apache-2.0 */
// Operations that cost the same however large `size` is, natively but for the caches: scaling.inc.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

enum { kPageSize = 4096 };

static void* Map(size_t size, int protection) {
  void* memory = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Die("mmap");
  madvise(memory, size, MADV_NOHUGEPAGE);
  return memory;
}

// The i-th of so many places (a power of two), in an order that no prefetcher knows.
static size_t PlaceOf(unsigned i, unsigned count) { return i * 0x9e3779b1u & (count - 1); }

// Passes bytes on until there are none.
static void Pass(int from, int to) {
  char byte;
  while (read(from, &byte, 1) == 1) {
    if (write(to, &byte, 1) != 1) _exit(1);
  }
  _exit(0);
}

uint64_t RunRing(const struct Run* run) {
  int first[2], next[2];
  if (pipe(first) != 0) Die("pipe");
  int from = first[0];
  for (unsigned i = 1; i < run->size; ++i) {
    if (pipe(next) != 0) Die("pipe");
    const int pid = fork();
    if (pid < 0) Die("fork");
    if (pid == 0) {
      close(first[1]);
      close(next[0]);
      Pass(from, next[1]);
    }
    close(from);
    close(next[1]);
    from = next[0];
  }
  char byte = 1;
  const unsigned rounds = run->count / run->size, warm_up = 2;
  for (unsigned i = 0; i < warm_up + rounds; ++i) {
    if (i == warm_up) StartClock();
    if (write(first[1], &byte, 1) != 1) Die("write");
    if (read(from, &byte, 1) != 1) Die("read");
  }
  StopClock();
  close(first[1]);
  for (unsigned i = 1; i < run->size; ++i) WaitFor(-1);
  close(from);
  return rounds;
}

// At places that differ in all bits of the page offset but the lowest.
static unsigned char* FunctionAt(unsigned char* code, size_t page) {
  return code + page * kPageSize + (page * 208 & 0xff0);
}

uint64_t RunCodePages(const struct Run* run) {
  const size_t bytes = (size_t)run->size * kPageSize;
  unsigned char* code = Map(bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  for (unsigned i = 0; i < run->size; ++i) {
    // lea eax, [rdi + i]; ret
    unsigned char* at = FunctionAt(code, i);
    memcpy(at, "\x8d\x87", 2);
    memcpy(at + 2, &i, 4);
    at[6] = 0xc3;
  }
  uint32_t sum = 0;
  for (unsigned i = 0; i < 2 * run->size + run->count; ++i) {
    if (i == 2 * run->size) StartClock();
    uint32_t (*function)(uint32_t);
    const unsigned char* at = FunctionAt(code, PlaceOf(i, run->size));
    memcpy(&function, &at, sizeof(function));
    sum = function(sum);
  }
  StopClock();
  munmap(code, bytes);
  return sum;
}

// Loads that are `stride` bytes apart, but not all in the same line of a page.
static uint64_t Load(const struct Run* run, size_t stride) {
  const size_t bytes = run->size * stride;
  unsigned char* memory = Map(bytes, PROT_READ | PROT_WRITE);
  for (size_t i = 0; i < run->size; ++i) memory[i * stride + i % 64 * 64] = (unsigned char)i;
  uint64_t sum = 0;
  for (unsigned i = 0; i < 2 * run->size + run->count; ++i) {
    if (i == 2 * run->size) StartClock();
    const size_t place = PlaceOf(i, run->size);
    sum += *(volatile unsigned char*)(memory + place * stride + place % 64 * 64);
  }
  StopClock();
  munmap(memory, bytes);
  return sum;
}

uint64_t RunDataPages(const struct Run* run) { return Load(run, kPageSize); }
uint64_t RunRegions(const struct Run* run) { return Load(run, (size_t)16 << 20); }

uint64_t RunSites(const struct Run* run) {
  // mov [rdi + 0x800], esi; ...; ret
  static const unsigned char kStore[] = {0x89, 0xb7, 0x00, 0x08, 0x00, 0x00};
  const size_t bytes = (sizeof(kStore) * run->size & ~(size_t)(kPageSize - 1)) + kPageSize;
  unsigned char* code = Map(bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  for (size_t i = 0; i < run->size; ++i) memcpy(code + i * sizeof(kStore), kStore, sizeof(kStore));
  code[run->size * sizeof(kStore)] = 0xc3;
  // A page with code, too: a ret.
  unsigned char* page = Map(kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC);
  page[0] = 0xc3;
  void (*nothing)(void);
  void (*stores)(void*, unsigned);
  memcpy(&nothing, &page, sizeof(nothing));
  memcpy(&stores, &code, sizeof(stores));
  nothing();
  const unsigned passes = run->count / run->size, warm_up = 4;
  for (unsigned i = 0; i < warm_up + passes; ++i) {
    if (i == warm_up) StartClock();
    stores(page, i);
  }
  StopClock();
  uint32_t last;
  memcpy(&last, page + 0x800, sizeof(last));
  munmap(code, bytes);
  munmap(page, kPageSize);
  return last;
}
