/* SPDX-License-Identifier: Apache-2.0 */
// Work that several processes or threads share: parallel.inc.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

enum { kMaxWorkers = 16, kPageSize = 4096 };

// A worker's part of all operations.
static struct Run ShareOf(const struct Run* run, unsigned worker) {
  struct Run share = *run;
  share.count = run->count / run->workers + (worker < run->count % run->workers);
  return share;
}

// What processes tell each other: it stays theirs across fork().
static void* MapShared(size_t size) {
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("mmap");
  return memory;
}

// A process for each worker, timed from the first fork to the last exit.
static uint64_t InProcesses(const struct Run* run, WorkloadFunction work) {
  uint64_t* sums = MapShared(kPageSize);
  StartClock();
  for (unsigned i = 0; i < run->workers; ++i) {
    const int pid = fork();
    if (pid < 0) Die("fork");
    if (pid == 0) {
      const struct Run share = ShareOf(run, i);
      sums[i] = work(&share);
      _exit(0);
    }
  }
  for (unsigned i = 0; i < run->workers; ++i) WaitFor(-1);
  StopClock();
  uint64_t sum = 0;
  for (unsigned i = 0; i < run->workers; ++i) sum += sums[i];
  munmap(sums, kPageSize);
  return sum;
}

struct Thread {
  pthread_t id;
  struct Run share;
  WorkloadFunction work;
  uint64_t sum;
};

static void* ThreadMain(void* argument) {
  struct Thread* thread = argument;
  thread->sum = thread->work(&thread->share);
  return NULL;
}

static uint64_t InThreads(const struct Run* run, WorkloadFunction work) {
  struct Thread threads[kMaxWorkers];
  StartClock();
  for (unsigned i = 0; i < run->workers; ++i) {
    threads[i].share = ShareOf(run, i);
    threads[i].work = work;
    errno = pthread_create(&threads[i].id, NULL, ThreadMain, &threads[i]);
    if (errno != 0) Die("pthread_create");
  }
  uint64_t sum = 0;
  for (unsigned i = 0; i < run->workers; ++i) {
    pthread_join(threads[i].id, NULL);
    sum += threads[i].sum;
  }
  StopClock();
  return sum;
}

uint64_t RunGzips(const struct Run* run) { return RunTool(run, run->workers, "gzip"); }
uint64_t RunSha256s(const struct Run* run) { return RunTool(run, run->workers, "sha256sum"); }
uint64_t RunLuas(const struct Run* run) { return InProcesses(run, RunLua); }
uint64_t RunForkWaits(const struct Run* run) { return InProcesses(run, RunForkWait); }

static unsigned* next_file;

// Takes files until there are none, each for a process of its own.
static uint64_t CompileFiles(const struct Run* share) {
  uint64_t done = 0;
  unsigned file;
  while ((file = __atomic_fetch_add(next_file, 1, __ATOMIC_RELAXED)) < share->size) {
    char source[32], object[32];
    snprintf(source, sizeof(source), "input%u.c", file);
    snprintf(object, sizeof(object), "output%u.o", file);
    const int pid = fork();
    if (pid < 0) Die("fork");
    if (pid == 0) {
      execl(share->self, share->self, "compile", source, object, (char*)NULL);
      _exit(127);
    }
    WaitFor(pid);
    ++done;
  }
  return done;
}

uint64_t RunCompiles(const struct Run* run) {
  enum { kFunctions = 600 };
  // Objects have their sources' names as they were given.
  if (chdir(run->folder) != 0) Die(run->folder);
  char name[32];
  for (unsigned i = 0; i < run->count; ++i) {
    snprintf(name, sizeof(name), "input%u.c", i);
    FILE* file = fopen(name, "w");
    if (file == NULL) Die(name);
    WriteSource(file, kFunctions, i);
    if (fclose(file) != 0) Die(name);
  }
  struct Run queue = *run;
  queue.size = run->count;
  next_file = MapShared(kPageSize);
  uint64_t sum = InProcesses(&queue, CompileFiles);
  munmap(next_file, kPageSize);
  for (unsigned i = 0; i < run->count; ++i) {
    snprintf(name, sizeof(name), "output%u.o", i);
    sum += SumOfFile(name);
    unlink(name);
    snprintf(name, sizeof(name), "input%u.c", i);
    unlink(name);
  }
  return sum;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t guarded[8];

// Sections are a fifth of the work: two workers are often in each other's way, but not always.
static uint64_t LockOften(const struct Run* share) {
  enum { kSteps = 32 };
  uint64_t state = 3;
  for (unsigned i = 0; i < share->count; ++i) {
    pthread_mutex_lock(&mutex);
    for (unsigned k = 0; k < sizeof(guarded) / sizeof(guarded[0]); ++k) ++guarded[k];
    pthread_mutex_unlock(&mutex);
    for (unsigned k = 0; k < kSteps; ++k) NextRandom(&state);
  }
  return state & 1;
}

uint64_t RunLock(const struct Run* run) {
  guarded[0] = 0;
  return InThreads(run, LockOften) + guarded[0];
}

uint64_t RunFaults(const struct Run* run) { return InProcesses(run, RunPageFault); }

static uint64_t FaultOften(const struct Run* share) { return TouchPages(share->count, 256); }

uint64_t RunSharedFaults(const struct Run* run) { return InThreads(run, FaultOften); }
