/* SPDX-License-Identifier: Apache-2.0 */
// Programs of busybox over a generated file.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

// Text of words from a small vocabulary: compresses about as prose does.
static void WriteText(const char* path, size_t size) {
  char words[512][12];
  uint64_t state = 1;
  for (int i = 0; i < 512; ++i) {
    const unsigned length = 2 + NextRandom(&state) % 9;
    for (unsigned k = 0; k < length; ++k) words[i][k] = (char)('a' + NextRandom(&state) % 26);
    words[i][length] = 0;
  }
  FILE* file = fopen(path, "w");
  if (file == NULL) Die(path);
  size_t done = 0;
  while (done < size) {
    const uint32_t a = NextRandom(&state) % 512, b = NextRandom(&state) % 512;
    const char* word = words[a < b ? a : b];  // some words are more frequent
    done += strlen(word) + 1;
    fputs(word, file);
    fputc(NextRandom(&state) % 12 == 0 ? '\n' : ' ', file);
  }
  if (fclose(file) != 0) Die(path);
}

static void StartBusybox(const struct Run* run, const char* input, const char* output,
                         char* const* arguments) {
  const int pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    const int in = open(input, O_RDONLY), out = open(output, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0) _exit(126);
    execv(run->busybox, arguments);
    _exit(127);
  }
}

static void RunBusybox(const struct Run* run, const char* input, const char* output,
                       char* const* arguments) {
  StartBusybox(run, input, output, arguments);
  WaitFor(-1);
}

uint64_t RunTool(const struct Run* run, unsigned workers, char* tool) {
  char input[4096], output[4096];
  snprintf(input, sizeof(input), "%s/input", run->folder);
  WriteText(input, ((size_t)run->count << 20) / workers);
  char* const arguments[] = {"busybox", tool, NULL};
  StartClock();
  for (unsigned i = 0; i < workers; ++i) {
    snprintf(output, sizeof(output), "%s/output%u", run->folder, i);
    StartBusybox(run, input, output, arguments);
  }
  for (unsigned i = 0; i < workers; ++i) WaitFor(-1);
  StopClock();
  uint64_t sum = 0;
  for (unsigned i = 0; i < workers; ++i) {
    snprintf(output, sizeof(output), "%s/output%u", run->folder, i);
    sum += SumOfFile(output);
    unlink(output);
  }
  unlink(input);
  return sum;
}

uint64_t RunGzip(const struct Run* run) { return RunTool(run, 1, "gzip"); }
uint64_t RunSha256(const struct Run* run) { return RunTool(run, 1, "sha256sum"); }

uint64_t RunShell(const struct Run* run) {
  char script[] =
      "i=0; while [ $i -lt $2 ]; do "
      "echo \"round $i of some\" | $1 sed 's/o/0/g' | $1 tr a-z A-Z; $1 expr $i \\* 3; "
      "$1 basename /a/$i.c .c; i=$((i + 1)); done";
  char output[4096], busybox[4096], count[16];
  snprintf(output, sizeof(output), "%s/output", run->folder);
  snprintf(busybox, sizeof(busybox), "%s", run->busybox);
  snprintf(count, sizeof(count), "%u", run->count);
  char* const arguments[] = {"busybox", "sh", "-c", script, "sh", busybox, count, NULL};
  StartClock();
  RunBusybox(run, "/dev/null", output, arguments);
  StopClock();
  const uint64_t sum = SumOfFile(output);
  unlink(output);
  return sum;
}
