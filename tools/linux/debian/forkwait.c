/* SPDX-License-Identifier: Apache-2.0 */
// The program of Adams and Agesen's section 6.2: forkwait COUNT.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int count = argc == 2 ? atoi(argv[1]) : 0;
  for (int i = 0; i < count; ++i) {
    const int pid = fork();
    if (pid < 0) return 1;
    if (pid == 0) return 0;
    if (waitpid(pid, NULL, 0) != pid) return 1;
  }
  return 0;
}
