/* SPDX-License-Identifier: Apache-2.0 */
// Pipes and files.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

enum { kChunk = 65536 };

static char buffer[kChunk];

uint64_t RunPipe(const struct Run* run) {
  int ends[2];
  if (pipe(ends) != 0) Die("pipe");
  const uint64_t size = (uint64_t)run->count << 20;
  memset(buffer, 'x', sizeof(buffer));
  const int pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    close(ends[0]);
    for (uint64_t done = 0; done < size;) {
      buffer[0] = (char)(done / kChunk);
      const ssize_t n = write(ends[1], buffer, kChunk);
      if (n <= 0) _exit(1);
      done += (uint64_t)n;
    }
    _exit(0);
  }
  close(ends[1]);
  uint64_t total = 0;
  ssize_t n;
  while ((n = read(ends[0], buffer, kChunk)) > 0) total += (uint64_t)n;
  close(ends[0]);
  WaitFor(pid);
  return total;
}

uint64_t RunTmpFile(const struct Run* run) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/file", run->folder);
  memset(buffer, 'y', 1024);
  uint64_t written = 0;
  for (unsigned i = 0; i < run->count; ++i) {
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0) Die(path);
    written += (uint64_t)write(fd, buffer, 1024);
    close(fd);
    if (unlink(path) != 0) Die(path);
  }
  return written;
}
