/* SPDX-License-Identifier: Apache-2.0 */
// linuxbench run WORDS FOLDER BUSYBOX       runs workloads; WORDS, separated by ':', may hold
//                                           quick, show (what commands print, too),
//                                           only=NAME,NAME, cpus=N, workers=N, stay (a moment,
//                                           at the end) and asker=ADDRESS/PORT/PORT
// linuxbench beside ADDRESS COMMAND [WORD...]  becomes the command, with an asker beside it, which
//                                           is asked at that address (asker.c)
// linuxbench compile SOURCE OBJECT          compiles a file
// linuxbench nothing                        what forkexec runs
//
// Results are lines "@@bench JSON" on stdout, which in a guest is the serial console. Each workload
// runs in a process of its own: a crash of one is its own failure.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

const uint64_t kSumStart = 0xcbf29ce484222325u;

static const struct Workload {
  const char* name;
  WorkloadFunction function;
  unsigned full, quick, samples, size;
  const char* command;
} kWorkloads[] = {
#ifndef ALIBI_ONLY_DEBIAN
#define ALIBI_LINUX_WORKLOAD(name, function, per, full, quick, samples, aim, auto_most, how, \
                             meaning)                                                        \
  {#name, function, full, quick, samples, 0, NULL},
#include "bench/linux/workloads.inc"
#undef ALIBI_LINUX_WORKLOAD
#define ALIBI_PARALLEL(what, function, per, full, quick, samples, aim, speed_up, meaning) \
  {"parallel/" what, function, full, quick, samples, 0, NULL},
#include "bench/linux/parallel.inc"
#define ALIBI_DISK(disk, what, kilobytes, function, full, quick, samples, aim, meaning) \
  {disk "/" what, function, full, quick, samples, kilobytes, NULL},
#include "bench/linux/disk.inc"
#define ALIBI_SCALING(bound, size, function, full, quick) \
  {bound "/" #size, function, full, quick, 1, size, NULL},
#include "bench/linux/scaling.inc"
#define ALIBI_ENTRIES(steps, full, quick) \
  {"entries/" #steps, RunEntries, full, quick, 1, steps, NULL},
#include "bench/linux/entries.inc"
#endif
#define ALIBI_DEBIAN(name, per, full, quick, samples, aim, most, auto_most, how, command, meaning) \
  {name, RunCommand, full, quick, samples, 0, command},
#include "bench/linux/debian.inc"
};

static const char* workload_name = "";
static double clock_start, clock_stop;

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void StartClock(void) { clock_start = Now(); }
void StopClock(void) { clock_stop = Now(); }

void Die(const char* what) {
  printf("@@bench {\"name\":\"%s\",\"error\":\"%s: %s\"}\n", workload_name, what, strerror(errno));
  fflush(stdout);
  _exit(1);
}

uint64_t Sum(uint64_t sum, const void* data, size_t size) {
  const unsigned char* bytes = data;
  for (size_t i = 0; i < size; ++i) sum = (sum ^ bytes[i]) * 0x100000001b3u;
  return sum;
}

uint64_t SumOfFile(const char* path) {
  const int fd = open(path, O_RDONLY);
  if (fd < 0) Die(path);
  uint64_t sum = kSumStart;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) sum = Sum(sum, buffer, (size_t)n);
  close(fd);
  return sum;
}

void WaitFor(int pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) Die("waitpid");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    char what[64];
    snprintf(what, sizeof(what), "a child process failed (wait status %#x)", (unsigned)status);
    errno = 0;
    Die(what);
  }
}

static void RunWorkload(const struct Workload* workload, struct Run run, int quick) {
  run.count = quick ? workload->quick : workload->full;
  run.size = workload->size;
  run.command = workload->command;
  const unsigned samples = quick ? 1 : workload->samples;
  uint64_t sum = 0;
  double seconds[8];
  for (unsigned i = 0; i < samples; ++i) {
    clock_stop = 0;
    StartClock();
    const uint64_t result = workload->function(&run);
    if (clock_stop == 0) StopClock();
    seconds[i] = clock_stop - clock_start;
    if (i != 0 && result != sum) {
      errno = 0;
      Die("two runs computed different things");
    }
    sum = result;
  }
  printf("@@bench {\"name\":\"%s\",\"count\":%u,\"check\":\"%016llx\",\"seconds\":[",
         workload->name, run.count, (unsigned long long)sum);
  for (unsigned i = 0; i < samples; ++i) printf("%s%.9f", i != 0 ? "," : "", seconds[i]);
  printf("]}\n");
}

