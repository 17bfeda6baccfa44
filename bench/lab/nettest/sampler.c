// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  kPage = 4096,
  // What is behind the first page: a power of two. 16 bytes for each sample; what comes when it is
  // full is lost, which leaves the parts as they are.
  kRingBytes = 256 * kPage,
  kMostRanges = 256,
};
// Microseconds of CPU time between samples, in the unit of the event; no divisor of a tick.
static const uint64_t kPeriodNs = 997000;

struct Sampler {
  int fd;
  struct perf_event_mmap_page* ring;
};

struct Sampler* StartSampler(int thread) {
  struct perf_event_attr event = {
      .type = PERF_TYPE_SOFTWARE,
      .size = sizeof(event),
      .config = PERF_COUNT_SW_TASK_CLOCK,
      .sample_period = kPeriodNs,
      .sample_type = PERF_SAMPLE_IP,
      .exclude_hv = 1,
  };
  const long fd = syscall(SYS_perf_event_open, &event, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) return NULL;
  void* ring = mmap(NULL, kPage + kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
  struct Sampler* sampler = ring == MAP_FAILED ? NULL : malloc(sizeof(*sampler));
  if (sampler == NULL) {
    close((int)fd);
    return NULL;
  }
  *sampler = (struct Sampler){(int)fd, ring};
  return sampler;
}

struct Range {
  uint64_t begin, end;
  enum SampleKind kind;
};

// The executable parts of a process's memory that come from files. Returns their number.
static unsigned ReadMap(int process, struct Range* ranges) {
  char path[64], program[512];
  snprintf(path, sizeof(path), "/proc/%d/exe", process);
  const ssize_t length = readlink(path, program, sizeof(program) - 1);
  program[length < 0 ? 0 : length] = '\0';
  snprintf(path, sizeof(path), "/proc/%d/maps", process);
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  unsigned count = 0;
  char line[1024];
  while (count < kMostRanges && fgets(line, sizeof(line), file) != NULL) {
    struct Range range;
    char rights[8], name[512] = "";
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %511s", &range.begin, &range.end,
               rights, name) < 3 ||
        strchr(rights, 'x') == NULL) {
      continue;
    }
    if (strcmp(name, program) == 0) {
      range.kind = kProgram;
    } else if (strstr(name, ".so") != NULL || strcmp(name, "[vdso]") == 0) {
      range.kind = kLibraries;
    } else {
      continue;
    }
    ranges[count++] = range;
  }
  fclose(file);
  return count;
}

static enum SampleKind KindOf(uint64_t address, const struct Range* ranges, unsigned count) {
  if (address >> 63) return kKernel;
  for (unsigned i = 0; i < count; ++i) {
    if (address >= ranges[i].begin && address < ranges[i].end) return ranges[i].kind;
  }
  return kTranslated;
}

void EndSampler(struct Sampler* sampler, int process, unsigned long counts[kSampleKinds]) {
  struct Range ranges[kMostRanges];
  const unsigned count = ReadMap(process, ranges);
  const char* data = (const char*)sampler->ring + kPage;
  const uint64_t head = __atomic_load_n(&sampler->ring->data_head, __ATOMIC_ACQUIRE);
  // Every record is a multiple of 8 bytes, so that a header and an address lie in one piece.
  for (uint64_t at = 0; at < head;) {
    struct perf_event_header header;
    memcpy(&header, data + at % kRingBytes, sizeof(header));
    if (header.size == 0) break;
    if (header.type == PERF_RECORD_SAMPLE) {
      uint64_t address;
      memcpy(&address, data + (at + sizeof(header)) % kRingBytes, sizeof(address));
      ++counts[KindOf(address, ranges, count)];
    }
    at += header.size;
  }
  munmap(sampler->ring, kPage + kRingBytes);
  close(sampler->fd);
  free(sampler);
}
