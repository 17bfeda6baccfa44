/* SPDX-License-Identifier: Apache-2.0 */
// System calls, processes, context switches.
#define _GNU_SOURCE
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

uint64_t RunGetppid(const struct Run* run) {
  // Not through the C library: some have kept the number.
  const long parent = syscall(SYS_getppid);
  uint64_t different = 0;
  for (unsigned i = 0; i < run->count; ++i) different += syscall(SYS_getppid) != parent;
  return different;
}

uint64_t TouchPages(unsigned count, size_t at_once) {
  enum { kPageSize = 4096 };
  uint64_t sum = 0;
  for (size_t done = 0; done < count; done += at_once) {
    volatile char* memory =
        mmap(NULL, at_once * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Die("mmap");
    // Huge pages would leave 8 faults.
    madvise((void*)memory, at_once * kPageSize, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < at_once; ++page) {
      memory[page * kPageSize] = (char)page;
      sum += (unsigned char)memory[page * kPageSize] + (unsigned char)memory[page * kPageSize + 1];
    }
    if (munmap((void*)memory, at_once * kPageSize) != 0) Die("munmap");
  }
  return sum;
}

uint64_t RunPageFault(const struct Run* run) { return TouchPages(run->count, 4096); }

uint64_t RunForkWait(const struct Run* run) {
  for (unsigned i = 0; i < run->count; ++i) {
    const int pid = fork();
    if (pid < 0) Die("fork");
    if (pid == 0) _exit(0);
    WaitFor(pid);
  }
  return run->count;
}

static uint64_t ForkExec(const struct Run* run, const char* program) {
  for (unsigned i = 0; i < run->count; ++i) {
    const int pid = fork();
    if (pid < 0) Die("fork");
    if (pid == 0) {
      execl(program, program, "nothing", (char*)NULL);
      _exit(127);
    }
    WaitFor(pid);
  }
  return run->count;
}

uint64_t RunForkExec(const struct Run* run) { return ForkExec(run, run->self); }

uint64_t RunExecDynamic(const struct Run* run) { return ForkExec(run, run->dynamic); }

uint64_t RunExecLate(const struct Run* run) {
  // Later samples find the machine old already.
  static unsigned others;
  for (; others < 20; ++others) ForkExec(run, run->dynamic);
  StartClock();
  return ForkExec(run, run->dynamic);
}

// Writes to every cache line.
static uint64_t WalkWorkingSet(uint64_t* set, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size / sizeof(*set); i += 8) sum += ++set[i];
  return sum;
}

static uint64_t Play(int from, int to, unsigned turns, int begins) {
  enum { kWorkingSet = 65536 };
  uint64_t* set = calloc(1, kWorkingSet);
  if (set == NULL) Die("calloc");
  uint64_t sum = 0;
  char byte = 1;
  if (begins && write(to, &byte, 1) != 1) Die("write");
  for (unsigned i = 0; i < turns; ++i) {
    if (read(from, &byte, 1) != 1) Die("read");
    sum += WalkWorkingSet(set, kWorkingSet);
    // The one who began would write one byte more than is read.
    if (!(begins && i + 1 == turns) && write(to, &byte, 1) != 1) Die("write");
  }
  free(set);
  return sum;
}

uint64_t RunSwitch(const struct Run* run) {
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) Die("pipe");
  const unsigned turns = run->count / 2;  // two switches each
  const int pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    Play(there[0], back[1], turns, 0);
    _exit(0);
  }
  const uint64_t sum = Play(back[0], there[1], turns, 1);
  WaitFor(pid);
  for (int i = 0; i < 2; ++i) {
    close(there[i]);
    close(back[i]);
  }
  return sum;
}