// Rows of other files than workloads.inc run if they are named.
static int IsSelected(const char* only, const struct Workload* workload) {
  const char* name = workload->name;
  if (only == NULL) return strchr(name, '/') == NULL && workload->command == NULL;
  const size_t length = strlen(name);
  for (const char* at = only; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (strncmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ',')) return 1;
  }
  return 0;
}

static void Mark(const char* name) {
  printf("@@bench {\"mark\":\"%s\",\"clock\":%.6f}\n", name, Now());
  fflush(stdout);
}

// As in a guest with so many VCPUs: on two cores of the host, a pipe would measure something else
// than on one. This CPU, and others that are allowed.
static void StayOnCores(int cores) {
  cpu_set_t allowed, set;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) CPU_ZERO(&allowed);
  CPU_ZERO(&set);
  CPU_SET((size_t)sched_getcpu(), &set);
  for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&set) < cores; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &set);
  }
  sched_setaffinity(0, sizeof(set), &set);
}

static int RunAll(char* words, const char* folder, const char* busybox) {
  static char self[4096], dynamic[4096 + 16];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (n <= 0) Die("/proc/self/exe");
  const int folder_length = (int)(strrchr(self, '/') - self);
  snprintf(dynamic, sizeof(dynamic), "%.*s/dynamic", folder_length, self);
  struct Run run = {0, 0, 2, folder, busybox, self, dynamic, NULL, 0, ""};
  const char* only = NULL;
  int quick = 0, stay = 0, cores = 1;
  for (char* word = strtok(words, ":"); word != NULL; word = strtok(NULL, ":")) {
    if (strcmp(word, "quick") == 0) quick = 1;
    if (strcmp(word, "show") == 0) run.show = 1;
    if (strcmp(word, "stay") == 0) stay = 1;
    if (strncmp(word, "workers=", 8) == 0) run.workers = (unsigned)atoi(word + 8);
    if (strncmp(word, "only=", 5) == 0) only = word + 5;
    if (strncmp(word, "asker=", 6) == 0) run.asker = word + 6;
    if (strncmp(word, "cpus=", 5) == 0) cores = atoi(word + 5);
  }
  StayOnCores(cores);
  Mark("begin");
  for (size_t i = 0; i < sizeof(kWorkloads) / sizeof(kWorkloads[0]); ++i) {
    workload_name = kWorkloads[i].name;
    if (!IsSelected(only, &kWorkloads[i])) continue;
    printf("@@bench {\"begin\":\"%s\"}\n", workload_name);
    fflush(stdout);
    const int child = fork();
    if (child < 0) Die("fork");
    if (child == 0) {
      RunWorkload(&kWorkloads[i], run, quick);
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
      printf("@@bench {\"name\":\"%s\",\"error\":\"killed by signal %d\"}\n", workload_name,
             WTERMSIG(status));
      fflush(stdout);
    }
  }
  Mark("done");
  // Whoever sees the line looks at the memory of what this runs in.
  if (stay) usleep(500000);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "nothing") == 0) return 0;
#ifndef ALIBI_ONLY_DEBIAN
  if (argc == 4 && strcmp(argv[1], "compile") == 0) return CompileFile(argv[2], argv[3]);
#endif
  if (argc == 5 && strcmp(argv[1], "run") == 0) return RunAll(argv[2], argv[3], argv[4]);
  if (argc > 3 && strcmp(argv[1], "beside") == 0) RunBeside(argv[2], argv + 3);
  fprintf(stderr,
          "usage: linuxbench run WORDS FOLDER BUSYBOX | beside ADDRESS COMMAND... | nothing\n");
  return 64;
}
