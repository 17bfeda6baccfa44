// SPDX-License-Identifier: Apache-2.0
// Threads on several CPUs: locks, futexes, atomic instructions, mappings that change under them. A
// line "ok NAME" or "bad NAME: ..." for each; exit status 0 if all are ok.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kThreads = 4, kRounds = 20000, kPage = 4096 };

static int failures;

static void verdict(const char* name, long got, long wanted) {
  if (got == wanted) {
    printf("ok %s\n", name);
  } else {
    printf("bad %s: %ld, not %ld\n", name, got, wanted);
    ++failures;
  }
}

static void run(void* (*function)(void*)) {
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], NULL, function, (void*)i) != 0) abort();
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static long guarded, spun;
static atomic_long added;

static void* count(void* unused) {
  (void)unused;
  for (int i = 0; i < kRounds; ++i) {
    pthread_mutex_lock(&mutex);
    ++guarded;
    pthread_mutex_unlock(&mutex);
    pthread_spin_lock(&spin);
    ++spun;
    pthread_spin_unlock(&spin);
    atomic_fetch_add(&added, 1);
  }
  return NULL;
}

// One after the other, in a ring.
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static long turn;
static void* take_turns(void* number) {
  for (int i = 0; i < kRounds / 20; ++i) {
    pthread_mutex_lock(&mutex);
    while (turn % kThreads != (intptr_t)number) pthread_cond_wait(&turn_changed, &mutex);
    ++turn;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static pthread_barrier_t barrier;
static int phase[kThreads];
static atomic_long out_of_step;
static void* step(void* number) {
  for (int i = 1; i <= 500; ++i) {
    phase[(intptr_t)number] = i;
    pthread_barrier_wait(&barrier);
    for (int k = 0; k < kThreads; ++k) {
      if (phase[k] != i) atomic_fetch_add(&out_of_step, 1);
    }
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

// The first makes a page read-only and gives it other contents; the others look.
static volatile uint64_t* page;
static atomic_long generation, stale;
static void* look(void* number) {
  if (number != NULL) {
    while (atomic_load(&generation) >= 0) {
      const uint64_t before = (uint64_t)atomic_load(&generation);
      const uint64_t found = *page;
      if (found < before && (int64_t)before >= 0) atomic_fetch_add(&stale, 1);
    }
    return NULL;
  }
  for (uint64_t i = 1; i <= 300; ++i) {
    uint64_t* fresh = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *fresh = i;
    if (mremap(fresh, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, (void*)page) == MAP_FAILED)
      abort();
    atomic_store(&generation, (long)i);
    mprotect((void*)page, kPage, PROT_READ);
  }
  atomic_store(&generation, -1);
  return NULL;
}

static atomic_long children;
static void* spawn(void* unused) {
  (void)unused;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(7);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 7) atomic_fetch_add(&children, 1);
  }
  return NULL;
}

static atomic_long backwards;
static _Atomic uint64_t latest;
static void* read_clock(void* unused) {
  (void)unused;
  for (int i = 0; i < kRounds; ++i) {
    const uint64_t before = atomic_load(&latest);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (ns < before) atomic_fetch_add(&backwards, 1);
    uint64_t seen = before;
    while (seen < ns && !atomic_compare_exchange_weak(&latest, &seen, ns)) {
    }
  }
  return NULL;
}

// Vector registers of threads that are moved from CPU to CPU.
static atomic_long mixed;
static void* compute(void* number) {
  const double base = (double)((intptr_t)number + 1);
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  for (int i = 0; i < 200; ++i) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned long)((intptr_t)number + i) % (unsigned long)cpus, &set);
    sched_setaffinity(0, sizeof(set), &set);
    double sum = 0;
    for (int k = 0; k < 1000; ++k) sum += base;
    if (sum != 1000 * base || sched_getcpu() != ((intptr_t)number + i) % cpus) {
      atomic_fetch_add(&mixed, 1);
    }
  }
  return NULL;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
  pthread_barrier_init(&barrier, NULL, kThreads);
  run(count);
  verdict("mutex", guarded, (long)kThreads * kRounds);
  verdict("spin_lock", spun, (long)kThreads * kRounds);
  verdict("atomic", added, (long)kThreads * kRounds);
  run(take_turns);
  verdict("condition", turn, kThreads * (kRounds / 20));
  run(step);
  verdict("barrier", out_of_step, 0);
  page = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  run(look);
  verdict("mappings", stale, 0);
  run(spawn);
  verdict("processes", children, kThreads * 20);
  run(read_clock);
  verdict("clock", backwards, 0);
  run(compute);
  verdict("registers", mixed, 0);
  return failures != 0;
}
