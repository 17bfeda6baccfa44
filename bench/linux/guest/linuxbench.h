// SPDX-License-Identifier: Apache-2.0
// The guest side of `alibi bench linux`, `scaling`, `disk` and `debian`: one static program with
// all workloads, which runs unchanged on the host and in each guest.
#ifndef ALIBI_BENCH_LINUX_GUEST_LINUXBENCH_H_
#define ALIBI_BENCH_LINUX_GUEST_LINUXBENCH_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// What a workload gets. `count` operations, see workloads.inc, parallel.inc, scaling.inc, disk.inc,
// debian.inc and entries.inc.
struct Run {
  unsigned count;
  unsigned size;        // see scaling.inc, disk.inc and entries.inc; else 0
  unsigned workers;     // see parallel.inc
  const char* folder;   // on tmpfs, for files; those of disk.inc find their disks there
  const char* busybox;  // path
  const char* self;     // path of this program
  const char* dynamic;  // path of a dynamic one, beside it
  const char* command;  // see debian.inc; else NULL
  int show;             // what the command prints is printed
  const char* asker;    // ADDRESS/PORT/PORT: where its asker listens, and asks at; "": nowhere
};

// Runs `count` operations; returns a checksum of what they computed, which is the same on every
// machine. Ends the process with a message by Die() when something fails.
typedef uint64_t (*WorkloadFunction)(const struct Run* run);
#ifndef ALIBI_ONLY_DEBIAN  // see source_program.sh
#define ALIBI_LINUX_WORKLOAD(name, function, ...) uint64_t function(const struct Run* run);
#include "bench/linux/workloads.inc"
#undef ALIBI_LINUX_WORKLOAD
#define ALIBI_PARALLEL(what, function, ...) uint64_t function(const struct Run* run);
#include "bench/linux/parallel.inc"
#define ALIBI_SCALING(bound, size, function, ...) uint64_t function(const struct Run* run);
#include "bench/linux/scaling.inc"
#endif
uint64_t RunVirtioRead(const struct Run* run);
uint64_t RunVirtioWrite(const struct Run* run);
uint64_t RunIdeRead(const struct Run* run);
uint64_t RunIdeWrite(const struct Run* run);
uint64_t RunCommand(const struct Run* run);
uint64_t RunEntries(const struct Run* run);

// Says what failed (with errno) as the workload's result, and exits.
_Noreturn void Die(const char* what);

// Begins the measured part, for workloads that prepare something; without it, all is measured.
void StartClock(void);
// Ends it, for workloads that tidy up.
void StopClock(void);

// FNV-1a over bytes, from a previous sum or kSumStart.
uint64_t Sum(uint64_t sum, const void* data, size_t size);
extern const uint64_t kSumStart;
uint64_t SumOfFile(const char* path);

// Replaces this process by the command, in whose words each of these places becomes a port of the
// host's loopback: the asker's (asker.c), which runs beside the command, and that at which it asks.
#define kAskerPlace "%ASKER%"
#define kServerPlace "%SERVER%"
_Noreturn void RunBeside(const char* address, char** words);

// For one, or several workers: a tool of busybox, run by each of so many, whose input is its share
// of the megabytes and whose output its own; C source of so many functions, each seed's another;
// pages that are mapped, written to and unmapped, so many at a time.
uint64_t RunTool(const struct Run* run, unsigned workers, char* tool);
void WriteSource(FILE* file, unsigned functions, uint64_t seed);
uint64_t TouchPages(unsigned count, size_t at_once);

// Compiles a file to an object; the exit status.
int CompileFile(const char* source, const char* object);

// A child (-1: any) that exited with status 0, or Die().
void WaitFor(int pid);

// 64-bit linear congruential numbers, the same everywhere.
static inline uint32_t NextRandom(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

#endif  // ALIBI_BENCH_LINUX_GUEST_LINUXBENCH_H_
