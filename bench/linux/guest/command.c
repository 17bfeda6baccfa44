/* SPDX-License-Identifier: Apache-2.0 */
// Shell commands in a whole Debian: debian.inc.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

// The same on every machine; nothing of the user's or of systemd's.
static char* const kEnvironment[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/mnt/work",
    "TMPDIR=/mnt/work",
    "LC_ALL=C",
    "TZ=UTC",
    "TERM=dumb",
    "SOURCE_DATE_EPOCH=0",
    "PYTHONHASHSEED=0",
    "PYTHONDONTWRITEBYTECODE=1",
    // How deltas are found depends on the number of threads.
    "GIT_CONFIG_COUNT=1",
    "GIT_CONFIG_KEY_0=pack.threads",
    "GIT_CONFIG_VALUE_0=1",
};
enum { kVariables = sizeof(kEnvironment) / sizeof(kEnvironment[0]) };

// In `folder`, with `count` as $1, `asker` as $ASKER and all that it prints in the file `output`;
// its wait status.
static int Shell(const char* folder, const char* command, unsigned count, const char* asker,
                 const char* output) {
  char number[16], variable[128];
  snprintf(number, sizeof(number), "%u", count);
  snprintf(variable, sizeof(variable), "ASKER=%s", asker);
  char* environment[kVariables + 2];
  memcpy(environment, kEnvironment, sizeof(kEnvironment));
  environment[kVariables] = variable;
  environment[kVariables + 1] = NULL;
  const int pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(output, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (in < 0 || out < 0 || chdir(folder) != 0) _exit(126);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
    execle("/bin/bash", "bash", "-c", command, "bash", number, (char*)NULL, environment);
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) Die("waitpid");
  }
  return status;
}

// With the last line that it printed, as far as that fits a line of JSON.
static _Noreturn void DieOf(int status, const char* output) {
  char text[200] = "";
  FILE* file = fopen(output, "r");
  if (file != NULL) {
    char line[sizeof(text)];
    while (fgets(line, sizeof(line), file) != NULL) memcpy(text, line, sizeof(text));
    fclose(file);
  }
  for (char* c = text; *c != 0; ++c) {
    if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') *c = *c == '\n' ? 0 : '?';
  }
  char what[sizeof(text) + 64];
  snprintf(what, sizeof(what), "the command ended with %s %d: %s",
           WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), text);
  errno = 0;
  Die(what);
}

static void Show(const char* path) {
  FILE* file = fopen(path, "r");
  if (file == NULL) Die(path);
  char line[1024];
  while (fgets(line, sizeof(line), file) != NULL) printf("| %s", line);
  fclose(file);
}

uint64_t RunCommand(const struct Run* run) {
  char output[4096], work[4096];
  snprintf(output, sizeof(output), "%s/output", run->folder);
  snprintf(work, sizeof(work), "%s/work", run->folder);
  int status = Shell(run->folder, "rm -rf work && cp -r /opt/alibi-bench work", 0, "", output);
  if (status != 0) DieOf(status, output);
  StartClock();
  status = Shell(work, run->command, run->count, run->asker, output);
  StopClock();
  if (status != 0) DieOf(status, output);
  if (run->show) Show(output);
  return SumOfFile(output);
}
